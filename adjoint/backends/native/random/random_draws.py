"""Random numbers by generated code: those that NumPy draws from the same streams, bit for bit.

A routine gets seed and draw number behind its numbers, and fills the result from the stream's
start. Where that was an op's whole result, such an op is drawn without being made from then on
(`ir/compute.py`: draws), and methods in place draw over their tensor.
"""

from __future__ import annotations

import functools
import inspect
import math
import platform
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core import policy
from ....core.errors import NotTraceable, Unsupported
from ....core.op import Op
from ....core.sized_tables import SizedTable
from ....ir import compute as core_compute
from ....ir.compute import quietly
from ... import numpy as reference
from ..runtime import block_cache, object_code
from ..runtime.launch import bare
from . import random_code as draws_code
from . import ziggurat
from .random_code import SEGMENT, Kind


class Draw:
    """A prepared draw: fills an array from a seed and the number of a draw."""

    __slots__ = ("_large", "asked", "run")

    def __init__(
        self, kind: Kind, shape: Any, dtype: np.dtype[Any], numbers: bytes, target: Any = None
    ) -> None:
        """`target`: an array like those that are drawn over; None for new ones.

        Errors: Unsupported where no code can be generated.
        """
        self.asked = kind, shape, dtype, numbers
        count = math.prod(shape)
        address = routine(kind)
        segment = count if kind.serial else SEGMENT
        views, spans, outputs = [(-1, len(numbers))], [], [(shape, dtype)]
        if target is not None:
            views, outputs = [*views, (0, 0)], []
            spans = [(0, 0, False), (0, target.nbytes, False)]
        self.run = bare(
            address, -(-count // segment), [] if target is None else [target], outputs,
            struct.pack("2q", count, segment), numbers + bytes(16), count >= policy.DRAWS_PARALLEL,
            count < policy.DRAWS_QUICK, views, spans,
        )  # fmt: skip
        self.run.pack = functools.partial(struct.Struct(f"={len(numbers)}s2Q").pack, numbers)
        self._large = count * dtype.itemsize >= block_cache.SMALLEST // 2

    def __call__(self, seed: int, number: int) -> Any:
        """The array."""
        run = self.run.numbered((seed, number))
        return quietly(run.launch, []) if self._large else run.launch([])


def routine(kind: Kind) -> int:
    """Address of the routine that draws such numbers.

    Errors: Unsupported where no code can be generated.
    """
    [address] = object_code.load(
        draws_code, f"{kind} {_tables()}", functools.partial(_text, kind), ["draw"]
    )
    return address


class _Latest(threading.local):
    """The thread's latest draw, while an op computes that may be all of it."""

    result: Any = None
    draw: Any = None


_latest = _Latest()


def _drawing(op: Op, names: Any, arrays: Sequence[Any]) -> tuple[Any, Draw | None]:
    """`op.compute` with the native namespace, and the draw that is all of it, if there is one."""
    _latest.result = None
    result = quietly(op.compute, names, *arrays)
    draw = _latest.draw if _latest.result is result and not arrays else None
    _latest.result = _latest.draw = None
    return result, draw


def computed(op: Op, names: Any, arrays: Sequence[Any]) -> Any:
    """`op.compute` with the native namespace."""
    result, draw = _drawing(op, names, arrays)
    if draw is not None:
        core_compute.remember_draw(op, draw)
    return result


def over(op: Op, names: Any, x: Any) -> Draw:
    """The draw of `op` for arrays like `x`, over which it draws.

    Errors: NotTraceable where NumPy is to draw it.
    """
    asked = asked_of(op, names)
    if not x.flags.c_contiguous:
        raise NotTraceable("numbers that are not drawn in this order")
    return Draw(*asked, x)


def asked_of(op: Op, names: object) -> tuple[Kind, tuple[int, ...], np.dtype, bytes]:
    """Description of a draw that is all of the result of `op`: kind, shape, dtype, and the kind's
    own numbers.

    Errors: NotTraceable where there is no such routine.
    """
    _, draw = _drawing(op, names, [])
    if draw is None:
        raise NotTraceable("numbers that are not drawn in this order")
    return draw.asked


def _weigh(kept: tuple[Draw | None]) -> int:
    return policy.KEY_BYTES if kept[0] is None else policy.EXECUTABLE_BYTES


_draws = SizedTable("draws of arrays", _weigh)


def _draw(kind: Kind, shape: tuple[int, ...], dtype: np.dtype[Any], numbers: bytes) -> Draw | None:
    """The draw of such an array; None where NumPy is to draw it."""
    key = kind, shape, dtype, numbers
    kept = _draws.find(key)
    if kept is None:
        kept = (_made(*key),)
        _draws.put(key, kept)
    return kept[0]


def _made(kind: Kind, shape: tuple[int, ...], dtype: np.dtype[Any], numbers: bytes) -> Draw | None:
    if not math.prod(shape) or (kind.layered and platform.machine() not in ("x86_64", "AMD64")):
        return None  # elsewhere NumPy's compiler may have joined products and sums
    try:
        return Draw(kind, shape, dtype, numbers)
    except Unsupported:
        return None


@functools.cache
def _tables() -> str:
    """Text that determines the tables: NumPy's version and the source of `ziggurat`."""
    return np.__version__ + inspect.getsource(ziggurat)


def _text(kind: Kind, host: Any, symbol: str) -> str:
    return draws_code.text(host, symbol, kind)


def _drawn(
    kind: Kind, seed: int, draw: int, shape: tuple[int, ...], dtype: Any, numbers: bytes = b""
) -> Any:
    """The array; NotImplemented where NumPy is to draw it."""
    draws = _draw(kind, shape, np.dtype(dtype), numbers)
    if draws is None:
        return NotImplemented
    _latest.draw, _latest.result = draws, (result := draws(seed, draw))
    return result


@functools.lru_cache(maxsize=64)
def _kind(name: str, dtype: Any) -> Kind:
    """Floats of a dtype, whose name NumPy makes anew each time."""
    return Kind(name, np.dtype(dtype).name)


def drawn_uniform(seed: int, draw: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Numbers spread evenly over [0, 1), as float32 or float64."""
    result = _drawn(_kind("uniform", dtype), seed, draw, shape, dtype)
    if result is NotImplemented:
        return reference.drawn_uniform(seed, draw, shape, dtype)
    return result


def drawn_normal(seed: int, draw: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Standard normal numbers, as float32 or float64."""
    result = _drawn(_kind("normal", dtype), seed, draw, shape, dtype)
    if result is NotImplemented:
        return reference.drawn_normal(seed, draw, shape, dtype)
    return result


def drawn_exponential(seed: int, draw: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Standard exponential numbers, as float32 or float64."""
    result = _drawn(_kind("exponential", dtype), seed, draw, shape, dtype)
    if result is NotImplemented:
        return reference.drawn_exponential(seed, draw, shape, dtype)
    return result


def drawn_integers(seed: int, draw: int, low: int, high: int, shape: tuple[int, ...]) -> Any:
    """Integers spread evenly over [low, high), as int64."""
    count = high - low
    result = NotImplemented
    if count <= 1 << 32:  # more take 64 bits each
        numbers = struct.pack("3q", low, count - 1, (1 << 32) % count)
        result = _drawn(Kind("integers", "i64"), seed, draw, shape, np.int64, numbers)
    if result is NotImplemented:
        return reference.drawn_integers(seed, draw, low, high, shape)
    return result


def drawn_permutation(seed: int, draw: int, n: int) -> Any:
    """0 to n - 1 in random order, as int64."""
    result = NotImplemented
    if n <= 1 << 32:
        result = _drawn(Kind("permutation", "i64"), seed, draw, (n,), np.int64)
    return reference.drawn_permutation(seed, draw, n) if result is NotImplemented else result


def drawn_mask(
    seed: int, draw: int, keep: float, value: float, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    """`value` with probability `keep`, else 0."""
    result = NotImplemented
    if dtype.itemsize <= 8:
        one = np.ones(1, dtype) if dtype == np.bool_ else np.array([value]).astype(dtype)
        numbers = struct.pack("q", math.ceil(keep * 2.0**32)) + one.tobytes().ljust(8, b"\0")
        result = _drawn(Kind("mask", f"i{8 * dtype.itemsize}"), seed, draw, shape, dtype, numbers)
    if result is NotImplemented:
        return reference.drawn_mask(seed, draw, keep, value, shape, dtype)
    return result
