"""adjoint: tensors with automatic differentiation, PyTorch's API, one graph executed four ways."""

from . import autograd
from .autograd.gradients import *
from .autograd.modes import *
from .core.device import *
from .core.dtype import *
from .core.errors import *
from .core.spec import Size
from .ops.elementwise import *
from .ops.matmul import *
from .ops.movement import *
from .ops.promotion import *
from .ops.reduction import *
from .tensor import *

__version__ = "0.1.0"
