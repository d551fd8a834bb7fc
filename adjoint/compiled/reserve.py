"""Memory that the programs of one compiled function use in turn: what no call keeps."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ..backends.native.lowering.scratch import Scratch
from ..backends.native.runtime.memory import zeros
from ..inference.buffers import placeholders
from .handover import Landing

_GROWTH = 1.5  # of an arena, so that all that are in use are together at most three of the largest


class Reserve:
    """One program at a time, whose thread has the `lock`, may write to it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.scratch = Scratch()
        self._arenas: dict[int, weakref.ref[Any]] = {}
        self._landings: weakref.WeakValueDictionary[tuple[Any, ...], Landing] = (
            weakref.WeakValueDictionary()
        )

    def in_use(self) -> bool:
        """Whether this thread is in the middle of a program, of which a finalizer or an op in
        Python calls another, or the same.
        """
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    def arena(self, part: int, size: int) -> Any:
        """At least so many bytes for what lies between the kernels of a program's part with this
        number, shared by those parts of all programs: they keep it.
        """
        held = self._arenas.get(part)
        memory = None if held is None else held()
        if memory is None or memory.size < size:
            if memory is not None:
                size = max(size, int(_GROWTH * memory.size))
            memory = zeros(size)
            self._arenas[part] = weakref.ref(memory)
        return memory

    def landing(self, leaves: list[Any]) -> Landing:
        """Where the gradients of leaves are written."""
        key = tuple((id(x), x._data.shape, x._data.dtype) for x in leaves)
        found = self._landings.get(key)
        if found is None:
            homes = placeholders((x._data.shape, x._data.dtype) for x in leaves)
            found = self._landings[key] = Landing(leaves, homes)
        return found
