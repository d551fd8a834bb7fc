"""Products of matrices one of which is sparse, by SciPy's kernels, and of two sparse ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import DTypeError, ShapeError, Unsupported
from ...core.mode import MODE, observed
from ...core.op import Op
from ...runtime.node import INFERENCE
from ...runtime.record import parents_of, record
from ...runtime.tensors import wrap
from ..create.conversion import refused, sparse_coo
from ..elementwise.pointwise import conj
from .entries import added, array_of, assert_eager, build, entries, is_sparse, merged
from .pattern import Pattern, index, numbered, places_of

_BLOCK = 1 << 20  # elements of both factors that `Sampled` gathers at once


class Product(Op, abstract=True):
    """The matrix of a pattern and entries, times a dense matrix."""

    needs = ("x2", "x1")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def run(self, values: Any, x: Any) -> Any:
        """The product by SciPy's CSR."""
        try:
            from scipy.sparse import csr_array
        except ImportError:
            raise Unsupported(
                "sparse.mm: products of sparse and dense matrices are SciPy's, which is not "
                "installed: pip install scipy, or use to_dense()"
            ) from None
        begin, columns, order = self.pattern.rows()
        ordered = _wide(values if order is None else values[order])
        matrix = csr_array((ordered, columns, begin), shape=self.pattern.shape)
        return np.asarray(matrix @ _wide(x)).astype(values.dtype, copy=False)

    def gradient(self, g: Any, x1: Any, x2: Any) -> tuple[Any, ...]:
        """g x^H at the pattern's places, and the conjugate transpose times g."""
        return (
            lambda: run(Sampled(self.pattern), g, conj(x2)),
            lambda: run(Product(self.pattern.flipped()), conj(x1), g),
        )


class Sampled(Op, abstract=True):
    """The product of one dense matrix and another one's transpose, at the places of a pattern."""

    needs = ("x2", "x1")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def run(self, a: Any, b: Any) -> Any:
        """Row by row, some at a time."""
        rows, columns = self.pattern.indices
        found = np.empty(len(rows), a.dtype)
        step = max(1, _BLOCK // max(1, a.shape[1]))
        for begin in range(0, len(rows), step):
            part = slice(begin, begin + step)
            left, right = _wide(a[rows[part]]), _wide(b[columns[part]])
            found[part] = np.einsum("ek,ek->e", left, right)
        return found

    def gradient(self, g: Any, x1: Any, x2: Any) -> tuple[Any, ...]:
        """The matrix of `g`, times the other one."""
        return (
            lambda: run(Product(self.pattern), g, conj(x2)),
            lambda: run(Product(self.pattern.flipped()), g, conj(x1)),
        )


def _wide(array: Any) -> Any:
    """An array as SciPy computes with it."""
    narrow = array.dtype.kind == "V" or array.dtype == np.float16
    return array.astype(np.float32) if narrow else array


def run(op: Any, *inputs: Any) -> Any:
    """Result of `op` for dense tensors, with its node."""
    assert_eager("sparse product")
    arrays = [array_of("sparse product", x) for x in inputs]
    mode = MODE.get()
    y = wrap(observed(f"sparse::{op.name}", op.run, *arrays), None,
             INFERENCE if mode.inference else None)  # fmt: skip
    if mode.grad and any(x._node is not None for x in inputs) and y._data.dtype.kind in "fcV":
        y._node = record(op, inputs, parents_of(inputs), y, mode)
    return y


def product(name: str, a: Any, b: Any) -> Any:
    """The product of two matrices, one or both of which are sparse."""
    _assert_fit(name, a, b)
    if not is_sparse(b):
        return run(Product(a._data.pattern), entries(a), b)
    if not is_sparse(a):
        return run(Product(b._data.pattern.flipped()), entries(b), a.t()).t()
    return _of_both(a, b)


def _assert_fit(name: str, a: Any, b: Any) -> None:
    for x in (a, b):
        if x.ndim != 2 or (is_sparse(x) and x._data.pattern.sparse_dim != 2):
            sparse = a if is_sparse(a) else b
            raise refused(name, sparse._data, "with sparse tensors is for matrices, both of whose "
                          "dimensions are sparse")  # fmt: skip
    if a.shape[1] != b.shape[0]:
        raise ShapeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and "
            f"{b.shape[0]}x{b.shape[1]}): inner sizes differ; transpose one operand?"
        )
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}: expected both to have the same dtype, but got: {a.dtype} != {b.dtype}; "
            "convert one with .to()"
        )
    if a.dtype.name == "bool":
        raise DTypeError(f"{name}: not implemented for bool; convert with .to()")


