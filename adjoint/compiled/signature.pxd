cimport cython
from ..core.tensor_base cimport TensorBase
from ..eager.elements cimport order_in_memory
from ..graph.node cimport Leaf

cdef class Signature:
    cdef public bint leaves, host
    cdef public list key, tensors, objects
    cdef dict _known
    cpdef object add_all(self, object items)
    @cython.locals(key=list)
    cpdef object add(self, object x)
    @cython.locals(key=list, tensors=list, place=Py_ssize_t, n=Py_ssize_t, known=dict, order=tuple)
    cdef object _add_tensor(self, TensorBase x)

@cython.locals(handle=TensorBase, leaf=Leaf)
cpdef bint is_input(object x, bint leaves) except -1
