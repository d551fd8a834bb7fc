"""A module's computation as a graph of primitives, by running it on inputs that have no values.

Every op of the module is recorded (`ad.lazy`), so the graph is what runs, whatever Python the
module is written in. Sizes that may vary are found by recording several times: the capture with one
axis longer differs from the first in exactly the numbers that follow that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...autograd.capture import CaptureRecorder, program_of, recording, symbol
from ...core.errors import InvalidArgument, InvalidType
from ...core.op import Op
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tree import parts_of
from ...ir import program as form
from ...ir.compute import spec_of
from ...nn import Module
from ...runtime.lazy import LazyValue, concrete

Axes = Mapping[str, Mapping[int, str]]


class Dim(NamedTuple):
    """A size that varies: `constant` plus each symbol times its factor; unknown if not linear."""

    constant: int
    factors: tuple[tuple[str, int], ...]
    linear: bool = True

    @property
    def symbol(self) -> str | None:
        """The name of the symbol that this size is; None for anything else."""
        if self.linear and not self.constant and len(self.factors) == 1:
            name, factor = self.factors[0]
            return name if factor == 1 else None
        return None


Size = int | Dim


class GraphValue(NamedTuple):
    """One value, in the captures of all sizes."""

    each: tuple[form.Value, ...]  # the first has the sizes that the other fields are stated in
    symbols: tuple[str, ...]

    @property
    def op(self) -> Op | None:
        """The primitive, with the first capture's attributes."""
        return self.each[0].op

    @property
    def dtype(self) -> Any:
        """NumPy's dtype."""
        return self.each[0].spec.dtype.numpy

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes, those that vary as `Dim`."""
        return self.sizes([x.shape for x in self.each])

    def attribute(self, name: str) -> Any:
        """The op's field `name`; InvalidArgument where it differs between the captures."""
        values = [getattr(x.op, name) for x in self.each]
        if any(value != values[0] for value in values):
            raise InvalidArgument(
                f"onnx.export: {values[0]!r} ({name} of {self.op!r}) depends on the sizes that "
                f"dynamic_axes lets vary ({', '.join(self.symbols)}); export with fixed sizes"
            )
        return values[0]

    def field_sizes(self, name: str) -> tuple[Size, ...]:
        """The op's field `name`, a tuple of ints, some of which may vary."""
        return self.sizes([getattr(x.op, name) for x in self.each])

    def sizes(self, rows: Sequence[Sequence[int]]) -> tuple[Size, ...]:
        """One size for each column of `rows`, which are of the captures."""
        return tuple(self.size(column) for column in zip(*rows, strict=True))

    def size(self, column: Sequence[int]) -> Size:
        """The size that the captures have at a position: equal in all, or linear in the symbols."""
        first, last = column[0], column[-1]
        if all(number == first for number in column):
            return first
        steps = [number - first for number in column[1 : 1 + len(self.symbols)]]
        factors = tuple((s, k) for s, k in zip(self.symbols, steps, strict=True) if k)
        bases = dict(zip(self.symbols, BASES, strict=False))
        constant = first - sum(k * bases[s] for s, k in factors)
        return Dim(constant, factors, last == first + FURTHER * sum(steps))


BASES = (5, 7, 11, 13, 17, 19, 23, 29)  # sizes of the axes that vary, in the first capture
FURTHER = 9  # how much larger all of them are in the last, which tells what is not linear


class Captured(NamedTuple):
    """A module's computation."""

    programs: list[form.Program]  # the same nodes, for the captures of all sizes
    inputs: list[GraphValue]
    outputs: list[GraphValue]
    names: dict[int, str]  # of parameters and buffers, by the id of their array
    buffers: list[str]
    symbols: tuple[str, ...]

    def nodes(self) -> list[tuple[GraphValue, ...]]:
        """The outputs of each node, in an order in which nodes follow their inputs."""
        each = zip(*(program.nodes for program in self.programs), strict=True)
        return [
            tuple(self.value(*ys) for ys in zip(*(node.outputs for node in nodes), strict=True))
            for nodes in each
        ]

    def value(self, *each: form.Value) -> GraphValue:
        """A value, from the program's value in each capture."""
        return GraphValue(each, self.symbols)

    def sources(self, value: GraphValue) -> tuple[Any, ...]:
        """The inputs of a value's op: values and numbers."""
        rows = [y.node.inputs for y in value.each if y.node is not None]
        return tuple(
            self.value(*column) if isinstance(column[0], form.Value) else _number(value, column)
            for column in zip(*rows, strict=True)
        )


