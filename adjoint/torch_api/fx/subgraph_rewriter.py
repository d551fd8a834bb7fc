"""Parts of a graph that look like a pattern are replaced."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...core.errors import InvalidArgument
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule, _assign_attr
from .node import Argument, Node, map_arg

__all__ = [
    "Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters",
]  # fmt: skip


class Match(NamedTuple):
    """Match of a pattern: its last node in the graph, and the graph's nodes by the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Any]


class ReplacedPatterns(NamedTuple):
    """A match of a pattern, with the nodes that replaced it."""

    anchor: Node
    nodes_map: dict[Node, Any]
    replacements: list[Node]


class InternalMatch:
    """A part of a graph that looks like a pattern."""

    def __init__(self, anchors: list[Node]) -> None:
        self.anchors = anchors
        self.nodes_map: dict[Node, Any] = {}
        self.placeholder_nodes: list[Any] = []
        self.returning_nodes: list[Node] = []


def _graph_of(what: Any) -> Graph:
    if isinstance(what, Graph):
        return what
    if isinstance(what, GraphModule):
        return what.graph
    return symbolic_trace(what).graph


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace what looks like `pattern` by `replacement`, functions or modules of the same inputs;
    inputs stand for any value. Returns where it was found.

    Source: https://docs.pytorch.org/docs/stable/fx.html#torch.fx.replace_pattern

    >>> module = ad.fx.symbolic_trace(lambda x: ad.relu(x) * 2)
    >>> len(ad.fx.replace_pattern(module, lambda x: ad.relu(x), lambda x: ad.sigmoid(x)))
    1
    >>> print(module.code.strip())
    def forward(self, x):
        sigmoid = adjoint.sigmoid(x);  x = None
        mul = sigmoid * 2;  sigmoid = None
        return mul
    """
    found = _replace(gm, pattern, replacement, None, False, None)
    return [Match(anchor=each.anchor, nodes_map=each.nodes_map) for each in found]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[..., bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[..., Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Replace matches of `pattern` for which each of `match_filters(match, graph, pattern_graph)`
    is true; `ignore_literals` lets numbers and strings differ, `replacement_callback` gives the
    graph to put in a match's place.
    """
    if node_name_match:
        raise InvalidArgument("replace_pattern: node_name_match is not here; use match_filters")
    return _replace(gm, pattern, replacement, match_filters, ignore_literals, replacement_callback)


class _Matcher:
    """Finds a pattern in a graph."""

    def __init__(self, pattern: Graph, ignore_literals: bool) -> None:
        self.pattern = pattern
        self.ignore = ignore_literals
        output = pattern.output_node().args[0]
        self.returned: list[Node] = []
        map_arg(output, self.returned.append)
        self.anchors = [n for n in self.returned if n.op != "placeholder"]
        if not self.anchors:
            raise InvalidArgument("replace_pattern: the pattern computes nothing")

    def _fits(self, p: Node, n: Any, found: dict[Node, Any]) -> bool:
        if p in found:
            return found[p] is n
        if p.op == "placeholder":
            found[p] = n
            return True
        if not isinstance(n, Node) or n.op != p.op or any(n is each for each in found.values()):
            return False
        if not self._same_target(p, n):
            return False
        if p not in self.returned and len(n.users) != len(p.users):
            return False
        found[p] = n
        return self._alike(p.args, n.args, found) and self._alike(p.kwargs, n.kwargs, found)

    @staticmethod
    def _same_target(p: Node, n: Node) -> bool:
        if p.op == "call_module":
            ours, theirs = p.graph.owning_module, n.graph.owning_module
            if ours is not None and theirs is not None:
                return type(ours.get_submodule(p.target)) is type(theirs.get_submodule(n.target))
        if p.op == "get_attr":
            return p.target.rpartition(".")[2] == n.target.rpartition(".")[2]
        return p.target == n.target

    def _alike(self, p: Argument, n: Argument, found: dict[Node, Any]) -> bool:
        if isinstance(p, Node):
            return self._fits(p, n, found)
        if isinstance(p, (list, tuple)) and isinstance(n, (list, tuple)):
            return len(p) == len(n) and all(
                self._alike(a, b, found) for a, b in zip(p, n, strict=True)
            )
        if isinstance(p, dict) and isinstance(n, dict):
            return p.keys() == n.keys() and all(self._alike(p[key], n[key], found) for key in p)
        if isinstance(p, slice) and isinstance(n, slice):
            pairs = ((p.start, n.start), (p.stop, n.stop), (p.step, n.step))
            return all(self._alike(a, b, found) for a, b in pairs)
        if isinstance(n, Node):
            return False
        return self.ignore or (type(p) is type(n) and p == n)

    def _matches(self, graph: Graph) -> Iterator[InternalMatch]:
        def assigned(rest: list[Node], found: dict[Node, Any]) -> Iterator[dict[Node, Any]]:
            if not rest:
                yield found
                return
            for candidate in graph.nodes:
                trial = dict(found)
                if self._fits(rest[0], candidate, trial):
                    yield from assigned(rest[1:], trial)

        for found in assigned(self.anchors, {}):
            inner = [n for p, n in found.items() if p.op != "placeholder"]
            kept = [found[p] for p in self.returned]
            whole = all(
                user in inner for n in inner if all(n is not each for each in kept)
                for user in n.users
            )  # fmt: skip
            if whole:
                match = InternalMatch([found[p] for p in self.anchors])
                match.nodes_map = found
                match.returning_nodes = kept
                match.placeholder_nodes = [
                    found.get(p) for p in self.pattern.nodes if p.op == "placeholder"
                ]
                yield match

    def match(self, graph: Graph) -> list[InternalMatch]:
        """The matches that have no node in common."""
        taken: set[Node] = set()
        chosen: list[InternalMatch] = []
        for match in self._matches(graph):
            inner = {n for p, n in match.nodes_map.items() if p.op != "placeholder"}
            if not inner & taken:
                taken |= inner
                chosen.append(match)
        return chosen


