"""Scans: running sums, products and extrema; differences and the trapezoidal rule."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.device import is_device_array
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, run_known
from ...runtime.public import FUNCTIONS, explaining, public
from .. import return_types
from ..argument_dtypes import NUMBERS, assert_dtypes
from ..elementwise.pointwise import conj
from ..promotion import cast
from ..samples import COMPLEX, FLOATS, INTS, array, strided
from ..shape.sizes import hold_sizes
from .extrema import assert_comparable
from .reduction import shifted, wide

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, Number

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_trapezoid", "diff", "gradient",
    "logcumsumexp", "trapezoid", "trapz",
]  # fmt: skip


@dataclass(eq=False, repr=False)
class Scan(Op, abstract=True):
    """Base of ops whose output at each place along `axis` depends on the inputs up to there."""

    axis: int

    def infer(self, *specs: Spec) -> Spec:
        """The input's spec."""
        return specs[0]


def scan_samples(dtypes: tuple[dt.dtype, ...], inputs: int = 1) -> Any:
    """Samples of a scan with that many equal inputs: each axis and dtype, one element, empty."""

    def samples(cls: Any) -> Iterable[Sample]:
        first = dtypes[0]

        def several(shape: tuple[int, ...], dtype: dt.dtype = first) -> tuple[Any, ...]:
            return tuple(array(shape, dtype, seed=i) for i in range(inputs))

        for dtype in dtypes:
            yield Sample(cls(1), several((2, 5), dtype), dtype.name)
        for axis in range(3):
            yield Sample(cls(axis), several((2, 3, 4)), f"axis{axis}")
        yield Sample(cls(0), several((1,)), "one")
        yield Sample(cls(0), several((9,)), "1-d")
        yield Sample(cls(1), several((3, 0)), "empty")
        yield Sample(cls(1), several((0, 3)), "no-rows")
        yield Sample(cls(0), tuple(map(strided, several((3, 4)))), "strided")

    return classmethod(samples)


_WIDE = {"f": np.float64, "c": np.complex128}


def accumulate(ufunc: Any, x: Any, axis: int) -> Any:
    """`ufunc.accumulate` in double precision, since rounding errors add up along the axis.

    Wide tensors are accumulated row by row, which is several times faster.
    """
    wide_dtype = _WIDE.get(x.dtype.kind, x.dtype)
    n = x.shape[axis]
    if x.size < 64 * n or n < 2:
        wide_x = x.astype(wide_dtype, copy=False)
        return ufunc.accumulate(wide_x, axis=axis).astype(x.dtype, copy=False)
    rows = np.moveaxis(x, axis, 0).astype(wide_dtype, order="C")
    for before, row in itertools.pairwise(rows):
        ufunc(before, row, out=row)
    return np.moveaxis(rows, 0, axis).astype(x.dtype, order="C", copy=False)


def reference_scan(function: Callable[[Any], Any], x: Any, axis: int) -> Any:
    """`function` of every start of `x` along `axis`."""
    parts = [function(np.take(x, range(i + 1), axis)) for i in range(x.shape[axis])]
    return np.stack(parts, axis) if parts else x


@dataclass(eq=False, repr=False)
class CumSum(Scan):
    """Running sum along `axis`, from the end where `reverse`."""

    reverse: bool = False
    library = "moves"
    linear = True

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's accumulation."""
        if not is_device_array(x) and xp.moves:
            found = xp.accumulate_sum(x, self.axis, self.reverse)
            if found is not NotImplemented:
                return found
        if self.reverse:
            return xp.flip(accumulate(xp.add, xp.flip(x, self.axis), self.axis), self.axis)
        return accumulate(xp.add, x, self.axis)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The running sum from the other end."""
        return (apply(CumSum(self.axis, not self.reverse), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both directions."""
        yield from scan_samples((*FLOATS, *INTS, *COMPLEX)).__func__(cls)
        yield Sample(cls(1, True), (array((2, 3)),), "reverse")

    def reference(self, x: Any) -> Any:
        """Reference value by a triangle of ones."""
        n = x.shape[self.axis]
        ones = np.tril(np.ones((n, n), wide(x).dtype))
        rows = np.moveaxis(wide(x), self.axis, -1)
        return np.moveaxis(rows @ (ones if self.reverse else ones.T), -1, self.axis)


