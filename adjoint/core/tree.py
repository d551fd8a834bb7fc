"""Trees: tuples, lists, dicts and dataclasses within one another, and what stands in them.

A `TreeSpec` is a tree without its leaves, from which others of the same form are built. What a
function takes or gives is taken apart and put together here alone; what counts as a leaf is said by
who asks.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Protocol, cast

from .errors import InvalidType
from .spec import Size
from .tensor_base import TensorBase

if TYPE_CHECKING:

    class _Shared(Protocol):
        """Values of a tree that has shared parts."""

        objects: dict[int, object]  # those that were built already, by the id of their spec


CONSTANTS = (type(None), bool, int, float, complex, str, Size)


class TreeSpec:
    """A part of a tree without its leaves."""

    __slots__ = ("shared",)

    shared: bool  # whether it stands in the tree twice, as one object

    def __init__(self) -> None:
        self.shared = False

    def unflatten(self, leaves: Iterable[object]) -> Any:
        """Build a tree of this form with these leaves."""
        return self.build(iter(leaves))

    def build(self, values: object) -> object:
        """Build the part from `values`, an iterator over leaves or what other leaves understand;
        the object that was built before where the part is shared.
        """
        if not self.shared:
            return self.new(values)
        objects = cast("_Shared", values).objects
        if id(self) not in objects:
            objects[id(self)] = self.new(values)
        return objects[id(self)]

    def new(self, values: object) -> object:
        """Build the part."""
        raise NotImplementedError

    def key(self) -> Hashable:
        """A key that is equal for trees of the same form and constants."""
        raise NotImplementedError

    def is_like(self, other: TreeSpec, count: int) -> bool:
        """Whether two specs build equal trees around `count` leaves."""
        return bool(self.unflatten(range(count)) == other.unflatten(range(count)))


class LeafSpec(TreeSpec):
    """The next leaf."""

    __slots__ = ()

    def new(self, values: object) -> object:
        """Return the next of the leaves."""
        return next(cast("Iterator[object]", values))

    def key(self) -> Hashable:
        """A word that stands for any leaf."""
        return "leaf"


class ConstantSpec(TreeSpec):
    """A value that is the same in each tree of the form."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.shared = False
        self.value = value

    def new(self, values: object) -> object:
        """Return the value."""
        return self.value

    def key(self) -> Hashable:
        """The type and how it is written: 0.0 and -0.0 are equal, NaN is not."""
        return type(self.value), repr(self.value)


class ContainerSpec(TreeSpec):
    """A tuple, list, dict or dataclass, with the specs of what it holds."""

    __slots__ = ("children", "kind", "make", "names")

    def __init__(
        self, kind: type, names: list[Any], children: list[TreeSpec], make: Callable[..., Any]
    ) -> None:
        """`make` builds such a container from a list of its children."""
        self.shared = False
        self.kind, self.names, self.children, self.make = kind, names, children, make

    def new(self, values: object) -> object:
        """Build a container of the same kind."""
        if self.kind is dict:  # without `make`, which takes half a microsecond
            made: dict[object, object] = {}
            for n in range(len(self.names)):
                made[self.names[n]] = self.children[n].build(values)
            return made
        items: list[object] = []
        for child in self.children:
            items.append(child.build(values))
        return items if self.make is list else self.make(items)

    def key(self) -> Hashable:
        """The kind, with names and keys of what it holds."""
        children = [child.key() for child in self.children]
        return (self.kind, *zip(self.names, children, strict=True))


LEAF = LeafSpec()


def children_of(x: object) -> tuple[list[Any], list[Any]] | None:
    """Names and values of what a tuple, list, dict or dataclass holds; None for anything else, as a
    size.
    """
    kind = type(x)
    if isinstance(x, dict) and kind is dict:
        return list(x), list(x.values())
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = [each.name for each in dataclasses.fields(x)]
        return names, [getattr(x, name) for name in names]
    if isinstance(x, MutableMapping):
        return list(x), list(x.values())
    if isinstance(x, (tuple, list)) and kind is not Size:
        return list(range(len(x))), list(x)
    return None


def container(x: object, child: Callable[[Any, Any], TreeSpec]) -> ContainerSpec | None:
    """The spec of a tuple, list, dict or dataclass; `child` gives that of each value, by its name.
    None for anything else. No leaf of `x` is kept.
    """
    parts = children_of(x)
    if parts is None:
        return None
    names, values = parts
    specs = [child(value, name) for value, name in zip(values, names, strict=True)]
    return ContainerSpec(type(x), names, specs, maker_of(x, names))


