"""Fetchers, which make a batch of indices: what a DataLoader's own process and its workers have in
common.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .collate import default_collate
from .dataset import Subset, TensorDataset


class Exhausted(Exception):  # noqa: N818 - as StopIteration, which generators would swallow
    """An IterableDataset has no more items."""


class MapFetcher:
    """Batches of a dataset that is indexed."""

    def __init__(self, dataset: Any, batched: bool, collate: Callable[[Any], Any]) -> None:
        self.dataset = dataset
        self.batched = batched
        self.collate = collate

    def fetch(self, indices: Any) -> Any:
        """The batch of these indices; without batching, the item of this index."""
        if not self.batched:
            return self.collate(self.dataset[indices])
        if self.collate is default_collate:
            rows = _rows(self.dataset, indices)
            if rows is not None:
                return rows
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.collate(self.dataset.__getitems__(indices))
        return self.collate([self.dataset[i] for i in indices])


def _rows(dataset: Any, indices: Any) -> Any:
    """A TensorDataset's collated batch by indexing each tensor once; None for other datasets."""
    while type(dataset) is Subset:
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or not all(type(i) is int for i in indices):
        return None
    return [tensor[indices] for tensor in dataset.tensors]


class IterableFetcher:
    """Batches of a dataset that is read in its own order."""

    def __init__(
        self, dataset: Any, batched: bool, collate: Callable[[Any], Any], drop_last: bool
    ) -> None:
        self.items = iter(dataset)
        self.batched = batched
        self.collate = collate
        self.drop_last = drop_last

    def fetch(self, indices: Any) -> Any:
        """As many items as there are indices; Exhausted after the last."""
        if not self.batched:
            for item in self.items:
                return self.collate(item)
            raise Exhausted
        batch = list(itertools.islice(self.items, len(indices)))
        if not batch or (self.drop_last and len(batch) < len(indices)):
            raise Exhausted
        return self.collate(batch)

    def skip(self, count: int) -> None:
        """Pass over `count` items; they are read, as there is no other way to get past them."""
        for _ in itertools.islice(self.items, count):
            pass
