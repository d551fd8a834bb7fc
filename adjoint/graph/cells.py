"""Cells: recorded values that last, know who uses them, and are computed again when stale.

A change of a source marks what depends on it stale along forward edges and stops where that is
stale already; a read computes the stale cells that it needs and visits no others. Whether a stale
cell must run is decided by versions: it runs unless its inputs are at the versions it has seen.

Invariants (`assert_consistent` checks them):
- a cell that is not stale has no stale input, and has seen its inputs' present versions;
- the users of a stale cell are stale;
- `order` grows along every edge; users and inputs mirror each other.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from ..core.device import CPU, device, device_of, register_backend
from ..core.errors import GraphError
from ..core.mode import MODE, Mode
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..program import compute as core_compute
from ..program.compute import quietly
from .chains import Chain, given
from .lazy import LazyValue, run
from .node import INFERENCE, Extra, Version, next_order

ndarray = np.ndarray
get_mode = MODE.get
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class Journal:
    """What a batch has changed: the old values of sources, and how to take edits back."""

    __slots__ = ("doubtful", "edits", "reshaped", "single", "sources")

    def __init__(self, single: bool = False, outer: Journal | None = None) -> None:
        self.sources: dict[Source, tuple[Any, int, bool]] = {}
        self.edits: list[Callable[[], None]] = []
        self.single = single and outer is None  # one edit: shapes must agree at once
        # Cells whose shapes do not agree, which later edits in the batch may put right.
        self.doubtful: set[Cell] = set() if outer is None else set(outer.doubtful)
        self.reshaped = False  # some cell's shape or dtype is another one

    def take(self, inner: Journal) -> None:
        """A batch inside this one has ended well."""
        self.edits += inner.edits
        self.sources = {**inner.sources, **self.sources}
        self.doubtful = inner.doubtful
        self.reshaped |= inner.reshaped

    def roll_back(self) -> None:
        """Bring the graph back to where the batch began."""
        for edit in reversed(self.edits):
            edit()
        for source, (array, version, into) in self.sources.items():
            source.array = source.follows._data if into else array
            if into:
                source.array[...] = array
            source.version = version
            push(source)


T = TypeVar("T")


class _Noticed(Generic[T]):
    """An attribute of a State that new cells have to look at; few states have any."""

    def __init__(self, name: str) -> None:
        self.own = f"_{name}"

    def __get__(self, state: State, owner: type) -> T:
        return getattr(state, self.own)  # type: ignore[no-any-return]

    def __set__(self, state: State, value: T) -> None:
        setattr(state, self.own, value)
        state.eventful = state._cutoff or state._places or state._planning > 0 or bool(state._scope)


class State:
    """What the cells of one graph share."""

    __slots__ = (
        "__weakref__", "_cutoff", "_places", "_planning", "_scope", "before_read",
        "chains", "derived", "edited", "edits", "eventful", "fleeting", "foreign", "lock",
        "observer",
        "owner", "reads", "roots", "runs", "set_last", "sources", "stamp", "undo", "warned",
        "written_first", "written_last",
    )  # fmt: skip

    lock: Any  # held while cells are read, changed or edited
    edits: int  # grows with each edit of the structure
    runs: int  # how many cells were computed, ever
    observer: (
        Any  # gets on_run(cell, nanoseconds), on_reuse(cell), on_cut(cell); None: nobody watches
    )
    roots: list[weakref.ref[Cell]]  # the cells without inputs, from which all others are reached
    sources: weakref.WeakValueDictionary[int, Source]  # by id of the tensor that they follow
    foreign: list[weakref.ref[Source]]  # in whose memory others may write unseen
    stamp: Callable[[], int]  # versions of sources: never given twice
    undo: Journal | None  # in a batch: how to go back
    edited: list[Cell]  # whose inputs were edited, until `before_read` has seen to it
    before_read: Any  # called before a read that follows edits, with the cells to be read, or None
    derived: list[weakref.ref[Any]]  # what `before_read` keeps up to date
    reads: int  # how often values were asked for
    chains: dict[Any, Any]  # by the `order` of their cells: how often they came, or their kernel
    owner: Any  # weak reference to the user's Graph
    set_last: int  # when an input was last given another value
    written_first: int  # when a program, an optimizer mostly, first wrote to a leaf's memory
    written_last: int  # when it last did; 0 before, and once it was warned
    fleeting: bool  # there are cells that are
    warned: bool  # that a node shows another value than when it was recorded

    # What new cells have to look at:
    cutoff = _Noticed["bool"]("cutoff")  # what their `cutoff` is
    places = _Noticed["bool"]("places")  # whether they remember the user's line
    planning = _Noticed["int"]("planning")  # what their `planned` is
    scope = _Noticed["tuple[str, ...]"]("scope")  # the modules being called, the outermost first
    eventful: bool  # any of these four is set
    _cutoff: bool
    _places: bool
    _planning: int
    _scope: tuple[str, ...]

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._cutoff = self._places = self.eventful = False
        self._planning = 0
        self._scope = ()
        self.edits = 0
        self.runs = 0
        self.observer = None
        self.roots = []
        self.sources = weakref.WeakValueDictionary()
        self.foreign = []
        self.stamp = next_order
        self.set_last = self.written_first = self.written_last = 0
        self.fleeting = self.warned = False
        self.undo = None
        self.edited = []
        self.before_read = None
        self.derived = []
        self.reads = 0
        self.chains = {}
        self.owner = lambda: None

    def __reduce__(self) -> Any:
        raise GraphError("pickle: a Graph cannot be pickled; save its parameters' values instead")

    def add_root(self, cell: Cell) -> None:
        """Remember a cell without inputs."""
        roots = self.roots
        if len(roots) > 16 and len(roots) & (len(roots) - 1) == 0:
            roots[:] = [r for r in roots if r() is not None]
        roots.append(cell.reference)

    def cells(self) -> list[Cell]:
        """All living cells, inputs before users."""
        return downstream(cell for r in self.roots if (cell := r()) is not None)


def _nobody() -> None:
    """Stands for a weak reference where there is no tensor."""


class Rare:
    """What few cells have, with what it is for the others."""

    __slots__ = ("about", "cut", "cutoff", "extra", "handle", "planned")

    about: dict[str, Any] | None  # name, module, line
    cut: tuple[int, ...]  # inputs (by place in `inputs`) into which no gradient flows: detached
    cutoff: bool  # recomputed to the same value, the version stays
    extra: Extra | None  # hooks
    handle: Callable[[], Any]  # weak reference to the tensor that is a leaf or a source here
    planned: int  # 0; computes a gradient: 1, that `grad` gave; 2, in a remembered backward pass

    def __init__(self) -> None:
        self.about = None
        self.cut = ()
        self.cutoff = False
        self.extra = None
        self.handle = _nobody
        self.planned = 0


_USUAL = Rare()


class _InRare(Generic[T]):
    """An attribute of a Cell that is in its `rare`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, cell: Cell, owner: type) -> T:
        return getattr(cell.rare or _USUAL, self.name)  # type: ignore[no-any-return]

    def __set__(self, cell: Cell, value: T) -> None:
        if cell.rare is None:
            cell.rare = Rare()
        setattr(cell.rare, self.name, value)


