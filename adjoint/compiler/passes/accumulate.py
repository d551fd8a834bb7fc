"""Running accumulation: sums whose terms are results of library calls are accumulated term by term.
So are gradients of weights that a loop reads in each of its steps, or of several batches.

A kernel that adds all terms would wait for the last, and all would be live until then: memory for
as many copies of the weights as there are terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core import policy
from ...ir.program import Node, Program, Value
from ...ops.elementwise.arithmetic import Add
from .fusion_roles import role


def running_sums(graph: Program) -> dict[Node, int]:
    """Additions that accumulate a term into a sum, with the number of the input that is the sum.
    Nothing else reads the term or the sum, and the terms of the whole sum would keep much memory
    alive together. A sum may begin with a value that exists before.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    position: dict[Node | None, int] = {node: n for n, node in enumerate(graph.nodes)}
    position[None] = -1  # of inputs and constants
    chains: dict[Node, _Chain] = {}  # by their last addition

    def is_alone(x: Any, like: Value) -> bool:
        own = isinstance(x, Value) and x.node in position and x.spec == like.spec
        return own and x not in outputs and len(users[x]) == 1

    for node in graph.nodes:
        if type(node.op) is not Add or not all(is_alone(x, node.output) for x in node.inputs):
            continue
        before, term = sorted(node.inputs, key=lambda x: position[x.node])
        if term.node in chains and before.node not in chains:
            before, term = term, before
        earlier = chains.get(before.node) or _Chain([], [_kept(before)])
        # Each batch's gradient may be a sum of its own.
        kept = [*earlier.kept, term.nbytes if term.node in chains else _kept(term)]
        if None not in kept and term.node is not None:
            chains.pop(before.node, None)
            steps = [*earlier.steps, (node, node.inputs.index(before))]
            chains[node] = _Chain(steps, kept)
    return {node: k for chain in chains.values() if chain.is_much() for node, k in chain.steps}


class _Chain(NamedTuple):
    """A sum of several terms."""

    steps: list[tuple[Node, int]]  # its additions, and which input of each is the sum so far
    kept: list[int | None]  # bytes that each term keeps alive

    def is_much(self) -> bool:
        """Whether much memory would be live until the last term is computed."""
        kept = [size for size in self.kept if size]
        return len(kept) > 1 and sum(kept[:-1]) >= policy.RUNNING_SUM


def _kept(term: Value) -> int | None:
    """Bytes that are live until a term is added: its own, or those of the operands that it reduces,
    if that is much. 0 for a value that exists anyway, None for a result that is no term.
    """
    node = term.node
    while node is not None and node.op.view and node.values:
        node = node.values[0].node
    if node is None:
        return 0
    node_role = role(node)
    if isinstance(node_role, str):
        return term.nbytes
    size = max(x.nbytes for x in node.values)
    return (size if size >= policy.RUNNING_SUM else 0) if node_role.reduces else None
