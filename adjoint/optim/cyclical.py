"""Cyclical learning rates, and one cycle; momentum goes the other way."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from ..core.errors import InvalidArgument
from .learning_rate import LRScheduler, _assert_optimizer
from .optimizer import Group, Optimizer

__all__ = ["CyclicLR", "OneCycleLR"]


class OneCycleLR(LRScheduler):
    """Schedule of one cycle: up to max_lr, then far below the start (Smith, 2018).

        first phase    max_lr / div_factor -> max_lr                       pct_start of the steps
        last phase     max_lr -> max_lr / div_factor / final_div_factor    the others

    With `three_phase` the rate falls first as it rose, and to the least rate in the rest. Between
    two rates a and b it is b + (a - b) (1 + cos(pi x)) / 2, or a + (b - a) x, with x from 0 to 1.

    Args:
        optimizer: Optimizer whose groups get the rates.
        max_lr: Largest rate, or a list of them, one per group.
        total_steps: Number of steps of the cycle. Default: None, epochs * steps_per_epoch.
        epochs: Number of epochs, where total_steps is not given. Default: None.
        steps_per_epoch: Number of steps in each of them. Default: None.
        pct_start: Share of the steps in which the rate rises, in [0, 1]. Default: 0.3.
        anneal_strategy: "cos" or "linear": how the rate goes from one value to the next. Default:
            "cos".
        cycle_momentum: Move the momentum (or beta1) against the rate: from max_momentum to
            base_momentum and back. Default: True.
        base_momentum: Least momentum, at the largest rate. Default: 0.85.
        max_momentum: Largest momentum, at the start and the end. Default: 0.95.
        div_factor: The first rate is max_lr / div_factor. Default: 25.0.
        final_div_factor: The last rate is the first one / final_div_factor. Default: 10000.0.
        three_phase: Three phases instead of two. Default: False.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument where the number of steps is not given or not positive, pct_start is
    outside [0, 1], the strategy is another, `cycle_momentum` has an optimizer without momentum, or
    `step` is called more often than there are steps.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
    >>> schedule = ad.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> round(schedule.get_last_lr()[0], 4)
    0.04
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise InvalidArgument(
                    "You must define either total_steps OR (epochs AND steps_per_epoch)"
                )
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise InvalidArgument(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise InvalidArgument(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        up = pct_start * total_steps
        rising: list[tuple[float, str, str]] = [(up - 1, "initial_lr", "max_lr")]
        if three_phase:
            rising += [(2 * up - 2, "max_lr", "initial_lr")]
            self.phases = [*rising, (total_steps - 1, "initial_lr", "min_lr")]
        else:
            self.phases = [*rising, (total_steps - 1, "max_lr", "min_lr")]
        groups = optimizer.param_groups
        rates = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(groups)
        if cycle_momentum:
            _assert_momentum(optimizer)
        if last_epoch == -1:
            for group, rate in zip(groups, rates, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["max_momentum"] = max_momentum
                    group["base_momentum"] = base_momentum
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, done: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)

    def get_lr(self) -> list[Any]:
        """The rates at this place of the cycle; sets the momentum too."""
        n = self.last_epoch
        if n > self.total_steps:
            raise InvalidArgument(
                f"Tried to step {n} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        which = next((i for i, phase in enumerate(self.phases) if n <= phase[0]), -1)
        end, first, last = self.phases[which]
        start = self.phases[which - 1][0] if which not in (0, -len(self.phases)) else 0.0
        done = (n - start) / (end - start)
        rates = []
        momentum = {"max_lr": "base_momentum"}
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[first], group[last], done))
            if self.cycle_momentum:
                low = group[momentum.get(first, "max_momentum")]
                high = group[momentum.get(last, "max_momentum")]
                _set_momentum(group, self._between(low, high, done))
        return rates


class CyclicLR(LRScheduler):
    """Schedule whose rate goes up and down between base_lr and max_lr (Smith, 2017).

        lr = base_lr + (max_lr - base_lr) h s

    h goes from 0 to 1 in step_size_up steps and back in step_size_down. s is 1 ("triangular"), 1 /
    2^(cycle - 1) ("triangular2"), gamma^n with n the number of steps ("exp_range"), or `scale_fn`.

    Args:
        optimizer: Optimizer whose groups get the rates.
        base_lr: Least rate, or a list of them, one per group.
        max_lr: Largest rate, or a list of them, one per group.
        step_size_up: Number of steps from the least rate to the largest. Default: 2000.
        step_size_down: Number of steps back. Default: None, as many.
        mode: "triangular", "triangular2" or "exp_range", without effect where `scale_fn` is given.
            Default: "triangular".
        gamma: Base of the scale in "exp_range". Default: 1.0.
        scale_fn: Function from the number of the cycle, from 1, or of the step to the scale s.
            Default: None.
        scale_mode: What `scale_fn` gets: "cycle" or "iterations". Default: "cycle".
        cycle_momentum: Move the momentum (or beta1) against the rate. Default: True.
        base_momentum: Least momentum, or a list of them, one per group. Default: 0.8.
        max_momentum: Largest momentum, or a list of them, one per group. Default: 0.9.
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidType where `optimizer` is none; InvalidArgument for an unknown mode without
    `scale_fn`, a list with not one value per group, or `cycle_momentum` with an optimizer without
    momentum.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CyclicLR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
    >>> schedule = ad.optim.lr_scheduler.CyclicLR(optimizer, 0.0, 1.0, step_size_up=2)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[Any], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _assert_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            self._set(base_lrs)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.total_size = float(step_size_up + (step_size_down or step_size_up))
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise InvalidArgument(f"mode is invalid and scale_fn is None: {mode!r}")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _assert_momentum(optimizer)
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = _per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = _per_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for group, low, high in zip(
                    optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
                ):
                    group["base_momentum"], group["max_momentum"] = low, high
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: Any) -> float:
        """How high cycle (or step) number `x` goes.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
        >>> ad.optim.lr_scheduler.CyclicLR(optimizer, 0, 1, mode="triangular2").scale_fn(2)
        0.5
        """
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return 1.0 if self.mode == "triangular" else 1 / (2.0 ** (x - 1))

    def get_lr(self) -> list[Any]:
        """The rates at this place of the cycle; sets the momentum too."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = self.step_ratio
        height = x / up if x <= up else (x - 1) / (up - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, high - (high - low) * height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Without the optimizer; a `scale_fn` that is a function is left out, of a callable object
        its attributes are given.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
        >>> ad.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0).state_dict()["max_lrs"]
        [1.0]
        """
        state = super().state_dict()
        function = state["_scale_fn_custom"]
        is_object = function is not None and not isinstance(function, types.FunctionType)
        state["_scale_fn_custom"] = dict(function.__dict__) if is_object else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave.

        >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0, momentum=0.9)
        >>> schedule = ad.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0)
        >>> schedule.load_state_dict(schedule.state_dict())
        """
        rest = {key: value for key, value in state_dict.items() if key != "_scale_fn_custom"}
        super().load_state_dict(rest)
        saved = state_dict.get("_scale_fn_custom")
        if saved is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(saved)


def _assert_momentum(optimizer: Optimizer) -> None:
    if not {"momentum", "betas"} & set(optimizer.defaults):
        raise InvalidArgument(
            "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        )


def _set_momentum(group: Group, value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """`value` for each of the optimizer's groups, or the values that it lists."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise InvalidArgument(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} "
            f"values, param_groups has {count}."
        )
    return list(value)
