"""Saving and loading graphs: topology, values and names in one file.

The file is one that `adjoint.save` writes (io/checkpoint.py: safetensors, from which nothing is
executed). Nodes are rows of integer columns, inputs before users, so that a row refers to earlier
ones only; what many rows share (ops, numbers among inputs, facts such as names) stands in tables. A
source has a tensor of its own, computed values lie one after another, by dtype. Shapes and dtypes
are not stored: they are what the ops infer.
"""

from __future__ import annotations

import itertools
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import refreshing
from ..autograd.graph_writes import Overwritten
from ..autograd.recording import is_detached, source_of
from ..autograd.refreshing import Derivation, Derivative, DetachNode
from ..core.device import CPU, host_array, transfer
from ..core.dtype import dtype, from_numpy_dtype
from ..core.errors import CheckpointError, DeviceError, GraphError
from ..core.spec import Spec, prod
from ..io import checkpoint
from ..io.stored_ops import Ops, checked, checked_shape, size_of
from ..nn import Parameter
from ..ops.create.like import OfEach
from ..ops.index.indexing import Reindex
from ..ops.random.draws import Beside, Draw, DrawnFor
from ..ops.random.generators import counting, default_generator
from ..ops.shape.movement import Refit
from ..runtime import repeats
from ..runtime.cells import (
    Cell,
    GraphState,
    SourceCell,
    assert_consistent,
    notice_foreign_writes,
    upstream,
    users_frame,
)
from ..runtime.lazy import concrete, specs_of
from ..runtime.node import Item
from ..runtime.tensors import wrap
from ..runtime.writes import ViewWrite
from ..tensor import Tensor
from .nodes import showing

if TYPE_CHECKING:
    from .graph import Graph

VERSION = 1
MAX_PARTS = 1 << 20, 64  # fields, inputs and outputs of all nodes of a file; and of one node
_FLAGS = ("tracked", "stale", "seen", "cutoff", "planned", "computed", "leaf")
_ABOUT = ("name", "module", "line")
_FACTS = tuple[str | None, tuple[str, ...] | None, tuple[str, int] | None, tuple[int, ...]]
_NUMBER = bool | int | float | complex | None
_OPS = Ops(
    Item, ViewWrite, Overwritten, DetachNode, Derivative, Refit, Reindex, DrawnFor, Beside, OfEach
)


def lasting(graph: Graph) -> list[Cell]:
    """The cells of `graph`, inputs before users, except removed ones and those of remembered
    backward passes; and the sources of named tensors outside.
    """
    state = graph._state
    if state.edited:
        state.before_read(state, None)
    notice_foreign_writes(state)
    outside = [x for x in graph._named.values() if not refreshing.is_of_graph(x)]
    cells = state.cells()
    kept = [
        c for c in cells
        if c.rare is None or (c.planned != 2 and not (c.about or {}).get("removed"))
    ]  # fmt: skip
    if not outside and len(kept) == len(cells):
        return cells
    return upstream([*kept, *(source_of(state, x) for x in outside)])


def derivations(graph: Graph, stands: Mapping[Any, Any]) -> Iterator[list[list[Any]]]:
    """Arguments and results of each `grad` in this graph: outputs, inputs, seeds, results. `stands`
    maps cells to what represents their tensors; other tensors represent themselves.
    """
    state = graph._state

    def stand(x: Any) -> Any:
        inside = refreshing.is_of_graph(x)
        return stands.get(x._data if inside else state.sources.get(id(x)), x)

    for reference in state.derived:
        derivation = reference()
        if derivation is not None:
            cells = [None if r is None else r() for r in derivation.results]
            parts = [
                list(map(stand, each))
                for each in (derivation.outputs, derivation.inputs, derivation.seeds)
            ]
            yield [*parts, [stands.get(cell) for cell in cells]]


def derive(
    outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], results: Sequence[Any]
) -> None:
    """Restore a derivation: `results` (None for one that no longer exists) of `grad` with these
    arguments.
    """
    derivation = Derivation(outputs, inputs, seeds)
    cells = [None if x is None else x._data for x in results]
    derivation.results = [None if cell is None else cell.reference for cell in cells]
    living = [cell for cell in cells if cell is not None]
    for cell in living:
        cell.note(derivation=derivation)
    if living:
        living[0].state.derived.append(weakref.ref(derivation))


def ends(pairs: Iterable[tuple[Cell, Any]]) -> Iterator[Any]:
    """The tensors, of pairs of a cell and its tensor, that nothing else keeps alive: leaves, and
    those from which nothing is computed.
    """
    for cell, tensor in pairs:
        if not cell.living_users() or tensor._node is tensor._leaf is not None:
            yield tensor


