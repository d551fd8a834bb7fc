"""Distributions beside PyTorch's: densities, moments, divergences, draws and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
D, T = ad.distributions, torch.distributions


def positive_definite(k, seed=0, batch=()):
    m = np.random.default_rng(seed).normal(size=(*batch, k, k))
    return m @ np.swapaxes(m, -1, -2) + np.eye(k)


A = np.array([[0.3, 1.0, 2.5], [4.0, 0.7, 30.0]])
B = np.array([1.5, 0.4, 6.0])
R = np.array([[-1.0, 0.0, 2.0], [0.5, -3.0, 10.0]])
P = np.array([[0.1, 0.5, 0.9], [0.25, 0.6, 0.999]])
S = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
C = positive_definite(3)
X = np.linspace(-4, 4, 6).reshape(2, 3) + 0.05
UP = np.linspace(0.05, 7, 6).reshape(2, 3)
UNIT = np.linspace(0.03, 0.97, 6).reshape(2, 3)
COUNT = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 1.0]])

# name, parameters (arrays become float64 tensors), values in the support
CASES = [
    ("Normal", {"loc": R, "scale": B}, X),
    ("Laplace", {"loc": R, "scale": B}, X),
    ("Cauchy", {"loc": R, "scale": B}, X),
    ("Gumbel", {"loc": R, "scale": B}, X),
    ("StudentT", {"df": A + 0.2, "loc": R, "scale": B}, X),
    ("Uniform", {"low": R, "high": R + B}, R + B * UNIT),
    ("Exponential", {"rate": B}, UP),
    ("HalfNormal", {"scale": B}, UP),
    ("HalfCauchy", {"scale": B}, UP),
    ("LogNormal", {"loc": R / 4, "scale": B}, UP),
    ("Gamma", {"concentration": A, "rate": B}, UP),
    ("Chi2", {"df": A}, UP),
    ("Beta", {"concentration1": A, "concentration0": B}, UNIT),
    ("Dirichlet", {"concentration": A}, S),
    ("Poisson", {"rate": A}, COUNT),
    ("Bernoulli", {"probs": P}, (COUNT > 1) * 1.0),
    ("Bernoulli", {"logits": R}, (COUNT > 1) * 1.0),
    ("Geometric", {"probs": P}, COUNT),
    ("Geometric", {"logits": R / 3}, COUNT),
    ("Binomial", {"total_count": 5, "probs": P}, COUNT),
    ("Binomial", {"total_count": 5, "logits": R / 3}, COUNT),
    ("Categorical", {"probs": A}, np.array([2, 0])),
    ("Categorical", {"logits": R}, np.array([[2, 0], [1, 1]])),
    ("OneHotCategorical", {"probs": A}, np.eye(3)[[2, 0]]),
    ("OneHotCategorical", {"logits": R}, np.eye(3)[[2, 0]]),
    ("Multinomial", {"total_count": 4, "probs": A}, np.array([[1.0, 3, 0], [2, 1, 1]])),
    ("Multinomial", {"total_count": 4, "logits": R}, np.array([[1.0, 3, 0], [2, 1, 1]])),
    ("MultivariateNormal", {"loc": R, "covariance_matrix": C}, X),
    ("MultivariateNormal", {"loc": R[0], "precision_matrix": C}, X),
    (
        "MultivariateNormal",
        {"loc": R, "scale_tril": np.linalg.cholesky(positive_definite(3, 1, (2,)))},
        X,
    ),
]
IDS = [f"{name}-{next(reversed(parameters))}" for name, parameters, _ in CASES]
cases = pytest.mark.parametrize(("name", "parameters", "value"), CASES, ids=IDS)


def tensor_of(lib, x, grad=False):
    if not isinstance(x, np.ndarray):
        return x
    t = lib.tensor(x)
    return t.requires_grad_() if grad and x.dtype.kind == "f" else t


def pair(name, parameters, grad=False, **options):
    """Ours and PyTorch's, with their parameter tensors."""
    made = []
    for lib in (ad, torch):
        given = {k: tensor_of(lib, v, grad) for k, v in parameters.items()}
        made.append((getattr(lib.distributions, name)(**given, **options), given))
    return made


def same(ours, theirs, rtol=1e-9, atol=1e-12):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
    np.testing.assert_allclose(ours, theirs, rtol, atol)


