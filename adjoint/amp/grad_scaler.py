"""GradScaler: a loss scaled up, so that small float16 gradients do not vanish.

Source: https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..core.argument_repr import argument_repr
from ..core.dtype import LOW_PRECISION, float16, float32, int64
from ..core.errors import AutogradError, InvalidArgument
from ..core.mode import MODE
from ..namespaces import cuda
from ..ops.create.creation import full, tensor
from ..ops.elementwise.comparison import where
from ..ops.elementwise.logic import logical_or
from ..runtime.writes import announce
from ..tensor import Tensor

__all__ = ["GradScaler"]


class ScalerError(AutogradError, AssertionError):
    """The scaler's methods were called in an order, or with values, that make no sense."""


class _OptimizerState:
    """The scaler's state for one optimizer since the last `update`."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer  # held, so that its id is not given to another
        # A bool, or a tensor in a function that is captured; None: its gradients are still scaled.
        self.found_inf: Any = None
        self.stepped = False


class GradScaler:
    """Scales the loss, and steps optimizers with gradients scaled back, unless they overflowed.

    `update` multiplies the scale by `backoff_factor` after an overflow (inf or NaN in a gradient),
    and by `growth_factor` after `growth_interval` iterations in a row without one. A scaler that
    is not `enabled` does nothing and lets optimizers step. The scale is a float32.

    Errors: AutogradError for calls out of order; a growth factor of at most 1, or a backoff factor
    of at least 1. Without CUDA, `device="cuda"` (the default) warns and disables the scaler.
    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler

    >>> w = ad.tensor([1.0], requires_grad=True)
    >>> optimizer = ad.optim.SGD([w], lr=0.5)
    >>> scaler = ad.amp.GradScaler("cpu", init_scale=8.0)
    >>> scaler.scale((w * 2).sum()).backward()
    >>> w.grad
    tensor([16.])
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.detach(), scaler.get_scale()
    (tensor([0.]), 8.0)
    """

    __repr__ = argument_repr

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda" and not cuda.is_available():
            warnings.warn(
                "GradScaler is enabled, but CUDA is not available. Disabling; use "
                'GradScaler("cpu") for tensors on the CPU.',
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise ScalerError(
                    f"GradScaler: The growth factor must be > 1.0, got {growth_factor}"
                )
            if backoff_factor >= 1.0:
                raise ScalerError(
                    f"GradScaler: The backoff factor must be < 1.0, got {backoff_factor}"
                )
        # Tensors, which compiled functions read and write; other code reads and writes numbers.
        self._scale: Any = full((), float(np.float32(init_scale)), dtype=float32, device="cpu")
        self._tracker: Any = full((), 0, dtype=int64, device="cpu")  # steps without overflow
        self._used = False  # `scale` has been called
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._states: dict[int, _OptimizerState] = {}

    def _assert_used(self, name: str) -> None:
        if not self._used:
            raise ScalerError(
                f"GradScaler: Attempted {name} but nothing has been scaled; use "
                "scaler.scale(loss or outputs) earlier in the iteration"
            )

    def _state_of(self, optimizer: Any) -> _OptimizerState:
        return self._states.setdefault(id(optimizer), _OptimizerState(optimizer))

    # ---- one iteration ---------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """`outputs`, a tensor or an iterable of them, times the scale.

        Errors: InvalidArgument for anything else.
        Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.scale

        >>> ad.amp.GradScaler("cpu", init_scale=4.0).scale([ad.ones(1), ad.ones(1)])
        [tensor([4.]), tensor([4.])]
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if not self._used:
                capture = _capture()
                if capture is not None:
                    capture.not_ready("GradScaler has scaled nothing yet")
                self._used = True
            factor: Tensor
            if _capture() is None:
                factor = full((), self._scale.item(), dtype=float32, device=outputs.device)
            else:
                factor = self._scale.clone()
            return outputs * factor
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise InvalidArgument(
            f"GradScaler.scale: outputs must be a Tensor or an iterable of Tensors, got "
            f"{type(outputs).__name__}"
        )

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, and look for overflow.

        `step` does it where it has not been done; call it to clip or read gradients before.

        Errors: AutogradError for a second call before `update`, or after `step`; InvalidArgument
        for float16 gradients.
        Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.unscale_
        """
        if not self._enabled:
            return
        self._assert_used("unscale_")
        state = self._state_of(optimizer)
        if state.stepped:
            raise AutogradError("GradScaler: unscale_() is being called after step().")
        if state.found_inf is not None:
            raise AutogradError(
                "GradScaler: unscale_() has already been called on this optimizer since the last "
                "update()."
            )
        gradients = [
            x.grad._values() if x.grad.is_sparse else x.grad
            for group in optimizer.param_groups
            for x in group["params"]
            if x.grad is not None
        ]
        if any(g.dtype is float16 for g in gradients):
            raise InvalidArgument(
                "GradScaler: Attempting to unscale FP16 gradients; keep the parameters in float32"
            )
        if not gradients:
            return
        with no_grad():
            if _capture() is not None:
                state.found_inf = _unscaled(gradients, self._scale)
                return
            scale = self._scale.item()
            inverse = float(np.float32(1.0 / scale)) if scale else math.inf
            found_inf = False
            for g in gradients:
                found_inf = found_inf or not bool(g.isfinite().all())
                g.mul_(inverse)
        state.found_inf = found_inf

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Step the optimizer with unscaled gradients, unless they overflowed; returns what its
        `step` does, None where it was skipped.

        Errors: AutogradError for a second call before `update`, for a closure, and for an
        optimizer without gradients.
        Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise AutogradError(
                "GradScaler: Closure use is not currently supported if GradScaler is enabled."
            )
        self._assert_used("step")
        state = self._state_of(optimizer)
        if state.stepped:
            raise AutogradError(
                "GradScaler: step() has already been called since the last update()."
            )
        if state.found_inf is None:
            self.unscale_(optimizer)
        if state.found_inf is None:
            raise ScalerError(
                "GradScaler: No inf checks were recorded for this optimizer; none of its "
                "parameters has a gradient"
            )
        if isinstance(state.found_inf, Tensor):
            with _capture().skipping(state.found_inf):
                result = optimizer.step(*args, **kwargs)
        else:
            skipped = bool(state.found_inf)
            result = optimizer._note_step() if skipped else optimizer.step(*args, **kwargs)
        state.stepped = True
        return result

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale to what happened since the last call, or set it to `new_scale`.

        Errors: AutogradError where no optimizer's gradients were looked at.
        Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update
        """
        if not self._enabled:
            return
        self._assert_used("update")
        if new_scale is not None:
            _set(self._scale, float(np.float32(_number(new_scale))))
        else:
            found = [s.found_inf for s in self._states.values() if s.found_inf is not None]
            if not found:
                raise ScalerError("GradScaler: No inf checks were recorded prior to update.")
            if any(isinstance(each, Tensor) for each in found):
                self._adapt_within(found)
            else:
                self._adapt(any(found))
        self._states.clear()

    def _adapt(self, found_inf: bool) -> None:
        scale, tracker = self._scale.item(), self._tracker.item()
        if found_inf:
            _set(self._scale, float(np.float32(scale * self._backoff_factor)))
            _set(self._tracker, 0)
            return
        tracker += 1
        if tracker == self._growth_interval:
            with np.errstate(over="ignore"):
                grown = float(np.float32(scale * self._growth_factor))
            if math.isfinite(grown):
                _set(self._scale, grown)
            tracker = 0
        _set(self._tracker, tracker)

    def _adapt_within(self, found: list[Any]) -> None:
        """Adapts the scale by selects, in a function that is being captured."""
        place = self._scale.device
        overflow = functools.reduce(logical_or, [tensor(each).to(place) for each in found])
        wide = self._scale.double()
        counted = self._tracker + 1
        grows = counted == self._growth_interval
        grown = (wide * self._growth_factor).float()
        kept = where(grows.logical_and(grown.isfinite()), grown, self._scale)
        self._scale.copy_(where(overflow, (wide * self._backoff_factor).float(), kept))
        self._tracker.copy_(where(overflow.logical_or(grows), 0, counted))

    # ---- settings and state ----------------------------------------------------------------------

    def get_scale(self) -> float:
        """The scale; 1 where the scaler is not enabled.

        >>> ad.amp.GradScaler("cpu").get_scale()
        65536.0
        """
        return float(self._scale.item()) if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor that multiplies the scale after enough iterations without overflow."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after enough iterations without overflow."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor that multiplies the scale after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after an overflow."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Number of iterations in a row without overflow after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set how many iterations in a row without overflow let the scale grow."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale, its settings and its progress, for a checkpoint; {} where not enabled.

        >>> ad.amp.GradScaler("cpu", init_scale=2.0).state_dict()["scale"]
        2.0
        """
        if not self._enabled:
            return {}
        return {
            "scale": float(self._scale.item()),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(self._tracker.item()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of another scaler; nothing where this one is not enabled.

        Errors: AutogradError for the state of a scaler that was not enabled; KeyError for an entry
        that is missing. Neither changes anything.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise AutogradError(
                "GradScaler: The source state dict is empty, possibly because it was saved from a "
                "disabled instance of GradScaler."
            )
        scale = float(np.float32(state_dict["scale"]))
        growth, backoff = state_dict["growth_factor"], state_dict["backoff_factor"]
        interval, tracker = state_dict["growth_interval"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor, self._growth_interval = growth, backoff, interval
        _set(self._scale, scale)
        _set(self._tracker, int(tracker))


def _capture() -> Any:
    """The executor that captures a function as a program, where a skipped step is a select; None
    elsewhere.
    """
    executor = MODE.get().executor
    return executor if hasattr(executor, "skipping") else None


def _unscaled(gradients: list[Any], scale: Any) -> Any:
    """Whether there is an overflow, which a tensor says; gradients are divided by the scale."""
    inverse = scale.double().reciprocal().float()
    found = []
    for g in gradients:
        found.append(g.isfinite().all().logical_not())
        if g.dtype in LOW_PRECISION:
            g.copy_(g.float() * inverse)
        else:
            g.mul_(inverse)
    return functools.reduce(logical_or, found)


def _set(x: Any, value: float) -> None:
    """Write a number into a tensor of one, whatever mode there is."""
    watched = announce([x], "update")
    x._data.fill(value)
    for version in watched:
        version.bump("update")


def _number(value: Any) -> float:
    """The number that `value`, a number or a tensor of one element without gradient, is."""
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.requires_grad:
            raise ScalerError(
                "GradScaler.update: new_scale should be a float or a 1-element tensor with "
                f"requires_grad=False, got shape {tuple(value.shape)}"
            )
        return float(value.item())
    return float(value)
