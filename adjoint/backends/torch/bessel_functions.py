"""Bessel functions of the first and second kind, by the reference backend's formulas.

PyTorch's own kernels for double precision have errors of 1e-8 and more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..numpy import bessel as formulas
from .array import Array
from .namespace import extra, on
from .ufuncs import where


class _Names:
    """The names that the formulas use: those of a device, and two of `backends.numpy.blocks`."""

    def __init__(self, device: Any) -> None:
        self.names = on(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.names, name)

    @staticmethod
    def horner(coefficients: tuple[float, ...], t: Any) -> Any:
        """The polynomial with these coefficients, lowest power first."""
        value = t * 0 + coefficients[-1]
        for c in coefficients[-2::-1]:
            value = value * t + c
        return value

    @staticmethod
    def split(
        mask: Any, then: Callable[[Any], Any], otherwise: Callable[[Any], Any], x: Any
    ) -> Any:
        """then(x) where the mask holds, otherwise(x) elsewhere: a device has no short cuts."""
        return where(mask, then(x), otherwise(x))


def _function(name: str) -> None:
    kernel = getattr(formulas, name).kernels[0][0]

    def compute(x: Array) -> Array:
        wide: Any = x.astype(np.float64)
        return kernel(_Names(x.tensor.device), wide).astype(x.dtype)

    compute.__name__ = name
    extra(compute)


for _name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"):
    _function(_name)
