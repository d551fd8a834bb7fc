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

@cython.locals(k=Py_ssize_t, held=dict)
cpdef bint hold_names(list holders, list keys, list values, object absent) except -1

@cython.locals(k=Py_ssize_t)
cpdef bint hold_attributes(list holders, list names, list values, object absent) except -1

@cython.locals(each=tuple, k=Py_ssize_t, items=list, values=list)
cpdef bint hold_contents(list listed) except -1

@cython.locals(k=Py_ssize_t)
cpdef bint hold_cells(list cells, list values) except -1
