"""Collectives on tensors, with PyTorch's names and signatures; messages are in `messages`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ..core.errors import DistributedError, DTypeError, InvalidArgument, ShapeError
from ..runtime.public import naming
from .messages import _TAG, P2POp, batch_isend_irecv, irecv, isend, recv, send
from .process_group import ProcessGroup
from .protocol import ReduceOp
from .transfer_buffers import (
    _assert_parts,
    _chosen,
    _handing,
    _root,
    _same,
    assert_eager,
    buffer_of,
    described,
    reducing,
    source_of,
    started,
    target_of,
)
from .work import Pending, Work, seconds_of

__all__ = [
    "P2POp", "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "gather", "irecv", "isend",
    "monitored_barrier", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "send",
]  # fmt: skip


@naming
def all_reduce(
    tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Make `tensor`, on all ranks, what the ranks' tensors become by `op`.

    Sums of 16-bit floats are sums in float32, rounded once.

    Errors: DistributedError where ranks do not answer; InvalidArgument unless it is contiguous.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce

    >>> ad.distributed.init_process_group("fake", rank=0, world_size=4)
    >>> ad.distributed.all_reduce(x := ad.tensor([1., 2.]))
    >>> x
    tensor([4., 8.])
    >>> ad.distributed.destroy_process_group()
    """
    chosen = _chosen(group, "all_reduce")
    if chosen is None:
        return None
    buffer = target_of(tensor, "all_reduce")
    what = described("all_reduce", tensor, f" ({getattr(op, 'value', op)})")
    chosen.assert_usable(what)
    chosen.compare(what)
    pending, finish = reducing(chosen, buffer, op, "all_reduce", chosen.engine.all_reduce)
    return started(Work(chosen, what, pending, finish, [tensor]), async_op)


