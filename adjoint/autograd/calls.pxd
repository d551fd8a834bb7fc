cimport cython
from ..core.handle cimport Handle
from ..core.mode cimport Mode
from ..eager.arrays cimport signature
from ..program.executable cimport Executable, find, inputs_of
from .tape cimport made, viewed

@cython.locals(found=Executable, arrays=list, tensors=list, mode=Mode)
cpdef object launched(object owner, tuple args)
