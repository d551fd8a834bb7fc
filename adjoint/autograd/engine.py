"""The reverse walk: from outputs back to leaves, one node at a time, never by recursion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from ..core.dtype import from_numpy_dtype
from ..core.errors import AutogradError, DTypeError, ShapeError
from ..core.mode import MODE, mode_with
from ..graph.node import Item, Leaf, Node
from .tape import wrap

_FUNCTION: Any = type(lambda: None)


def run_backward(
    roots: Sequence[tuple[Any, Any]],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: Iterable[Any] | None = None,
    accumulate: bool = True,
) -> dict[Any, Any]:
    """Send each root's cotangent back through its node.

    `roots` are pairs of (Node or Leaf, cotangent). With `targets` (Nodes or Leaves) only what lies
    between is run. Where `accumulate`, leaves add what reaches them to their `.grad`. The result
    maps each target that was reached to its gradient.
    """
    mode = MODE.get()
    token = MODE.set(mode_with(mode, executor=None, grad=create_graph, inference=False))
    try:
        useful = None if targets is None else _useful(roots, targets)
        goals = frozenset(targets) if targets is not None else frozenset()
        return _walk(
            roots, useful, goals, retain_graph, create_graph, accumulate, MODE.get().anomaly
        )
    finally:
        MODE.reset(token)


def _useful(roots: Sequence[tuple[Any, Any]], targets: Iterable[Any]) -> set[Any]:
    """The nodes from which a target can be reached."""
    useful = set(targets)
    seen = set()
    stack = [node for node, _ in roots]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        stack.extend(p for p in node.parents if p is not None and p not in seen)
    for node in sorted(seen, key=lambda n: n.order):
        if any(parent in useful for parent in node.parents):
            useful.add(node)
    return useful


def _walk(
    roots: Sequence[tuple[Any, Any]],
    useful: set[Any] | None,
    goals: frozenset[Any],
    retain_graph: bool,
    create_graph: bool,
    accumulate: bool,
    anomaly: bool,
) -> dict[Any, Any]:
    pending: dict[Any, Any] = {}  # node -> cotangent summed so far; a list for several outputs
    heap: list[tuple[int, Any]] = []  # orders are unique, so nodes are never compared
    reached: dict[Any, Any] = {}
    for node, g in roots:
        if useful is not None and node not in useful:
            continue
        if node in pending:
            pending[node] = pending[node] + g
        else:
            pending[node] = g
            heappush(heap, (-node.order, node))
    while heap:
        node = heappop(heap)[1]
        g = pending.pop(node)
        extra = node.extra
        if extra is not None:
            g = _run_hooks(extra, g, create_graph, type(node) is Leaf)
        if node in goals:
            reached[node] = g
        if type(node) is Leaf:
            if accumulate and (not goals or node in goals):
                _accumulate(node, g, create_graph)
            continue
        parents = node.parents
        if useful is not None and not any(p in useful for p in parents):
            continue
        op = node.op
        if type(op) is Item:
            owner = parents[0]
            slots = pending.get(owner)
            if slots is None:
                slots = pending[owner] = [None] * owner.op.n_outputs
                heappush(heap, (-owner.order, owner))
            slots[op.index] = g
            continue
        saved = node.values()
        if create_graph and "y" in op.tokens:
            saved = _with_history(node, saved)
        gradients = op.gradient(g, *saved)
        if not retain_graph:
            node.release()
        if anomaly:
            _assert_no_nan(node, gradients)
        del g
        for parent, value in zip(parents, gradients, strict=False):
            if parent is None or value is None or (useful is not None and parent not in useful):
                continue
            if type(value) is _FUNCTION:
                value = value()
                if value is None:
                    continue
                if anomaly:
                    _assert_no_nan(node, (value,))
            data = value._data
            if data.shape != parent.shape or data.dtype != parent.data_type:
                value = conform(value, parent)
            before = pending.get(parent)
            if before is None:
                pending[parent] = value
                heappush(heap, (-parent.order, parent))
            else:
                pending[parent] = before + value
        del value, gradients
    return reached


def _with_history(node: Node, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """`saved` with the output tied to its node again (it is saved without, to avoid a cycle)."""
    place = node.op.tokens.index("y")
    y = saved[place]
    tied: Any = y
    if isinstance(y, tuple):
        tied = tuple(
            wrap(each._data, _item(node, i, each._data), each._version) for i, each in enumerate(y)
        )
    elif y is not None:
        tied = wrap(y._data, node, y._version)
    return (*saved[:place], tied, *saved[place + 1 :])


def _item(node: Node, i: int, data: Any) -> Node | None:
    if data.dtype.kind not in "fcV":
        return None
    return Node(Item(i), (node,), (), None, data.shape, data.dtype)


def conform(g: Any, target: Any) -> Any:
    """`g` summed over what was broadcast and converted to the dtype of the value it belongs to."""
    shape = target.shape
    if g._data.shape != shape:
        g = sum_to_shape(g, tuple(shape))
    if g._data.dtype != target.data_type:
        wanted = from_numpy_dtype(target.data_type)
        if g.dtype.is_complex and not wanted.is_complex:
            g = g.real
        g = g.to(wanted)
    return g


def sum_to_shape(g: Any, shape: tuple[int, ...]) -> Any:
    """`g` summed over the dimensions along which `shape` was broadcast to `g.shape`."""
    lead = g.ndim - len(shape)
    have = g._data.shape
    axes = [
        i for i in range(g.ndim) if i < lead or (shape[i - lead] == 1 and have[i] != 1)
    ]
    if lead < 0 or any(
        i - lead >= 0 and shape[i - lead] not in (1, have[i]) for i in range(g.ndim)
    ):
        raise ShapeError(
            f"backward: a gradient of shape {tuple(have)} reached a tensor of shape {shape}; "
            "a gradient rule or hook returned a tensor of the wrong shape"
        )
    if axes:
        g = g.sum(dim=tuple(axes), keepdim=True)
    return g if g._data.shape == shape else g.reshape(shape)


def _run_hooks(extra: Any, g: Any, create_graph: bool, leaf: bool) -> Any:
    for hook in list(extra.hooks.values()):
        replacement = hook(g)
        if replacement is not None:
            g = replacement
    retained = extra.retained
    if retained is not None:
        retained.grad = g if create_graph else g.detach()
    return g


def _accumulate(leaf: Leaf, g: Any, create_graph: bool) -> None:
    old = leaf.grad
    if create_graph:
        leaf.grad = g if old is None else old + g
    elif old is None:
        data = g._data
        # Alone: `g` here, in the caller's frame and as the argument; `data` here and in `g`.
        alone = data.base is None and sys.getrefcount(g) <= _ALONE and sys.getrefcount(data) <= 3
        leaf.grad = wrap(data if alone else data.copy())
    elif old._node is None:
        data = old._data
        if data.flags.writeable:
            np.add(data, g._data, out=data, casting="unsafe")
            if old._version is not None:
                old._version.bump("backward")
        else:
            leaf.grad = old + g
    else:
        leaf.grad = (old + g).detach()
    if leaf.after:
        tensor = leaf.tensor()
        if tensor is not None:
            for hook in list(leaf.after.values()):
                hook(tensor)


_ALONE = 4


def _assert_no_nan(node: Node, gradients: Iterable[Any]) -> None:
    for i, value in enumerate(gradients):
        if value is None or type(value) is _FUNCTION:
            continue
        if value.dtype.category >= 2 and bool(value.isnan().any()):
            where = node.extra.traceback if node.extra is not None else None
            raise AutogradError(
                f"Function '{node.name()}' returned nan values in its {i}th output."
                + (f" The forward call was made here:\n{where}" if where else "")
            )


# ---- entry points --------------------------------------------------------------------------------


def seed(output: Any, gradient: Any, name: str = "backward") -> Any:
    """The cotangent with which backward starts at `output`: ones unless given."""
    data = output._data
    if gradient is None:
        if output.dtype.is_complex:
            raise AutogradError(
                f"{name}: grad can be implicitly created only for real outputs but got "
                f"{output.dtype}; pass the gradient argument"
            )
        return wrap(np.ones(data.shape, data.dtype))
    if not hasattr(gradient, "_data"):
        raise DTypeError(
            f"{name}: gradients must be tensors or None, got {type(gradient).__name__}"
        )
    if gradient._data.shape != data.shape:
        raise ShapeError(
            f"{name}: Mismatch in shape: the gradient has shape {tuple(gradient.shape)} and the "
            f"output has shape {tuple(output.shape)}; pass a gradient of the output's shape"
        )
    if gradient.dtype.is_complex != output.dtype.is_complex:
        raise DTypeError(
            f"{name}: the gradient's dtype {gradient.dtype} and the output's {output.dtype} must "
            "both be complex or both be real"
        )
    return gradient if gradient.dtype is output.dtype else gradient.to(output.dtype)


def roots_of(outputs: Sequence[Any], gradients: Sequence[Any], name: str) -> list[tuple[Any, Any]]:
    """Pairs of node and cotangent; AutogradError for an output that was recorded nowhere."""
    roots = []
    for output, gradient in zip(outputs, gradients, strict=True):
        if output._node is None:
            raise AutogradError(
                f"{name}: element 0 of tensors does not require grad and does not have a grad_fn "
                f"(shape {tuple(output.shape)}); was it computed under no_grad, detached, or from "
                "tensors none of which has requires_grad=True?"
            )
        roots.append((output._node, seed(output, gradient, name)))
    return roots


Hook = Callable[[Any], Any]
