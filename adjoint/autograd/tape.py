"""Eager execution: compute at once, and record on the tape what gradients will need."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.compute import compute, quiet
from ..core.errors import AutogradError
from ..core.handle import Handle
from ..core.mode import MODE, Mode
from ..core.op import Op, connect_eager
from ..core.spec import Spec
from ..graph.node import Item, Node, Version, View

ndarray = np.ndarray
new = object.__new__
get_mode = MODE.get
Tensor: Any = Handle  # the user's class, set by `connect`


def connect(tensor_class: type) -> None:
    """Make eager execution the default and `tensor_class` what it returns."""
    global Tensor
    Tensor = tensor_class
    connect_eager(execute)


def wrap(data: Any, node: Any = None, version: Any = None) -> Any:
    """A tensor around `data`."""
    tensor = new(Tensor)
    tensor._data = data
    tensor._node = node
    tensor._leaf = None
    tensor._version = version
    tensor._view = None
    return tensor


INFERENCE = Version()  # stands for "no version is kept": a value that autograd may never save


def execute(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Run `op` now; make a Node where an input wants a gradient."""
    arrays = []
    parents = []
    wants = False
    for x in inputs:
        if isinstance(x, Handle):
            arrays.append(x._data)
            node = x._node
            if node is not None:
                wants = True
            parents.append(node)
        else:
            arrays.append(x)
            parents.append(None)
    result = compute(op, arrays)
    mode = get_mode()
    if op.n_outputs != 1:
        return _wrap_several(op, inputs, result, parents, wants, mode)
    if type(result) is not ndarray:
        result = _as_array(result)
    y = wrap(result)
    if op.view and shares_storage(result, arrays[0]):
        _mark_view(y, inputs[0], op)
    if wants and mode.grad and op.differentiable and result.dtype.kind in "fcV":
        y._node = record(op, inputs, tuple(parents), y, mode)
    if mode.inference and y._version is None:
        y._version = INFERENCE
    return y


def _as_array(result: Any) -> Any:
    return np.asarray(result) if isinstance(result, (np.generic, int, float, complex)) else result


def _wrap_several(
    op: Op, inputs: tuple[Any, ...], results: Any, parents: list[Any], wants: bool, mode: Mode
) -> tuple[Any, ...]:
    ys = tuple(wrap(_as_array(r)) for r in results)
    if op.view:
        for i, y in enumerate(ys):
            if shares_storage(y._data, inputs[0]._data):
                reason = f"{op.name}: one of several views made by one call"
                _mark_view(y, inputs[0], op.output_view(i), reason)
    if wants and mode.grad and op.differentiable:
        node = record(op, inputs, tuple(parents), ys, mode)
        for i, y in enumerate(ys):
            data = y._data
            if data.dtype.kind in "fcV":
                y._node = Node(Item(i), (node,), (), None, data.shape, data.dtype)
    if mode.inference:
        for y in ys:
            y._version = INFERENCE
    return ys


def record(
    op: Op, inputs: tuple[Any, ...], parents: tuple[Any, ...], y: Any, mode: Mode
) -> Node:
    """The Node of `y = op(*inputs)`, keeping only what the wanted gradients read."""
    saved: list[Any] = []
    versions: tuple[int, ...] | None = None
    if op.tokens:
        wanted: Any = None
        if op.wanted_by is not None:
            wanted = set().union(
                *(w for w, p in zip(op.wanted_by, parents, strict=False) if p is not None)
            )
        for token in op.tokens:
            if wanted is not None and token not in wanted:
                saved.append(None)
            elif token == "y":
                saved.append(_save_output(y))
            else:
                saved.append(_save_input(token, inputs))
        versions = _versions(saved)
    if isinstance(y, tuple):
        node = Node(op, parents, tuple(saved), versions, (), None)
    else:
        data = y._data
        node = Node(op, parents, tuple(saved), versions, data.shape, data.dtype)
    if mode.anomaly:
        node.get_extra().traceback = "".join(traceback.format_stack()[:-2])
    return node


def _versions(saved: list[Any]) -> tuple[int, ...] | None:
    for value in saved:
        version = getattr(value, "_version", None)
        if version is not None:
            if version is INFERENCE:
                raise AutogradError(
                    "Inference tensors cannot be saved for backward; clone the tensor outside "
                    "inference_mode to use it in autograd"
                )
            return tuple(
                v._version.count if getattr(v, "_version", None) is not None else 0 for v in saved
            )
    return None


