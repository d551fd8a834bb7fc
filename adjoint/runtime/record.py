"""The autograd tape: making the Node of an operation, with the values that its gradient will
read.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import AutogradError
from ..core.mode import MODE, Mode, mode_with
from ..core.op import Op, saving_of
from ..core.package import FOLDER
from ..core.tensor_base import TensorBase
from .node import INFERENCE, Item, Node, Packed, Version, new_node
from .tensors import ndarray, spec_of, wrap
from .views import alias

if TYPE_CHECKING:
    from ..core.protocols import Shaped

    Tensors = TensorBase | tuple[TensorBase, ...]

_item = functools.cache(Item)


def item(node: Node, index: int, data: Shaped) -> Node | None:
    """The node of one output, `data`, of a node with several; None if its dtype has no
    gradients.
    """
    if data.dtype.kind not in "fcV":
        return None
    return Node(_item(index), (node,), (), None, data.shape, data.dtype)


def parents_of(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The nodes of the inputs; None for tensors without one, and for numbers."""
    return tuple([x._node if isinstance(x, TensorBase) else None for x in inputs])


def record(
    op: Op, inputs: tuple[Any, ...], parents: tuple[Any, ...], y: Tensors, mode: Mode
) -> Node:
    """The Node of `y = op(*inputs)`, which saves only what the required gradients read."""
    saving = op.saving
    if saving is None:
        saving = _saving(op.tokens, op.wanted_by)
    saved: list[Any] = []
    changed = False
    for kind, index, wanting in saving:
        value: Any = None
        for place in wanting:
            if place < len(parents) and parents[place] is not None:
                value = inputs[index] if kind == "x" else _saved(kind, index, inputs, y)
                break
        saved.append(value)
        if isinstance(value, TensorBase):
            version = value._changes
            if version is not None and (version is INFERENCE or version.count != 0):
                changed = True
        elif type(value) is tuple:
            changed = True
    versions = versions_of(saved) if changed else None
    if mode.saved_hooks is not None:
        saved = [pack(value, mode.saved_hooks) for value in saved]
    if isinstance(y, tuple):
        node = new_node(op, parents, tuple(saved), versions, (), None)
    else:
        data = y._data
        node = new_node(op, parents, tuple(saved), versions, data.shape, data.dtype)
    if mode.anomaly:
        note_place(node)
    return node


def versions_of(saved: Sequence[Any]) -> tuple[Any, ...] | None:
    """The version counts of `saved` (a tuple of them for a tuple); None where all are 0."""
    counts = tuple(map(version_count, saved))
    return counts if any(counts) else None


def version_count(value: object) -> Any:
    """The version of a saved value, for `assert_unchanged` to compare with later; AutogradError for
    an inference tensor.
    """
    if type(value) is tuple:
        return tuple(map(version_count, value))
    version = getattr(value, "_changes", None)
    if version is None:
        return 0
    if version is INFERENCE:
        raise AutogradError(
            "Inference tensors cannot be saved for backward; clone the tensor outside "
            "inference_mode to use it in autograd"
        )
    return version.count


def pack(value: object, hooks: tuple[Any, Any]) -> Any:
    """Apply the pack hook to a saved value, if it is a tensor or a tuple of them; to the variable
    itself, or to an output without its history, which would be a cycle.
    """
    if type(value) is tuple:
        return tuple(pack(each, hooks) for each in value)
    if not isinstance(value, TensorBase):
        return value
    count = version_count(value)
    mode = MODE.get()
    try:
        MODE.set(mode_with(mode, grad=False, saved_hooks=None))
        packed = Packed(value, value._node, hooks)
    finally:
        MODE.set(mode)
    if version_count(value) != count:
        raise AutogradError(
            "saved_tensors_hooks: A saved tensor pack hook is modifying its input in place; "
            "clone it first"
        )
    return packed


def note_place(node: Node) -> None:
    """Store the user's stack on a node, for anomaly detection."""
    frames = traceback.extract_stack()
    users = [frame for frame in frames if not frame.filename.startswith(FOLDER)]
    node.get_extra().traceback = "".join(traceback.format_list(users))


def save_output(y: Tensors) -> Any:
    """An output as its own node saves it: an alias without history."""
    if isinstance(y, tuple):
        return tuple(save_output(each) for each in y)
    if type(y._data) is not ndarray:
        return alias(y)
    if y._changes is None:
        y._changes = Version()
    return wrap(y._data, None, y._changes)


def _saved(token: str, index: int, inputs: tuple[Any, ...], y: Tensors) -> Any:
    """The value that a token of `op.needs` (without its number) names."""
    if token == "x":
        return inputs[index]
    if token == "y":
        return save_output(y)
    if token == "spec":
        return spec_of(inputs[index])
    return inputs if token == "xs" else tuple(map(spec_of, inputs))


_saving = functools.cache(saving_of)
