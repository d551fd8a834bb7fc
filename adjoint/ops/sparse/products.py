"""Products of matrices one of which is sparse, by SciPy's kernels, and of two sparse ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import DTypeError, ShapeError, Unsupported
from ...core.mode import MODE, observed
from ...core.op import Op
from ...eager.record import parents_of, record
from ...eager.tensors import wrap
from ...graph.node import INFERENCE
from ..create.conversion import refused
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
        """By SciPy's CSR."""
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
    """What `op` gives for dense tensors, with its node."""
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
    if not is_sparse(b):
        return run(Product(a._data.pattern), entries(a), b)
    if not is_sparse(a):
        return run(Product(b._data.pattern.flipped()), entries(b), a.t()).t()
    return _of_both(a, b)


def _of_both(a: Any, b: Any) -> Any:
    """The product of two sparse matrices: each entry of `a` with all of the row of `b` that it
    meets, added up where they fall together.
    """
    if a._data.kept is not b._data.kept:
        raise refused("matmul", b._data, f"of {a._data.kept.name} takes matrices of that layout")
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
    pattern = Pattern(places_of(found, shape), shape, True).like(first)
    pairs = entries(a).index_select(0, index(left)) * entries(b).index_select(0, index(right))
    return build(pattern, added(pairs, inverse.reshape(-1), len(found)))
