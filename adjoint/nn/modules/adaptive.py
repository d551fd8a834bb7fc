"""Adaptive softmax."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.errors import IndexingError, InvalidArgument, ShapeError
from ...ops.shape.concatenation import cat
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """Approximate softmax over many classes that are sorted by frequency (Grave et al., 2017).

        log p(class) = log softmax(head(x))[class]          below the first cutoff
        log p(class) = log softmax(head(x))[cluster] + log softmax(tail(x))[class]    elsewhere
        loss = -mean of log p(target)

    The frequent classes are in the head, the others in clusters of smaller and smaller width. A
    call returns `output`, the targets' log-probabilities, and `loss`.

    Args:
        in_features: Size of each input vector.
        n_classes: Number of classes.
        cutoffs: Classes at which the clusters begin, increasing.
        div_value: Factor by which the width falls from one cluster to the next. Default: 4.0.
        head_bias: Whether the head has a bias. Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: input (batch, in_features) and target (batch,), or without batch -> output like the
    target, loss a scalar.
    Errors: InvalidArgument for cutoffs that do not increase or are no classes; in the call
    ShapeError for other shapes and IndexingError for targets out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveLogSoftmaxWithLoss.html

    >>> layer = ad.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], div_value=2.0)
    >>> layer(ad.zeros(3, 8), ad.tensor([0, 4, 9])).output.shape
    adjoint.Size([3])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if (
            not cutoffs
            or cutoffs != sorted(set(cutoffs))
            or not 0 < cutoffs[0] <= cutoffs[-1] < (n_classes)
        ):
            raise InvalidArgument(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                f"order, where each value is between 1 and n_classes-1, got {cutoffs}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **where),
                    Linear(width, high - low, bias=False, **where),
                )
            )

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        self.head.reset_parameters()
        for inner, outer in self.tail:
            inner.reset_parameters()
            outer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """Each target's log-probability, and the mean of minus them."""
        if target_.ndim not in (0, 1) or input_.ndim != target_.ndim + 1:
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: expected (batch, features) and (batch,), or both "
                f"without batch, got {tuple(input_.shape)} and {tuple(target_.shape)}"
            )
        if target_.ndim and input_.shape[0] != target_.shape[0]:
            raise ShapeError(
                "Input and target should have the same size in the batch dimension, got "
                f"{tuple(input_.shape)} and {tuple(target_.shape)}"
            )
        input = input_ if target_.ndim else input_.unsqueeze(0)
        target = target_.reshape(-1)
        wrong = (target < 0) | (target >= self.n_classes)
        if bool(wrong.any()):
            raise IndexingError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        column = target.clone()
        output = head.new_zeros(target.shape)
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            inside = (target >= low) & (target < high)
            rows = inside.nonzero().squeeze(1)
            if not rows.numel():
                continue
            column = column.masked_fill(inside, self.shortlist_size + i)
            logs = F.log_softmax(self.tail[i](input.index_select(0, rows)), dim=1)
            local = logs.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)
            output = output.index_copy(0, rows, local)
        output = output + head.gather(1, column.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if target_.ndim else output.squeeze(0), loss)

    def log_prob(self, input: Any) -> Any:
        """The log-probabilities of all classes, (batch, n_classes).

        >>> layer = ad.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], div_value=2.0)
        >>> layer.log_prob(ad.zeros(3, 8)).shape
        adjoint.Size([3, 10])
        """
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            logs = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(logs + head[:, self.shortlist_size + i].unsqueeze(1))
        return cat(parts, 1)

    def predict(self, input: Any) -> Any:
        """The most probable class of each row.

        >>> layer = ad.nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], div_value=2.0)
        >>> layer.predict(ad.zeros(3, 8)).shape
        adjoint.Size([3])
        """
        return self.log_prob(input).argmax(1)
