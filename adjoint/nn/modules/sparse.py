"""Embedding."""

from __future__ import annotations

from typing import Any

from ...ops.create.creation import empty
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from ..functional.sparse import padding_row
from ..parameter import Parameter
from .embedding_bag import EmbeddingBag as EmbeddingBag
from .embedding_bag import Rows, assert_weight_shape, sizes_of

__all__ = ["Embedding"]


class Embedding(Rows):
    """A learned vector for each of num_embeddings indices.

    The vector of `padding_idx` is zero at first and gets no gradient.

    Shapes: (...) of integers -> (..., embedding_dim).
    Errors: IndexingError for an index out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html

    >>> ad.nn.Embedding(10, 3)(ad.tensor([[1, 2], [4, 5]])).shape
    adjoint.Size([2, 2, 3])
    """

    _repr = "{num_embeddings}, {embedding_dim}"
    _repr_unless = (
        ("padding_idx", None), ("max_norm", None), ("norm_type", 2), ("scale_grad_by_freq", False),
        ("sparse", False),
    )  # fmt: skip

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_row(padding_idx, num_embeddings, "Padding_idx")
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            weight = empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(weight, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            assert_weight_shape(_weight, num_embeddings, embedding_dim)
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def forward(self, input: Any) -> Any:
        """The vectors at the indices."""
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An Embedding that shares the memory of a matrix of vectors, frozen unless told otherwise.

        Errors: ShapeError for anything but a matrix.

        >>> ad.nn.Embedding.from_pretrained(ad.ones(2, 3)).weight.requires_grad
        False
        """
        rows, columns = sizes_of(embeddings)
        return cls(
            rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight=embeddings, _freeze=freeze,
        )  # fmt: skip
