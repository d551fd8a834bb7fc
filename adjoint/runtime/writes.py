"""Writing to tensors in place: checks, and updates of history and views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..core import policy
from ..core.argument_errors import MISTAKES, assert_tensor, recovered
from ..core.arrays import copy_memory, signature
from ..core.device import namespace_of
from ..core.errors import AutogradError, ShapeError, Unsupported
from ..core.op import Op
from ..core.overrides import ABSENT, FOLLOWED, overridden
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..ir.executable import find, find_numbered
from .cells import Cell, is_kept, warn_of_read
from .dispatch import apply
from .lazy import LazyValue, concrete, shown
from .mirrors import assert_no_history
from .node import INFERENCE, Node, Version, View
from .public import with_names, write_anew
from .tensors import get_mode, ndarray, wrap
from .views import asked

if TYPE_CHECKING:
    from ..core.mode import Mode
    from ..core.tensor_type import Tensor
    from .memory_order import Fill
    from .node import Target

T = TypeVar("T", bound=TensorBase)

# Writers of a tensor's value into a tensor with data of such a type. (Cell: also the value of a
# graph's tensor into one with memory.)
WRITERS: dict[type, Callable[[Any, Any], None]] = {}


@dataclass(eq=False, repr=False)
class ViewWrite(Op, abstract=True):
    """The op of a write through a view: `base` with the part that `ops` view replaced by
    `value`.
    """

    ops: tuple[Op, ...]

    def infer(self, base: Spec, value: Spec) -> Spec:
        """The base's spec; the value has the shape of the part."""
        part = base
        for op in self.ops:
            part = op.infer(part)
        if part.shape != value.shape:
            raise ShapeError(
                f"view_write: a value of shape {tuple(value.shape)} is written to a part of shape "
                f"{tuple(part.shape)}; write another view"
            )
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
            part = apply(op, part)
        if g.requires_grad or isinstance(g._data, LazyValue):
            rest = apply(self, g, part.new_zeros(part.shape))
        else:
            data = g._data.copy()
            write_part(namespace_of(data), data, self.ops, 0)
            rest = wrap(data)
        return (rest, part)


def write_part(xp: Any, array: Any, ops: tuple[Op, ...], value: object) -> None:
    """Write `value` into the part of `array` (row-major, without gaps) that `ops` view."""
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


def _assert_no_argument(x: TensorBase, mode: Mode, name: str) -> None:
    """Refuse a write to a leaf that is an argument of the function being captured."""
    if id(x) in getattr(mode.executor, "computed", ()):
        raise Unsupported(
            f"compile: {name} writes to an argument that was computed with gradients; write to its "
            "clone, or outside of the function"
        )


def assert_writable(x: Tensor, name: str) -> None:
    """Refuse an in-place write that PyTorch refuses; otherwise announce it."""
    assert_allowed(x, name)
    before_change(x)


def assert_allowed(x: Tensor, name: str) -> None:
    """Refuse an in-place write that PyTorch refuses."""
    mode = get_mode()
    view = x._view
    if mode.grad:
        if x._node is not None and x._node is x._leaf:
            _assert_no_argument(x, mode, name)
            raise AutogradError(
                f"{name}: a leaf Variable that requires grad is being used in an in-place "
                "operation; change it under adjoint.no_grad(), or write to a clone"
            )
        owner = None if view is None else view.owner
        if owner is not None:
            if owner._node is not None and owner._node is owner._leaf:
                _assert_no_argument(owner, mode, name)
                raise AutogradError(
                    f"{name}: a view of a leaf Variable that requires grad is being used in an "
                    "in-place operation; change it under adjoint.no_grad(), or write to a clone"
                )
            if view.refusal and (x.requires_grad or owner.requires_grad):
                raise AutogradError(f"{name}: {view.refusal}")
    data = x._data
    if not mode.inference and x._changes is INFERENCE:
        raise AutogradError(
            f"{name}: Inplace update to inference tensor outside InferenceMode is not allowed; "
            "clone it first"
        )
    if view is not None and isinstance(data, LazyValue):  # as memory will be
        base = view.base._data
        repeats = asked(partial(_would_repeat, base.shape, base.dtype, tuple(view.ops)))
    else:
        repeats = _repeats(data)
    if repeats:
        raise AutogradError(
            f"{name}: unsupported operation: more than one element of the written-to tensor refers "
            "to a single memory location (it was expanded); clone it first"
        )


def _repeats(array: Any) -> bool:
    """Whether an array that was expanded has elements that share one place in memory."""
    if 0 not in array.strides or array.size < 2:
        return False
    return any(not step and n > 1 for n, step in zip(array.shape, array.strides, strict=True))


def _would_repeat(
    shape: tuple[int, ...], dtype: np.dtype, ops: Sequence[Op], fill: Fill | None = None
) -> bool:
    part = np.empty(shape if fill is None else fill(shape), dtype)
    for op in ops:
        part = (op if fill is None else fill(op)).compute(namespace_of(part), part)
    return _repeats(part)


