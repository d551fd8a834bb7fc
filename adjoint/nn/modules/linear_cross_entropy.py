"""The cross entropy of a linear layer's result, a part of the classes at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .criterion import _WeightedLoss
from .linear import Linear

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """Options by which PyTorch bounds the memory of `linear_cross_entropy`.

    They are kept as they are given. Here nothing depends on them.

    Args:
        allow_retain_graph: Whether the graph may be walked twice. Default: False.
        batch_chunk_size: Number of samples in a part. Default: None.
        chunking_method: Way in which the batch is divided. Default: "auto".
        acc_policy: Way in which parts are added up. Default: "auto".
        acc_dtype: Data type in which they are. Default: None.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyOptions.html

    >>> ad.nn.LinearCrossEntropyOptions(batch_chunk_size=2).chunking_method
    'auto'
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of the logits that a linear layer gives.

        loss = cross_entropy(input @ linear.weight.T + linear.bias, target)

    Args:
        in_features: Size of each input vector.
        num_classes: Number of classes.
        out_features: Further sizes of the logits, as of an image: they are (num_classes,
            *out_features). Default: ().
        bias: Whether the layer has a bias. Default: False.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.
        reduction: What becomes of the elements' losses: "mean", "sum", or "none" to keep them.
            Default: "mean".
        weight: Factor of each class, (num_classes,). Default: None, ones.
        ignore_index: Class of targets that do not count; None is -100. Not for probabilities.
            Default: None.
        label_smoothing: Share of the target, in [0, 1], that is spread evenly over all classes.
            Default: 0.0.
        options: `LinearCrossEntropyOptions`, kept; nothing depends on them. Default: None.

    Shapes: input (batch, in_features) or (in_features,); target (batch, *out_features) of classes,
    or (batch, num_classes, *out_features) of probabilities; a scalar, or (batch, *out_features) for
    reduction "none".
    Errors: ShapeError for sizes that do not fit; InvalidArgument for a label_smoothing outside [0,
    1], an unknown reduction, or `ignore_index` with probabilities.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyLoss.html

    >>> ad.nn.LinearCrossEntropyLoss(5, 10)(ad.ones(2, 5), ad.tensor([3, 4])).shape
    adjoint.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ShapeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise InvalidArgument(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rows = num_classes * math.prod(out_features)
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss."""
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """The settings."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
