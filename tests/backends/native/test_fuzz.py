"""The whole registry on 100,000 random inputs: native kernels and libraries against NumPy.

An op's samples say what it may be given. Their sizes are replaced by others, consistently, so that
what fitted together still does; their values come again in another order, or others come, special
ones among them; and the arrays lie in memory in any way, to the byte. Whether an input is valid is
for `infer` and for NumPy to say. An op that is new is fuzzed as it is.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
from adjoint.core.op import REGISTRY, Op, Sample
from adjoint.core.spec import Spec
from adjoint.ir import compute
from adjoint.ir.compute import spec_of
from adjoint.ops.elementwise.pointwise import Elementwise
from adjoint.runtime import fused as core_fused
from adjoint.runtime.dispatch import apply
from adjoint.runtime.tensors import wrap
from tests.native import needs_native
from tests.sweep import few_or_many

from .lowering import test_fused, test_inplace_kernels

pytestmark = needs_native

BLOCKS = 40
CASES = int(os.environ.get("FUZZ_CASES", "2500"))  # of a block, in the sweep
FEW = 100  # of one block, in `make test`
MANY = 300  # cases for which each structure has one more input of the same sizes
MOST = 3000  # elements of an array ...
LARGEST = 50_000  # ... and of the few that are large
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
LONG = (127, 129, 255, 257, 1023, 1024, 1025)
PARALLEL = (32767, 32768, 32769, 40001)  # around the size from which threads share the work
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
REAL = {"complex64": "float32", "complex128": "float64"}
ULPS = 16
TERMS = 128  # times the sum of sizes: NumPy adds up one after the other, where elements lie apart
# Modules and classes of ops
# ... that are exact beside 1 only: terms cancel
CANCELLING = (
    "adjoint.ops.special.bessel",
    "Gelu",
    "Lgamma",
    "LogSoftmax",
    "Logaddexp",
    "Logaddexp2",
)
# ... that divide by a triangular matrix
SUBSTITUTING = ("SolveTriangular", "CholeskySolve", "CholeskyGradient")
# ... that take as many steps as an input says, or as LAPACK takes for infinities: no end of them
COUNTED = (
    "adjoint.ops.special.polynomials", "adjoint.ops.linalg.decomposition",
    "adjoint.ops.linalg.householder", "adjoint.ops.linalg.solving", "adjoint.ops.linalg.spectra",
)  # fmt: skip
# ... where zeros of padding may meet infinities, and next to poles infinities each other
FINITE = ("Convolution", "ConvolutionInput", "ConvolutionWeight", "SumPool", "SumPoolInput",
          "Polygamma")  # fmt: skip


@dataclasses.dataclass(eq=False)
class Structure:
    """A sample, and how the arrays made after it lie in memory."""

    sample: Sample
    layout: str


LAYOUTS = ("contiguous", "transposed", "gapped", "backwards", "broadcast", "mixed")


def ops() -> list[type[Op]]:
    """What the native backend may compute."""
    return [
        cls
        for name, cls in sorted(REGISTRY.items())
        if name.startswith("adjoint.") and not cls.view and not cls.drawn
    ]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Op]]:
    """Kernels for arrays of every size; the ops that were computed by them."""
    from adjoint.backends.native.lowering import kernel_execution

    found: list[Op] = []

    def accelerate(op: Op, arrays: list[Any]) -> Any:
        result = kernel_execution.accelerate(op, arrays)
        if result is not NotImplemented:
            found.append(op)
        return result

    compute.forget()
    for name in ("SMALL", "LARGE"):
        monkeypatch.setattr(compute, name, -1)
    monkeypatch.setattr(compute, "accelerate", accelerate)
    yield found
    compute.forget()


# ---- inputs --------------------------------------------------------------------------------------


@functools.cache
def special(dtype: np.dtype[Any]) -> np.ndarray:
    """Values at the ends of what a dtype has."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1], dtype)
    kind = np.dtype(np.float32) if dtype.kind == "V" or dtype.itemsize == 2 else dtype
    info = np.finfo(kind)
    if dtype.kind == "c":
        values = [0.0, -0.0, 1.0, -1.0, 1j, -1j, math.inf, math.nan]
    else:
        tiny, least, most = float(info.tiny), float(info.smallest_subnormal), float(info.max)
        values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, tiny, -tiny / 2, least,
                  most, -most, 0.5, 1.5, 2.5, 1e-20, 88.8, -104.0, math.pi]  # fmt: skip
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype)


