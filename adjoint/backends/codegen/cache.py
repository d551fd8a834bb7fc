"""Compiled kernels on disk, so that a second process starts warm.

A file holds object code, which the process will execute; so it is used only if nobody but the user
can have written it. Every folder on the way belongs to the user or root, and others may not write
to it, or may not replace what is in it (as in /tmp; a group whose only member is the user is not
others); the last one belongs to the user, and nobody else may write to it. The file is a regular
one of the user's, no link, has no second name, and begins with a digest of name and code under a
key that only the user can read: a file of the user's with a stranger's content, put here under a
name that fits, is not used either. Folders are opened one from the other, so that nothing can be
exchanged between looking and opening.

A file's name is the hash of all that the code depends on: the kernel, the layout, the exact
processor, the versions of the libraries, and all sources that write code. What it holds is another
name, that of the object code: the hash of the text that was compiled, with the processor and the
compiler. So sources that have changed cost no compiler where they write the same text. Anything
that does not fit is as good as absent: it is compiled again, without a word
(`ADJOINT_DEBUG=kernels` has one).
Files are written beside their place and renamed, so that processes never see half of one; a full
disk, or none that can be written, is no error. The oldest used files are removed when all together
exceed ADJOINT_CACHE_BYTES.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from adjoint.core import config, debug, policy
from adjoint.core.package import FOLDER

MAGIC = b"adjoint object 3\n"
KEY = "key"  # the file that has the key
_SIZE = 32  # bytes of a digest, and of the key
_LINKS = 40  # symbolic links that one path may pass through
_WRITERS = [Path(FOLDER, "backends", name) for name in ("codegen", "native")]
_written = 0  # since the size of the directory was last looked at


def _versions() -> tuple[object, ...]:
    """Versions of the libraries that make code."""
    import llvmlite
    import llvmlite.binding
    import numpy as np

    return llvmlite.__version__, llvmlite.binding.llvm_version_info, np.__version__


@functools.lru_cache(maxsize=1)
def _sources() -> str:
    """A hash of all sources that write code, of the limits that they read, and of the versions of
    the libraries that make code of it.
    """
    versions = _versions()
    total = hashlib.sha256(repr((versions, policy.LIMITS)).encode())
    for folder in _WRITERS:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".json"):
                total.update(f"\0{path.relative_to(folder)}\0".encode())
                total.update(path.read_bytes())
    return total.hexdigest()


def digest(*parts: str) -> str:
    """The name of what these texts determine, together with the compiler itself."""
    return hashlib.sha256("\0".join((_sources(), *parts)).encode()).hexdigest()


@functools.lru_cache(maxsize=1)
def _compiler() -> str:
    """A hash of what makes object code of a text: the libraries, and the source that calls them."""
    source = Path(FOLDER, "backends", "codegen", "target.py").read_bytes()
    return hashlib.sha256(repr(_versions()).encode() + source).hexdigest()


def text_digest(text: str, name: str, host: str) -> str:
    """The name of the object code of a text for a processor, whatever its symbols are called: where
    the text has `name`, its code has this one.
    """
    parts = _compiler(), host, text.replace(name, "\0")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def limit() -> int:
    """The greatest number of bytes to keep (0 if the setting is no number)."""
    text = config.read("ADJOINT_CACHE_BYTES")
    return int(text) if text.isdecimal() else 0


def find(name: str) -> tuple[str, bytes] | None:
    """The name of the object code that is kept for a name, and that code; None without one."""
    kept = read(name, "sought by its text")
    own = "" if kept is None else kept.decode("ascii", "replace")
    code = read(own) if own.isalnum() else None  # a name in this folder
    return None if code is None else (own, code)


def keep(name: str, own: str) -> None:
    """Notes under which name the object code of another name is kept."""
    write(name, own.encode("ascii"))


def read(name: str, absent: str = "compiled") -> bytes | None:
    """The content of that name, if it is there and sound. `absent`: what happens if not, for
    `ADJOINT_DEBUG=kernels`.
    """
    try:
        with _folder() as folder, _opened(name, folder) as (file, size):
            content = _all(file, size)
            head = len(MAGIC) + _SIZE
            code = content[head:]
            if content[: len(MAGIC)] != MAGIC or not hmac.compare_digest(
                content[len(MAGIC) : head], _signature(_key(folder), name, code)
            ):
                raise PermissionError(f"{name} is damaged, or was written with another key")
            with contextlib.suppress(OSError):  # on a disk that is only read
                os.utime(file)  # used now: the last to be removed
            return code
    except OSError as error:
        _tell(absent, name, error)
        return None


def write(name: str, code: bytes) -> None:
    """Keeps a name's content; a full or read-only disk is no error."""
    global _written
    try:
        with _folder() as folder:
            key = _key(folder, make=True)
            put(name, MAGIC + _signature(key, name, code) + code, folder)
            _written += len(code)
            if _written > limit() // 16:
                _written = 0
                _trim(folder)
    except OSError as error:
        _tell("not kept", name, error)


def reason_off() -> str:
    """The reason why nothing is kept on disk; '' where kernels are."""
    try:
        with _folder():
            return ""
    except OSError as error:
        return str(error)


# ---- folders and files ---------------------------------------------------------------------------


@contextlib.contextmanager
def _folder() -> Iterator[int]:
    """The open directory in which kernels are kept; what of the way to it is missing is made.

    Errors: OSError where there is none, or none that is safe.
    """
    with user_folder(place("kernels")) as folder:
        yield folder


