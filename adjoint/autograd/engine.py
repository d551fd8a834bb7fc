"""The reverse walk: from outputs back to leaves, one node at a time, without recursion."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush, heappushpop
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import fork_safety, policy
from ..core.argument_errors import misplaced
from ..core.arrays import references
from ..core.device import namespace_of, space
from ..core.dtype import from_numpy_dtype
from ..core.errors import AutogradError, DTypeError, InvalidType, ShapeError
from ..core.mode import MODE, Mode, mode_with, unobserved
from ..core.overrides import WALKING, ask_again
from ..core.tensor_base import TensorBase
from ..core.tracebacks import cut
from ..ir import compute
from ..ir.compute import quietly
from ..ops.reduce.reduction import Sum
from ..runtime.dispatch import apply
from ..runtime.lazy import LazyValue, concrete
from ..runtime.node import Item, Leaf, Node, Version
from ..runtime.record import item
from ..runtime.tensors import fresh, wrap
from ..runtime.writes import before_change, overwrite, write_known

if TYPE_CHECKING:
    from ..core.tensor_type import Tensor
    from ..runtime.node import Target
    from .protocols import BackendArray, Observer

ndarray = np.ndarray
_modes: dict[tuple[Mode, bool], Mode] = {}  # the mode in which backward runs, by the caller's


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
    inside = _modes.get((mode, create_graph))
    if inside is None:
        usual = unobserved(mode)
        asks = mode.overrides is None or not mode.overrides[0]
        overrides = WALKING if asks else (mode.overrides[0], ())
        inside = mode_with(usual, grad=create_graph, inference=False, overrides=overrides)
        if mode.lasting:
            _modes[mode, create_graph] = inside
    goals = _NO_GOALS if targets is None else frozenset(targets)
    observer = mode.observer
    if observer is None and mode.executor is not None:  # a capture notes whose gradients it records
        observer = getattr(mode.executor, "module_places", None)
    depth = 0 if observer is None else observer.depth()
    walks = _here.walks
    walks.append({})
    reached = None
    try:
        MODE.set(inside)
        awaited = _awaited(roots) if targets is None else _awaited_between(roots, goals)
        walks[-1] = awaited
        looks = mode.anomaly and mode.checks_nan
        reached = _walk(
            roots, awaited, goals, retain_graph, create_graph, accumulate, looks, observer
        )
    except Exception as error:
        cut(error)
        raise
    finally:
        MODE.set(mode)
        if observer is not None:
            observer.close(depth)  # events that an error has left open
        walks.pop()
        if reached is None and not walks:
            _here.callbacks = []  # of a backward that has failed
    if not walks and _here.callbacks:
        _call_back()
    return reached


class _Here(threading.local):
    """Per-thread state: the backward passes that run in this thread."""

    def __init__(self) -> None:
        self.walks: list[dict[Any, int]] = []  # the nodes of each backward, inside of one another
        self.callbacks: list[Callable[[], None]] = []  # for the end of the outermost


_here = _Here()


def at_end(callback: Callable[[], None]) -> None:
    """Call `callback` once the backward that runs in this thread has ended: the outermost one,
    where a gradient runs another (as checkpoints do). It is not called if the backward fails.

    Errors: AutogradError where none runs.
    """
    if not _here.walks:
        raise AutogradError("at_end: no backward runs in this thread; call it from a hook")
    _here.callbacks.append(callback)


def is_at_end(callback: Callable[[], None]) -> bool:
    """Whether `callback` will be called once the backward that runs in this thread has ended."""
    return callback in _here.callbacks


def will_run(node: object) -> bool:
    """Whether the backward that runs in this thread will run `node`."""
    return bool(_here.walks) and node in _here.walks[-1]


def is_walking() -> bool:
    """Whether a backward runs in this thread."""
    return bool(_here.walks)


def _call_back() -> None:
    """Run the callbacks registered with `at_end`, in order; each may run another backward."""
    callbacks, _here.callbacks = _here.callbacks, []
    for callback in callbacks:
        callback()


_NO_GOALS: frozenset[Any] = frozenset()


def _awaited(roots: Sequence[tuple[Any, Any]]) -> dict[Any, int]:
    """The number of gradients that each node reachable from the roots will receive."""
    awaited = {node: 0 for node, _ in roots}
    stack = list(awaited)
    while stack:
        for parent in stack.pop().parents:
            if parent in awaited:
                awaited[parent] += 1
            elif parent is not None:
                awaited[parent] = 1
                if type(parent) is not Leaf:
                    stack.append(parent)
    return awaited


def _awaited_between(roots: Sequence[tuple[Any, Any]], goals: frozenset[Any]) -> dict[Any, int]:
    """`_awaited` restricted to nodes on paths from a root to a goal."""
    oldest = min([node.order for node in goals], default=0)
    seen = {node for node, _ in roots}
    stack = list(seen)
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and parent not in seen and parent.order >= oldest:
                seen.add(parent)
                stack.append(parent)
    awaited: dict[Any, int] = {}
    for node in sorted(seen, key=_order):  # parents first
        leads = node in goals
        for parent in node.parents:
            if parent in awaited:
                awaited[parent] += 1
                leads = True
        if leads:
            awaited[node] = 0
    return awaited


def count_alone(*shape: int) -> int:
    """The value of `references` for a tensor that, like its memory, nobody else holds."""
    tensor: Any = TensorBase()
    tensor._data = np.zeros(4).reshape(*shape) if shape else np.zeros(4)
    return references(tensor)


# For whole and reshaped arrays. Counted here, in compiled code if the callers are compiled, whose
# references differ from those of interpreted code.
ALONE = frozenset((count_alone(), count_alone(2, 2)))

_order = attrgetter("order")


def _walk(
    roots: Sequence[tuple[Any, Any]],
    awaited: dict[Any, int],
    goals: frozenset[Any],
    retain_graph: bool,
    create_graph: bool,
    accumulate: bool,
    anomaly: bool,
    observer: Observer | None,
) -> dict[Any, Any]:
    """Run each node once all gradients that it awaits have arrived, newest first; a leaf stores its
    gradient as soon as it is complete. Saved values and the cotangent of a node are dropped before
    the next one runs.
    """
    pending: dict[Any, Any] = {}  # node -> cotangent summed so far; a list for several outputs
    for target, g in roots:
        if target in awaited:
            pending[target] = pending[target] + g if target in pending else g
    reached: dict[Any, Any] = {}
    leaves: list[Any] = []  # complete, to be finished before the next node runs
    heap: list[tuple[int, Any]] = []  # complete; orders are unique, so nodes are never compared
    ready = None  # complete too: saves the way through the heap
    for target in pending:
        if not awaited[target]:
            if type(target) is Leaf:
                leaves.append(target)
            elif ready is None:
                ready = target
            else:
                heappush(heap, (-target.order, target))
    g = before = value = None
    while True:
        if leaves:
            for leaf in leaves:
                if observer is not None:
                    observer.begin("AccumulateGrad")
                _finish(leaf, pending, create_graph, goals, reached, accumulate)
                if observer is not None:
                    observer.end()
            leaves.clear()
        if ready is None:
            if not heap:
                return reached
            node = heappop(heap)[1]
        else:
            node = heappushpop(heap, (-ready.order, ready))[1] if heap else ready
            ready = None
        if observer is not None:
            observer.begin_node(node)
        g = pending.pop(node, None)
        extra = node.extra
        if extra is not None and g is not None:
            if extra.hooks and references(g) not in ALONE:
                g = _copy(g, create_graph)
            g = _run_hooks(node, g, create_graph)
        if goals and node in goals:
            reached[node] = g
        incoming = None
        if extra is not None and g is not None and (extra.prehooks or extra.posthooks):
            if type(g) is not list and references(g) not in ALONE:
                g = _copy(g, create_graph)
            g = _run_prehooks(node, g)
            incoming = g if extra.posthooks else None
        parents = node.parents
        op = node.op
        gradients: Any = None
        if type(op) is Item:
            if g is not None and parents:  # none where a gradient ends here
                _put(pending, parents[0], op.index, g)
        elif (g is None and not node.runs_undefined) or (
            goals and node in goals and awaited.keys().isdisjoint(parents)
        ):
            pass
        else:
            saved = node.values()
            over, view = op.shortened
            if view is not None and not (create_graph or goals) and type(g._data) is ndarray:
                gradients = (wrap(view(op, g._data, *saved)),)
            elif over is not None and not create_graph and references(g) in ALONE:
                data = g._data
                arrays = [value._data for value in saved]
                quietly(over, op, namespace_of(data), data, *arrays)
                gradients = (g,)
                del arrays
            else:
                if create_graph and "y" in op.tokens:
                    saved = _with_history(node, saved)
                gradients = op.gradient(g, *saved)
                if not isinstance(gradients, (tuple, list)):
                    raise _not_a_tuple(node, gradients)
            del saved
            if not retain_graph:
                node.release()
            if len(gradients) < len(parents):
                gradients = (*gradients, *(None,) * len(parents))
            if anomaly:
                _assert_no_nan(node, gradients)
            if incoming is not None:
                gradients = _run_posthooks(node, gradients, incoming, awaited)
        g = incoming = None
        for place in range(len(parents)):
            target = parents[place]
            parent = target
            if parent not in awaited:
                continue
            value = None if gradients is None else gradients[place]
            if value is not None and not isinstance(value, TensorBase) and callable(value):
                value = value()
                if anomaly:
                    _assert_no_nan(node, (value,))
            if value is not None:
                if not isinstance(value, TensorBase):
                    raise _not_a_tensor(node, value)
                data = value._data
                dtype = data.dtype
                if data.shape != parent.shape or (
                    dtype is not parent.data_type and dtype != parent.data_type
                ):
                    value = unbroadcast(value, parent, node)
                before = pending.pop(parent, None)
                if before is None:
                    pending[parent] = value
                elif create_graph or references(before) not in ALONE:
                    pending[parent] = before + value
                else:
                    pending[parent] = _sum(before, value)
            left = awaited[parent] = awaited[parent] - 1
            if not left:
                if type(parent) is Leaf:
                    leaves.append(parent)
                elif ready is None:
                    ready = parent
                else:
                    heappush(heap, (-parent.order, parent))
        data = before = value = gradients = None
        if observer is not None:
            observer.end_node()


def _sum(g: Any, other: TensorBase) -> Tensor:
    """The sum of two cotangents, computed in place in `g`, which nobody else holds, where
    possible.
    """
    add_ = type(g).add_
    done = write_known(add_, "add_", (g, other))
    if done:
        return g
    data = g._data
    if type(data) is not ndarray or isinstance(other._data, LazyValue) or not _takes_sums(data):
        return g + other
    if data.size > policy.ENGINE_MANY or (done is None and compute.accelerate is not None):
        return add_(g, other)
    quietly(np.add, data, other._data, data)
    return g


def _with_history(node: Node, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """`saved` with the output tied to its node again (outputs are saved without it, to avoid a
    cycle).
    """
    place = node.op.tokens.index("y")
    y = saved[place]
    tied: Any = y
    if isinstance(y, tuple):
        tied = tuple(
            wrap(each._data, item(node, i, each._data), each._changes) for i, each in enumerate(y)
        )
    elif y is not None:
        tied = wrap(y._data, node, y._changes)
    return (*saved[:place], tied, *saved[place + 1 :])


def _put(pending: dict[Any, Any], owner: Node, index: int, g: Tensor) -> None:
    """Add `g` to the pending cotangent of output `index` of a node with several outputs."""
    slots = pending.get(owner)
    if slots is None:
        slots = pending[owner] = [None] * owner.op.n_outputs
    before = slots[index]
    slots[index] = g if before is None else before + g


# ---- what reaches leaves and hooks ---------------------------------------------------------------


def _copy(g: Tensor, create_graph: bool) -> Tensor:
    return g.clone() if create_graph else fresh(g._data.copy())


def _finish(
    leaf: Leaf,
    pending: dict[Any, Any],
    create_graph: bool,
    goals: frozenset[Any],
    reached: dict[Any, Any],
    accumulate: bool,
) -> None:
    """Run the hooks of a leaf whose gradient is complete, and store the gradient."""
    g = pending.pop(leaf, None)
    if g is None:
        return
    if leaf.extra is not None:
        if leaf.extra.hooks and references(g) not in ALONE:
            g = _copy(g, create_graph)
        g = _run_hooks(leaf, g, create_graph)
    if goals and leaf in goals:
        reached[leaf] = g
    if leaf.extra is not None and leaf.extra.prehooks:
        if references(g) not in ALONE:
            g = _copy(g, create_graph)
        g = _run_prehooks(leaf, g)
    if accumulate:
        alone = not create_graph and g._node is None and references(g) in ALONE
        if leaf.extra is not None and leaf.extra.posthooks:
            keep(leaf, g, False, create_graph)
            _run_posthooks(leaf, (), g, {})
        else:
            keep(leaf, g, alone and g._data.flags.c_contiguous, create_graph)


def keep(leaf: Leaf, g: Tensor, alone: bool, create_graph: bool = False) -> None:
    """Add the complete gradient `g` to the leaf's `.grad`; `alone`: nobody else holds `g`."""
    tensor = leaf.tensor()
    if tensor is not None and tensor._node is not leaf:
        return  # frozen since
    with _lock:
        old = leaf.grad
        if create_graph:
            leaf.grad = g.clone() if old is None else old + g
        elif old is None and _fits(leaf.place, g):
            before_change(leaf.place)
            leaf.grad = overwrite(leaf.place, g, "backward")
        elif old is None:
            if type(g._data) is not ndarray and _is_leveled(g._data):
                g = g.detach()
            leaf.grad = g if alone else fresh(g._data.copy())
        elif isinstance(old._data, LazyValue) or _is_sparse(g._data):
            if _is_sparse(old._data) and not _is_sparse(g._data):
                leaf.grad = old + g
            else:
                overwrite(old, old + g, "backward")
        elif not _takes_sums(old._data):
            leaf.grad = old + g
        else:
            before_change(old)
            try:
                quietly(np.add, old._data, concrete(g), old._data)
            except ValueError as error:
                raise ShapeError(
                    f"backward: a gradient of shape {tuple(g._data.shape)} for a tensor whose "
                    f".grad has shape {tuple(old._data.shape)}: it was turned or reshaped in place "
                    "since; set .grad to None then"
                ) from error
            version = old._changes
            if version is None:
                version = old._changes = Version()
            version.bump("backward")
    if leaf.after and tensor is not None:
        for hook in list(leaf.after.values()):
            ask_again(hook, tensor)


