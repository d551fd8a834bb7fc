"""The rarer distributions, transforms and constraints beside PyTorch's."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import adjoint as ad

from .test_distributions import (
    UNIT,
    UP,
    A,
    B,
    C,
    P,
    R,
    S,
    X,
    positive_definite,
    same,
    same_gradients,
)

torch = pytest.importorskip("torch")
D, T = ad.distributions, torch.distributions
pytestmark = pytest.mark.filterwarnings("ignore:Singular sample detected:UserWarning")
COUNT = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 1.0]])
W = np.random.default_rng(0).normal(size=(3, 2))
TRIL = np.linalg.cholesky(positive_definite(3, 1, (2,)))
CORR = np.linalg.cholesky(np.array([[1, 0.3, -0.2], [0.3, 1, 0.5], [-0.2, 0.5, 1.0]]))
M = positive_definite(3, 2)

CASES = [
    ("ContinuousBernoulli", {"probs": P}, UNIT),
    ("ContinuousBernoulli", {"logits": R / 3}, UNIT),
    ("FisherSnedecor", {"df1": A + 2.5, "df2": B + 5}, UP),
    ("FisherSnedecor", {"df1": A, "df2": B}, UP),
    ("GeneralizedPareto", {"loc": R, "scale": B, "concentration": np.array([0.3, -0.4, 1.2])},
     R + 0.2 * UNIT),
    ("InverseGamma", {"concentration": A + 2, "rate": B}, UP),
    ("InverseGamma", {"concentration": A, "rate": B}, UP),
    ("Kumaraswamy", {"concentration1": A + 1, "concentration0": B + 1}, UNIT),
    ("LKJCholesky", {"dim": 3, "concentration": B}, CORR),
    ("LogisticNormal", {"loc": R[:, :2] / 4, "scale": B[:2]}, S),
    ("LowRankMultivariateNormal", {"loc": R, "cov_factor": W, "cov_diag": B}, X),
    ("NegativeBinomial", {"total_count": 5.0, "probs": P}, COUNT),
    ("NegativeBinomial", {"total_count": A, "logits": R / 3}, COUNT),
    ("Pareto", {"scale": B, "alpha": A + 2}, B + UP),
    ("Pareto", {"scale": B, "alpha": A}, B + UP),
    ("RelaxedBernoulli", {"temperature": np.array(0.7), "probs": P}, UNIT),
    ("RelaxedBernoulli", {"temperature": np.array(2.0), "logits": R / 3}, UNIT),
    ("RelaxedOneHotCategorical", {"temperature": np.array(0.7), "probs": A}, S),
    ("RelaxedOneHotCategorical", {"temperature": np.array(2.0), "logits": R / 3}, S),
    ("VonMises", {"loc": R, "concentration": B}, X),
    ("Weibull", {"scale": B, "concentration": A + 1}, UP),
    ("Wishart", {"df": np.array([3.5, 7.0]), "covariance_matrix": C}, M),
    ("Wishart", {"df": np.array([3.5, 7.0]), "precision_matrix": C}, M),
    ("Wishart", {"df": np.array(5.0), "scale_tril": TRIL}, M),
]  # fmt: skip
IDS = [f"{name}-{i}" for i, (name, _, _) in enumerate(CASES)]
cases = pytest.mark.parametrize(("name", "parameters", "value"), CASES, ids=IDS)


def pair(name, parameters, grad=False):
    made = []
    for lib in (ad, torch):
        given = {
            k: v if not isinstance(v, np.ndarray) else
            lib.tensor(v).requires_grad_() if grad else lib.tensor(v)
            for k, v in parameters.items()
        }  # fmt: skip
        made.append((getattr(lib.distributions, name)(**given), given))
    return made


def compared(of, ours, theirs, given, gradients=True, rtol=1e-8):
    """`of` both is the same, with its gradients; or both refuse."""
    try:
        expected = of(theirs)
    except (NotImplementedError, AttributeError):
        with pytest.raises(NotImplementedError):
            of(ours)
        return
    found = of(ours)
    same(found, expected, rtol=rtol, atol=1e-10)
    if gradients and np.isfinite(expected.detach().numpy()).all():
        same_gradients((found, expected), given, rtol=1e-6)


@cases
def test_densities(name, parameters, value):
    if name == "GeneralizedPareto":  # PyTorch's is for float32 alone
        return
    (ours, p), (theirs, q) = pair(name, parameters, grad=True)
    x, y = ad.tensor(value, requires_grad=True), torch.tensor(value, requires_grad=True)
    results = ours.log_prob(x), theirs.log_prob(y)
    same(*results, rtol=1e-8 if name != "VonMises" else 1e-6, atol=1e-10)  # theirs: polynomials
    gradients = ({**p, "value": x}, {**q, "value": y})
    if name in ("LKJCholesky", "Wishart"):  # of other elements of the factor, or of symmetric ones
        gradients = tuple({k: v for k, v in g.items() if k != "scale_tril"} for g in (p, q))
    same_gradients(results, gradients, rtol=1e-4 if name == "VonMises" else 1e-6)


@cases
@pytest.mark.parametrize("what", ["mean", "variance", "stddev", "mode"])
def test_moments(name, parameters, value, what):
    if name == "Kumaraswamy" and what == "mode":  # PyTorch's is NaN throughout
        return
    (ours, p), (theirs, q) = pair(name, parameters, grad=True)
    angles = name == "VonMises" and what in ("variance", "stddev")
    rtol = 1e-6 if angles else 1e-8  # PyTorch has polynomials
    compared(lambda d: getattr(d, what), ours, theirs, (p, q), what != "mode" and not angles, rtol)


def test_the_mode_of_kumaraswamy_has_no_neighbour_that_is_more_probable():
    p = D.Kumaraswamy(ad.tensor(A + 1), ad.tensor(B + 1))
    for step in (-1e-3, 1e-3):
        assert bool((p.log_prob(p.mode) > p.log_prob((p.mode + step).clamp(1e-9, 1 - 1e-9))).all())


@cases
def test_entropy(name, parameters, value):
    (ours, p), (theirs, q) = pair(name, parameters, grad=True)
    compared(lambda d: d.entropy(), ours, theirs, (p, q))


@cases
def test_cdf_and_icdf(name, parameters, value):
    if name == "GeneralizedPareto":  # PyTorch's is for float32 alone
        return
    wrong = name in ("InverseGamma", "LKJCholesky", "Wishart")  # PyTorch's cdf has no gradient
    for what, x in (("cdf", value), ("icdf", UNIT)):
        (ours, p), (theirs, q) = pair(name, parameters, grad=True)
        given = {ours: ad.tensor(x), theirs: torch.tensor(x)}
        if what == "cdf" or name not in ("RelaxedOneHotCategorical", "LogisticNormal"):
            compared(
                lambda d, w=what, g=given: getattr(d, w)(g[d]), ours, theirs, (p, q), not wrong
            )


@cases
def test_shapes_and_copies(name, parameters, value):
    (ours, _), (theirs, _) = pair(name, parameters)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    assert tuple(ours.sample((4, 2)).shape) == tuple(theirs.sample((4, 2)).shape)
    batch = (4, *theirs.batch_shape)
    a, b = ours.expand(batch), theirs.expand(batch)
    assert tuple(a.batch_shape) == batch and tuple(a.event_shape) == tuple(b.event_shape)
    assert tuple(a.sample((2,)).shape) == tuple(b.sample((2,)).shape)
    draws = a.sample()
    if name != "GeneralizedPareto":
        same(a.log_prob(draws), b.log_prob(torch.tensor(draws.numpy())), rtol=1e-5, atol=1e-7)
    assert bool(ours.support.check(ours.sample((50,))).all())


@cases
def test_what_cannot_be_drawn_is_refused(name, parameters, value):
    (ours, _), (theirs, _) = pair(name, parameters)
    wrong = value * math.nan
    with pytest.raises(ValueError):
        theirs.log_prob(torch.tensor(wrong))
    with pytest.raises(ValueError, match="within the support"):
        ours.log_prob(ad.tensor(wrong))


DRAWN = [c for c in CASES if c[0] not in ("LKJCholesky", "LogisticNormal", "RelaxedBernoulli",
         "RelaxedOneHotCategorical", "FisherSnedecor", "InverseGamma", "Pareto",
         "GeneralizedPareto", "VonMises")]  # fmt: skip


@pytest.mark.parametrize(("name", "parameters", "value"), DRAWN)
def test_draws_have_the_mean_and_variance(name, parameters, value):
    ad.manual_seed(0)
    (ours, _), _ = pair(name, parameters)
    n = 10_000
    draws = ours.sample((n,)).numpy()
    mean, variance = ours.mean.numpy(), ours.variance.numpy()
    kept = n * variance > 100
    error = np.abs(draws.mean(0) - mean)
    assert (error <= 5 * np.sqrt(variance / n) + 1e-12)[kept].all()
    squares = (draws - mean) ** 2
    slack = 6 * squares.std(0) / math.sqrt(n) + 1e-12
    assert (np.abs(squares.mean(0) - variance) <= slack)[kept].all()


@pytest.mark.parametrize(
    "name",
    [
        "RelaxedBernoulli",
        "Pareto",
        "GeneralizedPareto",
        "Kumaraswamy",
        "Weibull",
        "InverseGamma",
        "ContinuousBernoulli",
    ],
)
def test_draws_follow_the_cdf(name):
    ad.manual_seed(0)
    parameters = next(p for n, p, _ in CASES if n == name)
    (ours, _), _ = pair(name, parameters)
    n = 3000
    draws = ours.sample((n,))
    if name == "RelaxedBernoulli":  # its base is logistic
        levels = (ad.logit(draws) * 0.7 - ours.logits).sigmoid()
    else:
        levels = ours.cdf(draws)
    levels = np.sort(levels.numpy().reshape(n, -1), axis=0)
    steps = (np.arange(n)[:, None] + 0.5) / n
    assert np.abs(levels - steps).max() < 2.6 / math.sqrt(n)


def test_draws_of_angles_and_of_correlations():
    ad.manual_seed(0)
    angles = D.VonMises(ad.tensor(R), ad.tensor(B)).sample((5000,))
    assert angles.abs().max() <= math.pi and angles.dtype is ad.float64
    cosine = (angles - ad.tensor(R)).cos().mean(0)
    expected = 1 - D.VonMises(ad.tensor(R), ad.tensor(B)).variance
    assert ad.allclose(cosine, expected.expand(2, 3), atol=0.06)
    factor = D.LKJCholesky(3, ad.tensor(1.0)).sample((5000,))
    entries = (factor @ factor.mT)[:, 1, 0]  # Beta(1.5, 1.5) on (-1, 1)
    assert abs(entries.mean()) < 0.05 and abs(entries.var() - 0.25) < 0.03
    one = ad.full((4,), 1e-9)
    assert D.VonMises(ad.zeros(4), one).sample((10,)).isfinite().all()


@pytest.mark.parametrize(
    "name",
    [
        "FisherSnedecor",
        "Wishart",
        "LowRankMultivariateNormal",
        "RelaxedOneHotCategorical",
        "LogisticNormal",
    ],
)
def test_draws_have_gradients(name):
    parameters = next(p for n, p, _ in CASES if n == name)
    (ours, given), _ = pair(name, parameters, grad=True)
    (ours.rsample((3,)) ** 2).sum().backward()
    for key, x in given.items():
        assert x.grad is not None and bool(x.grad.isfinite().all()), key


def test_generalized_pareto():
    from scipy import stats

    c = np.array([0.3, -0.4, 0.0])
    loc, scale, shape = (ad.tensor(v, requires_grad=True) for v in (R, B, c))
    p = D.GeneralizedPareto(loc, scale, shape)
    theirs = stats.genpareto(c, R, B)
    x = R + 0.2 * UNIT
    np.testing.assert_allclose(p.log_prob(ad.tensor(x)).detach().numpy(), theirs.logpdf(x))
    np.testing.assert_allclose(p.cdf(ad.tensor(x)).detach().numpy(), theirs.cdf(x))
    np.testing.assert_allclose(p.icdf(ad.tensor(UNIT)).detach().numpy(), theirs.ppf(UNIT))
    np.testing.assert_allclose(p.log_cdf(ad.tensor(x)).detach().numpy(), theirs.logcdf(x))
    np.testing.assert_allclose(p.variance.detach().numpy(), theirs.var())
    np.testing.assert_allclose(p.entropy().detach().numpy()[0], theirs.entropy()[0])
    p.rsample((3,)).sum().backward()
    assert all(bool(v.grad.isfinite().all()) for v in (loc, scale, shape))
    with pytest.raises(ValueError, match="support"):
        p.log_prob(ad.tensor(R - 1))


def test_correlations_of_two():
    t = D.CorrCholeskyTransform()
    x = ad.tensor([[0.3], [-2.0]])
    y = t(x)
    assert ad.allclose(
        y @ y.mT,
        y.new_ones(2, 2, 2).tril(-1) * x.tanh()[..., None]
        + y.new_ones(2, 2, 2).triu(1) * x.tanh()[..., None]
        + ad.eye(2),
    )
    assert ad.allclose(t.log_abs_det_jacobian(x, y), (1 - x.tanh() ** 2).log().squeeze(-1))


def test_mixtures():
    def made(lib, grad=True):
        d = lib.distributions
        logits, loc, scale = (
            lib.tensor(v).requires_grad_(grad) for v in (R, R.copy() / 2, np.stack([B, B + 1]))
        )
        normal = d.Normal(loc, scale)
        return d.MixtureSameFamily(d.Categorical(logits=logits), normal), (logits, loc, scale)

    x = np.array([0.3, -1.0])
    for of in (
        lambda d, x: d.log_prob(x), lambda d, x: d.cdf(x), lambda d, x: d.mean,
        lambda d, x: d.variance,
    ):  # fmt: skip
        (ours, p), (theirs, q) = made(ad), made(torch)
        named = {str(i): x for i, x in enumerate(p)}, {str(i): x for i, x in enumerate(q)}
        values = {ours: ad.tensor(x), theirs: torch.tensor(x)}
        compared(lambda d, of=of, values=values: of(d, values[d]), ours, theirs, named)
    assert repr(ours.support) == repr(theirs.support).replace("torch", "adjoint")
    assert tuple(ours.sample((4,)).shape) == tuple(theirs.sample((4,)).shape)
    assert tuple(ours.expand((5, 2)).sample((4,)).shape) == (4, 5, 2)
    d = ad.distributions
    several = d.MixtureSameFamily(
        d.Categorical(ad.tensor([0.25, 0.75])),
        d.MultivariateNormal(ad.tensor([[0.0, 0.0], [8.0, 8.0]]), ad.eye(2)),
    )
    draws = several.sample((4000,))
    assert draws.shape == (4000, 2) and abs((draws[:, 0] > 4).float().mean() - 0.75) < 0.05
    assert several.mean.tolist() == [6.0, 6.0] and several.variance.tolist() == [13.0, 13.0]
    with pytest.raises(ValueError, match="Categorical"):
        d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(ad.zeros(2), 1.0))
    with pytest.raises(ValueError, match="component"):
        d.MixtureSameFamily(d.Categorical(ad.ones(3)), d.Normal(ad.zeros(2), 1.0))


def test_matrices():
    for what in ("covariance_matrix", "precision_matrix", "scale_tril"):
        for case in (10, 21):
            (ours, p), (theirs, q) = pair(*CASES[case][:2], grad=True)
            compared(lambda d, what=what: getattr(d, what), ours, theirs, (p, q), rtol=1e-7)
    with pytest.raises(ValueError, match="greater than ndim"):
        D.Wishart(ad.tensor(1.5), ad.eye(3))


def test_an_exponential_family_of_ones_own():
    def made(lib, rate):
        class Mine(lib.distributions.ExponentialFamily):
            def __init__(self, rate):
                self.rate = rate
                super().__init__(rate.shape, validate_args=False)

            _mean_carrier_measure = 0

            @property
            def _natural_params(self):
                return (-self.rate,)

            def _log_normalizer(self, x):
                return -(-x).log()

        return Mine(lib.tensor(rate)), Mine(lib.tensor(rate * 2))

    (a, b), (ta, _) = made(ad, B), made(torch, B)
    same(a.entropy(), ta.entropy())
    same(a.entropy(), T.Exponential(torch.tensor(B)).entropy())
    expected = T.kl_divergence(T.Exponential(torch.tensor(B)), T.Exponential(torch.tensor(B * 2)))
    same(D.kl_divergence(a, b), expected)


# ---- divergences ---------------------------------------------------------------------------------

PAIRED = {
    "Beta": {"concentration1": A, "concentration0": B},
    "ContinuousBernoulli": {"probs": P},
    "Exponential": {"rate": B},
    "Gamma": {"concentration": A, "rate": B},
    "Gumbel": {"loc": R, "scale": B},
    "Laplace": {"loc": R, "scale": B},
    "Normal": {"loc": R, "scale": B},
    "Pareto": {"scale": B, "alpha": A + 0.5},
    "Uniform": {"low": UP, "high": UP + B},
    "LowRankMultivariateNormal": {"loc": R, "cov_factor": W, "cov_diag": B},
    "MultivariateNormal": {"loc": R, "covariance_matrix": C},
}
NEW = ("ContinuousBernoulli", "Pareto", "LowRankMultivariateNormal")


@pytest.mark.parametrize(
    ("p", "q"), [pair for pair in itertools.product(PAIRED, PAIRED) if set(pair) & set(NEW)]
)
def test_divergences(p, q):
    (a, given_a), (ta, given_ta) = pair(p, PAIRED[p], grad=True)
    other = {k: v * 1.2 if k != "probs" else v * 0.9 for k, v in PAIRED[q].items()}
    (b, given_b), (tb, given_tb) = pair(q, other, grad=True)
    try:
        expected = T.kl_divergence(ta, tb)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            D.kl_divergence(a, b)
        return
    found = D.kl_divergence(a, b)
    if bool(expected.isinf().all()):  # of the shape of p's parameter alone in PyTorch
        assert bool(found.isinf().all()) and not bool((found < 0).any())
        return
    same(found, expected, rtol=1e-7, atol=1e-9)
    if np.isfinite(expected.detach().numpy()).all():
        named = [
            {**{f"p.{k}": v for k, v in x.items()}, **{f"q.{k}": v for k, v in y.items()}}
            for x, y in ((given_a, given_b), (given_ta, given_tb))
        ]
        same_gradients((found, expected), named, rtol=1e-6)


# ---- transforms and constraints ------------------------------------------------------------------

MATRIX = np.random.default_rng(3).normal(size=(2, 3, 3))
TRANSFORMS = {
    "corr": (lambda d: d.CorrCholeskyTransform(), R),
    "cat": (lambda d: d.CatTransform(
        [d.ExpTransform(), d.AffineTransform(1.0, 2.0)], dim=1, lengths=[1, 2]), R),
    "stack": (lambda d: d.StackTransform([d.ExpTransform(), d.TanhTransform()], dim=0), R),
    "cdf": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.5, 2.0)), R),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    make, x = TRANSFORMS[name]
    ours, theirs = make(D), make(T)
    x, tx = ad.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, ty = ours(x), theirs(tx)
    same(y, ty, rtol=1e-7)
    results = ours.log_abs_det_jacobian(x, y), theirs.log_abs_det_jacobian(tx, ty)
    same(*results, rtol=1e-7)
    same_gradients(results, ({"x": x}, {"x": tx}), rtol=1e-5)
    same(ours.inv(y), tx.detach(), rtol=1e-6, atol=1e-7)
    assert tuple(ours.forward_shape(x.shape)) == tuple(theirs.forward_shape(tx.shape))
    assert bool(ours.domain.check(x).all()) and bool(ours.codomain.check(y).all())
    assert ours.bijective == theirs.bijective


CONSTRAINTS = {
    "real": lambda c: c.real, "positive": lambda c: c.positive,
    "nonnegative": lambda c: c.nonnegative,
    "unit": lambda c: c.unit_interval, "above": lambda c: c.greater_than(2.0),
    "from": lambda c: c.greater_than_eq(-1.0), "below": lambda c: c.less_than(2.0),
    "between": lambda c: c.interval(-1.0, 3.0), "half": lambda c: c.half_open_interval(-1.0, 3.0),
    "simplex": lambda c: c.simplex, "events": lambda c: c.independent(c.positive, 1),
    "corr": lambda c: c.corr_cholesky, "vector": lambda c: c.real_vector,
    "cat": lambda c: c.cat([c.positive, c.real], -1, [1, 2]),
    "stack": lambda c: c.stack([c.positive, c.unit_interval], 0),
}  # fmt: skip


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_where_registries_lead(name, registry):
    ours = CONSTRAINTS[name](D.constraints)
    y = getattr(D, registry)(ours)(ad.tensor(R))
    ty = getattr(T, registry)(CONSTRAINTS[name](T.constraints))(torch.tensor(R))
    same(y, ty, rtol=1e-7)
    assert bool(ours.check(y).all())


def test_matrices_of_registries():
    for name in ("lower_cholesky", "positive_definite", "positive_semidefinite"):
        y = D.transform_to(getattr(D.constraints, name))(ad.tensor(MATRIX))
        ty = T.transform_to(getattr(T.constraints, name))(torch.tensor(MATRIX))
        same(y, ty, rtol=1e-7)
        assert bool(getattr(D.constraints, name).check(y).all())
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(D.constraints.boolean)
    with pytest.raises(TypeError, match="Constraint"):
        D.biject_to.register(int, lambda c: None)


def test_constraints_say_what_pytorchs_say():
    values = [R, P, S, COUNT, M, CORR, -M, np.eye(3), MATRIX[0], np.tril(M)]
    for name in T.constraints.__all__:
        theirs = getattr(T.constraints, name)
        if not isinstance(theirs, T.constraints.Constraint) or name.startswith("dependent"):
            continue
        ours = getattr(D.constraints, name)
        assert repr(ours) == repr(theirs)
        assert (ours.event_dim, ours.is_discrete) == (theirs.event_dim, theirs.is_discrete), name
        for value in values:
            if value.ndim < ours.event_dim or (ours.event_dim == 2 and value.shape[0] != 3):
                continue
            expected = theirs.check(torch.tensor(value)).numpy()
            np.testing.assert_array_equal(ours.check(ad.tensor(value)).numpy(), expected, name)


def test_constraints_that_depend():
    assert D.constraints.is_dependent(D.constraints.dependent(is_discrete=True, event_dim=1))
    assert D.constraints.dependent(event_dim=2).event_dim == 2
    with pytest.raises(ValueError, match="dependent"):
        D.constraints.dependent.check(ad.ones(1))


@pytest.mark.parametrize("logit", [-200.0, -20.0, -3.0, 0.5, 15.0, 20.0, 50.0, 200.0])
def test_continuous_bernoulli_of_any_log_odds(logit):
    """By its definition in floating point of many digits; PyTorch clamps p, and loses them."""
    import mpmath

    with mpmath.workdps(60):
        odds = mpmath.mpf(logit)

        def cdf(x):
            return mpmath.expm1(odds * x) / mpmath.expm1(odds)

        log_c = mpmath.log(odds / mpmath.expm1(odds))  # of the density exp(odds x)
        mean = 1 / (1 - mpmath.exp(-odds)) - 1 / odds
        found = ad.distributions.ContinuousBernoulli(logits=ad.tensor(logit))
        wanted = {
            "mean": mean,
            "variance": 1 / odds**2 - 1 / (2 * mpmath.sinh(odds / 2)) ** 2,
            "entropy": -(log_c + odds * mean),
            "log_prob": log_c + odds * mpmath.mpf(0.25),
            "cdf": cdf(mpmath.mpf(0.25)),
        }
        x = ad.tensor(0.25)
        ours = {
            "mean": found.mean, "variance": found.variance, "entropy": found.entropy(),
            "log_prob": found.log_prob(x), "cdf": found.cdf(x),
        }  # fmt: skip
        for name, value in wanted.items():
            np.testing.assert_allclose(ours[name].item(), float(value), 2e-4, 1e-30, err_msg=name)
    for v in (0.0, 1e-3, 0.5, 0.999, 1.0):
        x = found.icdf(ad.tensor(v))
        assert 0 <= x.item() <= 1
        np.testing.assert_allclose(found.cdf(x).item(), v, atol=2e-3)


def test_what_a_class_derives_from_besides_is_initialized():
    class Other:
        def __init__(self):
            self.seen = True

    class Mine(ad.distributions.Normal, Other):
        pass

    class Shift(ad.distributions.transforms.AffineTransform, Other):
        pass

    assert Mine(0.0, 1.0).seen and Shift(0.0, 1.0).seen


def test_draws_of_wishart_by_the_name_that_packages_call():
    w = D.Wishart(ad.tensor(5.0), ad.eye(3))
    assert w._bartlett_sampling((2,)).shape == (2, 3, 3)
    assert w._bartlett_sampling(ad.Size()).shape == (3, 3)
