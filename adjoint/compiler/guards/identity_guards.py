"""Guard checks: do the objects that a compiled program depends on still hold the values seen at
capture? Compared by identity.

A compiled function asks these questions before each run; all of them are loops over lists of pairs.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ...core.cython_shim import cython

if TYPE_CHECKING:
    import cython  # what the compiler sees

    from ...core.tensor_base import TensorBase

__all__ = [
    "IdentityGuards",
    "have_gradients",
    "have_memory",
    "hold_items",
    "hooks_of",
    "version_of",
    "want_gradients",
]

_NONE: list[Any] = []


def have_memory(bound: list[Any]) -> bool:
    """Whether tensors still have the same arrays and nodes: triples (tensor, array, node)."""
    for each in bound:
        x, array, node = each
        if x._data is not array or x._node is not node:
            return False
    return True


def have_gradients(presence: list[Any]) -> bool:
    """Whether leaves still have, or lack, a gradient: pairs (tensor, whether it had one)."""
    for each in presence:
        x, present = each
        leaf = x._leaf
        if (leaf.grad is None) is present:
            return False
    return True


def want_gradients(wanting: list[Any]) -> TensorBase | None:
    """The first tensor whose `requires_grad` or gradient hooks have changed: triples (tensor,
    whether it required a gradient, its hooks). None if none has.
    """
    for each in wanting:
        x, wanted, hooks = each
        node = x._node
        if (node is None) is wanted:
            return x
        leaf = x._leaf
        if (
            wanted
            and (hooks or node.extra is not None or (leaf is not None and leaf.after))
            and hooks_of(x) != hooks
        ):
            return x
    return None


def hooks_of(x: TensorBase) -> tuple[Any, ...]:
    """All hooks that are called with gradients of a tensor."""
    leaf, extra = x._leaf, None if x._node is None else x._node.extra
    hooks = (
        ()
        if extra is None
        else (*extra.hooks.values(), *extra.prehooks.values(), *extra.posthooks.values())
    )
    return hooks if leaf is None or not leaf.after else (*hooks, *leaf.after.values())


def hold_items(kept: list[Any]) -> bool:
    """Whether dicts still hold the same values: triples (dict, key, value)."""
    for each in kept:
        held, key, value = each
        if held.get(key) is not value:
            return False
    return True


def version_of(kind: object) -> int:
    """The version of a class, which Python changes with whatever is set on it or on its bases; 0
    where there is none, or where this file is interpreted.
    """
    return cython.cast(p_type, kind).tp_version_tag if cython.compiled else 0


class IdentityGuards:
    """Identity guards on the contents of dicts, objects, closure variables, containers and
    classes.
    """

    __slots__ = (
        "_absent", "_any", "_attributes", "_cells", "_classes", "_contents", "_dicts", "_keys",
        "_kinds", "_lists", "_mappings", "_names", "_objects", "_of_class", "_others", "_values",
        "_versions",
    )  # fmt: skip

    def __init__(
        self, named: list[Any], listed: list[Any], attributes: list[Any] = _NONE,
        cells: list[Any] = _NONE, absent: object = None, classes: list[Any] = _NONE,
        versions: list[Any] = _NONE,
    ) -> None:  # fmt: skip
        """`named`: triples of a dict, a key and a value; `attributes`: of an object, a name and a
        value, all of which may be `absent`; `cells`: pairs of a variable and its value. `listed`:
        triples of a list, its items and None, or of a dict, its keys in order and its values, or
        None where these do not count. `classes`: pairs of an object and its class. `versions`:
        pairs of a class and its version (`version_of`).
        """
        self._any = object()  # a wildcard
        mappings: dict[int, tuple[Any, list[Any], list[Any]]] = {}  # by the id of the dict
        self._lists: list[tuple[Any, list[Any]]] = []
        for holder, items, values in listed:
            if not isinstance(holder, dict):
                self._lists.append((holder, items))
            elif values is not None or id(holder) not in mappings:
                expected = [self._any] * len(items) if values is None else list(values)
                mappings[id(holder)] = (holder, items, expected)
        self._dicts, self._keys, self._values = [], [], []
        for each in named:
            if not self._is_listed(mappings.get(id(each[0])), each[1], each[2], absent):
                self._dicts.append(each[0])
                self._keys.append(each[1])
                self._values.append(each[2])
        self._mappings = [each for each in mappings.values() if type(each[0]) is dict]
        self._others = [each for each in mappings.values() if type(each[0]) is not dict]
        self._objects = [each[0] for each in attributes]
        self._names = [each[1] for each in attributes]
        self._attributes = [each[2] for each in attributes]
        self._cells = [each[0] for each in cells]
        self._contents = [each[1] for each in cells]
        self._of_class = [each[0] for each in classes]
        self._classes = [each[1] for each in classes]
        self._kinds = [each[0] for each in versions]
        self._versions = [each[1] for each in versions]
        self._absent = absent

    def _is_listed(self, mapping: Any, key: object, value: object, absent: object) -> bool:
        """Whether the guard on a dict's whole contents covers this entry; its expected value is
        added there.
        """
        if mapping is None:
            return False
        _, keys, values = mapping
        for k in range(len(keys)):
            if keys[k] == key:
                if values[k] is self._any:
                    values[k] = value
                return bool(values[k] is value)
        return value is absent

    def hold(self) -> bool:
        """Whether all contents are the same objects."""
        absent = self._absent
        for k in range(len(self._keys)):
            held = self._dicts[k]
            if held.get(self._keys[k], absent) is not self._values[k]:
                return False
        for k in range(len(self._names)):
            value = getattr(self._objects[k], self._names[k], absent)
            if value is not self._attributes[k]:
                return False
        for k in range(len(self._cells)):
            try:
                if self._cells[k].cell_contents is not self._contents[k]:
                    return False
            except ValueError:  # it was deleted
                return False
        for k in range(len(self._classes)):
            if type(self._of_class[k]) is not self._classes[k]:
                return False
        for k in range(len(self._kinds)):
            version = self._versions[k]
            if version_of(self._kinds[k]) != version:
                return False
        for pair in self._lists:
            holder, items = pair
            if not _has_items(holder, items):
                return False
        for each in self._mappings:
            held, keys, values = each
            if not _has_pairs(held, keys, values, self._any):
                return False
        for each in self._others:
            other, keys, values = each
            if list(other) != keys or not all(map(operator.is_, other.values(), values)):
                return False
        return True


def _has_items(holder: list[Any], items: list[Any]) -> bool:
    """Whether a list contains exactly these objects."""
    if len(holder) != len(items):
        return False
    if cython.compiled:  # pointers, since what they point to would have to be loaded
        for k in range(len(items)):
            if PyList_GET_ITEM(holder, k) != PyList_GET_ITEM(items, k):
                return False
        return True
    return all(map(operator.is_, holder, items))


def _has_pairs(held: dict[Any, Any], keys: list[Any], values: list[Any], anything: object) -> bool:
    """Whether a dict has exactly these keys, in order, with these values; `anything` matches any
    value.
    """
    if len(held) != len(keys):
        return False
    if cython.compiled:
        k = at = 0
        key = value = any_value = cython.cast(p_object, anything)
        while PyDict_Next(held, cython.address(at), cython.address(key), cython.address(value)):
            expected = PyList_GET_ITEM(values, k)
            if key != PyList_GET_ITEM(keys, k) or (value != expected and expected != any_value):
                return False
            k += 1
        return True
    for x, y, own, expected_value in zip(held, held.values(), keys, values, strict=True):
        if x is not own or (y is not expected_value and expected_value is not anything):
            return False
    return True
