"""The executable of a captured step: segments and optimizers' steps, bound to tensors' memory."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...backends.native.runtime.array_memory import release_memory, zeros
from ...backends.native.runtime.pool import default_pool
from ...core import fork_safety
from ...core.device import device_of
from ...core.errors import Unsupported
from ...core.mode import MODE, Mode
from ...ir.program import Node, Program, Value
from ...runtime.lazy import concrete
from ...runtime.record import parents_of
from ...runtime.tensors import wrap
from ..capture.backward import CompiledCall, Cotangents, SavedActivations, history
from ..capture.step_capture import CAPTURING, Update
from ..capture.trace import Trace
from ..guards.arguments import AliasingGuard, are_alike, assert_apart, assert_ordered
from ..guards.identity_guards import hooks_of, want_gradients
from ..guards.python_state import Guards
from ..guards.rebind_optimizer_state import follow
from ..passes.pipelines import Settings, run_pipeline
from ..passes.rematerialize import root
from ..schedule.buffers import aligned
from ..schedule.steps import Step
from .arena_pool import ArenaPool
from .bind_values import array_of, bindings_of, checked_arguments
from .bindings import contents_of
from .bound_call import BoundCall, BoundSegment, Exclusive, FastPath, stands
from .optimizer_step import BoundOptimizer
from .segment import ON_HOST, Segment, is_small, unbound

if TYPE_CHECKING:
    from ...autograd.protocols import StepObserver

_BYTES_OF_CALL = 8 << 10  # 188 calls of a GPT take 1.5 MiB
_ELSEWHERE = (wrap(np.zeros(())), np.zeros(()), None)  # binding that is never valid


class CompiledStep(Exclusive):
    """The executable of a captured step, for arguments of certain shapes and dtypes; one thread at
    a time runs it.

    If its results have gradients, each call with a pending backward has buffers of its own:
    `others` are the executables with such buffers, including this one.
    """

    arrays: Any = np.ndarray  # type of the tensors' arrays
    pipelines = "whole", "step"  # of the program, and of its segments
    course: BoundCall | None = None  # the bound call, on the host
    filled = False  # whether it is another one's, with further sizes filled in
    derivatives: Any = None  # `Derivatives`: how its gradients have gradients themselves

    def __init__(
        self, captured: Trace, guards: Guards, nearly: bool = False,
        reserve: ArenaPool | None = None,
    ) -> None:  # fmt: skip
        """`nearly`: results may differ by rounding (`reassociate=True`). `reserve`: scratch memory
        shared with programs that run in turn.
        """
        self.lower(captured, guards, nearly)
        self.begin(reserve)

    def lower(self, captured: Trace, guards: Guards, nearly: bool) -> None:
        """Have passes make its segments; sizes may be symbols."""
        self.guards = guards
        self.lock = fork_safety.lock()
        self.captured = captured
        graph = captured.program
        count, more = len(captured.effects.written), len(captured.effects.leaves)
        self.arguments = graph.inputs[: captured.inputs.arguments]
        self.states = graph.inputs[captured.inputs.arguments :]
        self.written = graph.outputs[:count]
        self.gradients = graph.outputs[count : count + more]
        end = len(graph.outputs) - len(captured.assumptions.errors)
        last = end - len(captured.gradients.sources)
        self.results = graph.outputs[count + more : last]
        self.tangents = graph.outputs[last:end]
        step = captured.gradients.step
        self.seeds = () if step is None else step.outputs
        self.checked = dict(zip(graph.outputs[end:], captured.assumptions.errors, strict=True))
        if not set(graph.inputs).isdisjoint(self.gradients):
            raise Unsupported("compile: a gradient that is another tensor; give backward its clone")
        self.owned = self._owned(graph)
        self.reads = self._reads(graph)
        # Tensors from outside that it reads or writes, gradients excepted, for a later backward.
        self.outside = [x for x in captured.inputs.states if x is not None and self.tangents]
        pairs = zip(captured.inputs.states, captured.assumptions.wants, strict=True)
        self.wanting = [(x, wants, hooks_of(x)) for x, wants in pairs if x is not None]
        self._divide(graph, nearly)

    def begin(self, reserve: ArenaPool | None) -> None:
        """Bind it to memory for the first time."""
        # Values kept for a pending backward belong to their call, and are not in shared memory.
        self.shares = reserve is not None and not self.tangents
        self.reserve = reserve if reserve is not None and self.shares else ArenaPool()
        self.others = [self]
        self.lease: Any = lambda: None  # weak reference to the pending call that uses the buffers
        further, made = self.filled and self.shares, self.reserve.made  # whose arenas may do
        if not further:
            release_memory()  # cached by eager calls, which would add to the program's
        self._bind()
        if not further or self.reserve.made != made:
            release_memory()  # cached while compiling

    def _owned(self, graph: Program) -> dict[int, Any]:
        """Numbers of states that are gradients of leaves and are used, with the leaves."""
        used = {x for node in graph.nodes for x in node.values}.union(graph.outputs)
        return {
            n: x
            for n, (x, value) in enumerate(
                zip(self.captured.inputs.owners, self.states, strict=True)
            )
            if x is not None and value in used
        }

    def _reads(self, graph: Program) -> list[Any]:
        """Tensors from outside that are read, and numbers of arguments; gradients excepted."""
        used = {x for node in graph.nodes for x in node.values}.union(graph.outputs)
        inputs = [*range(self.captured.inputs.arguments), *self.captured.inputs.states]
        pairs = zip(graph.inputs, inputs, strict=True)
        return [x for value, x in pairs if value in used and x is not None and value.array is None]

    def _divide(self, graph: Program, nearly: bool) -> None:
        """Cut the program into segments, which take over its nodes and drop those that become
        kernels.
        """
        roots = {y: root(y) for node in graph.nodes for y in node.outputs if node.op.view}
        self.parts = self._cut(graph, nearly)
        graph.nodes.clear()
        inputs = [*range(self.captured.inputs.arguments), *self.captured.inputs.states]
        of = {**dict(zip(graph.inputs, inputs, strict=True)), **self.after}
        backward_inputs = self.parts[-1].inputs if self.tangents else ()
        backward_inputs = list(dict.fromkeys(roots.get(x, x) for x in backward_inputs))
        # Tensors that the backward part reads besides.
        self.kept = [of[x] for x in backward_inputs if of.get(x) is not None]

    def _another(self) -> CompiledStep:
        """Copy of the executable with buffers of its own."""
        other = copy.copy(self)
        other.parts = [copy.copy(part) for part in self.parts]
        other._bind()
        self.others.append(other)
        return other

    def _settings(self, nearly: bool) -> Settings:
        """Settings of the passes for the segments."""
        return replace(ON_HOST, nearly=nearly)

    def _prepare_backward(self, graph: Program) -> None:
        """Run the passes that look at the later backward, too."""
        cotangents = self.captured.gradients.step
        if cotangents is not None:
            updates = [y for node in self.captured.effects.updates for y in node.outputs]
            settings = Settings(
                first=graph.nodes.index(cotangents) + 1, moving=[*graph.inputs, *updates]
            )
            run_pipeline(self.pipelines[0], graph, settings)

    def _cut(self, graph: Program, nearly: bool) -> list[Segment]:
        """Cut the program at the steps of optimizers, each of which changes states in place.

        Errors: Unsupported where a state's value from before such a step is read after it.
        """
        if self.tangents:
            self._prepare_backward(graph)
        groups: list[list[Node]] = [[]]
        self.after: dict[Value, Any] = {}  # outputs of optimizers, with the tensors they update
        changed: dict[Value, int] = {}  # values that are overwritten, with the segment before that
        first = dict(zip(map(id, self.captured.inputs.states), self.states, strict=True))
        current = dict(first)  # value that each state holds at the moment
        for node in graph.nodes:
            if isinstance(node.op, Cotangents):
                groups.append([])
            elif isinstance(node.op, Update):
                for tensor, y in zip(node.op.written(), node.outputs, strict=True):
                    self.after[y] = tensor
                    for value in (first[id(tensor)], current[id(tensor)]):
                        changed.setdefault(value, len(groups) - 1)
                    current[id(tensor)] = y
                groups.append([])
            else:
                groups[-1].append(node)
        updates = [[*node.values] for node in self.captured.effects.updates]
        ends = {*self.results, *self.gradients, *self.written, *self.checked, *self.tangents}
        parts = []
        settings = self._settings(nearly)
        for k, nodes in enumerate(groups):
            own = {y for node in nodes for y in node.outputs}
            read = dict.fromkeys(x for node in nodes for x in node.values if x not in own)
            if any(changed.get(x, k) < k for x in read):
                raise Unsupported(
                    "compile: a parameter's value from before an optimizer's step is used after it"
                )
            later = {x for group in groups[k + 1 :] for node in group for x in node.values}
            later.update(x for values in updates[k:] for x in values)
            outputs = [y for node in nodes for y in node.outputs if y in later or y in ends]
            inputs = [x for x in read if x.array is None]
            parts.append(Segment(inputs, nodes, outputs, self.pipelines[1], settings))
        return parts

    # ---- locks -----------------------------------------------------------------------------------

    def leave_shared_memory(self) -> None:
        """Use memory of its own from now on: another thread runs a program on the shared one."""
        self.reserve, self.shares, self.course = ArenaPool(), False, None

    # ---- listings --------------------------------------------------------------------------------

    def listed(self) -> list[list[tuple[tuple[Step, ...], bool, int]]]:
        """Listing of the launches of each segment; see `Segment.listed`."""
        return [part.listed() for part in self.parts]

    def sizes(self) -> tuple[int, int]:
        """Bytes of intermediate values: of the arenas, and without reuse of memory."""
        schedules = [part.schedule for part in self.parts]
        buffers = [buffer for each in schedules for buffer in each.buffers]
        return sum(each.layout.size for each in schedules), sum(aligned(b.size) for b in buffers)

    # ---- memory ----------------------------------------------------------------------------------

    def state(self, n: int) -> Any:
        """The tensor that state number `n` is at present."""
        owner = self.captured.inputs.owners[n]
        return self.captured.inputs.states[n] if owner is None else owner._leaf.grad

    def _ordered(self) -> list[tuple[int, bool]]:
        """Arguments whose memory order must be checked in each call; that of states is
        checked now.
        """
        first = self.captured.inputs.arguments
        for n, begins in self.captured.assumptions.ordered:
            if n >= first and (x := self.state(n - first)) is not None:
                assert_ordered(x._data, begins)
        return [each for each in self.captured.assumptions.ordered if each[0] < first]

    def _bind(self) -> None:
        """Bind all kernels to the present memory of tensors, gradients excepted."""
        try:
            self._connect()
        except BaseException:
            self.bound = [_ELSEWHERE]  # so that the next run tries again
            raise

    def _let_go(self) -> None:
        """Drop all references to bound buffers, before new ones are allocated."""
        self.course = None
        self.bindings: Any = None
        self.steps: list[Any] = []  # optimizers' steps
        for part in self.parts:
            part.let_go()

    def _connect(self) -> None:
        """Bind states, then segments and optimizers' steps, then what comes and goes in each
        call.
        """
        self._let_go()
        threads = default_pool().num_threads
        array_at, owned = self._bind_states()
        targets = self._target_arrays()
        self._bind_parts(array_at, targets)
        shown = set().union(*(part.shown for part in self.parts))
        calls = [call for part in self.parts for call in part.native_calls()]
        self.bindings = bindings_of(self, array_at, targets, owned, shown, calls)
        bound_arrays, changed = [array for _, array, _ in self.bound], self._changed()
        assert_apart(bound_arrays, changed)
        numbers = [x for x, *_ in self.bindings.writes if type(x) is int]
        self.memory = AliasingGuard(bound_arrays, changed, numbers, self._ordered())
        self._bind_errors(array_at)
        rounds = self._rounds()
        for part in self.parts:
            part.space.arrays.clear()  # the calls know addresses, or have references
        self.course = BoundCall(self, rounds, threads)

    def _bind_states(self) -> tuple[dict[Value, Any], dict[Value, int]]:
        """Arrays of all inputs: states where they are, placeholders for what comes in each call;
        and the numbers of gradients that are read where they are in each call.
        """
        owners = self.captured.inputs.owners
        self.bound = []
        array_at: dict[Value, Any] = {x: x.array for x in self.states if x.array is not None}
        owned: dict[Value, int] = {}
        for n, value in enumerate(self.states):
            if value.array is None and (owners[n] is None or n in self.owned):
                x = self.state(n)
                if owners[n] is not None and x._node is None:
                    owned[value] = n
                    continue
                array_at[value] = x._data
                self.bound.append((x, x._data, x._node))
        self.ahead = parents_of(tuple(x for x, _, node in self.bound if node is not None))
        array_at.update((y, x._data) for y, x in self.after.items())
        array_at.update(unbound([*owned, *self.arguments, *self.seeds]))
        return array_at, owned

    def _target_arrays(self) -> dict[Value, Any]:
        """Arrays into which tangents and gradients are to be written."""
        self.landing = self.reserve.landing(self.captured.effects.leaves)
        targets = {
            x: np.empty(x.shape, x.spec.dtype.numpy)
            for x in set(self.parts[-1].wanted).intersection(self.tangents)
            if x not in self.gradients and not is_small(x)
        }
        for value, home in zip(self.gradients, self.landing.homes, strict=True):
            targets.setdefault(value, home)
        return targets

    def _bind_parts(self, array_at: dict[Value, Any], targets: dict[Value, Any]) -> None:
        """Bind the segments, and the optimizers' steps between them."""
        updates = self.captured.effects.updates
        for k, part in enumerate(self.parts):
            memory = zeros if self.tangents else partial(self.reserve.arena, k)
            part.bind(array_at, targets, memory, self.reserve.scratch)
            if k < len(updates):
                node = updates[k]
                for earlier in self.parts[: k + 1]:
                    earlier.lay_out(array_at, node.values)
                arrays = [array_of(array_at, x) for x in node.values]
                self.steps.append(BoundOptimizer(cast(Update, node.op), arrays))

    def _bind_errors(self, array_at: dict[Value, Any]) -> None:
        """Bind the checks behind each segment."""
        made = [set(part.wanted) for part in self.parts]
        self.errors: list[list[Any]] = [[] for _ in self.parts]
        for y, error in self.checked.items():
            k = next((k for k, own in enumerate(made) if y in own), 0)
            self.errors[k].append((array_of(array_at, y), error))

    def _rounds(self) -> list[BoundSegment]:
        """The segments of a call in order, with what is undone where one fails, and the gradients
        of before that stay till then.
        """
        fails = [
            part.may_fail() or bool(errors)
            for part, errors in zip(self.parts, self.errors, strict=True)
        ]
        grads = set(map(id, self.landing.homes))
        # Whether errors come when gradients have been written: those that there are stay till then,
        # but where arguments say that there will be none.
        refused = [part.refused_behind(grads) for part in self.parts]
        known_ones = (
            None
            if self.checked or any(fails[1:])
            else checked_arguments(self.parts, self.arguments, refused)
        )
        self.late = known_ones is None or bool(known_ones)
        self.indices = list((known_ones or {}).items())
        moved, read = {k for k, _ in self.bindings.movers}, set(map(id, self.owned.values()))
        self.stay_if_sound = [id(x) in read for x in self.captured.effects.leaves]
        self.stay = [
            stays or (self.late and k in moved) for k, stays in enumerate(self.stay_if_sound)
        ]
        parts = self.parts[:-1] if self.tangents else self.parts  # the last one: see `_back`
        steps = [*self.steps, None]
        rounds = []
        for k, part in enumerate(parts):
            step, undone = steps[k], any(fails[k + 1 :])
            only = step is not None and step is self.steps[-1] and not step.before
            rounds.append(BoundSegment(part, self.errors[k], step, undone, undone or not only))
        return rounds

    def _changed(self) -> list[Any]:
        """Arrays of states that are written in place."""
        writes = self.bindings.writes
        states = [x for x, is_gradient, _ in writes if type(x) is not int and not is_gradient]
        return [x._data for x in (*self.after.values(), *states)]

    def assert_gradients_apart(self, arguments: Sequence[Any]) -> None:
        """Refuse gradients read in place that share memory with something written, or are written
        and share memory.

        Errors: Unsupported.
        """
        arrays = [x._leaf.grad._data for x in self.bindings.owning]
        added = [x._leaf.grad._data for x, is_gradient, _ in self.bindings.writes if is_gradient]
        bound_arrays = [array for _, array, _ in self.bound]
        assert_apart([*bound_arrays, *arrays], [*self._changed(), *added])
        AliasingGuard(arrays, added, self.memory.arguments).check(arguments)

    def restoring_gradients(self) -> Callable[[], None]:
        """A function that restores gradients whose memory the program overwrites, in case the first
        step of an optimizer fails after that.
        """
        taken = [
            (g._data, g._data.copy())
            for x, g in zip(self.captured.effects.leaves, self.landing.tensors, strict=True)
            if self.steps and x._leaf.grad is not None and x._leaf.grad._data is g._data
        ]

        def restore() -> None:
            for array, before in taken:
                array[...] = before

        return restore

    @property
    def bytes(self) -> int:
        """Approximate size of the memory that it does not share: Python objects of its launches,
        and the arenas of calls with a pending backward.
        """
        calls = sum(len(part.schedule.steps) for part in self.parts)
        layouts = sum(part.schedule.layout.size for part in self.parts)
        return (calls * _BYTES_OF_CALL + (0 if self.shares else layouts)) * len(self.others)

    def difference(self) -> str:
        """Reason, in words, why the guards fail; '' if they hold."""
        captured = self.captured
        general = self.owned or captured.assumptions.alike or captured.assumptions.looked
        if not general and stands(
            self.wanting, self.bound, captured.assumptions.presence, self.steps, self.guards
        ):
            return ""
        x = want_gradients(self.wanting)
        if x is not None:
            shape = tuple(x._data.shape)
            required = next(required for y, required, _ in self.wanting if y is x)
            if required is (x._node is not None):
                return f"hooks of a tensor of shape {shape} were added or removed"
            return f"requires_grad of a tensor of shape {shape} was {required}"
        for x, array, _ in self.bound:
            now = x._data
            if now is array:
                continue
            if (now.shape, now.dtype) != (array.shape, array.dtype):
                was = f"a state was {tuple(array.shape)} {array.dtype}"
                return f"{was} and is {tuple(now.shape)} {now.dtype}"
            if device_of(now) != device_of(array):
                return f"a tensor was on {device_of(array)} and is on {device_of(now)}"
        for x, present in captured.assumptions.presence:
            if (x._leaf.grad is None) is present:
                had, has = ("a", "none") if present else ("no", "one")
                return f"a tensor of shape {tuple(x._data.shape)} had {had} gradient and has {has}"
        seen = set()
        for x in self.owned.values():
            g = x._leaf.grad
            if g is None or type(g._data) is not self.arrays or g._view is not None:
                return f"a tensor of shape {tuple(x._data.shape)} had a gradient and has none"
            if (g._data.shape, g._data.dtype) != (x._data.shape, x._data.dtype):
                return f"a gradient is {tuple(g._data.shape)} {g._data.dtype}"
            seen.add(id(g))
        if len(seen) < len(self.owned):
            return "two tensors have one gradient"
        for x, other in captured.assumptions.alike:
            if x._data is not other._data and not are_alike(x._data, other._data):
                return f"two tensors of shape {tuple(x._data.shape)} showed the same memory"
        for x in self.varying():
            return f"values of a tensor of shape {tuple(x._data.shape)} that selects were changed"
        if not all(step.fits() for step in self.steps) and not self._follow():
            return "the state of an optimizer was replaced"
        return "" if self.guards.hold() else self.guards.difference()

    def _follow(self) -> bool:
        """Rebind optimizer states that were replaced by others of the same structure."""
        with CAPTURING:
            if not follow(self):
                return False
            self._rebind()
            return all(step.fits() for step in self.steps)

    def _rebind(self) -> None:
        """Invalidate the bound buffers; the next run binds again."""
        self.bound[:] = [_ELSEWHERE]

    def varying(self) -> list[Any]:
        """Tensors whose values Python has read at capture, and that hold other values now."""
        return [
            x for x, array in self.captured.assumptions.looked
            if type(x._data) is not np.ndarray or not np.array_equal(x._data, array)
        ]  # fmt: skip

    def run(
        self,
        arguments: list[Any],
        observer: StepObserver | None = None,
        numbers: Sequence[Any] = (),
        lifted: Sequence[Any] = (),
    ) -> tuple[Any, Any]:
        """Run the program: its results, some of which come from `numbers`, and Python calls that
        are to be made. Side effects are done. `lifted` are the numbers of lifted state.
        """
        with self:
            if lifted and self.derivatives is not None:
                self.derivatives.numbers = lifted
            results, call_arguments = self._begin(arguments, observer, numbers)
        if not call_arguments:
            return results, call_arguments
        calls = zip(self.captured.effects.calls, call_arguments, strict=True)
        return results, [partial(call, *args, **kwargs) for call, (args, kwargs) in calls]

    def _begin(
        self, arguments: list[Any], observer: StepObserver | None, numbers: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Run the program in buffers that no pending backward needs."""
        if not self.tangents:
            return self._run(arguments, observer, None, numbers)
        for program in self.others:
            if program.lease() is None:
                break
        else:
            program = self._another()
        lease = SavedActivations()
        program.lease = weakref.ref(lease)
        return program._run(arguments, observer, lease, numbers)

    def _back(self, cotangents: Sequence[Any]) -> list[Any]:
        """Compute the gradients of the inputs from those of the results; None where there
        is none.
        """
        arrived = {n for n, g in enumerate(cotangents) if g is not None}
        with self:
            for target, g in zip(self.bindings.cotangents, cotangents, strict=True):
                if g is None:
                    target.take(np.zeros(target.array.shape, target.array.dtype))
                else:
                    target.take(concrete(g))
            for stream, now in zip(self.captured.inputs.streams, self.drawing, strict=True):
                stream.now = now
            flowing = self.bindings.tangents
            for flow in flowing:
                flow.begin()
            observer = MODE.get().observer
            self.parts[-1].run(observer)
            gradients = [
                flow.taken() if leading & arrived else None
                for flow, leading in zip(flowing, self.captured.gradients.leading, strict=True)
            ]
            if observer is not None:
                observer.made(gradients)
            return [None if y is None else wrap(y) for y in gradients]

    def _history(
        self, arguments: list[Any], lease: SavedActivations | None, results: list[Any]
    ) -> dict[int, Any]:
        """Autograd nodes of the results, by number; none if no gradients are wanted."""
        if lease is None:
            return {}
        self.drawing = [stream.now for stream in self.captured.inputs.streams]
        back = self.captured.gradients
        numbers = back.results
        own = [arguments[x] if type(x) is int else x for x in back.sources]
        read = [arguments[k] if type(k) is int else k for k in self.kept]
        lease.arguments, lease.drawing = arguments, self.drawing
        lease.contents = contents_of([*arguments, *self.outside])
        lease.numbers = lease.behind = ()
        if self.derivatives is not None:
            lease.numbers, lease.behind = self.derivatives.numbers, self.derivatives.behind
        op = self._call(lease, len(numbers))
        nodes = history(op, lease, parents_of(tuple(own)), read, [results[n] for n in numbers])
        return dict(zip(numbers, nodes, strict=True))

    def _call(self, lease: SavedActivations, count: int) -> CompiledCall:
        """The autograd op of a call in which `count` results have gradients."""
        return CompiledCall(self._back, self._back_again, count)

    def _back_again(self, cotangents: Sequence[Any], node: Any) -> list[Any]:
        """Compute the gradients of the inputs with a history of their own.

        Errors: Unsupported where no program can be derived.
        """
        if self.derivatives is None:
            raise Unsupported("they have none in a program from a file")
        gradients: list[Any] = self.derivatives.gradients(self, node, cotangents)
        return gradients

    def entry(self, mode: Mode, key: Sequence[Any], leaves: bool) -> FastPath | None:
        """Fast path to this program for calls like this one; None where a call does more than the
        bound call.
        """
        more = self.captured.effects.calls or self.course is None
        return None if more else FastPath(self, mode, key, leaves)

    def _is_over(self) -> bool:
        """Whether the bindings are invalid: memory was replaced, or the number of threads has
        changed.
        """
        return self.course is None or self.course.is_over()

    def _run(
        self,
        arguments: list[Any],
        observer: StepObserver | None,
        lease: SavedActivations | None,
        numbers: Sequence[Any],
    ) -> tuple[Any, Any]:
        if self._is_over():
            with CAPTURING:  # perhaps it was another thread's symbols
                if self._is_over():
                    self._bind()
        return cast(BoundCall, self.course).run(arguments, observer, lease, numbers)
