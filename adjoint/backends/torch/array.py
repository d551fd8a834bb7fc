"""A PyTorch tensor that says of itself what a NumPy array says.

Operations and autograd are written against arrays: `shape` is a tuple, `dtype` NumPy's, `strides`
count bytes, `base` is the array whose memory a view shows. `Array` answers so for a PyTorch tensor,
on whatever device that is, and NumPy's functions and ufuncs called on it are carried out by this
backend's namespace (NumPy's dispatch protocols). Nothing here reads a value unless it is asked to:
work on a device is queued.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch

from ...core import dtype as dt
from ...core.array_properties import ArrayProperties
from ...core.errors import BackendGap, DeviceError, InvalidType, OutOfMemoryError

F = TypeVar("F", bound=Callable[..., Any])

NUMPY: dict[Any, Any] = {getattr(torch, d.name): d.numpy for d in dt.BY_NUMPY.values()}
TORCH: dict[Any, Any] = {numpy: kind for kind, numpy in NUMPY.items()}
NUMBERS = frozenset((bool, int, float, complex))


def torch_dtype(dtype: Any) -> Any:
    """PyTorch's dtype for anything that names a NumPy dtype."""
    return TORCH.get(dtype) or TORCH[np.dtype(dtype)]


# ---- errors --------------------------------------------------------------------------------------


def explained(error: RuntimeError, name: str = "") -> RuntimeError:
    """PyTorch's error as ours, where it says that there is no memory."""
    if isinstance(error, OutOfMemoryError):
        return error
    if isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error):
        return OutOfMemoryError(f"{name and f'{name}: '}{error}; compute it in parts")
    return error


def numpys(error: RuntimeError) -> RuntimeError | ValueError:
    """PyTorch's error for shapes that do not fit as NumPy's, or that there is no memory."""
    explanation = explained(error)
    return ValueError(str(error)) if explanation is error else explanation


def allocating(function: F) -> F:
    """Decorator of a function that asks PyTorch for memory outside of operations."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            raise explained(error) from error

    return cast(F, run)


# ---- arrays --------------------------------------------------------------------------------------


class _DeviceFlags:
    """Array flags, as `ndarray.flags` has them."""

    __slots__ = ("tensor", "writeable")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.writeable = True

    @property
    def c_contiguous(self) -> bool:
        """Row-major without gaps."""
        return bool(self.tensor.is_contiguous())

    @property
    def f_contiguous(self) -> bool:
        """Column-major without gaps."""
        t = self.tensor
        return bool(t.permute(*reversed(range(t.ndim))).is_contiguous())

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps."""
        return self.c_contiguous


class _Address:
    """Memory address, as `ndarray.ctypes` has it."""

    __slots__ = ("data",)

    def __init__(self, data: int) -> None:
        self.data = data


