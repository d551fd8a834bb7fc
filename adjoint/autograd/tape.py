"""Eager execution: compute at once, and record on the tape what gradients will need."""

from __future__ import annotations

import functools
import os
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import numpy as backend
from ..core import dtype as dt
from ..core import op as core_op
from ..core import policy
from ..core.device import CPU, namespace_of, space
from ..core.errors import AdjointError, AutogradError
from ..core.handle import Handle
from ..core.mode import MODE, Mode, mode_with, without_autocast
from ..core.op import SHORTCUTS, Op, connect_eager, saving_of
from ..core.spec import Spec
from ..eager.arrays import copy_memory, references, signature
from ..graph.node import Item, Node, Packed, Version, View, new_node
from ..graph.reactive import Cell
from ..graph.recorded import Recorded, concrete, shown
from ..program.compute import compute
from ..program.executable import find

ndarray = np.ndarray
new = Handle.__new__
get_mode = MODE.get
Tensor: Any = Handle  # the user's class, set by `connect`


def connect(tensor_class: type) -> None:
    """Make eager execution the default and `tensor_class` what it returns."""
    global Tensor
    Tensor = tensor_class
    connect_eager(execute, launched, copied)
    core_op.connect_view(apply_view)


def wrap(data: Any, node: Any = None, version: Any = None) -> Any:
    """A tensor around `data`."""
    tensor = new(Tensor)
    tensor._data = data
    tensor._node = node
    tensor._leaf = None
    tensor._version = version
    tensor._view = None
    return tensor


def zeros(shape: tuple[int, ...], dtype: Any, place: Any) -> Any:
    """A tensor of zeros of a NumPy dtype on a device."""
    return wrap((np if place is CPU else space(place)).zeros(shape, dtype))


def count_alone(*shape: int) -> int:
    """`references` of a tensor that nobody else holds, and neither its memory."""
    tensor: Any = Handle()
    tensor._data = np.zeros(4).reshape(*shape) if shape else np.zeros(4)
    return references(tensor)


# Whole, or reshaped. As counted here: by compiled code, if this is compiled, as its callers are.
ALONE = frozenset((count_alone(), count_alone(2, 2)))

INFERENCE = Version()  # stands for "no version is kept": a value that autograd may never save


