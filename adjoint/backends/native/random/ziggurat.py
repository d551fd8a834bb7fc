"""The tables of NumPy's ziggurats, which it has in its machine code only: read out of its draws.

A ziggurat (Marsaglia and Tsang, 2000, "The ziggurat method for generating random variables") covers
the area under a density by 256 layers of equal area. A word gives a layer and a magnitude: the
result is magnitude * width[layer], at once where magnitude < limit[layer].
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ....core import fork_safety
from ....core.arrays import capsule

LAYERS = 256
_NEAR = 64  # how far NumPy's limits may be from the ratio of two widths
_NEXT = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_double, ctypes.c_uint64)
_FUNCTIONS = [ctypes.CFUNCTYPE(kind, ctypes.c_void_p) for kind in _NEXT]


class Tables(NamedTuple):
    """Ziggurat tables of one distribution and dtype."""

    below: int  # bits of a word below those of the layer
    sign: bool  # the bit above the layer's is the sign
    digits: int  # of the magnitude, which is above
    limits: list[int]
    widths: list[float]
    heights: list[float]  # the density at the layers' outer edges, up to 3 units of the last place
    edge: float  # of the lowest layer: where the tail begins

    def word(self, layer: int, magnitude: int) -> int:
        """The word that means these."""
        return (magnitude << 8 + self.sign | layer) << self.below


class _Bits(ctypes.Structure):
    """NumPy's bitgen_t: a state, and functions of it for the next number of each kind.

    Source: https://numpy.org/doc/stable/reference/random/extending.html
    """

    _fields_ = (
        ("state", ctypes.c_void_p),
        *[(f"next{n}", function) for n, function in enumerate(_FUNCTIONS)],
    )


class _Told:
    """A source of random bits for NumPy's Generator that returns a word set by us first, then
    numbers in the middle.
    """

    def __init__(self) -> None:
        self.word = self.used = 0
        self._functions = [
            function(functools.partial(self._next, bits))
            for function, bits in zip(_FUNCTIONS, (64, 32, 0, 64), strict=True)
        ]
        self._bits = _Bits(None, *self._functions)
        self._name = b"BitGenerator"
        self.capsule = capsule(ctypes.addressof(self._bits), self._name)
        self.lock = fork_safety.lock()

    def _next(self, bits: int, state: Any) -> float:
        self.used += 1
        return self.word if self.used == 1 else 1 << bits - 1 if bits else 0.5


@functools.cache
def tables(kind: str, dtype: str) -> Tables:
    """Ziggurat tables of "normal" or "exponential" numbers as float32 or float64."""
    narrow = dtype == "float32"
    digits = 23 if narrow else 52 if kind == "normal" else 53
    below = 0 if kind == "normal" else 1 if narrow else 3
    layers = Tables(below, kind == "normal", digits, [], [], [], 0.0)
    told = _Told()
    source: Any = told
    draw = functools.partial(getattr(np.random.Generator(source), f"standard_{kind}"), dtype=dtype)

    def drawn(layer: int, magnitude: int) -> float:
        told.word, told.used = layers.word(layer, magnitude), 0
        return float(draw())

    layers.widths.extend(drawn(layer, 1) for layer in range(LAYERS))
    for layer, width in enumerate(layers.widths):
        inner = 0.0 if layer == 1 else layers.widths[layer - 1]
        guess = int(inner / width * 2.0**digits)
        low, high = max(guess - _NEAR, 0), guess + _NEAR  # the limit is from low to high
        while low < high:
            middle = (low + high) // 2
            drawn(layer, middle)
            low, high = (middle + 1, high) if told.used == 1 else (low, middle)
        layers.limits.append(low)
    if narrow:  # those of float64, which are rounded where they are used
        wide = tables(kind, "float64")
        return layers._replace(heights=wide.heights, edge=wide.edge)
    edges = [0.0, *[width * 2.0**digits for width in layers.widths[1:]]]
    heights = [math.exp(-0.5 * x * x if kind == "normal" else -x) for x in edges]
    return layers._replace(heights=heights, edge=edges[-1])
