"""Many calls of a compiled function, one for each batch of a loader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ..core.errors import InvalidArgument, ShapeError
from ..core.tensor_base import TensorBase
from ..ops.shape.joining import stack


def over(call: Callable[..., Any], batches: Iterable[Any], name: str) -> Any:
    """What `call` returns for each batch, stacked: see `CompiledFunction.over`."""
    found = []
    for batch in batches:
        given = batch if type(batch) in (tuple, list) else (batch,)
        found.append(call(*given))
    if not found:
        raise InvalidArgument(f"over: the loader gave {name} no batch, so there is no result")
    return _stacked(found, "result")


def _stacked(found: list[Any], name: str) -> Any:
    """Results of equal form as one of that form, whose tensors have a first dimension for calls."""
    first = found[0]
    kind = type(first)
    if isinstance(first, TensorBase):
        try:
            return stack([x.detach() for x in found])
        except ShapeError as error:
            shapes = sorted({tuple(x._data.shape) for x in found})
            raise ShapeError(
                f"over: {name} has several shapes, {', '.join(map(str, shapes))}, which cannot be "
                "stacked; return its sum or mean, or let the loader drop_last"
            ) from error
    if isinstance(first, dict):
        return {key: _stacked([x[key] for x in found], f"{name}[{key!r}]") for key in first}
    if kind in (tuple, list) or (isinstance(first, tuple) and hasattr(kind, "_fields")):
        parts = [
            _stacked(list(each), f"{name}[{n}]") for n, each in enumerate(zip(*found, strict=True))
        ]
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        fields = {n: _stacked([getattr(x, n) for x in found], f"{name}.{n}") for n in names}
        return dataclasses.replace(first, **fields)
    return found
