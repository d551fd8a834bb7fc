"""Numbers among a function's arguments that differ from call to call: inputs of one program, as the
numbers are that the function keeps in attributes, instead of a constant of each of many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from ...core import fork_safety
from .signature import NumberMark, Signature, without_sizes
from .slots import GuardSource

Place: TypeAlias = int | str  # an index, or a keyword
R = TypeVar("R")
_MARKS: dict[type, NumberMark] = {int: NumberMark(int), float: NumberMark(float)}


class NumberArguments:
    """The numbers among the arguments of one function, by place: an index, or a keyword. Those that
    have differed between calls are kept in `held` during a call, where programs read them.
    """

    def __init__(self) -> None:
        self.held: dict[Place, float] = {}
        self.lock = fork_safety.lock()
        self._varying: set[Place] = set()
        self._first: dict[object, dict[Place, float]] = {}  # those met first, by the rest of a call

    @property
    def vary(self) -> bool:
        """Whether any number has differed between calls."""
        return bool(self._varying)

    def taken(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments with marks for the numbers that vary, which are held from now on."""
        numbers = _numbers(args, kwargs)
        varying = {place: x for place, x in numbers.items() if place in self._varying}
        self.held.update(varying)
        return _marked(args, kwargs, varying)

    def learn(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        rest: tuple[object, ...],
        leaves: bool,
    ) -> bool:
        """Compare the numbers of a call with those of the first one that was like it but for them;
        `rest` is what else it must have in common, but for sizes. Whether a place was found that
        varies.
        """
        numbers = _numbers(args, kwargs)
        if not numbers:
            return False
        signature = Signature(leaves)
        signature.add_all(_marked(args, kwargs, numbers))
        key = without_sizes((tuple(signature.key), *rest))
        first = self._first.setdefault(key, numbers)
        new = {place for place, x in numbers.items() if repr(x) != repr(first[place])}
        new -= self._varying
        self._varying |= new
        return bool(new)

    def slots(self) -> list[GuardSource]:
        """The numbers that are held, as lifted state."""
        return [GuardSource("item", self.held, place, x, 0, None) for place, x in self.held.items()]

    def given(self, function: Callable[..., R]) -> Callable[..., R]:
        """`function`, called with what is held in the places of the marks."""

        def call(*args: object, **kwargs: object) -> R:
            held = self.held
            positional = [held[n] if type(x) is NumberMark else x for n, x in enumerate(args)]
            named = {name: held[name] if type(x) is NumberMark else x for name, x in kwargs.items()}
            return function(*positional, **named)

        return call


def _numbers(args: Sequence[object], kwargs: Mapping[str, object]) -> dict[Place, float]:
    """The numbers among arguments, by place."""
    pairs: list[tuple[Place, Any]] = [*enumerate(args), *kwargs.items()]
    return {place: x for place, x in pairs if type(x) in _MARKS}


def _marked(
    args: Sequence[object], kwargs: Mapping[str, object], numbers: Mapping[Place, float]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments with marks in the places of these numbers."""
    positional = tuple([_MARKS[type(x)] if n in numbers else x for n, x in enumerate(args)])
    return positional, {
        name: _MARKS[type(x)] if name in numbers else x for name, x in kwargs.items()
    }
