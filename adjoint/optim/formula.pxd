cimport cython

cdef class Formula:
    cdef public object arithmetic, numbers, run, values
    cdef public dict options
    cdef public list written
    @cython.locals(given=list)
    cpdef object with_numbers(self, tuple asked)

cdef bint _fits(object value, object pattern, list numbers) except -1
