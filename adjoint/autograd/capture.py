"""Capture: run a function on symbols and turn what it recorded into a `Program`.

Symbols are lazy tensors that have no array: shapes, dtypes and errors are known, values are not.
`@fused` composites, in-place methods, optimizers' formulas, frozen modules and ONNX export call
this; they differ in what they do about values that were there before, and in the passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..core.dtype import LOW_PRECISION, from_numpy_dtype
from ..core.errors import AutogradError, NotTraceable, Unsupported
from ..core.mode import DEFAULT, mode_with, switched
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_type import Tensor
from ..ir.program import Node, Program, Value, inferred
from ..runtime.fused import Declared
from ..runtime.lazy import LazyValue
from ..runtime.node import Item
from ..runtime.tensors import wrap
from .recording import execute_lazily

# Maps a value that existed before the capture to what it is in the program: a constant or a number.
Known: TypeAlias = Callable[[Any], Any]


def symbol(spec: Spec) -> Tensor:
    """A tensor without data: its shape, dtype and device are known, its values are not."""
    return wrap(LazyValue(None, (), spec.shape, spec.dtype.numpy, spec.device))


class CaptureRecorder:
    """Executor that records ops lazily. A composite is recorded as one op if `whole(function,
    native, args)` returns that op and its inputs.
    """

    def __init__(self, whole: Callable[..., tuple[Op, tuple[Any, ...]] | None]) -> None:
        self.whole = whole

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """The lazy tensor of a recorded op."""
        return execute_lazily(op, inputs)

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """The lazy tensor of a composite recorded as one op; NotImplemented if its own ops are
        recorded instead.
        """
        native = declared.native
        call = self.whole(declared.function, native, args) if native else None
        return NotImplemented if call is None else execute_lazily(*call)


def recording(
    reads: str = "",
    *,
    executor: Callable[..., object] = execute_lazily,
    grad: bool = False,
    autocast: object = None,
) -> switched:
    """A block in which ops are recorded by `executor`, whatever mode there is outside.

    Errors: Unsupported with the message `reads` where values of symbols are read, if given.
    """
    mode = mode_with(DEFAULT, executor=executor, grad=grad, autocast=autocast)
    return switched(mode, functools.partial(_refuse, reads) if reads else None)


def _refuse(reads: str, error: BaseException | None) -> None:
    """Raise Unsupported with the message `reads` for an error that reading a symbol has raised."""
    if isinstance(error, AutogradError) and "was given no value" in str(error):
        raise Unsupported(reads) from error


def number_or_refuse(data: object) -> float:
    """The `known` of kernels: 0-d arrays of narrow floats, which were numbers, become numbers
    again; other values from outside are refused.

    Errors: NotTraceable for everything else.
    """
    if not isinstance(data, LazyValue):
        raise NotTraceable("a result that was not recorded")
    is_number = data.shape == () and data.array is not None
    if not is_number or from_numpy_dtype(data.dtype) not in LOW_PRECISION:
        raise NotTraceable("a tensor that is no argument")
    return float(data.array)


def program_of(
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    known: Known = number_or_refuse,
    order: Callable[[Any], tuple[int, int]] | None = None,
    module: Callable[[Any], str] | None = None,
    reads: Callable[[Op], Sequence[Any]] | None = None,
) -> Program:
    """The Program that computes `outputs` from `inputs`, both recorded values. Values that existed
    before them become what `known` returns. Nodes come in the order in which a walk from the
    outputs needs them, or in the `order` of the values that they compute; `module` says where each
    was recorded. The values that an op `reads` besides its inputs are further inputs of its node.

    Errors: those of `known`.
    """
    values = {id(x): Value(x.spec, name=f"x{i}") for i, x in enumerate(inputs)}
    nodes: list[Node] = []
    places: list[tuple[int, int]] = []
    several: dict[int, Node] = {}  # id of the recorded value of a multi-output op -> its node
    alive: list[Any] = []  # keeps values whose ids are keys of `values` alive

    def value(x: object) -> Any:
        if id(x) not in values:
            values[id(x)] = known(x)
            alive.append(x)
        return values[id(x)]

    stack = [x for x in reversed(outputs) if isinstance(x, LazyValue)]
    while stack:
        x = stack[-1]
        if id(x) in values or id(x) in several:
            stack.pop()
        elif x.op is None or x.array is not None:
            value(x)
        else:
            given = x.inputs if reads is None else (*x.inputs, *reads(x.op))
            waiting = [
                v for v in given
                if isinstance(v, LazyValue) and id(v) not in values and id(v) not in several
            ]  # fmt: skip
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if type(x.op) is Item:
                values[id(x)] = several[id(x.inputs[0])].outputs[x.op.index]
                continue
            args = [values[id(v)] if isinstance(v, LazyValue) else v for v in given]
            specs = inferred(x.op, args) if x.dtype is None else (x.spec,)
            node = Node(x.op, args, specs)
            nodes.append(node)
            if module is not None:
                node.module = module(x)
            places.append((0, 0) if order is None else order(x))
            if x.dtype is None:
                several[id(x)] = node
            else:
                values[id(x)] = node.output
    results = [value(y) for y in outputs]
    if not all(isinstance(y, Value) for y in results):
        raise NotTraceable("a result that does not depend on the inputs")
    if order is not None:
        nodes = [nodes[i] for i in sorted(range(len(nodes)), key=places.__getitem__)]
    return Program([values[id(x)] for x in inputs], nodes, results)
