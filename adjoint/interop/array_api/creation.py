"""New arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.dtype import dtype as DType  # noqa: N812 - a class, in spite of PyTorch's name
from ...core.errors import DTypeError, InvalidArgument
from . import functions as ad
from .data_types import Array, checked, is_array

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
    "linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


def _holds(dtype: DType, value: Any) -> bool:
    """Whether a Python scalar is of the kind of a dtype, or of a narrower one."""
    kinds = (bool, int, float, complex)
    return any(isinstance(value, kind) for kind in kinds[: dtype.category + 1])


# ---- from values ---------------------------------------------------------------------------------


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None
) -> Array:
    """An array from an array, a scalar, a nested sequence, a buffer, or an object with DLPack.

    `copy` says whether memory must (True), may (None) or must not (False) be copied.

    Errors: InvalidArgument (a ValueError) where a copy is needed and `copy` is False; DTypeError
    from complex to real numbers.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.asarray.html

    >>> ad.array_api.asarray([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    if isinstance(obj, (bytes, bytearray, memoryview)):
        obj = np.asarray(memoryview(obj))
    elif not is_array(obj) and not hasattr(obj, "__array__") and not hasattr(obj, "__dlpack__"):
        obj = _buffer(obj)
    found = getattr(obj, "dtype", None)
    real = dtype is not None and dtype.category in (1, 2)
    if (real and found is not None and getattr(found, "kind", "") == "c") or (
        real and is_array(obj) and obj.dtype.is_complex
    ):
        raise DTypeError(f"asarray: {found} to {dtype} would drop a part; use real() or imag()")
    return ad.asarray(obj, dtype=dtype, device=device, copy=copy)


def _buffer(obj: Any) -> Any:
    """An array that shares the memory of an object with the buffer protocol; others unchanged."""
    if isinstance(obj, (bool, int, float, complex, list, tuple)):
        return obj
    try:
        view = memoryview(obj)
    except TypeError:
        return obj
    return np.asarray(view)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array that shares the memory of any object with `__dlpack__`, or has a copy of it.

    Errors: AttributeError where there is no `__dlpack__`; BufferError (or DeviceError, DTypeError)
    where the data cannot be shared.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.from_dlpack.html

    >>> ad.array_api.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise AttributeError(f"from_dlpack: {type(x).__name__} has no __dlpack__")
    return ad.from_dlpack(x, device=device, copy=copy)


# ---- of a value ----------------------------------------------------------------------------------


def empty(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array of uninitialised memory.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.empty.html

    >>> ad.array_api.empty((2, 3)).shape
    adjoint.Size([2, 3])
    """
    return ad.empty(_sizes(shape), dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array of zeros.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.zeros.html

    >>> ad.array_api.zeros(2)
    tensor([0., 0.])
    """
    return ad.zeros(_sizes(shape), dtype=dtype, device=device)


def ones(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array of ones.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.ones.html

    >>> ad.array_api.ones(2)
    tensor([1., 1.])
    """
    return ad.ones(_sizes(shape), dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array of one value, in the default dtype of its kind where none is named.

    Errors: DTypeError where the value is of a higher kind than the dtype.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.full.html

    >>> ad.array_api.full(2, 7)
    tensor([7, 7])
    """
    if is_array(fill_value):  # without axes: an extension that SciPy uses
        dtype, fill_value = dtype or fill_value.dtype, fill_value.item()
    if dtype is not None and not _holds(dtype, fill_value):
        raise DTypeError(f"full: {fill_value!r} does not fit {dtype}; choose another dtype")
    return ad.full(_sizes(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array of uninitialised memory, of the shape of x.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.empty_like.html

    >>> ad.array_api.empty_like(ad.zeros(2)).shape
    adjoint.Size([2])
    """
    checked("empty_like", x)
    return empty(tuple(x.shape), dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Array, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array of zeros, of the shape of x.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.zeros_like.html

    >>> ad.array_api.zeros_like(ad.ones(2))
    tensor([0., 0.])
    """
    checked("zeros_like", x)
    return zeros(tuple(x.shape), dtype=dtype or x.dtype, device=device or x.device)


def ones_like(x: Array, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array of ones, of the shape of x.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.ones_like.html

    >>> ad.array_api.ones_like(ad.zeros(2))
    tensor([1., 1.])
    """
    checked("ones_like", x)
    return ones(tuple(x.shape), dtype=dtype or x.dtype, device=device or x.device)


def full_like(
    x: Array, /, fill_value: Any, *, dtype: DType | None = None, device: Any = None
) -> Array:
    """An array of one value, of the shape of x.

    Errors: those of `full`.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.full_like.html

    >>> ad.array_api.full_like(ad.zeros(2), 3)
    tensor([3., 3.])
    """
    checked("full_like", x)
    return full(tuple(x.shape), fill_value, dtype=dtype or x.dtype, device=device or x.device)


# ---- ranges and matrices -------------------------------------------------------------------------


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> Array:
    """Numbers `step` apart from `start` (0 where only one bound is given) up to before `stop`.

    Shapes: (n,), where n is ceil((stop - start) / step), or 0 where that is negative.
    Errors: InvalidArgument for a step of zero.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.arange.html

    >>> ad.array_api.arange(5, step=2), ad.array_api.arange(3, 0).shape
    (tensor([0, 2, 4]), adjoint.Size([0]))
    """
    if stop is None:
        start, stop = 0, start
    whole = all(isinstance(number, int) for number in (start, stop, step))
    dtype = dtype or (ad.int64 if whole else ad.get_default_dtype())
    if step and (stop - start) * math.copysign(1, step) <= 0:  # PyTorch refuses this
        return ad.empty(0, dtype=dtype, device=device)
    return ad.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """`num` numbers at equal distances from `start` to `stop` (before it without `endpoint`).

    Errors: InvalidArgument for a negative count.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.linspace.html

    >>> ad.array_api.linspace(0, 1, 2, endpoint=False)
    tensor([0.0000, 0.5000])
    """
    if dtype is None:
        dtype = ad.get_default_dtype()
        if isinstance(start, complex) or isinstance(stop, complex):
            dtype = dtype.to_complex()
    if not endpoint:
        return ad.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]
    return ad.linspace(start, stop, num, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Any = None,
) -> Array:
    """A matrix with ones on diagonal `k` (above the main one where positive), and zeros elsewhere.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.eye.html

    >>> ad.array_api.eye(2, 3, k=1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    n_cols = n_rows if n_cols is None else n_cols
    if k == 0:
        return ad.eye(n_rows, n_cols, dtype=dtype, device=device)
    result = ad.zeros(n_rows, n_cols, dtype=dtype, device=device)
    if -n_rows < k < n_cols:
        result.diagonal(k).fill_(1)
    return result


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Coordinates of a grid: each one-dimensional array, spread over all others.

    Shapes: (a,), (b,), (c,), ... give (b, a, c, ...) for "xy" and (a, b, c, ...) for "ij".
    Errors: InvalidArgument for another indexing.
    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.meshgrid.html

    >>> xp = ad.array_api
    >>> xp.meshgrid(xp.asarray([1, 2]), xp.asarray([3]))
    [tensor([[1, 2]]), tensor([[3, 3]])]
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgument(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    return list(ad.meshgrid(*arrays, indexing=indexing)) if arrays else []


def tril(x: Array, /, *, k: int = 0) -> Array:
    """The matrices of x with zeros above diagonal `k`.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.tril.html

    >>> ad.array_api.tril(ad.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return ad.tril(checked("tril", x), k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """The matrices of x with zeros below diagonal `k`.

    Source: https://data-apis.org/array-api/2024.12/API_specification/generated/array_api.triu.html

    >>> ad.array_api.triu(ad.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return ad.triu(checked("triu", x), k)
