"""Other parameters and another state in an optimizer, for a while."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ..core.errors import InvalidArgument
from .optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Any], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Give an optimizer other parameters and another state for the length of a `with` block.

    The optimizer has its own parameters, options and state again afterwards. What a step changes
    within the block are the tensors that were passed in.

    Args:
        optimizer: Optimizer to change for that time.
        swapin_parameters: Names and parameters, as many as the optimizer has, in its order.
        swapin_optim_state: State and options, as `state_dict()` of such an optimizer gives them.

    Errors: InvalidArgument for another number of parameters than the optimizer has, groups of other
    sizes, or groups with other options.
    Source: https://docs.pytorch.org/docs/stable/optim.html

    >>> w, other = (ad.nn.Parameter(ad.ones(1)) for _ in range(2))
    >>> optimizer = ad.optim.SGD([w], lr=1.0)
    >>> other.grad = ad.ones(1)
    >>> swap = ad.optim.swap_in_optimizer_params_and_state
    >>> with swap(optimizer, {"w": other}, optimizer.state_dict()):
    ...     optimizer.step()
    >>> w.item(), other.item()
    (1.0, 0.0)
    """
    name = "swap_in_optimizer_params_and_state"
    given = list(swapin_parameters.values())
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    groups = swapin_optim_state["param_groups"]
    if len(given) != sum(sizes) or [len(group["params"]) for group in groups] != sizes:
        raise InvalidArgument(
            f"{name}: the optimizer has groups of {sizes} parameters, got {len(given)} of them, "
            f"and a state of groups of {[len(group['params']) for group in groups]}"
        )
    by_number = dict(zip([i for g in groups for i in g["params"]], given, strict=True))
    own_state, own_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    if any(group.keys() != own.keys() for group, own in zip(groups, own_groups, strict=True)):
        raise InvalidArgument(f"{name}: the state's groups have other options than the optimizer's")
    for group, other in zip(optimizer.param_groups, groups, strict=True):
        group.update(other)
        group["params"] = [by_number[i] for i in other["params"]]
    optimizer.state = defaultdict(dict)
    for number, state in swapin_optim_state["state"].items():
        optimizer.state[by_number[number]] = dict(state)
    try:
        yield
    finally:
        for group, before in zip(optimizer.param_groups, own_groups, strict=True):
            group.clear()
            group.update(before)
        optimizer.state = own_state
