"""Rules of ops for sparse tensors: one function for each kind of op; all others are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtype import LOW_PRECISION, float32
from ...core.errors import LayoutError, ShapeError
from ...core.op import Op
from ...core.tensor_base import TensorBase
from ...runtime.dispatch import apply
from ..create.conversion import Sparse, refused, sparse_coo
from ..elementwise import arithmetic, comparison, functions, power, rounding, trigonometry
from ..elementwise import complex as complex_ops
from ..index.advanced import Index, Overwrite
from ..index.slicing import BasicIndex, basic_index
from ..linalg.fully_connected import Linear
from ..linalg.matrix_product import MatMul
from ..nn.piecewise import Relu
from ..promotion import Cast, cast
from ..reduce.reduction import Some, Sum
from ..reduce.statistics import Norm
from ..shape.concatenation import Cat
from ..shape.movement import Clone, Permute
from ..special.special import Erf, Erfinv
from .entries import (
    array_of,
    assert_eager,
    build,
    distinct,
    entries,
    is_sparse,
    kept_like,
    merged,
    sample,
)  # fmt: skip
from .pattern import Pattern, index
from .products import product

Rule = Callable[..., Any]
RULES: dict[type[Op], Rule] = {}  # a rule may return None: not for these inputs


def run(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Result of `op` where sparse tensors are among its inputs.

    Errors: LayoutError where it is for dense tensors only.
    """
    assert_eager(op.name)
    for x in inputs:
        if isinstance(x, TensorBase) and type(x._data) is not Sparse:
            array_of(op.name, x)
    rule = RULES.get(type(op))
    found = None if rule is None else rule(op, *inputs)
    if found is None:
        given = next(x for x in inputs if is_sparse(x))
        raise refused(op.name, given._data)
    return found


def _of(*ops: type[Op]) -> Callable[[Rule], Rule]:
    def declare(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, rule))
        return rule

    return declare


def is_tensor(x: Any) -> bool:
    """Whether `x` is a tensor, not a number."""
    return isinstance(x, TensorBase)


def with_entries(x: Any, values: Any) -> Any:
    """`x` with other entries."""
    return build(x._data.pattern, values)


# ---- one tensor ----------------------------------------------------------------------------------


@_of(arithmetic.Neg, complex_ops.Real, complex_ops.Imag, complex_ops.Conj, Clone)
def _linear(op: Op, x: Any) -> Any:
    values = apply(op, entries(x))
    if values._data is x._data.values or values._data.base is not None:
        values = values.clone()  # the parts of complex numbers are views
    return with_entries(x, values)


@_of(
    functions.Abs, functions.Sgn, functions.Square, functions.Sqrt, functions.Expm1,
    functions.Log1p, functions.Sinh, functions.Tanh, functions.Asinh, functions.Atanh,
    trigonometry.Sin, trigonometry.Tan, trigonometry.Asin, trigonometry.Atan, rounding.Floor,
    rounding.Ceil, rounding.Trunc, rounding.Round, rounding.RoundDecimals, comparison.Isnan,
    comparison.Isinf, comparison.Signbit, rounding.NanToNum, Relu, Erf,
    Erfinv,
)  # fmt: skip
def _keeps_zero(op: Op, x: Any) -> Any:
    x = distinct(x)
    return with_entries(x, apply(op, entries(x)))


@_of(Cast)
def _cast(op: Any, x: Any) -> Any:
    if not (x.dtype.is_floating_point or op.to.is_complex) or not (
        op.to.is_floating_point or op.to.is_complex
    ):
        x = distinct(x)  # rounded once they are added up
    return with_entries(x, apply(op, entries(x)))


