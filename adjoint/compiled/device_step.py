"""A captured step on a device of PyTorch's ("torch", "cuda"): the same program, lowered otherwise.

Memory is PyTorch's: each run computes values in the order of the program, and lets go of each where
it was read last, so that its memory is used again. Ops run as eager execution runs them there;
results, gradients and states get memory of their own. Everything else, what is state, when a
program fits, how parts follow one another, is `Compiled`'s.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from ..core import policy
from ..core.device import CPU, space
from ..core.dtype import LOW_PRECISION, float32
from ..core.errors import NotTraceable
from ..core.mode import DEFAULT, MODE, mode_with
from ..core.op import Op
from ..core.spec import prod
from ..eager.record import parents_of
from ..eager.tensors import wrap
from ..eager.writes import announce
from ..graph.lazy import LazyValue, concrete
from ..inference.kernels import Kernel, fuse_kernels
from ..inference.passes import drop_dead, merge_equal
from ..inference.steps import Step
from ..ops.promotion import Cast
from ..program.compute import compute, compute_elsewhere, quietly
from ..program.program import Node, Program, Value
from ..program.reads import Guards
from ..program.standing import have_memory
from ..view.table import multiply_adds
from . import device_passes
from .arguments import Memory, assert_apart
from .backward import CompiledCall, Lease
from .capture import CAPTURING, Captured, Update
from .device_graph import (
    WARM,
    Obstacle,
    Replayed,
    Taken,
    array_of,
    obstacles,
    recording_on,
)  # fmt: skip
from .drawing import Drawn
from .handover import give, write_all
from .reserve import Reserve
from .routines import Ahead, Behind, bare
from .step import Compiled, Part, Stepping


def lowered(
    captured: Captured, guards: Guards, nearly: bool = False, reserve: Reserve | None = None
) -> Compiled:
    """The program of a captured step, for the device of its tensors; see `Compiled`."""
    kind = Compiled if captured.device.type == "cpu" else OnDevice
    return kind(captured, guards, nearly, reserve)


RECORDINGS = 8  # of one program, of which each is for states in other memory


class TritonKernel(Kernel, abstract=True):
    """Several ops as Triton kernels, which run one after another."""

    written_stays = True  # a GPU's kernels are as fast as its memory

    def written(self) -> Any:
        """The kernels.

        Errors: NotTraceable where PyTorch's are as good, or Triton has none.
        """
        from ..backends.torch.fused import Composite

        if len(self.program.nodes) < 2 and not _is_large_cast(*self.program.nodes):
            raise NotTraceable("one op, of which PyTorch has a kernel")
        if any(x.spec.device == CPU for x in self.program.inputs):
            raise NotTraceable("a number of the host's")
        return Composite(self.program, self.name_)

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """By the kernels."""
        return bare(self.composite(arrays))

    def compute_into(self, arrays: Sequence[Any], outs: Sequence[Any]) -> Any:
        """The same, outputs in the memory of `outs`, where they would lie alike."""
        return bare(self.composite(arrays, outs))


def _is_large_cast(node: Node) -> bool:
    """Whether an op makes many floats narrow, or wide, which a kernel of ours does faster."""
    dtypes = [x.spec.dtype for x in (*node.values, *node.outputs)]
    floats = all(dtype in (float32, *LOW_PRECISION) for dtype in dtypes)
    return isinstance(node.op, Cast) and floats and prod(node.output.shape) >= policy.CAST


class Walk:
    """A program's nodes in order, on arrays of a device. Values have places in a list; each node is
    a call with the places that it reads, writes and empties.
    """

    def __init__(self, graph: Program, xp: Any) -> None:
        self.graph = graph
        place: dict[Value, int] = {}
        self.held: list[Any] = []  # in the beginning
        for x in (*graph.inputs, *graph.constants()):
            if x not in place:
                place[x] = len(place)
                self.held.append(x.array)
        for node in graph.nodes:
            for y in node.outputs:
                place[y] = len(place)
        self.held += [None] * (len(place) - len(self.held))
        self.places = [place[y] for y in graph.outputs]
        last = {x: node for node in graph.nodes for x in (*node.outputs, *node.values)}
        kept = {*graph.outputs, *graph.inputs, *graph.constants()}
        self.calls: list[tuple[Any, ...]] = []
        self.steps: list[Step] = []
        self.over: list[list[Value]] = []  # what each reads or makes last
        for node in graph.nodes:
            reads = []
            for x in node.inputs:
                reads.append(place[x] if type(x) is Value else len(self.held))
                if type(x) is not Value:  # a number
                    self.held.append(x)
            writes = [place[y] for y in node.outputs]
            used = dict.fromkeys((*node.values, *node.outputs))
            self.over.append([x for x in used if last[x] is node and x not in kept])
            over = [place[x] for x in self.over[-1]]
            here = any(x.spec.device != CPU for x in node.values)
            here = here and all(x.spec.device != CPU or not x.shape for x in node.values)
            run = _runner(node.op, xp if here else None)
            self.calls.append((run, reads, writes, over))
            self.steps.append(_step_of(node))

    def sizes(self) -> tuple[int, int]:
        """The bytes of what is computed, views apart, that live at once, at most; and of all."""
        now = most = whole = 0
        for node, over in zip(self.graph.nodes, self.over, strict=True):
            made = 0 if node.op.view else node.nbytes
            now += made
            whole += made
            most = max(most, now)
            now -= sum(x.nbytes for x in over if x.node is not None and not x.node.op.view)
        return most, whole

    def run(
        self, given: Sequence[Any], observer: Any = None, into: Mapping[Value, Any] | None = None
    ) -> list[Any]:
        """The outputs, which may show the memory of what was given. Those that have memory already
        (`into`) are written there where that is done at once.
        """
        held = [*given, *self.held[len(given) :]]
        for n, (run, reads, writes, over) in enumerate(self.calls):
            arrays = [held[i] for i in reads]
            if into and (outs := self._outs(n, into)):
                found = _written(self.graph.nodes[n].op, arrays, outs)
            elif observer is None:
                found = run(arrays)
            else:
                found = _observed(observer, self.steps[n], partial(run, arrays))
            if len(writes) == 1:
                held[writes[0]] = found[0] if type(found) is tuple else found
            else:
                for i, y in zip(writes, found, strict=True):
                    held[i] = y
            del arrays, found
            for i in over:
                held[i] = None
        return [held[i] for i in self.places]

    def _outs(self, n: int, into: Mapping[Value, Any]) -> list[Any]:
        """The memory of what a call gives, None where it has none; empty if it makes its own."""
        node = self.graph.nodes[n]
        if not isinstance(node.op, (TritonKernel, Cast)) or into.keys().isdisjoint(node.outputs):
            return []
        return [into.get(y) for y in node.outputs]


def _written(op: Op, arrays: list[Any], outs: list[Any]) -> Any:
    """What an op computes in memory that there is."""
    if isinstance(op, TritonKernel):
        return quietly(op.compute_into, arrays, outs)
    from ..backends.torch.fused import bring

    bring(arrays[0].real if arrays[0].dtype.kind == "c" else arrays[0], outs[0])
    return outs[0]


def _runner(op: Op, xp: Any) -> Callable[[list[Any]], Any]:
    """What computes an op from a list of arrays."""
    if isinstance(op, (Ahead, Behind, Drawn)):
        return lambda arrays: quietly(op.compute, xp, *arrays)
    if xp is None:
        return partial(compute, op)
    return partial(compute_elsewhere, op, xp)


def _observed(observer: Any, step: Step, run: Callable[[], Any]) -> Any:
    """What a step computes; the observer sees it, until the device is done."""
    found: list[Any] = []

    def until_done() -> None:
        found.append(run())
        _wait()

    observer.step((step,), until_done)
    return found[0]


def _wait() -> None:
    """Wait for CUDA, where it is used."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _step_of(node: Node) -> Step:
    """As `explain` lists it."""
    step = Step(node.op, node.inputs, node.outputs)
    if isinstance(node.op, TritonKernel):
        step.how = "kernel"
    elif multiply_adds(node.op, node.inputs, node.outputs[0]):
        step.how = "product"
    return step