def _is_sparse(data: object) -> bool:
    return type(data) is not ndarray and isinstance(data, LazyValue) and data.kept is not None


def _is_leveled(data: object) -> bool:
    return isinstance(data, LazyValue) and data.rises and data.kept is None


def _fits(place: Tensor | None, g: Tensor) -> bool:
    """Whether a leaf has a place for its gradient, of the gradient's shape and dtype."""
    if place is None:
        return False
    return place._data.shape == g._data.shape and place._data.dtype == g._data.dtype


def _takes_sums(data: BackendArray) -> bool:
    """Whether an array may be added to in place: False if its elements share memory."""
    return data.flags.writeable and (data.base is None or 0 not in data.strides)


_lock = fork_safety.lock()  # two backwards at once may meet in a leaf


def _run_hooks(node: Any, g: Any, create_graph: bool) -> Any:
    for hook in list(node.extra.hooks.values()):
        replacement = ask_again(hook, g)
        if replacement is not None:
            _assert_replaces(g, replacement, hook)
            g = replacement
    retained = node.extra.retained
    if retained is not None:
        kept = _copy(g, create_graph)
        retained.grad = kept if retained.grad is None else retained.grad + kept
    return g


def _assert_replaces(g: Tensor, replacement: object, hook: object) -> None:
    """Refuse a hook's return value that cannot replace the gradient `g`."""
    name = getattr(hook, "__name__", repr(hook))
    if not isinstance(replacement, TensorBase):
        raise InvalidType(
            f"backward: expected Variable, but hook returned "
            f"{type(replacement).__name__!r} (hook {name!r}); return a tensor or None"
        )
    if replacement._data.shape != g._data.shape:
        raise ShapeError(
            f"backward: hook {name!r} has changed the size of value: the gradient has "
            f"shape {tuple(g.shape)}, the hook returned {tuple(replacement.shape)}"
        )
    if replacement._data.dtype != g._data.dtype:
        raise DTypeError(
            f"backward: hook {name!r} has changed the type of value: the gradient is "
            f"{g.dtype}, the hook returned {replacement.dtype}; convert it with .to()"
        )


