"""Descriptors that consult `__torch_function__` before a method or property of Tensor runs. They
are installed in each subclass of Tensor, and in Tensor itself while a function mode is active, so
the methods of plain tensors check nothing. Looked up on a class, a descriptor gives the function
that it wraps: `Tensor.item` is what `__torch_function__` receives, whether the descriptor is
installed or not.

Of a class, such a method is the one that it asks for: `Tensor.item` is what `__torch_function__` is
told, whether it asks or not.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

from . import fork_safety
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
    "OverridableMethod", "OverridableProperty", "assert_no_dispatch", "enter",
    "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "leave_mode", "prepare",
]  # fmt: skip


class OverridableMethod:
    """A method that consults `__torch_function__` first; on the class, `function` itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

        @functools.wraps(function)
        def asking(tensor: object, *args: Any, **kwargs: Any) -> Any:
            said = overridden(function, (tensor, *args), kwargs)
            return function(tensor, *args, **kwargs) if said is ABSENT else said

        self.asking = asking

    def __get__(self, tensor: object, owner: type | None = None) -> Callable[..., Any]:
        return self.function if tensor is None else MethodType(self.asking, tensor)


class OverridableProperty:
    """The property `found`, which consults `__torch_function__` first; looked up on the class, the
    property itself. `__torch_function__` receives `found.__get__`, `found.__set__` or
    `found.__delete__`.
    """

    def __init__(self, wrapped: Any) -> None:
        self.found = wrapped

    def __get__(self, tensor: object, owner: type | None = None) -> Any:
        wrapped = self.found
        if tensor is None:
            return wrapped.__get__(None, owner)
        said = overridden(wrapped.__get__, (tensor,), {})
        return wrapped.__get__(tensor) if said is ABSENT else said

    def __set__(self, tensor: object, value: object) -> None:
        if overridden(self.found.__set__, (tensor, value), {}) is ABSENT:
            self.found.__set__(tensor, value)

    def __delete__(self, tensor: object) -> None:
        if overridden(self.found.__delete__, (tensor,), {}) is ABSENT:
            self.found.__delete__(tensor)


_tensor: Any = None
_own: dict[str, Any] = {}  # name -> the member of Tensor, or of its base
_asking: dict[str, Any] = {}  # name -> the descriptor that replaces it


# Returns Tensor and, by name, those of its members that do not consult `__torch_function__`
# themselves (defined in adjoint/tensor.py).
Silent = Callable[[], tuple[type, dict[str, Any]]]


def _find_out(silent: Silent) -> None:
    """Make the descriptors of all of Tensor's methods and properties, once these are complete."""
    global _tensor
    if _tensor is not None:
        return
    _tensor, own = silent()
    _own.update(own)
    for name, value in own.items():
        asking = getattr(value, "asking", None)
        if asking is None:
            is_property = hasattr(type(value), "__set__")
            asking = OverridableProperty(value) if is_property else OverridableMethod(value)
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
    """Install the descriptors in a new subclass of Tensor, for all that it inherits from Tensor."""
    if not asks(kind):
        return
    _find_out(silent)
    following()
    for name, asking in _asking.items():
        member = inspect.getattr_static(kind, name)
        if member is _own[name] or member is asking:
            setattr(kind, name, asking)


# ---- asking by hand -----------------------------------------------------------------------------


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments, or an active function mode, overrides functions.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.has_torch_function

    >>> ad.overrides.has_torch_function((ad.ones(1), 3))
    False
    """
    if inside():
        return True
    return any(asks(type(each)) for each in relevant_args) and not is_unasked()


def has_torch_function_unary(relevant_arg: object) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((relevant_arg,))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """`has_torch_function` of several arguments."""
    return has_torch_function(relevant_args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """The result of a call as the active function modes, or the first argument that overrides it,
    define it.

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

_lock = fork_safety.lock()


def enter(mode: object, silent: Silent) -> None:
    """Activate a function mode in this thread: its `__torch_function__` sees all calls."""
    _find_out(silent)
    with _lock:
        if mode_opened():
            for name, asking in _asking.items():
                setattr(_tensor, name, asking)
    here = MODE.get()
    unasked, modes = here.overrides or (0, ())
    MODE.set(mode_with(here, overrides=(unasked, (*modes, mode))))


def leave_mode() -> None:
    """Deactivate the innermost function mode of this thread."""
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
