"""Exchange of memory with other array libraries by the DLPack protocol.

Source: https://docs.pytorch.org/docs/stable/dlpack.html
"""

from __future__ import annotations

from typing import Any

from ...ops.create.exchange import from_dlpack
from ...tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule that shows the tensor's memory; libraries that call `__dlpack__` need none.

    Source: https://docs.pytorch.org/docs/stable/dlpack.html#torch.utils.dlpack.to_dlpack

    >>> type(ad.utils.dlpack.to_dlpack(ad.ones(2))).__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()
