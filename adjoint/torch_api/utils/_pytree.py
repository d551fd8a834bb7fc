"""Nested containers as trees, under the names that packages import from `torch.utils._pytree`.

A leaf is whatever is no registered container; None is a leaf.

>>> from adjoint.utils import _pytree
>>> leaves, spec = _pytree.tree_flatten({"a": (1, 2), "b": [3]})
>>> leaves, _pytree.tree_unflatten([x * 2 for x in leaves], spec)
([1, 2, 3], {'a': (2, 4), 'b': [6]})
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...core.errors import InvalidArgument

__all__ = [
    "LeafSpec", "PyTree", "TreeSpec", "register_pytree_node", "tree_all", "tree_any",
    "tree_flatten", "tree_flatten_with_path", "tree_iter", "tree_leaves", "tree_map", "tree_map_",
    "tree_map_only", "tree_map_only_", "tree_map_with_path", "tree_structure", "tree_unflatten",
]  # fmt: skip

PyTree = Any
Context = Any


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A place in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The item at the index."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A key of a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The value of the key."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """An attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The attribute's value."""
        return getattr(obj, self.name)


class NodeDef(NamedTuple):
    """Functions that take a kind of container apart and put it together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Iterable[Any], Any]] | None = None


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Any = None,
) -> None:
    """Register `cls` as a class of containers.

    Errors: InvalidArgument where they are already.
    """
    if cls in SUPPORTED_NODES:
        raise InvalidArgument(f"register_pytree_node: {cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def _add(cls: type, flatten: Any, unflatten: Any, key: Any) -> None:
    def with_keys(tree: Any) -> tuple[Any, Any]:
        children, context = flatten(tree)
        return [(key(context, i), child) for i, child in enumerate(children)], context

    SUPPORTED_NODES[cls] = NodeDef(cls, flatten, unflatten, with_keys)


def is_namedtuple_class(cls: type) -> bool:
    """Whether a class is a named tuple's."""
    fields = getattr(cls, "_fields", None)
    return issubclass(cls, tuple) and isinstance(fields, tuple) and hasattr(cls, "_make")


_add(list, lambda x: (x, None), lambda c, _: list(c), lambda _, i: SequenceKey(i))
_add(tuple, lambda x: (list(x), None), lambda c, _: tuple(c), lambda _, i: SequenceKey(i))
_add(
    NamedTuple,  # type: ignore[arg-type]  # stands for all of them
    lambda x: (list(x), type(x)),
    lambda c, kind: kind(*c),
    lambda kind, i: GetAttrKey(kind._fields[i]),
)
_add(
    dict,
    lambda x: (list(x.values()), list(x)),
    lambda c, keys: dict(zip(keys, c, strict=True)),
    lambda keys, i: MappingKey(keys[i]),
)
_add(
    OrderedDict,
    lambda x: (list(x.values()), list(x)),
    lambda c, keys: OrderedDict(zip(keys, c, strict=True)),
    lambda keys, i: MappingKey(keys[i]),
)
_add(
    defaultdict,
    lambda x: (list(x.values()), [x.default_factory, list(x)]),
    lambda c, context: defaultdict(context[0], zip(context[1], c, strict=True)),
    lambda context, i: MappingKey(context[1][i]),
)
_add(
    deque,
    lambda x: (list(x), x.maxlen),
    lambda c, maxlen: deque(c, maxlen=maxlen),
    lambda _, i: SequenceKey(i),
)


# PyTorch's names of these functions, which packages register for classes like those
_list_flatten, _list_unflatten = SUPPORTED_NODES[list][1:3]
_tuple_flatten, _tuple_unflatten = SUPPORTED_NODES[tuple][1:3]
_dict_flatten, _dict_unflatten = SUPPORTED_NODES[dict][1:3]
_list_flatten_with_keys = SUPPORTED_NODES[list].flatten_with_keys_fn
_tuple_flatten_with_keys = SUPPORTED_NODES[tuple].flatten_with_keys_fn
_dict_flatten_with_keys = SUPPORTED_NODES[dict].flatten_with_keys_fn


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    return NamedTuple if kind not in SUPPORTED_NODES and is_namedtuple_class(kind) else kind


