"""Memory layout of recorded values: how they would lie, had they been computed eagerly.

Most results lie as the inputs do, in PyTorch, too: of a transposed tensor the double is transposed,
so that its `reshape(-1)` and `contiguous()` are copies, which writes to one of both do not reach.
Where operations are recorded, memory of results is row-major in the end; whether two tensors show
the same memory is decided as eager execution would: by running, on memory that lies as it would,
the ops behind the last products, of which none has a transposed result.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..core.device import CPU
from ..core.errors import AdjointError
from ..core.mode import MODE
from .lazy import LazyValue, run
from .node import Item

if TYPE_CHECKING:
    from ..core.protocols import Shaped

__all__ = ["memory_like"]

_ROW_MAJOR: Any = None
T = TypeVar("T")


class Fill(Protocol):
    """Substitutes actual sizes for symbolic ones in shapes and ops."""

    # Recorded values by id, with arrays that lie as they would
    memory: dict[int, tuple[LazyValue, Any]]

    def __call__(self, x: T) -> T:
        """`x` with actual sizes."""


_PRODUCTS = frozenset(("product", "linear", "linear_input", "linear_weight"))
# Ops that usually record an in-place write, which leaves the layout as it is.
_WRITTEN = frozenset(("IndexPut", "MaskedFill", "Overwrite", "ViewWrite"))


def memory_like(value: Shaped, fill: Fill | None = None) -> np.ndarray:
    """An array with the layout that a recorded value would have; its elements are meaningless.
    Arrays of devices are taken for row-major. `fill` substitutes sizes for symbolic ones.
    """
    if not isinstance(value, LazyValue):
        return np.empty(value.shape, value.dtype)
    is_noted = fill is None and getattr(MODE.get().executor, "array_of", None) is None
    known_sizes = fill is None
    fill = fill or _AsItIs()
    arrays = fill.memory
    stack = [value]
    while stack:
        x = stack[-1]
        if id(x) in arrays:
            stack.pop()
            continue
        array = _given(x, fill)
        if array is _ROW_MAJOR and _noted(x) is None and x.op is not None and _follows(x):
            waiting = [y for y in x.inputs if isinstance(y, LazyValue) and id(y) not in arrays]
            if waiting:
                stack += waiting
                continue
            array = _computed(x, arrays, fill)
            strides = () if array is _ROW_MAJOR else getattr(array, "strides", (-1,))
            if min(strides, default=0) >= 0:
                if type(x) is LazyValue:
                    x.lies = strides if known_sizes else x.lies
                elif is_noted and (state := _graph_of(x)) is not None:
                    x.lies = _Noted(_changes(state), strides)
        arrays[id(x)] = x, array
        stack.pop()
    layout = arrays[id(value)][1]
    return np.empty(fill(value.shape), value.dtype) if layout is _ROW_MAJOR else layout


class _AsItIs:
    def __init__(self) -> None:
        self.memory: dict[int, tuple[LazyValue, Any]] = {}

    def __call__(self, x: T) -> T:
        return x


def _given(x: LazyValue, fill: Fill) -> Any:
    """The array of a value that has one, or several; `_ROW_MAJOR` where there is none."""
    array = x.array
    if array is None and x.op is None:
        array_of = getattr(MODE.get().executor, "array_of", None)  # a capture's
        array = None if array_of is None else array_of(x)
    strides = _noted(x) if array is None else None
    if strides:
        shape = fill(x.shape)
        extent = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        memory = np.empty(max(extent + x.dtype.itemsize, 1), np.uint8)
        array = np.ndarray(shape, x.dtype, memory, 0, strides)
    return array if type(array) in (np.ndarray, tuple) else _ROW_MAJOR


def _noted(x: LazyValue) -> tuple[int, ...] | None:
    """The strides that were found before; () for row-major ones, None where nothing is known. Those
    of a cell hold until its graph changes: then it may have another shape, or other inputs.
    """
    noted: tuple[int, ...] | _Noted | None = x.lies
    if not isinstance(noted, _Noted):
        return noted
    state = _graph_of(x)
    return None if state is None or noted.changes != _changes(state) else noted.strides


class _Noted(NamedTuple):
    """Strides of a graph's cell, and the state of the graph for which they were found."""

    changes: tuple[int, ...]
    strides: tuple[int, ...]


class _State(Protocol):
    """Numbers of a graph's state that grow with changes of its structure, sources or values."""

    edits: int
    changed_last: int
    set_last: int
    written_last: int
    rolled_back: int
    runs: int
    edited: Sized


def _changes(state: _State) -> tuple[int, ...]:
    """Numbers of which one grows with each change of a graph."""
    return (
        state.edits, state.changed_last, state.set_last, state.written_last, state.rolled_back,
        state.runs, len(state.edited),
    )  # fmt: skip


def _graph_of(x: LazyValue) -> _State | None:
    """The state of the graph of which a value and all its inputs that are not there are cells."""
    state: _State | None = getattr(x, "state", None)
    if not hasattr(state, "set_last"):
        return None
    for y in x.inputs:
        if isinstance(y, LazyValue) and getattr(y, "state", None) is not state:
            return None
    return state


def _follows(x: LazyValue) -> bool:
    """Whether the layout of a value depends on those of its inputs: true of primitives that may be
    run, except products and random draws; bodies of control flow and the like are not primitives.
    """
    op = x.op
    assert op is not None
    if type(op) is Item or type(op).__name__ in _WRITTEN:
        return True
    primitive = bool(type(op).interned)
    return primitive and x.device == CPU and op.library not in _PRODUCTS and not op.opaque


def _computed(x: LazyValue, layouts: dict[int, tuple[LazyValue, Any]], fill: Fill) -> Any:
    """The result of an op on memory laid out like its inputs."""
    op = x.op
    assert op is not None
    arrays = [layouts[id(y)][1] if isinstance(y, LazyValue) else fill(y) for y in x.inputs]
    first = arrays[0]
    if type(op) is Item and first is _ROW_MAJOR:
        return first
    if type(op).__name__ in _WRITTEN and (first is _ROW_MAJOR or first.shape == fill(x.shape)):
        return first
    if not op.view and not any(map(_is_turned, arrays)):
        return first[op.index] if type(op) is Item else _ROW_MAJOR
    try:
        pairs = zip(x.inputs, arrays, strict=True)
        return run(fill(op), [_present(*pair, fill) for pair in pairs])
    except (AdjointError, ArithmeticError, ValueError):  # of elements that say nothing
        return _ROW_MAJOR


def _is_turned(array: object) -> bool:
    """Whether the axes are in another order than row-major; gaps and expanded axes do not count."""
    if type(array) is not np.ndarray or array.flags.c_contiguous:
        return False
    steps = [abs(s) for s, n in zip(array.strides, array.shape, strict=True) if s and n > 1]
    return steps != sorted(steps, reverse=True)


def _present(x: Any, array: Any, fill: Fill) -> Any:
    """Memory for an input: its array, or a row-major one where only the shape is known."""
    return np.zeros(fill(x.shape), x.dtype) if array is _ROW_MAJOR else array
