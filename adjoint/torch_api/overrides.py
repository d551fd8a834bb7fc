"""`__torch_function__` under PyTorch's names: modes, and functions for classes that override public
functions.

Source: https://docs.pytorch.org/docs/stable/torch.overrides.html

>>> class Counting(ad.overrides.TorchFunctionMode):
...     calls = 0
...     def __torch_function__(self, func, types, args=(), kwargs=None):
...         self.calls += 1
...         return func(*args, **(kwargs or {}))
>>> with Counting() as counted:
...     y = ad.ones(2) + 1
>>> counted.calls
2
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

from ..core.argument_repr import argument_repr
from ..core.overrides import (
    ABSENT,
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    inside,
    overridden,
)
from ..core.tensor_base import TensorBase
from ..core.torch_function import (
    enter,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    leave_mode,
)
from ..namespaces import fft, linalg, special
from ..nn import functional
from ..runtime.public import FUNCTIONS
from ..tensor import NOT_WRAPPED, Tensor, silent

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass",
    "TorchFunctionMode", "enable_reentrant_dispatch", "get_default_nowrap_functions",
    "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
    "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property",
    "redispatch_function", "resolve_name", "wrap_torch_function",
]  # fmt: skip


# ---- modes ---------------------------------------------------------------------------------------


class TorchFunctionMode:
    """Base of function modes: within `with`, `__torch_function__` of the mode receives every call
    of a public function, method, operator or property in this thread, and defines its result.

    Calls that `__torch_function__` makes itself go to the mode outside of it, or to subclasses of
    Tensor among the arguments. NotImplemented leaves the call to those.

    Errors: InvalidType where all give NotImplemented.
    Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-all-torch-api-with-modes
    """

    __repr__ = argument_repr

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__}: define __torch_function__(self, func, types, args, kwargs)"
        )

    def __enter__(self) -> Any:
        enter(self, silent)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leave_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """PyTorch's old name of the constructor."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that leaves every call unchanged."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    """The innermost active mode of this thread; None where there is none."""
    return inside()[-1] if inside() else None


def _get_current_function_mode_stack() -> list[Any]:
    """All active modes of this thread, the innermost last."""
    return list(inside())


def _len_torch_function_stack() -> int:
    return len(inside())


def _is_torch_function_mode_enabled() -> bool:
    return bool(inside())


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Does nothing. In PyTorch, `__torch_dispatch__` may call its dispatcher again inside; there is
    none here, and functions that `__torch_function__` calls are overridden in any case.

    >>> with ad.overrides.enable_reentrant_dispatch():
    ...     ad.ones(1)
    tensor([1.])
    """
    yield


# ---- asking --------------------------------------------------------------------------------------


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Declare a function that may be overridden by the arguments that `dispatcher`, called with the
    same arguments, returns.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.wrap_torch_function

    >>> @ad.overrides.wrap_torch_function(lambda x: (x,))
    ... def twice(x):
    ...     return x + x
    >>> twice(ad.ones(1))
    tensor([2.])
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def asking(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            said = overridden(asking, args, kwargs, relevant)
            return function(*args, **kwargs) if said is ABSENT else said

        return asking

    return declare


def redispatch_function(func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
    """Make the call with `__torch_function__` of subclasses disabled."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor, or has `__torch_function__`.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.is_tensor_like

    >>> ad.overrides.is_tensor_like(ad.ones(1)), ad.overrides.is_tensor_like([1.0])
    (True, False)
    """
    return isinstance(inp, TensorBase) or hasattr(inp, "__torch_function__")


# ---- what may be overridden ----------------------------------------------------------------------


def get_default_nowrap_functions() -> set[Any]:
    """The functions whose results `Tensor.__torch_function__` returns unchanged, not as the
    subclass.

    >>> ad.Tensor.grad.__get__ in ad.overrides.get_default_nowrap_functions()
    True
    """
    return set(NOT_WRAPPED)


_IGNORED = (
    "as_tensor", "from_dlpack", "from_file", "from_numpy", "frombuffer", "get_default_device",
    "get_default_dtype", "is_tensor", "manual_seed", "set_default_dtype", "tensor",
)  # fmt: skip


def get_ignored_functions() -> set[Any]:
    """Public functions that arguments cannot override: those that make tensors from other data, and
    settings. Function modes see those that make tensors.

    >>> ad.tensor in ad.overrides.get_ignored_functions()
    True
    """
    return {getattr(_top(), name) for name in _IGNORED if hasattr(_top(), name)}


def _top() -> Any:
    return sys.modules[__name__.rpartition(".")[0]]


def _spaces() -> dict[str, Any]:
    return {
        "": _top(), "nn.functional": functional, "linalg": linalg, "fft": fft, "special": special,
    }  # fmt: skip


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that can be overridden, by their owner: a module, or Tensor.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.get_overridable_functions

    >>> ad.add in ad.overrides.get_overridable_functions()[ad]
    True
    """
    by_owner: dict[Any, list[Any]] = {place: [] for place in _spaces().values()}
    by_owner[Tensor] = []
    seen: set[int] = set()
    for owner, _, function in _overridable():
        if id(function) not in seen:
            seen.add(id(function))
            by_owner[owner].append(function)
    return by_owner


