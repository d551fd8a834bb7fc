"""Selection by a mask. NumPy's `where` branches on every element: on a mask without a pattern that
costs ten to twenty times what the few passes over memory cost that select by bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .extras import extra

_INTEGERS: dict[int, np.dtype[Any]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_SMALL = 1024  # up to here the calls cost more than the branches


@extra
def zero_where(x: Any, condition: Any) -> None:
    """Write 0 into `x`, of the condition's shape, where the condition is true."""
    if x.dtype.itemsize <= 8:
        bits = x.view(f"i{x.dtype.itemsize}")
        np.multiply(bits, np.logical_not(condition), bits)
    else:
        x[condition] = 0


@extra
def where(condition: Any, x1: Any, x2: Any) -> Any:
    """x1 where the condition is true, otherwise x2."""
    dtype: np.dtype[Any] = np.result_type(x1, x2)
    integers = _INTEGERS.get(dtype.itemsize)
    size = max(np.size(condition), np.size(x1), np.size(x2))
    if integers is None or size < _SMALL or dtype.kind not in "fiu" or condition.dtype != bool:
        return np.where(condition, x1, x2)
    bits1 = np.asarray(x1, dtype).view(integers)
    bits2 = np.asarray(x2, dtype).view(integers)
    # An integer times a bool is itself or 0: one pass, and no array of masks.
    if not bits1.ndim and bits1 == 0:
        return np.multiply(bits2, np.logical_not(condition)).view(dtype)
    if not bits2.ndim and bits2 == 0:
        return np.multiply(bits1, condition).view(dtype)
    chosen = np.multiply(np.bitwise_xor(bits1, bits2), condition)
    return np.bitwise_xor(chosen, bits2, out=chosen).view(dtype)


_BLOCK = 1 << 16  # elements: a block and its mask stay in the second-level cache


@extra
def where_not_above_zero(y: Any, x1: Any, x2: Any) -> Any:
    """x1 (a number) where y <= 0, otherwise x2: block by block, without a mask of full size."""
    contiguous = y.flags.c_contiguous and x2.flags.c_contiguous
    if y.size <= _BLOCK or y.shape != x2.shape or not contiguous:
        return where(y <= 0, x1, x2)
    result = np.empty_like(x2)
    flat, flat_y, flat_x2 = result.reshape(-1), y.reshape(-1), x2.reshape(-1)
    for begin in range(0, y.size, _BLOCK):
        part = slice(begin, begin + _BLOCK)
        flat[part] = where(flat_y[part] <= 0, x1, flat_x2[part])
    return result
