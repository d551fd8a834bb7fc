"""Gradients of a graph's tensors: nodes of the same graph, recorded once and refreshed afterwards.

The cells above a loss are the tape: for a backward pass they are written out as tape nodes, and the
reverse walk over those records the gradients as further cells. From then on a gradient is a value
like any other: it becomes stale with what it depends on, and only that is computed again.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import policy
from ..core.errors import AutogradError, GraphError
from ..core.mode import DEFAULT, MODE, mode_with
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.cells import (
    Cell,
    GraphState,
    SourceCell,
    push,
    refresh,
    release,
    upstream,
    users_frame,
)
from ..runtime.editing import rewire
from ..runtime.lazy import concrete, specs_of
from ..runtime.node import Item, Leaf, Node
from ..runtime.record import item, record
from ..runtime.tensors import wrap, zeros
from .engine import keep, run_backward, seed
from .recording import Recorder, Same, record_cell, source_of
from .regions import Region, RegionNode

if TYPE_CHECKING:
    from .protocols import BackendArray


class _Leaves:
    """Counter of changes to hooks, and to which leaves require gradients: plans depend on both."""

    revision = 0


def leaves_changed() -> None:
    """Count a change: a tensor's `requires_grad` was changed, or it got a hook."""
    _Leaves.revision += 1


def revision() -> int:
    """The present count of such changes."""
    return _Leaves.revision


def retrace(
    outputs: Sequence[Cell], everything: bool = False, bare: bool = False, whole: bool = False
) -> dict[Cell, Any]:
    """The tape of `outputs`: the Node or Leaf of each cell above them through which gradients flow.
    With `everything`, also through cells that were recorded under no_grad. With `bare`, a Leaf
    without hooks stands in the place of what ends the tape and has some. With `whole`, a region
    that nothing looks into has one Node.
    """
    nodes: dict[Cell, Any] = {}
    stands: dict[Any, Leaf] = {}  # by what they stand for
    wholes: dict[Cell, list[Cell]] = {}
    cells = upstream(outputs)
    regions = _regions_of(cells) if whole and not everything else {}
    for cell in cells:
        if type(cell.op) is Item:
            wholes.setdefault(cell.inputs[0], []).append(cell)
    for cell in cells:
        leaf = cell.leaf
        if leaf is not None:
            if bare and leaf.extra is not None:
                leaf = stands.setdefault(leaf, Leaf(cell.handle()))
            nodes[cell] = leaf
        if leaf is not None or cell.op is None:
            continue
        region = regions.get(cell)
        if region is not None:
            if cell.given:
                _add_region(nodes, region, cell)
            continue
        if not cell.tracked and not (everything and cell.op.differentiable):
            continue
        cut = () if everything else cell.cut
        parents = tuple(
            [
                nodes.get(x) if isinstance(x, Cell) and i not in cut else None
                for i, x in enumerate(cell.inputs)
            ]
        )
        if any(parent is not None for parent in parents):
            nodes[cell] = _node(cell, parents, wholes)
    return nodes


def _regions_of(cells: Sequence[Cell]) -> dict[Cell, Region]:
    """The regions of `cells` that may have one Node, by their cells."""
    tape = set(cells)
    regions: dict[Cell, Region] = {}
    for region in dict.fromkeys([cell.region for cell in cells if cell.given]):
        if region.is_whole(tape):
            for reference in region.cells:
                cell = reference()
                if cell is not None:
                    regions[cell] = region
    return regions


def _add_region(nodes: dict[Cell, Any], region: Region, output: Cell) -> None:
    """Add the Nodes of the outputs of `region` through which gradients flow, of which `output` is
    the first that is met.
    """
    outputs = [reference() for reference in region.outputs]
    if output in nodes or any(cell is not None and cell in nodes for cell in outputs):
        return
    parents = tuple(
        [
            nodes.get(x) if attached else None
            for x, attached in zip(region.inputs, region.attached, strict=True)
        ]
    )
    wants = [i for i, parent in enumerate(parents) if parent is not None]
    if not wants:
        return
    op = RegionNode(region, [tensor_of(x, True) for x in region.inputs], wants)
    if op.n_outputs == 1:
        nodes[output] = node = Node(op, parents, (), None, output.shape, output.dtype)
        node.extra = output.extra
        return
    node = Node(op, parents, (), None, (), None)
    for i, cell in enumerate(outputs):
        if cell is not None and region.flows[i]:
            nodes[cell] = item(node, i, cell)
            nodes[cell].extra = cell.extra


