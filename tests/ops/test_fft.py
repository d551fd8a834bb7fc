"""Fourier transforms beside PyTorch: values, dtypes, gradients, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)


def compare(name, array, *args, **options):
    """`fft.name` gives the same value, dtype and gradient with both libraries."""
    x, y = torch.tensor(array, requires_grad=True), ad.tensor(array, requires_grad=True)
    theirs = getattr(torch.fft, name)(x, *args, **options)
    ours = getattr(ad.fft, name)(y, *args, **options)
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    tolerance = 1e-10 if array.dtype.itemsize > 8 or array.dtype == np.float64 else 1e-4
    value = theirs.detach().resolve_conj().numpy()
    np.testing.assert_allclose(ours.detach().numpy(), value, atol=tolerance)
    g = rng.normal(size=value.shape).astype(value.dtype)
    if np.iscomplexobj(value):
        g = g + 1j * rng.normal(size=value.shape).astype(value.real.dtype)
    theirs.backward(torch.tensor(g))
    ours.backward(ad.tensor(g))
    expected = x.grad.resolve_conj().numpy()
    np.testing.assert_allclose(y.grad.numpy(), expected, atol=tolerance * 10)


def real(*shape):
    return rng.normal(size=shape)


def cplx(*shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


NORMS = [None, "backward", "ortho", "forward"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_dimension(name, norm):
    makes = [real] if name in ("rfft", "ihfft") else [real, cplx]
    for make, size, n, dim in itertools.product(makes, [4, 5], [None, 3, 8, 7], [-1, 0]):
        compare(name, make(size, size), n, dim, norm)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("base", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_several_dimensions(base, norm):
    make = real if base in ("rfft", "ihfft") else cplx
    compare(f"{base}2", make(3, 4, 5), norm=norm)
    compare(f"{base}2", make(3, 4, 5), (2, 6), (0, -1), norm)
    for s, dim in ((None, None), (None, (0, 2)), ((3, 6), None), ((-1, 4), (2, 0)), (None, (1,))):
        compare(f"{base}n", make(3, 4, 5), s, dim, norm)


def test_precision_is_kept():
    compare("fft", real(5).astype(np.float32))
    compare("rfft", real(5).astype(np.float32))
    compare("irfft", cplx(4).astype(np.complex64))
    assert ad.fft.fft(ad.arange(4)).dtype is ad.complex64
    assert ad.fft.rfft(ad.arange(4)).dtype is ad.complex64


def test_shifts_and_frequencies():
    for shape, dim in (((4, 5), None), ((4, 5), 1), ((3, 4, 5), (0, 2))):
        compare("fftshift", real(*shape), dim)
        compare("ifftshift", real(*shape), dim)
    for n, d in itertools.product([1, 4, 5], [1.0, 0.25]):
        for name in ("fftfreq", "rfftfreq"):
            ours, theirs = getattr(ad.fft, name)(n, d), getattr(torch.fft, name)(n, d)
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert ad.fft.fftfreq(3, dtype=ad.float64, requires_grad=True).dtype is ad.float64


def test_second_order():
    def check(function, array):
        x = ad.tensor(array, requires_grad=True)
        assert ad.autograd.gradcheck(function, (x,))
        assert ad.autograd.gradgradcheck(function, (x,))

    check(lambda x: ad.fft.fftn(x, norm="ortho").abs(), cplx(3, 4))
    check(lambda x: ad.fft.irfft(ad.fft.rfft(x) ** 2, 7), real(2, 7))
    check(lambda x: ad.fft.hfft(x, 4), cplx(2, 3))


def test_convolution_theorem():
    a, b = ad.tensor(real(8)), ad.tensor(real(8))
    product = ad.fft.irfft(ad.fft.rfft(a) * ad.fft.rfft(b), 8)
    direct = [sum(float(a[j] * b[(i - j) % 8]) for j in range(8)) for i in range(8)]
    np.testing.assert_allclose(product.numpy(), direct, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ad.fft.fft(ad.ones(3), norm="full"), ad.InvalidArgument, "normalization mode"),
        (lambda: ad.fft.fft(ad.ones(3), 0), ad.ShapeError, "number of data points"),
        (lambda: ad.fft.fft(ad.ones(3, 0)), ad.ShapeError, "number of data points"),
        (lambda: ad.fft.irfft(ad.ones(1)), ad.ShapeError, "number of data points"),
        (lambda: ad.fft.rfft(ad.ones(3, dtype=ad.complex64)), ad.DTypeError, "real input"),
        (lambda: ad.fft.fft(ad.ones(3, dtype=ad.float16)), ad.DTypeError, "Unsupported dtype"),
        (lambda: ad.fft.fft(ad.ones(3), dim=1), ad.IndexingError, "out of range"),
        (lambda: ad.fft.fftn(ad.ones(3, 3), dim=(0, 0)), ad.ShapeError, "must be unique"),
        (lambda: ad.fft.fftn(ad.ones(3, 3), (2,), (0, 1)), ad.ShapeError, "same length"),
        (lambda: ad.fft.fftn(ad.ones(3), (2, 2)), ad.ShapeError, "Got shape with 2 values"),
        (lambda: ad.fft.fft(ad.ones(3), 1.5), ad.InvalidType, "must be an int"),
        (lambda: ad.fft.fft([1.0]), ad.InvalidType, "expected a tensor"),
    ],
)
def test_errors_name_the_values(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_out():
    x, out = ad.tensor(cplx(4)), ad.zeros(4, dtype=ad.complex128)
    assert ad.fft.fft(x, out=out) is out
    np.testing.assert_array_equal(out.numpy(), ad.fft.fft(x).numpy())
