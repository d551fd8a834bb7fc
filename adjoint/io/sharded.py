"""State dicts as Hugging Face names them: `model.safetensors`, or shards under one index.

The index, `model.safetensors.index.json`, says in `weight_map` which file of the same directory
holds which tensor.

Source: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import CheckpointError, InvalidArgument, InvalidType, Unsupported
from ..ops.create.exchange import from_numpy
from ..tensor import Tensor
from .atomic import replacing
from .checkpoint import _bytes, _read, header

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
MAX_INDEX = 64 << 20  # bytes
_OWN_NAME = re.compile(r"model(-\d+)?(-\d{5}-of-\d{5})?\.safetensors")


def load_sharded(path: Any) -> dict[str, Any]:
    """The tensors of a directory of shards, or of the directory's one file.

    `path` is the directory or its index file.

    Errors: CheckpointError where the index is malformed, names files outside of its directory, or
    does not match the shards; FileNotFoundError where there is nothing.
    Source: https://huggingface.co/docs/transformers/big_models

    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> ad.io.save_sharded({"a": ad.ones(2), "b": ad.zeros(3)}, directory, max_shard_size=8)
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    >>> sorted(ad.io.load_sharded(directory))
    ['a', 'b']
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        single = os.path.join(path, SINGLE_NAME)
        index = os.path.join(path, INDEX_NAME)
        if os.path.exists(index):
            path = index
        elif os.path.exists(single):
            return _shard(path, SINGLE_NAME)
        else:
            raise FileNotFoundError(f"load: {path!r} has neither {SINGLE_NAME} nor {INDEX_NAME}")
    directory = os.path.dirname(path) or "."
    tensors: dict[str, Any] = {}
    for name, keys in _shards_of(path).items():
        shard = _shard(directory, name)
        for key in keys:
            if key not in shard:
                raise CheckpointError(
                    f"load: {path!r} says that {name!r} holds {key!r}, which it does not; download "
                    "the directory again"
                )
            tensors[key] = shard[key]
    return tensors


def _shards_of(path: str) -> dict[str, list[str]]:
    """The names of the tensors in each file that the index names."""
    with open(path, "rb") as file:
        raw = file.read(MAX_INDEX + 1)
    if len(raw) > MAX_INDEX:
        raise CheckpointError(f"load: {path!r} has more than {MAX_INDEX} bytes")
    try:
        index = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: {path!r} is not JSON: {error}") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"load: {path!r} has no weight_map")
    shards: dict[str, list[str]] = {}
    for key, name in weight_map.items():
        if not isinstance(name, str) or not is_plain(name):
            raise CheckpointError(
                f"load: {path!r} names the file {name!r:.80}; shards lie beside their index and "
                "are called *.safetensors"
            )
        shards.setdefault(name, []).append(key)
    return shards


def is_plain(name: str) -> bool:
    """Whether an index may name such a file: one that lies beside it."""
    return (
        name.endswith(".safetensors")
        and len(name) <= 255
        and not any(c in "/\\:\0" for c in name)
        and name[0] != "."
    )


def _shard(directory: str, name: str) -> dict[str, Any]:
    """The tensors of one file, which must lie where its name says."""
    path = os.path.join(directory, name)
    place = os.path.dirname(os.path.realpath(path))
    home = os.path.realpath(directory)
    # Hugging Face's cache keeps files in `blobs`, and links to them in `snapshots/<revision>`.
    blobs = os.path.join(os.path.dirname(os.path.dirname(home)), "blobs")
    cached = os.path.basename(os.path.dirname(home)) == "snapshots" and place == blobs
    if place != home and not cached:
        raise CheckpointError(f"load: {path!r} is a link that leads out of its directory")
    if not os.path.isfile(path):
        raise CheckpointError(f"load: {path!r} is missing; download the directory again")
    try:
        arrays, _ = _read(path)
    except (OSError, Unsupported):
        raise
    except Exception as error:  # SafetensorError, and what NumPy says to its dtypes
        raise CheckpointError(
            f"load: {path!r} is not a whole safetensors file ({error}); was it cut short?"
        ) from error
    return {key: from_numpy(array) for key, array in arrays.items()}


