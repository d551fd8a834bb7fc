"""Activations whose gradients compute part of them again."""

from __future__ import annotations

from types import SimpleNamespace

from ..ops.elementwise.functions import Tanh, tanh
from ..ops.nn.activation import Gelu
from ..ops.special.special import Erf, erf
from ..program.capture import program_of, recording, symbol
from ..program.program import Node, Program, Value
from ..program.rewriting import rewriting
from .passes import EXACT, expression_of

_NAMES = SimpleNamespace(erf=erf, tanh=tanh)  # what `Gelu.compute` asks for
_COSTLY = (Erf, Tanh)


@rewriting
def open_activations(graph: Program) -> int:
    """Write GELU as the ops that it is made of where its gradient computes the costly one of them
    from the same input: merged, that is computed once. What the gradient is multiplied by is then
    known forward, and kept in place of the input.
    """
    costly = [node.output for node in graph.nodes if isinstance(node.op, _COSTLY)]
    found = 0
    for place, node in reversed(list(enumerate(graph.nodes))):
        if not costly or not isinstance(node.op, Gelu):
            continue
        [x] = node.values
        if x.spec.dtype.name not in EXACT:
            continue  # others are rounded once, where ops are rounded each
        nodes = _opened(node.op, x)
        [own] = [each.output for each in nodes if isinstance(each.op, _COSTLY)]
        wanted = expression_of(own, x, len(nodes))
        if any(expression_of(y, x, len(nodes)) == wanted for y in costly):
            graph.nodes[place : place + 1] = nodes
            graph.replace({node.output: nodes[-1].output})
            found += 1
    return found


def _opened(op: Gelu, x: Value) -> list[Node]:
    """The ops that it is made of, as its own definition says."""
    of = symbol(x.spec)
    with recording():
        y = op.compute(_NAMES, of)
    program = program_of([of._data], [y._data])
    [own] = program.inputs
    program.replace({own: x})
    return program.nodes