def capture(module: Module, args: Sequence[Any], names: Sequence[str], axes: Axes) -> Captured:
    """Record `module(*args)` in eval mode, once for each way in which the sizes may vary."""
    for x in args:
        if not isinstance(x, TensorBase):
            raise InvalidType(
                f"onnx.export: expected tensors as inputs, got {type(x).__name__}; fix other "
                "arguments in a small module around this one"
            )
    symbols = tuple(dict.fromkeys(s for name in names for s in axes.get(name, {}).values()))
    if len(symbols) > len(BASES):
        raise InvalidArgument(f"onnx.export: at most {len(BASES)} names in dynamic_axes")
    bases = dict(zip(symbols, BASES, strict=False))
    variants = [bases]
    if symbols:
        variants += [{**bases, s: n + 1} for s, n in bases.items()]
        variants.append({s: n + FURTHER for s, n in bases.items()})
    programs = []
    for sizes in variants:
        specs = []
        for x, name in zip(args, names, strict=True):
            shape = list(x.shape)
            for axis, label in axes.get(name, {}).items():
                if not -len(shape) <= axis < len(shape):
                    raise InvalidArgument(
                        f"onnx.export: dynamic_axes: {name} has no dimension {axis}"
                    )
                shape[axis] = sizes[label]
            specs.append(Spec(tuple(shape), x.dtype))
        programs.append(_program(module, specs))
    wiring = _wiring(programs[0])
    for other in programs[1:]:
        if _wiring(other) != wiring:
            raise InvalidArgument(
                f"onnx.export: which operations run depends on the sizes that dynamic_axes lets "
                f"vary ({', '.join(symbols)}); export with fixed sizes (a loop over a dimension, "
                "as in recurrent layers, is such a case)"
            )
    state = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    return Captured(
        programs,
        [GraphValue(each, symbols) for each in zip(*(p.inputs for p in programs), strict=True)],
        [GraphValue(each, symbols) for each in zip(*(p.outputs for p in programs), strict=True)],
        {id(concrete(x)): name for name, x in state.items()},
        [name for name, _ in module.named_buffers()],
        symbols,
    )


class RecurrentLayer(Op, abstract=True):
    """A recurrent layer in one direction, which ONNX has an operator for; inputs x, both weights,
    both biases or none, and the state.
    """

    def __init__(self, kind: str, reverse: bool, has_bias: bool) -> None:
        self.kind = kind
        self.reverse = reverse
        self.has_bias = has_bias
        self.n_outputs = 3 if kind == "LSTM" else 2  # type: ignore[misc]

    def infer(self, x: Spec, weight_ih: Spec, weight_hh: Spec, *rest: Spec) -> Any:
        """The outputs of all steps, and the final state."""
        hidden = weight_hh.shape[1]
        state = x.with_(shape=(x.shape[1], hidden))
        return (x.with_(shape=(*x.shape[:2], hidden)), *[state] * (self.n_outputs - 1))


def _whole(
    function: Callable[..., Any], native: str, args: tuple[Any, ...]
) -> tuple[Op, tuple[Any, ...]] | None:
    """A layer that ONNX has an operator for as one op, with its inputs; None for one that is to be
    opened.
    """
    if function.__name__ != "recurrent_layer":
        return None
    *tensors, kind, reverse, sizes = args
    bias_ih, bias_hh, projection = tensors[3:6]
    if sizes is not None or projection is not None or (bias_ih is None) != (bias_hh is None):
        return None
    op = RecurrentLayer(kind, reverse, bias_ih is not None)
    return op, tuple(each for each in tensors if each is not None)


def _wiring(program: form.Program) -> list[tuple[Any, ...]]:
    """The ops and where their inputs come from, which must not depend on sizes."""
    place: dict[Any, Any] = {x: i for i, x in enumerate(program.inputs)}
    found: list[tuple[Any, ...]] = []
    for n, node in enumerate(program.nodes):
        found.append((type(node.op), *(place.get(x) for x in node.inputs)))
        place.update({y: (n, y.index) for y in node.outputs})
    return [*found, tuple(place.get(y) for y in program.outputs)]


def _number(value: GraphValue, column: Sequence[Any]) -> Any:
    """A number among the inputs of a value's op; one that varies with the sizes as `Dim`."""
    first = column[0]
    if all(number == first or number != number for number in column):
        return first
    size = value.size(column) if all(type(number) is int for number in column) else None
    if not isinstance(size, Dim) or not size.linear:
        raise InvalidArgument(
            f"onnx.export: {value.op!r} takes a number ({first!r}, ...) that depends on the sizes "
            f"that dynamic_axes lets vary ({', '.join(value.symbols)}); export with fixed sizes"
        )
    return size


def _program(module: Module, specs: Sequence[Spec]) -> form.Program:
    """The computation of `module`, in eval mode, on inputs of these shapes and dtypes."""
    constants: dict[int, form.Value] = {}  # by the id of their array

    def known(data: Any) -> form.Value:
        array = data.array if isinstance(data, LazyValue) else data
        return constants.setdefault(id(array), form.Value(spec_of(array), array=array))

    inputs = list(map(symbol, specs))
    given = [x._data for x in inputs]
    training = [(part, part.training) for part in module.modules()]
    module.eval()
    reads = (
        "onnx.export: the module reads values of its input (item, bool, int, numpy, or indexing by "
        "a mask), which a graph cannot hold; use where() and gather() instead"
    )
    try:
        with recording(reads, executor=CaptureRecorder(_whole)):
            found = module(*inputs)
    finally:
        for part, was in training:
            part.training = was
    results, _ = parts_of(found, "onnx.export: the module returns")
    return program_of(given, [y._data for y in results], known)


def values_of(value: GraphValue) -> list[Any]:
    """The arrays of a value that was given, one of each capture."""
    return [np.asarray(x.array) for x in value.each]
