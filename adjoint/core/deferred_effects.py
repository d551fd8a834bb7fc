"""Deferred side effects: calls, such as a schedule's step, that change Python state but no computed
value.

In a function that is being captured such a call is noted, and made after each run of the program.
Until then what it would change is `Later`, which nobody can read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar, cast

from .errors import Unsupported
from .mode import MODE

F = TypeVar("F", bound=Callable[..., Any])


def deferrable(
    changes: Callable[[Any], Iterable[tuple[dict[str, Any], Iterable[str]]]],
) -> Callable[[F], F]:
    """Declare a method to be a deferrable side effect: it changes nothing but the dict entries that
    `changes(self)` names, and is called after the run where a function is being captured.
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
    """Placeholder for a dict entry whose value a deferred call will set; reading it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def refuse(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise Unsupported: the placeholder has no value yet.

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
