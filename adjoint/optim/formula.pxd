cimport cython

cdef class Formula:
    cdef public object arithmetic, numbers, run, values
    cdef public dict options
    cdef public list written
    cdef list _asked
    cdef object _rest
    @cython.locals(given=list)
    cpdef object with_numbers(self, tuple asked)
    @cython.locals(asked=list, k=Py_ssize_t)
    cdef bint _are_asked(self, dict group) except -1
    @cython.locals(given=list, asked=list, same=bint)
    cdef object _of_options(self, dict group)

@cython.locals(k=Py_ssize_t)
cdef bint _fits(object value, object pattern, list numbers) except -1
