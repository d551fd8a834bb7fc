"""What a write in place means to a graph: who writes decides.

- A write to an input or a parameter of a graph is a set: what depends on it follows. So is a write
  outside of blocks (`with graph:`) to memory that the graph follows, and inside of them one to a
  leaf that requires grad, and whatever is declared by `core.mode.as_set`.
- Any other write inside a block leaves what was recorded as it was (`SourceCell.part`). Memory is
  always the truth: the value is computed and written at once. What computed it is noted beside the
  memory's version until the block ends (`Contents`), so that what is recorded of it inside follows
  the inputs of the graph.
- Where a gradient flows to the written value, the tensor becomes a node: this one's history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..core.errors import GraphError, ShapeError
from ..core.mode import MODE, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..ops.index.slicing import AsStrided
from ..runtime.cells import (
    Cell,
    GraphState,
    SourceCell,
    is_changed_since,
    is_kept,
    upstream,
    wants_gradient,
    warn_of_plain,
)
from ..runtime.lazy import LazyValue, concrete
from ..runtime.node import INFERENCE, Version, View, next_order
from ..runtime.tensors import wrap
from ..runtime.views import register_view
from ..runtime.writes import ViewWrite, before_change, write_part
from .recording import Same, record_cell, source_of
from .refreshing import assert_owned

if TYPE_CHECKING:
    from ..core.tensor_type import Tensor
    from .protocols import BackendArray

__all__ = ["forget_contents", "rewrite", "write"]

ndarray = np.ndarray


class Contents:
    """The cell that computed what memory holds, as long as nobody else writes to it.

    As a watcher of the memory's version it makes every write announce itself, so that views that
    are nodes show memory again.
    """

    __slots__ = ("__weakref__", "bytes", "cell", "count", "memory", "node", "order")

    def __init__(self, cell: Cell, memory: np.ndarray, version: Version, node: object) -> None:
        self.cell = cell
        self.memory = memory  # the array whose contents the cell computed
        self.node = node  # of the tensor with that memory
        self.count = version.count + 1  # once the write is counted
        self.order = next_order()
        self.bytes: bytes | None = None  # where others may write unseen
        if version.exported:
            self.exported()
        version.watch(self)

    def before_change(self) -> bool:
        """Nothing to copy."""
        return False

    def changed(self) -> None:
        """Nothing to do: the version's count says it."""

    def exported(self) -> None:
        """Note that others know the memory: its contents are compared."""
        self.bytes = self.memory.tobytes()

    def are_current(self, version: Version) -> bool:
        """Whether the memory still holds what the cell computes."""
        if self.count != version.count or is_changed_since(self.cell, self.order):
            return False
        return self.bytes is None or self.bytes == self.memory.tobytes()

    def cell_for(self, state: GraphState, x: TensorBase) -> Cell | None:
        """The cell of what `x`, which shows memory with this version, holds in a graph; None where
        that is not known.
        """
        if self.cell.state is not state:
            return None
        if not self.are_current(x._changes):
            if self.count == x._changes.count and not is_changed_since(self.cell, self.order):
                warn_of_plain(
                    self.cell, "a read of memory that others wrote unseen (by NumPy, `.data`)"
                )
            return None
        base = x if x._view is None else x._view.base
        if x._node is not None and base._node is not self.node:
            return None
        ops = _place(self.memory, x)
        if ops is None:
            if x._data.size:
                warn_of_plain(self.cell, "a read of more than the memory that it was written to")
            return None
        cell: Cell = self.cell
        for op in ops:
            cell = record_cell(state, op, (wrap(cell, cell if cell.tracked else None),))._data
        return cell


class SharedContents(Contents):
    """The contents of memory whose tensor has become a node, for those who share the memory and
    whom nothing tells: aliases that were made before. What either writes, the other sees.
    """

    __slots__ = ("of_memory", "state", "tensor")

    def __init__(
        self, state: GraphState, base: Tensor, memory: np.ndarray, version: Version
    ) -> None:
        self.tensor = ref(base)
        self.of_memory = ref(memory)  # as long as somebody else has it
        self.state = state
        self.node = self.bytes = None
        version.watch(self)

    def before_change(self) -> bool:
        """Nothing to copy; the change is to be told."""
        return False

    def changed(self) -> None:
        """The memory may have been written: then the node becomes one of that value."""
        base, memory = self.tensor(), self.of_memory()
        if base is None or memory is None:
            return
        known = base._data.array
        if known is not None and known.tobytes() != memory.tobytes():
            self.become(SourceCell(self.state, memory.shape, memory.dtype, memory.copy("K")))

    def become(self, cell: Cell) -> None:
        """Make the node that of a value that was written to the memory, which has no history."""
        base = self.tensor()
        if base is not None:
            mode = MODE.get()
            try:
                MODE.set(mode_with(mode, grad=False))
                _become(base, wrap(cell), self.state)
            finally:
                MODE.set(mode)

    def exported(self) -> None:
        """Nothing to do: what others write there is theirs."""

    def cell_for(self, state: GraphState, x: TensorBase) -> Cell | None:
        """The node, or its part that `x` shows, without its history; None where `x` has its own."""
        base, memory = self.tensor(), self.of_memory()
        if base is None or memory is None or state is not self.state or x._node is not None:
            return None
        ops = _place(memory, x)
        if ops is None:
            return None
        cell: Cell = base._data
        for op in ops or (Same(),):
            cell = record_cell(state, op, (wrap(cell),))._data
        return cell

    def take(self, value: Tensor) -> None:
        """Write the node's new value to the memory, unless that has no value yet."""
        memory = self.of_memory()
        if memory is not None:
            array = _value_of(value, inside=True)
            if array is not None:
                memory[...] = array


