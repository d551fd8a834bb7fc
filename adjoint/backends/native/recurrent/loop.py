"""The time loop of a recurrent layer as machine code, forward and backward.

Rows of the batch are independent through time, so a chunk is some rows, and all their steps. A step
is cut into tiles (`recurrent_tiles`): as soon as the sums of a tile are known, with input and
state, the cell is computed from them (`recurrent_cells`). With projections, a second set of tiles
then multiplies what the cells gave. What a row gets does not depend on which others are computed
with it.

Sequences may differ in length, the longer first. `table` has, for each step in the order of
computation: how many rows it has; how many of these were in the step before, the others beginning
with the state that is given; where its rows begin in arrays of the rows of all steps, and where
those of the step before; and its number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from ....core import policy
from ...codegen import cache, target
from ...codegen.emit import FunctionBody, Module, Reg
from .cells import CELLS
from .tiles import Factors, Tiles

TABLE = ("rows", "before", "start", "start_before", "time")
NUMBERS = ("steps", "chunk", "time", "start", "row", "last_row")
FORWARD = (
    *NUMBERS, "table", "x", "weight", "weight_state", "bias_ih", "bias_hh", "h", "c", "output",
    "saved", "cells", "weight_out",
)  # fmt: skip
BACKWARD = (
    *NUMBERS, "table", "g", "weight_state", "last", "carry", "saved", "of_inputs", "of_state",
    "of_output", "weight_out",
)  # fmt: skip
# The words of the argument: numbers, then the addresses of arrays. Row n of x, or of g,
# is at time * `time` + start * `start` + n * `row` bytes, where the time and the start of a step
# are those of the table; rows of `last` are last_row apart; all other arrays are contiguous. `g` is
# the gradient of the output, `last` that of the final state. The last two are for projections:
# `cells` is what they project.


class RecurrentLoop(NamedTuple):
    """Key of a recurrent layer's code: the properties on which it depends."""

    cell: str
    dtype: str
    inputs: int  # elements of a row of x; 0 where it is the product with the weights already
    hidden: int
    projected: int  # elements of the output where they are projections; else 0
    saves: bool  # what the gradient reads
    loops: bool = True  # False: one step, whose products with the state are given as its weights
    biases: tuple[bool, bool] = (False, False)  # of the input's products, of the state's

    @property
    def output(self) -> int:
        """Elements of a row of the output, and of the state h."""
        return self.projected or self.hidden


@functools.lru_cache(maxsize=policy.RECURRENT_LOOPS)
def forward(layer: RecurrentLoop) -> target.LoadedCode:
    """`void kernel(int64 begin, int64 end, int64 *words)`: chunks of rows, all steps.

    Errors: Unsupported without llvmlite, or on a processor without fused multiply-add.
    """
    return _load(_Forward, layer)


@functools.lru_cache(maxsize=policy.RECURRENT_LOOPS)
def backward(layer: RecurrentLoop) -> target.LoadedCode:
    """Kernel for the gradients of the sums, with the signature of `forward`'s."""
    return _load(_Backward, layer)


def _load(loop: type[_Loop], layer: RecurrentLoop) -> target.LoadedCode:
    """Loads the code from disk, or compiles it."""
    host = target.host()
    name = cache.digest(loop.__name__, repr(layer), repr(host))
    symbol = "r" + name
    return target.freed(name, lambda: loop(layer).text(symbol), symbol)


