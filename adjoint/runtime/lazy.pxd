from ..core.arrays cimport identity

cdef class LazyValue:
    cdef public object op
    cdef public tuple inputs
    cdef public object shape
    cdef public object dtype
    cdef public object array
    cdef public object lies
    cdef public object memory
    cdef public object device
    cdef object __weakref__
