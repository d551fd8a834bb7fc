"""Control flow: If, Loop and Scan, whose bodies are graphs of their own.

Where values are at hand they are Python's `if`, `while` and `for`; where a module is captured, by
`freeze`, `compile` or a Graph, they are `cond`, `while_loop` and `scan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....autograd.recording import is_captured
from ....core.errors import CheckpointError
from ....tensor import Tensor
from ..files import DTYPES
from .imported_node import ImportedNode, ad, axis_in, host, operator, t

CONTROL = {"If", "Loop", "Scan"}  # operators with graphs of their own
DEPTH = 16  # of graphs inside of graphs
TRIPS = 1 << 24  # of a loop that nothing but their number ends


@dataclass(eq=False, repr=False)
class Subgraph:
    """A graph inside of a node."""

    inputs: list[str]
    outputs: list[str]
    outside: list[str]  # the values of the graphs around it that it computes with
    values: dict[str, Any]  # constants
    steps: list[ImportedNode]
    types: list[Any]  # element type and shape of each output, where the file says them


@dataclass(eq=False, repr=False)
class GraphBody:
    """A graph inside of a node in one run: a function of its inputs."""

    graph: Subgraph
    node: ImportedNode
    outside: dict[str, Any]

    def __call__(self, *args: Any) -> list[Any]:
        """The outputs for these inputs."""
        values = {**self.outside, **self.graph.values}
        values.update(zip(self.graph.inputs, args, strict=True))
        for step in self.graph.steps:
            found = self.node.run(step, [values[name] if name else None for name in step.inputs])
            values.update(zip(step.outputs, found, strict=False))
        return [values[name] for name in self.graph.outputs]


def _parts(
    n: ImportedNode, inputs: Sequence[Any], *names: str
) -> tuple[list[Any], list[GraphBody]]:
    """A node's own inputs, and its bodies."""
    own = len(n.inputs) - len(n.outside)
    outside = dict(zip(n.outside, inputs[own:], strict=True))
    graphs = [n.get(name) for name in names]
    if not all(isinstance(graph, Subgraph) for graph in graphs):
        raise CheckpointError(f"onnx: node {n.label} has no {' and '.join(names)}")
    return list(inputs[:own]), [GraphBody(graph, n, outside) for graph in graphs]


def _tensors(xs: Sequence[Any]) -> list[Tensor]:
    return [t(x) for x in xs]


def _captured(*parts: Any) -> bool:
    return any(isinstance(x, Tensor) and is_captured(x) for x in parts)


def _control() -> Any:
    from ....compiler.capture import control  # above this layer, and imported where it is needed

    return control


def _truth(n: ImportedNode, x: Any) -> bool:
    """A condition of one element."""
    array = host(x)
    if array.size != 1:
        raise ValueError(f"a condition of shape {array.shape}")
    return bool(array.reshape(()))


def _assert_fits(n: ImportedNode, body: GraphBody, inputs: int, outputs: int) -> None:
    given, made = len(body.graph.inputs), len(body.graph.outputs)
    if given != inputs or made != outputs:
        raise CheckpointError(
            f"onnx: node {n.label}: its graph takes {given} values and gives {made}, where "
            f"{inputs} and {outputs} are due"
        )


@operator("If")
def _(n: ImportedNode, *inputs: Any) -> Any:
    (condition,), bodies = _parts(n, inputs, "then_branch", "else_branch")
    for body in bodies:
        _assert_fits(n, body, 0, len(n.outputs))
    if not _captured(condition):
        return tuple(bodies[0 if _truth(n, condition) else 1]())
    yes, no = (lambda body=body: tuple(_tensors(body())) for body in bodies)
    return tuple(_control().cond(condition.reshape(()), yes, no))


@operator("Loop")
def _(n: ImportedNode, *inputs: Any) -> Any:
    given, (body,) = _parts(n, inputs, "body")
    most, start, *carried = given
    count = len(carried)
    _assert_fits(n, body, count + 2, len(n.outputs) + 1)
    if most is not None and not isinstance(most, Tensor):
        most = host(most)
    if _captured(*given, *body.outside.values()):
        return _captured_loop(n, body, most, start, carried)
    most = None if most is None else int(host(most).reshape(()))
    if most is not None and most > TRIPS and _goes_on(body):
        raise n.unsupported(f"a loop of {most} iterations")
    going = start is None or _truth(n, start)
    rows: list[list[Any]] = [[] for _ in body.graph.outputs[count + 1 :]]
    i = 0
    while going and (most is None or i < most):
        going_on, *found = body(np.array(i), np.array(True), *carried)
        carried = found[:count]
        for column, x in zip(rows, found[count:], strict=True):
            column.append(x)
        going = _truth(n, going_on)
        i += 1
    types = body.graph.types[count + 1 :]
    return (*carried, *(_side_by_side(x, known) for x, known in zip(rows, types, strict=True)))


