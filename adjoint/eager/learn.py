"""What is learnt from calls of functions: what they launched, or how they viewed.

What such a call does depends on the shapes, dtypes and wanted gradients of its tensors, and on its
other arguments. So for equal ones it is known what to launch, and that nothing is wrong.
"""

from __future__ import annotations

import functools
from typing import Any

from ..backends import numpy as backend
from ..core import policy
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..program.compute import draws
from ..program.executable import Executable, find, keep
from . import tensors as making
from .arrays import Viewer, signature
from .tensors import get_mode, ndarray


def keep_call(
    owner: Any, args: tuple[Any, ...], launch: Any, op: Op, records: bool, constants: Any = None
) -> None:
    """Let `run_known` call `launch` for such arguments, which gives what `op` gives."""
    key = signature(owner, args, get_mode().grad, [])
    if key is not None:
        keep(key, Executable(launch, owner, op, records, constants))


def learn(owner: Any, args: tuple[Any, ...], what: Any, inputs: list[Any]) -> None:
    """A function was called with `args`, and applied `what` (an op or a composite) to `inputs`: the
    next time it need not run, if what was applied was launched to just the tensors among `args`.
    """
    mode = get_mode()
    tensors = [x for x in inputs if isinstance(x, TensorBase)]
    constants = None
    if isinstance(what, Op):
        if what.view or what.n_outputs != 1:
            return
        key = signature(what, inputs, False, [])
        if len(tensors) < len(inputs):
            constants = tuple([None if isinstance(x, TensorBase) else x for x in inputs])
    else:
        key = signature(what.declared, inputs, mode.grad, [])
    found = None if key is None else find(key)
    if found is None or (constants is not None and found.launcher is None):
        return
    given: list[Any] = []
    called = signature(owner, args, mode.grad, [], given)
    if called is None or not mode.plain or not tensors or len(given) != len(tensors):
        return
    if any(x is not y for x, y in zip(given, tensors, strict=True)):
        return
    keep(called, Executable(found.launch, owner, found.op, found.records, constants))


def learn_view(owner: Any, args: tuple[Any, ...], y: Any) -> None:
    """A function gave `y` for `args`: the next time it need not run, if that is a view of the only
    tensor among them, by one op.
    """
    x = args[0] if args else None
    if (
        type(y) is not making.Tensor
        or not isinstance(x, TensorBase)
        or type(x._data) is not ndarray
    ):
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


def learn_new(owner: Any, args: tuple[Any, ...], y: Any, draw: Any) -> None:
    """A function made `y` of `args`: the next time it need not run, if `y` is small, and nothing
    more was asked for. `draw`: the op of which `y` is all that it draws, and from what.
    """
    data = getattr(y, "_data", None)
    if type(data) is not ndarray or not 0 < data.nbytes <= policy.TEMPLATE or y._node is not None:
        return
    if type(y) is not making.Tensor or not data.flags.c_contiguous:
        return
    tensors: list[Any] = []
    key = signature(owner, args, False, [], tensors)
    if key is None or tensors:
        return
    if draw is None:
        keep(key, Executable(data.copy().copy, owner, None, False))
        return
    kind, stream = draw
    found = draws.get((kind, (data.shape, y.dtype)))
    if found is not None and stream.twister is None:
        keep(key, Executable(found.run, owner, None, False, None, stream))
