"""Older names of PyTorch's `autograd`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NoReturn

from ..core.errors import InvalidArgument
from ..core.mode import MODE, mode_with

_allowed = [True]


class set_multithreading_enabled:  # noqa: N801 - PyTorch's name
    """Whether backward may run its nodes on several threads; set at once as a function, or for a
    `with` block. Here one thread runs them in any case, and kernels use all: values do not depend
    on it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.set_multithreading_enabled.html

    >>> with ad.autograd.set_multithreading_enabled(False):
    ...     ad.autograd.is_multithreading_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self.prev, self.mode = _allowed[0], bool(mode)
        _allowed[0] = self.mode

    def __enter__(self) -> None:
        """Does nothing: the constructor has set the switch."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        _allowed[0] = self.prev

    def clone(self) -> set_multithreading_enabled:
        """A new switch of the same mode."""
        return type(self)(self.mode)


def is_multithreading_enabled() -> bool:
    """The last argument of `set_multithreading_enabled`.

    >>> ad.autograd.is_multithreading_enabled()
    True
    """
    return _allowed[0]


def variable(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused, as in PyTorch: `tensor` makes tensors.

    Errors: InvalidArgument.
    """
    raise InvalidArgument("autograd.variable(...) is deprecated, use adjoint.tensor(...) instead")


def _profiler_enabled() -> bool:
    """Whether a profile records this thread."""
    return MODE.get().observer is not None


def _disable_profiler() -> None:
    """Detach the profiler that records this thread; its `stop()` returns what it saw."""
    MODE.set(mode_with(MODE.get(), observer=None))
