"""The state of a living graph, with which its program goes on in another process: values of its
inputs and parameters, the numbers of its draws, its generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dtype import from_numpy_dtype
from ..core.errors import CheckpointError
from ..ops.random.draws import Draw, DrawnFor
from ..runtime.cells import Cell, SourceCell, can_be_set, push
from ..runtime.editing import transaction
from ..runtime.tensors import wrap
from ..tensor import Tensor
from .nodes import set_value

if TYPE_CHECKING:
    from .graph import Graph


def _parts(graph: Graph) -> tuple[list[SourceCell], list[Cell]]:
    """The inputs and parameters that a graph has made, and its draws, in program order."""
    cells = graph._state.cells()
    sources = [x for x in cells if isinstance(x, SourceCell) and can_be_set(x)]
    return sources, [x for x in cells if isinstance(x.op, (Draw, DrawnFor))]


def state_of(graph: Graph) -> dict[str, Any]:
    """What `Graph.state_dict` gives."""
    with graph._state.lock:
        sources, draws = _parts(graph)
        numbers = [_drawing(cell) for cell in draws]
        return {
            "values": [None if x.array is None else wrap(x.array.copy()) for x in sources],
            "draws": [[str(each.seed), str(each.draw)] for each in numbers],
            "generator": None if graph.generator is None else graph.generator.get_state(),
        }


def _drawing(cell: Cell) -> Draw:
    op: Any = cell.op.drawing if isinstance(cell.op, DrawnFor) else cell.op
    drawing: Draw = op
    return drawing


def bring_back(graph: Graph, state: dict[str, Any]) -> None:
    """Do what `Graph.load_state_dict` does."""
    with graph._state.lock:
        sources, draws = _parts(graph)
        values, numbers = _checked(state, sources, draws)
        with transaction(graph._state):
            for source, value in zip(sources, values, strict=True):
                if value is not None:
                    set_value(source.handle(), value)
        if state["generator"] is not None and graph.generator is not None:
            graph.generator.set_state(state["generator"])
        for cell, (seed, draw) in zip(draws, numbers, strict=True):
            op: Any = cell.op
            cell.op, cell.seen, cell.stale = op.renumbered(seed, draw), None, True
            push(cell)
        for cell in graph._state.cells():
            for repeat in cell.repeats:  # it was done for these values
                repeat.last = graph._state.stamp()


def _checked(
    state: dict[str, Any], sources: list[SourceCell], draws: list[Cell]
) -> tuple[list[Tensor | None], list[tuple[int, int]]]:
    """The values and numbers of a state, which fit the graph."""
    if not isinstance(state, dict) or state.keys() != {"values", "draws", "generator"}:
        raise CheckpointError("Graph.load_state_dict: expected what Graph.state_dict() has given")
    values, numbers = state["values"], state["draws"]
    if len(values) != len(sources) or len(numbers) != len(draws):
        raise CheckpointError(
            f"Graph.load_state_dict: the state has {len(values)} inputs and parameters and "
            f"{len(numbers)} draws, the graph {len(sources)} and {len(draws)}; record the same "
            "program before"
        )
    for source, value in zip(sources, values, strict=True):
        if value is not None and value._data.dtype != source.dtype:
            raise CheckpointError(
                f"Graph.load_state_dict: {source.label!r} holds "
                f"{from_numpy_dtype(source.dtype)}, the state {value.dtype}"
            )
    return values, [(int(seed), int(draw)) for seed, draw in numbers]
