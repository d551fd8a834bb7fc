"""Stub modules for devices that are never present here: `xpu`, `mps`, `mtia`. Queries are answered
as on a machine without the device; functions that need one are refused.

Questions have answers, as on a machine without the device; what needs one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..core.errors import DeviceError
from ..namespaces.cuda import Event, Stream, StreamContext

ANSWERS: dict[str, Any] = {
    "device_count": 0,
    "is_available": False,
    "is_bf16_supported": False,
    "is_initialized": False,
    "is_tf32_supported": False,
    # a seed is kept until there is a device, which is never
    "manual_seed": None,
    "manual_seed_all": None,
    "seed": None,
    "seed_all": None,
    # nothing is kept on it
    "empty_cache": None,
    "max_memory_allocated": 0,
    "max_memory_reserved": 0,
    "memory_allocated": 0,
    "memory_reserved": 0,
}
CLASSES = {"Event": Event, "Stream": Stream, "StreamContext": StreamContext}


def functions(kind: str, names: str) -> dict[str, Any]:
    """The members of the module of a kind of device, by name."""
    return {name: CLASSES.get(name) or _function(kind, name) for name in names.split()}


def _function(kind: str, name: str) -> Callable[..., Any]:
    def answer(*args: object, **kwargs: object) -> Any:
        return ANSWERS[name]

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise DeviceError(
            f"{kind}.{name}: there are no {kind} devices here; ask {kind}.is_available() first, or "
            "use the CPU"
        )

    function = answer if name in ANSWERS else refuse
    function.__name__ = function.__qualname__ = name
    function.__module__ = f"{__name__.partition('.')[0]}.{kind}"
    return function
