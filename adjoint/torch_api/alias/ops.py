"""`torch.ops`: operators that were declared in Python; libraries in C++ cannot be loaded here, but
those whose operators adjoint has are as good as loaded.
"""

from __future__ import annotations

import importlib
from pathlib import PurePath
from typing import Any

import adjoint

from ...core.errors import Unsupported
from ..library import operator

OURS = {("torchvision", "_C"): "vision"}  # where a library lies, what it is called: who declares it


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


class Aten:
    """The operators of PyTorch's own: adjoint's functions and methods of those names."""

    def __getattr__(self, name: str) -> AtenOp:
        if name.startswith("__"):
            raise AttributeError(name)
        made = AtenOp(name)
        setattr(self, name, made)
        return made


class AtenOp:
    """An operator under PyTorch's name, which packages call and compare with; `NAME.OVERLOAD` is
    another.
    """

    def __init__(self, name: str, overload: str = "") -> None:
        self._name = name
        self._overload = overload

    def __getattr__(self, overload: str) -> AtenOp:
        if overload.startswith("_") or self._overload:
            raise AttributeError(overload)
        made = AtenOp(self._name, overload)
        setattr(self, overload, made)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute it.

        Errors: Unsupported where adjoint has no function of its name.
        """
        for space in (adjoint, adjoint.nn.functional, adjoint.Tensor):
            if hasattr(space, self._name):
                return getattr(space, self._name)(*args, **kwargs)
        raise Unsupported(f"torch.ops.aten.{self._name}: no function of adjoint's has that name")

    def __repr__(self) -> str:
        return f"<aten.{self._name}{'.' * bool(self._overload)}{self._overload}>"


aten = Aten()


def load_library(path: Any) -> None:
    """Declare the operators of a library that adjoint has; others, in C++, need PyTorch's tensors.

    Errors: LibraryError, an OSError.
    """
    file = PurePath(str(path))
    module = OURS.get((file.parent.name, file.name.partition(".")[0]))
    if module is not None:
        importlib.import_module(f".{module}", __package__).declare()
        return
    raise LibraryError(f"torch.ops.load_library: {path} was made for PyTorch's own tensors")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
    return Namespace(name)
