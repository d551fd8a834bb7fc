"""Hooks that average as usual, or with half the bytes.

Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

from typing import Any

from ....core.dtype import bfloat16, dtype, float16
from ....ops.create.creation import empty, zeros
from ...buckets import GradBucket
from ...collectives import all_gather_into_tensor, all_reduce, all_to_all_single
from ...group import group_of
from ...protocol import ReduceOp
from ...work import Future

__all__ = ["allreduce_hook", "bf16_compress_hook", "fp16_compress_hook"]


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Averages the gradients of all ranks, as happens without a hook.

    Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook
    """
    work: Any = all_reduce(bucket.buffer(), ReduceOp.AVG, process_group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Send bfloat16, add up in float32.

    Each rank gets one part of all ranks' gradients (all-to-all), averages it in float32, and sends
    the average to all. So each number is rounded twice, however many ranks there are.

    Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook
    """
    return _compressed(process_group, bucket, bfloat16)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Send float16, add up in float32: as `bf16_compress_hook`.

    Source: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook
    """
    return _compressed(process_group, bucket, float16)


def _compressed(process_group: Any, bucket: GradBucket, kind: dtype) -> Future:
    group = group_of(process_group, "compress_hook")
    ranks = group.size()
    row = bucket.buffer()
    size = row.numel()
    part = -(-size // ranks)
    sent, got = zeros(part * ranks, dtype=kind), empty(part * ranks, dtype=kind)
    sent[:size] = row
    work: Any = all_to_all_single(got, sent, group=group, async_op=True)

    def average(_: Future) -> Any:
        mine = got.view(ranks, part).float().mean(0).to(kind)
        whole = empty(part * ranks, dtype=kind)
        all_gather_into_tensor(whole, mine, group)
        return whole[:size].to(row.dtype)

    return work.get_future().then(average)