def execute(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Run `op` now; make a Node where an input wants a gradient."""
    several = op.view or op.n_outputs != 1
    if not several:
        y = run_known(op, inputs)
        if y is not None:
            return y
    arrays = []
    wants = False
    for x in inputs:
        if isinstance(x, Handle):
            data = x._data
            if type(data) is not ndarray and type(data) in EXECUTORS:
                return EXECUTORS[type(data)](op, inputs)
            arrays.append(data)
            if x._node is not None:
                wants = True
        else:
            arrays.append(x)
    result = compute(op, arrays)
    if several:
        return finish(op, inputs, result, parents_of(inputs), wants)
    mode = get_mode()
    if type(result) is not ndarray:
        result = _as_array(result)
    records = op.differentiable and result.dtype.kind in "fcV"
    return made(op, inputs, result, records, mode)


def made(op: Op, inputs: tuple[Any, ...], result: Any, records: bool, mode: Mode) -> Any:
    """The tensor of `result`, an array of its own: what `op` gives for `inputs`."""
    y = new(Tensor)
    y._data = result
    y._leaf = y._view = y._node = None
    y._version = INFERENCE if mode.inference else None
    if records and mode.grad:
        for x in inputs:
            if isinstance(x, Handle) and x._node is not None:
                y._node = record(op, inputs, parents_of(inputs), y, mode)
                break
    return y


def run_known(op: Op, inputs: tuple[Any, ...]) -> Any:
    """What `apply(op, *inputs)` gives, where it is known what computes `op` for such arrays and
    numbers, else None. Not for views and several outputs.
    """
    mode = get_mode()
    if not mode.plain:
        return None
    arrays: list[Any] = []
    key = signature(op, inputs, False, arrays)
    if key is None:
        return None
    found = find(key)
    if found is None:
        return None
    if found.launcher is not None:
        result = found.launcher.launch(arrays)
    else:
        result = found.launch(*[x._data if isinstance(x, Handle) else x for x in inputs])
    if result is None:
        return None
    return made(op, inputs, result, found.records, mode)


def launched(op: Op, *inputs: Any) -> Any:
    """`run_known` for a function that has not checked and converted its arguments: what was
    computed before was checked then.
    """
    return run_known(op, inputs)


def parents_of(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The nodes of tensors; None for what has none, and for numbers."""
    return tuple([x._node if isinstance(x, Handle) else None for x in inputs])


# How ops run on data of other types: recorded values. (type of the data -> executor)
EXECUTORS: dict[type, Callable[[Op, tuple[Any, ...]], Any]] = {}

# What writes the value of a tensor into one with data of such a type. (ndarray: into an eager
# tensor, which becomes part of the graph that the value belongs to.)
WRITERS: dict[type, Callable[[Any, Any], None]] = {}


def finish(
    op: Op, inputs: tuple[Any, ...], result: Any, parents: Sequence[Any], wants: bool
) -> Any:
    """The tensor of `result`, the value of `op` on `inputs` (a tuple of them for several outputs),
    with the node and the view that it is.
    """
    mode = get_mode()
    if op.n_outputs != 1:
        return _wrap_several(op, inputs, result, parents, wants, mode)
    y = wrap(_as_array(result))
    if op.view and shares_storage(result, inputs[0], op):
        mark_view(y, inputs[0], op, "" if mode.grad else UNRECORDED_VIEW)
    if wants and mode.grad and op.differentiable and y._data.dtype.kind in "fcV":
        y._node = record(op, inputs, tuple(parents), y, mode)
    if mode.inference and y._version is None:
        y._version = INFERENCE
    return y


def _as_array(result: Any) -> Any:
    return np.asarray(result) if isinstance(result, (np.generic, int, float, complex)) else result


def _wrap_several(
    op: Op, inputs: tuple[Any, ...], results: Any, parents: Sequence[Any], wants: bool, mode: Mode
) -> tuple[Any, ...]:
    ys = tuple([wrap(_as_array(r)) for r in results])
    if op.view:
        singles = op.output_views(inputs[0]._data.shape)
        for y, single in zip(ys, singles, strict=True):
            if shares_storage(y._data, inputs[0], single):
                mark_view(y, inputs[0], single, ONE_OF_SEVERAL_VIEWS)
    if wants and mode.grad and op.differentiable:
        node = record(op, inputs, tuple(parents), ys, mode)
        for i, y in enumerate(ys):
            y._node = item(node, i, y._data)
    if mode.inference:
        for y in ys:
            if y._version is None:
                y._version = INFERENCE
    return ys


def item(node: Node, index: int, data: Any) -> Node | None:
    """The node of one output, `data`, of a node with several; None where it has no gradient."""
    if data.dtype.kind not in "fcV":
        return None
    return Node(_item(index), (node,), (), None, data.shape, data.dtype)


_item = functools.cache(Item)


def record(op: Op, inputs: tuple[Any, ...], parents: tuple[Any, ...], y: Any, mode: Mode) -> Node:
    """The Node of `y = op(*inputs)`, keeping only what the wanted gradients read."""
    saving = op.saving
    if saving is None:
        saving = _saving(op.tokens, op.wanted_by)
    saved: list[Any] = []
    changed = False
    for kind, index, wanting in saving:
        value: Any = None
        for place in wanting:
            if place < len(parents) and parents[place] is not None:
                value = inputs[index] if kind == "x" else _saved(kind, index, inputs, y)
                break
        saved.append(value)
        if isinstance(value, Handle):
            version = value._version
            if version is not None and (version is INFERENCE or version.count != 0):
                changed = True
        elif type(value) is tuple:
            changed = True
    versions = _versions(saved) if changed else None
    if mode.saved_hooks is not None:
        saved = [pack(value, mode.saved_hooks) for value in saved]
    if isinstance(y, tuple):
        node = new_node(op, parents, tuple(saved), versions, (), None)
    else:
        data = y._data
        node = new_node(op, parents, tuple(saved), versions, data.shape, data.dtype)
    if mode.anomaly:
        note_place(node)
    return node


def _versions(saved: Sequence[Any]) -> tuple[Any, ...] | None:
    """The version counts of `saved` (a tuple of them for a tuple); None where all are 0."""
    counts = tuple(map(version_count, saved))
    return counts if any(counts) else None


def version_count(value: Any) -> Any:
    """What `assert_unchanged` will compare with later; AutogradError for an inference tensor."""
    if type(value) is tuple:
        return tuple(map(version_count, value))
    version = getattr(value, "_version", None)
    if version is None:
        return 0
    if version is INFERENCE:
        raise AutogradError(
            "Inference tensors cannot be saved for backward; clone the tensor outside "
            "inference_mode to use it in autograd"
        )
    return version.count


def pack(value: Any, hooks: tuple[Any, Any]) -> Any:
    """A saved value handed to the pack hook, where it is a tensor or a tuple of them."""
    if type(value) is tuple:
        return tuple(pack(each, hooks) for each in value)
    if not isinstance(value, Handle):
        return value
    count = version_count(value)
    mode = MODE.get()
    MODE.set(mode_with(mode, grad=False, saved_hooks=None))
    try:
        packed = Packed(alias(value), value._node, hooks)
    finally:
        MODE.set(mode)
    if version_count(value) != count:
        raise AutogradError(
            "saved_tensors_hooks: A saved tensor pack hook is modifying its input in place; "
            "clone it first"
        )
    return packed


_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def note_place(node: Node) -> None:
    """Remember the user's lines that lead here, for anomaly detection."""
    frames = traceback.extract_stack()
    users = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    node.get_extra().traceback = "".join(traceback.format_list(users))


def _save_output(y: Any) -> Any:
    if isinstance(y, tuple):
        return tuple(_save_output(each) for each in y)
    if y._version is None:
        y._version = Version()
    return wrap(y._data, None, y._version)


def _saved(token: str, index: int, inputs: tuple[Any, ...], y: Any) -> Any:
    """What a token (without its number) stands for."""
    if token == "x":
        return inputs[index]
    if token == "y":
        return _save_output(y)
    if token == "spec":
        return spec_of(inputs[index])
    return inputs if token == "xs" else tuple(map(spec_of, inputs))


_saving = functools.cache(saving_of)


def spec_of(x: Any) -> Any:
    """A tensor's Spec; a Python number stands for itself."""
    return x.spec if isinstance(x, Handle) else x


# ---- views --------------------------------------------------------------------------------------


def shares_storage(result: Any, x: Any, op: Op) -> bool:
    """Whether `result`, computed from tensor `x` by the view op `op`, shows its memory."""
    source = x._data
    if result is source:
        return True
    if type(result) is not ndarray and isinstance(result, Recorded):
        return _would_share(x, op)
    base = result.base
    return (base is not None and (base is source or base is source.base)) or (
        np.may_share_memory(result, source) if result.size else True
    )


def _would_share(x: Any, op: Op) -> bool:
    """The same of a recorded value: computed ones are row-major, of which `op` makes a view; of a
    view it may not.
    """
    if x._view is None:
        return True
    base = x._view.base._data
    memory = part = np.empty(base.shape, base.dtype)
    for each in (*x._view.ops, op):
        part = each.compute(backend, part)
    return np.may_share_memory(part, memory) if part.size else True


UNRECORDED_VIEW = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Make "
    "the view and the change both inside the no_grad block, or both outside"
)
ONE_OF_SEVERAL_VIEWS = (
    "A view is being modified inplace. This view is the output of a function that returns multiple "
    "views. Such functions do not allow the output views to be modified "
    "inplace; index the tensor instead, or clone the view"
)