def is_among(op: Op, names: Sequence[str]) -> bool:
    return type(op).__name__ in names or type(op).__module__ in names


class Fuzzer:
    """Random inputs of ops, and what becomes of them."""

    def __init__(self, seed: int, variants: int = 2) -> None:
        self.variants = variants  # inputs of the same sizes
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)

    def sizes(self, sample: Sample) -> dict[int, int]:
        """For each size in the shapes of a sample another one."""
        r = self.random
        old = {n for x in sample.inputs if isinstance(x, np.ndarray) for n in x.shape}
        kind = r.random()
        new = {}
        for n in sorted(old - {0, 1}):
            new[n] = r.choice(SIZES if kind < 0.7 else SIZES[1:10])
        if new and kind > 0.9:
            new[r.choice(sorted(new))] = r.choice(LONG)
        if new and kind > 0.98:
            new = dict.fromkeys(new, 1)
            new[r.choice(sorted(new))] = r.choice(PARALLEL)
        return new

    def shapes(self, sample: Sample) -> list[tuple[int, ...] | None]:
        """Shapes of inputs that an op takes; a number's is None."""
        for _ in range(6):
            new = self.sizes(sample)
            shapes = [
                tuple(new.get(n, n) for n in x.shape) if isinstance(x, np.ndarray) else None
                for x in sample.inputs
            ]
            most = LARGEST if set(PARALLEL) & set(new.values()) else MOST
            if any(math.prod(max(n, 1) for n in shape) > most for shape in shapes if shape):
                continue
            try:
                given = [
                    spec_of(x) if s is None else Spec(s, spec_of(x).dtype, spec_of(x).device)
                    for x, s in zip(sample.inputs, shapes, strict=True)
                ]
                outs = sample.op.infer(*given)
            except Exception:  # sizes that do not fit, whichever way it is said
                continue
            outs = (outs,) if isinstance(outs, Spec) else outs
            if all(math.prod(y.shape) <= LARGEST for y in outs):
                return shapes
        return [x.shape if isinstance(x, np.ndarray) else None for x in sample.inputs]

    def values(self, like: np.ndarray, count: int, kind: str) -> np.ndarray:
        """As many values for an input."""
        dtype = like.dtype
        if kind == "own" and like.size:
            return like.reshape(-1)[self.rng.integers(0, like.size, count)]
        if dtype.kind == "b":
            return self.rng.integers(0, 2, count).astype(bool)
        if dtype.kind in "iu":
            if kind == "wide":
                return self.rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
            found = self.rng.integers(0, 9, count).astype(dtype)
        else:
            scale = 10.0 ** self.rng.uniform(-3, 3) if kind == "wide" else 2.0
            values = self.rng.standard_normal(count) * scale
            if dtype.kind == "c":
                values = values + 1j * self.rng.standard_normal(count) * scale
            found = values.astype(dtype)
        if kind == "special" and count:
            chosen = special(dtype)
            places = self.rng.random(count) < 0.3
            found[places] = chosen[self.rng.integers(0, len(chosen), count)][places]
        return found

    def lay_out(self, values: np.ndarray, shape: tuple[int, ...], layout: str) -> np.ndarray:
        """The values in memory that lies in a certain way, from any byte on."""
        r, dtype = self.random, values.dtype
        order = list(range(len(shape)))
        if layout in ("transposed", "mixed"):
            order.reverse()
        steps = [0] * len(shape)
        step = dtype.itemsize
        for axis in reversed(order):
            if layout == "gapped" or (layout == "mixed" and axis % 2):
                step *= 2
            back = layout == "backwards" or (layout == "mixed" and not axis % 2)
            steps[axis] = -step if back else step
            if layout == "broadcast" and axis == len(shape) // 2:
                steps[axis] = 0
            else:
                step *= max(shape[axis], 1)
        ends = [s * (n - 1) for s, n in zip(steps, shape, strict=True) if n > 1]
        before = -sum(e for e in ends if e < 0)
        after = sum(e for e in ends if e > 0) + dtype.itemsize
        offset = r.choice((0, 0, 0, 1, 3, dtype.itemsize, 32, 60))
        room = 128 if offset else 0  # nothing beside the array, which may be between guard pages
        memory = np.zeros(before + after + room, np.uint8)
        x = np.ndarray(shape, dtype, memory, before + offset, steps)
        x[...] = values.reshape(shape)
        return x

    def inputs(self, structure: Structure, shapes: Sequence[Any]) -> list[Any]:
        """One case."""
        r = self.random
        kind = r.choice(("own", "own", "usual", "wide", "special"))
        if is_among(structure.sample.op, COUNTED):
            kind = "own"
        if kind == "special" and is_among(structure.sample.op, FINITE):
            kind = "wide"
        found = []
        for x, shape in zip(structure.sample.inputs, shapes, strict=True):
            if shape is None:
                found.append(x)
            else:
                found.append(
                    self.lay_out(self.values(x, math.prod(shape), kind), shape, structure.layout)
                )
        return found

    def run(self, structure: Structure, count: int) -> int:
        """Some cases of the same sizes."""
        shapes = self.shapes(structure.sample)
        for number in range(self.variants):
            arrays = self.inputs(structure, shapes)
            wrong = check(structure.sample.op, arrays)
            if wrong:
                shown = [
                    (x.shape, x.strides, x.dtype.name) if isinstance(x, np.ndarray) else x
                    for x in arrays
                ]
                pytest.fail(f"case {count + number}, {structure.sample.op} of {shown}: {wrong}")
        return self.variants


