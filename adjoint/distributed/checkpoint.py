"""Checkpoints of many ranks: each writes what it has, and any number of ranks read what they need.

A checkpoint is a directory. Each rank writes one safetensors file of rows of numbers; each row is a
range of a tensor's elements in their order, which is what `fully_shard` and ZeroRedundancyOptimizer
leave a rank. `index.json` says which ranges of which tensor lie in which file. It takes the place
of the one before as the last thing that happens, and files that it does not name are removed then:
whenever a save is killed, the directory holds one whole checkpoint, the old or the new one.
"""

from __future__ import annotations

import copy
import json
import os
import re
import secrets
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core.dtype import BY_NAME
from ..core.errors import CheckpointError, DistributedError, InvalidArgument, InvalidType
from ..core.spec import prod
from ..io.atomic import replacing
from ..io.checkpoint import MAX_HEADER, header
from ..io.sharded import is_plain
from ..io.structure import decode, encode
from ..nn.modules.module import Module
from ..optim.optimizer import Optimizer
from ..runtime.tensors import wrap
from ..tensor import Tensor
from .group import group_of, is_initialized
from .objects import all_gather_object, broadcast_object_list
from .optim import ZeroRedundancyOptimizer, is_of_elements
from .process_group import ProcessGroup
from .transfer_buffers import assert_eager, target_of

__all__ = ["async_save", "load", "save"]
__path__: list[str] = []  # PyTorch's is a package; the alias has names of its modules

INDEX = "index.json"
_VERSION = 1
_OURS = re.compile(r"\.?[0-9a-f]{12}\.\d+\.safetensors(\.[0-9a-f]{8}\.tmp)?")
_RUNNING: dict[str, Saving] = {}  # by directory: the last that a thread writes


# ---- what there is to save -----------------------------------------------------------------------


class TensorRange(NamedTuple):
    """A range of a tensor's elements that this rank has."""

    name: str
    shape: tuple[int, ...]  # of the whole tensor
    start: int
    data: Any  # an array


class _Members(NamedTuple):
    """The parameters of an optimizer of which this rank has state."""

    number: int  # among all of the optimizer's
    key: Any  # of the state: a parameter, or what shows a part of it
    shape: tuple[int, ...]  # of the whole parameter
    start: int  # of the elements
    local: tuple[int, ...]  # the shape of this rank's part


def _place(p: Any) -> tuple[tuple[int, ...], int]:
    """The whole shape of a tensor, and where this rank's elements begin."""
    shape = getattr(p, "global_shape", None)
    if shape is None:
        return tuple(p._data.shape), 0
    return tuple(shape), p.division.first * int(np.prod(shape[1:], dtype=np.int64))


def _members(optimizer: Any) -> Iterator[_Members]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        for pieces in optimizer.pieces:
            for piece in pieces:
                shape = tuple(parameters[piece.number]._data.shape)
                local = tuple(piece.tensor._data.shape)
                yield _Members(piece.number, piece.tensor, shape, piece.start, local)
    else:
        for number, p in enumerate(parameters):
            yield _Members(number, p, *_place(p), tuple(p._data.shape))


def _stepping(optimizer: Any) -> Any:
    return optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer


class _Found:
    """Collects the tensors and values that a rank has to save."""

    def __init__(self, is_first: bool) -> None:
        self.is_first = is_first  # writes what all ranks have
        self.parts: list[TensorRange] = []
        self.values: dict[str, Any] = {}

    def see(self, path: str, value: Any) -> None:
        if isinstance(value, Tensor):
            shape, start = _place(value)
            if self.is_first or hasattr(value, "global_shape"):
                self.parts.append(TensorRange(path, shape, start, _array(value, path)))
        elif isinstance(value, Module):
            self.see(path, value.state_dict(keep_vars=True))
        elif isinstance(value, Optimizer):
            self._see_optimizer(path, value)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                self.see(f"{path}.{key}" if path else str(key), each)
        elif hasattr(value, "state_dict"):
            self.values[path] = _encoded(value.state_dict(), path)
        else:
            self.values[path] = _encoded(value, path)

    def _see_optimizer(self, path: str, optimizer: Any) -> None:
        inner = _stepping(optimizer)
        mine = self.is_first or isinstance(optimizer, ZeroRedundancyOptimizer)
        for member in _members(optimizer):
            sharded = mine or hasattr(member.key, "global_shape")
            for name, value in inner.state.get(member.key, {}).items() if sharded else ():
                place = f"{path}.state.{member.number}.{name}"
                if not isinstance(value, Tensor):
                    raise InvalidType(f"save: {place} is a {type(value).__name__}, not a tensor")
                data = _array(value, place)
                if is_of_elements(inner, name) and data.shape == member.local:
                    self.parts.append(TensorRange(place, member.shape, member.start, data))
                elif member.start == 0:
                    self.parts.append(TensorRange(place, data.shape, 0, data))
        groups, count = [], 0
        for group in optimizer.param_groups:
            numbers = list(range(count, count + len(group["params"])))
            groups.append({**group, "params": numbers})
            count += len(numbers)
        self.values[f"{path}.param_groups"] = _encoded(groups, path)


