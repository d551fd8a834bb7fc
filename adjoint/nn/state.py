"""`state_dict` and `load_state_dict`: a module tree's parameters and buffers as one flat dict."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..autograd.modes import no_grad
from ..core.argument_errors import described, remedy
from ..core.errors import CheckpointError, InvalidType
from ..core.mode import as_set
from ..tensor import Tensor
from .parameter import Parameter

EXTRA_STATE = "_extra_state"


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class _IncompatibleKeys(_Keys):
    """Keys that `load_state_dict` found missing and unexpected."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys({self.missing_keys=}, {self.unexpected_keys=})".replace(
            "self.", ""
        )

    __str__ = __repr__


class StateDict(OrderedDict[str, Any]):
    """An ordered dict that remembers each module's version in `_metadata`."""

    _metadata: OrderedDict[str, dict[str, Any]]


def _saved(module: Any) -> dict[str, Any]:
    """The module's own parameters and persistent buffers."""
    passing = module._non_persistent_buffers_set
    buffers = {name: x for name, x in module._buffers.items() if name not in passing}
    return {name: x for name, x in {**module._parameters, **buffers}.items() if x is not None}


def save_own(module: Any, destination: Any, prefix: str, keep_vars: bool, has_extra: bool) -> None:
    """Write the module's own parameters and buffers (not its children's) to `destination`;
    `has_extra`: its class defines `get_extra_state`.
    """
    for name, value in _saved(module).items():
        destination[prefix + name] = value if keep_vars else value.detach()
    if has_extra:
        destination[prefix + EXTRA_STATE] = module.get_extra_state()


def state_dict(module: Any, destination: Any, prefix: str, keep_vars: bool) -> Any:
    """The tree's state; hooks run as they were registered."""
    if destination is None:
        destination = StateDict()
        destination._metadata = OrderedDict()
    local_metadata = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = local_metadata
    for hook in module._state_hooks("pre").values():
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(
                destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars
            )
    for hook in module._state_hooks("post").values():
        replacement = hook(module, destination, prefix, local_metadata)
        if replacement is not None:
            destination = replacement
    return destination


def load_own(
    module: Any,
    state: Mapping[str, Any],
    prefix: str,
    local_metadata: Mapping[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
    has_extra: bool,
) -> None:
    """Copy the module's own parameters and buffers (not its children's) out of `state`;
    `has_extra`: its class defines `set_extra_state`.
    """
    for hook in module._state_hooks("load_pre").values():
        hook(module, state, prefix, local_metadata, strict, missing, unexpected, errors)
    own = _saved(module)
    assign = local_metadata.get("assign_to_params_buffers", False)
    for name, value in own.items():
        key = prefix + name
        if key in state:
            problem = _load_one(module, name, key, value, state[key], assign)
            if problem:
                errors.append(problem)
        elif strict:
            missing.append(key)
    if has_extra:
        if prefix + EXTRA_STATE in state:
            module.set_extra_state(state[prefix + EXTRA_STATE])
        elif strict:
            missing.append(prefix + EXTRA_STATE)
    elif strict and prefix + EXTRA_STATE in state:
        unexpected.append(prefix + EXTRA_STATE)
    if strict:
        for key in state:
            if key.startswith(prefix) and key != prefix + EXTRA_STATE:
                first, dot, _ = key[len(prefix) :].partition(".")
                if first not in (module._modules if dot else own):
                    unexpected.append(key)


@as_set
def _load_one(module: Any, name: str, key: str, value: Any, new: Any, assign: bool) -> str:
    """Give parameter or buffer `name` the value `new`; a message where it does not fit."""
    if not isinstance(new, Tensor):
        return (
            f'While copying the parameter named "{key}", expected adjoint.Tensor or Tensor-like '
            f"object from checkpoint but received {described(new)}; {remedy(new)}"
        )
    if not value.ndim and new.shape == (1,):  # checkpoints of 0-d values written as 1-d
        new = new[0]
    if new.shape != value.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {new.shape} from checkpoint, "
            f"the shape in current model is {value.shape}."
        )
    if value.is_meta and not (new.is_meta or assign):
        warnings.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter "
            "in the current model, which is a no-op. (Did you mean to pass `assign=True` to assign "
            "items in the state dictionary to their corresponding key in the module instead of "
            "copying them in place?)",
            stacklevel=2,
        )
    try:
        with no_grad():
            if not assign:
                value.copy_(new)
            elif isinstance(value, Parameter):
                fresh = new if isinstance(new, Parameter) else Parameter(new, value.requires_grad)
                setattr(module, name, fresh.requires_grad_(value.requires_grad))
            else:
                setattr(module, name, new)
    except Exception as error:
        return (
            f'While copying the parameter named "{key}", whose dimensions in the model are '
            f"{value.shape} and whose dimensions in the checkpoint are {new.shape}, an exception "
            f"occurred : {error.args}."
        )
    return ""


def load_state_dict(
    module: Any, state_dict: Mapping[str, Any], strict: bool, assign: bool
) -> _IncompatibleKeys:
    """Load a tree's state; CheckpointError lists everything that does not fit."""
    if not isinstance(state_dict, Mapping):
        raise InvalidType(
            f"load_state_dict: Expected state_dict to be dict-like, got {type(state_dict)}; load "
            "a file with adjoint.load first"
        )
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []
    state = OrderedDict(state_dict)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        state._metadata = metadata  # type: ignore[attr-defined]

    def load(part: Any, local: Any, prefix: str) -> None:
        local_metadata = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
        if assign:
            local_metadata["assign_to_params_buffers"] = True
        part._load_from_state_dict(local, prefix, local_metadata, True, missing, unexpected, errors)
        for name, child in part._modules.items():
            if child is not None:
                inner = prefix + name + "."
                load(child, {k: v for k, v in local.items() if k.startswith(inner)}, inner)
        keys = _IncompatibleKeys(missing, unexpected)
        for hook in part._state_hooks("load_post").values():
            if hook(part, keys) is not None:
                raise InvalidType(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not "
                    "expected to return new values; change incompatible_keys in place"
                )

    load(module, state, "")
    if strict:
        for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
            if keys:
                names = ", ".join(f'"{k}"' for k in keys)
                errors.insert(0, f"{what} key(s) in state_dict: {names}. ")
    if strict and (unexpected or missing):
        errors.append("(strict=False loads what fits.)")
    if errors:
        raise CheckpointError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(errors)
        )
    return _IncompatibleKeys(missing, unexpected)
