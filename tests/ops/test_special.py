"""adjoint.special at special values and over wide ranges, against SciPy; windows; spectrograms."""

from __future__ import annotations

import importlib.machinery
import importlib.util

import numpy as np
import pytest

import adjoint as ad
from adjoint.ops.special import incomplete_gamma

scipy_special = pytest.importorskip("scipy.special")
scipy_signal = pytest.importorskip("scipy.signal")

ROUNDING = 4e-14
ABSOLUTE = {"bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1"}
RELATIVE = {
    "erfcx": "erfcx", "log_ndtr": "log_ndtr", "ndtr": "ndtr", "i0e": "i0e", "i1e": "i1e",
    "modified_bessel_k0": "k0", "modified_bessel_k1": "k1", "scaled_modified_bessel_k0": "k0e",
    "scaled_modified_bessel_k1": "k1e", "entr": "entr",
}  # fmt: skip
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-300, 1e10])


def ours(name, *arrays):
    return getattr(ad.special, name)(*map(ad.from_numpy, arrays)).numpy()


@pytest.mark.parametrize("name", sorted(RELATIVE))
def test_relative_error_over_a_wide_range(name):
    x = np.concatenate([np.linspace(-20, 20, 4001), np.logspace(-12, 2, 500)])
    expected = getattr(scipy_special, RELATIVE[name])(x)
    np.testing.assert_allclose(ours(name, x), expected, rtol=ROUNDING, atol=1e-200)


@pytest.mark.parametrize("name", sorted(RELATIVE))
def test_special_values(name):
    expected = getattr(scipy_special, RELATIVE[name])(SPECIAL)
    np.testing.assert_allclose(ours(name, SPECIAL), expected, rtol=ROUNDING)


@pytest.mark.parametrize("name", sorted(ABSOLUTE))
def test_oscillating_functions_to_the_last_digits_of_one(name):
    x = np.concatenate([np.linspace(0.05, 200, 20001), np.logspace(2, 5, 500)])
    expected = getattr(scipy_special, ABSOLUTE[name])(x)
    np.testing.assert_allclose(ours(name, x), expected, rtol=ROUNDING, atol=ROUNDING)


def test_bessel_functions_at_their_ends():
    ends = np.array([0.0, np.inf, np.nan])
    np.testing.assert_allclose(ours("bessel_j0", ends), [1, 0, np.nan], rtol=1e-15)
    np.testing.assert_array_equal(ours("bessel_j1", ends), [0, 0, np.nan])
    np.testing.assert_array_equal(ours("bessel_y0", ends), [-np.inf, 0, np.nan])
    np.testing.assert_array_equal(ours("bessel_y1", ends), [-np.inf, 0, np.nan])
    np.testing.assert_array_equal(ours("bessel_y0", np.array([-1.0])), [np.nan])


def test_airy():
    x = np.linspace(-60, 60, 6001)
    expected = scipy_special.airy(x)[0]
    np.testing.assert_allclose(ours("airy_ai", x), expected, rtol=1e-12, atol=1e-14)


def test_ndtri_into_both_tails():
    p = np.concatenate([np.linspace(0, 1, 2001), np.logspace(-300, -1, 600)])
    np.testing.assert_allclose(ours("ndtri", p), scipy_special.ndtri(p), rtol=ROUNDING, atol=1e-15)
    assert np.isnan(ours("ndtri", np.array([-0.1, 1.1, np.nan]))).all()


def test_zeta():
    rng = np.random.default_rng(0)
    s, q = rng.uniform(1.001, 40, 3000), rng.uniform(0.01, 50, 3000)
    np.testing.assert_allclose(ours("zeta", s, q), scipy_special.zeta(s, q), rtol=1e-13)
    edges = np.array([1.0, 0.5, 3.0, 2.5]), np.array([2.0, 2.0, -1.0, -0.5])
    np.testing.assert_array_equal(ours("zeta", *edges), [np.inf, np.nan, np.inf, np.nan])


