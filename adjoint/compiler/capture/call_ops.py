"""A compiled function as an op of a graph or of a lazy recording: one node, whose inputs are
arguments and the tensors that the function reads elsewhere.

A node's value depends on its inputs alone, whenever it is computed. The function may therefore
have no side effects, and Python values that it has read stay as they were when it was recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from ...autograd.recording import Recorder, execute_meanwhile
from ...core import policy
from ...core.dtype import get_default_dtype
from ...core.errors import RecordingError, ShapeError, Unsupported
from ...core.mode import MODE, Mode
from ...core.spec import Spec
from ...runtime.cells import Cell
from ..guards.code_observer import place_of
from ..guards.python_state import Guards, watched
from ..guards.retraces import RetraceToFollow
from ..guards.state_snapshot import StateSnapshot
from .body_recorder import like, symbol
from .control_capture import Capture
from .control_flow_ops import Call
from .returned_tensors import Returned
from .step_capture import CAPTURING
from .subgraphs import Subgraph, keep

Given = Callable[..., Any]  # calls the function with other tensors in place of its arguments


def are_recorded(mode: Mode, tensors: Sequence[Any]) -> bool:
    """Whether ops on `tensors` are recorded here for a graph, or lazily."""
    if mode.executor is None:
        return any(isinstance(x._data, Cell) for x in tensors)
    return isinstance(mode.executor, Recorder) or mode.executor is execute_meanwhile


class CallOps:
    """Captured ops of one compiled function, by the signatures of its calls."""

    def __init__(self, function: Callable[..., Any], called: str) -> None:
        self.function, self.called = function, called
        self.inlined = False  # operations are recorded one by one from now on
        self._known: dict[Any, list[_Recorded]] = {}

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Context that turns errors about what cannot be captured into RecordingErrors."""
        try:
            yield
        except Unsupported as error:
            text = str(error).removeprefix("compile: ").removeprefix(f"Compiled#{self.called}: ")
            line = place_of(error)
            raise RecordingError(
                f"compile: {self.called} is called where a graph, or lazy(), records, and would "
                f"be one node, which only computes: {text}{'' if line in text else line}; or "
                f"call {self.called}.function, whose operations are recorded one by one"
            ) from error

    def apply(
        self, key: Hashable, tensors: Sequence[Any], objects: Sequence[Any], call: Given
    ) -> object:
        """Call the function for `tensors` as one node.

        Errors: RecordingError for a function that does more than compute.
        """
        with self.refusing():
            capture = Capture(f"Compiled#{self.called}", tensors)
        key = key, capture.in_graph
        variants = self._known.pop(key, [])
        self._known[key] = variants  # the last used one is the last
        variant = next((each for each in variants if each.fits(capture)), None)
        if variant is None:
            variant = _Recorded(self, capture, tensors, objects, call)
            variants.insert(0, variant)
            del variants[policy.COMPILED_PROGRAMS :]
            while len(self._known) > policy.COMPILED_NODES:
                del self._known[next(iter(self._known))]
        return variant.apply(capture, tensors)


class _Recorded:
    """The captured op for one signature, with its guards."""

    def __init__(
        self, nodes: CallOps, capture: Capture, tensors: Sequence[Any], objects: Sequence[Any],
        call: Given,
    ) -> None:  # fmt: skip
        self._nodes, self._given, self._capture = nodes, call, capture
        self._objects = list(objects)  # kept alive, since they are guarded by id
        self._wants = [capture.wants(x) for x in tensors]
        self._dtype = get_default_dtype()
        arguments = [like(x, wants) for x, wants in zip(tensors, self._wants, strict=True)]
        body, self._returned, self._guards = self._captured(arguments)
        [self.outside] = capture.met
        self._outside = [(x.spec, capture.wants(x)) for x in self.outside]
        self.wanting = capture.settled(body, ())
        if any(self.wanting):
            keep(body)
        self.op = Call(capture.title, body, self._made) if body.outputs else None

    def _captured(self, arguments: Sequence[Any]) -> tuple[Subgraph, Returned, Guards]:
        forms: list[Returned] = []

        def run(*symbols: Any) -> list[Any]:
            result = self._given(*symbols)
            met = getattr(MODE.get().executor, "met", {})
            forms.append(Returned(result, met, symbols))
            if any(forms[0].leaves):
                raise Unsupported(
                    "it returns a tensor that requires gradients and that no operation of it has "
                    "computed; return its clone()"
                )
            return list(forms[0].tensors)

        def made(_: object, reads: StateSnapshot) -> Subgraph:
            return capture.made(run, arguments, reads)

        nodes, capture = self._nodes, self._capture
        roots = [(f"argument {n}", x) for n, x in enumerate(self._objects)]
        names: frozenset[str] = frozenset()
        with nodes.refusing(), CAPTURING:
            while True:
                try:
                    body, guards = watched(nodes.function, roots, made, (), names)
                    break
                except RetraceToFollow as error:
                    if error.names <= names:
                        raise
                    names |= error.names
                    del forms[:], capture.met[:]
        forms[0].close(None)
        return body, forms[0], guards

    def _made(self, specs: Sequence[Spec]) -> Subgraph:
        """Trace the body again for arguments of other shapes."""
        called = self._nodes.called
        if not self._guards.hold() or self._dtype != get_default_dtype():
            raise ShapeError(
                f"{called}: for other shapes its Python would run again, and what it reads was "
                f"changed meanwhile ({self._guards.difference()}); record it again"
            )
        capture = self._capture
        pairs = zip(specs, self._wants, strict=False)
        with CAPTURING:  # other threads may trace for other shapes
            del capture.met[:]
            body, *_ = self._captured([symbol(spec, wants) for spec, wants in pairs])
            same = [x is y for x, y in zip(capture.met[0], self.outside, strict=False)]
        if (
            len(same) < len(self.outside)
            or not all(same)
            or [x.spec for x in body.inputs] != list(specs)
        ):
            raise ShapeError(
                f"{called}: for these shapes it reads other tensors from outside, or of other "
                "shapes; record it again"
            )
        capture.settled(body, ())
        if any(self.wanting):
            keep(body)
        return body

    def fits(self, capture: Capture) -> bool:
        """Whether the guards hold: Python state and outside tensors are as they were."""
        outside = [(x.spec, capture.wants(x)) for x in self.outside]
        return outside == self._outside and self._guards.hold()

    def apply(self, capture: Capture, tensors: Sequence[Any]) -> object:
        """Apply the node, and rebuild the function's return value."""
        outputs: Sequence[Any] = ()
        if self.op is not None:
            outputs = capture.applied(self.op, (*tensors, *self.outside), self.wanting)
        return self._returned.results.rebuilt(list(outputs), tensors)
