"""The bytes of a file that may be hostile: read by place and length, never beyond the end."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ..core.errors import CheckpointError, InvalidType


class Source:
    """A file of known size; `is_copy` where it is one in memory of what a file object gave."""

    def __init__(self, file: BinaryIO, name: str, is_copy: bool = False) -> None:
        self.file = file
        self.name = name
        self.is_copy = is_copy
        self.size = file.seek(0, os.SEEK_END)

    def read(self, start: int, count: int) -> bytes:
        """`count` bytes from `start`; CheckpointError where the file has fewer."""
        self._assert_inside(start, count)
        self.file.seek(start)
        found = self.file.read(count)
        if len(found) != count:
            raise CheckpointError("the file was cut short while it was read")
        return found

    def head(self, count: int) -> bytes:
        """The first bytes, at most `count`."""
        return self.read(0, min(count, self.size))

    def array(self, start: int, count: int, dtype: Any) -> Any:
        """`count` bytes from `start` as a new one-dimensional array."""
        self._assert_inside(start, count)
        dtype = np.dtype(dtype)
        if count % dtype.itemsize:
            raise CheckpointError(f"{count} bytes hold no whole number of {dtype} elements")
        array = np.empty(count // dtype.itemsize, dtype)
        self.read_into(array, start)
        return array

    def read_into(self, array: Any, start: int) -> None:
        """Fill a one-dimensional array with the bytes from `start`."""
        self._assert_inside(start, array.nbytes)
        self.file.seek(start)
        into: Any = array.view(np.uint8).data if array.size else b""
        while into:
            read = self.file.readinto(into)  # type: ignore[attr-defined]
            if not read:
                raise CheckpointError("the file was cut short while it was read")
            into = into[read:]

    def _assert_inside(self, start: int, count: int) -> None:
        if start < 0 or count < 0 or start + count > self.size:
            raise CheckpointError(
                f"{count} bytes at {start} are outside the file, which has {self.size}; was it cut "
                "short?"
            )


@contextlib.contextmanager
def opened(f: Any) -> Iterator[Source]:
    """`f`, a path or a file object from where it stands, as a Source."""
    if hasattr(f, "read"):
        yield Source(io.BytesIO(f.read()), repr(f), is_copy=True)
    elif isinstance(f, (str, os.PathLike)):
        with open(f, "rb", buffering=1 << 16) as file:
            if file.seekable():
                yield Source(file, repr(os.fspath(f)))
            else:  # a pipe, of which a part is read once
                yield Source(io.BytesIO(file.read()), repr(os.fspath(f)), is_copy=True)
    else:
        raise InvalidType(f"load: expected a path or a file object, got {type(f).__name__}")


@contextlib.contextmanager
def named(source: Source) -> Iterator[None]:
    """Say in every error which file is meant; anything unforeseen is the file's fault."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"load: {source.name}: {_short(error)}") from error.__cause__
    except OSError:
        raise
    except RecursionError:
        raise CheckpointError(f"load: {source.name} nests too deeply") from None
    except Exception as error:  # what only a file made by hand can provoke
        raise CheckpointError(
            f"load: {source.name} cannot be understood: {_short(error)}"
        ) from error


def _short(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= 1000 else text[:1000] + "..."
