"""Files that take another file's place all at once: a kill leaves the old one or the new one.

The new file is written under a temporary name next to the old one, flushed to the disk, and
renamed. A writer that is killed leaves its temporary file behind; the next writer of the same
file removes it. A writer holds a lock on its temporary file, which the system lifts when it dies,
so that leftovers can be told from files that are being written.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from ..core.errors import InvalidType

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: leftovers stay
    fcntl = None


@contextlib.contextmanager
def replacing(path: Any) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` at the end, or vanishes on an error."""
    path = os.path.realpath(os.fsdecode(path))
    directory, name = os.path.split(path)
    prefix = f".{name[:100]}."  # the whole name could be too long with a suffix
    _remove_leftovers(directory, prefix)
    temporary, handle = _new_file(os.path.join(directory, prefix))
    with open(handle, "wb") as file:
        try:
            yield file
            file.flush()
            _copy_permissions(path, temporary)
            os.fsync(handle)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    _sync_directory(directory)


@contextlib.contextmanager
def writing(f: Any, caller: str) -> Iterator[Any]:
    """`f` itself where it is a file to write to; a file that replaces the one at a path `f`."""
    if hasattr(f, "write"):
        yield f
    elif isinstance(f, (str, os.PathLike)):
        with replacing(os.fspath(f)) as file:
            yield file
    else:
        raise InvalidType(f"{caller}: expected a path or a file object, got {type(f).__name__}")


def _new_file(prefix: str) -> tuple[str, int]:
    """A new locked file: its path and its descriptor."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        path = f"{prefix}{os.urandom(4).hex()}.tmp"
        try:
            handle = os.open(path, flags, 0o666)  # less the process's umask
        except FileExistsError:
            continue
        if _lock(handle) is not False and os.path.exists(path):
            return path, handle
        os.close(handle)  # another writer took it for a leftover before it was locked


def _lock(handle: int) -> bool | None:
    """Whether the file is now locked by us; None where the system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_leftovers(directory: str, prefix: str) -> None:
    """Delete temporary files whose writers died."""
    pattern = re.compile(re.escape(prefix) + r"[0-9a-f]{8}\.tmp")
    try:
        names = os.listdir(directory)
    except PermissionError:  # a directory to write in, not to look at
        return
    for name in names:
        if not pattern.fullmatch(name):
            continue
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):  # another writer removed it first
            handle = os.open(path, os.O_RDWR)
            try:
                if _lock(handle):
                    os.unlink(path)
            finally:
                os.close(handle)


def _copy_permissions(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.chmod(target, os.stat(source).st_mode & 0o777)


def _sync_directory(directory: str) -> None:
    """Make the rename itself durable, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
