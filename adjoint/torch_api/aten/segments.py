"""Reductions of neighbouring elements, some to each segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import InvalidArgument, ShapeError, Unsupported
from ...core.spec import normalize_axis
from ...ops.argument_dtypes import INTEGERS, assert_dtypes
from ...ops.create.exchange import from_numpy
from ...ops.shape.sizes import hold_sizes, hold_values
from ...runtime.public import explaining
from ...tensor import Tensor

_KINDS = {"sum": "sum", "prod": "prod", "mean": "mean", "max": "amax", "amax": "amax",
          "min": "amin", "amin": "amin"}  # fmt: skip
_NOTHING = {"sum": 0.0, "prod": 1.0, "mean": float("nan"), "amax": -np.inf, "amin": np.inf}


@explaining
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Sums, means, products or extremes ("sum", "mean", "prod", "max", "min") of segments that
    follow each other along `axis`: of so many elements each, `lengths`, or beginning at `offsets`,
    the last of which ends the last one. Each begins with `initial`; without it an empty segment
    gives what nothing reduces to: 0, NaN, 1 or an infinity.

    Shapes: `lengths` (*data.shape[:axis], segments), `offsets` one more.
    Errors: InvalidArgument for another reduction or lengths that do not fit; Unsupported for
    integers and for `indices`, as in PyTorch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.scatter_reduce_.html

    >>> ad.segment_reduce(ad.tensor([1., 2., 3.]), "sum", lengths=ad.tensor([2, 1]))
    tensor([3., 3.])
    """
    name = "segment_reduce"
    if reduce not in _KINDS:
        raise InvalidArgument(
            f"{name}: reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if indices is not None:
        raise Unsupported(f"{name}: indices based reduction is not supported; use scatter_reduce")
    if data.dtype.category != 2:
        raise Unsupported(f"{name}: not implemented for {data.dtype}; use .float()")
    axis = normalize_axis(axis, data.ndim, name)
    given = lengths if offsets is None else offsets
    if given is None:
        raise InvalidArgument(f"{name}: Either lengths or offsets must be defined.")
    if given.ndim != axis + 1 or given.shape[:-1] != data.shape[:axis]:
        raise ShapeError(
            f"{name}: Expected axis to be the last dimension of lengths or offsets, and those "
            f"before to be data's, {tuple(data.shape[:axis])}; got shape {tuple(given.shape)}"
        )
    assert_dtypes(name, INTEGERS, lengths=lengths, offsets=offsets)
    counts = given.detach().cpu().numpy().astype(np.int64)
    size = data.shape[axis]
    if offsets is not None:
        begins, counts = counts[..., :-1], np.diff(counts)
    else:
        begins = np.cumsum(counts, -1) - counts
    if (counts < 0).any():
        raise InvalidArgument(f"{name}: lengths contains negative value!")
    if lengths is not None and offsets is None and not unsafe and (counts.sum(-1) != size).any():
        raise InvalidArgument(
            f"{name}: Expected all rows of lengths along axis to sum to {size}, the size of data "
            "there"
        )
    if (counts.size and (begins + counts > size).any()) or (begins < 0).any():
        raise InvalidArgument(f"{name}: segments reach beyond the {size} elements of data")
    data = hold_values(name, hold_sizes(name, data), given)
    return _reduced(data, _KINDS[reduce], begins, counts, axis, initial)


def _reduced(data: Any, kind: str, begins: Any, counts: Any, axis: int, initial: Any) -> Any:
    """Reduces all segments at once: a scatter into as many places as there are segments."""
    segments = counts.shape[-1]
    rest = data.shape[axis + 1 :]
    lead = int(np.prod(data.shape[:axis]))
    rows = data.reshape(lead * data.shape[axis], -1)
    flat = counts.reshape(-1)
    starts = (begins.reshape(lead, segments) + np.arange(lead)[:, None] * data.shape[axis]).ravel()
    which = np.repeat(np.arange(len(flat)), flat)
    within = np.arange(len(which)) - np.repeat(np.cumsum(flat) - flat, flat)
    taken = from_numpy(np.repeat(starts, flat) + within).to(data.device)
    place = from_numpy(which).to(data.device)
    values = rows.index_select(0, taken)
    mean = kind == "mean"
    kind = "sum" if mean else kind
    start = _NOTHING[kind] if initial is None else initial
    made = data.new_full((len(flat), values.shape[1]), float(start))
    if kind == "sum":
        found = made.index_add(0, place, values)
    else:
        spread = place.unsqueeze(-1).expand(*values.shape)
        found = made.scatter_reduce(0, spread, values, kind, include_self=True)
    if mean:
        empty = flat == 0
        found = found / from_numpy(np.where(empty, 1, flat)[:, None]).to(found)
        if initial is None and empty.any():
            found = found.masked_fill(from_numpy(empty[:, None]).to(data.device), float("nan"))
    return found.reshape(*data.shape[:axis], segments, *rest)


_segment_reduce = segment_reduce  # as packages of graphs call it
