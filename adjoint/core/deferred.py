"""Calls that change Python's own state, and nothing of what is computed: a schedule's step.

In a function that is being captured such a call is noted, and made after each run of the program.
Until then what it would change is `Later`, which nobody can read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from .errors import Unsupported
from .mode import MODE

F = TypeVar("F", bound=Callable[..., Any])


def deferrable(
    changes: Callable[[Any], Iterable[tuple[dict[str, Any], Iterable[str]]]],
) -> Callable[[F], F]:
    """Declare a method that changes nothing but the entries of dicts that `changes(self)` names, to
    be called after the run where a function is being captured.
    """

    def declare(method: F) -> F:
        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            note = getattr(MODE.get().executor, "note_call", None)
            if note is None:
                return method(self, *args, **kwargs)
            return note(functools.partial(method, self), args, kwargs, changes(self))

        return cast(F, run)

    return declare


class Later:
    """What an entry will be when a call has been made: it has no value yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def refuse(self, *args: Any, **kwargs: Any) -> Any:
        """It is read.

        Errors: Unsupported.
        """
        raise Unsupported(
            f"compile: the function reads {self._name} after a schedule's step, which is made when "
            "the program has run; step schedules last, or outside of the function"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.refuse()


_REFUSED = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs "
    "float int index bool eq ne lt le gt ge hash iter len getitem setitem call contains format repr"
)
for _name in _REFUSED.split():
    setattr(Later, f"__{_name}__", Later.refuse)
