"""Embedding and EmbeddingBag."""

from __future__ import annotations

from typing import Any

from ...autograd.modes import no_grad
from ...core.errors import ShapeError
from ...ops.create.creation import empty
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .. import init
from ..functional.sparse import padding_row
from ..parameter import Parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


def _sizes_of(embeddings: Any) -> Any:
    """Rows and columns of a matrix; ShapeError for anything else."""
    if embeddings.ndim != 2:
        raise ShapeError(
            f"Embeddings parameter is expected to be 2-dimensional, got {tuple(embeddings.shape)}"
        )
    return embeddings.shape


class _Rows(Module):
    """The base of modules with a matrix of vectors, of which one may stand for padding."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    weight: Any

    def _make_weight(self, given: Any, device: Any, dtype: Any, freeze: bool = False) -> None:
        """New vectors, or the given ones; ShapeError for those of another shape."""
        shape = (self.num_embeddings, self.embedding_dim)
        if given is not None and tuple(given.shape) != shape:
            raise ShapeError(
                f"Shape of weight {tuple(given.shape)} does not match num_embeddings={shape[0]} "
                f"and embedding_dim={shape[1]}"
            )
        weight = empty(shape, device=device, dtype=dtype) if given is None else given
        self.weight = Parameter(weight, requires_grad=not freeze)
        if given is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors from the standard normal distribution.

        >>> ad.nn.Embedding(2, 2).reset_parameters()
        """
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Rows):
    """Table of learned vectors, looked up by indices.

        y[i] = weight[input[i]]

    Args:
        num_embeddings: Number of vectors.
        embedding_dim: Size of each vector.
        padding_idx: Index whose vector is zero at first and gets no gradient. Default: None.
        max_norm: Largest norm: vectors that are looked up are first scaled down to it, in place.
            Default: None, no bound.
        norm_type: Exponent of that norm. Default: 2.0.
        scale_grad_by_freq: Not supported: only False. Default: False.
        sparse: Whether the gradient of the weight is a sparse tensor. Default: False.
        _weight: Vectors to start with. Default: None, drawn from the standard normal distribution.
        _freeze: Whether the vectors are not learned. Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (...) of integers -> (..., embedding_dim).
    Errors: IndexingError for an index out of range, DTypeError for indices that are no integers,
    and Unsupported for `scale_grad_by_freq`, in the call; ShapeError for a `_weight` of another
    shape; InvalidArgument for a padding_idx out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html

    >>> ad.nn.Embedding(10, 3)(ad.tensor([[1, 2], [4, 5]])).shape
    adjoint.Size([2, 2, 3])
    """

    _shown_as = "{num_embeddings}, {embedding_dim}"
    _shown_unless = (
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
        self._make_weight(_weight, device, dtype, _freeze)

    def forward(self, input: Tensor) -> Tensor:
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
        rows, columns = _sizes_of(embeddings)
        return cls(
            rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
            _weight=embeddings, _freeze=freeze,
        )  # fmt: skip


class EmbeddingBag(_Rows):
    """Mean, sum or maximum of the vectors of each bag of indices.

        y[b] = mean over i in bag b of weight[input[i]]

    Indices equal to padding_idx do not count. An empty bag gives zeros.

    Args:
        num_embeddings: Number of vectors.
        embedding_dim: Size of each vector.
        max_norm: Largest norm: vectors that are looked up are first scaled down to it, in place.
            Default: None, no bound.
        norm_type: Exponent of that norm. Default: 2.0.
        scale_grad_by_freq: Not supported: only False. Default: False.
        mode: What becomes of a bag's vectors: "mean", "sum" or "max". Default: "mean".
        sparse: Whether the gradient of the weight is a sparse tensor. Default: False.
        _weight: Vectors to start with. Default: None, drawn from the standard normal distribution.
        include_last_offset: Whether the offsets have the end of the last bag, too. Default: False.
        padding_idx: Index whose vector is zero at first and gets no gradient. Default: None.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (bags, size), or (indices,) with offsets (bags,) -> (bags, embedding_dim).
    Errors: ShapeError for other shapes, InvalidArgument for an unknown mode and for "max" with
    `sparse`, and Unsupported for `scale_grad_by_freq`, in the call; InvalidArgument for a
    padding_idx out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html

    >>> ad.nn.EmbeddingBag(10, 3)(ad.tensor([1, 2, 4]), ad.tensor([0, 2])).shape
    adjoint.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = padding_row(padding_idx, num_embeddings, "padding_idx")
        self._make_weight(_weight, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """One vector for each bag."""
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """An EmbeddingBag that shares the memory of a matrix of vectors, frozen by default.

        Errors: ShapeError for anything but a matrix.

        >>> ad.nn.EmbeddingBag.from_pretrained(ad.ones(2, 3)).weight.requires_grad
        False
        """
        rows, columns = _sizes_of(embeddings)
        made = cls(
            rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
            _weight=embeddings, include_last_offset=include_last_offset, padding_idx=padding_idx,
        )  # fmt: skip
        made.weight.requires_grad_(not freeze)
        return made

    def extra_repr(self) -> str:
        """The sizes, the mode and the settings that differ from the defaults."""
        usual = [("max_norm", None), ("norm_type", 2), ("scale_grad_by_freq", False)]
        text = self._shown("{num_embeddings}, {embedding_dim}", usual)
        return f"{text}, " + self._shown("mode={mode!r}", [("padding_idx", None)])
