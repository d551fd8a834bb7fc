"""One elementwise computation on many rows of tensors, written over some of them, as one loop.

Row i is one tensor of each column: a parameter, its gradient, its optimizer's state. `write_rows`
looks at the arrays of a row (dtype, shape, memory) and puts their addresses into a table; machine
code maps the chunks of the loop, which the pool's threads share, to a row and a part of it. So what
a row costs in Python is no more than its places in the lists.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.arrays import address, call, write_rows
from ....core.elements import put_addresses, put_words
from ....core.errors import NotTraceable
from ....ir.program import Program
from ...codegen.emit import FunctionBody, Module, Reg
from ...codegen.ir import ITEMSIZE, Kernel
from ...codegen.lower import word_names
from ...codegen.run import code_of
from ...codegen.schedule import plan
from ...codegen.target import Target
from ..runtime import object_code
from ..runtime.launch_list import Launch
from ..runtime.pool import default_pool
from .composite_tracing import traced
from .scalars import ScalarTracer, has_lost_numbers
from .tracing import Traced, TracingNamespace, name_of

CHUNK = 8192  # elements: some microseconds' work
launches: list[int] = [0]  # loops that were run, for the tests that count them

_TABLES = 8  # numbers of rows for which a computation keeps its table
_LENGTH = 2  # of the symbols that stand for tensors


class MultiTensor:
    """A program on columns of tensors of given dtypes; `columns` are those that its outputs are
    written over. Complex tensors are computed as twice as many real numbers.

    Errors: NotTraceable for what is not elementwise, or not in the kernel IR.
    """

    def __init__(self, dtypes: Sequence[Any], program: Program, columns: Sequence[int]) -> None:
        self._kinds = tuple(map(np.dtype, dtypes))
        dtypes = tuple(map(real_of, self._kinds))
        self._parts = 1 if dtypes == self._kinds else 2
        if self._parts == 2 and any(kind.kind != "c" for kind in self._kinds):
            raise NotTraceable("complex tensors beside real ones")
        tracer = ScalarTracer((_LENGTH,))
        given = [tracer.input((_LENGTH,), dtype) for dtype in dtypes]
        values = traced(TracingNamespace(tracer), program, given)
        kernel = tracer.kernel
        for column, output in zip(columns, program.outputs, strict=True):
            y = values[output]
            if not isinstance(y, Traced) or y.shape != (_LENGTH,):
                raise NotTraceable("a result that is not like its parameter")
            if y.dtype != given[column].dtype:
                raise NotTraceable(f"{y.dtype} for {dtypes[column]}")
            kernel.output(y.value, name_of(dtypes[column]))
        if kernel.reduced or has_lost_numbers(tracer):
            raise NotTraceable("a reduction, or a number that was taken for known")
        self.scalars = tracer.numbers
        self.kernel, self.columns = kernel, tuple(columns)
        codes = {"float32": "f4x", "float64": "d"}
        self._pack = struct.Struct("=" + "".join(codes[v.dtype] for v in kernel.scalars)).pack
        self._lay_out(kernel, dtypes, list(columns))

    def _lay_out(self, kernel: Kernel, dtypes: Sequence[Any], outputs: list[int]) -> None:
        """The code for contiguous arrays, and the words of a row."""
        names = [name_of(dtype) for dtype in dtypes]
        operands = names + [names[column] for column in outputs]
        strides = [[ITEMSIZE[name]] for name in operands]
        planned = plan(kernel, (1 << 20,), strides, operands)
        words = planned.words | {"length": CHUNK, "group": 1}
        order = word_names(kernel, planned.layout)
        self._template = np.array([0, *(words.get(name, 0) for name in order)], np.int64)
        self._first_scalar = 1 + order.index("c0") if kernel.scalars else 0
        self._native = _native()
        self._columns, self._length = len(dtypes), 1 + order.index("v")
        self._written = tuple(outputs)
        self._first_pointer = 1 + order.index("p0")
        self._code = code_of(kernel, planned.layout)
        header = {
            "kernel": self._code.address, "columns": len(dtypes),
            "stride": self._template.nbytes, "chunk": CHUNK, "parallel": policy.PARALLEL,
            "p0": 8 * self._first_pointer, "length": 8 * self._length,
            "units": 8 * (1 + order.index("units")),
        }  # fmt: skip
        told = [header.get(name, 0) for name in _HEADER]
        for column in range(len(dtypes)):
            told += [ITEMSIZE[names[column]], column in outputs]
        self._words = struct.pack(f"={len(told)}q", *told)
        self._tables: dict[int, _Table] = {}

    def __call__(
        self, columns: Sequence[list[Any]], numbers: list[tuple[int, Sequence[float]]]
    ) -> list[int]:
        """Compute all rows, save those that are not contiguous NumPy arrays of one shape, or that
        overlap others where something is written; returns the numbers of these.

        `numbers` are the scalars' values for the next so many rows.
        """
        owned = tuple(map(tuple, columns))
        count = len(owned[0])
        # Nobody else's while it is in use: calls of other threads make tables of their own.
        table = self._tables.pop(count, None) or self._new_table(count)
        left = self._run(table, count, owned, numbers)
        self._tables[count] = table
        return left

    def _run(
        self,
        table: _Table,
        count: int,
        columns: tuple[tuple[Any, ...], ...],
        numbers: list[tuple[int, Sequence[float]]],
    ) -> list[int]:
        """Computes all rows with a table for so many; returns the numbers of those that it left
        out.
        """
        self._fill(table, numbers)
        self._describe(table, columns)
        status = self._start(table)
        if status == _OVERLAP:
            self._sort(table)
            status = self._start(table)
            if status == _OVERLAP:
                return list(range(count))
        if status & _MANY:
            chunks = int(table.rows[count, 0])
            default_pool().run(self._native.drive, table.address, chunks)
        launches[0] += 1
        if not status & _UNFIT:
            return []
        lengths = table.rows[:count, self._length]
        return [int(row) for row in np.flatnonzero(lengths < 0)]

    def _fill(self, table: _Table, numbers: list[tuple[int, Sequence[float]]]) -> None:
        """Put the scalars' values into the rows."""
        if self.scalars and table.numbers != numbers:
            begin, place = 0, self._first_scalar
            for rows, values in numbers:
                put_words(table.rows, begin, begin + rows, place, self._pack(*values))
                begin += rows
            table.numbers = numbers

    def bound(self, columns: Sequence[list[Any]]) -> Bound:
        """The computation of all rows on arrays that stay where they are, unless it is told.

        Errors: NotTraceable for rows that `__call__` would leave.
        """
        owned = tuple(map(tuple, columns))
        count = len(owned[0])
        table = _Table(self._words, self._template, count, self._columns)
        self._describe(table, owned)
        least = int(table.words[_PARALLEL])
        table.words[_PARALLEL] = 0  # only completed now, not run
        self._sort(table)
        if self._start(table) & ~_MANY:
            raise NotTraceable("rows that are not contiguous, or overlap")
        chunks = int(table.rows[count, 0])
        elements = int(table.rows[:count, self._length].sum())
        call = Launch(
            self._native.drive, chunks, table.words.tobytes(), range(0), elements >= least, False,
            (self, table, owned),
        )  # fmt: skip
        first = self._first_pointer
        pointers = slice(first, first + self._columns)
        return Bound(call, functools.partial(self._fill, table), table.rows, pointers)

    def _describe(self, table: _Table, columns: tuple[tuple[Any, ...], ...]) -> None:
        """Put the addresses of all arrays, and how many numbers each has, into the rows."""
        write_rows(
            columns, self._kinds, self._written, table.rows, self._length, self._first_pointer
        )
        if self._parts > 1:
            lengths = table.rows[: len(columns[0]), self._length]
            lengths[lengths > 0] *= self._parts

    def _start(self, table: _Table) -> int:
        """Runs the machine code on a table and returns its status."""
        call(self._native.start, 1, table.address, None, True)
        return int(table.words[_FOUND])

    def _new_table(self, count: int) -> _Table:
        if len(self._tables) >= _TABLES:
            self._tables.clear()
        return _Table(self._words, self._template, count, self._columns)

    def _sort(self, table: _Table) -> None:
        """Put the order right in which the arrays lie in memory."""
        first = self._first_pointer
        starts = table.rows[:-1, first : first + self._columns]
        table.order[:] = np.argsort(starts.reshape(-1), kind="stable")


