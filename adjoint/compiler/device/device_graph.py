"""CUDA graphs: a whole step on a device as one recording, replayed without Python.

The host's work of each call comes before the replay: arguments are copied to the recording's
buffers, random numbers are drawn into them, optimizers count their step and write its scalars to
where their kernels read them. States are read and written in place. Whether a step can be recorded
is known before (`obstacles`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.device import CPU, device
from ...ir.compute import compute
from ...ir.program import Node, Program, Value
from ...ops.create.conversion import Transfer
from ...ops.shape.movement import Reshape
from ...runtime.tensors import wrap
from ...runtime.writes import announce
from ..capture.random_state import FunctionalDraw
from ..run.bindings import give, holders, showers

if TYPE_CHECKING:
    from ...backends.torch.array import Array
    from .device_step import OnDevice

COPIED = 12 << 20  # bytes that take as long to be copied as the host to ask for an op
WARM = 2  # calls before: Triton compiles, libraries choose their algorithms and take memory


class Obstacle(NamedTuple):
    """Reason why a step cannot be recorded."""

    what: str  # an op, an optimizer
    why: str


class CudaRecording:
    """CUDA graph of the device work of `run`; `outputs` are its results."""

    def __init__(self, run: Callable[[], list[Any]]) -> None:
        import torch

        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = run()

    def replay(self) -> None:
        """Launch the graph."""
        self.graph.replay()


def recording_on(device: device) -> type[CudaRecording] | None:
    """The recording class for a device; None where there is none."""
    return CudaRecording if device.type == "cuda" else None


def obstacles(program: OnDevice) -> list[Obstacle]:
    """Reasons why the whole step of an `OnDevice` cannot be one recording."""
    reasons = []
    if program.recording is None:
        reasons.append(
            Obstacle(str(program.captured.assumptions.device), "only CUDA records what it does")
        )
    if program.tangents:
        reasons.append(Obstacle("backward", "gradients of what is returned come in later"))
    copied = sum(x.nbytes for x in (*program.arguments, *program.results))
    calls = sum(len(part.graph.nodes) for part in program.parts) + len(program.steps)
    if copied > COPIED * calls:
        why = f"{copied >> 20} MiB of arguments and results would be copied for {calls} ops"
        reasons.append(Obstacle("copies", why))
    if program.checked:
        reasons.append(Obstacle("a check", "the host looks at a value before it goes on"))
    for part in program.parts:
        for node in part.graph.nodes:
            op = node.op
            if isinstance(op, FunctionalDraw) and (node.values or len(node.outputs) > 1):
                reasons.append(Obstacle(op.name, "the host reads the parameters of what is drawn"))
            elif isinstance(op, Transfer) or any(_is_host(x) for x in node.values):
                reasons.append(Obstacle(op.name, "memory of the host, which it would read once"))
            elif _waits(node):
                reasons.append(Obstacle(op.name, "the host looks at a value"))
    for step in program.steps:
        if step.skip is not None:
            why = "the host looks at whether GradScaler skips it"
            reasons.append(Obstacle(type(step.optimizer).__name__, why))
        if not step.has_formulas:
            name = type(step.optimizer).__name__
            why = step.unfused or "its step is no formula of each element"
            reasons.append(Obstacle(name, f"its numbers are the host's ({why})"))
    return reasons


# Ops for which the host reads values of the device, as docs/cuda.md lists them: divisions of
# integers, which look for zeros, and ops that check their inputs or results.
_DIVISIONS = frozenset(("floor_divide", "trunc_divide", "remainder", "fmod"))
WAITING = frozenset((
    "cholesky", "cholesky_solve", "determinant", "eig", "eigh", "geqrf", "inverse", "lu_factor",
    "matrix_exp", "pseudo_inverse", "qr", "s_log_det", "solve", "solve_triangular", "svd",
    "binary_cross_entropy", "bin_count",
))  # fmt: skip


def _waits(node: Node) -> bool:
    """Whether the host waits for values that an op reads."""
    whole = all(x.spec.dtype.category < 2 for x in node.values)
    return node.op.name in WAITING or (whole and node.op.name in _DIVISIONS)


def _is_host(x: Value) -> bool:
    return x.spec.device == CPU


class Taken:
    """Tracks memory that is known elsewhere, so that results share none of it, and are row-major
    where another layout was this program's choice.
    """

    def __init__(self, arrays: Iterable[Any]) -> None:
        self.used: set[int] = set()
        self.claim(arrays)

    def claim(self, arrays: Iterable[Any]) -> None:
        """Register arrays whose memory is known elsewhere."""
        self.used.update(map(_place, arrays))

    def own(self, array: Any) -> Any:
        """The array, or a copy of it, such that nobody else knows its memory and no two elements
        share an address.
        """
        storage = _place(array)
        if storage in self.used or 0 in array.strides or _is_channels_last(array):
            array = array.copy()
            storage = _place(array)
        self.used.add(storage)
        return array


def _is_channels_last(array: Any) -> bool:
    return type(array) is not np.ndarray and array.is_channels_last()


def _place(array: object) -> int:
    """Address of an array's storage; a unique number if it has no memory."""
    tensor = getattr(array, "tensor", None)
    pointer = 0 if tensor is None else int(tensor.untyped_storage().data_ptr())
    return pointer or -id(array)


