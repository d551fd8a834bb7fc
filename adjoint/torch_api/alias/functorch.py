"""The module `functorch` of older programs: the transforms of `torch.func`, and modules as
functions of their parameters, which `functional_call` and `stack_module_state` do today.

Source: https://docs.pytorch.org/docs/stable/func.migrating.html
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import InvalidArgument
from ..func import (
    debug_unwrap,
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

__all__ = [
    "combine_state_for_ensemble", "debug_unwrap", "functional_call", "functionalize", "grad",
    "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "make_functional",
    "make_functional_with_buffers", "stack_module_state", "vjp", "vmap",
]  # fmt: skip

__path__: list[str] = []  # `functorch.experimental` is below it


def _function(model: Any) -> Callable[..., Any]:
    """`function(parameters, buffers, *args, **kwargs)`, of values in the module's order."""
    names = [name for name, _ in model.named_parameters()]
    buffers = [name for name, _ in model.named_buffers()]

    def function(values: Sequence[Any], kept: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, values, strict=True)), dict(zip(buffers, kept, strict=True))
        return functional_call(model, given, args, kwargs)

    return function


def make_functional_with_buffers(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """`function(parameters, buffers, *args)`, and copies of both as the module has them."""
    own = copy.deepcopy(model)
    if disable_autograd_tracking:
        own.requires_grad_(False)
    return _function(own), tuple(own.parameters()), tuple(own.buffers())


def make_functional(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`function(parameters, *args)`, and copies of the parameters.

    Errors: InvalidArgument for a module with buffers.
    """
    if next(model.buffers(), None) is not None:
        raise InvalidArgument(
            "make_functional(model): `model` has buffers; use make_functional_with_buffers(model)"
        )
    function, values, _ = make_functional_with_buffers(model, disable_autograd_tracking)
    return lambda values, *args, **kwargs: function(values, (), *args, **kwargs), values


def combine_state_for_ensemble(
    models: Sequence[Any],
) -> tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]:
    """`function(parameters, buffers, *args)` of one module, and all states stacked, for `vmap`.

    Errors: InvalidArgument as `stack_module_state`.
    """
    parameters, buffers = stack_module_state(list(models))
    function = _function(copy.deepcopy(models[0]))
    return function, tuple(parameters.values()), tuple(buffers.values())
