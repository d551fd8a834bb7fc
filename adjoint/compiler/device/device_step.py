"""The executable of a captured step on a PyTorch device ("torch", "cuda").

Memory is PyTorch's: each run computes values in the order of the program, and drops each after its
last use, so that its memory is reused. Ops run as in eager execution there; results, gradients and
states get memory of their own. States, guards and segments are those of the base class
`CompiledStep`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...core import policy
from ...core.device import CPU, space
from ...core.dtype import LOW_PRECISION, float32
from ...core.errors import NotTraceable
from ...core.mode import DEFAULT, MODE, mode_with, switched
from ...core.op import Op
from ...core.signal_deferral import complete
from ...core.spec import prod
from ...ir.compute import compute, compute_elsewhere, quietly
from ...ir.program import Node, Program, Value
from ...ops.promotion import Cast
from ...reactive.view.table import multiply_adds
from ...runtime.lazy import LazyValue, concrete
from ...runtime.record import parents_of
from ...runtime.tensors import wrap
from ...runtime.writes import announce
from ..capture.backward import CompiledCall, SavedActivations
from ..capture.random_state import FunctionalDraw
from ..capture.routine_ops import RoutineBackward, RoutineForward, bare
from ..capture.step_capture import CAPTURING, Update
from ..capture.trace import Trace
from ..guards.arguments import AliasingGuard, assert_apart
from ..guards.identity_guards import have_memory
from ..guards.python_state import Guards
from ..passes import device_passes
from ..passes.kernels import Kernel
from ..passes.pipelines import Settings
from ..run.arena_pool import ArenaPool
from ..run.bindings import give, write_all
from ..run.optimizer_step import OptimizerGuards
from ..run.step import CompiledStep
from ..schedule.steps import Step
from .device_graph import (
    WARM,
    Obstacle,
    Replayed,
    Taken,
    array_of,
    obstacles,
    recording_on,
)  # fmt: skip

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray, StepObserver
    from ...backends.torch.fused import Composite

    R = TypeVar("R")


def lowered(
    captured: Trace, guards: Guards, nearly: bool = False, reserve: ArenaPool | None = None
) -> CompiledStep:
    """Lower a captured step to an executable for the device of its tensors; see `CompiledStep`."""
    kind = CompiledStep if captured.assumptions.device.type == "cpu" else OnDevice
    return kind(captured, guards, nearly, reserve)


RECORDINGS = 8  # most recordings of one program, each for states in other memory


class TritonKernel(Kernel, abstract=True):
    """A fused group of ops, as Triton kernels that run one after another."""

    written_stays = True  # a GPU's kernels are as fast as its memory

    def written(self) -> Composite:
        """Generate the kernels.

        Errors: NotTraceable where PyTorch's are as good, or Triton has none.
        """
        from ...backends.torch.fused import Composite

        if len(self.program.nodes) < 2 and not _is_large_cast(*self.program.nodes):
            raise NotTraceable("one op, of which PyTorch has a kernel")
        if any(x.spec.device == CPU for x in self.program.inputs):
            raise NotTraceable("a number of the host's")
        return Composite(self.program, self.name_)

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Run the kernels in new memory."""
        return bare(self.composite(arrays))

    def compute_into(
        self, arrays: Sequence[Any], outs: Sequence[Any]
    ) -> BackendArray | tuple[BackendArray, ...]:
        """Run the kernels, with outputs in `outs` where the layout is the same."""
        return bare(self.composite(arrays, outs))


def _is_large_cast(node: Node) -> bool:
    """Whether an op converts many floats between widths, for which our kernel is faster."""
    dtypes = [x.spec.dtype for x in (*node.values, *node.outputs)]
    floats = all(dtype in (float32, *LOW_PRECISION) for dtype in dtypes)
    return isinstance(node.op, Cast) and floats and prod(node.output.shape) >= policy.CAST


