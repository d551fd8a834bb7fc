"""Patterns: the places of the entries of sparse tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.errors import InvalidArgument, LayoutError
from ...runtime.tensors import wrap
from ..create.conversion import layout as Layout  # noqa: N812 - patterns have a field of that name
from ..create.conversion import sparse_coo, sparse_csc, sparse_csr


class Pattern:
    """The places of entries in a tensor of `shape`; never changed, and shared by all that have it.

    What is worked out of it (the merged pattern, rows for products) is kept with it.
    """

    __slots__ = ("_flipped", "_keys", "_merged", "_rows", "crow", "indices", "is_merged", "layout",
                 "shape")  # fmt: skip

    shape: tuple[int, ...]  # of the whole, with the dense dimensions at its end
    indices: Any  # int64 of (sparse dimensions, entries)
    is_merged: bool  # entries stand in row-major order, none twice: `coalesced`
    layout: Layout
    crow: Any  # of CSR and CSC: where each row's or column's entries begin, as was given; else None

    def __init__(
        self,
        indices: Any,
        shape: tuple[int, ...],
        is_merged: bool = False,
        kept: Layout = sparse_coo,
        crow: Any = None,
    ) -> None:
        indices = np.ascontiguousarray(indices, np.int64)
        self.indices = indices.view()
        self.indices.flags.writeable = False
        self.shape = tuple(shape)
        self.layout = kept
        self.crow = crow
        self.is_merged = bool(is_merged or indices.shape[1] < 2)
        self._keys: Any = None
        self._merged: Any = None
        self._rows: Any = None
        self._flipped: Pattern | None = None

    # ---- facts -------------------------------------------------------------------------------

    @property
    def sparse_dim(self) -> int:
        """Number of sparse dimensions: the first ones."""
        return len(self.indices)

    @property
    def count(self) -> int:
        """Number of entries."""
        return int(self.indices.shape[1])

    @property
    def lead(self) -> tuple[int, ...]:
        """The sizes of the sparse dimensions."""
        return self.shape[: self.sparse_dim]

    @property
    def rest(self) -> tuple[int, ...]:
        """The sizes of the dense dimensions."""
        return self.shape[self.sparse_dim :]

    @property
    def places(self) -> int:
        """Number of places for entries."""
        return math.prod(self.lead)

    @property
    def is_distinct(self) -> bool:
        """Whether no place occurs twice, whatever the order: CSC has its own."""
        return self.is_merged or self.layout is sparse_csc

    @property
    def keys(self) -> Any:
        """The number of each entry's place, in row-major order."""
        if self._keys is None:
            self._keys = numbered(self.indices, self.lead)
        return self._keys

    def same(self, other: Pattern) -> bool:
        """Whether both have the same entries in the same order."""
        return self is other or (
            self.shape == other.shape and np.array_equal(self.indices, other.indices)
        )

    # ---- patterns that follow from it --------------------------------------------------------

    def merged(self) -> tuple[Pattern, Any, Any]:
        """The pattern with entries of one place as one, in order; for each entry of this the number
        of that one, and for each of those the first of these.
        """
        if self._merged is None:
            keys, first, inverse = np.unique(self.keys, return_index=True, return_inverse=True)
            pattern = Pattern(places_of(keys, self.lead), self.shape, True)
            pattern._keys = keys
            self._merged = pattern, inverse.reshape(-1), first
        return self._merged  # type: ignore[no-any-return]

    def flipped(self) -> Pattern:
        """The pattern of the transposed matrix, its entries in the order of this."""
        if self._flipped is None:
            rows, columns = self.shape
            self._flipped = Pattern(self.indices[::-1], (columns, rows))
        return self._flipped

    def rows(self) -> tuple[Any, Any, Any]:
        """Rows of a matrix: where each one's entries begin, their columns, and their order here
        (None: as they are).
        """
        if self._rows is None:
            row, column = self.indices
            order = None
            if not self.is_merged:
                order = np.argsort(row, kind="stable")
                row, column = row[order], column[order]
            count = np.bincount(row, minlength=self.shape[0])
            self._rows = np.concatenate([[0], np.cumsum(count)]), column, order
        return self._rows  # type: ignore[no-any-return]

    def find(self, keys: Any) -> tuple[Any, Any]:
        """Entries at places given by number: the number of the entry (0 for none), and whether
        there is one; of a merged pattern.
        """
        found = np.searchsorted(self.keys, keys)
        found[found == self.count] = 0
        there = self.keys[found] == keys if self.count else np.zeros(len(keys), bool)
        return found, there

    def as_rows(self, like: Any = None) -> Pattern:
        """The pattern as CSR, where it is merged; indices of the dtype that `like` has."""
        assert self.is_merged
        dtype = np.int64 if like is None else like
        begin, _, _ = self.rows()
        found = Pattern(self.indices, self.shape, True, sparse_csr, begin.astype(dtype))
        found._keys, found._rows = self._keys, self._rows
        return found

    def as_columns(self, like: Any = None) -> tuple[Pattern, Any]:
        """The pattern as CSC, where it is merged, and the order of its entries there."""
        assert self.is_merged
        dtype = np.int64 if like is None else like
        order = np.argsort(self.indices[1], kind="stable")
        count = np.bincount(self.indices[1], minlength=self.shape[1])
        begin = np.concatenate([[0], np.cumsum(count)]).astype(dtype)
        return Pattern(self.indices[:, order], self.shape, False, sparse_csc, begin), order

    def transposed(self) -> Pattern:
        """The pattern of the transposed matrix, of CSR as CSC and of CSC as CSR."""
        rows, columns, *rest = self.shape
        was_rows = self.layout is sparse_csr
        kept = sparse_csc if was_rows else sparse_csr
        return Pattern(self.indices[::-1], (columns, rows, *rest), not was_rows, kept, self.crow)

    def as_coordinates(self) -> Pattern:
        """The pattern as COO."""
        found = Pattern(self.indices, self.shape, self.is_merged)
        found._keys, found._rows = self._keys, self._rows
        return found


def numbered(indices: Any, lead: tuple[int, ...]) -> Any:
    """The numbers of places, in row-major order."""
    if math.prod(lead) >= 1 << 62:
        raise LayoutError(
            f"sparse: there are more than 2**62 places in the sparse dimensions {lead}, too many "
            "to number; use smaller sizes"
        )
    keys = np.zeros(indices.shape[1], np.int64)
    for row, size in zip(indices, lead, strict=True):
        keys = keys * size + row
    return keys


def places_of(keys: Any, lead: tuple[int, ...]) -> Any:
    """The indices of places by their numbers."""
    rows = np.empty((len(lead), len(keys)), np.int64)
    left = keys
    for axis in reversed(range(len(lead))):
        size = max(lead[axis], 1)
        rows[axis] = left % size
        left = left // size
    return rows


def assert_inside(name: str, indices: Any, lead: tuple[int, ...]) -> None:
    """Refuse indices that lie outside of the sizes."""
    for axis, (row, size) in enumerate(zip(indices, lead, strict=True)):
        if row.size and (int(row.min()) < 0 or int(row.max()) >= size):
            wrong = int(row.min()) if int(row.min()) < 0 else int(row.max())
            raise InvalidArgument(
                f"{name}: size is inconsistent with indices: for dim {axis}, size is {size} but "
                f"found index {wrong}"
            )


def index(array: Any) -> Any:
    """A tensor of indices."""
    return wrap(np.ascontiguousarray(array, np.int64))
