"""softmax, log_softmax and softmin: one dimension turned into a distribution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.op import Op, Sample
from ...core.spec import Spec, normalize_axis
from ...core.tensor_type import Tensor
from ...runtime.fused import checking, fused
from ...runtime.public import public
from ..elementwise.functions import exp
from ..elementwise.pointwise import FLOATING, assert_kind
from ..promotion import cast
from ..samples import FLOATS, array, each_dtype, strided


def assert_dtype(name: str, x: Any, kinds: str = FLOATING) -> None:
    """Refuse arguments that are not tensors of one of `kinds`."""
    assert_tensor(name, x)
    assert_kind(name, x.dtype, kinds)


def wide(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32: each of several steps in them would round or overflow."""
    return cast(x, dt.float32) if x.dtype in dt.LOW_PRECISION else x


def _softmax_samples(cls: Any) -> Iterable[Sample]:
    yield from each_dtype(cls((1,)), FLOATS, (3, 4))
    yield Sample(cls((0,)), (array((3, 4)),), "first")
    yield Sample(cls((1,)), (array((2, 3, 2)),), "middle")
    yield Sample(cls((1,)), (strided(array((3, 4))),), "strided")
    yield Sample(cls(()), (array(()),), "0-d")
    yield Sample(cls((1,)), (np.zeros((0, 3)),), "no-rows")
    yield Sample(cls((1,)), (np.zeros((3, 0)),), "empty-rows")
    inf, nan = np.inf, np.nan
    rows = np.array([[-inf, 0, 1], [-inf, -inf, -inf], [inf, 0, 1], [nan, 0, 1], [1e4, -1e4, 0]])
    yield Sample(cls((1,)), (rows,), "special", gradients=False)


@fused
def _softmax_gradient(g: Tensor, y: Tensor, axes: tuple[int, ...]) -> Tensor:
    wide_y = wide(y)
    gy = wide(g) * wide_y
    return cast(gy - wide_y * gy.sum(dim=axes, keepdim=True), y.dtype)


@fused
def _log_softmax_gradient(g: Tensor, y: Tensor, axes: tuple[int, ...]) -> Tensor:
    wide_g = wide(g)
    return cast(wide_g - exp(wide(y)) * wide_g.sum(dim=axes, keepdim=True), y.dtype)


@dataclass(eq=False, repr=False)
class _Normalised(Op, abstract=True):
    """The base of both: along `axes` (one axis; none for a 0-d tensor)."""

    axes: tuple[int, ...]
    slope = staticmethod(_softmax_gradient)  # y (g - sum of g y)
    samples = classmethod(_softmax_samples)

    def infer(self, spec: Spec) -> Spec:
        """The input's spec."""
        return spec

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """The slope; zero for a 0-d tensor, whose only element is constant."""
        return (self.slope(g, y, self.axes) if self.axes else g * 0,)


class Softmax(_Normalised):
    """exp(x) / sum of exp(x) over `axes` (one axis; none for a 0-d tensor).

    A primitive because the gradient reads only the output, where the composition keeps three
    tensors.
    """

    def compute(self, xp: Any, x: Any) -> Any:
        """Relative to the largest value: exp cannot overflow."""
        e = _shifted(xp, x, self.axes)
        xp.exp(e, out=e)
        e /= xp.sum(e, axis=self.axes, keepdims=True)
        return e

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """SciPy's softmax."""
        import scipy.special

        x = np.asarray(x, np.float64)
        return scipy.special.softmax(x, axis=self.axes) if x.size else x


class LogSoftmax(_Normalised):
    """x - log of the sum of exp(x) over `axes` (one axis; none for a 0-d tensor).

    A primitive because log(softmax(x)) underflows, and the gradient reads only the output.
    """

    def compute(self, xp: Any, x: Any) -> Any:
        """Relative to the largest value: exp cannot overflow."""
        y = _shifted(xp, x, self.axes)
        y -= xp.log(xp.sum(xp.exp(y), axis=self.axes, keepdims=True))
        return y

    slope = staticmethod(_log_softmax_gradient)  # g - exp(y) sum of g

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by SciPy's logsumexp."""
        import scipy.special

        x = np.asarray(x, np.float64)
        if not x.size or not self.axes:
            return x * 0
        total = scipy.special.logsumexp(x, axis=self.axes, keepdims=True)
        return x - np.where(np.isinf(total), np.nan, total)


def _shifted(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """x minus its largest value along `axes`, in new memory."""
    if 0 in x.shape:
        return xp.zeros_like(x)
    return xp.asarray(x - xp.max(x, axis=axes, keepdims=True))


def normalised(op: Any, name: str, input: Tensor, dim: int, dtype: dt.dtype | None) -> Any:
    """Check the arguments of a function; the op and its input."""
    assert_tensor(name, input)
    if dtype is not None:
        input = cast(input, dt.as_dtype(dtype))
    assert_dtype(name, input)
    axis = normalize_axis(dim, input._data.ndim, name)
    return op.of((axis,) if input._data.ndim else ()), input


@public(out=True)
@checking
def softmax(input: Tensor, dim: int, dtype: dt.dtype | None = None) -> Any:
    """exp(input) / sum of exp(input) over `dim`: positive numbers that sum to 1.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point; `dtype` converts first.
    Errors: IndexingError for a dim out of range; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html

    >>> ad.softmax(ad.tensor([0., 1.]), dim=0)
    tensor([0.2689, 0.7311])
    """
    return normalised(Softmax, "softmax", input, dim, dtype)


@public(out=True)
@checking
def log_softmax(input: Tensor, dim: int, dtype: dt.dtype | None = None) -> Any:
    """log(softmax(input)), without underflow.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point; `dtype` converts first.
    Errors: IndexingError for a dim out of range; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.log_softmax.html

    >>> ad.log_softmax(ad.tensor([0., 1.]), dim=0)
    tensor([-1.3133, -0.3133])
    """
    return normalised(LogSoftmax, "log_softmax", input, dim, dtype)


@public(method=False)
@checking
def softmin(input: Tensor, dim: int, dtype: dt.dtype | None = None) -> Any:
    """softmax(-input).

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point; `dtype` converts first.
    Errors: IndexingError for a dim out of range; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmin.html

    >>> ad.softmin(ad.tensor([0., 1.]), dim=0)
    tensor([0.7311, 0.2689])
    """
    assert_tensor("softmin", input)
    return normalised(Softmax, "softmin", -input, dim, dtype)
