"""Handles returned by registrations, which undo them."""

from __future__ import annotations

from typing import Any

from .argument_repr import argument_repr

__all__ = ["RemovableHandle"]


class RemovableHandle:
    """Undoes a registration: `remove()`, or leaving a `with` block.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.utils.hooks.RemovableHandle.html

    >>> x = ad.ones(1, requires_grad=True)
    >>> with x.register_hook(lambda g: g * 2):
    ...     x.sum().backward()
    >>> x.grad
    tensor([2.])
    """

    _next = 0

    _in_repr = ("id",)
    __repr__ = argument_repr

    def __init__(self, hooks: dict[int, Any]) -> None:
        RemovableHandle._next += 1
        self.id = RemovableHandle._next
        self._hooks = hooks

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def register(hooks: dict[int, Any], hook: object) -> RemovableHandle:
    """Add a hook to `hooks`; the handle removes it."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
