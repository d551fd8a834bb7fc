"""DataLoader: batches of a dataset, made here or in worker processes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import GenericAlias
from typing import Any

from ..core.argument_repr import argument_repr
from ..core.errors import CheckpointError, InvalidArgument
from ..core.keywords import explain_keywords
from ..core.mode import observed
from ..namespaces import cuda
from ..ops.random.generators import Generator, default_generator
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .fetch import Exhausted, IterableFetcher, MapFetcher
from .pinning import pinned
from .pool import WorkerIterator
from .position import Position, set_state, state_of
from .sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed

_NEXT = "enumerate(DataLoader)#DataLoader.__next__"  # as a profile shows it
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


@explain_keywords
class DataLoader:
    """Iterates over a dataset in batches.

    With `num_workers` > 0 that many processes make the batches, each up to `prefetch_factor` ahead;
    the batches come in the same order as without. An error in a worker is raised here with its
    traceback; a worker that dies is reported. With `pin_memory` the batches lie in memory that
    CUDA copies from while the program goes on (`batch.to("cuda", non_blocking=True)`); without it,
    it changes nothing.

    `state_dict()` and `load_state_dict()` bring a loader back to where it was in a pass, shuffled
    or not, without reading again what came before.

    Errors: InvalidArgument for options that exclude each other.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader

    >>> data = ad.data.TensorDataset(ad.arange(5))
    >>> [x.tolist() for (x,) in ad.data.DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    # Programs annotate `DataLoader[Item]`.
    __class_getitem__: Any = classmethod(GenericAlias)

    __repr__ = argument_repr

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _assert_worker_options(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            _assert_unspecified(shuffle=shuffle, sampler=sampler, batch_sampler=batch_sampler)
        if sampler is not None and shuffle:
            raise InvalidArgument("DataLoader: sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise InvalidArgument(
                    "DataLoader: batch_sampler option is mutually exclusive with batch_size, "
                    "shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise InvalidArgument(
                "DataLoader: batch_size=None option disables auto-batching and is mutually "
                "exclusive with drop_last"
            )
        if sampler is None:
            if self._iterable:
                sampler = _Forever()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._batched = batch_sampler is not None
        default = default_collate if self._batched else default_convert
        self.collate_fn = default if collate_fn is None else collate_fn
        self._kept: WorkerIterator | None = None
        self._position = Position(())
        self._resuming = False  # the position was loaded, and its pass goes on at the next iter()
        self._initialised = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__dict__.get("_initialised"):
            raise InvalidArgument(
                f"{name} attribute should not be set after DataLoader is initialized; make another"
            )
        object.__setattr__(self, name, value)

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._batched else self.sampler

    @property
    def _make_fetcher(self) -> Callable[[], Any]:
        """Makes what reads the dataset; knows nothing else, as it is sent to the workers."""
        options = (self.dataset, self._batched, self.collate_fn)
        if self._iterable:
            return functools.partial(IterableFetcher, *options, self.drop_last)
        return functools.partial(MapFetcher, *options)

    @property
    def _own_generators(self) -> list[Generator]:
        """The generators that were given to the loader or its samplers."""
        holders = (
            self,
            self.sampler,
            self.batch_sampler,
            getattr(self.batch_sampler, "sampler", 0),
        )
        found = (getattr(holder, "generator", None) for holder in holders)
        kept = {id(g): g for g in found if isinstance(g, Generator) and g is not default_generator}
        return list(kept.values())

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if not self._resuming:
            self._position = self._next_position()
            self._position.running = True
            return self._pinned(self._begin())
        self._resuming = False
        now = state_of(default_generator)
        try:
            self._position.restore(self._own_generators)
            return self._pinned(self._begin())
        finally:
            set_state(default_generator, now)

    def _pinned(self, batches: Iterator[Any]) -> Iterator[Any]:
        return pinned(batches) if self.pin_memory and cuda.is_available() else batches

    def _begin(self) -> Iterator[Any]:
        """An iterator from the position on; the generators are as they were at the pass's begin."""
        position = self._position
        indices = iter(self._index_sampler)
        seed = draw_seed(self.generator) if position.drawn else position.seed or 0
        position.seed = seed if self.persistent_workers else None
        read_again = (self.batch_size or 1) if self._iterable else 0  # items for each batch
        if not self._iterable:
            for _ in itertools.islice(indices, position.batches):
                pass
        if self.num_workers:
            iterator = self._kept if self._kept is not None and not self._kept.closed else None
            iterator = iterator or self._make_workers(seed)
            self._kept = iterator if self.persistent_workers else None
            iterator.begin(self._index_sampler, indices, position, read_again, seed)
            return iterator
        fetcher = self._make_fetcher()
        if self._iterable:
            fetcher.skip(position.batches * read_again)
        return _iterate_here(indices, fetcher, position)

    def _next_position(self) -> Position:
        """Where the next pass begins. Workers that are kept draw no seed again, as in PyTorch."""
        position = Position(self._own_generators)
        position.follow(self._position)
        return position

    def _make_workers(self, seed: int) -> WorkerIterator:
        return WorkerIterator(
            self._make_fetcher, self.dataset, self.num_workers, seed, self.worker_init_fn,
            self.multiprocessing_context, self.prefetch_factor or 1, self.timeout,
            self.persistent_workers,
        )  # fmt: skip

    # ---- checkpoints -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The position in the running pass, in plain values; between passes, that of the next.

        A pass is remembered by the states that its generators had when it began: the loader's and
        its samplers' own, and the default one. They must be adjoint's, and nothing else should
        draw from the loader's own. Saved beside it, `get_rng_state()` resumes everything else.

        >>> loader = ad.data.DataLoader(range(5), shuffle=True)
        >>> batches = iter(loader)
        >>> first, state = next(batches), loader.state_dict()
        >>> other = ad.data.DataLoader(range(5), shuffle=True)
        >>> other.load_state_dict(state)
        >>> list(other) == list(batches)
        True
        """
        running = self._position.running
        position = self._position if running else self._next_position()
        return {**position.state_dict(), "length": self._length()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next pass continue the one in which `state_dict()` was called.

        Batches that were handed out before are not read again, except from an IterableDataset,
        which has no other way to get past them. In workers, adjoint's random numbers go on as well;
        Python's and NumPy's begin anew.

        Errors: CheckpointError for the state of a loader of another kind or length.
        """
        position = Position.of(state_dict)
        own = self._own_generators
        if len(position.own) != len(own):
            raise CheckpointError(
                f"DataLoader.load_state_dict: the state is of a loader with {len(position.own)} "
                f"generators of its own, this one has {len(own)}; give both the same options"
            )
        if state_dict.get("length") != self._length():
            raise CheckpointError(
                f"DataLoader.load_state_dict: the state is of a loader with "
                f"{state_dict.get('length')} batches a pass, this one has {self._length()}; the "
                "dataset, batch_size and drop_last must be the same"
            )
        workers = len(position.workers or ())
        if self._iterable and position.running and workers != self.num_workers:
            raise CheckpointError(
                f"DataLoader.load_state_dict: the state is of a loader with {workers} workers, "
                f"this one has {self.num_workers}; they share out an IterableDataset differently"
            )
        self._resuming = position.running
        self._position = position
        if not position.running:
            for generator, state in zip(own, position.own, strict=True):
                set_state(generator, state)

    def _length(self) -> int | None:
        try:
            return len(self)
        except (TypeError, NotImplementedError):  # as datasets and samplers without a length say
            return None


def _assert_worker_options(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool
) -> None:
    if num_workers < 0:
        raise InvalidArgument(
            f"DataLoader: num_workers option should be non-negative, got {num_workers}; use "
            "num_workers=0 to disable multiprocessing."
        )
    if timeout < 0:
        raise InvalidArgument(f"DataLoader: timeout option should be non-negative, got {timeout}")
    if not num_workers and prefetch_factor is not None:
        raise InvalidArgument(
            "DataLoader: prefetch_factor option could only be specified in multiprocessing. Let "
            "num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise InvalidArgument(
            f"DataLoader: prefetch_factor option should be positive, got {prefetch_factor}"
        )
    if persistent and not num_workers:
        raise InvalidArgument("DataLoader: persistent_workers option needs num_workers > 0")


def _assert_unspecified(**options: Any) -> None:
    for name, value in options.items():
        if value is not None and value is not False:
            raise InvalidArgument(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )


class _Forever:
    """The indices of an IterableDataset: none that mean anything."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


def _iterate_here(indices: Iterator[Any], fetcher: Any, position: Position) -> Iterator[Any]:
    for wanted in indices:
        try:
            batch = observed(_NEXT, fetcher.fetch, wanted)
        except Exhausted:
            break
        position.advance()
        yield batch
    position.running = False