class CumProd(Scan):
    """Running product along `axis`."""

    samples = scan_samples((*FLOATS, *INTS, *COMPLEX))

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's accumulation."""
        return accumulate(xp.multiply, x, self.axis)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """The product before each element times the sum over all outputs from there on of g times
        the product in between: no division, so zeros are right, at every order.
        """
        x = conj(x)
        before = shifted(apply(self, x), self.axis, 1.0)
        return (before * backward_recurrence(x, g, self.axis),)

    def reference(self, x: Any) -> Any:
        """Reference value by products of every start."""
        return reference_scan(lambda part: np.prod(part, axis=self.axis), wide(x), self.axis)


class Recurrence(Scan):
    """y[k] = a[k] y[k-1] + b[k] along `axis`, starting with y[0] = b[0]."""

    needs = ("x1 y", "x1")
    samples = scan_samples((*FLOATS, *COMPLEX), inputs=2)

    def infer(self, *specs: Spec) -> Spec:
        """The spec that both have."""
        a, b = specs
        if a.shape != b.shape:
            raise ShapeError(f"recurrence: shapes {a.shape} and {b.shape} differ")
        return a

    def compute(self, xp: Any, a: Any, b: Any) -> Any:
        """A parallel scan in log2(n) steps, each of which joins every place's map with that of the
        places before it: (a, b) after (a', b') is (a a', a b' + b).
        """
        a = xp.moveaxis(xp.array(a), self.axis, -1)
        y = xp.moveaxis(xp.array(b), self.axis, -1)
        step, n = 1, y.shape[-1]
        while step < n:
            y[..., step:] += a[..., step:] * y[..., :-step].copy()
            a[..., step:] *= a[..., :-step].copy()
            step *= 2
        return xp.moveaxis(y, -1, self.axis)

    def gradient(self, g: Tensor, a: Tensor, y: Tensor) -> tuple[Any, ...]:
        """The recurrence backwards; each a gets that times the y before it."""
        back = backward_recurrence(conj(a), g, self.axis)
        return (lambda: back * conj(shifted(y, self.axis, 0.0)), back)

    def reference(self, a: Any, b: Any) -> Any:
        """Reference values, computed one place after the other."""
        rows = zip(*(np.moveaxis(wide(x), self.axis, 0) for x in (a, b)), strict=True)
        y: list[Any] = []
        for a_row, b_row in rows:
            y.append(a_row * y[-1] + b_row if y else b_row)
        return np.stack(y, self.axis) if y else wide(b)


def backward_recurrence(a: Any, g: Any, axis: int) -> Any:
    """r[k] = g[k] + a[k+1] r[k+1]: how cotangents of a recurrence with coefficients `a` flow."""
    later = shifted(a.flip(axis), axis, 0.0)
    return apply(Recurrence(axis), later, g.flip(axis)).flip(axis)


class LogCumSumExp(Scan):
    """Logarithm of the running sum of exponentials along `axis`."""

    samples = scan_samples(FLOATS)

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's accumulation."""
        return accumulate(xp.logaddexp, x, self.axis)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """The sum over outputs i >= k of g[i] exp(x[k] - y[i]), as a recurrence whose coefficients
        exp(y[k] - y[k+1]) lie between 0 and 1.
        """
        axis = self.axis
        y = y.clamp(min=dt.finfo(y.dtype).min)  # finite where x begins with -inf
        steps = (shifted(y, axis, 0.0) - y).clamp(max=0).exp()
        return ((x - y).exp() * backward_recurrence(steps, g, axis),)

    def reference(self, x: Any) -> Any:
        """Reference value by sums of every start."""
        function = lambda part: np.log(np.sum(np.exp(part), axis=self.axis))  # noqa: E731 - short
        return reference_scan(function, wide(x), self.axis)