def save_sharded(
    tensors: Mapping[str, Any], directory: Any, max_shard_size: int = 5_000_000_000
) -> list[str]:
    """Write a state dict into `directory` as Hugging Face names it; the names of the files.

    Tensors are put into files of at most `max_shard_size` bytes, one file where all fit. A
    checkpoint that `directory` holds already is replaced as a whole: where writing fails, it stays.

    Errors: InvalidType for anything but tensors under names; InvalidArgument for complex numbers,
    which the format has not.
    Source: https://huggingface.co/docs/safetensors

    >>> import tempfile
    >>> ad.io.save_sharded({"a": ad.ones(2)}, tempfile.mkdtemp())
    ['model.safetensors']
    """
    return saved_sharded(tensors, os.fspath(directory), max_shard_size)


def saved_sharded(
    tensors: Mapping[str, Any],
    directory: str,
    max_shard_size: int,
    before: Callable[[], None] = lambda: None,
) -> list[str]:
    """The names of the files of a whole save; `before` is called when all is written, and nothing
    is there for readers yet.

    Files of a checkpoint that is there stay as they are until the new index, or the one file,
    takes its place as a whole. What is not named then is removed.
    """
    if max_shard_size < 1:
        raise InvalidArgument(f"save_sharded: max_shard_size is {max_shard_size}; at least 1")
    shards: list[dict[str, Any]] = [{}]
    room = max_shard_size
    for key, tensor in tensors.items():
        array = _contiguous(key, tensor)
        if array.nbytes > room and shards[-1]:
            shards.append({})
            room = max_shard_size
        shards[-1][key] = array
        room -= array.nbytes
    os.makedirs(directory, exist_ok=True)
    index = os.path.join(directory, INDEX_NAME)
    if len(shards) == 1:
        _write_shard(os.path.join(directory, SINGLE_NAME), shards[0], before)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(index)  # which would be read first
        _remove_others(directory, [SINGLE_NAME])
        return [SINGLE_NAME]
    names = _unused_names(index, len(shards))
    for name, shard in zip(names, shards, strict=True):
        _write_shard(os.path.join(directory, name), shard)
    table = {
        "metadata": {"total_size": sum(a.nbytes for shard in shards for a in shard.values())},
        "weight_map": {k: n for n, shard in zip(names, shards, strict=True) for k in shard},
    }
    with replacing(index) as file:
        file.write(json.dumps(table, indent=2).encode())
        before()
    _remove_others(directory, names)
    return names


def _unused_names(index: str, count: int) -> list[str]:
    """Names for `count` shards, none of which the present index names."""
    used: set[str] = set()
    with contextlib.suppress(FileNotFoundError, CheckpointError):
        used.update(_shards_of(index))
    for turn in itertools.count(1):
        stem = "model" if turn == 1 else f"model-{turn}"
        names = [f"{stem}-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
        if used.isdisjoint(names):
            return names
    raise AssertionError("unreachable")


def _remove_others(directory: str, names: list[str]) -> None:
    """Delete shards of earlier saves, whole or not, and the one file that a reader may prefer."""
    try:
        found = os.listdir(directory)
    except PermissionError:  # a directory to write in, not to look at
        return
    for name in found:
        if name not in names and _OWN_NAME.fullmatch(name):
            with contextlib.suppress(OSError):  # it is not read any more, so it may stay
                os.unlink(os.path.join(directory, name))


def _contiguous(key: Any, tensor: Any) -> Any:
    import numpy as np

    if not isinstance(key, str) or not isinstance(tensor, Tensor):
        raise InvalidType(f"save_sharded: {key!r:.60} is a {type(tensor).__name__}, no tensor")
    array = tensor.detach().cpu().numpy()
    if array.dtype.kind == "c":
        raise InvalidArgument(
            f"save_sharded: {key!r} is complex, which Hugging Face's files cannot hold; store "
            "adjoint.view_as_real of it"
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _write_shard(
    path: str, arrays: dict[str, Any], before: Callable[[], None] = lambda: None
) -> None:
    order = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    with replacing(path) as file:
        file.write(header(order, {"format": "pt"}))
        for _, array in order:
            if array.size:
                file.write(_bytes(array).data)
        before()
