"""Python values between ranks, in the format of `adjoint.save`: tensors, numbers, strings, and
containers of them. Anything else raises; nothing is pickled.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, InvalidType
from ..io import load, save
from ..runtime.public import naming
from .group import GroupMember, group_of
from .process_group import ProcessGroup
from .transfer_buffers import assert_eager, started
from .work import Work

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list",
    "scatter_object_list", "send_object_list",
]  # fmt: skip


def _packed(value: Any, name: str) -> Any:
    """A value as bytes."""
    assert_eager(name)
    file = io.BytesIO()
    try:
        save(value, file)
    except InvalidType as error:
        raise InvalidType(f"{name}: {error}") from error
    return np.frombuffer(file.getvalue(), np.uint8).copy()


def _unpacked(row: Any) -> Any:
    return load(io.BytesIO(row.tobytes()))


def _lengths(rows: Sequence[Any]) -> Any:
    return np.array([row.size for row in rows], np.int64)


def _run(group: ProcessGroup, what: str, pending: Any) -> None:
    started(Work(group, what, pending), False)


def _gathered(chosen: ProcessGroup, value: Any, name: str, root: int | None = None) -> list[Any]:
    """Gathers all ranks' values, on all ranks, or on `root` alone."""
    row = _packed(value, name)
    chosen.assert_usable(name)
    chosen.compare(name)
    size = chosen.size()
    lengths = np.zeros(size, np.int64)
    _run(chosen, name, chosen.engine.all_gather(lengths, _lengths([row])))
    widest = int(lengths.max())
    padded = np.zeros(widest, np.uint8)
    padded[: row.size] = row
    if root is not None and root != chosen.rank():
        _run(chosen, name, chosen.engine.gather(None, padded, root))
        return []
    rows = np.zeros(size * widest, np.uint8)
    if root is None:
        _run(chosen, name, chosen.engine.all_gather(rows, padded))
    else:
        _run(chosen, name, chosen.engine.gather(rows, padded, root))
    parts = zip(rows.reshape(size, widest), lengths, strict=True)
    return [_unpacked(part[:length]) for part, length in parts]


@naming
def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Fill `object_list` with all ranks' `obj`, in the order of ranks.

    Errors: InvalidType for what `adjoint.save` does not store; nothing is pickled.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.all_gather_object(values := [None], {"loss": 0.5})
    >>> values
    [{'loss': 0.5}]
    >>> ad.distributed.destroy_process_group()
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    chosen = group_of(group, "all_gather_object")
    _assert_places(object_list, chosen, "all_gather_object")
    object_list[:] = _gathered(chosen, obj, "all_gather_object")


def _assert_places(places: Any, chosen: ProcessGroup, name: str) -> None:
    if not isinstance(places, list) or len(places) != chosen.size():
        raise InvalidArgument(
            f"{name}: expected a list of {chosen.size()} places, one of each rank, but got "
            f"{places!r:.80}"
        )


@naming
def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Fill `object_gather_list` of rank `dst` with all ranks' `obj`.

    Errors: InvalidType for what `adjoint.save` does not store.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.gather_object
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    chosen = group_of(group, "gather_object")
    root = chosen.place(dst or 0, "gather_object") if group_dst is None else group_dst
    mine = chosen.rank() == root
    if mine:
        _assert_places(object_gather_list, chosen, "gather_object")
    values = _gathered(chosen, obj, "gather_object", root)
    if mine and object_gather_list is not None:
        object_gather_list[:] = values


@naming
def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Make `object_list`, on all ranks, that of rank `src`; all have the same length.

    Errors: InvalidType for what `adjoint.save` does not store.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast_object_list

    >>> ad.distributed.init_process_group()
    >>> ad.distributed.broadcast_object_list(["a", 1], src=0)
    >>> ad.distributed.destroy_process_group()
    """
    name = "broadcast_object_list"
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    chosen = group_of(group, name)
    root = chosen.place(src or 0, name) if group_src is None else group_src
    assert_eager(name)
    mine = chosen.rank() == root
    row = _packed(object_list, name) if mine else None
    chosen.assert_usable(name)
    chosen.compare(f"{name} of {len(object_list)}")
    length = np.zeros(1, np.int64) if row is None else _lengths([row])
    _run(chosen, name, chosen.engine.broadcast(length, root))
    if row is None:
        row = np.zeros(int(length[0]), np.uint8)
    _run(chosen, name, chosen.engine.broadcast(row, root))
    if not mine and row.size:
        object_list[:] = _unpacked(row)


@naming
def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Put into the first place of the output list this rank's entry of the list of rank `src`.

    Errors: InvalidType for what `adjoint.save` does not store.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.scatter_object_list
    """
    name = "scatter_object_list"
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    chosen = group_of(group, name)
    root = chosen.place(src or 0, name) if group_src is None else group_src
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise InvalidArgument(f"{name}: expected an output list with one place at least")
    assert_eager(name)
    lengths, whole = np.zeros(chosen.size(), np.int64), None
    if chosen.rank() == root:
        _assert_places(scatter_object_input_list, chosen, name)
        rows = [_packed(value, name) for value in scatter_object_input_list or ()]
        lengths = _lengths(rows)
        whole = np.zeros((chosen.size(), int(lengths.max())), np.uint8)
        for place, row in zip(whole, rows, strict=True):
            place[: row.size] = row
    chosen.assert_usable(name)
    chosen.compare(name)
    _run(chosen, name, chosen.engine.broadcast(lengths, root))
    out = np.zeros(int(lengths.max()), np.uint8)
    sent = None if whole is None else whole.reshape(-1)
    _run(chosen, name, chosen.engine.scatter(out, sent, root))
    scatter_object_output_list[0] = _unpacked(out[: int(lengths[chosen.rank()])])


@naming
def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
) -> None:
    """Send values to rank `dst`.

    Errors: InvalidType for what `adjoint.save` does not store.
    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.send_object_list
    """
    name = "send_object_list"
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    chosen = group_of(group, name)
    to = chosen.place(dst or 0, name) if group_dst is None else group_dst
    if to == chosen.rank():
        raise InvalidArgument(f"{name}: Invalid destination rank: it is this process's own")
    row = _packed(object_list, name)
    chosen.assert_usable(name)
    _run(chosen, name, chosen.engine.send(_lengths([row]), to, _TAG))
    _run(chosen, name, chosen.engine.send(row, to, _TAG))


@naming
def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> int:
    """Fill `object_list` with values from rank `src` (None: from any); the rank that sent them.

    Source: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.recv_object_list
    """
    name = "recv_object_list"
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    chosen = group_of(group, name)
    source = None if src is None else chosen.place(src, name)
    source = source if group_src is None else group_src
    assert_eager(name)
    chosen.assert_usable(name)
    length = np.zeros(1, np.int64)
    first = Work(chosen, name, chosen.engine.receive(length, source, _TAG))
    origin = first.source_rank()
    row = np.zeros(int(length[0]), np.uint8)
    _run(chosen, name, chosen.engine.receive(row, chosen.place(origin, name), _TAG))
    object_list[:] = _unpacked(row)
    return origin


_TAG = 65_001  # of messages with objects
