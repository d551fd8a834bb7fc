cimport cython
from ...core.tensor_base cimport TensorBase
from ...core.elements cimport common_number, put_number
from ...runtime.writes cimport announce
from ...runtime.node cimport Version
from ..guards.identity_guards cimport have_memory

cdef class Launch:
    cdef public object run, fill
    cdef public list numbers

@cython.locals(each=Launch, version=Version, watched=list)
cpdef object launch_all(object launches, list written)

cdef class StepCounter:
    cdef object _group, _formula, _state
    cdef list _tensors, _arrays, _bound
    cdef double _step
    cpdef object numbers(self, object optimizer)
    @cython.locals(version=Version, watched=list)
    cpdef object count(self)

cdef class CountedStep:
    cdef object _optimizer
    cdef list _written, _launches, _counters
    cpdef object run(self)
    @cython.locals(k=Py_ssize_t, launch=Launch, counter=StepCounter, numbers=list)
    cpdef bint prepare(self) except -1
    @cython.locals(counter=StepCounter)
    cpdef object commit(self)
