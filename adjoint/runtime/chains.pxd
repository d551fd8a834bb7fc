cimport cython
from .lazy cimport LazyValue

cdef class Chain:
    cdef public object state
    cdef object _profiler
    cdef public dict cells
    cdef dict _known
    cdef object _shape
    cdef Py_ssize_t _most, _made
    @cython.locals(cells=dict)
    cpdef bint takes(self, LazyValue cell, Py_ssize_t order) except -1
    @cython.locals(cells=list, done=Py_ssize_t, cell=LazyValue)
    cpdef compute(self)
    cpdef forget(self, Py_ssize_t kept=*)
    @cython.locals(key=tuple, arrays=list, places=list, x=LazyValue)
    cdef object _by_kernel(self, list cells)

@cython.locals(arrays=list, x=LazyValue)
cpdef list given(LazyValue cell)