class Replayed:
    """A recording of a program, with its buffers."""

    def __init__(self, program: Any, arguments: Sequence[Any]) -> None:
        """`arguments` are examples, by which the recording's buffers are allocated."""
        self.program = program
        self.inputs = [x._data.copy() for x in arguments]
        self.drawn = [
            node for part in program.parts for node in part.graph.nodes
            if isinstance(node.op, FunctionalDraw)
        ]  # fmt: skip
        self.draws = {node.output: self._empty(node.output) for node in self.drawn}
        self.walks = [program.walk_of(_without_draws(part.graph)) for part in program.parts]
        self.stepped = {y for step in program.steps for y in step.gradients.values()}
        with_buffers = dict.fromkeys((*program.gradients, *self.stepped))
        self.gradients = {y: self._empty(y) for y in with_buffers if y.array is None}
        self.given: list[Any] = []  # gradients as leaves have them
        self.holders: list[tuple[int, int]] = []  # their reference counts, before others saw them
        self.states = program.states_now()
        self.recording: Any = None
        self.kernels: list[list[Any]] = []  # recorded kernels of each optimizer
        self.watched: Any = ()  # versions of what is written

    def _empty(self, y: Value) -> Any:
        return self.program.xp.empty(y.shape, y.spec.dtype.numpy)

    def fits(self) -> bool:
        """Whether the recording is valid: states are in the same memory, and nobody keeps gradients
        of the last run, which the next one would overwrite.
        """
        if self.given and not self._held_alike():
            return False
        now = self.program.states_now()
        return all(a is b for a, b in zip(now, self.states, strict=True))

    def _held_alike(self) -> bool:
        leaves = self.program.captured.effects.leaves
        counts = [
            (holders(self.given, k, x._leaf), showers(self.given, k)) for k, x in enumerate(leaves)
        ]
        self.holders = self.holders or counts
        return counts == self.holders

    @property
    def bytes(self) -> int:
        """Bytes of the buffers for arguments, random numbers and gradients."""
        arrays = (*self.inputs, *self.draws.values(), *self.gradients.values())
        return sum(array.nbytes for array in arrays)

    def run(self, arguments: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """Run the step: its results in new memory. If the device refuses to record it, it is
        computed directly, now and from then on.
        """
        self.watched = announce([x for x, _ in self.program.writes_of(arguments)], "step")
        for mine, x in zip(self.inputs, arguments, strict=True):
            mine[...] = x._data
        for node in self.drawn:
            self.draws[node.output][...] = compute(node.op.of_this_run(), [])  # type: ignore[attr-defined]
        begun = [step.begin_with(self.gradients, numbers) for step in self.program.steps]
        kernels = [own for own, _ in begun]
        if self.recording is None or kernels != self.kernels:
            self.kernels = kernels
            try:
                self.recording = self.program.recording(self._record)
            except (RuntimeError, ValueError) as error:  # nothing has been computed
                self.program.obstacles = [Obstacle("recording", str(error))]
                self.recording = None
        if self.recording is None:
            outputs = self._record()
        else:
            self.recording.replay()
            outputs = [y.copy() for y in self.recording.outputs]
        for step, (_, left) in zip(self.program.steps, begun, strict=True):
            step.finish_with(self.gradients, left, numbers)
        for n, _ in self.program.given_writes:
            arguments[n]._data[...] = self.inputs[n]
        return outputs

    def _record(self) -> list[Any]:
        """The work that is recorded; returns the results."""
        program = self.program
        array_at = program.known_arrays(self.inputs)
        taken = Taken([*array_at.values(), *self.gradients.values()])
        # Where the gradients of the last run are read, they are not written over yet.
        gradient_buffers = {} if program.owned else self.gradients
        for k, (part, walk) in enumerate(zip(program.parts, self.walks, strict=True)):
            draws = [self.draws[y] for y in _draws_of(part.graph)]
            pairs = zip(part.wanted, part.graph.outputs, strict=True)
            into = dict([_made(y, gradient_buffers[x]) for x, y in pairs if x in gradient_buffers])
            outputs = walk.run([*(array_at[x] for x in part.inputs), *draws], None, into)
            array_at.update(zip(part.wanted, outputs, strict=True))
            if k < len(program.steps):
                step = program.steps[k]
                array_at.update((x, array_at[x].copy()) for x in program.staying[k])
                for y in step.gradients.values():
                    if y.array is None:
                        _bring(self.gradients[y], array_at[y])
                step.take(array_at)
                for kernel in self.kernels[k]:
                    kernel.run()
                step.know(array_at)
        results = [taken.own(array_of(array_at, y)) for y in program.results]
        staged = [(array, taken.own(array_of(array_at, y))) for array, y in self._writes()]
        for y, buffer in self.gradients.items():
            if y not in self.stepped:
                _bring(buffer, array_at[y])
        for array, value in staged:
            array[...] = value
        return results

    def _writes(self) -> list[tuple[Any, Value]]:
        """Memory of states and arguments that are written, with their new values."""
        program = self.program
        states = [(program.state(n)._data, y) for n, y in program.writes]
        return [*states, *((self.inputs[n], y) for n, y in program.given_writes)]

    def give(self) -> None:
        """Assign the gradients to leaves, and bump the versions of tensors that were written."""
        program = self.program
        for version in self.watched:
            version.bump("step")
        self.given = [wrap(array_of(self.gradients, y)) for y in program.gradients]
        give(program.captured.effects.leaves, self.given, program.captured.effects.dropped)
        self.holders = []
        self._held_alike()


def _bring(buffer: Array, array: Array) -> None:
    """Copy an array to `buffer`, unless it was computed there."""
    if not _is_same(array, buffer):
        from ...backends.torch.fused import bring

        bring(array, buffer)


def _is_same(array: Array, other: Array) -> bool:
    """Whether two arrays have the same memory, dtype and layout."""
    if array is other:
        return True
    a, b = array.tensor, other.tensor
    same_layout = (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
    return bool(same_layout and a.data_ptr() == b.data_ptr())


def _made(y: Value, buffer: Array) -> tuple[Value, Any]:
    """The value that is computed for `y`, which may be a reshape of it, and the buffer with that
    value's shape.
    """
    while y.node is not None and isinstance(y.node.op, Reshape):
        y = y.node.values[0]
        buffer = buffer.reshape(y.shape)
    return y, buffer


def array_of(array_at: dict[Value, Any], y: Value) -> Any:
    """The array of a value, which may be a constant."""
    return y.array if y.array is not None else array_at[y]


def _draws_of(graph: Program) -> list[Value]:
    return [node.output for node in graph.nodes if isinstance(node.op, FunctionalDraw)]


def _without_draws(graph: Program) -> Program:
    """The program with random numbers as further inputs."""
    nodes = [node for node in graph.nodes if not isinstance(node.op, FunctionalDraw)]
    return Program([*graph.inputs, *_draws_of(graph)], nodes, graph.outputs)
