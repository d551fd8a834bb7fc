"""Cells: recorded values of a lasting graph, which know their users and are recomputed when stale.

A change of a source marks what depends on it stale along forward edges and stops where that is
stale already; a read computes the stale cells that it needs and visits no others. Whether a stale
cell must run is decided by versions: it runs unless its inputs are at the versions it has seen.

Invariants (`assert_consistent` checks them):
- a cell that is not stale has no stale input, and has seen its inputs' present versions;
- the users of a stale cell are stale;
- `order` grows along every edge; users and inputs mirror each other.
"""

from __future__ import annotations

import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import numpy as np

from ..core import fork_safety
from ..core.device import CPU, device, device_of, register_backend
from ..core.errors import GraphError
from ..core.mode import MODE, Mode
from ..core.op import Op
from ..core.package import FOLDER
from ..core.tensor_base import TensorBase
from ..ir import compute as core_compute
from ..ir.compute import quietly
from .chains import Chain, given
from .lazy import LazyValue, concrete, run
from .node import INFERENCE, Extra, Version, next_order

if TYPE_CHECKING:
    from ..core.protocols import Observer

ndarray = np.ndarray
get_mode = MODE.get


class Journal:
    """Undo log of a batch: the old values of sources, and how to undo edits."""

    __slots__ = ("doubtful", "edits", "reshaped", "single", "sources")

    def __init__(self, single: bool = False, outer: Journal | None = None) -> None:
        # Their value and version; the tensor that they follow with its memory and history, or None
        self.sources: dict[SourceCell, tuple[Any, int, tuple[Any, Any, Any] | None]] = {}
        self.edits: list[Callable[[], None]] = []
        self.single = single and outer is None  # one edit: shapes must agree at once
        # Cells whose shapes do not agree, which later edits in the batch may put right.
        self.doubtful: set[Cell] = set() if outer is None else set(outer.doubtful)
        self.reshaped = False  # some cell's shape or dtype is another one

    def take(self, inner: Journal) -> None:
        """Merge the journal of an inner batch that has ended without an error."""
        self.edits += inner.edits
        self.sources = {**inner.sources, **self.sources}
        self.doubtful = inner.doubtful
        self.reshaped |= inner.reshaped

    def roll_back(self) -> None:
        """Restore the graph to its state when the batch began."""
        for edit in reversed(self.edits):
            edit()
        for source, (array, version, followed) in self.sources.items():
            if followed is None:
                source.array = array
            else:
                x, memory, node = followed
                memory[...] = array
                source.array, x._data, x._node = memory, memory, node
                if source.follows is not x:
                    source.follow(x)
            source.version = version
            push(source)


T = TypeVar("T")


class _Noticed(Generic[T]):
    """Descriptor of a State attribute that new cells must honour; setting one updates
    `eventful`.
    """

    def __init__(self, name: str) -> None:
        self.own = f"_{name}"

    def __get__(self, state: GraphState, owner: type) -> T:
        return getattr(state, self.own)  # type: ignore[no-any-return]

    def __set__(self, state: GraphState, value: T) -> None:
        setattr(state, self.own, value)
        state.eventful = bool(
            state._cutoff or state._places or state._planning or state._scope or state._branch
        )


any_graph = [False]  # a graph was made: eager draws need not ask before


