"""`adjoint.cuda.amp`: PyTorch's older names, for CUDA.

Source: https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import functools
from typing import Any

from ..core.dtype import dtype, float16
from . import autocast_mode, grad_scaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(autocast_mode.autocast):  # noqa: N801 - PyTorch's name
    """`adjoint.autocast("cuda", ...)`.

    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.cuda.amp.autocast
    """

    def __init__(
        self, enabled: bool = True, dtype: dtype = float16, cache_enabled: bool = True
    ) -> None:
        autocast_mode.warn_of_older("cuda", "autocast")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(grad_scaler.GradScaler):
    """`adjoint.amp.GradScaler("cuda", ...)`.

    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.cuda.amp.GradScaler
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        autocast_mode.warn_of_older("cuda", "GradScaler")
        super().__init__("cuda", *args, **kwargs)


custom_fwd = functools.partial(autocast_mode.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(autocast_mode.custom_bwd, device_type="cuda")
