"""PyTorch's functions of symbolic sizes; here sizes are numbers, and these are Python's functions.

Source: https://docs.pytorch.org/docs/stable/torch.html#symbolic-numbers

>>> ad.sym_max(2, 3.0), ad.sym_not(True), ad.sym_sum([1, 2])
(3.0, False, 3)
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.errors import AdjointError, InvalidArgument
from ..runtime.public import explaining
from ..tensor import Tensor

_NUMBERS = (np.integer, np.floating, int, float)


class WrongKind(AdjointError, AssertionError):  # noqa: N818 - reads as what happened
    """A number is of another kind than required, where PyTorch raises AssertionError."""


def _assert_numbers(name: str, *given: Any) -> None:
    for each in given:
        if not isinstance(each, _NUMBERS):
            raise WrongKind(f"{name}: expected a number, got {type(each).__name__}: {each!r:.60}")


@explaining
def sym_float(a: Any) -> float:
    """`float(a)`."""
    return float(a)


@explaining
def sym_int(a: Any) -> int:
    """`a` without its fraction."""
    return int(a)


@explaining
def sym_not(a: Any) -> bool:
    """`not a`."""
    return not a


@explaining
def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float if one of them is a float.

    Errors: WrongKind for what is no number.
    """
    _assert_numbers("sym_max", a, b)
    larger = max(a, b)
    return float(larger) if isinstance(a, float) or isinstance(b, float) else larger


@explaining
def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float if one of them is a float.

    Errors: WrongKind for what is no number.
    """
    _assert_numbers("sym_min", a, b)
    smaller = min(a, b)
    return float(smaller) if isinstance(a, float) or isinstance(b, float) else smaller


@explaining
def sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


@explaining
def sym_sum(*args: Any) -> Any:
    """The sum of the arguments, or of the one sequence given."""
    numbers: Iterable[Any] = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
    return builtins.sum(numbers)


@explaining
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b`, else `f`.

    Errors: WrongKind where `b` is no bool, or the others differ in type.
    """
    if not isinstance(b, bool):
        raise WrongKind(f"sym_ite: expected a bool, got {type(b).__name__}: {b!r:.60}")
    if type(t) is not type(f):
        raise WrongKind(f"sym_ite: type mismatch: {type(t).__name__} vs {type(f).__name__}")
    return t if b else f


@explaining
def sym_fresh_size(expr: Any) -> Any:
    """The size, unchanged."""
    return expr


@explaining
def sym_constrain_range(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Raise an error unless a number is from `min` to `max`.

    Errors: InvalidArgument.
    """
    number = size.item() if isinstance(size, Tensor) else size
    low = -math.inf if min is None else min
    high = math.inf if max is None else max
    if low > high:
        raise InvalidArgument(
            f"sym_constrain_range: Max must be at least min, got min={min} and max={max}"
        )
    if not low <= number <= high:
        raise InvalidArgument(f"Invalid value range for {number} between [{min}, {max}].")


@explaining
def sym_constrain_range_for_size(
    size: Any, *, min: int | None = None, max: int | None = None
) -> None:
    """`sym_constrain_range` for a size.

    Errors: InvalidArgument, also for a `max` of 2 or less.
    """
    if max is not None and max <= 2:
        raise InvalidArgument(
            f"Max value to constrain_range_for_size must be greater than 2. got: {max}"
        )
    sym_constrain_range(size, min=min, max=max)
