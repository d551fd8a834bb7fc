"""What a call of a program does, on memory that stays where it is; compiled by Cython."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backends.native.runtime.pool import default_pool
from ..core.dtype import get_default_dtype
from ..core.mode import MODE
from ..eager.arrays import address
from ..eager.elements import are_below, copies, owner
from ..program.standing import have_gradients, have_memory, want_gradients
from .capture import CAPTURING
from .handover import copy_all, give, move_all, take_all, take_gradients, write_all
from .signature import Signature

get_mode = MODE.get
OTHER = object()  # of a call that is not like the last one


class Round:
    """A part of the program, what may be wrong afterwards, and the optimizer's step behind it."""

    __slots__ = ("copies", "errors", "part", "step", "undone", "work", "written")

    def __init__(
        self, part: Any, errors: list[Any], step: Any, undone: bool, written: bool
    ) -> None:
        self.part = part
        self.work = [*part.checks, *part.calls]  # what it calls where nobody observes
        self.copies = part.copies
        self.errors = errors
        self.step = step
        self.undone = undone  # whether what comes later may fail
        self.written = written  # whether the step may have written when it is undone


class Course:
    """A call, from the arguments to what is returned."""

    __slots__ = (
        "_added", "_bound", "_copies", "_dropped", "_general", "_given_writes", "_guards",
        "_indices", "_inputs", "_landing", "_memory", "_movers", "_options", "_owned", "_owning",
        "_places", "_presence", "_program", "_results", "_returned", "_rounds", "_settled", "_stay",
        "_stay_if_sound", "_steps", "_streams", "_targets", "_threads", "_wanting", "_writes",
    )  # fmt: skip

    def __init__(self, program: Any, rounds: list[Round], threads: int) -> None:
        """`program` is a `Compiled` that has been connected to memory; its products were cut for so
        many threads.
        """
        captured = program.captured
        self._program = program
        self._rounds = rounds
        self._bound = program.bound
        self._wanting, self._presence = program.wanting, captured.presence
        self._steps, self._guards = program.steps, program.guards
        self._general = bool(program.owned or captured.alike or captured.looked)
        self._threads = threads
        self._owned = [
            (x, x._leaf.grad) for x in program.owned.values() if x._leaf.grad._node is not None
        ]
        self._owning, self._targets = program.owning, program.targets
        self._added = program.added
        self._places: list[int] = []  # where these gradients were
        self._landing, self._movers = program.landing, program.movers
        self._stay, self._stay_if_sound = program.stay, program.stay_if_sound
        self._indices = program.indices
        self._dropped = captured.dropped
        self._memory = program.memory
        self._inputs = program.inputs
        self._streams = captured.streams
        self._returned = program.returned
        self._results, self._options = captured.returned.results, captured.options
        self._writes, self._given_writes = program.writes, program.given_writes
        self._copies = program.copies
        self._settled = False  # whether all steps have been made once

    def stands(self) -> bool:
        """Whether all that the program goes by is the same, each object itself; False, too, where
        other questions are to be asked.
        """
        return not self._general and stands(
            self._wanting, self._bound, self._presence, self._steps, self._guards
        )

    def is_over(self) -> bool:
        """Whether a tensor has other memory than it had, or products were cut for other threads."""
        if self._threads != default_pool().num_threads or not have_memory(self._bound):
            return True
        for x, gradient in self._owned:
            if x._leaf.grad is not gradient:
                return True
        for x in self._owning:
            if x._leaf.grad._node is not None:
                return True
        other = False
        for stream in self._streams:
            other = other or stream.is_other()
        return other

    def run(self, arguments: list[Any], observer: Any, lease: Any, numbers: Sequence[Any]) -> Any:
        """What the function returns."""
        memory = self._memory
        if memory.asked or (memory.written and _show(arguments, memory.written)):
            memory.check(arguments)
        if self._owning:
            self._take_gradients(arguments)
        take_all(self._inputs, arguments)
        landing = self._landing
        stay = self._stay
        if self._indices and are_sound(arguments, self._indices):
            stay = self._stay_if_sound
        landing.prepare(stay)
        move_all(self._movers, landing.tensors)
        for stream in self._streams:
            stream.begin()
        try:
            self._compute(observer, numbers)
        except BaseException:
            for stream in self._streams:
                stream.undo()
            raise
        arrays = copies(self._returned)  # which may show what is written now
        mode = get_mode()
        profile = mode.observer
        if profile is not None:
            profile.made(arrays)
        program, given = self._program, self._results
        nodes = None if lease is None else program._history(arguments, lease, arrays)
        results = given.wrapped(arrays, nodes, program.ahead, arguments)
        staged: list[Any] = []
        for x, source in self._writes:
            staged.append((x, source.copy()))
        for x, source in self._added:
            staged.append((x._leaf.grad, source.copy()))
        for n, source in self._given_writes:
            staged.append((arguments[n], source.copy()))
        with CAPTURING:
            write_all(staged)
            # Apart, since variables here would hold gradients.
            copy_all([(landing.tensors[k]._data, source) for k, source in self._copies])
            give(landing.leaves, landing.tensors, self._dropped)
        for target in self._targets:
            target.given = None
        return given.rebuilt(results, arguments, numbers[self._options :])

    def _take_gradients(self, arguments: list[Any]) -> None:
        """Read gradients where they are now."""
        shown = take_gradients(self._owning, self._targets, arguments)
        places = [address(x._leaf.grad._data) for x in self._owning]
        if shown or places != self._places:
            self._program.assert_gradients_apart(arguments)
            self._places = places

    def _compute(self, observer: Any, numbers: Sequence[Any]) -> None:
        """Run the parts, and the optimizers' steps between them."""
        undo: list[Any] = []
        if not self._settled:
            undo.append(self._program.restoring_gradients())
        try:
            for each in self._rounds:
                if observer is None:
                    for call in each.work:
                        call()
                    copy_all(each.copies)
                else:
                    each.part.run(observer)
                for wrong, error in each.errors:
                    if wrong.item():
                        raise error()
                step = each.step
                if step is None:
                    continue
                if each.undone or not self._settled:  # a step's own error comes before it writes
                    undo.append(step.restoring(each.written))
                if observer is None:
                    step.run(numbers)
                else:
                    name = type(step.optimizer).__name__
                    run = partial(step.run, numbers)
                    observer.around(f"Optimizer.step#{name}.step", run, (), {})
        except BaseException:
            for restore in reversed(undo):
                restore()
            raise
        self._settled = True


