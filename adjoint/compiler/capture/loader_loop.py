"""Loop of a compiled function over the batches of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...core.errors import InvalidArgument, ShapeError
from ...core.tensor_base import TensorBase
from ...core.tree import LEAF, children_of, flatten, leaves, named_leaves
from ...ops.shape.joining import stack


def over(call: Callable[..., Any], batches: Iterable[Any], name: str) -> object:
    """Call `call` for each batch, and stack the results: see `CompiledFunction.over`."""
    results = []
    for batch in batches:
        arguments = batch if type(batch) in (tuple, list) else (batch,)
        results.append(call(*arguments))
    if not results:
        raise InvalidArgument(f"over: the loader gave {name} no batch, so there is no result")
    form = flatten(results[0], lambda x, path: LEAF if children_of(x) is None else None, "over:")
    columns = zip(*map(leaves, results), strict=True)
    names = [name for name, _ in named_leaves(results[0], "result")]
    return form.unflatten([_stacked(list(xs), n) for xs, n in zip(columns, names, strict=True)])


def _stacked(results: list[Any], name: str) -> object:
    """Stack results of all calls: tensors get a first dimension for the calls."""
    if not isinstance(results[0], TensorBase):
        return results
    try:
        return stack([x.detach() for x in results])
    except ShapeError as error:
        shapes = sorted({tuple(x._data.shape) for x in results})
        raise ShapeError(
            f"over: {name} has several shapes, {', '.join(map(str, shapes))}, which cannot be "
            "stacked; return its sum or mean, or let the loader drop_last"
        ) from error
