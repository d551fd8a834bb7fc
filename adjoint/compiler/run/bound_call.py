"""Executes one call of a compiled program whose buffers are already bound; compiled by Cython."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.native.runtime.launch_list import LaunchList as Launches
from ...backends.native.runtime.pool import default_pool
from ...core import fork_safety
from ...core.arrays import address
from ...core.dtype import get_default_dtype
from ...core.elements import are_below, copies, owner
from ...core.errors import Unsupported
from ...core.mode import MODE
from ...core.signal_deferral import DEFERRED, complete
from ..capture.step_capture import CAPTURING
from ..guards.identity_guards import have_gradients, have_memory, want_gradients
from ..guards.signature import Signature
from .bindings import copy_all, give, move_all, take_all, take_gradients, write_all

if TYPE_CHECKING:
    from ...autograd.protocols import StepObserver
    from ...core.mode import Mode
    from ..capture.backward import SavedActivations
    from .segment import Segment
    from .step import CompiledStep

get_mode = MODE.get
OTHER = object()  # result of the fast path for a call that is not like the last one


class BoundSegment:
    """A segment of the program, its run-time checks, and the optimizer's step behind it."""

    __slots__ = ("checks", "copies", "errors", "part", "step", "undone", "work", "written")

    def __init__(
        self, part: Segment, errors: list[Any], step: Any, undone: bool, written: bool
    ) -> None:
        self.part = part
        self.checks = part.checks  # calls in Python, before the segment has written anything
        self.work = list(part.calls)  # calls of a run without an observer
        self.copies = part.copies
        self.errors = errors
        self.step = step
        self.undone = undone  # whether what comes later may fail
        self.written = written  # whether the step may have written when it is undone


