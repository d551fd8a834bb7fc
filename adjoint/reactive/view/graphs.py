"""Snapshots of recorded graphs, and live views of a running program's graph."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...autograd.refreshing import tensor_of
from ...runtime.cells import Cell, GraphState, SourceCell, upstream
from ...runtime.lazy import LazyValue
from ...runtime.node import Item
from ...tensor import Tensor
from .. import Graph, Log
from .live import Feed
from .origins import Names, source_line
from .snapshot import Edge, NodeInfo, Snapshot
from .snapshot import State as NodeState
from .tape import dtype_name, fields_of, kind_of, op_name, short, tape_snapshot


def state_of(value: Any) -> GraphState | None:
    """The state of a Graph, or of the one that a tensor belongs to; None for anything else."""
    if isinstance(value, Graph):
        return value._state
    if isinstance(value, Tensor) and isinstance(value._data, Cell):
        return value._data.state
    return None


def is_graph(value: Any) -> bool:
    """Whether `snapshot_of` accepts the value."""
    return isinstance(value, (Tensor, Snapshot, Graph))


def snapshot_of(
    value: Any,
    title: str = "graph",
    log: Log | None = None,
    model: Any = None,
    modules: Mapping[str, Any] = {},
) -> Snapshot:
    """The snapshot of a Graph, or of the history of a tensor; `log` adds times to the nodes of a
    Graph.
    """
    if isinstance(value, Snapshot):
        return value
    names = Names(model, modules)
    state = state_of(value)
    if state is not None:
        with state.lock:
            cells = state.cells() if isinstance(value, Graph) else upstream([value._data])
            return _Cells(state, names, log).walk(cells, title)
    if type(value._data) is LazyValue and value._data.array is None:
        return _Values(names).walk(_needed(value._data), title)
    return tape_snapshot(value, names, title)


class _Values:
    """A walk over recorded values that computes none of them."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.followed = {id(tensor._data): tensor for _, tensor in names.tensors.values()}

    def walk(self, values: Iterable[LazyValue], title: str) -> Snapshot:
        """The snapshot; values come after their inputs."""
        infos: list[NodeInfo] = []
        edges: list[Edge] = []
        place: dict[LazyValue, int] = {}
        detached: dict[int, int] = {}  # node -> the boundary behind it
        for value in values:
            if isinstance(value.op, Item) and value.inputs:  # belongs to what computes all outputs
                place[value] = place[value.inputs[0]]
                output = f"{tuple(value.shape)} {dtype_name(value.dtype)}"
                infos[place[value]].attributes[f"output {value.op.index}"] = output
                continue
            attributes: dict[str, str] = {}
            sources = []
            for position, x in enumerate(value.inputs):
                if not isinstance(x, LazyValue):
                    attributes[f"input {position}"] = short(x)
                    continue
                source = place[x]
                if isinstance(value, Cell) and position in value.cut:
                    if source not in detached:
                        detached[source] = len(infos)
                        edges.append(Edge(source, len(infos), 0))
                        infos.append(_boundary(infos[source]))
                    source = detached[source]
                sources.append((source, position))
            place[value] = index = len(infos)
            infos.append(self.describe(value, attributes))
            edges.extend(Edge(source, index, position) for source, position in sources)
        return Snapshot(infos, edges, title)

    def describe(self, value: Any, attributes: dict[str, str]) -> NodeInfo:
        """The description of one node."""
        info = NodeInfo(id(value), "input", kind="input", attributes=attributes)
        info.state = "never" if value.array is None else "fresh"
        info.value = lambda: value.array if isinstance(value.array, np.ndarray) else None
        if value.dtype is not None:
            info.shape, info.dtype = tuple(value.shape), dtype_name(value.dtype)
        if value.op is not None:
            info.op, info.kind = op_name(value.op), "op"
            attributes.update(fields_of(value.op))
            return info
        tensor = self.tensor(value)
        outside = not isinstance(value, SourceCell) or value.follows is not None
        info.label = self.names.label(tensor)
        info.kind = kind_of(tensor)
        if info.kind == "input" and outside and value.size == 1 and not info.label:
            info.kind = "constant"
        info.op = info.kind
        if tensor is not None and tensor._leaf is not None:
            info.gradient = lambda: _array(tensor._leaf.grad)
        return info

    def tensor(self, value: Any) -> Any:
        """The tensor of a value that was given, not computed; None where it is not known."""
        return self.followed.get(id(value.array))


def _needed(value: LazyValue) -> list[LazyValue]:
    """`value` and the values that it will be computed from, inputs before users."""
    ordered: dict[LazyValue, None] = {}
    stack = [value]
    while stack:
        each = stack[-1]
        waiting = [x for x in each.inputs if isinstance(x, LazyValue) and x not in ordered]
        stack.extend(waiting)
        if not waiting:
            ordered[stack.pop()] = None
    return list(ordered)


