"""Reading an ONNX file: bounds before allocation, external data only from the model's directory."""

from __future__ import annotations

import importlib
import math
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from ...core.dtype import by_name
from ...core.errors import CheckpointError, InvalidType, Unsupported
from .export import TYPES
from .require import onnx_package

MAX_BYTES = 2**31 - 1  # what a protobuf message may take
DTYPES = {number: by_name(name).numpy for name, number in TYPES.items()}
_FIELDS = {
    "float_data": (1, 14),
    "double_data": (11, 15),
    "int64_data": (7,),
    "uint64_data": (12, 13),
    "int32_data": (2, 3, 4, 5, 6, 9, 10, 16),
}


def read_model(source: Any) -> tuple[Any, Path | None]:
    """The parsed model, and the directory that its external data may be in."""
    onnx = onnx_package("load")
    directory = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    elif isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size > MAX_BYTES:
                    raise CheckpointError(f"onnx.load: {path} has more than 2 GiB")
                data = file.read(MAX_BYTES)
        except IsADirectoryError as error:
            raise CheckpointError(f"onnx.load: {path} is a directory") from error
        directory = path.resolve().parent
    elif hasattr(source, "read"):
        data = source.read(MAX_BYTES)
    else:
        raise InvalidType(
            f"onnx.load: expected a path, bytes or an open file, got {type(source).__name__}"
        )
    model = onnx.ModelProto()
    malformed = importlib.import_module("google.protobuf.message").DecodeError
    try:
        model.ParseFromString(data)
    except (malformed, RecursionError, ValueError) as error:
        raise CheckpointError(f"onnx.load: not an ONNX file: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise CheckpointError("onnx.load: not an ONNX file: it has no graph")
    return model, directory


def array_of(tensor: Any, directory: Path | None) -> Any:
    """A TensorProto as an array of its own memory, whose size was checked against the data."""
    name = f"onnx.load: tensor {tensor.name[:80]!r}"
    shape = tuple(tensor.dims)
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        raise Unsupported(f"{name}: element type {tensor.data_type} is not supported")
    reach = math.prod(size for size in shape if size)  # an empty array's strides have to fit, too
    if any(size < 0 for size in shape) or len(shape) > 64 or reach * dtype.itemsize >= 2**63:
        raise CheckpointError(f"{name}: malformed shape {shape[:8]}")
    count = math.prod(shape)
    if tensor.data_location == 1:
        raw: Any = _external(tensor, count * dtype.itemsize, directory, name)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
    else:
        return _typed(tensor, dtype, shape, count, name)
    if len(raw) != count * dtype.itemsize:
        raise CheckpointError(
            f"{name}: shape {shape} of {dtype} takes {count * dtype.itemsize} bytes, the file has "
            f"{len(raw)}"
        )
    return np.frombuffer(raw, dtype).reshape(shape).copy()


def _typed(tensor: Any, dtype: Any, shape: tuple[int, ...], count: int, name: str) -> Any:
    """The elements from the field of their type."""
    for field, numbers in _FIELDS.items():
        if tensor.data_type in numbers:
            values = getattr(tensor, field)
            break
    else:
        raise Unsupported(f"{name}: element type {tensor.data_type} without raw data")
    pairs = 2 if dtype.kind == "c" else 1
    if len(values) != count * pairs:
        raise CheckpointError(f"{name}: shape {shape} does not fit {len(values)} elements")
    if tensor.data_type in (10, 16):  # the bits of float16 and bfloat16
        return np.array(values, np.int32).astype(np.uint16).view(dtype).reshape(shape)
    if pairs == 2:
        parts = np.array(values, np.float64).reshape(-1, 2)
        return (parts[:, 0] + 1j * parts[:, 1]).astype(dtype).reshape(shape)
    return np.array(values).astype(dtype).reshape(shape)


def _external(tensor: Any, size: int, directory: Path | None, name: str) -> bytes:
    """The bytes from a file in the model's directory: a regular file, found without links."""
    if directory is None:
        raise CheckpointError(f"{name}: its data is in another file; load the model by its path")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    parts = location.replace("\\", "/").split("/")
    if (
        not location or "\0" in location or ":" in location or location[0] in "/\\~"
        or any(part in ("", ".", "..") for part in parts)
    ):  # fmt: skip
        raise CheckpointError(f"{name}: its data must be below the model, not at {location[:80]!r}")
    path = directory
    try:
        for part in parts:
            path = path / part
            if stat.S_ISLNK(os.lstat(path).st_mode):
                raise CheckpointError(f"{name}: {location[:80]!r} is a link, which is not followed")
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise CheckpointError(f"{name}: {location[:80]!r} is no regular file")
        offset, length = (_number(entries, key, default, name) for key, default in
                          (("offset", 0), ("length", size)))  # fmt: skip
        with open(path, "rb") as file:
            if length != size or offset + length > os.fstat(file.fileno()).st_size:
                raise CheckpointError(
                    f"{name}: needs {size} bytes; {location[:80]!r} has none such at {offset}"
                )
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise CheckpointError(f"{name}: cannot read its data: {error}") from error


def _number(entries: dict[str, str], key: str, default: int, name: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise CheckpointError(f"{name}: malformed {key} {text[:40]!r}")
    return int(text)


def attribute_of(attribute: Any, directory: Path | None) -> Any:
    """The value of a node's attribute."""
    kind = attribute.type
    if kind == 1:
        return float(attribute.f)
    if kind == 2:
        return int(attribute.i)
    if kind == 3:
        return attribute.s.decode("utf-8", "replace")
    if kind == 4:
        return array_of(attribute.t, directory)
    if kind == 6:
        return [float(x) for x in attribute.floats]
    if kind == 7:
        return [int(x) for x in attribute.ints]
    if kind == 8:
        return [x.decode("utf-8", "replace") for x in attribute.strings]
    raise Unsupported(
        f"onnx.load: attribute {attribute.name[:80]!r} is a subgraph, or of another kind that is "
        "not supported"
    )