# ---- results -------------------------------------------------------------------------------------


def by_numpy(op: Op, arrays: Sequence[Any]) -> Any:
    """What NumPy computes; the exception that it raises."""
    if is_among(op, ("Pow",)) and all(isinstance(x, np.ndarray) for x in arrays):
        # NumPy takes square roots for a repeated exponent 0.5, and for -inf only then gets nan.
        arrays = [np.array(x) for x in np.broadcast_arrays(*arrays)]
    served, compute.accelerate = compute.accelerate, None
    try:
        return compute.compute(op, list(arrays))
    except Exception as error:
        return error
    finally:
        compute.accelerate = served


def by_kernels(op: Op, arrays: Sequence[Any]) -> Any:
    """What eager execution computes with the native backend."""
    try:
        given = [wrap(x) if isinstance(x, np.ndarray) else x for x in arrays]
        found = apply(op, *given)
    except Exception as error:
        return error
    return tuple(y._data for y in found) if isinstance(found, tuple) else found._data


def real_name(dtype: Any) -> str:
    return REAL.get(dtype.name, dtype.name)


def epsilon(dtype: Any) -> float:
    return EPSILON[real_name(dtype)]


def wide(x: np.ndarray) -> np.ndarray:
    """Values whose differences can be computed; infinity is a little more than the largest."""
    if x.dtype.kind == "c":
        return np.stack([wide(x.real), wide(x.imag)])
    most = float(ad.finfo(getattr(ad, x.dtype.name)).max)
    beyond = np.isinf(x) * np.sign(x).astype(np.longdouble) * most * epsilon(x.dtype)
    return np.clip(x.astype(np.longdouble), -most, most) + np.where(np.isinf(x), beyond, 0)


