"""Instance normalization under PyTorch's name for this file."""

from .batchnorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .batchnorm import _InstanceNorm as _InstanceNorm
from .lazy import LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip
