"""The level of `forward_ad`: dual tensors in the memory of their primals, while the level is open.

Unlike the levels of function transforms it is never entered: tensors are at it because their data
says so, and ops on others go their usual way. The tape is the one outside: a dual's node leads on
to that of its primal, so gradients of duals are duals, and a tangent has a history of its own.

A write changes what is there, the primal's elements and the tangent's, so all that shows their
memory sees it: a dual is a view of its primal, views of a dual hold views of its tangent. A plain
tensor to which a dual is written becomes one, with zeros for a tangent elsewhere, and with it the
views of it. Not beyond `Apart`, though: a dual's primal does not carry its tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from ..core.device import register_backend
from ..core.errors import AutogradError, ShapeError, Unsupported
from ..core.mode import MODE, mode_with, switched
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.cells import Cell
from ..runtime.dispatch import apply
from ..runtime.lazy import LazyValue, concrete
from ..runtime.node import INFERENCE, Version, new_node
from ..runtime.record import item, parents_of, record
from ..runtime.tensors import wrap, zeros
from ..runtime.views import UNRECORDED_VIEW, mark_view
from .dual import ENABLED, Dual, DualLevel, derived
from .levels import Leveled, Transforming, current
from .recording import Same, execute_meanwhile

if TYPE_CHECKING:
    from ..runtime.node import View
    from .protocols import BackendArray

__all__ = ["IN_FORWARD", "Apart", "ForwardLevel", "OpenDual", "at_once", "looks"]

IN_FORWARD: ContextVar[bool] = ContextVar("in_forward", default=False)  # a Function's, with a jvp


def looks() -> bool:
    """Whether tangents of open duals are computed here."""
    return ENABLED.get() and not IN_FORWARD.get() and not MODE.get().inference


class Apart(Same, abstract=True):
    """The view op between a primal and its dual, which no tangent crosses."""

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The cotangent unchanged."""
        return (g,)


class OpenDual(Dual):
    """A dual value whose `inner` shares the memory of its tensor, and whose tangent has the same
    memory layout.
    """

    __slots__ = ()

    level: ForwardLevel

    def __init__(self, level: ForwardLevel, inner: TensorBase, tangent: TensorBase | None) -> None:
        super().__init__(level, inner, tangent)
        level.duals.add(self)

    @property
    def expired(self) -> bool:
        """Whether the level was closed."""
        return self.level.closed

    @property
    def placed(self) -> bool:  # type: ignore[override]
        """Whether the primal is in memory."""
        return isinstance(self.inner._data, np.ndarray)

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of the primal."""
        return tuple(self.inner._data.strides)

    @property
    def flags(self) -> Any:  # type: ignore[override]
        """The flags of the primal."""
        return self.inner._data.flags

    def settle(self, tensor: TensorBase) -> BackendArray:
        """The primal's array; once the level was closed, `tensor` becomes plain."""
        if not self.expired:
            return self.level.read(self)
        tensor._data = self.inner._data
        return concrete(tensor)

    def copy(self, order: str = "C") -> OpenDual:
        """A copy in other memory, made before this one is written to."""
        with at_once("a write to a dual"):
            tangent = None if self.tangent is None else self.level.own(self.tangent, self.inner)
            return OpenDual(self.level, wrap(self.inner._data.copy()), tangent)

    def over(self, array: BackendArray) -> OpenDual:
        """A dual of another array with this tangent.

        Errors: ShapeError, Unsupported where it does not lie as this one does.
        """
        inner = wrap(array)
        if array.shape != self.shape:
            raise ShapeError(
                f"data: the tensor has a tangent of shape {tuple(self.shape)}, the data that it is "
                f"given {tuple(array.shape)}; detach() it first"
            )
        if array.dtype != self.dtype or not _lies_as(self.tangent, inner):
            raise Unsupported(
                "data: the tensor has a tangent (forward_ad), and the data lies otherwise in "
                "memory; use copy_, or detach() it first"
            )
        return OpenDual(self.level, inner, self.tangent)

    def without_history(self) -> Any:
        """The primal's array: `detach` drops the tangent."""
        return self.inner._data


