"""Modules of one kind as one function of a batch of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import InvalidArgument
from ...nn.modules.batchnorm import _BatchNorm
from ...nn.modules.module import Module
from ...ops.shape.concatenation import stack

__all__ = ["replace_all_batch_norm_modules_", "stack_module_state"]


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of several modules of one kind, each stacked along a new first
    dimension, for `vmap` of `functional_call`.

    Errors: InvalidArgument for no modules, modules of several classes, or modules some of which are
    in training mode.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.stack_module_state.html

    >>> layers = [ad.nn.Linear(2, 1) for _ in range(3)]
    >>> parameters, buffers = ad.func.stack_module_state(layers)
    >>> parameters["weight"].shape
    adjoint.Size([3, 1, 2])
    """
    models = list(models)
    if not models:
        raise InvalidArgument(
            "stack_module_state: Expected at least one model, got 0; give a list of modules"
        )
    if not all(model.training == models[0].training for model in models):
        raise InvalidArgument(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if not all(type(model) is type(models[0]) for model in models):
        kinds = sorted({type(model).__name__ for model in models})
        raise InvalidArgument(
            f"stack_module_state: Expected all models to be of the same class, got {kinds}"
        )
    parameters = {
        name: _stacked([dict(model.named_parameters())[name] for model in models])
        for name, _ in models[0].named_parameters()
    }
    buffers = {
        name: _stacked([dict(model.named_buffers())[name] for model in models])
        for name, _ in models[0].named_buffers()
    }
    return parameters, buffers


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Make all batch norms in `root` use the statistics of the batch alone, in place: running ones,
    which all examples of a `vmap` share, cannot be written for each.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.replace_all_batch_norm_modules_.html

    >>> norm = ad.func.replace_all_batch_norm_modules_(ad.nn.BatchNorm1d(2))
    >>> ad.func.vmap(norm)(ad.ones(3, 4, 2)).shape
    adjoint.Size([3, 4, 2])
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def _stacked(tensors: list[Any]) -> Any:
    """The tensors as a new leaf, which requires a gradient where they do."""
    wants = {x.requires_grad for x in tensors}
    if len(wants) > 1:
        raise InvalidArgument(
            "stack_module_state: Expected tensors of all models to have the same requires_grad"
        )
    return stack([x.detach() for x in tensors]).requires_grad_(wants.pop())
