"""Rematerialization: values are computed again rather than kept, so that the fewest bytes are live
where memory is fullest.

Behind that point kernels read values computed before it: in a training step, those that backward
reads of forward. A value that cheap ops compute may be recomputed in the kernels that read it, from
values that are live there anyway, or that are fewer. Which values to keep is a minimum cut.

Source: https://arxiv.org/abs/1604.06174 (to compute again rather than keep),
https://pytorch.org/functorch/stable/generated/functorch.compile.min_cut_rematerialization_partition.html
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from ...core import policy
from ...core.op import Op
from ...core.spec import prod
from ...core.symbolic_sizes import largest, most
from ...ir.program import Node, Program, Value, take_apart
from ...ir.rewriting import rewriting
from .basic_passes import SAME, drop_dead, sort

Flow = dict[Hashable, dict[Hashable, float]]
_WRITTEN = 1.1  # cost of a byte that is written only to be kept, where others cost 1
_AS_HIGH = 0.9  # least height of a further peak, as a share of the first one's bytes


@rewriting
def recompute(
    graph: Program,
    groups: list[list[Node]],
    cheap: Callable[[Node], bool],
    copies: list[Node] | None = None,
    written_stays: bool = False,
) -> int:
    """Rematerialize results of `cheap` nodes in groups of nodes (kernels) where less memory is live
    then, and no more is read; returns how many values. This is done at each peak of about the same
    height, such as those of several batches in one step. Copies of nodes join the groups of
    `graph`, and are added to `copies`. With `written_stays` only values that are written for
    nothing else are recomputed: that moves the fewest bytes, where otherwise the fewest are live.
    """
    count = first = 0
    for _ in range(policy.PEAKS):
        home = {node: k for k, nodes in enumerate(groups) for node in nodes}
        later, live = _behind_peak(graph, home)
        first = first or live
        if live < _AS_HIGH * first:
            break
        own: list[Node] = []
        made: set[Value] = set()
        if later:
            made = recompute_behind(graph, groups, later, cheap, own, written_stays=written_stays)
        if written_stays:
            made |= read_less(graph, groups, later.union(own), cheap, own)
        else:
            made |= give_again(graph, groups, later.union(own), cheap, own)
        if copies is not None:
            copies += own
        if not made:
            break
        count += len(made)
        drop_dead(graph)
        alive = set(graph.nodes)
        for nodes in groups:
            nodes[:] = [node for node in nodes if node in alive]
        groups[:] = filter(None, groups)
    return count


def recompute_behind(
    graph: Program,
    groups: list[list[Node]],
    later: Collection[Node],
    cheap: Callable[[Node], bool],
    copies: list[Node] | None = None,
    moving: Collection[Value] = (),
    written_stays: bool = False,
) -> set[Value]:
    """Rematerialize values that the nodes `later` read from before them; returns the values. Nodes
    that become dead remain. The memory of values that are `moving` may be overwritten in between:
    unless they are read later in any case they are copied, and the copy may be kept like any other
    value.
    """
    hidden = set(moving).difference(root(x) for node in later for x in node.values)
    copy_of: dict[Value, Node] = {}

    def stored(x: object) -> object:
        if type(x) is not Value or root(x) not in hidden:
            return x
        if x not in copy_of:
            copy_of[x] = Node(SAME, (x,), (x.spec,))
        return copy_of[x].output

    home = {node: k for k, nodes in enumerate(groups) for node in nodes}
    keep = kept(graph, later, home, cheap, hidden, written_stays)
    if keep is None:
        return set()
    gone: set[Value] = set()
    added: dict[Node, list[Node]] = {}
    for nodes in groups:
        if nodes[0] not in later:
            continue
        readers: dict[Value, Node] = {}  # the first ones
        for node in nodes:
            for x in node.values:
                readers.setdefault(x, node)
        recomputed = [x for x in readers if _is_before(x, later) and x not in keep]
        made: dict[Value, Value] = {}
        before: dict[Node, list[Node]] = {}  # copies, by the node that they come before
        for x in recomputed:
            _copy(x, keep, made, before.setdefault(readers[x], []), stored)
        own = [node for each in before.values() for node in each]
        further = {x for node in own for x in node.values if _is_before(x, later)}
        further -= {*readers, *made.values()}
        many = len(nodes) + len(own) > policy.PROGRAM_OPS
        spared = sum(x.nbytes for x in recomputed) * (
            1 + 1 / policy.KEPT_SHARE
        )  # statistics are free
        if many or sum(root(x).nbytes for x in further) > spared:
            take_apart(own)
            continue  # a sum of many values, for example, all of which are read elsewhere
        for node in nodes:
            node.inputs = tuple([made.get(x, x) if type(x) is Value else x for x in node.inputs])
        nodes[:0] = own
        if copies is not None:
            copies += own
        added.update(before)
        gone.update(made)
    read = {x for each in added.values() for node in each for x in node.values}
    for x, node in copy_of.items():
        if node.output not in read:  # by copies that were given up
            take_apart([node])
        elif x.node is None:
            graph.nodes.insert(0, node)
        else:
            graph.nodes.insert(graph.nodes.index(x.node) + 1, node)
    graph.nodes = [each for node in graph.nodes for each in (*added.get(node, ()), node)]
    return gone


def give_again(
    graph: Program,
    groups: list[list[Node]],
    later_nodes: Collection[Node],
    cheap: Callable[[Node], bool],
    copies: list[Node],
) -> set[Value]:
    """Let groups of `later_nodes` compute values again that only library calls (products) read
    there, if they have all operands of the value at hand, so that it is not kept in between.
    Returns these values; copies of nodes join the groups, and are added to `copies`.

    The result of a normalization is an example. The gradient of the weight behind it reads it, and
    then waits for the kernel of the normalization's own gradient, which has the operands.
    """
    input_values = set(graph.inputs)
    gone: set[Value] = set()
    read = dict.fromkeys(x for node in graph.nodes if node in later_nodes for x in node.values)
    home: dict[Node, int] = {}
    users: dict[Value, list[Node]] = {}
    for x in read:
        if (
            not _is_before(x, later_nodes)
            or prod(x.shape) < policy.KEPT_LARGE
            or x in graph.outputs
        ):
            continue
        if not users:  # cleared after a change
            home = {node: k for k, nodes in enumerate(groups) for node in nodes}
            users = graph.users()
        readers = [node for node in users[x] if node in later_nodes]
        if x.node not in home or any(node in home or node.op.view for node in readers):
            continue
        later = _depending(readers, users, home, groups)
        for nodes in groups:
            if nodes[0] not in later_nodes or nodes[0] in later or not _writes(nodes, x, users):
                continue
            made = _again(x, nodes, input_values, later_nodes, cheap)
            if made is None or len(nodes) + len(made[1]) > policy.PROGRAM_OPS:
                continue
            value, own = made
            at = graph.nodes.index(nodes[-1]) + 1
            graph.nodes[at:at] = own
            nodes += own
            copies += own
            for node in readers:
                node.inputs = tuple([value if y is x else y for y in node.inputs])
            gone.add(x)
            users.clear()
            break
    if gone:
        sort(graph)
    return gone


def read_less(
    graph: Program,
    groups: list[list[Node]],
    later: Collection[Node],
    cheap: Callable[[Node], bool],
    copies: list[Node],
) -> set[Value]:
    """Let groups of the nodes `later` recompute values from operands that they read anyway, except
    for small ones: an activation whose sign its gradient needs, for example, from the input of the
    norm before it. Returns these values; copies of nodes join the groups, and are added to
    `copies`.
    """
    gone: set[Value] = set()
    for nodes in groups:
        if nodes[0] not in later:
            continue
        read = dict.fromkeys(x for node in nodes for x in node.values if _is_before(x, later))
        for x in reversed(read):
            if prod(x.shape) < policy.KEPT_LARGE:
                continue
            made = _again(x, nodes, (), later, cheap, alone=True)
            if made is None or len(nodes) + len(made[1]) > policy.PROGRAM_OPS:
                continue
            value, own = made
            readers = [node for node in nodes if x in node.values]
            for node in readers:
                node.inputs = tuple([value if y is x else y for y in node.inputs])
            at = graph.nodes.index(readers[0])
            graph.nodes[at:at] = own
            nodes[:0] = own
            copies += own
            gone.add(x)
    return gone


def _depending(
    first: Collection[Node],
    users: Mapping[Value, Collection[Node]],
    home: Mapping[Node, int],
    groups: Sequence[Sequence[Node]],
) -> set[Node]:
    """The nodes that depend on `first`, where groups run as a whole."""
    dependents: set[Node] = set()
    stack = list(first)
    while stack:
        node = stack.pop()
        if node not in dependents:
            own = groups[home[node]] if node in home else [node]
            dependents.update(own)
            stack += [user for each in own for y in each.outputs for user in users.get(y, ())]
    return dependents


def _writes(nodes: Sequence[Node], x: Value, users: Mapping[Value, Collection[Node]]) -> bool:
    """Whether a group has a result of the shape of `x` that others read."""
    members = set(nodes)
    return any(
        y.shape == x.shape and not members.issuperset(users.get(y, ()))
        for node in nodes
        for y in node.outputs
    )


def _again(
    x: Value,
    nodes: Sequence[Node],
    at_hand: Collection[Value],
    later: Collection[Node],
    cheap: Callable[[Node], bool],
    alone: bool = False,
) -> tuple[Value, list[Node]] | None:
    """The value as a group can compute it, from values that it reads or computes, from those
    `at_hand`, and from small ones, with the nodes for that; None where an operand is missing.
    `alone`: before all that the group computes, and not from the value itself, which it reads.
    """
    least = x.nbytes / policy.KEPT_SHARE
    computed = {} if alone else {_form(node.op, node.inputs): node.output for node in nodes}
    made: dict[Any, Any] = {y: y for node in nodes for y in node.values if y.node not in later}
    if alone:
        del made[x]
    own: list[Node] = []
    stack = [x]
    while stack:
        y = stack[-1]
        node = y.node
        if y in made:
            stack.pop()
        elif y in at_hand or y.array is not None or (y is not x and root(y).nbytes <= least):
            made[y] = y
        elif node is None or node.op.view or node in later:
            return None
        elif waiting := [z for z in node.values if z not in made]:
            stack += waiting
        else:
            inputs = [made[z] if type(z) is Value else z for z in node.inputs]
            equal = computed.get(_form(node.op, inputs))
            if equal is None and not cheap(node):
                return None
            if equal is None:
                own.append(Node(node.op, inputs, [node.output.spec]))
                own[-1].module = node.module
                equal = own[-1].output
            made[y] = equal
    return made[x], own


def _form(op: Op, inputs: Collection[Any]) -> Hashable:
    """Key of a node, equal for nodes that compute the same."""
    return id(op), *[id(x) if type(x) is Value else (type(x), repr(x)) for x in inputs]


def kept(
    graph: Program,
    later: Collection[Node],
    home: Mapping[Node, Any],
    cheap: Callable[[Node], bool],
    hidden: Collection[Value] = (),
    written_stays: bool = False,
) -> set[Value] | None:
    """The values computed before the nodes `later` that these are to read: as few bytes as
    possible from which `cheap` ops compute the others, in groups of nodes, whose numbers are in
    `home`. None where keeping all that is read now is better. Of the inputs `hidden` only copies
    may be read. With `written_stays` values that are written in any case cost nothing.
    """
    read: set[Value] = set()
    free = {*graph.inputs, *graph.outputs}.difference(hidden)  # live anyway
    for node in graph.nodes:
        if node in later:
            before = [x for x in node.values if _is_before(x, later)]
            (read if node in home else free).update(before)
    free |= {x for x in read if x.node is not None and x.node.op.view}
    written = {  # to memory, before the point
        x for node in graph.nodes if node not in later for x in node.values
        if x.node is None or home.get(x.node, x) != home.get(node)
    }  # fmt: skip
    if written_stays:
        free |= written
    free.update([root(x) for x in free])
    least = functools.reduce(most, [x.nbytes for x in read], 0) / policy.KEPT_SHARE
    free |= {x for x in read if x.nbytes <= least}
    read -= free
    flow: Flow = {}
    stack = list(read)
    seen = set(stack)
    for x in read:
        _edge(flow, (x, 1), None, float("inf"))
    while stack:
        x = stack.pop()
        if root(x).nbytes <= least:
            free.add(x)
        size = root(x).nbytes * (1.0 if x in written and root(x) not in hidden else _WRITTEN)
        _edge(flow, (x, 0), (x, 1), 0.0 if x in free else size)
        if x in free or x.node is None or not cheap(x.node):
            _edge(flow, "given", (x, 0), float("inf"))
            continue
        for y in x.node.values:
            if y.array is not None:
                continue
            _edge(flow, (y, 1), (x, 0), float("inf"))
            if y not in seen:
                seen.add(y)
                stack.append(y)
    now = sum(flow[x, 0][x, 1] for x in read)
    if saturate(flow, "given", None) >= now:
        return None
    ahead = _reaching(flow, None)
    cut = {x for x in seen if (x, 1) in ahead and (x, 0) not in ahead}
    return cut | free


def saturate(flow: Flow, source: Hashable, sink: Hashable) -> float:
    """Compute the maximum flow from `source` to `sink`. `flow` has the capacities, and afterwards
    what is left of them.

    Source: https://en.wikipedia.org/wiki/Dinic%27s_algorithm

    >>> from adjoint.compiler.passes.rematerialize import saturate
    >>> saturate({"s": {"a": 3.0, "b": 2.0}, "a": {"t": 2.0}, "b": {"t": 9.0}}, "s", "t")
    4.0
    """
    total = 0.0
    while True:
        level = {source: 0}
        queue = deque([source])
        while queue:
            a = queue.popleft()
            for b, left in flow.get(a, {}).items():
                if left > 0 and b not in level:
                    level[b] = level[a] + 1
                    queue.append(b)
        if sink not in level:
            return total
        waiting = {a: list(flow.get(a, ())) for a in level}
        path = [source]
        while path:
            a = path[-1]
            if a == sink:
                steps = list(itertools.pairwise(path))
                least = min(flow[a][b] for a, b in steps)
                total += least
                for a, b in steps:
                    flow[a][b] -= least
                    back = flow.setdefault(b, {})
                    back[a] = back.get(a, 0.0) + least
                path = [source]
                continue
            following = waiting[a]
            while following:
                b = following[-1]
                if flow[a][b] > 0 and level.get(b) == level[a] + 1:
                    path.append(b)
                    break
                following.pop()
            else:
                path.pop()
                if path:
                    waiting[path[-1]].pop()


def _behind_peak(graph: Program, home: Mapping[Node, int]) -> tuple[set[Node], int]:
    """The nodes behind the point where most bytes are live, and how many these are; groups run
    where their last node is.
    """
    items = _items(graph, home)
    position = {node: i for i, nodes in enumerate(items) for node in nodes}
    outside = {*graph.inputs, *graph.outputs}
    change = [0] * (len(items) + 1)
    last: dict[Value, int] = {}
    for node, i in position.items():
        for x in map(root, node.values):
            if x.node is not None and x.array is None and x not in outside:
                last[x] = max(last.get(x, 0), i)
    for x, end in last.items():
        begin = position[x.node]  # type: ignore[index]
        if end > begin:
            change[begin + 1] += x.nbytes
            change[end + 1] -= x.nbytes
    live = list(itertools.accumulate(change))
    at = largest(live)
    return ({node for nodes in items[at:] for node in nodes} if at else set()), live[at]


def _items(graph: Program, home: Mapping[Node, int]) -> list[list[Node]]:
    """Groups and single nodes in topological order."""
    members: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node in home:
            members.setdefault(home[node], []).append(node)
    order: list[list[Node]] = []
    placed: set[Node] = set()
    for node in graph.nodes:
        own = members[home[node]] if node in home else [node]
        if node is not own[-1]:
            continue
        stack = [own]
        while stack:
            nodes = stack[-1]
            if nodes[0] in placed:
                stack.pop()
                continue
            inside = set(nodes)
            waiting = [
                x.node for each in nodes for x in each.values
                if x.node is not None and x.node not in placed and x.node not in inside
            ]  # fmt: skip
            if waiting:
                stack += [members[home[n]] if n in home else [n] for n in reversed(waiting)]
                continue
            stack.pop()
            placed |= inside
            order.append(nodes)
    return order


def _copy(
    x: Value, keep: Collection[Value], made: dict[Value, Value], copies: list[Node],
    stored: Callable[[Any], Any],
) -> None:  # fmt: skip
    """Recompute `x` by copies of nodes, from values that are kept, as they are `stored`."""
    stack = [x]
    while stack:
        y = stack[-1]
        node = y.node
        if y in made or y in keep or node is None:
            stack.pop()
            continue
        waiting = [z for z in node.values if z not in made and z not in keep and z.array is None]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        inputs = [stored(made.get(z, z) if type(z) is Value else z) for z in node.inputs]
        copy = Node(node.op, inputs, [node.output.spec])
        copy.module = node.module
        copies.append(copy)
        made[y] = copy.output


def _is_before(x: Value, later: Collection[Node]) -> bool:
    return x.node is not None and x.array is None and x.node not in later


def root(x: Value) -> Value:
    """The value whose memory a view shows."""
    while x.node is not None and x.node.op.view:
        x = x.node.inputs[0]
    return x


def _edge(flow: Flow, a: Hashable, b: Hashable, capacity: float) -> None:
    flow.setdefault(a, {})[b] = capacity
    flow.setdefault(b, {}).setdefault(a, 0.0)


def _reaching(flow: Flow, sink: Hashable) -> set[Hashable]:
    """Nodes of the flow network from which the sink can still be reached."""
    reaching = {sink}
    stack = [sink]
    while stack:
        b = stack.pop()
        for a in flow.get(b, ()):
            if a not in reaching and flow[a].get(b, 0.0) > 0:
                reaching.add(a)
                stack.append(a)
    return reaching
