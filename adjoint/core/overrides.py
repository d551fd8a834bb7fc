"""`__torch_function__`: who overrides a public function. Subclasses of Tensor and tensor-like
objects whose type has the method are asked, and function modes, which see every call.

Declarations around public functions (`@public`, `@explaining`, `@checking`, ...) look at FOLLOWED
before they look at arguments, or where a call is not known: it is empty, and nothing more is paid,
until there is such a type or mode. Of calls that are known nobody is asked: no call with a tensor
of such a type is one (`core.arrays.signature`), none at all while a mode is on (`Mode.plain`).

Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

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

R = TypeVar("R")

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
    func: Callable[..., R],
    types: Iterable[type],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> R:
    """`__torch_function__` of classes that override nothing: makes the call."""
    return func(*args, **(kwargs or {}))


def never_asked(kind: type) -> None:
    """Declare that objects of exactly this type never override functions."""
    global _plain
    _NEVER.add(kind)
    if _plain is None and issubclass(kind, TensorBase):
        _plain = kind


def follow(kind: type) -> None:
    """Consult `__torch_function__` of objects of this type. Subclasses of Tensor are consulted
    without it, and so are types of which an object was met before.

    `__torch_function__(function, types, args, kwargs)` gives the result, or NotImplemented. A type
    that is followed is told of operators by the methods that they are, such as `Tensor.__add__`.
    """
    if kind not in FOLLOWED:
        FOLLOWED.append(kind)


def leave(kind: type | str) -> None:
    """Undo `follow`."""
    if kind in FOLLOWED:
        FOLLOWED.remove(kind)


def following() -> None:
    """Consult `__torch_function__` of objects of any type from now on."""
    if OTHERS not in FOLLOWED:
        FOLLOWED.append(OTHERS)


def mode_opened() -> bool:
    """Count a function mode that was entered in some thread; True if it is the only one."""
    global _modes
    _modes += 1
    FOLLOWED.append(MODES)
    return _modes == 1


def mode_closed() -> bool:
    """Count a function mode that was left; True if none is active now."""
    global _modes
    _modes -= 1
    FOLLOWED.remove(MODES)
    return _modes == 0


def named(function: Callable[..., Any], method: Callable[[], Any]) -> None:
    """Register the method, given by `method`, by which `__torch_function__` is told of an operator,
    as in PyTorch.
    """
    _NAMED[function] = method


def as_asked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function object that `__torch_function__` receives for `function`."""
    method = _NAMED.get(function)
    return function if method is None else method()


def asks(kind: type) -> bool:
    """Whether a type has a `__torch_function__` to consult."""
    if kind in _NEVER:
        return False
    method = getattr(kind, "__torch_function__", None)
    if method is None or method is disabled:
        return False
    return issubclass(kind, TensorBase) or not _is_of_pytorch(kind)


def _is_of_pytorch(kind: type) -> bool:
    """Whether a type is PyTorch's own Tensor or a subclass of it, which are no tensors here."""
    for each in kind.__mro__:  # noqa: SIM110 - no generator where it is compiled
        if each.__name__ == "Tensor" and each.__module__ == "torch":
            return True
    return False


def is_apart(value: object) -> bool:
    """Whether calls with a tensor must consult its class's `__torch_function__` first."""
    if not asks(type(value)):
        return False
    overrides = MODE.get().overrides
    return overrides is None or not overrides[0]


