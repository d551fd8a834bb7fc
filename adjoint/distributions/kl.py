"""Kullback-Leibler divergences, by pairs of families."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from ..core.errors import InvalidArgument, InvalidType, Unsupported
from ..ops.create.like import full_like, zeros_like
from ..ops.elementwise.comparison import where
from ..ops.elementwise.logic import logical_or
from ..ops.special.special import digamma, lgamma, xlogy
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .dirichlet import Dirichlet
from .distribution import Distribution
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .multivariate_normal import MultivariateNormal, half_log_det, mahalanobis
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import HALF_LOG_2PI, euler_constant, softplus, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

_RULES: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Declare the decorated function as the divergence of one family from another.

    Errors: InvalidType for what is not a distribution class.
    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.kl.register_kl

    >>> class Mine(ad.distributions.Normal):
    ...     pass
    >>> @ad.distributions.register_kl(Mine, Mine)
    ... def mine(p, q):
    ...     return p.loc - q.loc
    >>> ad.distributions.kl_divergence(Mine(3.0, 1.0), Mine(1.0, 1.0))
    tensor(2.)
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type):
            raise InvalidType(
                f"register_kl: Expected type_p and type_q to be classes of distributions but got "
                f"{kind!r}"
            )

    def declare(function: Any) -> Any:
        _RULES[type_p, type_q] = function
        return function

    return declare


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """The expectation of log p(x) - log q(x) for draws x of `p`, of the batch shape.

    Errors: Unsupported for pairs without a closed form.
    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.kl.kl_divergence

    >>> d = ad.distributions
    >>> d.kl_divergence(d.Normal(1.0, 1.0), d.Normal(0.0, 1.0))
    tensor(0.5000)
    """
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            rule = _RULES.get((kind_p, kind_q))
            if rule is not None:
                return rule(p, q)
    raise Unsupported(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}; average p.log_prob(x) - q.log_prob(x) over samples, or register_kl"
    )


# ---- one family ----------------------------------------------------------------------------------


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Any:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


register_kl(HalfNormal, HalfNormal)(lambda p, q: _normal(p.base_dist, q.base_dist))


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return distance / q.scale + ratio * (-distance / p.scale).exp() - 1 - ratio.log()


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Any:
    squares = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return squares.log() - (4 * p.scale * q.scale).log()


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Any:
    outside = logical_or(q.low > p.low, q.high < p.high)
    return where(outside, math.inf, ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Any:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log()
        + lgamma(b)
        - lgamma(a)
        + (a - b) * digamma(a)
        + (q.rate - p.rate) * (a / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Any:
    ratio, moved = p.scale / q.scale, (q.loc - p.loc) / q.scale
    overlap = (moved + lgamma(ratio + 1)).exp()
    return -ratio.log() - moved + ratio * euler_constant + overlap - (1 + euler_constant)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    normalizers = lgamma(total) - lgamma(b.sum(-1)) + (lgamma(b) - lgamma(a)).sum(-1)
    return normalizers + ((a - b) * (digamma(a) - digamma(total).unsqueeze(-1))).sum(-1)


register_kl(Beta, Beta)(lambda p, q: _dirichlet(p._dirichlet, q._dirichlet))


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Any:
    ones = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zeros = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    ones = where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, ones))
    return ones + where(p.probs == 1, 0.0, where(q.probs == 1, math.inf, zeros))


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Any:
    if bool((p.total_count < q.total_count).any()):
        raise Unsupported(
            "KL between Binomials where q.total_count > p.total_count is not implemented; average "
            "over samples"
        )
    each = p.probs * (p.logits - q.logits) + softplus(q.logits) - softplus(p.logits)
    return where(p.total_count > q.total_count, math.inf, p.total_count * each)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Any:
    return xlogy(p.rate, p.rate) - xlogy(p.rate, q.rate) - (p.rate - q.rate)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = where((q.probs == 0).expand(terms.shape), math.inf, terms)
    return where((p.probs == 0).expand(terms.shape), 0.0, terms).sum(-1)


register_kl(OneHotCategorical, OneHotCategorical)(
    lambda p, q: _categorical(p._categorical, q._categorical)
)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Any:
    if p.event_shape != q.event_shape:
        raise InvalidArgument(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            f"computed: {tuple(p.event_shape)} and {tuple(q.event_shape)}"
        )
    d = p.event_shape[0]
    columns = p._factor.mT  # its rows' lengths in units of q's factor: the trace
    trace = mahalanobis(q._factor.unsqueeze(-3) if q._factor.ndim > 2 else q._factor, columns)
    distance = mahalanobis(q._factor, q.loc - p.loc)
    half = half_log_det(q._factor) - half_log_det(p._factor)
    return half + 0.5 * (trace.sum(-1) + distance - d)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise Unsupported(
            "KL between Independents of different reinterpreted_batch_ndims: "
            f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}; average over samples"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise Unsupported(
            f"KL between distributions of different transforms, {p.transforms} and {q.transforms}; "
            "average over samples"
        )
    extra = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), extra)


# ---- two families: -entropy(p) - E_p[log q] ----------------------------------------------------


def _cross(families: tuple[type, ...], q: type) -> Callable[[Any], Any]:
    """Declare the decorated E_p[log q] for each family of p."""

    def declare(expectation: Any) -> Any:
        for family in families:
            register_kl(family, q)(lambda p, q: -p.entropy() - expectation(p, q))
        return expectation

    return declare


@_cross((Beta, Exponential, Gamma, Gumbel, Laplace, Uniform), Normal)
def _log_normal_density(p: Any, q: Normal) -> Any:
    squares = (p.variance + (p.mean - q.loc).square()) / q.scale.square()
    return -0.5 * squares - q.scale.log() - HALF_LOG_2PI


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Any:
    z = (p.loc - q.loc) / p.scale
    distance = math.sqrt(2 / math.pi) * (-0.5 * z.square()).exp() + z * (z / math.sqrt(2)).erf()
    return (2 * q.scale).log() + p.scale * distance / q.scale - p.entropy()


@_cross((Beta, Gamma), Exponential)
def _log_exponential_density(p: Any, q: Exponential) -> Any:
    return q.rate.log() - q.rate * p.mean


def _log_gamma_density(q: Gamma, mean: Any, mean_log: Any) -> Any:
    a = q.concentration
    return a * q.rate.log() - lgamma(a) + (a - 1) * mean_log - q.rate * mean


@_cross((Beta,), Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> Any:
    a = p.concentration1
    return _log_gamma_density(q, p.mean, digamma(a) - digamma(a + p.concentration0))


@_cross((Exponential,), Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Any:
    return _log_gamma_density(q, p.mean, -p.rate.log() - euler_constant)


def _log_gumbel_density(p: Any, q: Gumbel, transform: Any) -> Any:
    """Expected log density of a Gumbel distribution, by the expectation of exp(-x / q.scale)."""
    return (q.loc - p.mean) / q.scale - (q.loc / q.scale).exp() * transform - q.scale.log()


@_cross((Exponential,), Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> Any:
    return _log_gumbel_density(p, q, p.rate / (p.rate + 1 / q.scale))


@_cross((Gamma,), Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> Any:
    rate = p.rate * q.scale
    return _log_gumbel_density(p, q, (rate / (rate + 1)).pow(p.concentration))


@_cross((Normal,), Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Any:
    exponent = 0.5 * (p.scale / q.scale).square() - p.loc / q.scale
    return _log_gumbel_density(p, q, exponent.exp())


@_cross((Uniform,), Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> Any:
    low, high = p.low / q.scale, p.high / q.scale
    return _log_gumbel_density(p, q, ((-low).exp() - (-high).exp()) / (high - low))


@register_kl(Beta, Uniform)
def _beta_uniform(p: Beta, q: Uniform) -> Any:
    outside = logical_or(q.low > 0, q.high < 1)
    return where(outside, math.inf, (q.high - q.low).log() - p.entropy())


def _mean_log(p: Uniform) -> Any:
    """The expectation of log x."""
    return (xlogy(p.high, p.high) - xlogy(p.low, p.low)) / (p.high - p.low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Any:
    reflected = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    a, b = q.concentration1, q.concentration0
    expected = (a - 1) * _mean_log(p) + (b - 1) * _mean_log(reflected)
    result = -p.entropy() - expected - (lgamma(a + b) - lgamma(a) - lgamma(b))
    return where(logical_or(p.high > 1, p.low < 0), math.inf, result)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Any:
    return where(p.low < 0, math.inf, -p.entropy() - _log_exponential_density(p, q))


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Any:
    result = -p.entropy() - _log_gamma_density(q, p.mean, _mean_log(p))
    return where(p.low < 0, math.inf, result)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


def _infinite(p: Any, q: Any) -> Any:
    """p has draws where q has none."""
    first = next(v for v in p.__dict__.values() if hasattr(v, "ndim"))
    second = next(v for v in q.__dict__.values() if hasattr(v, "ndim"))
    return full_like(zeros_like(first) + zeros_like(second), math.inf)


for _p, _q in (
    *itertools.product((Exponential, Gamma, Gumbel, Laplace, Normal), (Beta, Uniform)),
    *itertools.product((Gumbel, Laplace, Normal), (Exponential, Gamma)),
    *itertools.product((Poisson,), (Bernoulli, Binomial)),
):
    register_kl(_p, _q)(_infinite)
