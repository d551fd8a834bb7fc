"""Rewrites of a loaded graph that keep its outputs in eval mode."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...autograd.modes import no_grad
from ...core.errors import InvalidType
from ...io.imported import last_uses
from .importing.imported_node import ImportedNode
from .model import OnnxModule


def fold_batch_norm(model: OnnxModule) -> int:
    """Multiply batch normalization into the convolution before it; returns how many were.

    The module changes in place: it computes the same with fewer steps, and can be trained further
    as the network without these layers that it then is. The layers' own biases become those of the
    convolutions that have none. Nothing happens where parameters are shared, or where something
    else uses the convolution's output.

    Errors: InvalidType for another module.
    Source: https://arxiv.org/abs/1712.05877 (section 3.2)

    >>> import io
    >>> file = io.BytesIO()
    >>> net = ad.nn.Sequential(ad.nn.Conv2d(1, 2, 3), ad.nn.BatchNorm2d(2))
    >>> ad.onnx.export(net, ad.ones(1, 1, 4, 4), file)
    >>> model = ad.onnx.load(file.getvalue())
    >>> ad.onnx.fold_batch_norm(model)
    1
    >>> sorted(model.state_dict())
    ['0.bias', '0.weight']
    """
    if not isinstance(model, OnnxModule):
        raise InvalidType(f"fold_batch_norm: expected what load gives, got {type(model).__name__}")
    uses = Counter(name for node in model._steps for name in node.inputs)
    uses.update(model.output_names)
    made = {name: node for node in model._steps for name in node.outputs}
    replaced: dict[int, ImportedNode | None] = {}
    for norm in model._steps:
        conv = made.get(norm.inputs[0]) if norm.kind == "BatchNormalization" else None
        if conv is None or conv.kind != "Conv" or uses[norm.inputs[0]] != 1:
            continue
        own = [*conv.inputs[1:], *norm.inputs[1:5]]
        if any(uses[name] != 1 or name not in model._places for name in own):
            continue
        weight, *bias = conv.inputs[1:]
        scale, shift, mean, variance = norm.inputs[1:5]
        kept = bias[0] if bias else shift
        with no_grad():
            factor = (
                _tensor(model, scale)
                / (_tensor(model, variance) + norm.get("epsilon", 1e-5)).sqrt()
            )
            start = -_tensor(model, mean)
            if bias:
                start = start + _tensor(model, bias[0])
            moved = _tensor(model, shift) + start * factor
            kernel = _tensor(model, weight)
            kernel.mul_(factor.reshape(-1, *[1] * (kernel.ndim - 1)))
            _tensor(model, kept).copy_(moved)
        inputs = (conv.inputs[0], weight, kept)
        replaced[id(conv)] = None
        replaced[id(norm)] = ImportedNode(
            conv.kind, inputs, norm.outputs, conv.attributes, conv.opset, conv.label
        )
        for name in {scale, shift, mean, variance} - {kept}:
            _forget(model, name)
    steps = [replaced.get(id(node), node) for node in model._steps]
    model._steps = [node for node in steps if node is not None]
    model._drops = last_uses(model._steps, model.output_names)
    return len(replaced) // 2


def _tensor(model: OnnxModule, name: str) -> Any:
    path, leaf = model._places[name]
    return model._tensor_of(model._at(path), path, leaf)


def _forget(model: OnnxModule, name: str) -> None:
    """Take a tensor out of the module."""
    path, leaf = model._places.pop(name)
    delattr(model._at(path), leaf)