def maker_of(x: object, names: list[Any]) -> Callable[[list[Any]], Any]:
    """A function that makes a container like `x` of other values for these names."""
    kind: Any = type(x)
    if kind is dict:
        return lambda values: dict(zip(names, values, strict=True))
    if dataclasses.is_dataclass(x):
        blank = _with_fields(copy.copy(x), names, [None] * len(names))
        return lambda values: _with_fields(copy.copy(blank), names, values)
    if isinstance(x, MutableMapping):
        empty = copy.copy(x)
        empty.update(dict.fromkeys(names))
        return lambda values: _with_items(empty, names, values)
    make: Callable[[list[Any]], Any] = kind
    return (lambda values: kind(*values)) if hasattr(kind, "_fields") else make


def _with_fields(x: object, names: list[Any], values: list[Any]) -> object:
    """Set the fields of a dataclass; if it is also a mapping, its items of these names too."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(x, name, value)
        if isinstance(x, dict) and name in x:
            dict.__setitem__(x, name, value)
    return x


def _with_items(x: MutableMapping[Any, Any], keys: list[Any], values: list[Any]) -> object:
    """A copy of a mapping with other values."""
    made = copy.copy(x)
    made.update(zip(keys, values, strict=True))
    return made


def flatten(
    tree: object, leaf: Callable[[Any, tuple[Any, ...]], TreeSpec | None], refused: str,
    path: tuple[Any, ...] = (),
) -> TreeSpec:  # fmt: skip
    """The spec of a tree. `leaf` is told of each part, with the names that lead to it, and gives
    its spec, or None to go into it.

    Errors: InvalidType where that is no container; `refused` is how the message begins.
    """
    spec = leaf(tree, path)
    if spec is None:
        spec = container(tree, lambda x, name: flatten(x, leaf, refused, (*path, name)))
    if spec is None:
        raise InvalidType(
            f"{refused} a {type(tree).__name__}; give tensors, or tuples, lists, dicts and "
            "dataclasses of them"
        )
    return spec


def parts_of(tree: object, refused: str, constants: bool = False) -> tuple[list[Any], TreeSpec]:
    """The tensors in `tree`, a function's result or argument, and its spec. With `constants`,
    numbers and strings may stand beside tensors, and stay as they are.

    Errors: InvalidType for other things than tensors in tuples, lists, dicts and dataclasses;
    `refused` is how the message begins.
    """
    tensors: list[Any] = []

    def leaf(x: object, path: tuple[Any, ...]) -> TreeSpec | None:
        if isinstance(x, TensorBase):
            tensors.append(x)
            return LEAF
        is_constant = x is None or (constants and bool(path) and isinstance(x, CONSTANTS))
        return ConstantSpec(x) if is_constant else None

    return tensors, flatten(tree, leaf, refused)


def parts_in(tree: object) -> Iterator[Any]:
    """All that a tree holds, containers and leaves, in order."""
    parts = children_of(tree)
    for x in parts[1] if parts is not None else ():
        yield x
        yield from parts_in(x)


def leaves(tree: object) -> list[Any]:
    """The leaves of a tree, in order: all that is no container."""
    return [x for x in (tree, *parts_in(tree)) if children_of(x) is None]


def mapped(tree: object, function: Callable[[Any], object]) -> object:
    """A tree of the same form with `function` of each leaf."""
    parts = children_of(tree)
    if parts is None:
        return function(tree)
    names, values = parts
    return maker_of(tree, names)([mapped(x, function) for x in values])


def named_arguments(
    args: Sequence[object], kwargs: Mapping[str, object],
    is_leaf: Callable[[object], bool] = lambda x: False,
) -> Iterator[tuple[str, Any]]:  # fmt: skip
    """The leaves of a call's arguments, named as by `named_leaves`."""
    for n, x in enumerate(args):
        yield from named_leaves(x, f"argument {n}", is_leaf)
    for name, x in kwargs.items():
        yield from named_leaves(x, name, is_leaf)


def named_leaves(
    tree: object, name: str, is_leaf: Callable[[object], bool] = lambda x: False
) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree with what leads to each, as one would write it after `name`."""
    parts = None if is_leaf(tree) else children_of(tree)
    if parts is None:
        yield name, tree
        return
    has_fields = dataclasses.is_dataclass(tree)
    for each, x in zip(*parts, strict=True):
        inner = f"{name}.{each}" if has_fields else f"{name}[{each!r}]"
        yield from named_leaves(x, inner, is_leaf)
