"""Scratch memory shared by the programs of one compiled function, which run in turn."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ...backends.native.lowering.scratch import Scratch
from ...backends.native.runtime.array_memory import zeros
from ...core import fork_safety
from ..schedule.buffers import placeholders
from .bindings import GradBuffers

_GROWTH = 1.5  # least growth of an arena: all that are in use are at most three of the largest


class ArenaPool:
    """Arenas, scratch and gradient buffers for one program at a time, whose thread has the
    `lock`.
    """

    def __init__(self) -> None:
        self.lock = fork_safety.lock()
        self.scratch = Scratch()
        self.made = 0  # how many arenas there have been
        self._arenas: dict[int, weakref.ref[Any]] = {}
        self._landings: weakref.WeakValueDictionary[tuple[Any, ...], GradBuffers] = (
            weakref.WeakValueDictionary()
        )

    def arena(self, part: int, size: int) -> np.ndarray:
        """An arena of at least `size` bytes for intermediate values of segment number `part`,
        shared by these segments of all programs, which keep it alive.
        """
        reference = self._arenas.get(part)
        memory = None if reference is None else reference()
        if memory is None or memory.size < size:
            if memory is not None:
                size = max(size, int(_GROWTH * memory.size))
            memory = zeros(size)
            self.made += 1
            self._arenas[part] = weakref.ref(memory)
        return memory

    def landing(self, leaves: list[Any]) -> GradBuffers:
        """The gradient buffers of some leaves, made on first use."""
        key = tuple((id(x), x._data.shape, x._data.dtype) for x in leaves)
        buffers = self._landings.get(key)
        if buffers is None:
            homes = placeholders((x._data.shape, x._data.dtype) for x in leaves)
            buffers = self._landings[key] = GradBuffers(leaves, homes)
        return buffers
