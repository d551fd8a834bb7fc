"""A program's simplified graph as an ONNX file."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import AdjointError
from ..eager.dispatch import apply
from ..nn import Module, Parameter
from ..ops.create.creation import empty
from ..ops.create.memory import from_numpy
from ..program.program import Value
from .program import Program


class _Replay(Module):
    """The simplified graph of a program for whatever inputs it is called with, op by op."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.held: dict[int, Any] = {}  # the tensors of constants, by the id of their array
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
        """The outputs, recorded where the inputs are."""
        graph, rebuild = self.program._simplified(tuple(x.spec for x in inputs))
        known: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))

        def tensor(x: Any) -> Any:
            if not isinstance(x, Value):
                return x
            if x not in known:
                known[x] = self.held.get(id(x.array))
                if known[x] is None:
                    known[x] = from_numpy(x.array)
            return known[x]

        for node in graph.nodes:
            found = apply(node.op, *map(tensor, node.inputs))
            results = found if isinstance(found, tuple) else (found,)
            known.update(zip(node.outputs, results, strict=True))
        return rebuild(map(tensor, graph.outputs))


def export(program: Program, path: Any) -> None:
    """Write the file, with any batch size where the graph allows it: simplified; or as the module
    is; or else simplified for the examples' sizes.
    """
    from ..onnx import export as write

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
