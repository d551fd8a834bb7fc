"""A compiled function where a graph, or `lazy`, records: one node, whose program is of the tensors
that it is given and of those that it reads elsewhere.

A node is what its inputs give, whenever it is computed. So the function may only compute: what
changes something besides is refused, and what it has read in Python is as it was then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..autograd.recording import Recorder, execute_meanwhile
from ..core import policy
from ..core.dtype import get_default_dtype
from ..core.errors import RecordingError, ShapeError, Unsupported
from ..core.mode import MODE, Mode
from ..core.spec import Spec
from ..graph.cells import Cell
from ..program.reads import Guards, watched
from ..program.watch import place_of
from .bodies import Body, keep, like, symbol
from .capture import CAPTURING
from .control import Capture
from .flow import Call
from .returned import Returned

Given = Callable[..., Any]  # calls the function with other tensors in the place of its arguments'


def are_recorded(mode: Mode, tensors: Sequence[Any]) -> bool:
    """Whether what is computed of `tensors` here is recorded for a graph, or lazily."""
    if mode.executor is None:
        return any(isinstance(x._data, Cell) for x in tensors)
    return isinstance(mode.executor, Recorder) or mode.executor is execute_meanwhile


class Nodes:
    """What a compiled function is where something records, by the signatures of its calls."""

    def __init__(self, function: Callable[..., Any], called: str) -> None:
        self.function, self.called = function, called
        self.inlined = False  # operations are recorded one by one from now on
        self._known: dict[Any, list[_Recorded]] = {}

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Say of what cannot be captured that it cannot be a node."""
        try:
            yield
        except Unsupported as error:
            text = str(error).removeprefix("compile: ").removeprefix(f"Compiled#{self.called}: ")
            place = place_of(error)
            raise RecordingError(
                f"compile: {self.called} is called where a graph, or lazy(), records, and would "
                f"be one node, which only computes: {text}{'' if place in text else place}; or "
                f"call {self.called}.function, whose operations are recorded one by one"
            ) from error

    def apply(self, key: Any, tensors: Sequence[Any], objects: Sequence[Any], given: Given) -> Any:
        """What the function returns for `tensors`, as one node.

        Errors: RecordingError for a function that does more than compute.
        """
        with self.refusing():
            capture = Capture(f"Compiled#{self.called}", tensors)
        key = key, capture.in_graph
        alike = self._known.pop(key, [])
        self._known[key] = alike  # the last used one is the last
        found = next((each for each in alike if each.fits(capture)), None)
        if found is None:
            found = _Recorded(self, capture, tensors, objects, given)
            alike.insert(0, found)
            del alike[policy.COMPILED_PROGRAMS :]
            while len(self._known) > policy.COMPILED_NODES:
                del self._known[next(iter(self._known))]
        return found.apply(capture, tensors)


class _Recorded:
    """The node's op for one signature, and what it depends on."""

    def __init__(
        self, nodes: Nodes, capture: Capture, tensors: Sequence[Any], objects: Sequence[Any],
        given: Given,
    ) -> None:  # fmt: skip
        self._nodes, self._given, self._capture = nodes, given, capture
        self._objects = list(objects)  # kept: they are known by their ids
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

    def _captured(self, arguments: Sequence[Any]) -> tuple[Body, Returned, Guards]:
        forms: list[Returned] = []

        def run(*given: Any) -> list[Any]:
            found = self._given(*given)
            met = getattr(MODE.get().executor, "met", {})
            forms.append(Returned(found, met, given))
            if any(forms[0].leaves):
                raise Unsupported(
                    "it returns a tensor that requires gradients and that no operation of it has "
                    "computed; return its clone()"
                )
            return list(forms[0].tensors)

        nodes, capture = self._nodes, self._capture
        roots = [(f"argument {n}", x) for n, x in enumerate(self._objects)]
        with nodes.refusing(), CAPTURING:
            body, guards = watched(nodes.function, roots, lambda *_: capture.made(run, arguments))
        forms[0].close(None)
        return body, forms[0], guards

    def _made(self, specs: Sequence[Spec]) -> Body:
        """The body for arguments of other shapes."""
        called = self._nodes.called
        if not self._guards.hold() or self._dtype != get_default_dtype():
            raise ShapeError(
                f"{called}: for other shapes its Python would run again, and what it reads was "
                f"changed meanwhile ({self._guards.difference()}); record it again"
            )
        capture = self._capture
        pairs = zip(specs, self._wants, strict=False)
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
        """Whether all that was read is as it was."""
        outside = [(x.spec, capture.wants(x)) for x in self.outside]
        return outside == self._outside and self._guards.hold()

    def apply(self, capture: Capture, tensors: Sequence[Any]) -> Any:
        """The node, in the form of what the function returns."""
        found: Sequence[Any] = ()
        if self.op is not None:
            found = capture.applied(self.op, (*tensors, *self.outside), self.wanting)
        return self._returned.results.rebuilt(list(found), tensors)