class Array(ArrayProperties):
    """Array whose storage is a PyTorch tensor. `base` keeps the array whose memory this one shows
    (None: its own).
    """

    __slots__ = ("__weakref__", "base", "dtype", "shape", "tensor")

    tensor: Any
    base: Array | None
    shape: tuple[int, ...]
    dtype: Any

    def __init__(self, tensor: Any, base: Array | None = None) -> None:
        self.tensor = tensor
        self.base = base
        self.shape = tuple(tensor.shape)
        self.dtype = NUMPY[tensor.dtype]

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def strides(self) -> tuple[int, ...]:
        """The steps in memory, in bytes."""
        item = self.dtype.itemsize
        return tuple([s * item for s in self.tensor.stride()])

    @property
    def flags(self) -> Any:
        """Order in memory."""
        return _DeviceFlags(self.tensor)

    @property
    def ctypes(self) -> Any:
        """Address of the memory, on the device."""
        return _Address(self.tensor.data_ptr())

    def shares_memory(self, other: Array) -> bool:
        """Whether both show one storage."""
        a, b = self.tensor.untyped_storage(), other.tensor.untyped_storage()
        return bool(a.data_ptr() == b.data_ptr() and a.nbytes() > 0)

    def is_channels_last(self) -> bool:
        """Whether an image's channels lie side by side, and not its places."""
        t = self.tensor
        last = t.ndim == 4 and t.is_contiguous(memory_format=torch.channels_last)
        return bool(last and not t.is_contiguous())

    def share(self) -> None:
        """Makes forked processes write to the same memory; on CUDA nothing changes."""
        self.tensor.share_memory_()

    def is_shared(self) -> bool:
        """Whether forked processes write to the same memory; on CUDA PyTorch says so always."""
        return bool(self.tensor.is_shared())

    def view_as(self, tensor: Any) -> Array:
        """`tensor`, which shows this array's memory, as an array that says so."""
        return Array(tensor, self if self.base is None else self.base)

    # ---- shape -----------------------------------------------------------------------------------

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """The array with all dimensions reversed."""
        t = self.tensor
        return self.view_as(t.t() if t.ndim == 2 else t.permute(*reversed(range(t.ndim))))

    def reshape(self, *shape: Any) -> Array:
        """The array with other sizes; a view where the memory's order allows it."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if not self.size and -1 in sizes:
            rest = math.prod(s for s in sizes if s != -1)
            if not rest:
                raise ValueError(f"cannot reshape array of size 0 into shape {tuple(sizes)}")
            sizes = [0 if s == -1 else s for s in sizes]
        try:
            reshaped = self.tensor.reshape(tuple(sizes))
        except RuntimeError as error:
            raise numpys(error) from None
        same = reshaped.data_ptr() == self.tensor.data_ptr()  # else it is a copy
        return self.view_as(reshaped) if same else Array(reshaped)

    def ravel(self, order: str = "C") -> Array:
        """The array as one dimension; a view where the memory's order allows it."""
        return self.namespace.ravel(self, order)

    def flatten(self) -> Array:
        """A copy of one dimension."""
        return Array(self.tensor.reshape(-1).clone())

    def transpose(self, *axes: Any) -> Array:
        """The dimensions in another order."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self.view_as(self.tensor.permute(*map(int, order))) if axes else self.T

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """Two dimensions exchanged."""
        return self.view_as(self.tensor.transpose(axis1, axis2))

    def squeeze(self, axis: Any = None) -> Array:
        """The array without dimensions of size 1."""
        t = self.tensor
        if axis == ():
            return self
        return self.view_as(t.squeeze() if axis is None else t.squeeze(axis))

    # ---- copies ----------------------------------------------------------------------------------

    @allocating
    def copy(self, order: str = "C") -> Array:
        """A copy, row-major, or with the dimensions in this array's order of memory ("K")."""
        kept = torch.preserve_format if order in ("K", "A") else torch.contiguous_format
        return Array(self.tensor.clone(memory_format=kept))

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()

    def astype(self, dtype: Any, order: str = "K", copy: bool = True, **_: Any) -> Array:
        """The elements converted; itself where nothing changes and no copy is asked for."""
        wanted = torch_dtype(dtype)
        t = self.tensor
        if wanted is t.dtype:
            return self.copy(order) if copy else self
        if t.is_complex() and not wanted.is_complex and wanted is not torch.bool:
            t = t.real
        converted = t.to(wanted)
        return Array(converted.contiguous() if order == "C" else converted)

    def view(self, dtype: Any = None) -> Array:
        """A view of the bytes as elements of another dtype."""
        if dtype is None or dtype is np.ndarray:
            return self
        wanted = torch_dtype(dtype)
        t = self.tensor
        if not t.numel() and t.ndim:
            last = t.shape[-1] * t.element_size() // wanted.itemsize
            return Array(t.new_empty((*t.shape[:-1], last), dtype=wanted))
        if t.ndim == 0 and wanted.itemsize != t.element_size():
            raise ValueError("changing the dtype of a 0d array is only supported for equal sizes")
        try:
            return self.view_as(t.view(wanted))
        except RuntimeError as error:
            raise ValueError(str(error)) from None

    def change(self, name: str, other: Any, alpha: float | None = None) -> None:
        """Add, subtract, multiply or divide (`name` is NumPy's) by an array, times `alpha`, or by a
        number: in place, by one kernel.
        """
        method = getattr(self.tensor, f"{name}_")
        method(unwrap(other)) if alpha is None else method(unwrap(other), alpha=alpha)

    def fill(self, value: Any) -> None:
        """Write one value everywhere."""
        self.tensor.fill_(unwrap(value))

    @property
    def real(self) -> Array:
        """The real part, a view."""
        return self if self.dtype.kind != "c" else self.view_as(self.tensor.real)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Array:
        """The imaginary part: a view, or zeros of a real array."""
        if self.dtype.kind != "c":
            return Array(torch.zeros_like(self.tensor))
        return self.view_as(self.tensor.imag)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    # ---- elements --------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Array:
        index, basic = _index(key, self)
        try:
            selected = self.tensor[index]
        except RuntimeError as error:  # indices that do not broadcast
            raise IndexError(str(error)) from None
        return self.view_as(selected) if basic else Array(selected)

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) is Array and self.shares_memory(value):
            value = value.copy()  # PyTorch does not say what it does where they overlap
        if key is Ellipsis:
            self.tensor.copy_(as_tensor(value, self))
            return
        index, basic = _index(key, self)
        if type(value) not in NUMBERS:
            value = as_tensor(value, self).to(self.tensor.dtype)
        try:
            if basic and type(value) in NUMBERS:  # which would come from the host otherwise
                self.tensor[index].fill_(value)
            else:
                self.tensor[index] = value
        except RuntimeError as error:
            raise ValueError(str(error)) from None

    def item(self, *place: int) -> Any:
        """The only element as a Python number; reading it waits for the device."""
        return (self.tensor[place] if place else self.tensor).item()

    def numpy(self) -> Any:
        """NumPy's view of the memory.

        Errors: InvalidType where the host cannot see it.
        """
        if self.tensor.device.type != "cpu":
            raise InvalidType(
                f"numpy: can't convert {self.tensor.device} device type tensor to numpy; use "
                "tensor.cpu() to copy the tensor to host memory first"
            )
        return to_host(self)

    def to_host(self) -> Any:
        """The elements in the host's memory; reading them waits for the device."""
        return to_host(self)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; reading them waits for the device."""
        return self.tensor.tolist()

    def tobytes(self) -> bytes:
        """The elements' bytes in row-major order; reading them waits for the device."""
        return bytes(to_host(self).tobytes())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.size != 1:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __complex__(self) -> complex:
        return complex(self.tensor)

    def __format__(self, spec: str) -> str:
        return format(self.item() if not self.shape else str(self.tensor), spec)

    def __repr__(self) -> str:
        return f"<Array {self.shape} {self.dtype} on {self.tensor.device}>"

    # ---- NumPy's protocols -----------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise InvalidType(
            f"numpy: can't convert {self.tensor.device} device type tensor to numpy; use "
            "tensor.cpu() to copy the tensor to host memory first"
        )

    @allocating
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        space = self.namespace
        if func.__module__ in ("numpy.linalg", "numpy.fft"):
            space = getattr(space, func.__module__[6:])
        return getattr(space, func.__name__)(*args, **kwargs)

    @allocating
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = getattr(self.namespace, ufunc.__name__)
        if "out" in kwargs:
            kwargs["out"] = kwargs["out"][0]
        if method != "__call__":
            function = getattr(function, method)
        return function(*inputs, **kwargs)

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    @property
    def namespace(self) -> Any:
        """The namespace that computes where this array is."""
        return _namespace_on(self.tensor.device)

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        """The sum along axes."""
        return self.namespace.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)


