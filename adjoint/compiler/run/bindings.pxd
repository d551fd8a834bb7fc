cimport cython
from ...core.tensor_base cimport TensorBase
from ...core.arrays cimport address, copy_memory
from ...core.elements cimport owner
from ...runtime.tensors cimport wrap
from ...runtime.writes cimport announce
from ...runtime.node cimport Leaf, Node, new_node

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object)

cdef class BufferBinding:
    cdef list _moves
    cdef object _at
    cpdef object move(self, object array)

cdef class InputBinding(BufferBinding):
    cdef public object array, given
    cpdef object take(self, object array)

cdef class Bindings:
    cdef public list arguments, cotangents, tangents, owning, owned, movers, copies, writes, results
    @cython.locals(staged=list)
    cpdef list staged(self, object arguments)

@cython.locals(target=InputBinding, x=TensorBase, k=Py_ssize_t)
cpdef object take_all(list targets, object tensors)

cpdef object copy_all(list pairs)

cpdef object write_all(list staged)

@cython.locals(x=TensorBase)
cpdef list contents_of(list tensors)

cpdef list tensors_of(list arrays)

@cython.locals(x=TensorBase, y=TensorBase, node=object, parents=tuple, n=Py_ssize_t)
cpdef object end_all(list tensors, list wanting, object ended, tuple states, object arguments)

@cython.locals(mover=BufferBinding, x=TensorBase, k=Py_ssize_t)
cpdef object move_all(list movers, list tensors)

cdef class GradBuffers:
    cdef object __weakref__
    cdef public list homes, leaves, tensors
    @cython.locals(x=TensorBase, leaf=Leaf, k=Py_ssize_t)
    cpdef object prepare(self, list read)

@cython.locals(g=TensorBase)
cpdef Py_ssize_t holders(list tensors, Py_ssize_t k, Leaf leaf) except -1

@cython.locals(g=TensorBase)
cpdef Py_ssize_t showers(list tensors, Py_ssize_t k) except -1

cdef Py_ssize_t _ALONE, _UNSHOWN

@cython.locals(x=TensorBase, g=TensorBase, leaf=Leaf, target=InputBinding, k=Py_ssize_t)
cpdef bint take_gradients(list leaves, list targets, list arguments) except -1

@cython.locals(x=TensorBase, leaf=Leaf, k=Py_ssize_t)
cpdef object give(list leaves, list gradients, list dropped)
