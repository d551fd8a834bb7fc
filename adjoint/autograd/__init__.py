"""Differentiation: `backward`, `grad`, modes, `Function`, functional transforms, gradcheck.

Source: https://docs.pytorch.org/docs/stable/autograd.html
"""

from typing import TYPE_CHECKING, Any

from . import anomaly_mode, function, grad_mode, graph, profiler
from . import devices as devices  # serves other devices than the host
from . import fusion as fusion  # connects program.fused
from .function import Function
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .gradients import backward, grad
from .modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
)

if TYPE_CHECKING:
    from . import functional as functional

Variable: Any  # PyTorch's old name of Tensor, bound where the package is put together

__all__ = [
    "Function", "GradcheckError", "anomaly_mode", "backward", "detect_anomaly", "enable_grad",
    "function", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph",
    "inference_mode", "is_anomaly_enabled", "is_grad_enabled", "is_inference_mode_enabled",
    "no_grad", "profiler", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in ("forward_ad", "functional"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name in (
        "_disable_profiler", "_profiler_enabled", "is_multithreading_enabled",
        "set_multithreading_enabled", "variable",
    ):  # fmt: skip
        from . import deprecated

        return getattr(deprecated, name)
    from ..core.missing_names import missing

    raise missing("autograd", name)
