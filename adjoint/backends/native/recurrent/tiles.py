"""Sums of products for tiles of a few rows by a few vectors of units, as LLVM IR.

A tile's sums stay in registers while rows are multiplied by weights. The weights are packed: for
each group of units (those of a tile), for each element of a row, for each sum that gets products, a
vector for each vector of units, zero beyond the last unit. So a tile reads its part of them from
end to end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...codegen import target
from ...codegen.emit import LLVM_TYPES, FunctionBody, Reg, type_name

MOST_ROWS = 12  # of a tile
LINE = 64  # bytes that memory brings at once


class Format(NamedTuple):
    """Elements, and the vectors in which this processor computes with them."""

    dtype: str

    @property
    def elem(self) -> str:
        """LLVM's type."""
        return LLVM_TYPES[self.dtype]

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8 if self.dtype == "float64" else 4

    @property
    def lanes(self) -> int:
        """Elements in a vector."""
        return target.host().vector_bytes // self.size

    def width(self, units: int, sums: int) -> int:
        """How many vectors of units a tile has, of so many sums each: about four of sums."""
        vectors = -(-units // self.lanes)
        widths = range(max(1, 4 // sums), 0, -1)
        return min(widths, key=lambda width: -(-vectors // width) * width)


class Factors(NamedTuple):
    """Rows and weights that are multiplied."""

    rows: Reg  # pointer to the first row
    stride: Reg  # from row to row
    depth: int  # elements of a row
    weights: Reg  # pointer to those of all groups
    sums: tuple[int, ...]  # those of a unit's sums that get the products


def _rows(registers: int, columns: int) -> int:
    """How many rows of so many sums fit into the registers: beside them there is a vector for each
    row or for each column, whichever are fewer, and one of the other kind.
    """
    for rows in range(MOST_ROWS, 1, -1):
        if rows * columns + min(rows, columns) < registers:
            return rows
    return 1


class Tiles:
    """The tiles of a matrix of units, of which each has some sums, in the function `b`."""

    def __init__(self, b: FunctionBody, dtype: str, units: int, sums: int = 1) -> None:
        self.b, self.units, self.sums = b, units, sums
        form = Format(dtype)
        self.elem, self.lanes, self.size = form.elem, form.lanes, form.size
        self.bytes = self.lanes * self.size  # of a vector
        self.width = form.width(units, sums)
        self.columns = sums * self.width  # vectors of sums in a row of a tile
        host = target.host()
        registers = 32 if host.vector_bytes == 64 or host.has("neon") else 16
        self.rows = _rows(registers, self.columns)
        self.vectors = -(-units // self.lanes)
        self.groups = -(-self.vectors // self.width)
        self.scratch = self._room(self.rows * self.columns)

    def _room(self, vectors: int) -> Reg:
        """Memory on the stack."""
        name = self.b.name()
        kind = type_name(self.elem, self.lanes)
        self.b.allocas.append(f"{name} = alloca [{vectors} x {kind}], align 64")
        return Reg(self.b, "ptr", 0, name)

    # Loops ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def each(self, count: Reg) -> Iterator[tuple[Reg, Reg, Reg]]:
        """A loop over the tiles of so many rows, those of the same units one after another: the
        group of units, the first row, and the number of rows.
        """
        b = self.b
        blocks = b.binary("udiv", count + (self.rows - 1), self.rows)
        size, larger = b.binary("udiv", count, blocks), b.binary("urem", count, blocks)
        with b.loop(0, b.const("i64", self.groups)) as group:
            first = b.alloca("i64", 0, 0)
            with b.loop(0, blocks) as block:
                rows = size + b.convert("zext", block < larger, "i64")
                row = b.get(first)
                yield group, row, rows
                b.put(first, row + rows)

    @contextlib.contextmanager
    def cells(self, group: Reg, rows: Reg) -> Iterator[tuple[Reg, Reg, Reg]]:
        """A loop over the vectors of units of a tile: the row in it, where the first sum is (see
        `sum`), and the first unit.
        """
        b = self.b
        most = b.const("i64", self.width)
        if self.vectors % self.width:
            most = b.intrinsic("smin", -(group * self.width) + self.vectors, most)
        with b.loop(0, rows) as r, b.loop(0, most) as v:
            at = b.at(self.scratch, r * (self.columns * self.bytes) + v * self.bytes)
            yield r, at, (group * self.width + v) * self.lanes

    # Sums ----------------------------------------------------------------------------------------

    def add(self, group: Reg, row: Reg, rows: Reg, products: Sequence[Factors]) -> None:
        """Compute the sums of a tile."""
        b = self.b
        part = self.width * self.bytes
        arguments = [self.scratch]
        for product in products:
            size = part * len(product.sums) * product.depth
            arguments.append(b.at(product.rows, row * product.stride))
            arguments.append(product.stride)
            arguments.append(b.at(product.weights, group * size))
            following = b.select(b.compare("eq", group, self.groups - 1), 0, group + 1)
            near = following * size + row * (product.depth * LINE // self.rows)
            arguments.append(b.at(product.weights, near))
        text = ", ".join(f"{x.type} {x.ref}" for x in arguments)
        done = b.label()
        for n in range(1, self.rows + 1):
            here, other = b.label(), b.label()
            b.branch(b.compare("eq", rows, n), here, other)
            b.start(here)
            b.line(f"call void @{self._function(n, products)}({text})")
            b.line(f"br label %{done}")
            b.start(other)
        b.start(done)

    def sum(self, at: Reg, number: int) -> Reg:
        """One of the sums of a vector of units."""
        return self._get(self.b, self.b.at(at, number * self.width * self.bytes))

    def _function(self, rows: int, products: Sequence[Factors]) -> str:
        """The name of the function for so many rows and these products."""
        what = [(p.depth, p.sums, "" if p.stride.ref[0] == "%" else p.stride.ref) for p in products]
        key = "-".join(f"{d}x{'.'.join(map(str, sums))}x{stride}" for d, sums, stride in what)
        name = f'"tile-{self.columns}x{rows}-{key}"'
        functions = self.b.module.functions
        if name not in functions:
            functions[name] = self._text(name, rows, products)
        return name

    def _text(self, name: str, rows: int, products: Sequence[Factors]) -> str:
        b = FunctionBody(self.b.module)
        scratch = Reg(b, "ptr", 0, "%scratch")
        parameters = [scratch]
        slots = [
            [b.alloca(self.elem, self.lanes, 0.0) for _ in range(self.columns)] for _ in range(rows)
        ]
        for n, product in enumerate(products):
            pointer = Reg(b, "ptr", 0, f"%rows{n}")
            stride, weights = Reg(b, "i64", 0, f"%stride{n}"), Reg(b, "ptr", 0, f"%weights{n}")
            near = Reg(b, "ptr", 0, f"%near{n}")
            parameters += [pointer, stride, weights, near]
            if product.stride.ref[0] != "%":  # one register less for each row
                stride = Reg(b, "i64", 0, product.stride.ref)
                pointers = [b.at(pointer, int(stride.ref) * r) for r in range(rows)]
            else:
                pointers = [b.at(pointer, stride * r) for r in range(rows)]
            self._multiply(b, pointers, weights, near, product, slots)
        for r, row in enumerate(slots):
            for n, slot in enumerate(row):
                at = b.at(scratch, (r * self.columns + n) * self.bytes)
                self._put(b, b.get(slot), at)
        header = ", ".join(f"{p.type} {p.ref}" for p in parameters)
        return b.function(f"internal void @{name}({header})", attributes="noinline")

    def _multiply(
        self,
        b: FunctionBody,
        rows: list[Reg],
        weights: Reg,
        near: Reg,
        product: Factors,
        slots: list[list[Reg]],
    ) -> None:
        """The loop over the elements of the rows. A line for each, from `near` on, is brought into
        the second level of the cache: weights that are needed soon.
        """
        columns = [s * self.width + v for s in product.sums for v in range(self.width)]
        with b.loop(0, b.const("i64", product.depth)) as k:
            line = b.at(near, k * LINE)
            b.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
            b.line(f"call void @llvm.prefetch.p0(ptr {line.ref}, i32 0, i32 2, i32 1)")
            place = b.at(weights, k * (len(columns) * self.bytes))

            def number(row: Reg) -> Reg:
                at = b.at(row, k, self.elem)
                return b.splat(b.emit(self.elem, 0, f"load {self.elem}, ptr {at.ref}"), self.lanes)

            def vector(column: int) -> Reg:
                return self._get(b, b.at(place, column * self.bytes))

            def add(x: Reg, w: Reg, slot: Reg) -> None:
                b.put(slot, b.fma(x, w, b.get(slot)))

            if len(rows) < len(columns):  # the fewer stay in registers
                numbers = [number(row) for row in rows]
                for n, column in enumerate(columns):
                    w = vector(n)
                    for x, sums in zip(numbers, slots, strict=True):
                        add(x, w, sums[column])
            else:
                vectors = [vector(n) for n in range(len(columns))]
                for row, sums in zip(rows, slots, strict=True):
                    x = number(row)
                    for w, column in zip(vectors, columns, strict=True):
                        add(x, w, sums[column])

    def _get(self, b: FunctionBody, at: Reg) -> Reg:
        """A vector of packed weights, which are aligned."""
        kind = type_name(self.elem, self.lanes)
        return b.emit(self.elem, self.lanes, f"load {kind}, ptr {at.ref}, align {self.bytes}")

    def _put(self, b: FunctionBody, x: Reg, at: Reg) -> None:
        b.line(f"store {x.type} {x.ref}, ptr {at.ref}, align {self.bytes}")

    # Rows of units -------------------------------------------------------------------------------

    def row(self, base: Reg, number: Reg, blocks: int = 1) -> Reg:
        """A row of an array that has `blocks` elements a unit, one after another for all units."""
        return self.b.at(base, number * (blocks * self.units * self.size))

    def load(self, row: Reg, unit: Reg, block: int = 0) -> Reg:
        """A vector of a row, from a unit on, as far as there are units."""
        return self.load_at(self.b.at(row, unit + block * self.units, self.elem), unit)

    def load_at(self, at: Reg, unit: Reg) -> Reg:
        """Loads a vector of units from the address of its first."""
        b, kind = self.b, type_name(self.elem, self.lanes)
        if not self.units % self.lanes:
            return b.emit(self.elem, self.lanes, f"load {kind}, ptr {at.ref}, align {self.size}")
        return b.load_masked(self.elem, self.lanes, at, self._mask(unit), self.size)

    def store(self, x: Reg, row: Reg, unit: Reg, block: int = 0) -> None:
        """Stores a vector of a row: the inverse of `load`."""
        b = self.b
        at = b.at(row, unit + block * self.units, self.elem)
        if not self.units % self.lanes:
            b.line(f"store {x.type} {x.ref}, ptr {at.ref}, align {self.size}")
            return
        b.store_masked([(x, at)], self._mask(unit), self.size)

    def _mask(self, unit: Reg) -> Reg:
        b = self.b
        return b.splat(unit, self.lanes) + b.iota("i64", self.lanes) < self.units