def _method(name: str) -> Any:
    """The method that the namespace's function of that name is."""

    def method(self: Array, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.namespace, name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{name}` of the namespace."
    return method


for _name in ("min", "max", "all", "any", "prod", "mean", "argmax", "argmin", "argsort", "cumsum",
              "clip", "diagonal", "nonzero", "repeat", "round", "take"):  # fmt: skip
    setattr(Array, _name, _method(_name))


def _operator(name: str, reflected: bool = False) -> Any:
    def operator(self: Array, other: Any) -> Any:
        function = getattr(self.namespace, name)
        return function(other, self) if reflected else function(self, other)

    return operator


def _augmented(name: str) -> Any:
    def operator(self: Array, other: Any) -> Array:
        getattr(self.namespace, name)(self, other, out=self)
        return self

    return operator


for _symbol, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
    "floordiv": "floor_divide", "mod": "remainder", "matmul": "matmul", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    setattr(Array, f"__{_symbol}__", _operator(_name))
    setattr(Array, f"__r{_symbol}__", _operator(_name, reflected=True))
    setattr(Array, f"__i{_symbol}__", _augmented(_name))
for _symbol, _name in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}.items():  # fmt: skip
    setattr(Array, f"__{_symbol}__", _operator(_name))
for _symbol, _name in {"neg": "negative", "abs": "absolute", "invert": "invert"}.items():
    setattr(Array, f"__{_symbol}__", _method(_name))
Array.__hash__ = None  # type: ignore[assignment]  # compared element by element, as arrays are


def _namespace_on(device: Any) -> Any:
    raise RuntimeError("adjoint.backends.torch.namespace has not been imported")


def find_namespace_by(on: Any) -> None:
    """Set what finds the namespace of a PyTorch device (called once, where that is defined)."""
    global _namespace_on
    _namespace_on = on


# ---- conversions ---------------------------------------------------------------------------------


def unwrap(x: Any) -> Any:
    """The tensor of an array; numbers, NumPy's among them, as Python has them.

    Errors: DeviceError for an array in the host's memory with more than one element.
    """
    kind = type(x)
    if kind is Array:
        return x.tensor
    if kind in NUMBERS:
        return x
    if isinstance(x, (np.generic, np.ndarray)):
        if x.ndim:
            raise DeviceError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                "one of them cpu; move them to one with .to(device)"
            )
        value = x.item()
        return value if type(value) in NUMBERS else float(value)
    return x


def as_tensor(value: Any, like: Array) -> Any:
    """`value` as a tensor beside `like`: numbers in its dtype, where it is."""
    unwrapped = unwrap(value)
    if isinstance(unwrapped, torch.Tensor):
        return unwrapped
    t = like.tensor
    return torch.full((), unwrapped, dtype=t.dtype, device=t.device)  # nothing waits for it


def to_host(x: Array) -> Any:
    """The array in the host's memory, which is the same memory where the host can see it."""
    t = x.tensor.detach()
    if t.device.type != "cpu":
        t = t.cpu()
    t = t.resolve_conj().resolve_neg()
    if t.dtype is torch.bfloat16:
        return t.view(torch.int16).numpy().view(dt.bfloat16.numpy)
    return t.numpy()


@allocating
def from_host(array: Any, device: Any, non_blocking: bool = True, share: bool = False) -> Array:
    """A NumPy array's elements on a PyTorch device: a copy, unless `share` and it is the host's."""
    narrow = array.dtype == dt.bfloat16.numpy
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()
        share = True
    t = torch.from_numpy(array.view(np.int16) if narrow else array)
    if narrow:
        t = t.view(torch.bfloat16)
    if device.type != "cpu":
        return Array(t.to(device, non_blocking=non_blocking))
    return Array(t if share else t.clone(memory_format=torch.preserve_format))


def _index(key: Any, x: Array) -> tuple[Any, bool]:
    """A NumPy index as PyTorch takes it, and whether it gives a view."""
    parts = key if isinstance(key, tuple) else (key,)
    converted: list[Any] = []
    basic = True
    for part in parts:
        kind = type(part)
        if kind is slice:
            if part.step is not None and part.step < 0:
                raise BackendGap("an index with a negative step on backend 'torch'; use flip")
            converted.append(part)
        elif kind is Array:
            basic = False
            t = part.tensor
            converted.append(t.long() if t.dtype in _INDICES else t)
        elif isinstance(part, (np.ndarray, list, range)):
            basic = False
            array = np.asarray(part)
            converted.append(from_host(array, x.tensor.device).tensor)
        elif part is None or part is Ellipsis:
            converted.append(part)
        else:
            converted.append(int(part))
    return tuple(converted), basic


_INDICES = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32))
