"""Gradients through the results of a compiled function: its backward is part of the same
program.

Where the function has returned, the capture goes on: `Cotangents` stand for the gradients of its
results, which will come from outside, and what is computed from them for all that the function took
is recorded behind it. What a call computed waits in the memory of its own program until its node
has run backward, or is gone (`SavedActivations`); a call meanwhile gets another.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...autograd.function import Opaque
from ...autograd.gradients import grad
from ...core.errors import AutogradError, Unsupported
from ...core.mode import MODE
from ...core.op import Op
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...ir.program import Node as Step
from ...runtime.lazy import LazyValue, record
from ...runtime.node import RELEASED, Leaf, Node, assert_unchanged
from ...runtime.record import item, versions_of
from ...runtime.tensors import wrap

_TWICE = (
    "compile: trying to differentiate the gradients of what a compiled function returned: {}; "
    "compute them within the function (autograd.grad with create_graph=True), or compile the whole "
    "step"
)


class Cotangents(Op, abstract=True):
    """The boundary between forward and backward: takes the results, gives the gradients that arrive
    for them from outside.
    """

    def __init__(self, n_outputs: int) -> None:
        self.n_outputs = n_outputs  # type: ignore[misc]

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """Specs of the gradients, each like that of its result."""
        return specs


class Backward(NamedTuple):
    """The backward part of a program: for which results gradients arrive, and for which tensors
    they are computed.
    """

    step: Step | None  # `Cotangents` in the program
    results: tuple[int, ...]  # results with gradients, by number among the computed ones
    sources: list[Any]  # tensors, or numbers of arguments, whose gradients are computed
    leading: list[frozenset[int]]  # for each of the sources, which of `results` it has an effect on


class Gradients(NamedTuple):
    """Outcome of tracing the backward: the results with a gradient, the gradients of sources, or
    the reason for having none.
    """

    results: tuple[int, ...] = ()  # numbers of results with gradients
    found: Sequence[tuple[int, Any, frozenset[int]]] = ()  # source, its gradient, its results
    why: str | Exception | None = None  # why other results have none; None: no path to a source


def differentiated(
    results: Sequence[Any], sources: Sequence[Any], note: Callable[[Any], None]
) -> Gradients:
    """Trace the backward of `results` while a function is captured, and return the gradients of
    `sources`. Results without a gradient come with the reason; `note` is told of every recorded
    value.
    """
    with_history = [n for n, y in enumerate(results) if _has_history(y)]
    none = Gradients()
    if not with_history or not sources:
        return none
    with ends_of(sources):
        for attempt in (with_history, None):
            if attempt is None:  # some were computed by what a backward has released
                attempt = [
                    n for n in with_history if not _sent([results[n]], sources, note).refused
                ]
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
def ends_of(sources: Sequence[Any]) -> Iterator[None]:
    """Context in which gradients stop at `sources`, without running their hooks: these run when the
    gradients of the results come from outside.
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


def _has_history(y: TensorBase) -> bool:
    return y._node is not None and isinstance(y._data, LazyValue) and y._data.dtype.kind in "fcV"


class _Sent(NamedTuple):
    gradients: Sequence[Any]  # of the sources
    seeds: list[Any]
    refused: str | Exception  # why there are none


def _sent(ys: list[Any], sources: Sequence[Any], note: Callable[[Any], object]) -> _Sent:
    """Trace gradients back from the results `ys`."""
    seeds = [wrap(value) for value in record(Cotangents(len(ys)), tuple(y._data for y in ys))]
    for seed in seeds:
        note(seed._data)
    try:
        received = grad(ys, sources, seeds, retain_graph=True, allow_unused=True)
    except AutogradError as error:
        return _Sent((), seeds, str(error))
    except Unsupported as error:  # an op without a gradient, which says so
        return _Sent((), seeds, error)
    return _Sent(received, seeds, "")


def _leading(
    ys: list[Any], sources: Sequence[Any], sent: _Sent, note: Callable[[Any], object]
) -> list[frozenset[int]]:
    """For each source the results that have an effect on it. A gradient that is not computed from
    that of a result may still be zeros (of `floor`) or None, so those are traced one by one.
    """
    every = frozenset(range(len(ys)))
    if len(ys) == 1:
        return [every] * len(sources)
    origins = {id(seed._data): frozenset((n,)) for n, seed in enumerate(sent.seeds)}
    led = [frozenset() if g is None else _read_by(g._data, origins) for g in sent.gradients]
    for n in every:
        if all(g is None or n in each for g, each in zip(sent.gradients, led, strict=True)):
            continue
        alone = _sent([ys[n]], sources, note).gradients
        led = [each if g is None else each | {n} for each, g in zip(led, alone, strict=True)]
    return led


def _read_by(end: object, origins: dict[int, frozenset[int]]) -> frozenset[int]:
    """The results that a recorded value depends on. `origins` maps values by id to such results;
    values that are visited are added to it.
    """
    stack = [end]
    while stack:
        x = stack[-1]
        if not isinstance(x, LazyValue) or id(x) in origins:
            stack.pop()
            continue
        inputs = [y for y in x.inputs if isinstance(y, LazyValue)]
        waiting = [y for y in inputs if id(y) not in origins]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        origins[id(x)] = frozenset().union(*[origins[id(y)] for y in inputs])
    return origins.get(id(end), frozenset())


