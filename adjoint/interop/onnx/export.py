"""`export`: a module written as an ONNX file."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.dtype import from_numpy_dtype
from ...core.errors import InvalidArgument, InvalidType, Unsupported
from ...core.tensor_base import TensorBase
from ...io.atomic import writing
from ...ir import program as form
from ...nn import Module
from ...runtime.tensors import wrap
from ...tensor import Tensor
from .capture import Captured, Dim, GraphValue, Size, capture, values_of
from .nodes import Nodes, named
from .require import onnx_package

OPSETS = range(17, 23)
TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
    "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15,
    "bfloat16": 16,
}  # fmt: skip


def export(
    module: Any = None,
    args: Any = (),
    f: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    opset_version: int = 17,
    *,
    model: object = None,
    verbose: bool | None = None,
    do_constant_folding: bool = True,
    **options: object,
) -> None:
    """Write `module`, in eval mode, as an ONNX file that computes `module(*args)`.

    The graph is what the module does when it runs on inputs of these shapes and dtypes. Parameters
    and buffers keep their names. `dynamic_axes` names the dimensions of inputs that may vary, as in
    PyTorch: {"x": {0: "batch"}}.

    In the place of `module` may stand a node of a Graph, or a list of nodes: then `args` are the
    nodes that become inputs, or None for the inputs of the graph that these depend on. Names of
    nodes are those in the file.

    As in PyTorch, the first argument may be named `model`; `verbose` prints the graph. The file
    computes the same whether `do_constant_folding` is set or not. `options` are those of PyTorch
    that have one value here: `dynamo=False`, `export_params=True`, `training=TrainingMode.EVAL`,
    `keep_initializers_as_inputs=False`, `external_data=False`, `dynamic_shapes=None`.

    Shapes: `args` is a tensor or a tuple of tensors; `f` a path or a file open for writing bytes.
    Errors: Unsupported for an operation that ONNX lacks, and where the module reads values of its
    input; InvalidArgument where the recorded operations depend on a size that may vary.
    Source: https://docs.pytorch.org/docs/stable/onnx.html

    >>> import io
    >>> file = io.BytesIO()
    >>> ad.onnx.export(ad.nn.Linear(3, 2), ad.ones(1, 3), file, dynamic_axes={"input": {0: "n"}})
    >>> ad.onnx.load(file.getvalue())(ad.ones(5, 3)).shape
    adjoint.Size([5, 2])
    """
    onnx = onnx_package("export")
    module = _assert_given(module, model, f, options)
    if opset_version not in OPSETS:
        raise InvalidArgument(
            f"onnx.export: opset_version must be {OPSETS[0]} to {OPSETS[-1]}, got {opset_version}"
        )
    kind = type(module).__name__
    if not isinstance(module, Module):
        module, kind = Nodes(module, args), "Graph"
        args = [wrap(cell) for cell in module.given]
        input_names = input_names or named(module.given)
        output_names = output_names or named(module.results)
    args = (args,) if isinstance(args, TensorBase) else tuple(args)
    if isinstance(module, Module):
        module, args = _on_host(module, args)
    names = _names(input_names, len(args), "input")
    axes = {name: _axes_of(each) for name, each in (dynamic_axes or {}).items()}
    captured = capture(module, args, names, axes)
    outputs = _names(output_names, len(captured.outputs), "output")
    unknown = set(axes) - set(names) - set(outputs)
    if unknown:
        raise InvalidArgument(
            f"onnx.export: dynamic_axes names {sorted(unknown)}, but inputs are {names} and "
            f"outputs {outputs}"
        )
    proto = Exporter(onnx, captured, opset_version).model(names, outputs, kind)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise Unsupported(
            f"onnx.export: ONNX lacks an operator for a dtype; convert with .to(): {error}"
        ) from error
    if verbose:
        print(onnx.printer.to_text(proto))
    data = proto.SerializeToString()
    with writing(f, "onnx.export") as file:
        file.write(data)


# PyTorch's options: the values that mean what is done here, and what to do instead of others.
_OPTIONS = {
    "dynamo": ((False, None), "there is one exporter: leave it out"),
    "export_params": ((True, None), "the file holds the weights: leave them out when it is read"),
    "training": (
        (0, "EVAL", None),
        "files are of eval mode: export the training step by ad.export",
    ),
    "keep_initializers_as_inputs": ((False, None), "weights are no inputs of the graph"),
    "external_data": ((False, None), "the weights are in the file itself"),
    "dynamic_shapes": ((None,), "give dynamic_axes, {'x': {0: 'batch'}}"),
}


def _assert_given(module: object, model: object, f: object, options: Mapping[str, object]) -> Any:
    """The module, under one of its names; refuses what would not be followed."""
    for name, value in options.items():
        if name not in _OPTIONS:
            raise InvalidType(f"onnx.export: got an unexpected keyword argument {name!r}")
        meant, remedy = _OPTIONS[name]
        if getattr(value, "name", value) not in meant:
            raise Unsupported(f"onnx.export: {name}={value!r}; {remedy}")
    if (module is None) is (model is None):
        raise InvalidType("onnx.export: give the module once, as the first argument or as model=")
    if f is None:
        raise Unsupported("onnx.export: f=None, which returns the program; give a path or a file")
    return module if model is None else model


def _on_host(module: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The module and its inputs in the host's memory, copied from devices where need be."""
    tensors = [*module.parameters(), *module.buffers()]
    if any(x.device.type != "cpu" for x in tensors):
        module = copy.deepcopy(module).cpu()
    return module, tuple(x.cpu() if isinstance(x, Tensor) else x for x in args)