class Kept(Lease):
    """What a call has computed that its gradients need; and its draws."""

    __slots__ = ("drawing", "values")

    def __init__(self, values: dict[Value, Any], drawing: list[Any]) -> None:
        self.values = values
        self.drawing = drawing


class OnDevice(Compiled):
    """A program on one device."""

    def __init__(
        self, captured: Captured, guards: Guards, nearly: bool = False,
        reserve: Reserve | None = None,
    ) -> None:  # fmt: skip
        from ..backends.torch import Array

        self.arrays = Array
        self.xp = space(captured.device)
        self.recording = recording_on(captured.device)
        self.replayed: Replayed | None = None
        self.calls = self.recorded = 0
        super().__init__(captured, guards, nearly, reserve)

    def _keep_less(self, graph: Program, first: int) -> None:
        """Nothing is computed again: without Triton that would be ops of their own."""

    def _lower(self, part: Part) -> None:
        """Groups of ops become Triton kernels, where there are some; on the CPU ops run alone."""
        from ..backends.torch.fused import reason_off

        self.unfused = reason_off(self.captured.device)
        device_passes.keep_places(part.graph)
        if not self.unfused:
            device_passes.inline_host_numbers(part.graph)
            if device_passes.read_narrow(part.graph):
                drop_dead(part.graph)
            if device_passes.open_batch_norms(part.graph):
                merge_equal(part.graph)
                drop_dead(part.graph)
            fuse_kernels(part.graph, said=part.cuts, again=True, kind=TritonKernel)
            drop_dead(part.graph)
        if device_passes.has_matrix_units(self.captured.device):
            device_passes.lay_channels_last(part.graph)

    def _bind(self) -> None:
        """The calls; which memory they read is found at each run."""
        self.places = [  # states that it reads
            n for n, x in enumerate(self.states)
            if x.array is None and (self.captured.owners[n] is None or n in self.owned)
        ]  # fmt: skip
        self.read = [self.states[n] for n in self.places]
        self.steps = [_Optimizer(node, self.unfused) for node in self.captured.updates]
        self.walks = [self.walk_of(part.graph) for part in self.parts]
        self.staying = [_staying(part) for part in self.parts]
        made = [set(part.wanted) for part in self.parts]
        self.errors = [[] for _ in self.parts]
        for y, error in self.checked.items():
            k = next((k for k, own in enumerate(made) if y in own), 0)
            self.errors[k].append((y, error))
        # Memory may be short wherever something is computed.
        fails = [bool(walk.calls or own) for walk, own in zip(self.walks, self.errors, strict=True)]
        count = len(self.steps)
        self.undone = [k + 1 < count or any(fails[k + 1 :]) for k in range(count)]
        pairs = zip(self.captured.written, self.written, strict=True)
        written = [(n, y) for n, y in pairs if y not in self.after]  # but for optimizers
        self.writes = [(n, y) for n, y in written if n >= 0]
        self.given_writes = [(~n, y) for n, y in written if n < 0]
        self.obstacles = obstacles(self)  # to be one recording
        self._look()

    def _rebind(self) -> None:
        self.replayed = None
        self._bind()

    def _look(self) -> None:
        """Know where states are, but for gradients, which are others after each run."""
        states = [self._state(n) for n in self.places if n not in self.owned]
        self.bound = [(x, x._data, x._node) for x in states]
        self.ahead = parents_of(tuple(x for x in states if x._node is not None))
        tensors = (*self.after.values(), *(self._state(n) for n, _ in self.writes))
        changed, held = [x._data for x in tensors], [array for _, array, _ in self.bound]
        assert_apart(held, changed)
        self.memory = Memory(held, changed, [n for n, _ in self.given_writes], self._ordered())

    def _check(self, arguments: Sequence[Any]) -> None:
        """Refuse arguments that cannot be written, or show what is; see `Memory`."""
        if not have_memory(self.bound):
            with CAPTURING:  # perhaps it was another thread's symbols
                if not have_memory(self.bound):
                    self._look()
        self.memory.check(arguments)
        if self.given_writes and self.owned:
            gradients = [self._state(n)._data for n in self.owned]
            Memory(gradients, (), self.memory.arguments).check(arguments)

    def walk_of(self, graph: Program) -> Walk:
        """The calls of a program."""
        return Walk(graph, self.xp)

    def listed(self) -> list[list[tuple[tuple[Step, ...], bool, int]]]:
        """What each call of each part computes: Python makes them all."""
        return [[((step,), False, 0) for step in walk.steps] for walk in self.walks]

    def sizes(self) -> tuple[int, int]:
        """The bytes of what lies between ops at its peak, and of all of it."""
        found = [walk.sizes() for walk in self.walks]
        return sum(most for most, _ in found), sum(whole for _, whole in found)

    @property
    def bytes(self) -> int:
        """How large the memory is that it keeps between runs: a recording's."""
        return 0 if self.replayed is None else self.sizes()[0] + self.replayed.bytes

    def _begin(self, arguments: list[Any], observer: Any, numbers: Sequence[Any]) -> Any:
        """A run, which has memory of its own."""
        return self._run(arguments, observer, None, numbers)

    def _replay(self, arguments: Sequence[Any], numbers: Sequence[Any]) -> Any:
        """The same by a recording."""
        streams = self.captured.streams
        if self.replayed is None or not self.replayed.fits():
            self.recorded += 1
            self.replayed = Replayed(self, arguments)
        for stream in streams:
            stream.begin()
        try:
            arrays = self.replayed.run(arguments, numbers)
        except BaseException:
            for stream in streams:
                stream.undo()
            raise
        with CAPTURING:
            self.replayed.give()
        if self.recorded >= RECORDINGS:
            self.obstacles = [Obstacle("states", f"were elsewhere {RECORDINGS} times")]
        return self._rebuilt(arrays, {}, arguments, numbers)

    def _rebuilt(self, arrays: list[Any], nodes: Any, arguments: Any, numbers: Any) -> Any:
        """What the function would return."""
        if (profile := MODE.get().observer) is not None:
            profile.made(arrays)
        given = self.captured.returned.results
        results = given.wrapped(arrays, nodes, self.ahead, arguments)
        more = numbers[self.captured.options :]
        return given.rebuilt(results, arguments, more)

    def _run(
        self, arguments: list[Any], observer: Any, lease: Lease | None, numbers: Sequence[Any]
    ) -> Any:
        self._check(arguments)
        if self.calls >= WARM and not self.obstacles and observer is None:
            return self._replay(arguments, numbers)
        self.calls += 1
        self.replayed = None
        captured = self.captured
        known = self.known_arrays([x._data for x in arguments])
        if any(isinstance(array, LazyValue) for array in known.values()):
            with CAPTURING:  # another thread's symbols
                known = self.known_arrays([x._data for x in arguments])
        taken = Taken(known.values())
        streams = captured.streams
        for stream in streams:
            stream.begin()
        try:
            self._walk(known, observer, numbers)
        except BaseException:
            for stream in streams:
                stream.undo()
            raise
        kept = None
        if self.tangents:
            read = (*self.parts[-1].inputs, *self.tangents)
            values = {x: known[x] for x in read if x in known}
            taken.claim(values.values())
            kept = Kept(values, [stream.now for stream in streams])
        gradients = [wrap(taken.own(array_of(known, y))) for y in self.gradients]
        arrays = [taken.own(array_of(known, y)) for y in self.results]
        nodes = {} if kept is None else self._history(arguments, kept, arrays)
        staged = [(x, taken.own(array_of(known, y))) for x, y in self.writes_of(arguments)]
        with CAPTURING:
            write_all(staged)
            give(captured.leaves, gradients, captured.dropped)
        return self._rebuilt(arrays, nodes, arguments, numbers)

    def known_arrays(self, arguments: Sequence[Any]) -> dict[Value, Any]:
        """The arrays of arguments and states."""
        known = {x: x.array for x in self.states if x.array is not None}
        known.update(zip(self.arguments, arguments, strict=True))
        known.update(zip(self.read, self.states_now(), strict=True))
        return known

    def states_now(self) -> list[Any]:
        """The arrays of `read`."""
        return [self._state(n)._data for n in self.places]

    def writes_of(self, arguments: Sequence[Any]) -> list[tuple[Any, Value]]:
        """States that it writes, but for optimizers, and arguments; and their values."""
        found = [(self._state(n), y) for n, y in self.writes]
        return [*found, *((arguments[n], y) for n, y in self.given_writes)]

    def _walk(self, known: dict[Value, Any], observer: Any, numbers: Sequence[Any]) -> None:
        """Compute all; where that fails, optimizers have not stepped."""
        undo: list[Callable[[], None]] = []
        try:
            self._compute_into(known, observer, numbers, undo)
        except BaseException:
            for restore in reversed(undo):
                restore()
            raise

    def _compute_into(
        self, known: dict[Value, Any], observer: Any, numbers: Sequence[Any],
        undo: list[Callable[[], None]],
    ) -> None:  # fmt: skip
        """Compute all parts but the one for gradients that come in later, and step optimizers."""
        steps = iter(self.steps)
        walks = self.walks[:-1] if self.tangents else self.walks
        parts = zip(self.parts, walks, self.errors, strict=False)
        for k, (part, walk, errors) in enumerate(parts):
            found = walk.run([known[x] for x in part.inputs], observer)
            known.update(zip(part.wanted, found, strict=True))
            if k < len(self.steps):
                known.update((x, known[x].copy()) for x in self.staying[k])
            for wrong, error in errors:
                if array_of(known, wrong).item():
                    raise error()
            step = next(steps, None)
            if step is None:
                continue
            if self.undone[k] or not step.has_run:
                undo.append(step.restoring())
            run = partial(step.run, known, numbers)
            if observer is None:
                run()
            else:
                name = type(step.optimizer).__name__
                observer.around(f"Optimizer.step#{name}.step", run, (), {})

    def _gradients_of(self, lease: Any, given: Sequence[Any]) -> list[Any]:
        """The gradients of what was taken, from those of the results; None where there are none."""
        kept = lease()
        arrived = {n for n, g in enumerate(given) if g is not None}
        with self:
            known = dict(kept.values)
            for seed, g in zip(self.seeds, given, strict=True):
                zeros = self.xp.zeros(seed.shape, seed.spec.dtype.numpy) if g is None else None
                known[seed] = zeros if g is None else concrete(g)
            for stream, now in zip(self.captured.streams, kept.drawing, strict=True):
                stream.now = now
            taken = Taken(known.values())
            observer = MODE.get().observer
            found = self.walks[-1].run([known[x] for x in self.parts[-1].inputs], observer)
            known.update(zip(self.parts[-1].wanted, found, strict=True))
            gradients = [
                taken.own(array_of(known, y)) if leading & arrived else None
                for y, leading in zip(self.tangents, self.captured.backward.leading, strict=True)
            ]
            if observer is not None:
                observer.made(gradients)
            return [None if y is None else wrap(y) for y in gradients]

    def _call(self, lease: Lease, count: int) -> CompiledCall:
        """What computes gradients for the node of a call."""
        return CompiledCall(partial(self._gradients_of, weakref.ref(lease)), count)


