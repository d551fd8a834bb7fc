"""Export of a program's simplified graph as an ONNX file."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.freeze.program import Program
from ...core.errors import AdjointError
from ...ir.program import Value
from ...nn import Module, Parameter
from ...ops.create.creation import empty
from ...ops.create.exchange import from_numpy
from ...runtime.dispatch import apply


class _Replay(Module):
    """Module that runs the simplified graph of a program op by op, for the inputs that it is called
    with.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.held: dict[int, Any] = {}  # tensors of constants, by the id of their array
        graph, _ = program._simplified(program._examples)
        for i, x in enumerate(graph.constants()):
            if x.shape and x.spec.dtype.is_floating_point:
                parameter = Parameter(from_numpy(np.ascontiguousarray(x.array)))
                self.held[id(x.array)] = parameter
                name = x.name.replace(".", "_") or f"constant_{i}"
                while hasattr(self, name):
                    name += "_"
                self.register_parameter(name, parameter)

    def forward(self, *inputs: Any) -> Any:
        """Compute the outputs; they are recorded if the inputs are."""
        graph, results_form = self.program._simplified(tuple(x.spec for x in inputs))
        tensor_of: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))

        def tensor(x: Any) -> Any:
            if not isinstance(x, Value):
                return x
            if x not in tensor_of:
                tensor_of[x] = self.held.get(id(x.array))
                if tensor_of[x] is None:
                    tensor_of[x] = from_numpy(x.array)
            return tensor_of[x]

        for node in graph.nodes:
            result = apply(node.op, *map(tensor, node.inputs))
            results = result if isinstance(result, tuple) else (result,)
            tensor_of.update(zip(node.outputs, results, strict=True))
        return results_form.unflatten(map(tensor, graph.outputs))


def export(program: Program, path: Any) -> None:
    """Write the file, with a free batch size where the graph allows it. Tries the simplified graph,
    then the module itself, then the simplified graph for the examples' sizes.
    """
    from . import export as write

    examples = tuple(empty(spec.shape, dtype=spec.dtype) for spec in program._examples)
    names = list(program.input_names or [f"x{i}" for i in range(len(examples))])
    batched = {name: {0: "batch"} for name, x in zip(names, examples, strict=True) if x.ndim}
    module = _Replay(program)
    source = program._source
    attempts: list[tuple[Any, Any]] = [(module, batched), (module, None)]
    if source.is_module and program._plain:
        attempts.insert(1, (source.function, batched))
    for i, (each, axes) in enumerate(attempts):
        try:
            write(each, examples, path, names, dynamic_axes=axes)
        except AdjointError:
            if i == len(attempts) - 1:
                raise
        else:
            return
