"""A whole step on a device as one recording (a CUDA graph), run again with nothing of Python's.

What the host decides at each call comes before it: arguments are copied to where the recording
reads them, random numbers are drawn there, optimizers count their step and put its numbers where
their kernels read them. States are read and written where they are. What a recording cannot be of
is known before it is made (`obstacles`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.device import CPU
from ..eager.tensors import wrap
from ..eager.writes import announce
from ..ops.create.conversion import Transfer
from ..ops.shape.movement import Reshape
from ..program.compute import compute
from ..program.program import Node, Program, Value
from .drawing import Drawn
from .handover import give, holders, showers

COPIED = 12 << 20  # bytes that take as long to be copied as the host to ask for an op
WARM = 2  # calls before: Triton compiles, libraries choose their algorithms and take memory


class Obstacle(NamedTuple):
    """Why a step is no recording."""

    what: str  # an op, an optimizer
    why: str


class CudaRecording:
    """What `run` asks the device to do, recorded; `outputs` are what it returned."""

    def __init__(self, run: Callable[[], list[Any]]) -> None:
        import torch

        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = run()

    def replay(self) -> None:
        """Do it once more."""
        self.graph.replay()


def recording_on(place: Any) -> type[CudaRecording] | None:
    """What records on a device; None where nothing does."""
    return CudaRecording if place.type == "cuda" else None


def obstacles(program: Any) -> list[Obstacle]:
    """What keeps a whole step (an `OnDevice`) from being one recording."""
    found = []
    if program.recording is None:
        found.append(Obstacle(str(program.captured.device), "only CUDA records what it does"))
    if program.tangents:
        found.append(Obstacle("backward", "gradients of what is returned come in later"))
    copied = sum(x.nbytes for x in (*program.arguments, *program.results))
    calls = sum(len(part.graph.nodes) for part in program.parts) + len(program.steps)
    if copied > COPIED * calls:
        why = f"{copied >> 20} MiB of arguments and results would be copied for {calls} ops"
        found.append(Obstacle("copies", why))
    if program.checked:
        found.append(Obstacle("a check", "the host looks at a value before it goes on"))
    for part in program.parts:
        for node in part.graph.nodes:
            op = node.op
            if isinstance(op, Drawn) and (node.values or len(node.outputs) > 1):
                found.append(Obstacle(op.name, "the host reads the parameters of what is drawn"))
            elif isinstance(op, Transfer) or any(_is_host(x) for x in node.values):
                found.append(Obstacle(op.name, "memory of the host, which it would read once"))
            elif _waits(node):
                found.append(Obstacle(op.name, "the host looks at a value"))
    for step in program.steps:
        if step.skip is not None:
            why = "the host looks at whether GradScaler skips it"
            found.append(Obstacle(type(step.optimizer).__name__, why))
        if not step.has_formulas:
            name = type(step.optimizer).__name__
            why = step.unfused or "its step is no formula of each element"
            found.append(Obstacle(name, f"its numbers are the host's ({why})"))
    return found


# Ops that read values of a device, as docs/cuda.md lists them: divisions of integers, which look
# for zeros; what is checked before or after it is factorized, drawn or counted.
_DIVISIONS = frozenset(("floor_divide", "trunc_divide", "remainder", "fmod"))
WAITING = frozenset((
    "cholesky", "determinant", "eig", "eigh", "geqrf", "inverse", "lu_factor", "matrix_exp",
    "pseudo_inverse", "qr", "s_log_det", "solve", "solve_triangular", "svd",
    "binary_cross_entropy", "bin_count",
))  # fmt: skip


def _waits(node: Node) -> bool:
    """Whether the host waits for what an op reads."""
    whole = all(x.spec.dtype.category < 2 for x in node.values)
    return node.op.name in WAITING or (whole and node.op.name in _DIVISIONS)


def _is_host(x: Value) -> bool:
    return x.spec.device == CPU


class Taken:
    """Whose memory is known elsewhere: what goes out shows none of it, and is row-major where that
    was this program's choice.
    """

    def __init__(self, arrays: Any) -> None:
        self.used: set[int] = set()
        self.claim(arrays)

    def claim(self, arrays: Any) -> None:
        """These are known elsewhere."""
        self.used.update(map(_place, arrays))

    def own(self, array: Any) -> Any:
        """The array, or a copy: nobody else's, and each element has a place of its own."""
        place = _place(array)
        if place in self.used or 0 in array.strides or _is_channels_last(array):
            array = array.copy()
            place = _place(array)
        self.used.add(place)
        return array


def _is_channels_last(array: Any) -> bool:
    return type(array) is not np.ndarray and array.is_channels_last()


def _place(array: Any) -> int:
    """Where the storage of an array begins; of no memory, its own number."""
    tensor = getattr(array, "tensor", None)
    found = 0 if tensor is None else int(tensor.untyped_storage().data_ptr())
    return found or -id(array)


