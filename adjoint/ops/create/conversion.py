"""Conversion of dtype and device; PyTorch's names for tensor types."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ...core import config
from ...core import dtype as dt
from ...core.device import CPU, as_device, device, register_backend, transfer
from ...core.errors import InvalidArgument, InvalidType, LayoutError
from ...core.keywords import unexpected
from ...core.op import Op, Sample
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden, unusual
from ...core.package import NAME
from ...core.spec import Size, Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.lazy import LazyValue
from ...runtime.public import FUNCTIONS, METHODS, explaining, public
from ...runtime.tensors import wrap
from ..memory_formats import assert_memory_format, follow_hint
from ..promotion import cast
from .allocation import finish, sizes_from
from .values import array_from, target

if TYPE_CHECKING:
    from ...ops.argument_types import DeviceLike, DTypeLike, MemoryFormat

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
    "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "channels_last", "channels_last_3d",
    "contiguous_format", "is_nonzero", "is_tensor", "layout", "memory_format", "numel",
    "preserve_format", "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr",
    "strided", "typename",
]  # fmt: skip


# ---- dtype and device ----------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Transfer(Op):
    """A copy on another device."""

    to: device
    non_blocking: bool = False
    exact = True
    core = (0,)
    linear = True

    def infer(self, spec: Spec) -> Spec:
        """The spec on the other device."""
        return spec.with_(device=self.to)

    def compute(self, xp: Any, x: Any) -> Any:
        """The backends' copy from device to device."""
        return transfer(x, self.to, self.non_blocking)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """Back to where the input was."""
        return (apply(Transfer(spec.device, self.non_blocking), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Transfers within the host's memory, which every machine has."""
        for dtype in dt.ALL:
            yield Sample(cls(CPU), (np.arange(6.0).reshape(2, 3).astype(dtype.numpy),), dtype.name)
        yield Sample(cls(CPU), (np.ones((2, 3)).T,), "strided")

    def reference(self, x: Any) -> Any:
        """The values."""
        return x


@public()
def to(
    self: Tensor,
    *args: Any,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: MemoryFormat | None = None,
    **others: object,
) -> Tensor:
    """The tensor in another dtype or on another device; itself where nothing changes.

    Called as `to(dtype)`, `to(device)`, `to(device, dtype)` or `to(other)`; `copy=True` makes a
    copy in any case. Gradients flow back through it.

    Errors: DeviceError for a device that does not exist here; InvalidType for anything else.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html

    >>> ad.tensor([1.5, -1.5]).to(ad.int32)
    tensor([ 1, -1], dtype=adjoint.int32)
    """
    if others:
        raise unexpected(METHODS["to"], others)
    if len(args) == 1 and type(args[0]) is dt.dtype and not copy:
        return cast(self, args[0])
    rest = list(args)
    if rest and not isinstance(rest[0], bool):
        first = rest.pop(0)
        if isinstance(first, TensorBase):
            if FOLLOWED and concerns(first):
                options = unusual(
                    dtype=(dtype, None), device=(device, None), non_blocking=(non_blocking, False),
                    copy=(copy, False), memory_format=(memory_format, None),
                )  # fmt: skip
                said = overridden(METHODS["to"], (self, *args), options)
                if said is not ABSENT:
                    return said  # type: ignore[no-any-return]
            device, dtype = first.device, first.dtype
        elif isinstance(first, str) and dt.named(first):
            dtype = first
        elif isinstance(first, (str, _Device, int)):
            device = first
            if rest and not isinstance(rest[0], bool):
                dtype = rest.pop(0)
        elif first is not None:
            dtype = first
        elif rest and not isinstance(rest[0], bool):
            dtype = rest.pop(0)
    if rest:
        non_blocking = rest.pop(0)
    if rest:
        copy = rest.pop(0)
    if rest:
        raise InvalidType(f"to: too many arguments: {args!r}")
    follow_hint(memory_format, "to")
    wanted = target(dtype)
    if device is not None:
        place = as_device(device)
        if place != self.device:
            if wanted is not None and wanted.itemsize < self.dtype.itemsize:
                self, wanted = cast(self, wanted), None  # the fewest bytes travel
            moved: Tensor = apply(Transfer(place, bool(non_blocking)), self)
            return moved if wanted is None else cast(moved, wanted)
    if wanted is None or wanted is self.dtype:
        return FUNCTIONS["clone"](self) if copy else self
    return cast(self, wanted)


_Device = device  # `to` has an argument of this name


@public(plain=True)
def cpu(self: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """The tensor in the CPU's memory; itself where it is there already.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cpu.html

    >>> ad.ones(1).cpu().device
    device(type='cpu')
    """
    return to(self, "cpu", memory_format=memory_format)


@public(plain=True)
def cuda(
    self: Tensor,
    device: DeviceLike | None = None,
    non_blocking: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """The tensor on a CUDA device.

    Errors: DeviceError where there is none.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.cuda.html

    >>> if ad.cuda.is_available():
    ...     assert ad.ones(1).cuda().is_cuda
    """
    where = "cuda" if device is None else device
    return to(self, where, non_blocking=non_blocking, memory_format=memory_format)


_SHORTHANDS = {
    "bool": dt.bool_, "byte": dt.uint8, "char": dt.int8, "short": dt.int16, "int": dt.int32,
    "long": dt.int64, "half": dt.float16, "bfloat16": dt.bfloat16, "float": dt.float32,
    "double": dt.float64, "cfloat": dt.complex64, "cdouble": dt.complex128,
}  # fmt: skip


def _shorthand(name: str, dtype: dt.dtype) -> Any:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        assert_memory_format(memory_format, name)
        return cast(self, dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"This tensor in {dtype}; itself where it has that dtype already.\n\n"
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.{name}.html\n\n"
        f"    >>> ad.tensor([1]).{name}().dtype\n"
        f"    {dtype!r}\n"
    )
    return method


for _name, _dtype in _SHORTHANDS.items():
    METHODS[_name] = _shorthand(_name, _dtype)


class TensorType:
    """A legacy tensor type such as `FloatTensor`: a constructor, and a name for one dtype.

    Source: https://docs.pytorch.org/docs/stable/tensors.html

    >>> ad.LongTensor([1, 2])
    tensor([1, 2])
    >>> isinstance(ad.ones(1), ad.FloatTensor)
    True
    """

    def __init__(self, name: str, dtype: dt.dtype) -> None:
        self.__name__ = self.__qualname__ = name
        self.dtype = dtype

    def __call__(self, *data: Any, device: Any = None) -> Tensor:
        return legacy_new(self.dtype, data, device)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, TensorBase) and instance.dtype is self.dtype

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # as annotations say it  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __repr__(self) -> str:
        return f"<class '{config.CALLED}.{self.__name__}'>"


BoolTensor = TensorType("BoolTensor", dt.bool_)
ByteTensor = TensorType("ByteTensor", dt.uint8)
CharTensor = TensorType("CharTensor", dt.int8)
ShortTensor = TensorType("ShortTensor", dt.int16)
IntTensor = TensorType("IntTensor", dt.int32)
LongTensor = TensorType("LongTensor", dt.int64)
HalfTensor = TensorType("HalfTensor", dt.float16)
BFloat16Tensor = TensorType("BFloat16Tensor", dt.bfloat16)
FloatTensor = TensorType("FloatTensor", dt.float32)
DoubleTensor = TensorType("DoubleTensor", dt.float64)
_TYPES = {
    kind.dtype: kind
    for kind in (
        BoolTensor, ByteTensor, CharTensor, ShortTensor, IntTensor, LongTensor, HalfTensor,
        BFloat16Tensor, FloatTensor, DoubleTensor,
        # `type()` names these; there are no constructors of their names
        TensorType("ComplexFloatTensor", dt.complex64),
        TensorType("ComplexDoubleTensor", dt.complex128), TensorType("UInt16Tensor", dt.uint16),
        TensorType("UInt32Tensor", dt.uint32), TensorType("UInt64Tensor", dt.uint64),
    )
}  # fmt: skip


def legacy_new(dtype: dt.dtype, data: tuple[Any, ...], device: Any = None) -> Tensor:
    """The tensor that `Tensor(...)` makes: memory from sizes, a copy from a sequence."""
    if len(data) == 1 and not isinstance(data[0], int):
        source = data[0]
        if isinstance(source, TensorBase):
            return source.detach()  # type: ignore[attr-defined,no-any-return]
        if type(source).__name__ == "Size":
            data = tuple(source)
        elif isinstance(source, (float, complex, type(None))):
            raise InvalidType(
                f"Tensor: new(): data must be a sequence (got {type(source).__name__}); use "
                "adjoint.tensor() for a number"
            )
        else:
            array = array_from(source, None, copy=True)
            with np.errstate(all="ignore"):
                return finish(array.astype(dtype.numpy), device)
    return finish(np.empty(sizes_from((data or (0,),), None, "Tensor"), dtype.numpy), device)


@public()
def new(self: Tensor, *data: Any, device: DeviceLike | None = None) -> Tensor:
    """A new tensor of this tensor's dtype from sizes or a sequence; `new_*` are clearer.

    Source: https://docs.pytorch.org/docs/stable/tensors.html

    >>> ad.tensor([1]).new([2.5])
    tensor([2])
    """
    return legacy_new(self.dtype, data, self.device if device is None else device)


@public(method="type", plain=True)
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of this tensor's type, or this tensor in another dtype.

    Errors: InvalidArgument for an unknown type name.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.type.html

    >>> ad.ones(1).type()
    'adjoint.FloatTensor'
    >>> ad.ones(1).type(ad.int64)
    tensor([1])
    """
    if dtype is None:
        return f"{config.CALLED}.{_TYPES[self.dtype].__name__}"
    if isinstance(dtype, TensorType):
        return cast(self, dtype.dtype)
    for kind in _TYPES.values():
        if dtype == f"{config.CALLED}.{kind.__name__}":
            return cast(self, kind.dtype)
    if not isinstance(dtype, str) or dt.named(dtype):
        return cast(self, dtype)
    raise InvalidArgument(
        f"type: invalid type: {dtype!r}; use a dtype such as adjoint.float32, or a name such as "
        "'adjoint.FloatTensor'"
    )


@public()
@explaining
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype of `other`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.type_as.html

    >>> ad.ones(2).type_as(ad.tensor([1]))
    tensor([1, 1])
    """
    return cast(self, other.dtype)


# ---- questions -----------------------------------------------------------------------------------


@public(method=False)
def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a tensor.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_tensor.html

    >>> ad.is_tensor(ad.ones(1)), ad.is_tensor(1)
    (True, False)
    """
    return isinstance(obj, TensorBase)


@explaining
@public()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    Errors: InvalidArgument for another number of elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.is_nonzero.html

    >>> ad.is_nonzero(ad.tensor([1.5]))
    True
    """
    return bool(input)


@explaining
@public(method=False)
def numel(input: Tensor) -> int:
    """The number of elements.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.numel.html

    >>> ad.numel(ad.zeros(2, 3))
    6
    """
    return int(input._data.size)


@public(method=False)
def typename(obj: Any) -> str:
    """The name of the type of a tensor, or of any object.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.typename.html

    >>> ad.typename(ad.ones(1))
    'adjoint.FloatTensor'
    """
    if isinstance(obj, TensorBase):
        return str(type_(obj))
    kind = type(obj)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


# ---- layouts -------------------------------------------------------------------------------------


class memory_format:  # noqa: N801 - PyTorch's name
    """Order of a tensor's dimensions in memory; tensors are made row-major here.

    Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.memory_format

    >>> ad.preserve_format
    adjoint.preserve_format
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{config.CALLED}.{self.name}"


class layout:  # noqa: N801 - PyTorch's name
    """Storage layout of a tensor's elements: all of them, by strides, or those that are not zero,
    with their places (`sparse_coo`, `sparse_csr`). The others have but a name.

    Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.layout

    >>> ad.zeros(2).layout is ad.strided
    True
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{config.CALLED}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")


class Sparse(LazyValue):
    """The value of a sparse tensor: `values` at the places of a pattern, zero elsewhere. It never
    changes (a write gives its tensor another one), and there is no array of it: what asks for one
    is refused. `adjoint/ops/sparse/` makes such values, and says what ops mean for them.
    """

    __slots__ = ("pattern", "values")

    pattern: Any  # ops.sparse.pattern.Pattern
    values: Any  # an array of the host's: the pattern's entries first, then the dense dimensions

    rises = True  # what it is written to is sparse from then on

    def __init__(self, pattern: Any, values: Any) -> None:
        self.op, self.inputs, self.memory, self.device = None, (), None, CPU
        self.shape, self.dtype = pattern.shape, values.dtype
        self.pattern, self.values = pattern, values

    @property
    def kept(self) -> Any:  # type: ignore[override]
        """The layout of tensors with such a value."""
        return self.pattern.layout

    @property
    def array(self) -> Any:  # type: ignore[override]
        """Refused: a sparse value has no dense array."""
        return self.realize()

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """The bytes of values and places."""
        return int(self.values.nbytes + self.pattern.indices.nbytes)

    def copy(self, order: str = "C") -> Sparse:
        """A copy with values in memory of their own."""
        return Sparse(self.pattern, self.values.copy())

    def realize(self) -> Any:
        """Refused: a sparse value has no dense array."""
        frame, name = sys._getframe(1), "reading the elements"
        while frame is not None and frame.f_globals.get("__name__", "").startswith(f"{NAME}."):
            if frame.f_globals is not globals():
                name = frame.f_code.co_name
            frame = frame.f_back  # type: ignore[assignment]
        raise refused(name, self)

    def settle(self, tensor: Any) -> Any:
        """Refused: a sparse value has no dense array."""
        return self.realize()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.realize()

    def __repr__(self) -> str:
        return f"<{self.kept.name} {tuple(self.shape)} of {len(self.values)} entries>"


def refused(name: str, data: Any, why: str = "") -> LayoutError:
    """The error of what takes no sparse tensors."""
    return LayoutError(
        f"{name}: {why or 'is for dense tensors'}; it was given one of layout {data.kept.name} "
        f"and shape {tuple(data.shape)}: use to_dense() first"
    )


def sparse_parts(x: Any) -> tuple[Any, Any, bool]:
    """The layout of a sparse tensor, the tensors and the size that it is made of, and whether it is
    coalesced: as PyTorch's files have it.
    """
    data = x._data
    pattern = data.pattern
    values = wrap(data.values)
    if data.kept is sparse_coo:
        return sparse_coo, (wrap(pattern.indices), values, Size(data.shape)), pattern.is_merged
    others = wrap(pattern.indices[int(data.kept is sparse_csr)].astype(pattern.crow.dtype))
    return data.kept, (wrap(pattern.crow), others, values, Size(data.shape)), True


def sparse_of(kept: layout, parts: Any, is_coalesced: bool = False) -> Any:
    """The tensor that `sparse_parts` took apart.

    Errors: those of `sparse_coo_tensor`, `sparse_csr_tensor` and `sparse_csc_tensor`.
    """
    from ..sparse import construction

    if kept is sparse_coo:
        return construction.sparse_coo_tensor(*parts, is_coalesced=is_coalesced)
    if kept is sparse_csc:
        return construction.sparse_csc_tensor(*parts)
    return construction.sparse_csr_tensor(*parts)


register_backend(Sparse, None)

contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