def forget_contents(state: GraphState) -> None:
    """Forget what a block has recorded of memory, when it ends: it is memory again."""
    for reference in state.written:
        version = reference()
        if version is not None and type(version.contents) is Contents:
            version.contents = None
    state.written.clear()


def _place(memory: np.ndarray, x: TensorBase) -> tuple[Op, ...] | None:
    """The ops that lead from `memory` to the part of it that `x` shows; None where it shows
    other memory, too.
    """
    data = x._data
    if type(data) is ndarray and _lies_alike(data, memory):
        return ()
    view = x._view
    if view is not None:
        above = _place(memory, view.base)
        return None if above is None else (*above, *view.ops)
    if type(data) is not ndarray or not memory.flags.c_contiguous or not data.size:
        return None
    item, begin = data.itemsize, data.ctypes.data - memory.ctypes.data
    reach = sum((n - 1) * s for n, s in zip(data.shape, data.strides, strict=True))
    if min(data.strides, default=0) < 0 or begin < 0 or begin + reach + item > memory.nbytes:
        return None
    return (AsStrided(data.shape, tuple(s // item for s in data.strides), begin // item),)


def _lies_alike(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or (
        a.shape == b.shape and a.strides == b.strides and a.ctypes.data == b.ctypes.data
    )


def _base_of(x: TensorBase) -> TensorBase:
    """A tensor that shows all memory that `x` shares with others, as far as one is known."""
    return x._view.base if x._view is not None else _located(x)[0]


def _located(x: Any) -> tuple[Tensor, tuple[Op, ...]]:
    """A tensor that shows all memory that `x` shares with others, as far as one is known (the same
    for each of them), and the ops that lead from it to `x`.
    """
    if x._view is not None:
        base, ops = _located(x._view.base)
        return base, (*ops, *x._view.ops)
    version = x._changes
    if version is None or type(x._data) is not ndarray:
        return x, ()
    if type(version.contents) is SharedContents:
        node, memory = version.contents.tensor(), version.contents.of_memory()
        way = None if node is None or memory is None else _place(memory, x)
        if node is not None and way is not None:
            return node, way
    others = (reference() for reference in version.views or ())
    bases = [other._view.base for other in others if other is not None and other._view is not None]
    for base in sorted(bases, key=lambda base: -base._data.size):
        is_memory = type(base._data) is ndarray and not _stays(base)
        way = _place(base._data, x) if is_memory else None
        if way is not None:
            return base, way
    return x, ()


# ---- writes --------------------------------------------------------------------------------------


def write(x: Tensor, y: Tensor) -> None:
    """Write the value of `y` to `x`, one of which at least is a tensor of a graph. All tensors that
    share the memory of `x` see it.
    """
    target = x._data if x._view is None else x._view.base._data
    assert_owned(x)
    if isinstance(target, SourceCell):
        _set_source(x, y, target)
    elif isinstance(target, LazyValue):
        _become(x, y, x._data.state)
    else:
        _write_memory(x, y)


def _set_source(x: Tensor, y: Tensor, target: SourceCell) -> None:
    """Assign to an input or a parameter of a graph."""
    view = x._view
    if view is None:
        target.array = concrete(y).copy()
    else:
        target.array = target.realize().copy()
        write_part(np, target.array, view.ops, concrete(y))


def _write_memory(x: Tensor, y: Tensor) -> None:
    """Write to `x`, which shows memory outside of the graph."""
    state: GraphState = y._data.state if isinstance(y._data, Cell) else x._data.state
    mode = MODE.get()
    base: Any = _base_of(x)
    with state.lock:
        call = _call_that_owns(state, base)
        history = mode.grad and isinstance(y._data, Cell) and y._node is not None
        if history and wants_gradient(y._data):
            if state not in mode.blocks:
                _assert_joins(x, y)
            _become(x, y, state)
            return
        later = call is not None and not call.is_known  # it is written with the first value
        array = None if later else _value_of(y, state in mode.blocks)
        if array is None and call is None:
            _become(x, y, state)
            return
        contents = None
        if is_kept(state, base) and base._changes is not INFERENCE:
            contents = _recorded(state, x, y, base)
        before_change(x)
        if array is None:
            if contents is not None:
                _note(state, base, contents)
            return
        view = None if type(x._data) is ndarray else x._view
        if view is None:
            x._data[...] = array
        else:
            write_part(np, base._data, view.ops, array)
        if contents is not None:
            _note(state, base, contents)


def _call_that_owns(state: GraphState, base: Tensor) -> Any:
    """The innermost module call of which `base` is a buffer, which it writes; None where none."""
    if type(base._data) is ndarray:
        for call in reversed(state.calling):
            if call.owns(base):
                return call
    return None


def _assert_joins(x: Tensor, y: Tensor) -> None:
    if isinstance(x._data, Cell):
        raise GraphError(
            f"write: a value of shape {tuple(y.shape)} that carries a gradient, into a part of a "
            "tensor outside the graph, where the gradient would be lost; write into a clone made "
            "inside the graph, or write value.detach()"
        )


def _value_of(y: Tensor, inside: bool) -> Any:
    """The value of `y`; None where, inside a block, it depends on an input that has none yet."""
    cell = y._data
    if not isinstance(cell, Cell):
        return concrete(y)
    try:
        return cell.realize()  # which is no read by the program
    except GraphError:
        if inside and any(x.op is None and x.array is None for x in upstream([cell])):
            return None
        raise


def _recorded(state: GraphState, x: Tensor, y: Tensor, base: Tensor) -> Cell | None:
    """The cell of what the memory of `base` will hold once `y` is written to `x`, a part of it."""
    ops = _place(base._data, x) if type(base._data) is ndarray else None
    if ops is None:
        return None
    value = y._data if isinstance(y._data, Cell) else source_of(state, y)
    if ops:
        old = source_of(state, base)
        value = record_cell(state, ViewWrite(ops), (wrap(old), wrap(value)))._data
    if base._node is not None:
        value = _overwritten(state, wrap(source_of(state, base), base._node), value)._data
    return value


def _note(state: GraphState, base: Tensor, cell: Cell) -> None:
    """Note, until the block ends, that `cell` computed what the memory of `base` holds."""
    version = base._changes
    if version is None:
        version = base._changes = Version()
    if type(version.contents) is SharedContents:
        version.contents.become(cell)
        return
    if version.contents is None:
        written = state.written
        if len(written) > 16 and len(written) & (len(written) - 1) == 0:
            written[:] = [r for r in written if r() is not None]
        written.append(ref(version))
    version.contents = Contents(cell, base._data, version, base._node)


# ---- tensors that become nodes -------------------------------------------------------------------


def rewrite(x: Tensor, y: Tensor) -> None:
    """Make the tensor `x`, of the graph or from outside, show `y`, a tensor of the graph."""
    _become(x, y, y._data.state)


def _become(x: Tensor, y: Tensor, state: GraphState) -> None:
    """Make `x`, and all tensors that share its storage, show the recorded written value."""
    with state.lock:
        _become_locked(x, y, state)


def _become_locked(x: Tensor, y: Tensor, state: GraphState) -> None:
    value = y if isinstance(y._data, Cell) else wrap(source_of(state, y))
    _join(x)
    written = _Written(state, x, value)
    now = list(written.all())
    base = written.base
    shared = _shared(state, base)
    for each, result in now:
        each._data, each._node = result._data, result._node
    if shared is not None:
        shared.take(base)


class _Written:
    """The tensors that share memory, once `value` has been written to one of them, `x`.

    All of them show it. Histories are as eagerly: the owner of that of `x` (what `x` is a view of,
    or a detached alias) gets that of the value, if either has one, and its views follow. Whatever
    has another owner keeps its own.
    """

    def __init__(self, state: GraphState, x: Tensor, value: Tensor) -> None:
        self.state = state
        self.x = x
        self.owner, ops_of_owner = _owner(x)
        self.base, ops = _located(x)
        memory = wrap(value._data)
        if ops:
            memory = record_cell(state, ViewWrite(ops), (wrap(self.cell(self.base)), memory))
        self.memory = memory  # of the base, without history
        self.value: Tensor | None = None  # of the owner, where histories change
        if MODE.get().grad and (value._node is not None or self.owner._node is not None):
            if ops_of_owner:
                old = wrap(self.cell(self.owner), self.owner._node)
                value = record_cell(state, ViewWrite(ops_of_owner), (old, value))
            self.value = value

    def cell(self, x: TensorBase) -> Cell:
        """The cell of a tensor as it was."""
        return x._data if isinstance(x._data, Cell) else source_of(self.state, x)

    def all(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each tensor that is known to share the memory, and what it is now."""
        recorded = isinstance(self.base._data, Cell)
        places: dict[int, Any] = {}  # of tensors that are no views, each looked for once
        for each in [self.base, *(y for y in _known(self.x) if y is not self.base)]:
            if _stays(each):
                continue
            root = each if each._view is None else each._view.base
            if id(root) not in places:
                places[id(root)] = _located(root)
            base, ops = places[id(root)]
            if base is self.base or (recorded and isinstance(base._data, Cell)):
                yield each, self.of(each, ops if root is each else (*ops, *each._view.ops))

    def of(self, x: Tensor, ops: tuple[Op, ...]) -> Tensor:
        """The tensor that `x` is now, to which `ops` lead from the base."""
        owner, ops_of_owner = _owner(x)
        if self.value is not None and owner is self.owner:
            return self.part(self.value, ops_of_owner)
        value = self.part(self.memory, ops)
        if x._node is None:
            return value
        return _overwritten(self.state, wrap(self.cell(x), x._node), value._data)

    def part(self, whole: Tensor, ops: tuple[Op, ...]) -> Tensor:
        """The part of a tensor that `ops` view."""
        for op in ops:
            whole = record_cell(self.state, op, (wrap(whole._data, whole._node),))
        return whole


def _known(x: Tensor) -> list[Tensor]:
    """The tensors that are known to share memory with `x`, and `x`; each once."""
    version = x._changes
    references = () if version is None or version is INFERENCE else version.views or ()
    views = [y for y in (x, *(reference() for reference in references)) if y is not None]
    views += [y._view.base for y in views if y._view is not None]
    return list({id(y): y for y in views}.values())


def _join(x: Tensor) -> None:
    """Let aliases of a part of the memory of `x` that were made outside of blocks be views of it
    without its history, as those made inside are: a node has no memory by which to find them.
    """
    for each in _known(x):
        if each._view is not None:
            continue
        base, ops = _located(each)
        if not ops:
            continue
        view = None
        for op in ops:
            view = View(base, view, op)
            view.detached = True
        each._view = view
        register_view(each)
        for other in _known(x):
            below = other._view
            while below is not None and below.base is each:
                below.base, below.detached, below.alias = base, True, each
                below, top = below.above, below
                top.above = top.above or view


def _stays(x: Tensor) -> bool:
    """Whether `x` is a leaf that requires grad, outside of the graph: it shows its memory, also
    what is written there through an alias, and never becomes a node.
    """
    return x._node is not None and x._node is x._leaf and type(x._data) is ndarray


def _owner(x: Tensor) -> tuple[Tensor, tuple[Op, ...]]:
    """The tensor that a write to `x` gives a history, and the ops that lead from there to `x`."""
    owner = None if x._view is None else x._view.owner
    return (x, ()) if owner is None else (owner, x._view.ops_of_owner)


def _shared(state: GraphState, base: Tensor) -> SharedContents | None:
    """The memory that others share with `base`, which becomes a node or is one that becomes
    another. What was recorded of memory keeps what it has seen.
    """
    version, memory = base._changes, base._data
    if type(memory) is not ndarray:
        contents = None if version is None else version.contents
        return contents if type(contents) is SharedContents else None
    if version is INFERENCE:
        return None
    if version is None:
        version = base._changes = Version()
    for reference in version.watchers or ():
        watcher = reference()
        if isinstance(watcher, SourceCell) and not _stays(watcher.follows):
            watcher.part()
    version.before_change()
    version.contents = SharedContents(state, base, memory, version)
    return version.contents


class Overwritten(Op, abstract=True):
    """A write without history (under no_grad, or through a detached tensor): the value is new, the
    gradient goes to `old`.
    """

    exact = True

    def infer(self, old: Spec, value: Spec) -> Spec:
        """The spec of both; ShapeError where they differ."""
        if old != value:
            raise ShapeError(
                f"write: a value of shape {value.shape} and {value.dtype} was written, as a whole, "
                f"over one of shape {old.shape} and {old.dtype}"
            )
        return old

    def compute(self, xp: Any, old: BackendArray, value: BackendArray) -> BackendArray:
        """The value that was written."""
        return value

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The whole cotangent to the tensor as it was."""
        return (g, None)


def _overwritten(state: GraphState, old: Tensor, value: Cell) -> Tensor:
    """A value with the history of `old`."""
    mode = MODE.get()
    try:
        MODE.set(mode_with(mode, grad=True))
        made: Tensor = record_cell(state, Overwritten(), (old, wrap(value)))
        return made
    finally:
        MODE.set(mode)