def real_of(dtype: np.dtype) -> np.dtype:
    """The dtype of the two numbers of which a complex one consists; any other as it is."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


class Bound(NamedTuple):
    """A computation of rows: a call, and what gives it the scalars' values (as `MultiTensor` takes
    them) before it runs.
    """

    call: Launch
    fill: Callable[[list[tuple[int, Sequence[float]]]], None]
    rows: Any  # words of a table, the last row of which is none of a computation
    pointers: slice  # of a row those that are addresses

    def moving(self, array: Any) -> Callable[[int], None]:
        """A function that replaces an array's address by another one in the table."""
        row, column = np.nonzero(self.rows[:-1, self.pointers] == address(array))
        places = row * self.rows.shape[1] + self.pointers.start + column
        words, offsets = self.rows.reshape(-1), np.zeros(len(places), np.int64)
        return functools.partial(put_addresses, words, places, offsets)


class _Table:
    """The words for so many rows."""

    __slots__ = ("address", "numbers", "order", "rows", "words")

    def __init__(self, words: bytes, template: Any, count: int, columns: int) -> None:
        self.rows = np.empty((count + 1, len(template)), np.int64)
        self.rows[:] = template
        self.order = np.arange(count * columns)  # the arrays, as they lay in memory lately
        self.words = np.frombuffer(bytearray(words), np.int64)
        for name, value in (
            ("rows", count), ("table", self.rows.ctypes.data), ("order", self.order.ctypes.data),
        ):  # fmt: skip
            self.words[_HEADER.index(name)] = value
        self.address = self.words.ctypes.data
        self.numbers: Any = None  # the scalars that are in the rows


