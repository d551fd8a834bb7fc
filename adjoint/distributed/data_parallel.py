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
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..autograd.engine import is_walking
from ..autograd.modes import is_grad_enabled
from ..core.errors import AutogradError, DistributedError, InvalidArgument, InvalidType, Unsupported
from ..nn.modules.module import Module
from ..runtime.writes import announce
from .buckets import GradBucket
from .group import group_of
from .objects import all_gather_object
from .process_group import ProcessGroup
from .reducer import _FORWARD, _NAME, _highest
from .reducer import Reducer as Reducer
from .transfer_buffers import assert_eager
from .work import Work

__all__ = ["DistributedDataParallel"]


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
        """Context in which gradients add up on each rank; the next backward outside averages them.

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
        """The subset of PyTorch's logging data that exists here; trainers read it."""
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
        """Takes part in the other ranks' operations until all are done."""
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
        """Register `hook(state, bucket)`, which sends gradients and returns a Future of the
        averaged row.

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
