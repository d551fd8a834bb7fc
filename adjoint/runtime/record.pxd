cimport cython
from ..core.tensor_base cimport TensorBase
from ..core.mode cimport Mode
from .node cimport Node, Version, new_node

@cython.locals(saved=list, changed=bint, kind=str, index=Py_ssize_t, place=Py_ssize_t,
               version=Version, saving=tuple)
cpdef Node record(object op, tuple inputs, tuple parents, object y, Mode mode)
cpdef tuple parents_of(tuple inputs)
