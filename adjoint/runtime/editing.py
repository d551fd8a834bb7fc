"""Editing a living graph. Edits are transactions: all of an edit happens, or none of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..core.dtype import from_numpy_dtype
from ..core.errors import AdjointError, GraphError, ShapeError
from ..core.spec import Spec
from .cells import Cell, GraphState, Journal, SourceCell, downstream, push, upstream
from .lazy import specs_of
from .node import INFERENCE, Item, Version, next_order
from .tensors import wrap

if TYPE_CHECKING:
    import numpy as np

    from ..core.protocols import Shaped
    from ..core.tensor_base import TensorBase
    from .node import Leaf

Inputs = tuple[Any, ...]


@contextmanager
def transaction(state: GraphState, single: bool = False) -> Iterator[None]:
    """Context manager: all changes inside happen, or none of them. Shapes must agree at the end of
    the outermost block; with `single`, after each edit.
    """
    with state.lock:
        outer = state.undo
        journal = state.undo = Journal(single, outer)
        try:
            yield
            if outer is not None:
                outer.take(journal)
            elif journal.doubtful or journal.reshaped:
                state.before_read(state, None)
        except BaseException:
            state.undo = None
            journal.roll_back()
            state.rolled_back = state.stamp()
            if outer is None and journal.reshaped:
                state.before_read(state, None)
            raise
        finally:
            state.undo = outer


def settle(state: GraphState, wanted: Iterable[Cell] | None) -> bool:
    """Infer the specs that edits in this batch have left in doubt; raises what `Op.infer` raises.
    False, with nothing done, if `wanted` cells are given and none of them depends on those.
    """
    undo = state.undo
    if undo is None or not undo.doubtful:
        return True
    if wanted is not None:
        gradients = {cell for each in _derivations(state) for cell, _ in _results(each)}
        if undo.doubtful.union(gradients).isdisjoint(upstream(wanted)):
            return False
    doubtful = [x for x in undo.doubtful if x.op is not None and type(x.op) is not Item]
    rewire({cell: cell.inputs for cell in doubtful}, strict=True)
    undo.doubtful = set()
    return True


def rewire(
    changes: Mapping[Cell, Inputs],
    arrays: Mapping[SourceCell, Any] | None = None,
    strict: bool = False,
) -> None:
    """Replace the inputs of the cells in `changes`, and the values of the sources in `arrays`,
    whose shapes may change; cells that depend on them become stale.

    Shapes and dtypes downstream are inferred again at once. In a batch (unless `strict`) they need
    not agree before it ends. Costs what depends on the changed cells.

    Errors: GraphError for a cycle, naming its cells; what `Op.infer` raises. An error changes
    nothing.
    """
    arrays = arrays or {}
    spoilt = [cell for cell in changes if cell.planned == 2]
    changes = {cell: inputs for cell, inputs in changes.items() if cell.planned != 2}
    touched = [*changes, *arrays]
    if not touched:
        return
    state = touched[0].state
    with state.lock:
        undo = state.undo
        for cell, inputs in changes.items():
            _assert_editable(cell, inputs)
        order, like = _order([*touched, *spoilt], changes)
        specs: dict[Cell, Any] = {
            source: Spec(tuple(array.shape), from_numpy_dtype(array.dtype), source.device)
            for source, array in arrays.items()
        }
        doubtful = None if strict or undo is None or undo.single else undo.doubtful
        _infer(order, changes, like, specs, doubtful)
        if undo is not None:
            undo.reshaped |= bool(specs)
            saved: list[tuple[Cell, tuple[Any, ...]]] = [
                (cell, (cell.shape, cell.dtype)) for cell in order if cell.planned != 2
            ]
            saved += [(cell, _structure(cell)) for cell in touched]
            grads = [(leaf, leaf.grad) for source in arrays if (leaf := _leaf(source)) is not None]
            undo.edits.append(lambda: _restore(state, saved, grads))
        _apply(order, changes, specs)
        for source, array in arrays.items():
            source.assign(array)
        _spoil_gradients(state, touched)


_STRUCTURE = ("shape", "dtype", "op", "inputs", "cells", "cut", "tracked", "about")


def _structure(cell: Cell) -> tuple[Any, ...]:
    return tuple([getattr(cell, name) for name in _STRUCTURE])


def _restore(
    state: GraphState,
    saved: list[tuple[Cell, tuple[Any, ...]]],
    grads: Iterable[tuple[Leaf, Any]] = (),
) -> None:
    """Undo: restore the structure of cells, or only their shape and dtype."""
    for cell, values in saved:
        if len(values) > 2:
            _disconnect(cell, set())
            if values[3] is not cell.inputs:
                cell.seen = None
        if values[:2] != (cell.shape, cell.dtype):
            _reshape(cell, *values[:2])
        for name, value in zip(_STRUCTURE, values, strict=False):
            if getattr(cell, name) is not value:
                setattr(cell, name, value)
        cell.stale = cell.op is not None
    for leaf, grad in grads:
        leaf.grad = grad
    for cell, values in saved:
        if len(values) > 2:
            _connect(cell)
        push(cell)
    cells = [cell for cell, _ in saved]
    for cell in _ordered(downstream(cells), {}):  # gradients that were derived meanwhile too
        cell.order = next_order()
    _spoil_gradients(state, cells)


def _assert_editable(cell: Cell, inputs: Inputs) -> None:
    cell.assert_there("set_input")
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
        if isinstance(x, Cell):
            x.assert_there("set_input")


def _order(
    starts: list[Cell], changes: Mapping[Cell, Inputs]
) -> tuple[list[Cell], dict[Cell, Cell]]:
    """The cells that an edit of `starts` affects, in topological order after the edit; and the
    gradients among them, mapped to the cells whose shapes they have.
    """
    like = {
        cell: x._data
        for each in _derivations(starts[0].state)
        for cell, x in _results(each)
        if isinstance(x._data, Cell) and cell not in changes
    }
    affected = set(downstream(starts))
    while more := [cell for cell, x in like.items() if x in affected and cell not in affected]:
        affected.update(downstream(more))
    inputs = {**changes, **{cell: (*cell.cells, x) for cell, x in like.items()}}
    return _ordered(affected, inputs), like


def _ordered(affected: Iterable[Cell], changes: Mapping[Cell, Inputs]) -> list[Cell]:
    """`affected` in topological order after the edit."""
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


def _infer(
    order: Iterable[Cell],
    changes: Mapping[Cell, Inputs],
    like: Mapping[Cell, Cell],
    specs: dict[Cell, Any],
    doubtful: set[Cell] | None,
) -> None:
    """Add the specs that change to `specs` (a tuple of specs for a cell with several outputs).
    Cells whose spec cannot be inferred are added to `doubtful`, or raise an error if that is None.
    """
    unknown: set[Cell] = set()
    for cell in order:
        if cell.planned or cell.op is None:  # gradients are made anew, not edited: see refreshing
            continue
        if cell in like:
            if like[cell] in specs:
                specs[cell] = specs[like[cell]]
            continue
        inputs = changes.get(cell, cell.inputs)
        if unknown and not unknown.isdisjoint(x for x in inputs if isinstance(x, Cell)):
            unknown.add(cell)
            continue
        if cell not in changes and not any(x in specs for x in inputs if isinstance(x, Cell)):
            continue
        try:
            spec = _spec(cell, inputs, specs)
        except AdjointError as error:
            if doubtful is None:
                raise _at(cell, error) from error
            unknown.add(cell)
            continue
        if not isinstance(spec, Spec):
            specs[cell] = tuple(spec)
        elif spec != cell.spec:
            specs[cell] = spec
    if doubtful is not None:
        doubtful |= unknown


def _spec(cell: Cell, inputs: Inputs, specs_so_far: Mapping[Cell, Any]) -> Any:
    op: Any = cell.op
    if type(op) is not Item:
        recorded = specs_of(inputs)
        operand_specs = [
            specs_so_far.get(x, each) if isinstance(x, Cell) else each
            for x, each in zip(inputs, recorded, strict=True)
        ]
        spec = op.infer(*operand_specs)
        # Fields are axes, say, which were found for so many dimensions.
        has_fields = not op.pointwise and hasattr(op, "__dataclass_fields__")
        for before, now in zip(recorded, operand_specs, strict=True) if has_fields else ():
            if isinstance(now, Spec) and len(now.shape) != len(before.shape):
                raise ShapeError(
                    f"{op.name}: recorded for {len(before.shape)} dimensions, with axes found for "
                    f"those, and given the shape {tuple(now.shape)}; record it again"
                )
        return spec
    specs = specs_so_far[cell.inputs[0]]
    if op.index >= len(specs):
        raise GraphError(f"edit: the node would have only {len(specs)} outputs")
    return specs[op.index]


def _at(cell: Cell, error: AdjointError) -> AdjointError:
    """A copy of `error` whose message adds where in the graph it comes from."""
    file, line = (cell.about or {}).get("line", ("", 0))
    where = f" ({file}:{line})" if file else ""
    path = ".".join((cell.about or {}).get("module", ()))
    layer = f" of {path}" if path else ""
    return type(error)(f"{error}; at node {cell.label!r}{layer}{where}, the graph is unchanged")


def _apply(
    order: Iterable[Cell], changes: Mapping[Cell, Inputs], specs: Mapping[Cell, Any]
) -> None:
    for cell, inputs in changes.items():
        if inputs is cell.inputs:
            continue
        if cell.region is not None:
            cell.region.usable = False
        _disconnect(cell, {x for x in inputs if isinstance(x, Cell)})
        cell.inputs = inputs
        cell.cells = tuple(x for x in inputs if isinstance(x, Cell))
        if cell.cells == inputs:
            cell.cells = inputs
        cell.seen = None
        _connect(cell)
    for cell in order:
        if cell.planned == 2:
            _retire(cell)
            continue
        spec = specs.get(cell)
        if isinstance(spec, Spec):
            _reshape(cell, spec.shape, spec.dtype.numpy)
        elif spec is not None or cell.planned:
            cell.array = None
        if cell.op is not None:
            cell.order = next_order()
            cell.stale = True


def _reshape(cell: Cell, shape: tuple[int, ...], dtype: np.dtype | None) -> None:
    cell.shape, cell.dtype = shape, dtype
    if cell.op is not None:
        cell.array = None
    leaf = _leaf(cell)
    if leaf is not None:
        leaf.shape, leaf.grad = shape, None


def _leaf(cell: Cell) -> Leaf | None:
    """The Leaf that holds the `.grad` of a source, frozen or not."""
    return getattr(cell.handle(), "_leaf", None) if cell.op is None else None


def _spoil_gradients(state: GraphState, touched: Iterable[Cell]) -> None:
    """Invalidate gradients after the structure has changed at `touched`: forget recorded backward
    passes, and mark gradients stale whose formulas depend on it, though their inputs may not.
    """
    state.edits += 1
    state.edited += touched
    owner = state.owner()
    if owner is not None:
        owner.retained = {}
        owner.plans.clear()
    for derivation in _derivations(state):
        if not derivation.above.isdisjoint(touched):
            for cell, _ in _results(derivation):
                cell.stale = True
                push(cell)


def _derivations(state: GraphState) -> list[Any]:
    return [each for reference in state.derived if (each := reference()) is not None]


def _results(derivation: Any) -> list[tuple[Cell, Any]]:
    """The gradients of a derivation that are still in the graph, each with the tensor that it is
    with respect to.
    """
    pairs = [(r and r(), x) for r, x in zip(derivation.results, derivation.inputs, strict=True)]
    return [(cell, x) for cell, x in pairs if cell is not None and cell.op is not None]


def _connect(cell: Cell) -> None:
    for x in cell.cells:
        if cell.reference not in x.users:
            x.users.append(cell.reference)
    if not cell.cells and cell.reference not in cell.state.roots:
        cell.state.add_root(cell)


def _disconnect(cell: Cell, keep: set[Cell]) -> None:
    for x in cell.cells:
        if x not in keep:
            x.users[:] = [r for r in x.users if r is not cell.reference]


def resize(source: SourceCell, array: Shaped) -> None:
    """Set a source to a value of another shape, of its dtype. Its `.grad`, of the old shape, is
    dropped.

    Errors: what `Op.infer` raises for the first cell that does not fit. An error changes nothing.
    """
    with transaction(source.state, single=True):
        rewire({}, {source: array})


def refollow(tensor: TensorBase, array: Shaped) -> None:
    """Prepare graphs that follow `tensor` for its new memory `array`: where shape or dtype change,
    the specs of dependent cells are inferred again.

    Errors: what `Op.infer` raises for the first cell that does not fit. An error changes nothing.
    """
    watchers = [reference() for reference in tensor._changes.watchers or ()]
    sources = [x for x in watchers if isinstance(x, SourceCell) and x.follows is tensor]
    old = tensor._data
    done: list[SourceCell] = []
    for source in sources:
        if source.shape == array.shape and source.dtype == array.dtype:
            continue
        try:
            with transaction(source.state, single=True):
                rewire({}, {source: array})
                undo: Any = source.state.undo
                undo.edits.append(lambda: setattr(tensor, "_data", old))
        except AdjointError:
            for each in done:
                resize(each, old)
            raise
        done.append(source)


def is_followed(tensor: TensorBase) -> bool:
    """Whether a graph follows what `tensor` holds: other memory is then another value of it."""
    version = tensor._changes
    watchers = () if version is None else version.watchers or ()
    return any(getattr(reference(), "follows", None) is tensor for reference in watchers)


def live_views(tensor: TensorBase) -> list[TensorBase]:
    """The other tensors that show the memory of `tensor` as views."""
    version = tensor._changes
    if version is None or version is INFERENCE:
        return []
    views = (reference() for reference in version.views or ())
    return [y for y in views if y is not None and y._view is not None and y is not tensor]


def leave_memory(tensor: TensorBase) -> None:
    """Leave the memory of `tensor`, and the count of writes to it, to those who share it: views
    show a tensor of their own from now on.
    """
    if tensor._view is not None:
        tensor._view = None
    elif views := live_views(tensor):
        base = wrap(tensor._data, None, tensor._changes)
        for each in views:
            each._view.base = base
    version = tensor._changes
    if version is not None and version is not INFERENCE:
        own = tensor._changes = Version()  # which counts on: who saved the tensor compares
        own.count, own.changed_by = version.count, version.changed_by


def show_other(tensor: TensorBase, array: Any, name: str, is_write: bool = True) -> None:
    """Make `tensor` show other memory. Graphs that follow it are told, by the name of what does it;
    others that share what it has shown so far go on with that. A write within a block leaves to
    what was recorded there what it saw; `.data = ` is a set.

    Errors: what `Op.infer` raises for the first cell that does not fit. An error changes nothing.
    """
    if is_write and is_followed(tensor):
        tensor._changes.before_change()
    followed = is_followed(tensor)
    if followed:
        refollow(tensor, array)
    else:
        leave_memory(tensor)
    tensor._data = array
    if tensor._leaf is not None:
        tensor._leaf.shape = tuple(array.shape)
        tensor._leaf.data_type = array.dtype
    if followed:
        tensor._changes.bump(name)
    elif is_write:
        count_change(tensor, name)


def count_change(tensor: TensorBase, name: str, least: int = 0) -> None:
    """Count that `tensor` shows other elements, though nothing was written: a gradient that needs
    it is refused, if it was saved at a count up to `least`. What a graph has recorded of the memory
    stays.
    """
    version = tensor._changes
    if version is INFERENCE:
        return
    if version is None:
        version = tensor._changes = Version()
    recorded = version.contents
    is_current = getattr(recorded, "count", None) == version.count
    version.count = max(version.count, least)
    version.bump(name)
    if is_current:
        recorded.count = version.count


def remove(cell: Cell) -> None:
    """Remove a cell without users from its graph; reading it is an error from then on. Cells that
    compute gradients through it are removed too; the remaining gradients are derived anew.

    Errors: GraphError where other cells use it, or a gradient that is one of the graph's nodes.
    """
    state = cell.state
    with transaction(state, single=True):
        cell.assert_there("remove")
        owner = state.owner()
        if owner is not None:
            owner.plans.clear()  # which keep losses that nobody else does
        users = [user for user in cell.living_users() if not user.planned]
        for each in _derivations(state):
            if any(getattr(x, "_data", None) is cell for x in (*each.outputs, *each.seeds)):
                users += [gradient for gradient, _ in _results(each)]
        if users:
            names = ", ".join(repr(user.label) for user in users[:5])
            raise GraphError(
                f"remove: {cell.label!r} is used by {names}; replace it there, or remove them first"
            )
        gone = [each for each in downstream([cell]) if each is cell or each.planned]
        undo: Any = state.undo
        saved = [(cell, _structure(cell))]
        undo.edits.append(lambda: _restore(state, saved))
        if isinstance(cell, SourceCell):
            cell.before_change()
        for each in gone:
            _retire(each)
        _spoil_gradients(state, [cell])


def _retire(cell: Cell) -> None:
    _disconnect(cell, set())
    if not cell.cells:
        cell.state.roots[:] = [r for r in cell.state.roots if r is not cell.reference]
    cell.about = {"removed": True, "name": cell.label}
    cell.op = None
    cell.inputs = cell.cells = ()
    cell.array = None
    cell.seen = None
    cell.tracked = False
    cell.stale = False