def _is_node(tree: Any, is_leaf: Callable[[Any], bool] | None) -> bool:
    return not (is_leaf is not None and is_leaf(tree)) and _get_node_type(tree) in SUPPORTED_NODES


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether a tree is one leaf."""
    return not _is_node(tree, is_leaf)


class TreeSpec:
    """The form of a tree, without its leaves."""

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self.children_specs = children_specs
        self.num_children = len(children_specs)
        self.num_nodes: int = 1 + sum(each.num_nodes for each in children_specs)
        self.num_leaves: int = (
            sum(each.num_leaves for each in children_specs) if type is not None else 1
        )

    def is_leaf(self) -> bool:
        """Whether it is one leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The forms of what the container holds."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The form of one child."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves.

        Errors: InvalidArgument for another number of leaves.
        """
        held = list(leaves)
        if len(held) != self.num_leaves:
            raise InvalidArgument(
                f"tree_unflatten: the tree has {self.num_leaves} leaves, but got {len(held)}"
            )
        return self._built(iter(held))

    def _built(self, leaves: Any) -> Any:
        if self.type is None:
            return next(leaves)
        children = [each._built(leaves) for each in self.children_specs]
        return SUPPORTED_NODES[self.type].unflatten_fn(children, self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Subtrees of `tree` at the positions of this form's leaves.

        Errors: InvalidArgument where it has another form.
        """
        found: list[Any] = []
        self._collect(tree, found)
        return found

    def _collect(self, tree: Any, found: list[Any]) -> None:
        if self.type is None:
            found.append(tree)
            return
        mappings = (dict, OrderedDict, defaultdict)
        kind = _get_node_type(tree)
        if kind is not self.type and not (kind in mappings and self.type in mappings):
            raise InvalidArgument(f"pytree: expected a {self.type}, got {type(tree)!r}")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        children = list(children)
        if self.type in mappings:
            keys = self.context[1] if self.type is defaultdict else self.context
            if set(keys) != set(tree):
                raise InvalidArgument(f"pytree: expected the keys {keys}, got {list(tree)}")
            children = [tree[key] for key in keys]
        elif context != self.context and self.type is not deque:
            raise InvalidArgument(f"pytree: expected {self.context}, got {context}")
        if len(children) != self.num_children:
            raise InvalidArgument(
                f"pytree: expected {self.num_children} children, got {len(children)}"
            )
        for spec, child in zip(self.children_specs, children, strict=True):
            spec._collect(child, found)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and self.type is other.type
            and self.context == other.context
            and self.children_specs == other.children_specs
        )

    def __hash__(self) -> int:
        return hash((self.type, self.num_nodes, self.num_leaves))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The form of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """The leaves, and the form."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    if not _is_node(tree, is_leaf):
        leaves.append(tree)
        return LeafSpec()
    kind = _get_node_type(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(each, leaves, is_leaf) for each in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a form with these leaves.

    Errors: InvalidArgument for another number of leaves.
    """
    return treespec.unflatten(leaves)


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The leaves, one after the other."""
    yield from tree_flatten(tree, is_leaf)[0]


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The form."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """The tree of what `func` gives for its leaves, and those of further trees of its form."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(each) for each in rests]
    return spec.unflatten([func(*each) for each in zip(leaves, *others, strict=True)])


def tree_map_(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Call `func` with each leaf; returns the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[[Any], Any]], Any]:
    """A decorator of functions that leave values of other types as they are."""
    wanted = type_or_types_or_pred
    is_test = callable(wanted) and not isinstance(wanted, type)

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            fits = wanted(x) if is_test else isinstance(x, wanted)
            return func(x) if fits else x

        return call

    return decorate


def tree_map_only(
    type_or_types_or_pred: Any,
    /,
    func: Callable[[Any], Any],
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """The tree with what `func` gives for leaves of a type; others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any,
    /,
    func: Callable[[Any], Any],
    tree: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Call `func` with each leaf of a type; returns the tree."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(
    pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    """Whether all leaves fit."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(
    pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> bool:
    """Whether a leaf fits."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """The leaves, each with the keys that lead to it, and the form.

    Errors: InvalidArgument for a container that was registered without its keys.
    """
    found: list[tuple[tuple[Any, ...], Any]] = []
    _walk((), tree, found, is_leaf)
    return found, tree_structure(tree, is_leaf)


def _walk(path: tuple[Any, ...], tree: Any, found: list[Any], is_leaf: Any) -> None:
    if not _is_node(tree, is_leaf):
        found.append((path, tree))
        return
    keys = SUPPORTED_NODES[_get_node_type(tree)].flatten_with_keys_fn
    if keys is None:
        raise InvalidArgument(f"pytree: {type(tree)} was registered without flatten_with_keys_fn")
    for key, child in keys(tree)[0]:
        _walk((*path, key), child, found, is_leaf)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves, each with the keys that lead to it."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """`tree_map` of a function that gets the keys that lead to the leaf, too."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(each) for each in rests]
    return spec.unflatten(
        [func(path, leaf, *rest) for (path, leaf), *rest in zip(found, *others, strict=True)]
    )


def keystr(kp: Iterable[Any]) -> str:
    """Keys as one would write them.

    >>> from adjoint.utils import _pytree
    >>> _pytree.keystr(_pytree.tree_flatten_with_path({"a": [1]})[0][0][0])
    "['a'][0]"
    """
    return "".join(map(str, kp))