class Walk:
    """Executes a program's nodes in order, on arrays of a device. Values have slots in a list; each
    node is a call with the slots that it reads, writes and frees.
    """

    def __init__(self, graph: Program, xp: Any) -> None:
        self.graph = graph
        slot_of: dict[Value, int] = {}
        self.held: list[Any] = []  # initial content of the slots
        for x in (*graph.inputs, *graph.constants()):
            if x not in slot_of:
                slot_of[x] = len(slot_of)
                self.held.append(x.array)
        for node in graph.nodes:
            for y in node.outputs:
                slot_of[y] = len(slot_of)
        self.held += [None] * (len(slot_of) - len(self.held))
        self.places = [slot_of[y] for y in graph.outputs]
        last = {x: node for node in graph.nodes for x in (*node.outputs, *node.values)}
        kept = {*graph.outputs, *graph.inputs, *graph.constants()}
        self.calls: list[tuple[Any, ...]] = []
        self.steps: list[Step] = []
        self.over: list[list[Value]] = []  # values whose last use each node is
        for node in graph.nodes:
            reads = []
            for x in node.inputs:
                reads.append(slot_of[x] if type(x) is Value else len(self.held))
                if type(x) is not Value:  # a number
                    self.held.append(x)
            writes = [slot_of[y] for y in node.outputs]
            used = dict.fromkeys((*node.values, *node.outputs))
            self.over.append([x for x in used if last[x] is node and x not in kept])
            over = [slot_of[x] for x in self.over[-1]]
            here = any(x.spec.device != CPU for x in node.values)
            here = here and all(x.spec.device != CPU or not x.shape for x in node.values)
            run = _runner(node.op, xp if here else None)
            self.calls.append((run, reads, writes, over))
            self.steps.append(_step_of(node))

    def sizes(self) -> tuple[int, int]:
        """Bytes of computed values, views excepted: of those alive at once, at most, and of all."""
        now = most = whole = 0
        for node, over in zip(self.graph.nodes, self.over, strict=True):
            made = 0 if node.op.view else node.nbytes
            now += made
            whole += made
            most = max(most, now)
            now -= sum(x.nbytes for x in over if x.node is not None and not x.node.op.view)
        return most, whole

    def run(
        self,
        inputs: Sequence[Any],
        observer: StepObserver | None = None,
        into: Mapping[Value, Any] | None = None,
    ) -> list[Any]:
        """Compute the outputs, which may show the memory of inputs. Outputs in `into` are written
        to the memory given there, where the node can do that.
        """
        slots = [*inputs, *self.held[len(inputs) :]]
        for n, (run, reads, writes, over) in enumerate(self.calls):
            arrays = [slots[i] for i in reads]
            if into and (outs := self._outs(n, into)):
                result = _written(self.graph.nodes[n].op, arrays, outs)
            elif observer is None:
                result = run(arrays)
            else:
                result = _observed(observer, self.steps[n], partial(run, arrays))
            if len(writes) == 1:
                slots[writes[0]] = result[0] if type(result) is tuple else result
            else:
                for i, y in zip(writes, result, strict=True):
                    slots[i] = y
            del arrays, result
            for i in over:
                slots[i] = None
        return [slots[i] for i in self.places]

    def _outs(self, n: int, into: Mapping[Value, Any]) -> list[Any]:
        """Memory for the outputs of node number `n`, None for outputs without; empty if it
        allocates its own.
        """
        node = self.graph.nodes[n]
        if not isinstance(node.op, (TritonKernel, Cast)) or into.keys().isdisjoint(node.outputs):
            return []
        return [into.get(y) for y in node.outputs]


def _written(op: Op, arrays: list[Any], outs: list[Any]) -> Any:
    """Compute an op into `outs`."""
    if isinstance(op, TritonKernel):
        return quietly(op.compute_into, arrays, outs)
    from ...backends.torch.fused import bring

    bring(arrays[0].real if arrays[0].dtype.kind == "c" else arrays[0], outs[0])
    return outs[0]


def _runner(op: Op, xp: Any) -> Callable[[list[Any]], Any]:
    """A function that computes an op from a list of arrays."""
    if isinstance(op, (RoutineForward, RoutineBackward, FunctionalDraw)):
        return lambda arrays: quietly(op.compute, xp, *arrays)
    if xp is None:
        return partial(compute, op)
    return partial(compute_elsewhere, op, xp)


def _observed(observer: StepObserver, step: Step, run: Callable[[], R]) -> R:
    """Compute a step under an observer, which waits until the device is done."""
    results: list[Any] = []

    def until_done() -> None:
        results.append(run())
        _wait()

    observer.step((step,), until_done)
    return results[0]