class CumArg(Scan, abstract=True):
    """Base of the place of the extreme value so far: the last of several; the last NaN."""

    ufunc: ClassVar[str]

    def infer(self, *specs: Spec) -> Spec:
        """int64."""
        return specs[0].with_(dtype=dt.int64)

    def compute(self, xp: Any, x: Any) -> Any:
        """The last place at which the input equals the running extremum."""
        best = accumulate(getattr(xp, self.ufunc), x, self.axis)
        shape = [1] * x.ndim
        shape[self.axis] = x.shape[self.axis]
        places = xp.arange(x.shape[self.axis]).reshape(shape)
        reached = xp.where((x == best) | (x != x), places, 0)
        return accumulate(xp.maximum, reached, self.axis)

    def reference(self, x: Any) -> Any:
        """Reference value by looking at every start from its end."""
        function = np.argmax if self.ufunc == "maximum" else np.argmin

        def last(part: Any) -> Any:
            return part.shape[self.axis] - 1 - function(np.flip(part, self.axis), self.axis)

        found = reference_scan(last, np.asarray(wide(x)), self.axis)
        return found.astype(np.int64)


class CumArgmax(CumArg):
    """Place of the largest value so far along `axis`."""

    ufunc = "maximum"
    samples = scan_samples((*FLOATS, *INTS, dt.bool_))


class CumArgmin(CumArg):
    """Place of the smallest value so far along `axis`."""

    ufunc = "minimum"
    samples = scan_samples((*FLOATS, *INTS, dt.bool_))


# ---- public functions ----------------------------------------------------------------------------


def along(op: Any, input: Any, dim: Any, name: str) -> Any:
    """`op(axis)` applied to `input`, of which 0 dimensions count as one."""
    axis = normalize_axis(dim, input._data.ndim, name)
    if input._data.ndim:
        return apply(op(axis), input)
    return apply(op(axis), input.reshape((1,))).reshape(())


@public(inplace=True, out=True)
def cumsum(input: Tensor, dim: int, *, dtype: dt.dtype | None = None) -> Tensor:
    """The running sum along `dim`.

    Dtypes: bools and integers sum to int64; `dtype` converts first.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cumsum.html

    >>> ad.cumsum(ad.tensor([1., 2., 3.]), 0)
    tensor([1., 3., 6.])
    """
    result: Tensor | None = None
    if dtype is None and input._data.dtype.kind in "fc":
        result = run_known(_summing(dim, input._data.ndim), (input,))
    return along(CumSum, _accumulated(input, dtype), dim, "cumsum") if result is None else result


@functools.lru_cache(maxsize=256, typed=True)
def _summing(dim: int, ndim: int) -> CumSum:
    return CumSum(normalize_axis(dim, ndim, "cumsum"))


@public(inplace=True, out=True)
def cumprod(input: Tensor, dim: int, *, dtype: dt.dtype | None = None) -> Tensor:
    """The running product along `dim`.

    Dtypes: bools and integers multiply to int64; `dtype` converts first.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cumprod.html

    >>> ad.cumprod(ad.tensor([1., 2., 3.]), 0)
    tensor([1., 2., 6.])
    """
    return along(CumProd, _accumulated(input, dtype), dim, "cumprod")


def _accumulated(input: Any, dtype: dt.dtype | None) -> Any:
    if dtype is not None:
        return cast(input, dtype)
    return cast(input, dt.int64) if input._data.dtype.kind in "biu" else input


