"""`torch._dynamo`: what packages name of PyTorch's compiler, said of `adjoint.compile`."""

from __future__ import annotations

import contextlib
from typing import Any

from ...compiler import (  # fmt: skip
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
)
from ...compiler.function import CompiledModule as OptimizedModule
from ...core.errors import MissingName, Unsupported
from . import dynamo_config as config

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable",
    "is_compile_supported", "is_compiling", "list_backends", "mark_dynamic", "mark_static",
    "mark_static_address", "maybe_mark_dynamic", "reset",
]  # fmt: skip

__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too


TransformGetItemToIndex = contextlib.nullcontext  # an index that vmap batches selects anyway


class TensorifyScalarRestartAnalysis(Exception):  # noqa: N818 - PyTorch's name
    """Exception of PyTorch's compiler; nothing here raises it."""


def is_compile_supported(device_type: Any) -> bool:
    """Whether PyTorch's compiler serves a device: it is not here, so that packages take their
    operators.
    """
    return False


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Does nothing: a compiled function notes whose memory it reads."""


def mark_dynamic(t: Any, index: Any, **bounds: Any) -> None:
    """Does nothing: sizes are guarded, and other ones make another program."""


maybe_mark_dynamic = mark_static = mark_dynamic


def reset() -> None:
    """Forget compiled programs: each is forgotten with its function."""


def __getattr__(name: str) -> Any:
    if name in ("eval_frame", "exc", "utils"):
        from . import dynamo

        return dynamo
    if name == "Unsupported":
        return Unsupported
    raise MissingName(f"torch._dynamo.{name}: PyTorch's compiler is not here; adjoint.compile is")
