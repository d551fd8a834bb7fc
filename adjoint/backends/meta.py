"""The device "meta": tensors that have a shape and a dtype, and no elements.

What is computed of them is `Op.infer`: models are made, moved and differentiated there without
memory or time. All tensors are row-major, views too, and what would read an element is refused.

Source: https://docs.pytorch.org/docs/stable/meta.html

>>> with ad.device("meta"):
...     layer = ad.nn.Linear(1 << 20, 1 << 20)  # 4 TiB
>>> layer(ad.empty(2, 1 << 20, device="meta")).shape
adjoint.Size([2, 1048576])
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ..core.array_properties import ArrayProperties
from ..core.device import device, register_devices
from ..core.errors import BackendGap, Unsupported
from ..core.op import Op
from ..core.spec import Spec
from ..ir.compute import spec_of

_META = device("meta")


_NOTHING = (
    "Cannot copy out of meta tensor; no data! A tensor on the device 'meta' has no elements to "
    "read: give it memory by module.to_empty(device='cpu') or ad.empty_like(x, device='cpu'), and "
    "then values"
)


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise Unsupported(_NOTHING)


class _MetaFlags:
    """Array flags, as `ndarray.flags` has them."""

    c_contiguous = contiguous = writeable = True
    f_contiguous = False


class _Address:
    """Memory address, as `ndarray.ctypes` has it: none, so 0."""

    data = 0


class Array(ArrayProperties):
    """Array without elements: a shape and a dtype."""

    __slots__ = ("__weakref__", "dtype", "shape")

    shape: tuple[int, ...]
    dtype: Any
    base = None
    flags, ctypes = _MetaFlags, _Address

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)

    @property
    def strides(self) -> tuple[int, ...]:
        """The steps in memory of a row-major array of this shape."""
        steps, step = [], self.itemsize
        for size in reversed(self.shape):
            steps.append(step)
            step *= max(size, 1)
        return tuple(reversed(steps))

    def shares_memory(self, other: Any) -> bool:
        """Whether both show the same memory: nothing says otherwise."""
        return True

    def copy(self, order: str = "C") -> Array:
        """A new array of the same shape and dtype."""
        return Array(self.shape, self.dtype)

    def astype(self, dtype: Any, **_: Any) -> Array:
        """An array of another dtype."""
        return Array(self.shape, dtype)

    def change(self, name: str, value: Any, alpha: Any = None) -> None:
        """Does nothing: a write changes no element."""

    def fill(self, value: Any) -> None:
        """Does nothing: a write changes no element."""

    def __le__(self, other: Any) -> Array:
        return Array(self.shape, bool)

    def __setitem__(self, index: Any, value: Any) -> None:
        shape = getattr(value, "shape", ())
        if index is ... and np.broadcast_shapes(self.shape, shape) != self.shape:
            raise ValueError(f"could not write shape {shape} into shape {self.shape}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.may_share_memory, np.shares_memory):
            return True  # asked of what a view op gives: it is a view, for nothing says otherwise
        return getattr(NAMESPACE, function.__name__)(*args, **kwargs)

    def is_channels_last(self) -> bool:
        """Whether channels lie side by side in memory."""
        return False

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name: str) -> Any:
        raise BackendGap(name if name.startswith("__") else f"{name}: {_NOTHING}")

    __array__ = __array_ufunc__ = __bool__ = __int__ = __float__ = __index__ = __getitem__ = _refuse
    item = _refuse


class MetaNamespace:
    """Array namespace of the device: infers ops on such arrays, and makes them."""

    has_routines = False

    def __getattr__(self, name: str) -> Any:
        raise BackendGap(f"{name}: {_NOTHING}")

    def run(self, op: Op, arrays: list[Any]) -> Any:
        """Placeholder arrays for the result of an op, of the shapes and dtypes that it infers."""
        if op.name == "transfer":
            return op.compute(self, *arrays)
        inferred = op.infer(*map(spec_of, arrays))
        return _of(inferred) if isinstance(inferred, Spec) else tuple(map(_of, inferred))

    def zeros(self, shape: Any, dtype: Any = float) -> Array:
        """An array of that shape."""
        return Array(shape, dtype)

    ones = empty = zeros

    def full(self, shape: Any, value: Any, dtype: Any = None) -> Array:
        """An array of that shape, and the value's dtype if need be."""
        return Array(shape, np.asarray(value).dtype if dtype is None else dtype)

    def asarray(self, x: Any, dtype: Any = None, **_: Any) -> Array:
        """An array like `x`."""
        x = x if hasattr(x, "dtype") else np.asarray(x)
        return Array(x.shape, x.dtype if dtype is None else dtype)

    array = asarray

    def zeros_like(self, x: Any, dtype: Any = None, order: str = "K") -> Array:
        """An array of the shape of `x`."""
        return Array(x.shape, x.dtype if dtype is None else dtype)

    ones_like = empty_like = zeros_like

    def _write(self, x: Array, *args: Any, **options: Any) -> None:
        """Does nothing: a write changes no element."""

    zero_where = index_add = scatter = put = _write

    def full_like(self, x: Any, value: Any, dtype: Any = None, order: str = "K") -> Array:
        """An array of the shape of `x`."""
        return Array(x.shape, x.dtype if dtype is None else dtype)


def _of(spec: Spec) -> Array:
    return Array(spec.shape, spec.dtype.numpy)


NAMESPACE = MetaNamespace()


# ---- the backend, as core/device.py asks for it --------------------------------------------------


def resolve(where: device) -> device:
    """The device; there is one."""
    return _META


def space(where: device) -> MetaNamespace:
    """The namespace that makes arrays there."""
    return NAMESPACE


def transfer(array: Any, where: device, non_blocking: bool = False) -> Any:
    """A placeholder for `array` on the meta device; nothing can be copied back from there.

    Errors: Unsupported for a transfer from there.
    """
    return Array(array.shape, array.dtype) if where.type == "meta" else _refuse()


def host_array(array: Array, memories: dict[int, Any]) -> Any:
    """Refused: the array has no elements.

    Errors: Unsupported.
    """
    _refuse()


register_devices(Array, lambda array: NAMESPACE, lambda array: _META)
