"""`load`: an ONNX file as a Module that runs, trains and can be exported again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...autograd.modes import no_grad
from ...autograd.recording import lazy
from ...core.errors import CheckpointError, Unsupported
from ...io.imported import (
    FAULTS,
    ImportedGraph,
    Path,
    last_uses,
    needed,
    refuse,
    refusing,
    several,
    under,
)
from ...nn import Module
from ...ops.create.exchange import from_numpy
from ...runtime.lazy import LazyValue
from ...tensor import Tensor
from .files import array_of, attribute_of, read_model
from .importing.control import CONTROL, DEPTH, Subgraph
from .importing.imported_node import TABLE, ImportedNode, TooLarge, host, t
from .importing.operator_table import FOLDED, HOST_INPUTS
from .replaced import ReplacementLayer, with_layer

OPSETS = range(7, 29)
GRAPH = 5  # the type of an attribute that is a graph
EMPTY: Mapping[str, str] = {}
FOLDED_ELEMENTS = 1 << 22  # that all constants computed while loading may have together


def load(f: Any) -> OnnxModule:
    """Read an ONNX file as a Module.

    Floating-point initializers that a layer or an operation computes with become Parameters, under
    their names; the running statistics of batch normalization become buffers; what depends on
    constants only is computed now. Inputs and outputs are those of the graph, in its order; several
    outputs come as a tuple. Dropout and batch normalization follow `train()` and `eval()`; a loaded
    module is in eval mode.

    Shapes: `f` is a path, bytes, or a file open for reading bytes.
    Errors: CheckpointError for a file that is malformed; Unsupported names an operator that is not
    there.
    Source: https://onnx.ai/onnx/operators/

    >>> import io
    >>> file = io.BytesIO()
    >>> ad.onnx.export(ad.nn.Linear(3, 2), ad.ones(1, 3), file)
    >>> model = ad.onnx.load(file.getvalue())
    >>> sorted(name for name, _ in model.named_parameters())
    ['bias', 'weight']
    """
    proto, directory = read_model(f)
    return OnnxModule(proto, directory)


class OnnxModule(ImportedGraph):
    """The graph of an ONNX file.

    Errors: those of `onnx.load`.
    Source: https://onnx.ai/onnx/repo-docs/IR.html

    >>> import io
    >>> file = io.BytesIO()
    >>> ad.onnx.export(ad.nn.ReLU(), ad.ones(2), file)
    >>> ad.onnx.load(file.getvalue())(ad.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """

    def __init__(self, model: Any, directory: Any = None) -> None:
        super().__init__("onnx")
        opset = _opset(model)
        graph = model.graph
        if graph.sparse_initializer or model.functions:
            raise Unsupported(
                "onnx.load: sparse initializers and local functions are not supported"
            )
        arrays: dict[str, Any] = {}
        for tensor in graph.initializer:
            if not tensor.name or tensor.name in arrays:
                raise CheckpointError(f"onnx.load: two initializers called {tensor.name[:80]!r}")
            arrays[tensor.name] = array_of(tensor, directory)
        inputs = [x.name for x in graph.input if x.name not in arrays]
        self.input_names = inputs
        self.output_names = [x.name for x in graph.output]
        known = {*inputs, *arrays}
        if len({*inputs}) != len(inputs):
            raise CheckpointError("onnx.load: two inputs have one name")
        nodes = []
        reader = Reader(opset, directory, arrays, known)
        for proto in graph.node:
            node = reader.node(proto)
            missing = [name for name in node.inputs if name and name not in known]
            if missing:
                raise CheckpointError(
                    f"onnx.load: node {node.label} uses {missing[0][:80]!r} before it is computed: "
                    "a cycle, or nodes out of order"
                )
            for name in filter(None, node.outputs):
                if name in known:
                    raise CheckpointError(f"onnx.load: {name[:80]!r} is computed twice")
                known.add(name)
            nodes.append(node)
        for name in self.output_names:
            if name not in known:
                raise CheckpointError(f"onnx.load: nothing computes the output {name[:80]!r}")
        buffers = {
            name
            for entry in model.metadata_props
            if entry.key == "adjoint.buffers"
            for name in str(entry.value).split("\n")
        }
        for node in _all(nodes):
            if node.outside or any(isinstance(x, Subgraph) for x in node.attributes.values()):
                node.run = self._step
        self._take_initializers(arrays, nodes, buffers)
        self._steps = self._fold(needed(nodes, self.output_names))
        self._drops = last_uses(self._steps, self.output_names)
        paths = {path for path, _ in self._places.values()}
        self._paths = sorted({p[:i] for p in paths for i in range(1, len(p) + 1)})
        self._put: Any = None  # the layers put in the place of others, and the steps with them
        self.eval()

    # ---- loading -----------------------------------------------------------------------------

    def _take_initializers(
        self, arrays: dict[str, Any], nodes: list[ImportedNode], buffers: set[str]
    ) -> None:
        """Make parameters and buffers; the other initializers are constants."""
        trained, statistics = set(), set()
        for node in _all(nodes):
            fixed = HOST_INPUTS.get(node.kind, ())
            for i, name in enumerate(node.inputs[: len(node.inputs) - len(node.outside)]):
                if node.kind == "BatchNormalization" and i >= 3:
                    statistics.add(name)
                elif i not in fixed:
                    trained.add(name)
        for name, array in arrays.items():
            floating = array.dtype.kind in "fV"
            is_buffer = name in buffers or (floating and name in statistics)
            if is_buffer or (floating and array.ndim and name in trained):
                self._register(name, from_numpy(array), is_buffer)
            else:
                self._values[name] = array

    def _fold(self, nodes: list[ImportedNode]) -> list[ImportedNode]:
        """Compute what depends on constants only; returns the other nodes."""
        left = FOLDED_ELEMENTS
        steps = []
        for node in nodes:
            if node.kind == "Constant":
                self._values[node.outputs[0]] = TABLE["Constant"](node)
                continue
            known = all(not name or name in self._values for name in node.inputs)
            if known and node.kind in FOLDED:
                args = [self._values[name] if name else None for name in node.inputs]
                results, size = _small(node, args, left)
                if results is not None:
                    left -= size
                    self._values.update(zip(node.outputs, results, strict=False))
                    continue
            steps.append(node)
        return steps

    # ---- running -----------------------------------------------------------------------------

    def forward(self, *args: Any, **named: Any) -> Any:
        """The outputs for these inputs, in the graph's order. Inputs are tensors or arrays, which
        may be given by their names. A layer put in the place of one of the file's is what runs.

        Shapes: as in the file.
        Errors: InvalidArgument for other inputs than the graph's; Unsupported for a module put
        where the file has no layer of one input; those of the operations.

        >>> import io
        >>> file = io.BytesIO()
        >>> ad.onnx.export(ad.nn.Tanh(), ad.ones(2), file)
        >>> ad.onnx.load(file.getvalue()).forward(ad.zeros(2))
        tensor([0., 0.])
        """
        values = self._tensors(args, named)
        put = self._layers()
        if not put:
            return self._compute(values)
        return self._computed(self._start(values, put), *self._with_layers(put))

    def _layers(self) -> dict[Path, Module]:
        """The modules that compute, put in the place of those that only hold tensors."""
        found: dict[Path, Module] = {}
        for path in self._paths:
            if not (found and under(path, found)):
                module = self._at(path)
                if type(module).forward is not Module.forward:
                    found[path] = module
        return found

    def _with_layers(self, put: dict[Path, Module]) -> tuple[list[Any], list[list[str]]]:
        """The steps where these modules run, and what is dropped after each."""
        if self._put is None or list(self._put[0].items()) != list(put.items()):
            steps = self._steps
            for path, module in put.items():
                own = {name for name, (at, _) in self._places.items() if at[: len(path)] == path}
                steps = with_layer(steps, self.output_names, path, own, set(self._values), module)
            self._put = (put, steps, last_uses(steps, self.output_names))
        return self._put[1:]

    def _step(self, step: Any, inputs: list[Any]) -> tuple[Any, ...]:
        """Computes a node; numbers and vectors that only depend on shapes stay arrays."""
        if isinstance(step, ReplacementLayer):
            return several(step.module(t(*inputs)))
        step.training = self.training
        try:
            if all(x is None or isinstance(x, np.ndarray) for x in inputs) and step.kind in FOLDED:
                with no_grad():
                    found = several(TABLE[step.kind](step, *inputs))
                return tuple(host(x) if x.ndim < 2 else x for x in found)
            return several(TABLE[step.kind](step, *inputs))
        except FAULTS as error:
            refuse(f"onnx: node {step.label}", error)

    def extra_repr(self) -> str:
        """Inputs, outputs and how many nodes.

        >>> import io
        >>> file = io.BytesIO()
        >>> ad.onnx.export(ad.nn.Tanh(), ad.ones(2), file)
        >>> ad.onnx.load(file.getvalue()).extra_repr()
        'input -> output, 2 nodes'
        """
        return self._summary()


def _opset(model: Any) -> int:
    """The version of the operators."""
    versions = [x.version for x in model.opset_import if x.domain in ("", "ai.onnx")]
    if len(versions) != 1 or versions[0] not in OPSETS:
        raise CheckpointError(
            f"onnx.load: opset {versions}; versions {OPSETS[0]} to {OPSETS[-1]} are read"
        )
    return int(versions[0])


class Reader:
    """Makes nodes of a file's; `arrays` and `known` get the initializers of graphs inside them."""

    def __init__(self, opset: int, directory: Any, arrays: dict[str, Any], known: set[str]) -> None:
        self.opset = opset
        self.directory = directory
        self.arrays = arrays
        self.known = known

    def node(self, proto: Any, names: Mapping[str, str] = EMPTY, depth: int = 0) -> ImportedNode:
        """A node; `names` are those of initializers that are called otherwise in this graph."""
        kind = proto.op_type
        label = f"{(proto.name or '')[:60]!r} ({kind[:40]})"
        if proto.domain not in ("", "ai.onnx"):
            raise Unsupported(
                f"onnx.load: node {label} is of the domain {proto.domain[:60]!r}; only ONNX's own "
                "operators are read"
            )
        if kind not in TABLE:
            raise Unsupported(f"onnx.load: operator {kind[:60]!r} (node {label}) is not supported")
        attributes = {
            a.name: self.graph(a.g, names, depth + 1) if a.type == GRAPH and kind in CONTROL
            else attribute_of(a, self.directory)
            for a in proto.attribute
        }  # fmt: skip
        inside = [x.outside for x in attributes.values() if isinstance(x, Subgraph)]
        outside = tuple(dict.fromkeys(name for part in inside for name in part))
        inputs = tuple(names.get(name, name) for name in proto.input)
        return ImportedNode(
            kind, (*inputs, *outside), tuple(proto.output), attributes, self.opset, label,
            outside=outside,
        )  # fmt: skip

    def graph(self, proto: Any, names: Mapping[str, str], depth: int) -> Subgraph:
        """A graph inside of a node."""
        if depth > DEPTH:
            raise CheckpointError(f"onnx.load: graphs nest deeper than {DEPTH}")
        if proto.sparse_initializer:
            raise Unsupported("onnx.load: sparse initializers are not supported")
        inputs, outputs = [x.name for x in proto.input], [x.name for x in proto.output]
        made = {*inputs, *(name for node in proto.node for name in node.output)}
        own = {name: other for name, other in names.items() if name not in made}
        for tensor in proto.initializer:
            name = tensor.name
            while name in self.known:
                name += "_"
            self.arrays[name] = array_of(tensor, self.directory)
            self.known.add(name)
            own[tensor.name] = name
        nodes, values, inner = [], {}, set(inputs)
        outside = [own[name] for name in outputs if name in own]
        for each in proto.node:
            node = self.node(each, own, depth)
            outside += [name for name in node.inputs if name and name not in inner]
            if not inner.isdisjoint(node.outputs):
                raise CheckpointError(f"onnx.load: node {node.label} computes a value twice")
            inner.update(filter(None, node.outputs))
            if node.kind == "Constant":
                values[node.outputs[0]] = TABLE["Constant"](node)
            else:
                nodes.append(node)
        results = [own.get(name, name) for name in outputs]
        outside += [name for name in results if name not in inner]
        return Subgraph(
            inputs, results, list(dict.fromkeys(outside)), values, needed(nodes, results),
            [_type_of(x) for x in proto.output],
        )  # fmt: skip


def _type_of(value: Any) -> tuple[int, list[int]]:
    """Element type and shape of a value as the file has them; 0 for sizes that are open."""
    kind = value.type.tensor_type
    return kind.elem_type, [max(dim.dim_value, 0) for dim in kind.shape.dim]


def _all(nodes: Iterable[ImportedNode]) -> Iterator[ImportedNode]:
    """The nodes, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, Subgraph):
                yield from _all(value.steps)


def _small(node: ImportedNode, args: list[Any], limit: int) -> tuple[tuple[Any, ...] | None, int]:
    """Folds a node: its values for constant inputs, and how many elements that takes; (None, 0) for
    more than `limit`. Shapes are found by recording, before anything is computed.
    """
    node.limit = limit
    try:
        with refusing(f"onnx.load: node {node.label}"):
            with no_grad(), lazy():
                found = several(TABLE[node.kind](node, *args))
            size = sum(_sizes(found))
            if size > limit:
                return None, 0
            return tuple(host(x) for x in found), size
    except TooLarge:
        return None, 0
    finally:
        node.limit = None


def _sizes(found: Iterable[Any]) -> Iterable[int]:
    """The elements of recorded values and of all that they are computed from."""
    stack = [x._data if isinstance(x, Tensor) else x for x in found]
    seen = set()
    while stack:
        value = stack.pop()
        if id(value) not in seen:
            seen.add(id(value))
            yield value.size
            if isinstance(value, LazyValue):
                stack.extend(x for x in value.inputs if isinstance(x, LazyValue))
