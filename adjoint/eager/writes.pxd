cimport cython
from ..core.handle cimport Handle
from ..core.mode cimport Mode
from ..graph.node cimport Node, Version, View
from .arrays cimport copy_memory
from .tensors cimport wrap

@cython.locals(version=Version, mode=Mode)
cpdef bint copied(object x, object y, object name) except -1
