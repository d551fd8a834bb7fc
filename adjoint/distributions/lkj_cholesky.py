"""The LKJ distribution of correlations, by their Cholesky factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..core.dtype import finfo
from ..core.errors import InvalidArgument
from ..ops.create.ranges import arange
from ..ops.index.slicing import diag_embed
from ..ops.random.random import randn
from ..ops.special.special import lgamma, mvlgamma
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower Cholesky factors L of correlation matrices, whose density is in proportion to
    det(L L^T)^(concentration - 1) (Lewandowski et al., 2009).

    Source: https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.lkj_cholesky.LKJCholesky

    >>> ad.distributions.LKJCholesky(3, 0.5).sample().shape
    adjoint.Size([3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky  # type: ignore[assignment]

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise InvalidArgument(
                f"LKJCholesky: Expected dim to be an integer greater than or equal to 2. Found "
                f"dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Sequence[int] = ()) -> Any:
        """Row by row, by the onion method: a direction, and a length from a beta distribution."""
        with no_grad():
            like = self.concentration
            place = {"dtype": like.dtype, "device": like.device}
            rows = arange(self.dim, **place)
            before = (rows - 1).clamp(min=0)
            rest = like.unsqueeze(-1) + 0.5 * (self.dim - 2)
            beta = Beta(before + 0.5, rest - 0.5 * before, validate_args=False)
            squares = beta.sample(sample_shape).unsqueeze(-1)
            noise = randn(self._extended_shape(sample_shape), **place).tril(-1)
            directions = noise / noise.norm(dim=-1, keepdim=True)
            directions[..., 0, :].fill_(0.0)
            w = squares.sqrt() * directions
            left = (1 - w.square().sum(-1)).clamp(min=finfo(w.dtype).tiny)
            return w + diag_embed(left.sqrt())

    def _log_prob(self, value: Any) -> Any:
        """The log density."""
        more = self.dim - 1
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        like = self.concentration
        order = arange(2, self.dim + 1, dtype=like.dtype, device=like.device)
        order = 2 * (like - 1).unsqueeze(-1) + self.dim - order
        alpha = like + 0.5 * more
        norm = 0.5 * more * math.log(math.pi) + mvlgamma(alpha - 0.5, more)
        return (order * diagonal.log()).sum(-1) - norm + lgamma(alpha) * more
