"""`torch.ops`: operators that were declared in Python; libraries in C++ cannot be loaded here."""

from __future__ import annotations

from typing import Any

from ..core.errors import Unsupported
from ..library import operator


class LibraryError(Unsupported, OSError):
    """A library in C++ is not loaded (packages that can do without expect an OSError)."""


class Namespace:
    """The operators that were declared in one namespace (`library.custom_op`)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return operator(self._name, name)


def load_library(path: Any) -> None:
    """Refused: a library in C++ needs PyTorch's own tensors.

    Errors: LibraryError, an OSError.
    """
    raise LibraryError(f"torch.ops.load_library: {path} was made for PyTorch's own tensors")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
    return Namespace(name)
