"""`swap_tensors`: two tensor objects exchange their content."""

from __future__ import annotations

import copyreg
import sys
from typing import Any
from weakref import getweakrefs, ref

from ..core.argument_errors import assert_tensor
from ..core.errors import AutogradError, InvalidArgument, Unsupported
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.lazy import LazyValue
from ..runtime.node import INFERENCE, Extra, Leaf, Version
from ..runtime.views import register_view

__all__ = ["swap_tensors"]

_FIELDS = ("_data", "_node", "_leaf", "_changes", "_view")
_ENTRIES: Any = vars(TensorBase)["__dict__"]


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange class, attributes, values, gradient and history of two tensors. The objects keep
    their identity: whoever holds `t1` then has the content of `t2`.

    A backward through what was computed of them before is refused: it is not known any more which
    values it was computed of.

    Errors: AutogradError where one has weak references or live views; InvalidArgument where their
    classes have different slots; Unsupported for values of graphs, of lazy mode, of compiled
    functions and of inference mode; TypeError, as Python's, for classes of different layouts.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.utils.swap_tensors.html

    >>> a, b = ad.nn.Parameter(ad.zeros(2)), ad.ones(3)
    >>> kept = a
    >>> ad.utils.swap_tensors(a, b)
    >>> kept
    tensor([1., 1., 1.])
    >>> b
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """
    for name, t in (("t1", t1), ("t2", t2)):
        assert_tensor("swap_tensors", t, name)
        _assert_movable(name, t)
    slots = {*_slots(t1)}
    if slots != {*_slots(t2)}:
        raise InvalidArgument(
            "swap_tensors: Cannot swap t1 and t2 if they have different slots: "
            f"{sorted(slots)} and {sorted(_slots(t2))}"
        )
    if t1 is t2:
        return
    first, second = type(t1), type(t2)
    t1.__class__, t2.__class__ = second, first
    _announce(t1, t2)
    entries, others = _ENTRIES.__get__(t1), _ENTRIES.__get__(t2)
    before = dict(entries)
    for own, new in ((entries, dict(others)), (others, before)):
        own.clear()
        own.update(new)
    for name in slots:
        _swap_slot(t1, t2, name)
    for field in _FIELDS:
        one, other = getattr(t1, field), getattr(t2, field)
        setattr(t1, field, other)
        setattr(t2, field, one)
    for t in (t1, t2):
        _take_leaf(t)
        views = t._changes.views
        if views is not None:
            views[:] = [each for each in views if each() is not t1 and each() is not t2]
    for t in (t1, t2):
        if t._view is not None:
            register_view(t)


def _slots(t: Tensor) -> list[str]:
    """The slots of the tensor's class beyond those of every tensor."""
    return [name for name in copyreg._slotnames(type(t)) if name not in _FIELDS]  # type: ignore[attr-defined]


def _swap_slot(t1: Tensor, t2: Tensor, name: str) -> None:
    values = [(t, getattr(t, name)) for t in (t1, t2) if hasattr(t, name)]
    for t, _ in values:
        delattr(t, name)
    for t, value in values:
        setattr(t2 if t is t1 else t1, name, value)


def _assert_movable(name: str, t: Tensor) -> None:
    if isinstance(t._data, LazyValue) or t._changes is INFERENCE:
        raise Unsupported(
            f"swap_tensors: {name} is a value of a graph, of lazy mode, of a compiled function or "
            "of inference mode; swap tensors that were computed (clone() one outside of it)"
        )
    views = t._changes.views or () if t._changes is not None else ()
    leaf = t._leaf
    own = [*views, *(() if leaf is None else (leaf.tensor,))]
    for reference in getweakrefs(t):
        # ours are in `own` too, and in this loop's list and variable, and in the call
        ours = sum(each is reference for each in own)
        if sys.getrefcount(reference) > 2 * ours + 3:
            raise AutogradError(
                f"swap_tensors: Cannot swap {name} because it has weakref associated with it; drop "
                "the weak references (or the dictionary with weak keys that it is in) before"
            )
    living = [each() for each in views]
    if any(y is not None and y._view is not None and y._view.base is t for y in living):
        raise AutogradError(
            f"swap_tensors: Expected use_count of {name} to be 1, but views of it are alive; drop "
            "them, or swap clones"
        )


def _announce(t1: Tensor, t2: Tensor) -> None:
    """Count a change of both tensors, beyond any version that nodes have saved, so that these
    refuse their saved values.
    """
    for t in (t1, t2):
        if t._changes is None:
            t._changes = Version()
    count = max(t1._changes.count, t2._changes.count) + 1
    for t in (t1, t2):
        t._changes.count, t._changes.changed_by = count, "swap_tensors"


def _take_leaf(t: Tensor) -> None:
    """Move the Leaf that gradients flow into to `t`."""
    leaf = t._leaf
    if leaf is None:
        return
    if t._node is not None and t._node is not leaf:  # computed, and its gradient is kept
        leaf.tensor = ref(t)
        return
    new = Leaf(t)
    new.grad, new.place, new.after, new.extra = leaf.grad, leaf.place, leaf.after, leaf.extra
    t._leaf = new
    if t._node is leaf:
        t._node = new
    leaf.grad = leaf.place = leaf.after = None  # what was computed before leads there
    leaf.extra = Extra()
    leaf.register_prehook(_refuse)


def _refuse(gradients: object) -> None:
    raise AutogradError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: a backward runs "
        "through what was computed before tensors were swapped. Swap them (or convert modules, "
        "under `torch.__future__.set_swap_module_params_on_conversion(True)`) before the forward, "
        "or after the backward"
    )
