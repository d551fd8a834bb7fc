"""Shape and dtype properties shared by all kinds of arrays."""

from __future__ import annotations

import math
from typing import Any


class ArrayProperties:
    """Base class of stand-ins for NumPy arrays: the properties that follow from `shape` and
    `dtype`.
    """

    __slots__ = ()

    shape: tuple[int, ...]
    dtype: Any  # NumPy's

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes that one element takes."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes that all elements take."""
        return self.size * self.itemsize
