"""NumPy's `.npz`: a zip archive of arrays, never of pickled objects.

Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.dtype import from_numpy_dtype
from ..core.errors import CheckpointError, InvalidArgument, InvalidType
from ..ops.create.exchange import from_numpy
from ..tensor import Tensor
from .atomic import writing
from .source import named, opened
from .zip_archive import STORED, Archive, write_archive

MAX_HEADER = 10_000  # bytes of a member's description, as in NumPy
_HEADERS: dict[Any, Any] = {  # versions; a third one is for names of fields, which are not read
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
MAX_UNPACKED = 2 << 30  # bytes of all compressed members together, unless the caller allows more


def save_npz(tensors: Mapping[str, Any], f: Any) -> None:
    """Write a dict of tensors as a `.npz` file, which `numpy.load` reads.

    Errors: InvalidType for anything but tensors under names; InvalidArgument for bfloat16, which
    NumPy has not, and for names that are no file names.
    Source: https://numpy.org/doc/stable/reference/generated/numpy.savez.html

    >>> import io
    >>> file = io.BytesIO()
    >>> ad.io.save_npz({"x": ad.arange(3)}, file)
    >>> _ = file.seek(0)
    >>> np.load(file)["x"]
    array([0, 1, 2])
    """
    if not isinstance(tensors, Mapping):
        raise InvalidType(f"save_npz: expected a dict of tensors, got {type(tensors).__name__}")
    members = [(f"{name}.npy", _packed(name, value)) for name, value in tensors.items()]
    with writing(f, "save_npz") as file:
        write_archive(file, members)


def _packed(name: Any, value: Any) -> bytes:
    if type(name) is not str or not isinstance(value, (Tensor, np.ndarray)):
        raise InvalidType(
            f"save_npz: {name!r:.60} is a {type(value).__name__}; a .npz file holds tensors under "
            "names; for other values use a .safetensors or .pt path"
        )
    if ".." in name.split("/") or not name or name[0] == "/" or any(c in name for c in "\\:\0"):
        raise InvalidArgument(f"save_npz: {name!r:.60} cannot be the name of a file; rename it")
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.dtype.kind not in "biufc":
        raise InvalidArgument(
            f"save_npz: {name!r} is {array.dtype}, which NumPy's files cannot hold; convert it, "
            "e.g. with .float(), or use a .safetensors or .pt path"
        )
    packed = io.BytesIO()
    np.lib.format.write_array(packed, array, allow_pickle=False)
    return packed.getvalue()


def load_npz(f: Any, *, max_bytes: int = MAX_UNPACKED) -> dict[str, Any]:
    """Read a `.npz` file as a dict of tensors; nothing in it is ever unpickled.

    `max_bytes` bounds what compressed members may unpack to, all of them together.

    Errors: CheckpointError for a file that is corrupt, too large, or holds Python objects.
    Source: https://numpy.org/doc/stable/reference/generated/numpy.load.html

    >>> import io
    >>> file = io.BytesIO()
    >>> np.savez(file, x=np.arange(3))
    >>> _ = file.seek(0)
    >>> ad.io.load_npz(file)
    {'x': tensor([0, 1, 2])}
    """
    with opened(f) as source, named(source):
        return read_npz(Archive(source), max_bytes)


def read_npz(archive: Archive, max_bytes: int = MAX_UNPACKED) -> dict[str, Any]:
    """The tensors in an archive of `.npy` members."""
    tensors = {}
    unpacked = 0
    for name, member in archive.members.items():
        if not name.endswith(".npy"):
            raise CheckpointError(f"the archive holds {name!r}, which is no array")
        if member.method != STORED:
            unpacked += member.size
        if unpacked > max_bytes:
            raise CheckpointError(
                f"the archive's members unpack to more than {max_bytes} bytes; if you trust it, "
                "load it with adjoint.io.load_npz(path, max_bytes=...)"
            )
        tensors[name[:-4]] = from_numpy(
            _array(name, archive.read(name, max(max_bytes, member.stored)))
        )
    return tensors


def _array(name: str, raw: bytes) -> Any:
    """The array in a `.npy` file; what its description promises must be there."""
    file = io.BytesIO(raw)
    try:
        read_header = _HEADERS[np.lib.format.read_magic(file)]
        shape, fortran, dtype = read_header(file, max_header_size=MAX_HEADER)
    except (ValueError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise CheckpointError(f"member {name!r} is no array of NumPy's: {error}") from None
    if dtype.kind not in "biufc":
        raise CheckpointError(f"member {name!r} has dtype {dtype}; only arrays of numbers are read")
    data = memoryview(raw)[file.tell() :]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != data.nbytes:
        raise CheckpointError(
            f"member {name!r} has shape {shape} of {dtype} and {data.nbytes} bytes of data"
        )
    array = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))  # its own, aligned
    from_numpy_dtype(array.dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