def _replaced(gradients: tuple[Any, ...], replacements: object, hook: object) -> tuple[Any, ...]:
    """The gradients after a node's hook: its return value, or the gradients themselves where that
    is None.
    """
    if replacements is None:
        return gradients
    name = getattr(hook, "__name__", repr(hook))
    if not isinstance(replacements, (tuple, list)):
        raise InvalidType(
            f"backward: expected tuple, but hook returned {type(replacements).__name__!r} (hook "
            f"{name!r}); return one gradient or None for each"
        )
    if len(replacements) != len(gradients):
        raise AutogradError(
            f"backward: hook {name!r} has returned an incorrect number of values (got "
            f"{len(replacements)}, but expected {len(gradients)})"
        )
    for g, replacement in zip(gradients, replacements, strict=True):
        if g is not None and replacement is not None:
            _assert_replaces(g, replacement, hook)
    return tuple(replacements)


def _run_prehooks(node: Any, g: Any) -> Any:
    """The incoming gradient of `node` after its prehooks: one tensor, or a list with one per
    output.
    """
    several = isinstance(g, list)
    gradients = tuple(g) if several else (g,)
    for hook in list(node.extra.prehooks.values()):
        gradients = _replaced(gradients, ask_again(hook, gradients), hook)
    return list(gradients) if several else gradients[0]


