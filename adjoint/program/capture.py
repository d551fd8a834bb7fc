"""The one capture: a function is run on symbols, and what it recorded is read off as a `Program`.

Symbols are lazy tensors that have no array: shapes, dtypes and errors are known, values are not.
`@fused` composites, in-place methods, optimizers' formulas, frozen modules and ONNX export call
this; they differ in what they do about values that were there before, and in the passes.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ..autograd.recording import execute_lazily
from ..core.dtype import LOW_PRECISION, from_numpy_dtype
from ..core.errors import AutogradError, InvalidType, NotTraceable, Unsupported
from ..core.mode import DEFAULT, MODE, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.fused import Declared
from ..eager.tensors import wrap
from ..graph.lazy import LazyValue
from ..graph.node import Item
from .program import Node, Program, Value, inferred

# What a value that was there before becomes in a program: a constant, or a number.
Known: TypeAlias = Callable[[Any], Any]
CONSTANTS = (type(None), bool, int, float, complex, str)
Rebuild: TypeAlias = Callable[[Iterator[Any]], Any]  # outputs in the form of what the function gave


def symbol(spec: Spec) -> Any:
    """A tensor of which only shape and dtype are known."""
    return wrap(LazyValue(None, (), spec.shape, spec.dtype.numpy, spec.device))


class Recorder:
    """Records ops; composites that `whole` gives an op and its inputs for, as one op."""

    def __init__(self, whole: Callable[..., tuple[Op, tuple[Any, ...]] | None]) -> None:
        self.whole = whole

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The recorded result."""
        return execute_lazily(op, inputs)

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Any:
        """The recorded result of a composite; NotImplemented where its own ops are recorded."""
        native = declared.native
        found = self.whole(declared.function, native, args) if native else None
        return NotImplemented if found is None else execute_lazily(*found)


@contextlib.contextmanager
def recording(
    reads: str = "", *, executor: Any = execute_lazily, grad: bool = False, autocast: Any = None
) -> Iterator[None]:
    """Within it, ops are recorded by `executor`, whatever mode there is outside.

    Errors: Unsupported with the message `reads` where values of symbols are read, if given.
    """
    token = MODE.set(mode_with(DEFAULT, executor=executor, grad=grad, autocast=autocast))
    try:
        yield
    except AutogradError as error:
        if not reads or "was given no value" not in str(error):
            raise
        raise Unsupported(reads) from error
    finally:
        MODE.reset(token)


def number_or_refuse(data: Any) -> Any:
    """The `known` of kernels: numbers that were made arrays, as those beside narrow floats are, are
    numbers again.

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
) -> Program:
    """What leads from `inputs` to `outputs`, recorded values both; what was there before them
    becomes what `known` says. Nodes come in the order in which a walk from the outputs needs them,
    or in the `order` of the values that they compute.

    Errors: those of `known`.
    """
    values = {id(x): Value(x.spec, name=f"x{i}") for i, x in enumerate(inputs)}
    nodes: list[Node] = []
    places: list[tuple[int, int]] = []
    several: dict[int, Node] = {}  # by the id of the recorded value of an op with several outputs
    alive: list[Any] = []  # what `known` was asked about: ids are theirs

    def value(x: Any) -> Any:
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
            waiting = [
                v for v in x.inputs
                if isinstance(v, LazyValue) and id(v) not in values and id(v) not in several
            ]  # fmt: skip
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if type(x.op) is Item:
                values[id(x)] = several[id(x.inputs[0])].outputs[x.op.index]
                continue
            args = [values[id(v)] if isinstance(v, LazyValue) else v for v in x.inputs]
            specs = inferred(x.op, args) if x.dtype is None else (x.spec,)
            node = Node(x.op, args, specs)
            nodes.append(node)
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


def taken(found: Any, refused: str, constants: bool = False) -> tuple[list[Any], Rebuild]:
    """The data of the tensors in what a function gave, and what gives its form to others.

    Errors: those of `parts_of`.
    """
    tensors, rebuild = parts_of(found, refused, constants)
    return [x._data for x in tensors], rebuild


def parts_of(found: Any, refused: str, constants: bool = False) -> tuple[list[Any], Rebuild]:
    """The tensors in what a function gave or takes, and what gives its form to others. With
    `constants`, numbers and strings may stand beside tensors, and stay as they are.

    Errors: InvalidType for other things than tensors in tuples, lists, dicts and dataclasses;
    `refused` is how the message begins.
    """
    results: list[Any] = []
    inside = constants and structure(found) is not None
    return results, _form(found, results, refused, inside)


def _form(found: Any, results: list[Any], refused: str, constants: bool) -> Rebuild:
    """What gives the form to other values; the tensors are added to `results`."""
    if isinstance(found, TensorBase):
        results.append(found)
        return next
    if found is None or (constants and isinstance(found, CONSTANTS)):
        return lambda values: found
    parts = structure(found)
    if parts is None:
        raise InvalidType(
            f"{refused} a {type(found).__name__}; outputs are tensors, or tuples, lists and dicts "
            "of them"
        )
    _, children, make = parts
    each = [_form(x, results, refused, constants) for x in children]
    return lambda values: make([part(values) for part in each])


def structure(x: Any) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]] | None:
    """The names of the parts of a tuple, list, dict or dataclass, the parts, and what makes such a
    one of other parts; None for all else.
    """
    kind: Any = type(x)
    if kind is dict:
        keys = list(x)
        return keys, list(x.values()), lambda values: dict(zip(keys, values, strict=True))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = [each.name for each in dataclasses.fields(x)]
        blank = _with_fields(copy.copy(x), names, [None] * len(names))
        return (
            names, [getattr(x, name) for name in names],
            lambda values: _with_fields(copy.copy(blank), names, values),
        )  # fmt: skip
    if isinstance(x, Mapping):
        keys = list(x)
        empty = copy.copy(x)
        empty.update(dict.fromkeys(keys))  # type: ignore[attr-defined]
        return keys, list(x.values()), lambda values: _with_items(empty, keys, values)
    if isinstance(x, (tuple, list)):
        make = (lambda values: kind(*values)) if hasattr(kind, "_fields") else kind
        return list(range(len(x))), list(x), make
    return None


def _with_fields(x: Any, names: list[str], values: list[Any]) -> Any:
    """A dataclass with other values; one that is a mapping, too, has them as items as well."""
    for name, value in zip(names, values, strict=True):
        object.__setattr__(x, name, value)
        if isinstance(x, dict) and name in x:
            dict.__setitem__(x, name, value)
    return x


def _with_items(x: Any, keys: list[Any], values: list[Any]) -> Any:
    """A mapping of the same kind with other values."""
    made = copy.copy(x)
    made.update(zip(keys, values, strict=True))
    return made
