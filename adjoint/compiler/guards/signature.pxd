cimport cython
from ...core.tensor_base cimport TensorBase
from ...core.elements cimport order_in_memory
from ...runtime.node cimport Leaf

cdef class Signature:
    cdef public bint leaves, host
    cdef public list key, tensors, objects, containers
    cdef dict _known
    cpdef object add_all(self, object items)
    @cython.locals(key=list, n=Py_ssize_t)
    cpdef object add(self, object x)
    @cython.locals(count=Py_ssize_t, n=Py_ssize_t, number_of=dict, items=list)
    cdef Py_ssize_t _number(self, object x, list among) except -2
    @cython.locals(key=list, n=Py_ssize_t, order=tuple)
    cdef object _add_tensor(self, TensorBase x)

@cython.locals(handle=TensorBase, leaf=Leaf)
cpdef bint is_input(object x, bint leaves) except -1