@_of(Permute)
def _permute(op: Any, x: Any) -> Any:
    pattern = x._data.pattern
    axes, n = op.axes, pattern.sparse_dim
    if pattern.layout is not sparse_coo:
        if axes[2:] != tuple(range(2, len(axes))):
            return None
        found = pattern if axes[:2] == (0, 1) else pattern.transposed()
        return build(found, entries(x).clone())
    if any((axis < n) != (place < n) for place, axis in enumerate(axes)):
        return None
    lead = list(axes[:n])
    shape = tuple(pattern.shape[axis] for axis in axes)
    found = Pattern(pattern.indices[lead], shape, pattern.is_merged and lead == list(range(n)))
    values = entries(x)
    if axes[n:] != tuple(range(n, len(axes))):
        values = values.permute(0, *[axis - n + 1 for axis in axes[n:]])
    return build(found, values.clone())


@_of(BasicIndex)
def _part(op: Any, x: Any) -> Any:
    pattern = x._data.pattern
    n = pattern.sparse_dim
    items = op.items
    if None in items:
        return None
    items = (*items, *((0, size, 1) for size in pattern.shape[len(items) :]))
    there = np.ones(pattern.count, bool)
    rows, sizes = [], []
    for row, item in zip(pattern.indices, items[:n], strict=True):
        if type(item) is int:
            there &= row == item
            continue
        start, stop, step = item
        size = len(range(start, stop, step))
        there &= (row >= start) & (row < stop) & ((row - start) % step == 0)
        rows.append((row - start) // step)
        sizes.append(size)
    kept = np.flatnonzero(there)
    values = entries(x).index_select(0, index(kept))
    if any(type(i) is int or i != (0, m, 1) for i, m in zip(items[n:], pattern.rest, strict=True)):
        values = apply(basic_index(((0, len(kept), 1), *items[n:])), values).clone()
    if not rows:
        return values.sum(0, dtype=values.dtype) if x.dtype.name != "bool" else values.any(0)
    shape = (*sizes, *values.shape[1:])
    return build(Pattern(np.stack(rows)[:, kept], shape, pattern.is_merged), values)


@_of(Index)
def _selected(op: Any, x: Any, places: Any) -> Any:
    if is_sparse(places) or len(op.axes) != 1 or places.ndim != 1 or op.negative:
        return None
    pattern = x._data.pattern
    axis, n = op.axes[0], pattern.sparse_dim
    shape = (*pattern.shape[:axis], places.shape[0], *pattern.shape[axis + 1 :])
    wanted = places._data
    apply(op, index(np.arange(pattern.shape[axis])[(None,) * axis]), places)  # within bounds
    if axis >= n:
        found = entries(x).index_select(axis - n + 1, places)
        return build(Pattern(pattern.indices, shape, pattern.is_merged), found)
    order = np.argsort(pattern.indices[axis], kind="stable")
    row = pattern.indices[axis][order]
    first, last = np.searchsorted(row, wanted, "left"), np.searchsorted(row, wanted, "right")
    counts = last - first
    new = np.repeat(np.arange(len(wanted)), counts)
    ends = np.cumsum(counts)
    taken = order[np.arange(len(new)) - np.repeat(ends - counts - first, counts)]
    indices = pattern.indices[:, taken]
    indices[axis] = new
    return build(Pattern(indices, shape), entries(x).index_select(0, index(taken)))


@_of(Sum)
def _sum(op: Any, x: Any) -> Any:
    pattern = x._data.pattern
    n = pattern.sparse_dim
    values = entries(x)
    inner = [axis - n + 1 for axis in op.axes if axis >= n]
    if inner:
        values = values.sum(inner, keepdim=op.keepdims)
    gone = [axis for axis in op.axes if axis < n]
    if len(gone) == n:
        found = values.sum(0)
        return found.reshape((*(1,) * n, *found.shape)) if op.keepdims else found
    if pattern.layout is not sparse_coo:
        return None
    if op.keepdims:
        indices = pattern.indices.copy()
        indices[gone] = 0
        lead = tuple(1 if axis in gone else size for axis, size in enumerate(pattern.lead))
    else:
        left = [axis for axis in range(n) if axis not in gone]
        indices, lead = pattern.indices[left], tuple(pattern.lead[axis] for axis in left)
    values = values if inner else values.clone()
    merges = pattern.is_merged and not gone
    return merged(build(Pattern(indices, (*lead, *values.shape[1:]), merges), values))


@_of(Some)
def _any(op: Any, x: Any) -> Any:
    if len(op.axes) != x.ndim or op.keepdims:
        return None
    return apply(Some(tuple(range(x._data.values.ndim))), entries(distinct(x)))


@_of(Norm)
def _norm(op: Any, x: Any) -> Any:
    if len(op.axes) != x.ndim or op.keepdims or not op.p > 0 or not math.isfinite(op.p):
        return None
    values = entries(distinct(x))
    return apply(Norm(tuple(range(values.ndim)), False, op.p), values)


# ---- two tensors ---------------------------------------------------------------------------------


@_of(arithmetic.Add)
def _add(op: Op, a: Any, b: Any) -> Any:
    if not (is_tensor(a) and is_tensor(b)):
        return None
    if is_sparse(a) and is_sparse(b):
        return _together(op.name, a, b)
    full, x = (b, a) if is_sparse(a) else (a, b)
    if x._data.shape != np.broadcast_shapes(x._data.shape, full._data.shape):
        return None
    full = full.expand(x.shape) if full._data.shape != x._data.shape else full
    pattern = x._data.pattern
    flat = full.reshape((pattern.places, *pattern.rest))
    found = flat.index_add(0, index(pattern.keys), entries(x))
    return found.reshape(pattern.shape)


@_of(arithmetic.Sub)
def _sub(op: Op, a: Any, b: Any) -> Any:
    if not (is_tensor(a) and is_tensor(b)):
        return None
    return _add(op, a, -b)


@_of(arithmetic.Addcmul)
def _add_scaled(op: Op, a: Any, b: Any, c: Any, value: Any) -> Any:
    if isinstance(c, TensorBase):
        return None
    return _add(op, a, b * (c * value))


def _together(name: str, a: Any, b: Any) -> Any:
    """The sum of two sparse tensors: of merged ones a merged one; else the entries of both."""
    first, second = _alike(name, a, b)
    if first.same(second):
        return with_entries(a, entries(a) + entries(b))
    both = np.concatenate([first.indices, second.indices], axis=1)
    values = apply(Cat(0), entries(a), entries(b))
    joined = build(Pattern(both, first.shape), values)
    if not (first.is_distinct and second.is_distinct):
        return joined
    return kept_like(merged(joined), first)


def _alike(name: str, a: Any, b: Any) -> tuple[Pattern, Pattern]:
    """The patterns of two tensors, which must be of one shape and kept alike."""
    first, second = a._data.pattern, b._data.pattern
    if first.shape != second.shape:
        raise ShapeError(
            f"{name}: expected sizes of 'self' and 'other' to match, but {list(first.shape)} != "
            f"{list(second.shape)}; sparse tensors do not broadcast"
        )
    if first.layout is not second.layout or first.sparse_dim != second.sparse_dim:
        raise LayoutError(
            f"{name}: two sparse tensors kept differently do not go together: "
            f"{first.layout.name} with {first.sparse_dim} sparse dimensions and "
            f"{second.layout.name} with {second.sparse_dim}; convert one with to_sparse() or "
            "to_sparse_csr()"
        )
    return first, second


@_of(arithmetic.Mul)
def _mul(op: Op, a: Any, b: Any) -> Any:
    if is_sparse(a) and is_sparse(b):
        return _where_both_are(op, a, b)
    if is_sparse(b):
        return _times(op, b, a)
    return _times(op, a, b)


def _times(op: Op, x: Any, factor: Any) -> Any:
    """A sparse tensor times a number, or a dense tensor that broadcasts to it."""
    if not is_tensor(factor) or not factor.ndim:
        return with_entries(x, apply(op, entries(x), factor))
    if np.broadcast_shapes(x._data.shape, factor._data.shape) != x._data.shape:
        return None
    pattern = x._data.pattern
    return with_entries(x, apply(op, entries(x), sample(factor.expand(x.shape), pattern)))


def _where_both_are(op: Op, a: Any, b: Any) -> Any:
    layout, other = _alike(op.name, a, b)
    alike = layout.same(other)
    a, b = (distinct(a), distinct(b)) if alike else (merged(a), merged(b))
    first, second = a._data.pattern, b._data.pattern
    if first.same(second):
        return with_entries(a, apply(op, entries(a), entries(b)))
    place, there = second.find(first.keys)
    kept = np.flatnonzero(there)
    found = Pattern(first.indices[:, kept], first.shape, True)
    left = entries(a).index_select(0, index(kept))
    right = entries(b).index_select(0, index(place[kept]))
    return kept_like(build(found, apply(op, left, right)), layout)


@_of(arithmetic.TrueDivide)
def _divide(op: Op, a: Any, b: Any) -> Any:
    if not is_sparse(a) or is_sparse(b) or (isinstance(b, TensorBase) and b.ndim):
        return None
    return with_entries(a, apply(op, entries(a), b))


@_of(power.Pow)
def _power(op: Op, x: Any, exponent: Any) -> Any:
    if not is_sparse(x) or isinstance(exponent, (TensorBase, complex)):
        return None
    if exponent <= 0:
        raise refused(op.name, x._data, f"of zero to the power of {exponent} is not zero, which "
                      "would make the result dense")  # fmt: skip
    x = distinct(x)
    return with_entries(x, apply(op, entries(x), exponent))


@_of(MatMul)
def _matmul(op: Op, a: Any, b: Any) -> Any:
    return product(op.name, a, b)


@_of(Linear)
def _linear_layer(op: Op, x: Any, weight: Any, bias: Any = None) -> Any:
    if is_sparse(bias) or not x.ndim or (is_sparse(x) and is_sparse(weight)):
        return None
    narrow = x.dtype
    if narrow in LOW_PRECISION and bias is not None:  # rounded once
        return cast(_linear_layer(op, *[cast(each, float32) for each in (x, weight, bias)]), narrow)
    if is_sparse(x):
        y = product(op.name, x, weight.t())
        return y if bias is None else y + bias
    rows = x.reshape((-1, x.shape[-1]))
    y = product(op.name, weight, rows.t()).t().reshape((*x.shape[:-1], weight.shape[0]))
    return y if bias is None else y + bias


@_of(Overwrite)
def _overwrite(op: Any, x: Any, value: Any) -> Any:
    if op.items or not is_sparse(x):
        return None
    if is_sparse(value):
        _alike("copy_", x, value)
        found = value.to(x.dtype)
        return with_entries(found, entries(found).clone())
    if isinstance(value, TensorBase) or value != 0:
        return None
    pattern = x._data.pattern
    empty = Pattern(pattern.indices[:, :0], pattern.shape, True)
    return kept_like(build(empty, entries(x).detach().new_zeros((0, *pattern.rest))), pattern)


@_of(Cat)
def _cat(op: Any, *xs: Any) -> Any:
    if not all(map(is_sparse, xs)):
        return None
    op.infer(*[x.spec for x in xs])
    patterns = [x._data.pattern for x in xs]
    first = patterns[0]
    n = first.sparse_dim
    if any(p.layout is not sparse_coo or p.sparse_dim != n for p in patterns) or op.axis >= n:
        return None
    parts, start = [], 0
    for p in patterns:
        indices = p.indices.copy()
        indices[op.axis] += start
        start += p.shape[op.axis]
        parts.append(indices)
    shape = (*first.shape[: op.axis], start, *first.shape[op.axis + 1 :])
    pattern = Pattern(np.concatenate(parts, axis=1), shape)
    return build(pattern, apply(op if op.axis == 0 else Cat(0), *map(entries, xs)))
