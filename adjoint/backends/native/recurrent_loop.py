"""The time loop of a recurrent layer as machine code, forward and backward.

Rows of the batch are independent through time, so a chunk is some rows, and all their steps. A step
is cut into tiles of a few rows by a few vectors of units: the products of the tile, with input and
state, are summed in registers, and from the sums the cell is computed at once. The weights are
repacked so that a tile reads its part of them from end to end. What a row gets does not depend on
which others are computed with it.

Sequences may differ in length, the longer first. `table` has, for each step in the order of
computation: how many rows it has; how many of these were in the step before, the others beginning
with the state that is given; where its rows begin in arrays of the rows of all steps, and where
those of the step before; and its number.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...compiler import cache, target
from ...compiler.emit import LLVM_TYPES, Body, Module, Reg, type_name
from ...compiler.lower import DATA_OFFSET
from .recurrent_cells import CELLS

__all__ = ["Layer", "backward", "forward"]

TABLE = ("rows", "before", "start", "start_before", "time")
NUMBERS = ("steps", "chunk", "time", "start", "row", "last_row")
FORWARD = (
    *NUMBERS, "table", "x", "weight", "weight_state", "bias", "h", "c", "output", "saved",
)  # fmt: skip
BACKWARD = (
    *NUMBERS, "table", "g", "weight_state", "last", "carry", "saved", "of_inputs", "of_state",
)  # fmt: skip
# The words of the argument: numbers, then addresses of NumPy's array objects. Row n of x, or of g,
# is at time * `time` + start * `start` + n * `row` bytes, where the time and the start of a step
# are those of the table; rows of `last` are last_row apart; all other arrays are contiguous. `g` is
# the gradient of the output, `last` that of the final state.


class Layer(NamedTuple):
    """What the code depends on."""

    cell: str
    dtype: str
    inputs: int  # elements of a row of x; 0 where it is the product with the weights already
    hidden: int
    saves: bool  # what the gradient reads
    loops: bool = True  # False: one step, whose products with the state are given as its weights

    @property
    def itemsize(self) -> int:
        """Of an element."""
        return 8 if self.dtype == "float64" else 4

    @property
    def lanes(self) -> int:
        """Elements in a vector."""
        return target.host().vector_bytes // self.itemsize

    def width(self, sums: int) -> int:
        """How many vectors of units a tile has, of so many sums each: about four of sums."""
        vectors = -(-self.hidden // self.lanes)
        widths = range(max(1, 4 // sums), 0, -1)
        return min(widths, key=lambda width: -(-vectors // width) * width)

    @property
    def forward_width(self) -> int:
        """Vectors of units in a tile of the forward loop."""
        return self.width(CELLS[self.cell].sums)

    @property
    def backward_width(self) -> int:
        """Vectors of units in a tile of the backward loop."""
        return self.width(1)


@functools.lru_cache(maxsize=1024)
def forward(layer: Layer) -> int:
    """Address of `void kernel(int64 begin, int64 end, int64 *words)`: chunks of rows, all steps.

    Errors: Unsupported without llvmlite, or on a processor without fused multiply-add.
    """
    return _load(_Forward(layer).text())


@functools.lru_cache(maxsize=1024)
def backward(layer: Layer) -> int:
    """The same for the gradients of the sums."""
    return _load(_Backward(layer).text())


def _load(text: str) -> int:
    host = target.host()
    name = cache.digest(text, repr(host))
    symbol = "r" + name
    found = cache.read(name)
    if found is None:
        found = host.compile(text.replace("@loop(", f"@{symbol}("))
        cache.write(name, found)
    return target.load(found, symbol)[0]


class _Product(NamedTuple):
    """Rows times weights, a summand of a tile."""

    rows: Reg  # pointer to the first
    stride: Reg  # from row to row
    depth: int  # elements of a row
    weights: Reg  # pointer to the tile's part: for each element, a vector for each of `sums`
    sums: tuple[int, ...]


class _Loop:
    """What both directions have in common."""

    words: tuple[str, ...]
    parameters: tuple[str, ...]  # of the function that computes the sums of a tile; those in
    numbers: tuple[str, ...]  # are integers

    def __init__(self, layer: Layer) -> None:
        self.layer, self.cell = layer, CELLS[layer.cell]
        host = target.host()
        self.elem, self.lanes, self.size = LLVM_TYPES[layer.dtype], layer.lanes, layer.itemsize
        self.bytes = self.lanes * self.size  # of a vector
        self.module = Module(scalef=host.has("avx512f") and host.vector_bytes == 64)
        self.registers = 32 if host.vector_bytes == 64 or host.has("neon") else 16
        self.vectors = -(-layer.hidden // self.lanes)

    def text(self) -> str:
        """The module; its function is named `loop`."""
        self.width = self._width()
        self.columns = self.width * self._sums()  # vectors of sums in a row of a tile
        self.rows = max(1, min(12, (self.registers - self.columns - 2) // self.columns))
        self.groups = -(-self.vectors // self.width)
        for rows in range(1, self.rows + 1):
            self._tile(rows)
        b = self.b = Body(self.module)
        self._steps()
        header = "void @loop(i64 %begin, i64 %end, ptr noalias readonly %words)"
        self.module.functions["loop"] = b.function(header)
        return str(self.module)

    def _width(self) -> int:
        raise NotImplementedError

    def _sums(self) -> int:
        raise NotImplementedError

    # The sums of a tile --------------------------------------------------------------------------

    def _start(self, b: Body, arg: dict[str, Reg], row: int) -> Sequence[Reg]:
        """What the sums of a row begin with."""
        raise NotImplementedError

    def _products(self, b: Body, arg: dict[str, Reg]) -> list[_Product]:
        """What is added to them."""
        raise NotImplementedError

    def _tile(self, rows: int) -> None:
        """Write the function that puts the sums of a tile of so many rows into scratch memory."""
        b = Body(self.module)
        kinds = {p: "i64" if p in self.numbers else "ptr" for p in self.parameters}
        arg = {p: Reg(b, kind, 0, f"%{p}") for p, kind in kinds.items()}
        sums = []
        for row in range(rows):
            starts = self._start(b, arg, row)
            sums.append([b.alloca(self.elem, self.lanes, x) for x in starts])
        for product in self._products(b, arg):
            self._add(b, product, sums)
        for row, slots in enumerate(sums):
            for n, slot in enumerate(slots):
                at = b.at(arg["scratch"], (row * self.columns + n) * self.bytes)
                x = b.get(slot)
                b.line(f"store {x.type} {x.ref}, ptr {at.ref}, align 64")
        header = ", ".join(f"{kind} %{p}" for p, kind in kinds.items())
        name = f"tile.{rows}"
        text = b.function(f"internal void @{name}({header})", attributes="noinline nounwind")
        self.module.functions[name] = text

    def _add(self, b: Body, product: _Product, sums: list[list[Reg]]) -> None:
        """The loop over the elements of the rows."""
        columns = [s * self.width + v for s in product.sums for v in range(self.width)]
        starts = [b.at(product.rows, product.stride * row) for row in range(len(sums))]
        with b.loop(0, b.const("i64", product.depth)) as k:
            weights = b.at(product.weights, k * (len(columns) * self.bytes))
            vectors = [self._vector(b, b.at(weights, n * self.bytes)) for n in range(len(columns))]
            for start, slots in zip(starts, sums, strict=True):
                at = b.at(start, k, self.elem)
                x = b.splat(b.emit(self.elem, 0, f"load {self.elem}, ptr {at.ref}"), self.lanes)
                for n, w in zip(columns, vectors, strict=True):
                    b.put(slots[n], b.fma(x, w, b.get(slots[n])))

    def _vector(self, b: Body, at: Reg) -> Reg:
        """Of packed weights, which are aligned."""
        kind = type_name(self.elem, self.lanes)
        return b.emit(self.elem, self.lanes, f"load {kind}, ptr {at.ref}, align {self.bytes}")

    def _call_tile(self, rows: Reg, args: dict[str, Reg]) -> None:
        """The function for that many rows."""
        b = self.b
        text = ", ".join(f"{args[p].type} {args[p].ref}" for p in self.parameters)
        done = b.label()
        for n in range(1, self.rows + 1):
            here, other = b.label(), b.label()
            b.branch(b.compare("eq", rows, n), here, other)
            b.start(here)
            b.line(f"call void @tile.{n}({text})")
            b.line(f"br label %{done}")
            b.start(other)
        b.start(done)

    # The loops -----------------------------------------------------------------------------------

    def _steps(self) -> None:
        """Over the steps; of each, the rows that were in the step before, and the others."""
        b = self.b
        words = Reg(b, "ptr", 0, "%words")
        self.word = {}
        for n, name in enumerate(self.words):
            at = b.at(words, n, "i64")
            if name in NUMBERS:
                self.word[name] = b.emit("i64", 0, f"load i64, ptr {at.ref}")
            else:
                array = b.emit("ptr", 0, f"load ptr, ptr {at.ref}")
                data = b.at(array, DATA_OFFSET)
                self.word[name] = b.emit("ptr", 0, f"load ptr, ptr {data.ref}")
        word = self.word
        scratch = b.name()
        vector = type_name(self.elem, self.lanes)
        b.allocas.append(f"{scratch} = alloca [{self.rows * self.columns} x {vector}], align 64")
        self.scratch = Reg(b, "ptr", 0, scratch)
        low = Reg(b, "i64", 0, "%begin") * word["chunk"]
        high = Reg(b, "i64", 0, "%end") * word["chunk"]
        with b.loop(0, word["steps"]) as s:
            entry = b.at(word["table"], s * (8 * len(TABLE)))
            step = {
                name: b.emit("i64", 0, f"load i64, ptr {b.at(entry, 8 * n).ref}")
                for n, name in enumerate(TABLE)
            }
            end = b.intrinsic("smin", high, step["rows"])
            middle = b.intrinsic("smin", b.intrinsic("smax", low, step["before"]), end)
            with b.loop(0, b.const("i64", 2)) as part:
                begins = b.compare("ne", part, 0)  # rows that begin with this step
                first, last = b.select(begins, middle, low), b.select(begins, end, middle)
                with b.when(first < last):
                    self._groups(step, begins, first, last)

    def _groups(self, step: dict[str, Reg], begins: Reg, first: Reg, last: Reg) -> None:
        """Over the tiles of a step; those of the same units one after another."""
        b = self.b
        count = last - first
        blocks = b.binary("udiv", count + (self.rows - 1), self.rows)
        size, larger = b.binary("udiv", count, blocks), b.binary("urem", count, blocks)
        self._before(step, begins)
        with b.loop(0, b.const("i64", self.groups)) as group:
            row = b.alloca("i64", 0, first)
            with b.loop(0, blocks) as block:
                n = size + b.convert("zext", block < larger, "i64")
                self._block(step, begins, group, b.get(row), n)
                b.put(row, b.get(row) + n)

    def _before(self, step: dict[str, Reg], begins: Reg) -> None:
        """What is the same for all tiles of a step."""
        raise NotImplementedError

    def _block(self, step: dict[str, Reg], begins: Reg, group: Reg, row: Reg, n: Reg) -> None:
        """A tile of n rows from `row` on."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _cells(self, group: Reg, n: Reg) -> Iterator[tuple[Reg, Reg, Reg]]:
        """Over the vectors of a tile: which row, where its first sum is, and the first unit."""
        b = self.b
        most = b.const("i64", self.width)
        if self.vectors % self.width:
            most = b.intrinsic("smin", -(group * self.width) + self.vectors, most)
        with b.loop(0, n) as r, b.loop(0, most) as v:
            at = b.at(self.scratch, r * (self.columns * self.bytes) + v * self.bytes)
            yield r, at, (group * self.width + v) * self.lanes

    def _load(self, at: Reg, unit: Reg) -> Reg:
        """The vector of units there, as far as there are."""
        b, kind = self.b, type_name(self.elem, self.lanes)
        if not self.layer.hidden % self.lanes:
            return b.emit(self.elem, self.lanes, f"load {kind}, ptr {at.ref}, align {self.size}")
        name = f"llvm.masked.load.v{self.lanes}f{8 * self.size}.p0"
        mask = self._mask(unit)
        self.module.declare(name, kind, ["ptr", "i32", mask.type, kind])
        text = f"ptr {at.ref}, i32 {self.size}, {mask.type} {mask.ref}, {kind} zeroinitializer"
        return b.emit(self.elem, self.lanes, f"call {kind} @{name}({text})")

    def _store(self, x: Reg, at: Reg, unit: Reg) -> None:
        """The opposite."""
        if not self.layer.hidden % self.lanes:
            self.b.line(f"store {x.type} {x.ref}, ptr {at.ref}, align {self.size}")
            return
        name = f"llvm.masked.store.v{self.lanes}f{8 * self.size}.p0"
        mask = self._mask(unit)
        self.module.declare(name, "void", [x.type, "ptr", "i32", mask.type])
        text = f"{x.type} {x.ref}, ptr {at.ref}, i32 {self.size}, {mask.type} {mask.ref}"
        self.b.line(f"call void @{name}({text})")

    def _mask(self, unit: Reg) -> Reg:
        b = self.b
        return b.splat(unit, self.lanes) + b.iota("i64", self.lanes) < self.layer.hidden

    def _at(self, base: Reg, row: Reg, blocks: int = 1) -> Reg:
        """A row of an array that has `blocks` elements a unit."""
        return self.b.at(base, row * (blocks * self.layer.hidden * self.size))

    def _units(self, row: Reg, unit: Reg, block: int = 0) -> Reg:
        """From some unit on, in a row."""
        return self.b.at(row, unit + block * self.layer.hidden, self.elem)


