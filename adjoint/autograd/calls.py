"""Calls of composites, and of functions that check their arguments, which were launched before.

What such a call does depends on the shapes, dtypes and wanted gradients of its tensors, and on its
other arguments. So for equal ones it is known what to launch, and that nothing is wrong.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ..backends import numpy as backend
from ..core.handle import Handle
from ..core.op import Op
from ..eager.arrays import Viewer, signature
from ..program import fused
from ..program.executable import Executable, find, inputs_of, keep
from ..program.fused import WANTED
from . import tape
from .tape import get_mode, made, viewed

__all__ = ["keep_call", "key_of", "learn"]

ndarray = np.ndarray


def launched(owner: Any, args: tuple[Any, ...]) -> Any:
    """What the function `owner` gives for `args`, where it is known what to launch, else None."""
    mode = get_mode()
    if not mode.plain:
        return None
    arrays: list[Any] = []
    tensors: list[Any] = []
    key = signature(owner, args, mode.grad, arrays, tensors)
    if key is None:
        return None
    found = find(key)
    if found is None:
        return None
    if found.launcher is not None:
        result = found.launcher.launch(arrays)
    elif found.viewer is not None:
        return viewed(found.op, tensors[0], found.viewer.view(arrays[0]), mode)
    else:
        result = found.launch(*arrays)
    if result is None:
        return None
    if type(result) is not ndarray:
        return found.op.finished(tensors, result)
    return made(found.op, inputs_of(found, tensors), result, found.records, mode)


def key_of(args: Any) -> Any:
    """The key that `launched` makes of arguments."""
    grad = get_mode().grad
    key: list[Any] = []
    for x in _flat(args):
        if isinstance(x, Handle):
            key += (x._data.shape, x._data.dtype)
            if grad and x._node is not None:
                key.append(WANTED)
        elif x is None:
            key.append(None)
        elif type(x) is _Sequence:
            key += x
        else:
            key += (type(x), repr(x) if type(x) is float and not x else x)
    return tuple(key)


class _Sequence(NamedTuple):
    """Among arguments: that a tuple or list comes, and of how many."""

    kind: type
    length: int


def _flat(args: Any) -> list[Any]:
    """The arguments, of tuples and lists the items."""
    flat: list[Any] = []
    for x in args:
        if type(x) is tuple or type(x) is list:
            flat.append(_Sequence(type(x), len(x)))
            flat += x
        else:
            flat.append(x)
    return flat


def keep_call(
    owner: Any, args: tuple[Any, ...], launch: Any, op: Op, records: bool, constants: Any = None
) -> None:
    """Let `launched` call `launch` for such arguments, which gives what `op` gives."""
    key = signature(owner, args, get_mode().grad, [])
    if key is not None:
        keep(key, Executable(launch, owner, op, records, constants))


def learn(owner: Any, args: tuple[Any, ...], what: Any, inputs: list[Any]) -> None:
    """A function was called with `args`, and applied `what` (an op or a composite) to `inputs`: the
    next time it need not run, if what was applied was launched to just the tensors among `args`.
    """
    tensors = [x for x in inputs if isinstance(x, Handle)]
    if [id(x) for x in _flat(args) if isinstance(x, Handle)] != [id(x) for x in tensors]:
        return
    mode = get_mode()
    if not mode.plain or not tensors:
        return
    constants = None
    if isinstance(what, Op):
        if what.view or what.n_outputs != 1:
            return
        key = signature(what, inputs, False, [])
        if len(tensors) < len(inputs):
            constants = tuple([None if isinstance(x, Handle) else x for x in inputs])
    else:
        key = signature(what.declared, inputs, mode.grad, [])
    found = None if key is None else find(key)
    if found is None or (constants is not None and found.launcher is None):
        return
    keep_call(owner, args, found.launch, found.op, found.records, constants)


def learn_view(owner: Any, args: tuple[Any, ...], y: Any) -> None:
    """A function gave `y` for `args`: the next time it need not run, if that is a view of the only
    tensor among them, by one op.
    """
    x = args[0] if args else None
    if type(y) is not tape.Tensor or not isinstance(x, Handle) or type(x._data) is not ndarray:
        return
    view = y._view
    mode = get_mode()
    if view is None or y is x or type(y._data) is not ndarray or not mode.plain:
        return
    before = x._view
    if view.base is not (x if before is None else before.base) or view.above is not before:
        return
    tensors: list[Any] = []
    key = signature(owner, args, mode.grad, [], tensors)
    if key is not None and len(tensors) == 1:
        viewer = Viewer(y._data, x._data, functools.partial(view.op.compute, backend))
        keep(key, Executable(viewer, owner, view.op, view.op.differentiable))


fused.connect_calls(launched, learn, learn_view)
