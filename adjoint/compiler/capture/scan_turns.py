"""How the turns of a scan run: one after the other from Python, or as one node; or in blocks of
turns, which are unrolled, or checkpointed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import policy
from ...core.errors import InvalidType, Unsupported
from ...core.tree import TreeSpec, parts_of
from ...ops.shape.concatenation import cat
from ...ops.shape.joining import stack
from ...ops.shape.movement import reshape
from .body_recorder import like
from .control_capture import Capture
from .control_flow_ops import Scan
from .control_forms import Tensors, Tree, as_tensors, assert_kept
from .machine_loop import bytes_of
from .subgraphs import Subgraph, keep

if TYPE_CHECKING:
    from ..guards.state_snapshot import StateSnapshot
    from .random_state import ControlFlowDraws

PLANS = ("auto", "none", "turn", "sqrt")  # what is kept for the gradient
_FEWEST = 4  # turns that make segments


class TracedTurn(NamedTuple):
    """A turn of a scan as a body, for any number of turns."""

    body: Subgraph
    outside: list[Any]  # tensors that it reads besides
    carried: int
    sliced: int
    forms: list[TreeSpec]  # of what is carried, and of the result

    def op(self, length: int, reverse: bool, keeps: bool, drawing: ControlFlowDraws) -> Scan:
        """The op that runs so many of them; `keeps`: see `Scan`."""
        numbers = range(len(self.body.inputs))
        return Scan(
            "scan", self.body, numbers, self.carried, self.sliced, length, reverse, keeps, drawing
        )

    def shaped(self, outputs: Sequence[Any]) -> tuple[Tree, Tree]:
        """What is carried at last, and the results, of the op's outputs."""
        n = self.carried
        return self.forms[0].unflatten(outputs[:n]), self.forms[1].unflatten(outputs[n:])


