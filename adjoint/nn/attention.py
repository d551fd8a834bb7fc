"""Which way attention is computed, under PyTorch's names: there is one here, the fastest that fits.

Source: https://docs.pytorch.org/docs/stable/nn.attention.html

>>> from adjoint.nn.attention import SDPBackend, sdpa_kernel
>>> with sdpa_kernel(SDPBackend.MATH):
...     y = ad.nn.functional.scaled_dot_product_attention(*[ad.ones(1, 1, 2, 2)] * 3)
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from ..core.errors import InvalidType

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's ways."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Ask for ways inside a block: values are the same, and so is the way here.

    Errors: InvalidType for what is no SDPBackend.
    """
    for each in backends if isinstance(backends, (list, tuple)) else (backends,):
        if not isinstance(each, SDPBackend):
            raise InvalidType(f"sdpa_kernel: expected SDPBackends, got {each!r}")
    yield
