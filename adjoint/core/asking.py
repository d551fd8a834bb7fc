"""Methods and properties that ask first: they stand in each subclass of Tensor, and in Tensor itself
while a mode of functions is on, so that plain tensors have their own, which look for nothing.

Of a class, such a method is the one that it asks for: `Tensor.item` is what `__torch_function__` is
told, whether it asks or not.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import MethodType
from typing import Any

from .errors import Unsupported
from .mode import MODE, mode_with
from .overrides import (
    ABSENT,
    FOLLOWED,
    MODES,
    asks,
    disabled,
    following,
    overridden,
    state_of,
)

__all__ = ["AskingMethod", "AskingProperty", "connect_methods", "enter", "leave_mode", "prepare"]


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
    """Of a tensor, what `found`, a property of it, gives, which asks; of a class, `found`. It is told
    of as `found.__get__`, `found.__set__` and `found.__delete__`.
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


_methods: Callable[[], tuple[type, dict[str, Any]]]
_tensor: Any = None
_own: dict[str, Any] = {}  # by name, what Tensor, or its base, has
_asking: dict[str, Any] = {}  # what asks instead


def connect_methods(methods: Callable[[], tuple[type, dict[str, Any]]]) -> None:
    """Set what gives Tensor and, by name, all that does not ask by itself (see adjoint/tensor.py)."""
    global _methods
    _methods = methods


def _known() -> None:
    """Find out, when all methods are there, what asks."""
    global _tensor
    if _tensor is None:
        _tensor, _own_now = _methods()
        _own.update(_own_now)
        for name, value in _own_now.items():
            asking = getattr(value, "asking", None)
            if asking is None:
                kind = AskingProperty if hasattr(type(value), "__set__") else AskingMethod
                asking = kind(value)
            _asking[name] = asking


def prepare(kind: type) -> None:
    """Let a new subclass of Tensor ask: its methods and properties that are Tensor's do.

    Errors: Unsupported for a class with `__torch_dispatch__`.
    """
    dispatch = getattr(kind, "__torch_dispatch__", None)
    if dispatch is not None and dispatch is not disabled:
        raise Unsupported(
            f"{kind.__name__}: __torch_dispatch__ is not supported, there is no dispatcher of "
            "PyTorch's operators below the functions; define __torch_function__, which sees the "
            "functions themselves"
        )
    if not asks(kind):
        return
    _known()
    following()
    for name, asking in _asking.items():
        found = inspect.getattr_static(kind, name)
        if found is _own[name] or found is asking:
            setattr(kind, name, asking)


# ---- modes of functions --------------------------------------------------------------------------

_lock = threading.Lock()


def enter(mode: Any) -> None:
    """Let `mode.__torch_function__` see the calls of this thread from now on."""
    _known()
    with _lock:
        if MODES not in FOLLOWED:
            for name, asking in _asking.items():
                setattr(_tensor, name, asking)
        FOLLOWED.append(MODES)
    here = MODE.get()
    unasked, modes = here.overrides or (False, ())
    MODE.set(mode_with(here, overrides=(unasked, (*modes, mode))))


def leave_mode() -> None:
    """Undo the last `enter`."""
    here = MODE.get()
    unasked, modes = here.overrides
    MODE.set(mode_with(here, overrides=state_of(unasked, modes[:-1])))
    with _lock:
        FOLLOWED.remove(MODES)
        if MODES not in FOLLOWED:
            base = _tensor.__base__
            for name, value in _own.items():
                if vars(base).get(name) is value:
                    delattr(_tensor, name)
                else:
                    setattr(_tensor, name, value)
