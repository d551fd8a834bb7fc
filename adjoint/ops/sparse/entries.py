"""Conversion of dense tensors to sparse ones and back: the only ops that gradients of sparse
tensors pass.

All else that is done with sparse tensors is done with their entries, a dense tensor with gradients
of its own: `build(pattern, function(entries(x)))`. The gradient of a sparse tensor stands for a
tensor of its shape of which only the places of its pattern matter; it may be dense or sparse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import LayoutError
from ...core.mode import MODE
from ...core.op import Op
from ...core.tensor_base import TensorBase
from ...runtime.cells import Cell
from ...runtime.lazy import LazyValue, concrete
from ...runtime.node import INFERENCE, Version
from ...runtime.record import parents_of, record
from ...runtime.tensors import wrap
from ..create.conversion import Sparse, sparse_csc, sparse_csr
from ..index.indexing import index_add
from .pattern import Pattern, index


def is_sparse(x: Any) -> bool:
    """Whether `x` is a sparse tensor."""
    return isinstance(x, TensorBase) and type(x._data) is Sparse


def assert_eager(name: str) -> None:
    """Refuse what would be recorded, not computed."""
    if MODE.get().executor is not None:
        raise LayoutError(
            f"{name}: sparse tensors are computed with eagerly alone, not where operations are "
            "recorded (lazy, Graph, compile) or transformed (vmap, grad, jvp): do it outside, or "
            "use to_dense() there and outside"
        )


def array_of(name: str, x: Any) -> Any:
    """The array of a dense tensor of the host's, computed if need be."""
    data = x._data
    if type(data) is np.ndarray:
        return data
    if isinstance(data, Cell) or (isinstance(data, LazyValue) and data.rises):
        raise LayoutError(
            f"{name}: a sparse tensor and one of a Graph or of a function transform do not go "
            "together; give it the value, x.detach().clone() outside of these"
        )
    data = concrete(x)
    if type(data) is not np.ndarray:
        raise LayoutError(f"{name}: sparse tensors are of the host's memory alone; use x.cpu()")
    return data


class Build(Op, abstract=True):
    """The sparse tensor of a pattern with these entries."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """Elements of `g` at the places."""
        return (sample(g, self.pattern),)


class Entries(Op, abstract=True):
    """The entries of a sparse tensor of that pattern."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """`g` at the places; entries of one place have one gradient."""
        pattern = self.pattern
        if pattern.is_distinct:
            return (build(pattern, g),)
        merged, _, first = pattern.merged()
        return (build(merged, g.index_select(0, index(first))),)


def build(pattern: Pattern, values: Any) -> Any:
    """The sparse tensor with these entries, which must own their memory."""
    assert_eager("sparse")
    array = array_of("sparse", values)
    assert array.shape == (pattern.count, *pattern.rest), (array.shape, pattern.shape)
    mode = MODE.get()
    y = wrap(Sparse(pattern, array), None, INFERENCE if mode.inference else None)
    return _recorded(Build(pattern), values, y)


def entries(x: Any) -> Any:
    """The entries of a sparse tensor, in its memory."""
    assert_eager("sparse")
    if x._changes is None:
        x._changes = Version()
    return _recorded(Entries(x._data.pattern), x, wrap(x._data.values, None, x._changes))


def _recorded(op: Op, x: Any, y: Any) -> Any:
    """`y`, which is `op(x)`, with its node."""
    mode = MODE.get()
    if mode.grad and x._node is not None and y._data.dtype.kind in "fcV":
        y._node = record(op, (x,), parents_of((x,)), y, mode)
    return y


def merged(x: Any) -> Any:
    """`x` with entries of one place as their sum, in order: itself, where it is so."""
    pattern = x._data.pattern
    if pattern.is_merged:
        return x
    found, inverse, _ = pattern.merged()
    return build(found, added(entries(x), inverse, found.count))


def distinct(x: Any) -> Any:
    """`x` with entries of one place as their sum, in any order: itself, where it is so."""
    return x if x._data.pattern.is_distinct else merged(x)


def kept_like(x: Any, other: Pattern) -> Any:
    """`x`, whose pattern is merged, in the layout of another pattern."""
    pattern = x._data.pattern
    if pattern.layout is other.layout:
        return x
    values = entries(x)
    if other.layout is sparse_csc:
        found, order = pattern.as_columns(other.crow.dtype)
        return build(found, values.index_select(0, index(order)))
    rows = other.layout is sparse_csr
    found = pattern.as_rows(other.crow.dtype) if rows else pattern.as_coordinates()
    return build(found, values.clone())


def added(values: Any, places: Any, count: int) -> Any:
    """Entries added up where they have the same place among `count`."""
    if values.dtype.name == "bool":
        return index_add(values.int().new_zeros((count, *values.shape[1:])), 0, index(places),
                         values.int()).bool()  # fmt: skip
    return index_add(values.new_zeros((count, *values.shape[1:])), 0, index(places), values)


def chosen(values: Any, places: Any, there: Any) -> Any:
    """The entries at `places`, and zeros where there is none."""
    if not values._data.shape[0]:
        return values.new_zeros((len(places), *values.shape[1:]))
    found = values.index_select(0, index(places))
    if there.all():
        return found
    mask = wrap(~there.reshape(-1, *(1,) * (values.ndim - 1)))
    return found.masked_fill(mask, 0)


def sample(x: Any, pattern: Pattern) -> Any:
    """Elements of `x`, dense or sparse and of the pattern's shape, at the places of the pattern."""
    if not is_sparse(x):
        flat = x.reshape((pattern.places, *pattern.rest))
        return flat.index_select(0, index(pattern.keys))
    own = x._data.pattern
    if own is pattern and own.is_distinct:
        return entries(x)
    x = merged(x)
    own = x._data.pattern
    if own.sparse_dim != pattern.sparse_dim:
        return sample(dense(x), pattern)
    if own.same(pattern):
        return entries(x)
    return chosen(entries(x), *own.find(pattern.keys))


def dense(x: Any) -> Any:
    """The dense tensor with all elements of a sparse one."""
    pattern = x._data.pattern
    found = added(entries(x), pattern.keys, pattern.places)
    return found.reshape(pattern.shape)
