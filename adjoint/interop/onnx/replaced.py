"""Layers put in the place of those of a file: which nodes each runs instead of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import Unsupported
from ...io.imported import Path
from ...nn import Module

# what is a layer by itself: the input that is the layer's own
LAYERS = {
    "Conv": 0, "ConvTranspose": 0, "Gemm": 0, "MatMul": 0, "BatchNormalization": 0,
    "LayerNormalization": 0, "InstanceNormalization": 0, "GroupNormalization": 0,
    "RMSNormalization": 0, "PRelu": 0, "Gather": 1,
}  # fmt: skip


class ReplacementLayer:
    """A step that calls the module at `path`."""

    kind = "a layer"

    def __init__(self, path: Path, given: str, outputs: tuple[str, ...], module: Module) -> None:
        self.path = path
        self.label = ".".join(path)
        self.inputs = (given,)
        self.outputs = outputs
        self.module = module


def with_layer(steps: Sequence[Any], results: Sequence[str], path: Path, names: set[str],
               constants: set[str], module: Module) -> list[Any]:  # fmt: skip
    """The steps with one that calls a layer instead of those that compute with the tensors `names`,
    which the layer at `path` had: a node that is a layer, what prepares its tensors, its bias.

    Errors: Unsupported where they are no such layer.
    """
    own = set(names)  # values that depend on these tensors alone
    inside: set[int] = set()
    middle = None  # the node that is the layer
    for i, step in enumerate(steps):
        given = [name for name in step.inputs if name]
        if own.isdisjoint(given):
            continue
        if all(name in own or name in constants for name in given):
            own.update(step.outputs)
        elif middle is None and _is_layer(step, own, constants):
            middle = step
        elif not (middle is not None and step.kind == "Add" and middle.kind == "MatMul"
                  and _is_bias(step, middle, own, steps)):  # fmt: skip
            raise _refusal(path, module, f"the node {step.label} computes with its tensors, too")
        else:
            middle = ReplacementLayer(path, middle.inputs[LAYERS["MatMul"]], step.outputs, module)
        inside.add(i)
    rest = {name for i, step in enumerate(steps) if i not in inside for name in step.inputs}
    if middle is None or not own.isdisjoint(rest.union(results)):
        raise _refusal(path, module, "its tensors are read by other nodes")
    if not isinstance(middle, ReplacementLayer):
        middle = ReplacementLayer(
            path, middle.inputs[LAYERS[middle.kind]], middle.outputs[:1], module
        )
    last = max(inside)
    return [
        middle if i == last else step
        for i, step in enumerate(steps)
        if i == last or i not in inside
    ]


def _is_layer(step: Any, own: set[str], constants: set[str]) -> bool:
    """Whether a node is a layer of one input, all of whose tensors are the layer's."""
    place = LAYERS.get(step.kind)
    if place is None or step.attributes.get("transA") or len(step.outputs[1:]) != 0:
        return False
    others = [name for i, name in enumerate(step.inputs) if i != place and name]
    return step.inputs[place] not in own and all(x in own or x in constants for x in others)


def _is_bias(step: Any, product: Any, own: set[str], steps: Sequence[Any]) -> bool:
    """Whether a node adds the layer's bias to its product, which nothing else reads."""
    (made,) = product.outputs
    users = [each for each in steps if made in each.inputs]
    return users == [step] and all(name == made or name in own for name in step.inputs)


def _refusal(path: Path, module: Module, why: str) -> Unsupported:
    name = ".".join(path)
    return Unsupported(
        f"onnx: a {type(module).__name__} was put at {name}, which the graph cannot call: {why}; "
        f"change the tensors of the former {name} instead"
    )