class ForwardLevel(DualLevel):
    """The level from one `enter_dual_level` to its `exit_dual_level`."""

    kind = OpenDual
    name = "forward_ad"

    def __init__(self) -> None:
        super().__init__()
        self.duals: WeakSet[OpenDual] = WeakSet()

    def close(self) -> None:
        """Close the level: tangents are dropped, and tensors become plain when they are used
        next.
        """
        self.closed = True
        for dual in tuple(self.duals):
            dual.tangent = None

    def read(self, value: Leveled) -> BackendArray:
        """The primal's array."""
        assert_open_to("a dual")
        return concrete(value.inner)

    # ---- making them -----------------------------------------------------------------------------

    def make(self, primal: Tensor, tangent: Tensor) -> Tensor:
        """The dual of `primal`, sharing its memory, with `tangent`, whose memory it shares if the
        layouts agree.
        """
        with at_once("make_dual"):
            inner, t = wrap(concrete_outside(primal)), tangent
            if t._data.shape != inner._data.shape:
                raise ShapeError(
                    "make_dual: Trying to set a forward gradient that has a different size than "
                    "that of the original Tensor, this is not supported. Tensor is of size "
                    f"{list(primal.shape)} while the given forward gradient is of size "
                    f"{list(tangent.shape)}."
                )
            if t._data.dtype != inner._data.dtype:
                t = t.to(primal.dtype)
            concrete_outside(t)
            if not _lies_as(t, inner):
                if 0 in inner._data.strides:
                    raise AutogradError(
                        "make_dual: unsupported operation: more than one element of the primal "
                        "refers to a single memory location (it was expanded); clone it first"
                    )
                t = self.own(t, inner)
            return self._beside(primal, OpenDual(self, inner, t))

    def primal(self, x: Tensor) -> Tensor:
        """The primal of a dual, in its memory; of a plain tensor, a view that may become a dual
        independently.
        """
        return self._beside(x, x._data.inner._data if self.at(x) else x._data)

    def _beside(self, x: Tensor, value: object) -> Tensor:
        """A tensor with the data `value` in the memory of `x`, as a view that tangents do not
        cross.
        """
        mode = MODE.get()
        y = wrap(value)
        op = Apart()
        if not isinstance(wrapped(value), Leveled):
            mark_view(y, x, op, "" if mode.grad else UNRECORDED_VIEW)
        if x._node is not None and mode.grad:
            y._node = new_node(op, (x._node,), (), None, x._data.shape, x._data.dtype)
        return y

    def own(self, t: Tensor, like: Tensor) -> Tensor:
        """A copy of the tangent in memory laid out as that of `like`."""
        data = like._data
        if not isinstance(data, np.ndarray) or isinstance(t._data, LazyValue):
            return t.clone()
        return wrap(_empty_as(data)).copy_(t)  # type: ignore[attr-defined]

    # ---- ops on them -----------------------------------------------------------------------------

    def run(self, op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """The results of `op`: duals where there are tangents, else plain tensors."""
        with at_once(op.name):
            for x in inputs:
                if isinstance(x, TensorBase) and isinstance(x._data, Cell):
                    raise Unsupported(_OF_GRAPHS)
            mode = MODE.get()
            looking = looks()
            tangents = [x._data.tangent if looking and self.at(x) else None for x in inputs]
            parents = parents_of(inputs)
            wants = mode.grad and op.differentiable and any(p is not None for p in parents)
            ts: Any = None
            if op.differentiable and any(t is not None for t in tangents):
                primals = [self._followed(x) if self.at(x) else x for x in inputs]
                y, ts = derived(op, primals, tangents)
            else:
                with switched(mode_with(mode, grad=False)):
                    y = apply(op, *[self._bare(x) if self.at(x) else x for x in inputs])
            several = isinstance(y, tuple)
            ys = y if several else (y,)
            ts = (None,) * len(ys) if ts is None else ts if several else (ts,)
            results = [
                self._result(op, inputs, a, t, tangents) for a, t in zip(ys, ts, strict=True)
            ]
            if wants and several:
                node = record(op, inputs, parents, tuple(results), mode)
                for i, x in enumerate(results):
                    x._node = item(node, i, x._data)
            elif wants and results[0]._data.dtype.kind in "fcV":
                results[0]._node = record(op, inputs, parents, results[0], mode)
            return tuple(results) if several else results[0]

    def _bare(self, x: Tensor) -> Tensor:
        """The primal of a dual without history, sharing its memory and version."""
        return wrap(x._data.inner._data, None, x._changes)

    def _followed(self, x: Tensor) -> Tensor:
        """The primal of a dual with its history, sharing its memory and version."""
        y = self._bare(x)
        if x._node is not None and MODE.get().grad:
            if x._changes is None:
                y._changes = x._changes = Version()  # of what is saved, writes must be known
            y._node = new_node(Apart(), (x._node,), (), None, x._data.shape, x._data.dtype)
        return y

    def _result(
        self, op: Op, inputs: tuple[Any, ...], y: Tensor, t: Tensor | None, tangents: Sequence[Any]
    ) -> Tensor:
        """The tensor of a result of `op`, with its tangent."""
        inner = wrap(y._data)
        if t is None:
            result = inner
        else:
            shown = op.view and y._view is not None
            if not _lies_as(t, inner) or (not shown and any(_share(t, u) for u in tangents)):
                if shown:
                    raise Unsupported(
                        f"{op.name}: the tangent of a view is none of the tangent's memory; make "
                        "the dual of a clone"
                    )
                t = self.own(t, inner)
            result = wrap(OpenDual(self, inner, t))
        if y._view is not None:
            mark_view(result, inputs[0], y._view.op, y._view.refusal)
        elif y._changes is INFERENCE:
            result._changes = INFERENCE
        return result

    def give(
        self, y: TensorBase, t: Tensor | None, inputs: Sequence[Any], tangents: Sequence[Any]
    ) -> None:
        """Give the output `y` of a Function its tangent `t` (None for zero). `tangents` are those
        of the inputs.
        """
        if any(y is x for x in inputs):  # it was written to
            if t is not None and not self.at(y):
                self.raised(y)
            if self.at(y):
                self.set_tangent(y, t)
            return
        inner = wrap(y._data.inner._data if self.at(y) else y._data)
        if t is not None and (
            not _lies_as(t, inner) or (y._view is None and any(_share(t, u) for u in tangents))
        ):
            t = self.own(t, inner)
        y._data = inner._data if t is None else OpenDual(self, inner, t)

    # ---- writing to them -------------------------------------------------------------------------

    def put(self, x: TensorBase, y: TensorBase) -> None:
        """Write `y` to the dual `x`: to its memory, and to its tangent's."""
        data = x._data
        t = y._data.tangent if self.at(y) else None
        inner = y._data.inner if self.at(y) else y
        with at_once("a write to a dual"):
            _assert_memory(data.inner)
            array = concrete_outside(inner)
            if looks():
                self.set_tangent(x, t)
            data.inner._data[...] = array

    def set_tangent(self, x: TensorBase, t: TensorBase | None) -> None:
        """Write `t` (None for zero) over the tangent of the dual `x`."""
        held = x._data.tangent
        if t is None:
            held.zero_()
        elif t is not held:
            held.copy_(t)

    def write(self, x: TensorBase, y: TensorBase) -> None:
        """Write a dual to a plain tensor, which becomes a dual."""
        if y._data.tangent is not None and looks():
            with at_once("a write of a dual"):
                self.raised(x)
            self.put(x, y)
        else:
            x._data[...] = concrete_outside(y._data.inner)

    def raised(self, x: TensorBase) -> None:
        """Make `x`, and all tensors that share its memory and tangent, duals with zero tangents."""
        concrete_outside(x)
        base = x if x._view is None else x._view.base
        path, root = _path(x), _detached_root(x)
        start = max((i + 1 for i, op in enumerate(path) if type(op) is Apart), default=0)
        if root is not None:  # a tensor of its own
            start = len(root.ops)
        memory = concrete(base)
        for op in path[:start]:
            memory = op.compute(np, memory)
        whole = (
            wrap(np.zeros_like(memory))
            if isinstance(memory, np.ndarray)
            else zeros(tuple(memory.shape), memory.dtype, x.device)
        )
        here = current()
        if here is not None:
            here.note_fresh(whole)
        others = x._changes.views if x._changes is not None else None
        seen: set[int] = set()
        for each in (base, x, *[reference() for reference in others or ()]):
            if each is None or id(each) in seen or isinstance(each._data, Leveled):
                continue
            seen.add(id(each))
            if (each if each._view is None else each._view.base) is not base:
                continue  # a view of a detached tensor
            if _detached_root(each) is not root:
                continue
            rest = _rest(path[:start], each)
            if rest is None or each._data.dtype != memory.dtype:
                continue
            _assert_memory(each)
            part = whole
            for op in rest:
                part = apply(op, part)
            if part._data.size and not _share(part, whole):
                raise Unsupported(
                    f"{self.name}: a dual is written to a tensor with views by {rest}, of which "
                    "the tangent has none; write it to a clone"
                )
            each._data = OpenDual(self, wrap(each._data), part)


_OF_GRAPHS = (
    "forward_ad: tensors of an ad.Graph take no part; use a clone of x.detach() made outside, or "
    "func.jvp"
)


def carries_tangent(x: TensorBase) -> bool:
    """Whether `x` is a dual of an open level."""
    return isinstance(x._data, OpenDual) and not x._data.expired


def _empty_as(data: np.ndarray) -> np.ndarray:
    """An array that lies in memory as another one does, gaps included."""
    steps = [s for s, n in zip(data.strides, data.shape, strict=True) if n > 1]
    if not data.size or any(s <= 0 or s % data.itemsize for s in steps):
        return np.empty_like(data)
    last = sum((n - 1) * s for s, n in zip(data.strides, data.shape, strict=True) if n > 1)
    memory = np.zeros(last // data.itemsize + 1, data.dtype)
    return np.lib.stride_tricks.as_strided(memory, data.shape, data.strides)


def wrapped(value: object) -> object:
    """The data that holds a dual's primal; other values unchanged."""
    return value.inner._data if isinstance(value, OpenDual) else value


def concrete_outside(x: TensorBase) -> BackendArray:
    """The data of `x`, which is not a dual of this level: an array, or a value at a transform's
    level.
    """
    if isinstance(x._data, Cell):
        raise Unsupported(_OF_GRAPHS)
    return x._data if isinstance(x._data, Leveled) else concrete(x)


def _assert_memory(x: TensorBase) -> None:
    """Refuse a write to a value that is not writable memory."""
    if isinstance(x._data, LazyValue):
        raise Unsupported(
            "forward_ad: a write to a dual inside another function transform; use the operation "
            "that is not in place, or func.jvp"
        )
    if not x._data.flags.writeable:
        raise AutogradError("forward_ad: the dual's memory is read-only; clone it first")


def _path(x: TensorBase) -> tuple[Op, ...]:
    """The view ops from the base to `x`."""
    return () if x._view is None else x._view.ops


def _detached_root(x: TensorBase) -> View | None:
    """The outermost detached view on the path of a tensor that shares memory without history; None
    for other tensors.
    """
    view = x._view
    if view is None or not view.detached:
        return None
    while view.above is not None and view.above.detached:
        view = view.above
    return view


def _rest(start: tuple[Op, ...], x: TensorBase) -> tuple[Op, ...] | None:
    """The view ops to `x` after `start`, with which its path must begin; None where tangents do not
    follow.
    """
    path = _path(x)
    if len(path) < len(start) or any(a is not b for a, b in zip(start, path, strict=False)):
        return None
    rest = path[len(start) :]
    return None if any(type(op) is Apart for op in rest) else rest


def _lies_as(t: TensorBase, x: TensorBase) -> bool:
    """Whether two tensors have the same memory layout; values inside transforms have none, and
    count as equal.
    """
    a, b = t._data, x._data
    if isinstance(a, LazyValue) or isinstance(b, LazyValue):
        return True
    return tuple(a.strides) == tuple(b.strides) or _is_whole(t, b)


def _is_whole(t: TensorBase, array: BackendArray) -> bool:
    """Whether strides do not matter, or both are row-major."""
    a = t._data.flags
    return array.size <= 1 or bool(a.c_contiguous and array.flags.c_contiguous)


def _share(t: TensorBase, u: TensorBase | None) -> bool:
    """Whether two tangents may share memory."""
    if u is None or isinstance(t._data, LazyValue):
        return False
    a, b = t._data, u._data
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and bool(np.may_share_memory(a, b))
    return a is b or t._changes is not None


def at_once(what: str) -> switched:
    """A block in which ops are run and not recorded lazily.

    Errors: Unsupported where a graph or a compiled function records `what`.
    """
    mode = MODE.get()
    assert_open_to(what)
    if mode.executor is execute_meanwhile:
        mode = mode_with(mode, executor=None)
    return switched(mode)


def assert_open_to(what: str) -> None:
    """Refuse duals where ops are recorded by anything other than a function transform."""
    executor = MODE.get().executor
    while isinstance(executor, Transforming):
        executor = executor.outer
    if executor is not None and executor is not execute_meanwhile:
        raise Unsupported(
            f"forward_ad: {what} inside an ad.Graph, a graph's step or a compiled function, which "
            "record no tangents; use func.jvp there, or call it outside"
        )


register_backend(OpenDual, None, lambda value: value.device)
