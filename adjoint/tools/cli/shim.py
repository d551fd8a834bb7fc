"""`adjoint shim`: a `torch` of adjoint's in a virtual environment, so that pip brings none."""

from __future__ import annotations

import argparse
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import Unsupported
from ...torch_api.alias import shim

HELP = "install a torch that is adjoint into this virtual environment, before pip brings PyTorch"


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    add("--uninstall", action="store_true", help="take it out again")
    add("--into", metavar="FOLDER", type=Path, help="a folder of packages, such as site-packages")


def run(options: argparse.Namespace) -> int:
    """Install or uninstall, and say where."""
    folder = options.into or _site_packages()
    if options.uninstall:
        shim.uninstall(folder)
        if options.into is None:
            shim.forget_version(Path(sys.prefix))
        print(f"torch, which was adjoint, is no longer in {folder}")
        return 0
    metadata = shim.install(folder)
    print(f"import torch is adjoint now: {metadata}")
    if options.into is not None or not shim.keep_version(Path(sys.prefix), metadata):
        print(f"so that pip keeps it: pip install --constraint {metadata / 'constraints.txt'} ...")
    return 0


def _site_packages() -> Path:
    if sys.prefix == sys.base_prefix:
        raise Unsupported(
            "shim: this Python is of no virtual environment, and all its programs would get "
            "adjoint for torch; make one (python -m venv), or name a folder of packages by --into"
        )
    return Path(sysconfig.get_path("purelib"))
