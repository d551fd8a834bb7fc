"""Settings of CUDA under PyTorch's names: PyTorch, which computes there, goes by them.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.cuda
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from typing import Any

from ..core.checked_modules import assert_known
from .settings import hand_on

__all__ = ["is_built", "matmul"]


class _Matmul:
    """Settings of matrix products on CUDA."""

    allow_tf32: bool
    allow_fp16_reduced_precision_reduction: bool
    allow_bf16_reduced_precision_reduction: bool

    def __init__(self) -> None:
        self.__dict__.update(
            allow_tf32=False,
            allow_fp16_reduced_precision_reduction=True,
            allow_bf16_reduced_precision_reduction=True,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        assert_known("adjoint.backends.cuda.matmul", self.__dict__, name, value)
        super().__setattr__(name, value)
        if name.startswith("allow_"):
            hand_on(f"backends.cuda.matmul.{name}", value)


matmul = _Matmul()


def has_pytorch() -> bool:
    """Whether PyTorch is installed, and `torch` means it (see `adjoint.as_torch`)."""
    module = importlib.util.find_spec("torch")
    return module is not None and module.origin != "adjoint"


@functools.cache
def has_driver() -> bool:
    """Whether the machine has a driver for CUDA, and PyTorch is installed."""
    if not has_pytorch():
        return False
    for name in ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def torch_with_cuda() -> Any:
    """PyTorch, which is imported only where the machine has a driver, if it has a CUDA device to
    compute on; None elsewhere.
    """
    if not has_driver():
        return None
    import torch

    return torch if torch.cuda.is_available() else None


def is_built() -> bool:
    """Whether adjoint can use CUDA here: PyTorch is installed, was built for it and finds a device.

    >>> ad.backends.cuda.is_built() == ad.cuda.is_available()
    True
    """
    return torch_with_cuda() is not None