def _replace(
    gm: GraphModule,
    pattern: Any,
    replacement: Any,
    filters: Any,
    ignore_literals: bool,
    callback: Any,
) -> list[ReplacedPatterns]:
    graph = gm.graph
    pattern_graph = _graph_of(pattern)
    common = None if callback is not None else _graph_of(replacement)
    matches = [
        match
        for match in _Matcher(pattern_graph, ignore_literals).match(graph)
        if all(each(match, graph, pattern_graph) for each in filters or ())
    ]
    became: dict[Node, Node] = {}  # replaced nodes, which later matches have as inputs
    found: list[ReplacedPatterns] = []
    for match in matches:
        new = callback(match, graph, pattern_graph) if common is None else common
        inputs = [n for n in new.nodes if n.op == "placeholder"]
        given = match.placeholder_nodes
        if len(inputs) != len(given):
            raise InvalidArgument(
                f"replace_pattern: the pattern has {len(given)} inputs, the replacement "
                f"{len(inputs)}; they must be the same"
            )
        values = [became.get(n, n) if isinstance(n, Node) else n for n in given]
        made, result = _insert(graph, new, inputs, values, match)
        outputs: list[Node] = []
        map_arg((result,), outputs.append)
        if len(outputs) != len(match.returning_nodes):
            raise InvalidArgument(
                "replace_pattern: the pattern and the replacement return different numbers of "
                "values"
            )
        for old, each in zip(match.returning_nodes, outputs, strict=True):
            old.replace_all_uses_with(each)
            became[old] = each
        inner = [n for p, n in match.nodes_map.items() if p.op != "placeholder"]
        for node in sorted(inner, reverse=True):
            graph.erase_node(node)
        found.append(ReplacedPatterns(match.anchors[0], match.nodes_map, made))
    gm.recompile()
    for what in (replacement,):
        if isinstance(what, GraphModule) or hasattr(what, "named_modules"):
            _bring(gm, what)
    graph.lint()
    return found


def _insert(
    graph: Graph, new: Graph, inputs: list[Node], values: list[Any], match: InternalMatch
) -> tuple[list[Node], Any]:
    """Copy a graph to the place before the first node that uses what was matched."""
    inner = set(match.nodes_map.values()) - set(match.placeholder_nodes)
    users = [user for n in match.returning_nodes for user in n.users if user not in inner]
    place = min(users) if users else max(match.anchors)
    if any(isinstance(value, Node) and not value < place for value in values):
        raise InvalidArgument(
            f"replace_pattern: {place} uses {match.returning_nodes} before all that the pattern "
            "has as inputs is there; move it behind them"
        )
    known: dict[Node, Any] = dict(zip(inputs, values, strict=True))
    made: list[Node] = []
    with graph.inserting_before(place):
        result = None
        for node in new.nodes:
            if node.op == "output":
                result = map_arg(node.args[0], lambda each: known[each])
            elif node not in known:
                known[node] = graph.node_copy(node, lambda each: known[each])
                made.append(known[node])
    return made, result


def _bring(gm: GraphModule, replacement: Any) -> None:
    """Copies the modules and attributes that the replacement uses to a graph module."""
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            mine: Any = gm
            theirs: Any = replacement
            for part in node.target.split("."):
                mine, theirs = getattr(mine, part, None), getattr(theirs, part, None)
            if mine is None:
                if theirs is None:
                    raise InvalidArgument(
                        f"replace_pattern: neither the module nor the replacement has {node.target}"
                    )
                _assign_attr(copy.deepcopy(theirs), gm, node.target)
