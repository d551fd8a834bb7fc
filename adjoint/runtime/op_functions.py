"""Public functions of one op on one or two inputs, with short cuts to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import numpy as backend
from ..core import dtype as dt
from ..core.argument_errors import MISTAKES, recovered
from ..core.mode import without_autocast
from ..core.op import Op
from ..core.overrides import ABSENT, FOLLOWED, overridden
from . import public
from .dispatch import run_known

# Recorders, by the number of inputs (1 or 2), of elementwise ops on graphs; None for other inputs.
RECORDERS: dict[int, Callable[..., Any]] = {}

# Numbers that may be written into an array of a dtype as the other operand: 0 none, 1 int, 2 int or
# float.
_NUMBERS = {
    d.numpy: (2 if d.itemsize > 2 else 0) if d.numpy.kind == "f" else int(d.numpy.kind == "i")
    for d in dt.ALL
    if d is not dt.bfloat16
}
_SMALL = range(-128, 128)  # ints that every signed dtype has


def plain_dtypes(function: object, kinds: str) -> dict[Any, int]:
    """The dtypes among `kinds` that `function` computes as PyTorch does, and which numbers they
    take (`_NUMBERS`); without a function, those that need no float32.
    """
    half = isinstance(function, np.ufunc)  # NumPy's own functions compute float16 in float32
    return {
        d: number for d, number in _NUMBERS.items() if d.kind in kinds and (half or d != np.float16)
    }


def takes_number(numbers: int | None, value: object) -> bool:
    """Whether a number may be written into an array of a dtype whose entry in `_NUMBERS` is
    `numbers`.
    """
    kind = type(value)
    return (kind is float and numbers == 2) or (kind is int and bool(numbers) and value in _SMALL)


def binary_operator(
    op: Op, general: Callable[[Any, Any], Any], kinds: str = "biufc", ufunc: str | None = None
) -> Callable[..., Any]:
    """`general(input, other)`, which applies `op`, with a short cut around its checks and
    conversions for arrays that the op was computed for, and for graphs that record it. `ufunc`: the
    backend's function for it (None: the op's own; "": it has none).
    """
    if ufunc is None:
        ufunc = op.ufunc  # type: ignore[attr-defined]
    result = getattr(op, "result", "") if ufunc else ""
    function = getattr(backend, ufunc) if ufunc else None
    dtypes = plain_dtypes(function, kinds)

    def operator(input: object, other: object, *, out: object = None) -> Any:
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
    """`general(input)` with a short cut, like `binary_operator`."""
    if ufunc is None:
        ufunc = op.ufunc  # type: ignore[attr-defined]
    records = bool(ufunc) and getattr(op, "result", "") == "same"
    function = getattr(backend, ufunc) if ufunc else None
    dtypes = plain_dtypes(function, kinds)

    def operator(input: object, *, out: object = None) -> Any:
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
