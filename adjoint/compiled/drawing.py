"""Random numbers of a compiled function: each run draws those that eager execution would.

A program knows of a draw by how many its generator had given before, since the function began: so
what is drawn again from a state that was set back (`utils.checkpoint`) is the same draw.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from ..core.device import CPU
from ..core.dtype import bool_, float64, int64
from ..core.errors import Unsupported
from ..core.op import Op
from ..core.scalar import Number
from ..core.sizes import is_size
from ..core.spec import Spec
from ..eager.tensors import wrap
from ..ops.random.draws import Draw, Followed
from ..program import compute as core_compute
from ..program.program import Node


class Drawn(Op, abstract=True):
    """A draw whose seed and number are those of the run. Where it is `behind` nodes that draw as
    often as values say, the last input is by how many these draws were more than one each; fields
    that are `named` come with each run (dropout's p), as inputs behind the draw's own.
    """

    drawn = True
    needs = "xs"
    own_tokens = True

    def __init__(
        self, draw: Any, streams: Sequence[Stream], behind: bool = False,
        named: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.draw = draw
        self.behind = behind
        self.named = named
        self.stream = streams[draw.seed]
        self.place = draw.draw - self.stream.first  # among the draws of a run
        self.device = getattr(draw, "device", CPU)
        self.n_outputs = draw.n_outputs  # type: ignore[misc]
        self.differentiable = draw.differentiable  # type: ignore[misc]
        self.tokens, self.keeps_values = draw.tokens, draw.keeps_values  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Drawn):
            return NotImplemented
        return self.stream is other.stream and bool(self.draw == other.draw)

    def __hash__(self) -> int:
        return hash(self.draw)

    @property
    def name(self) -> str:
        """The draw's."""
        return str(self.draw.name)

    def infer(self, *specs: Spec) -> Any:
        """The draw's."""
        return self.draw.infer(*self._own(specs))

    def gradient(self, g: Any, *saved: Any) -> tuple[Any, ...]:
        """The draw's."""
        found: tuple[Any, ...] = self.draw.gradient(g, *saved)
        return (*found, *(None,) * (len(self.named) + self.behind))

    def compute(self, xp: Any, *inputs: Any) -> Any:
        """The numbers of this run.

        Errors: Unsupported while the function is captured, which has no numbers.
        """
        if self.stream.captured:
            raise Unsupported(self.stream.captured)
        more = int(inputs[-1]) if self.behind else 0
        own = self._own(inputs)
        numbers = inputs[len(own) : len(own) + len(self.named)]
        return core_compute.compute(self.of_this_run(more, numbers), list(own))

    def of_this_run(self, more: int = 0, numbers: Sequence[Any] = ()) -> Any:
        """The draw, as eager execution would make it now."""
        seed, first = self.stream.now
        given = {
            name: type(getattr(self.draw, name))(x)
            for name, x in zip(self.named, numbers, strict=True)
        }
        return replace(self.draw, seed=seed, draw=first + self.place + more, **given)

    def _own(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs[: len(inputs) - len(self.named) - self.behind]


class Advance(Op, abstract=True):
    """Lets a generator go on by the draws that only a run could count; false, as a check is that
    finds nothing wrong, which each run looks at.
    """

    opaque = True
    differentiable = False

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def infer(self, more: Spec) -> Any:
        """One boolean."""
        return Spec((), bool_)

    def compute(self, xp: Any, more: Any) -> Any:
        """Once a run: an op is also computed where its program is bound to memory."""
        stream = self.stream
        if stream.counting:
            stream.counting = False
            stream.generator.draws += int(more)
        return np.zeros((), bool)


class Run:
    """The numbers of PyTorch's generator for a run, by which draw of the run they are."""

    def __init__(self, twister: Any, draws: int) -> None:
        self.before, self.draws = twister.copy(), draws
        self.values: dict[int, Any] = {}

    def take(self, op: Any) -> Any:
        """Those of `op`."""
        return self.values[op.draw]


class Stream:
    """A generator, and how a function draws from it."""

    def __init__(self, generator: Any, reads: str) -> None:
        self.captured = reads  # what is said of reading a number; "" when the capture is over
        self.generator = generator
        self.key, self.first = generator.key, generator.draws  # when the capture began
        self.count = 0
        self.now: tuple[Any, int] = self.key, self.first  # at the begin of a run
        self.twister = generator.twister  # when the capture began: PyTorch's generator, or None
        self.followed: list[Any] = []  # its draws, in order
        self.counting = False  # a run has begun, and is to say how many draws more there were

    def resized(self, fill: Callable[[Any], Any]) -> Stream:
        """One of its own, which runs at its own time.

        Errors: Unsupported for draws that PyTorch's generator makes ahead.
        """
        for op in self.followed:
            if fill(op) is not op:
                raise Unsupported("compile: sizes of what PyTorch's generator draws")
        return copy.copy(self)

    def is_other(self) -> bool:
        """Whether the generator is of another kind than when the function was captured."""
        return (self.generator.twister is None) != (self.twister is None)

    def begin(self) -> None:
        """A run begins: the generator goes on. PyTorch's draws all numbers of the run, in order."""
        if self.is_other():
            raise Unsupported(
                "compile: a generator from which the function draws is PyTorch's now, or no longer "
                "(random.follow_torch, manual_seed); compile the function again"
            )
        generator = self.generator
        self.now = generator.key, generator.draws
        if self.twister is not None:
            run = Run(generator.twister, generator.draws)
            run.values = {op.draw - self.first: op.on(generator.twister) for op in self.followed}
            self.now = run, 0
        generator.draws += self.count
        self.counting = True

    def undo(self) -> None:
        """The run has failed."""
        generator, (key, draws) = self.generator, self.now
        if type(key) is Run:
            generator.draws, generator.twister = key.draws, key.before
        else:
            generator.key, generator.draws = key, draws
        self.counting = False

    def set(self, now: tuple[Any, int]) -> None:
        """A run begins, of which its caller knows where it is."""
        self.now = now


class Streams:
    """Those that a function draws from while it is captured; `reads` is said where it reads a
    number.
    """

    def __init__(self, reads: str) -> None:
        self._reads = reads
        self.all: list[Stream] = []
        self._places: dict[int, int] = {}
        self._more: dict[int, dict[int, Any]] = {}  # of each stream, from which number on: tensors

    def next_draw(self, generator: Any) -> tuple[int, int]:
        """For the seed of a new draw the place of its stream, and its number."""
        if id(generator) not in self._places:
            self._places[id(generator)] = len(self.all)
            self.all.append(Stream(generator, self._reads))
        place = self._places[id(generator)]
        stream = self.all[place]
        same = generator.twister is stream.twister
        if not same or generator.key != stream.key or generator.draws < stream.first:
            raise Unsupported(
                "compile: the function sets the seed of a generator from which it draws; set it "
                "outside"
            )
        return place, generator.next_draw()[1]

    def counts(self) -> list[int]:
        """How many numbers' worth of draws each has made."""
        return [stream.generator.draws - stream.first for stream in self.all]

    def rewind(self, counts: Sequence[int]) -> None:
        """Let what came after such counts not have been drawn."""
        for place, (stream, count) in enumerate(zip_longest(self.all, counts, fillvalue=0)):
            stream.generator.draws = now = stream.first + count  # type: ignore[union-attr]
            stream.followed = [op for op in stream.followed if op.draw < now]  # type: ignore[union-attr]
            known = self._more.get(place, {})
            self._more[place] = {number: more for number, more in known.items() if number <= now}

    def drawn(self, op: Draw, inputs: tuple[Any, ...]) -> tuple[Op, tuple[Any, ...]]:
        """A draw as a program has it, which has no numbers yet, and its inputs."""
        more = self._more_at(op.seed, op.draw)
        if isinstance(op, Followed):
            self.all[op.seed].followed.append(op)
        op, named, numbers = _without_numbers(op)
        behind = () if more is None else (more,)
        return Drawn(op, self.all, bool(behind), named), (*inputs, *numbers, *behind)

    def _more_at(self, place: int, number: int) -> Any:
        known = self._more.get(place, {})
        before = [each for each in known if each <= number]
        return known[max(before)] if before else None

    def enter(self, generator: Any) -> tuple[int, int, Any]:
        """Here is a node that draws as often as values say, which counts as one draw: its place
        among the streams, its number, and by how many draws those before were more.
        """
        place, number = self.next_draw(generator)
        more = self._more_at(place, number)
        if more is None:
            more = wrap(np.zeros((), np.int64))
        return place, number, more

    def leave(self, place: int, number: int, more: Any) -> None:
        """By how many draws those up to this node were more."""
        self._more.setdefault(place, {})[number + 1] = more

    def more(self) -> list[tuple[int, Any]]:
        """Of each stream of which it is known in a run only, by how many draws all were more."""
        found = [(n, self._more_at(n, each.generator.draws)) for n, each in enumerate(self.all)]
        return [(n, more) for n, more in found if more is not None]

    def resized(self, fill: Callable[[Any], Any]) -> Streams:
        """The same of streams of its own."""
        made = copy.copy(self)
        made.all = fill(self.all)
        return made

    def restore(self) -> None:
        """Let the generators be as they were."""
        for stream in self.all:
            stream.captured = ""
            stream.count = stream.generator.draws - stream.first
            stream.generator.key, stream.generator.draws = stream.key, stream.first
            stream.generator.twister = stream.twister

    def take_over(self, nodes: Sequence[Node]) -> None:
        """Let the draws of a program be those of its runs."""
        for node in nodes:
            if isinstance(node.op, Draw):
                node.op = Drawn(node.op, self.all)
            elif node.op.drawn and not isinstance(node.op, Drawn):
                raise Unsupported(f"compile: {node.op.name}, random numbers by another way")


def _without_numbers(op: Draw) -> tuple[Draw, tuple[str, ...], list[Any]]:
    """The draw for some numbers where its fields are such that come with each run, the names of
    these, and what stands for them.
    """
    values = {f.name: getattr(op, f.name) for f in fields(op)}  # type: ignore[arg-type]
    found = {name: x for name, x in values.items() if type(x) is Number and not is_size(x)}
    if not found:
        return op, (), []
    values = {name: x.arithmetic.values[x.place] for name, x in found.items()}
    wide = {name: float64 if type(x) is float else int64 for name, x in values.items()}
    given = [x.operand(wide[name]) for name, x in found.items()]
    return replace(op, **values), tuple(found), given  # type: ignore[type-var]


class Drawing:
    """What the bodies of a node draw, and where the node is among the draws of the function."""

    def __init__(self, around: Streams | None, bodies: Sequence[Streams]) -> None:
        found = {id(s.generator): s.generator for streams in bodies for s in streams.all}
        self._around = around
        self._rows = [[list(found).index(id(s.generator)) for s in ss.all] for ss in bodies]
        self._places: list[tuple[int, int]] = []
        self.given: list[Any] = []  # the node's last inputs
        for generator in found.values():
            assert around is not None
            place, number, more = around.enter(generator)
            self._places.append((place, number))
            self.given.append(more)
        self._streams = [around.all[place] for place, _ in self._places] if around else []

    def __len__(self) -> int:
        return len(self._places)

    def leave(self, found: Sequence[Any]) -> None:
        """The node was recorded: its last outputs."""
        for (place, number), more in zip(self._places, found, strict=True):
            self._around.leave(place, number, more)  # type: ignore[union-attr]

    def resized(self, fill: Callable[[Any], Any]) -> Drawing:
        """The same of streams of its own."""
        made = copy.copy(self)
        made._streams = fill(self._streams)
        return made

    def begin(self, more: Sequence[Any]) -> list[tuple[Any, int]]:
        """Where generators are as a run of the node begins."""
        firsts = self._firsts()
        return [(key, at + int(n)) for (key, at), n in zip(firsts, more, strict=True)]

    def of(self, body: int, now: Sequence[Any]) -> list[Any]:
        """Where those of one body are."""
        return [now[n] for n in self._rows[body]] if now else []

    def behind(self, body: int, now: Sequence[Any], drew: Sequence[int]) -> list[Any]:
        """Where all are when it has run."""
        found = list(now)
        for n, count in zip(self._rows[body] if now else (), drew, strict=True):
            found[n] = found[n][0], found[n][1] + count
        return found

    def end(self, now: Sequence[Any]) -> list[int]:
        """The node's last outputs."""
        pairs = zip(now, self._firsts(), strict=True)
        return [at - first - 1 for (_, at), (_, first) in pairs]

    def _firsts(self) -> list[tuple[Any, int]]:
        pairs = zip(self._streams, self._places, strict=True)
        return [(s.now[0], s.now[1] + number - s.first) for s, (_, number) in pairs]