def _run_posthooks(
    node: Any, gradients: Sequence[Any], incoming: Any, awaited: dict[Any, int]
) -> tuple[Any, ...]:
    """The gradients of the node's inputs after its posthooks, which also see the incoming
    gradients.
    """
    outgoing: list[Any] = []
    for parent, g in zip(node.parents, gradients, strict=True):
        is_awaited = parent is not None and parent in awaited
        value = g() if is_awaited and callable(g) and not isinstance(g, TensorBase) else g
        if is_awaited and value is not None:
            if not isinstance(value, TensorBase):
                raise _not_a_tensor(node, value)
            value = unbroadcast(value, parent, node)
        outgoing.append(value if is_awaited else None)
    inputs = tuple(outgoing)
    outputs = tuple(incoming) if isinstance(incoming, list) else (incoming,)
    for hook in list(node.extra.posthooks.values()):
        inputs = _replaced(inputs, ask_again(hook, inputs, outputs), hook)
    return inputs


# ---- what a gradient rule returns ----------------------------------------------------------------


def unbroadcast(g: Any, target: Target, source: Node | None = None, index: int = 0) -> Tensor:
    """`g` summed to the shape, and converted to the dtype, of the value that it belongs to."""
    if g._data.shape != target.shape:
        g = sum_to_shape(g, tuple(target.shape), source, index)
    if g._data.dtype != target.data_type:
        dtype = from_numpy_dtype(target.data_type)
        if g.dtype.is_complex and not dtype.is_complex:
            g = g.real
        g = g.to(dtype)
    return g


