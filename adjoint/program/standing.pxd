cimport cython
from ..core.tensor_base cimport TensorBase
from ..graph.node cimport Leaf

@cython.locals(each=tuple, x=TensorBase)
cpdef bint have_memory(list bound) except -1

@cython.locals(each=tuple, x=TensorBase, leaf=Leaf, present=bint)
cpdef bint have_gradients(list presence) except -1

@cython.locals(each=tuple, x=TensorBase)
cpdef object want_gradients(list wanting)

@cython.locals(each=tuple)
cpdef bint hold_items(list kept) except -1

cdef class Held:
    cdef list _dicts, _keys, _values, _objects, _names, _attributes, _cells, _contents, _listed
    cdef object _absent
    @cython.locals(k=Py_ssize_t, held=dict, each=tuple, items=list, values=list)
    cpdef bint hold(self) except -1
