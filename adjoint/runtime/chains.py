"""Chains: stale cells of elementwise ops that are computed one after another, as one kernel.

A walk that is to compute a cell may promise it first, and computes what it has promised before the
next cell that is no part of the chain. What a chain gives is what its ops give one by one, bit for
bit, and is all stored. Only what comes many times is compiled, since that takes milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..core import dispatch_log, policy
from ..core.device import CPU
from ..core.dtype import LOW_PRECISION
from ..core.errors import AdjointError, NotTraceable
from ..core.sized_tables import SizedTable
from ..core.symbolic_scalar import ScalarGraph
from ..ir import compute as core_compute
from ..ir.executable import forgettable
from ..ir.program import Node, Program, Value
from .lazy import LazyValue, run

if TYPE_CHECKING:
    from ..backends.native.lowering.composite import Composite
    from ..core.protocols import Observer
    from .cells import Cell, GraphState

_LOW = frozenset(d.numpy for d in LOW_PRECISION)


class Chain:
    """The cells that a walk has promised to compute. They count as computed, except that their
    arrays are missing.
    """

    __slots__ = ("_known", "_made", "_most", "_profiler", "_shape", "cells", "state")

    def __init__(self, state: GraphState, profiler: Observer | None) -> None:
        self.state = state
        self._profiler = profiler  # None: nobody wants to see what is computed
        self.cells: dict[Any, int] = {}  # with their `order`
        self._known = state.chains
        self._shape: Any = None  # of the promised cells
        self._most = 0  # the largest number of cells in the chain
        self._made = 0  # kernels that this walk has asked for

    def takes(self, cell: LazyValue, order: int) -> bool:
        """Promise a cell if it can be part of a chain, computing the cells promised before where it
        does not fit them.
        """
        op: Any = cell.op
        if not op.pointwise or op.strict or cell.device is not CPU:
            return False
        shape = cell.shape
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
        cells[cell] = order
        return True

    def compute(self) -> None:
        """Compute the promised cells.

        Errors: what ops raise; then what was not computed is stale again.
        """
        cells: list[Any] = list(self.cells)
        done = 0
        try:
            results = self._by_kernel(cells) if len(cells) > 1 else None
            for cell in cells:
                if results is not None:
                    cell.array = results[done]
                elif self._profiler is None:
                    cell.array = run(cell.op, given(cell))
                else:
                    cell.array = self._profiler.compute(cell.op, given(cell), run)
                done += 1
        finally:
            self.state.runs += done
            self.forget(done)
        if self.state.fleeting:
            for cell in cells:
                cell.let_inputs_go()

    def forget(self, kept: int = 0) -> None:
        """Withdraw the promises, except the first `kept`, which were fulfilled."""
        if kept < len(self.cells):
            for cell in list(self.cells)[kept:]:
                cell.stale, cell.seen = True, None
        self.cells.clear()

    def _by_kernel(self, cells: list[Any]) -> Sequence[Any] | None:
        """The arrays of all cells by one kernel; None if there is none, or the chain has not come
        often enough.
        """
        key = tuple(self.cells.values())
        entry = self._known.get(key, 0)
        if type(entry) is int:
            if entry < policy.CHAIN_SEEN:
                if len(self._known) >= policy.CHAINS:
                    self._known.clear()
                self._known[key] = entry + 1
                return None
            if self._made >= policy.CHAINS_MADE:
                return None
            self._made += 1
            _states.add(self.state)
            entry = self._known[key] = _made(cells)
        kernel, places = entry
        if kernel is None:
            return None
        arrays = []
        for k, j in places:
            x = cells[k]
            x = x.inputs[j]
            if not x.array.flags.c_contiguous:  # apart, results lie as these do
                return None
            arrays.append(x.array)
        if self._profiler is None:
            return kernel(arrays)
        return self._profiler.chain([cell.op for cell in cells], arrays, kernel)


def given(cell: Cell) -> list[Any]:
    """The arrays and numbers that a cell is computed from."""
    arrays: list[Any] = []
    for each in cell.inputs:
        if isinstance(each, LazyValue):
            x = each
            arrays.append(x.array)
        else:
            arrays.append(each)
    return arrays


def _weigh(kept: tuple[tuple[Composite, Any] | None]) -> int:
    return policy.KEY_BYTES + (0 if kept[0] is None else kept[0][0].sized_bytes)


# By the ops of chains, shapes and dtypes: the kernel for any numbers, and the function from these
# to the kernel's numbers; None where there is none.
_kernels: SizedTable[tuple[tuple[Composite, Any] | None]] = SizedTable("kernels of chains", _weigh)
_states: WeakSet[Any] = WeakSet()  # states whose `chains` hold kernels


def _forget() -> None:
    _kernels.clear()
    for state in list(_states):
        state.chains.clear()


forgettable(_forget)


def _made(cells: list[Any]) -> tuple[Any, list[tuple[int, int]]]:
    """The kernel of a chain, or None, and its inputs as pairs (cell number, input number)."""
    places: list[tuple[int, int]] = []
    numbers: list[float] = []
    names: dict[Any, int] = {}  # of what is read: negative for the chain's own cells
    key: list[Any] = []
    for k, cell in enumerate(cells):
        key.append(cell.op)
        for j, x in enumerate(cell.inputs):
            if isinstance(x, LazyValue):
                if x not in names:
                    names[x] = len(places)
                    places.append((k, j))
                    key.append((x.shape, x.dtype))
                key.append(names[x])
            elif type(x) is float:
                numbers.append(x)
                key.append(float)
            else:
                key.append((type(x), x))
        names[cell] = ~k
    chain_key = tuple(key)
    kept = _kernels.find(chain_key)
    if kept is None:
        kept = (_compiled(cells, places),)
        _kernels.put(chain_key, kept)
    made = kept[0]
    values = None if made is None else made[1](*numbers)
    return (None if made is None or values is None else made[0].with_numbers(values)), places


def _compiled(cells: list[Any], places: list[tuple[int, int]]) -> tuple[Composite, Any] | None:
    arithmetic = ScalarGraph()
    values = {cells[k].inputs[j]: Value(cells[k].inputs[j].spec) for k, j in places}
    inputs, nodes = list(values.values()), []
    for cell in cells:
        operands = [
            values[x]
            if isinstance(x, LazyValue)
            else arithmetic.scalar(x)
            if type(x) is float
            else x
            for x in cell.inputs
        ]
        nodes.append(Node(cell.op, operands, [cell.spec]))
        values[cell] = nodes[-1].output
    if any(x.dtype in _LOW or x.dtype.kind not in "fiub" for x in values):
        return None
    try:
        program = Program(inputs, nodes, [values[cell] for cell in cells])
        kernel = core_compute.chained(program, arithmetic)  # type: ignore[misc]
    except (NotTraceable, AdjointError) as error:
        dispatch_log.said(f"a chain of {len(cells)} cells", "its ops one by one", error)
        return None
    return None if kernel is None else (kernel, arithmetic.function(kernel.sources))
