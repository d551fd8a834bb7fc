"""The extension `fft`: discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.dtype import dtype as DType  # noqa: N812 - a class, in spite of PyTorch's name
from . import functions as ad
from .data_types import FLOATING, REAL_FLOATING, Array, assert_kind, checked

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip

Sizes = Sequence[int] | None  # of several axes


def fft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The Fourier transform along an axis.

    Shapes: x is cut or filled up with zeros to n elements along the axis.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.fft.html

    >>> xp = ad.array_api
    >>> xp.fft.fft(xp.asarray([1., 0.]))
    tensor([1.+0.j, 1.+0.j])
    """
    return ad.fft.fft(checked("fft", x, FLOATING), n, axis, norm)


def ifft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse Fourier transform along an axis.

    Shapes: x is cut or filled up with zeros to n elements along the axis.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.ifft.html

    >>> xp = ad.array_api
    >>> xp.fft.ifft(xp.asarray([1 + 0j, 1 + 0j]))
    tensor([1.+0.j, 0.+0.j])
    """
    return ad.fft.ifft(checked("ifft", x, FLOATING), n, axis, norm)


def fftn(x: Array, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward") -> Array:
    """The Fourier transform along several axes, all of them where None.

    Shapes: x is cut or filled up with zeros to the sizes s along the axes.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.fftn.html

    >>> xp = ad.array_api
    >>> xp.fft.fftn(xp.ones((2, 2)))[0, 0]
    tensor(4.+0.j)
    """
    return ad.fft.fftn(checked("fftn", x, FLOATING), s, axes, norm)


def ifftn(x: Array, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward") -> Array:
    """The inverse Fourier transform along several axes, all of them where None.

    Shapes: x is cut or filled up with zeros to the sizes s along the axes.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.ifftn.html

    >>> xp = ad.array_api
    >>> xp.fft.ifftn(xp.ones((2, 2)))[0, 0]
    tensor(1.+0.j)
    """
    return ad.fft.ifftn(checked("ifftn", x, FLOATING), s, axes, norm)


def rfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The Fourier transform of real elements along an axis, without its mirrored half.

    Shapes: n real elements along the axis (x cut or filled up with zeros) give n // 2 + 1.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.rfft.html

    >>> xp = ad.array_api
    >>> xp.fft.rfft(xp.asarray([1., 0., 0.]))
    tensor([1.+0.j, 1.+0.j])
    """
    return ad.fft.rfft(checked("rfft", x, REAL_FLOATING), n, axis, norm)


def irfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The real elements along an axis of which x is the transform by `rfft`.

    Shapes: n elements along the axis, twice one less than x has unless given.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.irfft.html

    >>> xp = ad.array_api
    >>> xp.fft.irfft(xp.asarray([1 + 0j, 1 + 0j]))
    tensor([1., 0.])
    """
    return ad.fft.irfft(checked("irfft", x, FLOATING), n, axis, norm)


def rfftn(x: Array, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward") -> Array:
    """`rfft` along the last of several axes, and `fft` along the others.

    Shapes: x is cut or filled up with zeros to the sizes s along the axes.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.rfftn.html

    >>> xp = ad.array_api
    >>> xp.fft.rfftn(xp.ones((2, 4))).shape
    adjoint.Size([2, 3])
    """
    return ad.fft.rfftn(checked("rfftn", x, REAL_FLOATING), s, axes, norm)


def irfftn(x: Array, /, *, s: Sizes = None, axes: Sizes = None, norm: str = "backward") -> Array:
    """The real elements of which x is the transform by `rfftn`.

    Shapes: the sizes s along the axes; along the last twice one less than x has unless given.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.irfftn.html

    >>> xp = ad.array_api
    >>> xp.fft.irfftn(xp.ones((2, 3))).shape
    adjoint.Size([2, 4])
    """
    return ad.fft.irfftn(checked("irfftn", x, FLOATING), s, axes, norm)


def hfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The real Fourier transform along an axis of elements whose mirrored half is left out.

    Shapes: n elements along the axis, twice one less than x has unless given.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.hfft.html

    >>> xp = ad.array_api
    >>> xp.fft.hfft(xp.asarray([1 + 0j, 0j]))
    tensor([1., 1.])
    """
    return ad.fft.hfft(checked("hfft", x, FLOATING), n, axis, norm)


def ihfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The elements, without their mirrored half, of which x is the transform by `hfft`.

    Shapes: n real elements along the axis (x cut or filled up with zeros) give n // 2 + 1.
    Errors: InvalidArgument for another `norm` than "backward", "ortho" and "forward".
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.ihfft.html

    >>> xp = ad.array_api
    >>> xp.fft.ihfft(xp.asarray([1., 1.]))
    tensor([1.-0.j, 0.-0.j])
    """
    return ad.fft.ihfft(checked("ihfft", x, REAL_FLOATING), n, axis, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Array:
    """The frequencies of the n elements that `fft` gives, for samples `d` apart.

    Dtypes: real floating point; the default one where None.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.fftfreq.html

    >>> ad.array_api.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return _frequencies("fftfreq", ad.fft.fftfreq, n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Array:
    """The frequencies of the elements that `rfft` gives for n samples `d` apart.

    Dtypes: real floating point; the default one where None.
    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.rfftfreq.html

    >>> ad.array_api.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    return _frequencies("rfftfreq", ad.fft.rfftfreq, n, d, dtype, device)


def _frequencies(
    name: str, function: Callable[..., Any], n: int, d: float, dtype: DType | None, device: Any
) -> Array:
    dtype = dtype or ad.get_default_dtype()
    assert_kind(name, dtype, REAL_FLOATING)
    return function(n, d, dtype=dtype, device=device)


def fftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The elements rolled along axes, all of them where None, so that frequency 0 is in the middle.

    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.fftshift.html

    >>> ad.array_api.fft.fftshift(ad.tensor([0, 1, -2, -1]))
    tensor([-2, -1,  0,  1])
    """
    return ad.fft.fftshift(checked("fftshift", x), axes)


def ifftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`.

    Source: https://data-apis.org/array-api/2024.12/extensions/generated/array_api.fft.ifftshift.html

    >>> ad.array_api.fft.ifftshift(ad.tensor([-2, -1, 0, 1]))
    tensor([ 0,  1, -2, -1])
    """
    return ad.fft.ifftshift(checked("ifftshift", x), axes)
