"""Changing the structure of a graph while it lives: all of an edit happens, or none of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import GraphError
from ..core.spec import Spec
from .cells import Cell, Source, State, downstream, push
from .lazy import specs_of
from .node import Item, next_order

Inputs = tuple[Any, ...]


def rewire(changes: Mapping[Cell, Inputs]) -> None:
    """Give each cell of `changes` other inputs; what depends on them becomes stale.

    Shapes and dtypes downstream are inferred again at once. Costs what depends on the changed
    cells.

    Errors: GraphError for a cycle, naming its cells; what `Op.infer` raises. An error changes
    nothing.
    """
    spoilt = [cell for cell in changes if cell.planned == 2]
    changes = {cell: inputs for cell, inputs in changes.items() if cell.planned != 2}
    if not changes:
        return
    state = next(iter(changes)).state
    with state.lock:
        for cell, inputs in changes.items():
            _assert_editable(cell, inputs)
        affected = downstream([*changes, *spoilt])
        order = _ordered(affected, changes)
        specs = _inferred(order, changes)
        before = {cell: (cell.inputs, cell.cut) for cell in changes}
        _apply(order, changes, specs)
        _spoil_gradients(state, changes)
        if state.undo is not None:
            state.undo.edits.append(lambda: _undo(before))


def _undo(before: dict[Cell, tuple[Inputs, tuple[int, ...]]]) -> None:
    rewire({cell: inputs for cell, (inputs, _) in before.items()})
    for cell, (_, cut) in before.items():
        cell.cut = cut


def _assert_editable(cell: Cell, inputs: Inputs) -> None:
    if cell.op is None:
        raise GraphError(
            f"set_input: {cell.label!r} is an input and has no inputs itself; set its value, or "
            "replace it"
        )
    if type(cell.op) is Item:
        raise GraphError(
            f"set_input: {cell.label!r} is one of several outputs; edit the inputs of the node "
            "that computes them"
        )
    for x in inputs:
        if isinstance(x, Cell) and x.state is not cell.state:
            raise GraphError(f"set_input: {x!r} belongs to another graph than {cell!r}")
        if isinstance(x, Cell) and x.about and x.about.get("removed"):
            raise GraphError(f"set_input: {x.label!r} was removed from the graph")


def _ordered(affected: Iterable[Cell], changes: Mapping[Cell, Inputs]) -> list[Cell]:
    """`affected` so that inputs, as they will be, come before users."""
    waiting = set(affected)
    ordered: list[Cell] = []
    done: set[Cell] = set()
    for start in sorted(waiting, key=lambda cell: cell.order):
        path: list[Cell] = [start]  # from a cell to what it depends on
        on_path = {start}
        while path:
            cell = path[-1]
            if cell in done:
                path.pop()
                continue
            for x in changes.get(cell, cell.cells):
                if isinstance(x, Cell) and x in waiting and x not in done:
                    if x in on_path:
                        raise _cycle([*path[path.index(x) :], x])
                    path.append(x)
                    on_path.add(x)
                    break
            else:
                path.pop()
                on_path.discard(cell)
                done.add(cell)
                ordered.append(cell)
    return ordered


def _cycle(path: list[Cell]) -> GraphError:
    names = " -> ".join(cell.label for cell in reversed(path))
    return GraphError(f"edit: it would close a cycle: {names}; the graph is unchanged")


def _inferred(order: Iterable[Cell], changes: Mapping[Cell, Inputs]) -> dict[Cell, Any]:
    """The specs that change: of a cell with several outputs the tuple of theirs."""
    found: dict[Cell, Any] = {}
    for cell in order:
        if cell.planned:  # made anew, not edited: see refreshing.py
            continue
        inputs = changes.get(cell, cell.inputs)
        if cell not in changes and not any(x in found for x in inputs if isinstance(x, Cell)):
            continue
        op: Any = cell.op
        if type(op) is Item:
            specs = found[cell.inputs[0]]
            if op.index >= len(specs):
                raise GraphError(
                    f"edit: {cell.label!r} is output {op.index} of a node that would have only "
                    f"{len(specs)} outputs; the graph is unchanged"
                )
            spec = specs[op.index]
        else:
            given = [
                found.get(x, each) if isinstance(x, Cell) else each
                for x, each in zip(inputs, specs_of(inputs), strict=True)
            ]
            spec = op.infer(*given)
        if not isinstance(spec, Spec):
            found[cell] = tuple(spec)
        elif spec != cell.spec:
            found[cell] = spec
    return found


def _apply(
    order: Iterable[Cell], changes: Mapping[Cell, Inputs], specs: Mapping[Cell, Any]
) -> None:
    for cell, inputs in changes.items():
        _disconnect(cell, {x for x in inputs if isinstance(x, Cell)})
        cell.inputs = inputs
        cell.cells = tuple(x for x in inputs if isinstance(x, Cell))
        if cell.cells == inputs:
            cell.cells = inputs
        cell.seen = None
        for x in cell.cells:
            if cell.reference not in x.users:
                x.users.append(cell.reference)
        cell.state.edited.append(cell)
    for cell in order:
        if cell.planned == 2:
            _retire(cell)
            continue
        cell.order = next_order()
        cell.stale = True
        spec = specs.get(cell)
        if isinstance(spec, Spec):
            cell.shape, cell.dtype = spec.shape, spec.dtype.numpy
            cell.array = None
        elif spec is not None or cell.planned:
            cell.array = None
    next(iter(changes)).state.edits += 1


def _spoil_gradients(state: State, changes: Mapping[Cell, Inputs]) -> None:
    """Mark gradients stale whose formulas the changes concern, though their inputs may not be."""
    owner = state.owner()
    if owner is not None:
        owner.retained = {}
    for reference in state.derived:
        derivation = reference()
        if derivation is not None and not derivation.above.isdisjoint(changes):
            for result in derivation.results:
                cell = None if result is None else result()
                if cell is not None:
                    cell.stale = True
                    push(cell)


def _disconnect(cell: Cell, keep: set[Cell]) -> None:
    for x in cell.cells:
        if x not in keep:
            x.users[:] = [r for r in x.users if r is not cell.reference]


def remove(cell: Cell) -> None:
    """Take a cell without users out of its graph; reading it is an error from then on.

    Errors: GraphError where other cells use it.
    """
    state = cell.state
    with state.lock:
        users = cell.living_users()
        if users:
            names = ", ".join(repr(user.label) for user in users[:5])
            raise GraphError(
                f"remove: {cell.label!r} is used by {names}; replace it there, or remove them first"
            )
        if state.undo is not None:
            raise GraphError("remove: not inside graph.batch(), which could not bring it back")
        _retire(cell)
        state.edits += 1
        state.edited.append(cell)


def _retire(cell: Cell) -> None:
    _disconnect(cell, set())
    cell.note(removed=True, name=cell.label)
    cell.op = None
    cell.inputs = cell.cells = ()
    cell.array = None
    cell.seen = None
    cell.tracked = False
    cell.stale = False


def copy(cells: Iterable[Cell], state: State, sources: Mapping[Cell, Source]) -> dict[Cell, Cell]:
    """The same cells in another graph, values and versions included; sources that follow tensors
    outside follow them there too, but for those that have one there already in `sources`. Maps each
    cell to its copy.
    """
    copies: dict[Cell, Cell] = {}
    for cell in cells:
        twin: Cell
        if cell in sources:
            twin = sources[cell]
        elif isinstance(cell, Source):
            array = cell.array
            own = array is not None and cell.follows is None
            twin = Source(state, cell.shape, cell.dtype, array.copy() if own else array)
            if cell.follows is not None:
                twin.follows = cell.follows
                twin.handle = cell.handle
                state.sources[id(cell.follows)] = twin
                if cell.follows._version is not None:
                    cell.follows._version.watch(twin)
        else:
            inputs = tuple(copies[x] if isinstance(x, Cell) else x for x in cell.inputs)
            twin = Cell(state, cell.op, inputs, cell.shape, cell.dtype, cell.device)
            twin.array = cell.array
            twin.stale = cell.stale
            twin.seen = cell.seen
            twin.tracked = cell.tracked
            if cell.cut:
                twin.cut = cell.cut
            twin.planned = cell.planned
        twin.version = cell.version
        if cell.cutoff:
            twin.cutoff = True
        if cell.about is not None:
            twin.about = dict(cell.about)
        copies[cell] = twin
    return copies
