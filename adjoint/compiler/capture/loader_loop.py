"""Loop of a compiled function over the batches of a loader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...core.tensor_base import TensorBase
from ...ops.shape.joining import stack


def over(call: Callable[..., Any], batches: Iterable[Any], name: str) -> object:
    """Call `call` for each batch, and stack the results: see `CompiledFunction.over`."""
    results = []
    for batch in batches:
        arguments = batch if type(batch) in (tuple, list) else (batch,)
        results.append(call(*arguments))
    if not results:
        raise InvalidArgument(f"over: the loader gave {name} no batch, so there is no result")
    return _stacked(results, "result")


def _stacked(results: list[Any], name: str) -> object:
    """Stack results of equal structure: tensors get a first dimension for the calls."""
    first = results[0]
    kind = type(first)
    if isinstance(first, TensorBase):
        try:
            return stack([x.detach() for x in results])
        except ShapeError as error:
            shapes = sorted({tuple(x._data.shape) for x in results})
            raise ShapeError(
                f"over: {name} has several shapes, {', '.join(map(str, shapes))}, which cannot be "
                "stacked; return its sum or mean, or let the loader drop_last"
            ) from error
    if isinstance(first, dict):
        return {key: _stacked([x[key] for x in results], f"{name}[{key!r}]") for key in first}
    if kind in (tuple, list) or (isinstance(first, tuple) and hasattr(kind, "_fields")):
        parts = [
            _stacked(list(each), f"{name}[{n}]")
            for n, each in enumerate(zip(*results, strict=True))
        ]
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        fields = {n: _stacked([getattr(x, n) for x in results], f"{name}.{n}") for n in names}
        return dataclasses.replace(first, **fields)
    return results
