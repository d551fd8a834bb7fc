"""Names in PyTorch's files, resolved: the functions that rebuild tensors and arrays.

Every function here takes what a hostile file may give it: it checks all it gets.
"""

from __future__ import annotations

import math
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING  # protocol 2 has Python 2's names
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.device import device
from ..core.dtype import ALL, dtype
from ..core.errors import AdjointError, CheckpointError
from ..core.spec import Size
from ..nn.modules.module import Module
from ..nn.parameter import Buffer, Parameter
from ..ops.create.conversion import layout, sparse_coo, sparse_csc, sparse_csr, sparse_of, strided
from ..ops.create.exchange import from_numpy
from ..tensor import Tensor
from .module_state import has_own_setstate, restore_module
from .restricted_pickle import Named, assert_key, brief
from .safe_globals import find_allowed, get_safe_globals, is_forbidden

STORAGE_NAMES = {
    "bool": "BoolStorage", "uint8": "ByteStorage", "int8": "CharStorage", "int16": "ShortStorage",
    "int32": "IntStorage", "int64": "LongStorage", "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage", "float32": "FloatStorage", "float64": "DoubleStorage",
    "complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class StorageType:
    """A class of storages, such as torch.FloatStorage; of bytes where `dtype` is None."""

    name: str
    dtype: dtype | None

    @property
    def numpy(self) -> Any:
        """NumPy dtype of the array that holds a storage of this class."""
        return np.dtype(np.uint8) if self.dtype is None else self.dtype.numpy


class Storage:
    """The memory that tensors share: a one-dimensional array."""

    name = "a storage (store tensors instead)"

    def __init__(self, array: Any, kind: StorageType, is_part: bool = False) -> None:
        self.array = array
        self.kind = kind
        self.is_part = is_part  # of another storage
        # One tensor per dtype and bits under which it is seen.
        self.bases: dict[tuple[dtype, frozenset[str]], Tensor] = {}

    def base(self, kind: dtype, bits: frozenset[str] = frozenset()) -> Any:
        """The whole storage as one tensor; its views share a version.

        With the bits "conj" and "neg", which adjoint's tensors have not, it is memory of its own
        that holds the conjugate or the negative: one per storage, however many views it has.
        """
        if self.is_part and bits:  # no PyTorch wrote both; copies of many parts have no bound
            raise CheckpointError(f"a tensor of a part of a storage has the bits {sorted(bits)}")
        if (kind, bits) not in self.bases:
            array = self.array.view(kind.numpy)
            self.bases[kind, bits] = from_numpy(
                np.empty(array.shape, array.dtype) if bits else array
            )
            self._settle(kind, bits)
        return self.bases[kind, bits]

    def settle(self) -> None:
        """Bring conjugates and negatives up to date with the array, once that is filled."""
        for kind, bits in self.bases:
            self._settle(kind, bits)

    def _settle(self, kind: dtype, bits: frozenset[str]) -> None:
        source, target = self.array.view(kind.numpy), self.bases[kind, bits]._data
        if "conj" in bits:
            source = np.conjugate(source, out=target)
        if "neg" in bits:
            np.negative(source, out=target)


# ---- tensors -------------------------------------------------------------------------------------


def _tensor(
    storage: Any, offset: Any, size: Any, stride: Any, kind: Any = None, metadata: Any = None
) -> Any:
    """The view of `storage` that the numbers describe, if they stay inside it."""
    if type(storage) is not Storage:
        raise CheckpointError(f"a tensor is made of a {type(storage).__name__}, not of a storage")
    kind = kind or storage.kind.dtype
    if type(kind) is not dtype:
        raise CheckpointError(f"a tensor has dtype {brief(kind)}")
    if not isinstance(size, tuple) or not isinstance(stride, tuple) or len(size) != len(stride):
        raise CheckpointError(f"a tensor has size {brief(size)} and stride {brief(stride)}")
    numbers = (offset, *size, *stride)
    if len(size) > 64 or any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
        raise CheckpointError(
            f"a tensor has offset {brief(offset)}, size {brief(size)}, stride {brief(stride)}"
        )
    if storage.array.nbytes % kind.itemsize:
        raise CheckpointError(f"a storage of {storage.array.nbytes} bytes is seen as {kind}")
    base = storage.base(kind, _bits(metadata, kind))
    if 0 in size:
        return from_numpy(np.empty(size, kind.numpy))
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if last >= base.numel():
        raise CheckpointError(
            f"a tensor of size {tuple(size)}, stride {stride} and offset {offset} reaches outside "
            f"its storage of {base.numel()} elements"
        )
    tensor = base.detach()
    tensor._data = np.lib.stride_tricks.as_strided(
        base._data[offset:], size, [s * kind.itemsize for s in stride]
    )
    return tensor


def _bits(metadata: Any, kind: dtype) -> frozenset[str]:
    """Which of the bits "conj" and "neg" a tensor has: it is the conjugate or negative of its
    memory.
    """
    if metadata is None:
        return frozenset()
    if type(metadata) is not dict or any(
        type(metadata.get(bit, False)) is not bool for bit in ("conj", "neg")
    ):
        raise CheckpointError(f"a tensor has the metadata {brief(metadata)}")
    bits = frozenset(bit for bit in ("conj", "neg") if metadata.get(bit, False))
    if ("conj" in bits and kind.numpy.kind != "c") or (bits and kind.numpy.kind == "b"):
        raise CheckpointError(f"a tensor of {kind} has the bits {sorted(bits)}")
    return bits


def _with_grad(tensor: Any, requires_grad: Any) -> Any:
    if type(requires_grad) is not bool:
        raise CheckpointError(f"a tensor has requires_grad={brief(requires_grad)}")
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Any:
    return _tensor(storage, offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any,
    metadata: Any = None,
) -> Any:  # fmt: skip
    return _with_grad(_tensor(storage, offset, size, stride, None, metadata), requires_grad)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, kind: Any,
    metadata: Any = None,
) -> Any:  # fmt: skip
    return _with_grad(_tensor(storage, offset, size, stride, kind, metadata), requires_grad)