@naming
def reduce(
    tensor: Any,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Make the tensor of rank `dst` what all ranks' become; the others' are undefined afterwards.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.reduce
    """
    chosen = _chosen(group, "reduce")
    if chosen is None:
        return None
    root = _root(chosen, dst, group_dst, "reduce")
    buffer = target_of(tensor, "reduce")
    what = described("reduce", tensor, f" ({getattr(op, 'value', op)} to {chosen.ranks[root]})")
    chosen.assert_usable(what)
    chosen.compare(what)
    engine = chosen.engine
    pending, finish = reducing(
        chosen, buffer, op, "reduce", lambda row, plain: engine.reduce(row, root, plain)
    )
    if engine.rank != root:
        finish = None
    return started(Work(chosen, what, pending, finish, [tensor]), async_op)


@naming
def broadcast(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Make `tensor`, on all ranks, that of rank `src`.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.broadcast(ad.ones(2), src=0)
    >>> ad.distributed.destroy_process_group()
    """
    chosen = _chosen(group, "broadcast")
    if chosen is None:
        return None
    root = _root(chosen, src, group_src, "broadcast")
    if chosen.rank() == root:
        buffer = source_of(tensor, "broadcast")
    else:
        buffer = target_of(tensor, "broadcast")
    what = described("broadcast", tensor, f" (from {chosen.ranks[root]})")
    chosen.assert_usable(what)
    chosen.compare(what)
    return started(
        Work(chosen, what, chosen.engine.broadcast(buffer, root), None, [tensor]), async_op
    )


@naming
def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Fill `output_tensor` with all ranks' `input_tensor`, one after the other.

    Shapes: the output is the inputs joined along, or stacked in, its first dimension.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_into_tensor

    >>> ad.distributed.init_process_group("fake", rank=0, world_size=2)
    >>> ad.distributed.all_gather_into_tensor(out := ad.zeros(4), ad.tensor([1., 2.]))
    >>> out
    tensor([1., 2., 1., 2.])
    >>> ad.distributed.destroy_process_group()
    """
    name = "all_gather_into_tensor"
    chosen = _chosen(group, name)
    if chosen is None:
        return None
    buffer, out = source_of(input_tensor, name), target_of(output_tensor, name)
    _assert_parts(out, buffer, chosen.size(), name)
    what = described(name, input_tensor)
    chosen.assert_usable(what)
    chosen.compare(what)
    pending = chosen.engine.all_gather(out, buffer)
    return started(Work(chosen, what, pending, None, output_tensor), async_op)


@naming
def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Fill `tensor_list` with all ranks' `tensor`, in the order of ranks; all have one shape.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather

    >>> ad.distributed.init_process_group("fake", rank=0, world_size=2)
    >>> ad.distributed.all_gather(parts := [ad.zeros(2), ad.zeros(2)], ad.ones(2))
    >>> parts
    [tensor([1., 1.]), tensor([1., 1.])]
    >>> ad.distributed.destroy_process_group()
    """
    chosen = _chosen(group, "all_gather")
    if chosen is None:
        return None
    buffer = source_of(tensor, "all_gather")
    _same(tensor_list, tensor, chosen.size(), "all_gather", "tensor_list")
    outs = [target_of(x, "all_gather") for x in tensor_list]
    for out in outs:
        _assert_parts(out, buffer, 1, "all_gather")
    what = described("all_gather", tensor)
    chosen.assert_usable(what)
    chosen.compare(what)
    whole = np.empty(buffer.size * chosen.size(), buffer.dtype)
    pending = chosen.engine.all_gather(whole, buffer)
    return started(Work(chosen, what, pending, _handing(whole, outs), list(tensor_list)), async_op)


@naming
def gather(
    tensor: Any,
    gather_list: Sequence[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Fill `gather_list` of rank `dst` with all ranks' `tensor`.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.gather
    """
    chosen = _chosen(group, "gather")
    if chosen is None:
        return None
    root = _root(chosen, dst, group_dst, "gather")
    buffer = source_of(tensor, "gather")
    outs, whole = None, None
    if chosen.rank() == root:
        _same(gather_list or (), tensor, chosen.size(), "gather", "gather_list")
        outs = [target_of(x, "gather") for x in gather_list or ()]
        for out in outs:
            _assert_parts(out, buffer, 1, "gather")
        whole = np.empty(buffer.size * chosen.size(), buffer.dtype)
    elif gather_list:
        raise InvalidArgument("gather: gather_list must not be given on ranks other than dst")
    what = described("gather", tensor, f" (to {chosen.ranks[root]})")
    chosen.assert_usable(what)
    chosen.compare(what)
    pending = chosen.engine.gather(whole, buffer, root)
    finish = None if outs is None else _handing(whole, outs)
    return started(Work(chosen, what, pending, finish, list(gather_list or ())), async_op)


@naming
def scatter(
    tensor: Any,
    scatter_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Make `tensor`, on each rank, its entry of the `scatter_list` of rank `src`.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.scatter
    """
    chosen = _chosen(group, "scatter")
    if chosen is None:
        return None
    root = _root(chosen, src, group_src, "scatter")
    out = target_of(tensor, "scatter")
    whole = None
    if chosen.rank() == root:
        _same(scatter_list or (), tensor, chosen.size(), "scatter", "scatter_list")
        rows = [source_of(x, "scatter") for x in scatter_list or ()]
        for row in rows:
            _assert_parts(row, out, 1, "scatter")
        whole = np.concatenate(rows)
    elif scatter_list:
        raise InvalidArgument("scatter: scatter_list must not be given on ranks other than src")
    what = described("scatter", tensor, f" (from {chosen.ranks[root]})")
    chosen.assert_usable(what)
    chosen.compare(what)
    pending = chosen.engine.scatter(out, whole, root)
    return started(Work(chosen, what, pending, None, [tensor]), async_op)


@naming
def reduce_scatter_tensor(
    output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Make `output`, on each rank, its part of what all ranks' `input` become.

    Shapes: the input is as many outputs, joined along or stacked in its first dimension.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.reduce_scatter_tensor

    >>> ad.distributed.init_process_group("fake", rank=1, world_size=2)
    >>> ad.distributed.reduce_scatter_tensor(out := ad.zeros(1), ad.tensor([1., 2.]))
    >>> out
    tensor([4.])
    >>> ad.distributed.destroy_process_group()
    """
    name = "reduce_scatter_tensor"
    chosen = _chosen(group, name)
    if chosen is None:
        return None
    return _reduce_scatter(chosen, output, source_of(input, name), op, name, async_op)


@naming
def reduce_scatter(
    output: Any,
    input_list: Sequence[Any],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Make `output`, on each rank, what all ranks' entries of that number become.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.reduce_scatter
    """
    name = "reduce_scatter"
    chosen = _chosen(group, name)
    if chosen is None:
        return None
    _same(input_list, output, chosen.size(), name, "input_list")
    rows = [buffer_of(x, name) for x in input_list]
    out = buffer_of(output, name)
    for row in rows:
        _assert_parts(row, out, 1, name)
    return _reduce_scatter(chosen, output, np.concatenate(rows), op, name, async_op)


def _reduce_scatter(
    chosen: ProcessGroup, output: Any, whole: Any, op: ReduceOp, name: str, async_op: bool
) -> Work | None:
    out = target_of(output, name)
    _assert_parts(whole, out, chosen.size(), name)
    what = described(name, output, f" ({getattr(op, 'value', op)})")
    chosen.assert_usable(what)
    chosen.compare(what)
    engine = chosen.engine

    def begin(row: Any, plain: ReduceOp) -> Pending:
        return engine.reduce_scatter(row, row_as(whole, row.dtype), plain)

    pending, finish = reducing(chosen, out, op, name, begin)
    return started(Work(chosen, what, pending, finish, [output]), async_op)


def row_as(whole: Any, dtype: Any) -> Any:
    """A row in the numbers in which it is reduced."""
    if whole.dtype == dtype:
        return whole
    return whole.view(dtype) if whole.dtype.kind in "cb" else whole.astype(dtype)


@naming
def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send part i of `input` to rank i, and fill `output` with what comes, in the order of ranks.

    Without sizes (along the first dimension) the parts are equal.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_to_all_single
    """
    name = "all_to_all_single"
    chosen = _chosen(group, name)
    if chosen is None:
        return None
    buffer, out = source_of(input, name), target_of(output, name)
    if buffer.dtype != out.dtype:
        raise DTypeError(f"{name}: the tensors are of {out.dtype} and {buffer.dtype}; convert one")
    counts = _counts(input, input_split_sizes, chosen.size(), name, "input")
    out_counts = _counts(output, output_split_sizes, chosen.size(), name, "output")
    what = f"{name} of {input.dtype}"  # shapes may differ
    chosen.assert_usable(what)
    chosen.compare(what)
    pending = chosen.engine.all_to_all(out, buffer, out_counts, counts)
    return started(Work(chosen, what, pending, None, output), async_op)


def _counts(x: Any, sizes: Sequence[int] | None, size: int, name: str, what: str) -> list[int]:
    """Number of elements of each rank's part."""
    shape = tuple(x.shape)
    rows = shape[0] if shape else 1
    if not sizes:
        if rows % size:
            raise ShapeError(
                f"{name}: the {what}'s first dimension of {rows} is not divisible by {size} ranks; "
                f"give {what}_split_sizes"
            )
        sizes = [rows // size] * size
    if len(sizes) != size or sum(sizes) != rows or min(sizes) < 0:
        raise ShapeError(
            f"{name}: {what}_split_sizes {list(sizes)} must be {size} sizes whose sum is {rows}"
        )
    width = int(np.prod(shape[1:], dtype=np.int64))
    return [n * width for n in sizes]


@naming
def all_to_all(
    output_tensor_list: Sequence[Any],
    input_tensor_list: Sequence[Any],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send entry i to rank i, and fill the outputs with what comes, in the order of ranks.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_to_all
    """
    name = "all_to_all"
    chosen = _chosen(group, name)
    if chosen is None:
        return None
    size = chosen.size()
    _same(input_tensor_list, input_tensor_list[0], size, name, "input_tensor_list")
    _same(output_tensor_list, input_tensor_list[0], size, name, "output_tensor_list")
    rows = [buffer_of(x, name) for x in input_tensor_list]
    outs = [target_of(x, name) for x in output_tensor_list]
    what = f"{name} of {input_tensor_list[0].dtype}"
    chosen.assert_usable(what)
    chosen.compare(what)
    whole = np.empty(sum(out.size for out in outs), rows[0].dtype)
    pending = chosen.engine.all_to_all(
        whole, np.concatenate(rows), [out.size for out in outs], [row.size for row in rows]
    )
    return started(
        Work(chosen, what, pending, _handing(whole, outs), list(output_tensor_list)), async_op
    )


@naming
def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait for all ranks.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.barrier

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.barrier()
    >>> ad.distributed.destroy_process_group()
    """
    chosen = _chosen(group, "barrier")
    if chosen is None:
        return None
    assert_eager("barrier")
    chosen.assert_usable("barrier")
    chosen.compare("barrier")
    return started(Work(chosen, "barrier", chosen.engine.barrier()), async_op)


@naming
def monitored_barrier(
    group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait for all ranks, and name those that do not come within `timeout`.

    Rank 0 hears from each other rank, and each hears from it; so it alone knows who is late.
    `wait_all_ranks` names all of them, otherwise the first.

    Errors: DistributedError with the ranks that did not come.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.monitored_barrier()
    >>> ad.distributed.destroy_process_group()
    """
    name = "monitored_barrier"
    chosen = _chosen(group, name)
    if chosen is None:
        return
    assert_eager(name)
    chosen.assert_usable(name)
    seconds = chosen.seconds if timeout is None else seconds_of(timeout)
    engine = chosen.engine
    token = np.zeros(1, np.uint8)
    if engine.rank:
        Work(chosen, name, engine.send(token, 0, _TAG)).wait(seconds)
        Work(chosen, name, engine.receive(token, 0, _TAG)).wait(seconds)
        return
    end = time.monotonic() + seconds
    waiting = {r: engine.receive(np.zeros(1, np.uint8), r, _TAG) for r in range(1, engine.size)}
    late = []
    for rank, pending in waiting.items():
        try:
            come = pending.wait(max(end - time.monotonic(), 0.01))
        except Exception:  # whatever the engine's library raises where a rank is dead or late
            come = False
        if not come:
            late.append(int(chosen.ranks[rank]))
            if not wait_all_ranks:
                break
    if late:
        error = chosen.failed(name, f"not all came within {seconds:g} s")
        who = f"rank {late[0]}" if len(late) == 1 else f"ranks {late}"
        raise DistributedError(f"{name}: {who} failed to reach it within {seconds:g} s. {error}")
    for rank in waiting:
        Work(chosen, name, engine.send(token, rank, _TAG)).wait(seconds)
