"""Functions of discrete Fourier transforms, of their frequencies, and shifts of them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, InvalidArgument, InvalidType, ShapeError
from ...core.spec import normalize_axis
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.public import FUNCTIONS, explaining, with_out
from ..create.allocation import assert_strided, finish
from ..elementwise.namespace import conj
from ..promotion import cast
from ..shape.sizes import hold_sizes
from .fourier import ADJOINT_NORM
from .fourier import Fourier as Fourier
from .fourier import InverseRealFourier as InverseRealFourier
from .fourier import RealFourier as RealFourier

if TYPE_CHECKING:
    from ...ops.argument_types import Axes, DeviceLike, Layout

# not names at the top level: they live in adjoint.fft
__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft",
    "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


# ---- arguments -----------------------------------------------------------------------------------


def _norm(name: str, norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in ADJOINT_NORM:
        raise InvalidArgument(
            f"{name}: Invalid normalization mode: {norm!r}; use 'backward', 'ortho' or 'forward'"
        )
    return norm


def _floating(name: str, x: Any, complex_: bool) -> Any:
    """`x` in the real or complex dtype that is transformed."""
    assert_tensor(name, x)
    dtype = x.dtype
    if dtype in dt.LOW_PRECISION:
        raise DTypeError(f"{name}: Unsupported dtype {dtype}; convert with .float()")
    if dtype.category < 2:
        dtype = dt.get_default_dtype()
    if not complex_ and dtype.is_complex:
        raise DTypeError(f"{name}: expects a real input tensor, but got {dtype}; use its .real")
    return cast(x, dtype.to_complex() if complex_ else dtype)  # type: ignore[arg-type]


def _resize(name: str, x: Any, axis: int, n: int) -> Any:
    """`x` cut off, or followed by zeros, to n elements along `axis`."""
    if n < 1:
        raise ShapeError(f"{name}: Invalid number of data points ({n}) specified")
    have = x.shape[axis]
    if n == have:
        return x
    if n < have:
        return x.narrow(axis, 0, n)
    shape = list(x.shape)
    shape[axis] = n - have
    return FUNCTIONS["cat"]([x, x.new_zeros(shape)], axis)


def _length(name: str, n: Any) -> int:
    try:
        return operator.index(n)
    except TypeError:
        raise InvalidType(f"{name}: a length must be an int, got {n!r}") from None


def _axes(name: str, x: Any, s: Any, dim: Any) -> tuple[list[int], list[int | None]]:
    """The axes to transform and the length of each (None: as it is)."""
    if s is not None:
        s = [s] if isinstance(s, int) else list(s)
    if dim is None:
        axes = list(range(x.ndim)) if s is None else list(range(x.ndim - len(s), x.ndim))
        if s is not None and len(s) > x.ndim:
            raise ShapeError(f"{name}: Got shape with {len(s)} values but input has {x.ndim} dims")
    else:
        given = [dim] if isinstance(dim, int) else list(dim)
        axes = [normalize_axis(d, x.ndim, name) for d in given]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: FFT dims must be unique, got {dim}")
    if s is None:
        return axes, [None] * len(axes)
    if len(s) != len(axes):
        raise ShapeError(f"{name}: When given, dim and shape arguments must have the same length")
    return axes, [None if n == -1 else _length(name, n) for n in s]


def _held(name: str, x: Any, axes: list[int], lengths: list[int | None]) -> Any:
    """`x`, of which what is cut off or added depends on the sizes."""
    given = [axis for axis, n in zip(axes, lengths, strict=True) if n is not None]
    return hold_sizes(name, x, dims=given) if given else x


def _complex(name: str, x: Any, s: Any, dim: Any, norm: str | None, inverse: bool) -> Any:
    mode = _norm(name, norm)
    x = _floating(name, x, True)
    axes, lengths = _axes(name, x, s, dim)
    x = _held(name, x, axes, lengths)
    for axis, n in zip(axes, lengths, strict=True):
        x = _resize(name, x, axis, x.shape[axis] if n is None else n)
    return apply(Fourier(tuple(axes), inverse, mode), x) if axes else x


def _real(name: str, x: Any, s: Any, dim: Any, norm: str | None) -> Any:
    """The real transform over the last axis, then the complex one over the others."""
    mode = _norm(name, norm)
    x = _floating(name, x, False)
    axes, lengths = _axes(name, x, s, dim)
    x = _held(name, x, axes, lengths)
    if not axes:
        raise ShapeError(f"{name}: must transform at least one axis")
    for axis, n in zip(axes, lengths, strict=True):
        x = _resize(name, x, axis, x.shape[axis] if n is None else n)
    y = apply(RealFourier(axes[-1], mode), x)
    return apply(Fourier(tuple(axes[:-1]), False, mode), y) if len(axes) > 1 else y


def _inverse_real(name: str, x: Any, s: Any, dim: Any, norm: str | None) -> Any:
    """The complex inverse over all axes but the last, then the real one."""
    mode = _norm(name, norm)
    x = _floating(name, x, True)
    axes, lengths = _axes(name, x, s, dim)
    x = _held(name, x, axes, lengths)
    if not axes:
        raise ShapeError(f"{name}: must transform at least one axis")
    x = hold_sizes(name, x, dims=axes[-1:])
    last = 2 * (x.shape[axes[-1]] - 1) if lengths[-1] is None else lengths[-1]
    if last < 1:
        raise ShapeError(f"{name}: Invalid number of data points ({last}) specified")
    for axis, n in zip(axes[:-1], lengths[:-1], strict=True):
        x = _resize(name, x, axis, x.shape[axis] if n is None else n)
    x = _resize(name, x, axes[-1], last // 2 + 1)
    if len(axes) > 1:
        x = apply(Fourier(tuple(axes[:-1]), True, mode), x)
    return apply(InverseRealFourier(axes[-1], last, mode), x)


def _adjoint_norm(name: str, norm: str | None) -> str:
    return ADJOINT_NORM[_norm(name, norm)]


# ---- public functions ----------------------------------------------------------------------------


def _one(n: int | None) -> Any:
    """A length, for functions of several."""
    return None if n is None else [n]


@with_out
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform along one dimension.

    `input` is cut off or followed by zeros to `n` elements along `dim`. `norm` says which
    direction is divided by n: "backward" (the inverse), "forward", or "ortho" (both, by its root).

    Dtypes: any, converted to complex; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.fft.html

    >>> ad.fft.fft(ad.tensor([1., 2., 3., 4.])).real
    tensor([10., -2., -2., -2.])
    """
    return _complex("fft", input, _one(n), dim, norm, False)


