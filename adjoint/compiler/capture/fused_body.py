"""The body of a loop as code on registers: each node of its program by what it is.

What is moved is an index, a product or a small system is written out, and all else comes from the
definition that NumPy runs (`formulas.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.native.loops import formulas, matrices
from ...backends.native.loops.registers import Array, Registers
from ...core.errors import NotTraceable
from ...core.spec import prod
from ...ir.compute import compute
from ...ir.program import Node, Program, Value
from ...ops.index.slicing import BasicIndex, Diagonal, Place, PlaceDiagonal, Unfold
from ...ops.linalg.fully_connected import Linear, LinearInput, LinearWeight
from ...ops.linalg.matrix_product import MatMul
from ...ops.linalg.solving import Inverse, InverseOrInfinite, SLogDet, Solve
from ...ops.shape.arranging import Flip, Roll
from ...ops.shape.concatenation import Cat, Stack
from ...ops.shape.movement import Clone, Expand, Permute, Reshape
from ...ops.shape.repeating import Tile
from ...ops.shape.splitting import Split, Unbind
from ...ops.shape.triangles import Triangle
from ..passes.fusion_roles import role

_LARGEST = 512  # numbers of a constant

_MOVING = (
    Reshape, Permute, Expand, Clone, Tile, Cat, Stack, Triangle, Split, Unbind, Flip, Roll,
    BasicIndex, Place, Diagonal, PlaceDiagonal, Unfold,
)  # fmt: skip
_PRODUCTS = (MatMul, Linear, LinearInput, LinearWeight)


class BodyCode:
    """Programs written on one set of registers."""

    def __init__(self, registers: Registers) -> None:
        self.registers = registers
        self.singular: list[Array] = []  # where a system has no solution: another loop runs then

    def write(self, program: Program, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of a program for these inputs.

        Errors: NotTraceable for an op that is not known here.
        """
        values: dict[Value, Any] = dict(zip(program.inputs, inputs, strict=True))
        for x in program.constants():
            values[x] = self._constant(x)
        for node in program.nodes:
            given = [values[x] if type(x) is Value else x for x in node.inputs]
            values.update(zip(node.outputs, self._node(node, given), strict=True))
        return [self._whole(values[y], prod(y.shape)) for y in program.outputs]

    def _whole(self, x: Array, count: int) -> Array:
        """The array, each of whose elements there is."""
        return x if x.count == count else self.registers.moved(x, np.zeros(count))

    def _constant(self, x: Value) -> Array:
        if not 0 < x.array.size <= _LARGEST:
            raise NotTraceable("a large constant, or an empty one")
        return self.registers.constant(x.array, formulas.name_of(x.spec))

    def _node(self, node: Node, given: Sequence[Any]) -> Sequence[Array]:
        op = node.op
        for x in (*node.values, *node.outputs):
            formulas.name_of(x.spec)
            if 0 in x.shape:
                raise NotTraceable(f"{op.name}: arrays without elements")
        r, shapes = self.registers, [x.shape for x in node.values]
        if isinstance(op, _MOVING):
            return self._moved(node, given)
        if type(op) in _PRODUCTS:
            return [self._product(node, given)]
        if type(op) in (Solve, Inverse, InverseOrInfinite, SLogDet) and len(shapes[0]) == 2:
            return self._system(node, given)
        what = role(node)
        if isinstance(what, str):
            raise NotTraceable(f"{op.name}: {what}")
        return formulas.computed(r, node, given)

    def _product(self, node: Node, given: Sequence[Any]) -> Array:
        r, (a, b, *bias) = self.registers, given
        left, right = (x.shape for x in node.values[:2])
        if isinstance(node.op, MatMul):
            return matrices.product(r, a, b, left, right)
        rows, inner = prod(left[:-1]), left[-1]
        if isinstance(node.op, LinearWeight):
            a = r.moved(a, np.arange(rows * inner).reshape(rows, inner).T)
            return matrices.product(r, a, b, (inner, rows), (rows, right[-1]))
        if isinstance(node.op, LinearInput):
            return matrices.product(r, a, b, (rows, inner), right)
        turned = r.moved(b, np.arange(prod(right)).reshape(right).T)
        y = matrices.product(r, a, turned, (rows, inner), right[::-1])
        if not bias:
            return y
        shape = node.values[2].shape
        index = np.broadcast_to(np.arange(prod(shape)).reshape(shape), node.output.shape)
        return r.op("add", y, r.moved(bias[0], index))

    def _system(self, node: Node, given: Sequence[Any]) -> Sequence[Array]:
        r, n = self.registers, node.inputs[0].shape[0]
        of = matrices.factored(r, given[0], n)
        self.singular.append(of.singular)
        if isinstance(node.op, SLogDet):
            return matrices.logarithm(r, of)
        if isinstance(node.op, Solve):
            if len(node.inputs[1].shape) != 2:
                raise NotTraceable(f"{node.op.name}: of several matrices")
            return [matrices.solved(r, of, given[1], node.inputs[1].shape[1])]
        return [matrices.solved(r, of, None, n)]

    def _moved(self, node: Node, given: Sequence[Any]) -> Sequence[Array]:
        """Move the numbers of elements as the op moves elements: they are the index."""
        op, fill = node.op, 0.0
        if isinstance(op, Place):
            fill, op = op.value, dataclasses.replace(op, value=0)
        if len(node.values) != len(node.inputs):
            raise NotTraceable(f"{op.name} of a number")
        if len({x.spec.dtype for x in (*node.values, *node.outputs)}) > 1:
            raise NotTraceable(f"{op.name} of several dtypes")
        ends = np.cumsum([1, *(prod(x.shape) for x in node.values)])
        numbers = [
            np.arange(start, end).reshape(x.shape)
            for x, start, end in zip(node.values, ends, ends[1:], strict=False)
        ]
        made = compute(op, numbers)
        results = made if isinstance(made, (tuple, list)) else (made,)
        return [self._picked(np.asarray(y).reshape(-1), ends, given, fill) for y in results]

    def _picked(
        self, numbers: np.ndarray, ends: np.ndarray, given: Sequence[Array], fill: float
    ) -> Array:
        """The array whose elements have these numbers; 0 is that of what fills the rest."""
        r = self.registers
        which = np.searchsorted(ends, numbers, "right")  # 0: the filling
        index = numbers - np.concatenate([[0], ends[:-1]])[which]
        if len(given) == 1 and which.all():
            return r.moved(given[0], index)
        sources = [r.number(fill, given[0].dtype), *given]
        return r.gathered(sources, which, index)
