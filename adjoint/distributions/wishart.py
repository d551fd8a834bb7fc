"""The Wishart distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.spec import broadcast_shapes
from ..ops.create.ranges import arange
from ..ops.elementwise.comparison import where
from ..ops.index.slicing import diag_embed
from ..ops.linalg.linalg import cholesky_inverse, slogdet, solve_triangular
from ..ops.linalg.matrix_factors import cholesky
from ..ops.random.random import randn
from ..ops.special.special import digamma, mvlgamma
from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .multivariate_normal import MultivariateNormal, half_log_det, one_matrix
from .utils import broadcast_all, lazy_property

__all__ = ["Wishart"]


class Wishart(Distribution):
    """Sums of `df` outer products of normal draws with themselves: by the covariance of these, its
    inverse, or a Cholesky factor.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.wishart.Wishart

    >>> ad.distributions.Wishart(ad.tensor(2.0), ad.eye(2)).mean
    tensor([[2., 0.],
            [0., 2.]])
    """

    arg_constraints = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.positive,
    }
    support = constraints.positive_definite  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = one_matrix(
            "Wishart",
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        size = matrix.shape[-1]
        df, _ = broadcast_all(df, matrix.new_ones(()))
        batch = broadcast_shapes(df.shape, matrix.shape[:-2], op="Wishart")
        self._assert_all(
            df > size - 1, df,
            lambda shown: f"Wishart: Value of df expected to be greater than ndim - 1 = {size - 1}",
        )  # fmt: skip
        self.df = df.expand(batch)
        self.__dict__[name] = matrix.expand((*batch, size, size))
        super().__init__(batch, (size, size), validate_args)
        zero = matrix.new_zeros(matrix.shape[:-1])
        normal = MultivariateNormal(zero, **{name: matrix}, validate_args=False)
        self._factor = normal._factor.expand((*batch, size, size))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        new = super().expand(batch_shape, _instance)
        new._factor = self._factor.expand((*batch_shape, *self._event_shape))
        return new

    @lazy_property
    def scale_tril(self) -> Any:
        """The covariance's lower Cholesky factor."""
        return self._factor

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self._factor @ self._factor.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return cholesky_inverse(self._factor)

    def _df(self) -> Any:
        return self.df.unsqueeze(-1).unsqueeze(-1)

    @property
    def mean(self) -> Any:
        """df times the covariance."""
        return self._df() * self.covariance_matrix

    @property
    def mode(self) -> Any:
        """(df - p - 1) times the covariance, where that is positive."""
        factor = self._df() - self._event_shape[0] - 1
        return where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        """Variance of each element."""
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._df() * (v.square() + outer)

    def _halves(self) -> Any:
        """(df - i) / 2 for each row i."""
        like = self.df
        rows = arange(self._event_shape[0], dtype=like.dtype, device=like.device)
        return (like.unsqueeze(-1) - rows) / 2

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: Any = None) -> Any:
        """Samples by Bartlett's decomposition: chi draws on the diagonal, normal ones below it."""
        return self._bartlett_sampling(sample_shape)

    def _bartlett_sampling(self, sample_shape: Sequence[int] = ()) -> Any:
        # a name that packages call
        noise = self._drawn(randn, sample_shape, self.df).tril(-1)
        diagonal = Chi2(2 * self._halves(), validate_args=False).rsample(sample_shape).sqrt()
        chol = self._factor @ (noise + diag_embed(diagonal))
        return chol @ chol.mT

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        p = self._event_shape[0]
        factor = self._factor
        norm = self.df * (p * math.log(2) / 2 + half_log_det(factor))
        norm = norm + mvlgamma(self.df / 2, p)
        batch = broadcast_shapes(factor.shape[:-2], value.shape[:-2], op="Wishart")
        lower = factor.expand((*batch, p, p))
        chol = solve_triangular(lower, cholesky(value).expand((*batch, p, p)), upper=False)
        trace = chol.square().sum((-2, -1))
        return (self.df - p - 1) / 2 * slogdet(value).logabsdet - norm - trace / 2

    def entropy(self) -> Any:
        """Entropy in closed form."""
        p = self._event_shape[0]
        return (
            (p + 1) * (p * math.log(2) / 2 + half_log_det(self._factor))
            + mvlgamma(self.df / 2, p)
            - (self.df - p - 1) / 2 * digamma(self._halves()).sum(-1)
            + self.df * p / 2
        )
