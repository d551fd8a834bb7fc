"""Derivatives of what a function computes, traced together with the function: the program by which
a backward with `create_graph=True` computes the gradients of a compiled function's results.

Such a program is a capture like any other, of a function that returns gradients. Its arguments are
those of the original function, followed by the gradients of its results; it has no side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...autograd.gradients import grad
from ...core.errors import AutogradError, Unsupported
from ...core.tensor_base import TensorBase
from ...ir.program import Program, Value
from ...runtime.node import Leaf
from .backward import ends_of

if TYPE_CHECKING:
    from .returned_tensors import Returned


class Differentiation(NamedTuple):
    """One differentiation of a traced function: which results have gradients, and which tensors'
    gradients are computed from them.
    """

    results: tuple[int, ...]  # by number among the computed ones
    sources: tuple[Any, ...]  # tensors from outside, or numbers of arguments
    wanted: tuple[int, ...]  # which of `sources` have gradients in what is returned, by number


def differentiated_results(
    returned: Returned,
    levels: Iterable[Differentiation],
    arguments: Sequence[TensorBase],
    returning: Callable[[object], Returned],
) -> Returned:
    """Differentiate what a traced function `returned`, once for each of `levels`, and return the
    last gradients. The last of `arguments` are the gradients of results, level by level;
    `returning` makes the analysis of what a program returns.

    Errors: Unsupported where a level has no gradients.
    """
    levels = list(levels)
    begin = len(arguments) - sum(len(level.results) for level in levels)
    for level in levels:
        end = begin + len(level.results)
        sources = [arguments[x] if type(x) is int else x for x in level.sources]
        ys = [returned.tensors[n] for n in level.results]
        with ends_of(sources):
            try:
                gradients = grad(
                    ys, [sources[k] for k in level.wanted], arguments[begin:end],
                    create_graph=True, allow_unused=True,
                )  # fmt: skip
            except AutogradError as error:
                raise Unsupported(str(error)) from error
        read = _behind([g for g in gradients if g is not None], returned.tensors)
        returned = returning((list(gradients), []))  # and no calls
        returned.read = read
        begin = end
    return returned


def _behind(gradients: Sequence[Any], results: Sequence[Any]) -> frozenset[int]:
    """The numbers of `results` through which the history of their gradients goes: those whose
    values are saved.
    """
    stack = [g._node for g in gradients if g._node is not None]
    seen = set(stack)
    while stack:
        parents = [x for x in stack.pop().parents if x is not None and x not in seen]
        seen.update(parents)
        stack += [x for x in parents if type(x) is not Leaf]
    return frozenset(n for n, y in enumerate(results) if y._node in seen)


def assert_reads_none(program: Program, changed: set[Value]) -> None:
    """Refuse a program that reads states which the function has overwritten: it would run after
    that.

    Errors: Unsupported.
    """
    read = {x for node in program.nodes for x in node.values}.union(program.outputs)
    if not changed.isdisjoint(read):
        raise Unsupported("they need a tensor from outside that the function has written since")