@with_out
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`.

    `input` is cut off or followed by zeros to `n` elements along `dim`. `norm` says which
    direction is divided by n: "backward" (the inverse), "forward", or "ortho" (both, by its root).

    Dtypes: any, converted to complex; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.ifft.html

    >>> ad.fft.ifft(ad.tensor([4., 0., 0., 0.])).real
    tensor([1., 1., 1., 1.])
    """
    return _complex("ifft", input, _one(n), dim, norm, True)


@with_out
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The frequencies 0 to n/2 of real data along one dimension; the others are their conjugates.

    `input` is cut off or followed by zeros to `n` elements along `dim`. `norm` says which
    direction is divided by n: "backward" (the inverse), "forward", or "ortho" (both, by its root).

    Dtypes: real; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.rfft.html

    >>> ad.fft.rfft(ad.tensor([1., 2., 3., 4.])).real
    tensor([10., -2., -2.])
    """
    return _real("rfft", input, _one(n), dim, norm)


@with_out
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: real data from its frequencies 0 to n/2.

    `input` is cut off or followed by zeros to `n` elements along `dim`,
    where `n` is the length of the result, 2 (m - 1) for m frequencies unless given.
    `norm` says which direction is divided by n: "backward" (the inverse), "forward", or "ortho"
    (both, by its root).

    Dtypes: any, converted to complex; the result is real.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.irfft.html

    >>> ad.fft.irfft(ad.tensor([4., 0., 0.]))
    tensor([1., 1., 1., 1.])
    """
    return _inverse_real("irfft", input, _one(n), dim, norm)


@with_out
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real transform of data that is conjugate-symmetric, given by its first half.

    `input` is cut off or followed by zeros to `n` elements along `dim`,
    where `n` is the length of the result, 2 (m - 1) for m elements unless given.
    `norm` says which direction is divided by n: "backward" (the inverse), "forward", or "ortho"
    (both, by its root).

    Dtypes: any, converted to complex; the result is real.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.hfft.html

    >>> ad.fft.hfft(ad.tensor([1., 0., 0.]))
    tensor([1., 1., 1., 1.])
    """
    mode = _adjoint_norm("hfft", norm)
    return _inverse_real("hfft", conj(input), _one(n), dim, mode)


@with_out
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`: the first half of the inverse transform of real data.

    `input` is cut off or followed by zeros to `n` elements along `dim`. `norm` says which
    direction is divided by n: "backward" (the inverse), "forward", or "ortho" (both, by its root).

    Dtypes: real; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.ihfft.html

    >>> ad.fft.ihfft(ad.tensor([1., 1., 1., 1.])).real
    tensor([1., 0., 0.])
    """
    mode = _adjoint_norm("ihfft", norm)
    return conj(_real("ihfft", input, _one(n), dim, mode))


@with_out
def fft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The discrete Fourier transform over two dimensions.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.fft2.html

    >>> ad.fft.fft2(ad.ones(2, 2)).real
    tensor([[4., 0.],
            [0., 0.]])
    """
    return _complex("fft2", input, s, dim, norm, False)


