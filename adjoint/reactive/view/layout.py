"""Layout of drawings: modules as nested groups, and in each group layers whose edges go downward.

This is the part of the layered drawing (Sugiyama, Tagawa and Toda, 1981) that does not depend on
which groups are folded: layers, places for long edges to pass, and an order with few crossings. The
page gives coordinates, since a group's size depends on what is unfolded in it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from math import isqrt

from .snapshot import Snapshot

MOST_ITEMS = 120  # of a group, before consecutive ones are put into parts
WIDEST = 24  # items of a layer; more are spread over several
SWEEPS = 6
# Layers that an edge crosses on a path of its own; the page shows longer edges only on request (for
# instance of a weight that every step of a loop reads).
LONGEST = 16
LONGEST_OF_LEAF = 4


@dataclass
class Group:
    """A module, or a part of a long module.

    Items of a group are ints: i < number of nodes: node i; after those, groups; negative: a place
    on the way of a long edge, a port at the top for a value from outside, or one at the bottom for
    a value that is read outside.
    """

    name: str
    parent: int  # index of the group around it; -1 for the outermost
    path: str = ""
    groups: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    layers: list[list[int]] = field(default_factory=list)
    segments: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    # (item, item of a later layer, source nodes whose value goes this way)
    entries: dict[int, int] = field(default_factory=dict)  # source node -> port at the top
    exits: dict[int, int] = field(default_factory=dict)  # source node -> port at the bottom
    size: int = 0  # nodes in it, at any depth


def layout(snapshot: Snapshot) -> list[Group]:
    """The groups, the outermost first; each with its layers, their order and their edges."""
    groups, home = tree_of(snapshot)
    count = len(snapshot.nodes)
    edges: list[dict[tuple[int, int], set[int]]] = [{} for _ in groups]
    chains: dict[int, list[int]] = {}

    def chain(group: int) -> list[int]:
        """The groups from this one to the outermost."""
        if group not in chains:
            outward = [group]
            while groups[outward[-1]].parent >= 0:
                outward.append(groups[outward[-1]].parent)
            chains[group] = outward
        return chains[group]

    ports = iter(range(-1, -(2**62), -1))

    def connect(group: int, a: int, b: int, source: int) -> None:
        edges[group].setdefault((a, b), set()).add(source)

    for u, v in dict.fromkeys((edge.source, edge.target) for edge in snapshot.edges):
        if u == v:
            continue
        up, down = chain(home[u]), chain(home[v])
        i, j = len(up) - 1, len(down) - 1
        while i > 0 and j > 0 and up[i - 1] == down[j - 1]:
            i, j = i - 1, j - 1
        a, b = u, v
        for group in up[:i]:  # out of the groups around u
            port = groups[group].exits.get(u)
            if port is None:
                port = groups[group].exits[u] = next(ports)
            connect(group, a, port, u)
            a = count + group
        for group in down[:j]:  # into the groups around v
            port = groups[group].entries.get(u)
            if port is None:
                port = groups[group].entries[u] = next(ports)
            connect(group, port, b, u)
            b = count + group
        connect(up[i], a, b, u)
    when = _when(groups, moments(snapshot))
    leaves = set(range(count)) - {edge.target for edge in snapshot.edges}
    for each, own_edges in zip(groups, edges, strict=True):
        items = sorted([*each.nodes, *(count + g for g in each.groups)], key=when.__getitem__)
        _arrange(each, items, own_edges, ports, leaves)
    return groups


# ---- groups -------------------------------------------------------------------------------------


def tree_of(snapshot: Snapshot) -> tuple[list[Group], list[int]]:
    """The groups, and the group of each node."""
    groups = [Group(snapshot.title, -1)]
    by_path = {"": 0}

    def find(path: str) -> int:
        if path not in by_path:
            above, _, name = path.rpartition(".")
            by_path[path] = len(groups)
            groups.append(Group(name, -2, path))
            groups[by_path[path]].parent = find(above)
        return by_path[path]

    home = [find(path) for path in module_paths(snapshot)]
    for i, g in enumerate(home):
        groups[g].nodes.append(i)
    for g in range(1, len(groups)):
        groups[groups[g].parent].groups.append(g)
    _measure(groups)
    when = _when(groups, moments(snapshot))
    for g in range(len(groups)):
        _divide(groups, g, len(snapshot.nodes), when)
    for g, group in enumerate(groups):
        for i in group.nodes:
            home[i] = g
    _measure(groups)
    return groups, home


def module_paths(snapshot: Snapshot) -> list[str]:
    """The module in which each node is drawn. Nodes without inputs are drawn beside their
    readers.
    """
    readers: dict[int, set[str]] = defaultdict(set)
    fed = set()
    for edge in snapshot.edges:
        readers[edge.source].add(snapshot.nodes[edge.target].module)
        fed.add(edge.target)
    return [
        _common(readers[i]) if node.kind != "op" and i not in fed and i in readers else node.module
        for i, node in enumerate(snapshot.nodes)
    ]


def _common(paths: Iterable[str]) -> str:
    """The path of the innermost module around all of `paths`."""
    steps = zip(*(path.split(".") if path else [] for path in paths), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len({*names}) == 1, steps))


def _measure(groups: list[Group]) -> None:
    for group in groups:
        group.size = len(group.nodes)
    for g in _inner_first(groups):
        if groups[g].parent >= 0:
            groups[groups[g].parent].size += groups[g].size


def _inner_first(groups: list[Group]) -> list[int]:
    order = [0]
    for g in order:
        order.extend(groups[g].groups)
    return order[::-1]


def moments(snapshot: Snapshot) -> list[int]:
    """The index of each node; for a node without inputs, the index of its first reader."""
    times = list(range(len(snapshot.nodes)))
    fed = {edge.target for edge in snapshot.edges}
    for edge in sorted(snapshot.edges, key=lambda edge: -edge.target):
        if edge.source not in fed:
            times[edge.source] = edge.target
    return times


def _when(groups: list[Group], moment: list[int]) -> list[int]:
    """The moment of the first node in each item (nodes, then groups)."""
    first = [min((moment[i] for i in group.nodes), default=2**62) for group in groups]
    for g in _inner_first(groups):
        if groups[g].parent >= 0:
            first[groups[g].parent] = min(first[groups[g].parent], first[g])
    return [*moment, *first]


def _divide(groups: list[Group], g: int, count: int, when: list[int]) -> None:
    """Split a group with too many items into parts of consecutive ones, recursively."""
    group = groups[g]
    items = [*group.nodes, *(count + each for each in group.groups)]
    items.sort(key=when.__getitem__)
    while len(items) > MOST_ITEMS:
        size = min(64, isqrt(len(items)) + 1)
        parts = [items[i : i + size] for i in range(0, len(items), size)]
        items = []
        names = [each.name for each in groups]
        for number, members in enumerate(parts, 1):
            name = _named(names, members, count) or f"part {number} of {len(parts)}"
            part = Group(name, g, f"{group.path}#{len(groups)}")
            part.nodes = [i for i in members if i < count]
            part.groups = [i - count for i in members if i >= count]
            for child in part.groups:
                groups[child].parent = len(groups)
            items.append(count + len(groups))
            groups.append(part)
        group.nodes, group.groups = [], [i - count for i in items]


def _named(names: Sequence[str], items: Sequence[int], count: int) -> str:
    """Name of a part by the modules in it, from the first to the last; empty without any."""
    inside = [names[i - count] for i in items if i >= count]
    if not inside:
        return ""
    return inside[0] if inside[0] == inside[-1] else f"{inside[0]} to {inside[-1]}"


# ---- layers and order in one group ---------------------------------------------------------------


def _arrange(
    group: Group,
    items: list[int],
    edges: dict[tuple[int, int], set[int]],
    names: Iterator[int],
    leaves: set[int],
) -> None:
    """Set the group's layers and segments; `names` are for the places of long edges."""
    entries, exits = list(group.entries.values()), list(group.exits.values())
    items = [*entries, *items, *exits]
    forward = _without_cycles(items, edges)
    ports = {*entries, *exits}
    depth = _layers(items, forward, set(entries), set(exits))
    layer = _spread(items, depth, ports)
    rows: list[list[int]] = [[] for _ in range(1 + max(layer.values(), default=0))]
    for item in items:
        rows[layer[item]].append(item)
    segments: dict[tuple[int, int], set[int]] = {}
    ways: dict[tuple[int, int], int] = {}  # (item, layer) -> place of its long edges there
    for (a, b), sources in forward.items():
        here = a
        most = LONGEST_OF_LEAF if sources <= leaves else LONGEST
        if depth[b] - depth[a] <= most:
            for between in range(layer[a] + 1, layer[b]):
                place = ways.get((a, between))
                if place is None:
                    place = ways[a, between] = next(names)
                    rows[between].append(place)
                segments.setdefault((here, place), set()).update(sources)
                here = place
        segments.setdefault((here, b), set()).update(sources)
    group.layers = _ordered(rows, segments)
    group.segments = [(a, b, tuple(sorted(sources))) for (a, b), sources in segments.items()]


