"""Collectives that gradients pass through (`torch.distributed.nn`): results are new tensors.

Each one's backward is a collective, too, so all ranks of the group must run backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.function import Function
from ..core.errors import InvalidArgument, Unsupported
from ..ops.create.like import empty_like, zeros_like
from . import collectives
from .group import get_rank, get_world_size
from .protocol import ReduceOp

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce", "reduce_scatter"]


def _share(name: str, op: Any, group: Any) -> float:
    """Weight of each rank's tensor in a sum or a mean.

    Errors: Unsupported for other operations, whose gradients are not those of a sum.
    """
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise Unsupported(
            f"{name}: has no gradient for {op}; use ReduceOp.SUM or AVG, or all_gather and compute"
        )
    return 1.0 if op == ReduceOp.SUM else 1 / get_world_size(group)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, op: Any, group: Any) -> Any:
        ctx.op, ctx.group = op, group
        total = x.detach().clone().contiguous()
        collectives.all_reduce(total, op, group)
        return total

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        total = _AllReduce.apply(g, ReduceOp.SUM, ctx.group)
        return total * _share("all_reduce", ctx.op, ctx.group), None, None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, *parts: Any) -> Any:
        ctx.group = group
        found = [empty_like(x).contiguous() for x in parts]
        collectives.all_to_all(found, [x.detach().contiguous() for x in parts], group)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *_AllToAll.apply(ctx.group, *gradients)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        ctx.group = group
        found = [empty_like(x).contiguous() for _ in range(get_world_size(group))]
        collectives.all_gather(found, x.detach().contiguous(), group)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return sum(_AllToAll.apply(ctx.group, *gradients)), None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, src: int, group: Any) -> Any:
        ctx.src, ctx.group = src, group
        given = x.detach().clone().contiguous()
        collectives.broadcast(given, src, group)
        return given

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        total = _Reduce.apply(g, ctx.src, ReduceOp.SUM, ctx.group)
        return total if get_rank() == ctx.src else zeros_like(total), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, dst: int, op: Any, group: Any) -> Any:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        total = x.detach().clone().contiguous()
        collectives.reduce(total, dst, op, group)
        return total

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        given = _Broadcast.apply(g, ctx.dst, ctx.group)
        return given * _share("reduce", ctx.op, ctx.group), None, None, None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, *parts: Any) -> Any:
        ctx.op, ctx.group = op, group
        found = empty_like(parts[get_rank(group)]).contiguous()
        collectives.reduce_scatter(found, [x.detach().contiguous() for x in parts], op, group)
        return found

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        share = _share("reduce_scatter", ctx.op, ctx.group)
        return None, None, *(part * share for part in _AllGather.apply(g, ctx.group))


def all_reduce(tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Any:
    """Reduces the ranks' tensors by `op`; all ranks get the result.

    The gradient is that of all ranks together.
    Errors: DistributedError where ranks do not answer; in backward, Unsupported where `op` is none
    of SUM and AVG (PyTorch combines gradients by `op`, which is no derivative).
    Source: https://docs.pytorch.org/docs/stable/distributed.html

    >>> from adjoint.distributed import functional
    >>> ad.distributed.init_process_group("fake", rank=0, world_size=4)
    >>> functional.all_reduce(ad.tensor([1.0, 2.0], requires_grad=True))
    tensor([4., 8.], grad_fn=<_AllReduceBackward>)
    >>> ad.distributed.destroy_process_group()
    """
    return _AllReduce.apply(tensor, op, group)


def all_gather(tensor: Any, group: Any = None) -> tuple[Any, ...]:
    """The tensors of all ranks, in their order, on all ranks; they have one shape.

    Errors: DistributedError where ranks do not answer.
    """
    return tuple(_AllGather.apply(tensor, group))


def all_to_all(
    output_tensor_list: Sequence[Any], input_tensor_list: Sequence[Any], group: Any = None
) -> tuple[Any, ...]:
    """Sends the i-th tensor to rank i, and returns what each rank has sent to this one. All have
    one shape.

    Errors: InvalidArgument where what is sent and what comes have different shapes.
    """
    shapes = {tuple(x.shape) for x in (*output_tensor_list, *input_tensor_list)}
    if len(shapes) > 1:
        raise InvalidArgument(
            f"all_to_all: tensors of one shape have gradients, but got {sorted(shapes)}; pad them"
        )
    return tuple(_AllToAll.apply(group, *input_tensor_list))


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    """The tensor of rank `src`, on all ranks; its gradient is the sum of all ranks' gradients.

    Errors: DistributedError where ranks do not answer.
    """
    return _Broadcast.apply(tensor, src, group)


def reduce(tensor: Any, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Any:
    """Reduces the ranks' tensors by `op`; rank `dst` gets the result.

    Errors: DistributedError where ranks do not answer.
    """
    return _Reduce.apply(tensor, dst, op, group)


def reduce_scatter(
    output: Any, input_list: Sequence[Any], op: ReduceOp = ReduceOp.SUM, group: Any = None
) -> Any:
    """Reduces the ranks' i-th tensors by `op`; rank i gets the result.

    Errors: DistributedError where ranks do not answer.
    """
    return _ReduceScatter.apply(op, group, *input_list)