class _Cells(_Values):
    """A walk over the cells of a graph, whose lock is held."""

    def __init__(self, state: GraphState, names: Names, log: Log | None = None) -> None:
        super().__init__(names)
        owner = state.owner()
        self.retained: dict[Cell, Any] = {} if owner is None else owner.retained
        self.times: dict[Cell, list[int]] = {}
        for cell, nanoseconds in zip(log.cells, log.times, strict=True) if log is not None else ():
            self.times.setdefault(cell, []).append(nanoseconds)

    def describe(self, value: Cell, attributes: dict[str, str]) -> NodeInfo:
        """The description of one node."""
        info = super().describe(value, attributes)
        about = value.about or {}
        info.label = str(about.get("name") or info.label)
        info.module = self.names.box(".".join(about.get("module") or ()))
        if value.planned:  # the nodes of a remembered backward pass are a box of their own
            info.module = f"backward.{info.module}".rstrip(".")
        info.source = source_line(*about.get("line", ("", 0)))
        times = self.times.get(value)
        if times is not None:
            info.time_us, info.runs = times[-1] / 1000, len(times)
        info.version = value.version
        info.state = _state(value)
        if value.op is not None:
            info.gradient = lambda: _array(self.retained.get(value))
        return info

    def tensor(self, value: Any) -> Any:
        """The tensor of a source; None for computed nodes."""
        return tensor_of(value) if isinstance(value, SourceCell) else None


def _array(tensor: Any) -> Any:
    """The array that a tensor holds now, without computing it."""
    data = getattr(tensor, "_data", None)
    data = data.array if isinstance(data, Cell) else data
    return data if isinstance(data, np.ndarray) else None


def _state(cell: Cell) -> NodeState:
    if cell.array is None and (cell.op is None or cell.seen is None):
        return "never"
    if cell.stale:
        return "stale"
    return "released" if cell.array is None else "fresh"


def _boundary(of: NodeInfo) -> NodeInfo:
    info = NodeInfo(-of.id, "detach", f"{of.title}, detached", "boundary", module=of.module)
    info.shape, info.dtype, info.state, info.value = of.shape, of.dtype, of.state, of.value
    return info


# ---- following a program ------------------------------------------------------------------------


class Tap:
    """Observer that passes a graph's events to a feed, and to the observer before it."""

    def __init__(self, feed: Feed, before: Any) -> None:
        self.feed = feed
        self.before = before

    def on_run(self, cell: Any, nanoseconds: int) -> None:
        """Called when a cell was computed."""
        if not isinstance(cell.op, Item):
            self.feed.push("ran", id(cell), nanoseconds / 1000)
        if self.before is not None:
            self.before.on_run(cell, nanoseconds)

    def on_reuse(self, cell: Any) -> None:
        """Called when a stale cell turned out to be up to date."""
        if not isinstance(cell.op, Item):
            self.feed.push("reused", id(cell))
        if self.before is not None:
            self.before.on_reuse(cell)

    def on_cut(self, cell: Any) -> None:
        """Called when a cell was recomputed to its former value."""
        self.feed.push("cut", id(cell))
        if self.before is not None:
            self.before.on_cut(cell)


class Watched:
    """Source of a live page: the graph among a running program's variables.

    It is looked for when the page asks: the variable `wanted`, or `graph`, or the last Graph.
    """

    def __init__(self, names: dict[str, Any], wanted: str | None, feed: Feed, title: str) -> None:
        self.names = names
        self.wanted = wanted
        self.feed = feed
        self.title = title
        self._state: GraphState | None = None
        self._structure: tuple[int, ...] = ()
        self._next = 0.0  # time.monotonic() at which the structure is read again

    def find(self) -> GraphState | None:
        """The state of the graph, once there is one; its events then go to the feed."""
        states = {name: state_of(value) for name, value in list(self.names.items())}
        graphs = {name: state for name, state in states.items() if state is not None}
        whole = [name for name in graphs if isinstance(self.names.get(name), Graph)]
        usual = ("graph", *reversed(whole), *reversed(graphs))
        names = usual if self.wanted is None else (self.wanted,)
        state = next((graphs[name] for name in names if name in graphs), self._state)
        if state is not None:
            self._state = state
            self._attach(state)
        return state

    def _attach(self, state: GraphState) -> None:
        """Subscribe to the graph's events, also after a `graph.events()` block that began
        before.
        """
        with state.lock:
            observer = state.observer
            while isinstance(observer, Log):
                observer = observer._outer
            if not (isinstance(observer, Tap) and observer.feed is self.feed):
                state.observer = Tap(self.feed, state.observer)

    def snapshot(self) -> Snapshot:
        """The present graph; empty before there is one."""
        state = self.find()
        if state is None:
            return Snapshot([], [], self.title)
        with state.lock:
            return _Cells(state, Names(None, {})).walk(state.cells(), self.title)

    def structure(self) -> tuple[int, ...]:
        """Identity, number of edits and size of the graph; read seldom enough to cost the program
        little.
        """
        began = time.monotonic()
        if began >= self._next:
            state = self.find()
            if state is not None:
                with state.lock:
                    self._structure = (id(state), state.edits, len(state.cells()))
            ended = time.monotonic()
            self._next = ended + max(0.25, 20 * (ended - began))
        return self._structure
