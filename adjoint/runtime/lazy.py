"""Recorded values: arrays defined by how they are computed, and computed when read.

A recorded value stands where an array stands, as the data of a tensor. Its shape and dtype are
known at once (`Op.infer`); whatever needs its elements realizes it. `LazyValue` is the lazy kind: a
pure value that is computed at most once and then forgets its inputs. The reactive kind, `Cell`
(cells.py), lasts and is computed again when what it depends on has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.array_properties import ArrayProperties
from ..core.arrays import identity
from ..core.device import CPU, device_of, is_device_array, namespace_of, register_backend
from ..core.device import device as Device  # noqa: N812 - recorded values have a field of that name
from ..core.dtype import from_numpy_dtype
from ..core.errors import AutogradError
from ..core.mode import MODE
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..ir.compute import compute
from .node import Item, Version

if TYPE_CHECKING:
    import numpy.typing as npt

    from .node import View

ndarray = np.ndarray
_MEMORY = object()  # stands for memory that nobody may take over


class _LazyFlags:
    """`ndarray.flags` of a recorded value: results are row-major and writable."""

    c_contiguous = True
    f_contiguous = False
    contiguous = True
    writeable = True


class LazyValue:
    """The recorded value of `op` on `inputs`, which are recorded values and Python numbers."""

    __slots__ = (
        "__weakref__", "array", "device", "dtype", "inputs", "lies", "memory", "op", "shape",
    )  # fmt: skip

    op: Op | None  # None for a value that was given, not computed
    inputs: tuple[Any, ...]  # () once computed
    shape: tuple[int, ...]
    dtype: Any  # NumPy's; None for the value of an op with several outputs
    array: Any  # None until computed; a tuple of arrays for several outputs
    memory: Version | None  # of the tensor whose memory `array` shows; None: of no tensor

    device: Device  # where `array` is, or will be
    lies: Any  # the strides that eager execution would give it, once asked for: see memory_order

    base = _MEMORY
    flags = _LazyFlags
    rises = False  # whether what it is written to becomes of its kind
    varies = False  # whether it stands for several arrays
    placed = False  # whether it is in memory, which lies as the strides say
    kept = None  # the layout of a value that is kept in another form than an array
    ndim, size = ArrayProperties.ndim, ArrayProperties.size
    itemsize, nbytes = ArrayProperties.itemsize, ArrayProperties.nbytes

    def __init__(
        self,
        op: Op | None,
        inputs: tuple[Any, ...],
        shape: tuple[int, ...],
        dtype: np.dtype | None,
        device: Device = CPU,
    ) -> None:
        self.device = device
        self.op = op
        self.inputs = inputs
        self.shape = shape
        self.dtype = dtype
        self.array = None
        self.memory = None
        self.lies = None

    # ---- attributes of an array ------------------------------------------------------------------

    @property
    def strides(self) -> tuple[int, ...]:
        """The steps in memory of a row-major array of this shape."""
        steps = []
        step = self.itemsize  # type: ignore[misc]
        for size in reversed(self.shape):
            steps.append(step)
            step *= size
        return tuple(reversed(steps))

    @property
    def spec(self) -> Spec:
        """Shape, dtype and device."""
        return Spec(self.shape, from_numpy_dtype(self.dtype), self.device)

    def copy(self, order: str = "C") -> LazyValue:
        """The value itself, since it never changes: a write gives its tensor another value."""
        return self

    # ---- values out ------------------------------------------------------------------------------

    def realize(self) -> Any:
        """The array; computed now unless it was before."""
        if self.array is None:
            realize((self,))
        return self.array

    def settle(self, tensor: TensorBase) -> Any:
        """Give `tensor`, whose data this is, memory of its own with the value, shared with its
        views and base as in eager execution; returns that memory.
        """
        view = tensor._view
        if view is not None:
            base = concrete(view.base)
            if tensor._data is self:
                tensor._data = shown(base, view)
            return tensor._data
        array = shared = self.realize()
        held = sys.getrefcount(self), sys.getrefcount(array)
        if _HELD_BY_TENSOR is None:
            return held
        if held != _HELD_BY_TENSOR or array.base is not None or self.memory is not None:
            array = array.copy("K")
        tensor._data = array
        version = tensor._changes
        if version is not None:
            for reference in version.views or ():
                other = reference()
                if other is None:
                    continue
                if type(other._data) is LazyValue or np.may_share_memory(other._data, shared):
                    other._data = array if other._view is None else shown(array, other._view)
        return array

    def before_change(self) -> bool:
        """Copy the value before its memory is changed. True: the value no longer depends on the
        memory.
        """
        array = self.array
        several = type(array) is tuple
        self.array = tuple(a.copy("K") for a in array) if several else array.copy("K")
        self.memory = None
        return True

    def changed(self) -> None:
        """Called when the memory was changed; does nothing, as the value has its own copy."""

    def exported(self) -> None:
        """Copy the value before others get to know the memory, whose writes nobody announces."""
        if self.memory is not None:
            self.before_change()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self.realize()
        return array.copy() if copy else array if dtype is None else array.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [x.realize() if isinstance(x, LazyValue) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.realize(), name)

    def __getitem__(self, index: Any) -> Any:
        return self.realize()[index]

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.realize())

    def __int__(self) -> int:
        return int(self.realize())

    def __index__(self) -> int:
        return int(self.realize())

    def __float__(self) -> float:
        return float(self.realize())

    def __hash__(self) -> int:
        return identity(self)

    def __lt__(self, other: object) -> Any:
        return self.realize() < other

    def __le__(self, other: object) -> Any:
        return self.realize() <= other

    def __gt__(self, other: object) -> Any:
        return self.realize() > other

    def __ge__(self, other: object) -> Any:
        return self.realize() >= other

    def __mod__(self, other: object) -> Any:
        return self.realize() % other

    def __add__(self, other: object) -> Any:
        return self.realize() + other

    def __sub__(self, other: object) -> Any:
        return self.realize() - other

    def __mul__(self, other: object) -> Any:
        return self.realize() * other

    def __and__(self, other: object) -> Any:
        return self.realize() & other

    def __repr__(self) -> str:
        name = "given" if self.op is None else self.op.name
        state = "not computed" if self.array is None else "computed"
        return f"<{name} {tuple(self.shape)} {self.dtype}, {state}>"


register_backend(LazyValue, None, lambda value: value.device)


def given(tensor: TensorBase, version: Version) -> LazyValue:
    """A LazyValue of a tensor's present value; it shares the tensor's memory until that is
    changed.
    """
    array = tensor._data
    for reference in version.watchers or ():
        value = reference()
        if type(value) is LazyValue and value.array is array:
            return value
    value = LazyValue(None, (), array.shape, array.dtype, device_of(array))
    value.array = array
    value.memory = version
    version.watch(value)
    return value


def specs_of(inputs: Iterable[Any]) -> list[Any]:
    """The arguments for `Op.infer`: specs of recorded values, and numbers unchanged."""
    return [x.spec if isinstance(x, LazyValue) else x for x in inputs]


def record(op: Op, inputs: tuple[Any, ...]) -> Any:
    """The recorded value of `op` on `inputs`; a tuple of them for several outputs.

    Errors: those of `op.infer`.
    """
    inferred = op.infer(*specs_of(inputs))
    if isinstance(inferred, Spec):
        return LazyValue(op, inputs, inferred.shape, inferred.dtype.numpy, inferred.device)
    whole = LazyValue(op, inputs, (), None)
    return tuple(
        LazyValue(Item(i), (whole,), spec.shape, spec.dtype.numpy, spec.device)
        for i, spec in enumerate(inferred)
    )


def realize(values: Iterable[LazyValue]) -> None:
    """Compute `values` and the values that they need, each once; a computed value forgets its
    inputs.
    """
    stack = [value for value in values if value.array is None]
    if not stack:
        return
    mode = MODE.get()
    observer = mode.observer
    flush = getattr(mode.executor, "flush", None)
    if flush is not None:  # all that was recorded becomes one program
        flush()
    while stack:
        value = stack[-1]
        if value.array is not None:
            stack.pop()
            continue
        inputs = value.inputs
        waiting = [x for x in inputs if isinstance(x, LazyValue) and x.array is None]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if value.op is None:
            raise AutogradError(f"realize: {value!r} was given no value")
        arrays = [x.array if isinstance(x, LazyValue) else x for x in inputs]
        if observer is None:
            value.array = run(value.op, arrays)
        else:
            value.array = observer.compute(value.op, arrays, run)
        del arrays
        for x in inputs:
            memory = x.memory if isinstance(x, LazyValue) else None
            if memory is not None and _shares_memory(value.array, x.array):
                value.memory = memory
                memory.watch(value)
        value.inputs = ()


def _shares_memory(array: object, other: object) -> bool:
    arrays, others = (a if type(a) is tuple else (a,) for a in (array, other))
    return any(np.may_share_memory(a, b) for a in arrays for b in others)


def run(op: Op, arrays: list[Any]) -> Any:
    """The result of `op` on `arrays`, as arrays."""
    if type(op) is Item:
        return arrays[0][op.index]
    result = compute(op, arrays)
    if type(result) is ndarray:
        return result
    if op.n_outputs != 1:
        return tuple(map(as_array, result))
    return as_array(result)


def as_array(result: object) -> Any:
    """An op's result as an array."""
    return result if is_device_array(result) else np.asarray(result)


# ---- the memory of tensors -----------------------------------------------------------------------


def shown(array: Any, view: View) -> Any:
    """The part of the base's memory, `array`, that `view` shows."""
    for op in view.ops:
        array = op.compute(namespace_of(array), array)
    return array


def concrete(tensor: TensorBase) -> Any:
    """The array of `tensor`, computed now where it was only recorded."""
    data = tensor._data
    return data if type(data) is ndarray or not isinstance(data, LazyValue) else data.settle(tensor)


def _held_by_tensor() -> Any:
    """The reference counts that `LazyValue.settle` sees for a value that only its tensor holds, and
    for an array that only the value holds.
    """
    tensor: Any = TensorBase()
    tensor._view = None
    tensor._data = LazyValue(None, (), (), None)
    tensor._data.array = np.empty(0)
    return concrete(tensor)


_HELD_BY_TENSOR = None  # until it is counted
_HELD_BY_TENSOR = _held_by_tensor()