# ---- writing -------------------------------------------------------------------------------------


def save(graph: Graph, f: Any) -> None:
    """Write `graph`; see `Graph.save`."""
    state = graph._state
    with state.lock:
        _warn_of_writes(state)
        checkpoint.save(_written(graph), f)


def _warn_of_writes(state: GraphState) -> None:
    """Warn of what a file does not hold: writes to buffers, which belong to modules."""
    for reference in state.repeating:
        cell = reference()
        if cell is None or not any(isinstance(x, repeats.BufferWrites) for x in cell.repeats):
            continue
        warnings.warn(
            f"Graph.save: node {cell.label!r} of shape {tuple(cell.shape)} writes buffers of a "
            "module for each new value (running statistics, say); in the file it does not: save "
            "the module's state_dict beside it, and record its training again after loading",
            stacklevel=users_frame()[0],
        )
        return


def _written(graph: Graph) -> dict[str, Any]:
    cells = lasting(graph)
    places = {cell: i for i, cell in enumerate(cells)}
    ops: dict[int, Any] = {}  # by id: the number, and what is written
    numbers: dict[Any, Any] = {}
    facts: dict[Any, Any] = {}
    columns: dict[str, list[int]] = {name: [] for name in ("op", "count", "input", "flags", "fact")}
    values: dict[str, list[Any]] = {}
    sources = []
    for cell in cells:
        if isinstance(cell, SourceCell):
            sources.append(_source(cell))
            op = -1
        else:
            op = _number(ops, id(cell.op), _OPS.written, cell.op, f"save: node {cell.label!r}")
        columns["op"].append(op)
        columns["count"].append(len(cell.inputs))
        for x in cell.inputs:
            columns["input"].append(
                places[x]
                if isinstance(x, Cell)
                else -1
                - _number(numbers, (type(x), repr(x)), _OPS.field, x, f"save: node {cell.label!r}")
            )
        computed = op >= 0 and cell.array is not None
        for array in cell.array if cell.dtype is None and computed else [cell.array] * computed:
            name = from_numpy_dtype(array.dtype).name
            values.setdefault(name, []).append(host_array(array, {}).reshape(-1))
        handle = cell.handle()
        seen = cell.seen == tuple([x.version for x in cell.cells])
        leaf = op >= 0 and handle is not None and handle._node not in (None, cell)
        flags = (
            cell.tracked, cell.stale, seen, cell.cutoff, cell.planned == 1, computed, leaf
        )  # fmt: skip
        columns["flags"].append(sum(bool(flag) << i for i, flag in enumerate(flags)))
        about = cell.about or {}
        row = (*(about.get(key) for key in _ABOUT), cell.cut)
        columns["fact"].append(_number(facts, row, tuple, row))
    return {
        "adjoint.Graph": VERSION,
        "cutoff": graph._state.cutoff,
        "lines": graph._state.places,
        "training": graph.training,
        "generator": None if graph.generator is None else graph.generator.get_state(),
        "ops": [written for _, written in ops.values()],
        "numbers": [written for _, written in numbers.values()],
        "facts": [written for _, written in facts.values()],
        "columns": {name: wrap(np.array(each, np.int64)) for name, each in columns.items()},
        "sources": sources,
        "values": {name: wrap(np.concatenate(each)) for name, each in values.items()},
        "named": {
            name: (places[graph._cell(x, "save")], is_detached(x))
            for name, x in graph._named.items()
        },
        "inputs": list(graph._inputs),
        "parameters": list(graph._parameters),
        "derivations": list(derivations(graph, places)),
    }


def _number(table: dict[Any, Any], key: Any, write: Callable[..., Any], *of: Any) -> int:
    """The index of `key` in a table; a new key is added with the entry `write(*of)`."""
    if key not in table:
        table[key] = (len(table), write(*of))
    return int(table[key][0])


def _source(cell: SourceCell) -> dict[str, Any]:
    """Description of a source: its tensor, or shape and dtype if it was never set."""
    outside = cell.follows is not None
    tensor = cell.follows if outside else cell.handle()
    leaf = tensor is not None and tensor._node is not None
    if leaf and tensor._node is not tensor._leaf:
        raise GraphError(
            f"save: {cell!r} follows a tensor that was computed outside the graph, whose history "
            "no file can hold; detach() it, or compute it in the graph"
        )
    if cell.array is None:
        shape, kind = tuple(cell.shape), from_numpy_dtype(cell.dtype)
        return {"shape": shape, "dtype": kind, "requires_grad": leaf}
    if not outside:
        value = wrap(cell.array)
        tensor = (
            Parameter(value, leaf) if isinstance(tensor, Parameter) else value.requires_grad_(leaf)
        )
    return {"tensor": tensor, "outside": outside}


