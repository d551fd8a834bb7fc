"""DistributedDataParallel: each rank trains on its share of a batch, and gradients are averaged.

In backward, a hook on each parameter notes that its gradient is there; a bucket (buckets.py) whose
gradients are all there leaves, in one order on all ranks. At the end of backward the others leave,
too, and all are awaited. What a rank sends of a parameter is its `.grad`, or zeros where it has
none; so what was added up under `no_sync`, or by an earlier backward, is part of it, whichever
parameters the last backward has used.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..autograd.engine import at_end, is_walking
from ..autograd.modes import is_grad_enabled
from ..core.errors import (
    AutogradError,
    DistributedError,
    InvalidArgument,
    InvalidType,
    LayoutError,
    Unsupported,
)
from ..eager.tensors import wrap
from ..eager.writes import announce
from ..nn.modules.module import Module
from .buckets import ACTIVE, MISSING, PRESENT, Bucket, GradBucket, assigned
from .collectives import assert_eager, reducing
from .group import ProcessGroup, ReduceOp, group_of
from .objects import all_gather_object
from .work import Work

__all__ = ["DistributedDataParallel"]

_NAME = "DistributedDataParallel"
_FORWARD, _BACKWARD = 1, 2  # what ranks that go on tell those that have joined


class DistributedDataParallel(Module):
    """`module`, whose gradients are the means of all ranks' after each backward.

    Its parameters and buffers become those of rank 0. With `broadcast_buffers` the buffers do so
    before each forward. `bucket_cap_mb`: how much is sent as one. `gradient_as_bucket_view`: the
    gradients lie in the memory that is sent, so nothing is copied. `find_unused_parameters`: a
    parameter may get no gradient, on some ranks or all; without it that is an error on all ranks,
    which says which parameter on which rank. `static_graph`: each backward is like the first one,
    in which a parameter may be used by several backwards inside of one another (checkpoints), or
    not at all.

    Errors: InvalidArgument where the ranks' modules differ or nothing wants a gradient.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html

    >>> ad.distributed.init_process_group()
    >>> model = ad.nn.parallel.DistributedDataParallel(ad.nn.Linear(2, 1))
    >>> model(ad.ones(4, 2)).sum().backward()
    >>> model.module.weight.grad
    tensor([[4., 4.]])
    >>> ad.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        mixed_precision: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise InvalidType(f"{_NAME}: expected a Module, but got {type(module).__name__}")
        if mixed_precision is not None:
            raise Unsupported(f"{_NAME}: mixed_precision is not served; use ad.autocast")
        if device_ids or output_device is not None:
            raise Unsupported(
                f"{_NAME}: device_ids and output_device are of modules on GPUs, which are not "
                "served yet; leave them out"
            )
        cap = 25 if bucket_cap_mb is None else bucket_cap_mb
        if not cap > 0:
            raise InvalidArgument(f"{_NAME}: bucket_cap_mb must be positive, but got {cap!r}")
        self.process_group = group_of(process_group, _NAME)
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        named = list(module.named_parameters())
        wanting = [(name, p) for name, p in named if p.requires_grad]
        if not wanting:
            raise InvalidArgument(
                f"{_NAME}: DistributedDataParallel is not needed when a module doesn't have any "
                "parameter that requires a gradient."
            )
        self._others = [(name, p) for name, p in named if not p.requires_grad]
        if init_sync:
            assert_alike(self.process_group, named)
            sync(self.process_group, [p for _, p in named] + list(module.buffers()), 0)
        self._reducer = Reducer(
            self.process_group,
            wanting,
            int(cap * 1024 * 1024),
            views=gradient_as_bucket_view,
            lenient=find_unused_parameters or static_graph,
            static=static_graph,
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's; buffers become those of rank 0 first."""
        assert_eager(_NAME)
        if self.process_group.replaced:
            raise DistributedError(
                f"{_NAME}: the world was shrunk since the module was wrapped; wrap it again"
            )
        reducer = self._reducer
        for name, p in self._others:
            if p.requires_grad:
                raise AutogradError(
                    f"{_NAME}: parameter {name!r} wants a gradient and did not when it was "
                    "wrapped, so it would not be averaged; wrap the module again"
                )
        if is_grad_enabled() and not is_walking():  # a checkpoint runs it again in backward
            reducer.abandon()
            reducer.syncs = self.require_backward_grad_sync
        shares_buffers = self.broadcast_buffers and not reducer.is_alone
        buffers = list(self.module.buffers()) if shares_buffers else []
        if buffers and self.require_backward_grad_sync:
            source = reducer.tell(_FORWARD)
            sync(self.process_group, buffers, source, beside=True)
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards of what is computed in here add up on each rank; the next one outside averages.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Train on unequal numbers of batches: a rank that leaves the block early takes part in
        what the others do, with gradients of zero, until all have left it; then all have the
        parameters and buffers of one that was there last.

        Gradients are divided by the number of all ranks, or, without
        `divide_by_initial_world_size`, of those that still train. With
        `throw_on_early_termination` the others raise instead, as soon as one has left.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.join
        """
        if not enable:
            yield
            return
        reducer = self._reducer
        if reducer.joining:
            raise InvalidArgument(f"{_NAME}: join inside of join")
        reducer.joining, reducer.throws = True, throw_on_early_termination
        reducer.by_active = not divide_by_initial_world_size
        try:
            yield
            reducer.abandon()
            self._shadow()
        finally:
            reducer.joining = reducer.by_active = False

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What PyTorch's says of this module that there is here, which trainers read."""
        group, buckets = self.process_group, self._reducer.buckets
        sizes = [bucket.size * bucket.row.itemsize for bucket in buckets]
        return {
            "world_size": group.size(), "rank": group.rank(), "backend_name": group.name(),
            "module_name": type(self.module).__name__,
            "num_parameter_tensors": len(self._reducer.parameters),
            "total_parameter_size_bytes": sum(sizes), "bucket_sizes": ", ".join(map(str, sizes)),
            "find_unused_parameters": int(self.find_unused_parameters),
            "broadcast_buffers": int(self.broadcast_buffers),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
        }  # fmt: skip

    def _shadow(self) -> None:
        """Take part in what the others do, until nobody does anything."""
        reducer = self._reducer
        state = list(self.module.parameters()) + list(self.module.buffers())
        last = -1  # a rank that was active the last time something was done
        while True:
            kind, source = reducer.listen()
            if kind is None:
                break
            last = source
            if kind == _FORWARD:
                sync(self.process_group, list(self.module.buffers()), source, beside=True)
            else:
                reducer.shadow()
        last = _highest(self.process_group, -1 if last >= 0 else self.process_group.rank())
        sync(self.process_group, state, last)

    def register_comm_hook(self, state: object, hook: Callable[[object, GradBucket], Any]) -> None:
        """Let `hook(state, bucket)` send gradients: it returns a Future of the averaged row.

        Errors: InvalidArgument where there is one already.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.register_comm_hook
        """
        if not callable(hook):
            raise InvalidType(f"{_NAME}: communication hook must be callable, got {hook!r}")
        if self._reducer.hook is not None:
            raise InvalidArgument(
                f"{_NAME}: register_comm_hook or register_builtin_comm_hook can only be called "
                "once."
            )
        self._reducer.hook = functools.partial(hook, state)


# ---- what all ranks hold -------------------------------------------------------------------------


def assert_alike(group: ProcessGroup, named: list[tuple[str, Any]], caller: str = _NAME) -> None:
    """Refuse modules that differ from rank to rank, and say where."""
    mine = [f"{name}: {tuple(p.shape)} {p.dtype} {p.requires_grad}" for name, p in named]
    row = np.frombuffer(hashlib.sha256("\n".join(mine).encode()).digest(), np.uint8).copy()
    rows = np.zeros(group.size() * row.size, np.uint8)
    Work(group, f"{caller}: the comparison of modules", group.engine.all_gather(rows, row)).wait()
    if not (rows.reshape(group.size(), -1) != row).any():
        return
    everyones: list[Any] = [None] * group.size()
    all_gather_object(everyones, mine, group)
    for rank, theirs in enumerate(everyones):
        for here, there in zip(everyones[0], theirs, strict=False):
            if here != there:
                raise InvalidArgument(
                    f"{caller}: the ranks' modules differ: rank {group.ranks[0]} has {here}, rank "
                    f"{group.ranks[rank]} has {there} (shape, dtype, whether it wants a gradient)"
                )
        if len(theirs) != len(everyones[0]):
            raise InvalidArgument(
                f"{caller}: the ranks' modules differ: rank {group.ranks[0]} has "
                f"{len(everyones[0])} parameters, rank {group.ranks[rank]} has {len(theirs)}"
            )


TOGETHER = 1 << 18  # bytes of tensors that travel in one message


def sync(
    group: ProcessGroup,
    tensors: list[Any],
    source: int,
    *,
    beside: bool = False,
    caller: str = _NAME,
) -> None:
    """Make tensors those of a rank of the group. Where they go `beside` them first, those that are
    as they should be are not written: an earlier forward may have saved them for its backward.
    """
    if group.size() == 1:
        return
    mine = group.rank() == source
    works = []
    for own in _together(tensors, caller):
        row = _row(own, mine or not beside)
        shapes = ", ".join(str(tuple(x.shape)) for x in own)
        what = f"{caller}: broadcast of {own[0].dtype} {shapes} (from {group.ranks[source]})"
        group.assert_usable(what)
        works.append((own, row, Work(group, what, group.engine.broadcast(row, source))))
    for own, row, work in works:
        work.wait()
        start = 0
        for x in () if mine else own:
            data = x._data
            found = row[start : start + data.size].reshape(data.shape)
            start += data.size
            there = np.shares_memory(found, data)
            if not there and found.tobytes() == data.tobytes():
                continue
            versions = announce((x,), "broadcast")
            if not there:
                data[...] = found
            for version in versions:
                version.bump("broadcast")


def _together(tensors: list[Any], caller: str) -> list[list[Any]]:
    """Tensors that travel in one message: small ones of a dtype, as a norm's statistics are."""
    found: list[list[Any]] = []
    small: dict[Any, tuple[list[Any], int]] = {}  # by dtype: those of a message, and their bytes
    for x in tensors:
        data = x._data
        if type(data) is not np.ndarray:
            raise Unsupported(f"{caller}: tensors on {x.device} are not served yet; use the CPU")
        own, size = small.get(data.dtype, ([], TOGETHER))
        if data.nbytes > TOGETHER or size + data.nbytes > TOGETHER:
            own, size = [], 0
            found.append(own)
        own.append(x)
        if data.nbytes <= TOGETHER:
            small[data.dtype] = own, size + data.nbytes
    return found


def _row(tensors: list[Any], in_place: bool) -> Any:
    """The elements of tensors one after another; of a single one its memory, if it is writable."""
    if len(tensors) > 1:
        return np.concatenate([x._data.reshape(-1) for x in tensors])
    data = tensors[0]._data
    plain = data.flags.c_contiguous and data.flags.writeable
    return data.reshape(-1) if plain and in_place else data.flatten()


def _highest(group: ProcessGroup, number: int) -> int:
    """The highest of all ranks' numbers."""
    row = np.array([number], np.int64)
    Work(group, f"{_NAME}: join", group.engine.all_reduce(row, ReduceOp.MAX)).wait()
    return int(row[0])


# ---- gradients -----------------------------------------------------------------------------------


class Reducer:
    """The buckets of a module's parameters, and which of them have left."""

    def __init__(
        self,
        group: ProcessGroup,
        named: list[tuple[str, Any]],
        cap: int,
        *,
        views: bool,
        lenient: bool,
        static: bool,
    ) -> None:
        self.group = group
        self.is_alone = group.size() == 1
        self.names = [name for name, _ in named]
        self.parameters = parameters = [p for _, p in named]
        self.hook: Callable[[GradBucket], Any] | None = None
        self.views = views  # gradients lie in buckets
        self.lenient = lenient  # parameters may get no gradient
        self.syncs = False  # whether the last forward asked for averages
        self.joining = self.throws = self.by_active = False
        self.buckets = [
            Bucket(i, [parameters[n] for n in numbers], numbers)
            for i, numbers in enumerate(assigned(parameters, cap))
        ]
        count = len(parameters)
        self.home = [(self.buckets[0], 0)] * count  # of each parameter: its bucket, the place in it
        for bucket in self.buckets:
            for k, number in enumerate(bucket.numbers):
                self.home[number] = (bucket, k)
        # how often a gradient comes in a backward; None: the first one will tell
        self.expected: list[int] | None = None if static else [1] * count
        self.met = [False] * count  # whether a gradient has come since the last average
        self.times = [0] * count  # how often it has, in this backward
        self.begun = False  # a backward that averages is under way
        self.sent: list[Any] = []  # what is under way, by bucket
        itself = weakref.ref(self)
        for number, p in enumerate(parameters):
            if views:
                bucket, k = self.home[number]
                p._leaf.place = bucket.places[k]
            p.register_post_accumulate_grad_hook(functools.partial(_arrived, itself, number))

    def arrived(self, number: int) -> None:
        """The gradient of a parameter is there."""
        if self.group.replaced:  # the module is wrapped again, by one of the new group
            return
        self.met[number] = True
        if self.is_alone and self.hook is None:
            if self.syncs and not self.begun:
                self.begun = True
                at_end(self.finish_alone)
            return
        assert_eager(_NAME)  # whoever records the module's own backward would lose the averages
        if not self.syncs:
            return
        if not self.begun:
            self.begun = True
            at_end(self.finish)
            if self.joining:
                self.tell(_BACKWARD)
        self.times[number] += 1
        bucket, _ = self.home[number]
        if bucket.index < len(self.sent):
            raise AutogradError(
                f"{_NAME}: parameter {self.names[number]!r} got a gradient again after it had been "
                "sent: it is used by several backwards inside of one another (as checkpoints run "
                "them); pass static_graph=True"
            )
        for work in self.sent[-1:]:
            work.is_completed()  # MPI goes on only while it is called
        self.leave()

    def leave(self) -> None:
        """Send the buckets whose gradients are all there, in order."""
        expected = self.expected
        if expected is None:
            return
        while len(self.sent) < len(self.buckets):
            bucket = self.buckets[len(self.sent)]
            if any(self.times[n] < max(expected[n], 1) for n in bucket.numbers):
                return
            self.send(bucket)

    def send(self, bucket: Bucket) -> None:
        """Begin to average one bucket."""
        row = bucket.row
        bucket.flags(row, ACTIVE)[...] = 1
        present, missing = bucket.flags(row, PRESENT), bucket.flags(row, MISSING)
        for k, number in enumerate(bucket.numbers):
            p, place = self.parameters[number], bucket.places[k]
            g = p.grad
            if not p.requires_grad:  # frozen since: what it has got before stays its own
                if g is place:
                    p.grad = wrap(place._data.copy())
                g = None
            present[k] = g is not None
            missing[k] = p.requires_grad and not self.met[number]
            if g is None:
                place._data[...] = 0
            elif g is not place:
                if g.is_sparse:
                    raise LayoutError(
                        f"{_NAME}: parameter {self.names[number]!r} of shape {tuple(g.shape)} has "
                        "a sparse gradient, which is not averaged: build its Embedding with "
                        "sparse=False, or leave it out of the wrapped module"
                    )
                if g._data.dtype != place._data.dtype or g._data.shape != place._data.shape:
                    raise AutogradError(
                        f"{_NAME}: parameter {self.names[number]!r} has a gradient of "
                        f"{g.dtype} {tuple(g.shape)}, but was {place.dtype} {tuple(place.shape)} "
                        "when it was wrapped; wrap the module again"
                    )
                if g._node is not None:
                    raise self._with_history(number)
                place._data[...] = g._data
        self.sent.append(self.begin(bucket, row))

    def begin(self, bucket: Bucket, row: Any) -> Any:
        """Begin to average a row of gradients and flags; what is to be waited for."""
        group = self.group
        what = f"{_NAME}: bucket {bucket.index} of {len(self.buckets)}, {row.size} {row.dtype.name}"
        group.assert_usable(what)
        group.compare(what)
        engine = group.engine
        if self.hook is None:
            pending, finish = reducing(group, row, ReduceOp.AVG, _NAME, engine.all_reduce)
            return Work(group, what, pending, finish)
        flags = row[bucket.size :]
        pending, finish = reducing(group, flags, ReduceOp.AVG, _NAME, engine.all_reduce)
        of_flags = Work(group, what, pending, finish)
        parameters = [self.parameters[n] for n in bucket.numbers]
        last = bucket.index == len(self.buckets) - 1
        future = self.hook(GradBucket(bucket, row[: bucket.size], parameters, last))
        if not hasattr(future, "wait"):
            raise InvalidType(
                f"{_NAME}: the communication hook returned {type(future).__name__!r}; return a "
                "Future, as work.get_future() gives one"
            )
        return _Hooked(future, of_flags, row[: bucket.size])

    def finish(self) -> None:
        """Backward is over: send what is left, wait for everything, and give gradients back."""
        first = self.expected is None
        while len(self.sent) < len(self.buckets):
            self.send(self.buckets[len(self.sent)])
        for work in self.sent:
            work.wait()
        if first:
            self.expected = list(self.times)
        lacking = [
            bucket.numbers[int(k)]
            for bucket in self.buckets
            for k in np.flatnonzero(bucket.flags(bucket.row, MISSING).real > 0)
        ]
        mine = [n for n in lacking if not self.met[n] and self.parameters[n].requires_grad]
        self.reset()
        if lacking and not self.lenient:
            self._raise_unused(mine)
        for bucket in self.buckets:
            self._give_back(bucket)

    def finish_alone(self) -> None:
        """The same with one rank: its gradients are the averages, where they are."""
        lacking = []
        for number, p in enumerate(self.parameters):
            if not self.met[number] and p.requires_grad:
                lacking.append(number)
            elif p.grad is not None and p.grad._node is not None:
                raise self._with_history(number)
        self.reset()
        if lacking and not self.lenient:
            self._raise_unused(lacking)

    def _with_history(self, number: int) -> AutogradError:
        return AutogradError(
            f"{_NAME}: backward(create_graph=True) gives {self.names[number]!r} a gradient with a "
            "history, which an average would cut off; use ad.autograd.grad on the module itself"
        )

    def _give_back(self, bucket: Bucket) -> None:
        row = bucket.row
        if self.by_active and self.hook is None:
            share = bucket.flags(row, ACTIVE)[0].real
            active = round(float(share) * self.group.size())
            row[: bucket.size] *= row.dtype.type(self.group.size() / active)
        present = bucket.flags(row, PRESENT).real
        for k, number in enumerate(bucket.numbers):
            p, place = self.parameters[number], bucket.places[k]
            if not p.requires_grad or not present[k] > 0:
                continue  # nobody has one
            g = p.grad
            if g is place:
                _changed(place)
            elif g is None:
                p.grad = place if self.views else wrap(place._data.copy())
            else:
                g._data[...] = place._data
                _changed(g)

    def _raise_unused(self, mine: list[int]) -> None:
        """All ranks come here, since all know the flags."""
        everyones: list[Any] = [None] * self.group.size()
        all_gather_object(everyones, [self.names[n] for n in sorted(mine)], self.group)
        said = "; ".join(
            f"on rank {self.group.ranks[rank]}: {', '.join(names)}"
            for rank, names in enumerate(everyones)
            if names
        )
        raise DistributedError(
            f"{_NAME}: parameters got no gradient in this backward ({said}), so gradients were not "
            "averaged as they should be. Use them, freeze them before wrapping, or pass "
            "find_unused_parameters=True"
        )

    def reset(self) -> None:
        """Be ready for the next backward."""
        count = len(self.parameters)
        self.met, self.times = [False] * count, [0] * count
        self.sent, self.begun = [], False

    def abandon(self) -> None:
        """Forget a backward that has failed (on all ranks, or they are lost)."""
        if self.begun:
            for work in self.sent:
                work.wait()
            self.reset()

    # ---- join ----

    def tell(self, kind: int) -> int:
        """Tell the ranks that have joined what comes; a rank of those that have not."""
        if not self.joining:
            return 0
        left, _, source = self._agree(kind)
        if left and self.throws:
            raise DistributedError(
                f"{_NAME}: Detected at least one rank that exhausted inputs ({left} of "
                f"{self.group.size()}). Throwing across all ranks."
            )
        return source

    def listen(self) -> tuple[int | None, int]:
        """What the others do, and a rank of theirs; None where nobody does anything any more."""
        left, kinds, source = self._agree(0)
        if left == self.group.size():
            return None, -1
        if self.throws:
            raise DistributedError(
                f"{_NAME}: Detected at least one rank that exhausted inputs ({left} of "
                f"{self.group.size()}). Throwing across all ranks."
            )
        return max(kinds, key=kinds.__getitem__), source

    def _agree(self, kind: int) -> tuple[int, dict[int, int], int]:
        group = self.group
        row = np.array([kind == 0, kind == _FORWARD, kind == _BACKWARD], np.int64)
        Work(group, f"{_NAME}: join", group.engine.all_reduce(row, ReduceOp.SUM)).wait()
        if row[1] and row[2]:
            raise DistributedError(
                f"{_NAME}: in join, {row[1]} ranks are in a forward and {row[2]} in a backward; "
                "all that still train must do the same"
            )
        source = _highest(group, group.rank() if kind else -1)
        return int(row[0]), {_FORWARD: int(row[1]), _BACKWARD: int(row[2])}, source

    def shadow(self) -> None:
        """Take part in the others' average with nothing."""
        rows = [np.zeros_like(bucket.row) for bucket in self.buckets]
        works = [self.begin(b, row) for b, row in zip(self.buckets, rows, strict=True)]
        for work in works:
            work.wait()
        lacking = any(
            (b.flags(row, MISSING).real > 0).any()
            for b, row in zip(self.buckets, rows, strict=True)
        )
        if lacking and not self.lenient:
            self._raise_unused([])


class _Hooked:
    """A bucket that a hook has sent."""

    def __init__(self, future: Any, flags: Work, row: Any) -> None:
        self.future = future
        self.flags = flags
        self.row = row

    def is_completed(self) -> bool:
        """Whether its flags have come; this makes progress. (The future is left alone: what follows
        from it may send something, at the same time on all ranks.)"""
        return self.flags.is_completed()

    def wait(self) -> bool:
        """Put the hook's result into the bucket."""
        self.flags.wait()
        value = self.future.wait()
        if isinstance(value, (list, tuple)):
            (value,) = value
        if value._data.size != self.row.size:
            raise InvalidArgument(
                f"{_NAME}: the communication hook gave {value._data.size} elements for a bucket of "
                f"{self.row.size}"
            )
        if value._data is not self.row:
            self.row[...] = value._data.reshape(-1)
        return True


def _arrived(itself: Any, number: int, p: Any) -> None:
    reducer = itself()
    if reducer is not None:
        reducer.arrived(number)


def _changed(x: Any) -> None:
    """A gradient was changed."""
    for version in announce((x,), "all_reduce"):
        version.bump("all_reduce")
