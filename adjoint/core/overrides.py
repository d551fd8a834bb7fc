"""Objects that stand for tensors, and say themselves what a public function does with them: their
type has `__torch_function__`, as PyTorch's protocol has it, and was named by `follow`.

Declarations around public functions (`@public`, `@explaining`, `@checking`, ...) look at FOLLOWED
before they look at arguments, or where a call is not known: it is empty, and nothing more is paid,
until something such as `adjoint.fx` follows a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .errors import InvalidType

__all__ = ["ABSENT", "FOLLOWED", "ask", "follow", "leading", "leave", "overridden", "unusual"]

FOLLOWED: list[type] = []  # types whose objects, and those of their subclasses, are asked

ABSENT: Any = object()  # what `overridden` gives where no argument says anything


def follow(kind: type) -> None:
    """Let public functions ask objects of a type, whose class method it is, what they do.

    `__torch_function__(function, types, args, kwargs)` gives the result, or NotImplemented.
    """
    if kind not in FOLLOWED:
        FOLLOWED.append(kind)


def leave(kind: type) -> None:
    """Ask objects of a type no more."""
    if kind in FOLLOWED:
        FOLLOWED.remove(kind)


def _asked(values: Iterable[Any], followed: tuple[type, ...], found: list[Any]) -> None:
    for value in values:
        if isinstance(value, followed):
            kind = type(value)
            if all(type(each) is not kind for each in found):
                place = len(found)
                for i, other in enumerate(found):  # a subclass is asked before its base
                    if issubclass(kind, type(other)):
                        place = i
                        break
                found.insert(place, value)
        elif isinstance(value, (list, tuple)):
            _asked(value, followed, found)


def overridden(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What arguments, or items of lists and tuples among them, say that `function` gives; ABSENT
    where none has a say.

    Errors: InvalidType where all that were asked gave NotImplemented.
    """
    found: list[Any] = []
    followed = tuple(FOLLOWED)
    _asked(args, followed, found)
    if kwargs:
        _asked(kwargs.values(), followed, found)
    return ask(function, found, tuple(args), dict(kwargs)) if found else ABSENT


def ask(function: Callable[..., Any], asked: Sequence[Any], args: Any, kwargs: Any) -> Any:
    """What the first of these objects that has a say makes of a call.

    Errors: InvalidType where all of them give NotImplemented.
    """
    types = tuple([type(each) for each in asked])
    for each in asked:
        result = type(each).__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise InvalidType(
        f"{getattr(function, '__name__', function)}: __torch_function__ of "
        f"{', '.join(each.__name__ for each in types)} gave NotImplemented; give it tensors"
    )


def leading(*args: Any) -> tuple[Any, ...]:
    """Arguments without those at the end that are None: not given."""
    count = len(args)
    while count and args[count - 1] is None:
        count -= 1
    return args[:count]


def unusual(**options: tuple[Any, Any]) -> dict[str, Any]:
    """Of options, each with its default, those that are something else."""
    return {name: value for name, (value, usual) in options.items() if value is not usual}
