"""cuDNN under PyTorch's names: PyTorch, which computes on CUDA, uses it by these settings.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.cudnn
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from .cuda import torch_with_cuda
from .settings import make_settable

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "flags", "is_available",
           "version"]  # fmt: skip

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
allow_tf32 = True  # convolutions of float32 on CUDA are rounded to ten bits, as in PyTorch

make_settable(__name__, "enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")


def is_available() -> bool:
    """Whether cuDNN computes anything here: convolutions on CUDA.

    >>> ad.backends.cudnn.is_available() and not ad.cuda.is_available()
    False
    """
    torch = torch_with_cuda()
    return torch is not None and bool(torch.backends.cudnn.is_available())


def version() -> int | None:
    """The version of cuDNN; None where it is not used."""
    torch = torch_with_cuda()
    return None if torch is None else torch.backends.cudnn.version()


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Other settings within a block.

    >>> with ad.backends.cudnn.flags(deterministic=True):
    ...     ad.backends.cudnn.deterministic
    True
    >>> ad.backends.cudnn.deterministic
    False
    """
    new = dict(locals())
    module = sys.modules[__name__]
    old = {name: getattr(module, name) for name in new}
    try:
        for name, value in new.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in old.items():
            setattr(module, name, value)
