cimport cython
from ..core.tensor_base cimport TensorBase
from ..core.mode cimport Mode
from ..ir.executable cimport Executable, find, find_numbered, inputs_of
from ..core.arrays cimport CachedLaunch, CachedView, CachedViews, signature
from .record cimport parents_of, record
from .tensors cimport wrap
from .views cimport mark_view, viewed

@cython.locals(mode=Mode)
cpdef object execute(object op, tuple inputs)
@cython.locals(y=TensorBase, handle=TensorBase)
cpdef object made(object op, tuple inputs, object result, bint records, Mode mode)
@cython.locals(mode=Mode)
cpdef object apply_view(object op, object x)
@cython.locals(y=TensorBase, k=Py_ssize_t, tensors=list)
cdef object _views(object op, TensorBase x, list results, tuple singles, Mode mode)
@cython.locals(executable=Executable, viewers=CachedViews, arrays=list, tensors=list, inputs=tuple, mode=Mode)
cpdef object run_known(object owner, tuple args, bint by_gradient=*)
