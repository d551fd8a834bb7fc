"""Statistics: variances, norms, covariances."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, InvalidType, ShapeError
from ...core.op import Sample
from ...core.spec import Spec, normalize_axes, normalize_axis
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS, explaining, public
from ..argument_dtypes import FLOATING, INTEGERS, NUMBERS, assert_dtypes
from ..elementwise.pointwise import conj
from ..promotion import cast, number
from ..samples import COMPLEX, FLOATS, array, each_dtype, strided
from ..shape.sizes import hold_sizes
from .extrema import share_evenly
from .reduction import Reduction, wide

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, Number

__all__ = ["corrcoef", "cov", "dist", "norm", "renorm", "std", "std_mean", "var", "var_mean"]


# ---- variance ------------------------------------------------------------------------------------


class OfSquares(Reduction, abstract=True):
    """Base of reductions to a sum of squares, which is one of float64: the square of a number that
    float32 holds may be one that it does not hold.
    """

    @staticmethod
    def widened(x: Any) -> Any:
        """float32 as float64, complex64 as complex128."""
        if x.dtype.itemsize == 8 and x.dtype.kind == "c":
            return x.astype(np.complex128)
        return x.astype(np.float64) if x.dtype == np.float32 else x

    @staticmethod
    def narrowed(y: Any, x: Any) -> Any:
        """A real result in the precision of `x`."""
        return y.astype(np.float32) if x.dtype in (np.float32, np.complex64) else y

    def squares(self, xp: Any, x: Any) -> Any:
        """The sum of the squared sizes of the elements over the axes."""
        axes = self.axes
        rest = x.ndim - len(axes)
        last = axes and axes[0] == rest
        if last and type(x) is np.ndarray:  # a dot product of rows needs no extra array
            rows = x.reshape((*x.shape[:rest], self.size(x.shape)))
            total = xp.vecdot(rows, rows)
            total = total.real if x.dtype.kind == "c" else total
            return xp.expand_dims(total, axes) if self.keepdims else total
        square = x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
        return xp.add.reduce(square, axes, square.dtype, None, self.keepdims)


@dataclass(eq=False, repr=False)
class VarMean(OfSquares):
    """Variance over `axes` (its square root where `root`) and mean."""

    correction: float = 1
    root: bool = False
    n_outputs = 2

    def infer(self, spec: Spec) -> Any:
        """The variance is real."""
        mean = super().infer(spec)
        return mean.with_(dtype=spec.dtype.to_real()), mean

    def compute(self, xp: Any, x: Any) -> Any:
        """The mean, then the squares of the differences from it."""
        n = self.size(x.shape)
        given, x = x, self.widened(x)
        mean = xp.add.reduce(x, self.axes, x.dtype, None, True) / n
        variance = self.squares(xp, x - mean) / max(n - self.correction, 0)
        if not self.keepdims:
            mean = xp.squeeze(mean, self.axes)
        spread = xp.sqrt(variance) if self.root else variance
        return self.narrowed(spread, given), mean.astype(given.dtype)

    def output_again(self, x: Any) -> Any:
        """Variance and mean."""
        return apply(self, x)

    def gradient(self, g: Any, x: Tensor, y: Any) -> tuple[Any, ...]:
        """2 (x - mean) / (n - correction), and an equal share for the mean."""
        spread, mean = (self.restore(each, x.shape) for each in y)
        n = self.size(x.shape)
        total: Any = None
        if g[0] is not None:
            apart: Any = x - mean
            if self.root:  # a ratio, which stays in range
                apart = (apart / spread).masked_fill(spread == 0, 0)
            freedom = max(n - self.correction, 0)
            scale = (1 if self.root else 2) / freedom if freedom else math.inf
            total = apart * (self.restore(g[0], x.shape) * scale)
        if g[1] is not None:
            share = self.restore(g[1] / n, x.shape).expand(x.shape)
            total = share if total is None else total + share
        return (total,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Variances and deviations, of several axes and dtypes, with other corrections."""
        for dtype in (*FLOATS, *COMPLEX):
            yield Sample(cls((1,)), (array((3, 4), dtype),), dtype.name)
            yield Sample(cls((1,), root=True), (array((3, 4), dtype),), f"root-{dtype.name}")
        for axes in ((0,), (0, 2), (0, 1, 2)):
            for keepdims in (False, True):
                yield Sample(cls(axes, keepdims, 0), (array((2, 3, 2)),), f"axes{axes}{keepdims}")
        yield Sample(cls((0,), root=True), (strided(array((3, 4))),), "strided")
        yield Sample(cls((), correction=0), (array(()),), "0-d", gradients=False)
        yield Sample(cls((1,)), (array((0, 3)),), "empty")
        yield Sample(cls((1,)), (array((3, 1)),), "one-element", gradients=False)

    def reference(self, x: Any) -> Any:
        """NumPy's, in float64."""
        options: Any = {"axis": self.axes, "keepdims": self.keepdims}
        n = self.size(x.shape)
        with np.errstate(all="ignore"):
            second = np.mean(np.abs(wide(x)) ** 2, **options)
            first = np.mean(wide(x), **options)
            variance = (second - np.abs(first) ** 2) * (np.float64(n) / max(n - self.correction, 0))
        return (np.sqrt(variance) if self.root else variance), first


