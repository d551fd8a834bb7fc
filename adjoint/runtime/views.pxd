cimport cython
from ..core.tensor_base cimport TensorBase
from ..core.mode cimport Mode
from .node cimport Node, Version, View, new_node
from .tensors cimport wrap

@cython.locals(y=TensorBase)
cpdef object viewed(object op, object x, object result, Mode mode)
@cython.locals(version=Version, view=View)
cpdef object mark_view(object y, object x, object op, object refusal=*)
@cython.locals(version=Version, views=list)
cpdef object register_view(object y)
