"""Dual values (`jvp`): a tensor that wraps its primal together with a tangent. Derivatives are
taken op by op, going forward. A linear op is its own derivative; a pointwise op of real numbers
multiplies the tangent by the factor of its gradient; of any other op the gradient, which is linear
in the cotangent, is transposed once more.

Derivatives are taken op by op, going forward. A linear op is its own derivative; a pointwise op of
real numbers multiplies by what its gradient multiplies by; of any other, its gradient, which is
linear in the cotangent, is transposed once more, for this op alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..core.device import register_backend
from ..core.errors import AutogradError
from ..core.mode import MODE, mode_with, switched
from ..core.op import Op, saving_of
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..ops.shape.movement import Expand, to_shape
from ..runtime.dispatch import apply
from ..runtime.node import new_node
from ..runtime.record import _saved
from ..runtime.tensors import wrap, zeros
from .engine import run_backward
from .levels import ENABLED, Level, Leveled, Transforming, current, recording_beyond, with_history

if TYPE_CHECKING:
    from .protocols import BackendArray

__all__ = [
    "ENABLED", "Dual", "DualLevel", "derived", "followed", "follows_tangents", "local_products",
]  # fmt: skip


class Dual(Leveled):
    """A dual value: `inner` is the primal; `tangent` has its shape and dtype, or is None for
    zero.
    """

    __slots__ = ("tangent",)

    tangent: Any

    def __init__(self, level: Level, inner: TensorBase, tangent: TensorBase | None = None) -> None:
        super().__init__(level, inner, tuple(inner._data.shape))
        self.tangent = tangent

    def without_history(self) -> Dual:
        """The primal alone, detached."""
        return Dual(self.level, self.inner.detach())


class DualLevel(Level):
    """The level of one call of `jvp`."""

    kind: type[Leveled] = Dual
    name = "jvp"

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.silent = not ENABLED.get()

    def lift(self, x: TensorBase) -> Dual:
        """`x` as a constant: a dual without a tangent."""
        return Dual(self, x)

    def read(self, value: Leveled) -> BackendArray:
        """The primal's array, so that the function may branch on values."""
        if self.closed:
            raise AutogradError(
                "jvp: this tensor took part in a jvp that is over (it was written to, or kept, "
                "inside); return it from the function instead"
            )
        data = value.inner._data
        return data.settle(value.inner) if hasattr(data, "settle") else data

    def beside(self, value: Leveled, numbers: Leveled) -> Leveled:
        """The primal of `numbers` with the tangent of `value`."""
        assert isinstance(value, Dual)
        return Dual(self, with_history(value.inner, numbers.inner), value.tangent)

    def values(self, op: Op, inputs: tuple[Any, ...]) -> Leveled | tuple[Leveled, ...]:
        """The op on the primals, and its derivative along the tangents."""
        primals = [x._data.inner if self.at(x) else x for x in inputs]
        looks = ENABLED.get()
        tangents = [x._data.tangent if looks and self.at(x) else None for x in inputs]
        with switched(looks and not self.silent, variable=ENABLED):
            y, t = derived(op, primals, tangents)
        if isinstance(y, tuple):
            return tuple(Dual(self, each, d) for each, d in zip(y, t, strict=True))
        return Dual(self, y, t)


def follows_tangents(tensors: Sequence[Any] = ()) -> bool:
    """Whether a transform around computes tangents, or one of the tensors has one: derivatives are
    then wanted of what is computed, though no gradient is recorded.
    """
    executor = MODE.get().executor
    while isinstance(executor, Transforming):
        if isinstance(executor.level, DualLevel):
            return True
        executor = executor.outer
    for x in tensors:
        data = x._data if isinstance(x, TensorBase) else None
        while isinstance(data, Leveled):
            if isinstance(data, Dual):
                return True
            data = data.inner._data
    return False


def derived(op: Op, primals: list[Any], tangents: list[Any]) -> tuple[Any, Any]:
    """The result of `op`, and its tangent (None for zero)."""
    has_tangent = [t is not None for t in tangents]
    grad = MODE.get().grad
    if not (any(has_tangent) and op.differentiable):
        y = apply(op, *primals)
        return y, (None,) * len(y) if isinstance(y, tuple) else None
    if op.linear:
        y = apply(op, *primals)
        first = y[0] if isinstance(y, tuple) else y
        if first._data.dtype.kind not in "fcV":
            return y, (None,) * len(y) if isinstance(y, tuple) else None
        moved = [
            x if not isinstance(x, TensorBase) else _zeros(x) if t is None else t
            for x, t in zip(primals, tangents, strict=True)
        ]
        return y, apply(op, *moved)
    real = all(x._data.dtype.kind != "c" for x in primals if isinstance(x, TensorBase))
    if op.pointwise and real and op.n_outputs == 1:
        y = apply(op, *primals)
        if y._data.dtype.kind != "c":
            return y, _pointwise(op, primals, tangents, y) if y._data.dtype.kind in "fV" else None
    return local_products(lambda *xs: apply(op, *xs), primals, tangents, grad)


def _pointwise(op: Op, primals: list[Any], tangents: list[Any], y: Tensor) -> Tensor | None:
    """The tangent of a pointwise op: the sum over inputs of tangent times partial derivative."""
    total = None
    inputs = tuple(primals)
    saved = [
        y if kind == "y" else primals[place] if kind == "x" else _saved(kind, place, inputs, y)
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


def _recording() -> switched:
    """A block in which gradients are recorded."""
    return switched(mode_with(MODE.get(), grad=True, inference=False))


def local_products(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], grad: bool
) -> tuple[Any, Any]:
    """`function(*primals)`, and the product of its Jacobian with `tangents`: its vector-Jacobian
    product, transposed.
    """
    operands = [*primals, *tangents]
    follows = grad and any(isinstance(x, TensorBase) and x._node is not None for x in operands)
    places = [i for i, t in enumerate(tangents) if t is not None]
    with recording_beyond(current()), _recording():
        xs = [x if t is None else followed(x) for x, t in zip(primals, tangents, strict=True)]
        outputs = function(*xs)
        several = isinstance(outputs, (tuple, list))
        ys = list(outputs) if several else [outputs]
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
    ts = [None if u is None else products.get(u._node) for u in us]
    if not follows:
        ts = [None if t is None else wrap(t._data) for t in ts]
        ys = [_cut(y) if isinstance(y, TensorBase) else y for y in ys]
    return (tuple(ys), tuple(ts)) if several else (ys[0], ts[0])


def _cut(y: TensorBase) -> Tensor:
    """The tensor without the history that was recorded here."""
    return wrap(y._data, None, y._changes)


def followed(x: TensorBase) -> Tensor:
    """A tensor like `x` with a node of its own, for which gradients can be asked and which leads on
    to the node of `x`. Inside a transform it is at the level of the transform, so that outer levels
    take no part in such gradients.
    """
    data, parent, version = x._data, x._node, x._changes
    here = current()
    if here is not None and not here.level.at(x):
        data, parent, version = here.level.lift(x), None, None
    node = new_node(to_shape(data.shape), (parent,), (x.spec,), None, data.shape, data.dtype)
    return wrap(data, node, version)


def _zeros(x: TensorBase) -> Tensor:
    return zeros(tuple(x._data.shape), x._data.dtype, x.device)


register_backend(Dual, None, lambda value: value.device)
