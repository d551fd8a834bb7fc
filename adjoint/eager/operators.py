"""Public functions of one op of one or two inputs, and how they get to it at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import numpy as backend
from ..core import dtype as dt
from ..core.mistakes import MISTAKES, recovered
from ..core.mode import without_autocast
from ..core.op import Op
from ..core.overrides import ABSENT, FOLLOWED, overridden
from . import public
from .dispatch import run_known

# Ways to record usual elementwise ops of 1 and 2 inputs on graphs; they return None for others.
RECORDERS: dict[int, Callable[..., Any]] = {}

# What a number beside an array of that dtype may be, where it is written into the array: 0 none,
# 1 int, 2 int or float.
_NUMBERS = {
    d.numpy: (2 if d.itemsize > 2 else 0) if d.numpy.kind == "f" else int(d.numpy.kind == "i")
    for d in dt.ALL
    if d is not dt.bfloat16
}
_SMALL = range(-128, 128)  # ints that every signed dtype has


def plain_dtypes(function: Any, kinds: str) -> dict[Any, int]:
    """The dtypes of `kinds` that `function` computes as PyTorch does, with their numbers; without
    a function, those that need no float32.
    """
    half = isinstance(function, np.ufunc)  # NumPy's own functions compute float16 in float32
    return {
        d: number for d, number in _NUMBERS.items() if d.kind in kinds and (half or d != np.float16)
    }


def takes_number(numbers: int | None, value: Any) -> bool:
    """Whether a number may be written into an array that takes `numbers`."""
    kind = type(value)
    return (kind is float and numbers == 2) or (kind is int and bool(numbers) and value in _SMALL)


def binary_operator(
    op: Op, general: Callable[[Any, Any], Any], kinds: str = "biufc", ufunc: str | None = None
) -> Callable[..., Any]:
    """`general(input, other)`, which applies `op`; without its checks and conversions, where the op
    was computed for such arrays, or where graphs record it. `ufunc`: the backend's function for it
    (None: the op's own; "": it is none).
    """
    if ufunc is None:
        ufunc = op.ufunc  # type: ignore[attr-defined]
    result = getattr(op, "result", "") if ufunc else ""
    function = getattr(backend, ufunc) if ufunc else None
    dtypes = plain_dtypes(function, kinds)

    def operator(input: Any, other: Any, *, out: Any = None) -> Any:
        if out is not None:
            if FOLLOWED:
                said = overridden(operator, (input, other), {"out": out})
                if said is not ABSENT:
                    return said
            return public.write_out(without_autocast(general, input, other), out, op.name)
        y = run_known(op, (input, other))
        if y is None and FOLLOWED:
            said = overridden(operator, (input, other), {})
            if said is not ABSENT:
                return said
        if y is None and (result == "same" or result == "bool"):
            y = RECORDERS[2](op, dtypes, result == "bool", input, other)
        if y is not None:
            return y
        try:
            return general(input, other)
        except MISTAKES as error:
            return recovered(error, operator, general, (input, other), {})

    return operator


def unary_operator(
    op: Op, general: Callable[[Any], Any], kinds: str = "biufc", ufunc: str | None = None
) -> Callable[..., Any]:
    """`general(input)`, as `binary_operator`."""
    if ufunc is None:
        ufunc = op.ufunc  # type: ignore[attr-defined]
    records = bool(ufunc) and getattr(op, "result", "") == "same"
    function = getattr(backend, ufunc) if ufunc else None
    dtypes = plain_dtypes(function, kinds)

    def operator(input: Any, *, out: Any = None) -> Any:
        if out is not None:
            if FOLLOWED:
                said = overridden(operator, (input,), {"out": out})
                if said is not ABSENT:
                    return said
            return public.write_out(without_autocast(general, input), out, op.name)
        y = run_known(op, (input,))
        if y is None and FOLLOWED:
            said = overridden(operator, (input,), {})
            if said is not ABSENT:
                return said
        if y is None and records:
            y = RECORDERS[1](op, dtypes, input)
        if y is not None:
            return y
        try:
            return general(input)
        except MISTAKES as error:
            return recovered(error, operator, general, (input,), {})

    return operator
