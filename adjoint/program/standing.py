"""Whether what a program goes by is what it was: looks at many objects, each by identity.

A compiled function asks these questions before each run; all of them are loops over lists of pairs.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Held", "have_gradients", "have_memory", "hold_items", "hooks_of", "want_gradients"]

_NONE: list[Any] = []


def have_memory(bound: list[Any]) -> bool:
    """Whether tensors have the arrays and nodes that they had: triples of these."""
    for each in bound:
        x, array, node = each
        if x._data is not array or x._node is not node:
            return False
    return True


def have_gradients(presence: list[Any]) -> bool:
    """Whether leaves have a gradient, or none: pairs of a tensor, and whether it had one."""
    for each in presence:
        x, present = each
        leaf = x._leaf
        if (leaf.grad is None) is present:
            return False
    return True


def want_gradients(wanting: list[Any]) -> Any:
    """The first tensor that wants a gradient and did not, or did and does not, or whose gradient
    others are called with than were: triples of a tensor, whether it did, and these. None where all
    is as it was.
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


def hooks_of(x: Any) -> tuple[Any, ...]:
    """What is called with gradients of a tensor."""
    leaf, extra = x._leaf, None if x._node is None else x._node.extra
    found = (
        ()
        if extra is None
        else (*extra.hooks.values(), *extra.prehooks.values(), *extra.posthooks.values())
    )
    return found if leaf is None or not leaf.after else (*found, *leaf.after.values())


def hold_items(kept: list[Any]) -> bool:
    """Whether dicts hold what they held: triples of a dict, a key and a value."""
    for each in kept:
        held, key, value = each
        if held.get(key) is not value:
            return False
    return True


class Held:
    """What dicts, objects, variables of functions and containers hold: looked at by identity."""

    __slots__ = (
        "_absent", "_attributes", "_cells", "_contents", "_dicts", "_keys", "_listed",
        "_names", "_objects", "_values",
    )  # fmt: skip

    def __init__(
        self, named: list[Any], listed: list[Any], attributes: list[Any] = _NONE,
        cells: list[Any] = _NONE, absent: Any = None,
    ) -> None:  # fmt: skip
        """`named`: triples of a dict, a key and a value; `attributes`: of an object, a name and a
        value, all of which may be `absent`; `cells`: pairs of a variable and its value. `listed`:
        triples of a list, its items and None, or of a dict, its keys in order and its values, or
        None where these do not count.
        """
        self._dicts = [each[0] for each in named]
        self._keys = [each[1] for each in named]
        self._values = [each[2] for each in named]
        self._objects = [each[0] for each in attributes]
        self._names = [each[1] for each in attributes]
        self._attributes = [each[2] for each in attributes]
        self._cells = [each[0] for each in cells]
        self._contents = [each[1] for each in cells]
        self._listed = listed
        self._absent = absent

    def hold(self) -> bool:
        """Whether all of them hold the same."""
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
        for each in self._listed:
            holder, items, values = each
            if len(holder) != len(items):
                return False
            k = 0
            if values is None:
                for x in holder:
                    if x is not items[k]:
                        return False
                    k += 1
            else:
                for x, y in holder.items():
                    if x is not items[k] or y is not values[k]:
                        return False
                    k += 1
        return True
