"""Calls of composites, and of functions that check their arguments, which were launched before.

What such a call does depends on the shapes, dtypes and wanted gradients of its tensors, and on its
other arguments. So for equal ones it is known what to launch, and that nothing is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import compute as core_compute
from ..core import fused
from ..core.compute import launchers
from ..core.fused import WANTED
from ..core.handle import Handle
from ..core.op import Op
from .tape import _made, get_mode

__all__ = ["key_of", "learn"]

ndarray = np.ndarray
_MOST = 1024  # calls of one function that are known


def launched(known: dict[Any, Any], args: tuple[Any, ...]) -> Any:
    """What a function gives for `args`, where it is `known` what to launch, else None."""
    mode = get_mode()
    if not mode.plain:
        return None
    grad = mode.grad
    wants = False
    key: list[Any] = []
    inputs: list[Any] = []
    arrays: list[Any] = []
    for x in args:
        if isinstance(x, Handle):
            data = x._data
            if type(data) is not ndarray:
                return None
            inputs.append(x)
            arrays.append(data)
            key.append(data.shape)
            key.append(data.dtype)
            if grad and x._node is not None:
                wants = True
                key.append(WANTED)
        elif x is None:
            key.append(None)
        else:
            kind = type(x)
            key.append(kind)
            key.append(repr(x) if kind is float and not x else x)  # 0.0 and -0.0 are equal
    try:
        found = known.get(tuple(key))
    except TypeError:  # a list, say
        return None
    if found is None or core_compute.accelerate is None or arrays[0].size < fused.SMALLEST:
        return None
    launch, op = found
    result = launch(*arrays)
    if type(result) is ndarray:
        return _made(op, tuple(inputs), result, wants, mode)
    return None if result is None else op.finished(inputs, result)


def key_of(args: Any) -> Any:
    """The key that `launched` makes of arguments."""
    grad = get_mode().grad
    key: list[Any] = []
    for x in args:
        if isinstance(x, Handle):
            key += (x._data.shape, x._data.dtype)
            if grad and x._node is not None:
                key.append(WANTED)
        elif x is None:
            key.append(None)
        else:
            key += (type(x), repr(x) if type(x) is float and not x else x)
    return tuple(key)


def keep(known: dict[Any, Any], key: Any, launch: Any, op: Op) -> None:
    """Let `launched` call `launch`, which gives what `op` gives."""
    if len(known) >= _MOST:
        known.clear()
    known[key] = launch, op


def learn(known: dict[Any, Any], args: tuple[Any, ...], what: Any, inputs: list[Any]) -> None:
    """A function was called with `args`, and applied `what` (an op or a composite) to `inputs`: the
    next time it need not run, if what was applied was launched to just the tensors among `args`.
    """
    tensors = [x for x in inputs if isinstance(x, Handle)]
    if [id(x) for x in args if isinstance(x, Handle)] != [id(x) for x in tensors]:
        return
    if not get_mode().plain or not tensors or any(type(x._data) is not ndarray for x in tensors):
        return
    try:
        if isinstance(what, Op):
            if what.view or what.n_outputs != 1 or len(tensors) < len(inputs):
                return
            found = launchers.get((id(what), *[x._data.shape for x in tensors])), what
        else:
            found = what.declared.known.get(key_of(inputs), (None, None))
        if found[0] is not None:
            keep(known, key_of(args), *found)
    except TypeError:  # an argument that cannot be in a key
        return


fused.connect_calls(launched, learn)