class _Loop:
    """Code of the loop over the steps; of each step, over the rows that were in the step before,
    and the others.
    """

    words: tuple[str, ...]

    def __init__(self, layer: RecurrentLoop) -> None:
        self.layer, self.cell = layer, CELLS[layer.cell]
        host = target.host()
        module = Module(scalef=host.has("avx512f") and host.vector_bytes == 64)
        b = self.b = FunctionBody(module)
        self.word: dict[str, Reg] = {}
        for n, name in enumerate(self.words):
            at = b.at(Reg(b, "ptr", 0, "%words"), n, "i64")
            kind = "i64" if name in NUMBERS else "ptr"
            self.word[name] = b.emit(kind, 0, f"load {kind}, ptr {at.ref}")

    def text(self, symbol: str) -> str:
        """The module, with the loop as the function of that name."""
        b, word = self.b, self.word
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
                    self._rows(step, begins, first, last - first)
        header = f"void @{symbol}(i64 %begin, i64 %end, ptr noalias readonly %words)"
        b.module.functions[symbol] = b.function(header)
        return str(b.module)

    def _rows(self, step: dict[str, Reg], begins: Reg, first: Reg, count: Reg) -> None:
        """`count` rows of a step, from row `first` on."""
        raise NotImplementedError

    def _factors(self, rows: Reg, depth: int, weights: Reg, sums: tuple[int, ...]) -> Factors:
        """Rows without gaps, times weights."""
        return Factors(rows, self.b.const("i64", depth * self.tiles.size), depth, weights, sums)

    def _strided(self, name: str, step: dict[str, Reg], row: Reg) -> Reg:
        """A row of x or g."""
        word = self.word
        start = step["time"] * word["time"] + step["start"] * word["start"]
        return self.b.at(word[name], start + row * word["row"])

    tiles: Tiles  # of the cells
    out: Tiles  # of the output


class _Forward(_Loop):
    words = FORWARD

    def __init__(self, layer: RecurrentLoop) -> None:
        super().__init__(layer)
        self.tiles = Tiles(self.b, layer.dtype, layer.hidden, self.cell.sums)
        self.out = Tiles(self.b, layer.dtype, layer.output)

    def _rows(self, step: dict[str, Reg], begins: Reg, first: Reg, count: Reg) -> None:
        b, word, layer, cell, tiles = self.b, self.word, self.layer, self.cell, self.tiles
        x = self._strided("x", step, first)
        before = self.out.row(word["output"], step["start_before"])
        h = self.out.row(b.select(begins, word["h"], before), first)
        products = []
        if layer.inputs:
            products.append(Factors(x, word["row"], layer.inputs, word["weight"], cell.from_input))
        if layer.loops:
            weights = word["weight_state"]
            products.append(self._factors(h, layer.output, weights, cell.from_state))
        if products:
            with tiles.each(count) as (group, row, rows):
                tiles.add(group, row, rows, products)
                with tiles.cells(group, rows) as (r, at, unit):
                    sums = [tiles.sum(at, k) for k in range(cell.sums)]
                    self._unit(step, x, h, first, row + r, unit, sums)
        else:
            units = b.const("i64", layer.hidden)
            zero = b.const(tiles.elem, 0.0, tiles.lanes)
            with b.loop(0, count) as row, b.loop(0, units, tiles.lanes) as unit:
                self._unit(step, x, h, first, row, unit, [zero] * cell.sums)
        if layer.projected:
            self._project(step["start"] + first, count)

    def _unit(
        self, step: dict[str, Reg], x: Reg, h: Reg, first: Reg, row: Reg, unit: Reg, sums: list[Reg]
    ) -> None:
        """A vector of units of a row (counted from `first`), whose sums are known but for the
        products that are given, and the biases.
        """
        word, layer, cell, tiles = self.word, self.layer, self.cell, self.tiles
        by_input, by_state = [], []
        if not layer.inputs:
            by_input.append(self.b.at(x, row * word["row"]))
        if not layer.loops:
            by_state.append(tiles.row(word["weight_state"], first + row, cell.gates))
        if layer.biases[0]:
            by_input.append(word["bias_ih"])
        if layer.biases[1]:
            by_state.append(word["bias_hh"])
        for places, rows in ((cell.from_input, by_input), (cell.from_state, by_state)):
            for given in rows:
                for k, place in enumerate(places):
                    sums[place] = sums[place] + tiles.load(given, unit, k)
        self._cell(sums, tiles.row(h, row), step["start"] + first + row, first + row, unit)

    def _cell(self, sums: Sequence[Reg], h: Reg, place: Reg, row: Reg, unit: Reg) -> None:
        """Compute a vector of units and store it; `place` is its row in arrays of all steps."""
        word, cell, tiles = self.word, self.cell, self.tiles
        before = tiles.load(h, unit) if cell.apart else None
        c_row = tiles.row(word["c"], row)
        step = cell.step(self.b, sums, before, tiles.load(c_row, unit) if cell.has_c else None)
        to = word["cells" if self.layer.projected else "output"]
        tiles.store(step.h, tiles.row(to, place), unit)
        if step.c is not None:
            tiles.store(step.c, c_row, unit)
        if self.layer.saves:
            kept = tiles.row(word["saved"], place, cell.saved)
            for k, value in enumerate(step.saved):
                tiles.store(value, kept, unit, k)

    def _project(self, place: Reg, count: Reg) -> None:
        """Multiply what `count` rows of cells gave, from row `place` of all steps on."""
        word, out = self.word, self.out
        cells = self.tiles.row(word["cells"], place)
        product = self._factors(cells, self.layer.hidden, word["weight_out"], (0,))
        with out.each(count) as (group, row, rows):
            out.add(group, row, rows, [product])
            with out.cells(group, rows) as (r, at, unit):
                out.store(out.sum(at, 0), out.row(word["output"], place + row + r), unit)


