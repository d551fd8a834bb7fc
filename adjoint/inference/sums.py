"""Sums of what libraries compute, term by term: gradients of weights that a loop reads in each of
its steps, or that several batches are accumulated into.

A kernel that adds all terms would wait for the last, and all would live until then: as often the
memory of the weights as there are terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core import policy
from ..ops.elementwise.arithmetic import Add
from ..program.program import Node, Program, Value
from .roles import role


def running_sums(graph: Program) -> dict[Node, int]:
    """The additions of a term to a sum of terms, neither of which anything else reads, and which
    input the sum is: of those sums whose terms would keep much memory together. A sum may begin
    with what is known before.
    """
    users = graph.users()
    outputs = set(graph.outputs)
    place: dict[Node | None, int] = {node: n for n, node in enumerate(graph.nodes)}
    place[None] = -1  # of inputs and constants
    chains: dict[Node, _Chain] = {}  # by their last addition

    def is_alone(x: Any, like: Value) -> bool:
        own = isinstance(x, Value) and x.node in place and x.spec == like.spec
        return own and x not in outputs and len(users[x]) == 1

    for node in graph.nodes:
        if type(node.op) is not Add or not all(is_alone(x, node.output) for x in node.inputs):
            continue
        before, term = sorted(node.inputs, key=lambda x: place[x.node])
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
    kept: list[int | None]  # the bytes that its terms keep

    def is_much(self) -> bool:
        """Whether all that lives until the last term is there takes much memory."""
        kept = [size for size in self.kept if size]
        return len(kept) > 1 and sum(kept[:-1]) >= policy.RUNNING_SUM


def _kept(term: Value) -> int | None:
    """The bytes that live until a term is added: its own, or those of which it is a reduction, if
    that is much; none where it is there in any case, and None for what is no term.
    """
    node = term.node
    while node is not None and node.op.view and node.values:
        node = node.values[0].node
    if node is None:
        return 0
    found = role(node)
    if isinstance(found, str):
        return term.nbytes
    size = max(x.nbytes for x in node.values)
    return (size if size >= policy.RUNNING_SUM else 0) if found.reduces else None