def before_change(x: TensorBase) -> None:
    """Announce that the memory of `x` is about to be written: those who need its present contents
    copy them.
    """
    version = x._changes
    if version is None or version.watchers is None:
        return
    version.before_change()
    show_memory(version, True)


def show_memory(version: Version, written: bool) -> None:
    """Let views that are only recorded show the memory: it is `written`, or may be unseen."""
    for reference in version.views or ():
        other = reference()
        if other is None or other._view is None or type(other._data) is ndarray:
            continue
        data = other._data
        if not isinstance(data, LazyValue):
            continue
        base = other._view.base
        if isinstance(base._data, LazyValue):
            continue
        kept = written and isinstance(data, Cell) and is_kept(data.state, base)
        if type(data) is LazyValue or kept:
            other._data = shown(base._data, other._view)  # it must see the change
            if isinstance(data, Cell) and other._node is not None:  # it was made with gradients on
                other._node = _replay(other._view)


def exported(x: T) -> T:
    """Mark the memory of `x` as known outside (to NumPy, say) and return `x`. Writes there are not
    seen, so recorded values keep its present contents, and graphs compare.
    """
    version = x._changes
    if version is None:
        version = x._changes = Version()
    if version is INFERENCE:
        return x
    if version.watchers is not None:
        for reference in version.watchers:
            watcher = reference()
            if watcher is not None:
                watcher.exported()
        if not version.exported:
            show_memory(version, False)
    version.exported = True
    return x


def announce(tensors: Sequence[Any], name: str) -> list[Version]:
    """Prepare an in-place change of many tensors by `name` where nothing is recorded:
    `before_change` and `rebase` for all. Returns the versions to `bump` afterwards.
    """
    watched = []
    for x in tensors:
        version = x._changes
        if version is None:
            version = x._changes = Version()
        elif version.watchers is not None:
            before_change(x)
            watched.append(version)
        version.count += 1
        version.changed_by = name
    return watched


launches: list[int] = [0]  # count of in-place kernels launched, for tests


def write_known(owner: object, name: str, args: tuple[Any, ...]) -> bool | None:
    """Run the in-place method `owner`, called `name`, on `args` by a cached kernel that writes over
    the first of them, where nothing is recorded.

    None where this is not known; False where there is no such kernel, or there may be an error.
    """
    mode = get_mode()
    if not mode.plain or not isinstance(args[0], TensorBase):
        return False
    x = args[0]
    version = x._changes
    if version is INFERENCE:
        return False
    if mode.grad:
        view = x._view
        if x._node is not None or (view is not None and view.base._node is not None):
            return False
    arrays: list[Any] = []
    key = signature(owner, args, mode.grad, arrays)
    if key is None:
        return False
    executable = find(key)
    if executable is None:
        executable = find_numbered(key, owner, args, mode.grad)
        if executable is None:
            return None
    if executable.launcher is None:
        return False
    watched = version is not None and version.watchers is not None
    if watched:
        before_change(x)
    if executable.launcher.launch(arrays, executable.stream) is None:
        return False
    then = executable.then
    if then is not None and then.launcher is not None:
        then.launcher.launch(arrays)
    launches[0] += 1
    if version is None:
        version = x._changes = Version()
    if watched:
        version.bump(name)
    else:
        version.count += 1
        version.changed_by = name
    return True