# ---- reading -------------------------------------------------------------------------------------


def load(graph: Graph, f: Any, map_location: Any) -> None:
    """Fill `graph`, which is new; see `Graph.load`."""
    name = repr(os.fspath(f)) if isinstance(f, (str, os.PathLike)) else repr(f)
    content = checkpoint.load(f, map_location)
    if not isinstance(content, dict) or content.get("adjoint.Graph") != VERSION:
        raise CheckpointError(
            f"Graph.load: {name} holds no graph of version {VERSION}; adjoint.load reads other "
            "files, the adjoint that wrote it later versions"
        )
    try:
        _GraphReader(graph, content).read()
    except (DeviceError, MemoryError):
        raise
    except Exception as error:  # what only a file made by hand can provoke
        raise CheckpointError(
            f"Graph.load: {name} cannot be understood: {type(error).__name__}: {error}"
        ) from error


class _GraphReader:
    """Reader of a saved graph: makes the nodes row by row."""

    def __init__(self, graph: Graph, content: dict[str, Any]) -> None:
        self.graph = graph
        self.state = graph._state
        self.found = content
        self.cells: list[Cell] = []
        self.tensors: list[Any] = []  # that show them
        self.outputs: dict[Cell, tuple[Spec, ...]] = {}  # of ops with several
        self.values = {name: _host(x) for name, x in content["values"].items()}
        self.taken = dict.fromkeys(self.values, 0)  # how many of them were given to nodes
        self.left = 0  # parts that further nodes may have

    def read(self) -> None:
        """Make the nodes, then restore names and settings of the graph."""
        content = self.found
        rows, counts, inputs, flags, facts = (
            _column(content["columns"][name]) for name in ("op", "count", "input", "flags", "fact")
        )
        self.left = MAX_PARTS[0] + MAX_PARTS[1] * len(rows)
        sources, references = iter(content["sources"]), iter(inputs)
        ops = [(_OPS.read(each), 1 + size_of(each)) for each in content["ops"]]
        numbers = [checked(each, _NUMBER) for each in content["numbers"]]
        node_facts = [checked(each, _FACTS) for each in content["facts"]]
        for row, count, flag, fact in zip(rows, counts, flags, facts, strict=True):
            args = tuple(
                [
                    self._cell(x) if x >= 0 else numbers[_at(-1 - x, numbers)]
                    for x in itertools.islice(references, count)
                ]
            )
            if row < 0:
                cell, tensor = self._source(next(sources))
            else:
                op, cost = ops[_at(row, ops)]
                self._spend(cost + len(args))
                cell, tensor = self._computed(op, args, flag)
            self._describe(cell, flag, *node_facts[_at(fact, node_facts)])
            self.cells.append(cell)
            self.tensors.append(tensor)
        left = [
            *sources,
            *references,
            *(n for n, x in self.values.items() if self.taken[n] != x.size),
        ]
        if left:
            raise CheckpointError("it holds more sources, inputs or values than its nodes have")
        self._finish()
        assert_consistent(self.cells)

    def _spend(self, parts: int) -> None:
        self.left -= parts
        if self.left < 0:
            raise CheckpointError("its nodes have more parts than a program's could")

    def _cell(self, place: Any) -> Cell:
        return self.cells[_at(place, self.cells)]

    def _tensor(self, place: Any) -> Any:
        return self.tensors[_at(place, self.cells)]

    # ---- nodes -----------------------------------------------------------------------------------

    def _source(self, row: dict[str, Any]) -> tuple[Cell, Any]:
        tensor = row.get("tensor")
        if tensor is None:
            source = SourceCell(
                self.state, checked_shape(row["shape"]), checked(row["dtype"], dtype).numpy
            )
            leaf = checked(row["requires_grad"], bool)
            return source, showing(source, Tensor).requires_grad_(leaf)
        if not isinstance(tensor, Tensor):
            raise CheckpointError(f"a source is a {type(tensor).__name__}")
        if row["outside"]:
            return source_of(self.state, tensor), tensor
        array = concrete(tensor).copy()
        source = SourceCell(self.state, array.shape, array.dtype, array)
        return source, showing(source, type(tensor)).requires_grad_(tensor.requires_grad)

    def _computed(self, op: Any, args: tuple[Any, ...], flag: int) -> tuple[Cell, Any]:
        tracked, stale, seen, _, planned, computed, leaf = (
            bool(flag >> i & 1) for i in range(len(_FLAGS))
        )
        specs = self._specs(op, args)
        if op.n_outputs == 1:
            (spec,) = specs
            cell = Cell(self.state, op, args, spec.shape, spec.dtype.numpy, spec.device)
        else:
            cell = Cell(self.state, op, args, (), None)
            self.outputs[cell] = specs
        cell.tracked, cell.stale = tracked, stale
        if seen:
            cell.seen = tuple([x.version for x in cell.cells])
        if planned:
            cell.planned = 1
        if computed:
            arrays = tuple([self._array(spec) for spec in specs])
            cell.array = arrays[0] if op.n_outputs == 1 else arrays
        if isinstance(op, (Draw, DrawnFor)) and cell.cells:
            last = self.state.stamp() if seen or computed else repeats.never
            generator = self.graph.generator or default_generator
            repeats.attach(cell, repeats.NewNumbers(last, generator))
        if leaf:
            return cell, showing(cell, Tensor).requires_grad_()
        return cell, refreshing.tensor_of(cell)

    def _specs(self, op: Any, args: tuple[Any, ...]) -> tuple[Spec, ...]:
        """The specs of the op's outputs, as it infers them."""
        if type(op) is Item:
            (whole,) = args
            return (self.outputs[whole][_at(op.index, self.outputs[whole])],)
        if not self.outputs.keys().isdisjoint(x for x in args if isinstance(x, Cell)):
            raise CheckpointError(f"{op.name} takes the outputs of another op as one")
        self._spend(op.n_outputs)
        inferred = op.infer(*specs_of(args))
        specs = (inferred,) if isinstance(inferred, Spec) else tuple(inferred)
        for spec in specs:
            checked_shape(spec.shape)
        if len(specs) != op.n_outputs:
            raise CheckpointError(f"{op.name} has {len(specs)} outputs")
        return specs

    def _array(self, spec: Spec) -> Any:
        """The next stored value of this dtype."""
        name, size = spec.dtype.name, prod(spec.shape)
        start = self.taken[name]
        self.taken[name] = end = start + size
        if end > self.values[name].size:
            raise CheckpointError(f"it has too few values of {name} for one of shape {spec.shape}")
        array = self.values[name][start:end].reshape(spec.shape).copy()
        return array if spec.device is CPU else transfer(array, spec.device)

    def _describe(self, cell: Cell, flag: int, name: Any, module: Any, line: Any, cut: Any) -> None:
        if flag >> _FLAGS.index("cutoff") & 1:
            cell.cutoff = True
        about = {key: x for key, x in zip(_ABOUT, (name, module, line), strict=True) if x}
        if about:
            cell.note(**about)
        if cut:
            if len(cut) > len(cell.inputs) or not all(0 <= i < len(cell.inputs) for i in cut):
                raise CheckpointError(f"{cell.label!r} has no inputs {cut!r:.80}")
            cell.cut = cut

    # ---- the graph -------------------------------------------------------------------------------

    def _finish(self) -> None:
        graph, content = self.graph, self.found
        self.state.cutoff = checked(content["cutoff"], bool)
        self.state.places = checked(content["lines"], bool)
        graph.training = checked(content["training"], bool)
        if content["generator"] is not None:
            seeded = counting(0).set_state(wrap(_host(content["generator"])))
            graph.generator = graph.recorder.generator = seeded
        for name, (place, detached) in content["named"].items():
            tensor = self._tensor(place)
            graph._named[checked(name, str)] = tensor.detach() if detached else tensor
        for names, theirs in (
            (content["inputs"], graph._inputs),
            (content["parameters"], graph._parameters),
        ):
            for name in names:
                theirs[name] = graph._named[name]
        for parts in content["derivations"]:
            outputs, inputs, seeds, results = (
                [self._tensor(x) if type(x) is int else x for x in each] for each in parts
            )
            if any(type(x._data.op) is not Derivative for x in results if x is not None):
                raise CheckpointError("it has gradients that are none")
            derive(outputs, inputs, seeds, results)
        graph._ends.extend(ends(zip(self.cells, self.tensors, strict=True)))


def _host(x: Any) -> Any:
    return host_array(concrete(x), {})


def _column(x: Any) -> list[int]:
    array = _host(x)
    if array.dtype != np.int64 or array.ndim != 1:
        raise CheckpointError("a column of its table is not of integers")
    return array.tolist()  # type: ignore[no-any-return]


def _at(place: Any, of: Sized) -> int:
    if type(place) is not int or not 0 <= place < len(of):
        raise CheckpointError(f"it names number {place!r:.40} of {len(of)}")
    return place
