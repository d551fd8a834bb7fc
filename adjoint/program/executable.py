"""The one cache: what computes an op, a composite or a function's call, by its signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core import policy
from ..eager.arrays import Launcher, Viewer


class Executable:
    """What computes something for arrays like those that it was kept for.

    `launch` takes them and gives an array, several in a tuple or list, or None where it does not
    take these after all: then the general way is asked. Of an op it takes the numbers among the
    inputs, too.
    """

    __slots__ = (
        "constants", "launch", "launcher", "op", "owner", "records", "stream", "then", "viewer",
    )  # fmt: skip

    launcher: Launcher | None  # what `launch` is, where that is a kernel called by pointer
    viewer: Viewer | None  # what `launch` is, where the result is a view of the only array
    owner: Any  # what it computes: kept, so that no other gets its address
    op: Any  # what is recorded for it
    records: bool  # whether the result may want a gradient
    constants: Any  # the op's inputs with None for tensors, where there are others; else None
    stream: Any  # what random numbers are drawn from, where they are
    # Of what is written over a tensor, `constants` are the launcher's last words, if it has other
    # ones, and `then` is what writes over it next.
    then: Executable | None

    def __init__(
        self, launch: Any, owner: Any, op: Any, records: bool, constants: Any = None,
        stream: Any = None, then: Executable | None = None,
    ) -> None:  # fmt: skip
        self.launch = launch
        self.launcher = launch if type(launch) is Launcher else None
        self.viewer = launch if type(launch) is Viewer else None
        self.owner = owner
        self.op = op
        self.records = records
        self.constants = constants
        self.stream = stream
        self.then = then


class _Cache:
    """Two generations of executables: what is used stays in the younger one; where that is full, it
    becomes the older one, and what was not used since is dropped.
    """

    __slots__ = ("old", "young")

    def __init__(self) -> None:
        self.young: dict[Any, Executable] = {}
        self.old: dict[Any, Executable] = {}


_cache = _Cache()
_forgettable: list[Callable[[], object]] = []


def find(key: Any) -> Executable | None:
    """What was kept by this signature."""
    found = _cache.young.get(key)
    if found is None and _cache.old:
        found = _cache.old.get(key)
        if found is not None:
            keep(key, found)
    return found


def keep(key: Any, executable: Executable) -> None:
    """Let `find` give it."""
    if len(_cache.young) >= policy.EXECUTABLES:
        _cache.old = _cache.young
        _cache.young = {}
    _cache.young[key] = executable


def forget() -> None:
    """Empty the cache, and what was registered with `forgettable`."""
    _cache.young, _cache.old = {}, {}
    for clear in _forgettable:
        clear()


def forgettable(clear: Callable[[], object]) -> None:
    """Let `forget` call `clear`, too."""
    _forgettable.append(clear)


def counts() -> dict[str, int]:
    """How many there are, by the name of what they compute."""
    found: dict[str, int] = {}
    for executable in (*_cache.young.values(), *_cache.old.values()):
        owner = executable.owner
        name = getattr(owner, "__name__", None) or type(owner).__name__
        found[name] = found.get(name, 0) + 1
    return found


def inputs_of(executable: Executable, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs of its op, of which `tensors` are given."""
    if executable.constants is None:
        return tuple(tensors)
    given = iter(tensors)
    return tuple([next(given) if x is None else x for x in executable.constants])