def _save_output(y: Any) -> Any:
    if isinstance(y, tuple):
        return tuple(_save_output(each) for each in y)
    if y._version is None:
        y._version = Version()
    return wrap(y._data, None, y._version)


def _save_input(token: str, inputs: tuple[Any, ...]) -> Any:
    if token == "x":
        return inputs[0]
    if token == "xs":
        return inputs
    if token == "specs":
        return tuple(spec_of(x) for x in inputs)
    if token.startswith("spec"):
        return spec_of(inputs[int(token[4:] or 1) - 1])
    return inputs[int(token[1:]) - 1]


def spec_of(x: Any) -> Any:
    """A tensor's Spec; a Python number stands for itself."""
    return x.spec if isinstance(x, Handle) else x


# ---- views --------------------------------------------------------------------------------------


def shares_storage(result: Any, source: Any) -> bool:
    """Whether `result`, computed from `source` by a view op, shows its memory."""
    if result is source:
        return True
    base = result.base
    return base is not None and (base is source or base is source.base) or (
        np.may_share_memory(result, source) if result.size else True
    )


def _mark_view(y: Any, x: Any, op: Op, writable: str = "") -> None:
    version = x._version
    if version is INFERENCE:
        y._version = INFERENCE
        return
    if version is None:
        version = x._version = Version()
    y._version = version
    view = x._view
    if view is None:
        y._view = View(x, (op,), writable)
    else:
        y._view = View(view.base, (*view.ops, op), writable or view.writable)
    register_view(y)


def register_view(y: Any) -> None:
    """Let writes to the storage of `y` find it."""
    version = y._version
    reference = weakref.ref(y)
    if version.views is None:
        version.views = [reference]
    else:
        views = version.views
        if len(views) > 8 and len(views) & (len(views) - 1) == 0:
            views[:] = [r for r in views if r() is not None]
        views.append(reference)


def alias(x: Any) -> Any:
    """A tensor that shares data and version with `x` and has no history."""
    version = x._version
    if version is None:
        version = x._version = Version()
    return wrap(x._data, None, version)


# ---- operators: a short cut for two plain arrays -------------------------------------------------


def binary_operator(
    op: Op, slow: Callable[[Any, Any], Any], kinds: str = "biufc"
) -> Callable[[Any, Any], Any]:
    """`slow(x1, x2)` for operators, with a short cut for arrays of one dtype (of `kinds`).

    The short cut does what `execute` does, written out flat: it runs for every small tensor.
    """
    ufunc: Any = getattr(np, op.ufunc)  # type: ignore[attr-defined]
    keep1 = op.wanted_by is not None and any("x1" in w for w in op.wanted_by)
    keep2 = op.wanted_by is not None and any("x2" in w for w in op.wanted_by)
    differentiable = op.differentiable

    def operator(self: Any, other: Any) -> Any:
        mode = get_mode()
        if isinstance(other, Handle) and mode.plain:
            a = self._data
            b = other._data
            dtype = a.dtype
            if type(a) is ndarray and dtype is b.dtype and dtype.kind in kinds:
                try:
                    data = quiet.run(ufunc, a, b)
                except (ValueError, RuntimeError):
                    return slow(self, other)
                if type(data) is not ndarray:
                    data = np.asarray(data)
                y = new(Tensor)
                y._data = data
                y._leaf = y._version = y._view = y._node = None
                if differentiable and mode.grad:
                    node1 = self._node
                    node2 = other._node
                    if node1 is not None or node2 is not None:
                        x1 = self if keep1 and node2 is not None else None
                        x2 = other if keep2 and node1 is not None else None
                        versions = None
                        if (x1 is not None and x1._version is not None) or (
                            x2 is not None and x2._version is not None
                        ):
                            versions = _versions([x1, x2])
                        y._node = Node(
                            op,
                            (node1, node2),
                            (x1, x2) if keep1 or keep2 else (),
                            versions,
                            data.shape,
                            dtype,
                        )
                return y
        return slow(self, other)

    return operator


# ---- in-place writes -----------------------------------------------------------------------------


