"""`torch.ops`: operators of libraries in C++, of which none can be loaded here."""

from __future__ import annotations

from typing import Any

from ..core.errors import MissingName, Unsupported


class LibraryError(Unsupported, OSError):
    """A library in C++ is not loaded (packages that can do without expect an OSError)."""


class Namespace:
    """The operators of one library: none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise MissingName(
            f"torch.ops.{self._name}.{name}: operators in C++ are PyTorch's; use the function of "
            "adjoint's that computes the same, or autograd.Function"
        )


def load_library(path: Any) -> None:
    """Refused: a library in C++ needs PyTorch's own tensors.

    Errors: LibraryError, an OSError.
    """
    raise LibraryError(f"torch.ops.load_library: {path} was made for PyTorch's own tensors")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
    return Namespace(name)
