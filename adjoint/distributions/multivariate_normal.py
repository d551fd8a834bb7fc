"""The multivariate normal distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.spec import broadcast_shapes
from ..ops.create.creation import eye
from ..ops.linalg.linalg import cholesky_inverse, solve_triangular
from ..ops.linalg.matrix_factors import cholesky
from ..ops.random.random import randn
from . import constraints
from .distribution import Distribution
from .utils import HALF_LOG_2PI, lazy_property

__all__ = ["MultivariateNormal"]


def one_matrix(caller: str, **matrices: Any) -> tuple[str, Any]:
    """The one that was given, and its name; InvalidArgument for none, several, or no matrix."""
    given = {name: m for name, m in matrices.items() if m is not None}
    if len(given) != 1:
        raise InvalidArgument(
            f"{caller}: Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
            f"specified, got {list(given)}."
        )
    ((name, matrix),) = given.items()
    if matrix.ndim < 2:
        raise InvalidArgument(
            f"{caller}: {name} must be at least two-dimensional, with optional leading batch "
            "dimensions"
        )
    return name, matrix


class MultivariateNormal(Distribution):
    """The multivariate normal distribution: by its covariance, its inverse, or a Cholesky factor.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.multivariate_normal.MultivariateNormal

    >>> ad.distributions.MultivariateNormal(ad.zeros(2), ad.eye(2)).log_prob(ad.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector  # type: ignore[assignment]
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise InvalidArgument("MultivariateNormal: loc must be at least one-dimensional.")
        name, matrix = one_matrix(
            "MultivariateNormal",
            covariance_matrix=covariance_matrix,
            scale_tril=scale_tril,
            precision_matrix=precision_matrix,
        )
        batch = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1], op="MultivariateNormal")
        self.loc = loc.expand((*batch, *loc.shape[-1:]))
        self.__dict__[name] = matrix.expand((*batch, *matrix.shape[-2:]))
        super().__init__(batch, loc.shape[-1:], validate_args)
        # of the matrix's own batch shape: it is decomposed, and solved with, once
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cholesky(matrix)
        else:
            flipped = cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
            self._unbroadcasted_scale_tril = solve_triangular(
                flipped,
                eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device),
                upper=False,
            )

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """A distribution expanded to another batch shape."""
        new = super().expand(batch_shape, _instance)
        new._unbroadcasted_scale_tril = self._factor
        return new

    @property
    def _factor(self) -> Any:
        """The Cholesky factor under PyTorch's name, which subclasses set or override."""
        return self._unbroadcasted_scale_tril

    def _matrix(self, value: Any) -> Any:
        return value.expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Any:
        """The covariance's lower Cholesky factor."""
        return self._matrix(self._factor)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self._matrix(self._factor @ self._factor.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return self._matrix(cholesky_inverse(self._factor))

    @property
    def mean(self) -> Any:
        """The location."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        """The covariance's diagonal."""
        return self._factor.square().sum(-1).expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Any:
        """loc + factor @ standard normal draws."""
        noise = self._drawn(randn, sample_shape, self.loc)
        if self._factor.ndim == 2:
            return self.loc + noise @ self._factor.T
        return self.loc + (self._factor @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        squares = mahalanobis(self._factor, value - self.loc)
        return -0.5 * squares - half_log_det(self._factor) - self._event_shape[0] * HALF_LOG_2PI

    def entropy(self) -> Any:
        """Entropy in closed form."""
        d = self._event_shape[0]
        return (d * (0.5 + HALF_LOG_2PI) + half_log_det(self._factor)).expand(self._batch_shape)


def half_log_det(factor: Any) -> Any:
    """The logarithm of the determinant of a Cholesky factor."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def mahalanobis(factor: Any, difference: Any) -> Any:
    """The squared length of `difference` in units of a Cholesky factor."""
    if factor.ndim == 2:
        columns = difference.reshape(-1, difference.shape[-1]).T
        squares = solve_triangular(factor, columns, upper=False).square().sum(0)
        return squares.reshape(difference.shape[:-1])
    batch = broadcast_shapes(factor.shape[:-2], difference.shape[:-1], op="MultivariateNormal")
    d = difference.shape[-1]
    solved = solve_triangular(
        factor.expand((*batch, d, d)), difference.expand((*batch, d)).unsqueeze(-1), upper=False
    )
    return solved.squeeze(-1).square().sum(-1)
