"""How `Module.to` and its like give parameters their new values: `torch.__future__`'s switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.modes import no_grad
from ..autograd.swapping import swap_tensors
from ..core.errors import InvalidArgument
from .parameter import Parameter

__all__ = [
    "convert", "get_overwrite_module_params_on_conversion", "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion", "set_swap_module_params_on_conversion",
]  # fmt: skip

_switches = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Choose whether conversions of modules put new parameters in the place of the old ones.

    Otherwise a parameter stays the object that it is and gets new data.

    Args:
        value: Whether to put new ones there; False at first.

    Source: https://docs.pytorch.org/docs/stable/future_mod.html

    >>> ad.nn.conversion.set_overwrite_module_params_on_conversion(True)
    >>> m = ad.nn.Linear(1, 1)
    >>> before = m.weight
    >>> m.double().weight is before
    False
    >>> ad.nn.conversion.set_overwrite_module_params_on_conversion(False)
    """
    _switches["overwrite"] = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether conversions of modules put new parameters in the place of the old ones.

    >>> ad.nn.conversion.get_overwrite_module_params_on_conversion()
    False
    """
    return _switches["overwrite"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Choose whether conversions of modules exchange parameters with converted ones.

    `utils.swap_tensors` does it, which refuses what has weak references or views. It goes before
    the other switch; `load_state_dict` copies values in any case.

    Args:
        value: Whether to exchange them; False at first.

    Source: https://docs.pytorch.org/docs/stable/future_mod.html

    >>> ad.nn.conversion.set_swap_module_params_on_conversion(True)
    >>> m = ad.nn.Linear(1, 1)
    >>> before = m.weight
    >>> m.double().weight is before, before.dtype
    (True, adjoint.float64)
    >>> ad.nn.conversion.set_swap_module_params_on_conversion(False)
    """
    _switches["swap"] = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether conversions of modules exchange parameters with converted ones.

    >>> ad.nn.conversion.get_swap_module_params_on_conversion()
    False
    """
    return _switches["swap"]


@no_grad()
def convert(module: Any, name: str, parameter: Any, fn: Callable[[Any], Any]) -> None:
    """Give a parameter of a module, and its gradient, what `fn` makes of it.

    Errors: InvalidArgument where tensors are to be exchanged, and one cannot be.

    >>> m = ad.nn.Linear(1, 1)
    >>> ad.nn.conversion.convert(m, "weight", m.weight, lambda x: x.double())
    >>> m.weight.dtype, m.bias.dtype
    (adjoint.float64, adjoint.float32)
    """
    gradient = parameter.grad
    if _switches["swap"]:
        _swap(f"{module._get_name()}.{name}", parameter, gradient, fn)
        return
    old = parameter.detach()
    new = fn(old)
    if _switches["overwrite"]:
        parameter = module._parameters[name] = Parameter(new, parameter.requires_grad)
    elif new is not old:
        parameter.data = new
    if gradient is not None:
        parameter.grad = fn(gradient.detach()).requires_grad_(gradient.requires_grad)


def _swap(name: str, parameter: Any, gradient: Any, fn: Callable[[Any], Any]) -> None:
    """Give a parameter its new value by exchanging tensors: each stays the object that it is."""
    parameter.grad = None
    try:
        swap_tensors(parameter, Parameter(fn(parameter.detach()), parameter.requires_grad))
    except Exception as error:
        parameter.grad = gradient
        raise InvalidArgument(f"_apply(): Couldn't swap {name}: {error}") from error
    if gradient is None:
        return
    try:
        swap_tensors(gradient, fn(gradient.detach()).requires_grad_(gradient.requires_grad))
    except Exception as error:
        raise InvalidArgument(f"_apply(): Couldn't swap {name}.grad: {error}") from error
    parameter.grad = gradient
