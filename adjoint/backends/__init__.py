"""Array backends: namespaces in the shape of the Python array API standard, plus a few extras.

Beside them, PyTorch's names for asking about libraries: `adjoint.backends.cudnn` and its like.
"""

import importlib as _importlib

from ..core.device import register_loader as _register_loader
from . import cuda as cuda
from . import cudnn as cudnn
from . import mkl as mkl
from . import mkldnn as mkldnn
from . import mps as mps
from . import native as native
from . import openmp as openmp

_register_loader(("torch", "cuda"), lambda: _importlib.import_module(f"{__name__}.torch"))