class GraphState:
    """State shared by all cells of one graph."""

    __slots__ = (
        "__weakref__", "_branch", "_cutoff", "_places", "_planning", "_scope", "before_read",
        "before_run", "blocks", "calling", "chains", "changed_last", "derived", "draws_frozen",
        "edited", "edits", "eventful", "fleeting", "foreign", "lock", "observer", "owner",
        "reads", "repeating", "rolled_back", "roots", "runs", "said", "set_last", "sources",
        "stamp", "undo", "unset", "written", "written_first", "written_last",
    )  # fmt: skip

    lock: Any  # held while cells are read, changed or edited
    blocks: int  # how many of its `with` blocks are open
    edits: int  # grows with each edit of the structure
    runs: int  # how many cells were computed, ever
    # gets on_run(cell, nanoseconds), on_reuse(cell), on_cut(cell); None: nobody watches
    observer: Any
    roots: list[weakref.ref[Cell]]  # the cells without inputs, from which all others are reached
    sources: weakref.WeakValueDictionary[int, SourceCell]  # by id of the tensor that they follow
    foreign: list[weakref.ref[SourceCell]]  # sources into whose memory others may write unseen
    stamp: Callable[[], int]  # versions of sources: never given twice
    undo: Journal | None  # the undo log of the current batch
    edited: list[Cell]  # cells whose inputs were edited, until `before_read` has handled them
    before_read: Any  # called before a read that follows edits, with the cells to be read, or None
    before_run: Any  # called before a walk with the cells that it is to compute, or None
    repeating: list[weakref.ref[Cell]]  # cells with `repeats`
    calling: list[Any]  # the module calls that are being recorded, the outermost first
    unset: list[weakref.ref[Cell]]  # inputs that had no value when they were made
    draws_frozen: bool  # draws keep their numbers
    rolled_back: int  # when a batch last failed: versions of cells may have grown for nothing
    said: set[Any]  # the warnings that were given
    derived: list[weakref.ref[Any]]  # what `before_read` keeps up to date
    reads: int  # how often values were asked for
    chains: dict[Any, Any]  # by the `order` of their cells: how often each came, or its kernel
    owner: Any  # weak reference to the user's Graph
    changed_last: int  # when a source last got another value
    set_last: int  # when an input was last given another value
    written_first: int  # when a program, an optimizer mostly, first wrote to a leaf's memory
    written_last: int  # when it last did; 0 before, and once it was warned
    fleeting: bool  # some cell is fleeting
    written: list[weakref.ref[Version]]  # of the memory whose contents an open block has recorded

    # What new cells have to look at:
    cutoff = _Noticed["bool"]("cutoff")  # their `cutoff`
    places = _Noticed["bool"]("places")  # whether they remember the user's line
    planning = _Noticed["int"]("planning")  # their `planned`
    scope = _Noticed["tuple[str, ...]"]("scope")  # the modules being called, the outermost first
    branch = _Noticed["tuple[Cell, Any] | None"]("branch")  # by which an `if` was decided; its line
    eventful: bool  # any of these five is set
    _branch: tuple[Cell, Any] | None
    _cutoff: bool
    _places: bool
    _planning: int
    _scope: tuple[str, ...]

    def __init__(self) -> None:
        any_graph[0] = True
        self.lock = fork_safety.lock()
        self._cutoff = self._places = self.eventful = False
        self._planning = 0
        self._scope = ()
        self._branch = None
        self.blocks = self.edits = 0
        self.written = []
        self.runs = 0
        self.observer = None
        self.roots = []
        self.sources = weakref.WeakValueDictionary()
        self.foreign = []
        self.stamp = next_order
        self.changed_last = self.set_last = self.written_first = self.written_last = 0
        self.rolled_back = 0
        self.fleeting = False
        self.undo = None
        self.edited = []
        self.before_read = self.before_run = None
        self.repeating = []
        self.calling = []
        self.unset = []
        self.draws_frozen = False
        self.said = set()
        self.derived = []
        self.reads = 0
        self.chains = {}
        self.owner = lambda: None

    def __reduce__(self) -> NoReturn:
        raise GraphError("pickle: a Graph cannot be pickled; save its parameters' values instead")

    def written_by_program(self, version: int) -> None:
        """Note that a write gave `version` to a source: nodes from before it show another value."""
        self.written_first = self.written_first or version
        self.written_last = version

    def add_root(self, cell: Cell) -> None:
        """Register a cell without inputs."""
        roots = self.roots
        if len(roots) > 16 and len(roots) & (len(roots) - 1) == 0:
            roots[:] = [r for r in roots if r() is not None]
        roots.append(cell.reference)

    def cells(self) -> list[Cell]:
        """All living cells, inputs before users."""
        return downstream(cell for r in self.roots if (cell := r()) is not None)


def _nobody() -> None:
    """A dead weak reference: returns None."""


class Rare:
    """Attributes that few cells have, with the values that all other cells share."""

    __slots__ = (
        "about", "cut", "cutoff", "extra", "given", "handle", "planned", "region", "repeats"
    )  # fmt: skip

    about: dict[str, Any] | None  # name, module, line
    cut: tuple[int, ...]  # inputs (by place in `inputs`) into which no gradient flows: detached
    cutoff: bool  # recomputed to the same value, the version stays
    extra: Extra | None  # hooks
    given: bool  # an output of its `region`
    handle: Callable[[], Any]  # weak reference to the tensor that is a leaf or a source here
    planned: int  # 0; computes a gradient: 1, that `grad` gave; 2, in a remembered backward pass
    region: Any  # the cells with which it is computed: see autograd/regions.py
    repeats: tuple[Any, ...]  # what is done again for each new value: see repeats.py

    def __init__(self) -> None:
        self.about = None
        self.cut = self.repeats = ()
        self.cutoff = self.given = False
        self.extra = self.region = None
        self.handle = _nobody
        self.planned = 0


