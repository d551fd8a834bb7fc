"""What a graph does again for each new value: draws take other numbers, calls of modules write
their buffers.

A cell may carry repeats. One is due where the cell is to be computed and a source above it has
changed since the repeat was last done: so a value that was released and is computed again has the
numbers that it had. A walk does what is due beforehand, in the order of the program, so that random
numbers are numbered and buffers written as eager execution does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..core import policy
from ..core.mode import MODE, mode_with
from .cells import Cell, GraphState, is_changed_since, push, refresh, users_frame
from .tensors import wrap

if TYPE_CHECKING:
    from ..core.protocols import HoldsBuffers, Numbered
    from ..core.tensor_base import TensorBase

never = -1


class Repeat:
    """Something that is done once for each new value of a cell, or of several together."""

    __slots__ = ("inputs", "last")

    def __init__(self, last: int) -> None:
        self.last = last  # when it was last done; never: it is due with the first value
        self.inputs: dict[int, tuple[Cell, ...]] = {}  # of its cells, by `id`

    def may_be_due(self, cell: Cell) -> bool:
        """Whether it is to be done before `cell` is computed, for all that a glance tells."""
        return cell.stale and (
            self.inputs.get(id(cell)) is not cell.cells or cell.state.changed_last > self.last
        )

    def is_due(self, cell: Cell, changes: bool) -> bool:
        """Whether it is to be done before `cell`, which is stale, is computed; `changes`: its
        inputs will have other versions than those that it has seen.
        """
        if self.inputs.get(id(cell)) is not cell.cells:  # it was edited
            return True
        if not changes or cell.state.changed_last <= self.last:
            return False
        state = cell.state
        if cell.seen is None or len(self.inputs) > 1 or self.last < state.rolled_back:
            return is_changed_since(cell, self.last)
        if not cell.cutoff:
            return True
        refresh(cell.cells)  # which may have the values that they had
        return bool(cell.seen != tuple([x.version for x in cell.cells]))

    def run(self, cell: Cell) -> None:
        """Do it, before `cell` is computed."""
        raise NotImplementedError

    def copied(self, copy: GraphCopy) -> Repeat | None:
        """Return the repeat of a copy of the graph; None where that lacks what it needs."""
        raise NotImplementedError


class GraphCopy(NamedTuple):
    """A copy of a graph, as its repeats need it."""

    cells: Mapping[Cell, Cell]
    generators: tuple[Numbered | None, Numbered | None]  # the graph's own and the copy's
    buffer: Callable[[TensorBase], TensorBase] | None  # its own of another; None: it shares them


def attach(cell: Cell, repeat: Repeat) -> None:
    """Do `repeat` again for each new value of `cell`."""
    state = cell.state
    if not cell.repeats:
        repeating = state.repeating
        if len(repeating) > 16 and len(repeating) & (len(repeating) - 1) == 0:
            repeating[:] = [each for each in repeating if each() is not None]
        repeating.append(cell.reference)
    repeat.inputs[id(cell)] = cell.cells
    cell.repeats = (*cell.repeats, repeat)
    state.before_run = before_run


def has_values(state: GraphState, cells: Iterable[Cell]) -> bool:
    """Whether all inputs that these cells depend on have been given values."""
    state.unset[:] = [each for each in state.unset if _is_unset(each())]
    if not state.unset:
        return True
    stack, met = list(cells), set(cells)
    for cell in stack:
        if cell.op is None and cell.array is None:
            return False
        for above in cell.cells:
            if above not in met:
                met.add(above)
                stack.append(above)
    return True


def _is_unset(source: Cell | None) -> bool:
    return source is not None and source.array is None


def before_run(state: GraphState, needed: list[Cell]) -> None:
    """Do what is due before a walk that computes `needed`."""
    if not _may_be_due(state):
        return
    repeating = _repeating_above(state, needed)
    changing = _changing(repeating)
    state.before_run = None  # what is done computes cells
    try:
        for cell in repeating:
            for repeat in cell.repeats:
                if repeat.is_due(cell, cell in changing):
                    if state.undo is not None:
                        state.undo.edits.append(
                            partial(_undo, cell, repeat, cell.seen, repeat.last)
                        )
                    repeat.run(cell)
                    repeat.inputs[id(cell)] = cell.cells
                    repeat.last = state.stamp()
    finally:
        state.before_run = before_run


def _repeating_above(state: GraphState, needed: list[Cell]) -> list[Cell]:
    """The stale cells with repeats among `needed` and those that they depend on, in the order of
    the program.
    """
    repeating: list[Cell] = []
    stale: list[Cell] = []
    kept = None
    planned = False
    for cell in needed:
        if cell.stale:
            stale.append(cell)
        if cell.rare is not None and cell.rare.planned:
            planned = True
    met = set(stale)
    for cell in stale:
        if cell.rare is not None and cell.rare.repeats:
            repeating.append(cell)
        for above in cell.cells:
            if above.stale:
                if above not in met:
                    met.add(above)
                    stale.append(above)
            elif not above.cells and above.op is not None and above.order < state.set_last:
                kept = above
    if kept is not None and planned:
        _warn_of_kept_draw(kept)
    repeating.sort(key=_order)
    return repeating


def _may_be_due(state: GraphState) -> bool:
    """Whether anything of the graph may be due, whatever is computed."""
    if len(state.repeating) > policy.REPEATS_SEEN:
        return True
    for reference in state.repeating:
        cell = reference()
        if cell is not None:
            for repeat in cell.repeats:
                if repeat.may_be_due(cell):
                    return True
    return False


_order = attrgetter("order")


def _changing(repeating: list[Cell]) -> set[Cell]:
    """Those of these cells, and of the stale ones above them, whose inputs will have other versions
    than they have seen.
    """
    stale = list(repeating)
    met = set(stale)
    for cell in stale:
        for above in cell.cells:
            if above.stale and above not in met:
                met.add(above)
                stale.append(above)
    stale.sort(key=_order)
    changing: set[Cell] = set()
    for cell in stale:
        seen = cell.seen
        if seen is None or len(seen) != len(cell.cells):
            changing.add(cell)
            continue
        for i, above in enumerate(cell.cells):
            if above in changing if above.stale else above.version != seen[i]:
                changing.add(cell)
                break
    return changing


def _undo(cell: Cell, repeat: Repeat, seen: tuple[int, ...] | None, last: int) -> None:
    """Forget that a repeat was done, in a batch that fails: the cell has the value of before."""
    repeat.last = last
    cell.seen, cell.array, cell.stale = seen, None, True
    cell.version += 1


# ---- draws ---------------------------------------------------------------------------------------


class NewNumbers(Repeat):
    """The numbers of a draw that is made for a tensor: those of its generator's next draw."""

    __slots__ = ("generator",)

    def __init__(self, last: int, generator: Numbered) -> None:
        super().__init__(last)
        self.generator = generator

    def run(self, cell: Cell) -> None:
        """Give the cell's op other numbers."""
        if not cell.state.draws_frozen or self.last == never:
            op: Any = cell.op
            if cell.state.undo is not None:
                cell.state.undo.edits.append(partial(setattr, cell, "op", op))
            cell.op = op.renumbered(*self.generator.next_draw())

    def copied(self, copy: GraphCopy) -> Repeat:
        """Draws from the same generator, or from the copy's own."""
        own, other = copy.generators
        generator = self.generator
        if other is not None and generator is own:
            generator = other
        return NewNumbers(self.last, generator)


