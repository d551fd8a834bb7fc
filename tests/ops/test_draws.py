"""Draws of distributions: their statistics at extreme parameters, both ways of drawing, and that
few, equal and many parameters take the same numbers.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math

import numpy as np
import pytest

import adjoint as ad
from adjoint.ops.random import twister
from adjoint.ops.random.gamma_draws import standard_dirichlet, standard_gamma

stats = pytest.importorskip("scipy.stats")
D = ad.distributions
COUNT = 20_000
FLOATS = ("float32", "float64")
WAYS = ("counters", "PyTorch's")


@pytest.fixture(params=WAYS)
def way(request):
    if request.param != "counters":
        ad.random.follow_torch()
    ad.manual_seed(7)
    yield request.param
    ad.random.follow_torch(False)


def assert_distributed(sample, law, dtype, points=None):
    """The share of draws up to some points is near what the law says, and so are the moments."""
    x = sample.detach().double().numpy().ravel()
    assert np.isfinite(x).all()
    discrete = hasattr(law, "pmf")
    if points is None:
        points = law.ppf([1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999])
    least = 0.0 if discrete else np.finfo(dtype).tiny
    for t in points:
        if not discrete and t <= least:
            continue  # what underflows
        expected, got = law.cdf(t), (x <= t * (1 + 1e-6) if not discrete else x <= t).mean()
        margin = 5 * math.sqrt(expected * (1 - expected) / x.size) + 2 / x.size
        margin += 0 if discrete else 1e-6 * law.pdf(t) * t
        assert abs(got - expected) <= margin, (t, got, expected)
    mean, spread = law.mean(), law.std()
    assert abs(x.mean() - mean) <= 5 * spread / math.sqrt(x.size) + 1e-6 * mean


def test_the_check_rejects_another_distribution():
    x = ad.distributions.Gamma(ad.tensor(2.0), ad.tensor(1.0)).sample((COUNT,))
    with pytest.raises(AssertionError):
        assert_distributed(x, stats.gamma(2.1), "float32")
    with pytest.raises(AssertionError):
        assert_distributed(ad.poisson(ad.full((COUNT,), 5.0)), stats.poisson(5.2), "float32")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("concentration", [1e-3, 0.5, 1.0, 2.5, 1e6])
def test_gamma(way, concentration, dtype):
    a = ad.full((COUNT,), concentration, dtype=getattr(ad, dtype))
    law = stats.gamma(float(a[0]))
    assert_distributed(standard_gamma(a), law, dtype)
    assert_distributed(standard_gamma(a[0].expand(COUNT)), law, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rate", [0.0, 1e-3, 3.0, 9.99, 10.0, 1e3, 1e6])
def test_poisson(way, rate, dtype):
    x = ad.poisson(ad.full((COUNT,), rate, dtype=getattr(ad, dtype)))
    assert bool((x == x.floor()).all())
    if rate == 0:
        assert not x.any()
    else:
        law = stats.poisson(float(np.dtype(dtype).type(rate)))
        assert_distributed(x, law, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [0, 1, 7, 1000, 10**6])
@pytest.mark.parametrize("p", [0.0, 1e-3, 0.3, 0.5, 0.97, 1.0])
def test_binomial(way, n, p, dtype):
    d = getattr(ad, dtype)
    x = ad.binomial(ad.full((COUNT,), float(n), dtype=d), ad.full((COUNT,), p, dtype=d))
    assert bool(((x >= 0) & (x <= n) & (x == x.floor())).all())
    if n == 0 or p in (0.0, 1.0):
        assert bool((x == n * p).all())
    else:
        assert_distributed(x, stats.binom(n, float(np.dtype(dtype).type(p))), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("a, b", [(1e-3, 1e-3), (0.5, 2.0), (30.0, 1.0), (1e6, 1e6)])
def test_beta_and_dirichlet(way, a, b, dtype):
    rows = ad.tensor([a, b], dtype=getattr(ad, dtype))
    a, b = rows.double().tolist()
    shares = standard_dirichlet(rows.expand(COUNT, 2))
    assert ad.allclose(shares.sum(-1), ad.ones(COUNT, dtype=rows.dtype))
    beta = D.Beta(rows[0], rows[1]).sample((COUNT,))
    points = [0.001, 0.1, 0.4, 0.5, 0.6, 0.9, 0.999]
    for x in (shares[:, 0], beta):
        if a < 0.01 and way != "counters":  # PyTorch's own underflow, alike in both
            assert bool(((x >= 0) & (x <= 1)).all())
            continue
        assert_distributed(x, stats.beta(a, b), dtype, points)


@pytest.mark.parametrize("dtype", FLOATS)
def test_distributions_made_of_them(way, dtype):
    def one(x):
        return ad.tensor(x, dtype=getattr(ad, dtype))

    for made, law in (
        (D.StudentT(one(5.0), one(1.0), one(2.0)), stats.t(5, 1, 2)),
        (D.Chi2(one(3.0)), stats.chi2(3)),
        (D.FisherSnedecor(one(4.0), one(9.0)), stats.f(4, 9)),
        (D.NegativeBinomial(one(6.0), one(0.25)), stats.nbinom(6, 0.75)),
        (D.InverseGamma(one(5.0), one(2.0)), stats.invgamma(5, scale=2)),
        (D.Bernoulli(one(0.25)), stats.bernoulli(0.25)),
        (D.Normal(one(1.0), one(2.0)), stats.norm(1, 2)),
        (D.Gamma(one(2.0), one(4.0)), stats.gamma(2, scale=0.25)),
    ):
        x = made.sample((COUNT,))
        assert x.dtype == getattr(ad, dtype)
        law_points = None if not hasattr(law, "pdf") or law.support()[0] >= 0 else [-3, 0, 1, 2, 5]
        assert_distributed(x, law, dtype, law_points)


@pytest.mark.parametrize("replacement", [False, True])
def test_categories(way, replacement):
    weights = ad.tensor([1.0, 0.0, 3.0, 2.0])
    if replacement:
        drawn = ad.multinomial(weights, COUNT, True)
        at_once = D.Categorical(weights).sample((COUNT,))
        for x in (drawn, at_once):
            share = ad.bincount(x, minlength=4) / COUNT
            assert ad.allclose(share, weights / 6, atol=0.02)
            assert share[1] == 0
    else:
        rows = ad.multinomial(weights.expand(COUNT, 4), 3)
        assert bool((rows.sort(-1).values == ad.tensor([0, 2, 3])).all())
        first = ad.bincount(rows[:, 0], minlength=4) / COUNT
        assert ad.allclose(first, weights / 6, atol=0.02)


@pytest.mark.parametrize("size", [1, 8, 9, 40])
def test_few_equal_and_many_parameters_take_the_same_numbers(way, size):
    """However the parameters lie, and whether the draw is recorded, the numbers are the same."""
    last = ad.tensor([0.7])
    for draw, value in (
        (ad.poisson, 4.0), (standard_gamma, 2.5), (ad.bernoulli, 0.3),
        (lambda x: ad.binomial(x.new_full(x.shape, 30.0), x), 0.3),
    ):  # fmt: skip
        equal = ad.full((size,), value)
        whole = ad.cat([equal, last])  # an array of which not all are equal
        results = []
        for x in (whole, equal, ad.tensor(value).expand(size), equal.clone().requires_grad_()):
            ad.manual_seed(3)
            results.append(draw(x)[:size].tolist())
        assert results[1:] == results[:1] * 3
        if way == "counters":
            ad.manual_seed(3)
            with ad.lazy():
                y = draw(equal)
            assert y.tolist() == results[0]


def test_wrong_parameters_are_refused_and_take_no_numbers_of_pytorchs(way):
    before = ad.get_rng_state()
    for draw in (
        lambda: ad.poisson(ad.tensor([1.0, -1.0])), lambda: ad.poisson(ad.tensor(math.nan)),
        lambda: ad.bernoulli(ad.tensor([0.5, 1.5])), lambda: ad.bernoulli(ad.tensor([-0.1])),
        lambda: ad.bernoulli(ad.tensor([math.nan, 0.5])), lambda: standard_gamma(ad.zeros(1)),
        lambda: standard_gamma(ad.tensor([1.0, math.nan])),
        lambda: ad.binomial(ad.tensor([-1.0]), ad.tensor([0.5])),
        lambda: ad.binomial(ad.tensor([3.0, 3.0]), ad.tensor([0.5, 1.1])),
        lambda: ad.multinomial(ad.tensor([0.0, 0.0]), 3, True),
        lambda: ad.multinomial(ad.tensor([1.0, -1.0, 3.0]), 3, True),
        lambda: ad.multinomial(ad.tensor([1.0, math.nan]), 3, True),
        lambda: ad.multinomial(ad.tensor([1.0, math.inf]), 3, True),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            draw()
    if way != "counters":
        assert ad.get_rng_state().equal(before)


# ---- PyTorch's generator, interpreted and compiled ---------------------------------------------


def interpreted():
    """The class of `twister.py` as Python runs it."""
    file = twister.__file__.split(".cpython")[0].removesuffix(".py") + ".py"
    name = "adjoint.ops.random.twister_interpreted"
    loader = importlib.machinery.SourceFileLoader(name, file)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module.Twister


METHODS = {
    "uniform": [(), (-0.3, 0.7)], "normal": [(), (3.0, 0.1)], "log_normal": [(0.5, 0.3)],
    "exponential": [(0.7,)], "geometric": [(0.2,)], "cauchy": [(1.0, 2.0)],
    "integers": [(-5, 8), (0, 2**28), (-5, 2**40), (-(2**63), 2**63 - 1)],
    "whole": [(2**24,), (2**63 - 1,)], "mask": [(0.3, 1.0), (0.3, 2.5)], "permutation": [()],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "int8"])
def test_compiled_and_interpreted_draw_the_same_bits(dtype):
    mine, other = twister.Twister(5), interpreted()(5)
    for method, calls in METHODS.items():
        if "int" in dtype and method not in ("integers", "whole", "mask", "geometric"):
            continue
        for args in calls:
            if method in ("integers", "whole") and dtype != "int64" and args[-1] > 2**24:
                continue
            for size in (0, 1, 2, 17, 33, 600, 20_000):
                shape = (size,)
                x, y = (
                    t.draw(method, args, shape, getattr(ad, dtype), None) for t in (mine, other)
                )
                assert x.dtype == y.dtype, method
                assert x.tobytes() == y.tobytes(), (method, args, size)
                assert mine.to_bytes(5) == other.to_bytes(5), (method, args, size)


def test_compiled_and_interpreted_reject_alike():
    mine, other = twister.Twister(9), interpreted()(9)
    values = np.array([0.0, 1e-3, 0.4, 0.5, 0.99, 1.0, 3.0, 9.9, 10.0, 55.0, 1e6])
    chances = np.array([0.0, 1e-3, 0.3, 0.5, 0.7, 1.0])
    counts, p = np.broadcast_arrays(np.floor(values)[:, None], chances)
    for method, parameters in (
        ("poisson", (values,)), ("gamma", (values,)), ("binomial", (counts, p)),
        ("poisson", (values[3],)), ("gamma", (values[:0],)), ("gamma", (values[::-2],)),
    ):  # fmt: skip
        parameters = tuple(np.asarray(x) for x in parameters)
        x, y = (t.rejecting(method, *parameters) for t in (mine, other))
        assert x.shape == parameters[0].shape
        assert x.tobytes() == y.tobytes(), method
        assert mine.to_bytes(9) == other.to_bytes(9)


WITHOUT_DIMENSIONS = {
    "Bernoulli": (0.3,), "Beta": (0.5, 0.5), "Binomial": (3, 0.3), "Cauchy": (0.0, 1.0),
    "Chi2": (2.0,), "ContinuousBernoulli": (0.3,), "Exponential": (1.0,),
    "FisherSnedecor": (2.0, 2.0),
    "Gamma": (1.0, 1.0), "GeneralizedPareto": (0.0, 1.0, 0.1), "Geometric": (0.3,),
    "Gumbel": (0.0, 1.0), "HalfCauchy": (1.0,), "HalfNormal": (1.0,), "InverseGamma": (1.0, 1.0),
    "Kumaraswamy": (1.0, 1.0), "Laplace": (0.0, 1.0), "LogNormal": (0.0, 1.0),
    "LogisticNormal": ([0.0], [1.0]), "NegativeBinomial": (3.0, 0.3), "Normal": (0.0, 1.0),
    "Pareto": (1.0, 1.0), "Poisson": (2.0,), "RelaxedBernoulli": (1.0, 0.3), "StudentT": (2.0,),
    "Uniform": (0.0, 1.0), "VonMises": (0.0, 1.0), "Weibull": (1.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_DIMENSIONS)
def test_numbers_drawn_for_parameters_without_dimensions_are_tensors(way, name):
    """NumPy gives its scalars for such arrays, which no other op takes."""
    parameters = [ad.tensor(value) for value in WITHOUT_DIMENSIONS[name]]
    made = getattr(ad.distributions, name)(*parameters)
    for drawn in (
        made.sample(),
        made.sample((2,)),
        *([made.rsample()] if made.has_rsample else ()),
    ):
        assert type(drawn._data) is np.ndarray
        assert (drawn == drawn).all() and (drawn * 2 - drawn).isfinite().all()


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "rand_like", "randn_like"])
def test_functions_that_draw_for_a_number_give_tensors(way, name):
    drawn = getattr(ad, name)(ad.tensor(0.3))
    assert type(drawn._data) is np.ndarray and (drawn == drawn).item()
