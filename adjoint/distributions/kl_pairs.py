"""Divergences of the continuous Bernoulli, Pareto and low-rank normal families, and of exponential
families in general.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..autograd.gradients import grad
from ..core.errors import Unsupported
from ..ops.elementwise.comparison import where
from ..ops.elementwise.logic import logical_or
from ..ops.special.special import lgamma
from .beta import Beta
from .continuous_bernoulli import ContinuousBernoulli
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .gumbel import Gumbel
from .kl import _infinite, _mean_log, kl_divergence, register_kl
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal
from .normal import Normal
from .pareto import Pareto
from .uniform import Uniform
from .utils import HALF_LOG_2PI

__all__: list[str] = []


def _log_continuous_density(p: Any, q: ContinuousBernoulli) -> Any:
    """The expectation of the log density of q under p."""
    return p.mean * q.logits + (-q.probs).log1p() + q._log_norm()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
@register_kl(Beta, ContinuousBernoulli)
def _to_continuous(p: Any, q: ContinuousBernoulli) -> Any:
    return -p.entropy() - _log_continuous_density(p, q)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous(p: Uniform, q: ContinuousBernoulli) -> Any:
    outside = logical_or(p.high > 1, p.low < 0)
    return where(outside, math.inf, _to_continuous(p, q))


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_uniform(p: ContinuousBernoulli, q: Uniform) -> Any:
    outside = logical_or(q.high < 1, q.low > 0)
    return where(outside, math.inf, -p.entropy() + (q.high - q.low).log())


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_exponential(p: ContinuousBernoulli, q: Exponential) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(ContinuousBernoulli, Normal)
def _continuous_normal(p: ContinuousBernoulli, q: Normal) -> Any:
    return -p.entropy() + _negative_log_normal(p, q)


def _negative_log_normal(p: Any, q: Normal) -> Any:
    """Negative expectation of the log density of q under p."""
    squares = p.variance + (p.mean - q.loc).square()
    return HALF_LOG_2PI + q.scale.log() + 0.5 * squares / q.scale.square()


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Any:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, result)


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Pareto, q: Exponential) -> Any:
    result = -p.entropy() - q.rate.log() + q.rate * p.mean
    return where(p.alpha <= 1, math.inf, result)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> Any:
    log_mean = p.scale.log() + p.alpha.reciprocal()
    a, rate = q.concentration, q.rate
    expected = a * rate.log() - lgamma(a) + (a - 1) * log_mean - rate * p.mean
    return where(p.alpha <= 1, math.inf, -p.entropy() - expected)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Pareto, q: Normal) -> Any:
    return where(p.alpha <= 2, math.inf, -p.entropy() + _negative_log_normal(p, q))


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Any:
    expected = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p)
    return where(p.low < q.scale, math.inf, -p.entropy() - expected)


def _dense(p: LowRankMultivariateNormal) -> MultivariateNormal:
    return MultivariateNormal(p.loc, p.covariance_matrix, validate_args=False)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_low(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Any:
    return kl_divergence(_dense(p), _dense(q))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _dense_low(p: MultivariateNormal, q: LowRankMultivariateNormal) -> Any:
    return kl_divergence(p, _dense(q))


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_dense(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Any:
    return kl_divergence(_dense(p), q)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_families(p: ExponentialFamily, q: ExponentialFamily) -> Any:
    if type(p) is not type(q):
        raise Unsupported(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences; average p.log_prob(x) - q.log_prob(x) over samples"
        )
    ours = [x.detach().requires_grad_() for x in p._natural_params]
    theirs = q._natural_params
    normalizer = p._log_normalizer(*ours)
    gradients = grad(normalizer.sum(), ours, create_graph=True)
    result = q._log_normalizer(*theirs) - normalizer
    for a, b, g in zip(ours, theirs, gradients, strict=True):
        result = result - ((b - a) * g).reshape((*normalizer.shape, -1)).sum(-1)
    return result


for _p, _q in (
    *itertools.product((Exponential, Gamma, Gumbel, Laplace, Normal), (ContinuousBernoulli,)),
    *itertools.product(
        (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Normal), (Pareto,)
    ),
    *itertools.product((Pareto,), (Beta, ContinuousBernoulli, Uniform)),
):
    register_kl(_p, _q)(_infinite)