def place(name: str) -> Path:
    """The path of a folder in the user's cache.

    Errors: OSError where nothing is to be kept, or there is no home.
    """
    named = config.read("ADJOINT_CACHE_DIR")
    if limit() <= 0 or not named:
        raise OSError("ADJOINT_CACHE_BYTES or ADJOINT_CACHE_DIR says to keep nothing")
    try:
        return Path(named).expanduser().absolute() / name
    except RuntimeError as error:  # no home
        raise OSError(str(error)) from error


@contextlib.contextmanager
def user_folder(path: Path) -> Iterator[int]:
    """The open directory at an absolute path, made where it is missing, in which nobody but the
    user can have put anything.

    Errors: OSError where it cannot be made or opened, or is not safe.
    """
    if os.open not in os.supports_dir_fd:
        raise OSError("this system opens no files from their folders, which is what makes it safe")
    folder = _walked(path)
    try:
        yield folder
    finally:
        os.close(folder)


def _walked(path: Path) -> int:
    """An absolute path's directory, open.

    Errors: OSError where it cannot be opened or made, or is not safe.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    waiting = list(path.parts[:0:-1])  # the next one last
    at, links = os.open(path.anchor, flags), 0
    try:
        while True:
            state = os.fstat(at)
            if not waiting:
                if state.st_uid != _user() or state.st_mode & 0o022:
                    raise PermissionError(f"{path} is not the user's alone to write to")
                return at
            if state.st_uid not in (0, _user()) or _is_open(state):
                raise PermissionError(f"what {waiting[-1]} of {path} lies in is others' to change")
            part = waiting.pop()
            try:
                below = os.open(part, flags, dir_fd=at)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.mkdir(part, 0o700, dir_fd=at)
                below = os.open(part, flags, dir_fd=at)
            except OSError:
                link = os.stat(part, dir_fd=at, follow_symlinks=False)
                links += 1
                allowed = link.st_uid in (0, _user()) and links <= _LINKS and waiting
                if not (stat.S_ISLNK(link.st_mode) and allowed):
                    raise
                aim = Path(os.readlink(part, dir_fd=at))
                waiting += reversed(aim.parts[1:] if aim.anchor else aim.parts)
                below = os.open(aim.anchor or ".", flags, dir_fd=at)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise


def _is_open(state: os.stat_result) -> bool:
    """Whether other users can replace the files in a folder."""
    if state.st_mode & stat.S_ISVTX:
        return False
    if state.st_mode & 0o002:
        return True
    return bool(state.st_mode & 0o020) and not _is_private(state.st_gid, _user())


@functools.lru_cache(maxsize=8)
def _is_private(group: int, user: int) -> bool:
    """Whether nobody else is in a group: many systems give each user one, whom folders that are
    made then let write.
    """
    import grp
    import pwd

    try:
        own, members = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return (
        user != 0  # root's group has users of many names
        and own.pw_gid == group
        and {own.pw_name}.issuperset(members.gr_mem)
        and all(each.pw_uid == user for each in pwd.getpwall() if each.pw_gid == group)
    )


@contextlib.contextmanager
def _opened(name: str, folder: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """A file to read, and its size.

    Errors: OSError where it is not there, or could be somebody else's.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(name, flags, dir_fd=folder)
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
            raise PermissionError(f"{name} is no file, or has another name, too")
        if state.st_uid != _user() or state.st_mode & (0o077 if name == KEY else 0o022):
            raise PermissionError(f"{name} is not the user's alone")
        if state.st_size > (limit() if most is None else most):
            raise PermissionError(f"{name} is larger than all that is kept")
        yield file, state.st_size
    finally:
        os.close(file)


def _all(file: int, size: int) -> bytes:
    """Reads a whole file of a known size."""
    content = bytearray()
    while len(content) < size:
        part = os.read(file, size - len(content))
        if not part:
            break
        content += part
    return bytes(content)


def holds(name: str, content: bytes, folder: int) -> bool:
    """Whether a folder has a sound file of that name and content."""
    try:
        with _opened(name, folder, len(content)) as (file, size):
            return _all(file, size) == content
    except OSError:
        return False


def put(name: str, content: bytes, folder: int) -> None:
    """Write a file whole, or not at all."""
    temporary = f".{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as stream:
            stream.write(content)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _user() -> int:
    return os.geteuid()


# ---- the key -------------------------------------------------------------------------------------


def _key(folder: int, make: bool = False) -> bytes:
    """The key that signs cached files. With `make`, a missing or damaged key is replaced by a new
    one.

    Errors: OSError where there is none.
    """
    try:
        with _opened(KEY, folder) as (file, size):
            key = _all(file, size)
            if len(key) != _SIZE:
                raise PermissionError("the key is damaged")
            return key
    except OSError:
        if not make:
            raise
    put(KEY, secrets.token_bytes(_SIZE), folder)
    return _key(folder)  # perhaps another process's, which was the last to write


def _signature(key: bytes, name: str, code: bytes) -> bytes:
    return hmac.digest(key, name.encode() + b"\0" + code, "sha256")


# ---- what is left over ---------------------------------------------------------------------------


def _trim(folder: int) -> None:
    """Removes the files that were not used for longest until three quarters of the limit remain."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may have removed it
                state = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(state.st_mode) and entry.name != KEY:
                    files.append((state.st_mtime, state.st_size, entry.name))
    total = sum(size for _, size, _ in files)
    if total <= limit():
        return
    for _, size, name in sorted(files):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
            total -= size
        if total <= limit() * 3 // 4:
            return


def _tell(what: str, name: str, error: OSError) -> None:
    if "kernels" in debug.on:
        debug.say("kernels", f"{name[:12]}: {what}: {error}")