def _node(cell: Cell, parents: tuple[Any, ...], wholes: dict[Cell, list[Cell]]) -> Node:
    """The tape node of `cell`, whose saved values are tensors of the graph."""
    op: Any = cell.op
    if type(op) is Item:
        return Node(op, parents, (), None, cell.shape, cell.dtype)
    inputs = tuple(
        [
            tensor_of(x, i in cell.cut) if isinstance(x, Cell) else x
            for i, x in enumerate(cell.inputs)
        ]
    )
    y: Any
    if op.n_outputs == 1:
        y = wrap(cell)
    elif "y" in op.tokens:
        y = tuple([wrap(each) for each in _items(cell, wholes.get(cell, ()))])
    else:
        y = ()
    node = record(op, inputs, parents, y, DEFAULT)
    node.extra = cell.extra
    return node


def _items(whole: Cell, living: Sequence[Cell]) -> list[Cell]:
    """The cells of all outputs of `whole`; those that died are made anew."""
    by_index = {each.op.index: each for each in living}  # type: ignore[union-attr]
    items = []
    for i, spec in enumerate(whole.op.infer(*specs_of(whole.inputs))):  # type: ignore[union-attr]
        item = by_index.get(i)
        if item is None:
            item = Cell(whole.state, Item(i), (whole,), spec.shape, spec.dtype.numpy, spec.device)
            item.tracked = whole.tracked and item.dtype.kind in "fcV"
        items.append(item)
    return items


def tensor_of(cell: Cell, detached: bool = False) -> Tensor:
    """A tensor that shows `cell`: the user's own, if the cell is a leaf or a source."""
    if detached:
        return wrap(cell)
    tensor = cell.handle()
    if tensor is not None and tensor._node is not cell:
        return tensor
    return wrap(cell, cell if cell.tracked else None)


# ---- leaves --------------------------------------------------------------------------------------


class DetachNode(Same, abstract=True):
    """Identity op that lets no gradient pass."""

    differentiable = False


def own_cell(x: Tensor) -> None:
    """Let gradients of a graph's tensor end at `x`, which becomes a leaf. Where they end at another
    tensor that shows the same cell, or flow on through it, or something was computed from it before
    without a gradient, `x` gets a cell of its own: that of a detached value.
    """
    cell: Cell = x._data
    taken = cell.tracked or cell.leaf is not None or (cell.op is not None and cell.living_users())
    if cell.handle() is not x and taken:
        cell = x._data = record_cell(cell.state, DetachNode(), (x,))._data
    cell.handle = weakref.ref(x)


def assert_owned(x: Tensor, name: str = "write") -> None:
    """Refuse that `name` writes to a leaf with a cell of its own, which would have to reach the
    tensor that it was detached from.

    Errors: GraphError, with the lines of the write and, where the graph knows it, of the node.
    """
    cell = x._data
    if isinstance(cell, Cell) and type(cell.op) is DetachNode and x._node is not None:
        node = cell.inputs[0]
        line = (node.about or {}).get("line")
        where = f", which was recorded at {line[0]}:{line[1]}" if line else ""
        _, frame = users_frame()
        raise GraphError(
            f"{name}: at {frame.f_code.co_filename}:{frame.f_lineno}, a leaf of shape "
            f"{tuple(x.shape)} would be written, which requires grad and shows the value of node "
            f"{node.label!r}{where}: others that use the node would see the write; make the leaf "
            "of a copy: node.detach().clone().requires_grad_()"
        )


# ---- recorded gradients --------------------------------------------------------------------------