def _names(given: Sequence[str] | None, count: int, kind: str) -> list[str]:
    names = [kind] if count == 1 else [f"{kind}_{i}" for i in range(count)]
    if given is not None:
        if len(given) != count or len(set(given)) != count:
            raise InvalidArgument(
                f"onnx.export: {kind}_names needs {count} different names, got {list(given)}"
            )
        names = list(given)
    return names


def _axes_of(given: Any) -> dict[int, str]:
    """PyTorch's two forms: {axis: name} or [axis, ...]."""
    if isinstance(given, Mapping):
        return {int(axis): str(name) for axis, name in given.items()}
    return {int(axis): f"size_{axis}" for axis in given}


class Exporter:
    """The nodes and initializers of one ONNX graph."""

    def __init__(self, onnx: Any, captured: Captured, opset: int) -> None:
        self.onnx = onnx
        self.captured = captured
        self.opset = opset
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[form.Value, str] = {}  # of values in the first capture
        self.by_name: set[str] = set()
        self.constants: dict[Any, str] = {}
        self.symbol_names: dict[str, str] = {}

    def model(self, inputs: list[str], outputs: list[str], name: str) -> Any:
        """The whole file."""
        from . import export_elementwise, export_ops  # noqa: F401 - they fill the table
        from .export_table import TABLE
        from .patterns import normalization

        helper = self.onnx.helper
        self.by_name = {*inputs, *outputs, *self.captured.names.values()}
        for value, each in zip(self.captured.inputs, inputs, strict=True):
            self.names[value.each[0]] = each
        for values in self.captured.nodes():
            value = values[0]
            assert value.op is not None
            found = normalization(self, value)
            if found is not None:
                self.names[value.each[0]] = found
                continue
            lower = TABLE.get(type(value.op).__name__)
            if lower is None:
                raise Unsupported(
                    f"onnx.export: ONNX has no counterpart of {value.op.name} that we write; "
                    "express it with other operations, or keep it outside the exported module"
                )
            made = lower(self, value, *self.sources(value))
            made = made if isinstance(made, tuple) else (made,)
            for y, each in zip(values, made, strict=True):
                self.names[y.each[0]] = each
        for value, each in zip(self.captured.outputs, outputs, strict=True):
            self.emit("Identity", [self.name(value)], output=each)
        self.drop_dead_nodes(outputs)
        graph = helper.make_graph(
            self.nodes,
            name,
            [self.info(n, v) for n, v in zip(inputs, self.captured.inputs, strict=True)],
            [self.info(n, v) for n, v in zip(outputs, self.captured.outputs, strict=True)],
            self.initializers,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8 if self.opset < 19 else 10,
            producer_name="adjoint",
        )
        kept = {each.name for each in self.initializers}
        buffers = [name for name in self.captured.buffers if name in kept]
        helper.set_model_props(model, {"adjoint.buffers": "\n".join(buffers)} if buffers else {})
        return model

    # ---- values ------------------------------------------------------------------------------

    def sources(self, value: GraphValue) -> tuple[Any, ...]:
        """The inputs of a value's op: values and numbers."""
        return self.captured.sources(value)

    def info(self, name: str, value: GraphValue) -> Any:
        """The type of an input or output."""
        shape = [
            size if isinstance(size, int) else size.symbol or f"{name}_{axis}"
            for axis, size in enumerate(value.shape)
        ]
        return self.onnx.helper.make_tensor_value_info(name, element_type(value.dtype), shape)

    def name(self, x: Any, dtype: Any = None) -> str:
        """The name of a value, or of a number as a constant of `dtype`; converted to `dtype`."""
        if isinstance(x, Dim):
            size = self.emit("Squeeze", [self.sizes([x])])
            return self.emit("Cast", [size], to=element_type(dtype or np.int64))
        if not isinstance(x, GraphValue):
            return self.constant(np.asarray(x, dtype))
        key = x.each[0]
        name = self.names.get(key)
        if name is None:
            name = self.names[key] = self._given(x)
        if dtype is not None and x.dtype != dtype:
            return self.emit("Cast", [name], to=element_type(dtype))
        return name

    def _given(self, value: GraphValue) -> str:
        """A parameter or buffer, or what the module computed from none of its inputs."""
        array = value.each[0].array
        name = self.captured.names.get(id(array))
        arrays = values_of(value)
        if name is not None:
            self.initializers.append(self.tensor(arrays[0], name))
            return name
        if all(a.shape == arrays[0].shape and np.array_equal(a, arrays[0]) for a in arrays):
            return self.constant(arrays[0])
        if all(a.size and (a == arrays[0].flat[0]).all() for a in arrays):
            fill = self.constant(arrays[0].reshape(-1)[:1].reshape(()))
            return self.emit("Expand", [fill, self.sizes(value.shape)])
        if (
            arrays[0].ndim <= 1
            and arrays[0].dtype.kind == "i"
            and arrays[0].shape == arrays[-1].shape
        ):
            dims = value.sizes([a.reshape(-1).tolist() for a in arrays])
            if all(isinstance(d, int) or d.linear for d in dims):
                name = self.emit("Cast", [self.sizes(dims)], to=element_type(value.dtype))
                return name if arrays[0].ndim else self.emit("Squeeze", [name])
        largest = max(arrays, key=lambda a: a.size)
        parts = [largest[tuple(slice(n) for n in a.shape)] for a in arrays]
        if all(np.array_equal(p, a) for p, a in zip(parts, arrays, strict=True)) and (
            arrays[0].ndim == 1 and _is_range(largest)
        ):
            step = largest[1] - largest[0]
            stop = self.emit("Squeeze", [self.sizes([value.shape[0]])])
            stop = self.emit("Cast", [stop], to=element_type(value.dtype))
            scaled = self.emit("Mul", [stop, self.constant(step)])
            end = self.emit("Add", [scaled, self.constant(largest[0])])
            return self.emit("Range", [self.constant(largest[0]), end, self.constant(step)])
        raise InvalidArgument(
            f"onnx.export: a constant of shape {arrays[0].shape} depends on the sizes that "
            f"dynamic_axes lets vary ({', '.join(self.captured.symbols)}); export with fixed sizes"
        )

    def constant(self, array: Any, dtype: Any = None) -> str:
        """The name of a constant."""
        array = np.asarray(array, dtype)
        key = (array.dtype, array.shape, array.tobytes())
        name = self.constants.get(key)
        if name is None:
            name = self.fresh("constant")
            node = self.onnx.helper.make_node(
                "Constant", [], [name], value=self.tensor(array, name)
            )
            self.nodes.append(node)
            self.constants[key] = name
        return name

    def tensor(self, array: Any, name: str) -> Any:
        """An array as ONNX stores it."""
        kept = np.ascontiguousarray(array).reshape(array.shape)
        return self.onnx.helper.make_tensor(
            name, element_type(array.dtype), array.shape, kept.tobytes(), raw=True
        )

    def sizes(self, sizes: Sequence[Size]) -> str:
        """A one-dimensional int64 tensor of sizes."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(np.array(sizes, np.int64).reshape(-1))
        parts = [self._size(size) for size in sizes]
        return parts[0] if len(parts) == 1 else self.emit("Concat", parts, axis=0)

    def _size(self, size: Size) -> str:
        if not isinstance(size, Dim):
            return self.constant(np.array([size], np.int64))
        if not size.linear:
            raise InvalidArgument(
                "onnx.export: a size is a product of sizes that dynamic_axes lets vary, where ONNX "
                "needs it spelled out; let one of them vary only"
            )
        total = None
        for symbol, factor in size.factors:
            term = self._symbol(symbol)
            if factor != 1:
                term = self.emit("Mul", [term, self.constant(np.array([factor], np.int64))])
            total = term if total is None else self.emit("Add", [total, term])
        assert total is not None
        if size.constant:
            constant = self.constant(np.array([size.constant], np.int64))
            total = self.emit("Add", [total, constant])
        return total

    def _symbol(self, symbol: str) -> str:
        """The size of that name, from the shape of the first input that has it."""
        name = self.symbol_names.get(symbol)
        if name is None:
            for value in self.captured.inputs:
                places = [
                    axis
                    for axis, size in enumerate(value.shape)
                    if isinstance(size, Dim) and size.symbol == symbol
                ]
                if places:
                    shape = self.emit("Shape", [self.name(value)])
                    place = self.constant(np.array(places[:1], np.int64))
                    name = self.symbol_names[symbol] = self.emit("Gather", [shape, place], axis=0)
                    break
            assert name is not None
        return name

    def drop_dead_nodes(self, outputs: Sequence[str]) -> None:
        """Keep the nodes and initializers that outputs depend on."""
        wanted = set(outputs)
        kept = []
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(node.output):
                wanted.update(node.input)
                kept.append(node)
        self.nodes = kept[::-1]
        self.initializers = [each for each in self.initializers if each.name in wanted]

    # ---- nodes -------------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet."""
        number = len(self.by_name)
        while f"{stem}_{number}" in self.by_name:
            number += 1
        self.by_name.add(f"{stem}_{number}")
        return f"{stem}_{number}"

    def emit(
        self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: Any
    ) -> str:
        """Append a node of one output; returns its name."""
        name = output or self.fresh(kind.lower())
        self.nodes.append(
            self.onnx.helper.make_node(kind, inputs, [name], name=f"/{name}", **attributes)
        )
        return name

    def emit_several(
        self, kind: str, inputs: Sequence[str], count: int, **attributes: Any
    ) -> tuple[str, ...]:
        """Append a node of `count` outputs; returns their names."""
        names = tuple(self.fresh(kind.lower()) for _ in range(count))
        node = self.onnx.helper.make_node(kind, inputs, names, name=f"/{names[0]}", **attributes)
        self.nodes.append(node)
        return names


def element_type(dtype: Any) -> int:
    """ONNX's number of a dtype."""
    name = from_numpy_dtype(np.dtype(dtype)).name
    if name not in TYPES:
        raise Unsupported(f"onnx.export: ONNX has no {name}")
    return TYPES[name]


def _is_range(array: Any) -> bool:
    return (
        array.size > 1
        and array.dtype.kind in "if"
        and bool((np.diff(array) == array[1] - array[0]).all())
    )
