"""How `Module.to` and its like give parameters their new values: `torch.__future__`'s switches."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion", "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion", "set_swap_module_params_on_conversion",
]  # fmt: skip

_switches = {"overwrite": False, "swap": False}


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether conversions of modules put new parameters in the place of those that there are.

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
    """Whether they do.

    >>> ad.nn.conversion.get_overwrite_module_params_on_conversion()
    False
    """
    return _switches["overwrite"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions of modules exchange parameters with converted ones, by
    `utils.swap_tensors`, which refuses what has weak references or views. It goes before the other
    switch; `load_state_dict` copies values in any case.

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
    """Whether they do.

    >>> ad.nn.conversion.get_swap_module_params_on_conversion()
    False
    """
    return _switches["swap"]
