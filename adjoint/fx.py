"""`torch.fx`'s names: nothing is traced symbolically here, so that only marks have a meaning.

`adjoint.compile` captures functions, `adjoint.lazy` records operations.

Source: https://docs.pytorch.org/docs/stable/fx.html

>>> ad.fx.wrap(len) is len
True
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from .core.errors import Unsupported
from .nn.modules.module import Module

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer",
    "symbolic_trace", "wrap",
]  # fmt: skip

__path__: list[str] = []  # PyTorch's is a package; the alias has names of its modules

node = proxy = sys.modules[__name__]  # PyTorch's modules of these names
Target = Any
F = TypeVar("F")


def _refuse(name: str) -> Any:
    raise Unsupported(
        f"fx.{name}: nothing is traced symbolically here yet; adjoint.compile captures functions, "
        "module.register_forward_hook gives what is inside a model"
    )


def wrap(fn_or_name: F) -> F:
    """Mark a function that tracing would leave whole; nothing is traced: it is given back."""
    return fn_or_name


def symbolic_trace(root: Any, concrete_args: Any = None) -> Any:
    """Refused: nothing is traced symbolically.

    Errors: Unsupported.
    """
    _refuse("symbolic_trace")


class _Unmade:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


class Graph(_Unmade):
    """None is made here.

    Errors: Unsupported.
    """


class Node(_Unmade):
    """None is made here.

    Errors: Unsupported.
    """


class Proxy(_Unmade):
    """None is made here.

    Errors: Unsupported.
    """


class Tracer(_Unmade):
    """None is made here; programs may derive from it.

    Errors: Unsupported.
    """


class Interpreter(_Unmade):
    """None is made here.

    Errors: Unsupported.
    """


class Transformer(_Unmade):
    """None is made here.

    Errors: Unsupported.
    """


class GraphModule(Module):
    """None is made here.

    Errors: Unsupported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("GraphModule")