def sum_to_shape(
    g: Tensor, shape: tuple[int, ...], source: Node | None = None, index: int = 0
) -> Tensor:
    """`g` summed over the dimensions along which `shape` was broadcast to `g.shape`."""
    have = g._data.shape
    summing = _summing(shape, have)
    if summing is None:
        name = "backward" if source is None else source.name()
        raise ShapeError(
            f"{name}: Function {name} returned an invalid gradient at index {index} - got "
            f"{list(have)} but expected shape compatible with {list(shape)}; a gradient has the "
            "shape of its input"
        )
    op, reshapes = summing
    g = apply(op, g)
    return g.reshape(shape) if reshapes else g


def _summing(shape: tuple[int, ...], have: tuple[int, ...]) -> tuple[Sum, bool] | None:
    try:
        return _known_sum(shape, have)
    except TypeError:  # sizes that are not known yet
        return _new_sum(shape, have)


def _new_sum(shape: tuple[int, ...], have: tuple[int, ...]) -> tuple[Sum, bool] | None:
    """The Sum op over the dimensions of `have` along which `shape` was broadcast, and whether its
    result must be reshaped; None if `shape` does not broadcast to `have`.
    """
    lead = len(have) - len(shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(shape, have[lead:], strict=True)):
        return None
    grown = [i for i, n in enumerate(shape, lead) if n == 1 != have[i]]
    axes = (*range(lead), *grown)
    keeps = lead < len(axes)
    return Sum(axes, keeps), keeps and lead > 0


