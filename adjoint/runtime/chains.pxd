cimport cython

cdef class Chain:
    cdef public object state
    cdef object _profiler
    cdef public dict cells
    cdef dict _known
    cdef object _shape
    cdef Py_ssize_t _most, _made
    cpdef bint takes(self, object cell) except -1
    @cython.locals(cells=list, done=Py_ssize_t)
    cpdef compute(self)
    cpdef forget(self, Py_ssize_t kept=*)
    @cython.locals(key=tuple, arrays=list, places=list)
    cdef object _by_kernel(self, list cells)

cpdef list given(object cell)
