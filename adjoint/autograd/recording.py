"""Executors that record ops: lazily (`lazy`), or as the cells of a graph (`Recorder`).

Both take the place of eager execution in `apply`, and give tensors whose data is a recorded value.
A lazy tensor has the tape's nodes, exactly as an eager one; a tensor of a graph has its cell as
node, and gradients are found from the cells themselves (refreshing.py), which may be edited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.device import is_device_array
from ..core.errors import GraphError, Unsupported
from ..core.mode import MODE
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..runtime.cells import (
    Cell,
    GraphState,
    SourceCell,
    new_cell,
    notice_foreign_writes,
    warn_of_change,
)
from ..runtime.dispatch import EXECUTORS, execute, finish
from ..runtime.lazy import LazyValue, concrete, given, realize, record, shown, specs_of
from ..runtime.node import INFERENCE, Item, Version
from ..runtime.op_functions import takes_number
from ..runtime.tensors import wrap
from ..runtime.views import ONE_OF_SEVERAL_VIEWS, UNRECORDED_VIEW, mark_view, shares_storage
from ..runtime.writes import ViewWrite, write_part
from .modes import _Bare

if TYPE_CHECKING:
    from ..core.tensor_type import Tensor
    from ..runtime.fused import Declared
    from .protocols import BackendArray

__all__ = ["Recorder", "execute_meanwhile", "lazy", "realize_all", "source_of"]

ndarray = np.ndarray


# ---- lazy ----------------------------------------------------------------------------------------


def execute_lazily(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Record `op`; its value is computed when something reads it."""
    values: list[Any] = []
    parents: list[Any] = []
    wants = False
    for x in inputs:
        if isinstance(x, TensorBase):
            data = x._data
            if type(data) is ndarray or is_device_array(data):
                data = _given(x)
            elif type(data) is not LazyValue:
                return EXECUTORS[type(data)](op, inputs)
            node = x._node
            wants = wants or node is not None
            values.append(data)
            parents.append(node)
        else:
            values.append(x)
            parents.append(None)
    return finish(op, inputs, record(op, tuple(values)), parents, wants)


def execute_meanwhile(op: Op, inputs: tuple[Any, ...]) -> Any:
    """`execute_lazily` while the program runs on. Memory that others may write to unseen is
    recorded with its present contents; a view of it shares it, whatever is written there.
    """
    foreign = False
    operands = list(inputs)
    for i, x in enumerate(inputs):
        data: Any = x._data if isinstance(x, TensorBase) else None
        if type(data) is ndarray:
            memory = x._changes
        else:
            memory = data.memory if type(data) is LazyValue else None
        if memory is not None and memory.exported:
            foreign = True
            if not op.view:
                value = LazyValue(None, (), data.shape, data.dtype)
                array = concrete(x) if type(data) is ndarray else data.realize()
                value.array = array.copy(order="K")
                operands[i] = wrap(value, x._node)
    y = execute_lazily(op, tuple(operands))
    if foreign and op.view:
        realize([each._data for each in (y if type(y) is tuple else (y,))])
    return y


def is_captured(*tensors: Any) -> bool:
    """Whether a computation on `tensors` is recorded to be repeated for later values: in a graph,
    or where a function is captured. A lazy recording is computed once, when it is read.
    """
    mode = MODE.get()
    if mode.executor is None:
        return any(isinstance(x._data, Cell) for x in tensors)
    return mode.executor is not mode.step and mode.executor is not execute_meanwhile


def _given(x: TensorBase) -> LazyValue:
    version = x._changes
    if version is None:
        version = x._changes = Version()
    elif version is INFERENCE:
        value = LazyValue(None, (), x._data.shape, x._data.dtype, x.device)
        value.array = x._data.copy()
        return value
    return given(x, version)


