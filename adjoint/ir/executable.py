"""The one cache of executables: how to compute an op, a composite or a function call, by
signature.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..core import policy
from ..core.arrays import CachedLaunch, CachedView, CachedViews, signature
from ..core.op import Op
from ..core.sized_tables import SizedTable

if TYPE_CHECKING:
    from typing import TypeAlias

    from ..core.arrays import PhiloxState

    Maker: TypeAlias = "Callable[[Any, list[Any]], Executable | None]"
    SizedMaker: TypeAlias = (
        "Callable[[Any, list[Any], list[Any], list[int]], tuple[Executable, Maker | None] | None]"
    )


class Executable:
    """A cached way to compute an op, a composite or a call, for arrays of one signature.

    `launch` takes them and gives an array, several in a tuple or list, or None where it does not
    take these after all: then the general way is asked. Of an op it takes the numbers among the
    inputs, too.
    """

    __slots__ = (
        "constants", "launch", "launcher", "op", "owner", "records", "seen", "stream", "then",
        "viewer", "viewers",
    )  # fmt: skip

    launcher: CachedLaunch | None  # `launch`, if it is a kernel called by pointer
    viewer: CachedView | None  # `launch`, if the result is a view of the only array
    viewers: CachedViews | None  # `launch`, if the results are such views
    owner: Any  # the op or function that it computes: kept, so that no other gets its address
    op: Any  # the op recorded for autograd
    records: bool  # whether the result may want a gradient
    constants: Any  # the op's inputs with None for tensors, where there are others; else None
    stream: Any  # the generator's stream, if it draws random numbers
    then: Executable | None  # the executable that writes over the same tensor next
    seen: Any  # of a family: the numbers of recent calls, each a tuple

    def __init__(
        self, launch: Any, owner: object, op: object, records: bool,
        constants: tuple[Any, ...] | None = None, stream: PhiloxState | None = None,
        then: Executable | None = None,
    ) -> None:  # fmt: skip
        self.launch = launch
        self.launcher = launch if type(launch) is CachedLaunch else None
        self.viewer = launch if type(launch) is CachedView else None
        self.viewers = launch if type(launch) is CachedViews else None
        self.owner = owner
        self.op = op
        self.records = records
        self.constants = constants
        self.stream = stream
        self.then = then
        self.seen = None


def _weigh(executable: Executable) -> int:
    """About how many bytes an executable takes, with the plan of its composite."""
    return policy.EXECUTABLE_BYTES + getattr(executable.op, "sized_bytes", 0)


_cache = SizedTable("executables", _weigh)
_forgettable: list[Callable[[], object]] = []


def find(key: Hashable) -> Executable | None:
    """The cached executable with this signature, or None."""
    executable = _cache.young.get(key)
    return _cache.again(key) if executable is None else executable


def peek(key: Hashable) -> Executable | None:
    """`find` that does not count as a use: what was cached in this very call came once."""
    return _cache.peek(key)


def keep(key: Hashable, executable: Executable) -> None:
    """Cache an executable by its signature."""
    _cache.put(key, executable)


def keep_family(key: Hashable, owner: object, make: Maker) -> None:
    """Cache a factory: `find_numbered` calls `make(owner, numbers)` for the executable of
    particular numbers. `key` is the signature without numbers.
    """
    family = Executable(make, owner, None, False)
    family.seen = set()
    keep(key, family)


def find_numbered(
    key: Hashable, owner: object, args: Iterable[Any], grad: bool, raw: bool = False
) -> Executable | None:
    """The executable of `owner` for arguments of which only the numbers are new, or the sizes, too;
    None if no factory is cached or it refuses them. An executable made for the same numbers a
    second time is cached by `key`: numbers that change with each call leave nothing behind.
    """
    numbers: list[Any] = []
    arrays: list[Any] = []
    alike = owner.without_numbers(numbers) if isinstance(owner, Op) else owner
    like = signature(alike, args, grad, arrays, None, raw, numbers)
    if like is None:
        return None
    family = find(like) if numbers else None
    if family is None:
        if isinstance(owner, Op) and not owner.kept:
            return None
        return _find_sized(key, like, owner, alike, args, grad, arrays, numbers)
    executable: Executable | None = family.launch(owner, numbers)
    if executable is not None:
        which = tuple(numbers)
        if which in family.seen:
            keep(key, executable)
        elif len(family.seen) < policy.NUMBERS:
            family.seen.add(which)
        else:
            family.seen = {which}
    return executable


_SIZED = "any sizes"  # `seen` of families for any sizes


def keep_sized(owner: object, args: Iterable[Any], make: SizedMaker, grad: bool = False) -> None:
    """Cache a factory for calls that differ from this one in floats and sizes: `make(owner,
    numbers, arrays, sizes)` is called for those of particular ones. It returns an executable, and a
    function that makes others for other numbers; or None where it does not support them.
    """
    alike = owner.without_numbers([]) if isinstance(owner, Op) else owner
    key = signature(alike, args, grad, [], None, True, [], [])
    if key is not None and peek(key) is None:
        family = Executable(make, alike, None, False)
        family.seen = _SIZED
        keep(key, family)


def _find_sized(
    key: Hashable, like: Hashable, owner: object, alike: object, args: Iterable[Any], grad: bool,
    arrays: list[Any], numbers: list[Any],
) -> Executable | None:  # fmt: skip
    """The executable of `owner` for arrays of new sizes, cached by `key`, and for other numbers by
    `like`; None if no factory is cached or it refuses them.
    """
    sizes: list[int] = []
    sized = signature(alike, args, grad, [], None, True, [], sizes)
    family = None if sized is None else find(sized)
    made = None if family is None else family.launch(owner, numbers, arrays, sizes)
    if made is None:
        return None
    executable: Executable = made[0]
    keep(key, executable)
    if made[1] is not None:
        keep_family(like, alike, made[1])
    return executable


def known(op: Op, arrays: list[Any]) -> Any:
    """The result of `op` on arrays and numbers by a cached executable; None where there is none."""
    launch_args: list[Any] = []
    key = signature(op, arrays, False, launch_args, None, True)
    if key is None:
        return None
    executable = find(key)
    if executable is None:
        executable = find_numbered(key, op, arrays, False, True)
        if executable is None:
            return None
    return (
        executable.launch(*arrays)
        if executable.launcher is None
        else executable.launcher.launch(launch_args)
    )


def forget_calls() -> None:
    """Empty the cache."""
    _cache.clear()


def forget() -> None:
    """Empty the cache, and call the functions registered with `forgettable`."""
    forget_calls()
    for clear in _forgettable:
        clear()


def forgettable(clear: Callable[[], object]) -> None:
    """Register a function that `forget` calls."""
    _forgettable.append(clear)


def counts() -> dict[str, int]:
    """The number of cached executables by the name of their op or function."""
    numbers: dict[str, int] = {}
    for executable in _cache.values():
        if executable.seen is _SIZED:
            continue
        owner = executable.owner
        name = getattr(owner, "__name__", None) or type(owner).__name__
        numbers[name] = numbers.get(name, 0) + 1
    return numbers


def inputs_of(executable: Executable, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs of the recorded op: `tensors`, with its constants in between."""
    if executable.constants is None:
        return tuple(tensors)
    rest = iter(tensors)
    return tuple([next(rest) if x is None else x for x in executable.constants])