def reduced_product(name: str, a: Any, b: Any, how: str) -> Any:
    """The product of a sparse matrix and a dense one with another way to put the terms of a row
    together than adding all that there would be: of its entries alone, 0 where there are none.
    """
    pattern = a._data.pattern
    begin, columns, _ = pattern.rows()  # of CSR, whose entries are in order
    counts = np.diff(begin)
    if how == "sum" or not pattern.count:
        return product(name, a, b)
    if how == "mean":
        y = product(name, a, b)
        return y / wrap(np.maximum(counts, 1)[:, None]).to(y.dtype)
    _assert_fit(name, a, b)
    values, right = array_of(name, entries(a)), array_of(name, b)
    chosen = _extreme(_wide(values), _wide(right), begin, columns, how)
    empty = counts == 0
    places = index(columns[chosen]), index(np.broadcast_to(np.arange(b.shape[1]), chosen.shape))
    y = entries(a).index_select(0, index(chosen.reshape(-1))).reshape(chosen.shape) * b[places]
    return y.masked_fill(wrap(empty[:, None]), 0) if empty.any() else y


def _extreme(values: Any, x: Any, begin: Any, columns: Any, how: str) -> Any:
    """The entry that gives the largest or smallest product for each row and each column of `x`: the
    first one of several, and of several NaN.
    """
    ufunc = np.maximum if how == "amax" else np.minimum
    filled = np.flatnonzero(np.diff(begin))
    starts, counts = begin[filled], np.diff(begin)[filled]
    numbers = np.arange(len(columns))[:, None]
    found = np.zeros((len(begin) - 1, x.shape[1]), np.int64)
    step = max(1, _BLOCK // max(1, len(columns)))
    for start in range(0, x.shape[1] if len(columns) else 0, step):
        part = slice(start, start + step)
        terms = values[:, None] * x[columns, part]
        best = np.repeat(ufunc.reduceat(terms, starts), counts, 0)
        at = (terms == best) | ((terms != terms) & (best != best))
        found[filled, part] = np.minimum.reduceat(np.where(at, numbers, len(columns)), starts)
    return found


def sampled_product(name: str, pattern: Pattern, a: Any, b: Any) -> Any:
    """The entries of a @ b at the places of the pattern."""
    for x in (a, b):
        if is_sparse(x):
            raise refused(name, x._data, "takes two dense matrices")
        if x.ndim != 2:
            raise ShapeError(
                f"{name}: expected mat1 and mat2 to be matrices, got shape {tuple(x.shape)}"
            )
    (n, k), (inner, m) = a.shape, b.shape
    if inner != k or (n, m) != pattern.shape:
        raise ShapeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {inner}x{m}) for an "
            f"input of shape {pattern.shape}; they are (n, k), (k, m) and (n, m)"
        )
    return run(Sampled(pattern), a, b.t())


def _of_both(a: Any, b: Any) -> Any:
    """The product of two sparse matrices: each entry of `a` with all of the row of `b` that it
    meets, added up where they fall together.
    """
    kinds = a._data.kept, b._data.kept
    if kinds[0] is not kinds[1] and sparse_coo in kinds:
        raise refused("matmul", b._data, f"of {a._data.kept.name} takes matrices of that layout")
    begins = a._data.pattern.crow
    a, b = merged(a), merged(b)
    first, second = a._data.pattern, b._data.pattern
    row, middle = first.indices
    begin, _, _ = second.rows()
    counts = (begin[1:] - begin[:-1])[middle]
    left = np.repeat(np.arange(first.count), counts)
    ends = np.cumsum(counts)
    right = (
        np.arange(len(left)) - np.repeat(ends - counts, counts) + np.repeat(begin[middle], counts)
    )
    shape = (a.shape[0], b.shape[1])
    keys = numbered(np.stack([row[left], second.indices[1][right]]), shape)
    found, inverse = np.unique(keys, return_inverse=True)
    pattern = Pattern(places_of(found, shape), shape, True)
    if begins is not None:
        pattern = pattern.as_rows(begins.dtype)  # as PyTorch has it, also of two by columns
    pairs = entries(a).index_select(0, index(left)) * entries(b).index_select(0, index(right))
    return build(pattern, added(pairs, inverse.reshape(-1), len(found)))
