"""Elements of arrays through NumPy's C API: copies, single numbers, words that machine code reads.
Each function stands beside its twin in plain Python, as in arrays.py.

Each function stands beside its twin of plain Python, as in arrays.py.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from . import policy
from .cython_shim import cython

if TYPE_CHECKING:
    import cython  # what the compiler sees


if cython.compiled:
    import_array()


def copies(arrays: list[Any]) -> list[Any]:
    """Row-major copies of arrays."""
    copied: list[Any] = []
    for x in arrays:
        if (
            cython.compiled
            and PyArray_FLAGS(x) & NPY_ARRAY_C_CONTIGUOUS
            and PyArray_TYPE(x) < 17  # neither objects nor what has a size of its own
        ):
            y = PyArray_SimpleNew(PyArray_NDIM(x), PyArray_DIMS(x), PyArray_TYPE(x))
            memcpy(PyArray_DATA(y), PyArray_DATA(x), PyArray_NBYTES(x))
            copied.append(y)
        else:
            copied.append(x.copy())
    return copied


def order_in_memory(array: np.ndarray) -> tuple[Any, ...]:
    """Description of the memory order of an array that is not row-major: its axes, larger strides
    first, and those of them without a gap to the next one. It determines how reshapes and
    elementwise results lie. () for a row-major array.
    """
    if cython.compiled:
        if PyArray_FLAGS(array) & NPY_ARRAY_C_CONTIGUOUS:
            return ()
    elif array.flags.c_contiguous:
        return ()
    shape, strides = array.shape, array.strides
    axes = [k for k, size in enumerate(shape) if size > 1]
    sizes = [-abs(step) for step in strides]
    ordered = sorted(axes, key=sizes.__getitem__)
    joined = [k for k, n in itertools.pairwise(ordered) if strides[k] == strides[n] * shape[n]]
    return tuple(ordered), tuple(joined)


def common_number(arrays: list[Any]) -> float | None:
    """The number that all of these one-element arrays hold; None if they differ."""
    first = _number(arrays[0])
    for x in arrays:
        if _number(x) != first:
            return None
    return first


def _number(array: np.ndarray) -> float:
    if cython.compiled:
        if PyArray_TYPE(array) == NPY_FLOAT32:
            return cython.cast(cython.p_float, PyArray_DATA(array))[0]
        if PyArray_TYPE(array) == NPY_FLOAT64:
            return cython.cast(cython.p_double, PyArray_DATA(array))[0]
    return float(array.item())


def put_number(arrays: list[Any], value: float) -> None:
    """Fill one-element arrays with a value."""
    for x in arrays:
        if cython.compiled:
            if PyArray_TYPE(x) == NPY_FLOAT32:
                cython.cast(cython.p_float, PyArray_DATA(x))[0] = value
                continue
            if PyArray_TYPE(x) == NPY_FLOAT64:
                cython.cast(cython.p_double, PyArray_DATA(x))[0] = value
                continue
        x.fill(value)


def put_words(table: np.ndarray, first: int, end: int, place: int, words: bytes) -> None:
    """Write words, beginning at column `place`, into rows `first` to `end` - 1 of a row-major int64
    table.
    """
    if not (0 <= first <= end <= len(table) and 0 <= place <= table.shape[1] - len(words) // 8):
        raise IndexError(f"put_words: rows {first} to {end}, place {place}")
    if cython.compiled:
        width = PyArray_DIMS(table)[1]
        at = cython.cast(p_int64, PyArray_DATA(table)) + first * width + place
        for _ in range(end - first):
            memcpy(at, PyBytes_AS_STRING(words), len(words))
            at += width
        return
    row = np.frombuffer(words, np.int64)
    table[first:end, place : place + len(row)] = row


def put_addresses(words: np.ndarray, places: np.ndarray, offsets: np.ndarray, begin: int) -> None:
    """Set `words` at some places to `begin` plus an offset in bytes each. All are int64."""
    if cython.compiled:
        to = cython.cast(p_int64, PyArray_DATA(words))
        which = cython.cast(p_int64, PyArray_DATA(places))
        by = cython.cast(p_int64, PyArray_DATA(offsets))
        for k in range(PyArray_SIZE(places)):
            to[which[k]] = begin + by[k]
        return
    words[places] = offsets + begin


def are_below(index: np.ndarray, bound: int) -> bool:
    """Whether all int64s of a non-empty array are in [0, `bound`)."""
    if cython.compiled:
        size = PyArray_SIZE(index)
        if size <= policy.INDICES_FEW and PyArray_FLAGS(index) & NPY_ARRAY_C_CONTIGUOUS:
            at = cython.cast(p_int64, PyArray_DATA(index))
            k = 0
            while k < size and 0 <= at[k] < bound:
                k += 1
            return k == size
    # A negative one is a very large one.
    return bool(np.maximum.reduce(index.view(np.uint64), axis=None) < bound)


def owner(array: np.ndarray) -> np.ndarray:
    """The base array that owns the memory of this one, as far as NumPy's arrays know."""
    if cython.compiled:
        holder = cython.cast(c_ndarray, array)
        while True:
            base = PyArray_BASE(holder)
            if base == cython.NULL or not PyArray_CheckExact(cython.cast(object, base)):
                return holder
            holder = cython.cast(c_ndarray, base)
    while type(array.base) is np.ndarray:
        array = array.base
    return array