def _array(x: Any, path: str) -> Any:
    if type(x._data) is not np.ndarray:
        raise InvalidType(f"save: {path} has no memory of the CPU's; save x.detach().cpu()")
    return x._data


def _encoded(value: Any, path: str) -> Any:
    def refuse(tensor: Any, place: str) -> Any:
        raise InvalidType(
            f"save: {path} holds a tensor of shape {tuple(tensor.shape)} in a list or another "
            "object's state; put it into a dict of its own"
        )

    return encode(value, refuse)


# ---- writing -------------------------------------------------------------------------------------


def _group(process_group: Any, name: str) -> ProcessGroup | None:
    """The process group; None for this process alone."""
    if process_group is None and not is_initialized():
        return None
    return group_of(process_group, name)


class _Save:
    """State of one save: what this rank writes, and what rank 0 says of all."""

    def __init__(self, state: Any, path: Any, group: ProcessGroup | None, copies: bool) -> None:
        assert_eager("checkpoint.save")
        self.path = os.path.realpath(os.fspath(path))
        before = _RUNNING.pop(self.path, None)
        room: dict[tuple[str, int], Any] = {}  # memory of the copies before: new memory costs more
        if before is not None:
            before.result()
            room = {(part.name, part.start): part.data for part in before.job.parts}
        self.rank, self.size = (0, 1) if group is None else (group.rank(), group.size())
        self.seconds = 600.0 if group is None else group.seconds
        found = _Found(self.rank == 0)
        said: list[Any] = [secrets.token_hex(6), ""]
        error = None
        try:
            found.see("", state)
        except Exception as caught:
            error = caught
            said[1] = f"{type(caught).__name__}: {caught}"
        table = [[p.name, list(p.shape), p.data.dtype.name, p.start, p.data.size]
                 for p in found.parts]  # fmt: skip
        tables: list[Any] = [(said, table)]
        if group is not None and self.size > 1 and group.name() != "fake":
            tables = [None] * self.size
            all_gather_object(tables, (said, table), group)
        if error is not None:
            raise error
        for rank, ((_, why), _) in enumerate(tables):
            if why:
                raise DistributedError(f"checkpoint.save: rank {rank} has failed: {why}")
        token = tables[0][0][0]
        self.names = [f"{token}.{rank}.safetensors" for rank in range(len(tables))]
        self.parts: list[TensorRange] = [
            p._replace(data=_copied(p, room) if copies else np.ascontiguousarray(p.data))
            for p in found.parts
        ]
        self.index = _index(self.names, [table for _, table in tables], found.values)

    def write(self) -> None:
        """Writes this rank's file."""
        os.makedirs(self.path, exist_ok=True)
        rows, sums = [], {}
        for part in sorted(self.parts, key=lambda part: -part.data.dtype.itemsize):
            row = _plain(part.data)
            key = f"{part.name}@{part.start}"
            rows.append((key, row))
            sums[key] = zlib.crc32(row.view(np.uint8))
        with replacing(os.path.join(self.path, self.names[self.rank % len(self.names)])) as file:
            file.write(header(rows, {"crc32": json.dumps(sums)}))
            for _, row in rows:
                file.write(row.view(np.uint8).data)

    def commit(self) -> None:
        """Makes the written files the checkpoint, now that all are there."""
        with replacing(os.path.join(self.path, INDEX)) as file:
            file.write(json.dumps(self.index, separators=(",", ":")).encode())
        for name in os.listdir(self.path):
            if _OURS.fullmatch(name) and name not in self.names:  # also what a kill has left
                os.unlink(os.path.join(self.path, name))

    def run_alone(self) -> None:
        """Write, and on rank 0 commit once all files are there; no message is sent."""
        self.write()
        if self.rank == 0:
            end = time.monotonic() + self.seconds
            missing = self.names
            while missing := [n for n in missing if not os.path.exists(self._at(n))]:
                if time.monotonic() > end:
                    raise DistributedError(
                        f"async_save: {missing[:4]} were not written within {self.seconds:g} s; "
                        "the checkpoint before stays"
                    )
                time.sleep(0.01)
            self.commit()

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)


