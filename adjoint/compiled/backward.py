"""Gradients through what a compiled function returns: its backward is a part of the same program.

Where the function has returned, the capture goes on: `Cotangents` stand for the gradients of its
results, which will come from outside, and what is computed from them for all that the function took
is recorded behind it. What a call computed waits in the memory of its own program until its node
has run backward, or is gone (`Lease`); a call meanwhile gets another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..autograd.function import Opaque
from ..autograd.gradients import grad
from ..core.errors import AutogradError, Unsupported
from ..core.mode import MODE
from ..core.op import Op
from ..core.spec import Spec
from ..eager.record import item, versions_of
from ..eager.tensors import wrap
from ..graph.lazy import LazyValue, record
from ..graph.node import RELEASED, Leaf, Node, assert_unchanged
from ..program.program import Node as Step

_TWICE = Opaque(
    "compile: trying to differentiate the gradients of what a compiled function returned; compute "
    "them within the function (autograd.grad with create_graph=True), or compile the whole step"
)


class Cotangents(Op, abstract=True):
    """Results go out; their gradients come in."""

    def __init__(self, n_outputs: int) -> None:
        self.n_outputs = n_outputs  # type: ignore[misc]

    def infer(self, *specs: Spec) -> Any:
        """Each gradient is like its result."""
        return specs


class Backward(NamedTuple):
    """How gradients of results lead to those of what was taken."""

    step: Step | None  # `Cotangents` in the program
    results: tuple[int, ...]  # those that have gradients, by number among the computed ones
    sources: list[Any]  # tensors, or numbers of arguments, whose gradients are computed
    leading: list[frozenset[int]]  # for each of the sources, which of `results` it has an effect on


class Gradients(NamedTuple):
    """What comes back from results of a function."""

    results: tuple[int, ...] = ()  # that have gradients
    found: Sequence[tuple[int, Any, frozenset[int]]] = ()  # sources, theirs, and of which results
    why: str | Exception | None = None  # others have none; None: they lead to nothing


def differentiated(
    results: Sequence[Any], sources: Sequence[Any], note: Callable[[Any], None]
) -> Gradients:
    """While a function is captured: which of its results have a gradient, those of `sources` that
    they lead to, and why others have none. `note` is told of what is recorded.
    """
    found = [n for n, y in enumerate(results) if _has_history(y)]
    none = Gradients()
    if not found or not sources:
        return none
    with _ends(sources):
        for attempt in (found, None):
            if attempt is None:  # some were computed by what a backward has released
                attempt = [n for n in found if not _sent([results[n]], sources, note).refused]
            if not attempt:
                break
            ys = [results[n] for n in attempt]
            sent = _sent(ys, sources, note)
            if not sent.refused:
                leading = _leading(ys, sources, sent, note)
                pairs = [(k, g._data) for k, g in enumerate(sent.gradients) if g is not None]
                kept = [(k, g, leading[k]) for k, g in pairs]
                return Gradients(tuple(attempt) if kept else (), kept, none.why)
            none = none._replace(why=sent.refused)
    return none


@contextlib.contextmanager
def _ends(sources: Sequence[Any]) -> Iterator[None]:
    """Within it, gradients arrive at `sources` and go no further, and no hook of theirs runs: that
    is when those of the results come from outside.
    """
    nodes = [x._node for x in sources]
    kept = [(node.extra, node.parents) for node in nodes]
    for node in nodes:
        node.extra = None
        if type(node) is not Leaf:
            node.parents = ()
    try:
        yield
    finally:
        for node, (extra, parents) in zip(nodes, kept, strict=True):
            node.extra = extra
            if type(node) is not Leaf:
                node.parents = parents


def _has_history(y: Any) -> bool:
    return y._node is not None and isinstance(y._data, LazyValue) and y._data.dtype.kind in "fcV"


class _Sent(NamedTuple):
    gradients: Sequence[Any]  # of the sources
    seeds: list[Any]
    refused: str | Exception  # why there are none


def _sent(ys: list[Any], sources: Sequence[Any], note: Any) -> _Sent:
    """Send gradients back from some results."""
    seeds = [wrap(value) for value in record(Cotangents(len(ys)), tuple(y._data for y in ys))]
    for seed in seeds:
        note(seed._data)
    try:
        found = grad(ys, sources, seeds, retain_graph=True, allow_unused=True)
    except AutogradError as error:
        return _Sent((), seeds, str(error))
    except Unsupported as error:  # an op without a gradient, which says so
        return _Sent((), seeds, error)
    return _Sent(found, seeds, "")


def _leading(ys: list[Any], sources: Sequence[Any], sent: _Sent, note: Any) -> list[frozenset[int]]:
    """For each source the results that lead to it. Where its gradient is not computed from that of
    a result, it may be zeros all the same (of `floor`), or none; that is asked for one by one.
    """
    every = frozenset(range(len(ys)))
    if len(ys) == 1:
        return [every] * len(sources)
    known = {id(seed._data): frozenset((n,)) for n, seed in enumerate(sent.seeds)}
    led = [frozenset() if g is None else _read_by(g._data, known) for g in sent.gradients]
    for n in every:
        if all(g is None or n in each for g, each in zip(sent.gradients, led, strict=True)):
            continue
        alone = _sent([ys[n]], sources, note).gradients
        led = [each if g is None else each | {n} for each, g in zip(led, alone, strict=True)]
    return led


def _read_by(end: Any, known: dict[int, frozenset[int]]) -> frozenset[int]:
    """Of what is `known` by id, all from which a recorded value is computed; noted for others."""
    stack = [end]
    while stack:
        x = stack[-1]
        if not isinstance(x, LazyValue) or id(x) in known:
            stack.pop()
            continue
        inputs = [y for y in x.inputs if isinstance(y, LazyValue)]
        waiting = [y for y in inputs if id(y) not in known]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        known[id(x)] = frozenset().union(*[known[id(y)] for y in inputs])
    return known.get(id(end), frozenset())


class Lease:
    """Keeps what a call has computed: that memory is used again when this is gone. `arrays`: those
    that the tensors had which are read where they are.
    """

    __slots__ = ("__weakref__", "arrays")

    arrays: list[Any]


class CompiledCall(Op, abstract=True):
    """A call of a compiled function, to the engine: `run` computes its gradients."""

    def __init__(self, run: Callable[[list[Any]], list[Any]], n_outputs: int) -> None:
        self.run = run
        self.n_outputs = n_outputs  # type: ignore[misc]

    def gradient(self, g: Any, x: Any) -> tuple[Any, ...]:
        """Those of all sources; `x` is the node."""
        given = [g] if self.n_outputs == 1 else g
        found = self.run(given)
        if MODE.get().grad:
            nodes = (x, *(each._node for each in given if each is not None))
            parents = tuple(node for node in nodes if node is not None)
            for y in found:
                if y is None:
                    continue
                y._node = Node(_TWICE, parents, (), None, y._data.shape, y._data.dtype)
        return tuple(found)


class CallNode(Node):
    """The node of such a call; it saves a `Lease` and the tensors that are read where they are."""

    __slots__ = ()

    def name(self) -> str:
        """As PyTorch calls it."""
        return "CompiledFunctionBackward"

    def values(self) -> tuple[Any, ...]:
        """The node itself, if all is as it was."""
        if self.saved is RELEASED:
            raise AutogradError(
                "compile: Trying to backward through the graph a second time; what the compiled "
                "function had computed was released by the first backward. Pass retain_graph=True "
                "to the first backward, or call the function again"
            )
        lease, *tensors = self.saved
        versions = self.versions or (0,) * len(tensors)
        for x, version, array in zip(tensors, versions, lease.arrays, strict=True):
            assert_unchanged("compile", x, version)
            if x._data is not array:
                raise AutogradError(
                    f"compile: a tensor of shape {tuple(x.shape)} has other data (x.data = ...) "
                    "than when the compiled function was called, to which its gradients belong; "
                    "call backward before, or the function again"
                )
        return (self,)

    def release(self) -> None:
        """The memory may be used again."""
        self.saved = RELEASED


def history(
    op: CompiledCall, lease: Lease, parents: tuple[Any, ...], read: Sequence[Any], y: Sequence[Any]
) -> list[Any]:
    """The nodes of results `y`, whose gradients depend on the tensors `read` besides."""
    lease.arrays = [x._data for x in read]
    only = y[0] if len(y) == 1 else None
    node = CallNode(
        op, parents, (lease, *read), versions_of(read),
        () if only is None else only.shape, None if only is None else only.dtype,
    )  # fmt: skip
    return [node] if only is not None else [item(node, i, each) for i, each in enumerate(y)]
