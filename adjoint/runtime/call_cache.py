"""Filling the cache of executables from calls of public functions: what they launched, or how they
viewed.

What such a call does depends on the shapes, dtypes and wanted gradients of its tensors, and on its
other arguments. So for equal ones it is known what to launch, and that nothing is wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..backends import numpy as backend
from ..core import policy
from ..core.arrays import CachedView, PhiloxState, signature
from ..core.dtype import dtype
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..ir.compute import draws
from ..ir.executable import Executable, keep, peek
from . import tensors as making
from .tensors import get_mode, ndarray


def keep_call(
    owner: object,
    args: tuple[Any, ...],
    launch: Callable[..., Any],
    op: Op,
    records: bool,
    constants: tuple[Any, ...] | None = None,
) -> None:
    """Cache `launch`, which computes what `op` does, for calls of `owner` with such arguments."""
    key = signature(owner, args, get_mode().grad, [])
    if key is not None:
        keep(key, Executable(launch, owner, op, records, constants))


def learn(owner: object, args: tuple[Any, ...], what: Any, inputs: list[Any]) -> None:
    """Learn from a call of `owner` with `args`, which applied `what` (an op or a composite) to
    `inputs`: later calls launch the same executable directly, if its operands are exactly the
    tensors among `args`.
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
    executable = None if key is None else peek(key)
    if executable is None or (constants is not None and executable.launcher is None):
        return
    passed: list[Any] = []
    called = signature(owner, args, mode.grad, [], passed)
    if called is None or not mode.plain or not tensors or len(passed) != len(tensors):
        return
    if any(x is not y for x, y in zip(passed, tensors, strict=True)):
        return
    keep(called, Executable(executable.launch, owner, executable.op, executable.records, constants))


def learn_view(owner: object, args: tuple[Any, ...], y: Any) -> None:
    """Learn from a call with `args` that returned `y`: later calls make the view directly, if `y`
    is a view, by one op, of the only tensor among `args`.
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
        viewer = CachedView(y._data, x._data, functools.partial(view.op.compute, backend))
        keep(key, Executable(viewer, owner, view.op, view.op.differentiable))


def learn_new(
    owner: object, args: tuple[Any, ...], y: Any, draw: tuple[type[Op], Any] | None
) -> None:
    """Learn from a call with `args` that created `y`: later calls copy it, if `y` is small and has
    no other options. `draw`: the op, and its generator, if `y` is all that it draws.
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
    draw_function = draws.peek((kind, (data.shape, y.dtype)))
    if stream.twister is not None:
        call = functools.partial(_followed, stream, kind.__name__.lower(), data.shape, y.dtype)
        keep(key, Executable(call, owner, None, False))
    elif draw_function is not None:
        keep(key, Executable(draw_function.run, owner, None, False, None, stream))


def _followed(
    stream: PhiloxState, method: str, shape: tuple[int, ...], dtype: dtype
) -> ndarray | None:
    """The next numbers of PyTorch's generator; None where the stream is none of its any more."""
    twister = getattr(stream, "twister", None)
    if twister is None:
        return None
    stream.draws += 1
    drawn: ndarray = twister.draw(method, (), shape, dtype, None)
    return drawn
