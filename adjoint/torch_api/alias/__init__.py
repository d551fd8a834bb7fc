"""PyTorch programs run without PyTorch: `import torch` gives adjoint's own modules.

`finder.py` answers imports, `top.py` is the module `torch` itself, `naming.py` lets classes call
themselves PyTorch's, `torch_version.py` says which API is followed, `path_entry.py` writes what
other processes find on their path. Nothing here is imported without `adjoint.as_torch()`.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ...core.errors import Unsupported
from .path_entry import folder

__all__ = ["as_torch"]

# Python's modules that are there after PyTorch's import: programs use them without one of their own
BROUGHT = ("concurrent.futures", "multiprocessing.connection")


def as_torch() -> Any:
    """Make `import torch`, and all that follows it, mean adjoint, in this process and in those that
    it starts; the first line of a program, or `adjoint run --as-torch script.py`.

    `torch.nn` is `adjoint.nn`, and so on; `torch` itself is a module of its own with PyTorch's
    `__version__`, behind which are adjoint's names. Types call themselves PyTorch's from then on.
    The devices "cuda" and "torch", and the engine "gloo", are PyTorch's and are refused. Again, it
    changes nothing. Returns the module `torch`.

    Errors: Unsupported where PyTorch itself is imported already.
    """
    from .top import Torch

    found = sys.modules.get("torch")
    if isinstance(found, Torch):
        return found
    origin = getattr(found, "__file__", None)
    if found is not None and not hasattr(found, "ADJOINTS"):
        raise Unsupported(
            f"as_torch: torch is imported already, from {origin}; call adjoint.as_torch() before "
            "anything imports torch, or start the program with `adjoint run --as-torch`"
        )
    from ...ops.random.generators import follow_torch
    from . import finder, naming

    torch = finder.install()
    naming.take_names()
    follow_torch()
    if folder() not in sys.path:
        sys.path.insert(0, folder())  # where importlib.metadata finds the version
    os.environ.update(inherited(os.environ))
    for name in BROUGHT:
        importlib.import_module(name)
    return torch


def inherited(environment: Any) -> dict[str, str]:
    """Environment variables that give a child process with such an environment the alias."""
    path = environment.get("PYTHONPATH", "")
    others = [each for each in path.split(os.pathsep) if each and each != folder()]
    return {"PYTHONPATH": os.pathsep.join((folder(), *others))}