def _without_cycles(
    items: list[int], edges: dict[tuple[int, int], set[int]]
) -> dict[tuple[int, int], set[int]]:
    """The edges, with those reversed that close a cycle (a module that runs twice can make one)."""
    below: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        below[a].append(b)
    state = dict.fromkeys(items, 0)  # 1: on the path from the root of the search, 2: done
    turned = set()
    for root in items:
        stack = [(root, iter(below[root]))] if not state[root] else []
        state[root] = state[root] or 1
        while stack:
            item, rest = stack[-1]
            for b in rest:
                if state[b] == 1:
                    turned.add((item, b))
                elif state[b] == 0:
                    state[b] = 1
                    stack.append((b, iter(below[b])))
                    break
            else:
                state[item] = 2
                stack.pop()
    result: dict[tuple[int, int], set[int]] = {}
    for (a, b), sources in edges.items():
        key = (b, a) if (a, b) in turned else (a, b)
        result.setdefault(key, set()).update(sources)
    return result


def _layers(
    items: list[int], edges: Iterable[tuple[int, int]], entries: set[int], exits: set[int]
) -> dict[int, int]:
    """The layer of each item: below all its inputs; an item without inputs is right above its
    reader.
    """
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        above[b].append(a)
        below[a].append(b)
    waiting = {item: len(above[item]) for item in items}
    order = [item for item in items if not waiting[item]]
    for item in order:
        for b in below[item]:
            waiting[b] -= 1
            if not waiting[b]:
                order.append(b)
    first = 1 if entries else 0
    layer: dict[int, int] = {}
    loose = set()  # hangs on nothing from above: may be moved down
    for item in order:
        layer[item] = 0 if item in entries else max([first, *(layer[a] + 1 for a in above[item])])
        if item not in entries and len(above[item]) <= len(below[item]) and all(
            a in loose for a in above[item]
        ):  # fmt: skip
            loose.add(item)
    for item in reversed(order):
        if item in loose and below[item]:
            layer[item] = min(layer[b] for b in below[item]) - 1
    last = max((layer[item] for item in items if item not in exits), default=-1)
    for item in exits:
        layer[item] = last + 1
    return layer


