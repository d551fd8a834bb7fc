"""In-place methods (`add_`, ...) and `out=`: the function that is not in place, then one write."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..core.errors import AutogradError, InvalidType, ShapeError
from ..core.handle import Handle
from ..core.mode import MODE
from ..core.op import INPLACE, connect_out
from ..graph.node import Node
from ..ops.promotion import assert_can_store, cast
from . import tape


def attach(tensor_class: type) -> None:
    """Give `tensor_class` the in-place methods, and make `out=` work."""
    connect_out(write_out)
    for name, function in INPLACE.items():
        setattr(tensor_class, name, inplace_method(name, function))


def inplace_method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that writes `function(self, ...)` into self."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return change(self, name, lambda old: function(old, *args, **kwargs))

    functools.update_wrapper(method, function)
    method.__name__ = method.__qualname__ = name
    method.__doc__ = (
        f"In-place version of `{name[:-1]}`: writes the result into this tensor and returns it.\n\n"
        f"    Shape: the result must have this tensor's shape and a dtype that it can store.\n"
        f"    Errors: those of `{name[:-1]}`; AutogradError for a leaf that requires grad.\n"
        f"    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.{name}.html\n"
    )
    return method


def change(x: Any, name: str, function: Callable[[Any], Any]) -> Any:
    """`x` becomes `function(x)`: values, version and history; nothing changes on an error."""
    tape.assert_writable(x, name)
    old = tape.wrap(x._data, x._node)
    y = function(old)
    if old._version is not None and MODE.get().grad and y._node is not None:
        # Something kept a view of the old values, which are about to be overwritten.
        old = tape.wrap(x._data.copy(), x._node)
        y = function(old)
    elif sys.getrefcount(old) > 2 and y is not old:
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
    tape.overwrite(x, y, name)
    _save_written_output(x, y)
    return x


def _save_written_output(x: Any, y: Any) -> None:
    """Where the node saved its output, let it save `x`, which now holds it, not a second copy."""
    node = y._node
    if type(node) is not Node or "y" not in node.op.tokens or len(node.saved) == 0:
        return
    count = x._version.count
    place = node.op.tokens.index("y")
    saved = list(node.saved)
    if saved[place] is None:
        return
    saved[place] = tape.wrap(x._data, None, x._version)
    versions = list(node.versions or [0] * len(saved))
    versions[place] = count
    node.saved, node.versions = tuple(saved), tuple(versions)


def write_out(result: Any, out: Any, name: str) -> Any:
    """Copy `result` (a tensor or a tuple of them) into `out` and return `out`."""
    if isinstance(result, tuple):
        for each, target in zip(result, out, strict=True):
            write_out(each, target, name)
        return out
    if not isinstance(out, Handle):
        raise InvalidType(f"{name}: out= must be a tensor, got {type(out).__name__}")
    if MODE.get().grad and (result._node is not None or out._node is not None):
        raise AutogradError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad"
        )
    assert_can_store(name, result.dtype, out.dtype)
    value = cast(result, out.dtype)
    if out._data.shape != value._data.shape:
        out._data = value._data.copy()
        return out
    tape.assert_writable(out, name)
    return tape.overwrite(out, value, name)
