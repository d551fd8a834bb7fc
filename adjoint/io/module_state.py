"""Whole modules in PyTorch's files: PyTorch's attributes become ours, and back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ..core.errors import CheckpointError
from ..nn import functional as F  # noqa: N812 - as everywhere
from ..nn.hooks import Entry, Hooks, add_to
from ..nn.modules.activation import ReLU, ReLU6
from ..nn.modules.conv import _Conv, _ConvTranspose
from ..nn.modules.module import Module
from ..nn.modules.rnn import RNNBase
from ..nn.modules.transformer import (
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from ..nn.parameter import Parameter
from ..tensor import Tensor
from .restricted_pickle import brief

REGISTRIES = {"_parameters": Parameter, "_buffers": Tensor, "_modules": Module}
_HOOKS = frozenset((
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_load_state_dict_post_hooks", "_load_state_dict_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks",
))  # fmt: skip
# Those around forward and backward, by what ours are called.
_AROUND = {
    "forward_pre": "_forward_pre_hooks", "forward": "_forward_hooks",
    "backward_pre": "_backward_pre_hooks", "backward": "_backward_hooks",
}  # fmt: skip
_OF_THOSE = ("_forward_hooks_always_called", "_forward_hooks_with_kwargs",
             "_forward_pre_hooks_with_kwargs")  # fmt: skip
# What PyTorch's classes keep for themselves and ours compute when they need it.
_CACHES = frozenset((
    "_all_weights", "_flat_weight_refs", "_flat_weights", "_flat_weights_names",
    "_is_full_backward_hook", "_compiled_call_impl", "_reversed_padding_repeated_twice",
))  # fmt: skip
_OWN = frozenset(("_call_hooks", "_state_dict_hooks"))  # where our modules keep theirs


def has_own_setstate(kind: type) -> bool:
    """Whether a class has a `__setstate__` that is not the one of all modules."""
    own = getattr(kind, "__setstate__", None)
    return own is not None and own is not Module.__setstate__


def restore_module(module: Any, state: Any, trusted: bool = False) -> None:
    """Give `module`, made without its constructor, the `__dict__` that PyTorch saved; with hooks
    around its forward and backward where the file is `trusted`.

    Errors: CheckpointError where the state is not a module's: other hooks, parts of other classes,
    names that are methods.
    """
    kind = type(module).__name__
    if type(state) is not dict or not all(type(name) is str for name in state):
        raise CheckpointError(f"the state of a {kind} is no dict of attributes")
    Module.__init__(module)
    restored = {*_AROUND.values(), *_OF_THOSE} if trusted else ()
    for name in sorted(_HOOKS & state.keys()):
        if state[name] and name not in restored:
            way = " (a file that you trust may have those around forward and backward: load it "
            raise CheckpointError(
                f"a {kind} in the file has {name[1:].replace('_', ' ')}; remove them before saving"
                + f"{way}inside adjoint.serialization.trust(path))" * (not trusted)
            )
    for name, wanted in REGISTRIES.items():
        module.__dict__[name] = _registry(kind, name, wanted, state.get(name, {}))
    names = state.get("_non_persistent_buffers_set", set())
    if type(names) is not set or not names <= module._buffers.keys():
        raise CheckpointError(f"the non-persistent buffers of a {kind} are {brief(names)}")
    module.__dict__["_non_persistent_buffers_set"] = names
    done = _HOOKS | _CACHES | REGISTRIES.keys() | {"_non_persistent_buffers_set"}
    for name, value in state.items():
        if name in done or (name in module._modules and module._modules[name] is value):
            continue
        if name.startswith("__") or name in _OWN or callable(getattr(type(module), name, None)):
            raise CheckpointError(f"the file replaces {kind}.{name}")
        module.__dict__[name] = value
    if trusted:
        _restore_hooks(module, state)


def _restore_hooks(module: Any, state: dict[str, Any]) -> None:
    for kind, name in _AROUND.items():
        with_kwargs = state.get(f"{name}_with_kwargs") or ()
        always = (state.get("_forward_hooks_always_called") or ()) if kind == "forward" else ()
        for key, function in (state.get(name) or {}).items():
            if not callable(function):
                raise CheckpointError(
                    f"a hook of a {type(module).__name__} is {brief(function)}, no function"
                )
            add_to(module, kind, Entry(function, key in with_kwargs, key in always))


def _registry(kind: str, name: str, wanted: type, content: Any) -> dict[str, Any]:
    """The parameters, buffers or children by name, after a check of their types."""
    if not isinstance(content, dict):
        raise CheckpointError(f"the {name[1:]} of a {kind} are a {type(content).__name__}")
    for key, value in content.items():
        if type(key) is not str or not (value is None or isinstance(value, wanted)):
            raise CheckpointError(
                f"the {name[1:]} of a {kind} hold {brief(key)}, a {type(value).__name__}"
            )
    return dict(content)


# ---- writing -------------------------------------------------------------------------------------


def around(state: dict[str, Any]) -> list[Any]:
    """The functions around forward and backward that the `__dict__` of a module of ours holds."""
    hooks = state.get("_call_hooks") or Hooks()
    return [entry.function for kind in _AROUND for entry in getattr(hooks, kind).values()]


def has_state_hooks(state: dict[str, Any]) -> bool:
    """Whether it holds hooks of the state dict."""
    return any((state.get("_state_dict_hooks") or {}).values())


def pytorch_state(module: Module, state: dict[str, Any]) -> dict[str, Any]:
    """The `__dict__` that PyTorch's class has where ours has `state`; without hooks of its state
    dict.
    """
    hooks: dict[str, Any] = {name: OrderedDict() for name in sorted(_HOOKS)}
    own = state.get("_call_hooks") or Hooks()
    for kind, name in _AROUND.items():
        for key, entry in getattr(own, kind).items():
            hooks[name][key] = entry.function
            if entry.with_kwargs:
                hooks[f"{name}_with_kwargs"][key] = True
            if entry.always_call:
                hooks["_forward_hooks_always_called"][key] = True
    full = True if own.backward else None
    found = {"training": module.training, **hooks, "_is_full_backward_hook": full}
    found.update((k, v) for k, v in state.items() if k not in ("_call_hooks", "_state_dict_hooks"))
    for kind, more in _MORE:
        if isinstance(module, kind):
            found.update((k, v) for k, v in more(module).items() if k not in state)
    return found


def _of_convolution(module: Any) -> dict[str, Any]:
    if isinstance(module, _ConvTranspose):
        return {"transposed": True, "_reversed_padding_repeated_twice": [0, 0] * module.rank}
    return {"transposed": False, "_reversed_padding_repeated_twice": module._both_sides()}


def _of_recurrent(module: Any) -> dict[str, Any]:
    numbers = {id(x): name for name, x in module._parameters.items()}
    names = [[numbers[id(x)] for x in layer] for layer in module.all_weights]
    flat = [name for layer in names for name in layer]
    return {
        "_all_weights": names, "_flat_weights_names": flat,
        "_flat_weights": [module._parameters[name] for name in flat],
    }  # fmt: skip


def _of_encoder_layer(module: Any) -> dict[str, Any]:
    function = module.activation
    is_relu, is_gelu = function is F.relu or isinstance(function, ReLU), function is F.gelu
    return {"activation_relu_or_gelu": 1 if is_relu else 2 if is_gelu else 0}


# What PyTorch's classes keep, and ours compute when they need it.
_MORE: tuple[tuple[Any, Any], ...] = (
    (_Conv, _of_convolution),
    (_ConvTranspose, _of_convolution),
    (RNNBase, _of_recurrent),
    (TransformerEncoderLayer, _of_encoder_layer),
    (
        TransformerEncoder,
        lambda m: {"enable_nested_tensor": True, "use_nested_tensor": False, "mask_check": True},
    ),
    # its `__setstate__` would take relu for a module that is registered, and nothing else
    (TransformerDecoderLayer, lambda m: {"activation": m.activation}),
    (ReLU6, lambda m: {"min_val": 0.0, "max_val": 6.0}),
)