# ---- machine code --------------------------------------------------------------------------------

# 64-bit words: what the machine code is told and says; then for each column its own.
_HEADER = (
    "kernel", "rows", "table", "order", "stride", "columns", "chunk",
    "parallel",  # elements from which threads share the work
    "p0", "length", "units",  # where in a row these words are, in bytes
    "found",  # what `start` says
)  # fmt: skip
_COLUMN = ("itemsize", "written")
_FOUND, _PARALLEL = _HEADER.index("found"), _HEADER.index("parallel")
_OVERLAP, _UNFIT, _MANY = 1, 2, 4  # nothing was done; rows are left; it is to be run


class _Native(NamedTuple):
    """Addresses of functions of begin, end and the words."""

    start: int  # completes the table, and does what is too little for threads
    drive: int  # chunks begin to end of the loop


@functools.cache
def _native() -> _Native:
    """The functions.

    Errors: Unsupported where no code can be generated.
    """
    return _Native(*object_code.load(sys.modules[__name__], "loop", _text, _Native._fields))


def _text(host: Target, symbol: str) -> str:
    module = Module()
    module.functions["drive"] = _drive(module, symbol)
    module.functions["are_apart"] = _are_apart(module)
    module.functions["start"] = _start(module, symbol)
    return str(module)


class _MultiTensorCode(FunctionBody):
    """The body of a function whose last argument is the words."""

    def header(self, name: str) -> Reg:
        """A word of the header."""
        return self.word(Reg(self, "ptr", 0, "%words"), 8 * _HEADER.index(name))

    def word(self, pointer: Reg, offset: Reg | int, elem: str = "i64") -> Reg:
        """Loads the element so many bytes beyond an address."""
        at = self.at(pointer, offset)
        return self.emit(elem, 0, f"load {elem}, ptr {at.ref}, align 1")

    def put_word(self, pointer: Reg, offset: Reg | int, value: Reg) -> None:
        """Stores a value so many bytes beyond an address."""
        self.line(f"store i64 {value.ref}, ptr {self.at(pointer, offset).ref}, align 8")

    def pointer(self, address: Reg) -> Reg:
        """A number as an address."""
        return self.emit("ptr", 0, f"inttoptr i64 {address.ref} to ptr")

    def row(self, number: Reg) -> Reg:
        """The address of a row of the table."""
        return self.at(self.pointer(self.header("table")), number * self.header("stride"))

    def column(self, number: Reg, name: str) -> Reg:
        """A word about a column."""
        first = 8 * (len(_HEADER) + _COLUMN.index(name))
        return self.word(Reg(self, "ptr", 0, "%words"), number * (8 * len(_COLUMN)) + first)

    def flag(self, condition: Reg) -> Reg:
        """A condition as a number."""
        return self.convert("zext", condition, "i64")