def test_zeta_of_negative_arguments_is_the_sum():
    rng = np.random.default_rng(0)
    s, q = np.repeat(np.arange(2.0, 8.0), 40), rng.uniform(-12, 0, 240)
    first = ((q + np.arange(14)[:, None]) ** -s).sum(0)
    expected = first + scipy_special.zeta(s, q + 14)
    np.testing.assert_allclose(ours("zeta", s, q), expected, rtol=1e-11)
    found = ours("zeta", s.astype(np.float32), q.astype(np.float32))
    q = q.astype(np.float32).astype(np.float64)
    expected = ((q + np.arange(14)[:, None]) ** -s).sum(0) + scipy_special.zeta(s, q + 14)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_polygamma_in_both_precisions(n):
    x = np.concatenate([np.logspace(-3, 6, 2000), np.linspace(0.1, 30, 2000)])
    for dtype, rtol in ((np.float64, 5e-15), (np.float32, 1.2e-7)):
        given = x.astype(dtype)
        expected = scipy_special.polygamma(n, given.astype(np.float64))
        usual = np.abs(expected) > 1e-30
        found = ad.polygamma(n, ad.from_numpy(given)).numpy()
        np.testing.assert_allclose(found[usual], expected[usual], rtol=rtol)


def test_erfinv_in_float32_up_to_the_ends():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, 1, 100_000), 1 - 10 ** rng.uniform(-7, 0, 100_000)])
    x = x.astype(np.float32)
    x = np.concatenate([x[np.abs(x) < 1], np.float32([0, -0.0, 1e-40, 1e-20])])
    found = ad.erfinv(ad.from_numpy(x)).numpy()
    expected = scipy_special.erfinv(x.astype(np.float64))
    unit = np.spacing(np.abs(expected).astype(np.float32))
    assert (np.abs(found - expected) <= 4 * unit).all()
    ends = np.tile(np.float32([1, -1, 1.5, -2, np.nan, np.inf]), 20)
    expected = np.tile([np.inf, -np.inf, np.nan, np.nan, np.nan, np.nan], 20)
    np.testing.assert_array_equal(ad.erfinv(ad.from_numpy(ends)).numpy(), expected)


def test_an_order_for_each_element():
    x, n = np.linspace(-3, 3, 13)[:, None], np.arange(-1.0, 12.0)
    found = ours("chebyshev_polynomial_t", x, n)
    expected = np.where(n < 0, 0, scipy_special.eval_chebyt(n.astype(int), x))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("name", ["bartlett", "blackman", "cosine", "hamming", "hann", "nuttall"])
def test_windows(name, sym):
    for size in (0, 1, 2, 7, 8):
        found = getattr(ad.signal.windows, name)(size, sym=sym, dtype=ad.float64).numpy()
        expected = scipy_signal.get_window(name, size, fftbins=not sym) if size else np.empty(0)
        np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("name", ["hann", "bartlett", "cosine", "kaiser", "exponential"])
def test_the_length_of_a_window_is_an_integer_of_any_kind(name):
    window = getattr(ad.signal.windows, name)
    for length in (ad.tensor(5), ad.tensor(0, dtype=ad.int32), np.int64(1)):
        assert window(length).tolist() == window(int(length)).tolist()
    for length in (4.0, ad.tensor(4.0), ad.tensor([1, 2])):
        with pytest.raises(TypeError, match="must be an integer"):
            window(length)


def test_windows_with_parameters():
    windows, options = ad.signal.windows, {"dtype": ad.float64}
    signal = scipy_signal.windows
    for found, expected in (
        (windows.kaiser(9, beta=3.0, **options), signal.kaiser(9, 3.0)),
        (windows.gaussian(9, std=2.0, **options), signal.gaussian(9, 2.0)),
        (windows.exponential(9, tau=2.0, **options), signal.exponential(9, tau=2.0)),
        (windows.general_hamming(9, alpha=0.6, **options), signal.general_hamming(9, 0.6)),
    ):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-14)
    with pytest.raises(ad.InvalidArgument, match="M=-1"):
        windows.hann(-1)