class Cell(LazyValue):
    """A recorded value of a graph; see the module."""

    __slots__ = (
        "cells", "fleeting", "order", "rare", "read", "reference", "seen", "stale", "state",
        "tracked", "users", "version",
    )  # fmt: skip

    state: State
    cells: tuple[Cell, ...]  # the inputs that are cells; is `inputs` where all are
    users: list[weakref.ref[Cell]]  # cells that have this one as an input, and dead references
    # Recorded under no_grad: the value is dropped when all users are computed. Not if it was asked
    # for, by the program, or by a user that is computed when nothing above has changed.
    fleeting: bool
    reference: weakref.ref[Cell]  # to this cell, for its inputs' `users`
    read: bool  # a program read the value, and so knows what a later read shows
    stale: bool  # an input may have changed since `array` was computed; new cells are
    version: int  # grows when the value changes
    seen: tuple[int, ...] | None  # the versions of `cells` that `array` was computed from
    order: int  # greater than that of every input
    tracked: bool  # gradients may flow back through it
    rare: Rare | None

    about = _InRare["dict[str, Any] | None"]("about")
    cut = _InRare["tuple[int, ...]"]("cut")
    cutoff = _InRare["bool"]("cutoff")
    extra = _InRare["Extra | None"]("extra")
    handle = _InRare["Callable[[], Any]"]("handle")
    planned = _InRare["int"]("planned")

    def __init__(
        self,
        state: State,
        op: Op | None,
        inputs: tuple[Any, ...],
        shape: tuple[int, ...],
        dtype: Any,
        device: device = CPU,
    ) -> None:
        _begin(self, state, op, inputs, shape, dtype, device)

    def _note_place(self) -> None:
        """What is done for new cells only where the state asks for it."""
        state = self.state
        if state.cutoff:
            self.cutoff = True
        if state.planning:
            self.planned = state.planning
        if state.scope:
            self.note(module=state.scope)
        if state.places:
            _, frame = users_frame()
            self.note(line=(frame.f_code.co_filename, frame.f_lineno))

    def pass_by(self) -> None:
        """Keep the value only as long as a user waits for it, unless it computes a gradient, or is
        to be compared with the next one.
        """
        if not (self.state.planning or self.state.cutoff):
            self.fleeting = True
            self.state.fleeting = True

    def let_inputs_go(self) -> None:
        """Drop the values of inputs that only had to lead to this one, and which no user waits for
        any more; with many users it would be costly to say.
        """
        for x in self.cells:
            if x.fleeting and len(x.users) <= 8:
                for reference in x.users:
                    user = reference()
                    if user is not None and user.stale:
                        break
                else:
                    x.array = None

    def note(self, **facts: Any) -> None:
        """Remember what few cells have."""
        self.about = {**(self.about or {}), **facts}

    @property
    def value(self) -> Any:
        """The up-to-date array, read-only."""
        return self.settle(None)

    @property
    def label(self) -> str:
        """The user's name for it; otherwise the op's."""
        if self.about and self.about.get("name"):
            return str(self.about["name"])
        return "input" if self.op is None else self.op.name

    def assert_there(self, name: str) -> None:
        """GraphError, of an operation `name`, for a cell that was removed from its graph."""
        if self.about and self.about.get("removed"):
            raise GraphError(
                f"{name}: node {self.label!r} of shape {tuple(self.shape)} was removed from its "
                "graph; build what you need again, or replace the node before removing it"
            )

    def name(self) -> str:
        """As `grad_fn` in PyTorch's form shows it."""
        return f"{type(self.op).__name__}Backward0"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The cells of the inputs, in PyTorch's format of (node, output number)."""
        return tuple((cell, 0) for cell in self.cells)

    def living_users(self) -> list[Cell]:
        """The cells that have this one as an input, each once."""
        found = dict.fromkeys(user for r in self.users if (user := r()) is not None)
        return [user for user in found if self in user.cells]

    @property
    def leaf(self) -> Any:
        """The Leaf at which gradients arrive here (or the node of a tensor outside from where they
        go on); None where the cell is computed, or its leaf is frozen.
        """
        tensor = self.handle()
        node = None if tensor is None else tensor._node
        return None if node is self else node

    # ---- as the data of a tensor -----------------------------------------------------------------

    def realize(self) -> Any:
        """The up-to-date array; computed now where it is stale or was released."""
        state = self.state
        state.reads += 1
        if self.stale or self.array is None or state.foreign:
            refresh((self,))
        return self.array

    def settle(self, tensor: Any) -> Any:
        """The up-to-date array, as one that cannot be written: writes go through the tensor."""
        if tensor is not None:
            if self.stale and not (self.read and self.order < self.state.written_first):
                warn_of_change(self, "is read")
            self.read = True  # from before the first write, it is read again and again
        array = self.realize()
        if array.flags.writeable and type(array) is ndarray:
            array = array.view()
            array.flags.writeable = False
        return array

    def get_extra(self) -> Extra:
        """The hooks, made when first asked for."""
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    def __repr__(self) -> str:
        state = "stale" if self.stale else "released" if self.array is None else "fresh"
        return f"<{self.label} {tuple(self.shape)} {self.dtype}, version {self.version}, {state}>"


