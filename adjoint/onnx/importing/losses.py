"""What ONNX's losses compute."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...core.dtype import int64
from ...tensor import Tensor
from .node import Node, operator, t

F: Any = nn.functional


def _nll(n: Node, scores: Tensor, target: Any, weight: Any) -> Any:
    weight = None if weight is None else t(weight)
    ignored = n.get("ignore_index", -100)  # no class is numbered so
    reduction = n.get("reduction", "mean")
    return F.nll_loss(
        scores, t(target).to(int64), weight, ignore_index=ignored, reduction=reduction
    )


@operator("NegativeLogLikelihoodLoss")
def _(n: Node, scores: Any, target: Any, weight: Any = None) -> Any:
    return _nll(n, t(scores), target, weight)


@operator("SoftmaxCrossEntropyLoss")
def _(n: Node, scores: Any, target: Any, weight: Any = None) -> Any:
    logs = F.log_softmax(t(scores), 1)
    loss = _nll(n, logs, target, weight)
    return (loss, logs) if len(n.outputs) > 1 else loss