def same_gradients(results, given, rtol=1e-8):
    """The gradients of both results' weighted sums, in all parameters."""
    ours, theirs = results
    if not theirs.requires_grad:
        assert not ours.requires_grad
        return
    weight = np.linspace(0.5, 1.5, math.prod(ours.shape)).reshape(tuple(ours.shape))
    (ours * ad.tensor(weight)).sum().backward()
    (theirs * torch.tensor(weight)).sum().backward()
    for k, x in given[0].items():
        if isinstance(x, ad.Tensor) and given[1][k].grad is not None:
            np.testing.assert_allclose(
                x.grad.numpy(), given[1][k].grad.numpy(), rtol, 1e-10, err_msg=k
            )
            x.grad = given[1][k].grad = None


@cases
def test_log_prob_and_its_gradients(name, parameters, value):
    (ours, p), (theirs, q) = pair(name, parameters, grad=True)
    x, y = tensor_of(ad, value, True), tensor_of(torch, value, True)
    results = ours.log_prob(x), theirs.log_prob(y)
    same(*results)
    same_gradients(results, ({**p, "value": x}, {**q, "value": y}))


@cases
def test_entropy_and_its_gradients(name, parameters, value):
    (ours, p), (theirs, q) = pair(name, parameters, grad=True)
    try:
        expected = theirs.entropy()
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            ours.entropy()
        return
    results = ours.entropy(), expected
    same(*results, rtol=1e-4 if name == "Multinomial" else 1e-9)  # PyTorch's is in float32 there
    same_gradients(results, (p, q))


@cases
@pytest.mark.parametrize("what", ["mean", "mode", "variance", "stddev"])
def test_moments(name, parameters, value, what):
    (ours, p), (theirs, q) = pair(name, parameters, grad=True)
    try:
        expected = getattr(theirs, what)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            getattr(ours, what)
        return
    result = getattr(ours, what)
    same(result, expected)
    if np.isfinite(expected.detach().numpy()).all() and what != "mode":
        same_gradients((result, expected), (p, q))


@cases
def test_shapes_and_repr(name, parameters, value):
    (ours, _), (theirs, _) = pair(name, parameters)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    assert tuple(ours.sample((4, 2)).shape) == tuple(theirs.sample((4, 2)).shape)
    if not repr(theirs).endswith("()"):  # where PyTorch hides the parameters, ours shows them
        assert repr(ours) == repr(theirs).replace("torch", "adjoint")


@cases
def test_expand(name, parameters, value):
    (ours, _), (theirs, _) = pair(name, parameters)
    batch = (4, *theirs.batch_shape)
    a, b = ours.expand(batch), theirs.expand(batch)
    assert tuple(a.batch_shape) == tuple(b.batch_shape) == batch
    assert tuple(a.event_shape) == tuple(b.event_shape)
    assert tuple(a.sample((2,)).shape) == tuple(b.sample((2,)).shape)
    draws = a.sample()
    same(a.log_prob(draws), b.log_prob(torch.tensor(draws.numpy())))


@cases
def test_values_outside_the_support_are_refused(name, parameters, value):
    (ours, _), (theirs, _) = pair(name, parameters)
    wrong = value * 0 + math.nan if value.dtype.kind == "f" else value + 100
    with pytest.raises(ValueError):
        theirs.log_prob(torch.tensor(wrong))
    with pytest.raises(ValueError, match="within the support"):
        ours.log_prob(ad.tensor(wrong))


CDF = ["Normal", "Laplace", "Cauchy", "Gumbel", "Uniform", "Exponential", "HalfNormal",
       "HalfCauchy", "LogNormal", "Gamma", "Chi2"]  # fmt: skip


@pytest.mark.parametrize(("name", "parameters", "value"), [c for c in CASES if c[0] in CDF])
def test_cdf_and_icdf(name, parameters, value):
    (ours, p), (theirs, q) = pair(name, parameters, grad=name not in ("Gamma", "Chi2"))
    results = ours.cdf(ad.tensor(value)), theirs.cdf(torch.tensor(value))
    same(*results, rtol=1e-8)
    if name in ("Gamma", "Chi2"):  # PyTorch has no gradient in the concentration
        return
    same_gradients(results, (p, q))
    results = ours.icdf(ad.tensor(UNIT)), theirs.icdf(torch.tensor(UNIT))
    same(*results, rtol=1e-8)
    same_gradients(results, (p, q))


def test_gamma_cdf_has_gradients_in_all_parameters():
    def cdf(a, b, x):
        return D.Gamma(a, b).cdf(x)

    inputs = [ad.tensor(v, requires_grad=True) for v in (A, np.array([1.5, 0.4, 1.0]), UP)]
    assert ad.autograd.gradcheck(cdf, inputs)
    assert ad.autograd.gradgradcheck(cdf, inputs)


