"""Arrays that consist of parts of others: joined, turned, rolled, repeated, in a frame.

A part is a copy of elements that lie at regular distances, in at most four loops. One routine does
all: it reads from its words what the parts are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....core import policy
from ... import numpy as reference
from ...codegen.emit import Reg
from ..lowering.machine_routines import ARRAYS, LANES, MOVED, MachineFunction, compute

LOOPS = 4
LINE = 64  # bytes of a row of a tile that is transposed in registers
TILES = 8  # by as many are a unit of work: what it touches stays in the processor's page table
_WORDS = 5 + 3 * LOOPS  # of a part
_BLOCKS, _REVERSED, _SINGLE = range(3)  # how the innermost loop goes
Loop: TypeAlias = tuple[int, int, int]  # how often; bytes from one to the next in source and result


class BlockCopy(NamedTuple):
    """A block copy: where elements come from (input -1: the constant) and go to, in bytes."""

    input: int
    start: int
    to: int
    loops: tuple[Loop, ...]


def _write_parts(elem: str, size: int) -> MachineFunction:
    """Copies all parts; a unit is a turn of the two outer loops of one."""
    f = MachineFunction("", "inputs count")
    b = f.b
    out = f.load(f.words, f.inputs + 4, "ptr", scale="i64")
    parts = b.at(f.words, f.inputs + 5, "i64")
    constant = b.at(parts, f.count * _WORDS, "i64")
    with b.loop(0, f.count) as p:
        words = b.at(parts, p * _WORDS, "i64")
        source, start, to, begin, how, *loops = (
            f.load(words, k, "i64", scale="i64") for k in range(_WORDS)
        )
        (n0, s0, d0), (n1, s1, d1), (n2, s2, d2), (n3, s3, d3) = (
            loops[k : k + 3] for k in range(0, 3 * LOOPS, 3)
        )
        given = f.load(f.words, b.intrinsic("smax", source, 0) + 4, "ptr", scale="i64")
        x = b.at(b.select(source < 0, constant, given), start)
        y = b.at(out, to)
        low = b.intrinsic("smax", f.first - begin, 0)
        high = b.intrinsic("smin", f.last - begin, n0 * n1)
        with b.loop(low, high) as unit:
            i0, i1 = b.binary("udiv", unit, n1), b.binary("urem", unit, n1)
            with b.loop(0, n2) as i2:
                a = b.at(x, i0 * s0 + i1 * s1 + i2 * s2)
                c = b.at(y, i0 * d0 + i1 * d1 + i2 * d2)
                with b.when(b.compare("eq", how, _BLOCKS)):
                    f.copy(c, a, n3 * size)
                with b.when(b.compare("eq", how, _REVERSED)):
                    _reversed(f, a, c, n3, elem, size)
                with b.when(b.compare("eq", how, _SINGLE)), b.loop(0, n3) as i3:
                    value = f.load(b.at(a, i3 * s3), 0, elem)
                    f.store(b.at(c, i3 * d3), 0, value)
    return f


def _reversed(f: MachineFunction, a: Reg, c: Reg, n: Reg, elem: str, size: int) -> None:
    """Elements from a downwards to c upwards."""
    b = f.b
    lanes = min(64 // size, 16)
    picks = ", ".join(f"i32 {i}" for i in reversed(range(lanes)))
    whole = n & -lanes
    with b.loop(0, whole, lanes) as i:
        x = f.load(b.at(a, (i + (lanes - 1)) * -size), 0, elem, lanes)
        text = f"shufflevector {x.type} {x.ref}, {x.type} poison, <{lanes} x i32> <{picks}>"
        f.store(b.at(c, i * size), 0, b.emit(elem, lanes, text))
    with b.loop(whole, n) as i:
        f.store(c, i, f.load(b.at(a, i * -size), 0, elem))


def _write_turned(elem: str, size: int) -> MachineFunction:
    """out[..., b] = x[..., a], where a goes through x one by one, and b through out. A unit is a
    block of a and b, for one turn of two outer loops.
    """
    f = MachineFunction("x out", "na nb xb oa n1 x0 o0 x1 o1")
    b = f.b
    tile = LINE // size
    block = tile * TILES
    blocks_a, blocks_b = (b.binary("udiv", n + (block - 1), block) for n in (f.na, f.nb))
    with f.parts(blocks_a) as (rest, block_a):
        rest, block_b = b.binary("udiv", rest, blocks_b), b.binary("urem", rest, blocks_b)
        i0, i1 = b.binary("udiv", rest, f.n1), b.binary("urem", rest, f.n1)
        x, y = b.at(f.x, i0 * f.x0 + i1 * f.x1), b.at(f.out, i0 * f.o0 + i1 * f.o1)
        low_a, low_b = block_a * block, block_b * block
        high_a, high_b = (
            b.intrinsic("smin", low + block, n) for low, n in ((low_a, f.na), (low_b, f.nb))
        )
        whole_a = low_a + ((high_a - low_a) & -tile)
        whole_b = low_b + ((high_b - low_b) & -tile)

        def single(k_a: Reg, k_b: Reg) -> None:
            value = f.load(b.at(x, k_b * f.xb), k_a, elem)
            f.store(b.at(y, k_a * f.oa), k_b, value)

        with b.loop(low_b, whole_b, tile) as k_b:
            with b.loop(low_a, whole_a, tile) as k_a:
                rows = [f.load(b.at(x, (k_b + r) * f.xb), k_a, elem, tile) for r in range(tile)]
                for r, row in enumerate(_transposed(f, rows)):
                    f.store(b.at(y, (k_a + r) * f.oa), k_b, row)
            with b.loop(whole_a, high_a) as k_a, b.loop(k_b, k_b + tile) as one:
                single(k_a, one)
        with b.loop(whole_b, high_b) as k_b, b.loop(low_a, high_a) as k_a:
            single(k_a, k_b)
    return f


def _transposed(f: MachineFunction, rows: list[Reg]) -> list[Reg]:
    """A square of as many rows as they have lanes: those of the first half are interleaved with
    those of the second, as often as halving leads to one.
    """
    n = len(rows)
    turns = n.bit_length() - 1
    for _ in range(turns):
        mixed = []
        for low, high in zip(rows[: n // 2], rows[n // 2 :], strict=True):
            for first in (0, n // 2):
                picks = ", ".join(f"i32 {k}, i32 {n + k}" for k in range(first, first + n // 2))
                text = f"shufflevector {low.type} {low.ref}, {high.type} {high.ref}, "
                mixed.append(f.b.emit(low.elem, n, f"{text}<{n} x i32> <{picks}>"))
        rows = mixed
    return rows


def _pieces(part: BlockCopy, size: int) -> list[BlockCopy]:
    """The part with as few loops as can be, long blocks cut; [] where there is nothing to copy."""
    loops: list[Loop] = []
    for n, step, to in part.loops:
        if n == 0:
            return []
        if n > 1:
            if loops and loops[-1][1:] == (n * step, n * to):
                n *= loops.pop()[0]
            loops.append((n, step, to))
    if not loops:
        loops = [(1, size, size)]
    n, step, to = loops[-1]
    block = policy.COPY_BLOCK // size
    if n <= block or len(loops) == LOOPS:
        return [part._replace(loops=tuple(loops))]
    many = n // block
    whole = (*loops[:-1], (many, block * step, block * to), (block, step, to))
    rest = BlockCopy(
        part.input, part.start + many * block * step, part.to + many * block * to,
        (*loops[:-1], (n % block, step, to)),
    )  # fmt: skip
    return [part._replace(loops=whole), *([rest] if n % block else [])]


def _assembled(
    xs: Sequence[Any],
    shape: tuple[int, ...],
    parts: Sequence[BlockCopy],
    constant: bytes = bytes(16),
) -> Any:
    """The array of the parts, which together are all of it; NotImplemented where it cannot be."""
    dtype = xs[0].dtype
    size = dtype.itemsize
    pieces = [piece for part in parts for piece in _pieces(part, size)]
    if size not in MOVED or any(len(piece.loops) > LOOPS for piece in pieces) or not pieces:
        return NotImplemented
    words: list[int] = []
    units = 0
    for piece in pieces:
        *outer, (n, step, to) = piece.loops
        how = _BLOCKS if step == to == size else _REVERSED if step == -size == -to else _SINGLE
        loops = [*outer, *[(1, 0, 0)] * (LOOPS - len(piece.loops)), (n, step, to)]
        words += [piece.input, piece.start, piece.to, units, how]
        words += [word for loop in loops for word in loop]
        units += loops[0][0] * loops[1][0]
    work = -(-math.prod(shape) // units)
    return compute(
        (_write_parts, MOVED[size], size), xs, shape, dtype, words, units, work,
        before=struct.pack("2q", len(xs), len(pieces)), constant=constant,
    )  # fmt: skip


def _alike(xs: Sequence[Any]) -> bool:
    return all(type(x) in ARRAYS and x.dtype == xs[0].dtype for x in xs)


def _are_small(xs: Sequence[Any]) -> bool:
    """Whether these are many small arrays, of which NumPy copies each before a kernel's words for
    it are written.
    """
    return len(xs) > policy.JOINED_FEW and xs[0].size <= policy.JOINED_SMALL


def _steps(shape: Sequence[int], size: int) -> list[int]:
    """The strides of a row-major array."""
    steps = [size]
    for n in reversed(shape[1:]):
        steps.append(steps[-1] * n)
    return steps[::-1] if shape else []


def _loops(x: Any, to: Sequence[int]) -> tuple[Loop, ...]:
    return tuple(zip(x.shape, x.strides, to, strict=True))


def concat(xs: Sequence[Any], axis: int = 0) -> Any:
    """The arrays joined along an axis."""
    first = xs[0].shape
    axis = range(len(first))[axis]
    rest = (first[:axis], first[axis + 1 :])
    if _are_small(xs) or not _alike(xs):
        return reference.concat(xs, axis=axis)
    if any((x.shape[:axis], x.shape[axis + 1 :]) != rest for x in xs):
        return reference.concat(xs, axis=axis)
    shape = (*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1 :])
    steps = _steps(shape, xs[0].itemsize)
    parts, at = [], 0
    for k, x in enumerate(xs):
        parts.append(BlockCopy(k, 0, at * steps[axis], _loops(x, steps)))
        at += x.shape[axis]
    result = _assembled(xs, shape, parts)
    return reference.concat(xs, axis=axis) if result is NotImplemented else result


def stack(xs: Sequence[Any], axis: int = 0) -> Any:
    """The arrays joined along a new axis."""
    first = xs[0].shape
    axis = range(len(first) + 1)[axis]
    if _are_small(xs) and axis == 0 and first and all(x.shape == first for x in xs):
        return reference.concat(xs, axis=0).reshape(len(xs), *first)
    if _are_small(xs) or not _alike(xs) or any(x.shape != first for x in xs):
        return reference.stack(xs, axis=axis)
    shape = (*first[:axis], len(xs), *first[axis:])
    steps = _steps(shape, xs[0].itemsize)
    step = steps.pop(axis)
    parts = [BlockCopy(k, 0, k * step, _loops(x, steps)) for k, x in enumerate(xs)]
    result = _assembled(xs, shape, parts)
    return reference.stack(xs, axis=axis) if result is NotImplemented else result


def flip(x: Any, axis: tuple[int, ...] | int | None = None) -> Any:
    """A copy with the elements in reverse order along axes."""
    result = NotImplemented
    axes = range(x.ndim)
    axis = tuple(axes[k] for k in (axes if axis is None else np.atleast_1d(axis)))
    if x.size:
        start = sum((x.shape[k] - 1) * x.strides[k] for k in axis)
        loops = tuple(
            (n, -step if k in axis else step, to)
            for k, (n, step, to) in enumerate(_loops(x, _steps(x.shape, x.itemsize)))
        )
        result = _assembled([x], x.shape, [BlockCopy(0, start, 0, loops)])
    return reference.flip(x, axis).copy() if result is NotImplemented else result


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """The elements shifted along an axis, those from the end coming in at the start."""
    if type(shift) is not int or type(axis) is not int:
        return reference.roll(x, shift, axis)
    axis = range(x.ndim)[axis]
    n = x.shape[axis]
    shift %= max(n, 1)
    steps = _steps(x.shape, x.itemsize)
    result = NotImplemented
    if x.size:
        rest = x.shape[axis] - shift
        before, after = [
            tuple(
                (m if k == axis else loop[0], *loop[1:]) for k, loop in enumerate(_loops(x, steps))
            )
            for m in (shift, rest)
        ]
        parts = [BlockCopy(0, rest * x.strides[axis], 0, before)]
        parts.append(BlockCopy(0, 0, shift * steps[axis], after))
        result = _assembled([x], x.shape, parts)
    return reference.roll(x, shift, axis) if result is NotImplemented else result


def tile(x: Any, times: tuple[int, ...]) -> Any:
    """Copies of x side by side, the last `times` along its last dimension."""
    if type(times) is not tuple or len(times) < x.ndim:
        return reference.tile(x, times)
    have = (*(1,) * (len(times) - x.ndim), *x.shape)
    strides = (*(0,) * (len(times) - x.ndim), *x.strides)
    shape = tuple(n * m for n, m in zip(times, have, strict=True))
    steps = _steps(shape, x.itemsize)
    loops: list[Loop] = []
    for again, n, step, to in zip(times, have, strides, steps, strict=True):
        loops += [(again, 0, n * to), (n, step, to)]
    result = _assembled([x], shape, [BlockCopy(0, 0, 0, tuple(loops))])
    return reference.tile(x, times) if result is NotImplemented else result


def framed(x: Any, starts: tuple[int, ...], shape: tuple[int, ...], value: Any) -> Any:
    """An array of `shape` with x from the position `starts` on, and one value around it;
    NotImplemented where it cannot be.
    """
    constant = np.asarray(value).astype(x.dtype).tobytes().ljust(16, b"\0")
    steps = _steps(shape, x.itemsize)
    inside = sum(at * step for at, step in zip(starts, steps, strict=True))
    parts = [BlockCopy(0, 0, inside, _loops(x, steps))]
    corner = 0  # of what is left when the axes before have got their frame
    left = list(shape)
    for axis, (at, n) in enumerate(zip(starts, x.shape, strict=True)):
        for first, count in ((0, at), (at + n, left[axis] - at - n)):
            sizes = [*left[:axis], count, *left[axis + 1 :]]
            loops = tuple((m, 0, step) for m, step in zip(sizes, steps, strict=True))
            parts.append(BlockCopy(-1, 0, corner + first * steps[axis], loops))
        corner += at * steps[axis]
        left[axis] = n
    return _assembled([x], shape, parts, constant)


def _write_paired(elem: str) -> MachineFunction:
    """out[2 i] = x[i], out[2 i + 1] = y[i]; a unit is one i."""
    f = MachineFunction("x y out", "")
    b = f.b
    picks = ", ".join(f"i32 {i}, i32 {LANES + i}" for i in range(LANES))

    def step(c: Reg, lanes: int) -> None:
        x, y = f.load(f.x, c, elem, lanes), f.load(f.y, c, elem, lanes)
        if lanes:
            text = (
                f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{2 * lanes} x i32> <{picks}>"
            )
            f.store(f.out, c * 2, b.emit(elem, 2 * lanes, text))
        else:
            f.store(f.out, c * 2, x)
            f.store(f.out, c * 2 + 1, y)

    f.columns(f.first, f.last, step)
    return f


def paired(real: Any, imag: Any) -> Any:
    """Complex numbers of their parts; NotImplemented where these do not lie alike."""
    elem = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}.get(real.dtype)
    usual = elem is not None and _alike((real, imag)) and real.shape == imag.shape
    if not usual or not (real.size and real.flags.c_contiguous and imag.flags.c_contiguous):
        return NotImplemented
    dtype = np.complex64 if elem == "float" else np.complex128
    inputs = (real, imag)
    return compute((_write_paired, elem), inputs, real.shape, dtype, (), real.size, 1)


def copied(x: Any, order: str) -> Any:
    """A row-major copy; NotImplemented for one in another order."""
    if order == "K" and not x.flags.c_contiguous:
        return NotImplemented
    loops = _loops(x, _steps(x.shape, x.itemsize))
    result = NotImplemented
    if x.size:
        result = _turned(x, loops)
        if result is NotImplemented:
            result = _assembled([x], x.shape, [BlockCopy(0, 0, 0, loops)])
    return x.copy() if result is NotImplemented else result


def _turned(x: Any, loops: tuple[Loop, ...]) -> Any:
    """A row-major copy of an array of which another axis than the last lies in memory element by
    element; NotImplemented for others.
    """
    size = x.itemsize
    pieces = _pieces(BlockCopy(0, 0, 0, loops), size)
    if len(pieces) != 1 or size not in (4, 8):
        return NotImplemented
    *rest, (nb, xb, ob) = pieces[0].loops
    inner = [loop for loop in rest if loop[1] == size]
    if xb == size or ob != size or len(inner) != 1 or len(rest) > 3:
        return NotImplemented
    rest.remove(inner[0])
    (na, _, oa), ((n0, x0, o0), (n1, x1, o1)) = inner[0], [(1, 0, 0)] * (2 - len(rest)) + rest
    block = LINE // size * TILES
    units = -(-na // block) * -(-nb // block) * n0 * n1
    numbers = (na, nb, xb, oa, n1, x0, o0, x1, o1)
    routine = (_write_turned, MOVED[size], size)
    return compute(routine, [x], x.shape, x.dtype, numbers, units, -(-x.size // units))
