"""Dual values (`jvp`): a tensor that wraps its primal and the tangent that goes with it.

Derivatives are taken op by op, going forward. A linear op is its own derivative; a pointwise op of
real numbers multiplies by what its gradient multiplies by; of any other, its gradient, which is
linear in the cotangent, is transposed once more, for this op alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.device import register_backend
from ..core.errors import AutogradError
from ..core.mode import MODE, mode_with
from ..core.op import Op, saving_of
from ..core.tensor_base import TensorBase
from ..eager.dispatch import apply
from ..eager.record import _saved
from ..eager.tensors import wrap, zeros
from ..graph.node import new_node
from ..ops.shape.movement import Expand, to_shape
from .engine import run_backward
from .levels import Level, Leveled, current, recording_beyond

__all__ = ["Dual", "DualLevel", "derived", "followed", "local_products"]


class Dual(Leveled):
    """`inner` is the primal; `tangent` is of its shape and dtype, or None: zero."""

    __slots__ = ("tangent",)

    tangent: Any

    def __init__(self, level: Level, inner: Any, tangent: Any = None) -> None:
        super().__init__(level, inner, tuple(inner._data.shape))
        self.tangent = tangent

    def without_history(self) -> Dual:
        """The primal alone, detached."""
        return Dual(self.level, self.inner.detach())


class DualLevel(Level):
    """One call of `jvp`."""

    kind: type[Leveled] = Dual
    name = "jvp"

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def lift(self, x: Any) -> Dual:
        """A constant."""
        return Dual(self, x)

    def read(self, value: Leveled) -> Any:
        """The primal's array, which decisions may go by."""
        if self.closed:
            raise AutogradError(
                "jvp: this tensor took part in a jvp that is over (it was written to, or kept, "
                "inside); return it from the function instead"
            )
        data = value.inner._data
        return data.settle(value.inner) if hasattr(data, "settle") else data

    def values(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The op of the primals, and its derivative along the tangents."""
        primals = [x._data.inner if self.at(x) else x for x in inputs]
        tangents = [x._data.tangent if self.at(x) else None for x in inputs]
        y, t = derived(op, primals, tangents)
        if isinstance(y, tuple):
            return tuple(Dual(self, each, d) for each, d in zip(y, t, strict=True))
        return Dual(self, y, t)


def derived(op: Op, primals: list[Any], tangents: list[Any]) -> tuple[Any, Any]:
    """The result of `op`, and its tangent (None where it is zero)."""
    wanted = [t is not None for t in tangents]
    grad = MODE.get().grad
    if not (any(wanted) and op.differentiable):
        y = apply(op, *primals)
        return y, (None,) * len(y) if isinstance(y, tuple) else None
    if op.linear:
        y = apply(op, *primals)
        first = y[0] if isinstance(y, tuple) else y
        if first._data.dtype.kind not in "fcV":
            return y, (None,) * len(y) if isinstance(y, tuple) else None
        given = [
            x if not isinstance(x, TensorBase) else _zeros(x) if t is None else t
            for x, t in zip(primals, tangents, strict=True)
        ]
        return y, apply(op, *given)
    real = all(x._data.dtype.kind != "c" for x in primals if isinstance(x, TensorBase))
    if op.pointwise and real and op.n_outputs == 1:
        y = apply(op, *primals)
        if y._data.dtype.kind != "c":
            return y, _pointwise(op, primals, tangents, y) if y._data.dtype.kind in "fV" else None
    return local_products(lambda *xs: apply(op, *xs), primals, tangents, grad)


def _pointwise(op: Op, primals: list[Any], tangents: list[Any], y: Any) -> Any:
    """The sum of each tangent times the derivative by that input."""
    total = None
    given = tuple(primals)
    saved = [
        y if kind == "y" else primals[place] if kind == "x" else _saved(kind, place, given, y)
        for kind, place, _ in saving_of(op.tokens, op.wanted_by)
    ]
    shape = tuple(y._data.shape)
    for i, t in enumerate(tangents):
        if t is None:
            continue
        if t._data.shape != shape:
            t = apply(Expand(shape), t)
        if t._data.dtype != y._data.dtype:
            t = t.to(y.dtype)
        part = op.gradient(t, *saved)[i]
        if part is not None and not isinstance(part, TensorBase):
            part = part()
        if part is None:
            continue
        total = part if total is None else total + part
    if total is not None and total._data.shape != shape:
        total = apply(Expand(shape), total)
    if total is not None and total._data.dtype != y._data.dtype:
        total = total.to(y.dtype)
    return total


def local_products(
    function: Any, primals: Sequence[Any], tangents: Sequence[Any], grad: bool
) -> tuple[Any, Any]:
    """What `function` gives for `primals`, and the product of its Jacobian with `tangents`: its
    vector-Jacobian product, transposed.
    """
    given = [*primals, *tangents]
    follows = grad and any(isinstance(x, TensorBase) and x._node is not None for x in given)
    mode = MODE.get()
    places = [i for i, t in enumerate(tangents) if t is not None]
    with recording_beyond(current()):
        MODE.set(mode_with(MODE.get(), grad=True, inference=False))
        xs = [x if t is None else followed(x) for x, t in zip(primals, tangents, strict=True)]
        found = function(*xs)
        several = isinstance(found, (tuple, list))
        ys = list(found) if several else [found]
        us = [
            followed(_zeros(y)) if isinstance(y, TensorBase) and y._node is not None else None
            for y in ys
        ]
        roots = [(y._node, u) for y, u in zip(ys, us, strict=True) if u is not None]
        nodes = [xs[i]._node for i in places]
        rows = run_backward(
            roots, retain_graph=True, create_graph=True, targets=nodes, accumulate=False
        )
        live = [
            (rows[node]._node, tangents[i])
            for i, node in zip(places, nodes, strict=True)
            if rows.get(node) is not None and rows[node]._node is not None
        ]
        goals = [u._node for u in us if u is not None]
        products: dict[Any, Any] = {}
        if live:
            products = run_backward(
                live, retain_graph=True, create_graph=follows, targets=goals, accumulate=False
            )
    MODE.set(mode)
    ts = [None if u is None else products.get(u._node) for u in us]
    if not follows:
        ts = [None if t is None else wrap(t._data) for t in ts]
        ys = [_cut(y) if isinstance(y, TensorBase) else y for y in ys]
    return (tuple(ys), tuple(ts)) if several else (ys[0], ts[0])


def _cut(y: Any) -> Any:
    """The tensor without what was recorded here alone."""
    return wrap(y._data, None, y._changes)


def followed(x: Any) -> Any:
    """The tensor `x` with a node of its own, at which gradients can be asked for and which leads on
    to where `x` came from. Inside a transform it is at the level of that, so that outer levels have
    no part in what is asked.
    """
    data, parent, version = x._data, x._node, x._changes
    here = current()
    if here is not None and not here.level.at(x):
        data, parent, version = here.level.lift(x), None, None
    node = new_node(to_shape(data.shape), (parent,), (x.spec,), None, data.shape, data.dtype)
    return wrap(data, node, version)


def _zeros(x: Any) -> Any:
    return zeros(tuple(x._data.shape), x._data.dtype, x.device)


register_backend(Dual, None, lambda value: value.device)