def differs(
    found: np.ndarray, expected: np.ndarray, ulps: float = ULPS, slack: Any = 0
) -> np.ndarray:
    """Where a result is wrong."""
    with np.errstate(all="ignore"):
        wrong = np.asarray((found != expected) & ~((found != found) & (expected != expected)))
        if not wrong.any() or not is_float(found):
            return wrong
        f, e, eps = wide(found), wide(expected), epsilon(found.dtype)
        least = float(ad.finfo(getattr(ad, real_name(found.dtype))).smallest_normal) * eps * 8
        apart = ~(np.abs(f - e) <= ulps * (eps * np.abs(e) + least) + slack)
        apart &= (e != 0) | (np.abs(f) >= least / eps)  # lost by NumPy on the way
        apart &= ~np.isinf(np.broadcast_to(slack, apart.shape))
    return wrong & (apart.any(0) if found.dtype.kind == "c" else apart)


def rounding(op: Op, arrays: Sequence[Any], i: int, expected: Any) -> Any:
    """What an output may differ by besides its own rounding: the change that comes of the smallest
    change of inputs, and in sums the rounding of their terms, whose order is nobody's business.
    """
    eps = epsilon(expected.dtype)
    slack: Any = 0
    for direction in (math.inf, -math.inf):
        near = output(by_numpy(op, [shifted(x, direction) for x in arrays]), i)
        if near is not None:  # a step from one result to another is none of rounding
            change = np.abs(wide(near) - wide(expected))
            slack = slack + np.where(change < 1e-3 * np.abs(wide(expected)), 4 * change, 0)
    if is_among(op, CANCELLING):
        slack = slack + ULPS * eps * np.maximum(1, np.abs(wide(expected)))
        sizes = output(by_numpy(op, [magnitude(x, 0, math.inf) for x in arrays]), i)
        return slack if sizes is None else slack + ULPS * eps * np.nan_to_num(np.abs(wide(sizes)))
    if isinstance(op, Elementwise):
        return slack
    substituting = is_among(op, SUBSTITUTING)
    for least, most in ((0, math.inf), (1, math.inf), (0, 1)):
        sizes = [magnitude(x, least, most) for x in arrays]
        if substituting:  # so that all terms add up
            k = int(is_among(op, ("CholeskySolve",)))  # whose factor is the second
            sizes[k] *= 2 * np.eye(sizes[k].shape[-1], dtype=sizes[k].dtype) - 1
        size = output(by_numpy(op, sizes), i)
        if size is not None and size.dtype.kind == "c":  # either part is of products of both
            size = np.abs(size)
        if size is not None and (least, most) == (0, math.inf):
            slack = slack + np.nan_to_num(TERMS * eps * np.abs(wide(size)))
        if size is not None:  # terms may be too large, or too small, in one order of many
            with np.errstate(all="ignore"):
                beyond = (
                    ~np.isfinite(size)
                    if least or substituting
                    else most == 1 and np.abs(size) < 1e-30
                )
            slack = np.where(beyond, math.inf, slack)
    return slack


def output(results: Any, i: int) -> Any:
    """One of the results; None for an error."""
    if isinstance(results, Exception):
        return None
    return np.asarray(results[i] if isinstance(results, tuple) else results)


def is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "fcV"


def magnitude(x: Any, least: float, most: float) -> Any:
    """The sizes of values, those that are finite, within limits."""
    if not is_float(x):
        return x
    size = np.abs(x).astype(np.float64)
    return np.clip(np.where(np.isfinite(size), size, 0), least, most).astype(x.dtype)


def shifted(x: Any, direction: float) -> Any:
    """The values next to these; of narrow floats and complex numbers some near ones."""
    if not is_float(x):
        return x
    if x.dtype.kind == "f":
        return np.nextafter(x, np.asarray(direction, x.dtype))
    step = math.copysign(epsilon(x.dtype), direction)
    return (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) * (1 + step)).astype(
        x.dtype
    )