class ViewWrite(Op, abstract=True):
    """`base` with the part that `ops` shows replaced by `value` (what writing a view does)."""

    needs = ""

    def __init__(self, ops: tuple[Op, ...]) -> None:
        self.ops = ops

    def infer(self, base: Spec, value: Spec) -> Spec:
        """The base's spec."""
        return base

    def compute(self, xp: Any, base: Any, value: Any) -> Any:
        """A copy of `base` with `value` written."""
        result = base.copy()
        write_part(xp, result, self.ops, value)
        return result

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """The written part's gradient goes to `value`, the rest to `base`."""
        from ..core.op import apply

        part = g
        for op in self.ops:
            part = apply(op, part)
        if g.requires_grad:
            rest = apply(self, g, part.new_zeros(part.shape))
        else:
            data = g._data.copy()
            write_part(np, data, self.ops, 0)
            rest = wrap(data)
        return (rest, part)


def write_part(xp: Any, array: Any, ops: tuple[Op, ...], value: Any) -> None:
    """Write `value` into the part of `array` (row-major, without gaps) that `ops` show."""
    part = array
    for op in ops:
        part = op.compute(xp, part)
    if not part.size or np.may_share_memory(part, array):
        part[...] = value
        return
    # The views were views in the base's own memory order, not in this one: write by position.
    places = np.arange(array.size).reshape(array.shape)
    for op in ops:
        places = op.compute(xp, places)
    array.reshape(-1)[places] = value


def assert_writable(x: Any, name: str) -> None:
    """Refuse an in-place write that PyTorch refuses."""
    mode = get_mode()
    view = x._view
    if mode.grad:
        if x._node is not None and x._node is x._leaf:
            raise AutogradError(
                f"{name}: a leaf Variable that requires grad is being used in an in-place "
                "operation; change it under adjoint.no_grad(), or write to a clone"
            )
        if view is not None:
            base = view.base
            if base._node is not None and base._node is base._leaf:
                raise AutogradError(
                    f"{name}: a view of a leaf Variable that requires grad is being used in an "
                    "in-place operation; change it under adjoint.no_grad(), or write to a clone"
                )
            if view.writable and x._node is not None:
                raise AutogradError(
                    f"{name}: {view.writable} may not be changed in place; index the tensor "
                    "instead, or clone the view"
                )
    data = x._data
    if not mode.inference and x._version is INFERENCE:
        raise AutogradError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed; "
            "clone it first"
        )
    if 0 in data.strides and data.size > 1:
        for size, stride in zip(data.shape, data.strides, strict=True):
            if stride == 0 and size > 1:
                raise AutogradError(
                    f"{name}: unsupported operation: more than one element of the written-to "
                    "tensor refers to a single memory location (it was expanded); clone it first"
                )


def overwrite(x: Any, y: Any, name: str) -> Any:
    """Write the value and history of `y` (of x's shape and dtype) into `x`; the end of every
    in-place operation.
    """
    data = x._data
    if y._data is not data:
        if not data.flags.writeable:
            raise AutogradError(f"{name}: the tensor's memory is read-only; clone it first")
        data[...] = y._data
    rebase(x, y._node, name)
    return x


def rebase(x: Any, node: Any, name: str) -> None:
    """`x` has been changed by `name`, and `node` is now how its value came to be."""
    version = x._version
    if version is None:
        version = x._version = Version()
    elif version is INFERENCE:
        return
    version.bump(name)
    mode = get_mode()
    view = x._view
    owner = x if view is None else view.base
    if not mode.grad or (node is None and owner._node is None):
        return
    _move_retained(x, node)
    if view is None:
        x._node = node
    else:
        base = owner
        new_node = Node(
            ViewWrite(view.ops), (base._node, node), (), None, base._data.shape, base._data.dtype
        )
        _move_retained(base, new_node)
        base._node = new_node
    if version.views is not None:
        live = []
        for reference in version.views:
            tensor = reference()
            if tensor is not None:
                live.append(reference)
                if tensor._view is not None:
                    tensor._node = _replay(tensor._view)
        version.views = live


def _move_retained(x: Any, node: Any) -> None:
    """`retain_grad` follows the tensor to its new node."""
    old = x._node
    if node is not None and type(old) is Node and old.extra is not None:
        retained = old.extra.retained
        if retained is not None and retained is x._leaf:
            old.extra.retained = None
            node.get_extra().retained = retained


def _replay(view: View) -> Any:
    """The node of a view whose base has got a new one."""
    base = view.base
    node = base._node
    if node is None:
        return None
    spec = base.spec
    for op in view.ops:
        if not op.differentiable:
            return None
        result = op.infer(spec)
        saved = tuple(spec if token.startswith("spec") else None for token in op.tokens)
        node = Node(op, (node,), saved, None, result.shape, base._data.dtype)
        spec = result
    return node
