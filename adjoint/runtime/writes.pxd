cimport cython
from ..core.overrides cimport overridden
from ..core.tensor_base cimport TensorBase
from ..core.mode cimport Mode
from .node cimport Node, Version, View
from ..ir.executable cimport Executable, find, find_numbered
from ..core.arrays cimport CachedLaunch, copy_memory, signature
from .tensors cimport wrap

@cython.locals(x=TensorBase, version=Version, view=View, mode=Mode, arrays=list, executable=Executable, then=Executable,
               watched=bint)
cpdef object write_known(object owner, object name, tuple args)

@cython.locals(x=TensorBase, version=Version)
cpdef list announce(object tensors, object name)

@cython.locals(version=Version, mode=Mode)
cpdef bint copied(object x, object y, object name) except -1

@cython.locals(version=Version, mode=Mode)
cpdef bint is_copied_to(object x, object args) except -1

cpdef bint write_by_kernel(object owner, object name, object function, object args, object kwargs) except -1
