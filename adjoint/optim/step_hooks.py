"""Hooks around the steps of optimizers: those of one, and those of all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd.recording import Recorder
from ..core.errors import InvalidType
from ..core.mode import MODE, mode_with, observed
from ..nn.hooks import add
from ..tensor import RemovableHandle

R = TypeVar("R")

__all__ = ["register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

_before_any: dict[int, Callable[..., Any]] = {}
_after_any: dict[int, Callable[..., Any]] = {}
ON_ALL = _before_any, _after_any  # hooks of all optimizers


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer.

    `hook` may return a pair (args, kwargs) that `step` gets instead. `remove()` of the handle that
    is returned takes the hook away.

    Args:
        hook: Function of the optimizer and the arguments of `step`.

    Errors: InvalidType, in `step`, where it returns something else.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_pre_hook.html

    >>> with ad.optim.optimizer.register_optimizer_step_pre_hook(lambda o, a, k: print("step")):
    ...     ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1).step()
    step
    """
    return add(_before_any, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer.

    `remove()` of the handle that is returned takes the hook away.

    Args:
        hook: Function of the optimizer and the arguments of `step`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_post_hook.html

    >>> with ad.optim.optimizer.register_optimizer_step_post_hook(lambda o, a, k: print("done")):
    ...     ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=0.1).step()
    done
    """
    return add(_after_any, hook)


def _computed(step: Callable[..., R], *args: object, **kwargs: object) -> R:
    """The result of a step, which is computed, not recorded, inside the block of a graph, too."""
    mode = MODE.get()
    if not isinstance(mode.executor, Recorder):
        return step(*args, **kwargs)
    try:
        MODE.set(mode_with(mode, executor=None))
        return step(*args, **kwargs)
    finally:
        MODE.set(mode)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the hooks around it; cheap where there are none."""
    if getattr(step, "runs_hooks", False):
        return step

    @functools.wraps(step)
    def with_hooks(self: Any, *args: Any, **kwargs: Any) -> Any:
        if MODE.get().observer is None:
            return run(self, args, kwargs)
        name = type(self).__name__
        return observed(f"Optimizer.step#{name}.step", run, self, args, kwargs)

    def run(self: Any, args: Any, kwargs: Any) -> Any:
        before, after = self._hooks["before_step"], self._hooks["after_step"]
        for hook in (*_before_any.values(), *before.values()):
            changed = hook(self, args, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise InvalidType(
                    f"{step} must return None or a tuple of (new_args, new_kwargs), but got "
                    f"{changed}."
                )
            args, kwargs = changed
        self._has_stepped = True
        self._note_step()
        result = _computed(step, self, *args, **kwargs)
        for hook in (*after.values(), *_after_any.values()):
            hook(self, args, kwargs)
        return result

    setattr(with_hooks, "runs_hooks", True)  # noqa: B010 - functions have no such attribute
    return with_hooks
