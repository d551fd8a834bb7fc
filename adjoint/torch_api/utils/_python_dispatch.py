"""`torch.utils._python_dispatch`: modes of PyTorch's dispatcher, which is not here.

Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-all-torch-api-with-modes
"""

from __future__ import annotations

from typing import Any

from ...core.missing_names import Unmade

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode(Unmade):
    """Mode of PyTorch's dispatcher, which sees operators below the functions: classes may derive
    from it, none can be made.

    Errors: Unsupported.

    >>> from adjoint.utils._python_dispatch import TorchDispatchMode
    >>> TorchDispatchMode()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    adjoint.core.errors.Unsupported: ...
    """

    said = (
        "utils._python_dispatch",
        "there is no dispatcher of PyTorch's operators; overrides.TorchFunctionMode sees "
        "functions, methods and operators",
    )


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor only wraps others, and has `__torch_dispatch__`: none does.

    >>> from adjoint.utils._python_dispatch import is_traceable_wrapper_subclass
    >>> is_traceable_wrapper_subclass(ad.ones(1))
    False
    """
    return False


def _get_current_dispatch_mode() -> None:
    """None: no dispatch mode is ever on."""


def _get_current_dispatch_mode_stack() -> list[Any]:
    """An empty list: no dispatch mode is ever on."""
    return []
