"""Mirrors: a tensor's conjugate as a view. NumPy has no lazy conjugate, so the view has memory
of its own, and a write to either is carried to the other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.errors import Unsupported
from ..core.tensor_base import TensorBase
from .node import INFERENCE, Version
from .tensors import ndarray

__all__ = ["is_mirror", "mirror"]

_REMEDY = "write to x.conj_physical() or x.conj().clone() instead, which are copies"


class MirrorVersion(Version):
    """Version of a conjugate's memory, which keeps what connects the two sides."""

    __slots__ = ("links",)

    links: tuple[_Link, ...]


class _Link:
    """Watcher of one side, which carries its changes to the other."""

    __slots__ = ("__weakref__", "array", "carrying", "target", "version")

    def __init__(
        self,
        array: np.ndarray | None,
        version: Version,
        target: np.ndarray | None,
        carrying: list[bool],
    ) -> None:
        self.array = array  # of the side that is watched
        self.version = version  # of the other side
        self.target = target  # memory of the other side; None where it was only recorded
        self.carrying = carrying  # whether a change is being carried, of both links

    def before_change(self) -> bool:
        """Announce the change to the other side."""
        if self.carrying[0]:
            return False
        if self.target is None or not self.target.flags.writeable:
            raise Unsupported(f"conj: a tensor is written while its conjugate is held; {_REMEDY}")
        self._carry(self.version.before_change)
        return False

    def changed(self) -> None:
        """Write the conjugate to the other side."""
        if not self.carrying[0] and self.array is not None:
            np.conjugate(self.array, out=self.target)
            self._carry(lambda: self.version.bump("conj"))

    def _carry(self, step: Callable[[], None]) -> None:
        self.carrying[0] = True
        try:
            step()
        finally:
            self.carrying[0] = False

    def exported(self) -> None:
        """NumPy sees one side: nothing is carried for that."""


def mirror(x: TensorBase, y: TensorBase) -> None:
    """Make `y`, the computed conjugate of `x`, a view of it."""
    if x._changes is INFERENCE or y._changes is INFERENCE:
        if type(y._data) is ndarray:
            y._data.flags.writeable = False  # nobody would be told
        return
    version = x._changes
    if version is None:
        version = x._changes = Version()
    own = y._changes = MirrorVersion()
    own.count = version.count
    plain = type(x._data) is ndarray and type(y._data) is ndarray
    sides = (x._data, y._data) if plain else (None, None)
    carrying = [False]
    here = _Link(sides[0], own, sides[1], carrying)
    there = _Link(sides[1], version, sides[0], carrying)
    own.links = (here, there)
    version.watch(here)
    own.watch(there)


def is_mirror(x: TensorBase) -> bool:
    """Whether `x` shows the memory of a conjugate."""
    return isinstance(x._changes, MirrorVersion)


def assert_no_history(version: Version, name: str) -> None:
    """Refuse a write with history to one of two sides: the other's would be lost."""
    for reference in version.watchers or ():
        if isinstance(reference(), _Link):
            raise Unsupported(
                f"{name}: a tensor with gradients is written while its conjugate is held; {_REMEDY}"
            )