def new_cell(
    state: State, op: Op, inputs: tuple[Any, ...], shape: Any, dtype: Any, device: Any
) -> Cell:  # the arguments of `Cell`
    """`Cell(...)` without the call of a type: recording a node takes a twelfth less time."""
    cell = Cell.__new__(Cell)
    _begin(cell, state, op, inputs, shape, dtype, device)
    return cell


def _begin(
    cell: Cell,
    state: State,
    op: Op | None,
    inputs: tuple[Any, ...],
    shape: Any,
    dtype: Any,
    device: Any,
) -> None:
    cell.state = state
    cell.device = device
    cell.op = op
    cell.inputs = inputs
    cell.shape = shape
    cell.dtype = dtype
    cell.array = cell.lies = cell.seen = cell.rare = None
    cell.stale = True
    cell.tracked = cell.read = cell.fleeting = False
    cell.version = 0
    cell.users = []
    cell.order = next_order()
    cell.reference = weakref.ref(cell)
    cell.cells = _entered(cell, inputs)
    if not cell.cells:
        state.add_root(cell)
    if state.eventful:
        cell._note_place()


def _entered(cell: Cell, inputs: tuple[Any, ...]) -> tuple[Cell, ...]:
    """Those of `inputs` that are cells, which know of a new user now."""
    reference = cell.reference
    cells: list[Cell] = []
    for x in inputs:
        if not isinstance(x, Cell):
            continue
        above = x
        cells.append(above)
        users = above.users
        if not users or users[-1] is not reference:
            if len(users) > 7 and len(users) & (len(users) - 1) == 0:
                users[:] = [r for r in users if r() is not None]
            users.append(reference)
    return inputs if len(cells) == len(inputs) else tuple(cells)


