"""Messages from one rank to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.argument_repr import argument_repr
from ..core.errors import InvalidArgument
from .transfer_buffers import _chosen, _root, described, source_of, target_of
from .work import Work

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


_TAG = 65_000  # of messages of `monitored_barrier`


def isend(
    tensor: Any,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send `tensor` to rank `dst`; it must not change before `wait`.

    Errors: InvalidArgument for a rank that is not in the group, or this one.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.isend
    """
    chosen = _chosen(group, "isend")
    if chosen is None:
        return None
    to = _root(chosen, dst, group_dst, "isend")
    if to == chosen.rank():
        raise InvalidArgument("isend: Invalid destination rank: it is this process's own")
    buffer = source_of(tensor, "isend")
    what = described("isend", tensor, f" (to {chosen.ranks[to]})")
    chosen.assert_usable(what)
    return Work(chosen, what, chosen.engine.send(buffer, to, _tag(tag)), None, [tensor])


def irecv(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive into `tensor` from rank `src` (None: from any).

    Errors: InvalidArgument for a rank that is not in the group, or this one.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.irecv
    """
    chosen = _chosen(group, "irecv")
    if chosen is None:
        return None
    source = None
    if src is not None or group_src is not None:
        source = _root(chosen, src, group_src, "irecv")
        if source == chosen.rank():
            raise InvalidArgument("irecv: Invalid source rank: it is this process's own")
    buffer = target_of(tensor, "irecv")
    origin = "any rank" if source is None else chosen.ranks[source]
    what = described("irecv", tensor, f" (from {origin})")
    chosen.assert_usable(what)
    return Work(chosen, what, chosen.engine.receive(buffer, source, _tag(tag)), None, [tensor])


def _tag(tag: int) -> int:
    if not 0 <= tag < _TAG:
        raise InvalidArgument(f"send, recv: a tag is a number from 0 to {_TAG - 1}, not {tag!r}")
    return tag


def send(
    tensor: Any,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send `tensor` to rank `dst`.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.send
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive into `tensor` from rank `src` (None: from any); the rank that sent it.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.recv
    """
    work = irecv(tensor, src, group, tag, group_src)
    return -1 if work is None else work.source_rank()


class P2POp:
    """A message for `batch_isend_irecv`.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.P2POp
    """

    __repr__ = argument_repr

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise InvalidArgument(f"P2POp: op must be isend or irecv, but got {op!r}")
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group
        self.tag, self.group_peer = tag, group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin several messages.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv
    """
    works = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [work for work in works if work is not None]
