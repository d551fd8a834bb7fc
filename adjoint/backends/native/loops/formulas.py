"""Ops on arrays in registers, from the definitions that NumPy runs: traced as kernels are, and
written for the sizes that there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.dispatch_log import reason_of
from ....core.errors import NotTraceable
from ....core.spec import Spec, prod
from ....ir.program import Node, Value
from ...codegen.ir import DTYPES, REDUCTIONS, KernelValue
from ..lowering.composite_tracing import CompositeNames
from ..lowering.tracing import Traced, Tracer, common_shape
from .registers import Array, Registers

_COMBINED = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and",
}  # fmt: skip


def name_of(spec: Spec) -> str:
    """The dtype's name in the kernel IR.

    Errors: NotTraceable for one that is not computed with in registers.
    """
    name = str(spec.dtype.numpy)
    if name not in DTYPES:
        raise NotTraceable(f"values of {name}")
    return name


class _Spread(NamedTuple):
    """An array that lies row-major along some axes of an index space."""

    array: Array
    axes: tuple[int, ...]


def computed(registers: Registers, node: Node, given: Sequence[Any]) -> list[Array]:
    """The outputs of a node, whose inputs are `given` arrays or numbers.

    Errors: NotTraceable for what cannot be written so.
    """
    if getattr(node.op, "guard", None) is not None:
        raise NotTraceable(f"{node.op.name}: an index that is checked")
    specs = [x.spec for x in node.values]
    tracer = Tracer(common_shape([spec.shape for spec in specs]))
    try:
        return _Formula(registers, tracer, specs).outputs(node, given)
    finally:
        tracer.close()


class _Formula:
    """A node's kernel while it is written for its sizes."""

    def __init__(self, registers: Registers, tracer: Tracer, specs: Sequence[Spec]) -> None:
        self.registers, self.tracer, self.space = registers, tracer, tracer.space
        self.names = CompositeNames(tracer, specs)
        self.inputs: list[_Spread] = []

    def outputs(self, node: Node, given: Sequence[Any]) -> list[Array]:
        """The outputs for these arrays and numbers."""
        symbols = []
        for x, array in zip(node.inputs, given, strict=True):
            symbols.append(self._input(x, array) if type(x) is Value else x)
        try:
            made = node.op.compute(self.names, *symbols)
        except Exception as error:
            raise NotTraceable(f"{node.op.name}: {reason_of(error, node.op)}") from None
        if self.names.gathers:
            raise NotTraceable(f"{node.op.name}: a view within a formula")
        results = (made,) if len(node.outputs) == 1 else made
        values = self._written()
        return [
            self._placed(values, y, out.spec) for y, out in zip(results, node.outputs, strict=True)
        ]

    def _input(self, x: Value, array: Array) -> Traced:
        shape, rank = x.shape, len(self.space)
        dims = tuple(range(rank - len(shape), rank))
        axes = tuple(d for d, n in zip(dims, shape, strict=True) if n != 1)
        value = self.tracer.kernel.input(name_of(x.spec), axes)
        self.names.places.append(dims)
        self.inputs.append(_Spread(array, axes))
        return Traced(self.tracer, value, shape, dims, x.spec.dtype.numpy)

    def _written(self) -> dict[int, _Spread]:
        """All values of the kernel, by number."""
        values: dict[int, _Spread] = {}
        for v in self.tracer.kernel.values:
            values[v.number] = self._value(v, [values[x.number] for x in v.inputs])
        return values

    def _value(self, v: KernelValue, given: Sequence[_Spread]) -> _Spread:
        registers = self.registers
        if v.op == "input":
            return self.inputs[v.attr[0]]
        if v.op == "const":
            return _Spread(registers.number(v.attr, v.dtype), ())
        if v.op == "scalar":
            return _Spread(registers.number(self.tracer.numbers[v.attr[0]], v.dtype), ())
        if v.op == "size":
            count = prod([self.space[a] for a in v.attr])
            return _Spread(registers.number(count, v.dtype), ())
        if v.op == "index":
            return _Spread(registers.constant(np.arange(self.space[v.attr[0]]), v.dtype), v.axes)
        if v.op == "random":
            raise NotTraceable("random numbers")
        if v.op in REDUCTIONS:
            return self._reduced(v, given[0])
        axes = tuple(sorted({a for x in given for a in x.axes}))
        arrays = [self._along(x, axes) for x in given]
        if v.op == "cast":
            if v.attr[0] not in DTYPES:
                raise NotTraceable(f"values of {v.attr[0]}")
            return _Spread(registers.cast(arrays[0], v.dtype), axes)
        if v.op == "where":
            return _Spread(registers.where(*arrays), axes)
        return _Spread(registers.op(v.op, *arrays), axes)

    def _along(self, x: _Spread, axes: tuple[int, ...], whole: bool = False) -> Array:
        """The array along more axes; one number is not repeated unless it is to be `whole`."""
        if x.axes == axes or (x.array.count == 1 and not whole):
            return x.array
        index = np.arange(x.array.count).reshape([self.space[a] for a in x.axes])
        index = index.reshape([self.space[a] if a in x.axes else 1 for a in axes])
        index = np.broadcast_to(index, [self.space[a] for a in axes])
        return self.registers.moved(x.array, index)

    def _reduced(self, v: KernelValue, x: _Spread) -> _Spread:
        over = tuple(a for a in v.attr if self.space[a] != 1)
        axes = tuple(sorted({*x.axes, *over}))
        array = self._along(x, axes, whole=True)
        left = tuple(a for a in axes if a not in over)
        order = [axes.index(a) for a in (*over, *left)]
        index = np.arange(array.count).reshape([self.space[a] for a in axes]).transpose(order)
        moved = self.registers.moved(array, index)
        kept = prod([self.space[a] for a in left])
        return _Spread(self.registers.combined(_COMBINED[v.op], moved, kept), left)

    def _placed(self, values: dict[int, _Spread], y: Any, spec: Spec) -> Array:
        """An output, row-major."""
        if not isinstance(y, Traced) or prod(y.shape) != prod(spec.shape):
            raise NotTraceable("a result that is no array")
        if y.dtype != spec.dtype.numpy:
            raise NotTraceable(f"{y.dtype} for {spec.dtype}")
        x = values[y.value.number]
        sized = [d for n, d in zip(y.shape, y.dims, strict=True) if n != 1]
        axes = tuple(sorted(sized))
        array = self._along(x, axes, whole=True)
        index = np.arange(array.count).reshape([self.space[a] for a in axes])
        return self.registers.moved(array, index.transpose([axes.index(d) for d in sized]))