def gradients(
    outputs: Sequence[Any],
    seeds: Sequence[Any],
    targets: Sequence[Any] | None,
    name: str,
    whole: bool = False,
) -> dict[Any, Any]:
    """Record the gradients of the graph tensors `outputs` with respect to `targets` (tensors, or
    None for all cells that gradients reach, whose ends run no hooks then). Maps Leafs and Cells to
    tensors of the graph. An output without history is an error, unless `name` is "". With `whole`,
    what lies within the calls of composites has none.
    """
    cells = [y._data if isinstance(y._data, Cell) else None for y in outputs]
    everything = not MODE.get().grad
    ends = [cell for cell in cells if cell is not None]
    nodes = retrace(ends, everything, targets is None, whole)
    roots = []
    for i, (y, cell, g) in enumerate(zip(outputs, cells, seeds, strict=True)):
        node = y._node if cell is None else nodes.get(cell)
        if node is None or (y._node is None and not everything):
            if not name:
                continue
            raise AutogradError(
                f"{name}: element {i} of tensors does not require grad and does not have a "
                f"grad_fn (shape {tuple(y.shape)}); was it detached, or computed from tensors none "
                "of which has requires_grad=True?"
            )
        roots.append((node, seed(y, g, name)))
    if targets is None:
        goals: dict[Any, Any] = {
            node: cell.leaf if type(cell.leaf) is Leaf else cell
            for cell, node in nodes.items()
            if cell.dtype is not None  # the outputs of an op with several have one each
        }
    else:
        goals = {}
        for x in targets:
            cell = x._data if isinstance(x._data, Cell) else None
            node = x._node if cell is None or x._node is not cell else nodes.get(cell)
            if node is not None:
                goals[node] = node if type(node) is Leaf or cell is None else cell
    state = next(cell for cell in cells if cell is not None).state
    planning, state.planning = state.planning, max(state.planning, 1)
    mode = MODE.get()
    # Rules read tensors outside the graph (a Module's parameters): what they compute must be nodes.
    try:
        MODE.set(mode_with(mode, grad=True, inference=False, executor=Recorder(state)))
        reached = run_backward(
            roots, retain_graph=True, create_graph=True, targets=goals, accumulate=False
        )
    finally:
        MODE.set(mode)
        state.planning = planning
    return {goals[node]: g for node, g in reached.items() if g is not None}


