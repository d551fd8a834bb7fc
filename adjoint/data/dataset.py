"""Datasets: indexed (`Dataset`) and streamed (`IterableDataset`), and ways to combine them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from ..core.argument_repr import argument_repr
from ..core.errors import IndexingError, InvalidArgument, InvalidType
from ..core.keywords import explain_keywords
from ..ops.random.random import randperm

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset",
    "TensorDataset", "random_split",
]  # fmt: skip

T = TypeVar("T", covariant=True)


@explain_keywords
class Dataset(Generic[T]):
    """Base of datasets that give an item for an index; subclasses define `__getitem__`, and
    `__len__` for samplers.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.Dataset

    >>> class Squares(ad.data.Dataset):
    ...     def __getitem__(self, i): return i * i
    ...     def __len__(self): return 4
    >>> (Squares() + Squares())[6]
    4
    """

    __repr__ = argument_repr

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Base of datasets that are read in their own order; subclasses define `__iter__`.

    With several workers each worker reads the whole dataset: share the work out by
    `get_worker_info()`.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset

    >>> class Count(ad.data.IterableDataset):
    ...     def __iter__(self): return iter(range(3))
    >>> [x.tolist() for x in ad.data.DataLoader(Count(), batch_size=2)]
    [[0, 1], [2]]
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """The rows of tensors of equal first size.

    Errors: InvalidArgument where the first sizes differ.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.TensorDataset

    >>> ad.data.TensorDataset(ad.tensor([1., 2.]), ad.tensor([3, 4]))[1]
    (tensor(2.), tensor(4))
    """

    tensors: tuple[Any, ...]

    def __init__(self, *tensors: Any) -> None:
        sizes = [tensor.shape[0] for tensor in tensors]
        if any(size != sizes[0] for size in sizes):
            raise InvalidArgument(
                f"TensorDataset: Size mismatch between tensors: first sizes {sizes} must be equal"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """Datasets of one length side by side: an item is the tuple (or dict) of their items.

    Errors: InvalidArgument where the lengths differ or there is nothing to stack.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.StackDataset

    >>> ad.data.StackDataset(x=[1, 2], y="ab")[1]
    {'x': 2, 'y': 'b'}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise InvalidArgument("StackDataset: give datasets by position or by name, not both")
        self.datasets: Any = args or kwargs
        lengths = {len(d) for d in (args or kwargs.values())}
        if len(lengths) != 1:
            raise InvalidArgument(f"StackDataset: Size mismatch between datasets: {lengths}")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Datasets one after the other.

    Errors: InvalidArgument for no datasets; InvalidType for an IterableDataset.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.ConcatDataset

    >>> ad.data.ConcatDataset([[1, 2], [3]])[2]
    3
    """

    datasets: list[Any]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise InvalidArgument("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise InvalidType(
                "ConcatDataset does not support IterableDataset; use ChainDataset, or +"
            )
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexingError(f"ConcatDataset: index {index} is out of range for {len(self)}")
        place = index % len(self)
        which = bisect.bisect_right(self.cumulative_sizes, place)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][place - before]


class ChainDataset(IterableDataset[Any]):
    """IterableDatasets one after the other.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.ChainDataset

    >>> class Count(ad.data.IterableDataset):
    ...     def __iter__(self): return iter(range(2))
    >>> list(Count() + Count())
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise InvalidType(
                    f"ChainDataset only supports IterableDataset, got {type(dataset).__name__}"
                )
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)  # type: ignore[arg-type]


class Subset(Dataset[Any]):
    """The items of a dataset at the given indices.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.Subset

    >>> ad.data.Subset("abcd", [3, 0])[0]
    'd'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Several items at once; a dataset that can do better itself is asked to."""
        wanted = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(wanted)
        return [self.dataset[i] for i in wanted]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Random subsets of the given lengths, or fractions that sum to 1, without overlap.

    Errors: InvalidArgument where lengths do not sum to the dataset's, or a fraction is outside
    0 to 1.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.random_split

    >>> [len(part) for part in ad.data.random_split(range(10), [0.7, 0.3])]
    [7, 3]
    """
    total = len(dataset)
    counts = [*lengths]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise InvalidArgument(f"random_split: Fraction at index {i} is not between 0 and 1")
        counts = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - int(sum(counts))):
            counts[i % len(counts)] += 1
    if sum(counts) != total:
        raise InvalidArgument(
            f"random_split: Sum of input lengths does not equal the length of the input dataset! "
            f"({sum(counts)} and {total})"
        )
    order = randperm(total, generator=generator).tolist()
    ends = list(accumulate(int(count) for count in counts))
    return [
        Subset(dataset, order[end - int(count) : end])
        for end, count in zip(ends, counts, strict=True)
    ]