def check(op: Op, arrays: Sequence[Any]) -> str:
    """What is wrong with a case; "" if nothing is."""
    found, expected = by_kernels(op, arrays), by_numpy(op, arrays)
    if isinstance(expected, Exception) or isinstance(found, Exception):
        return "" if type(found) is type(expected) else f"{found!r:.200} for {expected!r:.200}"
    several = isinstance(expected, tuple)
    pairs = zip(found, expected, strict=True) if several else [(found, expected)]
    for i, (f, e) in enumerate(pairs):
        f, e = np.asarray(f), np.asarray(e)
        if f.dtype != e.dtype or f.shape != e.shape:
            return f"output {i}: {f.dtype} {f.shape} for {e.dtype} {e.shape}"
        narrow = is_float(e) and epsilon(e.dtype) > 1e-4  # rounded from float32, up or down
        ulps = 1.01 if narrow else ULPS
        wrong = differs(f, e, ulps)
        if wrong.any() and is_float(f):
            wrong = differs(f, e, ulps, rounding(op, arrays, i, e))
        if wrong.any():
            at = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(wrong)))[: f.ndim]
            return f"output {i} at {at}: {f[at]!r} for {e[at]!r}"
    return ""


# ---- the tests -----------------------------------------------------------------------------------


def structures(block: int, fuzzer: Fuzzer) -> list[Structure]:
    """Samples of a part of the registry: contiguous, and some in another way."""
    found = []
    for cls in ops()[block::BLOCKS]:
        for sample in cls.samples():
            arrays = [x for x in sample.inputs if isinstance(x, np.ndarray)]
            if arrays:
                found.append(Structure(sample, "contiguous"))
                if fuzzer.random.random() < 0.4:
                    found.append(Structure(sample, fuzzer.random.choice(LAYOUTS[1:])))
    return found