def _wait() -> None:
    """Wait for CUDA, if it is used."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _step_of(node: Node) -> Step:
    """A node as a step that `explain` can list."""
    step = Step(node.op, node.inputs, node.outputs)
    if isinstance(node.op, TritonKernel):
        step.how = "kernel"
    elif multiply_adds(node.op, node.inputs, node.outputs[0]):
        step.how = "product"
    return step


class Kept(SavedActivations):
    """Keeps the values of one call that a pending backward reads, and its random draws."""

    __slots__ = ("drawing", "values")

    def __init__(self, values: dict[Value, Any], drawing: list[Any]) -> None:
        self.values = values
        self.drawing = drawing


class OnDevice(CompiledStep):
    """The executable of a captured step on a PyTorch device."""

    pipelines = "whole on device", "step on device"

    def __init__(
        self, captured: Trace, guards: Guards, nearly: bool = False,
        reserve: ArenaPool | None = None,
    ) -> None:  # fmt: skip
        from ...backends.torch import Array
        from ...backends.torch.fused import reason_off

        self.arrays = Array
        self.unfused = reason_off(captured.assumptions.device)  # why there are no kernels
        self.xp = space(captured.assumptions.device)
        self.recording = recording_on(captured.assumptions.device)
        self.replayed: Replayed | None = None
        self.calls = self.recorded = 0
        super().__init__(captured, guards, nearly, reserve)

    def _settings(self, nearly: bool) -> Settings:
        """Settings of the passes: without Triton there are no kernels, and ops run one by one."""
        return Settings(
            nearly=nearly, fused=not self.unfused, again=True, kind=TritonKernel,
            matrix_units=device_passes.has_matrix_units(self.captured.assumptions.device),
        )  # fmt: skip

    def _bind(self) -> None:
        """Set up the calls; the memory of states is looked up in each run."""
        self.places = [  # states that it reads
            n for n, x in enumerate(self.states)
            if x.array is None and (self.captured.inputs.owners[n] is None or n in self.owned)
        ]  # fmt: skip
        self.read = [self.states[n] for n in self.places]
        self.steps = [_Optimizer(node, self.unfused) for node in self.captured.effects.updates]
        self.walks = [self.walk_of(part.graph) for part in self.parts]
        self.staying = [_staying(part) for part in self.parts]
        made = [set(part.wanted) for part in self.parts]
        self.errors = [[] for _ in self.parts]
        for y, error in self.checked.items():
            k = next((k for k, own in enumerate(made) if y in own), 0)
            self.errors[k].append((y, error))
        # Any computation may run out of memory.
        fails = [bool(walk.calls or own) for walk, own in zip(self.walks, self.errors, strict=True)]
        count = len(self.steps)
        self.undone = [k + 1 < count or any(fails[k + 1 :]) for k in range(count)]
        pairs = zip(self.captured.effects.written, self.written, strict=True)
        written = [(n, y) for n, y in pairs if y not in self.after]  # but for optimizers
        self.writes = [(n, y) for n, y in written if n >= 0]
        self.given_writes = [(~n, y) for n, y in written if n < 0]
        self.obstacles = obstacles(self)  # to be one recording
        self._look()

    def _rebind(self) -> None:
        self.replayed = None
        self._bind()

    def _look(self) -> None:
        """Register where states are, gradients excepted, which are new tensors after each run."""
        states = [self.state(n) for n in self.places if n not in self.owned]
        self.bound = [(x, x._data, x._node) for x in states]
        self.ahead = parents_of(tuple(x for x in states if x._node is not None))
        tensors = (*self.after.values(), *(self.state(n) for n, _ in self.writes))
        changed, state_arrays = [x._data for x in tensors], [array for _, array, _ in self.bound]
        assert_apart(state_arrays, changed)
        self.memory = AliasingGuard(
            state_arrays, changed, [n for n, _ in self.given_writes], self._ordered()
        )

    def _check(self, arguments: Sequence[Any]) -> None:
        """Refuse arguments that cannot be written, or share memory with something written; see
        `AliasingGuard`.
        """
        if not have_memory(self.bound):
            with CAPTURING:  # perhaps it was another thread's symbols
                if not have_memory(self.bound):
                    self._look()
        self.memory.check(arguments)
        if self.given_writes and self.owned:
            gradients = [self.state(n)._data for n in self.owned]
            AliasingGuard(gradients, (), self.memory.arguments).check(arguments)

    def walk_of(self, graph: Program) -> Walk:
        """The executor of a program."""
        return Walk(graph, self.xp)

    def listed(self) -> list[list[tuple[tuple[Step, ...], bool, int]]]:
        """Listing of the calls of each segment, which Python makes one by one."""
        return [[((step,), False, 0) for step in walk.steps] for walk in self.walks]

    def sizes(self) -> tuple[int, int]:
        """Bytes of intermediate values: at their peak, and of all."""
        sizes = [walk.sizes() for walk in self.walks]
        return sum(most for most, _ in sizes), sum(whole for _, whole in sizes)

    @property
    def bytes(self) -> int:
        """Bytes of the memory kept between runs, which only a recording does."""
        return 0 if self.replayed is None else self.sizes()[0] + self.replayed.bytes

    def _begin(
        self, arguments: list[Any], observer: StepObserver | None, numbers: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Run the program; each run allocates its own memory."""
        return self._run(arguments, observer, None, numbers)

    def _replay(self, arguments: Sequence[Any], numbers: Sequence[Any]) -> tuple[Any, Any]:
        """Run the program by replaying a recording, which is made if there is none that fits."""
        streams = self.captured.inputs.streams
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

    def _rebuilt(
        self,
        arrays: list[Any],
        nodes: Mapping[int, Any] | None,
        arguments: Sequence[Any],
        numbers: Sequence[Any],
    ) -> tuple[Any, Any]:
        """Rebuild the function's return value."""
        if (profile := MODE.get().observer) is not None:
            profile.made(arrays)
        results_form = self.captured.outputs.results
        results = results_form.wrapped(arrays, nodes, self.ahead, arguments)
        more = numbers[self.captured.effects.options :]
        return results_form.rebuilt(results, arguments, more)

    def _run(
        self,
        arguments: list[Any],
        observer: StepObserver | None,
        lease: SavedActivations | None,
        numbers: Sequence[Any],
    ) -> tuple[Any, Any]:
        self._check(arguments)
        if self.calls >= WARM and not self.obstacles and observer is None:
            return self._replay(arguments, numbers)
        self.calls += 1
        self.replayed = None
        captured = self.captured
        array_at = self.known_arrays([x._data for x in arguments])
        if any(isinstance(array, LazyValue) for array in array_at.values()):
            with CAPTURING:  # another thread's symbols
                array_at = self.known_arrays([x._data for x in arguments])
        taken = Taken(array_at.values())
        streams = captured.inputs.streams
        for stream in streams:
            stream.begin()
        try:
            self._walk(array_at, observer, numbers)
        except BaseException:
            for stream in streams:
                stream.undo()
            raise
        kept = None
        if self.tangents:
            read = (*self.parts[-1].inputs, *self.tangents)
            values = {x: array_at[x] for x in read if x in array_at}
            taken.claim(values.values())
            kept = Kept(values, [stream.now for stream in streams])
        gradients = [wrap(taken.own(array_of(array_at, y))) for y in self.gradients]
        arrays = [taken.own(array_of(array_at, y)) for y in self.results]
        nodes = {} if kept is None else self._history(arguments, kept, arrays)
        staged = [(x, taken.own(array_of(array_at, y))) for x, y in self.writes_of(arguments)]
        with CAPTURING:
            write_all(staged)
            give(captured.effects.leaves, gradients, captured.effects.dropped)
        return self._rebuilt(arrays, nodes, arguments, numbers)

    def known_arrays(self, arguments: Sequence[Any]) -> dict[Value, Any]:
        """Arrays of arguments, states and constants, by value."""
        array_at = {x: x.array for x in self.states if x.array is not None}
        array_at.update(zip(self.arguments, arguments, strict=True))
        array_at.update(zip(self.read, self.states_now(), strict=True))
        return array_at

    def states_now(self) -> list[Any]:
        """Current arrays of the states that are read."""
        return [self.state(n)._data for n in self.places]

    def writes_of(self, arguments: Sequence[Any]) -> list[tuple[Any, Value]]:
        """States and arguments that are written, except by optimizers, with their new values."""
        states = [(self.state(n), y) for n, y in self.writes]
        return [*states, *((arguments[n], y) for n, y in self.given_writes)]

    def _walk(
        self, array_at: dict[Value, Any], observer: StepObserver | None, numbers: Sequence[Any]
    ) -> None:
        """Run all segments; if that fails, the optimizers' steps are undone."""
        undo: list[Callable[[], None]] = []
        try:
            self._compute_into(array_at, observer, numbers, undo)
        except BaseException:
            for restore in reversed(undo):
                restore()
            raise

    def _compute_into(
        self, array_at: dict[Value, Any], observer: StepObserver | None, numbers: Sequence[Any],
        undo: list[Callable[[], None]],
    ) -> None:  # fmt: skip
        """Run all segments, except the one for a later backward, and the optimizers' steps."""
        steps = iter(self.steps)
        walks = self.walks[:-1] if self.tangents else self.walks
        parts = zip(self.parts, walks, self.errors, strict=False)
        for k, (part, walk, errors) in enumerate(parts):
            outputs = walk.run([array_at[x] for x in part.inputs], observer)
            array_at.update(zip(part.wanted, outputs, strict=True))
            if k < len(self.steps):
                array_at.update((x, array_at[x].copy()) for x in self.staying[k])
            for wrong, error in errors:
                if array_of(array_at, wrong).item():
                    raise error()
            step = next(steps, None)
            if step is None:
                continue
            if self.undone[k] or not step.has_run:
                undo.append(step.restoring())
            run = partial(step.run, array_at, numbers)
            if observer is None:
                run()
            else:
                name = type(step.optimizer).__name__
                observer.around(f"Optimizer.step#{name}.step", run, (), {})

    def _gradients_of(self, lease: Callable[[], Any], cotangents: Sequence[Any]) -> list[Any]:
        """Compute the gradients of the inputs from those of the results; None where there
        is none.
        """
        kept = lease()
        arrived = {n for n, g in enumerate(cotangents) if g is not None}
        with self:
            array_at = dict(kept.values)
            for seed, g in zip(self.seeds, cotangents, strict=True):
                zeros = self.xp.zeros(seed.shape, seed.spec.dtype.numpy) if g is None else None
                array_at[seed] = zeros if g is None else concrete(g)
            for stream, now in zip(self.captured.inputs.streams, kept.drawing, strict=True):
                stream.now = now
            taken = Taken(array_at.values())
            observer = MODE.get().observer
            outputs = self.walks[-1].run([array_at[x] for x in self.parts[-1].inputs], observer)
            array_at.update(zip(self.parts[-1].wanted, outputs, strict=True))
            gradients = [
                taken.own(array_of(array_at, y)) if leading & arrived else None
                for y, leading in zip(self.tangents, self.captured.gradients.leading, strict=True)
            ]
            if observer is not None:
                observer.made(gradients)
            return [None if y is None else wrap(y) for y in gradients]

    def _call(self, lease: SavedActivations, count: int) -> CompiledCall:
        """The autograd op of a call."""
        return CompiledCall(
            partial(self._gradients_of, weakref.ref(lease)), self._back_again, count
        )


