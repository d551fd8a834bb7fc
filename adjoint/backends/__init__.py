"""Array backends: namespaces in the shape of the Python array API standard, plus a few extras.

Beside them, PyTorch's names for asking about libraries: `adjoint.backends.cudnn` and its like.
"""

import importlib as _importlib
from typing import Any as _Any

from ..core.device import register_loader as _register_loader
from ..core.errors import DeviceError as _DeviceError
from . import cpu as cpu
from . import cuda as cuda
from . import cudnn as cudnn
from . import mkl as mkl
from . import mkldnn as mkldnn
from . import mps as mps
from . import native as native
from . import openmp as openmp


def _load_torch() -> _Any:
    if not cuda.has_pytorch():
        raise _DeviceError(
            "device: PyTorch's memory serves the devices 'torch' and 'cuda', and PyTorch is not "
            "installed; pip install torch, or use 'cpu'; adjoint.cuda.is_available() says "
            "whether CUDA can be used"
        )
    return _importlib.import_module(f"{__name__}.torch")


_register_loader(("torch", "cuda"), _load_torch)
_register_loader(("meta",), lambda: _importlib.import_module(f"{__name__}.meta"))
