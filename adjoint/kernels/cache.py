"""Compiled kernels on disk, so that a second process starts warm.

A file holds object code, which the process will execute; so a file is used only if the directory
and the file belong to the user and nobody else may write to them, if it is a regular file and no
link, and if the checksum in front of it fits. Whoever can write as the user can already run code as
the user; the checksum is against damage, not against them. Anything else is treated as absent.

A file's name is the hash of all that the code depends on: the kernel, the layout, the processor,
and the sources of this package. Files are written beside their place and renamed, so that processes
never see half of one; the oldest used ones are removed when all together exceed
ADJOINT_CACHE_BYTES.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from adjoint.core import config

MAGIC = b"adjoint object 1\n"
_written = 0  # since the size of the directory was last looked at


@functools.lru_cache(maxsize=1)
def _sources() -> str:
    """A hash of this package's sources and of the version of LLVM that compiles its output."""
    import llvmlite

    total = hashlib.sha256(llvmlite.__version__.encode())
    here = Path(__file__).parent
    for path in sorted((*here.glob("*.py"), *here.glob("*.json"))):
        total.update(path.read_bytes())
    return total.hexdigest()


def digest(*parts: str) -> str:
    """The name of what these texts determine, together with the compiler itself."""
    return hashlib.sha256("\0".join((_sources(), *parts)).encode()).hexdigest()


def directory() -> Path | None:
    """Where kernels are kept, or None if they are not: no place, or a place that is not safe."""
    if limit() <= 0:
        return None
    named = config.read("ADJOINT_CACHE_DIR")
    path = Path(named).expanduser() / "kernels"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = os.stat(path, follow_symlinks=False)
    except (OSError, RuntimeError):
        return None
    return path if stat.S_ISDIR(state.st_mode) and _ours(state) else None


def limit() -> int:
    """The greatest number of bytes to keep (0 if the setting is no number)."""
    text = config.read("ADJOINT_CACHE_BYTES")
    return int(text) if text.isdecimal() else 0


def _ours(state: os.stat_result) -> bool:
    """Whether nobody but the user can have written it."""
    return state.st_uid == _user() and not state.st_mode & 0o022


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def read(name: str) -> bytes | None:
    """The object code of that name, if it is there and sound."""
    where = directory()
    if where is None:
        return None
    path = where / name
    try:
        file = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError:
        return None
    with open(file, "rb") as stream:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or not _ours(state) or state.st_size > limit():
            return None
        content = stream.read()
    head = len(MAGIC) + 32
    code = content[head:]
    if content[: len(MAGIC)] != MAGIC or content[len(MAGIC) : head] != _checksum(name, code):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: the last to be removed
    return code


def write(name: str, code: bytes) -> None:
    """Keeps object code; a full or read-only disk is no error."""
    global _written
    where = directory()
    if where is None:
        return
    temporary = None
    try:
        file, temporary = tempfile.mkstemp(dir=where, prefix=".")
        with open(file, "wb") as stream:
            stream.write(MAGIC + _checksum(name, code) + code)
        os.replace(temporary, where / name)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return
    _written += len(code)
    if _written > limit() // 16:
        _written = 0
        _trim(where)


def _checksum(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + code).digest()


def _trim(where: Path) -> None:
    """Removes the files that were not used for longest until three quarters of the limit remain."""
    found = []
    for entry in os.scandir(where):
        with contextlib.suppress(OSError):  # another process may have removed it
            state = entry.stat(follow_symlinks=False)
            found.append((state.st_mtime, state.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    if total <= limit():
        return
    for _, size, path in sorted(found):
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= limit() * 3 // 4:
            return