_known_sum = functools.lru_cache(maxsize=1024)(_new_sum)


def _not_a_tuple(node: Node, value: object) -> Exception:
    count = len(node.parents)
    return InvalidType(
        f"{node.op.name}: gradient returned a {type(value).__name__}, not a tuple; return one "
        f"entry for each input ({count}): (g,) for one, None for an input without gradient"
    )


def _not_a_tensor(node: Node, value: object) -> Exception:
    return InvalidType(
        f"{node.name()}: expected Variable or None as a gradient, got {type(value).__name__}; "
        "wrap it with adjoint.tensor"
    )


def _assert_no_nan(node: Node, gradients: Iterable[Any]) -> None:
    for i, value in enumerate(gradients):
        if not isinstance(value, TensorBase):
            continue
        if value.dtype.category >= 2 and bool(value.isnan().any()):  # type: ignore[attr-defined]
            where = node.extra.traceback if node.extra is not None else None
            raise AutogradError(
                f"Function '{node.name()}' returned nan values in its {i}th output."
                + (f" The forward call was made here:\n{where}" if where else "")
            )


# ---- entry points --------------------------------------------------------------------------------


def seed(output: Tensor, gradient: Tensor | None, name: str = "backward") -> Tensor:
    """The cotangent with which backward starts at `output`: ones, unless one is given."""
    data = output._data
    if gradient is None:
        if output.dtype.is_complex:
            raise AutogradError(
                f"{name}: grad can be implicitly created only for real outputs but got "
                f"{output.dtype}; pass the gradient argument"
            )
        make = np if type(data) is ndarray else space(output.device)
        return wrap(make.ones(data.shape, data.dtype))
    if not isinstance(gradient, TensorBase):
        raise misplaced(gradient, name, "gradient", "a tensor or None")
    if gradient._data.shape == data.shape and gradient._data.dtype is data.dtype:
        return gradient
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
    return gradient if gradient.dtype is output.dtype else gradient.to(output.dtype)  # type: ignore[attr-defined]


def roots_of(outputs: Sequence[Any], gradients: Sequence[Any], name: str) -> list[tuple[Any, Any]]:
    """Pairs of node and cotangent; AutogradError for an output without history."""
    roots = []
    for i, (output, gradient) in enumerate(zip(outputs, gradients, strict=True)):
        if output._node is None:
            raise AutogradError(
                f"{name}: element {i} of tensors does not require grad and does not have a grad_fn "
                f"(shape {tuple(output.shape)}); was it computed under no_grad, detached, or from "
                "tensors none of which has requires_grad=True?"
            )
        roots.append((output._node, seed(output, gradient, name)))
    return roots
