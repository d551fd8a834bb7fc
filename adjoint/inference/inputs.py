"""What a program is called with: the tensors in a call, and the call again with others."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.device import device as Place  # noqa: N812 - as with dtype
from ..core.dtype import dtype as DType  # noqa: N812 - `dtype` is an argument here
from ..core.errors import InvalidArgument, InvalidType
from ..core.tensor_base import TensorBase
from ..nn import Module
from ..ops.create.creation import tensor
from ..program.capture import CONSTANTS, Rebuild, structure

VALUES = (*CONSTANTS, bytes, slice, range, type, enum.Enum, DType, Place)  # told apart by repr


class Form:
    """A call without its tensors: what plans are kept by, and how the function is called."""

    def __init__(self, key: Any, rebuild: Rebuild) -> None:
        self.key = key
        self._rebuild = rebuild

    def call(self, function: Callable[..., Any], inputs: list[Any]) -> Any:
        """What the function gives where these are the inputs."""
        args, kwargs = self._rebuild(iter(inputs))
        return function(*args, **kwargs)


class Inputs:
    """How calls of one function are read. The first call says of which dtype numbers are that come
    without one.
    """

    def __init__(self, function: Callable[..., Any], title: str) -> None:
        self.title = title
        self.names = list(getattr(function, "input_names", None) or ())
        try:
            called = function.forward if isinstance(function, Module) else function
            self.signature: Any = inspect.signature(called)
        except (TypeError, ValueError):
            self.signature = None
        self.dtypes: dict[Any, str] | None = None  # of the first call's tensors, by their places

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Form, list[Any]]:
        """The form of a call, and its tensors and arrays in order.

        Errors: InvalidArgument for a call that the function does not take; InvalidType for what is
        no input.
        """
        inputs: list[tuple[Any, Any]] = []
        key, rebuild = self._read(self._bound(args, kwargs), (), inputs)
        if self.dtypes is None:
            self.dtypes = {place: x.dtype.name for place, x in inputs}
        return Form(key, rebuild), [x for _, x in inputs]

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments as one call has them, however they were given."""
        if self.names and set(kwargs) == set(self.names[len(args) :]):
            return (*args, *(kwargs[name] for name in self.names[len(args) :])), {}
        if self.signature is None:
            return args, kwargs
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(f"{self.title}: {error}; it takes {self.signature}") from None
        return bound.args, bound.kwargs

    def _read(self, x: Any, place: tuple[Any, ...], inputs: list[Any]) -> tuple[Any, Rebuild]:
        """What tells a value from others of another form, and what makes it of other tensors."""
        dtype = (self.dtypes or {}).get(place)
        if dtype is not None and _is_numbers(x):
            x = tensor(x, dtype=dtype)
        elif not isinstance(x, TensorBase) and hasattr(x, "__array__"):
            x = np.asarray(x)
        if isinstance(x, (TensorBase, np.ndarray)):
            inputs.append((place, x))
            return "tensor", next
        if isinstance(x, VALUES):
            return (type(x), repr(x)), lambda values: x
        parts = structure(x)
        if parts is None:
            raise InvalidType(
                f"{self.title}: an input has a {type(x).__name__}; give tensors, arrays, numbers, "
                "or tuples, lists, dicts and dataclasses of them"
            )
        names, children, make = parts
        read = [self._read(c, (*place, n), inputs) for n, c in zip(names, children, strict=True)]
        key = (type(x), *((n, k) for n, (k, _) in zip(names, read, strict=True)))
        return key, lambda values: make([rebuild(values) for _, rebuild in read])


def _is_numbers(x: Any) -> bool:
    """Whether it is a number, or a list of numbers, of any depth."""
    if isinstance(x, (list, tuple)):
        return type(x) in (list, tuple) and all(map(_is_numbers, x))
    return isinstance(x, (bool, int, float, complex))
