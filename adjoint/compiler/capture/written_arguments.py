"""Lists and dicts among a function's arguments: what it writes there is written to the caller's own
after each run, and one that it returns is the caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.tree import ConstantSpec, TreeSpec
from ..guards.signature import contents_of
from .result_tree import ContainerResult


class WrittenArguments:
    """The lists and dicts among the arguments of one program."""

    def __init__(self) -> None:
        self.own = True  # whether one that is returned is the caller's own
        self.written: list[int] = []  # numbers of those that the function writes
        self.returned = False  # whether one occurs in what it returns, keeps or writes
        self._copies: list[object] = []  # that a capture is given
        self._objects: list[object] = []  # arguments that it is given themselves

    def begin(self, copies: Sequence[object], objects: Sequence[object]) -> None:
        """Begin a capture, which is given these copies, and these objects themselves."""
        self._copies, self._objects = list(copies), list(objects)
        self.written, self.returned = [], False

    def end(self) -> None:
        """End the capture, and drop all references to it."""
        self._copies.clear()
        self._objects.clear()

    def result(self, part: object) -> TreeSpec | None:
        """The tree spec of a part of the results that is an argument known by identity, or such a
        container; None for others.
        """
        if any(part is x for x in self._objects):
            return ConstantSpec(part)
        for n, x in enumerate(self._copies):
            if part is x and self.own:
                self.returned = True
                return ContainerResult(len(self._copies) - n)
        return None

    @property
    def any(self) -> bool:
        """Whether runs have anything to do."""
        return self.returned or bool(self.written)

    def with_contents(self, result: object) -> object:
        """What a captured function returns, with the contents of the containers that it has
        written.
        """
        if not self.written:
            return result
        return result, [contents_of(self._copies[n]) for n in self.written]

    def write(self, result: Any, containers: Sequence[Any]) -> Any:
        """Write to the caller's own containers what a run leaves there, and return the rest."""
        if not self.written:
            return result
        result, contents = result
        for n, values in zip(self.written, contents, strict=True):
            container = containers[n]
            if type(container) is dict:
                half = len(values) // 2
                container.clear()
                container.update(zip(values[:half], values[half:], strict=True))
            else:
                container[:] = values
        return result
