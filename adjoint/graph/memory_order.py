"""How values that are only recorded would lie in memory, had they been computed at once.

What is computed of each element alone lies as its inputs do, in PyTorch, too: of a transposed
tensor the double is transposed, so that its `reshape(-1)` and `contiguous()` are copies, which
writes to one of both do not reach. Where operations are recorded, memory of results is row-major in
the end; whether two tensors show the same memory is decided as eager execution would.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.device import CPU
from ..core.mode import MODE
from .lazy import LazyValue, run

__all__ = ["memory_like"]

_ROW_MAJOR: Any = None
_ORDERED = frozenset(("Cast", "Clone"))  # besides ops of each element
_WRITTEN = frozenset(("MaskedFill", "Overwrite", "ViewWrite"))  # what is written lies as before


def memory_like(value: Any) -> Any:
    """An array that lies as a recorded value would; its elements say nothing. Arrays of devices are
    taken for row-major.
    """
    if not isinstance(value, LazyValue):
        return np.empty(value.shape, value.dtype)
    known: dict[int, Any] = {}
    stack = [value]
    while stack:
        x = stack[-1]
        if id(x) in known:
            stack.pop()
            continue
        array = _given(x)
        if array is _ROW_MAJOR and x.op is not None and _follows(x):
            waiting = [y for y in x.inputs if isinstance(y, LazyValue) and id(y) not in known]
            if waiting:
                stack += waiting
                continue
            array = _computed(x, known)
        known[id(x)] = array
        stack.pop()
    found = known[id(value)]
    return np.empty(value.shape, value.dtype) if found is _ROW_MAJOR else found


def _given(x: LazyValue) -> Any:
    """The array of a value, where it is known."""
    array = x.array
    if array is None and x.op is None:
        given = getattr(MODE.get().executor, "array_of", None)  # a capture's
        array = None if given is None else given(x)
    return array if type(array) is np.ndarray else _ROW_MAJOR


def _follows(x: LazyValue) -> bool:
    """Whether the memory of a value depends on how that of its inputs lies."""
    op = x.op
    assert op is not None
    if x.device != CPU or op.n_outputs != 1 or op.drawn or op.opaque:
        return False
    name = type(op).__name__
    return op.view or op.pointwise or name in _ORDERED or name in _WRITTEN


def _computed(x: LazyValue, known: dict[int, Any]) -> Any:
    """What an op makes of memory like its inputs'."""
    op = x.op
    assert op is not None
    first = x.inputs[0]
    if type(op).__name__ in _WRITTEN:
        return known[id(first)] if isinstance(first, LazyValue) else first
    if not op.view:
        arrays = [known[id(y)] if isinstance(y, LazyValue) else y for y in x.inputs]
        if all(type(y) is not np.ndarray or y.flags.c_contiguous for y in arrays):
            return _ROW_MAJOR
    inputs = [_present(y, known) if isinstance(y, LazyValue) else y for y in x.inputs]
    try:
        found = run(op, inputs)
    except (ValueError, ArithmeticError):  # of elements that say nothing
        return _ROW_MAJOR
    return found if type(found) is np.ndarray else _ROW_MAJOR


def _present(x: LazyValue, known: dict[int, Any]) -> Any:
    array = known[id(x)]
    return np.zeros(x.shape, x.dtype) if array is _ROW_MAJOR else array
