cimport cython
from libc.stdint cimport int64_t
from ....eager.arrays cimport address, call

cdef class Sequence:
    cdef public list failing, regions
    cdef list _keeps, _otherwise, _behind
    cdef object _words, _table, _pointers, _pool, _entry
    cdef int64_t _code, _at, _runs, _one
    cdef bint _quick, _shared, _refuses
    cdef object __weakref__
    cdef object _hire(self)
