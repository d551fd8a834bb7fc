"""Helpers beside the framework's core: `utils.checkpoint`, `utils.data`, `utils.Checkpoint`.

Source: https://docs.pytorch.org/docs/stable/data.html
"""

from typing import TYPE_CHECKING, Any

from . import checkpoint, data, dlpack, hooks
from .resume import Checkpoint

if TYPE_CHECKING:
    from ...autograd.swapping import swap_tensors

__all__ = ["Checkpoint", "checkpoint", "data", "dlpack", "hooks", "swap_tensors"]


def __getattr__(name: str) -> Any:  # what few programs use is imported with its first use
    if name != "swap_tensors":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ...autograd.swapping import swap_tensors

    return swap_tensors