def _start(module: Module, symbol: str) -> str:
    """Complete the rows: the units of each, and the number of its first chunk. Unless there is an
    overlap, or enough for several threads, run the loop.
    """
    b = _MultiTensorCode(module)
    total, elements, unfit = (b.alloca("i64", 0, 0) for _ in range(3))
    chunk = b.header("chunk")
    with b.loop(0, b.header("rows")) as i:
        row = b.row(i)
        b.put_word(row, 0, b.get(total))
        length = b.word(row, b.header("length"))
        count = b.intrinsic("smax", length, 0)
        b.put(unfit, b.get(unfit) + b.flag(length < 0))
        b.put(elements, b.get(elements) + count)
        chunks = b.binary("udiv", count + chunk - 1, chunk)
        b.put_word(row, b.header("units"), chunks)
        b.put(total, b.get(total) + chunks)
    b.put_word(b.row(b.header("rows")), 0, b.get(total))
    words = Reg(b, "ptr", 0, "%words")
    apart = b.call("are_apart", "i64", 0, [words])
    many = b.get(elements) >= b.header("parallel")
    with b.when(b.compare("ne", apart, 0) & ~many):
        b.line(f"call void @{symbol}.drive(i64 0, i64 {b.get(total).ref}, ptr %words)")
    left = b.select(b.get(unfit) > 0, b.const("i64", _UNFIT), b.const("i64", 0))
    run = b.select(many, b.const("i64", _MANY), b.const("i64", 0))
    done = b.select(b.compare("ne", apart, 0), left | run, b.const("i64", _OVERLAP))
    b.put_word(words, 8 * _FOUND, done)
    return b.function(f"void @{symbol}.start(i64 %begin, i64 %end, ptr %words)")


def _are_apart(module: Module) -> str:
    """Go through the arrays in the given order: each that is written must begin where all before
    it have ended, each that is read where all that are written have. So no pair with a written one
    overlaps, whether the order was that of the addresses or not; if it was, all such are found.
    """
    b = _MultiTensorCode(module)
    end_of_all, end_of_written, right = (b.alloca("i64", 0, n) for n in (0, 0, 1))
    order, columns = b.pointer(b.header("order")), b.header("columns")
    with b.loop(0, b.header("rows") * columns) as n:
        which = b.word(order, n * 8)
        row, k = b.row(b.binary("udiv", which, columns)), b.binary("urem", which, columns)
        length = b.word(row, b.header("length"))
        with b.when(length > 0):
            begin = b.word(row, b.header("p0") + k * 8)
            end = begin + length * b.column(k, "itemsize")
            written = b.compare("ne", b.column(k, "written"), 0)
            limit = b.select(written, b.get(end_of_all), b.get(end_of_written))
            b.put(right, b.get(right) & b.flag(begin >= limit))
            b.put(end_of_all, b.intrinsic("smax", b.get(end_of_all), end))
            latest = b.intrinsic("smax", b.get(end_of_written), end)
            b.put(end_of_written, b.select(written, latest, b.get(end_of_written)))
    return b.function("internal i64 @are_apart(ptr %words)", b.get(right))


def _drive(module: Module, symbol: str) -> str:
    """Chunks begin to end: find the row of the first, then go on from row to row."""
    b = _MultiTensorCode(module)
    begin, end = Reg(b, "i64", 0, "%begin"), Reg(b, "i64", 0, "%end")
    low, high = b.alloca("i64", 0, 0), b.alloca("i64")
    b.put(high, b.header("rows"))
    search, halve, at_row = b.label(), b.label(), b.label()
    b.start(search)
    b.branch(b.get(high) - b.get(low) > 1, halve, at_row)
    b.start(halve)
    middle = b.binary("lshr", b.get(low) + b.get(high), 1)
    before = b.word(b.row(middle), 0) <= begin
    b.put(low, b.select(before, middle, b.get(low)))
    b.put(high, b.select(before, b.get(high), middle))
    b.line(f"br label %{search}")
    b.start(at_row)
    at = b.alloca("i64")
    b.put(at, begin)
    more, run, done = b.label(), b.label(), b.label()
    b.start(more)
    b.branch(b.get(at) < end, run, done)
    b.start(run)
    row, following = b.row(b.get(low)), b.row(b.get(low) + 1)
    first = b.word(row, 0)
    stop = b.intrinsic("smin", end, b.word(following, 0))
    kernel, words = b.pointer(b.header("kernel")), b.at(row, 8)
    own = b.get(at) - first, stop - first
    b.line(f"call void {kernel.ref}(i64 {own[0].ref}, i64 {own[1].ref}, ptr {words.ref})")
    b.put(at, stop)
    b.put(low, b.get(low) + 1)
    b.line(f"br label %{more}")
    b.start(done)
    return b.function(f"void @{symbol}.drive(i64 %begin, i64 %end, ptr %words)")
