"""Averages of a model's weights: stochastic weight averaging and exponential moving averages."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from ..autograd.modes import no_grad
from ..core.dtype import int64
from ..core.errors import InvalidArgument
from ..core.mode import are_known
from ..nn import Module
from ..ops.create.creation import tensor
from ..ops.elementwise.comparison import where
from ..tensor import Tensor
from .learning_rate import LRScheduler
from .optimizer import Optimizer

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """Make the function for `AveragedModel(avg_fn=...)` that gives an exponential moving average.

        average = decay average + (1 - decay) current

    Args:
        decay: Share of the old average, in [0, 1]. Default: 0.999.

    Errors: InvalidArgument for a decay outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema

    >>> ad.optim.swa_utils.get_ema_avg_fn(0.75)(ad.ones(1), ad.zeros(1), 1)
    tensor([0.7500])
    """
    if not 0.0 <= decay <= 1.0:
        raise InvalidArgument(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )

    @no_grad()
    def average(averaged: Any, current: Any, count: Any) -> Any:
        return decay * averaged + (1 - decay) * current

    return average


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """Make the function for `AveragedModel(avg_fn=...)` that gives the mean of all weights so far.

        average = average + (current - average) / (count + 1)

    Source: https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema

    >>> ad.optim.swa_utils.get_swa_avg_fn()(ad.ones(1), ad.zeros(1), 3)
    tensor([0.7500])
    """

    @no_grad()
    def average(averaged: Any, current: Any, count: Any) -> Any:
        return averaged + (current - averaged) / (count + 1)

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """Make the function for `AveragedModel(multi_avg_fn=...)` of an exponential moving average.

        average = decay average + (1 - decay) current, in place, for lists of tensors

    Args:
        decay: Share of the old average, in [0, 1]. Default: 0.999.

    Errors: InvalidArgument for a decay outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema

    >>> averaged = [ad.ones(1)]
    >>> ad.optim.swa_utils.get_ema_multi_avg_fn(0.75)(averaged, [ad.zeros(1)], 1)
    >>> averaged
    [tensor([0.7500])]
    """
    return _in_place(lambda count: 1 - decay, get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """Make the function for `AveragedModel(multi_avg_fn=...)` of the mean of all weights so far.

        average = average + (current - average) / (count + 1), in place, for lists of tensors

    Source: https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema

    >>> averaged = [ad.ones(1)]
    >>> ad.optim.swa_utils.get_swa_multi_avg_fn()(averaged, [ad.zeros(1)], 3)
    >>> averaged
    [tensor([0.7500])]
    """
    return _in_place(
        lambda count: 1 / ((float(count) if are_known() else count.double()) + 1), get_swa_avg_fn()
    )


def _in_place(
    weight: Callable[[Any], Any], average: Callable[[Any, Any, Any], Any]
) -> Callable[[Any, Any, Any], None]:
    """`average` on lists of tensors, into the first; by the `weight` of the second if it can."""

    @no_grad()
    def average_all(averaged: Any, current: Any, count: Any) -> None:
        for old, new in zip(averaged, current, strict=True):
            if old.is_floating_point() or old.is_complex():
                share = weight(count)
                old.lerp_(new, share.to(old.dtype) if isinstance(share, Tensor) else share)
            else:
                old.copy_(average(old, new, count))

    return average_all


class AveragedModel(Module):
    """Copy of a model with the average of the weights that it was shown (Izmailov et al., 2018).

        average = average + (current - average) / (n + 1), with n the number averaged before

    `update_parameters(model)` takes the model's present weights into the average; the first ones
    are copied.

    Args:
        model: Module to copy and to average.
        device: Where the average is. Default: None, where the model is.
        avg_fn: Function of (average, current, count) that returns the new average of one tensor.
            Default: None.
        multi_avg_fn: Function of (averages, currents, count) that changes a list of tensors in
            place. Default: None.
        use_buffers: Average the buffers, too; otherwise they are copied. Default: False.

    Errors: AssertionError where both functions are given.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.AveragedModel.html

    >>> model = ad.nn.Linear(1, 1)
    >>> averaged = ad.optim.swa_utils.AveragedModel(model)
    >>> for weight in (1.0, 2.0):
    ...     _ = ad.nn.init.constant_(model.weight, weight)
    ...     averaged.update_parameters(model)
    >>> averaged.module.weight.item()
    1.5
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Callable[[Any, Any, Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's output."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Take the current weights of `model` into the average.

        >>> model = ad.nn.Linear(1, 1)
        >>> averaged = ad.optim.swa_utils.AveragedModel(model)
        >>> averaged.update_parameters(model)
        >>> averaged.n_averaged
        tensor(1)
        """

        def tensors(m: Module) -> list[Any]:
            return list(chain(m.parameters(), m.buffers() if self.use_buffers else ()))

        old = tensors(self.module)
        new = [
            value.detach().to(average.device)
            for average, value in zip(old, tensors(model), strict=True)
        ]
        known = are_known()
        if known and self.n_averaged == 0:
            for average, value in zip(old, new, strict=True):
                average.copy_(value)
        elif self.avg_fn is not None:
            for average, value in zip(old, new, strict=True):
                average.copy_(self.avg_fn(average.detach(), value, self.n_averaged))
        else:
            by_dtype: dict[Any, tuple[list[Any], list[Any]]] = {}
            for average, value in zip(old, new, strict=True):
                averages, values = by_dtype.setdefault(average.dtype, ([], []))
                averages.append(average.detach())
                values.append(value)
            change = self.multi_avg_fn or get_swa_multi_avg_fn()
            for averages, values in by_dtype.values():
                change(averages, values, self.n_averaged)
        if not known:  # captured: each run selects
            for average, value in zip(old, new, strict=True):
                average.copy_(where(self.n_averaged == 0, value, average))
        if not self.use_buffers:
            for ours, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                ours.copy_(theirs.detach().to(ours.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of a model's batch normalization from one pass over a loader.

    The statistics become the plain means over all batches. Momenta and training mode are as before
    afterwards.

    Args:
        loader: Batches: tensors, or lists or tuples whose first element is what the model gets.
        model: Module whose batch normalization layers are changed.
        device: Where to move each batch. Default: None, nowhere.

    Source: https://docs.pytorch.org/docs/stable/optim.html#taking-care-of-batch-normalization

    >>> model = ad.nn.BatchNorm1d(1)
    >>> ad.optim.swa_utils.update_bn([ad.tensor([[1.0], [3.0]])], model)
    >>> model.running_mean
    tensor([2.])
    """
    momenta = {
        module: module.momentum
        for module in model.modules()
        if hasattr(module, "reset_running_stats") and hasattr(module, "momentum")
    }
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None  # the mean of all batches
    for batch in loader:
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(x if device is None else x.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Schedule that brings the rate to swa_lr, where it stays.

        lr_n = lr_0 + (swa_lr - lr_0) x
        x = (1 - cos(pi min(n / anneal_epochs, 1))) / 2, or min(n / anneal_epochs, 1)

    Args:
        optimizer: Optimizer whose groups get the rates.
        swa_lr: Rate in the end, or a list of them, one per group.
        anneal_epochs: Number of steps until then. Default: 10.
        anneal_strategy: "cos" or "linear". Default: "cos".
        last_epoch: Number of the last step taken, to resume a schedule; -1 starts one. Default: -1.

    Errors: InvalidArgument for another strategy, a negative or fractional number of steps, or a
    list with not one rate per group.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.SWALR.html

    >>> optimizer = ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], lr=1.0)
    >>> schedule = ad.optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=2)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise InvalidArgument(
                f"swa_lr must have the same length as optimizer.param_groups: it has {len(rates)} "
                f"values, param_groups {len(groups)}"
            )
        for group, rate in zip(groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise InvalidArgument(
                f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
            )
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way to swa_lr is gone after `step` steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """The current rates, taken back to the start and on to this step."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
