"""What derivatives share: which arguments are meant, and what a function returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import AutogradError, InvalidArgument
from ...core.tensor_base import TensorBase
from ..utils._pytree import TreeSpec, tree_flatten

__all__ = ["assert_real", "outputs_of", "places_of", "replaced", "with_aux"]


def places_of(name: str, argnums: object, count: int) -> tuple[int, ...]:
    """The places of the arguments that are meant."""
    given = (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(given, tuple):
        raise InvalidArgument(
            f"{name}: argnums must be int or Tuple[int, ...], got: {type(argnums)}"
        )
    if not given:
        raise InvalidArgument(f"{name}: argnums must be non-empty, got ()")
    found = []
    for i in given:
        if not isinstance(i, int):
            raise InvalidArgument(f"{name}: argnum must be int, got: {type(i)}")
        if not -count <= i < count:
            raise InvalidArgument(f"{name}: Got argnum={i}, but only {count} positional inputs")
        found.append(i % count)
    if len(set(found)) != len(found):
        raise InvalidArgument(f"{name}: argnums elements must be unique, got {argnums!r}")
    return tuple(found)


def assert_real(name: str, what: str, tensors: object) -> None:
    """Refuse complex tensors, whose Jacobian is no one number for each pair of elements."""
    for i, x in enumerate(tree_flatten(tensors)[0]):
        if isinstance(x, TensorBase) and x._data.dtype.kind == "c":
            raise AutogradError(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened "
                f"{what[:-1]} idx: {i}; take the derivative of view_as_real of it, or use vjp, jvp"
            )


def replaced(args: Sequence[Any], places: tuple[int, ...], xs: Any) -> list[Any]:
    """`args` with others at these places."""
    found = list(args)
    for i, x in zip(places, xs, strict=True):
        found[i] = x
    return found


def with_aux(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """A function's output and its auxiliary output; None without `has_aux`."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise InvalidArgument(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    for leaf in tree_flatten(result[1])[0]:
        if not isinstance(leaf, TensorBase):
            raise InvalidArgument(
                f"{name}: Expected tensors, got unsupported type {type(leaf)} in aux; let a "
                "closure keep what is no tensor"
            )
    return result


def outputs_of(name: str, func: object, result: object) -> tuple[list[Any], TreeSpec]:
    """The tensors that a function returned, and their form."""
    ys, form = tree_flatten(result)
    for y in ys:
        if not isinstance(y, TensorBase):
            raise InvalidArgument(
                f"{name}(f, *primals): Expected f to be a function that has non-empty output and "
                f"only returns Tensors, got a {type(y).__name__}"
            )
    if not ys:
        raise InvalidArgument(
            f"{name}(f, *primals): Expected f to be a function that has non-empty output, got "
            "output = (); return a tensor"
        )
    return ys, form