class BoundCall:
    """A bound call: takes arguments, runs all segments, and returns the results."""

    __slots__ = (
        "_bindings", "_bound", "_dropped", "_general", "_guards", "_indices", "_landing", "_memory",
        "_native", "_options", "_owned", "_places", "_presence", "_program", "_results", "_rounds",
        "_settled", "_stay", "_stay_if_sound", "_steps", "_streams", "_threads", "_wanting",
    )  # fmt: skip

    def __init__(self, program: CompiledStep, rounds: list[BoundSegment], threads: int) -> None:
        """`program` is a `Compiled` that has been connected to memory; its matrix products were
        split for `threads` threads.
        """
        captured = program.captured
        effects, assumptions = captured.effects, captured.assumptions
        self._program = program
        self._rounds = rounds
        self._bound = program.bound
        self._wanting, self._presence = program.wanting, assumptions.presence
        self._steps, self._guards = program.steps, program.guards
        self._general = bool(program.owned or assumptions.alike or assumptions.looked)
        self._threads = threads
        self._owned = [
            (x, x._leaf.grad) for x in program.owned.values() if x._leaf.grad._node is not None
        ]
        self._bindings = program.bindings
        self._places: list[int] = []  # addresses of these gradients in the last call
        self._landing = program.landing
        self._stay, self._stay_if_sound = program.stay, program.stay_if_sound
        self._indices = program.indices
        self._dropped = effects.dropped
        self._memory = program.memory
        self._streams = captured.inputs.streams
        self._results, self._options = captured.outputs.results, effects.options
        self._settled = False  # whether all steps have been made once
        self._native = is_native(rounds)

    def stands(self) -> bool:
        """Identity guards: whether every object that the program depends on is the same as before.
        False, too, where the general guards must be asked.
        """
        return not self._general and stands(
            self._wanting, self._bound, self._presence, self._steps, self._guards
        )

    def is_over(self) -> bool:
        """Whether the bindings are invalid: a tensor, gradient or generator was replaced, or the
        number of threads has changed.
        """
        if self._threads != default_pool().num_threads or not have_memory(self._bound):
            return True
        for x, gradient in self._owned:
            if x._leaf.grad is not gradient:
                return True
        for x in self._bindings.owning:
            if x._leaf.grad._node is not None:
                return True
        other = False
        for stream in self._streams:
            other = other or stream.is_other()
        return other

    def run(
        self,
        arguments: list[Any],
        observer: StepObserver | None,
        lease: SavedActivations | None,
        numbers: Sequence[Any],
    ) -> tuple[Any, Any]:
        """Run the program on `arguments`, and return what the function returns."""
        memory = self._memory
        if memory.asked or (memory.written and _show(arguments, memory.written)):
            memory.check(arguments)
        bindings, landing = self._bindings, self._landing
        if bindings.owning:
            self._take_gradients(arguments)
        take_all(bindings.arguments, arguments)
        stay = self._stay
        if self._indices and are_sound(arguments, self._indices):
            stay = self._stay_if_sound
        landing.prepare(stay)
        move_all(bindings.movers, landing.tensors)
        prepared = self._native and self._settled and observer is None and lease is None
        if prepared and not self._prepare():
            prepared = False
        # Where Python code runs between what is written first and last, no handler of a signal may.
        deferred = not prepared and len(self._steps) > 0
        if deferred:
            DEFERRED.begin()
        try:
            return self._carry_out(arguments, observer, lease, numbers, prepared)
        finally:
            if deferred:
                DEFERRED.end()

    def _prepare(self) -> bool:
        """Make the first checks, and prepare all optimizers' steps, so that only native code is
        left; whether all could be.
        """
        first: BoundSegment = self._rounds[0]
        for check in first.checks:
            check()
        for each in self._rounds:
            step = each.step
            if step is not None and (step.counted is None or not step.counted.prepare()):
                return False
        return True

    def _carry_out(
        self, arguments: list[Any], observer: StepObserver | None, lease: SavedActivations | None,
        numbers: Sequence[Any], prepared: bool,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Compute, write, and give what the function returns: all of it, or nothing is written."""
        bindings, landing = self._bindings, self._landing
        program, results_form = self._program, self._results
        try:
            for stream in self._streams:
                stream.begin()
            if prepared:
                self._compute_natively()
            else:
                self._compute(observer, numbers)
            arrays = copies(bindings.results)  # results may show memory that is written below
            mode = get_mode()
            profile = mode.observer
            if profile is not None:
                profile.made(arrays)
            nodes = None if lease is None else program._history(arguments, lease, arrays)
            results = results_form.wrapped(arrays, nodes, program.ahead, arguments)
            staged = bindings.staged(arguments)
        except BaseException:
            complete([stream.undo for stream in self._streams])
            raise
        with CAPTURING:
            write_all(staged)
            # Apart, since variables here would hold gradients.
            copy_all([(landing.tensors[k]._data, source) for k, source in bindings.copies])
            give(landing.leaves, landing.tensors, self._dropped)
        for target in bindings.owned:
            target.given = None
        return results_form.rebuilt(results, arguments, numbers[self._options :])

    def _compute_natively(self) -> None:
        """Run the parts and the prepared steps: native code alone, which no signal can split."""
        undo: list[Any] = []
        try:
            for each in self._rounds:
                for call in each.work:
                    call()
                copy_all(each.copies)
                step = each.step
                if step is None:
                    continue
                if each.undone:
                    undo.append(step.restoring(each.written))
                step.counted.commit()
        except BaseException:
            complete(reversed(undo))
            raise

    def _take_gradients(self, arguments: list[Any]) -> None:
        """Bind the gradients that the leaves have now as inputs."""
        owning = self._bindings.owning
        shown = take_gradients(owning, self._bindings.owned, arguments)
        addresses = [address(x._leaf.grad._data) for x in owning]
        if shown or addresses != self._places:
            self._program.assert_gradients_apart(arguments)
            self._places = addresses

    def _compute(self, observer: StepObserver | None, numbers: Sequence[Any]) -> None:
        """Run the segments, and the optimizers' steps between them. All is undone where one
        fails.
        """
        undo: list[Any] = []
        if not self._settled:
            undo.append(self._program.restoring_gradients())
        try:
            for each in self._rounds:
                if observer is None:
                    for check in each.checks:
                        check()
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
            complete(reversed(undo))
            raise
        self._settled = True


def is_native(rounds: list[BoundSegment]) -> bool:
    """Return whether rounds are native code alone, once the optimizers' steps are prepared: then no
    signal can split a call.
    """
    for number, each in enumerate(rounds):
        if each.errors or not all(type(call) is Launches for call in each.work):
            return False
        if number and each.checks:  # those of the first come before anything is written
            return False
    steps: list[Any] = [each.step for each in rounds if each.step is not None]
    optimizers = {id(step.optimizer) for step in steps}  # a second step counts on from the first
    return len(optimizers) == len(steps) and all(step.is_native() for step in steps)


class Exclusive:
    """A program that one thread at a time runs: the base of `Compiled`, which has a `lock`, and the
    `reserve` of memory that it shares with other programs. Compiled, entering is not split by a
    signal: both locks are taken, or none.
    """

    lock: Any
    reserve: Any

    def leave_shared_memory(self) -> None:
        """Use memory of its own from now on: another thread runs a program on the shared one."""
        raise NotImplementedError

    def __enter__(self) -> None:
        """Lock the program and its shared memory. If another thread runs a program in that memory,
        switch to memory of its own, so that threads that call a function for several sizes run side
        by side.

        Errors: Unsupported in the middle of such a program.
        """
        fork_safety.gate()
        if self.reserve.lock._is_owned():
            raise Unsupported(
                "compile: the function is called while it runs, by a finalizer or by an operation "
                "that Python computes; call what it was made of there (its .function)"
            )
        self.lock.acquire()
        try:
            if not self.reserve.lock.acquire(False):
                self.leave_shared_memory()
                self.reserve.lock.acquire()
        except BaseException:
            self.lock.release()
            raise

    def __exit__(self, *error: object) -> None:
        self.reserve.lock.release()
        self.lock.release()


class FastPath:
    """Fast path: the program that a function ran last, for calls with the same signature
    and modes.

    The general path finds the program among many. Without this one, half of a small step's time
    would be spent on guards and bindings around its kernels.
    """

    __slots__ = ("_dtype", "_has_backward", "_key", "_leaves", "_mode", "_program")

    def __init__(self, program: CompiledStep, mode: Mode, key: Sequence[Any], leaves: bool) -> None:
        self._program, self._mode = program, mode
        self._key, self._leaves = list(key), leaves
        self._has_backward = bool(program.tangents)
        self._dtype = get_default_dtype()

    def run(self, mode: Mode, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Run the call and return what the function returns; OTHER, with nothing done, if the
        signature, a mode or a guard differs.
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
        course: BoundCall | None = program.course
        if course is None or not course.stands():
            return OTHER
        if self._has_backward:
            return self._begin(signature.tensors)
        with program:
            if course is not program.course or course.is_over():
                return OTHER
            return course.run(signature.tensors, None, None, ())[0]

    def _begin(self, tensors: list[Any]) -> Any:
        """Run the program in buffers that no pending backward needs."""
        program = self._program
        with program:
            return program._begin(tensors, None, ())[0]


def stands(
    wanting: list[Any], bound: list[Any], presence: list[Any], steps: list[Any], guards: Any
) -> bool:
    """Identity guards of a program: whether gradients, tensors, optimizer states and guarded Python
    objects are the same as before.
    """
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
    """Whether the elements of arguments are valid indices: `indices` are pairs of an argument's
    number and an upper bound.
    """
    for n, below in indices:
        array = arguments[n]._data
        if array.size and (array.dtype != _INT64 or not are_below(array, below)):
            return False
    return True


_INT64 = np.dtype(np.int64)


def _show(tensors: list[Any], owners: dict[int, Any]) -> bool:
    """Whether a tensor may share memory whose owner is among `owners`."""
    for x in tensors:
        key = id(owner(x._data))
        if key in owners:
            return True
    return False
