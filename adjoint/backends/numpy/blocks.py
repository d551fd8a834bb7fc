"""Functions that are cut into intervals: written once, for NumPy's blocks and for kernels.

Such a function is `kernel(xp, x)`, in float64 as a rule, where `xp` is a namespace with NumPy's
names and three more: `horner(coefficients, t)`, a polynomial with its lowest power first;
`some(mask)`, whether it holds anywhere (True where that is not known); and `split(mask, then,
otherwise, x)`, which is then(x) where the mask holds and otherwise(x) elsewhere.
Here NumPy computes either only where it is wanted; the native backend for vectors that want it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, overload

import numpy as np

BLOCK = 8192  # elements: NumPy goes over memory once for each operation, so they stay in the cache


class _Names:
    """NumPy's namespace, and `horner`, `some` and `split`."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        setattr(self, name, function)
        return function

    @staticmethod
    def horner(coefficients: tuple[float, ...], t: Any) -> Any:
        """The polynomial with these coefficients, lowest power first."""
        value = np.full_like(t, coefficients[-1])
        for c in coefficients[-2::-1]:
            value *= t
            value += c
        return value

    @staticmethod
    def some(mask: Any) -> bool:
        """Whether a mask holds anywhere."""
        return bool(mask.any())

    @staticmethod
    def split(
        mask: Any, then: Callable[[Any], Any], otherwise: Callable[[Any], Any], x: Any
    ) -> Any:
        """then(x) where the mask holds, otherwise(x) elsewhere; nothing is computed in vain."""
        if mask.all():
            return then(x)
        if not mask.any():
            return otherwise(x)
        result = np.empty_like(x)
        result[mask] = then(x[mask])
        rest = ~mask
        result[rest] = otherwise(x[rest])
        return result


NAMES: Any = _Names()


@overload
def blocked(kernel: Callable[..., Any]) -> Callable[[Any], Any]: ...
@overload
def blocked(
    *, short: Callable[..., Any] | None = None, single: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[[Any], Any]]: ...
def blocked(
    kernel: Any = None,
    *,
    short: Callable[..., Any] | None = None,
    single: Callable[..., Any] | None = None,
) -> Any:
    """A function of arrays of any shape from a kernel. float32 is computed by `single` in float32,
    or else in float64: by `short` where that is given, a kernel that is right to float32's digits.
    """
    if kernel is None:
        return functools.partial(blocked, short=short, single=single)

    @functools.wraps(kernel)
    def function(x: Any) -> Any:
        flat = np.ascontiguousarray(x).reshape(-1)
        result = np.empty_like(flat)
        chosen, dtype = kernel_for(function, flat.dtype)
        for i in range(0, flat.size, BLOCK):
            result[i : i + BLOCK] = chosen(NAMES, flat[i : i + BLOCK].astype(dtype))
        return result.reshape(np.shape(x))

    narrow = (single, np.float32) if single else (short or kernel, np.float64)
    function.kernels = ((kernel, np.float64), narrow)  # type: ignore[attr-defined]
    return function


def kernel_for(function: Any, dtype: Any) -> tuple[Any, Any]:
    """The kernel of a `blocked` function for arrays of a dtype, and the dtype it computes in."""
    return function.kernels[dtype.itemsize < 8]


def on(x: Any, low: float, high: float) -> Any:
    """The variable of an interval: -1 at `low` and 1 at `high`."""
    return (x - (low + high) / 2) * (2 / (high - low))