class Replayed:
    """A recording of a program, with the memory that it reads and writes."""

    def __init__(self, program: Any, arguments: Sequence[Any]) -> None:
        """`arguments` say how large the recording's own are."""
        self.program = program
        self.inputs = [x._data.copy() for x in arguments]
        self.drawn = [
            node for part in program.parts for node in part.graph.nodes
            if isinstance(node.op, Drawn)
        ]  # fmt: skip
        self.draws = {node.output: self._empty(node.output) for node in self.drawn}
        self.walks = [program.walk_of(_without_draws(part.graph)) for part in program.parts]
        self.stepped = {y for step in program.steps for y in step.gradients.values()}
        wanted = dict.fromkeys((*program.gradients, *self.stepped))
        self.gradients = {y: self._empty(y) for y in wanted if y.array is None}
        self.given: list[Any] = []  # gradients as leaves have them
        self.holders: list[tuple[int, int]] = []  # of these, when nobody else had seen them
        self.states = program.states_now()
        self.recording: Any = None
        self.kernels: list[list[Any]] = []  # of each optimizer, that were recorded
        self.watched: Any = ()  # versions of what is written

    def _empty(self, y: Value) -> Any:
        return self.program.xp.empty(y.shape, y.spec.dtype.numpy)

    def fits(self) -> bool:
        """Whether states are where they were when it was recorded, and nobody keeps gradients of
        the last run, which the next one would overwrite.
        """
        if self.given and not self._held_alike():
            return False
        now = self.program.states_now()
        return all(a is b for a, b in zip(now, self.states, strict=True))

    def _held_alike(self) -> bool:
        leaves = self.program.captured.leaves
        found = [
            (holders(self.given, k, x._leaf), showers(self.given, k)) for k, x in enumerate(leaves)
        ]
        self.holders = self.holders or found
        return found == self.holders

    @property
    def bytes(self) -> int:
        """How large the memory is that it keeps for what comes in and for gradients."""
        arrays = (*self.inputs, *self.draws.values(), *self.gradients.values())
        return sum(array.nbytes for array in arrays)

    def run(self, arguments: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """The results, in memory of their own; everything is written. What the device refuses to
        record is computed, and an obstacle from then on.
        """
        self.watched = announce([x for x, _ in self.program.writes_of(arguments)], "step")
        for mine, x in zip(self.inputs, arguments, strict=True):
            mine[...] = x._data
        for node in self.drawn:
            self.draws[node.output][...] = compute(node.op.of_this_run(), [])  # type: ignore[attr-defined]
        begun = [step.begin_with(self.gradients, numbers) for step in self.program.steps]
        kernels = [found for found, _ in begun]
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
        """What is recorded: the results."""
        program = self.program
        known = program.known_arrays(self.inputs)
        taken = Taken([*known.values(), *self.gradients.values()])
        # Where the gradients of the last run are read, they are not written over yet.
        places = {} if program.owned else self.gradients
        for k, (part, walk) in enumerate(zip(program.parts, self.walks, strict=True)):
            draws = [self.draws[y] for y in _draws_of(part.graph)]
            pairs = zip(part.wanted, part.graph.outputs, strict=True)
            into = dict([_made(y, places[x]) for x, y in pairs if x in places])
            found = walk.run([*(known[x] for x in part.inputs), *draws], None, into)
            known.update(zip(part.wanted, found, strict=True))
            if k < len(program.steps):
                step = program.steps[k]
                known.update((x, known[x].copy()) for x in program.staying[k])
                for y in step.gradients.values():
                    if y.array is None:
                        _bring(self.gradients[y], known[y])
                step.take(known)
                for kernel in self.kernels[k]:
                    kernel.run()
                step.know(known)
        results = [taken.own(array_of(known, y)) for y in program.results]
        staged = [(array, taken.own(array_of(known, y))) for array, y in self._writes()]
        for y, place in self.gradients.items():
            if y not in self.stepped:
                _bring(place, known[y])
        for array, value in staged:
            array[...] = value
        return results

    def _writes(self) -> list[tuple[Any, Value]]:
        """The memory of states that are written, and of arguments; and their values."""
        program = self.program
        found = [(program._state(n)._data, y) for n, y in program.writes]
        return [*found, *((self.inputs[n], y) for n, y in program.given_writes)]

    def give(self) -> None:
        """Let leaves have their gradients, and others know what was written."""
        program = self.program
        for version in self.watched:
            version.bump("step")
        self.given = [wrap(array_of(self.gradients, y)) for y in program.gradients]
        give(program.captured.leaves, self.given, program.captured.dropped)
        self.holders = []
        self._held_alike()


def _bring(place: Any, array: Any) -> None:
    """Let memory have what was computed, unless it was computed there."""
    if not _is_same(array, place):
        from ..backends.torch.fused import bring

        bring(array, place)


def _is_same(array: Any, place: Any) -> bool:
    """Whether an array shows just the memory of another."""
    if array is place:
        return True
    a, b = array.tensor, place.tensor
    alike = (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
    return bool(alike and a.data_ptr() == b.data_ptr())


def _made(y: Value, place: Any) -> tuple[Value, Any]:
    """What is computed for a value that is to be in a place, and where: what is only reshaped has
    another shape.
    """
    while y.node is not None and isinstance(y.node.op, Reshape):
        y = y.node.values[0]
        place = place.reshape(y.shape)
    return y, place


def array_of(known: dict[Value, Any], y: Value) -> Any:
    """The array of a value that is known, or a constant."""
    return y.array if y.array is not None else known[y]


def _draws_of(graph: Program) -> list[Value]:
    return [node.output for node in graph.nodes if isinstance(node.op, Drawn)]


def _without_draws(graph: Program) -> Program:
    """The program with what is drawn as further inputs."""
    nodes = [node for node in graph.nodes if not isinstance(node.op, Drawn)]
    return Program([*graph.inputs, *_draws_of(graph)], nodes, graph.outputs)
