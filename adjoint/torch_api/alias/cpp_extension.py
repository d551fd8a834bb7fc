"""`torch.utils.cpp_extension`: C++ for PyTorch's own tensors, which is not compiled here."""

from ...core.missing_names import MODULES, Unmade, refused

CUDA_HOME = ROCM_HOME = None  # no toolkits are looked for
_PLACE, _WHY = "utils.cpp_extension", MODULES["cpp_extension"]


class BuildExtension(Unmade):
    """Build command of C++ extensions."""

    said = _PLACE, _WHY


load = refused(_PLACE, "load", _WHY)
load_inline = refused(_PLACE, "load_inline", _WHY)
include_paths = refused(_PLACE, "include_paths", _WHY)
library_paths = refused(_PLACE, "library_paths", _WHY)
CppExtension = refused(_PLACE, "CppExtension", _WHY)
CUDAExtension = refused(_PLACE, "CUDAExtension", _WHY)
