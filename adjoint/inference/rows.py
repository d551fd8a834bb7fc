"""The order of small steps in which threads can go through many of them without waiting."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..backends import native
from ..core import policy
from ..core.errors import AdjointError, NotTraceable
from ..core.spec import prod
from ..ops.shape.joining import Cat
from ..program.program import Node, Program, Value
from ..program.rewriting import rewriting
from .batches import work_of
from .kernels import Kernel
from .passes import PRODUCTS
from .roles import REDUCING

_BY_ROWS = frozenset(("product", "linear", "linear_input"))


@rewriting
def gather_rows(graph: Program) -> int:
    """Let steps that compute each row of their result from the same row of their operands follow
    one another, in small programs: what is ready besides comes before or behind all of them, above
    all gradients of weights, which are sums over rows, for which kernels are divided. How many
    nodes are divided or lie elsewhere then.

    Each thread goes through such steps with rows of its own (`runtime/regions.py`). Values live
    longer, so programs of large ones stay as they are. It does not depend on the threads, nor do
    the bits.
    """
    nodes = graph.nodes
    size = sum(node.nbytes for node in nodes)
    if size > policy.REGION_BYTES or not native.load():
        return 0
    work = {node: _work(node) for node in nodes}
    if max(work.values(), default=0) > policy.REGION_MOST:
        return 0
    counts: Counter[int] = Counter()
    for node in nodes:
        if _is_by_rows(node):
            counts[_rows(node.outputs[0])] += work[node]
    [(rows, most)] = counts.most_common(1) or [(0, 0)]
    if rows < 2 or most < policy.REGION_LEAST:
        return 0
    graph.rows = rows
    changes: dict[Value, Value] = {}
    before = [each for node in nodes for each in _split(node, rows, changes) or [node]]
    graph.nodes = before
    graph.replace(changes)
    graph.nodes = _ordered(graph)
    moved = sum(node is not was for node, was in zip(graph.nodes, before, strict=True))
    return len(before) - len(nodes) + moved


def _split(node: Node, rows: int, changes: dict[Value, Value]) -> list[Node]:
    """Two nodes in the place of a kernel's, by which its results become others; none where it has
    results of one kind, or both would compute something.
    """
    op = node.op
    if not isinstance(op, Kernel):
        return []
    program = op.program
    across = _across(op)
    by_rows = [y for y in program.outputs if has_rows(y, rows) and y not in across]
    others = [y for y in program.outputs if y not in by_rows]
    own = _behind(by_rows, program.inputs)
    rest = _behind(others, [*program.inputs, *by_rows])
    if not by_rows or not others or own & rest:
        return []
    again = {program.nodes[k] for k in op.again}
    places = dict(zip(program.inputs, node.inputs, strict=True))
    made = []
    for members, outputs in ((own, by_rows), (rest, others)):
        nodes = [each for each in program.nodes if each in members]
        read = (x for each in nodes for x in each.values if x.node not in members)
        inputs = list(dict.fromkeys(read))
        try:
            kernel = Kernel(nodes, inputs, outputs, inputs, again)
        except (NotTraceable, AdjointError):
            return []
        made.append(Node(kernel, [places[x] for x in inputs], kernel.specs))
        places.update(zip(outputs, made[-1].outputs, strict=True))
    changes.update((was, places[y]) for was, y in zip(node.outputs, program.outputs, strict=True))
    return made


def _behind(ends: Sequence[Value], known: Sequence[Value]) -> set[Node]:
    """The nodes of which values are computed, where some are known."""
    found: set[Node] = set()
    stack = [y for y in ends if y not in known]
    while stack:
        node = stack.pop().node
        if node is not None and node not in found:
            found.add(node)
            stack += [x for x in node.values if x not in known]
    return found


def stretches(steps: Sequence[Any], rows: int) -> tuple[list[range], list[range]]:
    """Where several steps follow one another (nodes, or what computes them) that threads share by
    so many rows, and where several that do not need each other.
    """
    by_rows: list[range] = []
    waves: list[range] = []
    fit = [_fits(step, rows) for step in steps]
    for is_by_rows, group in itertools.groupby(range(len(steps)), fit.__getitem__):
        places = list(group)
        if is_by_rows:
            by_rows.append(range(places[0], places[-1] + 1))
            continue
        begin, made = places[0], set[Value]()
        for k in places:
            if made.intersection(steps[k].values):
                waves.append(range(begin, k))
                begin, made = k, set()
            made.update(steps[k].outputs)
        waves.append(range(begin, places[-1] + 1))
    return [each for each in by_rows if len(each) > 1], [each for each in waves if len(each) > 1]


def has_rows(x: Value, rows: int) -> bool:
    """Whether a result falls into so many rows."""
    return rows > 0 and _rows(x) == rows


def _ordered(graph: Program) -> list[Node]:
    """The nodes: those by rows as long as there are some, then all others that are ready, in turns;
    otherwise as they were.
    """
    places = {node: n for n, node in enumerate(graph.nodes)}
    users = graph.users()
    waiting = {node: len({x.node for x in node.values if x.node in places}) for node in places}
    ready: tuple[list[int], list[int]] = ([], [])  # of other steps, and of those by rows
    found: list[Node] = []

    def add(node: Node) -> None:
        heapq.heappush(ready[node.op.view or _fits(node, graph.rows)], places[node])

    def take(node: Node) -> None:
        found.append(node)
        for user in {u: None for y in node.outputs for u in users.get(y, ())}:
            waiting[user] -= 1
            if not waiting[user]:
                add(user)

    for node, count in waiting.items():
        if not count:
            add(node)
    while ready[0] or ready[1]:
        while ready[1]:
            take(graph.nodes[heapq.heappop(ready[1])])
        wave = [graph.nodes[n] for n in sorted(ready[0])]
        ready[0].clear()
        for node in sorted(wave, key=_may_be_apart):
            take(node)
    return found


def _fits(step: Any, rows: int) -> bool:
    """Whether threads share a step by so many rows; of what is joined the parts are mostly written
    where they are to be, which is no step.
    """
    if isinstance(step.op, Kernel) and _across(step.op).intersection(step.op.program.outputs):
        return False
    kind = _is_by_rows(step) or isinstance(step.op, Cat)
    return kind and all(has_rows(y, rows) for y in step.outputs)


def _across(kernel: Kernel) -> set[Value]:
    """What a kernel computes over all rows, and of that."""
    found: set[Value] = set()
    for node in kernel.program.nodes:
        op, x = node.op, node.values[0]
        over = type(op).__name__ in REDUCING and x.shape
        axes = getattr(op, "axes", None) or (getattr(op, "axis", 0),)
        if (over and 0 in {axis % len(x.shape) for axis in axes}) or found.intersection(
            node.values
        ):
            found.update(node.outputs)
    return found


def _may_be_apart(node: Node) -> bool:
    """Whether threads may compute it beside others: small products and kernels."""
    return isinstance(node.op, Kernel) or _library(node) in PRODUCTS


def _is_by_rows(node: Any) -> bool:
    return isinstance(node.op, Kernel) or _library(node) in _BY_ROWS


def _library(node: Any) -> str:
    """Of a product, whether ReLU follows it or not."""
    return str(getattr(node.op, "base", node.op).library)


def _rows(x: Value) -> int:
    """How many rows a result has, if each step has as many: its first dimension, or all but the
    last of what is no matrix.
    """
    return prod(x.shape[:-1]) if len(x.shape) > 1 else prod(x.shape)


def _work(node: Node) -> int:
    """Additions or multiply-adds, about."""
    if isinstance(node.op, Kernel):
        program = node.op.program
        return sum(prod(x.shape) for each in program.nodes for x in each.outputs)
    return (
        prod(node.output.shape) * node.values[0].shape[-1] if _is_by_rows(node) else work_of(node)
    )