class KeptDraw(Repeat):
    """A draw that is made for no tensor, and stays."""

    __slots__ = ()

    def may_be_due(self, cell: Cell) -> bool:
        """Whether it is to be said that it stays: an input was set since it was made."""
        return cell.order < cell.state.set_last and "kept draw" not in cell.state.said

    def is_due(self, cell: Cell, changes: bool) -> bool:
        """Never: it is made once."""
        return False

    def copied(self, copy: GraphCopy) -> Repeat:
        """Return the same for the copy."""
        return KeptDraw(never)


def note_kept_draw(cell: Cell) -> None:
    """Note a draw that is made for no tensor, and stays."""
    attach(cell, KeptDraw(never))


def _warn_of_kept_draw(cell: Cell) -> None:
    """Warn, once per graph, of a draw for no tensor, which stays the same when an input is set and
    gradients are computed again.
    """
    state = cell.state
    if not getattr(cell.op, "drawn", False) or "kept draw" in state.said:
        return
    state.said.add("kept draw")
    warnings.warn(
        f"Graph: {cell.label!r} of shape {tuple(cell.shape)} was drawn for no tensor, so it keeps "
        "its numbers whatever is set or trained; draw it for a tensor (rand_like, dropout), or "
        "call graph.redraw() (graph.freeze_draws() says that it is meant); said once for each "
        "graph",
        stacklevel=users_frame()[0],
    )


