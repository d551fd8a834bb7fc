"""What is computed again rather than kept: the fewest bytes that live where memory is fullest.

Behind that point kernels read what was computed before it, in a training step what backward wants
of forward. A value that cheap ops give may be computed again in the kernels that read it, from
others that live there anyway, or that are fewer. Which are to be kept is a minimum cut.

Source: https://arxiv.org/abs/1604.06174 (to compute again rather than keep),
https://pytorch.org/functorch/stable/generated/functorch.compile.min_cut_rematerialization_partition.html
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from ..core import policy
from ..core.spec import prod
from ..program.program import Node, Program, Value, take_apart
from ..program.rewriting import rewriting
from .passes import SAME, drop_dead, sort

Flow = dict[Hashable, dict[Hashable, float]]
_WRITTEN = 1.1  # cost of a byte that is written to be kept, where others cost 1
_AS_HIGH = 0.9  # of the first one's bytes, from which another peak is looked at


@rewriting
def recompute(
    graph: Program,
    groups: list[list[Node]],
    cheap: Callable[[Node], bool],
    copies: list[Node] | None = None,
    written_stays: bool = False,
) -> int:
    """Let groups of steps compute again what `cheap` ones gave where that leaves less in memory,
    and reads no more; returns how many values that were. So at each peak of about the same height,
    as the batches have that are in one step. The groups are of `graph`; copies join them, and are
    added to `copies`. With `written_stays` only what is written for nothing else is
    computed again: fewest bytes are moved then, where otherwise fewest live.
    """
    count = first = 0
    for _ in range(policy.PEAKS):
        home = {node: k for k, nodes in enumerate(groups) for node in nodes}
        behind, live = _behind_peak(graph, home)
        first = first or live
        if live < _AS_HIGH * first:
            break
        own: list[Node] = []
        made: set[Value] = set()
        if behind:
            made = recompute_behind(graph, groups, behind, cheap, own, written_stays=written_stays)
        if written_stays:
            made |= read_less(graph, groups, behind.union(own), cheap, own)
        else:
            made |= give_again(graph, groups, behind.union(own), cheap, own)
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
    behind: Collection[Node],
    cheap: Callable[[Node], bool],
    copies: list[Node] | None = None,
    moving: Collection[Value] = (),
    written_stays: bool = False,
) -> set[Value]:
    """The same where nodes `behind` read what was computed before them; which values that were.
    Nodes that nobody needs any more are left. The memory of values that are `moving` may be written
    meanwhile: those that are not read behind in any case are copied, which is as good as any other
    value that is kept.
    """
    hidden = set(moving).difference(root(x) for node in behind for x in node.values)
    held: dict[Value, Node] = {}  # such copies

    def stored(x: Any) -> Any:
        if type(x) is not Value or root(x) not in hidden:
            return x
        if x not in held:
            held[x] = Node(SAME, (x,), (x.spec,))
        return held[x].output

    home = {node: k for k, nodes in enumerate(groups) for node in nodes}
    keep = kept(graph, behind, home, cheap, hidden, written_stays)
    if keep is None:
        return set()
    gone: set[Value] = set()
    added: dict[Node, list[Node]] = {}
    for nodes in groups:
        if nodes[0] not in behind:
            continue
        readers: dict[Value, Node] = {}  # the first ones
        for node in nodes:
            for x in node.values:
                readers.setdefault(x, node)
        wanted = [x for x in readers if _is_before(x, behind) and x not in keep]
        made: dict[Value, Value] = {}
        before: dict[Node, list[Node]] = {}  # copies, by the node that they come before
        for x in wanted:
            _copy(x, keep, made, before.setdefault(readers[x], []), stored)
        own = [node for each in before.values() for node in each]
        further = {x for node in own for x in node.values if _is_before(x, behind)}
        further -= {*readers, *made.values()}
        many = len(nodes) + len(own) > policy.PROGRAM_OPS
        spared = sum(x.nbytes for x in wanted) * (1 + 1 / policy.KEPT_SHARE)  # statistics are free
        if many or sum(root(x).nbytes for x in further) > spared:
            take_apart(own)
            continue  # a sum of many values, say, all of which are read elsewhere
        for node in nodes:
            node.inputs = tuple([made.get(x, x) if type(x) is Value else x for x in node.inputs])
        nodes[:0] = own
        if copies is not None:
            copies += own
        added.update(before)
        gone.update(made)
    for x, node in held.items():
        if x.node is None:
            graph.nodes.insert(0, node)
        else:
            graph.nodes.insert(graph.nodes.index(x.node) + 1, node)
    graph.nodes = [each for node in graph.nodes for each in (*added.get(node, ()), node)]
    return gone


def give_again(
    graph: Program,
    groups: list[list[Node]],
    behind: Collection[Node],
    cheap: Callable[[Node], bool],
    copies: list[Node],
) -> set[Value]:
    """Let groups behind give again what only others read there (products, say), where they have all
    that it is made of at hand: it need not be kept meanwhile. Which values those were; copies of
    nodes join the groups, and are added to `copies`.

    A normalization's result is such a value. Its weight's gradient reads it, and so waits for the
    kernel of the normalization's own gradient, which has the rest.
    """
    given = set(graph.inputs)
    gone: set[Value] = set()
    read = dict.fromkeys(x for node in graph.nodes if node in behind for x in node.values)
    home: dict[Node, int] = {}
    users: dict[Value, list[Node]] = {}
    for x in read:
        if not _is_before(x, behind) or prod(x.shape) < policy.KEPT_LARGE or x in graph.outputs:
            continue
        if not users:  # they have changed
            home = {node: k for k, nodes in enumerate(groups) for node in nodes}
            users = graph.users()
        readers = [node for node in users[x] if node in behind]
        if x.node not in home or any(node in home or node.op.view for node in readers):
            continue
        later = _depending(readers, users, home, groups)
        for nodes in groups:
            if nodes[0] not in behind or nodes[0] in later or not _writes(nodes, x, users):
                continue
            made = _again(x, nodes, given, behind, cheap)
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
    behind: Collection[Node],
    cheap: Callable[[Node], bool],
    copies: list[Node],
) -> set[Value]:
    """Let groups behind compute again what they read where they read all that it is made of anyway,
    but for small values: an activation whose sign its gradient looks at, say, from what the norm
    before was of. Which values those were; copies of nodes join the groups, and are added to
    `copies`.
    """
    gone: set[Value] = set()
    for nodes in groups:
        if nodes[0] not in behind:
            continue
        read = dict.fromkeys(x for node in nodes for x in node.values if _is_before(x, behind))
        for x in reversed(read):
            if prod(x.shape) < policy.KEPT_LARGE:
                continue
            made = _again(x, nodes, (), behind, cheap, alone=True)
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
    """The nodes that run behind some, whose groups run as a whole."""
    found: set[Node] = set()
    stack = list(first)
    while stack:
        node = stack.pop()
        if node not in found:
            own = groups[home[node]] if node in home else [node]
            found.update(own)
            stack += [user for each in own for y in each.outputs for user in users.get(y, ())]
    return found


def _writes(nodes: Sequence[Node], x: Value, users: Mapping[Value, Collection[Node]]) -> bool:
    """Whether a group gives something of the same shape, which others read."""
    members = set(nodes)
    return any(
        y.shape == x.shape and not members.issuperset(users.get(y, ()))
        for node in nodes
        for y in node.outputs
    )


def _again(
    x: Value,
    nodes: Sequence[Node],
    given: Collection[Value],
    behind: Collection[Node],
    cheap: Callable[[Node], bool],
    alone: bool = False,
) -> tuple[Value, list[Node]] | None:
    """The value as a group can compute it from what it reads or has computed, from what is `given`
    and from small values, with the nodes for that; None where something is missing. `alone`: before
    all that it computes, and not from the value, which it reads.
    """
    least = x.nbytes / policy.KEPT_SHARE
    computed = {} if alone else {_form(node.op, node.inputs): node.output for node in nodes}
    made: dict[Any, Any] = {y: y for node in nodes for y in node.values if y.node not in behind}
    if alone:
        del made[x]
    own: list[Node] = []
    stack = [x]
    while stack:
        y = stack[-1]
        node = y.node
        if y in made:
            stack.pop()
        elif y in given or y.array is not None or (y is not x and root(y).nbytes <= least):
            made[y] = y
        elif node is None or node.op.view or node in behind:
            return None
        elif waiting := [z for z in node.values if z not in made]:
            stack += waiting
        else:
            inputs = [made[z] if type(z) is Value else z for z in node.inputs]
            known = computed.get(_form(node.op, inputs))
            if known is None and not cheap(node):
                return None
            if known is None:
                own.append(Node(node.op, inputs, [node.output.spec]))
                known = own[-1].output
            made[y] = known
    return made[x], own


def _form(op: Any, inputs: Collection[Any]) -> Any:
    """What nodes that compute the same have in common."""
    return id(op), *[id(x) if type(x) is Value else (type(x), repr(x)) for x in inputs]


def kept(
    graph: Program,
    behind: Collection[Node],
    home: Mapping[Node, Any],
    cheap: Callable[[Node], bool],
    hidden: Collection[Value] = (),
    written_stays: bool = False,
) -> set[Value] | None:
    """The values computed before the nodes `behind`, to be read by these: as few bytes as possible,
    from which `cheap` ops give the others, in groups of nodes, whose numbers are in `home`. None
    where all that is read now had better be kept. Of the inputs `hidden` only copies may be read.
    With `written_stays` what is written in any case costs nothing.
    """
    read: set[Value] = set()
    free = {*graph.inputs, *graph.outputs}.difference(hidden)  # are there anyway
    for node in graph.nodes:
        if node in behind:
            before = [x for x in node.values if _is_before(x, behind)]
            (read if node in home else free).update(before)
    free |= {x for x in read if x.node is not None and x.node.op.view}
    written = {  # by whatever comes before
        x for node in graph.nodes if node not in behind for x in node.values
        if x.node is None or home.get(x.node, x) != home.get(node)
    }  # fmt: skip
    if written_stays:
        free |= written
    free.update([root(x) for x in free])
    least = max((x.nbytes for x in read), default=0) / policy.KEPT_SHARE
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
    """The maximum flow; `flow` has the capacities, and then what is left of them.

    Source: https://en.wikipedia.org/wiki/Dinic%27s_algorithm

    >>> from adjoint.inference.recompute import saturate
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
    """The nodes behind the point where most bytes live, and how many that are; groups run where
    their last node stands.
    """
    items = _items(graph, home)
    place = {node: i for i, nodes in enumerate(items) for node in nodes}
    outside = {*graph.inputs, *graph.outputs}
    change = [0] * (len(items) + 1)
    last: dict[Value, int] = {}
    for node, i in place.items():
        for x in map(root, node.values):
            if x.node is not None and x.array is None and x not in outside:
                last[x] = max(last.get(x, 0), i)
    for x, end in last.items():
        begin = place[x.node]  # type: ignore[index]
        if end > begin:
            change[begin + 1] += x.nbytes
            change[end + 1] -= x.nbytes
    live = most = at = 0
    for i, more in enumerate(change):
        live += more
        if live > most:
            most, at = live, i
    return ({node for nodes in items[at:] for node in nodes} if at else set()), most


