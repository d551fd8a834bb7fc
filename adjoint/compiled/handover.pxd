cimport cython
from ..core.tensor_base cimport TensorBase
from ..eager.arrays cimport address, copy_memory
from ..eager.tensors cimport wrap
from ..eager.writes cimport announce
from ..graph.node cimport Leaf, Node, new_node

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object)

cdef class Argument:
    cdef public object array, given
    cdef list _moves
    cdef object _at, _own
    cpdef object take(self, object array)

@cython.locals(target=Argument, x=TensorBase, k=Py_ssize_t)
cpdef object take_all(list targets, object tensors)

cpdef object copy_all(list pairs)

cpdef object write_all(list staged)

cpdef list tensors_of(list arrays)

@cython.locals(x=TensorBase, y=TensorBase, node=object, parents=tuple, n=Py_ssize_t)
cpdef object end_all(list tensors, list wanting, object ended, tuple states, object arguments)

@cython.locals(
    x=TensorBase, g=TensorBase, leaf=Leaf, k=Py_ssize_t, first=bint, count=Py_ssize_t,
    more=Py_ssize_t)
cpdef bint holders(list leaves, list gradients, list known) except -1

@cython.locals(x=TensorBase, leaf=Leaf, k=Py_ssize_t)
cpdef object give(list leaves, list gradients, list dropped)
