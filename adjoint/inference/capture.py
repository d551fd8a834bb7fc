"""A function's or a module's computation as a static graph, by running it on symbols."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..autograd import fusion, tape
from ..autograd.recording import execute_lazily
from ..core import fused
from ..core.compute import spec_of
from ..core.device import device_of
from ..core.errors import AutogradError, DeviceError, InvalidArgument, InvalidType, Unsupported
from ..core.handle import Handle
from ..core.mode import DEFAULT, MODE, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..graph.node import Item
from ..graph.recorded import Recorded, concrete
from ..nn import Module
from ..tensor import Tensor
from .graph import Node, StaticGraph, Value, inferred

Rebuild = Callable[[Iterator[Any]], Any]  # outputs in the form in which the function gives them


class Source:
    """What a program is captured from, as it was when it was frozen.

    A module is copied, in eval mode. What a function uses besides its inputs is copied when it is
    first seen.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.names: dict[int, str] = {}
        self._kept: dict[int, tuple[Any, Value]] = {}
        self.is_module = isinstance(function, Module)
        if isinstance(function, Module):
            try:
                function = copy.deepcopy(function)
            except (TypeError, RecursionError, AttributeError) as error:
                raise InvalidArgument(
                    f"freeze: {type(function).__name__} cannot be copied ({error}); give a "
                    "function that calls it"
                ) from error
            function.eval()
            state = {**dict(function.named_buffers()), **dict(function.named_parameters())}
            self.names = {id(concrete(x)): name for name, x in state.items()}
        elif not callable(function):
            raise InvalidType(
                f"freeze: expected a module or a function, got {type(function).__name__}"
            )
        self.function = function

    @property
    def title(self) -> str:
        """What to call the program."""
        function = self.function
        return function.__class__.__name__ if self.is_module else _name_of(function)

    def constant(self, array: Any) -> Value:
        """The one value for an array that the function uses; the same in each capture."""
        found = self._kept.get(id(array))
        if found is None:
            if device_of(array).type != "cpu":
                raise DeviceError(
                    f"freeze: {self.title} has tensors on {device_of(array)}; give it as .cpu()"
                )
            own = array if self.is_module else array.copy()
            value = Value(spec_of(own), array=own, name=self.names.get(id(array), ""))
            found = self._kept[id(array)] = (array, value)
        return found[1]


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


class _Recorder:
    """Records ops; composites of which the native backend has a routine, as one op."""

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The recorded result."""
        return execute_lazily(op, inputs)

    def composite(self, function: Callable[..., Any], native: str, args: tuple[Any, ...]) -> Any:
        """The recorded result of a composite; NotImplemented where there is no routine for it."""
        if not fused.pays(args):
            return NotImplemented
        inputs = tuple(x for x in args if isinstance(x, Handle))
        op = fusion.plan_for(function, native, args, inputs, [False] * len(inputs))
        return NotImplemented if isinstance(op, str) else execute_lazily(op, inputs)


def capture(
    source: Source, specs: Sequence[Spec], whole: bool = True
) -> tuple[StaticGraph, Rebuild]:
    """The graph of `source.function` on inputs of these shapes and dtypes. With `whole`, composites
    that have routines are one node each.

    Errors: Unsupported where the function reads values, or draws random numbers; InvalidType where
    it returns something else than tensors in tuples, lists and dicts.
    """
    given = [Recorded(None, (), spec.shape, spec.dtype.numpy) for spec in specs]
    token = MODE.set(
        mode_with(DEFAULT, grad=False, executor=_Recorder() if whole else execute_lazily)
    )
    try:
        found = source.function(*map(tape.wrap, given))
    except AutogradError as error:
        if "was given no value" not in str(error):
            raise
        raise Unsupported(
            f"freeze: {source.title} reads values of its input (item, bool, int, numpy, or "
            "indexing by a mask), on which a static graph cannot depend; use where() and gather()"
        ) from error
    finally:
        MODE.reset(token)
    results: list[Any] = []
    rebuild = _structure(found, results)
    inputs = [Value(spec, name=f"x{i}") for i, spec in enumerate(specs)]
    known = {id(x): value for x, value in zip(given, inputs, strict=True)}
    nodes = _nodes(source, results, known)
    outputs = [_value(source, x, known) for x in results]
    return StaticGraph(inputs, nodes, outputs), rebuild


def _value(source: Source, data: Any, known: dict[int, Value]) -> Value:
    """The value of a recorded one, or of an array that was there before."""
    found = known.get(id(data))
    if found is None:
        array = data.array if isinstance(data, Recorded) else data
        found = source.constant(array)
        known[id(data)] = found
    return found


def _nodes(source: Source, results: Sequence[Any], known: dict[int, Value]) -> list[Node]:
    """The nodes that the results need, each after its inputs; their values go into `known`."""
    nodes: list[Node] = []
    made: dict[int, Node] = {}  # by the id of an op's recorded value
    stack = [x for x in reversed(results) if isinstance(x, Recorded)]
    while stack:
        x = stack[-1]
        if id(x) in known or id(x) in made:
            stack.pop()
            continue
        if x.op is None or x.array is not None:
            _value(source, x, known)
            continue
        waiting = [
            v for v in x.inputs
            if isinstance(v, Recorded) and id(v) not in known and id(v) not in made
        ]  # fmt: skip
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        op = x.op
        if type(op) is Item:
            known[id(x)] = made[id(x.inputs[0])].outputs[op.index]
            continue
        if op.drawn:
            raise Unsupported(
                f"freeze: {source.title} draws random numbers ({op.name}), of which a static graph "
                "would keep one draw for ever; give them as an input"
            )
        inputs = [known[id(v)] if isinstance(v, Recorded) else v for v in x.inputs]
        node = made[id(x)] = Node(op, inputs, inferred(op, inputs))
        nodes.append(node)
        if x.dtype is not None:
            known[id(x)] = node.output
    return nodes


def _structure(found: Any, results: list[Any]) -> Rebuild:
    """Append the data of the tensors in `found`; returns what makes its form of others."""
    if isinstance(found, Tensor):
        results.append(found._data)
        return next
    if found is None:
        return lambda values: None
    if isinstance(found, Mapping):
        parts = {key: _structure(x, results) for key, x in found.items()}
        return lambda values: {key: part(values) for key, part in parts.items()}
    if isinstance(found, (tuple, list)):
        kind = type(found)
        each = [_structure(x, results) for x in found]
        if hasattr(kind, "_fields"):
            return lambda values: kind(*[part(values) for part in each])
        plain = list if isinstance(found, list) else tuple
        return lambda values: plain([part(values) for part in each])
    raise InvalidType(
        f"freeze: the result has a {type(found).__name__}; outputs are tensors, or tuples, lists "
        "and dicts of them"
    )