def _staying(part: Any) -> list[Value]:
    """What a part is wanted for that is an input, though it is no view: it must not be seen to
    change with that.
    """
    inputs = set(part.graph.inputs)
    for node in part.graph.nodes:
        if node.op.view and node.values and node.values[0] in inputs:
            inputs.update(node.outputs)
    pairs = zip(part.wanted, part.graph.outputs, strict=True)
    return [x for x, y in pairs if y in inputs and x not in part.views]


class _Optimizer(Stepping):
    """An optimizer's step on the device, for gradients that were computed: as it runs eagerly, or
    its formula as one Triton kernel.
    """

    native = False

    def __init__(self, node: Node, unfused: str) -> None:
        super().__init__(cast(Update, node.op))
        self.skip = node.values[-1] if self.op.skips else None
        changed = set(map(id, self.written))
        pairs = zip(self.op.given(), node.values, strict=not self.op.skips)
        self.read = [(x, y) for x, y in pairs if id(x) in changed]
        self.has_run = False
        self.unfused = unfused  # why there are no Triton kernels
        self.outputs = node.outputs
        values = iter(node.values)
        self.gradients: dict[int, Value] = {}  # by the ids of parameters
        for columns in self.op.columns:
            given = [[next(values) for _ in column] for column in columns]
            self.gradients.update(zip(map(id, columns[0]), given[1], strict=True))
        self.parameters = [p for columns in self.op.columns for p in columns[0]]
        self.rows: dict[Any, Any] = {}  # by formula, its kernel; None where it has none
        self.bound: dict[Any, Any] = {}  # by formula: where tensors were, and the kernel on them

    def run(self, known: dict[Value, Any], numbers: Sequence[Any]) -> None:
        """Count the step, and change everything; the new arrays become known. Some options are
        `numbers` meanwhile.
        """
        self.take(known)
        if self.skip is None or not array_of(known, self.skip).item():
            with self._gradients(known):
                self.with_options(numbers, self._run)
        self.has_run = True
        self.know(known)

    def _run(self) -> None:
        if self.has_formulas:
            kernels, left = self._begin()
            for bound in kernels:
                bound.run()
            if left:
                self.optimizer._change_all(left)
        else:
            self.optimizer.update_groups(self.groups)

    def take(self, known: dict[Value, Any]) -> None:
        """Let parameters and states hold what the function has written to them before."""
        found = [(x, array_of(known, y)) for x, y in self.read]
        written = [(x, array) for x, array in found if array is not x._data]
        watched = announce([x for x, _ in written], "step") if written else ()
        for x, array in written:
            x._data[...] = array
        for version in watched:
            version.bump("step")

    def know(self, known: dict[Value, Any]) -> None:
        """What was changed becomes known."""
        known.update((y, x._data) for x, y in zip(self.op.written(), self.outputs, strict=True))

    def begin_with(
        self, gradients: dict[Value, Any], numbers: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Count the step for gradients that will lie there; the kernels to be run, which have their
        numbers, and batches of parameters that have none.
        """
        with self._gradients(gradients):
            return self.with_options(numbers, self._begin)  # type: ignore[no-any-return]

    def finish_with(
        self, gradients: dict[Value, Any], left: list[Any], numbers: Sequence[Any]
    ) -> None:
        """Change the parameters of such batches."""
        if left:
            with self._gradients(gradients):
                self.with_options(numbers, partial(self.optimizer._change_all, left))

    @contextlib.contextmanager
    def _gradients(self, known: dict[Value, Any]) -> Iterator[None]:
        """Within it parameters have these gradients, as eager code in an optimizer's step sees."""
        before = [(p, p._leaf.grad) for p in self.parameters]
        token = MODE.set(mode_with(DEFAULT, grad=False))
        try:
            for p in self.parameters:
                p._leaf.grad = wrap(array_of(known, self.gradients[id(p)]))
            yield
        finally:
            MODE.reset(token)
            for p, g in before:
                p._leaf.grad = g

    @property
    def has_formulas(self) -> bool:
        """Whether the step may be Triton kernels."""
        return not self.unfused and hasattr(self.optimizer, "formula_for")

    def _begin(self) -> tuple[list[Any], list[Any]]:
        """Count the step, and give kernels its numbers: one for all parameters of a formula, to be
        run; and the batches of parameters that have none.
        """
        optimizer = self.optimizer
        parts: dict[Any, list[Any]] = {}
        left = []
        for group, parameters in self.op.groups:
            for batch in optimizer._batches(group, parameters):
                names = tuple(n for n in batch.states[0] if n not in optimizer.scalars)
                columns = [batch.parameters, [p.grad for p in batch.parameters]]
                columns += [[state[name] for state in batch.states] for name in names]
                dtypes = tuple(column[0]._data.dtype for column in columns)
                found = optimizer.formula_for(batch.group, batch.numbers, names, dtypes)
                if isinstance(found, str) or self._rows_of(found[0]) is None:
                    left.append(batch)
                else:
                    parts.setdefault(found[0], []).append((columns, found[1]))
        kernels = []
        for formula, each in parts.items():
            tensors = [
                [x for columns, _ in each for x in columns[k]] for k in range(len(each[0][0]))
            ]
            bound = self._bound(formula, tensors)
            bound.fill([(len(columns[0]), values) for columns, values in each])
            for version in announce([x for n in formula.written for x in tensors[n]], "step"):
                version.bump("step")
            kernels.append(bound)
        return kernels, left

    def _rows_of(self, formula: Any) -> Any:
        """The formula's kernel; None where it has none."""
        from ..backends.torch.fused import Rows

        if formula not in self.rows:
            run = formula.run
            try:
                self.rows[formula] = Rows(run.kernel, run.columns, type(self.optimizer).__name__)
            except NotTraceable:
                self.rows[formula] = None
        return self.rows[formula]

    def _bound(self, formula: Any, tensors: list[list[Any]]) -> Any:
        """The kernel on these tensors, with its table."""
        given = [[x._data.tensor for x in column] for column in tensors]
        given[1] = [t.contiguous() for t in given[1]]  # gradients, which are read only
        key = tuple(t.data_ptr() for column in given for t in column)
        known = self.bound.get(formula)
        if known is None or known[0] != key:
            given = [
                [t.contiguous() for t in given[1]] if k == 1 else c for k, c in enumerate(given)
            ]
            known = self.bound[formula] = key, self.rows[formula].bound(given)
        return known[1]
