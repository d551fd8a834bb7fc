"""Probability distributions: draws, log densities, entropies, divergences.

Source: https://docs.pytorch.org/docs/stable/distributions.html

>>> normal = ad.distributions.Normal(ad.tensor([0.0, 1.0]), 2.0)
>>> normal.log_prob(ad.tensor(1.0))
tensor([-1.7371, -1.6121])
"""

from . import constraints, transforms, utils
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .chi2 import Chi2
from .dirichlet import Dirichlet
from .distribution import Distribution
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_cauchy import HalfCauchy
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl
from .laplace import Laplace
from .log_normal import LogNormal
from .multinomial import Multinomial
from .multivariate_normal import MultivariateNormal
from .normal import Normal
from .one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from .poisson import Poisson
from .studentT import StudentT
from .transformed_distribution import TransformedDistribution
from .transforms import *  # noqa: F403 - its __all__ is the list
from .uniform import Uniform

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Dirichlet", "Distribution",
    "Exponential", "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "Laplace", "LogNormal", "Multinomial", "MultivariateNormal", "Normal", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Poisson", "StudentT", "TransformedDistribution",
    "Uniform", "constraints", "kl_divergence", "register_kl", "transforms", "utils",
    *transforms.__all__,
]  # fmt: skip


def __getattr__(name: str) -> object:
    from ..absent import missing

    raise missing("distributions", name)