_USUAL = Rare()


class _InRare(Generic[T]):
    """Descriptor of a Cell attribute that is stored in its `rare`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, cell: Cell, owner: type) -> T:
        return getattr(cell.rare or _USUAL, self.name)  # type: ignore[no-any-return]

    def __set__(self, cell: Cell, value: T) -> None:
        if cell.rare is None:
            cell.rare = Rare()
        setattr(cell.rare, self.name, value)


class Cell(LazyValue):
    """A recorded value of a graph: cached, stale when an input may have changed, recomputed when
    read.
    """

    __slots__ = (
        "cells", "fleeting", "order", "rare", "read", "reference", "seen", "stale", "state",
        "tracked", "users", "version",
    )  # fmt: skip

    state: GraphState
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
    given = _InRare["bool"]("given")
    handle = _InRare["Callable[[], Any]"]("handle")
    planned = _InRare["int"]("planned")
    region = _InRare["Any"]("region")
    repeats = _InRare["tuple[Any, ...]"]("repeats")

    def __init__(
        self,
        state: GraphState,
        op: Op | None,
        inputs: tuple[Any, ...],
        shape: tuple[int, ...],
        dtype: np.dtype | None,
        device: device = CPU,
    ) -> None:
        _begin(self, state, op, inputs, shape, dtype, device)

    def _note_place(self) -> None:
        """Set the attributes that the state requires of new cells."""
        state = self.state
        if state.cutoff:
            self.cutoff = True
        if state.planning:
            self.planned = state.planning
        elif state._branch is not None:
            warn_of_branch(state)
        if state.scope:
            self.note(module=state.scope)
        if state.places:
            _, frame = users_frame()
            self.note(line=(frame.f_code.co_filename, frame.f_lineno))

    def pass_by(self) -> None:
        """Make the cell fleeting: its value is kept only while a user waits for it. Not if it
        computes a gradient, or is to be compared with its next value.
        """
        if not (self.state.planning or self.state.cutoff):
            self.fleeting = True
            self.state.fleeting = True

    def let_inputs_go(self) -> None:
        """Drop the values of fleeting inputs for which no user waits any more (inputs with many
        users are skipped, since the test would be costly).
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
        """Store rare facts (name, module, line) about the cell."""
        about = self.about
        self.about = facts if about is None else {**about, **facts}

    @property
    def value(self) -> Any:
        """The up-to-date array, read-only."""
        return self.settle(None)

    @property
    def label(self) -> str:
        """The user's name for the cell, or else the op's name."""
        if self.about and self.about.get("name"):
            return str(self.about["name"])
        return "input" if self.op is None else self.op.name

    def assert_there(self, name: str) -> None:
        """Raise GraphError, on behalf of the operation `name`, if the cell was removed from its
        graph.
        """
        about = None if self.rare is None else self.rare.about
        if about and about.get("removed"):
            raise GraphError(
                f"{name}: node {self.label!r} of shape {tuple(self.shape)} was removed from its "
                "graph; build what you need again, or replace the node before removing it"
            )

    def name(self) -> str:
        """The name that `grad_fn` shows, in PyTorch's form."""
        return f"{type(self.op).__name__}Backward0"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The cells of the inputs, in PyTorch's format of (node, output number)."""
        return tuple((cell, 0) for cell in self.cells)

    def living_users(self) -> list[Cell]:
        """The living cells that have this one as an input, each once."""
        users = dict.fromkeys(user for r in self.users if (user := r()) is not None)
        return [user for user in users if self in user.cells]

    @property
    def leaf(self) -> Any:
        """The Leaf where gradients of this cell end, or the node of the outside tensor through
        which they go on; None where the cell is computed, or its leaf is frozen.
        """
        rare = self.rare
        tensor = None if rare is None else rare.handle()
        node = None if tensor is None else tensor._node
        return None if node is self else node

    # ---- as the data of a tensor -----------------------------------------------------------------

    def realize(self) -> Any:
        """The up-to-date array; computed now if it is stale or was released."""
        state = self.state
        state.reads += 1
        if self.stale or self.array is None or state.foreign:
            refresh((self,))
        return self.array

    def settle(self, tensor: TensorBase | None) -> Any:
        """The up-to-date array, read-only: writes must go through the tensor."""
        if tensor is not None:
            if self.stale and not (self.read and self.order < self.state.written_first):
                warn_of_change(self, "is read")
            self.read = True  # from before the first write, it is read again and again
        array = self.realize()
        if tensor is not None and tensor._data is not self:  # others wrote to it: it is memory
            return concrete(tensor)
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
    state: GraphState,
    op: Op,
    inputs: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: np.dtype | None,
    device: device,
) -> Cell:  # the arguments of `Cell`
    """A new Cell without the cost of calling a type: recording a node takes a twelfth less time."""
    cell = Cell.__new__(Cell)
    _begin(cell, state, op, inputs, shape, dtype, device)
    return cell