class SavedActivations:
    """Keeps alive what a pending backward of one call reads: the memory of the program, which is
    reused when this object is gone, and the inputs of the call as they were, from which derivatives
    of its gradients are computed.
    """

    __slots__ = (
        "__weakref__", "arguments", "arrays", "behind", "contents", "drawing", "numbers", "results",
    )  # fmt: skip

    arrays: list[Any]  # the data of tensors that are read where they are
    arguments: list[Any]
    contents: list[tuple[Any, int]]  # of arguments and states, see `contents_of`
    drawing: list[Any]  # the states of generators
    numbers: Sequence[Any]  # those of lifted state
    results: list[Callable[[], Node | None]]  # weak references to nodes of several results
    behind: Sequence[Callable[[], Node | None]]  # and to those that a derivative stands for

    def assert_unchanged(self, states: Sequence[Any], read: Iterable[int]) -> None:
        """Refuse tensors, by number among arguments and `states`, that have been changed since the
        call.

        Errors: AutogradError.
        """
        both = [*self.arguments, *states]
        for n in read:
            x = both[n]
            array, version = self.contents[n]
            assert_unchanged("compile", x, version)
            if x._data is not array:
                raise _other_data(x)

    def assert_unhooked(self) -> None:
        """Refuse hooks on results of which this is a derivative, and which are computed within it:
        eager execution would call them again.

        Errors: AutogradError.
        """
        for reference in self.behind:
            node = reference()
            extra = None if node is None else node.extra
            if extra and (extra.hooks or extra.prehooks or extra.posthooks or extra.retained):
                raise AutogradError(
                    "compile: a hook, or retain_grad(), of a result of a compiled function is on "
                    "the way of a second derivative, which does not call it; remove it before that "
                    "backward, or put it on result.clone()"
                )


def _other_data(x: TensorBase) -> AutogradError:
    return AutogradError(
        f"compile: a tensor of shape {tuple(x._data.shape)} has other data (x.data = ...) than "
        "when the compiled function was called, to which its gradients belong; call backward "
        "before, or the function again"
    )


class CompiledCall(Op, abstract=True):
    """The autograd op of one call of a compiled function; `run` computes its gradients, and
    `run_again` gradients that have gradients themselves.
    """

    def __init__(
        self, run: Callable[[list[Any]], list[Any]],
        run_again: Callable[[list[Any], Any], list[Any]], n_outputs: int,
    ) -> None:  # fmt: skip
        self.run, self.run_again = run, run_again
        self.n_outputs = n_outputs  # type: ignore[misc]

    def gradient(self, g: Any, x: Node | None) -> tuple[Any, ...]:
        """Gradients of all sources; `x` is the node of the call."""
        cotangents = [g] if self.n_outputs == 1 else g
        if not MODE.get().grad:
            return tuple(self.run(cotangents))
        try:
            return tuple(self.run_again(cotangents, x))
        except Unsupported as error:
            why = Opaque(_TWICE.format(str(error).removeprefix("compile: ")))
        computed = self.run(cotangents)
        nodes = (x, *(each._node for each in cotangents if each is not None))
        parents = tuple(node for node in nodes if node is not None)
        for y in computed:
            if y is not None:
                y._node = Node(why, parents, (), None, y._data.shape, y._data.dtype)
        return tuple(computed)


class CallNode(Node):
    """Autograd node of a compiled call. Saves the memory of the call and the tensors that are read
    where they are.
    """

    __slots__ = ()

    def name(self) -> str:
        """The node's name in PyTorch."""
        return "CompiledFunctionBackward"

    def values(self) -> tuple[Any, ...]:
        """The node itself, after checking that what it saved was neither released nor changed."""
        if self.saved is RELEASED:
            raise AutogradError(
                "compile: Trying to backward through the graph a second time; what the compiled "
                "function had computed was released by the first backward. Pass retain_graph=True "
                "to the first backward, or call the function again"
            )
        lease, *tensors = self.saved
        if lease.behind:
            lease.assert_unhooked()
        versions = self.versions or (0,) * len(tensors)
        for x, version, array in zip(tensors, versions, lease.arrays, strict=True):
            assert_unchanged("compile", x, version)
            if x._data is not array:
                raise _other_data(x)
        return (self,)

    def release(self) -> None:
        """Let go of the saved activations, so that their memory can be reused."""
        self.saved = RELEASED


def history(
    op: CompiledCall,
    lease: SavedActivations,
    parents: tuple[Any, ...],
    read: Sequence[Any],
    y: Sequence[Any],
) -> list[Any]:
    """Autograd nodes of the results `y`; `read` are tensors on which their gradients depend besides
    the results.
    """
    lease.arrays = [x._data for x in read]
    only = y[0] if len(y) == 1 else None
    node = CallNode(
        op, parents, (lease, *read), versions_of(read),
        () if only is None else only.shape, None if only is None else only.dtype,
    )  # fmt: skip
    if only is not None:
        return [node]
    nodes = [item(node, i, each) for i, each in enumerate(y)]
    lease.results = [weakref.ref(each) for each in nodes]
    return nodes
