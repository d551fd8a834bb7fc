"""GradScalers in files: real ones, of which programs read and write the scale and the progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..amp.grad_scaler import GradScaler
from ..core.dtype import float32, int64
from ..core.errors import CheckpointError, Unsupported
from ..io.ops import checked
from .checks import checked_dict

_SETTINGS = ("growth_factor", "backoff_factor", "growth_interval")


def settings_of(scaler: GradScaler) -> dict[str, Any]:
    """By what a scaler grows and backs off, which is constant in programs."""
    return {name: getattr(scaler, f"get_{name}")() for name in _SETTINGS}


def written_scaler(scaler: GradScaler, number: Callable[[Any], int]) -> dict[str, Any]:
    """What stands for a scaler in a file, where tensors have a number."""
    held = {"scale": number(scaler._scale), "tracker": number(scaler._tracker)}
    return {**held, **settings_of(scaler)}


def read_scaler(found: Any, tensor: Callable[[Any], Any]) -> GradScaler:
    """The scaler that was written.

    Errors: CheckpointError for what is none, and those of its constructor.
    """
    settings = {name: checked(checked_dict(found)[name], float) for name in _SETTINGS}
    checked(settings["growth_interval"], int)
    scaler = GradScaler("cpu", **settings)
    scaler._scale, scaler._tracker = tensor(found["scale"]), tensor(found["tracker"])
    for x, kind in ((scaler._scale, float32), (scaler._tracker, int64)):
        if x._data.shape != () or x.dtype is not kind or x._node is not None:
            raise CheckpointError(f"the state of a GradScaler is {x.spec}")
    scaler._used = True
    return scaler


def assert_settings(scaler: GradScaler, settings: dict[str, Any], name: str) -> None:
    """Refuse settings that are not those of the programs.

    Errors: Unsupported.
    """
    for key, value in settings_of(scaler).items():
        if value != settings[key]:
            raise Unsupported(
                f"export: the {key} of a GradScaler of {name} is {value!r:.40}, and was "
                f"{settings[key]!r} when it was exported; put it back, or export the function again"
            )