def _spread(items: list[int], depth: dict[int, int], ports: set[int]) -> dict[int, int]:
    """The layers, with each that has too many items split into several."""
    rows: list[list[int]] = [[] for _ in range(1 + max(depth.values(), default=0))]
    for item in items:
        rows[depth[item]].append(item)
    layer: dict[int, int] = {}
    first = 0
    for row in rows:
        wide = [item for item in row if item not in ports]
        height = max(1, -(-len(wide) // WIDEST))
        share = -(-len(wide) // height)
        layer.update((item, first + i // share) for i, item in enumerate(wide))
        layer.update((item, first) for item in row if item in ports)
        first += height
    return layer


def _ordered(rows: list[list[int]], segments: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The rows in an order with few crossings: repeated sorting by the mean place of neighbours."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    row_of = {item: r for r, row in enumerate(rows) for item in row}
    for a, b in segments:
        if row_of[b] - row_of[a] == 1:
            above[b].append(a)
            below[a].append(b)
    place: dict[int, float] = {}

    def spread(row: list[int]) -> None:
        for i, item in enumerate(row):
            place[item] = i - (len(row) - 1) / 2

    for row in rows:
        spread(row)
    best, fewest = [list(row) for row in rows], crossings(rows, below)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            mean_place = {
                item: sum(place[n] for n in near[item]) / len(near[item])
                if near[item]
                else place[item]
                for item in row
            }
            row.sort(key=mean_place.__getitem__)
            spread(row)
        count = crossings(rows, below)
        if count < fewest:
            best, fewest = [list(row) for row in rows], count
    return best


def crossings(rows: list[list[int]], below: dict[int, list[int]]) -> int:
    """The number of crossings of edges between consecutive rows."""
    total = 0
    for row, next_row in pairwise(rows):
        place = {item: i for i, item in enumerate(next_row)}
        seen: list[int] = []
        for item in row:
            ends = [place[b] for b in below[item]]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def describe(snapshot: Snapshot, groups: list[Group]) -> list[str]:
    """Text for each folded group: its size and most frequent ops."""
    counts: list[Counter[str]] = [Counter() for _ in groups]
    for g in _inner_first(groups):
        own = counts[g]
        own.update(snapshot.nodes[i].op for i in groups[g].nodes if snapshot.nodes[i].kind == "op")
        if groups[g].parent >= 0:
            counts[groups[g].parent].update(own)
    texts = []
    for group, ops in zip(groups, counts, strict=True):
        most = [f"{op} x{n}" if n > 1 else op for op, n in ops.most_common(3)]
        nodes = f"{group.size:,} node{'s' if group.size != 1 else ''}"
        texts.append(f"{nodes}: {', '.join(most)}{', ...' if len(ops) > 3 else ''}")
    return texts