def settle_and_execute(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    """Run `op` on lazy tensors outside `lazy`, at once."""
    executor = MODE.get().executor
    if executor is not None:
        return executor(op, inputs)
    for x in inputs:
        if isinstance(x, TensorBase) and isinstance(x._data, Cell):
            return EXECUTORS[Cell](op, inputs)
    for x in inputs:
        if isinstance(x, TensorBase):
            concrete(x)
    return execute(op, inputs)


class lazy(_Bare):  # noqa: N801 - like no_grad
    """Context manager: operations are recorded instead of run; values are computed when they are
    read.

    Shapes, dtypes and their errors are known at once. Reading (`item`, `numpy`, `print`, `bool`, an
    in-place write to memory that existed before, `adjoint.realize`) computes what it needs, each
    operation once. Values are those of eager execution, random numbers included.

    >>> with ad.lazy():
    ...     y = ad.ones(2) * 3  # not computed
    ...     unused = y / 0  # never computed
    >>> y
    tensor([3., 3.])
    """

    changes = {"executor": execute_meanwhile}  # noqa: RUF012 - never changed


def realize_all(*tensors: Any) -> Any:
    """Compute lazy tensors, or stale tensors of a graph, now; returns them.

    Shapes: any number of tensors; eager ones are left as they are.
    Errors: what the recorded operations raise.

    >>> with ad.lazy():
    ...     a = ad.ones(2) + 1
    >>> ad.realize(a)
    tensor([2., 2.])
    """
    realize([x._data for x in tensors if isinstance(x, TensorBase) and type(x._data) is LazyValue])
    for x in tensors:
        if isinstance(x, TensorBase):
            concrete(x)
    return tensors[0] if len(tensors) == 1 else tensors


def write_lazily(x: Tensor, y: Tensor) -> None:
    """Write the value of `y` to the lazy tensor `x`; its base and views see it."""
    value = y._data if type(y._data) is LazyValue else _given(y)
    view = x._view
    if view is None:
        x._data = value
    else:
        base = view.base
        if not isinstance(base._data, LazyValue):
            write_part(np, base._data, view.ops, value.realize())
            _show(x, base._data)
            return
        if any(op.overlaps for op in view.ops):
            raise Unsupported(
                "a write to windows (unfold, as_strided), in which an element may stand twice, is "
                "not recorded: write to a clone, or to what they are windows of"
            )
        value = base._data = record(ViewWrite(view.ops), (base._data, value))
    _show(x, value)


def _show(x: Tensor, value: object) -> None:
    """Update all tensors of the storage of `x`, whose base now holds `value`."""
    for reference in (x._changes.views or ()) if x._changes is not None else ():
        other = reference()
        if other is None or (other is x and x._view is None):
            continue
        if not isinstance(value, LazyValue):
            if isinstance(other._data, LazyValue):
                other._data = value if other._view is None else shown(value, other._view)
            continue
        part = value
        for op in () if other._view is None else other._view.ops:
            part = record(op, (part,))
        other._data = part


# ---- graphs --------------------------------------------------------------------------------------


class Recorder:
    """The executor inside `with graph:`, by which ops become cells of that graph."""

    __slots__ = ("state",)

    def __init__(self, state: GraphState) -> None:
        self.state = state

    def note_read(self) -> None:
        """Count that the program read a value, on which later recordings may depend."""
        self.state.reads += 1

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """Record `op` as a cell."""
        return record_cell(self.state, op, inputs)

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """Record the ops of a composite."""
        from .regions import record_composite  # which records by these

        return record_composite(self.state, declared, args)


def record_where_inputs_are(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    step = MODE.get().step
    if step is not None:
        return execute(op, tuple(step.pinned(inputs)))
    for x in inputs:
        if isinstance(x, TensorBase) and isinstance(x._data, Cell):
            return record_cell(x._data.state, op, inputs)
    raise AssertionError("no input is of a graph")


def record_cell(state: GraphState, op: Op, inputs: tuple[Any, ...]) -> Any:
    """Record `op` as a cell of the graph; returns its tensor (a tuple of them for several outputs).

    Errors: those of `op.infer`; GraphError for inputs of two graphs or of a removed node.
    """
    mode = MODE.get()
    if op.copies and not (state.calling or (mode.grad and _follows(inputs[0]))):
        return execute(op, (wrap(concrete(inputs[0])),))
    with state.lock:
        values: list[Any] = []
        cut: list[int] = []
        for i, x in enumerate(inputs):
            if isinstance(x, TensorBase):
                data = x._data
                cell: Cell
                if not isinstance(data, Cell):
                    cell = source_of(state, x)
                    if cell.tracked and x._node is None:  # what a block recorded of memory
                        cut.append(i)
                else:
                    cell = data
                    if cell.state is not state:
                        raise _two_graphs(op)
                    if cell.op is None:
                        cell.assert_there(op.name)
                    if cell.stale and not state.planning:  # by a program, not by a gradient
                        warn_of_change(cell, "is used again")
                    if x._node is None and _may_have_gradient(cell, x):
                        cut.append(i)
                values.append(cell)
            else:
                values.append(x)
        inferred = op.infer(*specs_of(values))
        differentiable = mode.grad and op.differentiable
        if isinstance(inferred, Spec):
            cell = new_cell(
                state, op, tuple(values), inferred.shape, inferred.dtype.numpy, inferred.device
            )
            cell.tracked = differentiable and cell.dtype.kind in "fcV"
            if cut:
                cell.cut = tuple(cut)
            if not mode.grad:
                cell.pass_by()
            y = wrap(cell, cell if cell.tracked else None)
            if op.view and shares_storage(cell, inputs[0], op):
                mark_view(y, inputs[0], op, "" if mode.grad else UNRECORDED_VIEW)
            return y
        whole = Cell(state, op, tuple(values), (), None)
        whole.tracked = differentiable
        if cut:
            whole.cut = tuple(cut)
        if not mode.grad:
            whole.pass_by()
        ys = []
        for i, spec in enumerate(inferred):
            cell = Cell(state, Item(i), (whole,), spec.shape, spec.dtype.numpy, spec.device)
            cell.tracked = differentiable and cell.dtype.kind in "fcV"
            cell.fleeting = whole.fleeting
            ys.append(wrap(cell, cell if cell.tracked else None))
        if op.view:
            for y, single in zip(ys, op.output_views(inputs[0]._data.shape), strict=True):
                mark_view(y, inputs[0], single, ONE_OF_SEVERAL_VIEWS)
        return tuple(ys)


def record_pair(
    op: Op, dtypes: dict[Any, int], boolean: bool, input: Any, other: Any
) -> Tensor | None:
    """`record_cell` for the usual operands of an elementwise op: two cells of one shape and dtype
    (of `dtypes`), or one and a number. None for other operands.
    """
    mode = MODE.get()
    if mode.step is not None:
        return None
    a = input._data if isinstance(input, TensorBase) else input
    b = other._data if isinstance(other, TensorBase) else other
    if isinstance(a, Cell):
        first = a
        if isinstance(b, Cell):
            second = b
            if first.dtype not in dtypes or first.shape != second.shape:
                return None
            if first.dtype is not second.dtype or first.state is not second.state:
                return None
            if _is_special(second, other):
                return None
        elif not takes_number(dtypes.get(first.dtype), b):
            return None
        if _is_special(first, input):
            return None
    elif isinstance(b, Cell):
        first = b
        if not takes_number(dtypes.get(first.dtype), a) or _is_special(first, other):
            return None
    else:
        return None
    dtype = first.dtype
    made = new_cell(first.state, op, (a, b), first.shape, _BOOL if boolean else dtype, first.device)
    if not boolean and dtype.kind in "fc" and mode.grad:
        made.tracked = True
        return wrap(made, made)
    if not mode.grad:
        made.pass_by()
    return wrap(made)


def record_one(op: Op, dtypes: dict[Any, int], input: Any) -> Tensor | None:
    """`record_cell` for an elementwise op of one cell with a dtype of `dtypes`; None for others."""
    mode = MODE.get()
    data = input._data if isinstance(input, TensorBase) else None
    if not isinstance(data, Cell) or mode.step is not None:
        return None
    cell = data
    if cell.dtype not in dtypes or _is_special(cell, input):
        return None
    made = new_cell(cell.state, op, (cell,), cell.shape, cell.dtype, cell.device)
    if op.differentiable and made.dtype.kind in "fc" and mode.grad:
        made.tracked = True
        return wrap(made, made)
    if not mode.grad:
        made.pass_by()
    return wrap(made)


_BOOL = np.dtype(bool)


def is_cut(cell: Cell, x: Tensor) -> bool:
    """Whether no gradient may flow into `cell` where `x`, which shows it, is used: detached."""
    if x._node is not None:
        return False
    return cell.tracked or (isinstance(x._data, Cell) and _may_have_gradient(cell, x))


def _may_have_gradient(cell: Cell, x: object) -> bool:
    """Whether gradients could flow through `cell`, while `x`, which shows it, has no history:
    detached.
    """
    if cell.tracked:
        return True
    if cell.rare is None:  # no tensor is its leaf
        return isinstance(cell, SourceCell)
    leaf = cell.handle()
    return leaf is not x and (leaf is not None or isinstance(cell, SourceCell))


def _is_special(cell: Cell, x: Tensor) -> bool:
    """Whether recording this input needs the full `record_cell`."""
    if cell.stale and cell.order < cell.state.written_last:
        return True
    if cell.op is None and cell.rare is not None and "removed" in (cell.rare.about or ()):
        return True
    return x._node is None and _may_have_gradient(cell, x)


def _follows(x: Tensor) -> bool:
    """Whether a copy of `x` must be recorded: it carries a gradient, or is a node other than a
    detached value.
    """
    return x._node is not None or (isinstance(x._data, Cell) and not is_detached(x))


def is_detached(x: Tensor) -> bool:
    """Whether `x` shows a cell without the cell's history."""
    cell = x._data if isinstance(x, TensorBase) else None
    return isinstance(cell, Cell) and x._node is None and _may_have_gradient(cell, x)


def _two_graphs(op: Op) -> GraphError:
    return GraphError(
        f"{op.name}: its inputs belong to two graphs; pass a value from one graph to the other "
        "with .detach().clone(), which keeps it as it is now, or by an input that you set"
    )


def source_of(state: GraphState, x: TensorBase) -> Cell:
    """The cell of the graph for the tensor `x` outside of it: the source that follows it or, where
    an open block has recorded what its memory holds now, the cell of that.
    """
    source = state.sources.get(id(x))
    if source is not None and source.content is not None and state in MODE.get().blocks:
        notice_foreign_writes(state)  # what was recorded keeps what it was: this is recorded later
        source = state.sources.get(id(x))
    if source is not None:
        if source.rewritten > state.written_last:  # and now it is used anew: by a loop, mostly
            state.written_by_program(source.rewritten)
        return source
    version = x._changes
    if state.written and version is not None and version.contents is not None:
        recorded: Cell | None = version.contents.cell_for(state, x)
        if recorded is not None:
            return recorded
    if isinstance(x._data, LazyValue) and x._data.rises and x._data.kept is None:
        raise Unsupported(
            "a graph records a value inside a function transform, or with a tangent "
            "(forward_ad), of which it would lose what that adds; use detach() of it"
        )
    array = concrete(x)
    if version is INFERENCE:  # which does not tell of changes
        return SourceCell(state, array.shape, array.dtype, array.copy("K"))
    source = SourceCell(state, array.shape, array.dtype, array)
    source.follow(x)
    return source


class Same(Op, abstract=True):
    """Identity op: a separate node that marks its input in some way."""

    view = True
    exact = True

    def infer(self, spec: Spec) -> Spec:
        """The input's spec."""
        return spec

    def compute(self, xp: Any, x: BackendArray) -> BackendArray:
        """The input array."""
        return x