def apply_view(op: Op, x: Any) -> Any:
    """What `execute` does for a view op of one output on a tensor, written out flat."""
    mode = get_mode()
    if not mode.plain:
        return core_op.apply(op, x)
    source = x._data
    if type(source) is not ndarray:
        return core_op.apply(op, x)
    try:
        result = op.compute(backend, source)
    except AdjointError:
        raise
    except Exception:
        op.infer(x.spec)
        raise
    if result.base is source or shares_storage(result, x, op):
        return viewed(op, x, result, mode)
    y = wrap(result)
    node = x._node
    if node is not None and mode.grad and op.differentiable:
        y._node = _view_node(op, x, result)
    return y


def _view_node(op: Op, x: Any, result: Any) -> Node:
    saved = (x.spec,) if op.tokens else ()
    return new_node(op, (x._node,), saved, None, result.shape, result.dtype)


def viewed(op: Op, x: Any, result: Any, mode: Mode) -> Any:
    """The tensor of `result`, an array that shows the memory of tensor `x`, as `op` gives it."""
    y = new(Tensor)
    y._data = result
    y._leaf = y._node = None
    mark_view(y, x, op, "" if mode.grad else UNRECORDED_VIEW)
    if x._node is not None and mode.grad and op.differentiable:
        y._node = _view_node(op, x, result)
    return y


