"""autocast's switches under their older names, one for each device type.

`xla` and `ipu` are set and asked like the others; no tensor is there, so that nothing is converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.dtype import dtype
from ..core.errors import InvalidType
from .autocast_mode import change_target, target_of

_SOURCE = "    Source: https://docs.pytorch.org/docs/stable/amp.html\n"


def _functions(short: str, device: str) -> dict[str, Callable[..., Any]]:
    """The four functions of one device type."""

    def is_enabled() -> bool:
        return target_of(device).enabled

    def set_enabled(enabled: bool) -> None:
        if not isinstance(enabled, bool):
            raise InvalidType(
                f"set_autocast_{short}_enabled: enabled must be a bool (got "
                f"{type(enabled).__name__})"
            )
        change_target(device, enabled=enabled)

    def get_dtype() -> dtype:
        return target_of(device).dtype

    def set_dtype(dtype_: dtype) -> None:
        if not isinstance(dtype_, dtype):
            raise InvalidType(
                f"set_autocast_{short}_dtype: dtype must be a dtype (got {type(dtype_).__name__})"
            )
        change_target(device, dtype=dtype_)

    made: dict[str, tuple[Any, str]] = {
        f"is_autocast_{short}_enabled": (is_enabled, f"is_autocast_enabled('{device}')"),
        f"set_autocast_{short}_enabled": (set_enabled, f"set_autocast_enabled('{device}', ...)"),
        f"get_autocast_{short}_dtype": (get_dtype, f"get_autocast_dtype('{device}')"),
        f"set_autocast_{short}_dtype": (set_dtype, f"set_autocast_dtype('{device}', ...)"),
    }
    for name, (function, new) in made.items():
        function.__name__ = function.__qualname__ = name
        function.__doc__ = f"`{new}`, which is preferred.\n\n{_SOURCE}"
    return {name: function for name, (function, _) in made.items()}


for _short, _device in (("cpu", "cpu"), ("gpu", "cuda"), ("ipu", "ipu"), ("xla", "xla")):
    globals().update(_functions(_short, _device))

_nesting = [0]


def autocast_increment_nesting() -> int:
    """Count one region more; how many there are. `autocast` itself needs no count.

    Source: https://docs.pytorch.org/docs/stable/amp.html
    """
    _nesting[0] += 1
    return _nesting[0]


def autocast_decrement_nesting() -> int:
    """Count one region less; how many are left. At none, converted parameters are forgotten where
    the caller calls `clear_autocast_cache`, as those of PyTorch do.

    Source: https://docs.pytorch.org/docs/stable/amp.html
    """
    _nesting[0] -= 1
    return _nesting[0]
