cimport cython

cdef class TreeSpec:
    cdef public bint shared
    cpdef object build(self, object values)
    cpdef object new(self, object values)

cdef class LeafSpec(TreeSpec):
    cpdef object new(self, object values)

cdef class ConstantSpec(TreeSpec):
    cdef public object value
    cpdef object new(self, object values)

cdef class ContainerSpec(TreeSpec):
    cdef public object kind, make
    cdef public list names, children
    @cython.locals(child=TreeSpec, items=list, made=dict, n=Py_ssize_t)
    cpdef object new(self, object values)