def _rebuild_sparse_tensor(kept: Any, parts: Any) -> Any:
    known = {sparse_coo: (3, 4), sparse_csr: (4,), sparse_csc: (4,)}
    expected = known.get(kept) if type(kept) is layout else None
    if expected is None or type(parts) is not tuple or len(parts) not in expected:
        raise CheckpointError("a sparse tensor is made of something else than its parts")
    flag = parts[3] if kept is sparse_coo and len(parts) == 4 else False
    tensors, size = parts[: expected[0] - 1], parts[expected[0] - 1]
    whole = isinstance(size, tuple) and all(type(n) is int and 0 <= n < 2**62 for n in size)
    if not (whole and type(flag) is bool and all(type(x) is Tensor for x in tensors)):
        raise CheckpointError("a sparse tensor is made of something else than its parts")
    try:
        return sparse_of(kept, (*tensors, size), flag)
    except AdjointError as error:
        raise CheckpointError(f"the file holds a sparse tensor that is none: {error}") from None


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Any:
    if not isinstance(data, Tensor) or not data.is_leaf or type(requires_grad) is not bool:
        raise CheckpointError(f"a parameter is made of a {type(data).__name__}")
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    return _with_attributes(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_from_type_v2(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    if not isinstance(function, Named) or not function.name.startswith("torch._utils._rebuild"):
        raise CheckpointError("a tensor is rebuilt by something else than PyTorch's functions")
    if isinstance(kind, type) and issubclass(kind, Tensor) and type(arguments) is tuple:
        made = function.call(*arguments)
        return _with_attributes(made if kind is Tensor else made.as_subclass(kind), state)
    if not isinstance(kind, Named) or kind.name not in _TENSOR_CLASSES:
        name = getattr(kind, "name", None) or getattr(kind, "__name__", repr(kind))
        raise CheckpointError(
            f"the file holds a tensor of class {name:.100}, for which adjoint has no counterpart; "
            "save x.as_subclass(torch.Tensor) instead"
        )
    if type(arguments) is not tuple:
        raise CheckpointError("a tensor is rebuilt without a tuple of arguments")
    return _with_attributes(function.call(*arguments), state)


def _with_attributes(tensor: Any, state: Any) -> Any:
    """`tensor` with the attributes that the user had set on it."""
    if type(state) is tuple and len(state) == 2 and state[1] in (None, {}):
        state = state[0]
    if state is None:
        return tensor
    if type(state) is not dict:
        raise CheckpointError(f"a tensor has attributes in a {type(state).__name__}")
    for name, value in state.items():
        if type(name) is not str or hasattr(type(tensor), name):
            raise CheckpointError(f"a tensor's own attribute {brief(name)} is set by the file")
        tensor.__dict__[name] = value
    return tensor


def _refusal(what: str, remedy: str) -> Any:
    """A function in the place of one that makes `what`."""

    def refuse(*arguments: Any) -> Any:
        raise CheckpointError(f"the file holds {what}, which adjoint has not; {remedy}")

    return refuse


# ---- values --------------------------------------------------------------------------------------


def _pairs(kind: type) -> Any:
    """A constructor of `kind`, an OrderedDict or Counter, from nothing or from pairs."""

    def make(items: Any = ()) -> Any:
        if type(items) not in (tuple, list, dict):
            raise CheckpointError(f"an {kind.__name__} is made of a {type(items).__name__}")
        made: Any = kind()
        for key, value in items.items() if type(items) is dict else items:
            assert_key(key)
            made[key] = value
        return made

    return make


def _set(kind: type) -> Any:
    """A constructor of `kind`, set or frozenset, from a list."""

    def make(items: Any = ()) -> Any:
        if type(items) not in (list, tuple):
            raise CheckpointError(f"a set is made of a {type(items).__name__}")
        for item in items:
            assert_key(item)
        return kind(items)

    return make


def _bytes(text: Any = "", encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1", "ascii", "utf-8"):
        raise CheckpointError(f"bytes are made of {brief(text)} by {brief(encoding)}")
    return text.encode(encoding)


def _bytearray(content: Any = b"", encoding: Any = None) -> bytearray:
    if encoding is not None:
        content = _bytes(content, encoding)
    if type(content) not in (bytes, bytearray):
        raise CheckpointError(f"a bytearray is made of {brief(content)}")
    return bytearray(content)


def _complex(real: Any, imaginary: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imaginary) not in (int, float):
        raise CheckpointError(f"a complex number is made of {brief(real)}")
    return complex(real, imaginary)


def _device(kind: Any, index: Any = None) -> Any:
    if type(kind) is not str or len(kind) > 40 or type(index) not in (int, type(None)):
        raise CheckpointError(f"a device is called {brief(kind)}")
    return device(kind if index is None else f"{kind}:{index}")


def _size(sizes: Any = ()) -> Any:
    if not isinstance(sizes, (tuple, list)) or any(type(n) is not int for n in sizes):
        raise CheckpointError(f"a torch.Size is made of {brief(sizes)}")
    return Size(sizes)


def _layout(name: Any) -> Any:
    found = _LAYOUTS.get(name.removeprefix("torch.")) if type(name) is str else None
    if found is None:
        raise CheckpointError(
            f"the file names the layout {brief(name)}; adjoint's are {', '.join(_LAYOUTS)}"
        )
    return found


_LAYOUTS = {kept.name: kept for kept in (strided, sparse_coo, sparse_csr, sparse_csc)}


# ---- NumPy ---------------------------------------------------------------------------------------


def _numpy_dtype(code: Any, align: Any = False, copy: Any = False) -> Any:
    """A numeric dtype from its short code, such as "f8"."""
    text = code.decode() if type(code) is bytes else code
    if type(text) is not str or text.lstrip("<|=")[:1] not in tuple("biufc") or len(text) > 4:
        raise CheckpointError(f"the file names NumPy's dtype {brief(code)}; numbers only are read")
    return np.dtype(text)


def _numpy_scalar(kind: Any, raw: Any) -> Any:
    raw = raw.encode("latin1") if type(raw) is str else raw
    if not isinstance(kind, np.dtype) or type(raw) is not bytes or len(raw) != kind.itemsize:
        raise CheckpointError(f"a NumPy number of {brief(kind)} is made of {brief(raw)}")
    return np.frombuffer(raw, kind)[0]


def _numpy_array(kind: Any, shape: Any, code: Any) -> Any:
    """An array to be filled by its state."""
    if getattr(kind, "name", None) != "numpy.ndarray":
        raise CheckpointError("the file holds a NumPy array of a class of its own")
    return np.empty(0, np.uint8)


def _numpy_frombuffer(raw: Any, kind: Any, shape: Any, order: Any, axes: Any = None) -> Any:
    """An array, as protocol 5 writes it."""
    if type(raw) not in (bytes, bytearray) or order not in ("C", "F") or axes is not None:
        raise CheckpointError("the file holds a malformed NumPy array")
    array = np.empty(0, np.uint8)
    if not _fill_numpy_array(array, (1, shape, kind, order == "F", bytes(raw))):
        raise CheckpointError("the file holds a malformed NumPy array")
    return array


def _fill_numpy_array(array: Any, state: Any) -> bool:
    if type(state) is not tuple or len(state) != 5:
        return False
    version, shape, kind, fortran, raw = state
    raw = raw.encode("latin1") if type(raw) is str else raw
    sizes_fit = type(shape) is tuple and all(type(n) is int and 0 <= n < 2**62 for n in shape)
    if version != 1 or not sizes_fit or not isinstance(kind, np.dtype) or type(raw) is not bytes:
        return False
    if len(raw) != math.prod(shape) * kind.itemsize:
        raise CheckpointError(f"a NumPy array of shape {brief(shape)} has {len(raw)} bytes")
    array.__setstate__((1, shape, kind, bool(fortran), raw))
    return True


# ---- the table -----------------------------------------------------------------------------------

_TENSOR_CLASSES = (
    "torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
)  # fmt: skip


_CALLS: dict[str, Any] = {
    "collections.OrderedDict": _pairs(OrderedDict),
    "collections.Counter": _pairs(Counter),
    "builtins.set": _set(set),
    "builtins.frozenset": _set(frozenset),
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "_codecs.encode": _bytes,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.nn.parameter.Buffer": Buffer,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter_with_state,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type_v2,
    "torch._utils._rebuild_sparse_tensor": _rebuild_sparse_tensor,
    "torch._utils._rebuild_nested_tensor": _refusal("a nested tensor", "save its parts"),
    "torch._utils._rebuild_qtensor": _refusal("a quantized tensor", "save x.dequantize()"),
    "torch._utils._rebuild_meta_tensor_no_storage": _refusal(
        "a tensor without data (on the meta device)", "materialize it before saving"
    ),
    # Classes that are arguments of the functions above; files of today do not call them.
    "torch.Tensor": _refusal("a call of torch.Tensor", "save the file again"),
    "torch._tensor.Tensor": _refusal("a call of torch.Tensor", "save the file again"),
    "numpy.dtype": _numpy_dtype,
    "numpy.ndarray": _refusal("a call of numpy.ndarray", "save the array itself"),
    **{f"numpy.{core}.multiarray.scalar": _numpy_scalar for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray._reconstruct": _numpy_array for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _numpy_frombuffer for core in ("core", "_core")},
}
_TABLE: dict[str, Any] = {
    **{name: Named(name, call) for name, call in _CALLS.items()},
    **{f"torch.{kind.name}": kind for kind in ALL},
    **{
        f"{module}.{name}": StorageType(f"{module}.{name}", next(d for d in ALL if d.name == kind))
        for kind, name in STORAGE_NAMES.items()
        for module in ("torch", "torch.cuda")
    },
    **{
        name: StorageType(name, None)
        for name in ("torch.storage.UntypedStorage", "torch.UntypedStorage")
    },
}


def modern(module: str, name: str) -> tuple[str, str]:
    """Python 3's name of what a file names as Python 2 did."""
    return NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))


def is_known(module: str, name: str) -> bool:
    """Whether every file may use the name, or the user has allowed it."""
    return f"{module}.{name}" in _TABLE or find_allowed(module, name) is not None


def find(module: str, name: str) -> Any:
    """The object that a PyTorch file names by `module.name`; CheckpointError for none."""
    module, name = modern(module, name)
    full = f"{module}.{name}"
    found = _TABLE.get(full)
    if found is None:
        found = find_allowed(module, name)
    if found is not None:
        return found
    if is_forbidden(module, name):
        raise CheckpointError(f"the file names {full:.200}, which no file may use; do not trust it")
    if module == "torch":
        raise CheckpointError(
            f"the file names {full:.200}, for which adjoint has no counterpart; convert what uses "
            "it in PyTorch, e.g. with x.float(), and save again"
        )
    raise CheckpointError(
        f"the file names {full:.200}, and only state dicts are read: tensors, numbers, text and "
        "containers of them; load(weights_only=False) reads modules, too, whose classes are "
        "imported. Save model.state_dict() instead; or, if you trust the file, allow that name: "
        "with adjoint.serialization.safe_globals([...]) around load, with the class itself or a "
        f'pair (your_class, "{full:.200}"), or all of them: adjoint.serialization.trust(path)'
    )


def build(instance: Any, state: Any) -> bool:
    """Restore `instance` to the `state` in a file; False where its class has none to restore."""
    if type(instance) is OrderedDict:
        if type(state) is not dict or not state.keys() <= {"_metadata"}:
            raise CheckpointError("the file sets attributes of an OrderedDict")
        instance.__dict__.update(state)
        return True
    if type(instance) is np.ndarray:
        return instance.dtype == np.uint8 and not instance.size and _fill_numpy_array(
            instance, state
        )  # fmt: skip
    if isinstance(instance, np.dtype):
        big = type(state) is tuple and len(state) > 1 and state[1] not in ("<", "|", "=")
        if big or type(state) is not tuple:
            raise CheckpointError("the file holds a NumPy array of foreign byte order")
        return True
    allowed = (entry[0] if isinstance(entry, tuple) else entry for entry in get_safe_globals())
    return any(type(instance) is kind for kind in allowed) and build_any(instance, state)


def build_any(instance: Any, state: Any) -> bool:
    """Restore an object of a class that the user trusts, as Python's pickle does."""
    if has_own_setstate(type(instance)):
        instance.__setstate__(state)
    elif isinstance(instance, Module):
        restore_module(instance, state)
    else:
        set_state(instance, state)
    return True


def set_state(instance: Any, state: Any) -> None:
    """Sets an object's state as Python's pickle does for a class without `__setstate__`."""
    own, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    for part in (own, slots):
        if part is not None and type(part) is not dict:
            raise CheckpointError(f"the state of a {type(instance).__name__} is no dict")
    if own:
        instance.__dict__.update(own)
    for name, value in (slots or {}).items():
        setattr(instance, name, value)
