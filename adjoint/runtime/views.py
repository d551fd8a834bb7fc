"""Views: tensors that share the memory of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..backends import numpy as backend
from ..core.mode import MODE, Mode
from ..core.op import Op
from .lazy import LazyValue, concrete
from .node import INFERENCE, Node, Version, View, new_node
from .tensors import ndarray, wrap

if TYPE_CHECKING:
    from ..core.protocols import Shaped
    from ..core.tensor_base import TensorBase
    from ..core.tensor_type import Tensor
    from .memory_order import Fill


def shares_storage(result: Any, x: TensorBase, op: Op) -> bool:
    """Whether `result`, computed from tensor `x` by the view op `op`, shares its memory."""
    source = x._data
    if result is source:
        return True
    if type(result) is not ndarray and isinstance(result, LazyValue):
        return _would_share(x, op)
    base = result.base
    return (base is not None and (base is source or base is source.base)) or (
        np.may_share_memory(result, source) if result.size else True
    )


def _would_share(x: TensorBase, op: Op) -> bool:
    """Whether a recorded result of `op` on `x` would share memory if it were computed: a view op
    may have to copy, depending on how the memory lies. To an executor without `writes` it is all
    the same.
    """
    if not getattr(MODE.get().executor, "writes", True):
        return True
    if type(x._data) is ndarray:
        part = op.compute(backend, x._data)
        return np.may_share_memory(part, x._data) if part.size else True
    return lies(x, _shares, op)


def _shares(memory: np.ndarray, part: np.ndarray) -> bool:
    return np.may_share_memory(part, memory) if part.size else True


def lies(x: TensorBase, question: Callable[[Any, Any], bool], op: Op | None = None) -> bool:
    """The answer of `question(memory, part)` for arrays laid out like a recorded value's base and
    like its part of it (or like the view `op` of that part).
    """
    view = x._view
    base = x._data if view is None else view.base._data
    ops = () if view is None else tuple(view.ops)
    if op is not None:
        ops = (*ops, op)
    return asked(partial(_looked, base, ops, question))


def asked(question: Callable[..., bool]) -> bool:
    """The answer to a question about sizes. A capture with symbolic sizes calls
    `question(fill=...)`, where `fill` puts actual sizes in their place; otherwise it is
    `question()`.
    """
    ask = getattr(MODE.get().executor, "ask", None)  # a capture's
    return bool(question() if ask is None else ask(question))


def is_in_order(memory: object, part: np.ndarray) -> bool:
    """A question for `lies`: is the part row-major without gaps?"""
    return bool(part.flags.c_contiguous)


def _looked(
    base: Shaped,
    ops: tuple[Op, ...],
    question: Callable[[Any, Any], bool],
    fill: Fill | None = None,
) -> bool:
    return question(*_places(base, ops, fill))


def laid_out(x: TensorBase) -> Any:
    """An array with the memory layout of the tensor. A value that was only recorded is not computed
    for that: then the elements are meaningless.
    """
    data = x._data
    if type(data) is not ndarray and isinstance(data, LazyValue) and data.rises:
        has_layout = data.placed or data.kept is not None
        return concrete(x) if has_layout else places(x)[1]
    return concrete(x) if type(data) is not LazyValue or data.array is not None else places(x)[1]


def places(x: TensorBase) -> tuple[Any, Any]:
    """An array laid out like a recorded value's base, and the recorded value's part of it, for
    questions about layout only.
    """
    view = x._view
    base = x._data if view is None else view.base._data
    return _places(base, () if view is None else tuple(view.ops))


def _places(base: Shaped, ops: tuple[Op, ...], fill: Fill | None = None) -> tuple[Any, Any]:
    from .memory_order import memory_like

    memory = part = base if type(base) is ndarray else memory_like(base, fill)
    for each in ops:
        part = (each if fill is None else fill(each)).compute(backend, part)
    return memory, part


UNRECORDED_VIEW = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Make "
    "the view and the change both inside the no_grad block, or both outside"
)


ONE_OF_SEVERAL_VIEWS = (
    "A view is being modified inplace. This view is the output of a function that returns multiple "
    "views. Such functions do not allow the output views to be modified "
    "inplace; index the tensor instead, or clone the view"
)


def node_of_view(op: Op, x: TensorBase, result: Shaped) -> Node:
    """The node of `result`, a view of tensor `x` by `op`."""
    saved = (x.spec,) if op.tokens else ()
    return new_node(op, (x._node,), saved, None, result.shape, result.dtype)


def viewed(op: Op, x: TensorBase, result: Shaped, mode: Mode) -> Tensor:
    """The tensor of `result`, an array by which `op` views the memory of tensor `x`."""
    y = wrap(result)
    mark_view(y, x, op, "" if mode.grad else UNRECORDED_VIEW)
    if x._node is not None and mode.grad and op.differentiable:
        y._node = node_of_view(op, x, result)
    return y


def mark_view(y: TensorBase, x: TensorBase, op: Op, refusal: str = "") -> None:
    """Mark `y`, computed from `x` by `op`, as a view of its storage."""
    version = x._changes
    if version is INFERENCE and type(y._data) is not ndarray and isinstance(y._data, LazyValue):
        if type(x._data) is ndarray:
            y._data = op.compute(backend, x._data)  # which shows that memory
        else:
            version = None  # writes to what is only recorded must find both
    if version is INFERENCE:
        y._changes = INFERENCE
        return
    if version is None:
        version = x._changes = Version()
    y._changes = version
    view = x._view
    if view is None:
        y._view = View(x, None, op, refusal)
    else:
        y._view = View(view.base, view, op, refusal or view.refusal)
        if view.detached:
            y._view.detached = True
            y._view.alias = x if view.alias is None else view.alias
    register_view(y)


def register_view(y: TensorBase) -> None:
    """Register `y` so that writes to its storage find it."""
    version = y._changes
    reference = ref(y)
    if version.views is None:
        version.views = [reference]
    else:
        views = version.views
        if len(views) > 8 and len(views) & (len(views) - 1) == 0:
            views[:] = [r for r in views if r() is not None]
        views.append(reference)


def alias(x: TensorBase) -> Tensor:
    """A tensor that shares data and version with `x` and has no history."""
    version = x._changes
    data = x._data
    if version is INFERENCE and type(data) is not ndarray and isinstance(data, LazyValue):
        version = None  # as of views
    if version is None:
        version = x._changes = Version()
    y = wrap(data, None, version)
    recorded = type(data) is not ndarray and isinstance(data, LazyValue)
    mode = MODE.get()
    is_known = recorded or mode.blocks or mode.executor is not None  # writes must find both
    if is_known and version is not INFERENCE:
        if x._view is not None:
            y._view = View(x._view.base, x._view.above, x._view.op)
            y._view.detached = True
        elif all(reference() is not x for reference in version.views or ()):
            register_view(x)
        register_view(y)
    return y