def _captured_loop(
    n: ImportedNode, body: GraphBody, most: Any, start: Any, carried: list[Any]
) -> Any:
    control, count = _control(), len(carried)
    steady = _goes_on(body) and not _captured(start)
    if steady and not _captured(most) and most is not None:
        trips = int(host(most).reshape(()))
        if start is not None and not _truth(n, start):
            trips = 0

        def turn(values: Any, i: Any) -> Any:
            _, *found = body(i, np.array(True), *values)
            found = _tensors(found)
            return tuple(found[:count]), tuple(found[count:])

        places = t(np.arange(max(trips, 0)))
        last, results = control.scan(turn, tuple(_tensors(carried)), places)
        return (*last, *results)
    if len(n.outputs) > count:
        raise n.unsupported(
            "a captured loop whose number of results depends on values (call it eagerly)"
        )

    def goes_on(i: Any, going: Any, *values: Any) -> Any:
        return going if most is None else going & (i < t(most).reshape(()))

    def step(i: Any, going: Any, *values: Any) -> Any:
        going_on, *found = body(i, going, *values)
        return (i + 1, t(going_on).reshape(()), *_tensors(found))

    first = t(np.array(True)) if start is None else t(start).reshape(())
    _, _, *found = control.while_loop(goes_on, step, (t(np.array(0)), first, *_tensors(carried)))
    return tuple(found)


def _goes_on(body: GraphBody) -> bool:
    """Whether a loop's graph says that it goes on, whatever the values are."""
    graph = body.graph
    made = {name: step for step in graph.steps for name in step.outputs}
    name = graph.outputs[0]
    while name in made and made[name].kind in ("Identity", "Cast"):
        name = made[name].inputs[0]
    known = graph.values.get(name, body.outside.get(name, False))
    return name == graph.inputs[1] or (not isinstance(known, Tensor) and bool(np.all(known)))


def _side_by_side(rows: list[Any], known: Any, axis: int = 0) -> Any:
    """Results of all iterations along a new dimension; of none, as the file says that they are."""
    if rows:
        return ad.stack(_tensors(rows), axis)
    kind, shape = known
    sizes = [size or 0 for size in shape]
    return np.zeros([*sizes[:axis], 0, *sizes[axis:]], DTYPES.get(kind, np.dtype("f4")))


@operator("Scan")
def _(n: ImportedNode, *inputs: Any) -> Any:
    given, (body,) = _parts(n, inputs, "body")
    if n.opset < 9:
        raise n.unsupported(f"the form of opset {n.opset}, with a batch,")
    columns = n.get("num_scan_inputs", 0)
    count = len(given) - columns
    _assert_fits(n, body, len(given), len(n.outputs))
    if columns < 1 or count < 0:
        raise ValueError(f"{columns} scan inputs of {len(given)}")
    xs = _tensors(given[count:])
    results = len(n.outputs) - count
    axes = n.get("scan_input_axes") or [0] * columns
    ways = n.get("scan_input_directions") or [0] * columns
    out_axes = n.get("scan_output_axes") or [0] * results
    out_ways = n.get("scan_output_directions") or [0] * results
    xs = [ad.movedim(x, axis_in(axis, x.ndim), 0) for x, axis in zip(xs, axes, strict=True)]
    xs = [x.flip(0) if way else x for x, way in zip(xs, ways, strict=True)]
    lengths = {x.shape[0] for x in xs}
    if len(lengths) != 1:
        raise ValueError(f"scan inputs of {sorted(lengths)} slices")
    states = given[:count]
    if _captured(*given, *body.outside.values()):

        def row(values: Any, slices: Any) -> Any:
            found = _tensors(body(*values, *slices))
            return tuple(found[:count]), tuple(found[count:])

        states, made = _control().scan(row, tuple(_tensors(states)), tuple(xs))
        made = [x.flip(0) if way else x for x, way in zip(made, out_ways, strict=True)]
        made = [ad.movedim(x, 0, axis_in(a, x.ndim)) for x, a in zip(made, out_axes, strict=True)]
        return (*states, *made)
    rows: list[list[Any]] = [[] for _ in range(results)]
    for i in range(*lengths):
        found = body(*states, *(x[i] for x in xs))
        states = found[:count]
        for column, x in zip(rows, found[count:], strict=True):
            column.append(x)
    made = []
    for column, known, way, axis in zip(
        rows, body.graph.types[count:], out_ways, out_axes, strict=True
    ):
        rank = (column[0].ndim if column else len(known[1])) + 1
        made.append(_side_by_side(column[::-1] if way else column, known, axis_in(axis, rank)))
    return (*states, *made)
