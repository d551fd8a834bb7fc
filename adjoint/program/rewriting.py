"""Passes: functions that change a program in place, known by name, each of which can be watched.

A pass takes the program first and returns how many changes it made. Who watches is told before and
after each: tests verify every program this way, `step.graph()` keeps what it was, and
`ADJOINT_DEBUG=passes` prints what it is now. Where nobody watches, this costs a look.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from ..core import debug
from .listing import listing
from .program import Program

Pass = TypeVar("Pass", bound=Callable[..., int])
Watcher = Callable[[str, Program, "int | None"], object]

PASSES: dict[str, Callable[..., int]] = {}  # all that there are, by name
_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


def rewriting(function: Pass) -> Pass:
    """Declare a pass."""
    name = function.__name__

    @functools.wraps(function)
    def run(graph: Program, *args: Any, **kwargs: Any) -> int:
        watchers = _WATCHERS.get()
        if not watchers and "passes" not in debug.on:
            return function(graph, *args, **kwargs)
        for watch in watchers:
            watch(name, graph, None)
        count = len(graph.nodes)
        made = function(graph, *args, **kwargs)
        for watch in watchers:
            watch(name, graph, made)
        if "passes" in debug.on:
            what = f"{name}: {made} changes, {count} -> {len(graph.nodes)} nodes"
            debug.say("passes", f"{what}\n{listing(graph)}" if made else what)
        return made

    PASSES[name] = run
    return cast(Pass, run)


@contextlib.contextmanager
def watching(watch: Watcher) -> Iterator[None]:
    """Within it, in this thread, `watch` is told of each pass: with None before it has run, and
    with the number of its changes afterwards.

    >>> from adjoint.inference import passes
    >>> seen = []
    >>> with watching(lambda name, graph, made: seen.append((name, made))):
    ...     passes.drop_dead(Program([], [], []))
    0
    >>> seen
    [('drop_dead', None), ('drop_dead', 0)]
    """
    token = _WATCHERS.set((*_WATCHERS.get(), watch))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


def verify(name: str, graph: Program, made: int | None) -> None:
    """Check a program after each pass: a watcher.

    Errors: GraphError names the node, and the pass in a note.
    """
    if made is None:
        return
    try:
        graph.verify()
    except Exception as error:
        error.args = (f"after {name}: {error}", *error.args[1:])
        raise
