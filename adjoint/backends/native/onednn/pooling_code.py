"""Machine code for the largest element of each window, and for where gradients go, as LLVM IR.

Forward writes, beside the largest elements, which place of its window each came from, one byte
each: the first of equals, the last of NaNs. Backward adds each gradient at that place.
"""

from __future__ import annotations

import functools
import sys
from typing import NamedTuple

from ....core.errors import Unsupported
from ...codegen.emit import FunctionBody, Module, Reg, type_name
from ...codegen.target import Target
from ..runtime import object_code

ELEMENT, SIZE = "float", 4


class Extent(NamedTuple):
    """A number for each direction of an image."""

    depth: int
    height: int
    width: int


class MaxPoolGeometry(NamedTuple):
    """Windows over planes: what a record has behind the arrays, as `words`."""

    size: Extent  # of a plane
    result: Extent  # its size: how many windows there are
    kernel: Extent
    stride: Extent
    padding: Extent  # in front
    dilation: Extent
    planes: int
    in_chunk: int  # planes

    @property
    def words(self) -> tuple[int, ...]:
        """All numbers in the order of `WORDS`."""
        directions = (self.size, self.result, self.kernel, self.stride, self.padding, self.dilation)
        return (*(n for each in directions for n in each), self.planes, self.in_chunk)


WORDS = (  # their names in the code
    "depth", "height", "width", "layers", "rows", "columns",
    "kernel_depth", "kernel_height", "kernel_width",
    "stride_depth", "stride_height", "stride_width", "before", "above", "left",
    "dilation_depth", "dilation_height", "dilation_width", "planes", "in_chunk",
)  # fmt: skip


class PoolingCode(NamedTuple):
    """Addresses of kernels for the pool, which take a record: three addresses and a geometry."""

    forward: int  # x, y, places
    forward_across: int  # the same, several planes at once: for rows of few elements
    backward: int  # g, places, dx
    backward_halving: int  # the same for windows of 2 by 2 next to each other, without padding


@functools.cache
def code() -> PoolingCode | None:
    """The kernels for float32; None where no code can be generated."""
    try:
        addresses = object_code.load(sys.modules[__name__], "float32", _text, PoolingCode._fields)
    except Unsupported:
        return None
    return PoolingCode(*addresses)