def mark_view(y: Any, x: Any, op: Op, refusal: str = "") -> None:
    """Note that `y`, made from `x` by `op`, shows its storage."""
    version = x._version
    if version is INFERENCE:
        y._version = INFERENCE
        return
    if version is None:
        version = x._version = Version()
    y._version = version
    view = x._view
    if view is None:
        y._view = View(x, None, op, refusal)
    else:
        y._view = View(view.base, view, op, refusal or view.refusal)
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
    if x._view is not None and type(x._data) is Recorded:
        concrete(x)  # real memory is what shows a write to everyone
    version = x._version
    if version is None:
        version = x._version = Version()
    y = wrap(x._data, None, version)
    data = x._data
    if type(data) is not ndarray and isinstance(data, Recorded) and version is not INFERENCE:
        # writes must find both
        if x._view is not None:
            y._view = View(x._view.base, x._view.above, x._view.op)
            y._view.detached = True
        elif all(reference() is not x for reference in version.views or ()):
            register_view(x)
        register_view(y)
    return y


# Ways to record usual elementwise ops of 1 and 2 inputs on graphs; they return None for others.
RECORDERS: dict[int, Callable[..., Any]] = {}


# ---- functions of one op -------------------------------------------------------------------------

# What a number beside an array of that dtype may be, where it is written into the array: 0 none,
# 1 int, 2 int or float.
_NUMBERS = {
    d.numpy: (2 if d.itemsize > 2 else 0) if d.numpy.kind == "f" else int(d.numpy.kind == "i")
    for d in dt.ALL
    if d is not dt.bfloat16
}
_SMALL = range(-128, 128)  # ints that every signed dtype has


def plain_dtypes(function: Any, kinds: str) -> dict[Any, int]:
    """The dtypes of `kinds` that `function` computes as PyTorch does, with their numbers; without
    a function, those that need no float32.
    """
    half = isinstance(function, np.ufunc)  # NumPy's own functions compute float16 in float32
    return {
        d: number for d, number in _NUMBERS.items() if d.kind in kinds and (half or d != np.float16)
    }


def takes_number(numbers: int | None, value: Any) -> bool:
    """Whether a number may be written into an array that takes `numbers`."""
    kind = type(value)
    return (kind is float and numbers == 2) or (kind is int and bool(numbers) and value in _SMALL)


def binary_operator(
    op: Op, general: Callable[[Any, Any], Any], kinds: str = "biufc", ufunc: str | None = None
) -> Callable[..., Any]:
    """`general(input, other)`, which applies `op`; without its checks and conversions, where the op
    was computed for such arrays, or where graphs record it. `ufunc`: the backend's function for it
    (None: the op's own; "": it is none).
    """
    if ufunc is None:
        ufunc = op.ufunc  # type: ignore[attr-defined]
    result = getattr(op, "result", "") if ufunc else ""
    function = getattr(backend, ufunc) if ufunc else None
    dtypes = plain_dtypes(function, kinds)

    def operator(input: Any, other: Any, *, out: Any = None) -> Any:
        if out is not None:
            return core_op.write_out(without_autocast(general, input, other), out, op.name)
        y = run_known(op, (input, other))
        if y is None and (result == "same" or result == "bool"):
            y = RECORDERS[2](op, function, dtypes, result == "bool", input, other)
        return general(input, other) if y is None else y

    return operator


def unary_operator(
    op: Op, general: Callable[[Any], Any], kinds: str = "biufc", ufunc: str | None = None
) -> Callable[..., Any]:
    """`general(input)`, as `binary_operator`."""
    if ufunc is None:
        ufunc = op.ufunc  # type: ignore[attr-defined]
    records = bool(ufunc) and getattr(op, "result", "") == "same"
    function = getattr(backend, ufunc) if ufunc else None
    dtypes = plain_dtypes(function, kinds)

    def operator(input: Any, *, out: Any = None) -> Any:
        if out is not None:
            return core_op.write_out(without_autocast(general, input), out, op.name)
        y = run_known(op, (input,))
        if y is None and records:
            y = RECORDERS[1](op, function, dtypes, input)
        return general(input) if y is None else y

    return operator