@public(out=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of exponentials along `dim`.

    Dtypes: floating point.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.logcumsumexp.html

    >>> ad.logcumsumexp(ad.zeros(3), 0)
    tensor([0.0000, 0.6931, 1.0986])
    """
    if input._data.dtype.kind in "biuc":
        raise DTypeError(
            f"logcumsumexp(): expected a floating-point dtype, got {input.dtype}; convert with "
            ".float()"
        )
    return along(LogCumSumExp, input, dim, "logcumsumexp")


@public(out=True)
def cummax(input: Tensor, dim: int) -> return_types.cummax:
    """The largest value so far along `dim`, and where it was (the last of several).

    Errors: IndexingError for a dim out of range; DTypeError for complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cummax.html

    >>> values, indices = ad.cummax(ad.tensor([1., 3., 2.]), 0)
    >>> values, indices
    (tensor([1., 3., 3.]), tensor([0, 1, 1]))
    """
    return _cumulative_extremum(CumArgmax, "cummax", input, dim)


@public(out=True)
def cummin(input: Tensor, dim: int) -> return_types.cummin:
    """The smallest value so far along `dim`, and where it was (the last of several).

    Errors: IndexingError for a dim out of range; DTypeError for complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cummin.html

    >>> values, indices = ad.cummin(ad.tensor([3., 1., 2.]), 0)
    >>> values, indices
    (tensor([3., 1., 1.]), tensor([0, 1, 1]))
    """
    return _cumulative_extremum(CumArgmin, "cummin", input, dim)


def _cumulative_extremum(op: Any, name: str, input: Any, dim: Any) -> Any:
    if input._data.size:
        assert_comparable(input, name, dim)
    indices = along(op, input, dim, name)
    return getattr(return_types, name)(input.gather(dim, indices), indices)


@public(out=True)
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of neighbours along `dim`, taken `n` times.

    Shapes: `dim` shrinks by `n` (to no less than 0); `prepend` and `append` are joined first.
    Dtypes: the input's; bools give where neighbours differ.
    Errors: ShapeError for a 0-d tensor; InvalidArgument for a negative `n`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.diff.html

    >>> ad.diff(ad.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    if not input._data.ndim:
        raise ShapeError("diff: diff expects input to be at least one-dimensional, got shape ()")
    if n < 0:
        raise InvalidArgument(f"diff: order must be non-negative but got {n}")
    axis = normalize_axis(dim, input._data.ndim, "diff")
    parts = [part for part in (prepend, input, append) if part is not None] if n else []
    x: Any = FUNCTIONS["cat"](parts, axis) if len(parts) > 1 else input
    x = hold_sizes("diff", x, dims=(axis,)) if n else x
    for _ in range(min(n, x.shape[axis])):
        size = x.shape[axis] - 1
        after, before = x.narrow(axis, 1, size), x.narrow(axis, 0, size)
        x = after != before if x.dtype is dt.bool_ else after - before
    return x


@explaining
@public(method=False)
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Dims | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Estimates of the derivatives along `dim` (all dimensions without) from neighbours.

    `spacing` is the distance of neighbours (one number, or one for each dimension) or the
    coordinates (one tensor for each dimension). Inside, the estimate is exact for polynomials of
    degree 2; at the ends, for those of degree `edge_order`.

    Errors: InvalidArgument for another `edge_order` than 1 or 2; ShapeError for too few elements
    or where `spacing` does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.gradient.html

    >>> ad.gradient(ad.tensor([1., 4., 9., 16.]))
    (tensor([3., 4., 6., 7.]),)
    """
    if edge_order not in (1, 2):
        raise InvalidArgument(
            f"gradient: only supports edge_order=1 and edge_order=2, got {edge_order}"
        )
    ndim = input.ndim
    dims = range(ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    axes = [normalize_axis(d, ndim, "gradient") for d in dims]
    given = [1] * len(axes) if spacing is None else spacing
    if not isinstance(given, (tuple, list)):
        given = [given] * len(axes)
    if len(given) != len(axes):
        raise ShapeError(
            f"gradient: expected spacing to be unspecified, a scalar or one entry for each of the "
            f"{len(axes)} dimensions, got {len(given)}"
        )
    x: Any = cast(input, dt.get_default_dtype()) if input.dtype.category < 2 else input
    x = hold_sizes("gradient", x, dims=axes)
    return tuple(_slopes(x, a, s, edge_order) for a, s in zip(axes, given, strict=True))


def _slopes(x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    """The derivative along one axis from neighbours `spacing` apart, or at these places."""
    size = x.shape[axis]
    if size <= edge_order:
        raise ShapeError(
            f"gradient: expected each dimension size to be at least edge_order+1, got {size} "
            f"elements for edge_order={edge_order}"
        )

    def at(start: int, length: int) -> Any:
        return x.narrow(axis, start, length)

    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    if isinstance(spacing, TensorBase) and spacing._data.ndim:
        if tuple(spacing.shape) != (size,):
            raise ShapeError(
                f"gradient: expected one coordinate for each of {size} elements, got shape "
                f"{tuple(spacing.shape)}"
            )
        steps = diff(spacing).reshape(shape)
        left, right = steps.narrow(axis, 0, size - 2), steps.narrow(axis, 1, size - 2)
        first, second = steps.narrow(axis, 0, 1), steps.narrow(axis, min(1, size - 2), 1)
        last, before = steps.narrow(axis, size - 2, 1), steps.narrow(axis, max(size - 3, 0), 1)
    else:
        left = right = first = second = last = before = spacing
    after, here, earlier = at(min(2, size), size - 2), at(1, size - 2), at(0, size - 2)
    inner = (
        after * (left / (right * (left + right)))
        + here * ((right - left) / (left * right))
        - earlier * (right / (left * (left + right)))
    )
    if edge_order == 1:
        start = (at(1, 1) - at(0, 1)) / first
        end = (at(size - 1, 1) - at(size - 2, 1)) / last
    else:
        start = _edge(at(0, 1), at(1, 1), at(2, 1), first, second)
        end = -_edge(at(size - 1, 1), at(size - 2, 1), at(size - 3, 1), last, before)
    return FUNCTIONS["cat"]([start, inner, end], axis)


def _edge(x0: Any, x1: Any, x2: Any, near: Any, far: Any) -> Any:
    """The slope at x0 of the parabola through three values, `near` and `far` apart."""
    return (
        x0 * (-(2 * near + far) / (near * (near + far)))
        + x1 * ((near + far) / (near * far))
        - x2 * (near / (far * (near + far)))
    )


@public(method=False)
def trapezoid(y: Tensor, x: Any = None, *, dx: Number | None = None, dim: int = -1) -> Tensor:
    """The integral of `y` along `dim` by the trapezoidal rule, at places `x` or `dx` apart.

    Shapes: `x` has the shape of `y`, or is 1-d of its size along `dim`.
    Errors: ShapeError where it does not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.trapezoid.html

    >>> ad.trapezoid(ad.tensor([1., 5., 10.]))
    tensor(10.5000)
    """
    return _trapezoids("trapezoid", y, x, dx, dim).sum(dim)


trapz = trapezoid


@public(method=False)
def cumulative_trapezoid(
    y: Tensor, x: Any = None, *, dx: Number | None = None, dim: int = -1
) -> Tensor:
    """The running integral of `y` along `dim` by the trapezoidal rule.

    Shapes: as in `trapezoid`; the result is one shorter along `dim`.
    Errors: ShapeError where `x` does not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cumulative_trapezoid.html

    >>> ad.cumulative_trapezoid(ad.tensor([1., 5., 10.]))
    tensor([ 3.0000, 10.5000])
    """
    return _trapezoids("cumulative_trapezoid", y, x, dx, dim).cumsum(dim)


def _trapezoids(name: str, y: Any, x: Any, dx: Any, dim: int) -> Any:
    """The area between each pair of neighbours."""
    assert_dtypes(name, NUMBERS, y=y, x=x)
    y = hold_sizes("trapezoid", y)
    axis = normalize_axis(dim, y._data.ndim, name)
    size = y.shape[axis]
    if size < 2:
        pairs = y.narrow(axis, 0, 0)
        return pairs if pairs.dtype.category >= 2 else cast(pairs, dt.get_default_dtype())
    pairs = (y.narrow(axis, 1, size - 1) + y.narrow(axis, 0, size - 1)) / 2
    if x is None:
        return pairs if dx is None else pairs * dx
    if dx is not None:
        raise InvalidArgument(f"{name}: give x or dx, not both")
    places = x
    if x._data.ndim == 1 and y._data.ndim > 1:
        places = x.reshape(tuple(-1 if i == axis else 1 for i in range(y._data.ndim)))
    if places.shape[dim] != size:
        raise ShapeError(
            f"{name}: There must be one `x` value for each sample point, got shapes "
            f"{tuple(y.shape)} and {tuple(x.shape)}"
        )
    return pairs * diff(places, dim=dim)
