"""The multivariate normal distribution with a covariance of low rank and a diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.spec import broadcast_shapes
from ..ops.create.creation import eye
from ..ops.index.slicing import diag_embed
from ..ops.linalg.linalg import solve_triangular
from ..ops.linalg.matrix_factors import cholesky
from ..ops.random.random import randn
from . import constraints
from .distribution import Distribution
from .multivariate_normal import half_log_det
from .utils import HALF_LOG_2PI, lazy_property

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """The normal distribution with covariance W W^T + diag(d), of which only a matrix of W's rank
    is ever factorized.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.lowrank_multivariate_normal.LowRankMultivariateNormal

    >>> d = ad.distributions.LowRankMultivariateNormal(ad.zeros(2), ad.ones(2, 1), ad.ones(2))
    >>> d.variance
    tensor([2., 2.])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        if loc.ndim < 1:
            raise InvalidArgument(
                "LowRankMultivariateNormal: loc must be at least one-dimensional."
            )
        n = loc.shape[-1]
        if cov_factor.ndim < 2 or cov_factor.shape[-2] != n or cov_diag.shape[-1:] != (n,):
            raise InvalidArgument(
                f"LowRankMultivariateNormal: cov_factor must be a batch of matrices with {n} rows "
                f"and cov_diag a batch of vectors with shape {n}, got {tuple(cov_factor.shape)} "
                f"and {tuple(cov_diag.shape)}"
            )
        batch = broadcast_shapes(
            loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1],
            op="LowRankMultivariateNormal",
        )  # fmt: skip
        self.loc = loc.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, n))
        super().__init__(batch, (n,), validate_args)

    def _capacitance(self) -> Any:
        """The Cholesky factor of I + W^T diag(1/d) W."""
        w = self.cov_factor
        scaled = w / self.cov_diag.unsqueeze(-1)
        rank = w.shape[-1]
        return cholesky(w.mT @ scaled + eye(rank, dtype=w.dtype, device=w.device))

    @property
    def mean(self) -> Any:
        """The location."""
        return self.loc

    mode = mean

    @lazy_property
    def variance(self) -> Any:
        """The covariance's diagonal."""
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + diag_embed(self.cov_diag)

    @lazy_property
    def scale_tril(self) -> Any:
        """The covariance's lower Cholesky factor."""
        return cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance, by Woodbury's formula."""
        scaled = self.cov_factor / self.cov_diag.unsqueeze(-1)
        solved = solve_triangular(self._capacitance(), scaled.mT, upper=False)
        return diag_embed(self.cov_diag.reciprocal()) - solved.mT @ solved

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        new = super().expand(batch_shape, _instance)
        for name in ("variance", "covariance_matrix", "scale_tril", "precision_matrix"):
            new.__dict__.pop(name, None)
        return new

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """loc + W @ standard normal draws + sqrt(d) times others."""
        shape = self._extended_shape(sample_shape)
        w = self.cov_factor
        place = {"dtype": w.dtype, "device": w.device}
        low = randn((*shape[:-1], w.shape[-1]), **place)
        product = low @ w.T if w.ndim == 2 else (w @ low.unsqueeze(-1)).squeeze(-1)
        return self.loc + product + self.cov_diag.sqrt() * randn(shape, **place)

    def _half_log_det(self, factor: Any) -> Any:
        return half_log_det(factor) + 0.5 * self.cov_diag.log().sum(-1)

    def _squares(self, difference: Any, factor: Any) -> Any:
        """The squared length in units of the covariance."""
        scaled = difference / self.cov_diag
        inner = self.cov_factor.mT @ scaled.unsqueeze(-1)
        batch = broadcast_shapes(inner.shape[:-2], factor.shape[:-2], op="log_prob")
        solved = solve_triangular(
            factor.expand((*batch, *factor.shape[-2:])),
            inner.expand((*batch, *inner.shape[-2:])),
            upper=False,
        )
        return (difference * scaled).sum(-1) - solved.squeeze(-1).square().sum(-1)

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        factor = self._capacitance()
        squares = self._squares(value - self.loc, factor)
        return -0.5 * squares - self._half_log_det(factor) - self._event_shape[0] * HALF_LOG_2PI

    def entropy(self) -> Any:
        """Entropy in closed form."""
        n = self._event_shape[0]
        return n * (0.5 + HALF_LOG_2PI) + self._half_log_det(self._capacitance())
