cimport cython
from libc.stdint cimport int64_t
from ....core.arrays cimport address, call

cdef class LaunchList:
    cdef public list failing, regions
    cdef list _keeps, _otherwise, _behind
    cdef object _words, _table, _pointers, _pool, _entry
    cdef int64_t _code, _at, _runs, _one
    cdef bint _quick, _shared, _refuses
    cdef object __weakref__
    cdef object _hire(self)
    cdef tuple _inside(self, object array)
