"""Who is asked what a public function does: subclasses of Tensor and objects that stand for
tensors, whose type has `__torch_function__`, and modes of functions, which see every call.

Declarations around public functions (`@public`, `@explaining`, `@checking`, ...) look at FOLLOWED
before they look at arguments, or where a call is not known: it is empty, and nothing more is paid,
until there is such a type or mode. Of calls that are known nobody is asked: no call with a tensor
of such a type is one (`eager.arrays.signature`), none at all while a mode is on (`Mode.plain`).

Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from .device import device
from .dtype import dtype
from .errors import InvalidType
from .mode import MODE, mode_with
from .spec import Size
from .tensor_base import TensorBase

__all__ = [
    "ABSENT", "FOLLOWED", "DisableTorchFunction", "DisableTorchFunctionSubclass", "as_asked", "ask",
    "ask_again", "asks", "concerns", "disabled", "follow", "following", "inside", "is_unasked",
    "leading", "leave", "mode_closed", "mode_opened", "named", "never_asked", "overridden",
    "state_of", "unasked", "unusual",
]  # fmt: skip

# What there is to ask: types, by `follow`; OTHERS; and one MODES for each mode of functions that is
# on in some thread.
FOLLOWED: list[Any] = []
OTHERS = "types with __torch_function__"
MODES = "a mode of functions"

ABSENT: Any = object()  # what `overridden` gives where no argument says anything

# Of `Mode.overrides`: nobody is asked; or only by what users wrote, which the engine calls.
UNASKED: tuple[int, tuple[Any, ...]] = (1, ())
WALKING: tuple[int, tuple[Any, ...]] = (2, ())

# Types that have no say, and are met often.
_NEVER: set[type] = {
    bool, bytes, complex, device, dtype, float, int, range, slice, str, type, type(None),
    type(Ellipsis), Size,
}  # fmt: skip
_plain: Any = None  # the first type of tensors among them, which nearly all arguments are of
_modes: int = 0  # of functions, that are on in some thread
# Functions by which operators come to `overridden` -> the method that PyTorch tells of them.
_NAMED: dict[Any, Callable[[], Any]] = {}


def disabled(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """What a class has for `__torch_function__` whose tensors are like any other: the call."""
    return func(*args, **(kwargs or {}))


def never_asked(kind: type) -> None:
    """Objects of exactly this type have no say."""
    global _plain
    _NEVER.add(kind)
    if _plain is None and issubclass(kind, TensorBase):
        _plain = kind


def follow(kind: Any) -> None:
    """Ask objects of a type what public functions do. Subclasses of Tensor are asked without it,
    and so are types of which an object was met already.

    `__torch_function__(function, types, args, kwargs)` gives the result, or NotImplemented. A type
    that is followed is told of operators by the methods that they are, such as `Tensor.__add__`.
    """
    if kind not in FOLLOWED:
        FOLLOWED.append(kind)


def leave(kind: Any) -> None:
    """Undo `follow`."""
    if kind in FOLLOWED:
        FOLLOWED.remove(kind)


def following() -> None:
    """There are types from now on whose objects are to be asked, whatever their names."""
    if OTHERS not in FOLLOWED:
        FOLLOWED.append(OTHERS)


def mode_opened() -> bool:
    """A mode of functions is on in some thread; whether it is the only one."""
    global _modes
    _modes += 1
    FOLLOWED.append(MODES)
    return _modes == 1


def mode_closed() -> bool:
    """One is on no more; whether none is."""
    global _modes
    _modes -= 1
    FOLLOWED.remove(MODES)
    return _modes == 0


def named(function: Any, method: Callable[[], Any]) -> None:
    """An operator is told of as another method, as PyTorch does: what `method` gives."""
    _NAMED[function] = method


def as_asked(function: Any) -> Any:
    """The function of which `__torch_function__` is told where `function` asks."""
    method = _NAMED.get(function)
    return function if method is None else method()


def asks(kind: type) -> bool:
    """Whether objects of a type say what functions do with them, if anybody is asked."""
    if kind in _NEVER:
        return False
    found = getattr(kind, "__torch_function__", None)
    if found is None or found is disabled:
        return False
    return issubclass(kind, TensorBase) or not _is_of_pytorch(kind)


def _is_of_pytorch(kind: type) -> bool:
    """Whether objects of a type are tensors of PyTorch itself, which are no tensors here."""
    for each in kind.__mro__:  # noqa: SIM110 - no generator where it is compiled
        if each.__name__ == "Tensor" and each.__module__ == "torch":
            return True
    return False


def is_apart(value: Any) -> bool:
    """Whether calls with a tensor, which is of a subclass, are to ask it first."""
    if not asks(type(value)):
        return False
    overrides = MODE.get().overrides
    return overrides is None or not overrides[0]


def concerns(a: Any, b: Any = None, c: Any = None, d: Any = None) -> bool:
    """Whether a mode of functions is on, or one of these may have a say: a quick look, before
    arguments are gathered for `overridden`.
    """
    return _modes > 0 or _may_say(a) or _may_say(b) or _may_say(c) or _may_say(d)


def _may_say(value: Any) -> bool:
    if value is None:
        return False
    kind = type(value)
    if kind is _plain or kind in _NEVER:
        return False
    if kind is tuple or kind is list:
        for each in value:  # noqa: SIM110 - no generator where it is compiled
            if type(each) is not _plain and _may_say(each):
                return True
        return False
    return True


def is_unasked() -> bool:
    """Whether subclasses of Tensor are tensors like any other here."""
    overrides = MODE.get().overrides
    return overrides is not None and bool(overrides[0])


def _asked(values: Iterable[Any], found: list[Any]) -> None:
    for value in values:
        kind = type(value)
        if kind in _NEVER:
            continue
        if isinstance(value, (list, tuple)):
            _asked(value, found)
        elif asks(kind) and all(type(each) is not kind for each in found):
            place = len(found)
            for i, other in enumerate(found):  # a subclass is asked before its base
                if issubclass(kind, type(other)):
                    place = i
                    break
            found.insert(place, value)


def overridden(function: Callable[..., Any], args: Any, kwargs: Any, relevant: Any = None) -> Any:
    """What modes of functions, or arguments, or items of lists and tuples among them, say that
    `function` gives; ABSENT where none has a say. `relevant`: those to ask, if not all.

    Errors: InvalidType where all that were asked gave NotImplemented.
    """
    if not _modes:
        if relevant is not None:
            if not _may_say(relevant):
                return ABSENT
        elif not _may_say(args) and not (kwargs and _may_say(list(kwargs.values()))):
            return ABSENT
    found: list[Any] = []
    if relevant is not None:
        _asked(relevant, found)
    else:
        _asked(args, found)
        if kwargs:
            _asked(kwargs.values(), found)
    if not found and not _modes:
        return ABSENT
    overrides = MODE.get().overrides
    if overrides is not None:
        unasked, modes = overrides
        if unasked:
            found.clear()
        if modes:
            return _through_mode(function, modes, found, tuple(args), dict(kwargs))
    return ask(function, found, tuple(args), dict(kwargs)) if found else ABSENT


def ask(function: Callable[..., Any], asked: Sequence[Any], args: Any, kwargs: Any) -> Any:
    """What the first of these objects that has a say makes of a call.

    Errors: InvalidType where all of them give NotImplemented.
    """
    types = tuple([type(each) for each in asked])
    told = as_asked(function)
    for each in asked:
        kind = type(each)
        which = function if kind in FOLLOWED else told
        result = kind.__torch_function__(which, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise _refused(told, [each.__name__ for each in types])


def _through_mode(
    function: Any, modes: tuple[Any, ...], asked: Sequence[Any], args: Any, kwargs: Any
) -> Any:
    """What the innermost mode makes of a call, without itself; else those that are asked."""
    top = modes[-1]
    told = as_asked(function)
    types = tuple([type(each) for each in asked])
    former = MODE.get()
    unasked = former.overrides[0]
    MODE.set(mode_with(former, overrides=state_of(unasked, modes[:-1])))
    try:
        result = top.__torch_function__(told, types, args, kwargs)
        if result is not NotImplemented:
            return result
        if asked:
            return ask(function, asked, args, kwargs)
    finally:
        _restore(former.overrides)
    raise _refused(told, [type(top).__name__])


def _refused(function: Any, names: Sequence[str]) -> InvalidType:
    return InvalidType(
        f"{getattr(function, '__name__', function)}: __torch_function__ of {', '.join(names)} gave "
        "NotImplemented; give it tensors"
    )


# ---- what is in force here -----------------------------------------------------------------------


def state_of(unasked: int, modes: tuple[Any, ...]) -> Any:
    """What `Mode.overrides` is where subclasses are not asked, or modes see calls; else None."""
    return (unasked, modes) if unasked or modes else None


def _restore(overrides: Any) -> None:
    """As before, but for other switches, which may have been set since."""
    mode = MODE.get()
    if mode.overrides is not overrides:
        MODE.set(mode_with(mode, overrides=overrides))


def inside() -> tuple[Any, ...]:
    """The modes of functions that are on here, the innermost last."""
    overrides = MODE.get().overrides
    return () if overrides is None else overrides[1]


def unasked(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, in which subclasses are tensors like any other."""
    mode = MODE.get()
    former = mode.overrides
    MODE.set(mode_with(mode, overrides=UNASKED if former is None else (1, former[1])))
    try:
        return function(*args, **kwargs)
    finally:
        _restore(former)