class _Backward(_Loop):
    words = BACKWARD

    def __init__(self, layer: RecurrentLoop) -> None:
        super().__init__(layer)
        self.out = Tiles(self.b, layer.dtype, layer.output)
        self.tiles = Tiles(self.b, layer.dtype, layer.hidden) if layer.projected else self.out

    def _rows(self, step: dict[str, Reg], begins: Reg, first: Reg, count: Reg) -> None:
        """The gradient of the output, and of the cells that it is."""
        b, word, out, layer = self.b, self.word, self.out, self.layer
        depth = self.cell.gates * layer.hidden
        after = self.tiles.row(word["of_state"], step["start_before"] + first, self.cell.gates)
        product = self._factors(after, depth, word["weight_state"], (0,))
        g = self._strided("g", step, first)
        last = b.at(word["last"], first * word["last_row"])
        place = step["start"] + first
        with out.each(count) as (group, row, rows):
            if layer.loops:
                with b.when(~begins):
                    out.add(group, row, rows, [product])
            with out.cells(group, rows) as (r, at, unit):
                n = row + r
                given = b.at(b.at(last, n * word["last_row"]), unit, out.elem)
                dh = out.load_at(b.select(begins, given, at), unit)
                dh = dh + out.load(b.at(g, n * word["row"]), unit)
                if layer.projected:
                    out.store(dh, out.row(word["of_output"], place + n), unit)
                else:
                    self._cell(dh, place + n, first + n, unit)
        if layer.projected:
            self._project_back(place, first, count)

    def _project_back(self, place: Reg, first: Reg, count: Reg) -> None:
        """Writes the code for the gradient of projected outputs, and of the cells before them."""
        word, tiles, layer = self.word, self.tiles, self.layer
        rows = self.out.row(word["of_output"], place)
        product = self._factors(rows, layer.projected, word["weight_out"], (0,))
        with tiles.each(count) as (group, row, number):
            tiles.add(group, row, number, [product])
            with tiles.cells(group, number) as (r, at, unit):
                self._cell(tiles.sum(at, 0), place + row + r, first + row + r, unit)

    def _cell(self, dh: Reg, place: Reg, row: Reg, unit: Reg) -> None:
        """Compute the gradients of the sums of a vector of units, and store them."""
        word, cell, tiles = self.word, self.cell, self.tiles
        carried = tiles.row(word["carry"], row)
        carry = tiles.load(carried, unit) if cell.carries else None
        count = max(cell.saved, 1)
        kept = tiles.row(word["saved"], place, count)
        saved = [tiles.load(kept, unit, k) for k in range(count)]
        gradient = cell.gradient(self.b, dh, carry, saved)
        if gradient.carry is not None:
            tiles.store(gradient.carry, carried, unit)
        for name, values in (("of_inputs", gradient.inputs), ("of_state", gradient.state)):
            if values is not None:
                to = tiles.row(word[name], place, cell.gates)
                for k, value in enumerate(values):
                    tiles.store(value, to, unit, k)
