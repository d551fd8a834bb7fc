cimport cython
from .handover cimport end_all, tensors_of

cdef class Made:
    cdef public list computed
    cdef public object arguments, numbers
    cdef public dict objects

cdef class Form:
    cdef public bint shared
    cpdef object of(self, Made made)
    cpdef object new(self, Made made)

cdef class Constant(Form):
    cdef object value
    cpdef object new(self, Made made)

cdef class Computed(Form):
    cdef Py_ssize_t place
    cpdef object new(self, Made made)

cdef class Given(Computed):
    cpdef object new(self, Made made)

cdef class Numbered(Computed):
    cpdef object new(self, Made made)

cdef class Items(Form):
    cdef object kind
    cdef list parts
    @cython.locals(part=Form, found=list)
    cpdef object new(self, Made made)

cdef class Named(Items):
    cpdef object new(self, Made made)

cdef class Filled(Form):
    cdef object shell
    cdef dict parts
    cpdef object new(self, Made made)

cdef class Fields(Filled):
    cpdef object new(self, Made made)

cdef class Results:
    cdef Form _form
    cdef list _wanting, _leaves
    cdef object _ended
    cdef bint _closed
    @cython.locals(found=list)
    cpdef list wrapped(self, list arrays, object nodes, tuple states, object arguments)
    cpdef object rebuilt(self, list computed, object arguments, object numbers=*)
