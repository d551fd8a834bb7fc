"""The one cache: what computes an op, a composite or a function's call, by its signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core import policy
from ..core.op import Op
from ..eager.arrays import Launcher, Viewer, Viewers, signature


class Executable:
    """What computes something for arrays like those that it was kept for.

    `launch` takes them and gives an array, several in a tuple or list, or None where it does not
    take these after all: then the general way is asked. Of an op it takes the numbers among the
    inputs, too.
    """

    __slots__ = (
        "constants", "launch", "launcher", "op", "owner", "records", "seen", "stream", "then",
        "viewer", "viewers",
    )  # fmt: skip

    launcher: Launcher | None  # what `launch` is, where that is a kernel called by pointer
    viewer: Viewer | None  # what `launch` is, where the result is a view of the only array,
    viewers: Viewers | None  # and where the results are
    owner: Any  # what it computes: kept, so that no other gets its address
    op: Any  # what is recorded for it
    records: bool  # whether the result may want a gradient
    constants: Any  # the op's inputs with None for tensors, where there are others; else None
    stream: Any  # what random numbers are drawn from, where they are
    then: Executable | None  # what writes over the same tensor next
    seen: Any  # where it makes executables: the numbers that came lately, each a tuple

    def __init__(
        self, launch: Any, owner: Any, op: Any, records: bool, constants: Any = None,
        stream: Any = None, then: Executable | None = None,
    ) -> None:  # fmt: skip
        self.launch = launch
        self.launcher = launch if type(launch) is Launcher else None
        self.viewer = launch if type(launch) is Viewer else None
        self.viewers = launch if type(launch) is Viewers else None
        self.owner = owner
        self.op = op
        self.records = records
        self.constants = constants
        self.stream = stream
        self.then = then
        self.seen = None


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


def keep_family(key: Any, owner: Any, make: Callable[[Any, list[Any]], Executable | None]) -> None:
    """Let `find_numbered` ask `make(owner, numbers)` for what computes it for other numbers; `key`
    is the signature without numbers.
    """
    family = Executable(make, owner, None, False)
    family.seen = set()
    keep(key, family)


def find_numbered(
    key: Any, owner: Any, args: Any, grad: bool, raw: bool = False
) -> Executable | None:
    """What computes `owner` for arguments of which only the numbers are new; None where it is not
    known what does. What is found a second time, `find(key)` gives from then on: numbers that
    change with each call leave nothing behind.
    """
    numbers: list[Any] = []
    alike = owner.without_numbers(numbers) if isinstance(owner, Op) else owner
    like = signature(alike, args, grad, [], None, raw, numbers)
    family = find(like) if numbers and like is not None else None
    if family is None:
        return None
    found: Executable | None = family.launch(owner, numbers)
    if found is not None:
        which = tuple(numbers)
        if which in family.seen:
            keep(key, found)
        elif len(family.seen) < policy.NUMBERS:
            family.seen.add(which)
        else:
            family.seen = {which}
    return found


def known(op: Op, arrays: list[Any]) -> Any:
    """What `op` gives for arrays and numbers, where it is known what computes it for such, else
    None.
    """
    given: list[Any] = []
    key = signature(op, arrays, False, given, None, True)
    if key is None:
        return None
    found = find(key)
    if found is None:
        found = find_numbered(key, op, arrays, False, True)
        if found is None:
            return None
    return found.launch(*arrays) if found.launcher is None else found.launcher.launch(given)


def forget_calls() -> None:
    """Empty the cache, so that each call looks anew for what computes it."""
    _cache.young, _cache.old = {}, {}


def forget() -> None:
    """Empty the cache, and what was registered with `forgettable`."""
    forget_calls()
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