class _Forward(_Loop):
    words = FORWARD
    numbers = ("row",)
    parameters = ("x", "row", "h", "weight", "weight_state", "bias", "scratch")

    def _width(self) -> int:
        return self.layer.forward_width

    def _sums(self) -> int:
        return self.cell.sums

    def _start(self, b: Body, arg: dict[str, Reg], row: int) -> Sequence[Reg]:
        """The bias, or the products that x has."""
        return [self._vector(b, b.at(arg["bias"], n * self.bytes)) for n in range(self.columns)]

    def _products(self, b: Body, arg: dict[str, Reg]) -> list[_Product]:
        layer, cell = self.layer, self.cell
        stride = b.const("i64", layer.hidden * self.size)
        found = []
        if layer.inputs:
            found.append(
                _Product(arg["x"], arg["row"], layer.inputs, arg["weight"], cell.from_input)
            )
        if layer.loops:
            state = arg["weight_state"]
            found.append(_Product(arg["h"], stride, layer.hidden, state, cell.from_state))
        return found

    def _before(self, step: dict[str, Reg], begins: Reg) -> None:
        b, word = self.b, self.word
        time = step["time"] * word["time"] + step["start"] * word["start"]
        self.x = b.at(word["x"], time)
        self.h = b.select(begins, word["h"], self._at(word["output"], step["start_before"]))

    def _block(self, step: dict[str, Reg], begins: Reg, group: Reg, row: Reg, n: Reg) -> None:
        b, word, layer, cell = self.b, self.word, self.layer, self.cell
        part = self.width * self.bytes
        h = self._at(self.h, row)
        x = b.at(self.x, row * word["row"])
        args = {
            "x": x,
            "row": word["row"],
            "h": h,
            "weight": b.at(word["weight"], group * (part * cell.gates * layer.inputs)),
            "weight_state": b.at(word["weight_state"], group * (part * cell.gates * layer.hidden)),
            "bias": b.at(word["bias"], group * (part * cell.sums)),
            "scratch": self.scratch,
        }
        self._call_tile(n, args)
        with self._cells(group, n) as (r, at, unit):
            place = step["start"] + row + r
            sums = [self._vector(b, b.at(at, k * part)) for k in range(cell.sums)]
            if not layer.inputs:
                given = b.at(x, r * word["row"])
                for k, s in enumerate(cell.from_input):
                    sums[s] = sums[s] + self._load(self._units(given, unit, k), unit)
            if not layer.loops:
                given = self._at(word["weight_state"], row + r, cell.gates)
                for k, s in enumerate(cell.from_state):
                    sums[s] = sums[s] + self._load(self._units(given, unit, k), unit)
            before = self._load(self._units(self._at(h, r), unit), unit) if cell.apart else None
            c_at = self._units(self._at(word["c"], row + r), unit)
            c = self._load(c_at, unit) if cell.has_c else None
            found = cell.step(b, sums, before, c)
            self._store(found.h, self._units(self._at(word["output"], place), unit), unit)
            if found.c is not None:
                self._store(found.c, c_at, unit)
            if layer.saves:
                kept = self._at(word["saved"], place, cell.saved)
                for k, value in enumerate(found.saved):
                    self._store(value, self._units(kept, unit, k), unit)


