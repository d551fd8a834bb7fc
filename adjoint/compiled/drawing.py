"""Random numbers of a compiled function: each run draws those that eager execution would.

A program knows of a draw by how many its generator had given before, since the function began: so
what is drawn again from a state that was set back (`utils.checkpoint`) is the same draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from ..core.device import CPU
from ..core.errors import Unsupported
from ..core.op import Op
from ..core.spec import Spec
from ..ops.random.draws import Draw
from ..program import compute as core_compute
from ..program.program import Node


class Drawn(Op, abstract=True):
    """A draw whose seed and number are those of the run."""

    drawn = True
    needs = "xs"
    own_tokens = True

    def __init__(self, draw: Any, streams: Sequence[Stream]) -> None:
        self.draw = draw
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
        return self.draw.infer(*specs)

    def gradient(self, g: Any, *saved: Any) -> tuple[Any, ...]:
        """The draw's."""
        found: tuple[Any, ...] = self.draw.gradient(g, *saved)
        return found

    def compute(self, xp: Any, *inputs: Any) -> Any:
        """The numbers of this run.

        Errors: Unsupported while the function is captured, which has no numbers.
        """
        if self.stream.captured:
            raise Unsupported(self.stream.captured)
        return core_compute.compute(self.of_this_run(), list(inputs))

    def of_this_run(self) -> Any:
        """The draw, as eager execution would make it now."""
        seed, first = self.stream.now
        return replace(self.draw, seed=seed, draw=first + self.place)


class Stream:
    """A generator, and how a function draws from it."""

    def __init__(self, generator: Any, reads: str) -> None:
        self.captured = reads  # what is said of reading a number; "" when the capture is over
        self.generator = generator
        self.key, self.first = generator.key, generator.draws  # when the capture began
        self.count = 0
        self.now = self.key, self.first  # at the begin of a run

    def begin(self) -> None:
        """A run begins: the generator goes on."""
        generator = self.generator
        self.now = generator.key, generator.draws
        generator.draws += self.count

    def undo(self) -> None:
        """The run has failed."""
        self.generator.key, self.generator.draws = self.now


class Streams:
    """Those that a function draws from while it is captured; `reads` is said where it reads a
    number.
    """

    def __init__(self, reads: str) -> None:
        self._reads = reads
        self.all: list[Stream] = []
        self._places: dict[int, int] = {}

    def next_draw(self, generator: Any) -> tuple[int, int]:
        """For the seed of a new draw the place of its stream, and its number."""
        if id(generator) not in self._places:
            self._places[id(generator)] = len(self.all)
            self.all.append(Stream(generator, self._reads))
        place = self._places[id(generator)]
        stream = self.all[place]
        if generator.key != stream.key or generator.draws < stream.first:
            raise Unsupported(
                "compile: the function sets the seed of a generator from which it draws; set it "
                "outside"
            )
        return place, generator.next_draw()[1]

    def drawn(self) -> list[int]:
        """How many numbers' worth of draws each has made."""
        return [stream.generator.draws - stream.first for stream in self.all]

    def rewind(self, drawn: Sequence[int]) -> None:
        """Let what came after such counts not have been drawn."""
        for stream, count in zip_longest(self.all, drawn, fillvalue=0):
            stream.generator.draws = stream.first + count  # type: ignore[union-attr]

    def restore(self) -> None:
        """Let the generators be as they were."""
        for stream in self.all:
            stream.captured = ""
            stream.count = stream.generator.draws - stream.first
            stream.generator.key, stream.generator.draws = stream.key, stream.first

    def take_over(self, nodes: Sequence[Node]) -> None:
        """Let the draws of a program be those of its runs."""
        for node in nodes:
            if isinstance(node.op, Draw):
                node.op = Drawn(node.op, self.all)
            elif node.op.drawn and not isinstance(node.op, Drawn):
                raise Unsupported(f"compile: {node.op.name}, random numbers by another way")
