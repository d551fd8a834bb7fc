"""The folder on the path of other processes in which they find `torch`, and its version.

adjoint holds no such folder: one that is installed would hide PyTorch from whoever has it on a
path. It is written where only the user can write, into the folder of ADJOINT_CACHE_DIR, once for
each content, or, where that cannot be, into a temporary one that is removed at exit.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from ...backends.codegen import cache
from ...core.errors import Unsupported
from .torch_version import __version__

INSTALLER = "adjoint"
_PREFIX = "adjoint-torch-"  # of temporary folders
METADATA = f"torch-{__version__}.dist-info"


@functools.lru_cache(maxsize=1)
def files() -> dict[str, bytes]:
    """What the folder holds: an `__init__` that sets the alias, and metadata with the version that
    is followed, by which `importlib.metadata` and pip find it.
    """
    about = (
        f"Metadata-Version: 2.1\nName: torch\nVersion: {__version__}\n"
        "Summary: adjoint under PyTorch's name (adjoint.as_torch); the version is that of the API\n"
    )
    return {
        "torch/__init__.py": Path(__file__).with_name("torch_shim.py.txt").read_bytes(),
        f"{METADATA}/INSTALLER": f"{INSTALLER}\n".encode(),
        f"{METADATA}/METADATA": about.encode(),
    }


@functools.lru_cache(maxsize=1)
def folder() -> str:
    """The folder, which is there from now on.

    Errors: Unsupported where there is no place that is the user's alone.
    """
    content = hashlib.sha256(repr(sorted(files().items())).encode()).hexdigest()
    try:
        path = cache.place(f"torch-{content[:16]}")
        _write(path)
        return str(path)
    except OSError:
        return _from_above() or _temporary()


def _write(path: Path) -> None:
    """Put the files into a folder, each whole or not at all; several processes may do so at once.

    Errors: OSError where others can write there, or the user cannot.
    """
    for name, content in files().items():
        above, _, last = name.rpartition("/")
        with cache.user_folder(path / above) as at:
            if not cache.holds(last, content, at):
                cache.put(last, content, at)


def _from_above() -> str:
    """The temporary folder of the process that started this one; "" where it has none."""
    start = Path(getattr(sys.modules.get("torch"), "__file__", None) or "")
    path = start.parent.parent
    if not path.name.startswith(_PREFIX) or not path.is_absolute():
        return ""
    try:
        for name, content in files().items():
            above, _, last = name.rpartition("/")
            with cache.user_folder(path / above) as at:
                if not cache.holds(last, content, at):
                    return ""
    except OSError:
        return ""
    return str(path)


def _temporary() -> str:
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        atexit.register(_remove, path, os.getpid())
        if os.open in os.supports_dir_fd:
            _write(path)
        else:  # a system whose temporary folder is each user's own
            for name, content in files().items():
                (path / name).parent.mkdir(exist_ok=True)
                (path / name).write_bytes(content)
    except OSError as error:
        raise Unsupported(
            "as_torch: there is no folder in which other processes would find torch, and only this "
            f"user can write ({error}); set ADJOINT_CACHE_DIR or TMPDIR to one"
        ) from error
    return str(path)


def _remove(path: Path, process: int) -> None:
    """Remove the folder when the process that made it ends, and not with one that it forked."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