def _copied(part: TensorRange, room: Mapping[tuple[str, int], Any]) -> Any:
    """A part's numbers as they are now, in memory of an earlier copy where it fits."""
    data, there = part.data, room.get((part.name, part.start))
    if there is None or there.shape != data.shape or there.dtype != data.dtype:
        return data.copy(order="C")
    np.copyto(there, data)
    return there


def _plain(data: Any) -> Any:
    """An array as a row of numbers that the format has."""
    row = np.ascontiguousarray(data).reshape(-1)
    return row.view(f"f{row.dtype.itemsize // 2}") if row.dtype.kind == "c" else row


def _index(names: list[str], tables: list[Any], values: dict[str, Any]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, table in zip(names, tables, strict=True):
        for path, shape, dtype, start, count in table:
            entry = tensors.setdefault(path, {"shape": shape, "dtype": dtype, "parts": []})
            if (entry["shape"], entry["dtype"]) != (shape, dtype):
                raise InvalidArgument(
                    f"checkpoint.save: {path} is {entry['dtype']} {entry['shape']} on one rank and "
                    f"{dtype} {shape} on another"
                )
            if count and all(start != other for _, other, _ in entry["parts"]):
                entry["parts"].append([name, start, count])
    return {"version": _VERSION, "tensors": tensors, "values": values}


def save(
    state_dict: Any, *, checkpoint_id: Any, process_group: Any = None, no_dist: bool = False
) -> None:
    """Save a dict of tensors, modules, optimizers and values into the directory `checkpoint_id`.

    All ranks call it, and see the same directory. Each writes what it alone has; rank 0 also what
    all have. Whenever a save is killed, the checkpoint that was there before stays whole.

    Errors: InvalidType for what the format has not; DistributedError on all ranks where one fails.
    Source: https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_saver.save

    >>> import tempfile
    >>> from adjoint.distributed import checkpoint
    >>> place = tempfile.mkdtemp()
    >>> checkpoint.save({"model": ad.nn.Linear(2, 1), "epoch": 3}, checkpoint_id=place)
    >>> state = {"model": ad.nn.Linear(2, 1), "epoch": 0}
    >>> checkpoint.load(state, checkpoint_id=place)
    >>> state["epoch"]
    3
    """
    group = None if no_dist else _group(process_group, "checkpoint.save")
    job = _Save(state_dict, checkpoint_id, group, copies=False)
    _together(group, job.write)
    _together(group, job.commit if job.rank == 0 else lambda: None)


def _together(group: ProcessGroup | None, act: Callable[[], None]) -> None:
    """Runs an action on all ranks; where one fails, all raise."""
    why, error = "", None
    try:
        act()
    except Exception as caught:
        error, why = caught, f"{type(caught).__name__}: {caught}"
    if group is not None and group.size() > 1 and group.name() != "fake":
        everyones: list[Any] = [None] * group.size()
        all_gather_object(everyones, why, group)
        for rank, theirs in enumerate(everyones):
            if theirs and error is None:
                raise DistributedError(f"checkpoint.save: rank {rank} has failed: {theirs}")
    if error is not None:
        raise error


class Saving:
    """A save that goes on in a thread; `result()` waits for it."""

    def __init__(self, job: _Save) -> None:
        self.job = job
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=False)
        self._thread.start()

    def _run(self, job: _Save) -> None:
        try:
            job.run_alone()
        except BaseException as error:
            self._error = error

    def done(self) -> bool:
        """Whether it is over."""
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> None:
        """Wait until this rank has written; on rank 0, until the checkpoint is the new one.

        Errors: what the save raised; TimeoutError where it takes longer than `timeout` seconds.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"async_save: not done within {timeout} s")
        if self._error is not None:
            raise self._error

    wait = result


def async_save(state_dict: Any, *, checkpoint_id: Any, process_group: Any = None) -> Saving:
    """Save as `save` does, of values as they are now, while the program goes on.

    Returns once what is to be saved has been copied. The thread that writes sends no messages:
    rank 0 sees by their files that the others have written. The copy's memory is kept for the next
    `async_save` into that directory, until a `save` into it.

    Errors: those of `save`.
    Source: https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_saver.async_save

    >>> import tempfile
    >>> from adjoint.distributed import checkpoint
    >>> saving = checkpoint.async_save({"x": ad.ones(2)}, checkpoint_id=tempfile.mkdtemp())
    >>> saving.result()
    """
    group = _group(process_group, "checkpoint.async_save")
    job = _Save(state_dict, checkpoint_id, group, copies=True)
    saving = _RUNNING[job.path] = Saving(job)
    return saving


# ---- reading -------------------------------------------------------------------------------------


def _check(tensors: dict[str, Any], values: dict[str, Any]) -> None:
    """Raise ValueError, KeyError or TypeError for what no index says."""
    if not (isinstance(tensors, dict) and isinstance(values, dict)):
        raise TypeError("it has no tables of tensors and values")
    for path, entry in tensors.items():
        sizes = [*entry["shape"], *(n for _, *counts in entry["parts"] for n in counts)]
        if any(type(n) is not int or n < 0 for n in sizes):
            raise ValueError(f"{path!r:.80} has sizes that are none")
        if any(type(name) is not str or len(counts) != 2 for name, *counts in entry["parts"]):
            raise ValueError(f"{path!r:.80} has parts that are none")
        if entry["dtype"] not in BY_NAME:
            raise ValueError(f"{path!r:.80} has the dtype {entry['dtype']!r:.80}")


class _Checkpoint:
    """A directory that is read."""

    def __init__(self, path: Any) -> None:
        self.path = os.fspath(path)
        place = os.path.join(self.path, INDEX)
        try:
            if os.path.getsize(place) > MAX_HEADER:
                raise ValueError("it is too long")
            with open(place, "rb") as file:
                index = json.loads(file.read())
            version = index["version"]
            if version != _VERSION:
                raise CheckpointError(f"load: {place!r} is of version {version!r}, not {_VERSION}")
            self.tensors, self.values = index["tensors"], index["values"]
            _check(self.tensors, self.values)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"load: {self.path!r} holds no whole checkpoint ({INDEX} is missing)"
            ) from error
        except CheckpointError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"load: {place!r} is not an index: {error}") from error
        self.files: dict[str, dict[str, Any]] = {}  # by name: where rows begin, and checksums
        with os.scandir(self.path) as files:
            self.room = sum(each.stat().st_size for each in files)

    def _rows(self, name: str) -> dict[str, Any]:
        """Reads a file's header: where each row lies, by its name."""
        if name in self.files:
            return self.files[name]
        if not is_plain(name):
            raise CheckpointError(f"load: the index names the file {name!r:.80}")
        place = os.path.join(self.path, name)
        try:
            with open(place, "rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                if length > MAX_HEADER:
                    raise ValueError("its header is too long")
                found = json.loads(file.read(length))
            sums = json.loads(found.pop("__metadata__")["crc32"])
            rows = {
                key: (8 + length + row["data_offsets"][0], row["data_offsets"][1]
                      - row["data_offsets"][0], sums[key])
                for key, row in found.items()
            }  # fmt: skip
            if any(type(n) is not int or n < 0 for row in rows.values() for n in row):
                raise ValueError("it has places that are none")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error,
                RecursionError) as error:  # fmt: skip
            raise CheckpointError(f"load: {place!r} is not a whole file: {error}") from error
        self.files[name] = rows
        return rows

    def read(self, path: str, shape: Any, start: int, row: Any) -> None:
        """Fill `row` (without gaps) with the elements of a tensor from `start` on."""
        entry = self.entry(path)
        if tuple(entry["shape"]) != tuple(shape) or entry["dtype"] != row.dtype.name:
            raise CheckpointError(
                f"load: {path} is {entry['dtype']} {tuple(entry['shape'])} in the checkpoint, and "
                f"{row.dtype.name} {tuple(shape)} here"
            )
        stop, item, filled = start + row.size, row.dtype.itemsize, 0
        target = row.view(np.uint8)
        for name, first, count in entry["parts"]:
            low, high = max(start, first), min(stop, first + count)
            if low >= high:
                continue
            offset, length, checksum = self._found(name, f"{path}@{first}")
            piece = target[(low - start) * item : (high - start) * item]
            with open(os.path.join(self.path, name), "rb") as file:
                file.seek(offset + (low - first) * item)
                got = file.readinto(piece.data)
            whole = high - low == count
            if got != piece.size or length != count * item or (
                whole and zlib.crc32(piece) != checksum
            ):  # fmt: skip
                raise CheckpointError(
                    f"load: {name} was cut short, or altered, at {path}; restore it from a copy"
                )
            filled += high - low
        if filled != row.size:
            raise CheckpointError(
                f"load: of {path}, {row.size - filled} of the {row.size} elements from {start} on "
                "are in no file"
            )

    def _found(self, name: str, key: str) -> Any:
        rows = self._rows(name)
        if key not in rows:
            raise CheckpointError(f"load: {name} lacks {key}, which the index says it has")
        return rows[key]

    def entry(self, path: str) -> Any:
        """The index's entry for a tensor."""
        if path not in self.tensors:
            raise CheckpointError(
                f"load: the checkpoint has no {path}; it has {sorted(self.tensors)[:8]}"
            )
        return self.tensors[path]

    def value(self, path: str) -> Any:
        """A value that is no tensor."""
        if path not in self.values:
            raise CheckpointError(f"load: the checkpoint has no {path}")
        return decode(self.values[path], lambda _: None)

    # ---- into what there is ----

    def fill(self, path: str, value: Any) -> Any:
        """Loads the entry `path` into `value`; returns the object to put in its place."""
        if isinstance(value, Tensor):
            shape, start = _place(value)
            if value._data.flags.c_contiguous:
                self.read(path, shape, start, target_of(value.detach(), "load"))
            else:
                row = np.empty(value._data.size, value._data.dtype)
                self.read(path, shape, start, row)
                value.detach().copy_(wrap(row.reshape(value._data.shape)))
            return value
        if isinstance(value, Module):
            self.fill(path, value.state_dict(keep_vars=True))
            return value
        if isinstance(value, Optimizer):
            self._fill_optimizer(path, value)
            return value
        if isinstance(value, Mapping):
            for key, each in value.items():
                found = self.fill(f"{path}.{key}" if path else str(key), each)
                if found is not each:
                    value[key] = found  # type: ignore[index]
            return value
        if hasattr(value, "load_state_dict"):
            value.load_state_dict(self.value(path))
            return value
        return self.value(path)

    def _fill_optimizer(self, path: str, optimizer: Any) -> None:
        groups = self.value(f"{path}.param_groups")
        if not isinstance(groups, list) or any("params" not in group for group in groups):
            raise CheckpointError(f"load: {path}.param_groups are no groups of an optimizer")
        sizes = [len(group["params"]) for group in groups]
        if sizes != [len(group["params"]) for group in optimizer.param_groups]:
            raise CheckpointError(
                f"load: {path} is of groups of {sizes} parameters, the optimizer has "
                f"{[len(group['params']) for group in optimizer.param_groups]}"
            )
        inner = _stepping(optimizer)
        names: dict[int, list[str]] = {}
        prefix = f"{path}.state."
        for each in self.tensors:
            if each.startswith(prefix):
                number, _, name = each[len(prefix) :].partition(".")
                if not number.isdecimal():
                    raise CheckpointError(f"load: {each!r:.80} is no state of a parameter")
                names.setdefault(int(number), []).append(name)
        states = {}
        for member in _members(optimizer):
            state = {}
            for name in names.get(member.number, ()):
                entry = self.entry(f"{prefix}{member.number}.{name}")
                shape, start, local = tuple(entry["shape"]), 0, tuple(entry["shape"])
                if is_of_elements(inner, name) and shape == member.shape:
                    start, local = member.start, member.local
                dtype = BY_NAME[entry["dtype"]].numpy
                if prod(local) * dtype.itemsize > self.room:
                    raise CheckpointError(
                        f"load: {prefix}{member.number}.{name} of shape {local} is larger than all "
                        f"files of {self.path!r}"
                    )
                data = np.empty(local, dtype)
                self.read(f"{prefix}{member.number}.{name}", shape, start, data.reshape(-1))
                state[name] = wrap(data)
            if state:
                states[member.key] = state
        for group, saved in zip(optimizer.param_groups, groups, strict=True):
            group.update(copy.deepcopy({k: v for k, v in saved.items() if k != "params"}))
        inner.state.clear()
        inner.state.update(states)


def load(
    state_dict: Any, *, checkpoint_id: Any, process_group: Any = None, no_dist: bool = False
) -> None:
    """Load into `state_dict`, of the form that was saved, on any number of ranks.

    Tensors are read where they are, each rank its own elements only; values that are no tensors
    are put into the dict.

    Errors: CheckpointError where something is missing, of another shape or dtype, or altered.
    Source: https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_loader.load
    """
    assert_eager("checkpoint.load")
    if not isinstance(state_dict, Mapping):
        raise InvalidType(f"load: expected a dict, but got {type(state_dict).__name__}")
    if not no_dist:
        group = _group(process_group, "checkpoint.load")
        if group is not None and group.size() > 1 and group.name() != "fake":
            broadcast_object_list([""], group=group, group_src=0)  # all have come: saves are over
    _Checkpoint(checkpoint_id).fill("", state_dict)
