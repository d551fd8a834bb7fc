"""Reducer: gradients are put into buckets and averaged among ranks, while backward goes on."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..autograd.engine import at_end
from ..core.errors import AutogradError, DistributedError, InvalidArgument, InvalidType, LayoutError
from ..runtime.tensors import wrap
from ..runtime.writes import announce
from .buckets import ACTIVE, MISSING, PRESENT, Bucket, GradBucket, assigned
from .objects import all_gather_object
from .process_group import ProcessGroup
from .protocol import ReduceOp
from .transfer_buffers import assert_eager, reducing
from .work import Work

__all__: list[str] = []

_NAME = "DistributedDataParallel"
_FORWARD, _BACKWARD = 1, 2  # what ranks that go on tell those that have joined


def _highest(group: ProcessGroup, number: int) -> int:
    """The highest of all ranks' numbers."""
    row = np.array([number], np.int64)
    Work(group, f"{_NAME}: join", group.engine.all_reduce(row, ReduceOp.MAX)).wait()
    return int(row[0])


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
            p.register_post_accumulate_grad_hook(_Arrival(itself, number))

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
        """Begins to average a row of gradients and flags; returns the work to wait for."""
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
        """Ends the backward pass: sends the remaining buckets, waits for all, and gives gradients
        back.
        """
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
        """Ends the backward pass with one rank, whose gradients are the averages already."""
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
        """Raises the error for parameters without gradients, on all ranks, since all know the
        flags.
        """
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
        """Tells the joined ranks the next operation; returns a rank that has not joined."""
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
        """The next operation of the other ranks, and the rank of one that does it; None once all
        ranks are done.
        """
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


class _Arrival:
    """Hook of a parameter, which does not keep the reducer alive."""

    _read_by_name: ClassVar[tuple[str, ...]] = ()  # compiled functions call it as it is

    def __init__(self, reducer: weakref.ref[Any], number: int) -> None:
        self.reducer = reducer
        self.number = number

    def __call__(self, p: Any) -> None:
        reducer = self.reducer()
        if reducer is not None:
            reducer.arrived(self.number)


def _changed(x: Any) -> None:
    """A gradient was changed."""
    for version in announce((x,), "all_reduce"):
        version.bump("all_reduce")
