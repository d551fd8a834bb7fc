"""Memory that each of several calls may use while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core.spec import prod
from ..onednn.plan import aligned, aligned_bytes


class Scratch:
    """Memory for calls that never run at once: each may overwrite what others have left there.

    >>> scratch = Scratch()
    >>> scratch(100).size >= 100 and scratch(50) is scratch(100)
    True
    """

    def __init__(self, behind: tuple[Scratch, int] | None = None) -> None:
        """`behind`: another scratch memory, and the offset in it (a multiple of a cache line) at
        which this one begins.
        """
        self._behind = behind
        self._bytes = np.empty(0, np.uint8)

    def __call__(self, size: int) -> Any:
        """Memory of at least `size` bytes that begin on a cache line; whoever uses them keeps them
        alive.
        """
        if self._behind is not None:
            whole, begin = self._behind
            return whole(begin + size)[begin:]
        if self._bytes.size < size:
            self._bytes = aligned_bytes(size)
        return self._bytes

    def arrays(self, asked: Sequence[tuple[Sequence[int], Any]]) -> tuple[list[Any], Scratch]:
        """Row-major arrays of shapes and dtypes, which lie one behind another, and what is left."""
        sizes = [aligned(prod(shape) * np.dtype(dtype).itemsize) for shape, dtype in asked]
        memory = self(sum(sizes))
        pieces, begin = [], 0
        for (shape, dtype), size in zip(asked, sizes, strict=True):
            count = prod(shape) * np.dtype(dtype).itemsize
            pieces.append(memory[begin : begin + count].view(dtype).reshape(shape))
            begin += size
        return pieces, Scratch((self, begin))

    def like(self, x: Any) -> tuple[Any, Scratch]:
        """A row-major copy of `x`, and the remaining scratch memory."""
        array = self(x.nbytes)[: x.nbytes].view(x.dtype).reshape(x.shape)
        array[...] = x
        return array, Scratch((self, aligned(x.nbytes)))
