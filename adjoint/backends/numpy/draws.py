"""Random numbers by NumPy's generators: the streams of a Philox, by seed and draw number.

Whatever draws the same from such a stream gives these numbers, bit for bit.
"""

from __future__ import annotations

import functools
import math
import threading
from typing import Any

import numpy as np

from .extras import extra

_Shape = tuple[int, ...]


class _Stream(threading.local):
    """One Philox per thread, moved from draw to draw: four times as fast as making one for each."""

    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        self.state: Any = dict(self.bits.state)
        self.counter, self.key = self.state["state"]["counter"], self.state["state"]["key"]
        self.state["buffer_pos"] = 4  # the buffer is used up
        self.state["has_uint32"] = 0

    def at(self, seed: int, draw: int) -> Any:
        self.counter[2] = draw  # the other words stay 0: reading the stream counts elsewhere
        self.key[0] = seed
        self.bits.state = self.state
        return self.generator


@functools.cache
def _stream() -> _Stream:
    """Made with the first draw: NumPy's random numbers take a while to import."""
    return _Stream()


@extra
def generator(seed: int, draw: int) -> Any:
    """NumPy's generator at the start of a draw's stream, until this thread's next draw."""
    return _stream().at(seed, draw)


@extra
def drawn_uniform(seed: int, draw: int, shape: _Shape, dtype: Any) -> Any:
    """Numbers spread evenly over [0, 1), as float32 or float64."""
    return generator(seed, draw).random(shape, dtype)


@extra
def drawn_normal(seed: int, draw: int, shape: _Shape, dtype: Any) -> Any:
    """Standard normal numbers, as float32 or float64, by a ziggurat."""
    return np.asarray(generator(seed, draw).standard_normal(shape, dtype))


@extra
def drawn_exponential(seed: int, draw: int, shape: _Shape, dtype: Any) -> Any:
    """Standard exponential numbers, as float32 or float64, by a ziggurat."""
    return np.asarray(generator(seed, draw).standard_exponential(shape, dtype))


@extra
def drawn_integers(seed: int, draw: int, low: int, high: int, shape: _Shape) -> Any:
    """Integers spread evenly over [low, high), as int64."""
    return np.asarray(generator(seed, draw).integers(low, high, shape))


@extra
def drawn_permutation(seed: int, draw: int, n: int) -> Any:
    """0 to n - 1 in random order, as int64, by shuffling."""
    return generator(seed, draw).permutation(n)


@extra
def drawn_mask(
    seed: int, draw: int, keep: float, value: float, shape: _Shape, dtype: np.dtype[Any]
) -> Any:
    """`value` with probability `keep`, else 0, by 32 bits for each place: a third of the time that
    floating-point numbers take.
    """
    count = math.prod(shape)
    bits = generator(seed, draw).bit_generator.random_raw((count + 1) // 2)
    chosen = (bits.view(np.uint32)[:count] < keep * 2.0**32).reshape(shape)
    result = chosen.astype(dtype, copy=False)
    return result if value == 1.0 or dtype == np.bool_ else result * dtype.type(value)
