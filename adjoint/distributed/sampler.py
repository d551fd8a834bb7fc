"""DistributedSampler: each rank's share of a dataset, in PyTorch's order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument
from ..data.sampler import Sampler
from .group import get_rank, get_world_size

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index of a dataset, from the `rank`-th on, shuffled by `seed` and the
    epoch as PyTorch shuffles.

    All ranks get equally many: the first indices come twice where they do not divide (with
    `drop_last` the last ones are left out). `exact=True`, which PyTorch has not, does neither, so
    that a validation counts each item once; some ranks then get one item less, which
    `DistributedDataParallel.join` allows.

    `set_epoch` before each epoch gives another order; the second pass without it warns.

    Errors: InvalidArgument for a rank that is none.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler

    >>> sampler = ad.utils.data.DistributedSampler(range(5), 2, rank=1, shuffle=False)
    >>> list(sampler)
    [1, 3, 0]
    >>> list(ad.utils.data.DistributedSampler(range(5), 2, rank=1, shuffle=False, exact=True))
    [1, 3]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        exact: bool = False,
    ) -> None:
        super().__init__()
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise InvalidArgument(
                f"Invalid rank {self.rank}, rank should be in the interval "
                f"[0, {self.num_replicas - 1}]"
            )
        if exact and drop_last:
            raise InvalidArgument("DistributedSampler: exact drops nothing; leave drop_last out")
        self.dataset = dataset
        self.epoch = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.exact = exact
        self._passed: int | None = None  # the epoch of the last pass

    @property
    def total_size(self) -> int:
        """Number of indices that all ranks get."""
        size, ranks = len(self.dataset), self.num_replicas
        if self.exact:
            return size
        if self.drop_last:
            return size // ranks * ranks
        return math.ceil(size / ranks) * ranks

    @property
    def num_samples(self) -> int:
        """Number of indices that this rank gets."""
        return len(range(self.rank, self.total_size, self.num_replicas))

    def __iter__(self) -> Iterator[int]:
        if self.shuffle and self._passed == self.epoch:
            warnings.warn(
                "DistributedSampler: a second pass in the same order; call set_epoch(epoch) before "
                "each epoch",
                stacklevel=2,
            )
        self._passed = self.epoch
        size, total = len(self.dataset), self.total_size
        order = permutation(size, self.seed + self.epoch) if self.shuffle else list(range(size))
        if total > size and size:
            order = (order * math.ceil(total / size))[:total]
        return iter(order[self.rank : total : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for this epoch."""
        self.epoch = epoch


def permutation(size: int, seed: int) -> list[int]:
    """The numbers below `size` in the order of `torch.randperm` with a generator of that seed: each
    changes places with one behind it, which the Mersenne Twister draws.
    """
    order = list(range(size))
    draws: Any = np.random.RandomState(seed & 0xFFFFFFFF)._bit_generator  # type: ignore[attr-defined]
    for i, drawn in enumerate(draws.random_raw(max(size - 1, 0)).tolist()):
        j = i + drawn % (size - i)
        order[i], order[j] = order[j], order[i]
    return order
