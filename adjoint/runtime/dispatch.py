"""The dispatcher: from an op and its inputs to tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..backends import numpy as backend
from ..core import policy
from ..core.argument_errors import placed
from ..core.arrays import CachedViews, signature
from ..core.errors import AdjointError
from ..core.mode import MODE, Mode
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..ir.compute import compute, compute_anew, refuse_inputs
from ..ir.executable import Executable, find, find_numbered, inputs_of, keep
from .node import INFERENCE
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

if TYPE_CHECKING:
    from ..core.tensor_type import Tensor


def apply(op: Op, *inputs: Any) -> Any:
    """Run `op` on tensors and Python numbers as the current mode requires."""
    run = MODE.get().run
    return execute(op, inputs) if run is None else run(op, inputs)


def proceed(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Run `op` by the mode's executor, after autocast has converted `inputs`."""
    executor = MODE.get().executor
    return execute(op, inputs) if executor is None else executor(op, inputs)


# Executors of ops on other data, such as recorded values: type of the data -> executor.
EXECUTORS: dict[type, Callable[[Op, tuple[Any, ...]], Any]] = {}


def execute(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Run `op` now; make a Node where an input requires a gradient."""
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


def made(op: Op, inputs: tuple[Any, ...], result: Any, records: bool, mode: Mode) -> Tensor:
    """The tensor of `result`, the array that `op` computed from `inputs`, with its node."""
    y = wrap(result, None, INFERENCE if mode.inference else None)
    if records and mode.grad:
        for x in inputs:
            if isinstance(x, TensorBase) and x._node is not None:
                y._node = record(op, inputs, parents_of(inputs), y, mode)
                break
    return y


def run_known(owner: object, args: tuple[Any, ...], by_gradient: bool = False) -> Any:
    """The result of `owner` on `args` by a cached executable, or None. An op's result is that of
    `apply`; a function's or a composite's may depend on which gradients are required
    (`by_gradient`). Arguments are not checked again: those of the first call with this signature
    were.
    """
    mode = get_mode()
    if not mode.plain:
        return None
    arrays: list[Any] = []
    tensors: list[Any] = []
    key = signature(owner, args, by_gradient and mode.grad, arrays, tensors)
    if key is None:
        return None
    executable = find(key)
    if executable is None:
        executable = find_numbered(key, owner, args, by_gradient and mode.grad)
        if executable is None:
            return None
    inputs = args if executable.op is owner else inputs_of(executable, tensors)
    if executable.launcher is not None:
        result = executable.launcher.launch(arrays, executable.stream)
    elif executable.viewer is not None:
        return viewed(executable.op, tensors[0], executable.viewer.view(arrays[0]), mode)
    elif executable.viewers is not None:
        viewers = executable.viewers
        return _views(executable.op, tensors[0], viewers.views(arrays[0]), viewers.singles, mode)
    elif executable.op is owner:
        result = executable.launch(*[x._data if isinstance(x, TensorBase) else x for x in args])
    else:
        result = executable.launch(*arrays)
    if result is None:
        return None
    if type(result) is not ndarray:
        return executable.op.finished(tensors, result)
    return made(executable.op, inputs, result, executable.records, mode)


def finish(
    op: Op, inputs: tuple[Any, ...], result: Any, parents: Sequence[Any], wants: bool
) -> Any:
    """The tensor of `result`, the value of `op` on `inputs` (a tuple of tensors for several
    outputs), with its node and view.
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
    op: Op,
    inputs: tuple[Any, ...],
    results: Iterable[Any],
    parents: Sequence[Any],
    wants: bool,
    mode: Mode,
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


def _views(
    op: Op, x: TensorBase, results: list[Any], singles: Sequence[Op], mode: Mode
) -> tuple[Tensor, ...]:
    """The tensors of arrays that view the memory of tensor `x`: all outputs of `op`."""
    tensors = []
    for k in range(len(results)):
        y = wrap(results[k])
        mark_view(y, x, singles[k], ONE_OF_SEVERAL_VIEWS)
        tensors.append(y)
    ys = tuple(tensors)
    if x._node is not None and mode.grad and op.differentiable:
        _record_several(op, (x,), (x._node,), ys, mode)
    return ys


def remember_views(op: Op, inputs: tuple[Any, ...], results: Sequence[Any]) -> None:
    """Cache how `op` makes such views, for `run_known`."""
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
        keep(key, Executable(CachedViews(results, data, compute, singles), op, op, True))


def apply_view(op: Op, x: TensorBase) -> Tensor:
    """`execute` for a view op of one output on one tensor, written out flat for speed."""
    mode = get_mode()
    if not mode.plain:
        return apply(op, x)
    source = x._data
    if type(source) is not ndarray:
        return apply(op, x)
    try:
        result = op.compute(backend, source)
    except AdjointError as error:
        raise placed(error) from error.__cause__
    except Exception:
        refuse_inputs(op, (x.spec,))
        raise
    if result.base is source or shares_storage(result, x, op):
        return viewed(op, x, result, mode)
    y = wrap(result)
    node = x._node
    if node is not None and mode.grad and op.differentiable:
        y._node = node_of_view(op, x, result)
    return y
