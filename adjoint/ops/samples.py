"""Inputs that ops offer to the registry-driven tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.op import Sample

FLOATS = (dt.float64, dt.float32, dt.bfloat16, dt.float16)
INTS = (dt.int64, dt.int32, dt.uint8)
COMPLEX = (dt.complex128, dt.complex64)
ALL_FLOATS = FLOATS + COMPLEX
KINDS = (dt.float64, dt.bfloat16, dt.int32, dt.complex128)


def array(
    shape: tuple[int, ...],
    dtype: dt.dtype = dt.float64,
    low: float = -2.0,
    high: float = 2.0,
    seed: int = 0,
) -> Any:
    """A reproducible array of `dtype`, spread over [low, high)."""
    rng = np.random.default_rng([seed, *shape])
    values = rng.uniform(low, high, shape)
    if dtype.is_complex:
        values = values + 1j * rng.uniform(low, high, shape)
    if dtype is dt.bool_:
        return np.asarray(values > (low + high) / 2)
    if dtype is dt.uint8:
        values = np.abs(values)
    return np.asarray(values).astype(dtype.numpy)


def strided(x: Any) -> Any:
    """A copy of the values in memory that is not contiguous (every second element, last axis
    first).
    """
    if x.ndim == 0:
        return x
    wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2), x.dtype)
    wide[..., ::2] = x
    return np.swapaxes(np.swapaxes(wide[..., ::2], 0, -1).copy(), 0, -1)


def each_dtype(op: Any, dtypes: Iterable[dt.dtype], *inputs: Any) -> Iterable[Sample]:
    """A sample of each dtype; of the inputs, shapes stand for arrays of it."""
    for dtype in dtypes:
        values = tuple(array(x, dtype) if isinstance(x, tuple) else x for x in inputs)
        yield Sample(op, values, dtype.name)


def unary_samples(
    low: float = -2.0,
    high: float = 2.0,
    dtypes: tuple[dt.dtype, ...] = FLOATS,
    special: bool = True,
    gradients: bool = True,
) -> Any:
    """Samples of a one-input op: 0-d, empty, contiguous, strided, each dtype, special values."""

    def samples(cls: Any) -> Iterable[Sample]:
        for dtype in dtypes:
            yield Sample(cls(), (array((2, 3), dtype, low, high),), dtype.name, gradients=gradients)
        yield Sample(cls(), (array((), dtypes[0], low, high),), "0-d", gradients=gradients)
        yield Sample(cls(), (array((0, 3), dtypes[0]),), "empty", gradients=gradients)
        apart = strided(array((3, 4), dtypes[0], low, high, 1))
        yield Sample(cls(), (apart,), "strided", gradients=gradients)
        if special and dtypes[0].category == 2:
            values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e30])
            yield Sample(cls(), (values,), "special", gradients=False)

    return classmethod(samples)


def binary_samples(
    low: float = -2.0,
    high: float = 2.0,
    dtypes: tuple[dt.dtype, ...] = FLOATS,
    low2: float | None = None,
    high2: float | None = None,
    gradients: bool = True,
    number: bool = True,
) -> Any:
    """Samples of a two-input op: each dtype, broadcast both ways, 0-d, empty, strided, a number."""
    low2 = low if low2 is None else low2
    high2 = high if high2 is None else high2

    def samples(cls: Any) -> Iterable[Sample]:
        first = dtypes[0]

        def pair(shape1: tuple[int, ...], shape2: tuple[int, ...], dtype: dt.dtype) -> Any:
            return array(shape1, dtype, low, high), array(shape2, dtype, low2, high2, seed=1)

        for dtype in dtypes:
            yield Sample(cls(), pair((2, 3), (2, 3), dtype), dtype.name, gradients=gradients)
        for label, shape1, shape2 in (
            ("broadcast-rows", (2, 3), (3,)),
            ("broadcast-both", (2, 1), (1, 3)),
            ("broadcast-0d", (), (2, 2)),
            ("0-d", (), ()),
            ("empty", (0, 3), (1, 3)),
        ):
            yield Sample(cls(), pair(shape1, shape2, first), label, gradients=gradients)
        x1, x2 = pair((3, 4), (3, 4), first)
        yield Sample(cls(), (strided(x1), x2), "strided", gradients=gradients)
        value: Any = {0: True, 1: 2, 2: 1.5, 3: 1.5}[first.category]
        if number:
            yield Sample(cls(), (x1, value), "number", gradients=gradients)

    return classmethod(samples)
