"""Trees of what control flow takes and gives: what they are made of, and how they are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...core.errors import InvalidArgument, InvalidType, ShapeError
from ...core.tensor_base import TensorBase
from ...core.tree import TreeSpec, children_of, maker_of
from ...ops.create.creation import tensor
from ...ops.shape.movement import movedim

Tree: TypeAlias = Any  # a tensor, or tuples, lists and dicts of tensors
Tensors: TypeAlias = Sequence[Any]

NUMBERS = (bool, int, float, complex)
_KINDS = ("b", "iu", "fV", "c")  # of dtypes; a number of one is of all later ones, too


def as_tensors(tree: object, before: object = None) -> Tree:
    """A tree in which Python numbers are tensors: of the dtype of what stands in their place in the
    tree `before`, if that takes them.
    """
    if isinstance(tree, NUMBERS):
        own = NUMBERS.index(type(tree)) if type(tree) in NUMBERS else None
        if isinstance(before, TensorBase) and own is not None:
            kind = next(k for k, each in enumerate(_KINDS) if before._data.dtype.kind in each)
            if own <= kind:
                return tensor(tree, dtype=before.dtype)
        return tensor(tree)
    parts = children_of(tree)
    if parts is None:
        return tree
    names, children = parts
    others = children_of(before)
    olds = others[1] if others is not None and others[0] == names else [None] * len(children)
    made = [as_tensors(x, old) for x, old in zip(children, olds, strict=True)]
    changed = any(x is not y for x, y in zip(made, children, strict=True))
    return maker_of(tree, names)(made) if changed else tree


def along_first(name: str, xs: list[Any], dim: int) -> tuple[int, list[Any], Any]:
    """The dimension that `name` goes along, not negative, `xs` with it in front, and its size.

    Errors: ShapeError where one of them lacks it, or sizes differ.
    """
    if any(not -x.ndim <= dim < x.ndim for x in xs):
        raise ShapeError(
            f"{name}: dim={dim}, but xs have shapes {[tuple(x.shape) for x in xs]}; each of them "
            "has that dimension"
        )
    dim %= xs[0].ndim
    rows = [movedim(x, dim, 0) for x in xs] if dim else xs
    count = rows[0].shape[0]
    if any(x.shape[0] != count for x in rows):
        raise ShapeError(
            f"{name}: xs have {[x.shape[0] for x in rows]} slices along dim {dim}; give as many of "
            "each"
        )
    return dim, rows, count


def assert_callable(name: str, *functions: Any) -> None:
    """Refuse what is no function."""
    for function in functions:
        if not callable(function):
            raise InvalidType(f"{name}: expected a function, got a {type(function).__name__}")


def assert_one(what: str, x: object) -> None:
    """Refuse a condition that is not one boolean or element."""
    if isinstance(x, TensorBase):
        if x._data.size != 1:
            raise InvalidArgument(
                f"{what} has shape {tuple(x.shape)}, where a bool or a tensor of one element "
                "decides; use all() or any()"
            )
    elif not isinstance(x, (bool, int, float)):
        raise InvalidType(f"{what} is a {type(x).__name__}; a bool or a tensor of one element is")


def assert_kept(
    name: str, before: Tensors, form: TreeSpec, after: Tensors, other: TreeSpec
) -> None:
    """Refuse a loop body that changes the structure, shapes or dtypes of carried values."""
    same = len(before) == len(after) and form.is_like(other, len(before))
    if not same or any(x.spec != y.spec for x, y in zip(before, after, strict=False)):
        raise ShapeError(
            f"{name} is given {shown(before, form)} and gives {shown(after, other)}; what is "
            "carried keeps its form, shapes and dtypes"
        )


class _Text(str):
    __slots__ = ()
    __repr__ = str.__str__


def shown(tensors: Tensors, form: TreeSpec) -> str:
    """Describe a result's structure, with the shapes and dtypes of its tensors."""
    return str(form.unflatten([_Text(f"{tuple(x.shape)} {x.dtype}") for x in tensors]))
