"""Methods and properties that ask first: they stand in each subclass of Tensor, and in Tensor
itself while a mode of functions is on. So plain tensors have their own, which look for nothing.

Of a class, such a method is the one that it asks for: `Tensor.item` is what `__torch_function__` is
told, whether it asks or not.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

from .errors import InvalidType, Unsupported
from .mode import MODE, mode_with
from .overrides import (
    ABSENT,
    asks,
    disabled,
    following,
    inside,
    is_unasked,
    mode_closed,
    mode_opened,
    overridden,
    state_of,
)

__all__ = [
    "AskingMethod", "AskingProperty", "assert_no_dispatch", "enter", "handle_torch_function",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "leave_mode",
    "prepare",
]  # fmt: skip


class AskingMethod:
    """Of a tensor, a method that asks what `function` gives; of a class, `function`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

        @functools.wraps(function)
        def asking(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            said = overridden(function, (tensor, *args), kwargs)
            return function(tensor, *args, **kwargs) if said is ABSENT else said

        self.asking = asking

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self.function if tensor is None else MethodType(self.asking, tensor)


class AskingProperty:
    """Of a tensor, what `found`, a property of it, gives, and asks; of a class, `found`. What is
    told of are `found.__get__`, `found.__set__` and `found.__delete__`.
    """

    def __init__(self, found: Any) -> None:
        self.found = found

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        found = self.found
        if tensor is None:
            return found.__get__(None, owner)
        said = overridden(found.__get__, (tensor,), {})
        return found.__get__(tensor) if said is ABSENT else said

    def __set__(self, tensor: Any, value: Any) -> None:
        if overridden(self.found.__set__, (tensor, value), {}) is ABSENT:
            self.found.__set__(tensor, value)

    def __delete__(self, tensor: Any) -> None:
        if overridden(self.found.__delete__, (tensor,), {}) is ABSENT:
            self.found.__delete__(tensor)


_tensor: Any = None
_own: dict[str, Any] = {}  # by name, what Tensor, or its base, has
_asking: dict[str, Any] = {}  # what asks instead


# What gives Tensor and, by name, all of it that does not ask by itself (adjoint/tensor.py has it).
Silent = Callable[[], tuple[type, dict[str, Any]]]


def _find_out(silent: Silent) -> None:
    """What asks, when all methods are there."""
    global _tensor
    if _tensor is not None:
        return
    _tensor, own = silent()
    _own.update(own)
    for name, value in own.items():
        asking = getattr(value, "asking", None)
        if asking is None:
            is_property = hasattr(type(value), "__set__")
            asking = AskingProperty(value) if is_property else AskingMethod(value)
        _asking[name] = asking


def assert_no_dispatch(kind: type) -> None:
    """Refuse tensors of a class with `__torch_dispatch__`, which packages may well define."""
    dispatch = getattr(kind, "__torch_dispatch__", None)
    if dispatch is not None and dispatch is not disabled:
        raise Unsupported(
            f"{kind.__name__}: __torch_dispatch__ is not supported, there is no dispatcher of "
            "PyTorch's operators below the functions; define __torch_function__, which sees the "
            "functions themselves"
        )


def prepare(kind: type, silent: Silent) -> None:
    """Let a new subclass of Tensor ask: its methods and properties that are Tensor's do."""
    if not asks(kind):
        return
    _find_out(silent)
    following()
    for name, asking in _asking.items():
        found = inspect.getattr_static(kind, name)
        if found is _own[name] or found is asking:
            setattr(kind, name, asking)


# ---- asking by hand -----------------------------------------------------------------------------


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of them, or a mode of functions, says itself what functions do.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.has_torch_function

    >>> ad.overrides.has_torch_function((ad.ones(1), 3))
    False
    """
    if inside():
        return True
    return any(asks(type(each)) for each in relevant_args) and not is_unasked()


def has_torch_function_unary(relevant_arg: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((relevant_arg,))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """`has_torch_function` of several."""
    return has_torch_function(relevant_args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What modes of functions, or the first of the arguments that has a say, make of a call.

    Errors: InvalidType where none has, or all give NotImplemented.
    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.handle_torch_function

    >>> class Named:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return func.__name__
    >>> def twice(x):
    ...     return ad.overrides.handle_torch_function(twice, (x,), x)
    >>> twice(Named())
    'twice'
    """
    said = overridden(public_api, args, kwargs, tuple(relevant_args))
    if said is ABSENT:
        name = getattr(public_api, "__name__", public_api)
        raise InvalidType(f"{name}: no argument has __torch_function__; ask has_torch_function")
    return said


# ---- modes of functions --------------------------------------------------------------------------

_lock = threading.Lock()


def enter(mode: Any, silent: Silent) -> None:
    """Let `mode.__torch_function__` see the calls of this thread from now on."""
    _find_out(silent)
    with _lock:
        if mode_opened():
            for name, asking in _asking.items():
                setattr(_tensor, name, asking)
    here = MODE.get()
    unasked, modes = here.overrides or (0, ())
    MODE.set(mode_with(here, overrides=(unasked, (*modes, mode))))


def leave_mode() -> None:
    """Undo the last `enter`."""
    here = MODE.get()
    unasked, modes = here.overrides
    MODE.set(mode_with(here, overrides=state_of(unasked, modes[:-1])))
    with _lock:
        if mode_closed():
            base = _tensor.__base__
            for name, value in _own.items():
                if vars(base).get(name) is value:
                    delattr(_tensor, name)
                else:
                    setattr(_tensor, name, value)