def _text(host: Target, symbol: str) -> str:
    module = Module()
    for write in (_forward, _forward_across, _backward, _backward_halving):
        kernel = _Kernel(module, host.vector_bytes // SIZE)
        write(kernel)
        name = write.__name__[1:]
        header = f"void @{symbol}.{name}(i64 %begin, i64 %end, ptr %record)"
        module.functions[name] = kernel.body.function(header)
    return str(module)


class _Kernel:
    """One kernel while it is written: its arguments, and vectors of a plane's row."""

    def __init__(self, module: Module, lanes: int) -> None:
        self.module, self.lanes = module, lanes
        b = self.body = FunctionBody(module)
        record = Reg(b, "ptr", 0, "%record")

        def word(index: int, elem: str = "i64") -> Reg:
            at = b.at(record, index, "i64")
            return b.emit(elem, 0, f"load {elem}, ptr {at.ref}")

        self.arrays = [word(i, "ptr") for i in range(3)]
        self.g = {name: word(3 + i) for i, name in enumerate(WORDS)}
        self.mask_type = type_name("i1", lanes)

    def planes(self) -> tuple[Reg, Reg]:
        """The first plane of these chunks, and the first behind them."""
        b, g = self.body, self.g
        begin, end = Reg(b, "i64", 0, "%begin"), Reg(b, "i64", 0, "%end")
        return begin * g["in_chunk"], b.intrinsic("smin", end * g["in_chunk"], g["planes"])

    def short(self, x: Reg) -> Reg:
        """An index as int32, of which a vector holds as many as floats."""
        return self.body.convert("trunc", x, "i32")

    def read(self, at: Reg, mask: Reg, elem: str = ELEMENT) -> Reg:
        """A vector, zeros where the mask is not set."""
        return self.body.load_masked(elem, self.lanes, at, mask)

    def write(self, x: Reg, at: Reg, mask: Reg) -> None:
        """A vector where the mask is set."""
        self.body.store_masked([(x, at)], mask)

    def lanes_of(self, base: Reg, index: Reg) -> Reg:
        """The addresses of elements, one a lane."""
        text = f"getelementptr {ELEMENT}, ptr {base.ref}, {index.type} {index.ref}"
        return self.body.emit("ptr", self.lanes, text)

    def moved(self, at: Reg, offset: Reg) -> Reg:
        """Addresses moved by as many elements."""
        text = f"getelementptr {ELEMENT}, {at.type} {at.ref}, i64 {offset.ref}"
        return self.body.emit("ptr", self.lanes, text)

    def gather(self, at: Reg, mask: Reg) -> Reg:
        """The elements at these addresses."""
        b, lanes = self.body, self.lanes
        kind = type_name(ELEMENT, lanes)
        name = f"llvm.masked.gather.v{lanes}f32.v{lanes}p0"
        self.module.declare(name, kind, [at.type, "i32", self.mask_type, kind])
        text = f"{at.type} {at.ref}, i32 4, {self.mask_type} {mask.ref}, {kind} zeroinitializer"
        return b.emit(ELEMENT, lanes, f"call {kind} @{name}({text})")

    def below(self, x: Reg, limit: Reg) -> Reg:
        """A mask: where 0 <= x < limit."""
        b = self.body
        return b.compare("lt", x, b.splat(limit, self.lanes), unsigned=True)

    def shuffle(self, x: Reg, y: Reg, picks: list[int]) -> Reg:
        text = ", ".join(f"i32 {i}" for i in picks)
        return self.body.emit(
            x.elem,
            self.lanes,
            f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{self.lanes} x i32> <{text}>",
        )

    def clear(self, at: Reg, count: Reg) -> None:
        """`count` elements become 0."""
        self.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        size = count * SIZE
        self.body.line(
            f"call void @llvm.memset.p0.i64(ptr {at.ref}, i8 0, i64 {size.ref}, i1 false)"
        )


def _forward(kernel: _Kernel) -> None:
    b, g, lanes = kernel.body, kernel.g, kernel.lanes
    x, y, places = kernel.arrays
    iota = b.iota("i32", lanes)
    width, stride = kernel.short(g["width"]), kernel.short(g["stride_width"])
    whole = g["depth"] * g["height"] * g["width"]
    part = g["layers"] * g["rows"] * g["columns"]
    layers, rows = b.loop(0, g["layers"]), b.loop(0, g["rows"])
    with b.loop(*kernel.planes()) as plane, layers as layer, rows as i:
        image = b.at(x, plane * whole, ELEMENT)
        front = layer * g["stride_depth"] - g["before"]
        top = i * g["stride_height"] - g["above"]
        with b.loop(0, g["columns"], lanes) as j:
            there = kernel.below(iota, kernel.short(g["columns"] - j))
            first = j * g["stride_width"] - g["left"]
            starts = iota * b.splat(stride, lanes) + b.splat(kernel.short(first), lanes)
            best = b.alloca(ELEMENT, lanes, b.const(ELEMENT, float("-inf"), lanes))
            place = b.alloca("i32", lanes, b.const("i32", -1, lanes))
            with b.loop(0, g["kernel_depth"]) as q, b.loop(0, g["kernel_height"]) as r:
                slice_, line = front + q * g["dilation_depth"], top + r * g["dilation_height"]
                inside = b.compare("lt", slice_, g["depth"], unsigned=True)
                with b.when(inside & b.compare("lt", line, g["height"], unsigned=True)):
                    row = b.at(image, (slice_ * g["height"] + line) * g["width"], ELEMENT)
                    with b.loop(0, g["kernel_width"]) as c:
                        shift = c * g["dilation_width"]
                        at = starts + b.splat(kernel.short(shift), lanes)
                        valid = there & kernel.below(at, width)
                        value = _elements(kernel, row, first + shift, at, valid)
                        old, where = b.get(best), b.get(place)
                        larger = (value > old) | b.compare("uno", value, value) | (where < 0)
                        take = valid & larger
                        number = (q * g["kernel_height"] + r) * g["kernel_width"] + c
                        chosen = b.splat(kernel.short(number), lanes)
                        b.put(best, b.select(take, value, old))
                        b.put(place, b.select(take, chosen, where))
            at = plane * part + (layer * g["rows"] + i) * g["columns"] + j
            kernel.write(b.get(best), b.at(y, at, ELEMENT), there)
            kernel.write(b.convert("trunc", b.get(place), "i8"), b.at(places, at), there)


def _forward_across(kernel: _Kernel) -> None:
    b, g, lanes = kernel.body, kernel.g, kernel.lanes
    x, y, places = kernel.arrays
    whole = g["depth"] * g["height"] * g["width"]
    part = g["layers"] * g["rows"] * g["columns"]
    iota = b.iota("i64", lanes)
    begin, end = kernel.planes()
    layers, rows = b.loop(0, g["layers"]), b.loop(0, g["rows"])
    with b.loop(begin, end, lanes) as plane, layers as layer, rows as i:
        there = kernel.below(iota, end - plane)
        images = kernel.lanes_of(b.at(x, plane * whole, ELEMENT), iota * b.splat(whole, lanes))
        front = layer * g["stride_depth"] - g["before"]
        top = i * g["stride_height"] - g["above"]
        with b.loop(0, g["columns"]) as j:
            start = j * g["stride_width"] - g["left"]
            best = b.alloca(ELEMENT, lanes, b.const(ELEMENT, float("-inf"), lanes))
            place = b.alloca("i32", lanes, b.const("i32", -1, lanes))
            deep, high = b.loop(0, g["kernel_depth"]), b.loop(0, g["kernel_height"])
            with deep as q, high as r, b.loop(0, g["kernel_width"]) as c:
                at = [
                    first + number * g[f"dilation_{axis}"]
                    for first, number, axis in zip(
                        (front, top, start), (q, r, c), ("depth", "height", "width"), strict=True
                    )
                ]
                inside = [
                    b.compare("lt", index, g[axis], unsigned=True)
                    for index, axis in zip(at, ("depth", "height", "width"), strict=True)
                ]
                with b.when(inside[0] & inside[1] & inside[2]):
                    offset = (at[0] * g["height"] + at[1]) * g["width"] + at[2]
                    value = kernel.gather(kernel.moved(images, offset), there)
                    old, where = b.get(best), b.get(place)
                    take = (value > old) | b.compare("uno", value, value) | (where < 0)
                    number = (q * g["kernel_height"] + r) * g["kernel_width"] + c
                    b.put(best, b.select(take, value, old))
                    b.put(place, b.select(take, b.splat(kernel.short(number), lanes), where))
            one = (layer * g["rows"] + i) * g["columns"] + j
            with b.loop(0, b.intrinsic("smin", end - plane, lanes)) as lane:
                to = (plane + lane) * part + one
                value = b.lane(b.get(best), lane)
                b.line(f"store {ELEMENT} {value.ref}, ptr {b.at(y, to, ELEMENT).ref}")
                byte = b.convert("trunc", b.lane(b.get(place), lane), "i8")
                b.line(f"store i8 {byte.ref}, ptr {b.at(places, to).ref}")


def _elements(kernel: _Kernel, row: Reg, first: Reg, at: Reg, valid: Reg) -> Reg:
    """Loads the elements of a row at the positions `at`, of which `first` is the first."""
    b, g, lanes = kernel.body, kernel.g, kernel.lanes
    result = b.alloca(ELEMENT, lanes)
    one, other, two, more, end = (b.label() for _ in range(5))
    b.branch(b.compare("eq", g["stride_width"], 1), one, other)
    b.start(one)
    b.put(result, kernel.read(b.at(row, first, ELEMENT), valid))
    b.line(f"br label %{end}")
    b.start(other)
    b.branch(b.compare("eq", g["stride_width"], 2), two, more)
    b.start(two)
    halves = []
    for shift in (0, lanes):
        start = first + shift
        inside = kernel.below(
            b.iota("i32", lanes) + b.splat(kernel.short(start), lanes), kernel.short(g["width"])
        )
        halves.append(kernel.read(b.at(row, start, ELEMENT), inside))
    b.put(result, kernel.shuffle(halves[0], halves[1], list(range(0, 2 * lanes, 2))))
    b.line(f"br label %{end}")
    b.start(more)
    b.put(result, kernel.gather(kernel.lanes_of(row, b.convert("sext", at, "i64")), valid))
    b.line(f"br label %{end}")
    b.start(end)
    return b.get(result)


def _backward(kernel: _Kernel) -> None:
    b, g = kernel.body, kernel.g
    gradient, places, result = kernel.arrays
    whole = g["depth"] * g["height"] * g["width"]
    part = g["layers"] * g["rows"] * g["columns"]
    b.allocas.append("%offsets = alloca [256 x i64]")
    offsets = Reg(b, "ptr", 0, "%offsets")  # of the window's places
    deep, high = b.loop(0, g["kernel_depth"]), b.loop(0, g["kernel_height"])
    with deep as q, high as r, b.loop(0, g["kernel_width"]) as c:
        number = (q * g["kernel_height"] + r) * g["kernel_width"] + c
        line = q * g["dilation_depth"] * g["height"] + r * g["dilation_height"]
        offset = line * g["width"] + c * g["dilation_width"]
        b.line(f"store i64 {offset.ref}, ptr {b.at(offsets, number, 'i64').ref}")
    with b.loop(*kernel.planes()) as plane:
        image = b.at(result, plane * whole, ELEMENT)
        kernel.clear(image, whole)
        with b.loop(0, g["layers"]) as layer, b.loop(0, g["rows"]) as i:
            line = plane * part + (layer * g["rows"] + i) * g["columns"]
            values, chosen = b.at(gradient, line, ELEMENT), b.at(places, line)
            front = (layer * g["stride_depth"] - g["before"]) * g["height"]
            top = front + i * g["stride_height"] - g["above"]
            start = top * g["width"] - g["left"]
            corner = b.alloca("i64", 0, start)
            with b.loop(0, g["columns"]) as j:
                value = b.emit(ELEMENT, 0, f"load {ELEMENT}, ptr {b.at(values, j, ELEMENT).ref}")
                place = b.emit("i8", 0, f"load i8, ptr {b.at(chosen, j).ref}")
                entry = b.at(offsets, b.convert("zext", place, "i64"), "i64")
                offset = b.emit("i64", 0, f"load i64, ptr {entry.ref}")
                here = b.get(corner)
                to = b.at(image, here + offset, ELEMENT)
                old = b.emit(ELEMENT, 0, f"load {ELEMENT}, ptr {to.ref}")
                b.line(f"store {ELEMENT} {(old + value).ref}, ptr {to.ref}")
                b.put(corner, here + g["stride_width"])


def _backward_halving(kernel: _Kernel) -> None:
    b, g, lanes = kernel.body, kernel.g, kernel.lanes
    gradient, places, result = kernel.arrays
    whole = g["depth"] * g["height"] * g["width"]
    part = g["layers"] * g["rows"] * g["columns"]
    iota = b.iota("i32", lanes)
    odd = b.compare("ne", whole, part * 4)  # what no window reaches becomes 0
    zero = b.const(ELEMENT, 0.0, lanes)
    low = [lanes * (i % 2) + i // 2 for i in range(lanes)]
    with b.loop(*kernel.planes()) as plane:
        image = b.at(result, plane * whole, ELEMENT)
        with b.when(odd):
            kernel.clear(image, whole)
        with b.loop(0, g["rows"]) as i, b.loop(0, g["columns"], lanes) as j:
            left = kernel.short(g["columns"] - j)
            there = kernel.below(iota, left)
            at = plane * part + i * g["columns"] + j
            values = kernel.read(b.at(gradient, at, ELEMENT), there)
            chosen = kernel.read(b.at(places, at), there, "i8")
            for r in range(2):
                pair = [
                    b.select(b.compare("eq", chosen, 2 * r + c), values, zero) for c in range(2)
                ]
                to = (i * 2 + r) * g["width"] + j * 2
                for half in range(2):
                    mixed = kernel.shuffle(
                        pair[0], pair[1], [pick + half * lanes // 2 for pick in low]
                    )
                    inside = kernel.below(iota + half * lanes, left * 2)
                    kernel.write(mixed, b.at(image, to + half * lanes, ELEMENT), inside)