def test_istft_undoes_stft():
    x = ad.randn(3, 200, dtype=ad.float64)
    window = ad.hann_window(16, dtype=ad.float64)
    spectra = ad.stft(x, 16, 4, window=window, return_complex=True)
    assert tuple(spectra.shape) == (3, 9, 51)
    np.testing.assert_allclose(
        ad.istft(spectra, 16, 4, window=window).numpy(), x.numpy(), atol=1e-12
    )
    with pytest.raises(ad.InvalidArgument, match="gaps"):
        ad.istft(spectra, 16, 16, window=window)


def test_cdist_gradient_where_rows_are_equal():
    x = ad.zeros(2, 3, dtype=ad.float64).requires_grad_()
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        (g,) = ad.autograd.grad(ad.cdist(x, x.detach(), compute_mode=mode).sum(), x)
        np.testing.assert_array_equal(g.numpy(), np.zeros((2, 3)))


def test_householder_product_of_geqrf_is_orthogonal():
    a = ad.randn(5, 3, dtype=ad.float64)
    packed, tau = ad.geqrf(a)
    q = ad.linalg.householder_product(packed, tau)
    np.testing.assert_allclose((q.mT @ q).numpy(), np.eye(3), atol=1e-12)
    np.testing.assert_allclose((q @ packed[:3].triu()).numpy(), a.numpy(), atol=1e-12)
    whole = ad.ormqr(packed, tau, a, transpose=True)  # Q^T A = R
    np.testing.assert_allclose(whole[:3].numpy(), packed[:3].triu().numpy(), atol=1e-12)


def test_incomplete_gamma_functions_far_out():
    """Values that are known to 15 digits (mpmath, 60 digits); the edges are PyTorch's."""
    a = ad.tensor([991496.3911327987, 1e4, 1e-6, 300.0, 5.0, 3e6], dtype=ad.float64)
    x = ad.tensor([986783.7470794962, 9.9e3, 3e-3, 310.0, 1e308, 3e6], dtype=ad.float64)
    low, high = ad.special.gammainc(a, x), ad.special.gammaincc(a, x)
    assert low[0].item() == pytest.approx(1.0686205665834522e-06, rel=1e-12)
    assert low[1].item() == pytest.approx(0.15865119219356466, rel=1e-12)
    assert high[2].item() == pytest.approx(5.234912194183244e-06, rel=1e-9)
    assert low[4].item() == 1.0
    assert low[5].item() == pytest.approx(0.50007677, abs=1e-7)
    assert ad.allclose(low + high, ad.ones(6, dtype=ad.float64), rtol=1e-14)
    inf, nan = float("inf"), float("nan")
    edges = (
        (0.0, 0.0, nan, nan), (0.0, 1.0, 1.0, 0.0), (1.0, 0.0, 0.0, 1.0), (1.0, inf, 1.0, 0.0),
        (inf, 1.0, 0.0, 1.0), (inf, inf, nan, nan), (-1.0, 1.0, nan, nan), (1.0, -1.0, nan, nan),
        (nan, 1.0, nan, nan), (1.0, nan, nan, nan),
    )  # fmt: skip
    for one, other, below, above in edges:
        for function, expected in ((ad.special.gammainc, below), (ad.special.gammaincc, above)):
            got = function(ad.tensor(one), ad.tensor(other)).item()
            assert got == expected or (got != got and expected != expected), (one, other)


def test_incomplete_gamma_functions_compiled_and_interpreted():
    file = incomplete_gamma.__file__.split(".cpython")[0].removesuffix(".py") + ".py"
    name = "adjoint.ops.special.incomplete_gamma_interpreted"
    loader = importlib.machinery.SourceFileLoader(name, file)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    a, x = np.meshgrid([0.0, 1e-6, 0.3, 1.0, 9.9, 10.0, 99.0, 1e5, 2e6], [0.0, 1e-9, 0.4, 9.0, 1e5])
    a, x = np.ascontiguousarray(a), np.ascontiguousarray(x)
    for complement in (False, True):
        mine, other = (m.tails(a, x, complement) for m in (incomplete_gamma, module))
        np.testing.assert_allclose(mine, other, rtol=1e-13)  # lgamma is of Python, or of C