# ---- buffers -------------------------------------------------------------------------------------


class BufferWrites(Repeat):
    """The writes of a module's call to buffers, computed from what they hold by then."""

    __slots__ = ("writes",)

    def __init__(self, last: int, writes: list[BufferWrite]) -> None:
        super().__init__(last)
        self.writes = writes

    def run(self, cell: Cell) -> None:
        """Compute the new contents from the present ones, then write them all."""
        buffers: list[tuple[TensorBase, Cell]] = []
        for write in self.writes:
            buffer = write.buffer()
            if buffer is None:
                continue
            if write.base is not None:
                write.base.array = buffer._data.copy()
                write.base.version = cell.state.changed_last = cell.state.stamp()
                push(write.base)
            buffers.append((buffer, write.value))
        refresh([value for _, value in buffers])
        if cell.state.undo is not None:
            for buffer, _ in buffers:
                cell.state.undo.edits.append(partial(_write, [(buffer, buffer._data.copy())]))
        _write([(buffer, value.array) for buffer, value in buffers])

    def copied(self, copy: GraphCopy) -> Repeat | None:
        """Return these writes by the copied cells, to the same buffers or to copies of them."""
        writes: list[BufferWrite] = []
        for write in self.writes:
            base = None if write.base is None else copy.cells.get(write.base)
            value = copy.cells.get(write.value)
            buffer = write.buffer()
            if value is None or buffer is None or (base is None) != (write.base is None):
                return None
            own = None if copy.buffer is None else copy.buffer(buffer)
            writes.append(BufferWrite(write.module, write.name, base, value, own))
        return BufferWrites(self.last, writes)


def _write(buffers: list[tuple[Any, Any]]) -> None:
    """Set the contents of buffers: what follows them is stale then."""
    mode = MODE.get()
    try:
        MODE.set(mode_with(mode, executor=None, blocks=(), grad=False, step=None))
        for buffer, contents in buffers:
            buffer.copy_(wrap(contents))
    finally:
        MODE.set(mode)


class BufferWrite:
    """A write to a buffer: `value` is computed from `base`, the source of what it held before."""

    __slots__ = ("base", "module", "name", "own", "value")

    def __init__(
        self,
        module: ref[HoldsBuffers],
        name: str,
        base: Cell | None,
        value: Cell,
        own: TensorBase | None = None,
    ) -> None:
        self.module = module
        self.name = name
        self.base = base
        self.value = value
        self.own = own  # a tensor to write instead

    def buffer(self) -> TensorBase | None:
        """The tensor to write; None where its module has none by that name any more."""
        module = self.module()
        if self.own is not None or module is None:
            return self.own
        return module._buffers.get(self.name)


# ---- modes ---------------------------------------------------------------------------------------


class RecordedMode(Repeat):
    """The mode, training or evaluation, in which a call of a module was recorded, whose nodes are
    the same in both.
    """

    __slots__ = ("module", "training")

    def __init__(self, module: ref[HoldsBuffers], training: bool) -> None:
        super().__init__(never)
        self.module = module
        self.training = training

    def may_be_due(self, cell: Cell) -> bool:
        """Whether the module is in the other mode now."""
        module = self.module()
        return module is not None and module.training is not self.training

    def is_due(self, cell: Cell, changes: bool) -> bool:
        """Whether the module is in the other mode now."""
        return self.may_be_due(cell)

    def run(self, cell: Cell) -> None:
        """Warn, once for each mode of a module."""
        key = "mode", self.module, self.training
        if key in cell.state.said:
            return
        cell.state.said.add(key)
        recorded, now = ("training", "evaluation")[:: 1 if self.training else -1]
        warnings.warn(
            f"Graph: nodes of {type(self.module()).__name__} were recorded in {recorded} mode, and "
            f"are computed while it is in {now} mode: they compute what {recorded} computes; call "
            f"the module again inside `with graph:` for nodes of {now} mode, and read those",
            stacklevel=users_frame()[0],
        )

    def copied(self, copy: GraphCopy) -> Repeat:
        """Return the module's mode again."""
        return RecordedMode(self.module, self.training)


def mark_stale(state: GraphState) -> None:
    """Let the next read look at the modes in which nodes were recorded."""
    for reference in state.repeating:
        cell = reference()
        if cell is not None and any(isinstance(each, RecordedMode) for each in cell.repeats):
            cell.stale, cell.seen = True, None
            push(cell)