def _var_mean(
    name: str, input: Any, dim: Any, unbiased: Any, keepdim: bool, correction: Any, root: bool
) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        if correction is not None:
            raise InvalidType(f"{name}: give unbiased or correction, not both")
        correction = 1 if unbiased else 0
    if input._data.dtype.kind in "biu":
        raise DTypeError(
            f"{name}: std and var only support floating point and complex dtypes, got "
            f"{input.dtype}; convert with .float()"
        )
    if isinstance(dim, list):
        dim = tuple(dim)
    return apply(_var_mean_op(name, dim, input._data.ndim, keepdim, correction, root), input)


@lru_cache(maxsize=4096, typed=True)
def _var_mean_op(
    name: str, dim: Any, ndim: int, keepdim: bool, correction: Any, root: bool
) -> VarMean:
    correction = 1 if correction is None else correction
    return VarMean(normalize_axes(dim, ndim, name), bool(keepdim), correction, root)


@public(out=True)
def var(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The variance over `dim` (an int, several, or all where None): the sum of the squared
    differences from the mean, divided by the number of elements less `correction` (1 by default).

    Dtypes: floating point and complex; the result is real.
    Errors: DTypeError for integers; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.var.html

    >>> ad.var(ad.tensor([1., 2., 3.])), ad.var(ad.tensor([1., 3.]), correction=0)
    (tensor(1.), tensor(1.))
    """
    return _var_mean("var", input, dim, unbiased, keepdim, correction, False)[0]


@public(out=True)
def std(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The standard deviation over `dim` (an int, several, or all where None): the root of `var`.

    The gradient of a deviation of 0 is 0.

    Dtypes: floating point and complex; the result is real.
    Errors: DTypeError for integers; IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.std.html

    >>> ad.std(ad.tensor([1., 3., 5.]))
    tensor(2.)
    """
    return _var_mean("std", input, dim, unbiased, keepdim, correction, True)[0]


@public(method=False, out=True)
def var_mean(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The variance and the mean over `dim`; see `var`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.var_mean.html

    >>> ad.var_mean(ad.tensor([1., 2., 3.]))
    (tensor(1.), tensor(2.))
    """
    return _var_mean("var_mean", input, dim, unbiased, keepdim, correction, False)


@public(method=False, out=True)
def std_mean(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean over `dim`; see `std`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.std_mean.html

    >>> ad.std_mean(ad.tensor([1., 3., 5.]))
    (tensor(2.), tensor(3.))
    """
    return _var_mean("std_mean", input, dim, unbiased, keepdim, correction, True)


# ---- norms ---------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Norm(OfSquares):
    """The `p`-norm of the elements over `axes`."""

    p: float = 2.0

    def infer(self, spec: Spec) -> Spec:
        """Real."""
        if (self.p < 0 or self.p == math.inf) and self.size(spec.shape) == 0:
            raise ShapeError(
                f"linalg.vector_norm cannot compute the {self.p} norm on an empty tensor because "
                f"the operation does not have an identity (shape {spec.shape}, dim {self.axes})"
            )
        return super().infer(spec).with_(dtype=spec.dtype.to_real())

    def compute(self, xp: Any, x: Any) -> Any:
        """Norm by the cheapest formula for each p."""
        p, options = self.p, {"axis": self.axes, "keepdims": self.keepdims}
        if p == 2:
            return self.narrowed(xp.sqrt(self.squares(xp, self.widened(x))), x)
        if p == 0:
            real = xp.abs(x[:0]).dtype if x.ndim else xp.abs(x).dtype
            return xp.asarray(xp.sum(x != 0, **options)).astype(real)
        size = xp.abs(x if abs(p) in (1, math.inf) else self.widened(x))
        if p == 1:
            return xp.add.reduce(size, **options)
        if p == math.inf:
            return xp.maximum.reduce(size, **options)
        if p == -math.inf:
            return xp.minimum.reduce(size, **options)
        return self.narrowed(xp.add.reduce(size**p, **options) ** (1 / p), x)

    def gradient(self, g: Any, x: Any, y: Any) -> tuple[Any, ...]:
        """0 where the norm has a corner: at zero; equal shares of equal extremes."""
        p, z = self.p, self.restore(y, x.shape)
        slope: Any = self.restore(g, x.shape)
        if p == 0:
            return (None,)
        if p == 1:
            return (x.sgn() * slope,)
        if p == 2:
            return (slope * (x / z).masked_fill(z == 0, 0),)
        size = x.abs()
        if abs(p) == math.inf:
            return (x.sgn() * share_evenly(slope, size, z, self.axes),)
        if 1 < p < 2:  # powers of less than one stay in range
            power = (size ** (p - 1) / z ** (p - 1)).masked_fill(z == 0, 0)
            return (x.sgn() * power * slope,)
        ratio = size / z  # so do powers of it
        if p < 1:
            return (x.sgn() * (ratio ** (p - 1)).masked_fill(x == 0, 0) * slope,)
        return ((x / z * ratio ** (p - 2)).masked_fill(z == 0, 0) * slope,)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Every kind of p, several axes and dtypes."""
        for p in (2.0, 1.0, 0.0, 3.0, 1.5, 0.5, -1.0, math.inf, -math.inf):
            yield Sample(cls((1,), False, p), (array((3, 4)),), f"p{p}")
            yield Sample(cls((1,), False, p), (array((3, 4), dt.complex128),), f"complex-p{p}")
            yield Sample(cls((0, 2), True, p), (array((2, 3, 2)),), f"keepdims-p{p}")
        yield from each_dtype(cls((0,)), (*FLOATS, *COMPLEX), (3, 4))
        yield Sample(cls((0,)), (strided(array((3, 4))),), "strided")
        yield Sample(cls(()), (array(()),), "0-d")
        yield Sample(cls((1,)), (array((0, 3)),), "empty")
        yield Sample(cls((1,)), (array((2, 0)),), "no-elements", gradients=False)

    def reference(self, x: Any) -> Any:
        """NumPy's vector norm."""
        rest = tuple(a for a in range(x.ndim) if a not in self.axes)
        n = self.size(x.shape)
        rows = np.transpose(wide(x), rest + self.axes)
        rows = rows.reshape((*rows.shape[: len(rest)], n))
        found = np.linalg.norm(rows, ord=self.p, axis=-1)
        return np.expand_dims(found, self.axes) if self.keepdims else found


@public(out=True)
def norm(
    input: Tensor,
    p: Number | str = "fro",
    dim: Dims | None = None,
    keepdim: bool = False,
    dtype: dt.dtype | None = None,
) -> Tensor:
    """The `p`-norm over `dim` (an int, several, or all where None): "fro" is 2, "nuc" the sum of
    the singular values, any number that of the vector of elements.

    Dtypes: floating point and complex; the result is real; `dtype` converts first.
    Errors: DTypeError for integers; ShapeError for norms that no elements have not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.norm.html

    >>> ad.norm(ad.tensor([3., 4.])), ad.norm(ad.tensor([3., -4.]), p=float("inf"))
    (tensor(5.), tensor(4.))
    """
    if dtype is not None:
        input = cast(input, dtype)
    if input._data.dtype.kind in "biu":
        raise DTypeError(
            "norm: linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{input.dtype}; convert with .float()"
        )
    if p == "nuc":
        result: Tensor = _nuclear_norm(input, dim, keepdim)
    elif p in (None, "fro") or (isinstance(p, (int, float)) and not isinstance(p, bool)):
        axes = normalize_axes(dim, input._data.ndim, "norm")
        op = Norm.of(axes, bool(keepdim), 2.0 if p in (None, "fro") else number(p, dt.float64))
        if not input._data.size:
            op.infer(input.spec)
        result = apply(op, input)
    else:
        raise InvalidArgument(f"norm: p must be a number, 'fro' or 'nuc', got {p!r}")
    return result


def _nuclear_norm(input: Any, dim: Any, keepdim: bool) -> Any:
    ndim = input._data.ndim
    axes = (
        tuple(range(ndim)) if dim is None else tuple(normalize_axis(d, ndim, "norm") for d in dim)
    )
    if len(axes) != 2:
        raise ShapeError(f"norm: the nuclear norm needs 2 dimensions, got dim {axes}")
    values = FUNCTIONS["svd"](input.movedim(axes, (-2, -1)))[1].sum(-1)
    if not keepdim:
        return values
    for axis in sorted(axes):
        values = values.unsqueeze(axis)
    return values


@public()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The `p`-norm of the difference.

    Shapes: `input` and `other` broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.dist.html

    >>> ad.dist(ad.tensor([1., 2.]), ad.tensor([4., 6.]))
    tensor(5.)
    """
    return norm(input - other, p)


@public(inplace=True, out=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices along `dim`, those with a larger `p`-norm scaled down to `maxnorm`.

    Errors: ShapeError for fewer than 2 dimensions; InvalidArgument for a negative `maxnorm` or a
    `p` that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.renorm.html

    >>> ad.renorm(ad.tensor([[3., 4.], [0., 1.]]), 2, 0, 1.)
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    ndim = input._data.ndim
    if ndim < 2:
        raise ShapeError(f"renorm: input needs at least 2 dimensions, got {ndim} dimensions")
    if p <= 0 or maxnorm < 0:
        raise InvalidArgument(
            f"renorm: p must be positive and maxnorm not negative, got p {p} and maxnorm {maxnorm}"
        )
    axis = normalize_axis(dim, ndim, "renorm")
    size: Any = norm(input, p, tuple(a for a in range(ndim) if a != axis), True)
    return input * (maxnorm / (size + 1e-7)).masked_fill(size <= maxnorm, 1)


# ---- covariance ----------------------------------------------------------------------------------


@explaining
@public()
def cov(
    input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Tensor:
    """The covariances of the rows, each of which holds the observations of one variable.

    Shapes: (variables, observations) or (observations,); weights have one entry per observation.
    Errors: ShapeError for more dimensions, or weights that do not fit.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cov.html

    >>> ad.cov(ad.tensor([[0., 1., 2.], [2., 1., 0.]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input._data.ndim > 2:
        raise ShapeError(
            f"cov(): expected input to have two or fewer dimensions but got shape "
            f"{tuple(input.shape)}"
        )
    assert_dtypes("cov", NUMBERS, input=input)
    assert_dtypes("cov", INTEGERS, fweights=fweights)
    assert_dtypes("cov", FLOATING, aweights=aweights)
    x: Any = input.reshape((1, -1)) if input._data.ndim < 2 else input
    if x._data.dtype.kind in "iu":
        x = cast(x, dt.get_default_dtype())
    x = hold_sizes("cov", x)
    count = x.shape[1]
    weights: Any = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given._data.ndim > 1 or given._data.size != count:
            raise ShapeError(
                f"cov(): expected {name} to have one entry for each of {count} observations, got "
                f"shape {tuple(given.shape)}"
            )
        weights = given if weights is None else weights * given
    total: Any = count if weights is None else weights.sum()
    weighted = x if weights is None else x * weights
    rest = x - weighted.sum(1, True) / total
    if weights is None:
        freedom: Any = max(count - correction, 0)
    elif aweights is None:
        freedom = (total - correction).clamp(min=0)
    else:
        freedom = (total - correction * (weights * aweights).sum() / total).clamp(min=0)
    product = (rest if weights is None else rest * weights) @ conj(rest).mT
    result: Tensor = product / freedom
    return result.reshape(()) if x.shape[0] == 1 else result


@explaining
@public()
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of the rows, each of which holds one variable's observations.

    Shapes: (variables, observations) or (observations,).
    Errors: ShapeError for more dimensions.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.corrcoef.html

    >>> ad.corrcoef(ad.tensor([[0., 1., 2.], [2., 1., 0.]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    covariance: Any = cov(input)
    if covariance._data.ndim == 0:
        return covariance / covariance
    deviation = covariance.diagonal().real.sqrt()
    ratio = covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    return ratio if ratio.dtype.is_complex else ratio.clamp(-1, 1)
