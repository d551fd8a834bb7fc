cimport cython
from ..run.bindings cimport end_all, tensors_of

cdef class RunValues:
    cdef public list computed
    cdef public object arguments, numbers
    cdef public dict objects

cdef class ResultTree:
    cdef public bint shared
    cpdef object of(self, RunValues made)
    cpdef object new(self, RunValues made)

cdef class ConstantResult(ResultTree):
    cdef object value
    cpdef object new(self, RunValues made)

cdef class ComputedResult(ResultTree):
    cdef Py_ssize_t place
    cpdef object new(self, RunValues made)

cdef class ArgumentResult(ComputedResult):
    cpdef object new(self, RunValues made)

cdef class NumberResult(ComputedResult):
    cpdef object new(self, RunValues made)

cdef class ContainerResult(ComputedResult):
    cpdef object new(self, RunValues made)

cdef class SequenceResult(ResultTree):
    cdef object kind
    cdef list parts
    @cython.locals(part=ResultTree, items=list)
    cpdef object new(self, RunValues made)

cdef class NamedTupleResult(SequenceResult):
    cpdef object new(self, RunValues made)

cdef class DictResult(ResultTree):
    cdef object shell
    cdef dict parts
    cpdef object new(self, RunValues made)

cdef class DataclassResult(DictResult):
    cpdef object new(self, RunValues made)

cdef class Results:
    cdef ResultTree _form
    cdef list _wanting, _leaves
    cdef object _ended
    cdef bint _closed
    @cython.locals(tensors=list)
    cpdef list wrapped(self, list arrays, object nodes, tuple states, object arguments)
    cpdef object rebuilt(self, list computed, object arguments, object numbers=*)
