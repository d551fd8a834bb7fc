"""Products, copies and transposes of float32 tiles: functions in LLVM IR for machine code to call.

A tile is a few dozen rows that stay in the first-level cache. Its rows are whole vectors: copies
made here have zeros beyond a matrix's last column up to there, so that products need no masks. All
strides are in bytes.

The product keeps a block of the result in registers, and for each step of the sum loads a row of
the right operand as vectors and spreads single numbers of the left one (Goto and van de Geijn,
Anatomy of High-Performance Matrix Multiplication, 2008); nothing is packed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...codegen.emit import FunctionBody, Module, Operand, Reg
from ...codegen.target import Target

ITEM = 4  # bytes of a float32
SET, ADD, SCALE = range(3)  # what a product does with what was there


class Registers(NamedTuple):
    """Use of the vector registers: rows x columns of them are sums."""

    lanes: int
    columns: int
    rows: tuple[tuple[int, ...], ...]  # for 1, 2, ... columns: how many at a time, falling to 1

    @property
    def bytes(self) -> int:
        """Bytes in a vector."""
        return self.lanes * ITEM


def registers(target: Target) -> Registers:
    """Register use for a target: x86 has 16 vector registers, or 32 with AVX-512; ARM64 has 32."""
    lanes = target.vector_bytes // ITEM
    if target.has("avx512f") or target.has("neon"):
        return Registers(lanes, 4, ((8, 4, 1), (8, 4, 1), (8, 4, 1), (6, 4, 1)))
    return Registers(lanes, 2, ((6, 1), (4, 1)))


class Tiles:
    """The functions for a target, each written into the module when it is first asked for."""

    def __init__(self, module: Module, target: Target) -> None:
        self.module = module
        self.registers = registers(target)

    def body(self, name: str, *parameters: str) -> tuple[FunctionBody, list[Reg]]:
        """A function to write, and its parameters: `p` is an i64, `*p` a pointer, `.p` a float."""
        self.module.functions[name] = ""  # not again while it is being written
        b = FunctionBody(self.module)
        elems = {"*": "ptr", ".": "float"}
        return b, [Reg(b, elems.get(p[0], "i64"), 0, "%" + p.strip("*.")) for p in parameters]

    def finish(self, name: str, b: FunctionBody, parameters: list[Reg]) -> str:
        """The function's name, now that it is written."""
        listed = ", ".join(f"{p.type} {p.ref}" for p in parameters)
        self.module.functions[name] = b.function(f"internal void @{name}({listed})")
        return name

    def vectors(self, b: FunctionBody, elements: Reg) -> Reg:
        """How many vectors hold so many elements."""
        return b.binary("udiv", elements + (self.registers.lanes - 1), self.registers.lanes)

    # Products --------------------------------------------------------------------------------

    def multiply(self) -> str:
        """`void f(a, a_row, a_step, b, b_step, c, c_row, rows, steps, vectors, start, factors)`.

        Row i of c, so many vectors, becomes the sum over the steps t of a[i, t] times row t of b;
        plus, where `start` is ADD, what it was; where it is SCALE, that times factors[i].
        """
        name = "multiply"
        if name in self.module.functions:
            return name
        b, given = self.body(
            name, "*a", "a_row", "a_step", "*b", "b_step", "*c", "c_row", "rows", "steps",
            "vectors", "start", "*factors",
        )  # fmt: skip
        left, a_row, a_step, right, b_step, c, c_row, rows, steps, vectors, start, factors = given
        widest = self.registers.columns

        def part(columns: int, first: Reg) -> None:
            offset = first * self.registers.bytes
            call(b, self._product(columns), left, a_row, a_step, b.at(right, offset), b_step,
                 b.at(c, offset), c_row, rows, steps, start, factors)  # fmt: skip

        rest = b.binary("urem", vectors, widest)
        with b.loop(0, vectors - rest, widest) as first:
            part(widest, first)
        for columns in range(1, widest):
            with b.when(b.compare("eq", rest, columns)):
                part(columns, vectors - rest)
        return self.finish(name, b, given)

    def _product(self, columns: int) -> str:
        """As `multiply`, for a certain number of vectors."""
        name = f"product.{columns}"
        b, given = self.body(
            name, "*a", "a_row", "a_step", "*b", "b_step", "*c", "c_row", "rows", "steps",
            "start", "*factors",
        )  # fmt: skip
        left, a_row, a_step, right, b_step, c, c_row, rows, steps, start, factors = given
        lanes, width = self.registers.lanes, self.registers.bytes
        first = b.const("i64", 0)
        for count in self.registers.rows[columns - 1]:
            rest = rows - first
            end = first + (rest - b.binary("urem", rest, count))
            with b.loop(first, end, count) as i:
                results = [b.at(c, (i + r) * c_row) for r in range(count)]
                places = [b.at(result, k * width) for result in results for k in range(columns)]
                sums = [b.alloca("float", lanes, 0.0) for _ in places]
                with b.when(b.compare("ne", start, SET)):
                    for slot, place in zip(sums, places, strict=True):
                        b.put(slot, load(b, place, lanes))
                with b.when(b.compare("eq", start, SCALE)):
                    for r in range(count):
                        factor = b.splat(load(b, b.at(factors, i + r, "float")), lanes)
                        for slot in sums[r * columns : (r + 1) * columns]:
                            b.put(slot, b.get(slot) * factor)
                numbers = b.alloca("ptr", 0, b.at(left, i * a_row))
                row = b.alloca("ptr", 0, right)
                # Opaque, or LLVM makes addresses from one another, each waiting for the one before.
                offsets = [b.opaque(a_row * r) if r > 1 else a_row * r for r in range(count)]
                with b.loop(0, steps):
                    p, q = b.get(numbers), b.get(row)
                    loaded = [load(b, b.at(q, k * width), lanes) for k in range(columns)]
                    for r in range(count):
                        x = b.splat(load(b, b.at(p, offsets[r])), lanes)
                        for k, slot in enumerate(sums[r * columns : (r + 1) * columns]):
                            b.put(slot, b.fma(x, loaded[k], b.get(slot)))
                    b.put(numbers, b.at(p, a_step))
                    b.put(row, b.at(q, b_step))
                for slot, place in zip(sums, places, strict=True):
                    store(b, b.get(slot), place)
            first = end
        return self.finish(name, b, given)

    # Copies ----------------------------------------------------------------------------------

    def copy(self) -> str:
        """`void f(x, x_row, y, y_row, rows, columns)`: a matrix into a tile, rows filled up."""
        name = "copy"
        if name in self.module.functions:
            return name
        b, given = self.body(name, "*x", "x_row", "*y", "y_row", "rows", "columns")
        x, x_row, y, y_row, rows, columns = given
        with b.loop(0, columns, self.registers.lanes) as j:
            mask = below(b, self.registers.lanes, columns - j)
            source, place = b.at(x, j, "float"), b.at(y, j, "float")
            with b.loop(0, rows) as i:
                value = b.load_masked("float", mask.lanes, b.at(source, i * x_row), mask)
                store(b, value, b.at(place, i * y_row))
        return self.finish(name, b, given)

    def clear(self) -> str:
        """`void f(y, y_row, rows, columns)`: zeros, rows of whole vectors."""
        name = "clear"
        if name in self.module.functions:
            return name
        b, given = self.body(name, "*y", "y_row", "rows", "columns")
        y, y_row, rows, columns = given
        lanes = self.registers.lanes
        with b.loop(0, rows) as i, b.loop(0, columns, lanes) as j:
            store(b, b.const("float", 0.0, lanes), b.at(b.at(y, i * y_row), j, "float"))
        return self.finish(name, b, given)

    def transpose(self) -> str:
        """`void f(x, x_row, y, y_row, rows, columns, factor)`: y[j, i] = x[i, j] * factor.

        Rows of y are filled up.
        """
        name = "transpose"
        if name in self.module.functions:
            return name
        b, given = self.body(name, "*x", "x_row", "*y", "y_row", "rows", "columns", ".factor")
        x, x_row, y, y_row, rows, columns, factor = given
        lanes = self.registers.lanes
        room = self.square(b)
        with b.loop(0, rows, lanes) as i, b.loop(0, columns, lanes) as j:
            corner = b.at(b.at(x, i * x_row), j, "float")
            source, stride = b.alloca("ptr", 0, corner), b.alloca("i64", 0, x_row)
            with b.when(~((i + lanes <= rows) & (j + lanes <= columns))):
                with b.loop(0, b.const("i64", lanes)) as r:
                    mask = below(b, lanes, b.select(i + r < rows, columns - j, 0))
                    value = b.load_masked("float", lanes, b.at(corner, r * x_row), mask)
                    store(b, value, b.at(room, r * self.registers.bytes))
                b.put(source, room)
                b.put(stride, self.registers.bytes)
            scale = b.splat(factor, lanes)
            for n, value in enumerate(_transposed(b, b.get(source), b.get(stride), lanes)):
                with b.when(j + n < columns):
                    store(b, value * scale, b.at(b.at(y, (j + n) * y_row), i, "float"))
        return self.finish(name, b, given)

    def transpose_bools(self) -> str:
        """As `transpose`, of bools: y gets 0 for true and -infinity for false."""
        name = "transpose_bools"
        if name in self.module.functions:
            return name
        b, given = self.body(name, "*x", "x_row", "*y", "y_row", "rows", "columns", ".factor")
        x, x_row, y, y_row, rows, columns, factor = given
        lanes, row = self.registers.lanes, self.registers.bytes
        room = self.square(b)
        low, zero = (b.const("float", v, lanes) for v in (-math.inf, 0.0))
        with b.loop(0, rows, lanes) as i, b.loop(0, columns, lanes) as j:
            with b.loop(0, b.const("i64", lanes)) as r:
                mask = below(b, lanes, b.select(i + r < rows, columns - j, 0))
                value = b.load_masked("i8", lanes, b.at(b.at(x, (i + r) * x_row), j), mask)
                value = b.select(b.compare("eq", value, 0), low, zero)
                store(b, value, b.at(room, r * row))
            place = b.at(b.at(y, j * y_row), i, "float")
            count = b.intrinsic("smin", columns - j, lanes)
            call(b, self.transpose(), room, row, place, y_row, lanes, count, factor)
        return self.finish(name, b, given)

    def square(self, b: FunctionBody) -> Reg:
        """Memory on the stack for as many vectors as lanes."""
        name = b.name()
        b.allocas.append(f"{name} = alloca [{self.registers.lanes**2} x float], align 64")
        return Reg(b, "ptr", 0, name)