@with_out
def ifft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `fft2`.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.ifft2.html

    >>> ad.fft.ifft2(ad.ones(2, 2)).real
    tensor([[1., 0.],
            [0., 0.]])
    """
    return _complex("ifft2", input, s, dim, norm, True)


@with_out
def rfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The transform of real data over two dimensions; the last has only frequencies up to n/2.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: real; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.rfft2.html

    >>> ad.fft.rfft2(ad.ones(2, 4)).real
    tensor([[8., 0., 0.],
            [0., 0., 0.]])
    """
    return _real("rfft2", input, s, dim, norm)


@with_out
def irfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `rfft2`.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`,
    where the last length is that of the result;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is real.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.irfft2.html

    >>> ad.fft.irfft2(ad.fft.rfft2(ad.ones(2, 4)))
    tensor([[1., 1., 1., 1.],
            [1., 1., 1., 1.]])
    """
    return _inverse_real("irfft2", input, s, dim, norm)


@with_out
def hfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfft` over the last of two dimensions, `fft` over the others.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`,
    where the last length is that of the result;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is real.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.hfft2.html

    >>> ad.fft.hfft2(ad.ones(1, 2))
    tensor([[2., 0.]])
    """
    mode = _adjoint_norm("hfft2", norm)
    return _inverse_real("hfft2", conj(input), s, dim, mode)


@with_out
def ihfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of `hfft2`.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: real; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.ihfft2.html

    >>> ad.fft.ihfft2(ad.ones(1, 2)).real
    tensor([[1., 0.]])
    """
    mode = _adjoint_norm("ihfft2", norm)
    return conj(_real("ihfft2", input, s, dim, mode))


@with_out
def fftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform over several dimensions.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.fftn.html

    >>> ad.fft.fftn(ad.ones(2, 2)).real
    tensor([[4., 0.],
            [0., 0.]])
    """
    return _complex("fftn", input, s, dim, norm, False)


@with_out
def ifftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.ifftn.html

    >>> ad.fft.ifftn(ad.ones(2, 2)).real
    tensor([[1., 0.],
            [0., 0.]])
    """
    return _complex("ifftn", input, s, dim, norm, True)


@with_out
def rfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The transform of real data over several dimensions; the last has only frequencies up to n/2.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: real; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.rfftn.html

    >>> ad.fft.rfftn(ad.ones(2, 4)).real
    tensor([[8., 0., 0.],
            [0., 0., 0.]])
    """
    return _real("rfftn", input, s, dim, norm)


@with_out
def irfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`,
    where the last length is that of the result;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is real.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.irfftn.html

    >>> ad.fft.irfftn(ad.fft.rfftn(ad.ones(2, 4)))
    tensor([[1., 1., 1., 1.],
            [1., 1., 1., 1.]])
    """
    return _inverse_real("irfftn", input, s, dim, norm)


@with_out
def hfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """`hfft` over the last of several dimensions, `fft` over the others.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`,
    where the last length is that of the result;
    a length of -1 leaves a dimension as it is.

    Dtypes: any, converted to complex; the result is real.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.hfftn.html

    >>> ad.fft.hfftn(ad.ones(1, 2))
    tensor([[2., 0.]])
    """
    mode = _adjoint_norm("hfftn", norm)
    return _inverse_real("hfftn", conj(input), s, dim, mode)


@with_out
def ihfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`.

    `input` is cut off or followed by zeros to the lengths `s` along the dimensions `dim`;
    a length of -1 leaves a dimension as it is.

    Dtypes: real; the result is complex.
    Errors: InvalidArgument for another norm; ShapeError for a length below 1.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.ihfftn.html

    >>> ad.fft.ihfftn(ad.ones(1, 2)).real
    tensor([[1., 0.]])
    """
    mode = _adjoint_norm("ihfftn", norm)
    return conj(_real("ihfftn", input, s, dim, mode))


def _frequencies(name: str, count: Any, step: float, options: dict[str, Any]) -> Tensor:
    assert_strided(name, options.pop("layout"))
    dtype = options.pop("dtype")
    to = dt.get_default_dtype() if dtype is None else dt.as_dtype(dtype)
    return finish((count / step).astype(to.numpy), **options)


@with_out
def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: dt.dtype | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the results of `fft`, in cycles per unit: `d` is the time between samples.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.fftfreq.html

    >>> ad.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    count = np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _frequencies("fftfreq", count, n * d, options)


@with_out
def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: dt.dtype | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the results of `rfft` on `n` samples, `d` apart.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.rfftfreq.html

    >>> ad.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    options = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _frequencies("rfftfreq", np.arange(n // 2 + 1), n * d, options)


def _shift(name: str, input: Tensor, dim: Any, back: bool) -> Tensor:
    input = hold_sizes("fftshift", input)
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    axes = tuple(normalize_axis(d, input.ndim, name) for d in dims)
    shifts = tuple((input.shape[a] + int(back)) // 2 for a in axes)
    return input.roll(shifts, axes) if axes else input.clone()


@explaining
def fftshift(input: Tensor, dim: Axes = None) -> Tensor:
    """Frequency 0 moved from the front to the middle, along `dim` (all dimensions where None).

    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.fftshift.html

    >>> ad.fft.fftshift(ad.tensor([0, 1, 2, -2, -1]))
    tensor([-2, -1,  0,  1,  2])
    """
    return _shift("fftshift", input, dim, False)


@explaining
def ifftshift(input: Tensor, dim: Axes = None) -> Tensor:
    """The inverse of `fftshift`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.fft.ifftshift.html

    >>> ad.fft.ifftshift(ad.tensor([-2, -1, 0, 1, 2]))
    tensor([ 0,  1,  2, -2, -1])
    """
    return _shift("ifftshift", input, dim, True)
