"""Optimizers in files: classes of adjoint.optim, by name, with options, parameters and states."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import optim
from ..core.errors import CheckpointError, Unsupported
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..io.ops import checked
from ..nn.parameter import Parameter
from ..optim.elementwise import ElementwiseOptimizer
from .checks import checked_dict, checked_list, is_class_of


def written_optimizer(optimizer: Any, number: Callable[[Any], int]) -> dict[str, Any]:
    """What stands for an optimizer in a file, where tensors have a number.

    Errors: Unsupported for one that no file can hold.
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


def read_optimizer(found: Any, tensor: Callable[[Any], Any]) -> ElementwiseOptimizer:
    """The optimizer that was written, of tensors by their numbers.

    Errors: CheckpointError for what is none, and those of its class.
    """
    name = checked(found["class"], str)
    kind: Any = vars(optim).get(name)
    if name not in optim.__all__ or not is_class_of(kind, ElementwiseOptimizer):
        raise CheckpointError(f"there is no optimizer {name!r:.80} whose steps are compiled")
    groups: list[dict[str, Any]] = []
    for group in checked_list(found["groups"]):
        options = checked_dict(group["options"])
        assert_options(kind, options)
        params = [tensor(n) for n in checked_list(group["params"])]
        groups.append({**options, "params": params})
    defaults = checked_dict(found["defaults"])
    assert_options(kind, defaults)
    accepted = inspect.signature(kind).parameters
    optimizer: ElementwiseOptimizer = kind(
        groups, **{k: v for k, v in defaults.items() if k in accepted}
    )
    for group, given in zip(optimizer.param_groups, groups, strict=True):
        given["params"] = group["params"]
        group.clear()  # options in the order in which they were
        group.update(given)
    optimizer.defaults = defaults
    of = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for n, state in checked_dict(found["state"]).items():
        p = tensor(n)
        if id(p) not in of:
            raise CheckpointError(f"{name} has a state of a tensor that is not its parameter")
        optimizer.state[p] = _state(tensor, optimizer, of[id(p)], p, checked_dict(state))
    return optimizer


def assert_options(kind: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that the class would not take."""
    defaults = {k: p.default for k, p in inspect.signature(kind).parameters.items()}
    for name, value in options.items():
        default = defaults.get(checked(name, str))
        if name == "params" or not _is_option(value, default):
            raise CheckpointError(f"{kind.__name__} has no option {name!r:.40}={value!r:.80}")
    kind([_one()], **{k: v for k, v in options.items() if k in defaults})


def _state(
    tensor: Callable[[Any], Any], optimizer: Any, group: Any, p: Any, numbers: dict[str, Any]
) -> dict[str, Any]:
    """What an optimizer remembers of a parameter."""
    if _names(optimizer, group) != set(numbers):
        raise CheckpointError(f"{type(optimizer).__name__} has no state of {[*numbers]!r:.80}")
    state = {name: tensor(n) for name, n in numbers.items()}
    for name, x in state.items():
        shape = () if name in optimizer.scalars else p._data.shape
        if x._data.shape != shape or not x.dtype.is_floating_point or x._node is not None:
            raise CheckpointError(f"{name!r:.40} of {type(optimizer).__name__} is {x.spec}")
    return state


def _names(optimizer: Any, group: Any) -> set[str]:
    """The names of what an optimizer remembers of a parameter, with the options of a group."""
    like = optimizer.begin(_one(), group)
    optimizer.complete(group, [like])
    return set(like)


def _is_option(value: Any, default: Any) -> bool:
    """Whether an optimizer's option may have a value, by its default."""
    if isinstance(default, (tuple, list)):
        same = type(value) in (tuple, list) and len(value) == len(default)
        return same and all(map(_is_option, value, default))
    if isinstance(value, TensorBase):
        return value._data.shape in ((), (1,))
    return type(value) in (bool, int, float, type(None)) or (
        type(value) is str and not isinstance(default, (bool, int, float))
    )


def _one() -> Parameter:
    """A parameter by which options are tried."""
    found: Any = Parameter(wrap(np.ones(1, np.float32)))
    found.grad = wrap(np.ones(1, np.float32))
    return found
