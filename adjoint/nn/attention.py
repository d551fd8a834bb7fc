"""Choice of how attention is computed, under PyTorch's names: here it is the fastest that fits.

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

from ..core.errors import InvalidType, Unsupported
from ..core.missing_names import refused

__all__ = ["SDPBackend", "sdpa_kernel"]
__path__: list[str] = []  # PyTorch's is a package; its `flex_attention` is this module, too


class SDPBackend(enum.IntEnum):
    """Kinds of attention that PyTorch has."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Ask for kinds of attention within a `with` block.

    Here it changes nothing: there is one kind, and the values are the same.

    Args:
        backends: SDPBackend, or a list of them.
        set_priority: Accepted for programs written for PyTorch; changes nothing. Default: False.

    Errors: InvalidType for what is no SDPBackend.
    """
    for each in backends if isinstance(backends, (list, tuple)) else (backends,):
        if not isinstance(each, SDPBackend):
            raise InvalidType(f"sdpa_kernel: expected SDPBackends, got {each!r}")
    yield


class BlockMask:
    """A mask by blocks, of `flex_attention`: none is made here.

    Errors: Unsupported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported(f"nn.attention.{type(self).__name__}: {_DENSE}")


_DENSE = "scaled_dot_product_attention with a dense mask or bias computes the same"
flex_attention = refused("nn.attention", "flex_attention", _DENSE)
create_block_mask = refused("nn.attention", "create_block_mask", _DENSE)
AuxRequest = refused("nn.attention", "AuxRequest", _DENSE)
_DEFAULT_SPARSE_BLOCK_SIZE = 128
