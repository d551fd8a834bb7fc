cimport cython
from ..core.tensor_base cimport TensorBase
from ..eager.elements cimport common_number, put_number
from ..eager.writes cimport announce
from ..graph.node cimport Version
from ..program.standing cimport have_memory

cdef class Launch:
    cdef public object run, fill
    cdef public list numbers

@cython.locals(each=Launch, version=Version, watched=list)
cpdef object launch_all(object launches, list written)

cdef class Counter:
    cdef object _group, _formula, _state
    cdef list _tensors, _arrays, _bound
    cdef double _step
    cpdef object numbers(self, object optimizer)
    @cython.locals(version=Version, watched=list)
    cpdef object count(self)

cdef class Counted:
    cdef object _optimizer
    cdef list _written, _launches, _counters
    @cython.locals(k=Py_ssize_t, launch=Launch, counter=Counter, numbers=list)
    cpdef object run(self)
