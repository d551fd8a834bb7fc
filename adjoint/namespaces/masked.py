"""Reductions and normalizations that leave elements out, named as in `torch.masked`.

`mask` is true for the elements that take part, and broadcasts to `input`; None lets all take part.
A result of no elements is the reduction's identity (0 for `sum`, -inf for `amax`), or NaN where it
has none.

Source: https://docs.pytorch.org/docs/stable/masked.html

>>> x = ad.tensor([[-3., -2., -1.], [0., 1., 2.]])
>>> mask = ad.tensor([[True, False, True], [False, False, False]])
>>> ad.masked.sum(x, 1, mask=mask)
tensor([-4.,  0.])
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..core import dtype as dt
from ..core.errors import DTypeError, InvalidArgument, ShapeError
from ..core.spec import normalize_axes, normalize_axis
from ..ops.argument_dtypes import NUMBERS, REAL_NUMBERS, assert_dtypes
from ..ops.elementwise.comparison import maximum, where
from ..ops.linalg.norms import vector_norm
from ..ops.nn.softmax import log_softmax as _log_softmax
from ..ops.nn.softmax import softmax as _softmax
from ..ops.promotion import cast
from ..ops.shape.sizes import hold_sizes
from ..ops.special.special import logaddexp as _logaddexp

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
]  # fmt: skip


# ---- what masked-out elements become -------------------------------------------------------------


def _lowest(d: dt.dtype) -> Any:
    return -math.inf if d.category >= 2 else 0 if d is dt.bool_ else dt.iinfo(d).min


def _highest(d: dt.dtype) -> Any:
    return math.inf if d.category >= 2 else 1 if d is dt.bool_ else dt.iinfo(d).max


def _full_mask(input: Tensor, mask: Tensor, name: str) -> Tensor:
    """`mask` as bools of the shape of `input`."""
    if mask.ndim > input.ndim:
        raise ShapeError(
            f"masked.{name}: expected broadcastable mask (got mask dimensionality higher than of "
            f"the input): {tuple(mask.shape)} for {tuple(input.shape)}"
        )
    return hold_sizes(f"masked.{name}", cast(mask, dt.bool_).expand(input.shape), input)


def _filled(input: Tensor, mask: Tensor | None, value: Any, name: str) -> Any:
    """`input` with masked-out elements replaced by `value`."""
    if mask is None:
        return input
    fill = input.new_full((), value)
    return where(_full_mask(input, mask, name), input, fill)


def _axes(input: Tensor, dim: Any, name: str) -> tuple[int, ...]:
    return normalize_axes(None if dim == () else dim, input.ndim, f"masked.{name}")


def _sum_dtype(input: Tensor, dtype: Any) -> dt.dtype:
    if dtype is not None:
        return dt.as_dtype(dtype)
    return dt.int64 if input.dtype.category < 2 else input.dtype


def _of(input: Tensor, dtype: Any) -> dt.dtype:
    return input.dtype if dtype is None else dt.as_dtype(dtype)


# ---- reductions ----------------------------------------------------------------------------------


def sum(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The sum of the elements that take part, over `dim` (all dimensions without).

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.sum(ad.tensor([1., 2., 4.]), mask=ad.tensor([True, False, True]))
    tensor(5.)
    """
    x = _filled(input, mask, 0, "sum")
    return x.sum(_axes(input, dim, "sum"), keepdim, dtype=_sum_dtype(input, dtype))


def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The product of the elements that take part, over `dim` (all dimensions without).

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.prod(ad.tensor([1., 2., 4.]), mask=ad.tensor([True, False, True]))
    tensor(4.)
    """
    x = cast(_filled(input, mask, 1, "prod"), _sum_dtype(input, dtype))
    for axis in reversed(_axes(input, dim, "prod")):
        x = x.prod(axis, keepdim)
    return x


def amax(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The greatest of the elements that take part, over `dim` (all dimensions without).

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.amax(ad.tensor([1., 2., 4.]), mask=ad.tensor([True, True, False]))
    tensor(2.)
    """
    x = _filled(input, mask, _lowest(input.dtype), "amax")
    return cast(x.amax(_axes(input, dim, "amax"), keepdim), _of(input, dtype))


