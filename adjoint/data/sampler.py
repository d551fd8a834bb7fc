"""Samplers: in which order a DataLoader asks for the items of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ..core.argument_repr import argument_repr
from ..core.dtype import float64, int64
from ..core.errors import InvalidArgument
from ..core.keywords import explain_keywords
from ..ops.create.creation import empty, tensor
from ..ops.random.generators import Generator, torch_generator
from ..ops.random.random import multinomial, randint, randperm

__all__ = [
    "BatchSampler", "BucketBatchSampler", "RandomSampler", "Sampler", "SequentialSampler",
    "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip

T = TypeVar("T", covariant=True)


@explain_keywords
class Sampler(Generic[T]):
    """Base of samplers; subclasses define `__iter__` over indices, and `__len__` if it is known.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.Sampler

    >>> class Backward(ad.data.Sampler):
    ...     def __iter__(self): return iter([2, 1, 0])
    >>> [int(x) for x in ad.data.DataLoader([5, 6, 7], sampler=Backward())]
    [7, 6, 5]
    """

    __repr__ = argument_repr

    def __init__(self, data_source: Any = None) -> None:
        super().__init__()

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler[int]):
    """All indices in order.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.SequentialSampler

    >>> list(ad.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        super().__init__()
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def seeded_generator() -> Generator:
    """A generator of its own, seeded from the default one."""
    return Generator().manual_seed(draw_seed(None))


def draw_seed(generator: Any) -> int:
    """A random seed from `generator` (the default one for None)."""
    if torch_generator(generator) is not None:
        return int(empty((), dtype=int64).random_(generator=generator).item())
    return int(randint(0, 2**62, (), dtype=int64, generator=generator).item())


_PIECE = 2**20  # so many indices are drawn at once, of 8 bytes each
_TORCH_PIECE = 32  # likewise where PyTorch's generator is followed, as it may be shared


class RandomSampler(Sampler[int]):
    """All indices in random order; with `replacement`, `num_samples` independent draws.

    Errors: InvalidArgument where `num_samples` is not a positive integer.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.RandomSampler

    >>> sorted(ad.data.RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        super().__init__()
        self.data_source = data_source
        self.replacement = _flag(replacement, "RandomSampler: replacement")
        self._num_samples = num_samples
        self.generator = generator
        if num_samples is not None:
            _positive(num_samples, "RandomSampler: num_samples")

    @property
    def num_samples(self) -> int:
        """Number of indices in one pass."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size = len(self.data_source)
        generator = self.generator if self.generator is not None else seeded_generator()
        if self.replacement:
            most = _PIECE if torch_generator(generator) is None else _TORCH_PIECE
            for start in range(0, self.num_samples, most):
                piece = (min(most, self.num_samples - start),)
                yield from randint(0, size, piece, dtype=int64, generator=generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            order = randperm(size, generator=generator).tolist()
            yield from order[:left]
            left -= size
        if left == 0 and torch_generator(generator) is not None:
            randperm(size, generator=generator)  # PyTorch draws one more, and takes nothing of it

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.SubsetRandomSampler

    >>> sorted(ad.data.SubsetRandomSampler([5, 7]))
    [5, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        super().__init__()
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices, each with a probability in proportion to its weight.

    Errors: InvalidArgument where `num_samples` is not positive or the weights are not 1-d.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.WeightedRandomSampler

    >>> list(ad.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        super().__init__()
        _positive(num_samples, "WeightedRandomSampler: num_samples")
        _flag(replacement, "WeightedRandomSampler: replacement")
        self.weights = tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise InvalidArgument(
                f"WeightedRandomSampler: weights should be a 1d sequence but given weights have "
                f"shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Groups another sampler's indices into lists of `batch_size`.

    Errors: InvalidArgument where `batch_size` is not a positive integer.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.BatchSampler

    >>> list(ad.data.BatchSampler(ad.data.SequentialSampler(range(5)), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        super().__init__()
        _positive(batch_size, "BatchSampler: batch_size")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = _flag(drop_last, "BatchSampler: drop_last")

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class BucketBatchSampler(Sampler[list[int]]):
    """Batches of items of similar length, so that little padding is needed; in random order.

    The items are shuffled and cut into pools of `pool` batches; each pool is sorted by length and
    cut into batches. A larger pool means less padding and less chance; one of 1 means no sorting.
    With `shuffle=False` all items are sorted by length, shortest first.

    Errors: InvalidArgument where `batch_size` or `pool` is not a positive integer.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.BatchSampler

    >>> lengths = [3, 9, 2, 8]
    >>> sorted(sorted(batch) for batch in ad.data.BucketBatchSampler(lengths, 2))
    [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        drop_last: bool = False,
        *,
        shuffle: bool = True,
        pool: int = 100,
        generator: Any = None,
    ) -> None:
        super().__init__()
        _positive(batch_size, "BucketBatchSampler: batch_size")
        _positive(pool, "BucketBatchSampler: pool")
        self.lengths = lengths
        self.batch_size = batch_size
        self.drop_last = _flag(drop_last, "BucketBatchSampler: drop_last")
        self.shuffle = _flag(shuffle, "BucketBatchSampler: shuffle")
        self.pool = pool
        self.generator = generator

    def __iter__(self) -> Iterator[list[int]]:
        size = len(self.lengths)
        order = list(range(size))
        pool = size
        generator = self.generator
        if self.shuffle:
            generator = seeded_generator() if generator is None else generator
            order = randperm(size, generator=generator).tolist()
            pool = self.batch_size * self.pool
        batches: list[list[int]] = []
        for start in range(0, size, max(pool, 1)):
            part = order[start : start + pool]
            if self.pool > 1 or not self.shuffle:
                part.sort(key=self.lengths.__getitem__)
            batches += (part[i : i + self.batch_size] for i in range(0, len(part), self.batch_size))
        if self.drop_last:
            batches = [batch for batch in batches if len(batch) == self.batch_size]
        if self.shuffle:
            places = randperm(len(batches), generator=generator).tolist()
            batches = [batches[i] for i in places]
        yield from batches

    def __len__(self) -> int:
        count = len(self.lengths)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


def _positive(value: Any, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidArgument(f"{what} should be a positive integer value, but got {value!r}")


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} should be a boolean value, but got {value!r}")
    return value
