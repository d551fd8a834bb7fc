"""Registry of passes: named functions that change a program in place and can be watched.

A pass takes the program first and returns how many changes it made. Who watches is told before and
after each: tests verify every program this way, `step.graph()` keeps what it was, and
`ADJOINT_DEBUG=passes` prints what it is now. Where nobody watches, this costs a look.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from ..core import debug
from ..core.mode import switched
from .listing import listing
from .program import Program

Pass = TypeVar("Pass", bound=Callable[..., int])
Watcher = Callable[[str, Program, "int | None"], object]

PASSES: dict[str, Callable[..., int]] = {}  # all that there are, by name
_WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


def rewriting(function: Pass) -> Pass:
    """Declare a pass: register it by its name, and tell watchers when it runs."""
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


def watching(watch: Watcher) -> switched:
    """Context manager: in this thread `watch` is called around each pass, with None before and with
    the number of changes after it.

    >>> from adjoint.compiler.passes import basic_passes as passes
    >>> seen = []
    >>> with watching(lambda name, graph, made: seen.append((name, made))):
    ...     passes.drop_dead(Program([], [], []))
    0
    >>> seen
    [('drop_dead', None), ('drop_dead', 0)]
    """
    return switched((*_WATCHERS.get(), watch), variable=_WATCHERS)


def verify(name: str, graph: Program, made: int | None) -> None:
    """A watcher that verifies the program after each pass.

    Errors: GraphError names the node, and the pass in a note.
    """
    if made is None:
        return
    try:
        graph.verify()
    except Exception as error:
        error.args = (f"after {name}: {error}", *error.args[1:])
        raise
