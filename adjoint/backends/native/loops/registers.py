"""Arrays of known sizes in vector registers, while code on them is written.

An array lies row-major in chunks of as many lanes as a register has; lanes behind its end hold what
the first lane of their chunk holds, so that they give no other numbers than the array has. An array
of one number has it in all lanes: it is broadcast for nothing. What is only moved is no code, but
an index into what it was moved from, until somebody computes with it.

What is the same in each turn of the loop is written before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ....core.errors import NotTraceable
from ...codegen import vector_instructions
from ...codegen.analysis import COSTS
from ...codegen.emit import LLVM_TYPES, Reg, literal, type_name
from ...codegen.ir import ITEMSIZE
from ..runtime.shared_code import Writer

WORK = 8000  # instructions, about, beyond which a body is no single function
_KEPT = 16  # registers' worth of an array up to which what all turns read is loaded before them


class Held:
    """An array in registers."""

    def __init__(self, dtype: str, count: int, chunks: Sequence[Reg], fixed: bool) -> None:
        """`fixed`: it is the same in each turn."""
        self.dtype, self.count, self.chunks, self.fixed = dtype, count, list(chunks), fixed


class Stored:
    """A contiguous array in memory, of which chunks are loaded when they are needed."""

    def __init__(self, dtype: str, count: int, pointer: Reg, fixed: bool) -> None:
        self.dtype, self.count, self.pointer, self.fixed = dtype, count, pointer, fixed
        self.loaded: dict[tuple[int, bool], Reg] = {}  # by number, and whether before the loop


class Moved:
    """An array whose elements are those of another one at an index."""

    def __init__(self, source: Held | Stored, index: np.ndarray) -> None:
        self.source, self.index = source, index
        self.dtype, self.fixed = source.dtype, source.fixed

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.index)


Array: TypeAlias = "Held | Stored | Moved"
T = TypeVar("T")


class Registers:
    """Code on arrays in registers: what all turns share, and what each does."""

    def __init__(self, b: Writer, width: int) -> None:
        """`width` is the number of lanes of each vector, whatever its dtype."""
        self.b, self.width = b, width
        self.before: list[str] = []  # lines before the loop
        self.turn = b.lines  # lines of a turn
        self.work = 0
        self._known: dict[Hashable, tuple[Any, Any]] = {}

    # ---- sections --------------------------------------------------------------------------------

    def once(self, key: Hashable, inputs: Sequence[Any], write: Callable[[], T]) -> T:
        """Call `write` for these inputs once for each key; its result."""
        key = key, *map(id, inputs)
        if key not in self._known:
            self._known[key] = write(), list(inputs)  # which keeps their ids theirs
        value: T = self._known[key][0]
        return value

    def written(self, fixed: bool, write: Callable[[], T]) -> T:
        """Call `write`, whose code goes before the loop if `fixed`; its result."""
        present = self.b.lines
        self.b.lines = self.before if fixed else self.turn
        try:
            return write()
        finally:
            self.b.lines = present

    def spend(self, work: int) -> None:
        """Count instructions.

        Errors: NotTraceable for too many.
        """
        self.work += work
        if self.work > WORK:
            raise NotTraceable("a body that is too long for one function")

    def chunks_of(self, count: int) -> int:
        """The number of vectors that hold so many elements."""
        return -(-count // self.width)

    # ---- constants -------------------------------------------------------------------------------

    def number(self, value: float, dtype: str) -> Held:
        """A known number."""

        def write() -> Held:
            return Held(dtype, 1, [self.b.const(LLVM_TYPES[dtype], value, self.width)], True)

        return self.once(("number", repr(value), dtype), (), write)

    def constant(self, array: np.ndarray, dtype: str) -> Held:
        """A known array."""
        flat = np.ascontiguousarray(array).reshape(-1)
        if len(flat) == 1:
            return self.number(flat[0].item(), dtype)
        elem, chunks = LLVM_TYPES[dtype], []
        for start in range(0, len(flat), self.width):
            part = [x.item() for x in flat[start : start + self.width]]
            part += part[:1] * (self.width - len(part))
            text = ", ".join(f"{elem} {literal(elem, x)}" for x in part)
            chunks.append(Reg(self.b, elem, self.width, f"<{text}>"))
        self.spend(len(chunks))
        return Held(dtype, len(flat), chunks, True)

    # ---- memory ----------------------------------------------------------------------------------

    def chunk(self, x: Held | Stored, n: int) -> Reg:
        """Chunk `n` of an array; that of one number is all of its chunks."""
        n = 0 if x.count == 1 else n
        if isinstance(x, Held):
            return x.chunks[n]
        first = self.b.lines is self.before or (x.fixed and not self.is_large(x))
        if (n, first) not in x.loaded:
            left = min(self.width, x.count - n * self.width)
            x.loaded[n, first] = self.written(first, lambda: self.load(x, n * self.width, left))
        return x.loaded[n, first]

    def is_large(self, x: Array) -> bool:
        """Whether an array stays in memory, though it is the same in each turn."""
        return isinstance(x, Stored) and x.count > _KEPT * self.width

    def load(self, x: Stored, start: int, count: int) -> Reg:
        """`count` elements from number `start` on, loaded here."""
        b, memory = self.b, vector_instructions.memory_type(x.dtype)
        place = b.at(x.pointer, start * ITEMSIZE[x.dtype])
        self.spend(1)
        if count == 1:
            one = b.emit(memory, 0, f"load {memory}, ptr {place.ref}, align 1")
            return vector_instructions.from_memory(b, b.splat(one, self.width), x.dtype)
        if count == self.width:
            kind = type_name(memory, self.width)
            y = b.emit(memory, self.width, f"load {kind}, ptr {place.ref}, align 1")
        else:
            y = b.load_masked(memory, self.width, place, self._first(count))
            y = self.shuffled(y, y, [k if k < count else 0 for k in range(self.width)])
        return vector_instructions.from_memory(b, y, x.dtype)

    def store(self, x: Array, pointer: Reg) -> None:
        """Write an array to memory, here."""
        b, held = self.b, self.held(x)
        memory = vector_instructions.memory_type(x.dtype)
        for n in range(self.chunks_of(x.count)):
            y = vector_instructions.to_memory(b, self.chunk(held, n), x.dtype)
            place = b.at(pointer, n * self.width * ITEMSIZE[x.dtype])
            left = min(self.width, x.count - n * self.width)
            self.spend(1)
            if left == self.width:
                b.line(f"store {y.type} {y.ref}, ptr {place.ref}, align 1")
            elif left == 1:
                one = b.lane(y, 0)
                b.line(f"store {one.type} {one.ref}, ptr {place.ref}, align 1")
            else:
                mask = self._first(left)
                name = f"llvm.masked.store.{_suffix(memory, self.width)}.p0"
                b.module.declare(name, "void", [y.type, "ptr", "i32", mask.type])
                text = f"{y.type} {y.ref}, ptr {place.ref}, i32 1, {mask.type} {mask.ref}"
                b.line(f"call void @{name}({text})")

    def _first(self, count: int) -> Reg:
        """A mask of the first lanes."""
        bits = ", ".join(f"i1 {int(k < count)}" for k in range(self.width))
        return Reg(self.b, "i1", self.width, f"<{bits}>")

    # ---- what is moved ---------------------------------------------------------------------------

    def moved(self, x: Array, index: np.ndarray) -> Array:
        """The elements of an array at an index, of any shape."""
        flat = np.ascontiguousarray(index, np.int64).reshape(-1)
        source = x.source if isinstance(x, Moved) else x
        flat = x.index[flat] if isinstance(x, Moved) else flat
        if len(flat) == source.count and np.array_equal(flat, np.arange(source.count)):
            return source
        return self.once(("moved", flat.tobytes()), [source], lambda: Moved(source, flat))

    def held(self, x: Array) -> Held | Stored:
        """The array, with its elements in their places."""
        if isinstance(x, Moved):
            return self.gathered([x.source], np.zeros_like(x.index), x.index)
        return x

    def gathered(self, sources: Sequence[Array], which: np.ndarray, index: np.ndarray) -> Held:
        """The array whose elements are those of `sources[which]` at an index."""
        roots: list[Any] = []
        places = np.array(index, np.int64).reshape(-1)
        which = np.array(which, np.int64).reshape(-1)
        for n, x in enumerate(sources):
            if isinstance(x, Moved):
                own = which == n
                places[own] = x.index[places[own]]
            roots.append(x.source if isinstance(x, Moved) else x)
        used = [roots[n] for n in sorted(set(which.tolist()))]  # np.unique imports numpy.ma
        fixed = all(x.fixed and not self.is_large(x) for x in used)

        def write() -> Held:
            chunks = []
            for start in range(0, len(places), self.width):
                span = slice(start, start + self.width)
                picks = [(int(n), int(k)) for n, k in zip(which[span], places[span], strict=True)]
                picks += picks[:1] * (self.width - len(picks))
                chunks.append(self.written(fixed, partial(self._picked, roots, picks)))
            return Held(roots[int(which[0])].dtype, len(places), chunks, fixed)

        key = "gathered", which.tobytes(), places.tobytes()
        return self.once(key, roots, write)

    def _picked(self, roots: Sequence[Held | Stored], picks: Sequence[tuple[int, int]]) -> Reg:
        """A vector of elements: (source, element) for each lane."""
        width = self.width
        first = roots[picks[0][0]]
        if isinstance(first, Stored) and all(n == picks[0][0] for n, _ in picks):
            start = picks[0][1]
            run = len(set(picks))
            if (
                run > 1
                and start % width
                and picks[:run] == [(picks[0][0], start + k) for k in range(run)]
                and all(p == picks[0] for p in picks[run:])
            ):
                return self.load(first, start, run)
            if run == 1 and self.is_large(first):
                return self.load(first, start, 1)
        groups: dict[tuple[int, int], None] = {}
        places = []
        for n, k in picks:
            k = 0 if roots[n].count == 1 else k
            groups[n, k // width] = None
            places.append((n, k // width, k % width))
        (n, c), *others = groups
        if others and all(self.is_large(roots[n]) for n, _ in groups):
            return self._loaded_apart([(roots[n], k) for n, k in picks])
        vector = self.chunk(roots[n], c)
        if not others:
            lanes = [lane for *_, lane in places]
            if roots[n].count == 1 or lanes == list(range(width)):
                return vector
            return self.shuffled(vector, vector, lanes)
        done = {(n, c)}
        now = [lane if (m, d) in done else -1 for m, d, lane in places]
        for n, c in others:
            lanes = [
                width + lane if (m, d) == (n, c) else at
                for (m, d, lane), at in zip(places, now, strict=True)
            ]
            vector = self.shuffled(vector, self.chunk(roots[n], c), lanes)
            done.add((n, c))
            now = [k if (m, d) in done else -1 for k, (m, d, _) in enumerate(places)]
        return vector

    def _loaded_apart(self, picks: Sequence[tuple[Any, int]]) -> Reg:
        """A vector of elements of arrays in memory, each loaded for its lane: LLVM takes
        milliseconds for a vector that is shuffled of several.
        """
        b, dtype = self.b, picks[0][0].dtype
        memory = vector_instructions.memory_type(dtype)
        kind = type_name(memory, self.width)
        found: dict[tuple[int, int], Reg] = {}
        y = "poison"
        for lane, (x, k) in enumerate(picks):
            if (id(x), k) not in found:
                place = b.at(x.pointer, k * ITEMSIZE[dtype])
                found[id(x), k] = b.emit(memory, 0, f"load {memory}, ptr {place.ref}, align 1")
            one = found[id(x), k].ref
            text = f"insertelement {kind} {y}, {memory} {one}, i32 {lane}"
            vector = b.emit(memory, self.width, text)
            y = vector.ref
        self.spend(self.width)
        return vector_instructions.from_memory(b, vector, dtype)

    def shuffled(self, x: Reg, y: Reg, lanes: Sequence[int]) -> Reg:
        """Lanes of two vectors, -1 for any."""
        self.spend(1)
        picks = ", ".join(f"i32 {k}" if k >= 0 else "i32 poison" for k in lanes)
        text = f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{self.width} x i32> <{picks}>"
        return self.b.emit(x.elem, x.lanes, text)

    # ---- arithmetic ------------------------------------------------------------------------------

    def op(self, name: str, *arrays: Array) -> Held:
        """An elementwise op of the kernel IR on arrays of one size, or of one number."""
        dtype = arrays[0].dtype
        result = "bool" if name in _TESTS else dtype

        def write(*chunks: Reg) -> Reg:
            return vector_instructions.apply(self.b, name, dtype, list(chunks))

        return self.mapped((name,), result, COSTS.get(name, 1), write, arrays)

    def cast(self, x: Array, dtype: str) -> Held:
        """The array in another dtype."""

        def write(chunk: Reg) -> Reg:
            return vector_instructions.cast(self.b, chunk, x.dtype, dtype)

        return self.mapped(("cast", dtype), dtype, 1, write, [x])

    def where(self, condition: Array, x: Array, y: Array) -> Held:
        """x where the condition holds, else y."""
        return self.mapped(("where",), x.dtype, 1, self.b.select, [condition, x, y])

    def mapped(
        self, key: tuple[Any, ...], dtype: str, cost: int, write: Callable[..., Reg],
        arrays: Sequence[Array],
    ) -> Held:  # fmt: skip
        """Return the array whose chunks `write` makes of the chunks of arrays."""
        inputs = [self.held(x) for x in arrays]
        count = max(x.count for x in inputs)
        fixed = all(x.fixed for x in inputs)

        def made() -> Held:
            number = self.chunks_of(count)
            self.spend(number * max(cost, 1))
            chunks = self.written(
                fixed, lambda: [write(*(self.chunk(x, n) for x in inputs)) for n in range(number)]
            )
            return Held(dtype, count, chunks, fixed)

        return self.once(key, inputs, made)

    def combined(self, name: str, x: Array, kept: int) -> Held | Stored:
        """Elements `kept` apart combined by an op, as a tree: (n, kept) becomes (kept,)."""
        n = x.count // kept
        if n == 1:
            return self.held(x)
        size = 1 << math.ceil(math.log2(n))
        if size > n:
            neutral = {"add": 0, "mul": 1}.get(name)
            index = np.arange(size * kept)
            index[n * kept :] = np.arange((size - n) * kept) % kept
            which = np.zeros_like(index)
            sources = [x]
            if neutral is not None:
                sources.append(self.number(neutral, x.dtype))
                which[n * kept :] = 1
                index[n * kept :] = 0
            x = self.gathered(sources, which, index)
        while size > 1:
            size //= 2
            places = np.arange(size * kept)
            x = self.op(name, self.moved(x, places), self.moved(x, places + size * kept))
        return self.held(x)


_TESTS = ("lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "isfinite")


def _suffix(elem: str, lanes: int) -> str:
    short = {"half": "f16", "float": "f32", "double": "f64"}.get(elem, elem)
    return f"v{lanes}{short}"
