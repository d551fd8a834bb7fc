"""Calls of composites, and of functions that check their arguments, which were launched before.

What such a call does depends on the shapes, dtypes and wanted gradients of its tensors, and on its
other arguments. So for equal ones it is known what to launch, and that nothing is wrong.
"""

from __future__ import annotations

import functools
from types import BuiltinFunctionType
from typing import Any, NamedTuple

import numpy as np

from ..core.handle import Handle
from ..core.op import Op
from ..program import compute as core_compute
from ..program import fused
from ..program.compute import launchers
from ..program.fused import WANTED
from .tape import _made, get_mode, parents_of

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
    for x in _flat(args):
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
        elif type(x) is _Sequence:
            key += x
        else:
            kind = type(x)
            key.append(kind)
            key.append(repr(x) if kind is float and not x else x)  # 0.0 and -0.0 are equal
    try:
        found = known.get(tuple(key))
    except TypeError:  # a list, say
        return None
    if found is None or core_compute.accelerate is None:
        return None
    launch, op, always = found
    if arrays[0].size < fused.SMALLEST and not always:
        return None
    result = launch(*arrays)
    if result is None:
        return None
    if isinstance(result, (tuple, list)):
        return op.finished(inputs, result)
    return _made(op, tuple(inputs), result, parents_of(tuple(inputs)) if wants else None, mode)


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


def keep(known: dict[Any, Any], key: Any, launch: Any, op: Op, always: bool = False) -> None:
    """Let `launched` call `launch`, which gives what `op` gives; `always`: for small arrays too."""
    if len(known) >= _MOST:
        known.clear()
    known[key] = launch, op, always


def learn(known: dict[Any, Any], args: tuple[Any, ...], what: Any, inputs: list[Any]) -> None:
    """A function was called with `args`, and applied `what` (an op or a composite) to `inputs`: the
    next time it need not run, if what was applied was launched to just the tensors among `args`.
    """
    tensors = [x for x in inputs if isinstance(x, Handle)]
    if [id(x) for x in _flat(args) if isinstance(x, Handle)] != [id(x) for x in tensors]:
        return
    if not get_mode().plain or not tensors or any(type(x._data) is not ndarray for x in tensors):
        return
    try:
        if isinstance(what, Op):
            if what.view or what.n_outputs != 1:
                return
            shapes = [x._data.shape if isinstance(x, Handle) else x or repr(x) for x in inputs]
            launch = launchers.get((id(what), *shapes))
            if len(tensors) < len(inputs) and not (_is_machine_code(launch) and _is_alone(tensors)):
                return
            found = launch, what, True
        else:
            found = what.declared.known.get(key_of(inputs), (None,))
        if found[0] is not None:
            keep(known, key_of(args), *found)
    except TypeError:  # an argument that cannot be in a key
        return


def _is_machine_code(launch: Any) -> bool:
    """Whether it passes over numbers, which it knows."""
    function = launch.args[0] if type(launch) is functools.partial else launch
    return type(function) is BuiltinFunctionType


def _is_alone(tensors: list[Any]) -> bool:
    """Whether no gradient is wanted, which would need the numbers too."""
    return not get_mode().grad or all(x._node is None for x in tensors)


fused.connect_calls(launched, learn)
