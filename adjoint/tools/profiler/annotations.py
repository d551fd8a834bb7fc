"""Parts of a program that a profile shows by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ...core.argument_repr import argument_repr
from ...core.mode import MODE
from .events import USER

F = TypeVar("F", bound=Callable[..., Any])


class record_function:  # noqa: N801 - PyTorch's name
    """An event called `name` around a block, or around each call of a function that it decorates.

    Outside profiles it does nothing. `args`, a text, is shown in the exported trace.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.record_function.html

    >>> with ad.profiler.profile() as prof, ad.profiler.record_function("squares"):
    ...     y = ad.arange(3) * ad.arange(3)
    >>> [event.name for event in prof.events() if event.cpu_parent is None]
    ['squares']
    """

    __repr__ = argument_repr

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._open: list[tuple[Any, Any]] = []

    def __enter__(self) -> record_function:
        observer = MODE.get().observer
        event = None
        if observer is not None:
            event = observer.begin(self.name, USER)
            event.args = self.args
        self._open.append((observer, event))
        return self

    def __exit__(self, *exc: Any) -> None:
        observer, event = self._open.pop()
        if event is not None:
            observer.end(event)

    def __call__(self, function: F) -> F:
        """`function`, with an event around each of its calls."""

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]