def _transposed(b: FunctionBody, p: Reg, stride: Reg, lanes: int) -> Iterator[Reg]:
    """The columns of a square.

    A vector is put together of fours of numbers, from each fourth row; then four such vectors are
    transposed within their fours, which are what x86 shuffles best.
    """
    for column in range(0, lanes, 4):
        vectors = []
        for first in range(4):
            fours = [load(b, b.at(b.at(p, stride * row), column, "float"), 4)
                     for row in range(first, lanes, 4)]  # fmt: skip
            while len(fours) > 1:
                fours = [b.join(*pair) for pair in zip(fours[::2], fours[1::2], strict=True)]
            vectors.append(fours[0])
        u, v, w, x = vectors
        for picks in ((0, lanes, 1, lanes + 1), (2, lanes + 2, 3, lanes + 3)):
            y, z = _shuffle(b, u, v, picks), _shuffle(b, w, x, picks)
            yield _shuffle(b, y, z, (0, 1, lanes, lanes + 1))
            yield _shuffle(b, y, z, (2, 3, lanes + 2, lanes + 3))


def _shuffle(b: FunctionBody, x: Reg, y: Reg, picks: tuple[int, ...]) -> Reg:
    """Picks lanes out of each group of four: of x, and of y from number `lanes` on."""
    listed = ", ".join(f"i32 {n + four}" for four in range(0, x.lanes, 4) for n in picks)
    text = f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{x.lanes} x i32> <{listed}>"
    return b.emit(x.elem, x.lanes, text)


def call(b: FunctionBody, name: str, *args: Operand) -> None:
    """A call of a function that gives nothing; numbers are i64."""
    listed = [a if isinstance(a, Reg) else b.const("i64", a) for a in args]
    b.line(f"call void @{name}({', '.join(f'{a.type} {a.ref}' for a in listed)})")


def load(b: FunctionBody, p: Reg, lanes: int = 0, elem: str = "float") -> Reg:
    """Loads a vector or scalar from an address of any alignment."""
    kind = f"<{lanes} x {elem}>" if lanes else elem
    return b.emit(elem, lanes, f"load {kind}, ptr {p.ref}, align 1")


def store(b: FunctionBody, x: Reg, p: Reg) -> None:
    """Put a value at an address, of any alignment."""
    b.line(f"store {x.type} {x.ref}, ptr {p.ref}, align 1")


def below(b: FunctionBody, lanes: int, count: Reg) -> Reg:
    """A mask of the first `count` lanes."""
    count = b.convert("trunc", b.intrinsic("smin", count, lanes), "i32")
    return b.compare("lt", b.iota("i32", lanes), count)