class Source(Cell):
    """A cell whose value is given: an input, a parameter, or a tensor from outside the graph."""

    __slots__ = ("content", "follows")

    follows: Any  # the tensor outside whose memory this is; None where the source owns its array
    content: bytes | None  # of memory that others know, too: what it held at the last read

    def __init__(self, state: State, shape: tuple[int, ...], dtype: Any, array: Any = None) -> None:
        there = CPU if array is None else device_of(array)
        super().__init__(state, None, (), shape, dtype, there)
        self.array = array
        self.stale = False
        self.seen = ()
        self.follows = self.content = None
        self.version = state.stamp()

    def follow(self, x: Any) -> None:
        """Have the memory of `x`, a tensor outside the graph, and its changes, for a value."""
        self.follows = x
        self.handle = weakref.ref(x)
        self.state.sources[id(x)] = self
        if x._changes is None:
            x._changes = Version()
        if x._changes is not INFERENCE:
            x._changes.watch(self)
            if x._changes.exported:
                self.exported()

    def exported(self) -> None:
        """Others know the memory: what it holds is compared before each read."""
        if self.content is None:
            self.content = self.array.tobytes()
            self.state.foreign.append(weakref.ref(self))

    def before_change(self) -> bool:
        """The memory is about to be changed: a batch must be able to bring it back."""
        if self.follows is None:
            self.assert_there("write")
        undo = self.state.undo
        if undo is not None and self not in undo.sources:
            array = self.array
            kept = None if array is None else array.copy()
            undo.sources[self] = (kept, self.version, self.follows is not None)
        return False

    def changed(self) -> None:
        """The memory was changed, by an in-place operation or an assignment."""
        with self.state.lock:
            if self.follows is not None:
                array = self.follows._data
                if isinstance(array, Cell):  # it became a node; what was recorded of it stays
                    self.state.sources.pop(id(self.follows), None)
                    self.follows = None
                    return
                self.array = array
            self.version = self.state.stamp()
            state = self.state
            if self.leaf is not None and not state.warned:
                state.written_first = state.written_first or self.version
                state.written_last = self.version
            push(self)

    def assign(self, array: Any) -> None:
        """Take another array, of the same shape and dtype, as the value."""
        with self.state.lock:
            self.assert_there("set")
            undo = self.state.undo
            if undo is not None and self not in undo.sources:
                undo.sources[self] = (self.array, self.version, False)
            self.array = array
            self.version = self.state.set_last = self.state.stamp()
            push(self)