class Derivative(Same, abstract=True):
    """Identity op of a gradient, whose input is replaced when the graph above is edited."""

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The cotangent unchanged."""
        return (g,)


class Derivation:
    """A call of `grad` on tensors of a graph, stored so that it can be repeated after edits."""

    __slots__ = ("__weakref__", "above", "inputs", "outputs", "results", "seeds")

    def __init__(self, outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any]) -> None:
        self.outputs = tuple(wrap(y._data, y._node) for y in outputs)
        self.inputs = tuple(inputs)
        self.seeds = tuple(seeds)
        self.results: list[Any] = [None] * len(inputs)  # weak references to the results' cells
        self.above = self._above()

    def _above(self) -> set[Cell]:
        """The cells that the results depend on (on an input, at least by its shape)."""
        ends = (*self.outputs, *self.inputs)
        return set(upstream([x._data for x in ends if isinstance(x._data, Cell)]))

    def derive(self, name: str = "grad") -> list[Any]:
        """Record the gradients and return them in the order of the inputs."""
        by_target = gradients(self.outputs, self.seeds, self.inputs, name)
        results = []
        for x in self.inputs:
            cell = x._data if isinstance(x._data, Cell) else None
            key = x._node if cell is None or x._node is not cell else cell
            results.append(by_target.get(key))
        return results

    def again(self) -> None:
        """Rewire the results, after an edit, to gradients that are recorded anew."""
        self.above = self._above()
        changes = {}
        frozen = [x for x in self.inputs if x._node is None]
        for x in frozen:  # which stores no gradient, but this one was asked for before
            x._node = Leaf(x)
        try:
            fresh = self.derive("")
        finally:
            for x in frozen:
                x._node = None
        for reference, g in zip(self.results, fresh, strict=True):
            cell = None if reference is None else reference()
            if cell is not None and cell.op is not None:  # not removed
                if g is None:
                    g = zeros(cell.shape, cell.dtype, cell.device)
                data = g._data if isinstance(g._data, Cell) else source_of(cell.state, g)
                changes[cell] = (data,)
        if not changes:
            return
        state = next(iter(changes)).state
        undo, state.undo = state.undo, None  # a batch that fails takes back edits, not this
        try:
            rewire(changes)
        finally:
            state.undo = undo


def grad(outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any]) -> list[Any]:
    """`autograd.grad` for tensors of a graph: the results are tensors that refresh themselves."""
    derivation = Derivation(outputs, inputs, seeds)
    state = next(y._data.state for y in outputs if isinstance(y._data, Cell))
    results: list[Any] = []
    mode = MODE.get()
    try:
        MODE.set(mode_with(mode, grad=True))
        for i, g in enumerate(derivation.derive()):
            if g is not None:
                g = record_cell(state, Derivative(), (g,))
                g._view = None
                g._data.note(derivation=derivation)  # lives as long as a result does
                derivation.results[i] = g._data.reference
            results.append(g)
    finally:
        MODE.set(mode)
    state.derived = [r for r in state.derived if r() is not None]
    state.derived.append(weakref.ref(derivation))
    return results


def derive_again(state: GraphState) -> None:
    """Record anew the gradients that depend on edited cells."""
    for reference in list(state.derived):
        derivation = reference()
        if derivation is not None and any(cell in derivation.above for cell in state.edited):
            derivation.again()


class RefreshPlan:
    """A recorded backward pass of a graph's tensor."""

    __slots__ = (
        "forward", "gradients", "helpers", "leaves", "outside", "repeatable", "result", "seed",
    )  # fmt: skip

    leaves: list[tuple[Leaf, Any]]  # each with the tensor that is its gradient
    outside: list[tuple[Node, Any]]  # nodes of the eager tape from which the graph goes on, and g
    gradients: dict[Cell, Any]  # of computed cells
    forward: list[Cell]  # the computed cells that gradients flow through, but the last
    helpers: list[Cell]  # the cells that compute gradients
    repeatable: bool  # no hook in between must be called again
    result: weakref.ref[Any]  # the tensor whose backward this is, as last asked for
    seed: SourceCell | None  # the gradient with which it begins; None: ones, or one of the graph

    def __init__(self, y: Tensor, gradient: Tensor | None, whole: bool) -> None:
        cell: Cell = y._data
        state = cell.state
        self.seed = None
        if gradient is not None and _is_plain(gradient):
            array = concrete(seed(y, gradient)).copy()
            self.seed = SourceCell(state, array.shape, array.dtype, array)
            gradient = wrap(self.seed)
        state.planning = 2
        try:
            by_target = gradients((y,), (gradient,), None, "backward", whole)
        finally:
            state.planning = 0
        self.leaves = [(key, g) for key, g in by_target.items() if type(key) is Leaf]
        self.gradients = {
            key: g for key, g in by_target.items() if isinstance(key, Cell) and key.op is not None
        }
        self.outside = []
        for key, g in by_target.items():
            if isinstance(key, SourceCell):
                self.outside.append((key.leaf, g))
        above = upstream([cell])
        ends = [g._data for g in by_target.values() if isinstance(g._data, Cell)]
        forward_cells = set(above)
        self.helpers = [
            each for each in upstream(ends) if each not in forward_cells and each.op is not None
        ]
        self.forward = [each for each in above if each in self.gradients and each is not cell]
        self.repeatable = not any(each.extra is not None for each in above)

    def begin_with(self, array: Any) -> None:
        """Begin with this gradient from now on."""
        cell = self.seed
        assert cell is not None
        cell.array = array
        cell.version = cell.state.changed_last = cell.state.stamp()
        push(cell)


