"""A graph module is cut into several, each a module of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.errors import InvalidArgument
from ....nn.modules.module import Module
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg

__all__ = ["split_module"]


class _Part:
    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.needs: dict[_Part, None] = {}


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    **others: Any,
) -> GraphModule:
    """A module of modules `submod_K`, where `split_callback` gives the K of each node.

    Errors: InvalidArgument where parts would need each other.
    Source: https://docs.pytorch.org/docs/stable/fx.html

    >>> from adjoint.fx.passes.split_module import split_module
    >>> module = ad.fx.symbolic_trace(lambda x: x.relu().neg())
    >>> halves = split_module(module, module, lambda node: int(node.name == "neg"))
    >>> print(halves.code.strip())
    def forward(self, x):
        submod_0 = self.submod_0(x);  x = None
        submod_1 = self.submod_1(submod_0);  submod_0 = None
        return submod_1
    >>> halves(ad.ones(1))
    tensor([-1.])
    """
    if any(others.values()):
        raise InvalidArgument(f"split_module: {sorted(others)} are not here")
    parts: dict[str, _Part] = {}
    part_of: dict[Node, _Part] = {}
    for node in m.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            key = str(split_callback(node))
            name = f"{partition_affix}_{key}" if partition_affix is not None else key
            part = parts.setdefault(name, _Part(name))
            part.nodes.append(node)
            part_of[node] = part
    for part in parts.values():
        for node in part.nodes:
            for each in node.all_input_nodes:
                source = part_of.get(each)
                if source is part:
                    continue
                part.inputs[each] = None
                if source is not None:
                    source.outputs[each] = None
                    part.needs[source] = None
            for user in node.users:
                if part_of.get(user) is None:
                    part.outputs[node] = None
    modules: dict[str, Any] = {}
    made = Graph()
    values: dict[Node, Any] = {}
    for node in m.graph.nodes:
        if node.op == "placeholder":
            values[node] = made.node_copy(node)
        elif node.op == "get_attr":
            modules[node.target] = _found(root_m, m, node.target)
    for part in _ordered(list(parts.values())):
        for each in part.inputs:
            if each.op == "get_attr" and each not in values:
                values[each] = made.node_copy(each)
        name = f"submod_{part.name}"
        modules[name] = _submodule(part, m, root_m, qualname_map, name, keep_original_node_name)
        call = made.call_module(name, tuple([values[each] for each in part.inputs]))
        if len(part.outputs) == 1:
            values[next(iter(part.outputs))] = call
        else:
            from operator import getitem

            for i, each in enumerate(part.outputs):
                values[each] = made.call_function(getitem, (call, i))
    output = m.graph.output_node()
    for each in output.all_input_nodes:
        if each.op == "get_attr" and each not in values:
            values[each] = made.node_copy(each)
    made.output(map_arg(output.args[0], lambda node: values[node]), output.type)
    return GraphModule(modules, made)


def _found(root: Module, m: Module, target: str) -> Any:
    found: Any = root
    try:
        for part in target.split("."):
            found = getattr(found, part)
    except AttributeError:
        found = m
        for part in target.split("."):
            found = getattr(found, part)
    return found


def _ordered(parts: list[_Part]) -> list[_Part]:
    """The parts in topological order: those that others need first."""
    done: dict[_Part, None] = {}
    while len(done) < len(parts):
        ready = [p for p in parts if p not in done and all(each in done for each in p.needs)]
        if not ready:
            left = [p.name for p in parts if p not in done]
            raise InvalidArgument(f"split_module: the parts {left} need each other")
        done[ready[0]] = None
    return list(done)


def _submodule(
    part: _Part, m: GraphModule, root: Module, names: Any, prefix: str, keep_names: Any
) -> GraphModule:
    graph = Graph()
    values: dict[Node, Node] = {}
    targets: dict[str, Any] = {}
    for each in part.inputs:
        values[each] = graph.placeholder(each.name, each.type)
    for node in part.nodes:
        values[node] = graph.node_copy(node, lambda each: values[each])
        if node.op == "call_module":
            targets[node.target] = _found(root, m, node.target)
            if names is not None:
                names[f"{prefix}.{node.target}"] = node.target
    outputs = tuple([values[each] for each in part.outputs])
    graph.output(outputs[0] if len(outputs) == 1 else outputs)
    return GraphModule(targets, graph)
