"""Routines: machine code for what no kernel says, such as elements that are moved by an index.

A routine is `void(int64 begin, int64 end, int64 *words)` and does the units from begin * group to
end * group. Its words are the count of units, the group, the addresses of its operands' elements,
and numbers; the one behind them it sets to refuse its operands (an index out of range). What it has
written is then thrown away, and NumPy says what is wrong.

An op whose result is what one routine gave for its own inputs is launched (`launch.py`) from its
third computation on.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.arrays import address
from ....core.errors import NotTraceable
from ....core.op import Op
from ....ir import compute as core_compute
from ....ir.compute import quietly
from ...codegen import cache, target
from ...codegen.emit import FunctionBody, Module, Reg, type_name
from ..runtime import block_cache, launch
from ..runtime.pool import default_pool

LANES = 8
_NAMED = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64"}
NUMBERS = {np.dtype(name): elem for name, elem in _NAMED.items()}  # what is added up
MOVED = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}  # what only moves, by its bytes


class MachineFunction:
    """A routine being written. `operands` and `numbers` name its words, which become fields."""

    def __init__(self, operands: str, numbers: str) -> None:
        self.b = FunctionBody(Module())
        self.words = Reg(self.b, "ptr", 0, "%words")
        names = ["units", "group", *operands.split(), *numbers.split()]
        self.places = {name: k for k, name in enumerate(names)}
        self._status = len(names)
        self._wrong = {lanes: self.b.alloca("i1", lanes, 0) for lanes in (0, LANES)}
        for name in names:
            setattr(self, name, self.word(name, "ptr" if name in operands.split() else "i64"))
        begin, end = (Reg(self.b, "i64", 0, name) for name in ("%begin", "%end"))
        self.first = begin * self.group
        self.last = self.b.intrinsic("smin", end * self.group, self.units)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def word(self, name: str, elem: str) -> Reg:
        """A word, read as a value of a type."""
        return self.load(self.words, self.places[name], elem, scale="i64")

    def load(
        self, pointer: Reg, at: Reg | int, elem: str, lanes: int = 0, *, scale: str = ""
    ) -> Reg:
        """The element, or vector, at a position."""
        address = self.b.at(pointer, at, scale or elem)
        kind = type_name(elem, lanes)
        return self.b.emit(elem, lanes, f"load {kind}, ptr {address.ref}, align 1")

    def store(self, pointer: Reg, at: Reg | int, value: Reg) -> None:
        """Stores a value at an index of an array."""
        address = self.b.at(pointer, at, value.elem)
        self.b.line(f"store {value.type} {value.ref}, ptr {address.ref}, align 1")

    def copy(self, to: Reg, start: Reg, size: Reg) -> None:
        """Copies bytes between memory that is apart."""
        self.b.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        self.b.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {to.ref}, ptr {start.ref}, i64 {size.ref}, i1 0)"
        )

    def clear(self, to: Reg, size: Reg) -> None:
        """Sets bytes to 0."""
        self.b.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        self.b.line(f"call void @llvm.memset.p0.i64(ptr {to.ref}, i8 0, i64 {size.ref}, i1 0)")

    def doubt(self, wrong: Reg) -> None:
        """The routine is to refuse if one is wrong, or one lane of a vector of `LANES`."""
        slot = self._wrong[wrong.lanes]
        self.b.put(slot, self.b.get(slot) | wrong)

    def decide(self) -> None:
        """Ends the function: sets the last word, where there was anything wrong."""
        b = self.b
        with b.when(b.get(self._wrong[0]) | b.any(b.get(self._wrong[LANES]))):
            b.line(f"store i64 1, ptr {b.at(self.words, self._status, 'i64').ref}, align 8")

    @contextlib.contextmanager
    def parts(self, count: Reg) -> Iterator[tuple[Reg, Reg]]:
        """The loop over units: unit // count, unit % count."""
        with self.b.loop(self.first, self.last) as unit:
            yield self.b.binary("udiv", unit, count), self.b.binary("urem", unit, count)

    def columns(self, low: Reg, high: Reg, step: Callable[[Reg, int], None]) -> None:
        """Calls `step(column, lanes)` for whole vectors, and for the columns left over."""
        b = self.b
        whole = low + ((high - low) & -LANES)
        with b.loop(low, whole, LANES) as c:
            step(c, LANES)
        with b.loop(whole, high) as c:
            step(c, 0)

    def text(self, symbol: str) -> str:
        """The module."""
        header = f"void @{symbol}(i64 %begin, i64 %end, ptr %words)"
        self.b.module.functions[symbol] = self.b.function(header)
        return str(self.b.module)


@functools.cache
def _address(write: Callable[..., MachineFunction], *options: Any) -> int:
    """Address of the machine code whose text is `write(*options)`."""
    text = write(*options).text("moves")
    host = target.host()
    name = cache.digest(text, repr(host))
    symbol = "m" + name
    return target.kept(name, lambda: text.replace("@moves(", f"@{symbol}("), symbol)[0]


