"""Copying the cells of a graph to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .cells import Cell, GraphState, SourceCell, new_cell
from .repeats import GraphCopy, attach


def copy_cells(
    cells: Iterable[Cell], state: GraphState, sources: Mapping[Cell, SourceCell]
) -> dict[Cell, Cell]:
    """Copy cells to another graph, with values and versions. Copied sources follow the same outside
    tensors, except those for which `sources` has a cell there already. Maps each cell to its copy.
    """
    copies: dict[Cell, Cell] = {}
    for cell in cells:
        twin: Cell
        op = cell.op
        if op is None:
            twin = sources[cell] if cell in sources else _copied_source(cell, state)
        else:
            inputs = cell.inputs
            if inputs is cell.cells:
                inputs = tuple([copies[x] for x in inputs])
            else:
                inputs = tuple([copies[x] if isinstance(x, Cell) else x for x in inputs])
            twin = new_cell(state, op, inputs, cell.shape, cell.dtype, cell.device)
            twin.array = cell.array
            twin.stale = cell.stale
            twin.seen = cell.seen
            twin.tracked = cell.tracked
            if cell.fleeting:
                twin.pass_by()
        twin.version = cell.version
        if cell.rare is not None:
            _copy_rare(cell, twin)
        copies[cell] = twin
    for region in dict.fromkeys([cell.region for cell in copies if cell.given]):
        region.copy_to(copies)
    return copies


def _copied_source(cell: Cell, state: GraphState) -> SourceCell:
    assert isinstance(cell, SourceCell)
    array = cell.array
    own = array is not None and cell.follows is None
    twin = SourceCell(state, cell.shape, cell.dtype, array.copy() if own else array)
    if cell.follows is not None:
        twin.follow(cell.follows)
    return twin


def _copy_rare(cell: Cell, twin: Cell) -> None:
    """Copy what few cells have."""
    if cell.op is not None:
        if cell.cut:
            twin.cut = cell.cut
        twin.planned = cell.planned
    if cell.cutoff:
        twin.cutoff = True
    if cell.about is not None:
        twin.about = dict(cell.about)


def copy_repeats(copy: GraphCopy) -> None:
    """Let the cells of a copied graph do again what those of the original do."""
    for cell, twin in copy.cells.items():
        for repeat in cell.repeats:
            again = repeat.copied(copy)
            if again is not None:
                attach(twin, again)
