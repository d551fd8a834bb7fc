"""Whether what a program goes by is what it was: looks at many objects, each by identity.

A compiled function asks these questions before each run; all of them are loops over lists of pairs.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "have_gradients", "have_memory", "hold_attributes", "hold_cells", "hold_contents", "hold_items",
    "hold_names", "hooks_of", "want_gradients",
]  # fmt: skip


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
    found = () if extra is None else (*extra.hooks.values(), *extra.prehooks.values())
    return found if leaf is None or not leaf.after else (*found, *leaf.after.values())


def hold_items(kept: list[Any]) -> bool:
    """Whether dicts hold what they held: triples of a dict, a key and a value."""
    for each in kept:
        held, key, value = each
        if held.get(key) is not value:
            return False
    return True


def hold_names(holders: list[Any], keys: list[Any], values: list[Any], absent: Any) -> bool:
    """Whether dicts hold what they held, which may be nothing: `absent`."""
    for k in range(len(keys)):
        held = holders[k]
        if held.get(keys[k], absent) is not values[k]:
            return False
    return True


def hold_attributes(holders: list[Any], names: list[Any], values: list[Any], absent: Any) -> bool:
    """Whether objects have the attributes that they had; `absent`: none of that name."""
    for k in range(len(names)):
        value = getattr(holders[k], names[k], absent)
        if value is not values[k]:
            return False
    return True


def hold_contents(listed: list[Any]) -> bool:
    """Whether lists, and dicts of exactly that type, contain what they contained: triples of one, a
    list of its items or keys, and None or a dict's values. In order, each itself.
    """
    for each in listed:
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


def hold_cells(cells: list[Any], values: list[Any]) -> bool:
    """Whether variables hold what they held."""
    for k in range(len(cells)):
        try:
            if cells[k].cell_contents is not values[k]:
                return False
        except ValueError:  # it was deleted
            return False
    return True
