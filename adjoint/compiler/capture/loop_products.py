"""Gradients of matrices that each turn of a scan reads: one product behind the loop.

Such a gradient is a sum of products over the turns. Where a product has few rows, adding it to a
matrix in each turn moves more memory than all else. Its factors are stacked instead, and multiplied
once: the product over all turns is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.spec import prod
from ...ops.elementwise.arithmetic import Add
from ...ops.linalg.fully_connected import LINEAR_WEIGHT, LinearWeight
from ...ops.linalg.matrix_product import MatMul
from ...ops.shape.movement import Permute, Reshape
from ...runtime.dispatch import apply
from ...runtime.lazy import LazyValue
from ...runtime.tensors import wrap

_LEAST = 256  # numbers of a matrix above which its gradient is left to a product behind the loop


class Factor(NamedTuple):
    """A value of one turn whose rows, (..., n), are multiplied: its columns, if `across`."""

    value: Any
    across: bool = False

    @property
    def length(self) -> int:
        """The length of a row."""
        return int(self.value.shape[0 if self.across else -1])

    @property
    def rows(self) -> int:
        """The number of rows."""
        return prod(self.value.shape) // max(self.length, 1)

    def stacked(self) -> Any:
        """The value to stack: of one row, any form of it; to be called while ops are recorded."""
        if self.rows == 1:
            return source_of(self.value)
        return wrap(self.value).T._data if self.across else self.value


class Factors(NamedTuple):
    """Two factors of which a gradient is the sum of the products of rows."""

    left: Factor
    right: Factor


def are_worth_it(factors: Sequence[Factors] | None) -> bool:
    """Whether stacking the factors of a matrix moves less memory than adding up the matrix."""
    if not factors:
        return False
    m, n = factors[0].left.length, factors[0].right.length
    return m * n > _LEAST and sum(each.left.rows for each in factors) * (m + n) <= m * n


def factors_of(value: Any) -> list[Factors] | None:
    """The factors of a matrix; None where it is no sum of products."""
    op = value.op if isinstance(value, LazyValue) else None
    if op is None or len(value.shape) != 2 or value.dtype.kind == "c":
        return None
    inputs = value.inputs
    if isinstance(op, LinearWeight):
        return [Factors(*map(Factor, inputs))]
    if isinstance(op, MatMul):
        plain = all(len(x.shape) == 2 for x in inputs)
        return [Factors(Factor(inputs[0], True), Factor(inputs[1]))] if plain else None
    if isinstance(op, Permute):
        inner = factors_of(inputs[0])
        return None if inner is None else [Factors(each.right, each.left) for each in inner]
    if isinstance(op, Add):
        parts = [None if _differs(x, value) else factors_of(x) for x in inputs]
        return None if None in parts else [each for part in parts for each in part or ()]
    return None


def _differs(x: Any, value: Any) -> bool:
    return not isinstance(x, LazyValue) or x.shape != value.shape or x.dtype != value.dtype


def source_of(value: Any) -> Any:
    """The value of which a row, or column, is only another form."""
    while (
        isinstance(value.op, (Permute, Reshape))
        and prod(value.shape) == max(value.shape) == prod(value.inputs[0].shape)
    ):  # fmt: skip
        value = value.inputs[0]
    return value


def summed(pairs: Sequence[tuple[Any, Any]], shape: Sequence[int]) -> Any:
    """The sum of the products of stacked factors, a matrix of this shape."""
    total: Any = None
    for pair in pairs:
        rows = [x.reshape(-1, n) for x, n in zip(pair, shape, strict=True)]
        each = apply(LINEAR_WEIGHT, *rows)
        total = each if total is None else total + each
    return total
