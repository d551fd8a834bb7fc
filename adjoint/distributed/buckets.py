"""Gradients in buckets: rows of memory that are reduced as one, each with flags behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runtime.tensors import wrap

FIRST = 1024 * 1024  # bytes of the first bucket, which should leave early

ACTIVE, PRESENT, MISSING = 0, 1, 2  # where flags lie: one, then one a parameter, and one more


class Bucket:
    """The gradients of some parameters, one after the other.

    Behind them lie flags, which are averaged with them, so that no further message is needed to
    know how many ranks take part (`ACTIVE`) and, of each parameter, whether any has a gradient
    (`PRESENT`), and whether any has got none since the last time (`MISSING`): not zero, however
    averages are rounded.
    """

    def __init__(self, index: int, parameters: Sequence[Any], numbers: Sequence[int]) -> None:
        self.index = index
        self.numbers = numbers  # of the parameters, among all
        sizes = [p._data.size for p in parameters]
        self.size = sum(sizes)
        self.row = np.zeros(self.size + 1 + 2 * len(numbers), parameters[0]._data.dtype)
        self.places: list[Any] = []  # tensors that show each parameter's part
        start = 0
        for p, size in zip(parameters, sizes, strict=True):
            self.places.append(wrap(self.row[start : start + size].reshape(p._data.shape)))
            start += size

    def flags(self, row: Any, kind: int) -> Any:
        """One kind of flags of all parameters, behind the gradients in `row`."""
        count = len(self.numbers)
        start = self.size if kind == ACTIVE else self.size + 1 + (kind - 1) * count
        return row[start : start + (1 if kind == ACTIVE else count)]


def assigned(parameters: Sequence[Any], cap: int) -> list[list[int]]:
    """The parameters' numbers in buckets of about `cap` bytes, one dtype each, the last parameters
    first: their gradients are there first.
    """
    buckets: list[list[int]] = []
    filling: dict[Any, tuple[list[int], int]] = {}  # by dtype: the numbers and the bytes
    for number in range(len(parameters) - 1, -1, -1):
        data = parameters[number]._data
        numbers, size = filling.get(data.dtype, ([], 0))
        if not numbers:
            filling[data.dtype] = (numbers, 0)
            buckets.append(numbers)
        numbers.append(number)
        size += data.nbytes
        limit = min(FIRST, cap) if numbers is buckets[0] else cap
        filling[data.dtype] = (numbers, size) if size < limit else ([], 0)
    return buckets


class GradBucket:
    """Argument of a communication hook: the gradients of some parameters as one row.

    Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.GradBucket
    """

    def __init__(self, bucket: Bucket, row: Any, parameters: Sequence[Any], last: bool) -> None:
        self._bucket = bucket
        self._row = wrap(row)
        self._parameters = parameters
        self._last = last

    def index(self) -> int:
        """The bucket's number, in the order in which buckets are sent."""
        return self._bucket.index

    def buffer(self) -> Any:
        """The gradients as one row; a hook may change it."""
        return self._row

    def gradients(self) -> list[Any]:
        """The gradients, each in its shape, in the same memory."""
        found, start = [], 0
        for p in self._parameters:
            size = p._data.size
            found.append(wrap(self._row._data[start : start + size].reshape(p._data.shape)))
            start += size
        return found

    def parameters(self) -> list[Any]:
        """The parameters."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether it is the last one to leave."""
        return self._last

    def set_buffer(self, buffer: Any) -> None:
        """Use another row."""
        self._row = buffer
