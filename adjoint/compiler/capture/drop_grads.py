"""Functions that keep no gradients of what their optimizers have changed (`keep_grads=False`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...core.errors import Unsupported
from ...core.mode import MODE
from ...core.tensor_base import TensorBase
from ...core.tree import parts_in
from ...optim.optimizer import STEPPED


def dropping(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as if it ended with `zero_grad()` of each optimizer that steps in it.

    Errors: while it is captured, Unsupported where none does, and where gradients come in from
    before or are returned.
    """

    @functools.wraps(function)
    def run(*args: object, **kwargs: object) -> object:
        stepped: list[Any] = []
        around = STEPPED.get()
        try:
            STEPPED.set(stepped)
            result = function(*args, **kwargs)
        finally:
            STEPPED.set(around)
        if around is not None:
            around += stepped
        groups = [group["params"] for optimizer in stepped for group in optimizer.param_groups]
        parameters = [p for each in groups for p in each if p.grad is not None]
        recorder: Any = MODE.get().executor
        if hasattr(recorder, "note_gradient"):
            _assert_dropped(stepped, parameters, result, recorder)
        for p in parameters:
            p.grad = None
        return result

    return run


def _assert_dropped(stepped: list[Any], parameters: list[Any], result: Any, recorder: Any) -> None:
    if not stepped:
        raise Unsupported(
            "compile: keep_grads=False for a function in which no optimizer steps, whose gradients "
            "would be lost; leave it out, or let the function step"
        )
    adds = [p for p in parameters if recorder.adds_to_gradient(p)]
    if adds:
        raise Unsupported(
            "compile: keep_grads=False, and the function reads the gradient of a parameter of "
            f"shape {tuple(adds[0].shape)} that was there before it; call zero_grad() first, or "
            "leave keep_grads=False out"
        )
    gradients = {id(p.grad): p for p in parameters}
    for x in (result, *parts_in(result)):
        if isinstance(x, TensorBase) and id(x) in gradients:
            raise Unsupported(
                "compile: keep_grads=False, and the function returns the gradient of a parameter "
                f"of shape {tuple(x._data.shape)}; return what is computed of it, or leave "
                "keep_grads=False out"
            )
