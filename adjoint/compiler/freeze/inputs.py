"""Reading of a program's call: its tensors, and the structure of arguments around them."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.device import device as Place  # noqa: N812 - as with dtype
from ...core.dtype import dtype as DType  # noqa: N812 - `dtype` is an argument here
from ...core.errors import InvalidArgument
from ...core.tensor_base import TensorBase
from ...core.tree import CONSTANTS, LEAF, ConstantSpec, TreeSpec, flatten
from ...nn import Module
from ...ops.create.creation import tensor

VALUES = (*CONSTANTS, bytes, slice, range, type, enum.Enum, DType, Place)  # told apart by repr


class Inputs:
    """Reads the calls of one function. The first call fixes the dtypes of tensors that later calls
    may give as Python numbers.
    """

    def __init__(self, function: Callable[..., Any], title: str) -> None:
        self.title = title
        self.names = list(getattr(function, "input_names", None) or ())
        try:
            called = function.forward if isinstance(function, Module) else function
            self.signature: Any = inspect.signature(called)
        except (TypeError, ValueError):
            self.signature = None
        self.dtypes: dict[Any, str] | None = None  # dtypes of the first call's tensors, by path

    def read(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[TreeSpec, list[Any]]:
        """Structure of a call, and its tensors and arrays in order.

        Errors: InvalidArgument for a call that the function does not take; InvalidType for an
        unsupported argument.
        """
        inputs: list[tuple[Any, Any]] = []

        def leaf(x: Any, path: tuple[Any, ...]) -> TreeSpec | None:
            dtype = (self.dtypes or {}).get(path)
            if dtype is not None and _is_numbers(x):
                x = tensor(x, dtype=dtype)
            elif not isinstance(x, TensorBase) and hasattr(x, "__array__"):
                x = np.asarray(x)
            if isinstance(x, (TensorBase, np.ndarray)):
                inputs.append((path, x))
                return LEAF
            return ConstantSpec(x) if isinstance(x, VALUES) else None

        form = flatten(self._bound(args, kwargs), leaf, f"{self.title}: an input has")
        if self.dtypes is None:
            self.dtypes = {path: x.dtype.name for path, x in inputs}
        return form, [x for _, x in inputs]

    def _bound(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[Any, Any]:
        """The arguments in one canonical form, given by position or by name."""
        if self.names and set(kwargs) == set(self.names[len(args) :]):
            return (*args, *(kwargs[name] for name in self.names[len(args) :])), {}
        if self.signature is None:
            return args, kwargs
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(f"{self.title}: {error}; it takes {self.signature}") from None
        return bound.args, bound.kwargs


def _is_numbers(x: object) -> bool:
    """Whether an argument is a number, or a nested list of numbers."""
    if isinstance(x, (list, tuple)):
        return type(x) in (list, tuple) and all(map(_is_numbers, x))
    return isinstance(x, (bool, int, float, complex))
