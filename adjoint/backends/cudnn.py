"""cuDNN under PyTorch's names: it is not used, and its settings are kept but change nothing.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.cudnn
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "flags", "is_available",
           "version"]  # fmt: skip

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Whether cuDNN computes anything here.

    >>> ad.backends.cudnn.is_available()
    False
    """
    return False


def version() -> int | None:
    """The version of cuDNN; None where it is not used."""
    return None


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
    old = {name: globals()[name] for name in new}
    globals().update(new)
    try:
        yield
    finally:
        globals().update(old)