def concerns(a: object, b: object = None, c: object = None, d: object = None) -> bool:
    """Whether a function mode is active or one of the arguments may override functions: a quick
    test, before arguments are gathered for `overridden`.
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
    """Whether `__torch_function__` of subclasses is disabled here."""
    overrides = MODE.get().overrides
    return overrides is not None and bool(overrides[0])


def _asked(values: Iterable[Any], overriding: list[Any]) -> None:
    for value in values:
        kind = type(value)
        if kind in _NEVER:
            continue
        if isinstance(value, (list, tuple)):
            _asked(value, overriding)
        elif asks(kind) and all(type(each) is not kind for each in overriding):
            place = len(overriding)
            for i, other in enumerate(overriding):  # a subclass is asked before its base
                if issubclass(kind, type(other)):
                    place = i
                    break
            overriding.insert(place, value)


def overridden(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    relevant: Sequence[Any] | None = None,
) -> Any:
    """The result of a call as function modes, or arguments (items of lists and tuples included),
    override it; ABSENT where none does. `relevant`: the arguments to consult, if not all.

    Errors: InvalidType where all that were asked gave NotImplemented.
    """
    if not _modes:
        if relevant is not None:
            if not _may_say(relevant):
                return ABSENT
        elif not _may_say(args) and not (kwargs and _may_say(list(kwargs.values()))):
            return ABSENT
    overriding: list[Any] = []
    if relevant is not None:
        _asked(relevant, overriding)
    else:
        _asked(args, overriding)
        if kwargs:
            _asked(kwargs.values(), overriding)
    if not overriding and not _modes:
        return ABSENT
    overrides = MODE.get().overrides
    if overrides is not None:
        unasked, modes = overrides
        if unasked:
            overriding.clear()
        if modes:
            return _through_mode(function, modes, overriding, tuple(args), dict(kwargs))
    return ask(function, overriding, tuple(args), dict(kwargs)) if overriding else ABSENT


def ask(
    function: Callable[..., Any],
    asked: Sequence[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The result of a call by the first of these objects whose `__torch_function__` does not return
    NotImplemented.

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
    function: Callable[..., Any],
    modes: tuple[Any, ...],
    asked: Sequence[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The result of a call by the innermost function mode, run with that mode off; or, if it
    returns NotImplemented, by the arguments.
    """
    top = modes[-1]
    told = as_asked(function)
    types = tuple([type(each) for each in asked])
    former = MODE.get()
    unasked = former.overrides[0]
    try:
        MODE.set(mode_with(former, overrides=state_of(unasked, modes[:-1])))
        result = top.__torch_function__(told, types, args, kwargs)
        if result is not NotImplemented:
            return result
        if asked:
            return ask(function, asked, args, kwargs)
    finally:
        _restore(former.overrides)
    raise _refused(told, [type(top).__name__])


def _refused(function: Callable[..., Any], names: Sequence[str]) -> InvalidType:
    return InvalidType(
        f"{getattr(function, '__name__', function)}: __torch_function__ of {', '.join(names)} gave "
        "NotImplemented; give it tensors"
    )


# ---- what is in force here -----------------------------------------------------------------------


def state_of(unasked: int, modes: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]] | None:
    """The value of `Mode.overrides` for these settings; None where they are the defaults."""
    return (unasked, modes) if unasked or modes else None


def _restore(overrides: tuple[int, tuple[Any, ...]] | None) -> None:
    """Put back `Mode.overrides`; other switches, which may have been set since, stay."""
    mode = MODE.get()
    if mode.overrides is not overrides:
        MODE.set(mode_with(mode, overrides=overrides))


def inside() -> tuple[Any, ...]:
    """The active function modes of this thread, the innermost last."""
    overrides = MODE.get().overrides
    return () if overrides is None else overrides[1]


def unasked(function: Callable[..., R], args: Iterable[Any], kwargs: Mapping[str, Any]) -> R:
    """Run `function(*args, **kwargs)` with `__torch_function__` of subclasses disabled."""
    mode = MODE.get()
    former = mode.overrides
    try:
        MODE.set(mode_with(mode, overrides=UNASKED if former is None else (1, former[1])))
        return function(*args, **kwargs)
    finally:
        _restore(former)


def ask_again(function: Callable[..., R], *args: Any) -> R:
    """Run the user's `function(*args)` from within the engine with `__torch_function__` enabled
    again, unless the caller of `backward` had disabled it.
    """
    mode = MODE.get()
    former = mode.overrides
    if not FOLLOWED or former != WALKING:
        return function(*args)
    try:
        MODE.set(mode_with(mode, overrides=None))
        return function(*args)
    finally:
        _restore(former)


class DisableTorchFunctionSubclass:
    """Context manager: subclasses of Tensor are not asked; function modes still see calls.

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
    """Context manager: neither subclasses of Tensor nor function modes are asked."""

    _keeps_modes = False


# ---- for functions that ask in their first line --------------------------------------------------


def leading(*args: Any) -> tuple[Any, ...]:
    """The arguments without trailing Nones (which mean: not given)."""
    count = len(args)
    while count and args[count - 1] is None:
        count -= 1
    return args[:count]


def unusual(**options: tuple[Any, Any]) -> dict[str, Any]:
    """The options whose value differs from their default, given as name=(value, default)."""
    return {name: value for name, (value, usual) in options.items() if value is not usual}
