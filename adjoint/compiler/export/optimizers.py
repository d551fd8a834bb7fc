"""Optimizers in files: classes of adjoint.optim, by name, with options, parameters and states."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ... import optim
from ...core.errors import CheckpointError, Unsupported
from ...core.tensor_base import TensorBase
from ...io.stored_ops import checked
from ...nn.parameter import Parameter
from ...optim.elementwise import ElementwiseOptimizer
from ...runtime.tensors import wrap
from .file_checks import checked_dict, checked_list, is_class_of


def written_optimizer(
    optimizer: ElementwiseOptimizer, number: Callable[[Any], int]
) -> dict[str, Any]:
    """Serialize an optimizer; `number` gives the number of a tensor.

    Errors: Unsupported for an optimizer that no file can hold.
    """
    kind = type(optimizer)
    if getattr(optim, kind.__name__, None) is not kind:
        raise Unsupported(f"export: {kind.__name__}, an optimizer that is none of adjoint.optim's")
    groups = []
    for group in optimizer.param_groups:
        options = {name: value for name, value in group.items() if name != "params"}
        groups.append({"params": [number(p) for p in group["params"]], "options": options})
    of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    states = {}
    for p, state in optimizer.state.items():
        if not all(isinstance(value, TensorBase) for value in state.values()):
            raise Unsupported(f"export: {kind.__name__} has a state that is no tensor")
        if state and id(p) in of and set(state) != (names := _names(optimizer, of[id(p)])):
            raise Unsupported(
                f"export: {kind.__name__} has a state of {sorted(state)}, where its options make "
                f"one of {sorted(names)}: let it have the same options between steps"
            )
        states[number(p)] = {name: number(x) for name, x in state.items()}
    return {
        "class": kind.__name__, "defaults": optimizer.defaults, "groups": groups, "state": states
    }  # fmt: skip


def read_optimizer(content: Any, tensor: Callable[[Any], Any]) -> ElementwiseOptimizer:
    """Deserialize an optimizer; `tensor` gives the tensor of a number.

    Errors: CheckpointError for an invalid content, and those of its class.
    """
    name = checked(content["class"], str)
    kind: Any = vars(optim).get(name)
    if name not in optim.__all__ or not is_class_of(kind, ElementwiseOptimizer):
        raise CheckpointError(f"there is no optimizer {name!r:.80} whose steps are compiled")
    groups: list[dict[str, Any]] = []
    for group in checked_list(content["groups"]):
        options = checked_dict(group["options"])
        assert_options(kind, options)
        params = [tensor(n) for n in checked_list(group["params"])]
        groups.append({**options, "params": params})
    defaults = checked_dict(content["defaults"])
    assert_options(kind, defaults)
    accepted = inspect.signature(kind).parameters
    optimizer: ElementwiseOptimizer = kind(
        groups, **{k: v for k, v in defaults.items() if k in accepted}
    )
    for group, options_read in zip(optimizer.param_groups, groups, strict=True):
        options_read["params"] = group["params"]
        group.clear()  # options in the order in which they were
        group.update(options_read)
    optimizer.defaults = defaults
    of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for n, state in checked_dict(content["state"]).items():
        p = tensor(n)
        if id(p) not in of:
            raise CheckpointError(f"{name} has a state of a tensor that is not its parameter")
        optimizer.state[p] = _state(tensor, optimizer, of[id(p)], p, checked_dict(state))
    return optimizer


def assert_options(kind: type[ElementwiseOptimizer], options: Mapping[str, Any]) -> None:
    """Refuse options that the class would not take."""
    defaults = {k: p.default for k, p in inspect.signature(kind).parameters.items()}
    for name, value in options.items():
        default = defaults.get(checked(name, str))
        if name == "params" or not _is_option(value, default):
            raise CheckpointError(f"{kind.__name__} has no option {name!r:.40}={value!r:.80}")
    kind([_one()], **{k: v for k, v in options.items() if k in defaults})


def _state(
    tensor: Callable[[Any], Any],
    optimizer: ElementwiseOptimizer,
    group: dict[str, Any],
    p: TensorBase,
    numbers: dict[str, Any],
) -> dict[str, Any]:
    """Deserialize the state of one parameter."""
    if _names(optimizer, group) != set(numbers):
        raise CheckpointError(f"{type(optimizer).__name__} has no state of {[*numbers]!r:.80}")
    state = {name: tensor(n) for name, n in numbers.items()}
    for name, x in state.items():
        shape = () if name in optimizer.scalars else p._data.shape
        if x._data.shape != shape or not x.dtype.is_floating_point or x._node is not None:
            raise CheckpointError(f"{name!r:.40} of {type(optimizer).__name__} is {x.spec}")
    return state


def _names(optimizer: ElementwiseOptimizer, group: dict[str, Any]) -> set[str]:
    """Names of the entries of a parameter's state, with the options of a group."""
    like = optimizer.begin(_one(), group)
    optimizer.complete(group, [like])
    return set(like)


def _is_option(value: Any, default: object) -> bool:
    """Whether a value is allowed for an optimizer's option, by its default."""
    if isinstance(default, (tuple, list)):
        same = type(value) in (tuple, list) and len(value) == len(default)
        return same and all(map(_is_option, value, default))
    if isinstance(value, TensorBase):
        return value._data.shape in ((), (1,))
    return type(value) in (bool, int, float, type(None)) or (
        type(value) is str and not isinstance(default, (bool, int, float))
    )


def _one() -> Parameter:
    """A parameter for trying options."""
    parameter: Any = Parameter(wrap(np.ones(1, np.float32)))
    parameter.grad = wrap(np.ones(1, np.float32))
    return parameter