def _is_plain(gradient: object) -> bool:
    """Whether a gradient is a value: no node, and without a history."""
    return (
        isinstance(gradient, TensorBase)
        and gradient._node is None
        and type(gradient._data) is np.ndarray
    )


def plan_of(y: Tensor, gradient: Tensor | None, whole: bool) -> RefreshPlan:
    """The recorded backward pass of `y`; its graph caches it until something changes. With `whole`,
    calls of composites are differentiated as one.
    """
    cell: Cell = y._data
    owner = cell.state.owner()
    if owner is None or not (gradient is None or _is_plain(gradient)):
        return RefreshPlan(y, gradient, whole)
    plans = owner.plans
    key = (cell, MODE.get().grad, cell.state.edits, _Leaves.revision, gradient is None, whole)
    plan = plans.pop(key, None)
    if plan is not None and gradient is not None:
        plan.begin_with(concrete(seed(y, gradient)).copy())
    if plan is None:
        plan = RefreshPlan(y, gradient, whole)
        if not plan.repeatable:
            return plan  # type: ignore[no-any-return]
        owner.drop_plans(cell)
        while len(plans) >= policy.BACKWARD_PLANS:
            del plans[next(iter(plans))]
    plan.result = weakref.ref(y)
    plans[key] = plan
    return plan  # type: ignore[no-any-return]


def backward(
    y: Tensor, gradient: Tensor | None, retain_graph: bool, targets: Sequence[Any] | None = None
) -> None:
    """Add the gradients of the graph tensor `y` to the leaves' `.grad`.

    Values that gradients flow through are released afterwards, unless `retain_graph`, and computed
    again when needed.
    """
    cell: Cell = y._data
    state: GraphState = cell.state
    if not MODE.get().grad:
        warnings.warn(
            "backward of a Graph's tensor inside no_grad: gradients are computed all the same; "
            "call it outside to say that you mean it",
            stacklevel=3,
        )
    with state.lock:
        plan = plan_of(y, gradient, not retain_graph)
        goals = None if targets is None else {x._node for x in targets}
        ends = [(leaf, g) for leaf, g in plan.leaves if goals is None or leaf in goals]
        refresh([cell, *(g._data for _, g in ends if isinstance(g._data, Cell))])
        # All of them before the first hook runs, which may change what they are computed from
        inside = [(leaf, wrap(_array_of(g).copy())) for leaf, g in ends]
        outside: list[tuple[Any, Tensor]] = [
            (node, wrap(concrete(g.detach()))) for node, g in plan.outside if goals is None
        ]
        for leaf, g in inside:
            if leaf.extra is None:
                keep(leaf, g, alone=True)
            else:
                outside.append((leaf, g))
        if outside:
            _go_on(outside, retain_graph)
        owner = state.owner()
        if owner is not None:
            kept = plan.gradients if retain_graph else {}
            owner.retained = {each: g.detach() for each, g in kept.items()}
        if not retain_graph:
            release(plan.forward)
            release(plan.helpers)


def _array_of(g: Tensor) -> BackendArray:
    """The array of a gradient that is up to date."""
    data: Any = g._data
    return data.array if type(data) is Cell else concrete(g)


def _go_on(ends: Sequence[tuple[Any, Tensor]], retain_graph: bool) -> None:
    """Go on outside of the graph, eagerly: through its hooks, and the tape behind."""
    mode = MODE.get()
    try:
        MODE.set(mode_with(mode, executor=None))
        run_backward(ends, retain_graph=retain_graph, create_graph=False)
    finally:
        MODE.set(mode)


def retained_gradient(x: Tensor) -> Tensor | None:
    """The gradient of a computed tensor from the last backward of its graph, if that retained
    it.
    """
    cell = x._data
    owner = cell.state.owner() if x._node is not None else None
    return None if owner is None else owner.retained.get(cell)


def is_of_graph(x: object) -> bool:
    """Whether `x` is a tensor of a graph."""
    return isinstance(x, TensorBase) and isinstance(x._data, Cell)
