"""Reductions, extrema, scans, statistics: side by side with PyTorch, and their errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

NAN, INF = math.nan, math.inf
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
CUBE = RNG.normal(size=(2, 3, 4))
TIES = np.array([[1.0, 3.0, 3.0, 2.0], [2.0, 2.0, 2.0, 2.0], [5.0, -1.0, 5.0, -1.0]])
ZEROS = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0], [1.5, 2.0, 3.0]])
NANS = np.array([[1.0, NAN, 3.0, NAN], [2.0, 2.5, 1.0, 4.0], [NAN, NAN, NAN, NAN]])
INFS = np.array([[1.0, INF, 3.0], [-INF, 2.0, 0.0], [-INF, -INF, -INF]])


def flat(value):
    """The tensors in a result, which may be a tuple of tensors."""
    return list(value) if isinstance(value, tuple) else [value]


def assert_same(call, *arrays, gradients=True, order=2, rtol=1e-9):
    """`call(namespace, *tensors)` agrees with PyTorch in values, dtypes and gradients."""
    ours = [ad.from_numpy(a.copy()) for a in arrays]
    theirs = [torch.from_numpy(a.copy()) for a in arrays]
    if gradients:
        ours = [x.requires_grad_() if x.dtype.category >= 2 else x for x in ours]
        theirs = [
            x.requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in theirs
        ]
    y, z = flat(call(ad, *ours)), flat(call(torch, *theirs))
    assert len(y) == len(z)
    for a, b in zip(y, z, strict=True):
        assert_equal(a, b, rtol)
    if not gradients:
        return
    for _ in range(order):
        y, z = weighted_sum(y), weighted_sum(z)
        if not z.requires_grad:
            assert not y.requires_grad
            return
        y = ad.autograd.grad(y, leaves(ours), create_graph=True, materialize_grads=True)
        z = torch.autograd.grad(z, leaves(theirs), create_graph=True, materialize_grads=True)
        for a, b in zip(y, z, strict=True):
            assert_equal(a, b, rtol)


def function(name, *args, **options):
    """The call of the function of that name with these arguments after the tensors."""
    return lambda namespace, *tensors: getattr(namespace, name)(*tensors, *args, **options)


def leaves(tensors):
    return [x for x in tensors if x.requires_grad]


def weighted_sum(tensors):
    """One number that depends on every element, each with another weight."""
    total = 0
    for x in tensors:
        if x.requires_grad:
            x = x.abs() if x.is_complex() else x
            weights = np.linspace(1, 2, max(x.numel(), 1))[: x.numel()].reshape(tuple(x.shape))
            module = ad if isinstance(x, ad.Tensor) else torch
            total = total + (x * module.from_numpy(weights)).sum()
    return total if hasattr(total, "requires_grad") else tensors[0].detach().sum()


def assert_equal(ours, theirs, rtol=1e-9):
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.numpy(force=True), rtol=rtol, atol=rtol
    )


DIMS = [None, 0, 1, -1, (0, 2), (0, 1, 2)]


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "logsumexp", "nansum", "nanmean"])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_over_dims(name, dim, keepdim):
    if dim is None and name in ("amax", "amin", "logsumexp"):
        dim = (0, 1, 2)
    assert_same(function(name, dim, keepdim), CUBE)
    assert_same(lambda m, x: getattr(x, name)(dim=dim, keepdim=keepdim), CUBE.T)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ["std", "var", "std_mean", "var_mean"])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("options", [{}, {"correction": 0}, {"correction": 2, "keepdim": True}])
def test_variances(name, dim, options):
    assert_same(function(name, dim, **options), CUBE)


def test_variances_other_overloads():
    assert_same(lambda m, x: m.var(x, False), X)
    assert_same(lambda m, x: m.std(x, 1, False, True), X)
    assert_same(lambda m, x: x.var(unbiased=False), X)
    assert_same(lambda m, x: m.std_mean(x, dim=0, unbiased=True), X)
    assert_same(lambda m, x: x.std(0), np.ones((4, 2)), order=1)  # a deviation of 0
    assert_same(lambda m, x: m.var(x, 0), X + 1j * X[::-1])


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variance_of_one_element_is_nan():
    assert math.isnan(ad.ones(1).var().item())
    assert math.isnan(ad.ones(1).std().item())
    assert_same(lambda m, x: m.var_mean(x, 0), np.ones((1, 2)), gradients=False)
    assert_same(lambda m, x: m.var(x, 0, correction=3), X, gradients=False)


@pytest.mark.parametrize(
    "x", [X, TIES, ZEROS, NANS, INFS], ids=["x", "ties", "zeros", "nan", "inf"]
)
@pytest.mark.parametrize(
    "name",
    ["sum", "mean", "amax", "amin", "max", "min", "median", "nanmedian", "nansum", "aminmax"],
)
def test_special_values_and_tie_rules(name, x):
    order = 2 if x is X else 1
    assert_same(function(name), x, order=order)
    if name != "nanmedian" or x is not NANS:
        assert_same(function(name, dim=1), x, order=order)
    if name in ("max", "min", "median", "nanmedian"):
        assert_same(lambda m, x: getattr(m, name)(x, 0, keepdim=True).values, x, order=order)


def test_nanmedian_of_nothing_but_nan():
    assert_same(lambda m, x: m.nanmedian(x, 1).values, NANS, gradients=False)


@pytest.mark.parametrize("x", [X, ZEROS, NANS[:2]], ids=["x", "zeros", "nan"])
def test_prod_and_cumprod(x):
    plain = x is X or x is ZEROS  # where PyTorch divides by NaN, more becomes NaN than need be
    for name in ("prod", "cumprod"):
        for dim in (0, 1):
            assert_same(function(name, dim), x, gradients=plain)
    assert_same(function("prod"), x, gradients=plain)
    assert_same(function("prod", 0, True), x, gradients=plain)


def test_prod_of_zeros_to_third_order():
    x = ad.tensor([0.0, 2.0, 0.0, 5.0], dtype=ad.float64, requires_grad=True)
    (g,) = ad.autograd.grad(x.prod(), x, create_graph=True)
    assert g.tolist() == [0, 0, 0, 0]
    (h,) = ad.autograd.grad(g[0], x, create_graph=True)
    assert h.tolist() == [0, 0, 10, 0]
    (third,) = ad.autograd.grad(h[2], x)
    assert third.tolist() == [0, 5, 0, 2]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
@pytest.mark.parametrize("x", [X, TIES, NANS, INFS], ids=["x", "ties", "nan", "inf"])
def test_scans(name, x):
    plain = x is X or x is TIES
    for dim in (0, 1, -1):
        assert_same(function(name, dim), x, gradients=plain)
    assert_same(function(name, 0), np.array(2.0), order=1)
    assert_same(function(name, 1), np.zeros((2, 0)), gradients=False)


def test_logcumsumexp_starting_with_minus_infinity():
    x = ad.tensor([-INF, -INF, 1.0, 2.0], dtype=ad.float64, requires_grad=True)
    ad.logcumsumexp(x, 0)[2:].sum().backward()
    share = math.e / (1 + math.e)
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, 2 - share, share])


@pytest.mark.parametrize("p", ["fro", 2, 1, 0, 3, 1.5, 0.5, -1, INF, -INF])
def test_norms(p):
    for x in (X, X + 1j * X[::-1]):
        order = 1 if p in (0, 1.5) or x.dtype.kind == "c" else 2
        assert_same(lambda m, x: m.norm(x, p), x, order=order)
        assert_same(lambda m, x: m.norm(x, p, dim=1, keepdim=True), x, order=order)
    assert_same(lambda m, x: x.norm(p, dim=(0, 2)), CUBE, order=1)
    if p != -1:
        assert_same(lambda m, x: m.norm(x, p, 1), ZEROS * [[1], [0], [1]], order=1)
    if p in (1, 2, 3, INF):
        assert_same(lambda m, x, y: m.dist(x, y, p), X, X[::-1].copy())


@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(q, interpolation):
    for name in ("quantile", "nanquantile"):
        for x in (X, NANS):
            for options in ({}, {"dim": 1}, {"dim": 0, "keepdim": True}, {"keepdim": True}):
                assert_same(
                    function(name, q, interpolation=interpolation, **options), x, gradients=x is X
                )


def test_quantiles_of_several_q():
    q = [0.1, 0.5, 0.75]
    assert_same(lambda m, x: m.quantile(x, m.tensor(q, dtype=m.float64)), X, order=1)
    assert_same(lambda m, x: m.quantile(x, m.tensor(q, dtype=m.float64), 1), X, order=1)
    assert_same(lambda m, x: m.nanquantile(x, m.tensor(q[:1], dtype=m.float64), 0, True), X)


def test_mode_takes_the_smallest_of_the_most_frequent():
    x = RNG.integers(0, 3, (4, 7))
    assert_same(lambda m, x: m.mode(x), x)
    assert_same(lambda m, x: m.mode(x, 0, True), x)
    assert_same(lambda m, x: m.mode(x, 0), x.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.int64, np.float32])
def test_result_dtypes(dtype):
    x = np.array([[0, 1, 2], [3, 0, 1]]).astype(dtype)
    for name in ("sum", "prod", "all", "any", "count_nonzero", "nansum", "amax", "amin", "max"):
        assert_same(function(name), x, gradients=False)
        assert_same(function(name, dim=1), x, gradients=False)
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        assert_same(function(name, 0), x, gradients=False)
    assert_same(lambda m, x: m.sum(x, dtype=m.float64), x, gradients=False)
    assert_same(lambda m, x: m.mean(x, dtype=m.float32), x, gradients=False)
    assert_same(lambda m, x: m.cumsum(x, 1, dtype=m.float64), x, gradients=False)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_empty(shape):
    x = np.zeros(shape)
    for name in ("sum", "prod", "mean", "all", "any", "norm", "nansum", "count_nonzero"):
        assert_same(function(name), x, gradients=False)
        assert_same(function(name, dim=0), x, gradients=False)
    assert_same(lambda m, x: m.logsumexp(x, 0), x, gradients=False)
    assert_same(lambda m, x: m.median(x), x, gradients=False)


def test_argmax_takes_the_first():
    for name in ("argmax", "argmin"):
        for x in (TIES, NANS, X):
            for options in ({}, {"dim": 0}, {"dim": 1, "keepdim": True}, {"keepdim": True}):
                assert_same(function(name, **options), x)


def test_max_of_two_tensors():
    assert_same(lambda m, x, y: m.max(x, y), X, X[::-1].copy())
    assert_same(lambda m, x, y: x.min(y), TIES, TIES[::-1].copy())


def test_results_with_names():
    found = ad.tensor([[1.0, 5.0], [7.0, 2.0]]).max(dim=1)
    assert found.values.tolist() == [5, 7]
    assert found.indices.tolist() == [1, 0]
    assert repr(found).startswith("adjoint.return_types.max(\nvalues=")
    assert ad.aminmax(ad.tensor([1.0, 2.0])).max.item() == 2


def test_out():
    out = ad.zeros(2)
    assert ad.sum(ad.ones(3, 2), 0, out=out) is out
    assert out.tolist() == [3, 3]
    values, indices = ad.zeros(2), ad.zeros(2, dtype=ad.int64)
    ad.max(ad.tensor([[1.0, 5.0], [7.0, 2.0]]), 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([5, 7], [1, 0])


def test_float32_sums_are_accurate():
    x = np.full(1_000_003, 0.1, np.float32)
    exact = math.fsum(x.tolist())
    for y in (ad.from_numpy(x).sum(), ad.from_numpy(x).cumsum(0)[-1]):
        assert abs(y.item() - exact) < 1e-6 * exact
    assert abs(ad.from_numpy(x).mean().item() - exact / x.size) < 1e-8


def test_float16_means_do_not_overflow():
    x = ad.full((1000,), 1000.0, dtype=ad.float16)
    assert x.mean().item() == 1000
    assert x.var().item() == 0


def test_differences_and_trapezoids():
    assert_same(lambda m, x: m.diff(x), CUBE)
    assert_same(lambda m, x: m.diff(x, 2, 1), CUBE)
    assert_same(lambda m, x: m.diff(x, 9, 1), CUBE, gradients=False)
    assert_same(lambda m, x: m.diff(x, dim=0, prepend=x[:1], append=x), X)
    assert_same(lambda m, x: m.diff(x), np.array([True, False, False]), gradients=False)
    for name in ("trapezoid", "cumulative_trapezoid"):
        assert_same(function(name), CUBE)
        assert_same(function(name, dx=0.5, dim=1), CUBE)
        assert_same(function(name), X, X[0].copy())
        assert_same(function(name, dim=0), X, X**2)


def test_renorm():
    for p in (1, 2, 3.5):
        assert_same(function("renorm", p, 1, 1.5), CUBE)
        assert_same(function("renorm", p, -1, 0.5), X)


def test_covariances():
    assert_same(lambda m, x: m.cov(x), X)
    assert_same(lambda m, x: m.cov(x, correction=0), X)
    assert_same(lambda m, x: m.cov(x), X[0].copy())
    assert_same(lambda m, x: m.corrcoef(x), X, order=1)
    assert_same(lambda m, x: m.cov(x), X + 1j * X[::-1], gradients=False)
    frequencies, weights = np.array([1, 2, 3, 1]), np.array([0.5, 1.0, 2.0, 1.0])
    assert_same(lambda m, x, f: m.cov(x, fweights=f), X, frequencies)
    assert_same(lambda m, x, a: m.cov(x, aweights=a.detach()), X, weights)
    assert_same(
        lambda m, x, f, a: m.cov(x, fweights=f, aweights=a.detach()), X, frequencies, weights
    )


ERRORS = [
    (lambda: ad.zeros(0).max(), RuntimeError, r"max\(\): Expected reduction dim to be"),
    (lambda: ad.zeros(2, 0).max(1), IndexError, "Expected reduction dim 1 to have non-zero size"),
    (lambda: ad.zeros(2, 0).amax(1), IndexError, "Expected reduction dim 1 to have non-zero size"),
    (lambda: ad.zeros(2, 0).amin(), RuntimeError, "Expected reduction dim to be specified"),
    (lambda: ad.zeros(0).argmax(), IndexError, "Expected reduction dim to be specified"),
    (lambda: ad.zeros(0).aminmax(), RuntimeError, "cannot compute aminmax over an empty dim"),
    (lambda: ad.tensor([1, 2]).mean(), RuntimeError, r"mean\(\): could not infer output dtype"),
    (lambda: ad.tensor([1, 2]).var(), RuntimeError, "only support floating point and complex"),
    (lambda: ad.tensor([1, 2]).norm(), RuntimeError, "Expected a floating point or complex"),
    (lambda: ad.tensor([1, 2]).nanmean(), RuntimeError, "floating point or complex dtype"),
    (lambda: ad.tensor([1j]).max(), RuntimeError, "does not support complex"),
    (lambda: ad.tensor([True]).argmax(), RuntimeError, "does not support bool input"),
    (lambda: ad.zeros(2, 0).median(1), IndexError, "Expected reduction dim 1 to have non-zero"),
    (lambda: ad.zeros(2, 0).mode(1), IndexError, "Expected reduction dim 1 to have non-zero"),
    (lambda: ad.zeros(0).quantile(0.5), RuntimeError, "must be non-empty"),
    (lambda: ad.zeros(2).quantile(1.5), RuntimeError, r"must be in the range \[0, 1\] but got 1.5"),
    (lambda: ad.tensor([1]).quantile(0.5), RuntimeError, "either float or double"),
    (lambda: ad.zeros(2).quantile(0.5, interpolation="x"), ValueError, "interpolation must be"),
    (lambda: ad.zeros(2).sum(5), IndexError, r"sum: .*range of \[-1, 0\], but got 5"),
    (lambda: ad.zeros(2, 2).any(5), IndexError, "any: Dimension out of range"),
    (lambda: ad.zeros(2, 2).sum((0, 0)), RuntimeError, "appears multiple times"),
    (lambda: ad.zeros(2, 2).max((0, 1)), TypeError, "dim must be an int"),
    (lambda: ad.zeros(2, 2).prod((0, 1)), TypeError, "dim must be an int"),
    (lambda: ad.zeros(2, 2).sum(1.5), TypeError, "dim must be an int"),
    (lambda: ad.zeros(0).norm(INF), RuntimeError, "does not have an identity"),
    (lambda: ad.zeros(2).norm("x"), ValueError, "must be a number"),
    (lambda: ad.zeros(2).var(unbiased=True, correction=1), TypeError, "not both"),
    (lambda: ad.zeros(2, 2).cumsum(2), IndexError, "cumsum: Dimension out of range"),
    (lambda: ad.diff(ad.tensor(1.0)), RuntimeError, "at least one-dimensional"),
    (lambda: ad.diff(ad.zeros(3), -1), RuntimeError, "non-negative but got -1"),
    (lambda: ad.cov(ad.zeros(2, 2, 2)), RuntimeError, "two or fewer dimensions"),
    (lambda: ad.trapezoid(ad.zeros(3), ad.zeros(4)), RuntimeError, "one `x` value for each"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message):
    with pytest.raises(error, match=message) as found:
        call()
    assert isinstance(found.value, ad.AdjointError)


def test_ops_of_equal_arguments_are_made_once():
    from adjoint.ops.reduce.reduction import Sum, reduction

    assert reduction(Sum, None, 2, False) is reduction(Sum, None, 2, False)
    assert reduction(Sum, [0, 1], 2, False) == reduction(Sum, None, 2, False)


@pytest.mark.parametrize("name", ["argmax", "argmin", "amax", "amin", "sum", "prod"])
def test_scalars_are_reduced_again_and_again(name):
    x = ad.tensor(5)
    results = [getattr(x, name)(0) for _ in range(4)]
    assert {y.item() for y in results} == {0 if name.startswith("arg") else 5}
    assert all(y.shape == () for y in results)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_norms_and_deviations_whose_squares_leave_float32(size):
    for p in (2, 3, 1.5):
        x = ad.tensor([3 * size, 0.0, 4 * size], requires_grad=True)
        y = ad.linalg.vector_norm(x, p)
        wanted = float(np.linalg.norm([3, 0, 4], p))
        np.testing.assert_allclose(y.item() / size, wanted, rtol=1e-5)
        slope = (np.array([3, 0, 4]) / wanted) ** (p - 1)
        np.testing.assert_allclose(ad.autograd.grad(y, x)[0].tolist(), slope, rtol=1e-5)
    x = ad.tensor([size, -size], requires_grad=True)
    y = x.std()
    np.testing.assert_allclose(y.item() / size, 2**0.5, rtol=1e-5)
    np.testing.assert_allclose(ad.autograd.grad(y, x)[0].tolist(), [0.5**0.5, -(0.5**0.5)], 1e-5)


class Dims(list):
    """A list of a class of its own."""


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "var", "logsumexp", "count_nonzero"])
def test_dimensions_in_a_list_of_another_class(name):
    x = ad.arange(24.0).reshape(2, 3, 4)
    assert getattr(x, name)(dim=Dims([0, 2])).equal(getattr(x, name)(dim=(0, 2)))