def _staying(part: Any) -> list[Value]:
    """Outputs of a segment that show inputs without being views: they are copied, so as not to
    change with the inputs.
    """
    inputs = set(part.graph.inputs)
    for node in part.graph.nodes:
        if node.op.view and node.values and node.values[0] in inputs:
            inputs.update(node.outputs)
    pairs = zip(part.wanted, part.graph.outputs, strict=True)
    return [x for x, y in pairs if y in inputs and x not in part.views]


class _Optimizer(OptimizerGuards):
    """An optimizer's step on the device: its formula as one Triton kernel, or as it runs
    eagerly.
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
            column_values = [[next(values) for _ in column] for column in columns]
            self.gradients.update(zip(map(id, columns[0]), column_values[1], strict=True))
        self.parameters = [p for columns in self.op.columns for p in columns[0]]
        self.rows: dict[Any, Any] = {}  # kernel of each formula; None where it has none
        self.bound: dict[Any, Any] = {}  # by formula: addresses of tensors, and the bound kernel

    def run(self, array_at: dict[Value, Any], numbers: Sequence[Any]) -> None:
        """Make the step, while some options are replaced by computed `numbers`; the updated arrays
        are added to `array_at`.
        """
        self.take(array_at)
        if self.skip is None or not array_of(array_at, self.skip).item():
            self._with_gradients(array_at, partial(self.with_options, numbers, self._run))
        self.has_run = True
        self.know(array_at)

    def _run(self) -> None:
        if self.has_formulas:
            kernels, left = self._begin()
            for bound in kernels:
                bound.run()
            if left:
                self.optimizer._change_all(left)
        else:
            self.optimizer.update_groups(self.groups)

    def take(self, array_at: dict[Value, Any]) -> None:
        """Write values into parameters and states that the function has assigned before the
        step.
        """
        arrays = [(x, array_of(array_at, y)) for x, y in self.read]
        written = [(x, array) for x, array in arrays if array is not x._data]
        watched = announce([x for x, _ in written], "step") if written else ()
        for x, array in written:
            x._data[...] = array
        for version in watched:
            version.bump("step")

    def know(self, array_at: dict[Value, Any]) -> None:
        """Add the updated arrays to `array_at`."""
        array_at.update((y, x._data) for x, y in zip(self.op.written(), self.outputs, strict=True))

    def begin_with(
        self, gradients: dict[Value, Any], numbers: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Count the step for gradients in these buffers. Returns the kernels to be run, with their
        scalars set, and batches of parameters that have none.
        """
        run = partial(self.with_options, numbers, self._begin)
        return self._with_gradients(gradients, run)  # type: ignore[no-any-return]

    def finish_with(
        self, gradients: dict[Value, Any], left: list[Any], numbers: Sequence[Any]
    ) -> None:
        """Update the parameters of batches that have no kernel."""
        if left:
            change = partial(self.optimizer._change_all, left)
            self._with_gradients(gradients, partial(self.with_options, numbers, change))

    def _with_gradients(self, array_at: dict[Value, Any], run: Callable[[], R]) -> R:
        """Call `run` while parameters have these gradients, as eager code in an optimizer's step
        sees them.
        """
        before = [(p._leaf, p._leaf.grad) for p in self.parameters]
        try:
            for p in self.parameters:
                p._leaf.grad = wrap(array_of(array_at, self.gradients[id(p)]))
            with switched(mode_with(DEFAULT, grad=False)):
                return run()
        finally:
            complete([partial(setattr, leaf, "grad", g) for leaf, g in before])

    @property
    def has_formulas(self) -> bool:
        """Whether the step may run as Triton kernels."""
        return not self.unfused and hasattr(self.optimizer, "formula_for")

    def _begin(self) -> tuple[list[Any], list[Any]]:
        """Count the step, and set the scalars of kernels: one kernel for all parameters of a
        formula. Returns them, and the batches of parameters that have none.
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
                formula_scalars = optimizer.formula_for(batch.group, batch.numbers, names, dtypes)
                if isinstance(formula_scalars, str) or self._rows_of(formula_scalars[0]) is None:
                    left.append(batch)
                else:
                    parts.setdefault(formula_scalars[0], []).append((columns, formula_scalars[1]))
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
        """The kernel of a formula; None where it has none."""
        from ...backends.torch.fused import Rows

        if formula not in self.rows:
            run = formula.run
            try:
                self.rows[formula] = Rows(run.kernel, run.columns, type(self.optimizer).__name__)
            except NotTraceable:
                self.rows[formula] = None
        return self.rows[formula]

    def _bound(self, formula: Any, tensors: list[list[Any]]) -> Any:
        """The kernel of a formula, bound to these tensors."""
        columns = [[x._data.tensor for x in column] for column in tensors]
        columns[1] = [t.contiguous() for t in columns[1]]  # gradients, which are read only
        key = tuple(t.data_ptr() for column in columns for t in column)
        entry = self.bound.get(formula)
        if entry is None or entry[0] != key:
            columns = [
                [t.contiguous() for t in columns[1]] if k == 1 else c for k, c in enumerate(columns)
            ]
            entry = self.bound[formula] = key, self.rows[formula].bound(columns)
        return entry[1]
