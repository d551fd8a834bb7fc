"""Newton-Schulz iterations in bfloat16 by oneDNN: all products of all steps as one plan.

Each result is a sum that is made in float32 and rounded once, as `optim.muon` says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import dtype as dt
from ....core import policy
from ....core.errors import NotTraceable, Unsupported
from ....core.spec import Spec
from ..gemm.products import BFLOAT16, pieces
from . import api as onednn
from .api import DST, POST_OPERAND, POST_OPERANDS, SRC, WEIGHTS, Activation, Descriptor
from .plan import SHARED, OneDnnPlan, PlanArgument, PrimitiveStep, aligned, planned, threads

TILE = 32  # rows and columns come in multiples of this, filled up with zeros,
FEW = 64  # unless there are fewer
ADDED = POST_OPERAND + POST_OPERANDS  # the operand of the second operation that follows


def plan(specs: Sequence[Spec], statics: Sequence[Any], wants: Sequence[bool]) -> NewtonSchulz:
    """The routine for `iterated(y, a, b, c, steps)`.

    Errors: NotTraceable for other dtypes, gradients, nothing to do, and without oneDNN.
    """
    [y] = specs
    a, b, c, steps = statics[1:]
    if y.dtype is not dt.bfloat16 or any(wants) or 0 in y.shape or not (a and b and steps > 0):
        raise NotTraceable(f"a Newton-Schulz iteration of {y.shape} {y.dtype.name}")
    routine = NewtonSchulz(y, (float(a), float(b), float(c)), steps)
    if routine.plan() is None:
        raise NotTraceable("a Newton-Schulz iteration without oneDNN's bfloat16")
    return routine


class NewtonSchulz:
    """The iteration for matrices of one shape."""

    several = False
    differentiable = ()
    kept = ()
    whole = True

    def __init__(self, y: Spec, coefficients: tuple[float, float, float], steps: int) -> None:
        self.outputs = (y,)
        self.coefficients, self.steps = coefficients, steps
        self.shape = tuple([n if n < FEW else -(-n // TILE) * TILE for n in y.shape])

    def plan(self) -> OneDnnPlan | None:
        """The plan for the current number of threads; None where there is none."""
        options = (*self.shape, *self.coefficients, self.steps)
        return planned(("newton_schulz", *options, threads()), _build, *options)

    def forward(self, arrays: list[Any], into: Any = None) -> tuple[list[Any], list[Any]]:
        """The y of the last iteration."""
        [y] = arrays
        rows, columns = y.shape
        if y.shape != self.shape or not y.flags.c_contiguous:
            y = np.zeros(self.shape, BFLOAT16)
            y[:rows, :columns] = arrays[0]
        result = np.empty(self.shape, BFLOAT16)
        plan = self.plan()
        if plan is None:
            raise Unsupported("a Newton-Schulz iteration: oneDNN is gone")
        plan.run(y, result)
        return [result[:rows, :columns]], []

    def backward(
        self, arrays: list[Any], outputs: list[Any], kept: list[Any], gs: list[Any]
    ) -> list[Any]:
        """Never asked for: there is no routine where a gradient is wanted."""
        raise Unsupported("the gradient of a Newton-Schulz iteration as a routine")


class _Matrix(NamedTuple):
    """Location of a contiguous matrix: slot and offset."""

    rows: int
    columns: int
    slot: int
    offset: int

    def part(self, row: int, rows: int) -> PlanArgument:
        """The argument for some rows."""
        memory = onednn.contiguous((rows, self.columns), BFLOAT16)
        return PlanArgument(memory, self.slot, self.offset + row * self.columns * BFLOAT16.itemsize)

    def whole(self, transposed: bool) -> PlanArgument:
        """The argument for the whole matrix, or its transpose."""
        sizes, strides = (self.rows, self.columns), (self.columns, 1)
        if transposed:
            sizes, strides = sizes[::-1], strides[::-1]
        return PlanArgument(onednn.described(sizes, strides, BFLOAT16), self.slot, self.offset)


class _Weighted(NamedTuple):
    """A product as part of a sum: `a` times the matrix plus `b` times the product."""

    a: float
    matrix: _Matrix
    b: float

    def following(self, part: Descriptor) -> list[Activation | Descriptor]:
        """Post-ops of the product."""
        return [(onednn.LINEAR, self.b / self.a, 0.0), part, (onednn.LINEAR, self.a, 0.0)]


def _build(m: int, k: int, a: float, b: float, c: float, steps: int) -> OneDnnPlan:
    """gram = y y'; y = a y + (b gram + c gram gram) y, `steps` times."""
    products = _Products(f"Newton-Schulz iteration of {(m, k)} {BFLOAT16.name}")
    gram, polynomial = products.room(m, m), products.room(m, m)
    between = products.room(m, k), products.room(m, k)
    y, last = (_Matrix(m, k, slot, 0) for slot in (0, 1))
    for n in range(steps):
        after = between[n % 2] if n + 1 < steps else last
        products.add(y, y, gram, transposed=True)
        products.add(gram, gram, polynomial, weighted=_Weighted(b, gram, c))
        products.add(polynomial, y, after, weighted=_Weighted(a, y, 1.0))
        y = after
    return OneDnnPlan(products.what, products.phases, 2, shared=products.taken)


class _Products:
    """Products one after the other; equal parts share their primitives."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.phases: list[list[list[PrimitiveStep]]] = []
        self.primitives: dict[Any, onednn.Primitive] = {}
        self.taken = 0

    def room(self, rows: int, columns: int) -> _Matrix:
        """Work memory for a matrix."""
        matrix = _Matrix(rows, columns, SHARED, self.taken)
        self.taken += aligned(rows * columns * BFLOAT16.itemsize)
        return matrix

    def add(
        self,
        x1: _Matrix,
        x2: _Matrix,
        result: _Matrix,
        transposed: bool = False,
        weighted: _Weighted | None = None,
    ) -> None:
        """result = x1 @ x2, or its transpose, in parts of the rows."""
        right = x2.whole(transposed)
        work = x1.rows * x1.columns * result.columns
        parts = min(2 * threads(), work // policy.PRODUCT_GRAIN) if threads() > 1 else 1
        chunks = []
        for row, rows in pieces(x1.rows, max(1, parts), TILE):
            left, target = x1.part(row, rows), result.part(row, rows)
            arguments = {SRC: left, WEIGHTS: right, DST: target}
            if weighted:
                arguments[ADDED] = weighted.matrix.part(row, rows)
            scales = None if weighted is None else (weighted.a, weighted.b)
            key = (rows, x1.columns, result.columns, transposed, scales)
            if key not in self.primitives:
                self.primitives[key] = onednn.primitive(
                    "matmul", self.what, onednn.library().engine,
                    left.memory, right.memory, None, target.memory,
                    following=weighted.following(target.memory) if weighted else (), prefer="brg",
                )  # fmt: skip
            chunks.append([PrimitiveStep(self.primitives[key], arguments)])
        self.phases.append(chunks)
