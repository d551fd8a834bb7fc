"""A distribution `torch` of adjoint's in an environment, so that pip does not bring PyTorch.

It is the files of `path_entry.py`: an `__init__` that sets the alias, and metadata with the version
that is followed, by which pip finds that `torch` is there already; `pip uninstall torch` removes
it, too.
Newer packages ask for a newer torch (each torchvision for its own), for which pip would remove
ours: so the environment's pip.conf says which version to keep to.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

from ...core.errors import Unsupported
from .path_entry import INSTALLER, METADATA, files
from .torch_version import __version__

_CONSTRAINTS = "constraints.txt"  # beside the metadata: what pip keeps to


def install(directory: Path) -> Path:
    """Put the distribution into the folder `directory` of packages, or renew it; its metadata.

    Errors: Unsupported where PyTorch itself is installed there, or where it would be found.
    """
    theirs = _pytorch(directory)
    if theirs is not None:
        raise Unsupported(
            f"shim: PyTorch itself is installed in {theirs}; use an environment without it, or run "
            "single programs with `adjoint run --as-torch`"
        )
    (directory / "torch").mkdir(parents=True, exist_ok=True)
    metadata = directory / METADATA
    for old in directory.glob("torch-*.dist-info"):
        shutil.rmtree(old)
    metadata.mkdir()
    lines = []
    for name, content in files().items():
        (directory / name).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    (metadata / _CONSTRAINTS).write_text(f"torch=={__version__}\n")
    lines += [f"{metadata.name}/{_CONSTRAINTS},,", f"{metadata.name}/RECORD,,"]
    (metadata / "RECORD").write_text("\n".join(lines) + "\n")
    return metadata


def keep_version(environment: Path, metadata: Path) -> bool:
    """Makes pip in an environment keep to our version; False where it has settings of its own."""
    settings, wanted = _settings(environment), _setting(metadata)
    if settings.exists() and settings.read_text() != wanted:
        return False
    settings.write_text(wanted)
    return True


def forget_version(environment: Path) -> None:
    """Take that setting of pip's away, if it is the only one."""
    settings = _settings(environment)
    if settings.exists() and settings.read_text().startswith(_HEAD):
        settings.unlink()


_HEAD = "# by adjoint shim\n"


def _settings(environment: Path) -> Path:
    return environment / ("pip.ini" if os.name == "nt" else "pip.conf")


def _setting(metadata: Path) -> str:
    return f"{_HEAD}[install]\nconstraint = {(metadata / _CONSTRAINTS).absolute().as_uri()}\n"


def uninstall(directory: Path) -> None:
    """Take the distribution out of `directory` again.

    Errors: Unsupported where there is none of ours.
    """
    metadata = [each for each in directory.glob("torch-*.dist-info") if _is_ours(each)]
    if not metadata or not _is_package_ours(directory / "torch"):
        raise Unsupported(f"shim: no torch of adjoint's is in {directory}; nothing is removed")
    for each in (*metadata, directory / "torch"):
        shutil.rmtree(each)


def _is_ours(metadata: Path) -> bool:
    installer = metadata / "INSTALLER"
    return installer.exists() and installer.read_text().strip() == INSTALLER


def _is_package_ours(package: Path) -> bool:
    start = package / "__init__.py"
    return start.exists() and "ADJOINTS" in start.read_text(errors="replace")


def _pytorch(directory: Path) -> Path | None:
    """Path of PyTorch itself, among the paths that a program of this interpreter has."""
    for place in (directory, *map(Path, sys.path)):
        package = place / "torch"
        if package.is_dir() and any(package.iterdir()) and not _is_package_ours(package):
            return package
        for found in importlib.metadata.distributions(name="torch", path=[str(place)]):
            path = getattr(found, "_path", None)
            if path is not None and not _is_ours(Path(path)):
                return Path(path)
    return None