def _overridable() -> Iterator[tuple[Any, str, Any]]:
    """Owner, name and function of everything that can be overridden."""
    ignored = get_ignored_functions()
    public = {*FUNCTIONS.values()}
    for owner in _spaces().values():
        names = getattr(owner, "__all__", None) or [each for each in dir(owner) if each[0] != "_"]
        for name in names:
            member = vars(owner).get(name)
            if not callable(member) or isinstance(member, (type, ModuleType)) or member in ignored:
                continue
            if name.startswith(("has_torch_function", "handle_torch_function")):
                continue
            if owner is not _top() or member in public or FUNCTIONS.get(name) is not None:
                yield owner, name, member
    for name, value in {**vars(TensorBase), **vars(Tensor)}.items():
        if isinstance(value, (staticmethod, classmethod)) or name in _OWN_STATE:
            continue
        member = getattr(Tensor, name, None)
        if callable(member) and not isinstance(member, type):
            yield Tensor, name, member
        elif hasattr(member, "__set__"):
            yield Tensor, name, member.__get__  # type: ignore[union-attr]


_OWN_STATE = frozenset((
    "__class__", "__dict__", "__doc__", "__hash__", "__init__", "__init_subclass__", "__new__",
    "__reduce_cython__", "__setstate_cython__", "__torch_function__", "__weakref__", "_changes",
    "_data", "_leaf", "_node", "_read", "_show", "_version_count", "_view", "as_subclass", "spec",
))  # fmt: skip


def get_testing_overrides() -> dict[Any, Callable[..., Any]]:
    """A stand-in for each function that can be overridden, with the same arguments and the result
    -1.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.get_testing_overrides

    >>> import inspect
    >>> inspect.signature(ad.overrides.get_testing_overrides()[ad.dot])
    <Signature (input, tensor)>
    """
    return {function: _dummy(function) for _, _, function in _overridable()}


def _dummy(function: Any) -> Callable[..., Any]:
    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    plain = inspect.Parameter.empty
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C: a property's `__get__`
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter("self", kind)])
    parameters = [each.replace(annotation=plain) for each in signature.parameters.values()]
    dummy.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=plain
    )
    return dummy


def resolve_name(f: Any) -> str | None:
    """The full name of a function that can be overridden; None for others.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.resolve_name

    >>> ad.overrides.resolve_name(ad.nn.functional.pad)
    'torch.nn.functional.pad'
    """
    if isinstance(f, str):
        return f
    places = {id(place): f"torch.{name}".rstrip(".") for name, place in _spaces().items()}
    places[id(Tensor)] = "torch.Tensor"
    for owner, name, function in _overridable():
        if function is f or function == f:
            get = ".__get__" if getattr(function, "__name__", "") == "__get__" else ""
            return f"{places[id(owner)]}.{name}{get}"
    return None


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a method of Tensor, or reads a property of it.

    Source: https://docs.pytorch.org/docs/stable/torch.overrides.html#torch.overrides.is_tensor_method_or_property

    >>> ad.overrides.is_tensor_method_or_property(ad.Tensor.shape.__get__)
    True
    """
    if getattr(func, "__name__", "") == "__get__":
        return True
    return any(function is func for owner, _, function in _overridable() if owner is Tensor)
