"""Transforms of tensors part by part, and of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.dtype import finfo
from ..core.errors import InvalidArgument
from ..ops.create.creation import eye
from ..ops.shape.concatenation import cat, stack
from . import constraints
from .change_of_variables import Plain, Transform
from .utils import softplus, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = [
    "CatTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "StackTransform",
]  # fmt: skip


class _Parts(Transform):
    """Base of those of each part along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms = [t.with_cache(1) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _split(self, x: Any) -> Sequence[Any]:
        raise NotImplementedError

    def _join(self, parts: list[Any]) -> Any:
        raise NotImplementedError

    def _each(self, name: str, *values: Any) -> list[Any]:
        split = [self._split(value) for value in values]
        return [
            getattr(t, name)(*parts)
            for t, *parts in zip(self.transforms, *split, strict=True)
        ]  # fmt: skip

    def _call(self, x: Any) -> Any:
        return self._join(self._each("__call__", x))

    def _inverse(self, y: Any) -> Any:
        return self._join(self._each("_inv_call", y))

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether the transform is bijective: if all parts are."""
        return all(t.bijective for t in self.transforms)


class CatTransform(_Parts):
    """Transforms of the parts of `lengths` along `dim`.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CatTransform

    >>> d = ad.distributions
    >>> t = d.CatTransform([d.ExpTransform(), d.identity_transform], lengths=[1, 2])
    >>> t(ad.zeros(3))
    tensor([1., 0., 0.])
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise InvalidArgument(
                f"CatTransform: {len(self.transforms)} transforms and {len(self.lengths)} lengths"
            )

    @property
    def event_dim(self) -> int:
        """The greatest of the transforms'."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """Sum of the parts' lengths."""
        return sum(self.lengths)

    def _split(self, x: Any) -> Sequence[Any]:
        if x.shape[self.dim] != self.length:
            raise InvalidArgument(
                f"CatTransform: parts of {self.lengths} along dim {self.dim} of {tuple(x.shape)}"
            )
        return x.split(self.lengths, self.dim)  # type: ignore[no-any-return]

    def _join(self, parts: list[Any]) -> Any:
        return cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The parts', side by side; summed where `dim` is of the event."""
        terms = self._each("log_abs_det_jacobian", x, y)
        events = self.event_dim
        terms = [
            sum_rightmost(term, events - t.event_dim) if t.event_dim < events else term
            for term, t in zip(terms, self.transforms, strict=True)
        ]
        dim = self.dim - x.ndim if self.dim >= 0 else self.dim
        dim += events
        return cat(terms, dim) if dim < 0 else sum(terms)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """Constraint on the inputs: the parts' domains."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """Constraint on the outputs: the parts' codomains."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """Transforms of the entries along `dim`.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.StackTransform

    >>> d = ad.distributions
    >>> d.StackTransform([d.ExpTransform(), d.identity_transform])(ad.zeros(2))
    tensor([1., 0.])
    """

    def _split(self, x: Any) -> Sequence[Any]:
        if x.shape[self.dim] != len(self.transforms):
            raise InvalidArgument(
                f"StackTransform: {len(self.transforms)} transforms along dim {self.dim} of "
                f"{tuple(x.shape)}"
            )
        return x.unbind(self.dim)  # type: ignore[no-any-return]

    def _join(self, parts: list[Any]) -> Any:
        return stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The entries', side by side."""
        return stack(self._each("log_abs_det_jacobian", x, y), self.dim)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """Constraint on the inputs: the entries' domains."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """Constraint on the outputs: the entries' codomains."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


class CumulativeDistributionTransform(Transform):
    """Numbers as their probabilities under a distribution.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CumulativeDistributionTransform

    >>> d = ad.distributions
    >>> d.CumulativeDistributionTransform(d.Normal(0.0, 1.0))(ad.tensor(0.0))
    tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1  # type: ignore[assignment]

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The distribution's support."""
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The log density."""
        return self.distribution.log_prob(x)


class LowerCholeskyTransform(Plain):
    """Matrices as lower triangular ones with a positive diagonal, by its exponential.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.LowerCholeskyTransform

    >>> ad.distributions.LowerCholeskyTransform()(ad.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Plain):
    """Matrices as positive definite ones: L L^T of their `LowerCholeskyTransform` L.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.PositiveDefiniteTransform

    >>> ad.distributions.PositiveDefiniteTransform()(ad.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform()._inverse(y.cholesky())


class CorrCholeskyTransform(Plain):
    """Vectors as Cholesky factors of correlation matrices: of each row, partial correlations
    tanh(x) of what the entries before have left.

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.transforms.CorrCholeskyTransform

    >>> ad.distributions.CorrCholeskyTransform()(ad.zeros(3)).shape
    adjoint.Size([3, 3])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), -1)
        left = (1 - r.square()).sqrt().cumprod(-1)
        r = r + eye(r.shape[-1], dtype=r.dtype, device=r.device)
        before = cat([left.new_ones((*left.shape[:-1], 1)), left[..., :-1]], -1)
        return r * before

    def _inverse(self, y: Any) -> Any:
        left = 1 - y.square().cumsum(-1)
        before = cat([left.new_ones((*left.shape[:-1], 1)), left[..., :-1]], -1)
        vector = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(before, -1).sqrt()
        return (vector.log1p() - (-vector).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        """Logarithm of the Jacobian's determinant, by the rest of each row and the derivative of
        tanh.
        """
        left = 1 - y.square().cumsum(-1)
        rows: Any = 0.0
        if y.shape[-1] > 2:
            rows = 0.5 * tril_matrix_to_vec(left, -2).log().sum(-1)
        return rows - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        """(..., n (n - 1) / 2) to (..., n, n)."""
        count = shape[-1]
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise InvalidArgument("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        """(..., n, n) to (..., n (n - 1) / 2)."""
        n = shape[-1]
        if shape[-2] != n:
            raise InvalidArgument("Input is not square")
        return (*shape[:-2], n * (n - 1) // 2)