class _RoutineCall(NamedTuple):
    """A routine that was run on arrays."""

    address: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    before: bytes
    numbers: bytes
    chunks: int
    quick: bool

    def launcher(self) -> launch.LaunchFunction:
        """The launcher that runs the call on inputs like these."""
        outputs = [(y.shape, y.dtype) for y in self.outputs]
        bare = launch.bare(
            self.address, self.chunks, self.inputs, outputs, self.before, self.numbers,
            not self.quick, self.quick,
        )  # fmt: skip
        if any(y.nbytes >= block_cache.SMALLEST // 2 for y in self.outputs):
            return functools.partial(quietly, bare)
        return bare


class _Watched(threading.local):
    calls: list[_RoutineCall] | None = None
    note: Callable[..., Any] | None = None  # what is asked instead of running a routine


_watched = _Watched()


class SizedArray:
    """A stand-in for a row-major array whose sizes may be symbolic."""

    __slots__ = ("dtype", "flags", "itemsize", "ndim", "shape", "size", "strides")

    def __init__(self, shape: tuple[Any, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)
        self.itemsize = dtype.itemsize
        self.flags = _ROW_MAJOR
        steps: list[Any] = []
        size: Any = 1
        for n in reversed(shape):
            steps.append(dtype.itemsize * size)
            size = size * n
        self.size = size
        self.strides = tuple(reversed(steps))


_ROW_MAJOR = SimpleNamespace(c_contiguous=True)


ARRAYS = frozenset((np.ndarray, SizedArray))


@contextlib.contextmanager
def recording(note: Callable[..., Any]) -> Iterator[None]:
    """Context manager: `compute` asks `note` for the result, instead of running a routine."""
    _watched.note = note
    try:
        yield
    finally:
        _watched.note = None


def run(
    routine: tuple[Any, ...],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    numbers: bytes,
    units: int,
    work: int,
    before: bytes = b"",
) -> bool:
    """Run a routine, the function that writes it and its options, over units of about `work`
    elements; whether it has not refused. `before` are numbers before the operands.
    """
    if _watched.note is not None:
        raise NotTraceable("a routine that writes over arrays")
    code = _address(*routine)
    group = max(1, policy.ROUTINE_GRAIN // max(work, 1))
    chunks = -(-units // group)
    before = struct.pack("2q", units, group) + before
    operands = (*inputs, *outputs)
    places = [address(x) for x in operands]
    words = np.frombuffer(
        bytearray(before + struct.pack(f"{len(places)}Q", *places) + numbers + bytes(8)), np.int64
    )
    default_pool().run(code, address(words), chunks)
    if words[-1]:
        return False
    if _watched.calls is not None:
        quick = units * work < policy.ROUTINE_QUICK
        call = _RoutineCall(code, tuple(inputs), tuple(outputs), before, numbers, chunks, quick)
        _watched.calls.append(call)
    return True


def compute(
    routine: tuple[Any, ...],
    inputs: Sequence[Any],
    shape: tuple[int, ...],
    dtype: Any,
    numbers: Sequence[int],
    units: int,
    work: int,
    *,
    before: bytes = b"",
    constant: bytes = b"",
) -> Any:
    """The array that a routine writes; NotImplemented where it refuses. `constant` is a number's
    bytes, behind the other numbers.
    """
    if _watched.note is not None:
        address = _address(*routine)
        return _watched.note(address, inputs, shape, dtype, numbers, units, work, before, constant)
    out = np.empty(shape, dtype)
    packed = struct.pack(f"{len(numbers)}q", *numbers) + constant
    return out if run(routine, inputs, (out,), packed, units, work, before) else NotImplemented


def computed(op: Op, names: Any, arrays: Sequence[Any]) -> Any:
    """`op.compute` with the namespace of routines; eager execution launches what computed it when
    the same comes again.
    """
    if not op.kept:
        return quietly(op.compute, names, *arrays)
    calls: list[_RoutineCall] = []
    _watched.calls = calls
    try:
        result = quietly(op.compute, names, *arrays)
    finally:
        _watched.calls = None
    given = [a for a in arrays if type(a) is np.ndarray]
    if len(calls) == 1 and _is_all(calls[0], given, result):
        core_compute.remember(op, list(arrays), calls[0].launcher(), result)
        if len(given) == len(arrays) and all(x.flags.c_contiguous for x in given):
            from .routine_patterns import RoutinePatterns

            core_compute.remember_sized(op, list(arrays), RoutinePatterns(op, names), result)
    elif len(given) == len(arrays):
        core_compute.remember(op, given, core_compute.launcher_of(op, names), result)
    return result


def _is_all(call: _RoutineCall, given: Sequence[Any], result: Any) -> bool:
    """Whether the routine did everything."""
    results = result if type(result) is tuple else (result,)
    if len(call.inputs) != len(given) or len(call.outputs) != len(results):
        return False
    pairs = zip((*call.inputs, *call.outputs), (*given, *results), strict=True)
    return all(a is b for a, b in pairs)