# ---- draws ---------------------------------------------------------------------------------------

SAMPLED = [c for c in CASES if c[0] not in ("Cauchy", "HalfCauchy", "Categorical")]


@pytest.mark.parametrize(("name", "parameters", "value"), SAMPLED)
def test_draws_have_the_mean_and_variance(name, parameters, value):
    """Within 5 standard errors, the variance's from the draws' own fourth moment."""
    (ours, _), _ = pair(name, parameters)
    n = 20_000
    if name == "StudentT":
        ours = D.StudentT(ad.full((3,), 12.0, dtype=ad.float64), 1.0, 2.0)
    if name == "LogNormal":
        ours = D.LogNormal(ad.tensor(R / 4), 0.5)
    draws = ours.sample((n,)).numpy()
    mean, variance = ours.mean.numpy(), ours.variance.numpy()
    kept = n * variance > 100  # the others' errors are those of events too rare to be seen
    assert kept.any()
    error = np.abs(draws.mean(0) - mean)
    assert (error <= 5 * np.sqrt(variance / n) + 1e-12)[kept].all()
    squares = (draws - mean) ** 2
    slack = 5 * squares.std(0) / math.sqrt(n) + 1e-12
    assert (np.abs(squares.mean(0) - variance) <= slack)[kept].all()


@pytest.mark.parametrize(
    ("name", "parameters", "value"),
    [c for c in CASES if c[0] in CDF and c[0] != "Uniform"] + [CASES[5]],
)
def test_draws_follow_the_cdf(name, parameters, value):
    """Kolmogorov-Smirnov at five standard deviations, which no wrong shape passes."""
    (ours, _), _ = pair(name, parameters)
    n = 4000
    levels = np.sort(ours.cdf(ours.sample((n,))).numpy().reshape(n, -1), axis=0)
    steps = (np.arange(n)[:, None] + 0.5) / n
    assert np.abs(levels - steps).max() < 2.6 / math.sqrt(n)


def test_categories_come_as_often_as_probable():
    p = D.Categorical(ad.tensor(A))
    draws = p.sample((20_000,)).numpy()
    assert draws.dtype == np.int64 and draws.shape == (20_000, 2)
    probs = p.probs.numpy()
    for row in range(2):
        share = np.bincount(draws[:, row], minlength=3) / 20_000
        assert (np.abs(share - probs[row]) < 5 * np.sqrt(probs[row] / 20_000)).all()


def test_sampling_repeats_with_the_seed_and_carries_no_gradient():
    p = D.Gamma(ad.tensor(A, requires_grad=True), 1.0)
    ad.manual_seed(3)
    first = p.sample((5,))
    ad.manual_seed(3)
    assert p.rsample((5,)).detach().equal(first)
    assert not first.requires_grad
    with pytest.raises(NotImplementedError):
        D.Poisson(1.0).rsample()


REPARAMETERIZED = ["Normal", "Laplace", "Cauchy", "Gumbel", "Uniform", "Exponential", "HalfNormal",
                   "HalfCauchy", "LogNormal"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters", "value"), [c for c in CASES if c[0] in REPARAMETERIZED]
)
def test_rsample_moves_along_its_quantile(name, parameters, value):
    """A draw's gradient is that of icdf at the probability it stands for."""
    (ours, given), _ = pair(name, parameters, grad=True)
    draws = ours.rsample((3,))
    quantiles = ours.icdf(ours.cdf(draws.detach()).detach())
    for k in given:
        (found,) = ad.autograd.grad(draws.sum(), [given[k]], retain_graph=True)
        (expected,) = ad.autograd.grad(quantiles.sum(), [given[k]], retain_graph=True)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, atol=1e-8)


def test_gamma_draws_have_implicit_gradients():
    a = ad.tensor(np.geomspace(0.01, 500, 40), requires_grad=True)
    rate = ad.tensor(np.linspace(0.5, 2, 40), requires_grad=True)
    draws = D.Gamma(a, rate).rsample((30,))
    draws.sum().backward()
    x, b = draws.detach().numpy(), rate.detach().numpy()
    concentration = torch.tensor(np.broadcast_to(a.detach().numpy(), x.shape).copy())
    expected = torch._standard_gamma_grad(concentration, torch.tensor(x * b)).numpy() / b
    # PyTorch's approximation is good to 1e-3
    np.testing.assert_allclose(a.grad.numpy(), expected.sum(0), rtol=1e-3)
    np.testing.assert_allclose(rate.grad.numpy(), (-x / b).sum(0))