class Entry:
    """The program that a function ran last, for a call that is like that one in all that counts.

    Another way than the general one, which finds the program among many, since half of a small
    step's time is what is asked before and behind its kernels.
    """

    __slots__ = ("_dtype", "_key", "_leaves", "_mode", "_program")

    def __init__(self, program: Any, mode: Any, key: Sequence[Any], leaves: bool) -> None:
        self._program, self._mode = program, mode
        self._key, self._leaves = list(key), leaves
        self._dtype = get_default_dtype()

    def run(self, mode: Any, args: Any, kwargs: Any) -> Any:
        """What the function returns; OTHER, with nothing done, where the call is another one or
        not all is as it was.
        """
        if mode is not self._mode or get_default_dtype() is not self._dtype:
            return OTHER
        signature = Signature(self._leaves)
        signature.add_all(args)
        if kwargs:
            signature.add(kwargs)
        if not signature.host or signature.key != self._key:
            return OTHER
        with CAPTURING:  # another thread's tensors may hold symbols
            pass
        program = self._program
        course: Course | None = program.course
        if course is None or not course.stands():
            return OTHER
        with program:
            if course is not program.course or course.is_over():
                return OTHER
            return course.run(signature.tensors, None, None, ())[0]


def stands(
    wanting: list[Any], bound: list[Any], presence: list[Any], steps: list[Any], guards: Any
) -> bool:
    """Whether all that a program goes by is the same, each object itself."""
    if want_gradients(wanting) is not None or not have_memory(bound):
        return False
    if not have_gradients(presence):
        return False
    for step in steps:
        states, options = step.held
        if not (states.hold() and options.hold()) and not step.fits():
            return False
    return bool(guards.hold())


def are_sound(arguments: Sequence[Any], indices: list[Any]) -> bool:
    """Whether all elements of some arguments, by number, are indices below a bound."""
    for n, below in indices:
        array = arguments[n]._data
        if array.size and (array.dtype != _INT64 or not are_below(array, below)):
            return False
    return True


_INT64 = np.dtype(np.int64)


def _show(tensors: list[Any], known: dict[int, Any]) -> bool:
    """Whether one of them may show memory that is known by what owns it."""
    for x in tensors:
        place = id(owner(x._data))
        if place in known:
            return True
    return False