def _begin(
    cell: Cell,
    state: GraphState,
    op: Op | None,
    inputs: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: np.dtype | None,
    device: device,
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
    """The cells among `inputs`, after `cell` has been added to their users."""
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


class SourceCell(Cell):
    """A cell whose value is set, not computed: an input, a parameter, or a tensor from outside the
    graph.
    """

    __slots__ = ("content", "follows", "rewritten")

    follows: Any  # the outside tensor whose memory this is; None where the source owns its array
    rewritten: int  # the version that a write outside of blocks to a plain tensor gave it, or 0
    content: bytes | None  # contents at the last read, of memory that others know, too

    def __init__(
        self, state: GraphState, shape: tuple[int, ...], dtype: np.dtype | None, array: Any = None
    ) -> None:
        there = CPU if array is None else device_of(array)
        _begin(self, state, None, (), shape, dtype, there)
        self.array = array
        self.stale = False
        self.seen = ()
        self.follows = self.content = None
        self.version = state.stamp()
        self.rewritten = 0
        if array is None:
            state.unset.append(self.reference)

    def follow(self, x: TensorBase) -> None:
        """Take the memory of `x`, a tensor outside the graph, as the value, and follow its
        changes.
        """
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
        """Note that others know the memory: its contents are compared before each read."""
        if self.content is None:
            self.content = self.array.tobytes()
            self.state.foreign.append(weakref.ref(self))

    def before_change(self) -> bool:
        """Save the value for the batch's undo log, before the memory is changed."""
        if self.follows is None:
            self.assert_there("write")
        undo = self.state.undo
        x = self.follows
        if undo is not None and self not in undo.sources:
            array = self.array
            kept = None if array is None else array.copy()
            followed = None if x is None else (x, x._data, x._node)
            undo.sources[self] = (kept, self.version, followed)
        if x is None or not is_kept(self.state, x):
            return False
        self.part()
        return True

    def part(self, contents: np.ndarray | None = None) -> None:
        """Follow the tensor no more: what was recorded of it keeps the contents that the memory has
        now, or these. They are copied where something living was recorded of them.
        """
        x = self.follows
        if x is None:
            return
        state = self.state
        with state.lock:
            if state.sources.get(id(x)) is self:
                del state.sources[id(x)]
            if x._changes is not None and x._changes.watchers is not None:
                live = [r for r in x._changes.watchers if r() is not self]
                x._changes.watchers = live or None
            memory, self.content, self.follows = self.array, None, None
            if self.rare is not None:
                self.handle = _nobody
            if not self.living_users():
                self.array = None
                return
            self.array = memory.copy("K") if contents is None else contents
            if x._node is not None:  # gradients go on where they went
                self.follows = TensorBase.__new__(type(x))
                self.follows._data, self.follows._node = self.array, x._node
                self.follows._changes = self.follows._leaf = self.follows._view = None
                self.handle = weakref.ref(self.follows)
            _forget_views(self, memory)

    def changed(self) -> None:
        """Mark users stale after the memory was changed by an in-place operation or an
        assignment.
        """
        with self.state.lock:
            if self.follows is not None:
                array = self.follows._data
                if isinstance(array, Cell):  # it became a node; what was recorded of it stays
                    self.state.sources.pop(id(self.follows), None)
                    self.follows = None
                    return
                self.array = array
            state = self.state
            self.version = state.changed_last = state.stamp()
            if self.leaf is not None:
                state.written_by_program(self.version)
            else:
                self.rewritten = self.version
            push(self)

    def assign(self, array: object) -> None:
        """Set the value to another array of the same shape and dtype."""
        with self.state.lock:
            self.assert_there("set")
            undo = self.state.undo
            if undo is not None and self not in undo.sources:
                undo.sources[self] = (self.array, self.version, None)
            self.array = array
            state = self.state
            self.version = state.set_last = state.changed_last = state.stamp()
            push(self)


def is_kept(state: GraphState, x: TensorBase) -> bool:
    """Whether a write here and now to `x`, a tensor outside of the graph, leaves what the graph has
    recorded of it as it was: inside a block of the graph, unless `x` is a leaf that requires grad.
    """
    return state in get_mode().blocks and (x._node is None or x._node is not x._leaf)


def _forget_views(source: Cell, memory: object) -> None:
    """Drop the values below `source` that show this memory; they are computed again."""
    stack: list[Cell] = [source]
    for cell in stack:
        for user in cell.living_users():
            released = user.array is None and user.version > 0  # what it led to may be there
            if released or (user.array is not None and _may_show(user.array, memory)):
                user.array = None
                stack.append(user)


def _may_show(array: object, memory: object) -> bool:
    parts = array if type(array) is tuple else (array,)
    return any(
        type(part) is not ndarray
        or type(memory) is not ndarray
        or np.may_share_memory(part, memory)
        for part in parts
    )


for _type in (Cell, SourceCell):
    register_backend(_type, None, lambda cell: cell.device)


# ---- change and read -----------------------------------------------------------------------------


def warn_of_change(cell: Cell, used: str) -> None:
    """Warn, once for each line, that a node's value is not that of its recording because a
    parameter was written to, unless the user has set an input since.
    """
    state = cell.state
    if not cell.order < state.written_last > state.set_last:
        return
    _, frame = users_frame()
    key = used, frame.f_code, frame.f_lineno
    if key not in state.said and is_changed_since(cell, cell.order):
        state.said.add(key)
        _warn(cell, used)


def note_branch(cell: Cell, frame: Any) -> None:
    """Note that the code of `frame` decides by the value of `cell`: what a program records next in
    a block of its graph may be what it decided.
    """
    state = cell.state
    if state in get_mode().blocks and not frame.f_code.co_filename.startswith(FOLDER):
        state.branch = cell, (frame.f_code, frame.f_lineno)


def warn_of_branch(state: GraphState) -> None:
    """Warn, once for each line, that what is recorded was decided by a value that can be set."""
    assert state.branch is not None
    cell, line = state.branch
    state.branch = None
    if ("branch", *line) in state.said or not any(map(can_be_set, upstream((cell,)))):
        return
    state.said.add(("branch", *line))
    warnings.warn(
        f"Graph: {line[0].co_filename}:{line[1]} decided by the value of {cell.label!r} what is "
        "recorded: the nodes stay as they are when another value is set; use where(), or read "
        "outside of the block; said once for each line",
        stacklevel=users_frame()[0],
    )


def warn_of_read(cell: Cell) -> None:
    """Warn, once for each line, that a function of this package has read a node's value, on which
    what it records does not depend.
    """
    _, frame = users_frame()
    key = "read", frame.f_code, frame.f_lineno
    if key in cell.state.said or not any(map(can_be_set, upstream((cell,)))):
        return
    cell.state.said.add(key)
    warnings.warn(
        f"Graph: the value that {cell.label!r} has now was read as an argument: what is recorded "
        "with it does not follow when another is set; use a function that takes a tensor there "
        "(index_select, where, a mask), or record it again; said once for each line",
        stacklevel=users_frame()[0],
    )


def can_be_set(cell: Cell) -> bool:
    """Whether a cell is an input or a parameter of the graph."""
    tensor = cell.handle() if cell.op is None else None
    return tensor is not None and tensor._data is cell


def warn_of_statistics(cell: Cell) -> None:
    """Warn, once for each line, that running statistics move this once, outside of a block."""
    state = cell.state
    _, frame = users_frame()
    key = "statistics", frame.f_code, frame.f_lineno
    if state not in get_mode().blocks and key not in state.said:
        state.said.add(key)
        warnings.warn(
            "Graph: running statistics move towards the values that a node has now, and not again "
            "when these change, since the module is called outside of `with graph:`; call it "
            "inside; said once for each line",
            stacklevel=users_frame()[0],
        )


def warn_of_plain(cell: Cell, by: str) -> None:
    """Warn, once for each line, that the result of something that is not recorded is plain."""
    _, frame = users_frame()
    key = by, frame.f_code, frame.f_lineno
    if key not in cell.state.said:
        cell.state.said.add(key)
        warnings.warn(
            f"Graph: {by} computed with the value that {cell.label!r} has now: the result is no "
            "node, and does not follow it; use functions of adjoint (of x.numpy() it is "
            "plain without a word); said once for each line",
            stacklevel=users_frame()[0],
        )


def is_changed_since(cell: Cell, order: int) -> bool:
    """Whether a source that `cell` depends on has got another value since."""
    if cell.state.changed_last <= order:
        return False
    if isinstance(cell, SourceCell):
        return cell.version > order
    stack = [cell]
    met = {cell}
    for each in stack:
        seen = each.seen if each.stale else None  # what is computed anew says nothing of before
        for i, x in enumerate(each.cells):
            if isinstance(x, SourceCell):
                if x.version > order:
                    return True
            elif x not in met and (x.stale or seen is None or x.version != seen[i]):
                met.add(x)
                stack.append(x)
    return False


def _warn(cell: Cell, used: str) -> None:
    line = (cell.about or {}).get("line")
    where = f"at {line[0]}:{line[1]}" if line else "before (ad.Graph(lines=True) says where)"
    warnings.warn(
        f"Graph: {cell.label!r} of shape {tuple(cell.shape)} was recorded {where}, and {used} "
        "after a tensor that it depends on was changed: it shows what that gives now. For the "
        "value that it had, record it inside `with graph.step():`, or take node.snapshot() before "
        "the change (graph.peek(node) is what was computed last); said once for each line",
        stacklevel=users_frame()[0],
    )


def users_frame() -> tuple[int, Any]:
    """The stack frame of the user's line, and its `stacklevel` for a warning raised by the
    caller.
    """
    frame = sys._getframe()
    level = 0 if frame.f_code.co_name == "users_frame" else 1  # compiled, it has no frame
    while frame.f_back is not None and frame.f_code.co_filename.startswith(FOLDER):
        level, frame = level + 1, frame.f_back
    return level, frame


def push(changed: Cell) -> None:
    """Mark the cells that depend on `changed` stale; stops at cells that are stale already."""
    reached = [changed]
    for cell in reached:
        for reference in cell.users:
            user = reference()
            if user is not None and not user.stale:
                user.stale = True
                reached.append(user)


def missing_of(cells: tuple[Cell, ...], promised: dict[Cell, None]) -> list[Cell]:
    """Inputs of something, among `cells`, that must be computed before it."""
    missing: list[Cell] = []
    for cell in cells:
        if cell.stale or (cell.array is None and cell not in promised):
            missing.append(cell)
    return missing


def versions_of(cells: tuple[Cell, ...]) -> tuple[int, ...]:
    """The versions of `cells`."""
    versions: list[int] = []
    for cell in cells:
        versions.append(cell.version)
    return tuple(versions)


def pass_over(references: tuple[weakref.ref[Cell], ...]) -> list[Cell]:
    """Mark those of these cells that are stale as computed, without their values; inputs come
    before users. Returns them.
    """
    passed: list[Cell] = []
    for reference in references:
        cell = reference()
        if cell is not None and cell.stale:
            cell.array = None
            cell.seen = versions_of(cell.cells)
            cell.stale = False
            cell.version += 1
            passed.append(cell)
    return passed


def notice_foreign_writes(state: GraphState) -> None:
    """Detect what others wrote to memory that is followed here. Memory that nobody else holds any
    more is not checked again.
    """
    from .writes import show_memory  # which knows of cells

    still = []
    with state.lock:
        for reference in state.foreign:
            source = reference()
            if source is None or source.follows is None or source.content is None:
                continue
            content = source.array.tobytes()
            if content != source.content:
                x = source.follows
                if is_kept(state, x):
                    before = np.frombuffer(source.content, source.dtype).reshape(source.shape)
                    source.part(before)
                    show_memory(x._changes, True)
                    continue
                source.content = content
                source.changed()
            if source.array.base is not None or _holders(source) > _TENSOR_AND_SOURCE:
                still.append(reference)
            else:
                source.content = None
        state.foreign = still


def _holders(source: SourceCell) -> int:
    return sys.getrefcount(source.array)


def _tensor_and_source() -> int:
    """The count of `_holders` for an array that only a tensor and its source hold."""
    source = SourceCell(GraphState(), (), None, np.empty(()))
    source.follows = TensorBase()
    source.follows._data = source.array
    return _holders(source)


_TENSOR_AND_SOURCE = _tensor_and_source()
any_graph[0] = False


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
    needed = [cell for cell in targets if cell.stale or cell.array is None]
    if not needed:
        return
    with state.lock:
        if state.edited and state.before_read is not None:
            state.before_read(state, needed)
        if state.before_run is not None:
            state.before_run(state, needed)
        mode: Mode = get_mode()
        quietly(_refresh, state, needed, mode.observer)


def _refresh(state: GraphState, needed: list[Cell], profiler: Observer | None) -> None:
    chain = Chain(state, profiler)
    try:
        _walk(state, needed, chain, profiler)
        chain.compute()
    finally:
        chain.forget()


def _walk(state: GraphState, needed: list[Cell], chain: Chain, profiler: Observer | None) -> None:
    """Compute the cells that `needed` depend on, or promise them to the chain."""
    observer = state.observer
    chaining = observer is None and core_compute.chained is not None
    promised = chain.cells
    clock = time.perf_counter_ns
    stack = list(needed)
    began = 0
    fleeting = state.fleeting
    if fleeting:
        for cell in needed:
            cell.fleeting = False
    while stack:
        cell = stack[-1]
        cells = cell.cells
        stale = cell.stale
        ready = True
        rare = cell.rare
        if rare is not None and rare.given and rare.region.usable and profiler is None:
            region = rare.region
            if stale or cell.array is None:
                missing = region.missing(promised)
                if missing:
                    stack.extend(missing)
                    continue
                if region.is_due(cell):
                    chain.compute()
                    region.run(state)
                    stack.pop()
                    continue
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
                if cell.array is not None or cell not in needed:
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
        cutoff = rare is not None and rare.cutoff
        if chaining:
            waiting = len(promised)
            if not (cell.fleeting or cutoff) and chain.takes(cell, cell.order):
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
            if cutoff and _is_same(old, result, cell.op):
                if observer is not None:
                    observer.on_cut(cell)
            else:
                cell.version += 1
        if fleeting:
            arrays, array, old, result = [], None, None, None  # nothing here keeps them
            cell.let_inputs_go()


def _profiled(profiler: Observer, op: Op, arrays: list[Any]) -> Any:
    return profiler.compute(op, arrays, run)


def _is_same(old: object, new: object, op: Op) -> bool:
    """Whether a recomputed value equals the former one bit for bit. A value that may share memory
    that was changed in place cannot be compared.
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
    """Whether `view`, computed from `cell`, shares its memory. Both are computed for this test,
    which does not count as reading their values.
    """
    fleeting = cell.fleeting, view.fleeting
    memory = cell.realize()  # first, and held: it may go when the view is computed
    shared = np.may_share_memory(memory, view.realize())
    cell.fleeting, view.fleeting = fleeting
    view.let_inputs_go()
    return shared


def release(cells: Iterable[Cell]) -> None:
    """Drop the arrays of computed `cells`; they are recomputed when needed."""
    for cell in cells:
        if cell.op is not None:
            cell.array = None
            rare = cell.rare
            if rare is not None and rare.given:
                rare.region.tape = None


# ---- walks ---------------------------------------------------------------------------------------


def upstream(targets: Iterable[Cell]) -> list[Cell]:
    """`targets` and all cells that they depend on, inputs before users."""
    return reached_from(targets, lambda cell: cell.cells)


def wants_gradient(cell: Cell) -> bool:
    """Whether `cell` depends on a leaf that requires grad."""
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
    """`starts` and all cells that depend on them, inputs before users."""
    return reached_from(starts, Cell.living_users)


def reached_from(starts: Iterable[Cell], next_to: Callable[[Cell], Iterable[Cell]]) -> list[Cell]:
    """`starts` and all cells reachable from them by `next_to`, inputs before users."""
    reached: set[Cell] = set()
    stack = list(starts)
    while stack:
        cell = stack.pop()
        if cell not in reached:
            reached.add(cell)
            stack.extend(next_to(cell))
    return sorted(reached, key=lambda cell: cell.order)


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
        if isinstance(cell, SourceCell) and cell.stale:
            raise _broken(cell, "is a source and stale")


def _broken(cell: Cell, what: str) -> GraphError:
    return GraphError(f"check_invariants: {cell!r} {what}")