@pytest.mark.parametrize("a", [0.05, 0.7, 3.0, 40.0])
def test_implicit_gamma_gradient_is_exact(a):
    """Against the quantile function, differentiated numerically."""
    from scipy import special

    from adjoint.ops.special.incomplete import gamma_shift

    levels = np.array([0.01, 0.3, 0.5, 0.8, 0.99])
    step = 1e-5 * a
    x = special.gammaincinv(a, levels)
    high, low = (special.gammaincinv(a + s, levels) for s in (step, -step))
    found = gamma_shift(ad.full((5,), a, dtype=ad.float64), ad.tensor(x)).numpy()
    np.testing.assert_allclose(found, (high - low) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(("a", "b"), [(0.05, 0.2), (0.7, 3.0), (40.0, 2.0), (3.0, 1e5)])
def test_implicit_beta_gradient_is_exact(a, b):
    from scipy import special

    from adjoint.ops.special.incomplete import beta_shift

    levels = np.array([0.01, 0.3, 0.5, 0.8, 0.99])
    step = 1e-5 * a
    x = special.betaincinv(a, b, levels)
    kept = (x > 1e-200) & (x < 1 - 1e-3)
    high, low = (special.betaincinv(a + s, b, levels) for s in (step, -step))
    inputs = (np.full(5, a), np.full(5, b), x)
    found = beta_shift(*map(ad.tensor, inputs)).numpy() * (1 - x)
    np.testing.assert_allclose(found[kept], ((high - low) / (2 * step))[kept], rtol=1e-5)


def test_dirichlet_and_beta_draws_have_implicit_gradients():
    a = ad.tensor(np.random.default_rng(0).uniform(0.1, 20, (10, 3)), requires_grad=True)
    weight = np.random.default_rng(1).normal(size=(20, 10, 3))
    draws = D.Dirichlet(a).rsample((20,))
    (draws * ad.tensor(weight)).sum().backward()
    x, g = torch.tensor(draws.detach().numpy()), torch.tensor(weight)
    concentration = torch.tensor(a.detach().numpy()).expand_as(x).contiguous()
    total = concentration.sum(-1, True).expand_as(x).contiguous()
    slope = torch._dirichlet_grad(x, concentration, total)
    expected = (slope * (g - (x * g).sum(-1, True))).sum(0).numpy()
    np.testing.assert_allclose(a.grad.numpy(), expected, rtol=3e-3, atol=1e-4)

    b = ad.tensor(A, requires_grad=True)
    draws = D.Beta(b, 2.0).rsample()
    draws.sum().backward()
    x = torch.tensor(draws.detach().numpy())
    both = torch.tensor(A), torch.tensor(A) + 2
    expected = torch._dirichlet_grad(x, *both) * (1 - x)
    np.testing.assert_allclose(b.grad.numpy(), expected.numpy(), rtol=1e-3)


def test_gradients_of_expectations_are_those_of_the_moments():
    """The score that every reparameterisation must reach: d E[x] / d parameter."""
    ad.manual_seed(1)
    for make, start in (
        (lambda p: D.Gamma(p, 2.0), 1.7),
        (lambda p: D.Beta(p, 1.5), 0.8),
        (lambda p: D.Gumbel(1.0, p), 0.8),
        (lambda p: D.LogNormal(0.0, p), 0.5),
    ):
        p = ad.tensor(start, dtype=ad.float64, requires_grad=True)
        draws = make(p.expand(40_000)).rsample()
        (found,) = ad.autograd.grad(draws.mean(), [p])
        (expected,) = ad.autograd.grad(make(p).mean, [p])
        assert abs(found.item() - expected.item()) < 0.05 * abs(expected.item())


def test_student_t_rsample_reaches_all_parameters():
    inputs = [ad.tensor(v, requires_grad=True) for v in (A + 1, R, np.abs(R) + 1)]
    D.StudentT(*inputs).rsample((3,)).sum().backward()
    assert all(bool(x.grad.isfinite().all()) and bool((x.grad != 0).all()) for x in inputs)


def test_small_concentrations_give_positive_draws():
    small = ad.full((2000, 3), 1e-3)
    shares = D.Dirichlet(small).rsample()
    assert bool((shares > 0).all()) and bool(((shares.sum(-1) - 1).abs() < 1e-5).all())
    assert bool((D.Gamma(small, 1.0).sample() > 0).all())


# ---- divergences ---------------------------------------------------------------------------------

SAME = ["Normal", "HalfNormal", "LogNormal", "Laplace", "Cauchy", "Uniform", "Exponential", "Gamma",
        "Chi2", "Gumbel", "Beta", "Dirichlet", "Bernoulli", "Binomial", "Geometric", "Poisson",
        "Categorical", "OneHotCategorical"]  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_kl_within_a_family(name):
    parameters = next(p for n, p, _ in CASES if n == name)
    other = {
        k: v if not isinstance(v, np.ndarray) else v[..., ::-1].copy() if name != "Uniform" else
        (v - 0.3 if k == "low" else v + 0.7)
        for k, v in parameters.items()
    }  # fmt: skip
    (p, given_p), (tp, given_tp) = pair(name, parameters, grad=True)
    (q, given_q), (tq, given_tq) = pair(name, other, grad=True)
    results = D.kl_divergence(p, q), T.kl_divergence(tp, tq)
    same(*results, rtol=1e-8)
    named = [
        {**{f"p.{k}": v for k, v in a.items()}, **{f"q.{k}": v for k, v in b.items()}}
        for a, b in ((given_p, given_q), (given_tp, given_tq))
    ]
    same_gradients(results, named)
    same(D.kl_divergence(q, p), T.kl_divergence(tq, tp), rtol=1e-8)  # infinite for uniform ones
    np.testing.assert_allclose(D.kl_divergence(p, p).detach().numpy(), 0, atol=1e-12)


CROSS = {
    "Normal": {"loc": R, "scale": B},
    "Laplace": {"loc": R, "scale": B},
    "Uniform": {"low": R, "high": R + B},
    "Exponential": {"rate": B},
    "Gamma": {"concentration": A, "rate": B},
    "Gumbel": {"loc": R, "scale": B},
    "Beta": {"concentration1": A, "concentration0": B},
    "Poisson": {"rate": A},
    "Bernoulli": {"probs": P},
    "Binomial": {"total_count": 5, "probs": P},
}
INSIDE = {"low": P / 4, "high": 1 - P / 10}


@pytest.mark.parametrize("second", CROSS)
@pytest.mark.parametrize("first", CROSS)
def test_kl_between_families(first, second):
    if first == second:
        return
    for parameters in (CROSS[first], *([INSIDE] if first == "Uniform" else [])):
        (p, given), (tp, torch_given) = pair(first, parameters, grad=True)
        (q, _), (tq, _) = pair(second, CROSS[second])
        try:
            expected = T.kl_divergence(tp, tq)
        except NotImplementedError:
            with pytest.raises(NotImplementedError, match="No KL"):
                D.kl_divergence(p, q)
            continue
        result = D.kl_divergence(p, q)
        # PyTorch's infinite ones have the shape of p alone
        same(result, expected.expand(result.shape), rtol=1e-7)
        if np.isfinite(expected.detach().numpy()).all():
            same_gradients((result, expected), (given, torch_given), rtol=1e-6)


def test_kl_of_multivariate_normals():
    second = {"loc": R + 1, "covariance_matrix": positive_definite(3, 5, (2,))}
    first = {"loc": R, "covariance_matrix": C}
    (p, _), (tp, _) = pair("MultivariateNormal", first)
    (q, _), (tq, _) = pair("MultivariateNormal", second)
    same(D.kl_divergence(p, q), T.kl_divergence(tp, tq))
    same(D.kl_divergence(q, p), T.kl_divergence(tq, tp))


def test_kl_of_certain_events():
    for name, first, second in (
        ("Bernoulli", np.array([0.0, 1.0, 0.5, 0.5]), np.array([0.5, 0.5, 0.0, 1.0])),
        ("Categorical", np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([[0.5, 0.5], [0.0, 1.0]])),
    ):
        (p, _), (tp, _) = pair(name, {"probs": first})
        (q, _), (tq, _) = pair(name, {"probs": second})
        same(D.kl_divergence(p, q), T.kl_divergence(tp, tq), rtol=1e-7)


def test_kl_of_a_subclass_takes_the_nearest_rule():
    class Shifted(D.Normal):
        pass

    p, q = Shifted(1.0, 1.0), D.Normal(0.0, 1.0)
    assert D.kl_divergence(p, q).item() == 0.5

    @D.register_kl(Shifted, D.Normal)
    def rule(p, q):
        return p.loc * 7

    assert D.kl_divergence(p, q).item() == 7.0
    with pytest.raises(TypeError):
        D.register_kl(3, D.Normal)


# ---- transforms and compositions -----------------------------------------------------------------


def both_libraries(make):
    return make(ad, D), make(torch, T)


TRANSFORMS = {
    "Exp": (lambda lib, d: d.ExpTransform(), X),
    "Affine": (lambda lib, d: d.AffineTransform(lib.tensor(R), lib.tensor(-B)), X),
    "AffineNumber": (lambda lib, d: d.AffineTransform(1.0, -2.0), X),
    "AffineEvent": (lambda lib, d: d.AffineTransform(0.5, 3.0, event_dim=1), X),
    "Sigmoid": (lambda lib, d: d.SigmoidTransform(), X),
    "Softplus": (lambda lib, d: d.SoftplusTransform(), X),
    "Tanh": (lambda lib, d: d.TanhTransform(), X / 2),
    "Power": (lambda lib, d: d.PowerTransform(lib.tensor(B)), UP),
    "StickBreaking": (lambda lib, d: d.StickBreakingTransform(), X),
    "Independent": (lambda lib, d: d.IndependentTransform(d.ExpTransform(), 1), X),
    "Reshape": (lambda lib, d: d.ReshapeTransform((3,), (1, 3)), X),
    "Compose": (
        lambda lib, d: d.ComposeTransform([d.AffineTransform(1.0, 0.5), d.SigmoidTransform()]), X,
    ),
    "ComposeEvent": (
        lambda lib, d: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(0.0, 2.0, 1)]), X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    make, value = TRANSFORMS[name]
    ours, theirs = both_libraries(make)
    x, tx = ad.tensor(value, requires_grad=True), torch.tensor(value, requires_grad=True)
    y, ty = ours(x), theirs(tx)
    same(y, ty)
    same(ours.inv(y), theirs.inv(ty), rtol=1e-7)
    assert ours.bijective == theirs.bijective
    assert tuple(ours.forward_shape((2, 3))) == tuple(theirs.forward_shape((2, 3)))
    for side in ("domain", "codomain"):
        assert getattr(ours, side).event_dim == getattr(theirs, side).event_dim
    results = ours.log_abs_det_jacobian(x, y), theirs.log_abs_det_jacobian(tx, ty)
    same(*results, rtol=1e-8)
    same_gradients(results, ({"x": x}, {"x": tx}), rtol=1e-6)
    same(ours.inv.log_abs_det_jacobian(y, x), theirs.inv.log_abs_det_jacobian(ty, tx), rtol=1e-8)


def test_softmax_and_abs_transforms_are_not_bijective():
    for name in ("SoftmaxTransform", "AbsTransform"):
        ours, theirs = getattr(D, name)(), getattr(T, name)()
        same(ours(ad.tensor(X)), theirs(torch.tensor(X)))
        assert not ours.bijective
        with pytest.raises(NotImplementedError):
            ours.log_abs_det_jacobian(ad.tensor(X), ad.tensor(X))


COMPOSED = {
    "lognormal": lambda lib, d: d.TransformedDistribution(
        d.Normal(lib.tensor(R), lib.tensor(B)), d.ExpTransform()
    ),
    "decreasing": lambda lib, d: d.TransformedDistribution(
        d.Gumbel(lib.tensor(R), lib.tensor(B)), [d.AffineTransform(1.0, -2.0), d.ExpTransform()]
    ),
    "widened": lambda lib, d: d.TransformedDistribution(
        d.Normal(lib.tensor(0.0, dtype=lib.float64), 1.0), d.AffineTransform(lib.tensor(R), 2.0)
    ),
    "events": lambda lib, d: d.TransformedDistribution(
        d.Independent(d.Normal(lib.tensor(R), lib.tensor(B)), 1),
        [d.AffineTransform(0.5, 2.0), d.SigmoidTransform()],
    ),
    "shares": lambda lib, d: d.TransformedDistribution(
        d.Normal(lib.tensor(R), lib.tensor(B)), d.StickBreakingTransform()
    ),
    "independent": lambda lib, d: d.Independent(d.Normal(lib.tensor(R), lib.tensor(B)), 2),
    "none": lambda lib, d: d.TransformedDistribution(d.Normal(lib.tensor(R), 1.0), []),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_distributions(name):
    ours, theirs = both_libraries(COMPOSED[name])
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    draws = ours.sample((5,))
    same(ours.log_prob(draws), theirs.log_prob(torch.tensor(draws.numpy())), rtol=1e-7)
    wide = (4, *ours.batch_shape)
    expanded, expected = ours.expand(wide), theirs.expand(wide)
    draws = expanded.rsample((2,))
    same(expanded.log_prob(draws), expected.log_prob(torch.tensor(draws.numpy())), rtol=1e-7)
    if not ours.event_shape:
        value = ours.sample().numpy()
        same(ours.cdf(ad.tensor(value)), theirs.cdf(torch.tensor(value)), rtol=1e-7)
        same(ours.icdf(ad.tensor(UNIT)), theirs.icdf(torch.tensor(UNIT)), rtol=1e-7)


def test_kl_of_compositions():
    for name in ("lognormal", "independent", "events"):
        ours, theirs = both_libraries(COMPOSED[name])
        same(D.kl_divergence(ours, ours), T.kl_divergence(theirs, theirs))
    with pytest.raises(NotImplementedError):
        D.kl_divergence(
            D.TransformedDistribution(D.Normal(0.0, 1.0), D.ExpTransform()),
            D.TransformedDistribution(D.Normal(0.0, 1.0), D.TanhTransform()),
        )


def test_a_log_normal_flow_trains():
    """TransformedDistribution passes gradients to a learned transform."""
    ad.manual_seed(0)
    data = D.LogNormal(1.0, 0.5).sample((500,))
    loc, scale = (ad.tensor(v, requires_grad=True) for v in (0.0, 1.0))
    optimizer = ad.optim.Adam([loc, scale], lr=0.05)
    for _ in range(200):
        flow = D.TransformedDistribution(
            D.Normal(0.0, 1.0), [D.AffineTransform(loc, scale), D.ExpTransform()]
        )
        loss = -flow.log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert abs(loc.item() - 1) < 0.1 and abs(scale.item() - 0.5) < 0.1


# ---- discrete values, errors ---------------------------------------------------------------------


@pytest.mark.parametrize("expand", [True, False])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [(n, p) for n, p, _ in CASES if n in ("Bernoulli", "Binomial", "Categorical",
                                          "OneHotCategorical")],
)  # fmt: skip
def test_enumerate_support(name, parameters, expand):
    (ours, _), (theirs, _) = pair(name, parameters)
    values = ours.enumerate_support(expand)
    same(values, theirs.enumerate_support(expand))
    np.testing.assert_allclose(ours.log_prob(values).exp().sum(0).numpy(), 1, rtol=1e-9)


BAD = [
    ("Normal", (0.0, -1.0)), ("Normal", (math.nan, 1.0)), ("Laplace", (0.0, 0.0)),
    ("Uniform", (1.0, 0.0)), ("Exponential", (-1.0,)), ("Gamma", (0.0, 1.0)), ("Chi2", (-1.0,)),
    ("Beta", (1.0, -1.0)), ("StudentT", (0.0,)), ("Poisson", (-1.0,)), ("Bernoulli", (1.5,)),
    ("Geometric", (0.0,)), ("Binomial", (-1, 0.5)), ("LogNormal", (0.0, -1.0)),
    ("HalfNormal", (-1.0,)), ("Gumbel", (0.0, -1.0)), ("Cauchy", (0.0, -1.0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), BAD)
def test_wrong_parameters_are_refused(name, arguments):
    with pytest.raises(ValueError):
        getattr(T, name)(*arguments)
    with pytest.raises(ValueError, match=r"Expected parameter|not defined"):
        getattr(D, name)(*arguments)
    getattr(D, name)(*arguments, validate_args=False)


def test_wrong_matrices_and_vectors_are_refused():
    eye, loc = ad.eye(2), ad.zeros(2)
    for given in (
        {"covariance_matrix": -eye},
        {"scale_tril": ad.tensor([[1.0, 1.0], [0.0, 1.0]])},
        {"precision_matrix": ad.tensor([[1.0, 0.5], [0.0, 1.0]])},
        {},
        {"covariance_matrix": eye, "scale_tril": eye},
        {"covariance_matrix": ad.ones(2)},
    ):
        with pytest.raises(ValueError):
            D.MultivariateNormal(loc, **given)
    with pytest.raises(ValueError):
        D.Dirichlet(ad.tensor([1.0, -1.0]))
    with pytest.raises(ValueError):
        D.Dirichlet(ad.tensor(1.0))
    with pytest.raises(ValueError):
        D.Categorical(probs=ad.tensor([0.5, -0.5, 1.0]))
    with pytest.raises(ValueError, match="not both"):
        D.Categorical(probs=ad.ones(2), logits=ad.ones(2))
    with pytest.raises(ValueError, match="not both"):
        D.Bernoulli()
    with pytest.raises(ValueError):
        D.Independent(D.Normal(0.0, 1.0), 1)
    with pytest.raises(ValueError, match="expected a tensor or a number"):
        D.Normal("0", 1.0)


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="expected a tensor"):
        D.Normal(0.0, 1.0).log_prob(0.0)
    with pytest.raises(ValueError, match="event_shape"):
        D.Dirichlet(ad.ones(3)).log_prob(ad.ones(2))
    with pytest.raises(ValueError, match="broadcast"):
        D.Normal(ad.zeros(3), 1.0).log_prob(ad.zeros(2))
    lenient = D.Exponential(1.0, validate_args=False)
    assert lenient.log_prob(ad.tensor(-1.0)).item() == 1.0


def test_validation_can_be_turned_off_for_all():
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        D.Normal(0.0, -1.0)
    with pytest.raises(ValueError):
        D.Distribution.set_default_validate_args(3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("positive", X), ("nonnegative", X), ("unit_interval", X), ("real", X), ("boolean", COUNT),
        ("nonnegative_integer", X), ("positive_integer", COUNT), ("simplex", S),
        ("one_hot", np.eye(3)), ("lower_triangular", C), ("lower_cholesky", np.tril(C)),
        ("positive_definite", C), ("symmetric", C), ("square", C), ("real_vector", X),
        ("corr_cholesky", np.eye(3)),
    ],
)  # fmt: skip
def test_constraints(name, value):
    ours, theirs = getattr(D.constraints, name), getattr(T.constraints, name)
    for v in (value, value - 1.5, value * np.nan):
        if np.isnan(v).any() and name in ("positive_definite", "square"):
            continue  # PyTorch's check of NaN matrices differs between builds
        same(ours.check(ad.tensor(v)), theirs.check(torch.tensor(v)))
    assert ours.event_dim == theirs.event_dim and ours.is_discrete == theirs.is_discrete


