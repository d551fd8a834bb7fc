"""Buffers that communication reads and writes: the arrays of tensors, and reductions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import DTypeError, InvalidArgument, InvalidType, ShapeError, Unsupported
from ..core.mode import MODE
from ..core.tensor_base import TensorBase
from ..runtime.writes import announce
from .group import GroupMember, group_of
from .process_group import ProcessGroup
from .protocol import ReduceOp
from .work import Pending, Work

__all__: list[str] = []


def assert_eager(name: str) -> None:
    """Refuse communication where a computation is written down."""
    if MODE.get().executor is not None:
        raise Unsupported(
            f"{name}: communication cannot be recorded yet: not in ad.compile, ad.lazy or a Graph; "
            "call it outside of them (compile what computes, and leave DistributedDataParallel and "
            "the optimizer's step eager)"
        )


def buffer_of(x: Any, name: str) -> Any:
    """The memory of a tensor as one row, without a copy.

    Errors: InvalidType, Unsupported or InvalidArgument for what has no such memory.
    """
    if not isinstance(x, TensorBase):
        raise InvalidType(f"{name}: expected a tensor, but got {type(x).__name__}")
    assert_eager(name)
    data = x._data
    if type(data) is not np.ndarray:
        if str(x.device) == "cpu":  # recorded
            raise Unsupported(
                f"{name}: a tensor that is recorded (ad.lazy, a Graph) has no memory of its own; "
                "communicate its detach().clone()"
            )
        raise Unsupported(
            f"{name}: tensors on {str(x.device)!r} are not served yet; communicate x.cpu()"
        )
    if not data.flags.c_contiguous:
        raise InvalidArgument(
            f"{name}: tensors must be contiguous, but this one of shape {tuple(x.shape)} has "
            f"strides {tuple(x.stride())}; call .contiguous() first"  # type: ignore[attr-defined]
        )
    return data.reshape(-1)


def target_of(x: Any, name: str) -> Any:
    """The memory of a tensor that is about to be written, as one row; its version grows."""
    buffer = buffer_of(x, name)
    if not buffer.flags.writeable:
        raise InvalidArgument(f"{name}: the tensor's memory is read-only; clone it first")
    for version in announce((x,), name):
        version.bump(name)
    return buffer


def source_of(x: Any, name: str) -> Any:
    """The memory of a tensor that is sent; a copy, where engines may not take it as it is."""
    buffer = buffer_of(x, name)
    return buffer if buffer.flags.writeable else buffer.copy()


def described(name: str, x: Any, more: str = "") -> str:
    """An operation for messages."""
    shape = tuple(x.shape)
    return f"{name}{more} of {x.dtype} {shape}"


def _same(tensors: Sequence[Any], like: Any, count: int, name: str, what: str) -> None:
    if not isinstance(tensors, (list, tuple)) or len(tensors) != count:
        number = len(tensors) if isinstance(tensors, (list, tuple)) else type(tensors).__name__
        raise InvalidArgument(
            f"{name}: {what} must be a list of {count} tensors, one of each rank, but got {number}"
        )
    for x in tensors:
        if not isinstance(x, TensorBase):
            raise InvalidType(f"{name}: {what} holds a {type(x).__name__}, not a tensor")
        if x.dtype is not like.dtype:
            raise DTypeError(f"{name}: {what} holds {x.dtype} and {like.dtype}; convert one")


_WIDER = {"float16": np.float32, "bfloat16": np.float32, "int16": np.int32}
_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def reducing(
    group: ProcessGroup,
    buffer: Any,
    op: ReduceOp,
    name: str,
    begin: Callable[[Any, ReduceOp], Pending],
) -> tuple[Pending, Callable[[], None] | None]:
    """Begin a reduction whose result is `buffer` by `begin(row, op)`, where the engine can reduce
    the numbers of `row` (a wider copy of 16-bit ones, whose sums are rounded once). The second
    result is what is to be done when it has ended.
    """
    if not isinstance(op, ReduceOp):
        raise InvalidArgument(f"{name}: expected a ReduceOp, but got {op!r}")
    dtype = buffer.dtype
    plain = ReduceOp.SUM if op is ReduceOp.AVG else op
    kind = dtype.kind
    if op is ReduceOp.AVG and (kind in "iub"):
        raise DTypeError(f"{name}: an average of {dtype.name} is no {dtype.name}; use SUM")
    if op in _BITS and kind not in "iub":
        raise DTypeError(f"{name}: {op.value} is of integers, not of {dtype.name}")
    if kind == "c" and plain is not ReduceOp.SUM:
        raise DTypeError(f"{name}: {op.value} of complex numbers is not served; use SUM")
    row = buffer
    if kind == "c":
        row = buffer.view(f"f{dtype.itemsize // 2}")
    elif kind == "b":
        if plain in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR):
            plain = ReduceOp.MAX
        elif plain is ReduceOp.BXOR:
            raise DTypeError(f"{name}: BXOR of bool is not served; convert to uint8")
        else:
            plain = ReduceOp.MIN
        row = buffer.view(np.uint8)
    wide = None
    if not group.engine.reduces(row.dtype, plain):
        wider = _WIDER.get(row.dtype.name)
        if wider is None or not group.engine.reduces(np.dtype(wider), plain):
            raise DTypeError(
                f"{name}: the engine {group.name()!r} cannot reduce {dtype.name} by {op.value}; "
                "convert to float32 or int64 first"
            )
        row = wide = row.astype(wider)
    pending = begin(row, plain)
    size = group.size()
    if wide is None and op is not ReduceOp.AVG:
        return pending, None

    def finish() -> None:
        if op is ReduceOp.AVG:
            np.divide(row, row.dtype.type(size), out=row)
        if wide is not None:
            buffer[...] = wide

    return pending, finish


def started(work: Work, async_op: bool) -> Work | None:
    """The work itself, or None once it is done."""
    if async_op:
        return work
    work.wait()
    return None


def _chosen(group: Any, name: str) -> ProcessGroup | None:
    """The group that takes part; None for a process outside of it (as in PyTorch, which warns)."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    return group_of(group, name)


def _root(group: ProcessGroup, rank: int | None, within: int | None, name: str) -> int:
    """The place in the group of a rank of the world, or of one of the group."""
    if within is not None:
        if rank is not None:
            raise InvalidArgument(f"{name}: give a rank of the world or of the group, not both")
        if not 0 <= within < group.size():
            raise InvalidArgument(f"{name}: the group has {group.size()} ranks, but no {within}")
        return within
    return group.place(0 if rank is None else rank, name)


def _assert_parts(whole: Any, part: Any, size: int, name: str) -> None:
    if whole.dtype != part.dtype:
        raise DTypeError(f"{name}: the tensors are of {whole.dtype} and {part.dtype}; convert one")
    if whole.size != part.size * size:
        raise ShapeError(
            f"{name}: {size} ranks' parts of {part.size} elements are {part.size * size}, but the "
            f"whole has {whole.size}"
        )


def _handing(whole: Any, outs: list[Any]) -> Callable[[], None]:
    """A function that copies the parts of a row to the outputs."""

    def finish() -> None:
        start = 0
        for out in outs:
            out[...] = whole[start : start + out.size]
            start += out.size

    return finish
