"""Gradients that have gradients themselves: what a backward with `create_graph=True` runs for a
call of a compiled function.

They are computed by a program of their own, which is captured from the same function when they are
first asked for, and kept with the function's program. It computes again what the function has
computed; its own backward is the second derivative, and has such programs in turn.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...autograd.engine import is_walking, will_run
from ...core import debug, policy
from ...core.errors import AutogradError, Unsupported
from ...core.mode import MODE
from ...core.tensor_base import TensorBase
from ...runtime.lazy import concrete
from ..capture.backward import SavedActivations
from ..capture.differentiation import Differentiation

if TYPE_CHECKING:
    from ...runtime.node import Node, Target
    from .step import CompiledStep


class DerivedProgram(NamedTuple):
    """A program that computes gradients, and what its calls need."""

    program: CompiledStep
    numbers: Callable[[Sequence[Any]], tuple[list[Any], Any] | None]  # see `ScalarInputs.function`
    read: list[int]  # tensors that it reads, by number among arguments and states
    streams: list[int]  # for each of its generators the number among those of the function


Derive = Callable[[Sequence[Differentiation], Sequence[Any]], tuple[Any, Any]]


class Derivatives:
    """The programs that compute gradients of the results of one program, with history."""

    def __init__(self, derive: Derive, count: int, levels: Sequence[Differentiation] = ()) -> None:
        """`derive` captures and lowers a program that differentiates the function at each of the
        given levels, for given tensors. Calls of this one, which is of `levels`, have `count`
        tensors as arguments.
        """
        self._derive, self._count, self._levels = derive, count, tuple(levels)
        self._programs: dict[Any, DerivedProgram | str] = {}  # or why there is none
        self.numbers: Any = ()  # those of lifted state, in the call that begins
        self.behind: list[Any] = []  # see `SavedActivations`

    def gradients(
        self, program: CompiledStep, node: Node, cotangents: Sequence[Any]
    ) -> list[TensorBase | None]:
        """Gradients of all sources of a call, with history; None for those that this backward does
        not ask for.

        Errors: Unsupported where they cannot be computed, and where what the call has read was
        changed since.
        """
        inputs: SavedActivations = node.saved[0]
        backward = program.captured.gradients
        sources = backward.sources
        wanted = tuple(k for k, x in enumerate(node.parents) if x is not None and _is_wanted(x))
        given = [g for g in cotangents if g is not None]
        arrived = tuple(n for n, g in enumerate(cotangents) if g is not None)
        gradients: list[TensorBase | None] = [None] * len(sources)
        if not (wanted and given):
            return gradients
        states = program.outside
        _assert_same_history(sources, node, inputs)
        for g in given:
            concrete(g)
        arguments = [*inputs.arguments[: self._count], *given]
        key = arrived, wanted, tuple(g._node is not None for g in given)
        made = self._programs.get(key)
        if made is None:
            made = self._make(program, key, inputs, arguments, states)
        if type(made) is str:
            raise Unsupported(made)
        assert isinstance(made, DerivedProgram)
        try:
            inputs.assert_unchanged(states, made.read)
        except AutogradError as error:
            raise Unsupported(str(error)) from error
        ends = [weakref.ref(node)] if len(backward.results) == 1 else inputs.results
        nodes = dict(zip(backward.results, ends, strict=True))
        for k, g in zip(wanted, _run(made, inputs, arguments, nodes), strict=True):
            gradients[k] = g
        return gradients

    def _make(
        self, program: CompiledStep, key: Any, inputs: SavedActivations, arguments: list[Any],
        states: list[Any],
    ) -> DerivedProgram | str:  # fmt: skip
        """Capture and lower the program for a kind of backward, or the reason why there is none."""
        arrived, wanted, _ = key
        backward = program.captured.gradients
        results = tuple(backward.results[n] for n in arrived)
        level = Differentiation(results, tuple(backward.sources), wanted)
        levels = (*self._levels, level)
        why = program.difference()
        if why:
            raise Unsupported(f"{why} since the function was called")
        made: DerivedProgram | str
        try:
            derived, numbers = self._derive(levels, arguments)
            derived.derivatives = Derivatives(self._derive, len(arguments), levels)
            read = _read(derived, self._count, len(inputs.arguments), states)
            made = DerivedProgram(derived, numbers, read, _streams(program, derived))
        except Unsupported as error:
            made = str(error)
        if "compile" in debug.on:
            text = made if type(made) is str else "a program of its own"
            debug.say("compile", f"gradients with create_graph=True, {len(levels)} times: {text}")
        while len(self._programs) >= policy.COMPILED_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        self._programs[key] = made
        return made


def _is_wanted(node: Target) -> bool:
    """Whether a gradient of `node` is asked for: by the backward that runs, or where none does."""
    return will_run(node) or not is_walking()


def _assert_same_history(sources: Sequence[Any], node: Node, inputs: SavedActivations) -> None:
    """Refuse tensors that have another history than when the function was called.

    Errors: Unsupported.
    """
    for source, parent in zip(sources, node.parents, strict=True):
        x = inputs.arguments[source] if type(source) is int else source
        if x._node is not parent:
            raise Unsupported(
                f"the history of a tensor of shape {tuple(x._data.shape)} was changed since the "
                "function was called (requires_grad_, detach_, an operation in place)"
            )


def _read(derived: CompiledStep, count: int, begin: int, states: list[Any]) -> list[int]:
    """The tensors of a call that a derived program reads: of its first `count` arguments, and of
    the `states`, which are numbered from `begin` on. Others that it reads, such as constants of
    backward, are as they are when it runs.

    Errors: Unsupported for gradients.
    """
    if derived.owned:
        raise Unsupported("the function reads the gradient of a tensor")
    places = {id(x): begin + n for n, x in enumerate(states)}
    arguments = [x for x in derived.reads if type(x) is int and x < count]
    outside = [places.get(id(x)) for x in derived.reads if type(x) is not int]
    return [*arguments, *(n for n in outside if n is not None)]


def _streams(program: CompiledStep, derived: CompiledStep) -> list[int]:
    """For each generator of a derived program its number among those of `program`.

    Errors: Unsupported for others.
    """
    numbers = {id(stream.generator): n for n, stream in enumerate(program.captured.inputs.streams)}
    own = [id(stream.generator) for stream in derived.captured.inputs.streams]
    if not all(each in numbers for each in own):
        raise Unsupported("the function draws from other generators than when it was called")
    return [numbers[each] for each in own]


def _run(
    made: DerivedProgram, inputs: SavedActivations, arguments: list[Any], results: dict[int, Any]
) -> Any:
    """Run a derived program for a call of the function: the gradients that are wanted. `results`
    has weak references to the nodes of the call's results that have gradients, by number.
    """
    program = made.program
    computed = made.numbers(inputs.numbers)
    if computed is None:
        raise Unsupported("a number that the function reads has changed, and Python with it")
    with program:
        for stream, n in zip(program.captured.inputs.streams, made.streams, strict=True):
            stream.set(inputs.drawing[n])
        derivatives = program.derivatives
        derivatives.numbers = inputs.numbers
        read = program.captured.outputs.read
        own = (x for n, x in results.items() if n in read)
        derivatives.behind = [*inputs.behind, *own]
        observer = MODE.get().observer
        return program._begin([*arguments, *computed[0]], observer, computed[1])[0]
