"""Whole modules out of PyTorch's files: PyTorch's attributes become those of our own module."""

from __future__ import annotations

from typing import Any

from ..core.errors import CheckpointError
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from ..tensor import Tensor
from .restricted_pickle import brief

_REGISTRIES = {"_parameters": Parameter, "_buffers": Tensor, "_modules": Module}
_HOOKS = frozenset((
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_load_state_dict_post_hooks", "_load_state_dict_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks",
))  # fmt: skip
# What PyTorch's classes keep for themselves and ours compute when they need it.
_CACHES = frozenset((
    "_all_weights", "_flat_weight_refs", "_flat_weights", "_flat_weights_names",
    "_is_full_backward_hook", "_compiled_call_impl", "_reversed_padding_repeated_twice",
))  # fmt: skip


def restore_module(module: Any, state: Any) -> None:
    """Give `module`, made without its constructor, the `__dict__` that PyTorch saved.

    Errors: CheckpointError where the state is not a module's: hooks, parts of other classes, names
    that are methods.
    """
    kind = type(module).__name__
    if type(state) is not dict or not all(type(name) is str for name in state):
        raise CheckpointError(f"the state of a {kind} is no dict of attributes")
    Module.__init__(module)
    for name in _HOOKS & state.keys():
        if state[name]:
            raise CheckpointError(
                f"a {kind} in the file has {name[1:].replace('_', ' ')}; remove them before saving"
            )
    for name, wanted in _REGISTRIES.items():
        module.__dict__[name] = _registry(kind, name, wanted, state.get(name, {}))
    names = state.get("_non_persistent_buffers_set", set())
    if type(names) is not set or not names <= module._buffers.keys():
        raise CheckpointError(f"the non-persistent buffers of a {kind} are {brief(names)}")
    module.__dict__["_non_persistent_buffers_set"] = names
    done = _HOOKS | _CACHES | _REGISTRIES.keys() | {"_non_persistent_buffers_set"}
    for name, value in state.items():
        if name in done:
            continue
        if name.startswith("__") or callable(getattr(type(module), name, None)):
            raise CheckpointError(f"the file replaces {kind}.{name}")
        module.__dict__[name] = value


def _registry(kind: str, name: str, wanted: type, content: Any) -> dict[str, Any]:
    """The parameters, buffers or children by name, if that is what they are."""
    if not isinstance(content, dict):
        raise CheckpointError(f"the {name[1:]} of a {kind} are a {type(content).__name__}")
    for key, value in content.items():
        if type(key) is not str or not (value is None or isinstance(value, wanted)):
            raise CheckpointError(
                f"the {name[1:]} of a {kind} hold {brief(key)}, a {type(value).__name__}"
            )
    return dict(content)
