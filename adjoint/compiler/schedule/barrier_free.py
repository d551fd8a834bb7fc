"""Barrier-free order: small steps are ordered such that threads go through many of them without
waiting for each other.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...backends import native
from ...core import policy
from ...core.errors import AdjointError, NotTraceable
from ...core.spec import prod
from ...core.symbolic_sizes import most
from ...ir.program import Node, Program, Value
from ...ir.rewriting import rewriting
from ...ops.shape.joining import Cat
from ..passes.basic_passes import PRODUCTS
from ..passes.batched_gemm import work_of
from ..passes.fusion_roles import REDUCING
from ..passes.kernels import Kernel, assert_refused

if TYPE_CHECKING:
    from .steps import Step

_BY_ROWS = frozenset(("product", "linear", "linear_input"))


@rewriting
def gather_rows(graph: Program) -> int:
    """Order steps that compute each row of their result from the same row of their operands one
    after another, in small programs. Other ready steps come before or behind all of them, above all
    gradients of weights, which are sums over rows, from which kernels are split off. Returns how
    many nodes are split or moved.

    Each thread goes through such steps with rows of its own (`runtime/parallel_sections.py`).
    Values are live longer, so programs with large values stay as they are. Neither the order nor
    the results depend on the number of threads.
    """
    nodes = graph.nodes
    size = sum(node.nbytes for node in nodes)
    if size > policy.REGION_BYTES or not native.load():
        return 0
    work = {node: _work(node) for node in nodes}
    if functools.reduce(most, work.values(), 0) > policy.REGION_MOST:
        return 0
    counts: Counter[int] = Counter()
    for node in nodes:
        if _is_by_rows(node):
            counts[_rows(node.outputs[0])] += work[node]
    [(rows, whole)] = counts.most_common(1) or [(0, 0)]
    if rows < 2 or whole < policy.REGION_LEAST:
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
    """Split a kernel's node in two, by rows and across rows; empty where it has results of one kind
    only, or where both would compute the same node. `changes` gets its results' replacements.
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
    value_of = dict(zip(program.inputs, node.inputs, strict=True))
    made = []
    for members, outputs in ((own, by_rows), (rest, others)):
        nodes = [each for each in program.nodes if each in members]
        read = (x for each in nodes for x in each.values if x.node not in members)
        inputs = list(dict.fromkeys(read))
        try:
            kernel = Kernel(nodes, inputs, outputs, inputs, again)
        except (NotTraceable, AdjointError):
            assert_refused(nodes, inputs)
            return []
        made.append(Node(kernel, [value_of[x] for x in inputs], kernel.specs))
        made[-1].module = node.module
        value_of.update(zip(outputs, made[-1].outputs, strict=True))
    changes.update((was, value_of[y]) for was, y in zip(node.outputs, program.outputs, strict=True))
    return made


def _behind(ends: Sequence[Value], given_values: Sequence[Value]) -> set[Node]:
    """The nodes from which values are computed, up to values that are known."""
    needed: set[Node] = set()
    stack = [y for y in ends if y not in given_values]
    while stack:
        node = stack.pop().node
        if node is not None and node not in needed:
            needed.add(node)
            stack += [x for x in node.values if x not in given_values]
    return needed


def stretches(steps: Sequence[Any], rows: int) -> tuple[list[range], list[range]]:
    """Ranges of consecutive steps (or nodes) that threads can share by rows, and ranges of
    consecutive steps that are independent of each other.
    """
    by_rows: list[range] = []
    waves: list[range] = []
    fit = [_fits(step, rows) for step in steps]
    for is_by_rows, group in itertools.groupby(range(len(steps)), fit.__getitem__):
        numbers = list(group)
        if is_by_rows:
            by_rows.append(range(numbers[0], numbers[-1] + 1))
            continue
        begin, made = numbers[0], set[Value]()
        for k in numbers:
            if made.intersection(steps[k].values):
                waves.append(range(begin, k))
                begin, made = k, set()
            made.update(steps[k].outputs)
        waves.append(range(begin, numbers[-1] + 1))
    return [each for each in by_rows if len(each) > 1], [each for each in waves if len(each) > 1]


def has_rows(x: Value, rows: int) -> bool:
    """Whether a result consists of this number of rows."""
    return rows > 0 and _rows(x) == rows


def _ordered(graph: Program) -> list[Node]:
    """The nodes in order: in turns, those by rows as long as any is ready, then all others that are
    ready.
    """
    position = {node: n for n, node in enumerate(graph.nodes)}
    users = graph.users()
    waiting = {node: len({x.node for x in node.values if x.node in position}) for node in position}
    ready: tuple[list[int], list[int]] = ([], [])  # heaps of other steps, and of those by rows
    order: list[Node] = []

    def add(node: Node) -> None:
        heapq.heappush(ready[node.op.view or _fits(node, graph.rows)], position[node])

    def take(node: Node) -> None:
        order.append(node)
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
    return order


def _fits(step: Node | Step, rows: int) -> bool:
    """Whether threads can share a step by rows. Concatenations count, since their parts are mostly
    written in place.
    """
    if isinstance(step.op, Kernel) and _across(step.op).intersection(step.op.program.outputs):
        return False
    kind = _is_by_rows(step) or isinstance(step.op, Cat)
    return kind and all(has_rows(y, rows) for y in step.outputs)


def _across(kernel: Kernel) -> set[Value]:
    """Values that a kernel computes over all rows, and values that depend on these. Kernels for
    further sizes have them of the program that they share, in which sizes are symbols.
    """
    values: set[Value] = set()
    if kernel.across:
        return kernel.across[0]
    for node in kernel.program.nodes:
        op, x = node.op, node.values[0]
        over = type(op).__name__ in REDUCING and x.shape
        axes = getattr(op, "axes", None) or (getattr(op, "axis", 0),)
        if (over and 0 in {axis % len(x.shape) for axis in axes}) or values.intersection(
            node.values
        ):
            values.update(node.outputs)
    if kernel.across is not None:
        kernel.across.append(values)
    return values


def _may_be_apart(node: Node) -> bool:
    """Whether threads may compute a node beside others: small products and kernels."""
    return isinstance(node.op, Kernel) or _library(node) in PRODUCTS


def _is_by_rows(node: Node | Step) -> bool:
    return isinstance(node.op, Kernel) or _library(node) in _BY_ROWS


def _library(node: Node | Step) -> str:
    """The `Op.library` of a product, with ReLU behind it or not."""
    return str(getattr(node.op, "base", node.op).library)


def _rows(x: Value) -> int:
    """Number of rows of a result: its first dimension, or all dimensions but the last where it is
    no matrix.
    """
    return prod(x.shape[:-1]) if len(x.shape) > 1 else prod(x.shape)


def _work(node: Node) -> int:
    """Approximate number of additions or multiply-adds."""
    if isinstance(node.op, Kernel):
        program = node.op.program
        return sum(prod(x.shape) for each in program.nodes for x in each.outputs)
    return (
        prod(node.output.shape) * node.values[0].shape[-1] if _is_by_rows(node) else work_of(node)
    )
