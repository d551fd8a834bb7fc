"""Distances as modules."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """Distance of vectors along the last dimension.

        y = p-norm of x1 - x2 + eps

    Args:
        p: Exponent of the norm. Default: 2.0.
        eps: Number added to each difference, which keeps the gradient finite. Default: 1e-6.
        keepdim: Whether the reduced dimension stays, with size 1. Default: False.

    Shapes: x1 and x2 broadcast; the last dimension is reduced.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PairwiseDistance.html

    >>> ad.nn.PairwiseDistance()(ad.zeros(5, 2), ad.ones(5, 2)).shape
    adjoint.Size([5])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """Cosine of the angle between vectors.

        y = x1 . x2 / (max(|x1|, eps) max(|x2|, eps))

    Args:
        dim: Dimension of the vectors, which is reduced. Default: 1.
        eps: Least norm, so that nothing is divided by zero. Default: 1e-8.

    Shapes: x1 and x2 broadcast; `dim` is reduced.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CosineSimilarity.html

    >>> ad.nn.CosineSimilarity(dim=-1)(ad.ones(5, 2), ad.ones(5, 2)).shape
    adjoint.Size([5])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The cosines."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
