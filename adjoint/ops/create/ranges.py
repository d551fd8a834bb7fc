"""Ranges of numbers: arange, range, linspace, logspace."""

from __future__ import annotations

import cmath
import contextlib
import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtype as dt
from ...core.device import CPU, as_device
from ...core.errors import DTypeError, InvalidArgument, InvalidType, Unsupported
from ...core.symbolic_sizes import all_known
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, public
from ...runtime.tensors import fresh
from .allocation import assert_strided, blank, finish, into
from .values import target

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, DTypeLike, Layout

__all__ = ["arange", "linspace", "logspace", "range"]


def _number(value: Any, name: str) -> Any:
    """A bound given as a number or as a tensor of one element."""
    if isinstance(value, (TensorBase, np.generic)):
        return value.item()  # type: ignore[union-attr]
    if isinstance(value, (bool, int, float, complex)):
        return value
    raise InvalidType(f"{name}: bounds must be numbers, got {type(value).__name__}: {value!r:.40}")


def _count(start: Any, end: Any, step: Any, name: str) -> float:
    """Number of steps between start and end, not rounded; checks them."""
    if isinstance(start, complex) or isinstance(end, complex) or isinstance(step, complex):
        raise Unsupported(f"{name}: complex bounds; use linspace")
    if step == 0:
        raise InvalidArgument(f"{name}: step must be nonzero, got {step}")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise InvalidArgument(f"{name}: unsupported range: {start} -> {end}; bounds must be finite")
    if (end - start) * step < 0:
        raise InvalidArgument(
            f"{name}: upper bound and lower bound inconsistent with step sign: {start} -> {end} by "
            f"{step}; change the sign of step"
        )
    difference = end - start
    return float(difference / step)


def _steps(start: Any, count: int, step: Any, dtype: dt.dtype, name: str) -> Any:
    """start, start + step, ...; `count` of them, rounded to `dtype` once."""
    if dtype is dt.bool_ or dtype.is_complex:
        raise Unsupported(f'{name}: "arange_cpu" not implemented for {dtype}; use another dtype')
    if dtype.category == 1:
        start, step = int(start), int(step)
        return (np.arange(count) * step + start).astype(dtype.numpy)
    return (np.arange(count, dtype=np.float64) * step + start).astype(dtype.numpy)


def _range_dtype(dtype: Any, bounds: Iterable[Any]) -> dt.dtype:
    found = target(dtype)
    if found is not None:
        return found
    return dt.get_default_dtype() if any(isinstance(b, float) for b in bounds) else dt.int64