def test_a_user_defined_distribution():
    class Triangle(D.Distribution):
        arg_constraints = {"width": D.constraints.positive}  # noqa: RUF012
        support = D.constraints.nonnegative

        def __init__(self, width, validate_args=None):
            (self.width,) = D.utils.broadcast_all(width)
            super().__init__(self.width.shape, validate_args=validate_args)

        def rsample(self, sample_shape=()):
            return self.width * ad.rand(self._extended_shape(sample_shape)).sqrt()

    p = Triangle(ad.tensor([1.0, 2.0])).expand((3, 2))
    assert p.sample((4,)).shape == (4, 3, 2)
    with pytest.raises(ValueError, match="width"):
        Triangle(-1.0)
    with pytest.raises(NotImplementedError):
        p.entropy()


# ---- the functions underneath --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma(name):
    from scipy import special

    edges = [-1.0, 0.0, 0.3, 1.0, 7.0, 500.0, 1e6, math.inf]
    a, x = np.meshgrid(edges, edges)
    found = getattr(ad, name)(ad.tensor(a), ad.tensor(x))
    same(found, getattr(torch, name)(torch.tensor(a), torch.tensor(x)), rtol=1e-8)
    exact = {"igamma": special.gammainc, "igammac": special.gammaincc}[name]
    a, x = np.random.default_rng(0).uniform(0.01, 30, (2, 200))
    found = getattr(ad, name)(ad.tensor(a), ad.tensor(x)).numpy()
    np.testing.assert_allclose(found, exact(a, x), rtol=1e-12)
    inputs = [ad.tensor(v[:5], requires_grad=True) for v in (a, x)]
    assert ad.autograd.gradcheck(getattr(ad, name), inputs)


def test_binomial_draws_and_errors():
    counts, chances = ad.tensor([10.0, 100.0]), ad.tensor([0.3, 0.8])
    draws = ad.binomial(counts.expand(20_000, 2), chances.expand(20_000, 2)).numpy()
    mean, variance = np.array([3.0, 80.0]), np.array([2.1, 16.0])
    assert (np.abs(draws.mean(0) - mean) < 5 * np.sqrt(variance / 20_000)).all()
    assert draws.min() >= 0 and (draws.max(0) <= [10, 100]).all()
    with pytest.raises(ValueError):
        ad.binomial(-counts, chances)
    with pytest.raises(ValueError):
        ad.binomial(counts, chances + 1)
    with pytest.raises(RuntimeError):
        ad.binomial(counts.long(), chances)