def ask_again(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, which the user wrote: subclasses have a say in it, though the engine,
    which calls it, asks nobody; unless whoever called `backward` did not.
    """
    mode = MODE.get()
    former = mode.overrides
    if not FOLLOWED or former != WALKING:
        return function(*args)
    MODE.set(mode_with(mode, overrides=None))
    try:
        return function(*args)
    finally:
        _restore(former)


class DisableTorchFunctionSubclass:
    """Within it, subclasses of Tensor are tensors like any other; modes of functions see calls.

    >>> with ad.overrides.DisableTorchFunctionSubclass():
    ...     ad.ones(1) + 1
    tensor([2.])
    """

    _keeps_modes = True

    def __init__(self) -> None:
        self._former: list[Any] = []

    def __enter__(self) -> None:
        mode = MODE.get()
        self._former.append(mode.overrides)
        modes = inside() if self._keeps_modes else ()
        MODE.set(mode_with(mode, overrides=(1, modes)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _restore(self._former.pop())


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Within it, neither subclasses of Tensor nor modes of functions are asked."""

    _keeps_modes = False


# ---- for functions that ask in their first line --------------------------------------------------


def leading(*args: Any) -> tuple[Any, ...]:
    """Arguments without those at the end that are None: not given."""
    count = len(args)
    while count and args[count - 1] is None:
        count -= 1
    return args[:count]


def unusual(**options: tuple[Any, Any]) -> dict[str, Any]:
    """Of options, each with its default, those that are something else."""
    return {name: value for name, (value, usual) in options.items() if value is not usual}