SHORTCUTS[1], SHORTCUTS[2] = unary_operator, binary_operator


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
        part = g
        for op in self.ops:
            part = core_op.apply(op, part)
        if g.requires_grad or isinstance(g._data, Recorded):
            rest = core_op.apply(self, g, part.new_zeros(part.shape))
        else:
            data = g._data.copy()
            write_part(namespace_of(data), data, self.ops, 0)
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
        places = op.compute(np, places)
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
            if view.refusal and (x.requires_grad or base.requires_grad):
                raise AutogradError(f"{name}: {view.refusal}")
    data = x._data
    if not mode.inference and x._version is INFERENCE:
        raise AutogradError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed; "
            "clone it first"
        )
    strides = data.strides
    if view is not None and isinstance(data, Recorded):  # as they will be
        strides = shown(np.empty(view.base._data.shape, data.dtype), view).strides
    if 0 in strides and data.size > 1:
        for size, stride in zip(data.shape, strides, strict=True):
            if stride == 0 and size > 1:
                raise AutogradError(
                    f"{name}: unsupported operation: more than one element of the written-to "
                    "tensor refers to a single memory location (it was expanded); clone it first"
                )
    before_change(x)


def before_change(x: Any) -> None:
    """The memory of `x` is about to be written: whoever needs what it holds keeps a copy."""
    version = x._version
    if version is None or version.watchers is None:
        return
    version.before_change()
    base = x if x._view is None else x._view.base
    if not isinstance(base._data, Recorded):
        for reference in version.views or ():
            other = reference()
            if other is not None and type(other._data) is Recorded and other._view is not None:
                other._data = shown(base._data, other._view)  # it must see the change


def announce(tensors: Sequence[Any], name: str) -> list[Version]:
    """Tensors are about to be changed by `name` where nothing is recorded: what `before_change`
    and `rebase` do, for many. Returns the versions that are to be told (`bump`) when it is done.
    """
    watched = []
    for x in tensors:
        version = x._version
        if version is None:
            version = x._version = Version()
        elif version.watchers is not None:
            before_change(x)
            watched.append(version)
        version.count += 1
        version.changed_by = name
    return watched


def copied(x: Any, y: Any, name: str) -> bool:
    """Whether the elements of `y`, or zeros where it is None, were written into `x` by `name`: a
    copy of memory, where both are plain and lie alike, and `x` was changed before. Else nothing has
    happened.
    """
    mode = get_mode()
    if not mode.plain or not isinstance(x, Handle) or x._node is not None or x._view is not None:
        return False
    version = x._version
    if version is None or version is INFERENCE or version.watchers is not None:
        return False
    data = x._data
    if type(data) is not ndarray or data.nbytes > policy.COPY_HELD or data.dtype.kind == "O":
        return False
    if y is None:
        if not copy_memory(data, None):
            return False
    else:
        if not isinstance(y, Handle) or (mode.grad and y._node is not None):
            return False
        if type(y._data) is not ndarray or not copy_memory(data, y._data):
            return False
    version.count += 1
    version.changed_by = name
    return True


def overwrite(x: Any, y: Any, name: str) -> Any:
    """Write the value and history of `y` (of x's shape and dtype) into `x`; the end of every
    in-place operation.
    """
    data = x._data
    if y._data is not data:
        joins = y._node is not None and isinstance(y._data, Cell) and get_mode().grad
        if joins or (type(data) is not ndarray and isinstance(data, Recorded)):
            WRITERS[type(data)](x, y)
        else:
            if not data.flags.writeable:
                raise AutogradError(f"{name}: the tensor's memory is read-only; clone it first")
            data[...] = concrete(y)
            if isinstance(y._data, Cell) and y._data.state.effects is not None:
                y._data.state.effects.append((x, y._data))
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
    if not mode.grad or (node is None and owner._node is None) or isinstance(owner._data, Cell):
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
