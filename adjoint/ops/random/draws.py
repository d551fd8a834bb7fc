"""Random draws as primitives: pure functions of (seed, draw number)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import CPU
from ...core.device import device as Device  # noqa: N812 - the draws have a field of that name
from ...core.errors import InvalidArgument, InvalidType
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS


@dataclass(eq=False, repr=False)
class Draw(Op, abstract=True):
    """Base of random draws: `seed` and `draw` say which numbers, so the op is a pure function."""

    seed: int
    draw: int
    differentiable = False
    drawn = True
    library = "draws"

    def infer(self, *specs: Any) -> Any:
        """The spec of the draw, from its fields."""
        return Spec(self.shape, self.dtype, self.device)  # type: ignore[attr-defined]

    def rng(self, xp: Any) -> Any:
        """NumPy's generator at the start of this draw's stream; or what draws as PyTorch does."""
        if type(self.seed) is not int:
            return self.seed
        return xp.generator(self.seed, self.draw)

    def renumbered(self, seed: int, draw: int) -> Draw:
        """Return this draw with other numbers."""
        return replace(self, seed=seed, draw=draw)

    def fresh(self) -> Any:
        """A NumPy generator of the stream, made for the references."""
        return np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, self.draw, 0]))


def _low(dtype: dt.dtype) -> Any:
    """The precision in which real numbers of `dtype` are drawn."""
    return np.float64 if dtype in (dt.float64, dt.complex128) else np.float32


def _shapes_and_dtypes(dtypes: Sequence[dt.dtype], *fields: Any) -> Any:
    """Samples of a draw without inputs: each dtype, 0-d, empty."""

    def samples(cls: Any) -> Iterable[Sample]:
        for dtype in dtypes:
            yield Sample(cls(1, 2, *fields, (2, 3), dtype), (), dtype.name)
        yield Sample(cls(1, 2, *fields, (), dtypes[0]), (), "0-d")
        yield Sample(cls(1, 2, *fields, (0, 3), dtypes[0]), (), "empty")
        yield Sample(cls(2**64 - 1, 2**40, *fields, (5,), dtypes[0]), (), "large-seed")

    return classmethod(samples)


_REAL = (dt.float32, dt.float64, dt.float16, dt.bfloat16)
_MANTISSA = {dt.float16: 11, dt.bfloat16: 8}


@dataclass(eq=False, repr=False)
class Numbers(Draw, abstract=True):
    """Base of draws that nothing but their shape and dtype describes."""

    shape: tuple[int, ...]
    dtype: dt.dtype
    device: Device = CPU


class Uniform(Numbers):
    """Numbers spread evenly over [0, 1)."""

    samples = _shapes_and_dtypes(_REAL)

    def compute(self, xp: Any) -> Any:
        """Narrow dtypes are rounded down, so that 1 is never drawn."""
        return self.narrow(xp.drawn_uniform(self.seed, self.draw, self.shape, _low(self.dtype)))

    def narrow(self, values: Any) -> Any:
        """`values` in [0, 1) in this draw's dtype."""
        digits = _MANTISSA.get(self.dtype)
        if digits is None:
            return values
        return (np.floor(values * 2.0**digits) * 2.0**-digits).astype(self.dtype.numpy)

    def reference(self) -> Any:
        """Reference value from the raw bits."""
        count = math.prod(self.shape)
        if self.dtype is dt.float64:
            raw = self.fresh().bit_generator.random_raw(count)
            return ((raw >> np.uint64(11)) * 2.0**-53).reshape(self.shape)
        raw = self.fresh().bit_generator.random_raw((count + 1) // 2).view(np.uint32)[:count]
        values = ((raw >> np.uint32(8)) * 2.0**-24).reshape(self.shape)
        digits = _MANTISSA.get(self.dtype, 24)
        return np.trunc(values * 2**digits) / 2**digits


class Normal(Numbers):
    """Numbers with the standard normal distribution; complex ones have variance 1 in all."""

    samples = _shapes_and_dtypes((*_REAL, dt.complex64, dt.complex128))

    def compute(self, xp: Any) -> Any:
        """Complex numbers have their parts side by side."""
        shape = (*self.shape, 2) if self.dtype.is_complex else self.shape
        values = xp.drawn_normal(self.seed, self.draw, shape, _low(self.dtype))
        if self.dtype.is_complex:
            values *= values.dtype.type(math.sqrt(0.5))
            return values.view(self.dtype.numpy)[..., 0]
        return values.astype(self.dtype.numpy, copy=False)

    def reference(self) -> Any:
        """Reference values, computed one by one, in order."""
        rng, kind = self.fresh(), _low(self.dtype)
        count = math.prod(self.shape) * (1 + self.dtype.is_complex)
        values = np.array([rng.standard_normal(dtype=kind) for _ in np.arange(count)], np.float64)
        if self.dtype.is_complex:
            return ((values[::2] + 1j * values[1::2]) / math.sqrt(2)).reshape(self.shape)
        return values.reshape(self.shape)


class Exponential(Numbers):
    """Numbers with the standard exponential distribution."""

    samples = _shapes_and_dtypes(_REAL)

    def compute(self, xp: Any) -> Any:
        """Drawn in float32 or float64."""
        values = xp.drawn_exponential(self.seed, self.draw, self.shape, _low(self.dtype))
        return values.astype(self.dtype.numpy, copy=False)

    def reference(self) -> Any:
        """Reference values, computed one by one, in order."""
        rng, kind = self.fresh(), _low(self.dtype)
        count = math.prod(self.shape)
        return np.array(
            [rng.standard_exponential(dtype=kind) for _ in np.arange(count)], np.float64
        ).reshape(self.shape)


@dataclass(eq=False, repr=False)
class RandInt(Draw):
    """Whole numbers spread evenly over [low, high)."""

    low: int
    high: int
    shape: tuple[int, ...]
    dtype: dt.dtype
    device: Device = CPU
    samples = _shapes_and_dtypes((dt.int64, dt.uint8, dt.float32, dt.bool_), 0, 2)

    def compute(self, xp: Any) -> Any:
        """Drawn in int64."""
        values = xp.drawn_integers(self.seed, self.draw, self.low, self.high, self.shape)
        return values.astype(self.dtype.numpy, copy=False)

    def reference(self) -> Any:
        """NumPy's, from a generator made for it."""
        return (
            np.asarray(self.fresh().integers(self.low, self.high, math.prod(self.shape)))
            .reshape(self.shape)
            .astype(self.dtype.numpy)
        )


@dataclass(eq=False, repr=False)
class Permutation(Draw):
    """0 to n - 1 in random order."""

    n: int
    dtype: dt.dtype
    device: Device = CPU

    @property
    def shape(self) -> tuple[int]:  # type: ignore[override]
        """Shape of the result."""
        return (self.n,)

    def compute(self, xp: Any) -> Any:
        """Shuffles the numbers."""
        values = xp.drawn_permutation(self.seed, self.draw, self.n)
        return values.astype(self.dtype.numpy, copy=False)

    def batch(self, size: int, flags: Any) -> Any:  # type: ignore[override]
        """Permutations by sorting uniform numbers."""
        shape = (size, self.n)
        keys = apply(Uniform(self.seed, self.draw, shape, dt.float64, self.device))
        return keys.argsort(-1).to(self.dtype)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Several sizes."""
        for n in (0, 1, 7):
            yield Sample(cls(1, 2, n, dt.int64), ())
        yield Sample(cls(1, 2, 5, dt.float32), (), "float32")

    def reference(self) -> Any:
        """NumPy's shuffle of a list."""
        values = np.arange(self.n)
        self.fresh().shuffle(values)
        return values.astype(self.dtype.numpy)


@dataclass(eq=False, repr=False)
class Mask(Draw):
    """`value` with probability `keep` in each place, else 0: what dropout multiplies by."""

    keep: float
    value: float
    shape: tuple[int, ...]
    dtype: dt.dtype
    device: Device = CPU
    samples = _shapes_and_dtypes((*_REAL, dt.int64, dt.bool_), 0.75, 1.0)

    def compute(self, xp: Any) -> Any:
        """Mask drawn by 32 bits for each place."""
        return xp.drawn_mask(
            self.seed, self.draw, self.keep, self.value, self.shape, self.dtype.numpy
        )

    def reference(self) -> Any:
        """Bit by bit."""
        count = math.prod(self.shape)
        raw = self.fresh().bit_generator.random_raw(count)
        halves = [int(r) >> shift & 0xFFFFFFFF for r in raw for shift in (0, 32)][:count]
        values = [self.value if h / 2**32 < self.keep else 0.0 for h in halves]
        return np.array(values).reshape(self.shape).astype(self.dtype.numpy)


@dataclass(eq=False, repr=False)
class DrawnFor(Op, abstract=True):
    """A draw that a graph makes for tensors: with other numbers for each new value of one
    (`runtime/repeats.py`), and, with `follows`, in the shape of the first.
    """

    drawing: Op
    follows: bool
    differentiable = False
    drawn = True
    library = "draws"

    def infer(self, spec: Spec, *others: Spec) -> Spec:
        """The spec of the draw."""
        if not isinstance(self.drawing, Draw):
            raise InvalidType(f"draw: {self.drawing.name} draws nothing")
        made: Spec = self._of(spec.shape).infer()
        return made

    def compute(self, xp: Any, x: Any, *others: Any) -> Any:
        """The draw."""
        return self._of(x.shape).compute(xp)

    def renumbered(self, seed: int, draw: int) -> DrawnFor:
        """Return this draw with other numbers."""
        drawing: Any = self.drawing
        return replace(self, drawing=drawing.renumbered(seed, draw))

    def of_each(self, size: int) -> DrawnFor | None:
        """The draw for each of so many entries of a batch, for the same tensors; None where the
        draw does not say how.
        """
        made = self.drawing.batched(size)
        return None if made is None else DrawnFor(made, False)

    def _of(self, shape: tuple[int, ...]) -> Draw:
        drawing: Any = self.drawing
        if self.follows and shape != drawing.shape:
            drawing = replace(drawing, shape=tuple(shape))
        draw: Draw = drawing
        return draw


@dataclass(eq=False, repr=False)
class Beside(Op, abstract=True):
    """A tensor beside others, for which it is made too: the parameter of a draw that is made anew
    where one of them changes.
    """

    others: int
    exact = True

    def infer(self, spec: Spec, *others: Spec) -> Spec:
        """The spec of the first."""
        return spec

    def compute(self, xp: Any, x: Any, *others: Any) -> Any:
        """The first array."""
        return x

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The whole cotangent to the first."""
        return (g, *(None,) * self.others)


@dataclass(eq=False, repr=False)
class MaskAt(Op):
    """A mask as of `Mask`, for a seed and a draw that are inputs: other numbers, the same op."""

    keep: float
    shape: tuple[int, ...]
    differentiable = False
    drawn = True

    def infer(self, seed: Spec, draw: Spec) -> Spec:
        """The spec of the mask, from the fields."""
        return Spec(self.shape, dt.bool_, seed.device)

    def compute(self, xp: Any, seed: Any, draw: Any) -> Any:
        """The very numbers of `Mask`; or as a backend has them."""
        if isinstance(seed, np.ndarray):
            mask = Mask(int(seed), int(draw), self.keep, 1.0, self.shape, dt.bool_)
            return mask.compute(xp)
        return xp.mask_at(self, seed, draw)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Several shapes, the largest seed."""
        for seed in (1, 2**64 - 1):
            for shape in ((2, 3), (), (0, 3)):
                yield Sample(cls(0.75, shape), (np.array(seed, np.uint64), np.array(2, np.uint64)))

    def reference(self, seed: Any, draw: Any) -> Any:
        """Bit by bit."""
        return Mask(int(seed), int(draw), self.keep, 1.0, self.shape, dt.bool_).reference()


@dataclass(eq=False, repr=False)
class Followed(Draw, abstract=True):
    """A draw from PyTorch's generator by a `method` of `Twister`: `seed` takes the numbers from it,
    now or, in a compiled function, as a run begins.
    """

    method: str
    args: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: dt.dtype
    order: tuple[int, ...] | None = None  # of dimensions in memory
    device: Device = CPU
    library = ""

    def compute(self, xp: Any) -> Any:
        """The next numbers, or those of the run."""
        return self.seed.take(self)  # type: ignore[attr-defined]

    def batch(self, size: int, flags: Any) -> Any:  # type: ignore[override]
        """The draw for all examples at once."""
        if self.method == "permutation":
            return FUNCTIONS["stack"]([apply(self) for _ in range(size)])
        return apply(replace(self, shape=(size, *self.shape), order=None))

    def on(self, twister: Any) -> Any:
        """The numbers from this generator."""
        return twister.draw(self.method, self.args, self.shape, self.dtype, self.order)


def memory_order(array: Any) -> tuple[int, ...] | None:
    """The dimensions by their steps in memory, the longest first; None for a row-major array."""
    if array.flags.c_contiguous:
        return None
    steps = [-abs(step) for step in array.strides]
    return tuple(sorted(range(array.ndim), key=steps.__getitem__))


class Once:
    """The seed of an op that draws from PyTorch's generator when it is computed, once."""

    def __init__(self, twister: Any) -> None:
        self.twister = twister
        self.done = False

    def take(self, op: Followed) -> Any:
        """The numbers of `op`."""
        self.done = True
        return op.on(self.twister)

    def poisson(self, rate: Any) -> Any:
        """Poisson-distributed numbers, as the method of NumPy's generators."""
        return self._rejecting("poisson", rate)

    def standard_gamma(self, shape: Any) -> Any:
        """Gamma-distributed numbers, as the method of NumPy's generators."""
        return self._rejecting("gamma", shape)

    def binomial(self, trials: Any, p: Any) -> Any:
        """Binomial numbers, as the method of NumPy's generators."""
        return self._rejecting("binomial", *np.broadcast_arrays(trials, p))

    def _rejecting(self, method: str, *parameters: Any) -> Any:
        self.done = True
        return self.twister.rejecting(method, *parameters)


def common_value(x: Any) -> float | None:
    """The value of all elements of an array that is one number or one that was expanded; else None.
    A generator takes one parameter, and a shape, in a tenth of the time of an array's.
    """
    if x.size == 1 or (x.size and not any(x.strides)):
        return float(x.item(0) if x.size == 1 else x[(0,) * x.ndim])
    return None


def each_of(draw: Any, x: Any) -> Any:
    """Draws of a generator's method, one for each parameter, in their order. A few are drawn one by
    one, in a fifth of the time that the method takes to look at an array.
    """
    if x.size > 8:
        return draw(x)
    return np.array([draw(a) for a in x.ravel().tolist()], np.float64).reshape(x.shape)


class OfParameter(Draw, abstract=True):
    """Base of draws whose parameter is an input."""

    differentiable = True

    def infer(self, spec: Spec) -> Spec:
        """The parameter's spec."""
        return spec


class ZeroGradient(OfParameter, abstract=True):
    """Base of those to whose parameter PyTorch gives a gradient of zero."""

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Zero: the value jumps or stays."""
        return (g.new_zeros(g.shape),)


def _parameter_samples(low: float, high: float) -> Any:
    def samples(cls: Any) -> Iterable[Sample]:
        values = np.linspace(low, high, 6).reshape(2, 3)
        for dtype in (dt.float64, dt.float32):
            yield Sample(cls(1, 2), (values.astype(dtype.numpy),), dtype.name)
        yield Sample(cls(1, 2), (np.array(high),), "0-d")
        yield Sample(cls(1, 2), (np.zeros((0, 3)),), "empty")
        yield Sample(cls(1, 2), (values.T,), "strided")

    return classmethod(samples)


class Bernoulli(ZeroGradient):
    """1 with the probability that the input gives, else 0."""

    samples = _parameter_samples(0.1, 0.9)
    core = (0,)

    def compute(self, xp: Any, x: Any) -> Any:
        """A uniform number below the probability."""
        chance = common_value(x)
        if chance is None or not 0 <= chance <= 1:
            assert_chances(x)
        drawn = xp.drawn_uniform(self.seed, self.draw, x.shape, np.float64)
        return (drawn < (x if chance is None else chance)).astype(x.dtype)

    def reference(self, x: Any) -> Any:
        """Reference values, computed one by one."""
        rng = self.fresh()
        return np.array([float(rng.random() < p) for p in x.ravel()]).reshape(x.shape)


class Poisson(ZeroGradient):
    """A whole number with the Poisson distribution whose rate the input gives."""

    samples = _parameter_samples(0.5, 20.0)
    core = (0,)

    def compute(self, xp: Any, x: Any) -> Any:
        """NumPy's sampler."""
        rate = common_value(x)
        least = rate if rate is not None else x.min() if x.size else 0
        if not least >= 0:
            raise InvalidArgument(
                f"poisson: invalid Poisson rate, expected rate to be non-negative, got {least}"
            )
        rng = self.rng(xp)
        if type(self.seed) is not int:
            return rng.poisson(x).astype(x.dtype)
        if rate is None:
            return np.asarray(each_of(rng.poisson, x)).astype(x.dtype)
        return rng.poisson(rate, x.shape).astype(x.dtype)

    def reference(self, x: Any) -> Any:
        """Reference values, computed one by one."""
        rng = self.fresh()
        return np.array([float(rng.poisson(rate)) for rate in x.ravel()]).reshape(x.shape)


def assert_weights(x: Any, count: int, replacement: bool) -> tuple[Any, Any]:
    """Rows of weights from which so many can be drawn, in float64, and their running totals."""
    rows = x.astype(np.float64).reshape(-1, x.shape[-1])
    totals = rows.cumsum(axis=1)
    last = totals[:, -1:]
    if rows.size and not (rows.min() >= 0 and rows.max() < np.inf):
        raise InvalidArgument(
            "multinomial: probability tensor contains either `inf`, `nan` or element < 0"
        )
    if not (last.size and last.all()) and len(rows):
        raise InvalidArgument(
            "multinomial: invalid multinomial distribution (sum of probabilities <= 0)"
        )
    if not replacement and ((rows > 0).sum(axis=1) < count).any():
        raise InvalidArgument(
            "multinomial: invalid multinomial distribution (with replacement=False, not enough "
            f"non-negative category to sample {count})"
        )
    return rows, totals


def assert_chances(x: Any) -> None:
    """Probabilities."""
    if x.size and not (x.min() >= 0 and x.max() <= 1):
        raise InvalidArgument(
            f"bernoulli: Expected p_in >= 0 && p_in <= 1, got values from {x.min()} to {x.max()}"
        )


@dataclass(eq=False, repr=False)
class Multinomial(Draw):
    """Indices drawn with probabilities in proportion to the input's rows."""

    count: int
    replacement: bool
    core = (1,)

    def infer(self, spec: Spec) -> Spec:
        """`count` indices for each row."""
        return spec.with_(shape=(*spec.shape[:-1], self.count), dtype=dt.int64)

    def compute(self, xp: Any, x: Any) -> Any:
        """Draws with replacement by the cumulated weights, without by racing exponential clocks."""
        if self.replacement and x.ndim == 1 and x.size:
            totals = np.add.accumulate(x, dtype=np.float64)
            last = totals[-1]
            if 0 < last < np.inf and np.minimum.reduce(x) >= 0:
                totals /= last
                points = xp.drawn_uniform(self.seed, self.draw, (self.count,), np.float64)
                return totals.searchsorted(points, "right")
        rows, totals = assert_weights(x, self.count, self.replacement)
        if self.replacement:
            totals /= totals[:, -1:]
            points = xp.drawn_uniform(self.seed, self.draw, (len(rows), self.count), np.float64)
            result = np.empty(points.shape, np.int64)
            for i, (edges, drawn) in enumerate(zip(totals, points, strict=True)):
                result[i] = edges.searchsorted(drawn, "right")
        else:
            clocks = xp.drawn_exponential(self.seed, self.draw, rows.shape, np.float64)
            with np.errstate(divide="ignore"):
                clocks /= rows
            result = np.argsort(clocks, axis=1, kind="stable")[:, : self.count].astype(np.int64)
        return result.reshape(*x.shape[:-1], self.count)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Vectors and matrices, with and without replacement, a weight of 0."""
        weights = np.array([[1.0, 0.0, 3.0, 2.0], [0.5, 0.5, 2.0, 1.0]])
        for replacement in (False, True):
            yield Sample(cls(1, 2, 3, replacement), (weights,), f"rows{replacement}")
            yield Sample(cls(1, 2, 2, replacement), (weights[0],), f"vector{replacement}")
        yield Sample(cls(1, 2, 9, True), (weights.astype(np.float32),), "float32")

    def reference(self, x: Any) -> Any:
        """Reference values, computed one by one."""
        rng = self.fresh()
        result: list[Any] = []
        for row in x.reshape(-1, x.shape[-1]).astype(np.float64):
            if self.replacement:
                edges = [sum(row[: i + 1]) / sum(row) for i in np.arange(len(row))]
                points = [rng.random() for _ in np.arange(self.count)]
                result.append([next(i for i, e in enumerate(edges) if p < e) for p in points])
            else:
                clocks = {i: rng.standard_exponential() for i in np.arange(len(row))}
                racing = [i for i in clocks if row[i] > 0]
                result.append(sorted(racing, key=lambda i: clocks[i] / row[i])[: self.count])
        return np.array(result).reshape(*x.shape[:-1], self.count)
