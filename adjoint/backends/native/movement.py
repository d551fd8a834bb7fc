"""Machine code for elements that are picked, placed or added up by index, and for running sums.

A tensor is seen as (outer, n, inner) around the axis that is indexed, row-major. Additions go in
the order of the index, whatever the number of threads: those share out other rows or columns.
Each function returns NotImplemented for arrays that it does not take; NumPy computes those.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...compiler import cache, target
from ...compiler.emit import Body, Module, Reg, type_name
from ...compiler.lower import DATA_OFFSET
from .pool import default_pool

__all__ = ["accumulate_sum", "gather", "index_add", "scatter", "take_along"]

GRAIN = 16384  # elements of a chunk
TILE = 64  # columns that are summed together
SEGMENT = 1024  # entries of an index that are looked up together
LANES = 8
_PAYLOAD = bytes.__basicsize__ - 1
_NAMED = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64"}
_NUMBERS = {np.dtype(name): elem for name, elem in _NAMED.items()}  # what is added up
_INTEGERS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}  # what only moves
_INT64 = np.dtype(np.int64)


class _Function:
    """A function void(begin, end, words) being written; `words` are named."""

    def __init__(self, names: str) -> None:
        self.b = Body(Module())
        words = Reg(self.b, "ptr", 0, "%words")
        for k, name in enumerate(names.split()):
            elem = "ptr" if name.isupper() else "i64"
            at = self.b.at(words, k, "i64")
            value = self.b.emit(elem, 0, f"load {elem}, ptr {at.ref}, align 8")
            if elem == "ptr":  # of a NumPy array: its data pointer is a field
                at = self.b.at(value, DATA_OFFSET)
                value = self.b.emit(elem, 0, f"load ptr, ptr {at.ref}, align 8")
            setattr(self, {"segments": "segments_"}.get(name, name.lower()), value)
        begin, end = (Reg(self.b, "i64", 0, name) for name in ("%begin", "%end"))
        self.first = begin * self.group
        self.last = self.b.intrinsic("smin", end * self.group, self.units)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def load(self, pointer: Reg, at: Reg, elem: str, lanes: int = 0) -> Reg:
        """The element, or vector, at a position."""
        address = self.b.at(pointer, at, elem)
        kind = type_name(elem, lanes)
        return self.b.emit(elem, lanes, f"load {kind}, ptr {address.ref}, align 1")

    def store(self, pointer: Reg, at: Reg, value: Reg) -> None:
        """Writes it there."""
        address = self.b.at(pointer, at, value.elem)
        self.b.line(f"store {value.type} {value.ref}, ptr {address.ref}, align 1")

    def index_at(self, at: Reg) -> Reg:
        """The index entry at a position, negative ones counted from the end where `wrap` is n."""
        k = self.load(self.index, at, "i64")
        return k + self.b.select(k < 0, self.wrap, 0)

    def checked(self, k: Reg, flagged: Reg) -> Reg:
        """An entry, or 0 instead of one that is out of range, which `flagged` remembers."""
        wrong = self.b.compare("ge", k, self.n, unsigned=True)
        self.b.put(flagged, self.b.get(flagged) | wrong)
        return self.b.select(wrong, 0, k)

    def report(self, flagged: Reg) -> None:
        """Sets the flag where an entry was out of range."""
        with self.b.when(self.b.get(flagged)):
            self.b.line(f"store i8 1, ptr {self.flag.ref}, align 1")

    @contextlib.contextmanager
    def segments(self) -> Iterator[tuple[Reg, Reg, Reg]]:
        """The loop over units: o, and from where to where a segment of the index goes."""
        b = self.b
        with b.loop(self.first, self.last) as unit:
            low = b.binary("urem", unit, self.segments_) * SEGMENT
            yield (
                b.binary("udiv", unit, self.segments_),
                low,
                b.intrinsic("smin", low + SEGMENT, self.m),
            )

    def columns(self, low: Reg, high: Reg, step: Callable[[Reg, int], None]) -> None:
        """Calls `step(column, lanes)` for vectors, and for what they leave over."""
        b = self.b
        whole = low + ((high - low) & -LANES)
        with b.loop(low, whole, LANES) as c:
            step(c, LANES)
        with b.loop(whole, high) as c:
            step(c, 0)

    def text(self, symbol: str) -> str:
        """The module."""
        header = f"void @{symbol}(i64 %begin, i64 %end, ptr noalias readonly %words)"
        self.b.module.functions[symbol] = self.b.function(header)
        return str(self.b.module)


def _write_take(blocks: bool, elem: str) -> _Function:
    """out[o, j, :] = x[o, index[j], :], for blocks of `inner` bytes or single elements; a unit is a
    segment of the index for one o.
    """
    f = _Function("X INDEX OUT FLAG n m inner wrap segments units group")
    b = f.b
    with f.segments() as (o, low, high):
        flagged = b.alloca("i1", 0, 0)
        row, out = o * f.n, o * f.m
        with b.loop(low, high) as j:
            k = f.checked(f.index_at(j), flagged)
            if blocks:
                to, start = b.at(f.out, (out + j) * f.inner), b.at(f.x, (row + k) * f.inner)
                b.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
                b.line(
                    f"call void @llvm.memcpy.p0.p0.i64(ptr {to.ref}, ptr {start.ref}, "
                    f"i64 {f.inner.ref}, i1 0)"
                )
            else:
                f.store(f.out, out + j, f.load(f.x, row + k, elem))
        f.report(flagged)
    return f


def _write_gather(flat: bool, elem: str) -> _Function:
    """out[o, j, i] = x[o, index[o, j, i], i]; `flat`: there is one i."""
    f = _Function("X INDEX OUT FLAG n m inner wrap segments units group")
    b = f.b
    with f.segments() as (o, low, high):
        flagged = b.alloca("i1", 0, 0)
        row, out = o * f.n, o * f.m
        with b.loop(low, high) as j:
            if flat:
                k = f.checked(f.index_at(out + j), flagged)
                f.store(f.out, out + j, f.load(f.x, row + k, elem))
            else:
                at = (out + j) * f.inner
                with b.loop(0, f.inner) as i:
                    k = f.checked(f.index_at(at + i), flagged)
                    f.store(f.out, at + i, f.load(f.x, (row + k) * f.inner + i, elem))
        f.report(flagged)
    return f


def _write_scatter(flat: bool, add: bool, elem: str) -> _Function:
    """x[o, index[o, j, i], i] = src[o, j, i], or added, for each o in the order of j."""
    f = _Function("X INDEX SRC FLAG n m inner units group")
    b = f.b

    def move(to: Reg, at: Reg) -> None:
        value = f.load(f.src, at, elem)
        f.store(f.x, to, f.load(f.x, to, elem) + value if add else value)

    with b.loop(f.first, f.last) as o:
        row, source = o * f.n, o * f.m
        with b.loop(0, f.m) as j:
            if flat:
                move(row + f.load(f.index, source + j, "i64"), source + j)
            else:
                at = (source + j) * f.inner
                with b.loop(0, f.inner) as i:
                    move((row + f.load(f.index, at + i, "i64")) * f.inner + i, at + i)
    return f


def _write_index_add(elem: str) -> _Function:
    """x[o, index[j], :] += src[o, j, :]; a unit is a tile of columns of one o."""
    f = _Function("X INDEX SRC FLAG n m inner wrap tiles units group")
    b = f.b
    with b.loop(f.first, f.last) as unit:
        o, tile = b.binary("udiv", unit, f.tiles), b.binary("urem", unit, f.tiles)
        low = tile * TILE
        high = b.intrinsic("smin", low + TILE, f.inner)
        with b.loop(0, f.m) as j:
            k = f.index_at(j)
            row, source = (o * f.n + k) * f.inner, (o * f.m + j) * f.inner

            def add(c: Reg, lanes: int, row: Reg = row, source: Reg = source) -> None:
                more = f.load(f.src, source + c, elem, lanes)
                f.store(f.x, row + c, f.load(f.x, row + c, elem, lanes) + more)

            f.columns(low, high, add)
    return f


def _write_sums(elem: str) -> _Function:
    """out[o, j, :] = the sum of x[o, :j + 1, :], in float64 for floats; from the end where
    `reverse`. A unit is a tile of columns of one o.
    """
    f = _Function("X OUT FLAG m inner reverse tiles units group")
    b = f.b
    wide = "double" if elem == "float" else elem
    sums = Reg(b, "ptr", 0, b.name())
    b.allocas.append(f"{sums.ref} = alloca [{TILE} x {wide}], align 64")
    with b.loop(f.first, f.last) as unit:
        o, tile = b.binary("udiv", unit, f.tiles), b.binary("urem", unit, f.tiles)
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


def _moved(b: Body, x: Reg, distance: int) -> Reg:
    """The lanes moved up by a distance, zeros below."""
    lanes = [x.lanes + i if i < distance else i - distance for i in range(x.lanes)]
    picks = ", ".join(f"i32 {lane}" for lane in lanes)
    text = f"shufflevector {x.type} {x.ref}, {x.type} zeroinitializer, <{x.lanes} x i32> <{picks}>"
    return b.emit(x.elem, x.lanes, text)


def _widened(b: Body, x: Reg, wide: str) -> Reg:
    return b.convert("fpext", x, wide)


def _narrowed(b: Body, x: Reg, elem: str) -> Reg:
    return b.convert("fptrunc", x, elem)


@functools.cache
def _address(write: Callable[..., _Function], *options: Any) -> int:
    """Of the machine code that `write(*options)` is the text of."""
    text = write(*options).text("moves")
    host = target.host()
    name = cache.digest(text, repr(host))
    symbol = "m" + name
    code = cache.read(name)
    if code is None:
        code = host.compile(text.replace("@moves(", f"@{symbol}("))
        cache.write(name, code)
    return target.load(code, symbol)[0]


def _run(
    address: int, arrays: tuple[np.ndarray, ...], numbers: tuple[int, ...], units: int, work: int
) -> bool:
    """Runs a function over its units, of `work` elements each; whether indices were in range."""
    flag = np.zeros((), np.bool_)
    group = max(1, GRAIN // max(work, 1))
    words = struct.pack(
        f"{len(arrays) + len(numbers) + 3}q", *map(id, arrays), id(flag), *numbers, units, group
    )
    default_pool().run(address, id(words) + _PAYLOAD, -(-units // group))
    return not flag


def _write_check() -> _Function:
    """Whether all entries of an index are in range."""
    f = _Function("INDEX FLAG n low units group")
    b = f.b
    wrong = b.alloca("i1", LANES, 0)

    def step(c: Reg, lanes: int) -> None:
        k = f.load(f.index, c, "i64", lanes)
        out = (k < f.low) | b.compare("ge", k, f.n)
        if lanes:
            b.put(wrong, b.get(wrong) | out)
        else:
            with b.when(out):
                b.line(f"store i8 1, ptr {f.flag.ref}, align 1")

    f.columns(f.first, f.last, step)
    with b.when(b.any(b.get(wrong))):
        b.line(f"store i8 1, ptr {f.flag.ref}, align 1")
    return f


def _fits(index: Any, n: int, low: int) -> bool:
    """Whether all entries are at least `low` and below n: asked before anything is written."""
    return _run(_address(_write_check), (index,), (n, low), index.size, 1)


def _usable(x: Any, index: Any) -> bool:
    return (
        type(x) is np.ndarray
        and type(index) is np.ndarray
        and index.dtype == _INT64
        and x.dtype.kind in "biufcV"
        and x.flags.c_contiguous
        and index.flags.c_contiguous
        and index.size > 0
        and x.size > 0
    )


def _around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def take_along(x: Any, index: Any, axis: int) -> Any:
    """The slices of x along an axis that the index (of any shape; may be negative) names."""
    if not _usable(x, index):
        return NotImplemented
    outer, n, inner = _around(x.shape, axis)
    m, size = index.size, inner * x.itemsize
    out = np.empty((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)
    elem = _INTEGERS.get(size)
    segments = -(-m // SEGMENT)
    address = _address(_write_take, elem is None, elem or "i8")
    numbers = (n, m, size, n, segments)
    fine = _run(address, (x, index, out), numbers, outer * segments, min(m, SEGMENT) * inner)
    return out if fine else NotImplemented


def gather(x: Any, axis: int, index: Any) -> Any:
    """x[o, index[o, j, i], i]; the index has the shape of x but along the axis."""
    if not (_usable(x, index) and _alike(x.shape, index.shape, axis)):
        return NotImplemented
    outer, n, inner = _around(x.shape, axis)
    m = index.shape[axis]
    out, segments = np.empty(index.shape, x.dtype), -(-m // SEGMENT)
    address = _address(_write_gather, inner == 1, _INTEGERS[x.itemsize])
    numbers = (n, m, inner, 0, segments)
    fine = _run(address, (x, index, out), numbers, outer * segments, min(m, SEGMENT) * inner)
    return out if fine else NotImplemented


def _alike(shape: tuple[int, ...], other: tuple[int, ...], axis: int) -> bool:
    return shape[:axis] == other[:axis] and shape[axis + 1 :] == other[axis + 1 :]


def scatter(x: Any, axis: int, index: Any, src: Any, add: bool) -> Any:
    """Writes src[o, j, i] to x[o, index[o, j, i], i], or adds it, in the order of j."""
    if not (_usable(x, index) and _alike(x.shape, index.shape, axis) and _source(x, index, src)):
        return NotImplemented
    outer, n, inner = _around(x.shape, axis)
    elem = _NUMBERS.get(x.dtype) if add else _INTEGERS[x.itemsize]
    if elem is None or not _fits(index, n, 0):
        return NotImplemented
    m = index.shape[axis]
    address = _address(_write_scatter, inner == 1, add, elem)
    _run(address, (x, index, src), (n, m, inner), outer, m * inner)
    return None


def _source(x: Any, like: Any, src: Any) -> bool:
    return (
        type(src) is np.ndarray
        and src.dtype == x.dtype
        and src.shape == like.shape
        and src.flags.c_contiguous
        and not np.may_share_memory(x, src)
    )


def index_add(x: Any, axis: int, index: Any, src: Any) -> Any:
    """Adds src[o, j, :] to x[o, index[j], :], in the order of j; entries may be negative."""
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    if not _usable(x, index) or not (
        type(src) is np.ndarray
        and src.dtype == x.dtype
        and src.shape == shape
        and src.flags.c_contiguous
    ):
        return NotImplemented
    outer, n, inner = _around(x.shape, axis)
    elem = _NUMBERS.get(x.dtype)
    if elem is None or not _fits(index, n, -n) or np.may_share_memory(x, src):
        return NotImplemented
    m, tiles = index.size, -(-inner // TILE)
    address = _address(_write_index_add, elem)
    numbers = (n, m, inner, n, tiles)
    _run(address, (x, index, src), numbers, outer * tiles, m * min(inner, TILE))
    return None


def accumulate_sum(x: Any, axis: int, reverse: bool) -> Any:
    """The running sums along an axis, in float64 for floats."""
    elem = _NUMBERS.get(x.dtype) if type(x) is np.ndarray else None
    if elem is None or not x.flags.c_contiguous or not x.size:
        return NotImplemented
    outer, m, inner = _around(x.shape, axis)
    out, tiles = np.empty(x.shape, x.dtype), -(-inner // TILE)
    numbers = (m, inner, int(reverse), tiles)
    _run(_address(_write_sums, elem), (x, out), numbers, outer * tiles, m * min(inner, TILE))
    return out
