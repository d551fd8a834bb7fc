"""Chains: stale cells of elementwise ops that are computed one after another, as one kernel.

A walk that is to compute a cell may promise it first, and computes what it has promised before the
next cell that is no part of the chain. What a chain gives is what its ops give one by one, bit for
bit, and is all stored. Only what comes many times is compiled, since that takes milliseconds.
"""

from __future__ import annotations

import math
from typing import Any

from ..core import policy
from ..core.device import CPU
from ..core.dtype import LOW_PRECISION
from ..core.errors import AdjointError, NotTraceable
from ..core.scalar import Arithmetic
from ..program import compute as core_compute
from ..program.program import Node, Program, Value
from .lazy import LazyValue, run

_LOW = frozenset(d.numpy for d in LOW_PRECISION)


class Chain:
    """The cells that a walk has promised. They count as computed, but for their arrays."""

    __slots__ = ("_known", "_most", "_shape", "cells", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.cells: dict[Any, None] = {}
        self._known = state.chains
        self._shape: Any = None  # of the promised cells
        self._most = 0  # how many there may be

    def takes(self, cell: Any) -> bool:
        """Promise a cell, if that goes: the others are computed first where it does not fit."""
        op, shape, rare = cell.op, cell.shape, cell.rare
        if not op.pointwise or op.strict or cell.device is not CPU:
            return False
        if rare is not None and rare.cutoff:
            return False
        cells = self.cells
        if shape != self._shape:
            if cells:
                self.compute()
            size = math.prod(shape)
            self._shape = shape
            self._most = policy.CHAIN if size < policy.CHAIN_LARGE else policy.CHAIN // 2
            if size <= core_compute.SMALL:
                self._most = 0
        if len(cells) >= self._most:
            if not self._most:
                return False
            self.compute()
        cells[cell] = None
        return True

    def compute(self) -> None:
        """Compute the promised cells.

        Errors: what ops raise; then what was not computed is stale again.
        """
        cells = list(self.cells)
        done = 0
        try:
            found = self._by_kernel(cells) if len(cells) > 1 else None
            for cell in cells:
                cell.array = run(cell.op, given(cell)) if found is None else found[done]
                done += 1
            self.cells.clear()
        finally:
            self.state.runs += done
            for cell in cells[:done]:
                self.cells.pop(cell, None)
            self.forget()

    def forget(self) -> None:
        """Take the promises back."""
        for cell in self.cells:
            cell.stale, cell.seen = True, None
        self.cells.clear()

    def _by_kernel(self, cells: list[Any]) -> Any:
        """The arrays of all by one kernel; None where there is none, or the chain is new."""
        key = tuple([cell.order for cell in cells])
        known = self._known.get(key, 0)
        if type(known) is int:
            if known < policy.CHAIN_SEEN:
                if len(self._known) >= policy.CHAINS:
                    self._known.clear()
                self._known[key] = known + 1
                return None
            known = self._known[key] = _made(cells)
        kernel, places = known
        arrays = [cells[k].inputs[j].array for k, j in places]
        for x in arrays:
            if not x.flags.c_contiguous:  # apart, results lie as these do
                return None
        return None if kernel is None else kernel(arrays)


def given(cell: Any) -> list[Any]:
    """The arrays and numbers that a cell is computed from."""
    return [x.array if isinstance(x, LazyValue) else x for x in cell.inputs]


def _made(cells: list[Any]) -> tuple[Any, list[tuple[int, int]]]:
    """The kernel of a chain, None where it has none, and of which cells it takes which inputs."""
    arithmetic = Arithmetic()
    values: dict[Any, Value] = {}
    nodes = []
    places = []
    for k, cell in enumerate(cells):
        operands: list[Any] = []
        for j, x in enumerate(cell.inputs):
            if isinstance(x, LazyValue):
                if x not in values:
                    values[x] = Value(x.spec)
                    places.append((k, j))
                operands.append(values[x])
            else:
                operands.append(arithmetic.scalar(x) if type(x) is float else x)
        node = Node(cell.op, tuple(operands), [cell.spec])
        nodes.append(node)
        values[cell] = node.outputs[0]
    if any(x.dtype in _LOW or x.dtype.kind not in "fiub" for x in values):
        return None, []
    inputs = [values[cells[k].inputs[j]] for k, j in places]
    program = Program(inputs, nodes, [values[cell] for cell in cells])
    try:
        return core_compute.chained(program, arithmetic), places  # type: ignore[misc]
    except (NotTraceable, AdjointError):
        return None, []