class Turns(NamedTuple):
    """The function of a scan, and the order in which it goes through the first dimension of some
    rows. Results are stacked along their first dimension.
    """

    function: Callable[..., Any]  # of the carry and what `row` makes of slices
    row: TreeSpec
    reverse: bool
    segment: int = 0  # how many turns of a scan each turn is, where it is a checkpointed segment

    def in_python(self, carry: object, rows: Tensors, length: int) -> tuple[Tree, Tree]:
        """Run all turns, at least one, from Python."""
        before = parts_of(carry, "scan: init has")
        order = range(length)
        results: list[list[Any]] = []
        for t in reversed(order) if self.reverse else order:
            carry, y = self._turn(carry, self.row.unflatten([x[t] for x in rows]))
            parts = parts_of(carry, "scan: combine_fn gives as carry")
            assert_kept("scan: combine_fn", *before, *parts)
            tensors, form = parts_of(y, "scan: combine_fn gives as result")
            results.append(tensors)
        if self.reverse:
            results.reverse()
        columns = [stack(list(column)) for column in zip(*results, strict=True)]
        return carry, form.unflatten(columns)

    def captured(
        self, init: object, rows: Tensors, length: int, plan: str, unroll: int = 1
    ) -> tuple[Tree, Tree]:
        """Record a node that runs all turns, by a `plan` for gradients, `unroll` of them as one."""
        if plan == "sqrt" and length >= _FEWEST:

            def within(carry: object, part: Tensors, turns: int) -> tuple[Tree, Tree]:
                return self.captured(carry, part, turns, "none", unroll)

            return self._in_blocks(init, rows, length, _root(length), within, "turn")
        if 1 < unroll <= length:
            return self._in_blocks(init, rows, length, unroll, self.in_python, plan)
        made = self._as_node(init, rows, length, plan)
        return self.captured(init, rows, length, "sqrt") if made is None else made

    def _turn(self, carry: object, row: object) -> tuple[Tree, Tree]:
        result = self.function(carry, row)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise InvalidType(
                f"scan: combine_fn gives a {type(result).__name__}; it gives the next carry and a "
                "result"
            )
        return as_tensors(result[0], carry), as_tensors(result[1])

    def _in_blocks(
        self, init: object, rows: Tensors, length: int, size: int,
        within: Callable[..., tuple[Tree, Tree]], plan: str,
    ) -> tuple[Tree, Tree]:  # fmt: skip
        """Record a scan over blocks of `size` turns, each of which `within` runs; turns that fill
        no block come last.
        """
        count = length // size
        rest = length - count * size
        first = rest if self.reverse else 0
        whole = [x[first : first + count * size] for x in rows]
        blocks = [reshape(x, (count, size, *x.shape[1:])) for x in whole]

        def block(carry: object, part: list[Any]) -> tuple[Tree, Tree]:
            return within(carry, part, size)

        segment = size if plan == "turn" else 0
        way = Turns(block, parts_of(rows, "")[1], self.reverse, segment)
        carry, results = way.captured(init, blocks, count, plan)
        columns, form = parts_of(results, "scan: combine_fn gives as result")
        columns = [reshape(y, (count * size, *y.shape[2:])) for y in columns]
        if rest:
            others = [x[:rest] if self.reverse else x[count * size :] for x in rows]
            carry, results = within(carry, others, rest)
            ends, _ = parts_of(results, "scan: combine_fn gives as result")
            pairs = zip(ends, columns, strict=True)
            columns = [cat([y, x] if self.reverse else [x, y]) for y, x in pairs]
        return carry, form.unflatten(columns)

    def _as_node(
        self, init: object, rows: Tensors, length: int, plan: str
    ) -> tuple[Tree, Tree] | None:
        """Record one node; None where it would keep too much for "auto"."""
        carries, carry = parts_of(init, "scan: init has")
        capture = Capture("scan", (*carries, *rows))
        slices = [like(x, capture.wants(x), x.shape[1:]) for x in rows]
        symbols = [*(like(x, capture.grad) for x in carries), *slices]
        turn = self.traced(capture, symbols, carry)
        wanting = capture.settled(turn.body, carries)
        if any(wanting) and not self._kept(turn.body, turn.carried, length, plan):
            return None
        drawing = capture.drawing(turn.body)
        op = turn.op(length, self.reverse, any(wanting), drawing)
        if any(wanting):
            op.keeping = self._keeping(length, plan)
        outputs = capture.applied(op, (*carries, *rows, *turn.outside), wanting)
        return turn.shaped(outputs)

    def traced(
        self, capture: Capture, symbols: Sequence[Any], carry: TreeSpec, more: Sequence[Any] = (),
        reads: StateSnapshot | None = None,
    ) -> TracedTurn:  # fmt: skip
        """One turn, traced for symbols in place of what is carried, whose form is `carry`, and of
        slices; the function holds symbols `more`, too. `reads` takes guards.
        """
        first, last = _count(carry), len(symbols)
        forms: list[TreeSpec] = []

        def run(*args: Any) -> list[Any]:
            parts = []
            del forms[:]
            results = self._turn(
                carry.unflatten(args[:first]), self.row.unflatten(args[first:last])
            )
            for name, each in zip(("carry", "result"), results, strict=True):
                tensors, form = parts_of(each, f"scan: combine_fn gives as {name}")
                forms.append(form)
                parts.append(tensors)
            assert_kept("scan: combine_fn", args[:first], carry, parts[0], forms[0])
            return [*parts[0], *parts[1]]

        users = self.function if reads is None else None  # else the snapshot has what it holds
        body = capture.made(run, [*symbols, *more], reads, users)
        return TracedTurn(body, capture.met[-1], first, last - first, forms)

    def _keeping(self, length: int, plan: str) -> str:
        """Description of what is kept by a plan."""
        if plan != "turn":
            return "what each turn computes that is costly, and what is carried into it"
        if self.segment:
            return f"what is carried into each of {length} blocks of {self.segment} turns"
        return "what is carried into each turn"

    def _kept(self, body: Subgraph, carried: int, length: int, plan: str) -> bool:
        """Add to a body what its gradient takes; whether that is not too much.

        Errors: Unsupported where a gradient would draw again.
        """
        if plan == "turn":
            if body.streams.all:
                raise Unsupported(
                    "scan: checkpoint: combine_fn draws random numbers, which its gradient would "
                    "draw again; draw outside, and give them in xs, or write checkpoint='none'"
                )
            return True
        keep(body, carried)
        if plan == "none" or body.streams.all:
            return True
        specs = [*(x.spec for x in body.outputs[:carried]), *(value.spec for value in body.kept)]
        most = policy.SCAN_KEEPS // max(sum(map(bytes_of, specs)), 1)
        return bool(length <= max(most, _FEWEST - 1))  # one question, for any length


def _count(form: TreeSpec) -> int:
    """The number of leaves of a form."""
    leaves = itertools.count()
    form.unflatten(leaves)
    return next(leaves)


def _root(length: int) -> int:
    """The number of turns of a segment, of which there are about as many."""
    return math.isqrt(int(length) - 1) + 1