class _Backward(_Loop):
    words = BACKWARD
    numbers = ()
    parameters = ("state", "weight_state", "scratch")

    def _width(self) -> int:
        return self.layer.backward_width

    def _sums(self) -> int:
        return 1

    def _start(self, b: Body, arg: dict[str, Reg], row: int) -> Sequence[Reg]:
        return [b.const(self.elem, 0.0, self.lanes)] * self.columns

    def _products(self, b: Body, arg: dict[str, Reg]) -> list[_Product]:
        depth = self.cell.gates * self.layer.hidden
        stride = b.const("i64", depth * self.size)
        return [_Product(arg["state"], stride, depth, arg["weight_state"], (0,))]

    def _before(self, step: dict[str, Reg], begins: Reg) -> None:
        b, word = self.b, self.word
        time = step["time"] * word["time"] + step["start"] * word["start"]
        self.g = b.at(word["g"], time)

    def _block(self, step: dict[str, Reg], begins: Reg, group: Reg, row: Reg, n: Reg) -> None:
        b, word, layer, cell = self.b, self.word, self.layer, self.cell
        depth = cell.gates * layer.hidden
        with b.when(~begins):
            weights = b.at(word["weight_state"], group * (self.width * self.bytes * depth))
            rows = self._at(word["of_state"], step["start_before"] + row, cell.gates)
            self._call_tile(n, {"state": rows, "weight_state": weights, "scratch": self.scratch})
        with self._cells(group, n) as (r, at, unit):
            place = step["start"] + row + r
            last = self._units(b.at(word["last"], (row + r) * word["last_row"]), unit)
            dh = self._load(b.select(begins, last, at), unit)
            g = b.at(self.g, (row + r) * word["row"])
            dh = dh + self._load(self._units(g, unit), unit)
            carry_at = self._units(self._at(word["carry"], row + r), unit)
            carry = self._load(carry_at, unit) if cell.carries else None
            kept = self._at(word["saved"], place, max(cell.saved, 1))
            saved = [
                self._load(self._units(kept, unit, k), unit) for k in range(max(cell.saved, 1))
            ]
            found = cell.gradient(b, dh, carry, saved)
            if found.carry is not None:
                self._store(found.carry, carry_at, unit)
            for name, values in (("of_inputs", found.inputs), ("of_state", found.state)):
                if values is not None:
                    to = self._at(word[name], place, cell.gates)
                    for k, value in enumerate(values):
                        self._store(value, self._units(to, unit, k), unit)
