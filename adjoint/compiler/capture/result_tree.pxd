cimport cython
from ...core.tree cimport TreeSpec
from ..run.bindings cimport end_all, tensors_of

cdef class RunValues:
    cdef public list computed
    cdef public object arguments, numbers
    cdef public dict objects

cdef class ComputedResult(TreeSpec):
    cdef Py_ssize_t place
    @cython.locals(made=RunValues)
    cpdef object new(self, object values)

cdef class ArgumentResult(ComputedResult):
    @cython.locals(made=RunValues)
    cpdef object new(self, object values)

cdef class ViewResult(TreeSpec):
    cdef TreeSpec base
    cdef tuple ops, shape
    cdef bint graded, detached, leaf
    cpdef object new(self, object values)

cdef class NumberResult(ComputedResult):
    @cython.locals(made=RunValues)
    cpdef object new(self, object values)

cdef class ContainerResult(ComputedResult):
    @cython.locals(made=RunValues)
    cpdef object new(self, object values)

cdef class Results:
    cdef TreeSpec _form
    cdef list _wanting, _leaves
    cdef object _ended
    cdef bint _closed
    @cython.locals(tensors=list)
    cpdef list wrapped(self, list arrays, object nodes, tuple states, object arguments)
    cpdef object rebuilt(self, list computed, object arguments, object numbers=*)
