"""Tensors that are told apart by identity: by `is`, `id`, or as keys.

A tensor among the arguments, or in lifted state, is another object while a function is captured.
Where the function reaches the same one in another way, and its code may compare them, no program
takes its place.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core import policy
from ...core.errors import Unsupported
from ...core.tensor_base import TensorBase
from .code_observer import is_users
from .slots import GuardSource, place_key

if TYPE_CHECKING:
    from .state_snapshot import StateSnapshot

_KEYED = frozenset((dict, set, frozenset))


@functools.lru_cache(maxsize=policy.CODE_FACTS)
def tells_apart(code: types.CodeType) -> bool:
    """Whether users' code may compare objects by identity, other than with a constant."""
    if not is_users(code):
        return False
    before = ""
    for each in dis.get_instructions(code):
        if each.opname == "CONTAINS_OP" or (each.opname == "IS_OP" and before != "LOAD_CONST"):
            return True
        before = each.opname
    return "id" in code.co_names


def told_apart(reads: StateSnapshot, lifted: Iterable[GuardSource]) -> frozenset[int]:
    """Ids of the tensors that a function reaches by other state than `lifted`, where the code that
    has run may compare them with arguments by identity.
    """
    compares = any(map(tells_apart, [*reads.ran.values()])) or any(map(_has_keys, reads.slots))
    return reached_otherwise(reads, lifted) if compares else frozenset()


def reached_otherwise(reads: StateSnapshot, lifted: Iterable[GuardSource]) -> frozenset[int]:
    """Ids of the tensors that a function reaches by other state than `lifted`."""
    places = set(map(place_key, lifted))
    holders = {id(slot.holder) for slot in lifted}

    def is_other(n: int) -> bool:
        slot = reads.slots[n]
        whole = slot.kind == "items" and id(slot.holder) in holders
        return place_key(slot) not in places and not whole

    return frozenset(x for x in reads.tensors.ids() if any(map(is_other, reads.ways_to(x))))


def _has_keys(slot: GuardSource) -> bool:
    """Whether tensors are keys of a dict, or in a set."""
    if slot.kind != "items" or type(slot.holder) not in _KEYED:
        return False
    return any(isinstance(each, TensorBase) for each in slot.holder)


def assert_apart(tensors: Iterable[TensorBase], held: frozenset[int]) -> None:
    """Refuse tensors that come with each call, of which one is among those that are `told_apart`.

    Errors: Unsupported.
    """
    if any(id(x) in held for x in tensors):
        raise Unsupported(
            "compile: a tensor that comes with the call is one that the function also reaches in "
            "another way, and its code may compare them by identity (is, id, in, or as a key), or "
            "asks for the gradient by one of them; use one of them in the function, give it a name "
            "or a number to compare, or pass a clone"
        )