@pytest.mark.parametrize(
    ("block", "cases"),
    [(0, FEW), *(pytest.param(n, CASES, marks=pytest.mark.sweep) for n in range(BLOCKS))],
)
def test_every_op(block: int, cases: int, computed: list[Op]) -> None:
    """So many cases, of all that is computed natively of a part of the registry."""
    fuzzer = Fuzzer(block, max(2, cases // MANY))
    active = structures(block, fuzzer)
    count = 0
    with np.errstate(all="ignore"):
        for structure in list(active):
            computed.clear()
            count += fuzzer.run(structure, count)
            if not computed:  # NumPy's
                active.remove(structure)
                count -= fuzzer.variants
        while count < cases:
            count += fuzzer.run(fuzzer.random.choice(active), count)
    assert count >= cases


class Overlapping(NamedTuple):
    """An array to write into, others that may share its memory, all in one block."""

    block: np.ndarray
    places: list[tuple[Any, ...]]  # of each array: shape, offset and strides

    def tensors(self) -> tuple[np.ndarray, list[Any]]:
        """The block again, and the tensors in it."""
        block = self.block.copy()
        arrays = [
            np.ndarray(shape, block.dtype, block.data, offset, strides)
            for shape, offset, strides in self.places
        ]
        return block, [wrap(x) for x in arrays]


def overlapping(fuzzer: Fuzzer, dtype: np.dtype[Any]) -> Overlapping:
    """Three arrays of one shape, which lie in one block of memory by chance."""
    r, item = fuzzer.random, dtype.itemsize
    shape = tuple(r.choice(SIZES[1:]) for _ in range(r.choice((1, 2, 2))))
    like = np.zeros(1, dtype)
    block = fuzzer.values(like, 8 * math.prod(shape) + 64, r.choice(("usual", "special")))
    places = []
    for _ in range(3):
        order = list(range(len(shape)))
        r.shuffle(order)
        strides, step = [0] * len(shape), item * r.choice((1, 1, 2))
        for axis in order:
            strides[axis] = step
            step *= shape[axis]
        offset = item * r.choice((0, 0, 1, 2, 8, shape[-1], math.prod(shape)))
        places.append((shape, offset, tuple(strides)))
    return Overlapping(block, places)


WRITERS = {**test_inplace_kernels.EXACT, **test_inplace_kernels.FLOATING}
del WRITERS["sqrt_"]  # which writes into another tensor
WRITTEN = 150  # cases of a method, in the sweep


@few_or_many("cases", 10, WRITTEN)
@pytest.mark.parametrize("name", WRITERS)
def test_in_place(name: str, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that write into memory that their arguments share, in whatever way."""
    method, fuzzer = WRITERS[name], Fuzzer(zlib.crc32(name.encode()))
    dtypes = ["float32", "float64", *(["int32", "int64", "int8"] if name not in _FLOATS else [])]
    with np.errstate(all="ignore"):
        for number in range(cases):
            case = overlapping(fuzzer, np.dtype(fuzzer.random.choice(dtypes)))
            expected, tensors = case.tensors()
            with monkeypatch.context() as patch:
                patch.setattr(compute, "accelerate", None)
                copies = [wrap(x._data.copy()) for x in tensors]
                tensors[0]._data[...] = method(*copies)._data
            compute.forget()
            found, tensors = case.tensors()
            method(*tensors)
            np.testing.assert_array_equal(found, expected, f"case {number}: {case.places}")


_FLOATS = test_inplace_kernels.FLOATING
COMPOSED = 8  # cases of a composite, in the sweep
NEAR = {"float64": 1e-12, "float32": 1e-5}


@pytest.mark.filterwarnings("ignore:Using a target size")
@few_or_many("cases", 1, COMPOSED)
@pytest.mark.parametrize("name", test_fused.CASES)
def test_composites(name: str, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, of sizes and strides by chance."""
    function, shapes, *_ = test_fused.CASES[name]
    fuzzer = Fuzzer(zlib.crc32(name.encode()))
    r = fuzzer.random
    monkeypatch.setattr(core_fused, "SMALLEST", 0)
    for number in range(cases):
        dtype = np.dtype(r.choice(list(NEAR)))
        olds = {n for shape in shapes for n in shape if n > 1}
        new = {n: r.choice((3, 7, 9, 17, 33) if n % 2 else (2, 4, 8, 16, 34)) for n in olds}
        if "group" in name:
            new |= {4: 4}
        layout = r.choice([name for name in LAYOUTS if name != "broadcast"])  # rows that vary
        arrays = []
        for shape in shapes:
            sizes = tuple(new.get(n, n) for n in shape)
            values = fuzzer.values(np.zeros(1, dtype), math.prod(sizes), "usual")
            arrays.append(fuzzer.lay_out(values, sizes, layout))
        results = []
        for serves in (True, False):
            with monkeypatch.context() as patch:
                if not serves:
                    patch.setattr(core_fused, "SMALLEST", 1 << 62)
                    patch.setattr(compute, "accelerate", None)
                leaves = [wrap(x).requires_grad_() for x in arrays]
                results.append(test_fused.results(function, leaves))
        for y, z in zip(*results, strict=True):
            scale = NEAR[dtype.name] * max(float(np.nan_to_num(np.abs(z)).max()), 1.0)
            close = np.allclose(y, z, rtol=NEAR[dtype.name], atol=scale, equal_nan=True)
            assert close, f"case {number}: {[x.shape for x in arrays]} {layout} {dtype}"


def test_how_many() -> None:
    """What this file is to try."""
    written, composed = WRITTEN * len(WRITERS), COMPOSED * len(test_fused.CASES)
    assert BLOCKS * 2500 >= 100_000 and written >= 3000 and composed >= 240
