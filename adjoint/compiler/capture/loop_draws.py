"""The draws of a loop. The number of each is a base plus the turn times the draws of a turn, so
those of many turns are made at once, as rows that turns read like slices. Where a draw has inputs,
or one before it draws as often as values say, Python draws in each turn instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...backends.native.lowering.draws_of_turns import DrawsOfTurns
from ...backends.native.runtime.loop_record import Place
from ...core.arrays import address
from ...core.errors import NotTraceable
from ...core.spec import Spec, prod
from ...ir import compute as core_compute
from ...ir.program import Node, Program
from .random_state import CapturedGenerator, FunctionalDraw

if TYPE_CHECKING:
    from .random_state import ControlFlowDraws
    from .subgraphs import Subgraph

_ROOM = 1 << 18  # bytes of the numbers that are made at once, unless those of one turn are more
_FIRST = 16  # turns for which a loop draws at first that may end in any of them

State: TypeAlias = tuple[int, int]  # of a generator: its key, and the number of the next draw


def apart(program: Program) -> Program:
    """The program with what it draws as further inputs."""
    nodes = [node for node in program.nodes if not node.op.drawn]
    drawn = [node.output for node in _drawn(program)]
    return Program([*program.inputs, *drawn], nodes, program.outputs)


def _drawn(program: Program) -> list[Node]:
    return [node for node in program.nodes if node.op.drawn]


class LoopDraws:
    """Where the generators stand from which the bodies of a loop draw, while it runs."""

    def __init__(self, *bodies: Subgraph, ahead: bool = True) -> None:
        """Look at what `bodies` draw; `ahead` says whether each turn runs all, in this order."""
        self._bodies = bodies
        self._drawing: ControlFlowDraws | None = None
        self.now: list[State] = []
        drawn = [_drawn(body.program()) for body in bodies]
        self.some = any(drawn)
        alone = all(_is_alone(node) for nodes in drawn for node in nodes)
        self.ahead = ahead and self.some and alone and not any(body.more for body in bodies)
        self._rows = [[_DrawnRows(node) for node in nodes] if self.ahead else [] for nodes in drawn]
        self._all = [each for rows in self._rows for each in rows]
        self.specs = [each.spec for each in self._all]
        self.slow = list(dict.fromkeys(each.op.name for each in self._all if each.slow))
        self.line: dict[int, tuple[State, int]] = {}  # by stream: the state of turn 0, and its step
        self._steps: list[int] = []  # of all generators
        self.end, self._block = 0, 0  # turn behind those whose numbers there are, how many they are

    # ---- one by one ------------------------------------------------------------------------------

    def begin(self, drawing: ControlFlowDraws, now: Sequence[State]) -> None:
        """A run begins, with the generators in these states."""
        self._drawing, self.now = drawing, list(now)
        if not self.ahead:
            return
        after = self.now
        firsts: list[tuple[CapturedGenerator, State, State]] = []
        for k, body in enumerate(self._bodies):
            firsts += zip(body.streams.all, drawing.of(k, after), drawing.of(k, now), strict=True)
            after = drawing.behind(k, after, body.draws([]))
        ends = [at for k in range(len(self._bodies)) for _, at in drawing.of(k, after)]
        self._steps = [end - at for (_, end), (_, at) in zip(after, self.now, strict=True)]
        self.line = {
            id(stream): (first, end - at)
            for (stream, first, (_, at)), end in zip(firsts, ends, strict=True)
        }

    def finish(self, turns: int, more: bool = False) -> list[State]:
        """States behind so many turns; with `more` the first body has run once more."""
        if self.ahead:
            pairs = zip(self.now, self._steps, strict=True)
            self.now = [(key, at + turns * step) for (key, at), step in pairs]
            if more and self._drawing is not None:
                self.now = self._drawing.behind(0, self.now, self._bodies[0].draws([]))
        return self.now

    def line_of(self, number: int) -> dict[int, tuple[State, int]]:
        """For each stream of a body where it was in turn 0, and how far each turn brings it."""
        streams = self._bodies[number].streams.all if self.ahead else ()
        return {id(stream): self.line[id(stream)] for stream in streams}

    def states(self, number: int) -> list[State]:
        """States of the generators from which a body draws."""
        return [] if self._drawing is None else self._drawing.of(number, self.now)

    def before(self, number: int) -> None:
        """A body is about to draw."""
        self._bodies[number].draw_from(self.states(number))

    def after(self, number: int, counts: Sequence[np.ndarray]) -> None:
        """A body has drawn: once for each of its draws, and as often more as it has counted."""
        assert self._drawing is not None
        drew = self._bodies[number].draws(counts)
        self.now = self._drawing.behind(number, self.now, drew)

    # ---- ahead -----------------------------------------------------------------------------------

    def follow(self, line: dict[int, tuple[State, int]], turns: int) -> None:
        """Draw what the turns of another run drew that went along `line`, the last one's first."""
        self.line = {
            key: ((name, at + (turns - 1) * step), -step)
            for key, ((name, at), step) in line.items()
        }

    def places(self, number: int, first: int) -> list[Place]:
        """Places of what a body draws: rows of arrays from number `first` on."""
        before = sum(map(len, self._rows[:number]))
        rows = self._rows[number]
        return [Place(first + before + k, 0, each.size) for k, each in enumerate(rows)]

    def draw(self, turn: int, most: int, known: bool) -> list[int]:
        """Draw for turns from `turn` on, for `most` at most, of which it is `known` that there will
        be so many. Returns where the rows of turn 0 would lie.
        """
        room = max(_ROOM // max(sum(each.size for each in self._all), 1), 1)
        self._block = min(room, most if known else _FIRST if turn == 0 else 2 * self._block)
        count = min(self._block, most)
        self.end = turn + count
        return [each.draw(self.line[id(each.op.stream)], turn, count) for each in self._all]


def _is_alone(node: Node) -> bool:
    """Whether a draw takes nothing but its number."""
    op = node.op
    return type(op) is FunctionalDraw and not node.inputs and op.device.type == "cpu"


class _DrawnRows:
    """The numbers of one draw of a body in some turns."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.op, FunctionalDraw)
        self.op = node.op
        self.spec: Spec = node.output.spec
        self.size = prod(self.spec.shape) * self.spec.dtype.itemsize
        self._array = np.empty((0, *self.spec.shape), self.spec.dtype.numpy)
        self._code: DrawsOfTurns | None
        try:
            self._code = DrawsOfTurns(self.op.draw)
        except NotTraceable:
            self._code = None
        self.slow = self._code is None and self.size > 0

    def draw(self, line: tuple[State, int], turn: int, count: int) -> int:
        """Draw for `count` turns. Returns where the numbers of turn 0 would lie."""
        (seed, first), step = line
        number = first + self.op.place + turn * step
        if len(self._array) < count:
            self._array = np.empty((count, *self.spec.shape), self.spec.dtype.numpy)
        rows = self._array[:count]
        if self._code is not None:
            self._code(rows, seed, number, step)
        elif self.size:
            for t in range(count):
                op = replace(self.op.draw, seed=seed, draw=number + t * step)
                rows[t] = core_compute.compute(op, [])
        return address(self._array) - turn * self.size
