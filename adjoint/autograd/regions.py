"""Regions: cells of a graph that one call of a composite recorded, computed together as eagerly.

Every op of a composite is a cell, which can be asked for, edited and differentiated. Where all of
it is to be computed anew, a walk calls the composite on the arrays of its inputs instead, which
runs the kernels, or the routine, that eager execution has. What lies between is released: it is
computed by its own op when something asks for it. A remembered backward pass has one node for the
region: the reverse walk over the tape of that call.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core import policy
from ..core.device import CPU
from ..core.errors import GraphError
from ..core.mode import DEFAULT, MODE, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..runtime.cells import Cell, GraphState, missing_of, pass_over, versions_of
from ..runtime.node import Leaf, next_order
from ..runtime.tensors import wrap, zeros
from .engine import run_backward
from .recording import is_cut, record_cell, source_of

if TYPE_CHECKING:
    from ..core.tensor_type import Tensor
    from ..runtime.fused import Declared
    from .protocols import BackendArray

_UNKNOWN: Any = object()


class Region:
    """The cells of one call of a composite.

    Nothing here keeps cells alive that nothing else does, except the inputs.
    """

    __slots__ = (
        "__weakref__", "attached", "cells", "declared", "flows", "inputs", "outputs", "seen",
        "statics", "tape", "usable", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        declared: Declared,
        args: tuple[Any, ...],
        inputs: tuple[Cell, ...],
        outputs: Sequence[Cell],
        cells: Sequence[Cell],
        flowing: set[Cell],
    ) -> None:
        self.declared = declared
        self.statics = tuple([_UNKNOWN if isinstance(x, TensorBase) else x for x in args])
        self.inputs = inputs
        self.attached = tuple([cell in flowing for cell in inputs])  # gradients flow into them
        self.flows = tuple([cell in flowing for cell in outputs])  # and from these
        self.outputs = tuple([cell.reference for cell in outputs])
        self.cells = tuple([cell.reference for cell in cells])  # outputs too; inputs before users
        self.usable = True  # no edit has changed it
        self.wanted: frozenset[int] = frozenset()  # inputs whose gradients a backward has asked for
        self.seen: tuple[int, ...] | None = None  # the inputs' versions at the last call
        self.tape: tuple[list[Any], dict[int, Leaf]] | None = None  # of that call, for a backward
        self._own(cells, outputs)

    def _own(self, cells: Sequence[Cell], outputs: Sequence[Cell]) -> None:
        for cell in cells:
            cell.region = self
        for cell in outputs:
            cell.given = True

    def copy_to(self, copies: Mapping[Cell, Cell]) -> None:
        """Make the same of the copies of its cells, in a copy of the graph."""
        living = [reference() for reference in self.outputs]
        outputs = [None if cell is None else copies.get(cell) for cell in living]
        cells = [copies[cell] for r in self.cells if (cell := r()) is not None and cell in copies]
        if not self.usable or not all(x in copies for x in self.inputs):
            return
        other = Region.__new__(Region)
        other.declared, other.statics, other.usable = self.declared, self.statics, True
        other.attached, other.flows = self.attached, self.flows
        other.wanted, other.seen = self.wanted, self.seen
        other.inputs = tuple([copies[x] for x in self.inputs])
        other.outputs = tuple([_NOTHING if x is None else x.reference for x in outputs])
        other.cells = tuple([x.reference for x in cells])
        other.tape = None
        other._own(cells, [x for x in outputs if x is not None])

    # ---- as a walk asks for it -------------------------------------------------------------------

    def missing(self, promised: dict[Cell, None]) -> list[Cell]:
        """The inputs that must be computed before."""
        return missing_of(self.inputs, promised)

    def is_due(self, cell: Cell) -> bool:
        """Whether the composite is to be called for the output `cell`, whose inputs are there."""
        return cell.array is None or self.seen != versions_of(self.inputs)

    def run(self, state: GraphState) -> None:
        """Call the composite; give outputs their values, and release what lies between."""
        began = time.perf_counter_ns()
        arrays: list[Any] = []
        for cell in self.inputs:
            arrays.append(cell.array)
        results = self._call(arrays)
        outputs = [reference() for reference in self.outputs]
        self._assert_agree(outputs, results)
        self.seen = versions_of(self.inputs)
        changed = pass_over(self.cells)
        for n, output in enumerate(outputs):
            if output is not None and output.array is None:
                output.array = results[n]
        state.runs += len(changed)
        if state.observer is not None:
            each = (time.perf_counter_ns() - began) // max(len(changed), 1)
            for cell in changed:
                state.observer.on_run(cell, each)
        if state.fleeting:
            for cell in changed:
                cell.let_inputs_go()

    def _assert_agree(self, outputs: list[Cell | None], results: list[Any]) -> None:
        """Refuse results of other shapes or dtypes than the graph has inferred."""
        for n, cell in enumerate(outputs):
            y = results[n]
            if cell is not None and (y.shape != cell.shape or y.dtype != cell.dtype):
                raise GraphError(
                    f"{self.declared.function.__name__}: gives shape {tuple(y.shape)} and "
                    f"{y.dtype} for what its inputs are now, and was recorded where that was "
                    f"{tuple(cell.shape)} and {cell.dtype}; record it again"
                )

    # ---- the call --------------------------------------------------------------------------------

    def _call(self, arrays: list[Any]) -> list[Any]:
        """The arrays of the outputs; the tape is kept where a backward will ask for gradients."""
        leaves: dict[int, Leaf] = {}
        args: list[Any] = []
        n = 0
        for static in self.statics:
            if static is not _UNKNOWN:
                args.append(static)
                continue
            x: Any = wrap(arrays[n])
            if n in self.wanted:
                x._node = x._leaf = leaves[n] = Leaf(x)
            args.append(x)
            n += 1
        mode = MODE.get()
        try:
            MODE.set(_GRAD if leaves else _NO_GRAD)
            result = self.declared.run(*args)
        finally:
            MODE.set(mode)
        ys = result if type(result) is tuple else (result,)
        self.tape = ([y._node for y in ys], leaves) if leaves else None
        return [y._data for y in ys]

    def gradients(
        self, gs: Sequence[Any], arrays: Sequence[Any], wants: Sequence[int]
    ) -> list[Any]:
        """The arrays of the gradients of the inputs `wants`, from those of the outputs (None for
        an output without one).
        """
        tape, self.tape = self.tape, None
        if (
            tape is None
            or self.seen != versions_of(self.inputs)
            or not tape[1].keys() >= set(wants)
        ):
            self.wanted = self.wanted.union(wants)
            self._call(list(arrays))
            tape, self.tape = self.tape, None
            assert tape is not None
        nodes, leaves = tape
        roots = [
            (node, wrap(g))
            for node, g in zip(nodes, gs, strict=True)
            if g is not None and node is not None
        ]
        reached = run_backward(
            roots,
            retain_graph=False,
            create_graph=False,
            targets=[leaves[i] for i in wants],
            accumulate=False,
        )
        arrays_of = []
        for i in wants:
            g = reached.get(leaves[i])
            if g is None:
                g = zeros(arrays[i].shape, arrays[i].dtype, CPU)
            arrays_of.append(g._data)
        return arrays_of

    # ---- in a backward pass ----------------------------------------------------------------------

    def is_whole(self, tape: set[Cell]) -> bool:
        """Whether a backward pass over the cells `tape` may take the region as one: only its
        outputs are used outside of it, and nothing inside is a leaf or has hooks.
        """
        if not self.usable or not any(self.attached):
            return False
        cells = {cell for reference in self.cells if (cell := reference()) is not None}
        for cell in cells:
            if cell.leaf is not None or (cell.extra is not None and not cell.given):
                return False
            if not cell.given:
                for user in cell.living_users():
                    if user not in cells and user in tape:
                        return False
        return True


class _Dead:
    """Target of a weak reference that is dead at once."""


_NOTHING: Any = weakref.ref(_Dead())  # dead at once

_NO_GRAD = mode_with(DEFAULT, grad=False)
_GRAD = mode_with(DEFAULT, grad=True)


def record_composite(
    state: GraphState, declared: Declared, args: tuple[Any, ...]
) -> Tensor | tuple[Tensor, ...]:
    """The results of a composite whose ops become cells, which a walk may compute together."""
    mode = MODE.get()
    if not mode.grad or mode.casts or mode.step is not None or state.cutoff:
        plain: Tensor | tuple[Tensor, ...] = declared.function(*args)
        return plain
    since = next_order()
    result: Tensor | tuple[Tensor, ...] = declared.function(*args)
    ys: Sequence[Tensor] = result if isinstance(result, tuple) else (result,)
    inputs = [x for x in args if isinstance(x, TensorBase)]
    if all(type(y._data) is Cell for y in ys):
        _note(state, declared, args, inputs, [y._data for y in ys], since)
    return result


def _note(
    state: GraphState,
    declared: Declared,
    args: tuple[Any, ...],
    inputs: Sequence[Any],
    outputs: Sequence[Cell],
    since: int,
) -> None:
    """Make a region of the cells recorded `since` then, if they depend on nothing but `inputs`."""
    sources: list[Cell] = []
    attached: set[Cell] = set()
    for x in inputs:
        cell = x._data if isinstance(x._data, Cell) else source_of(state, x)
        if cell.state is not state or cell.device is not CPU:
            return
        sources.append(cell)
        if not is_cut(cell, x):
            attached.add(cell)
    cells = _between(sources, outputs, since)
    if cells is None or len(cells) < policy.REGION_CELLS or len(set(outputs)) < len(outputs):
        return
    Region(declared, args, tuple(sources), outputs, cells, _flowing(cells, outputs, attached))


def _between(sources: Sequence[Cell], outputs: Sequence[Cell], since: int) -> list[Cell] | None:
    """The cells that compute `outputs` from `sources`, inputs before users; None where they depend
    on anything else that may change, or are drawn.
    """
    ends = set(sources)
    met = set(outputs)
    stack = list(met)
    if not met.isdisjoint(ends):
        return None
    for cell in stack:
        op = cell.op
        if op is None:  # a constant of the composite's
            continue
        if cell.order < since or cell.repeats or getattr(op, "drawn", False) or op.opaque:
            return None
        for above in cell.cells:
            if above not in met and above not in ends:
                met.add(above)
                stack.append(above)
    return sorted([cell for cell in met if cell.op is not None], key=lambda cell: cell.order)


def _flowing(cells: Sequence[Cell], outputs: Sequence[Cell], attached: set[Cell]) -> set[Cell]:
    """The cells, and those `attached`, from which gradients of the outputs flow to the latter."""
    below = set(attached)
    for cell in cells:
        if cell.tracked and any(
            x in below and i not in cell.cut for i, x in enumerate(cell.inputs)
        ):
            below.add(cell)
    flowing = below.intersection(outputs)
    for cell in reversed(cells):
        if cell in flowing:
            flowing.update(x for i, x in enumerate(cell.inputs) if i not in cell.cut and x in below)
    return flowing


# ---- the node of a backward pass -----------------------------------------------------------------


class RegionNode(Op, abstract=True):
    """A region on the tape of a backward pass that is recorded: its gradient is one op."""

    def __init__(self, region: Region, tensors: Sequence[Any], wants: Sequence[int]) -> None:
        self.region = region
        self.tensors = tuple(tensors)  # of the inputs
        self.wants = tuple(wants)
        vars(self)["n_outputs"] = len(region.outputs)

    @property
    def name(self) -> str:
        """Name of the composite."""
        return self.region.declared.function.__name__

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """The gradients, as results of one cell."""
        region = self.region
        gs = g if self.n_outputs > 1 else [g]
        given = [each for each in gs if each is not None]
        y = next(cell for reference in region.outputs if (cell := reference()) is not None)
        op = RegionBackward(region, [each is not None for each in gs], self.wants)
        results = record_cell(y.state, op, (*given, wrap(y), *self.tensors))
        own = iter(results if type(results) is tuple else (results,))
        return tuple([next(own) if i in self.wants else None for i in range(len(region.inputs))])


class RegionBackward(Op, abstract=True):
    """The gradients of a region's inputs, from those of its outputs. An output is an input too, so
    that the composite is called before.
    """

    opaque = True
    differentiable = False

    def __init__(self, region: Region, given: Sequence[bool], wants: Sequence[int]) -> None:
        self.region = region
        self.given = tuple(given)
        self.wants = tuple(wants)
        vars(self)["n_outputs"] = len(wants)

    @property
    def name(self) -> str:
        """Name of the composite's gradient."""
        return f"{self.region.declared.function.__name__}_backward"

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """Specs of the inputs that want a gradient."""
        inputs = specs[len(specs) - len(self.region.inputs) :]
        results = tuple([inputs[i] for i in self.wants])
        return results if len(results) > 1 else results[0]

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Walk back over the tape of the last call, or of another one where it is gone."""
        incoming = iter(arrays)
        gs = [next(incoming) if has else None for has in self.given]
        inputs = arrays[len(arrays) - len(self.region.inputs) :]
        results = self.region.gradients(gs, inputs, self.wants)
        return tuple(results) if len(results) > 1 else results[0]
