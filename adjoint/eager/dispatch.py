"""The dispatcher: from an op and its inputs to tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..backends import numpy as backend
from ..core import policy
from ..core.errors import AdjointError
from ..core.mode import MODE, Mode
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..graph.node import INFERENCE
from ..program.compute import compute, compute_anew
from ..program.executable import Executable, find, find_numbered, inputs_of, keep
from .arrays import Viewers, signature
from .record import item, parents_of, record
from .tensors import as_array, get_mode, ndarray, wrap
from .views import (
    ONE_OF_SEVERAL_VIEWS,
    UNRECORDED_VIEW,
    mark_view,
    node_of_view,
    shares_storage,
    viewed,
)


def apply(op: Op, *inputs: Any) -> Any:
    """Run `op` on tensors and Python numbers, the way the current mode says."""
    run = MODE.get().run
    return execute(op, inputs) if run is None else run(op, inputs)


def proceed(op: Op, inputs: tuple[Any, ...]) -> Any:
    """What `apply` does after autocast has converted `inputs`."""
    executor = MODE.get().executor
    return execute(op, inputs) if executor is None else executor(op, inputs)


# How ops run on data of other types: recorded values. (type of the data -> executor)
EXECUTORS: dict[type, Callable[[Op, tuple[Any, ...]], Any]] = {}


def execute(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Run `op` now; make a Node where an input wants a gradient."""
    view, several = op.view, op.n_outputs != 1
    if view == several:  # neither, or several views
        y = run_known(op, inputs)
        if y is not None:
            return y
    arrays = []
    wants = False
    for x in inputs:
        if isinstance(x, TensorBase):
            data = x._data
            if type(data) is not ndarray and type(data) in EXECUTORS:
                return EXECUTORS[type(data)](op, inputs)
            arrays.append(data)
            if x._node is not None:
                wants = True
        else:
            arrays.append(x)
    result = compute(op, arrays) if several and not view else compute_anew(op, arrays)
    if view and several:
        remember_views(op, inputs, result)
    if view or several:
        return finish(op, inputs, result, parents_of(inputs), wants)
    mode = get_mode()
    if type(result) is not ndarray:
        result = as_array(result)
    records = op.differentiable and result.dtype.kind in "fcV"
    return made(op, inputs, result, records, mode)


def made(op: Op, inputs: tuple[Any, ...], result: Any, records: bool, mode: Mode) -> Any:
    """The tensor of `result`, an array of its own: what `op` gives for `inputs`."""
    y = wrap(result, None, INFERENCE if mode.inference else None)
    if records and mode.grad:
        for x in inputs:
            if isinstance(x, TensorBase) and x._node is not None:
                y._node = record(op, inputs, parents_of(inputs), y, mode)
                break
    return y


def run_known(owner: Any, args: tuple[Any, ...], by_gradient: bool = False) -> Any:
    """What `owner` gives for `args`, where it is known what computes it for arguments like these,
    else None. An op gives what `apply` does; a function or a composite what it gave before, of
    which what is wanted (`by_gradient`) may decide. What was computed before was checked then.
    """
    mode = get_mode()
    if not mode.plain:
        return None
    arrays: list[Any] = []
    tensors: list[Any] = []
    key = signature(owner, args, by_gradient and mode.grad, arrays, tensors)
    if key is None:
        return None
    found = find(key)
    if found is None:
        found = find_numbered(key, owner, args, by_gradient and mode.grad)
        if found is None:
            return None
    inputs = args if found.op is owner else inputs_of(found, tensors)
    if found.launcher is not None:
        result = found.launcher.launch(arrays, found.stream)
    elif found.viewer is not None:
        return viewed(found.op, tensors[0], found.viewer.view(arrays[0]), mode)
    elif found.viewers is not None:
        viewers = found.viewers
        return _views(found.op, tensors[0], viewers.views(arrays[0]), viewers.singles, mode)
    elif found.op is owner:
        result = found.launch(*[x._data if isinstance(x, TensorBase) else x for x in args])
    else:
        result = found.launch(*arrays)
    if result is None:
        return None
    if type(result) is not ndarray:
        return found.op.finished(tensors, result)
    return made(found.op, inputs, result, found.records, mode)


def finish(
    op: Op, inputs: tuple[Any, ...], result: Any, parents: Sequence[Any], wants: bool
) -> Any:
    """The tensor of `result`, the value of `op` on `inputs` (a tuple of them for several outputs),
    with the node and the view that it is.
    """
    mode = get_mode()
    if op.n_outputs != 1:
        return _wrap_several(op, inputs, result, parents, wants, mode)
    y = wrap(as_array(result))
    if op.view and shares_storage(result, inputs[0], op):
        mark_view(y, inputs[0], op, "" if mode.grad else UNRECORDED_VIEW)
    if wants and mode.grad and op.differentiable and y._data.dtype.kind in "fcV":
        y._node = record(op, inputs, tuple(parents), y, mode)
    if mode.inference and y._changes is None:
        y._changes = INFERENCE
    return y


def _wrap_several(
    op: Op, inputs: tuple[Any, ...], results: Any, parents: Sequence[Any], wants: bool, mode: Mode
) -> tuple[Any, ...]:
    ys = tuple([wrap(as_array(r)) for r in results])
    if op.view:
        singles = op.output_views(inputs[0]._data.shape)
        for y, single in zip(ys, singles, strict=True):
            if shares_storage(y._data, inputs[0], single):
                mark_view(y, inputs[0], single, ONE_OF_SEVERAL_VIEWS)
    if wants and mode.grad and op.differentiable:
        _record_several(op, inputs, parents, ys, mode)
    if mode.inference:
        for y in ys:
            if y._changes is None:
                y._changes = INFERENCE
    return ys


def _record_several(
    op: Op, inputs: tuple[Any, ...], parents: Sequence[Any], ys: tuple[Any, ...], mode: Mode
) -> None:
    node = record(op, inputs, tuple(parents), ys, mode)
    for i, y in enumerate(ys):
        y._node = item(node, i, y._data)


def _views(op: Op, x: Any, results: list[Any], singles: Sequence[Op], mode: Mode) -> Any:
    """The tensors of arrays that show the memory of tensor `x`, as `op` gives them all."""
    found = []
    for k in range(len(results)):
        y = wrap(results[k])
        mark_view(y, x, singles[k], ONE_OF_SEVERAL_VIEWS)
        found.append(y)
    ys = tuple(found)
    if x._node is not None and mode.grad and op.differentiable:
        _record_several(op, (x,), (x._node,), ys, mode)
    return ys


def remember_views(op: Op, inputs: tuple[Any, ...], results: Sequence[Any]) -> None:
    """Let `run_known` give views like those that `op` has given."""
    x = inputs[0]
    data = x._data
    if len(inputs) > 1 or type(data) is not ndarray or not get_mode().plain:
        return
    if len(results) > policy.VIEWS:
        return
    singles = tuple(op.output_views(data.shape))
    for y, single in zip(results, singles, strict=True):
        if type(y) is not ndarray or y.size == 0 or not shares_storage(y, x, single):
            return
    key = signature(op, inputs, False, [], [])
    if key is not None:
        compute = functools.partial(op.compute, backend)
        keep(key, Executable(Viewers(results, data, compute, singles), op, op, True))


def apply_view(op: Op, x: Any) -> Any:
    """What `execute` does for a view op of one output on a tensor, written out flat."""
    mode = get_mode()
    if not mode.plain:
        return apply(op, x)
    source = x._data
    if type(source) is not ndarray:
        return apply(op, x)
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
        y._node = node_of_view(op, x, result)
    return y
