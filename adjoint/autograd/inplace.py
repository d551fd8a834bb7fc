"""In-place methods (`add_`, ...) and `out=`: run the function that is not in place, then write
once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.argument_errors import MISTAKES, assert_tensor, explain
from ..core.arrays import references
from ..core.device import is_device_array
from ..core.dtype import bfloat16
from ..core.errors import AutogradError, DTypeError, ShapeError, Unsupported
from ..core.mode import MODE, without_autocast
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..ir.compute import quietly, write_arrays
from ..ops.promotion import assert_can_store, cast
from ..runtime.cells import Cell, wants_gradient
from ..runtime.dispatch import apply
from ..runtime.editing import show_other
from ..runtime.lazy import LazyValue, concrete
from ..runtime.node import INFERENCE, Node, Version
from ..runtime.op_functions import plain_dtypes, takes_number
from ..runtime.record import parents_of, record
from ..runtime.tensors import wrap
from ..runtime.views import register_view
from ..runtime.writes import (
    assert_allowed,
    assert_writable,
    before_change,
    in_place,
    overwrite,
    rebase,
)
from .devices import together
from .forward_level import carries_tangent
from .recording import Recorder, source_of
from .refreshing import assert_owned

ndarray = np.ndarray
_BFLOAT16 = bfloat16.numpy


def inplace_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that writes `function(self, ...)` into self."""

    direct = _DIRECT.get(name)

    def general(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if direct is not None and len(args) == 1 and _write_directly(self, direct, *args, **kwargs):
            rebase(self, None, name)
            return self
        wanted = kwargs.get("dtype")
        if wanted is not None and wanted is not self.dtype:
            raise DTypeError(
                f"{name}: Bad in-place call: input tensor dtype {self.dtype} and output tensor "
                f"dtype {wanted} should match; use {name[:-1]}"
            )
        try:
            return change(self, name, lambda old: without_autocast(function, old, *args, **kwargs))
        except MISTAKES as error:
            explain(error, function, (self, *args), kwargs)
            raise

    method = in_place(name, function, general)
    functools.update_wrapper(method, function)
    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"In-place version of `{name[:-1]}`: writes the result into this tensor and returns it.\n\n"
        f"    Shape: the result must have this tensor's shape and a dtype that it can store.\n"
        f"    Errors: those of `{name[:-1]}`; AutogradError for a leaf that requires grad.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.{name}.html\n"
    )
    return method


def _arithmetic(ufunc: np.ufunc, kinds: str) -> tuple[Any, dict[Any, int]]:
    return ufunc, plain_dtypes(ufunc, kinds)


# In-place method -> its ufunc, and the dtypes (with the numbers they take) for which it is used.
_DIRECT = {
    "add_": _arithmetic(np.add, "biufc"),
    "sub_": _arithmetic(np.subtract, "iufc"),
    "mul_": _arithmetic(np.multiply, "biufc"),
    "div_": _arithmetic(np.divide, "fc"),
}


def _write_directly(
    x: Tensor,
    direct: tuple[Any, dict[Any, int]],
    other: object,
    alpha: float | None = None,
    **rest: Any,
) -> bool:
    """Compute into the memory of `x` without a copy, if nothing is recorded and all is plain.
    Otherwise, also where an error is due, do nothing and return False.
    """
    ufunc, dtypes = direct
    data = x._data
    mode = MODE.get()
    numbers = dtypes.get(data.dtype)
    if numbers is None and data.dtype == _BFLOAT16 and is_device_array(data):
        numbers = 0  # devices have bfloat16; NumPy's loops for it are slow
    if rest or numbers is None or not mode.plain or x._changes is INFERENCE:
        return False
    if mode.grad and (x._node is not None or x._view is not None):
        return False
    if isinstance(other, TensorBase):
        value = other._data
        if value.dtype is not data.dtype or (mode.grad and other._node is not None):
            return False
        if isinstance(value, LazyValue) and value.rises:
            return False
    elif takes_number(numbers, other):
        value = other
    else:
        return False
    if type(data) is not ndarray and not is_device_array(data):
        return False
    if 0 in data.strides or not data.flags.writeable:
        return False
    before_change(x)
    try:
        if alpha is not None and (
            type(value) is not type(data) or numbers != 2 or type(alpha) not in (int, float)
        ):
            return False
        if is_device_array(data):
            data.change(ufunc.__name__, value, alpha)
            return True
        if alpha is not None:
            value = quietly(np.multiply, value, alpha)
        quietly(ufunc, data, value, data)
    except (ValueError, RuntimeError):  # refused before anything is written
        return False
    return True


def change(x: Tensor, name: str, function: Callable[[Any], Any]) -> Tensor:
    """Replace `x` by `function(x)`: values, version and history; nothing changes on an error."""
    assert_allowed(x, name)
    mode = MODE.get()
    recorder = mode.executor
    if recorder is not None and hasattr(recorder, "meet"):
        recorder.meet(x)
    owner = x if x._view is None else x._view.base
    followed = isinstance(recorder, Recorder) and type(owner._data) is ndarray
    if not followed:
        before_change(x)
    old = wrap(x._data, x._node)
    if isinstance(recorder, Recorder) and type(x._data) is ndarray:
        old._data = source_of(recorder.state, x)
    y = function(old)
    if not followed and old._changes is not None and MODE.get().grad and y._node is not None:
        # Something kept a view of the old values, which are about to be overwritten.
        old = wrap(x._data.copy(), x._node)
        y = function(old)
    elif not followed and references(old) % (1 << 20) != _HELD_ONCE and y is not old:
        old._data = x._data.copy()  # the node saved `old`: let it keep the old values
    if y is old:
        return x
    if y._data.shape != x._data.shape:
        raise ShapeError(
            f"{name}: output with shape {tuple(x.shape)} doesn't match the broadcast shape "
            f"{tuple(y.shape)}; an in-place operation cannot change its tensor's shape"
        )
    if y._data.dtype != x._data.dtype:
        assert_can_store(name, y.dtype, x.dtype)
        y = cast(y, x.dtype)
    assert_owned(x, name)
    overwrite(x, y, name)
    _save_written_output(x, y)
    return x


