"""`adjoint.cpu.amp`: PyTorch's older names, for the CPU.

Source: https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

from typing import Any

from ..core.dtype import bfloat16, dtype
from . import autocast_mode, grad_scaler

__all__ = ["GradScaler", "autocast"]


class autocast(autocast_mode.autocast):  # noqa: N801 - PyTorch's name
    """`adjoint.autocast("cpu", ...)`.

    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.cpu.amp.autocast
    """

    def __init__(
        self, enabled: bool = True, dtype: dtype = bfloat16, cache_enabled: bool = True
    ) -> None:
        autocast_mode.warn_of_older("cpu", "autocast")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(grad_scaler.GradScaler):
    """`adjoint.amp.GradScaler("cpu", ...)`.

    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.cpu.amp.GradScaler
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        autocast_mode.warn_of_older("cpu", "GradScaler")
        super().__init__("cpu", *args, **kwargs)