for _type in (Cell, Source):
    register_backend(_type, None, lambda cell: cell.device)


# ---- change and read -----------------------------------------------------------------------------


def warn_of_change(cell: Cell, used: str) -> None:
    """Say once that a node has not the value that it had when it was recorded, where nobody asked
    for that by setting an input, but a parameter that it depends on was written to.
    """
    state = cell.state
    if not cell.order < state.written_last > state.set_last:
        return
    stack = [cell]
    seen = {cell}
    for each in stack:
        for x in each.cells:
            if isinstance(x, Source) and x.version > cell.order:
                state.warned, state.written_last = True, 0
                _warn(cell, used)
                return
            if x.stale and x not in seen:
                seen.add(x)
                stack.append(x)


def _warn(cell: Cell, used: str) -> None:
    line = (cell.about or {}).get("line")
    where = f"at {line[0]}:{line[1]}" if line else "before (ad.Graph(lines=True) says where)"
    warnings.warn(
        f"Graph: {cell.label!r} of shape {tuple(cell.shape)} was recorded {where}, and {used} "
        "after a parameter that it depends on was changed: it shows what that gives now. For the "
        "value that it had, record it inside `with graph.step():`, or take node.snapshot() before "
        "the change (graph.peek(node) is what was computed last); said once for each graph",
        stacklevel=users_frame()[0],
    )


def users_frame() -> tuple[int, Any]:
    """The frame of the user's line, and its `stacklevel` in a warning of the caller's."""
    frame = sys._getframe()
    level = 0 if frame.f_code.co_name == "users_frame" else 1  # compiled, it has no frame
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level, frame


def push(changed: Cell) -> None:
    """Mark what depends on `changed` stale; stops where it is stale already."""
    reached = [changed]
    for cell in reached:
        for reference in cell.users:
            user = reference()
            if user is not None and not user.stale:
                user.stale = True
                reached.append(user)


def notice_foreign_writes(state: State) -> None:
    """Find out what others wrote to memory that is followed here. What nobody else holds any more
    needs no more looking at.
    """
    still = []
    with state.lock:
        for reference in state.foreign:
            source = reference()
            if source is None or source.follows is None:
                continue
            content = source.array.tobytes()
            if content != source.content:
                source.content = content
                source.changed()
            if source.array.base is not None or _holders(source) > _TENSOR_AND_SOURCE:
                still.append(reference)
            else:
                source.content = None
        state.foreign = still


def _holders(source: Any) -> int:
    return sys.getrefcount(source.array)


def _tensor_and_source() -> int:
    """What `_holders` counts where nothing but a tensor and its source hold an array."""
    source = Source(State(), (), None, np.empty(()))
    source.follows = TensorBase()
    source.follows._data = source.array
    return _holders(source)