def _save_written_output(x: Tensor, y: Tensor) -> None:
    """Let the node of `y` save `x`, which now holds its output, instead of a second copy."""
    node = y._node
    if type(node) is not Node or "y" not in node.op.tokens or len(node.saved) == 0:
        return
    count = x._changes.count
    place = node.op.tokens.index("y")
    saved = list(node.saved)
    if saved[place] is None:
        return
    saved[place] = wrap(x._data, None, x._changes)
    versions = list(node.versions or [0] * len(saved))
    versions[place] = count
    node.saved, node.versions = tuple(saved), tuple(versions)


def _count_held_once() -> int:
    """The reference count of a tensor that only one variable holds, as measured here."""
    old = wrap(np.zeros(1))
    return references(old) % (1 << 20)


_HELD_ONCE = _count_held_once()


def write(name: str, op: Op, x: Tensor, *inputs: Any) -> Tensor:
    """Replace `x` by `op(x, *inputs)`, where `op.write` changes the memory of `x` and nothing
    else.
    """
    mode = MODE.get()
    if mode.watched:
        return mode.observer.in_place(name, write, (name, op, x, *inputs), {})
    data = x._data
    arrays, wants, alike = [data], x._node is not None, type(data) is ndarray
    for each in inputs:
        if isinstance(each, TensorBase):
            arrays.append(each._data)
            wants = wants or each._node is not None
            alike = alike and type(each._data) is ndarray
        else:
            arrays.append(each)
    recorded = not alike and any(isinstance(each, LazyValue) for each in arrays)
    if mode.executor is not None or recorded or type(op).write is Op.write:
        return change(x, name, lambda old: apply(op, old, *inputs))
    assert_writable(x, name)
    if not data.flags.writeable:
        raise AutogradError(f"{name}: the tensor's memory is read-only; clone it first")
    if not alike:
        _, *inputs = together(op, (x, *inputs))  # type: ignore[assignment]
        arrays = [data, *(each._data if isinstance(each, TensorBase) else each for each in inputs)]
    node = None
    if wants and mode.grad and data.dtype.kind in "fcV":
        node = record(op, (x, *inputs), parents_of((x, *inputs)), x, mode)
    write_arrays(op, arrays)
    rebase(x, node, name)
    return x


def rebind(name: str, x: Tensor, function: Callable[[Any], Any]) -> Tensor:
    """Make `x` the view `function(x)` of itself. Values of it that nodes have saved then lie
    differently and are refused, as after a write (PyTorch counts it as one, too).
    """
    mode = MODE.get()
    if mode.grad and x._node is not None and x._node is x._leaf:
        raise AutogradError(
            f"{name}: a leaf Variable that requires grad is being used in an in-place operation; "
            "use the operation that is not in place"
        )
    if x._changes is not INFERENCE:
        base = wrap(x._data, x._node, x._changes)  # what x has been until now
        base._view = x._view
        for reference in (x._changes.views or ()) if x._changes is not None else ():
            other = reference()
            if other is not None and other._view is not None:
                view = other._view
                view.base = base if view.base is x else view.base
                view.alias = base if view.alias is x else view.alias
    else:
        base = x
    y = function(base)
    if y is base:
        return x
    if x._leaf is not None and x._node is x._leaf:
        x._leaf.shape = tuple(y._data.shape)
        x._data = y._data
    else:
        x._data, x._node, x._changes, x._view = y._data, y._node, y._changes, y._view
        if x._view is not None:
            register_view(x)
    if x._changes is None:
        x._changes = Version()
    if x._changes is not INFERENCE:  # nobody who watches need be told: no value is another
        x._changes.count += 1
        x._changes.changed_by = name
    return x


def _has_history(x: Tensor) -> bool:
    return x._node is not None and (not isinstance(x._data, Cell) or wants_gradient(x._data))


def write_out(result: Tensor | tuple[Tensor, ...], out: Any, name: str) -> Any:
    """Copy `result` (a tensor or a tuple of them) into `out` and return `out`."""
    if isinstance(result, tuple):
        for each, target in zip(result, out, strict=True):
            write_out(each, target, name)
        return out
    assert_tensor(name, out, "out")
    if carries_tangent(result) or carries_tangent(out):
        raise Unsupported(
            f"{name}: Trying to use forward AD with {name}_out that does not support it because it "
            "is an out= function; use what it returns without out="
        )
    if MODE.get().grad and (_has_history(result) or _has_history(out)):
        raise AutogradError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad"
        )
    assert_can_store(name, result.dtype, out.dtype)
    value = cast(result, out.dtype)
    if out._data.shape != value._data.shape:
        array = concrete(value).copy()
        show_other(out, array, name)
        return out
    assert_writable(out, name)
    assert_owned(out, name)
    return overwrite(out, value, name)