def amin(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The least of the elements that take part, over `dim` (all dimensions without).

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.amin(ad.tensor([1., 2., 4.]), mask=ad.tensor([False, True, True]))
    tensor(2.)
    """
    x = _filled(input, mask, _highest(input.dtype), "amin")
    return cast(x.amin(_axes(input, dim, "amin"), keepdim), _of(input, dtype))


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The index of the greatest of the elements that take part, in the dtype of `input`.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.argmax(ad.tensor([1., 2., 4.]), mask=ad.tensor([True, True, False]))
    tensor(1.)
    """
    x = _filled(input, mask, _lowest(input.dtype), "argmax")
    return cast(x.argmax(dim, keepdim), _of(input, dtype))


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The index of the least of the elements that take part, in the dtype of `input`.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.argmin(ad.tensor([1., 2., 4.]), mask=ad.tensor([False, True, True]))
    tensor(1.)
    """
    x = _filled(input, mask, _highest(input.dtype), "argmin")
    return cast(x.argmin(dim, keepdim), _of(input, dtype))


def _count(input: Tensor, dim: Any, keepdim: bool, mask: Any, name: str) -> Tensor:
    """The number of elements that take part."""
    if mask is None:
        mask = input.new_ones((), dtype=dt.bool_)
    return _full_mask(input, mask, name).sum(_axes(input, dim, name), keepdim)


def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The mean of the elements that take part, over `dim` (all dimensions without).

    Errors: DTypeError for a dtype that is neither floating point nor complex.
    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.mean(ad.tensor([1., 2., 5.]), mask=ad.tensor([True, False, True]))
    tensor(3.)
    """
    d = _of(input, dtype)
    if d.category < 2:
        raise DTypeError(
            "masked.mean: Could not infer output dtype. It must be either a floating point or "
            f"complex dtype. Got: {d}"
        )
    total: Any = sum(input, dim, keepdim=keepdim, dtype=d, mask=mask)
    return total / _count(input, dim, keepdim, mask, "mean")


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The median of the elements that take part, along `dim`.

    Errors: InvalidArgument where no element of a row of integers takes part.
    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.median(ad.tensor([1., 2., 5.]), mask=ad.tensor([True, False, True]))
    tensor(1.)
    """
    axis = normalize_axis(dim, input.ndim, "masked.median")
    whole = input.dtype.category < 2
    x = cast(input, dt.float32) if whole else input
    result: Tensor = _filled(x, mask, math.nan, "median").nanmedian(axis, keepdim).values
    if not whole:
        return result
    if bool(result.isnan().any()):
        raise InvalidArgument(
            "masked.median: expects no fully masked out rows if dtype is not floating point"
        )
    return cast(result, _of(input, dtype))


def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The logarithm of the sum of the exponentials of the elements that take part.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.logsumexp(ad.tensor([0., 9., 0.]), mask=ad.tensor([True, False, True]))
    tensor(0.6931)
    """
    x = _filled(input, mask, _lowest(input.dtype), "logsumexp")
    return cast(x.logsumexp(_axes(input, dim, "logsumexp"), keepdim), _of(input, dtype))


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Any = None,
    other_mask: Any = None,
) -> Tensor:
    """log(exp(input) + exp(other)), each element where its mask is true.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.logaddexp(ad.tensor([0.]), ad.tensor([9.]), other_mask=ad.tensor([False]))
    tensor([0.])
    """
    assert_dtypes("masked.logaddexp", REAL_NUMBERS, input=input, other=other)
    x = _filled(input, input_mask, _lowest(input.dtype), "logaddexp")
    y = _filled(other, other_mask, _lowest(other.dtype), "logaddexp")
    return cast(_logaddexp(x, y), _of(input, dtype))


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Any = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The vector norm of the elements that take part, over `dim` (all dimensions without).

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.norm(ad.tensor([3., 9., 4.]), mask=ad.tensor([True, False, True]))
    tensor(5.)
    """
    x = _filled(input, mask, math.inf if ord == -math.inf else 0, "norm")
    order = 2.0 if ord is None else ord
    return vector_norm(x, order, _axes(input, dim, "norm"), keepdim, dtype=_of(input, dtype))


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The variance of the elements that take part, over `dim` (all dimensions without).

    Errors: InvalidArgument where both `unbiased` and `correction` are given.
    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.var(ad.tensor([1., 9., 3.]), mask=ad.tensor([True, False, True]))
    tensor(2.)
    """
    if unbiased is not None and correction is not None:
        raise InvalidArgument("masked.var: only one of unbiased and correction may be given")
    freedom = 1.0 if unbiased is None else float(unbiased)
    if correction is not None:
        freedom = float(correction)
    d = _of(input, dtype)
    if dtype is None and d.category < 2:
        d = dt.float32
    wide = d if d.category >= 2 else dt.float32
    count: Any = _count(input, dim, True, mask, "var")
    total: Any = sum(input, dim, keepdim=True, dtype=d, mask=mask)
    rest: Any = input - total / count
    squares: Any = sum(rest * rest.conj(), dim, keepdim=keepdim, dtype=wide, mask=mask)
    if not keepdim:
        count = count.reshape(squares.shape)
    if freedom:
        count = (cast(count, wide.to_real()) - freedom).clamp(min=0)
    return cast(squares / count, d)


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The standard deviation of the elements that take part, over `dim`.

    Errors: those of `var`.
    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.std(ad.tensor([1., 9., 3.]), mask=ad.tensor([True, False, True]))
    tensor(1.4142)
    """
    variance = var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    )
    return variance.sqrt()


# ---- normalizations ------------------------------------------------------------------------------


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The running sum along `dim` of the elements that take part.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.cumsum(ad.tensor([1., 2., 4.]), 0, mask=ad.tensor([True, False, True]))
    tensor([1., 1., 5.])
    """
    assert_dtypes("masked.cumsum", NUMBERS, input=input)
    axis = normalize_axis(dim, input.ndim, "masked.cumsum")
    x = _filled(input, mask, 0, "cumsum")
    return cast(x.cumsum(axis, dtype=_of(input, dtype)), _of(input, dtype))


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The running product along `dim` of the elements that take part.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.cumprod(ad.tensor([1., 2., 4.]), 0, mask=ad.tensor([True, False, True]))
    tensor([1., 1., 4.])
    """
    assert_dtypes("masked.cumprod", NUMBERS, input=input)
    axis = normalize_axis(dim, input.ndim, "masked.cumprod")
    x = _filled(input, mask, 1, "cumprod")
    return cast(x.cumprod(axis, dtype=_of(input, dtype)), _of(input, dtype))


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """softmax along `dim` of the elements that take part; 0 for the others.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.softmax(ad.tensor([0., 9., 0.]), 0, mask=ad.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    x = _filled(input, mask, _lowest(input.dtype), "softmax")
    return _softmax(x, dim, dtype=_of(input, dtype))


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """log_softmax along `dim` of the elements that take part; -inf for the others.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.log_softmax(ad.tensor([0., 9., 0.]), 0, mask=ad.tensor([True, False, True]))
    tensor([-0.6931,    -inf, -0.6931])
    """
    x = _filled(input, mask, _lowest(input.dtype), "log_softmax")
    return _log_softmax(x, dim, dtype=_of(input, dtype))


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """softmax along `dim` of the negated elements that take part; 0 for the others.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.softmin(ad.tensor([0., -9., 0.]), 0, mask=ad.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    x = _filled(input, mask, _highest(input.dtype), "softmin")
    return _softmax(-x, dim, dtype=_of(input, dtype))


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The elements that take part over their norm (no less than `eps`) along `dim`.

    Source: https://docs.pytorch.org/docs/stable/masked.html

    >>> ad.masked.normalize(ad.tensor([3., 9., 4.]), 2, 0, mask=ad.tensor([True, False, True]))
    tensor([0.6000, 0.0000, 0.8000])
    """
    size = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0, "normalize") / maximum(size, size.new_full((), eps))
