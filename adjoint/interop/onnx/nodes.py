"""Nodes of a Graph as a module, which is exported like any other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...autograd.recording import Same
from ...core.errors import GraphError
from ...core.tensor_base import TensorBase
from ...nn import Module, Parameter
from ...reactive import Graph
from ...reactive.nodes import cell_of
from ...runtime.cells import Cell, SourceCell, reached_from
from ...runtime.dispatch import apply
from ...runtime.node import Item
from ...runtime.tensors import wrap


class Nodes(Module):
    """Computes `outputs` from `inputs`, nodes of one Graph, as the graph does now. Other sources
    are parameters, called as in the graph.

    `inputs` of None are all inputs of the graph that the outputs depend on.
    """

    def __init__(self, outputs: Any, inputs: Any) -> None:
        super().__init__()
        self.results = _cells(outputs)
        owner: Graph = self.results[0].state.owner()
        if inputs is None:
            above = set(_between((), self.results))
            inputs = [x for x in owner.inputs.values() if x._data in above]
        self.given = _cells(inputs)
        if any(cell.state is not owner._state for cell in (*self.results, *self.given)):
            raise GraphError("onnx.export: the nodes belong to two graphs")
        self.steps = _between(self.given, self.results)
        self.held: dict[Cell, Any] = {}
        for cell in self.steps:
            if isinstance(cell, SourceCell):
                name = (cell.about or {}).get("name") or f"outside{len(self.held)}"
                while name in self._parameters:
                    name += "_"
                self.held[cell] = self._parameters[name] = Parameter(wrap(cell.realize()), False)

    def forward(self, *args: Any) -> Any:
        """The outputs."""
        values = {**self.held, **dict(zip(self.given, args, strict=True))}
        for cell in self.steps:
            if cell in values:
                continue
            given = [values[x] if isinstance(x, Cell) else x for x in cell.inputs]
            if isinstance(cell.op, Same):
                values[cell] = given[0]
            elif type(cell.op) is Item:
                values[cell] = given[0][cell.op.index]
            elif cell.op is not None:
                values[cell] = apply(cell.op, *given)
        return tuple(values[cell] for cell in self.results)


def named(cells: Iterable[Cell]) -> list[str] | None:
    """The names that the graph has for these nodes; None where it has not for each of them."""
    names = [(cell.about or {}).get("name") for cell in cells]
    return None if None in names else names  # type: ignore[return-value]


def _cells(nodes: Any) -> list[Cell]:
    nodes = [nodes] if isinstance(nodes, TensorBase) else list(nodes)
    return [cell_of(node, "onnx.export") for node in nodes]


def _between(starts: Sequence[Cell], ends: Sequence[Cell]) -> list[Cell]:
    """`ends` and what they depend on as far as `starts`, inputs before users."""
    known = set(starts)
    return reached_from(ends, lambda cell: () if cell in known else cell.cells)
