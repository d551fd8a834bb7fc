"""GradScalers in files; programs read and write the tensors of their scale and growth counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...amp.grad_scaler import GradScaler
from ...core.dtype import float32, int64
from ...core.errors import CheckpointError, Unsupported
from ...io.stored_ops import checked
from .file_checks import checked_dict

_SETTINGS = ("growth_factor", "backoff_factor", "growth_interval")


def settings_of(scaler: GradScaler) -> dict[str, Any]:
    """Growth and backoff settings of a scaler, which are constants of programs."""
    return {name: getattr(scaler, f"get_{name}")() for name in _SETTINGS}


def written_scaler(scaler: GradScaler, number: Callable[[Any], int]) -> dict[str, Any]:
    """Serialize a scaler; `number` gives the number of a tensor."""
    tensors = {"scale": number(scaler._scale), "tracker": number(scaler._tracker)}
    return {**tensors, **settings_of(scaler)}


def read_scaler(content: Any, tensor: Callable[[Any], Any]) -> GradScaler:
    """Deserialize a scaler; `tensor` gives the tensor of a number.

    Errors: CheckpointError for an invalid content, and those of its constructor.
    """
    settings = {name: checked(checked_dict(content)[name], float) for name in _SETTINGS}
    checked(settings["growth_interval"], int)
    scaler = GradScaler("cpu", **settings)
    scaler._scale, scaler._tracker = tensor(content["scale"]), tensor(content["tracker"])
    for x, kind in ((scaler._scale, float32), (scaler._tracker, int64)):
        if x._data.shape != () or x.dtype is not kind or x._node is not None:
            raise CheckpointError(f"the state of a GradScaler is {x.spec}")
    scaler._used = True
    return scaler


def assert_settings(scaler: GradScaler, settings: dict[str, Any], name: str) -> None:
    """Refuse a scaler whose settings differ from those of the programs.

    Errors: Unsupported.
    """
    for key, value in settings_of(scaler).items():
        if value != settings[key]:
            raise Unsupported(
                f"export: the {key} of a GradScaler of {name} is {value!r:.40}, and was "
                f"{settings[key]!r} when it was exported; put it back, or export the function again"
            )
