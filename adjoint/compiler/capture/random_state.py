"""RNG functionalization: each run of a compiled function draws the numbers that eager execution
would.

A program identifies a draw by the number of draws that its generator had made since the function
began. A draw that is repeated from a restored state (`utils.checkpoint`) is therefore the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, SupportsInt

import numpy as np

from ...core.device import CPU
from ...core.dtype import bool_, float64, int64
from ...core.errors import Unsupported
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_scalar import SymbolicNumber
from ...core.symbolic_sizes import is_size
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ir import compute as core_compute
from ...ir.program import Node
from ...ops.random.draws import Draw, Followed
from ...runtime.tensors import wrap

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray
    from ...ops.random.random import Generator


class FunctionalDraw(Op, abstract=True):
    """A functional draw, whose seed and number are those of the run. If it is `behind` nodes that
    draw a data-dependent number of times, its last input is the number of their extra draws, beyond
    one each. Fields in `named` vary from run to run (p of dropout) and are inputs behind the draw's
    own.
    """

    drawn = True
    needs = "xs"
    own_tokens = True

    def __init__(
        self, draw: Draw, streams: Sequence[CapturedGenerator], behind: bool = False,
        named: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.draw = draw
        self.behind = behind
        self.named = named
        self.stream = streams[draw.seed]
        self.place = draw.draw - self.stream.first  # number among the draws of a run
        self.device = getattr(draw, "device", CPU)
        self.n_outputs = draw.n_outputs  # type: ignore[misc]
        self.differentiable = draw.differentiable  # type: ignore[misc]
        self.tokens, self.keeps_values = draw.tokens, draw.keeps_values  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionalDraw):
            return NotImplemented
        return self.stream is other.stream and bool(self.draw == other.draw)

    def __hash__(self) -> int:
        return hash(self.draw)

    @property
    def name(self) -> str:
        """Name of the draw's op."""
        return str(self.draw.name)

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """Spec of the draw's result."""
        return self.draw.infer(*self._own(specs))

    def gradient(self, g: Tensor, *saved: Any) -> tuple[Any, ...]:
        """Gradients of the draw's own inputs, and None for the additional ones."""
        gradients: tuple[Any, ...] = self.draw.gradient(g, *saved)
        return (*gradients, *(None,) * (len(self.named) + self.behind))

    def compute(self, xp: Any, *inputs: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Draw the numbers of this run.

        Errors: Unsupported while the function is captured, when there are no numbers.
        """
        if self.stream.captured:
            raise Unsupported(self.stream.captured)
        more = int(inputs[-1]) if self.behind else 0
        own = self._own(inputs)
        numbers = inputs[len(own) : len(own) + len(self.named)]
        return core_compute.compute(self.of_this_run(more, numbers), list(own))

    def of_this_run(self, more: int = 0, numbers: Sequence[Any] = ()) -> Any:
        """The draw's op with the seed, number and fields of this run, as eager execution would have
        it.
        """
        seed, first = self.stream.now
        field_values = {
            name: type(getattr(self.draw, name))(x)
            for name, x in zip(self.named, numbers, strict=True)
        }
        return replace(self.draw, seed=seed, draw=first + self.place + more, **field_values)

    def _own(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs[: len(inputs) - len(self.named) - self.behind]


class AdvanceGenerator(Op, abstract=True):
    """Advances a generator by the draws that only a run can count. The result is always false: it
    is registered as a run-time check, so that each run computes it.
    """

    opaque = True
    differentiable = False

    def __init__(self, stream: CapturedGenerator) -> None:
        self.stream = stream

    def infer(self, more: Spec) -> Spec:
        """Spec of the result, one boolean."""
        return Spec((), bool_)

    def compute(self, xp: Any, more: SupportsInt) -> np.ndarray:
        """Advance the generator, once a run: an op is also computed when its program is bound to
        memory.
        """
        stream = self.stream
        if stream.counting:
            stream.counting = False
            stream.generator.draws += int(more)
        return np.zeros((), bool)


class RunDraws:
    """Values that PyTorch's generator gave for one run, by number of the draw."""

    def __init__(self, twister: Any, draws: int) -> None:
        self.before, self.draws = twister.copy(), draws
        self.values: dict[int, Any] = {}

    def take(self, op: Draw) -> Any:
        """Values of the draw `op`."""
        return self.values[op.draw]


class CapturedGenerator:
    """A generator from which a function draws, with its state when the capture began."""

    def __init__(self, generator: Generator, reads: str) -> None:
        self.captured = reads  # error message for reading a number; "" when the capture is over
        self.generator = generator
        self.key, self.first = generator.key, generator.draws  # when the capture began
        self.count = 0
        self.now: tuple[Any, int] = self.key, self.first  # at the begin of a run
        self.twister = generator.twister  # when the capture began: PyTorch's generator, or None
        self.followed: list[Any] = []  # its draws, in order
        self.is_elsewhere = False  # set to a state in which it was not since
        self.counting = False  # a run has begun, and is to say how many draws more there were
        self.repeats = False  # runs draw again what another program has drawn: see `set`

    def resized(self, fill: Callable[[Any], Any]) -> CapturedGenerator:
        """Copy of the stream, whose runs have their own state.

        Errors: Unsupported for draws of PyTorch's generator whose sizes change.
        """
        for op in self.followed:
            if fill(op) is not op:
                raise Unsupported("compile: sizes of what PyTorch's generator draws")
        return copy.copy(self)

    def is_other(self) -> bool:
        """Whether the generator is of another kind than when the function was captured."""
        return (self.generator.twister is None) != (self.twister is None)

    def begin(self) -> None:
        """Take the generator's state for a run and advance it. PyTorch's generator draws all values
        of the run now, in order.
        """
        if self.is_other():
            raise Unsupported(
                "compile: a generator from which the function draws is PyTorch's now, or no longer "
                "(random.follow_torch, manual_seed); compile the function again"
            )
        if self.repeats:
            return
        generator = self.generator
        self.now = generator.key, generator.draws
        if self.twister is not None:
            run = RunDraws(generator.twister, generator.draws)
            twister = generator.twister
            for op in sorted(self.followed, key=attrgetter("draw")):
                number = op.draw - self.first
                if number >= self.count and twister is generator.twister:
                    twister = twister.copy()  # to before it the function has gone back
                run.values[number] = op.on(twister)
            self.now = run, 0
        generator.draws += self.count
        self.counting = True

    def undo(self) -> None:
        """Restore the generator after a run that has failed."""
        if self.repeats:
            return
        generator, (key, draws) = self.generator, self.now
        if type(key) is RunDraws:
            generator.draws, generator.twister = key.draws, key.before
        else:
            generator.key, generator.draws = key, draws
        self.counting = False

    def set(self, now: tuple[Any, int]) -> None:
        """Set the state from which the coming run draws, which its caller knows."""
        self.now = now


_SEEDED = (
    "compile: the function sets the seed of a generator from which it draws, or makes the "
    "generator; do that outside"
)


def _is_elsewhere(stream: CapturedGenerator) -> bool:
    """Whether its generator is in a state to which draws since the begin do not lead."""
    now = stream.generator
    same = now.twister is stream.twister and now.key == stream.key
    return stream.is_elsewhere or not same or now.draws < stream.first


class CapturedGenerators:
    """The generators from which a function draws while it is captured. `reads` is the error's
    message where it reads a drawn number; `around` are those of the capture around this one.
    """

    def __init__(self, reads: str, around: CapturedGenerators | None = None) -> None:
        self._reads = reads
        self.around = around
        self.all: list[CapturedGenerator] = []
        self._places: dict[int, int] = {}
        self._seeded: dict[int, Generator] = {}  # by id: before they were drawn from
        # States that were read, by id: whose, after how many draws, the tensor.
        self._read: dict[int, tuple[Generator, int, TensorBase]] = {}
        self._more: dict[int, dict[int, Any]] = {}  # by stream and first number: extra draws

    def next_draw(self, generator: Generator) -> tuple[int, int]:
        """Register a draw: the place of its generator among the streams, and its number."""
        if id(generator) in self._seeded:
            raise Unsupported(_SEEDED)
        if id(generator) not in self._places:
            self._add(generator)
        index = self._places[id(generator)]
        stream = self.all[index]
        if _is_elsewhere(stream):
            raise Unsupported(_SEEDED)
        return index, generator.next_draw()[1]

    def _add(self, generator: Generator) -> None:
        self._places[id(generator)] = len(self.all)
        self.all.append(CapturedGenerator(generator, self._reads))

    def note_seed(self, generator: Generator, outside: bool) -> None:
        """Note that a generator is seeded, or made.

        Errors: Unsupported for one from `outside`.
        """
        if outside or id(generator) in self._places:
            raise Unsupported(_SEEDED)
        self._seeded[id(generator)] = generator

    def note_state(self, generator: Generator, state: TensorBase) -> int | None:
        """Note that a generator is about to go to another state: one in which it was since the
        capture began (`utils.checkpoint`), of which the number of draws is returned, or another,
        which the next draw or the end of the capture refuses.
        """
        draws = self.draws_at(generator, state)
        if id(generator) in self._seeded:
            return draws
        if id(generator) not in self._places:
            self._add(generator)
        self.all[self._places[id(generator)]].is_elsewhere = draws is None
        return draws

    def draws_at(self, generator: Generator, state: TensorBase) -> int | None:
        """How many draws the generator had made in a state that was read since the capture began,
        perhaps in one around it; None for others.
        """
        of, draws, _ = self._read.get(id(state), (None, None, None))
        if of is not generator and self.around is not None:
            return self.around.draws_at(generator, state)
        return draws if of is generator else None

    def note_state_read(self, state: TensorBase, generator: Generator) -> None:
        """Note that a tensor is the present state of a generator."""
        self._read[id(state)] = generator, generator.draws, state

    def assert_kept(self) -> None:
        """Refuse a state that was set and in which no generator was since the capture began: runs
        would not set it.

        Errors: Unsupported.
        """
        if any(map(_is_elsewhere, self.all)):
            raise Unsupported(
                "compile: the function sets a generator to a state from outside (set_rng_state, "
                "set_state); do that outside"
            )

    def counts(self) -> list[tuple[int, int]]:
        """Number of draws that each generator has made since the capture began, and how many of
        PyTorch's were noted.
        """
        return [
            (stream.generator.draws - stream.first, len(stream.followed)) for stream in self.all
        ]

    def rewind(self, counts: Sequence[tuple[int, int]]) -> None:
        """Forget all draws since the given counts."""
        for index, stream in enumerate(self.all):
            count, followed = counts[index] if index < len(counts) else (0, 0)
            stream.generator.draws = now = stream.first + count
            del stream.followed[followed:]
            extra = self._more.get(index, {})
            self._more[index] = {number: more for number, more in extra.items() if number <= now}

    def drawn(self, op: Draw, inputs: tuple[Any, ...]) -> tuple[Op, tuple[Any, ...]]:
        """Functional form of a draw, as a program has it, and its inputs."""
        more = self._more_at(op.seed, op.draw)
        if isinstance(op, Followed):
            self._follow(op, self.all[op.seed].followed)
        op, named, numbers = _without_numbers(op)
        extra_inputs = () if more is None else (more,)
        return FunctionalDraw(op, self.all, bool(extra_inputs), named), (
            *inputs,
            *numbers,
            *extra_inputs,
        )

    def _follow(self, op: Draw, followed: list[Draw]) -> None:
        """Note a draw of PyTorch's generator, which may be one that was made before, in a state to
        which the function has gone back.

        Errors: Unsupported for another draw in such a state.
        """
        same = [each for each in followed if each.draw == op.draw]
        if same and same != [op]:
            raise Unsupported(
                "compile: the function brings PyTorch's generator back to a state and draws "
                "something else (set_rng_state, fork_rng); draw outside, or call "
                "random.follow_torch(False) before it is seeded"
            )
        if not same:
            followed.append(op)

    def _more_at(self, index: int, number: int) -> Any:
        extra = self._more.get(index, {})
        before = [each for each in extra if each <= number]
        return extra[max(before)] if before else None

    def enter(self, generator: Generator) -> tuple[int, int, Any]:
        """Register a node that draws a data-dependent number of times, counted as one draw: the
        place of its generator, its number, and the extra draws of nodes before it.
        """
        index, number = self.next_draw(generator)
        more = self._more_at(index, number)
        if more is None:
            more = wrap(np.zeros((), np.int64))
        return index, number, more

    def leave(self, index: int, number: int, more: object) -> None:
        """Register the extra draws made by data-dependent nodes up to and including this one,
        beyond the one that each was counted as.
        """
        self._more.setdefault(index, {})[number + 1] = more

    def more(self) -> list[tuple[int, Any]]:
        """Extra draws of the whole function, for each stream where only a run can count them."""
        extras = [(n, self._more_at(n, each.generator.draws)) for n, each in enumerate(self.all)]
        return [(n, more) for n, more in extras if more is not None]

    def resized(self, fill: Callable[[Any], Any]) -> CapturedGenerators:
        """Copy with streams of its own."""
        made = copy.copy(self)
        made.all = fill(self.all)
        return made

    def restore(self) -> None:
        """Restore the generators to their states before the capture, which is over."""
        self._read.clear()
        self.around = None
        for stream in self.all:
            stream.captured = ""
            stream.count = stream.generator.draws - stream.first
            stream.generator.key, stream.generator.draws = stream.key, stream.first
            stream.generator.twister = stream.twister

    def take_over(self, nodes: Sequence[Node]) -> None:
        """Replace the draws of a program by functional ones."""
        for node in nodes:
            if isinstance(node.op, Draw):
                node.op = FunctionalDraw(node.op, self.all)
            elif node.op.drawn and not isinstance(node.op, FunctionalDraw):
                raise Unsupported(f"compile: {node.op.name}, random numbers by another way")


def _without_numbers(op: Draw) -> tuple[Draw, tuple[str, ...], list[Any]]:
    """Split fields that hold symbolic scalars from a draw: the draw with the values of now, the
    fields' names, and the inputs that give them.
    """
    values = {f.name: getattr(op, f.name) for f in fields(op)}  # type: ignore[arg-type]
    symbolic = {
        name: x for name, x in values.items() if type(x) is SymbolicNumber and not is_size(x)
    }
    if not symbolic:
        return op, (), []
    values = {name: x.arithmetic.values[x.place] for name, x in symbolic.items()}
    wide = {name: float64 if type(x) is float else int64 for name, x in values.items()}
    inputs = [x.operand(wide[name]) for name, x in symbolic.items()]
    return replace(op, **values), tuple(symbolic), inputs  # type: ignore[type-var]


class ControlFlowDraws:
    """The draws of a node of control flow: which generators its bodies use, and where the node
    stands in their streams.
    """

    def __init__(
        self, around: CapturedGenerators | None, bodies: Sequence[CapturedGenerators]
    ) -> None:
        generators = {id(s.generator): s.generator for streams in bodies for s in streams.all}
        self._around = around
        self._rows = [[list(generators).index(id(s.generator)) for s in ss.all] for ss in bodies]
        self._places: list[tuple[int, int]] = []
        self.given: list[Any] = []  # the node's last inputs
        for generator in generators.values():
            assert around is not None
            index, number, more = around.enter(generator)
            self._places.append((index, number))
            self.given.append(more)
        self._streams = [around.all[index] for index, _ in self._places] if around else []

    def __len__(self) -> int:
        return len(self._places)

    def leave(self, extras: Sequence[Any]) -> None:
        """Register the node's last outputs, its numbers of extra draws."""
        for (index, number), more in zip(self._places, extras, strict=True):
            self._around.leave(index, number, more)  # type: ignore[union-attr]

    def resized(self, fill: Callable[[Any], Any]) -> ControlFlowDraws:
        """Copy with streams of its own."""
        made = copy.copy(self)
        made._streams = fill(self._streams)
        return made

    def begin(self, more: Sequence[Any]) -> list[tuple[Any, int]]:
        """States of the generators when a run of the node begins."""
        firsts = self._firsts()
        return [(key, at + int(n)) for (key, at), n in zip(firsts, more, strict=True)]

    def of(self, body: int, now: Sequence[Any]) -> list[Any]:
        """States of the generators that one body uses."""
        return [now[n] for n in self._rows[body]] if now else []

    def behind(self, body: int, now: Sequence[Any], drew: Sequence[int]) -> list[Any]:
        """States of all generators after a body has made `drew` draws."""
        states = list(now)
        for n, count in zip(self._rows[body] if now else (), drew, strict=True):
            states[n] = states[n][0], states[n][1] + count
        return states

    def end(self, now: Sequence[Any]) -> list[int]:
        """Extra draws made up to the end of this run, which are the node's last outputs."""
        pairs = zip(now, self._firsts(), strict=True)
        return [at - first - 1 for (_, at), (_, first) in pairs]

    def _firsts(self) -> list[tuple[Any, int]]:
        pairs = zip(self._streams, self._places, strict=True)
        return [(s.now[0], s.now[1] + number - s.first) for s, (_, number) in pairs]