_TENSOR_AND_SOURCE = _tensor_and_source()


def refresh(targets: Iterable[Cell]) -> None:
    """Bring `targets` up to date, computing only the stale or released cells that they need.

    Errors: GraphError for an input that was never set, or a removed node; what ops raise. The cells
    that were computed before an error are up to date, the others stay stale.
    """
    targets = tuple(targets)
    if not targets:
        return
    state = targets[0].state
    if state.foreign:
        notice_foreign_writes(state)
    wanted = [cell for cell in targets if cell.stale or cell.array is None]
    if not wanted:
        return
    with state.lock:
        if state.edited and state.before_read is not None:
            state.before_read(state, wanted)
        mode: Mode = get_mode()
        quietly(_refresh, state, wanted, mode.observer)


def _refresh(state: State, wanted: list[Cell], profiler: Any) -> None:
    chain = Chain(state, profiler)
    try:
        _walk(state, wanted, chain, profiler)
        chain.compute()
    finally:
        chain.forget()


def _walk(state: State, wanted: list[Cell], chain: Chain, profiler: Any) -> None:
    """Compute what `wanted` need, or promise it to the chain."""
    observer = state.observer
    chaining = observer is None and core_compute.chained is not None
    promised = chain.cells
    clock = time.perf_counter_ns
    stack = list(wanted)
    began = 0
    fleeting = state.fleeting
    if fleeting:
        for cell in wanted:
            cell.fleeting = False
    while stack:
        cell = stack[-1]
        cells = cell.cells
        stale = cell.stale
        ready = True
        if stale:
            for above in cells:
                if above.stale:
                    stack.append(above)
                    ready = False
            if not ready:
                continue
            versions: Any = []
            for above in cells:  # loops, here and below: a comprehension costs a call in 3.11
                versions.append(above.version)
            versions = tuple(versions)  # of ints: the garbage collector need not look at it
            if versions == cell.seen:
                cell.stale = stale = False
                if observer is not None:
                    observer.on_reuse(cell)
                if cell.array is not None or cell not in wanted:
                    stack.pop()
                    continue
        elif cell.array is not None:
            stack.pop()
            continue
        inputs = cell.inputs
        arrays = []
        for x in inputs:
            if inputs is cells or isinstance(x, Cell):
                above = x
                array = above.array
                if array is None and above not in promised:
                    stack.append(above)
                    ready = False
                arrays.append(array)
            else:
                arrays.append(x)
        if not ready:
            continue
        stack.pop()
        if observer is not None:
            began = clock()
        if cell.op is None:
            cell.assert_there("read")
            raise _no_value(cell)
        if chaining:
            waiting = len(promised)
            if not cell.fleeting and chain.takes(cell):
                if stale:
                    cell.seen = versions
                    cell.stale = False
                    cell.version += 1
                continue
            if waiting:  # some of which may be its inputs
                chain.compute()
                arrays = given(cell)
        result = run(cell.op, arrays) if profiler is None else _profiled(profiler, cell.op, arrays)
        old = cell.array
        cell.array = result
        state.runs += 1
        if observer is not None:
            observer.on_run(cell, clock() - began)
        if not stale:  # something asks for it again: each is computed once in a walk
            cell.fleeting = False
        if stale:
            cell.seen = versions
            cell.stale = False
            if cell.rare is not None and cell.rare.cutoff and _is_same(old, result, cell.op):
                if observer is not None:
                    observer.on_cut(cell)
            else:
                cell.version += 1
        if fleeting:
            arrays, array, old, result = [], None, None, None  # nothing here keeps them
            cell.let_inputs_go()


def _profiled(profiler: Any, op: Op, arrays: list[Any]) -> Any:
    return profiler.compute(op, arrays, run)