def _range_of_sizes(start: Any, end: Any, step: Any, d: dt.dtype) -> Any:
    """The recorded whole numbers, of which only a run knows how many there are; None for others."""
    if not all(isinstance(x, int) for x in (start, end, step)) or step < 1 or end < start:
        return None
    count = -((start - end) // step)
    ones: Any = fresh(blank("ones", (count,), dt.int64, CPU))
    numbers = (ones.cumsum(0) - 1) * step + start
    return numbers.to(d)


@explaining
@public(method=False)
def arange(
    start: float = 0,
    end: float | None = None,
    step: float = 1,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The numbers from `start` (0 unless given) up to but without `end`, in steps.

    Shapes: 1-d, of size ceil((end - start) / step).
    Dtypes: int64 where all bounds are ints, otherwise the default floating-point dtype.
    Errors: InvalidArgument for a step of 0 or of the wrong sign, and for infinite bounds.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.arange.html

    >>> ad.arange(3), ad.arange(1, 2, 0.5)
    (tensor([0, 1, 2]), tensor([1.0000, 1.5000]))
    """
    assert_strided("arange", layout)
    if end is None:
        start, end = 0, start
    plain = type(start) is type(end) is type(step) is int and dtype is out is None
    if plain and step and (end - start) * step >= 0:
        return finish(np.arange(start, end, step), device, requires_grad, pin_memory)
    if not all_known((start, end, step)) and out is None:
        found = _range_of_sizes(start, end, step, target(dtype) or dt.int64)
        if found is not None:
            place = as_device(device)
            return finish(found.to(place)._data, place, requires_grad, pin_memory)
    start, end, step = (_number(v, "arange") for v in (start, end, step))
    d = _range_dtype(dtype, (start, end, step)) if out is None else out.dtype
    if d is dt.int64:
        start, end, step = int(start), int(end), int(step)
    count = math.ceil(_count(start, end, step, "arange"))
    array = _steps(start, count, step, d, "arange")
    if out is not None:
        return into(array, out, dtype, "arange")
    return finish(array, device, requires_grad, pin_memory)


@public(method=False, out=True)
def range(
    start: float = 0,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers as of `arange`, with `end` included and always floating point; `arange` is preferred.

    Shapes: 1-d, of size floor((end - start) / step) + 1.
    Errors: those of `arange`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.range.html

    >>> ad.range(1, 3)
    tensor([1., 2., 3.])
    """
    assert_strided("range", layout)
    if end is None:
        start, end = 0, start
    start, end, step = (_number(v, "range") for v in (start, end, step))
    d = target(dtype) or dt.get_default_dtype()
    count = math.floor(_count(start, end, step, "range")) + 1
    return finish(_steps(start, count, step, d, "range"), device, requires_grad, pin_memory)


def _line(start: Any, end: Any, steps: int, dtype: dt.dtype) -> Any:
    """`steps` numbers counted from both ends, so that both are exact and the line symmetric."""
    if steps == 0:
        return np.empty(0, np.float64)
    if steps == 1:
        return np.array([start])
    wide = complex if dtype.is_complex else float
    start, end, half = wide(start), wide(end), steps // 2
    index = np.arange(steps)
    step = (end - start) / (steps - 1)
    with contextlib.nullcontext() if cmath.isfinite(step) else np.errstate(all="ignore"):
        line = start + step * index
        line[half:] = end - step * index[: steps - half][::-1]
    return line


def _fused_line(start: float, end: float, steps: int, dtype: dt.dtype) -> Any:
    """The line in float32 or float64 with PyTorch's bits: the step is a number of the dtype, and
    each number is rounded once. What is computed from differences of a line depends on them.
    """
    kind = dtype.numpy.type
    with np.errstate(over="ignore", invalid="ignore"):
        first, last = kind(start), kind(end)
        step, half = (last - first) / kind(max(steps - 1, 1)), steps // 2
    wide = _line(start, end, steps, dtype)
    if steps < 2 or not np.isfinite(step):
        return wide
    index = np.arange(steps, dtype=np.float64)
    left, right = index[:half], index[: steps - half][::-1]
    line = np.concatenate([_fused(first, step, left), _fused(last, -step, right)])
    return np.where(np.isfinite(line), line, wide)


def _fused(first: Any, step: Any, index: Any) -> Any:
    """first + step * index, rounded once: in float64 the product's error is added, too."""
    base, wide = np.float64(first), np.float64(step)
    with np.errstate(over="ignore", invalid="ignore"):
        product = wide * index
        if first.dtype == np.float32:  # 24 bits by 24 are exact in 53
            return (base + product).astype(np.float32)
        scaled = wide * 134217729.0  # Dekker splits into 26 bits and a rest
        high = scaled - (scaled - wide)
        error = (high * index - product) + (wide - high) * index
        total = base + product
        rest = total - base
        return total + ((base - (total - rest)) + (product - rest) + error)


def _line_options(start: Any, end: Any, steps: Any, dtype: Any, name: str) -> Any:
    start, end = _number(start, name), _number(end, name)
    try:
        steps = operator.index(steps)
    except TypeError:
        raise InvalidType(f"{name}: steps must be an int, got {steps!r}") from None
    if steps < 0:
        raise InvalidArgument(f"{name}: number of steps must be non-negative, got {steps}")
    has_complex = isinstance(start, complex) or isinstance(end, complex)
    default = dt.get_default_dtype()
    d = target(dtype) or (default.to_complex() if has_complex else default)
    if has_complex and not d.is_complex:
        raise DTypeError(f"{name}: complex bounds {start}, {end} need a complex dtype, got {d}")
    if d is dt.bool_:
        raise Unsupported(f'{name}: "{name}_cpu" not implemented for {d}; use another dtype')
    if d.category == 1:
        start, end = int(start), int(end)
    return start, end, steps, d


@explaining
@public(method=False)
def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers evenly spaced from `start` to `end`, both included.

    Shapes: 1-d, of size `steps`.
    Errors: InvalidArgument for a negative number of steps; Unsupported for bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linspace.html

    >>> ad.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    assert_strided("linspace", layout)
    kind = out.dtype if out is not None else dtype
    start, end, steps, d = _line_options(start, end, steps, kind, "linspace")
    line = _fused_line if d in (dt.float32, dt.float64) else _line
    array = line(start, end, steps, d).astype(d.numpy)
    if out is not None:
        return into(array, out, dtype, "linspace")
    return finish(array, device, requires_grad, pin_memory)


@explaining
@public(method=False)
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    layout: Layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`base` to the power of `steps` numbers evenly spaced from `start` to `end`.

    Shapes: 1-d, of size `steps`.
    Errors: InvalidArgument for a negative number of steps; Unsupported for bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.logspace.html

    >>> ad.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    assert_strided("logspace", layout)
    kind = out.dtype if out is not None else dtype
    start, end, steps, d = _line_options(start, end, steps, kind, "logspace")
    with np.errstate(all="ignore"):
        array = np.power(base, _line(start, end, steps, d)).astype(d.numpy)
    if out is not None:
        return into(array, out, dtype, "logspace")
    return finish(array, device, requires_grad, pin_memory)
