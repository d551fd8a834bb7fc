"""Pictures of a program: the graph that runs, in the formats of `adjoint.view`."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import InvalidArgument
from ...core.op import Op
from ...ir.program import Node, Program, Value
from ...reactive.view.snapshot import Edge, NodeInfo, Snapshot
from ..passes.kernels import Kernel
from ..schedule.schedule import Schedule


def snapshot(title: str, graph: Program, schedule: Schedule | None = None) -> Snapshot:
    """Picture of a graph: inputs, nodes, and named constants; with a schedule also how each node is
    computed and its buffer. Nodes are in the boxes of the modules that recorded them; the ops of a
    kernel are in a box of their own in that of its costliest op.
    """
    how = {y: step.how for step in schedule.steps for y in step.outputs} if schedule else {}
    infos: list[NodeInfo] = []
    edges: list[Edge] = []
    index_of: dict[Value, int] = {}
    kernels = 0

    def add(x: Value, info: NodeInfo) -> None:
        info.shape, info.dtype = tuple(x.shape), x.spec.dtype.name
        index_of[x] = len(infos)
        infos.append(info)

    def add_node(node: Node, attributes: dict[str, str], module: str) -> None:
        for x in node.values:
            if x.array is not None and x not in index_of and x.name:
                add(x, NodeInfo(len(infos), "parameter", x.name, "parameter"))
        index = len(infos)
        info = NodeInfo(index, node.op.name, module=module)
        info.attributes = {**_attributes(node.op), **attributes}
        add(node.outputs[0], info)
        index_of.update(dict.fromkeys(node.outputs, index))
        for position, x in enumerate(node.inputs):
            if isinstance(x, Value) and x in index_of:
                edges.append(Edge(index_of[x], index, position))
            elif not isinstance(x, Value):
                info.attributes[f"input {position}"] = repr(x)

    for x in graph.inputs:
        add(x, NodeInfo(len(infos), "input", x.name, "input"))
    for node in graph.nodes:
        y = node.outputs[0]
        attributes = {}
        if schedule is not None:
            attributes["computed by"] = how.get(y, "view")
            number = schedule.numbers.get(schedule.roots.get(y, y))
            if number is not None:
                attributes["buffer"] = str(number)
        module = node.module.partition(", +")[0]
        if not isinstance(node.op, Kernel):
            add_node(node, attributes, module)
            continue
        kernels += 1
        box = f"{node.op.name.replace('.', '')} {kernels}"
        for each in node.op.shown.nodes:
            add_node(each, attributes, f"{module}.{box}" if module else box)
        for own, outside in zip(node.op.shown.outputs, node.outputs, strict=True):
            index_of[outside] = index_of[own]
    for i, y in enumerate(graph.outputs):
        if y in index_of:
            index = len(infos)
            home = y.module.partition(", +")[0]
            info = NodeInfo(index, "output", f"output {i}", "boundary", module=home)
            info.shape, info.dtype = tuple(y.shape), y.spec.dtype.name
            infos.append(info)
            edges.append(Edge(index_of[y], index, 0))
    return Snapshot(infos, edges, title)


def _attributes(op: Op) -> dict[str, str]:
    """Fields of an op as text."""
    fields = getattr(type(op), "__dataclass_fields__", ())
    return {name: str(getattr(op, name)) for name in fields}


def draw(title: str, schedule: Schedule, path: Path) -> Path:
    """Write the picture in the format that the suffix names."""
    picture = snapshot(title, schedule.graph, schedule)
    if path.suffix == ".html":
        return picture.save_html(path)
    if path.suffix not in (".svg", ".dot"):
        raise InvalidArgument(
            f"draw: {path.name!r}: the suffix says what to draw: .svg, .dot or .html"
        )
    text = picture.to_svg() if path.suffix == ".svg" else picture.to_dot()
    path.write_text(text, encoding="utf-8")
    return path