def _is_same(old: Any, new: Any, op: Any) -> bool:
    """Whether a recomputed value is, bit for bit, the one before. A value that may show memory
    which was changed in place cannot be compared.
    """
    if type(old) is not ndarray or type(new) is not ndarray or op.view:
        return False
    if old.shape != new.shape or np.may_share_memory(old, new):
        return False
    return old.tobytes() == new.tobytes()


def _no_value(cell: Cell) -> GraphError:
    return GraphError(
        f"read: input {cell.label!r} of shape {tuple(cell.shape)} has no value; give it one with "
        ".set(value)"
    )


def lies_in(view: Cell, cell: Cell) -> bool:
    """Whether `view`, computed from `cell`, shows its memory. Both are computed for that, which is
    no asking for their values.
    """
    fleeting = cell.fleeting, view.fleeting
    memory = cell.realize()  # first, and held: it may go when the view is computed
    shared = np.may_share_memory(memory, view.realize())
    cell.fleeting, view.fleeting = fleeting
    view.let_inputs_go()
    return shared


def release(cells: Iterable[Cell]) -> None:
    """Drop the arrays of computed `cells`; they are computed again when needed."""
    for cell in cells:
        if cell.op is not None:
            cell.array = None


# ---- walks ---------------------------------------------------------------------------------------


def upstream(targets: Iterable[Cell]) -> list[Cell]:
    """`targets` and everything they depend on, inputs before users."""
    return reached_from(targets, lambda cell: cell.cells)


def wants_gradient(cell: Cell) -> bool:
    """Whether a leaf that requires grad lies above `cell`."""
    seen = {cell}
    stack = [cell]
    while stack:
        each = stack.pop()
        if each.leaf is not None:
            return True
        if each.tracked:
            for i, x in enumerate(each.inputs):
                if isinstance(x, Cell) and x not in seen and i not in each.cut:
                    seen.add(x)
                    stack.append(x)
    return False


def downstream(starts: Iterable[Cell]) -> list[Cell]:
    """`starts` and everything that depends on them, inputs before users."""
    return reached_from(starts, Cell.living_users)


def reached_from(starts: Iterable[Cell], next_to: Callable[[Cell], Iterable[Cell]]) -> list[Cell]:
    """`starts` and what `next_to` leads to from there, inputs before users."""
    found: set[Cell] = set()
    stack = list(starts)
    while stack:
        cell = stack.pop()
        if cell not in found:
            found.add(cell)
            stack.extend(next_to(cell))
    return sorted(found, key=lambda cell: cell.order)


def assert_consistent(cells: Iterable[Cell]) -> None:
    """Check the module's invariants; GraphError names the first cell that breaks one."""
    users: dict[Cell, set[Cell]] = {}
    for cell in cells:
        for x in cell.cells:
            if x not in users:
                users[x] = set(x.living_users())
            if x.order >= cell.order:
                raise _broken(cell, f"comes before its input {x!r}")
            if cell not in users[x]:
                raise _broken(cell, f"is no user of its input {x!r}")
            if x.state is not cell.state:
                raise _broken(cell, f"has an input {x!r} of another graph")
            if x.stale and not cell.stale:
                raise _broken(cell, f"is fresh, its input {x!r} stale")
        if not cell.stale and cell.op is not None:
            seen = tuple([x.version for x in cell.cells])
            if cell.seen != seen:
                raise _broken(cell, f"has seen {cell.seen}, its inputs are at {seen}")
        if cell.array is not None and cell.dtype is not None:
            if tuple(cell.array.shape) != tuple(cell.shape):
                raise _broken(cell, f"has an array of shape {tuple(cell.array.shape)}")
            if cell.array.dtype != cell.dtype:
                raise _broken(cell, f"has an array of {cell.array.dtype}")
        if isinstance(cell, Source) and cell.stale:
            raise _broken(cell, "is a source and stale")


def _broken(cell: Cell, what: str) -> GraphError:
    return GraphError(f"check_invariants: {cell!r} {what}")