def _items(graph: Program, home: Mapping[Node, int]) -> list[list[Node]]:
    """Groups and single nodes, each behind what it reads."""
    members: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node in home:
            members.setdefault(home[node], []).append(node)
    found: list[list[Node]] = []
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
            found.append(nodes)
    return found


def _copy(
    x: Value, keep: Collection[Value], made: dict[Value, Value], copies: list[Node],
    stored: Callable[[Any], Any],
) -> None:  # fmt: skip
    """Compute `x` again, by copies of nodes up to values that are kept, as they are `stored`."""
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
        copies.append(copy)
        made[y] = copy.output


def _is_before(x: Value, behind: Collection[Node]) -> bool:
    return x.node is not None and x.array is None and x.node not in behind


def root(x: Value) -> Value:
    """Whose memory a value shows."""
    while x.node is not None and x.node.op.view:
        x = x.node.inputs[0]
    return x


def _edge(flow: Flow, a: Hashable, b: Hashable, capacity: float) -> None:
    flow.setdefault(a, {})[b] = capacity
    flow.setdefault(b, {}).setdefault(a, 0.0)


def _reaching(flow: Flow, sink: Hashable) -> set[Hashable]:
    """What can still send something to the sink."""
    found = {sink}
    stack = [sink]
    while stack:
        b = stack.pop()
        for a in flow.get(b, ()):
            if a not in found and flow[a].get(b, 0.0) > 0:
                found.add(a)
                stack.append(a)
    return found
