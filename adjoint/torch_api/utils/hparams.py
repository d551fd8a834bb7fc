"""Summaries for TensorBoard's page of hyperparameters: three of a run.

Source: https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_hparams
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core.errors import InvalidArgument, InvalidType
from ...tensor import Tensor
from .event_file import field_bytes, field_double, field_int

__all__ = ["hparams"]

_STRING, _FLOAT = 1, 3  # what TensorBoard calls DATA_TYPE_STRING and DATA_TYPE_FLOAT64
_SUCCESS = 1  # and STATUS_SUCCESS


def hparams(
    hparam_dict: Mapping[str, Any],
    metric_dict: Mapping[str, Any],
    hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """Summaries of an experiment's hyperparameters and metrics, of this run's values, and of its
    end: three, serialized, for `writer._get_file_writer().add_summary`.

    Values are numbers (bools among them), strings, tensors of one number, or None, which is left
    out; `hparam_domain_discrete` lists all values that a name may have.

    Errors: InvalidType for what is no dictionary, or a list of other types; InvalidArgument for
    another value.

    >>> from adjoint.utils.hparams import hparams
    >>> len(hparams({"lr": 0.1, "kind": "adam"}, {"loss": 0.5}))
    3
    """
    domains = hparam_domain_discrete or {}
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, dict):
            raise InvalidType(f"hparams: {name} should be a dictionary, got {type(given).__name__}")
    if not isinstance(domains, dict):
        raise InvalidType("hparams: hparam_domain_discrete should be a dictionary")
    for name, values in domains.items():
        kind = type(hparam_dict.get(name))
        if name not in hparam_dict or not _are(values, kind):
            raise InvalidType(
                f"hparams: hparam_domain_discrete[{name!r}] should be a list of the type of "
                f"hparam_dict[{name!r}] ({kind.__name__}), got {values!r}"
            )
    start, infos = [], []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        what = _STRING if isinstance(value, str) else _FLOAT
        start.append(field_bytes(1, field_bytes(1, name) + field_bytes(2, _value(name, value))))
        info = field_bytes(1, name) + field_int(4, what)
        if name in domains:
            among = [field_bytes(1, _value(name, each)) for each in domains[name]]
            info += field_bytes(5, b"".join(among))
        infos.append(field_bytes(4, info))
    infos += [field_bytes(5, field_bytes(1, field_bytes(2, name))) for name in metric_dict]
    return (
        _summary("experiment", 2, infos),
        _summary("session_start_info", 3, start),
        _summary("session_end_info", 4, [field_int(1, _SUCCESS)]),
    )


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(each, kind) for each in values)


def _value(name: str, value: Any) -> bytes:
    """A `google.protobuf.Value`."""
    if isinstance(value, str):
        return field_bytes(3, value)
    if isinstance(value, Tensor):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise InvalidArgument(
            f"hparams: value should be one of int, float, str, bool, or Tensor, got {value!r} for "
            f"{name!r}; str() makes a text of it"
        )
    return field_double(2, float(value))


def _summary(name: str, field: int, parts: Iterable[bytes]) -> bytes:
    """A summary of one entry, whose content is the plugin's."""
    content = field_bytes(field, b"".join(parts))
    plugin = field_bytes(1, "hparams") + field_bytes(2, content)
    metadata = field_bytes(9, field_bytes(1, plugin))
    return field_bytes(1, field_bytes(1, f"_hparams_/{name}") + metadata)
