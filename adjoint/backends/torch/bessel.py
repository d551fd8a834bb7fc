"""Bessel functions of the first and second kind, by the reference backend's formulas.

PyTorch's own kernels for double precision have errors of 1e-8 and more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..numpy import bessel as formulas
from .array import Array
from .elementwise import where
from .namespace import extra, on


def _piecewise(x: Any, near: Callable[[Any], Any], far: Callable[[Any], Any]) -> Any:
    """`near` up to 8 and `far` above, both computed everywhere: a device has no short cuts."""
    xp = on(x.tensor.device)
    return where(x > 8.0, far(xp.maximum(x, 8.0)), near(xp.minimum(x, 8.0)))


def _function(name: str, near: Any, far: Any, sign: Any = None) -> None:
    def compute(x: Array) -> Array:
        wide: Any = x.astype(np.float64)
        found: Any = _piecewise(abs(wide) if sign is not None else wide, near, far)
        if sign == -1:
            found = where(wide < 0, -found, found)
        return found.astype(x.dtype)  # type: ignore[no-any-return]

    compute.__name__ = name
    extra(compute)


_wave = formulas._wave
_function(
    "bessel_j0",
    lambda s: formulas._small(formulas._J0, s),
    lambda s: _wave(s, formulas._P0, formulas._Q0, 0, False),
    1,
)
_function(
    "bessel_j1",
    lambda s: s * formulas._small(formulas._J1, s),
    lambda s: _wave(s, formulas._P1, formulas._Q1, 1, False),
    -1,
)
_function("bessel_y0", formulas._y0_near, lambda s: _wave(s, formulas._P0, formulas._Q0, 0, True))
_function("bessel_y1", formulas._y1_near, lambda s: _wave(s, formulas._P1, formulas._Q1, 1, True))
