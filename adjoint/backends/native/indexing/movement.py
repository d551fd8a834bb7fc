"""Machine code for elements that are picked, placed or added up by index, and for running sums.

A tensor is seen as (outer, n, inner) around the axis that is indexed, row-major. Additions go in
the order of the index, whatever the number of threads: those share out other rows. Each function
returns NotImplemented for arrays that it does not take, and for an index out of range; NumPy
computes those, or says what is wrong.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import policy
from ...codegen.emit import FunctionBody, Reg
from ..lowering.machine_routines import ARRAYS, LANES, MOVED, NUMBERS, MachineFunction, compute, run

UNROLLED = 4  # elements that are written in one turn
TILE = 64  # columns that are summed together
SEGMENT = 1024  # entries of an index that are looked up together
_INT64 = np.dtype(np.int64)


# ---- reading -------------------------------------------------------------------------------------


def _entry(f: MachineFunction, at: Reg, lanes: int, negative: bool) -> Reg:
    """Entries of the index, where `negative` those counted from the end too."""
    k = f.load(f.index, at, "i64", lanes)
    return f.b.select(k < 0, k + f.n, k) if negative else k


def _in_range(f: MachineFunction, k: Reg) -> Reg:
    """Entries, with 0 for those out of range, which the routine refuses."""
    wrong = f.b.compare("ge", k, f.n, unsigned=True)
    f.doubt(wrong)
    return f.b.select(wrong, 0, k)


def _picked(f: MachineFunction, at: Reg, elem: str) -> Reg:
    """The elements of x at positions."""
    b = f.b
    if not at.lanes:
        return f.load(f.x, at, elem)
    n = at.lanes
    places = b.emit("ptr", n, f"getelementptr {elem}, ptr {f.x.ref}, {at.type} {at.ref}")
    kind, name = f"<{n} x {elem}>", f"llvm.masked.gather.v{n}{elem}.v{n}p0"
    b.module.declare(name, kind, [places.type, f"<{n} x i1>", kind])
    all_lanes = f"<{n} x i1> splat (i1 true)"
    return b.emit(
        elem, n, f"call {kind} @{name}({places.type} {places.ref}, {all_lanes}, {kind} poison)"
    )


def _write_take(blocks: bool, negative: bool, elem: str) -> MachineFunction:
    """out[o, j, :] = x[o, index[j], :], for blocks of `inner` bytes or single elements; a unit is a
    segment of the index for one o.
    """
    f = MachineFunction("x index out", "n m inner outer")
    b = f.b
    latest = b.alloca("i64", 0, -1)
    places = Reg(b, "ptr", 0, b.name())
    b.allocas.append(f"{places.ref} = alloca [{SEGMENT} x i64], align 64")
    with f.parts(f.outer) as (segment, o):
        low = segment * SEGMENT
        count = b.intrinsic("smin", low + SEGMENT, f.m) - low

        def look_up(j: Reg, lanes: int, low: Reg = low) -> None:
            f.store(places, j, _in_range(f, _entry(f, low + j, lanes, negative)))

        with b.when(b.compare("ne", segment, b.get(latest))):
            f.columns(b.const("i64", 0), count, look_up)
            b.put(latest, segment)
        row, out = o * f.n, o * f.m + low
        if blocks:
            with b.loop(0, count) as j:
                k = f.load(places, j, "i64")
                f.copy(b.at(f.out, (out + j) * f.inner), b.at(f.x, (row + k) * f.inner), f.inner)
        else:

            def move(j: Reg, lanes: int, row: Reg = row, out: Reg = out) -> None:
                f.store(f.out, out + j, _picked(f, f.load(places, j, "i64", lanes) + row, elem))

            _columns_of(f, b.const("i64", 0), count, elem, move)
    f.decide()
    return f


def _columns_of(f: MachineFunction, low: Reg, high: Reg, elem: str, step: Any) -> None:
    """`columns` for elements that vectors are gathered of; one by one for others."""
    if elem in ("i32", "i64"):
        f.columns(low, high, step)
    else:
        with f.b.loop(low, high) as c:
            step(c, 0)


def _write_gather(flat: bool, negative: bool, elem: str) -> MachineFunction:
    """out[o, j, i] = x[o, index[o, j, i], i]; `flat`: there is one i. A unit is a segment of j for
    one o.
    """
    f = MachineFunction("x index out", "n m inner segments")
    b = f.b
    with f.parts(f.segments) as (o, segment):
        low = segment * SEGMENT
        high = b.intrinsic("smin", low + SEGMENT, f.m)
        row, out = o * f.n, o * f.m
        if flat:

            def move(j: Reg, lanes: int, row: Reg = row, out: Reg = out) -> None:
                k = _in_range(f, _entry(f, out + j, lanes, negative))
                f.store(f.out, out + j, _picked(f, k + row, elem))

            _columns_of(f, low, high, elem, move)
        else:
            with b.loop(low, high) as j:
                at = (out + j) * f.inner

                def step(i: Reg, lanes: int, row: Reg = row, at: Reg = at) -> None:
                    k = _in_range(f, _entry(f, at + i, lanes, negative))
                    place = (k + row) * f.inner + i
                    place = place + b.iota("i64", lanes) if lanes else place
                    f.store(f.out, at + i, _picked(f, place, elem))

                _columns_of(f, b.const("i64", 0), f.inner, elem, step)
    f.decide()
    return f


def _usable(x: Any, index: Any) -> bool:
    return (
        type(x) in ARRAYS
        and type(index) in ARRAYS
        and index.dtype == _INT64
        and x.dtype.kind in "biufcV"
        and x.flags.c_contiguous
        and index.flags.c_contiguous
        and index.size > 0
        and x.size > 0
    )


def _around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def take_along(x: Any, index: Any, axis: int, negative: bool = True) -> Any:
    """The slices of x along an axis that the index (of any shape) names, where `negative` from the
    end too.
    """
    if not _usable(x, index):
        return NotImplemented
    outer, n, inner = _around(x.shape, axis)
    m, size = index.size, inner * x.itemsize
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    elem = next((elem for n, elem in MOVED.items() if size == n), None)
    units, work = outer * -(-m // SEGMENT), min(m, SEGMENT) * inner
    numbers = (n, m, size, outer)
    routine = (_write_take, elem is None, negative, elem or "i8")
    return compute(routine, (x, index), shape, x.dtype, numbers, units, work)


def gather(x: Any, axis: int, index: Any, negative: bool = False) -> Any:
    """x[o, index[o, j, i], i]; the index has the shape of x but along the axis."""
    if not (_usable(x, index) and _alike(x.shape, index.shape, axis)):
        return NotImplemented
    outer, n, inner = _around(x.shape, axis)
    m = index.shape[axis]
    segments = -(-m // SEGMENT)
    numbers = (n, m, inner, segments)
    routine = (_write_gather, inner == 1, negative, MOVED[x.itemsize])
    units, work = outer * segments, min(m, SEGMENT) * inner
    return compute(routine, (x, index), index.shape, x.dtype, numbers, units, work)


def _alike(shape: tuple[int, ...], other: tuple[int, ...], axis: int) -> bool:
    return shape[:axis] == other[:axis] and shape[axis + 1 :] == other[axis + 1 :]


# ---- writing -------------------------------------------------------------------------------------


def _write_place(
    base: str, source: bool, along: bool, flat: bool, negative: bool, add: bool, elem: str
) -> MachineFunction:
    """out[o, index[j], :] = src[o, j, :], or added; where `along`, out[o, index[o, j, i], i] =
    src[o, j, i]. Where not `source`, a number is written instead. For each o in the order of j;
    entries may be negative where `negative`.

    out starts as a copy of x ("x"), as zeros ("zeros"), or with what it is ("out"). `flat`: there
    is one i. A unit is a part of the rows n for one o.
    """
    operands = ("x index src out" if base == "x" else "src index out").split()
    f = MachineFunction(
        " ".join(name for name in operands if source or name != "src"),
        "n m inner pieces part value value2",
    )
    b = f.b
    number = None if source else f.word("value", elem)
    size = int(elem.strip("i")) // 8 if elem[0] == "i" else {"float": 4, "double": 8}[elem]
    with f.parts(f.pieces) as (o, part):
        first = part * f.part
        count = b.intrinsic("smin", f.part, f.n - first)
        row, source_row = o * f.n, o * f.m
        start, room = (row + first) * f.inner * size, count * f.inner * size
        if base == "x":
            f.copy(b.at(f.out, start), b.at(f.x, start), room)
        elif base == "zeros":
            f.clear(b.at(f.out, start), room)

        def put(to: Reg, at: Reg, lanes: int = 0) -> None:
            value = f.load(f.src, at, elem, lanes) if number is None else number
            if lanes and not value.lanes:
                value = b.splat(value, lanes)
            f.store(f.out, to, f.load(f.out, to, elem, lanes) + value if add else value)

        if along:
            with b.when(_all_in_range(f, source_row * f.inner, f.m * f.inner, negative)):
                _place_along(f, flat, negative, row, source_row, put)
        else:
            with b.loop(0, f.m) as j:
                k, at = _entry(f, j, 0, negative), (source_row + j) * f.inner
                f.doubt(b.compare("ge", k, f.n, unsigned=True))
                with b.when(b.compare("lt", k - first, count, unsigned=True)):
                    to = (row + k) * f.inner

                    def step(c: Reg, lanes: int, to: Reg = to, at: Reg = at) -> None:
                        put(to + c, at + c, lanes)

                    f.columns(b.const("i64", 0), f.inner, step)
    f.decide()
    return f


def _all_in_range(f: MachineFunction, start: Reg, count: Reg, negative: bool) -> Reg:
    """Whether entries are; if not, the routine refuses."""
    b = f.b
    wrong = {lanes: b.alloca("i1", lanes) for lanes in (0, LANES)}
    for slot in wrong.values():
        b.put(slot, 0)

    def step(c: Reg, lanes: int) -> None:
        out = b.compare("ge", _entry(f, start + c, lanes, negative), f.n, unsigned=True)
        b.put(wrong[lanes], b.get(wrong[lanes]) | out)

    f.columns(b.const("i64", 0), count, step)
    outside = b.get(wrong[0]) | b.any(b.get(wrong[LANES]))
    f.doubt(outside)
    return ~outside


def _place_along(
    f: MachineFunction,
    flat: bool,
    negative: bool,
    row: Reg,
    source_row: Reg,
    put: Callable[..., None],
) -> None:
    """Elements of one o, in the order of j."""
    b = f.b
    if flat:

        def move(j: Reg) -> None:
            put(row + _entry(f, source_row + j, 0, negative), source_row + j)

        whole = f.m & -UNROLLED
        with b.loop(0, whole, UNROLLED) as j:
            for more in range(UNROLLED):
                move(j + more)
        with b.loop(whole, f.m) as j:
            move(j)
        return
    with b.loop(0, f.m) as j:
        at = (source_row + j) * f.inner
        with b.loop(0, f.inner) as i:
            put((row + _entry(f, at + i, 0, negative)) * f.inner + i, at + i)


def _write_check() -> MachineFunction:
    """Refuses an index with entries out of range."""
    f = MachineFunction("index", "n low")

    def step(c: Reg, lanes: int) -> None:
        k = f.load(f.index, c, "i64", lanes)
        f.doubt((k < f.low) | f.b.compare("ge", k, f.n))

    f.columns(f.first, f.last, step)
    f.decide()
    return f


def _fits(index: Any, n: int, low: int) -> bool:
    """Whether all entries are at least `low` and below n: asked before anything is written."""
    return run((_write_check,), (index,), (), struct.pack("2q", n, low), index.size, 1)


def place(
    x: Any,
    axis: int,
    index: Any,
    src: Any,
    *,
    add: bool = False,
    along: bool = False,
    negative: bool = False,
    shape: tuple[int, ...] = (),
    over: bool = False,
) -> Any:
    """x with src at the places that the index names, replaced or added: slices along the axis, or
    where `along` single elements. `over`: written into x itself. x None: zeros of `shape`.
    """
    like = src if x is None else x
    shape = shape if x is None else x.shape
    if not _usable(like, index) or not math.prod(shape):
        return NotImplemented
    outer, n, inner = _around(shape, axis)
    m = index.shape[axis] if along else index.size
    wanted = index.shape if along else (*shape[:axis], *index.shape, *shape[axis + 1 :])
    elem = NUMBERS.get(like.dtype) if add else MOVED.get(like.itemsize)
    if elem is None or (along and not _alike(shape, index.shape, axis)):
        return NotImplemented
    constant = bytes(16)
    if type(src) not in ARRAYS:
        constant = np.asarray(src).astype(like.dtype).tobytes().ljust(16, b"\0")
    elif src.dtype != like.dtype or src.shape != wanted or not src.flags.c_contiguous:
        return NotImplemented
    source = (src,) if type(src) in ARRAYS else ()
    parts = (
        max(1, min(policy.SCATTER_PARTS, n, inner * like.itemsize // policy.SCATTER_PART_BYTES))
        if not along
        else 1
    )
    part = -(-n // parts)
    parts = -(-n // part)
    routine: Any = (along, along and inner == 1, negative, add, elem)
    numbers = (n, m, inner, parts, part)
    units, work = outer * parts, (n + m) * inner // parts
    if over:
        if not _fits(index, n, -n if negative else 0) or any(
            np.may_share_memory(x, s) for s in source
        ):
            return NotImplemented
        words = struct.pack("5q", *numbers) + constant
        routine = (_write_place, "out", bool(source), *routine)
        run(routine, (*source, index), (x,), words, units, work)
        return None
    base = "zeros" if x is None else "x"
    inputs = (*source, index) if x is None else (x, index, *source)
    routine = (_write_place, base, bool(source), *routine)
    return compute(routine, inputs, shape, like.dtype, numbers, units, work, constant=constant)


def one_hot(index: Any, count: int) -> Any:
    """Ones at the places along a new last axis that the index names, zeros elsewhere."""
    if not _usable(index, index):
        return NotImplemented
    numbers = (count, 1, 1, 1, count)
    routine = (_write_place, "zeros", False, True, True, False, False, "i64")
    one = struct.pack("2q", 1, 0)
    shape = (*index.shape, count)
    return compute(routine, (index,), shape, _INT64, numbers, index.size, count, constant=one)


# ---- running sums --------------------------------------------------------------------------------


def _write_sums(elem: str) -> MachineFunction:
    """out[o, j, :] = the sum of x[o, :j + 1, :], in float64 for floats; from the end where
    `reverse`. A unit is a tile of columns of one o.
    """
    f = MachineFunction("x out", "m inner reverse tiles")
    b = f.b
    wide = "double" if elem == "float" else elem
    sums = Reg(b, "ptr", 0, b.name())
    b.allocas.append(f"{sums.ref} = alloca [{TILE} x {wide}], align 64")
    with f.parts(f.tiles) as (o, tile):
        low = tile * TILE
        high = b.intrinsic("smin", low + TILE, f.inner)
        zero = b.const(wide, 0)
        with b.when(b.compare("eq", f.inner, 1)):
            total = b.alloca(wide, 0, zero)
            forward = b.compare("eq", f.reverse, 0)
            whole = b.select(forward, f.m & -LANES, 0)
            with b.loop(0, whole, LANES) as j:
                x = _widened(b, f.load(f.x, o * f.m + j, elem, LANES), wide)
                for distance in (1, 2, 4):  # each lane's sum of the lanes before it
                    x = x + _moved(b, x, distance)
                x = x + b.splat(b.get(total), LANES)
                b.put(total, b.lane(x, LANES - 1))
                f.store(f.out, o * f.m + j, _narrowed(b, x, elem))
            with b.loop(whole, f.m) as j:
                at = o * f.m + b.select(forward, j, f.m - 1 - j)
                b.put(total, b.get(total) + _widened(b, f.load(f.x, at, elem), wide))
                f.store(f.out, at, _narrowed(b, b.get(total), elem))
        with b.when(b.compare("ne", f.inner, 1)):
            with b.loop(0, b.const("i64", TILE)) as c:
                f.store(sums, c, zero)
            with b.loop(0, f.m) as j:
                at = b.select(b.compare("ne", f.reverse, 0), f.m - 1 - j, j)
                row = (o * f.m + at) * f.inner

                def step(c: Reg, lanes: int, row: Reg = row, low: Reg = low) -> None:
                    x = _widened(b, f.load(f.x, row + c, elem, lanes), wide)
                    total = f.load(sums, c - low, wide, lanes) + x
                    f.store(sums, c - low, total)
                    f.store(f.out, row + c, _narrowed(b, total, elem))

                f.columns(low, high, step)
    return f


def _moved(b: FunctionBody, x: Reg, distance: int) -> Reg:
    """The lanes moved up by a distance, zeros below."""
    lanes = [x.lanes + i if i < distance else i - distance for i in range(x.lanes)]
    picks = ", ".join(f"i32 {lane}" for lane in lanes)
    text = f"shufflevector {x.type} {x.ref}, {x.type} zeroinitializer, <{x.lanes} x i32> <{picks}>"
    return b.emit(x.elem, x.lanes, text)


def _widened(b: FunctionBody, x: Reg, wide: str) -> Reg:
    return b.convert("fpext", x, wide)


def _narrowed(b: FunctionBody, x: Reg, elem: str) -> Reg:
    return b.convert("fptrunc", x, elem)


def accumulate_sum(x: Any, axis: int, reverse: bool) -> Any:
    """The running sums along an axis, in float64 for floats."""
    elem = NUMBERS.get(x.dtype) if type(x) in ARRAYS else None
    if elem is None or not x.flags.c_contiguous or not x.size:
        return NotImplemented
    outer, m, inner = _around(x.shape, axis)
    tiles = -(-inner // TILE)
    numbers = (m, inner, int(reverse), tiles)
    work = m * min(inner, TILE)
    return compute((_write_sums, elem), (x,), x.shape, x.dtype, numbers, outer * tiles, work)
