"""PyTorch's older path to profiles. Their home lies above this layer: `adjoint.profiler.autograd`.

Source: https://docs.pytorch.org/docs/stable/autograd.html#profiler
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "emit_itt", "emit_nvtx", "profile",
    "record_function",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module("adjoint.profiler.autograd"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
