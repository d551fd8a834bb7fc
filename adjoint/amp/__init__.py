"""Mixed precision: `autocast` chooses the precision of each operation, `GradScaler` keeps small
float16 gradients from vanishing.

Source: https://docs.pytorch.org/docs/stable/amp.html
"""

from . import cpu as cpu
from . import cuda as cuda
from .autocast_mode import (
    autocast,
    autocast_again,
    clear_autocast_cache,
    custom_bwd,
    custom_fwd,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from .grad_scaler import GradScaler

__all__ = [
    "GradScaler", "autocast", "autocast_again", "clear_autocast_cache", "cpu", "cuda",
    "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_available",
    "is_autocast_cache_enabled", "is_autocast_enabled", "set_autocast_cache_enabled",
    "set_autocast_dtype", "set_autocast_enabled",
]  # fmt: skip
