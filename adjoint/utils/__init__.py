"""Helpers beside the framework's core: `utils.checkpoint`, `utils.data`, `utils.Checkpoint`.

Source: https://docs.pytorch.org/docs/stable/data.html
"""

from ..autograd.swapping import swap_tensors
from . import checkpoint, data, dlpack, hooks
from .resume import Checkpoint

__all__ = ["Checkpoint", "checkpoint", "data", "dlpack", "hooks", "swap_tensors"]
