"""`torch.overrides`: names that packages derive from; modes of functions are not here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.errors import Unsupported
from ..core.overrides import ask
from ..core.tensor_base import TensorBase

__all__ = [
    "TorchFunctionMode", "handle_torch_function", "has_torch_function", "is_tensor_like",
]  # fmt: skip


class TorchFunctionMode:
    """What sees every call of a function while it is open: it cannot be opened here.

    Errors: Unsupported where it is opened.
    """

    def __enter__(self) -> Any:
        raise Unsupported(
            f"overrides.{type(self).__name__}: calls are not shown to modes here; hooks of modules "
            "and adjoint.profiler see what runs"
        )

    def __exit__(self, *exc: Any) -> None:
        """Nothing was opened."""


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of them says itself what functions do with it.

    >>> from adjoint.alias.overrides import has_torch_function
    >>> has_torch_function((ad.ones(1), 3))
    False
    """
    return any(hasattr(type(each), "__torch_function__") for each in relevant_args)


def handle_torch_function(
    public_api: Any, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the first of them that has a say makes of a call.

    Errors: TypeError where none has.
    """
    relevant = [each for each in relevant_args if hasattr(type(each), "__torch_function__")]
    return ask(public_api, relevant, args, kwargs)


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or says itself what functions do with it."""
    return isinstance(inp, TensorBase) or hasattr(type(inp), "__torch_function__")
