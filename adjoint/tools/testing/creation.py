"""`make_tensor`: random tensors of any dtype for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtype import as_dtype, dtype, finfo, iinfo
from ...core.errors import InvalidArgument
from ...ops.create.creation import tensor
from ...ops.random.random import rand
from ...tensor import Tensor


def make_tensor(
    *shape: Any,
    dtype: dtype,
    device: Any = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor with values drawn uniformly from [low, high).

    Without bounds: bools, integers from [-9, 10) ([0, 10) without sign), floats from [-9, 9).
    `noncontiguous` leaves gaps in memory; `exclude_zero` replaces zeros by the smallest positive
    value.

    Shapes: `shape` as several ints or one tuple.
    Errors: InvalidArgument for low >= high, or both `noncontiguous` and `memory_format`.
    Source: https://docs.pytorch.org/docs/stable/testing.html#torch.testing.make_tensor

    >>> x = ad.testing.make_tensor(2, 3, dtype=ad.float32, low=0, high=1)
    >>> x.shape, bool((x >= 0).all()), bool((x < 1).all())
    (adjoint.Size([2, 3]), True, True)
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if noncontiguous and memory_format is not None:
        raise InvalidArgument(
            f"make_tensor: The parameters `noncontiguous` and `memory_format` are mutually "
            f"exclusive, but got {noncontiguous=} and {memory_format=}"
        )
    kind = as_dtype(dtype)
    start, stop = _bounds(kind, low, high)
    wide = (*sizes[:-1], 2 * sizes[-1]) if noncontiguous and sizes else sizes
    values = start + (stop - start) * _uniform(wide)
    if kind.is_complex:
        values = values + 1j * (start + (stop - start) * _uniform(wide))
    elif kind.category < 2:
        values = np.floor(values)
    array = np.asarray(values).astype(kind.numpy)
    if exclude_zero:
        smallest = 1 if kind.category < 2 else finfo(kind).tiny
        array = np.where(array == 0, np.asarray(smallest, kind.numpy), array)
    result: Any = tensor(array, device=device)
    if wide is not sizes:
        result = result[..., ::2]
    return result.detach().requires_grad_() if requires_grad else result


def _bounds(kind: dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """[low, high) with the dtype's defaults, within its range."""
    if kind.category == 0:
        defaults, least, most = (0.0, 2.0), 0.0, 2.0
    elif kind.category == 1:
        info = iinfo(kind)
        defaults, least, most = (-9.0 if kind.is_signed else 0.0, 10.0), info.min, info.max + 1
    else:
        limits = finfo(kind)
        defaults, least, most = (-9.0, 9.0), limits.min, limits.max
    start = defaults[0] if low is None else max(low, least)
    stop = defaults[1] if high is None else min(high, most)
    if start >= stop:
        raise InvalidArgument(
            f"make_tensor: `low` must be less than `high`, but got {start} >= {stop} for {kind}"
        )
    return start, stop


def _uniform(shape: tuple[int, ...]) -> Any:
    return rand(shape, dtype=as_dtype("float64"))._data