def write_by_kernel(
    owner: object,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> bool:
    """Write `function(*args, **kwargs)` over the first of `args` by one kernel, compiled if need
    be. False, with nothing done, where there is none or something is recorded. `owner` is the key
    in the cache.
    """
    call_args = with_names(args, kwargs) if kwargs else args
    done = write_known(owner, name, call_args)
    if done is None:
        return write_anew(owner, name, function, args, kwargs, call_args)
    return bool(done)


def in_place(
    name: str, function: Callable[..., Any], general: Callable[..., Any]
) -> Callable[..., Any]:
    """The in-place method called `name` of `function`: run by a kernel or, where there is none, by
    `general`.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if write_by_kernel(method, name, function, (self, *args), kwargs):
            return self
        if FOLLOWED:
            said = overridden(method, (self, *args), kwargs)
            if said is not ABSENT:
                return said
        assert_tensor(name, self)
        mode = get_mode()
        try:
            if mode.watched:
                return mode.observer.in_place(name, method, (self, *args), kwargs)
            return general(self, *args, **kwargs)
        except MISTAKES as error:
            return recovered(error, method, function, (self, *args), kwargs)

    method.__name__ = method.__qualname__ = name
    return method


def copied(x: object, y: object, name: str) -> bool:
    """Copy the elements of `y` (zeros, if it is None) into `x` as one block of memory, on behalf of
    `name`. False, with nothing done, unless both are plain and alike, and `x` was changed before.
    """
    if not isinstance(x, TensorBase) or not is_copied_to(x, (y,)):
        return False
    data = x._data
    if data.nbytes > policy.COPY_HELD or data.dtype.kind == "O":
        return False
    source = None
    if y is not None:
        if not isinstance(y, TensorBase) or type(y._data) is not ndarray:
            return False
        source = y._data
    if not copy_memory(data, source):
        return False
    version = x._changes
    version.count += 1
    version.changed_by = name
    return True


def overwrite(x: T, y: TensorBase, name: str) -> T:
    """Write the value and history of `y` (of x's shape and dtype) into `x`: the end of every
    in-place operation.
    """
    data = x._data
    if y._data is not data:
        source = y._data
        if type(source) is not ndarray and isinstance(source, LazyValue) and source.rises:
            WRITERS[type(source)](x, y)
        elif type(data) is not ndarray and isinstance(data, LazyValue):
            WRITERS[type(data)](x, y)
        else:
            if not data.flags.writeable:
                raise AutogradError(f"{name}: the tensor's memory is read-only; clone it first")
            if isinstance(source, Cell):
                WRITERS[Cell](x, y)
            else:
                array = concrete(y)
                before_change(x)
                data[...] = array
    node = y._node
    owner = x if x._view is None else x._view.base
    if isinstance(node, Cell) and not isinstance(owner._data, Cell):
        node = None  # a value was written to memory outside; its history stays in the graph
    rebase(x, node, name)
    return x


def rebase(x: TensorBase, node: Target | Cell | None, name: str) -> None:
    """Give `x`, which `name` has changed, `node` as its new history."""
    version = x._changes
    if version is None:
        version = x._changes = Version()
    elif version is INFERENCE:
        return
    version.bump(name)
    mode = get_mode()
    view = x._view
    owner = None if view is None else view.owner
    if owner is None:
        owner, view = x, None
    if not mode.grad or (node is None and owner._node is None) or isinstance(owner._data, Cell):
        return
    if version.watchers is not None:
        assert_no_history(version, name)
    _move_retained(x, node)
    if view is None:
        x._node = node
    else:
        data = owner._data
        write = ViewWrite(view.ops_of_owner)
        new_node = Node(write, (owner._node, node), (), None, data.shape, data.dtype)
        _move_retained(owner, new_node)
        owner._node = new_node
    if version.views is not None:
        live = []
        for reference in version.views:
            tensor = reference()
            if tensor is not None:
                live.append(reference)
                if tensor._view is not None and tensor._view.owner is owner:
                    tensor._node = _replay(tensor._view)
        version.views = live


def _move_retained(x: TensorBase, node: Target | Cell | None) -> None:
    """Move `retain_grad` of a tensor to its new node."""
    old = x._node
    if node is not None and type(old) is Node and old.extra is not None:
        retained = old.extra.retained
        if retained is not None and retained is x._leaf:
            old.extra.retained = None
            node.get_extra().retained = retained


def _replay(view: View) -> Node | None:
    """The new node of a view whose owner has got a new node."""
    owner = view.owner
    node = None if owner is None else owner._node
    if node is None:
        return None
    spec = owner.spec
    for op in view.ops_of_owner:
        if not op.differentiable:
            return None
        result = op.infer(spec)
        saved = tuple(spec if token.startswith("spec") else None for token in op.tokens)
        node = Node(op, (node,), saved, None, result.shape, owner._data.dtype)
        spec = result
    return node


def is_copied_to(x: TensorBase, args: Iterable[Any]) -> bool:
    """Whether an in-place operation on `x` with `args` may compute its result separately and copy
    it: `x` is whole and was changed before, and nothing is recorded or watched.
    """
    mode = get_mode()
    if not mode.plain or x._node is not None or x._view is not None:
        return False
    version = x._changes
    if version is None or version is INFERENCE or version.watchers is not None:
        return False
    if type(x._data) is not ndarray:  # of a graph: what is recorded must read the old value
        return False
    if mode.grad:
        for each in args:
            if type(each) in _SEQUENCES or getattr(each, "_node", None) is not None:
                return False
    return True


_SEQUENCES = (tuple, list)  # there may be tensors in them


def values_of(x: TensorBase, why: str = "", followed: bool = False) -> Any:
    """The array of a tensor whose values Python code is about to use. In a capture, only values
    that are known there are given; they must then stay (see `known_values` of captures). Of a node
    it warns, unless the result notices other values (`followed`), or is the user's to follow.

    Errors: where they are not known there, Unsupported, which says `why` they are read and what to
    do instead; without that AutogradError, which captures say in words.
    """
    executor = get_mode().executor
    known_values = getattr(executor, "known_values", None)
    if known_values is not None:
        array = known_values(x)
        if array is not None:
            return array
    elif executor is not None and hasattr(executor, "note_check"):  # a body's, which knows none
        executor.meet(x)  # type: ignore[attr-defined]
    else:
        if not followed and isinstance(x._data, Cell):
            warn_of_read(x._data)
        return concrete(x)
    if why and isinstance(x._data, LazyValue) and x._data.array is None:
        raise Unsupported(f"compile: the function reads a value: {why}")
    return concrete(x)
