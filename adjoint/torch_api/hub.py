"""`torch.hub`'s names: the folder of downloaded files. Downloaded code is never executed.

Source: https://docs.pytorch.org/docs/stable/hub.html

>>> import os
>>> os.path.basename(ad.hub.get_dir())
'hub'
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..core.errors import CheckpointError
from ..core.missing_names import refused

__all__ = [
    "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
    "set_dir",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the prefix of its SHA-256 in a file's name

_chosen: dict[str, str] = {}


def get_dir() -> str:
    """The folder of downloaded files: `set_dir`'s, or `hub` in TORCH_HOME (~/.cache/torch)."""
    return _chosen.get("dir") or os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the folder of downloaded files."""
    _chosen["dir"] = os.path.expanduser(os.fspath(d))


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Download a file; it is there whole, or not at all.

    Errors: CheckpointError where its SHA-256 does not begin with `hash_prefix`.
    """
    import urllib.request

    digest = hashlib.sha256()
    folder = os.path.dirname(os.path.abspath(dst))
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        try:
            with urllib.request.urlopen(url) as source:
                while piece := source.read(1 << 20):
                    digest.update(piece)
                    file.write(piece)
            file.close()
            actual = digest.hexdigest()
            if hash_prefix is not None and not actual.startswith(hash_prefix):
                raise CheckpointError(
                    f"hub: the file from {url} has the SHA-256 {actual}, expected {hash_prefix}..."
                )
            os.replace(file.name, dst)
        finally:
            Path(file.name).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """The content of a file, downloaded if it is not there yet; read as by `adjoint.load`.

    Errors: CheckpointError where its SHA-256 is not the one in its name (`check_hash`).
    """
    from ..io import load as read

    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, match.group(1) if match else None, progress)
    return read(path, map_location, weights_only=weights_only)


_CODE = (
    "it would run a repository's code that was downloaded; install the package and import it, or "
    "read its weights by hub.load_state_dict_from_url"
)
load = refused("hub", "load", _CODE)
list = refused("hub", "list", _CODE)
help = refused("hub", "help", _CODE)


def __getattr__(name: str) -> Any:
    """`tqdm`, which programs import from here: the real one, or a stand-in without a bar."""
    if name != "tqdm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tqdm import tqdm
    except ImportError:
        from ..core.progress import NoBar

        return NoBar
    return tqdm
