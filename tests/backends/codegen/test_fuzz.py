"""100,000 arrays that lie in memory in every way, through few kernels, against NumPy.

Shapes, strides (permuted, stretched, reversed, broadcast), alignment to the byte, outputs that are
given, and that overlap inputs. Kernels are few and compiled once for each layout, which is counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from adjoint.backends.codegen import Compiled, Kernel
from adjoint.backends.codegen import run as compiler_run

from ...sweep import few_or_many

FEW, CASES = 12, 4_600  # a kernel, in `make test` and in the sweep
LAYOUTS = 250  # that a kernel may be compiled for, in all its cases
SIZES = (1, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67)
LONG = (100, 129, 257, 1000, 2000)
MOST = 2000  # elements
ROOM = 1 << 20  # bytes of a pool
SINGLE, DOUBLE = 32 * 2.0**-24, 32 * 2.0**-53  # of the terms that are added plainly, at most 32
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_VALUES = np.random.default_rng(7)
POOLS: dict[Any, list[np.ndarray]] = {}


def pools(dtype: Any, finite: bool) -> list[np.ndarray]:
    """Bytes that are values of `dtype`, from addresses that are 0 to 7 beyond a multiple of 64; all
    hold the same values.
    """
    found = POOLS.get((dtype, finite))
    if found is None:
        count = ROOM // dtype.itemsize
        if dtype.kind in "iu":
            values = _VALUES.integers(0, 256, ROOM, np.uint8).view(dtype)
        elif dtype.kind == "b":
            values = _VALUES.integers(0, 2, count).astype(bool)
        else:
            values = (_VALUES.standard_normal(count) * 8).astype(dtype)
            for special in () if finite else (0.0, -0.0, np.inf, -np.inf, np.nan):
                values[_VALUES.integers(0, count, count // 500)] = special
        found = POOLS[dtype, finite] = []
        for shift in range(8):
            room = np.empty(ROOM + 128, np.uint8)
            begin = -room.ctypes.data % 64 + shift
            room[begin : begin + ROOM] = values.view(np.uint8)
            found.append(room[begin : begin + ROOM])
    return found


class Case(NamedTuple):
    """A kernel, what it means, and how exactly."""

    kernel: Kernel
    meaning: Callable[..., Any]
    tolerance: float = 0.0  # relative to the sum of the absolute values; 0: the same bits
    finite: bool = False  # the inputs have no infinities, nor NaN


def elementwise(inputs: int, dtype: str, build: Any, meaning: Any, out: str = "") -> Case:
    k = Kernel(rank=3)
    k.output(build(k, *[k.input(dtype) for _ in range(inputs)]), out or None)
    return Case(k, meaning)


def reduction(
    name: str, axes: tuple[int, ...], dtype: str, meaning: Any, tolerance: float = 0.0
) -> Case:
    k = Kernel(rank=3)
    x = k.input(dtype)
    k.output(k.argmax(x, axes[0]) if name == "argmax" else k.reduce(name, x, axes))
    return Case(k, meaning, tolerance, finite=tolerance > 0)


def _mixed() -> Case:
    k = Kernel(rank=3)
    a, c = k.input("int16"), k.input("bool", axes=(2,))
    k.output(k.where(c, k.cast(a, "float32"), 0.5) * k.cast(k.index(1), "float32"))
    return Case(
        k,
        lambda a, c: (
            np.where(c, a.astype(np.float32), np.float32(0.5))
            * np.arange(a.shape[1], dtype=np.float32)[:, None]
        ),
    )


def _three() -> Case:
    k = Kernel(rank=3)
    a, b, c = k.input("float32"), k.input("float32"), k.input("float32", axes=(2,))
    k.output(a * b - c)
    return Case(k, lambda a, b, c: a * b - c)


def _two_outputs() -> Case:
    k = Kernel(rank=3)
    a, b = k.input("float64"), k.input("float64", axes=(1, 2))
    k.output(a + b)
    k.output(a * 2 > b)
    return Case(k, lambda a, b: (a + b, a * 2 > b))


def _centred() -> Case:
    k = Kernel(rank=3)
    x = k.input("float32")
    k.output(x - k.max(x, axes=(1, 2)))
    return Case(k, lambda x: x - x.max((1, 2), keepdims=True), finite=True)


def _narrow(name: str) -> Case:
    def meaning(a: Any, b: Any) -> Any:
        wide = a.astype(np.float32) * b.astype(np.float32) + np.float32(1)
        return wide.astype(BFLOAT16 if name == "bfloat16" else np.float16)

    return elementwise(2, name, lambda k, a, b: a * b + 1, meaning, name)


def _sum(axes: tuple[int, ...]) -> Any:
    return lambda x: (x.astype(np.float64).sum(axes), np.abs(x.astype(np.float64)).sum(axes))


KERNELS: dict[str, Callable[[], Case]] = {
    "float32": _three,
    "float64": lambda: elementwise(
        2, "float64", lambda k, a, b: k.where(a < b, a, b * 0.5),
        lambda a, b: np.where(a < b, a, b * 0.5),
    ),
    "division": lambda: elementwise(
        2, "float32", lambda k, a, b: k.sqrt(k.abs(a)) / b, lambda a, b: np.sqrt(np.abs(a)) / b
    ),
    "int32": lambda: elementwise(
        2, "int32", lambda k, a, b: (a + b) * 3 - a, lambda a, b: (a + b) * np.int32(3) - a
    ),
    "int8": lambda: elementwise(
        2, "int8", lambda k, a, b: k.cast(a, "int32") + k.cast(b, "int32"),
        lambda a, b: a.astype(np.int32) + b.astype(np.int32),
    ),
    "uint8": lambda: elementwise(
        2, "uint8", lambda k, a, b: k.maximum(a, b) & k.not_(b),
        lambda a, b: np.maximum(a, b) & ~b,
    ),
    "int64": lambda: elementwise(
        2, "int64", lambda k, a, b: k.minimum(a, b) ^ a, lambda a, b: np.minimum(a, b) ^ a
    ),
    "bool": lambda: elementwise(
        2, "bool", lambda k, a, b: a & ~b, lambda a, b: a & ~b
    ),
    "comparison": lambda: elementwise(
        2, "float32", lambda k, a, b: a <= b, lambda a, b: a <= b
    ),
    "bfloat16": lambda: _narrow("bfloat16"),
    "float16": lambda: _narrow("float16"),
    "mixed": _mixed,
    "two outputs": _two_outputs,
    "centred": _centred,
    "sum last": lambda: reduction("sum", (2,), "float32", _sum((2,)), SINGLE),
    "sum first": lambda: reduction("sum", (0,), "float32", _sum((0,)), SINGLE),
    "sum two": lambda: reduction("sum", (0, 2), "float64", _sum((0, 2)), DOUBLE),
    "sum all": lambda: reduction("sum", (0, 1, 2), "float32", _sum((0, 1, 2)), SINGLE),
    "sum int64": lambda: reduction("sum", (1, 2), "int64", lambda x: x.sum((1, 2))),
    "max": lambda: reduction("max", (1,), "float32", lambda x: x.max(1)),
    "argmax": lambda: reduction("argmax", (2,), "float32", lambda x: x.argmax(2)),
    "any": lambda: reduction("any", (0, 1), "bool", lambda x: x.any((0, 1))),
}  # fmt: skip


class Fuzzer:
    """Random arrays for one kernel."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.random = random.Random(seed)
        self.compiled = Compiled(case.kernel)
        self.inputs = [(compiler_run.NUMPY[v.attr[1]], v.axes) for v in case.kernel.inputs]
        self.outputs = [(compiler_run.NUMPY[o.dtype], o.axes) for o in case.kernel.outputs]

    def sizes(self) -> list[int]:
        """Of the index space."""
        r = self.random
        while True:
            sizes = [r.choice(SIZES) for _ in range(3)]
            if r.random() < 0.15:
                sizes[r.randrange(3)] = r.choice(LONG)
            if sizes[0] * sizes[1] * sizes[2] <= MOST:
                break
        if not self.case.kernel.reduced and r.random() < 0.02:
            sizes[r.randrange(3)] = 0
        return sizes

    def lay_out(self, shape: list[int], dtype: Any) -> tuple[list[int], int, int]:
        """Strides in bytes; how many bytes before and from the first element on are shown."""
        r = self.random
        kind = r.random()
        order = list(range(len(shape)))
        if kind > 0.4:
            r.shuffle(order)
        steps = [0] * len(shape)
        step = dtype.itemsize
        for axis in reversed(order):
            if kind > 0.6 and r.random() < 0.3:
                step *= r.randrange(2, 4)
            steps[axis] = -step if kind > 0.6 and r.random() < 0.25 else step
            step *= max(shape[axis], 1)
        ends = [s * (n - 1) for s, n in zip(steps, shape, strict=True) if n > 1]
        before = -sum(e for e in ends if e < 0)
        return steps, before, sum(e for e in ends if e > 0) + dtype.itemsize

    def input(self, sizes: list[int], dtype: Any, axes: tuple[int, ...]) -> np.ndarray:
        """An array for the axes of a space, which may be broadcast."""
        r = self.random
        shape = [sizes[a] for a in axes]
        whole = r.random() < 0.7 or self.case.kernel.reduced
        if not whole:
            shape = [1 if n and r.random() < 0.4 else n for n in shape]
        steps, before, after = self.lay_out(shape, dtype)
        if whole and r.random() < 0.2:
            steps[r.randrange(len(steps))] = 0
        pool = r.choice(pools(dtype, self.case.finite))
        room = (ROOM - before - after) // dtype.itemsize
        offset = before + r.randrange(room) * dtype.itemsize
        if dtype.kind in "iu":  # whose every pattern of bits is a value
            offset += r.randrange(dtype.itemsize)
            offset = min(offset, ROOM - after)
        return np.ndarray(shape, dtype, pool, offset, steps)

    def output(self, shape: list[int], dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An array to write, the memory that it lies in, and its bytes."""
        steps, before, after = self.lay_out(shape, dtype)
        begin = before + self.random.randrange(64)
        memory = np.full(before + after + 128, 0xA5, np.uint8)
        x = np.ndarray(shape, dtype, memory, begin, steps)
        return x, memory, np.ndarray((*shape, dtype.itemsize), np.uint8, memory, begin, (*steps, 1))

    def run(self) -> None:
        """One case."""
        r = self.random
        sizes = self.sizes()
        arrays = [self.input(sizes, dtype, axes) for dtype, axes in self.inputs]
        if r.random() < 0.1 and arrays[0].size:
            self.run_overlapping(sizes, arrays)
            return
        found: Any
        if r.random() < 0.35:
            made = [self.output([sizes[a] for a in axes], d) for d, axes in self.outputs]
            found = tuple(x for x, *_ in made)
            self.compiled(*arrays, out=found, shape=sizes)
            for _, memory, own in made:
                self.assert_untouched(memory, own)
        else:
            found = self.compiled(*arrays, shape=sizes)
            found = found if type(found) is tuple else (found,)
        self.assert_right(found, self.expected(arrays, sizes))

    def run_overlapping(self, sizes: list[int], arrays: list[np.ndarray]) -> None:
        """The output is the memory of the first input, or a part of it."""
        dtype, axes = self.outputs[0]
        shape = [sizes[a] for a in axes]
        steps, before, after = self.lay_out(shape, dtype)
        size = max(before + after, arrays[0].nbytes * 2) + 192
        memory = np.resize(
            self.random.choice(pools(self.inputs[0][0], self.case.finite))[:4096], size
        )
        memory = memory.copy()
        own = self.inputs[0][0].itemsize
        first = np.ndarray(arrays[0].shape, self.inputs[0][0], memory, 0)
        shift = self.random.choice((0, 0, own, 2 * own, 64))
        out = np.ndarray(shape, dtype, memory, before + shift, steps)
        if self.random.random() < 0.5 and out.shape == first.shape and dtype.itemsize == own:
            out = np.ndarray(shape, dtype, memory, 0)
        arrays = [first, *arrays[1:]]
        expected = self.expected(arrays, sizes)  # computed before anything is written
        further = [np.empty([sizes[a] for a in axes], d) for d, axes in self.outputs[1:]]
        self.compiled(*arrays, out=(out, *further), shape=sizes)
        self.assert_right((out, *further), expected)

    def expected(self, arrays: list[np.ndarray], sizes: list[int]) -> tuple[Any, ...]:
        """What NumPy computes."""
        with np.errstate(all="ignore"):
            arrays = [np.broadcast_to(x, sizes) if x.ndim == len(sizes) else x for x in arrays]
            found = self.case.meaning(*arrays)
        found = found if type(found) is tuple else (found,)
        if self.case.tolerance:
            return found
        shapes = [[sizes[a] for a in axes] for _, axes in self.outputs]
        return tuple(np.broadcast_to(y, shape) for y, shape in zip(found, shapes, strict=True))

    def assert_right(self, found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
        """The same bits, or as close as sums are."""
        if self.case.tolerance:
            (total, size), (y,) = expected, found
            assert y.shape == total.shape
            assert (np.abs(y.astype(np.float64) - total) <= size * self.case.tolerance).all()
            return
        for y, wanted, (dtype, _) in zip(found, expected, self.outputs, strict=True):
            assert y.shape == wanted.shape and y.dtype == dtype
            if dtype.kind in "biu":
                assert (y == wanted).all()
            else:
                y, wanted = y.astype(np.float64), wanted.astype(np.float64)
                assert ((y == wanted) | ((y != y) & (wanted != wanted))).all()

    def assert_untouched(self, memory: np.ndarray, own: np.ndarray) -> None:
        """Nothing was written but an array's `own` bytes."""
        kept = own.copy()
        own[...] = 0xA5
        assert (memory == 0xA5).all()
        own[...] = kept


def layouts(kernel: Kernel) -> int:
    return sum(key == kernel.key for key, _ in compiler_run._codes)


@few_or_many("cases", FEW, CASES)
@pytest.mark.parametrize("name", KERNELS)
def test_arrays_however_they_lie_in_memory(name: str, cases: int) -> None:
    fuzzer = Fuzzer(KERNELS[name](), 0)
    for number in range(cases):
        try:
            fuzzer.run()
        except AssertionError:
            pytest.fail(f"{name}, case {number}: {fuzzer.case.kernel}")
    assert (4 if cases == CASES else 2) < layouts(fuzzer.case.kernel) <= LAYOUTS


def test_there_are_as_many_cases_as_promised() -> None:
    assert len(KERNELS) * CASES >= 100_000


def test_the_fuzzer_notices_a_wrong_element() -> None:
    case = KERNELS["float32"]()
    wrong = Fuzzer(case._replace(meaning=lambda a, b, c: a * b - c + (a == a.max())), 0)
    with pytest.raises(AssertionError):
        for _ in range(50):
            wrong.run()


def test_the_fuzzer_notices_a_write_outside() -> None:
    fuzzer = Fuzzer(KERNELS["float32"](), 0)
    x, memory, own = fuzzer.output([3, 4, 5], np.dtype(np.float32))
    x[...] = 1
    fuzzer.assert_untouched(memory, own)
    memory[-1] = 0
    with pytest.raises(AssertionError):
        fuzzer.assert_untouched(memory, own)
