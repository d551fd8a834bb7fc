"""Dynamic shapes: a program captured with symbolic sizes, and its instances for given sizes.

Sizes of arguments that differ from call to call are symbolic (`core.sizes`) while the function is
captured; its computations and decisions on them are recorded. For other sizes the program is made
from this record without running its Python again, unless a decision differs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from ...core import debug, policy
from ...core.device import device
from ...core.dtype import dtype
from ...core.errors import AdjointError, NotTraceable, Unsupported
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_scalar import SymbolicNumber
from ...core.symbolic_sizes import SizeGraph
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ir.compute import spec_of
from ...ir.program import Node, Program, Value
from ...ops.index.number_places import NumberPlace
from ...runtime.lazy import LazyValue
from ...runtime.tensors import wrap
from ..guards.signature import shapes_of
from ..guards.slots import PLAIN
from .lifted_state import array_of
from .random_state import CapturedGenerator, CapturedGenerators, ControlFlowDraws
from .subgraphs import Subgraph

if TYPE_CHECKING:
    from .trace import Trace

Places: TypeAlias = Sequence[tuple[int, int]]  # numbers of arguments, and dimensions


class ChangingSizes:
    """Tracks which sizes of a function's arguments change from call to call."""

    def __init__(self, dynamic: bool | None) -> None:
        """`dynamic`: all sizes are symbolic (True), none is (False), or those that have changed
        (None).
        """
        self._dynamic = dynamic
        self._known: dict[Any, set[tuple[int, int]]] = {}  # that change, by form of signature
        self._fixed: dict[Any, set[tuple[int, int]]] = {}  # that captures have read, likewise
        self._captures: dict[Any, int] = {}

    def places(self, form: Hashable, earlier: Iterable[Any], arguments: Sequence[Any]) -> Places:
        """Sizes that the next capture makes symbolic, for arguments whose signature without sizes
        is `form`; `earlier` are signatures of this form.
        """
        if self._dynamic is False:
            return ()
        changing = self._known.setdefault(form, set())
        shapes = [x._data.shape for x in arguments]
        if self._dynamic:
            changing.update((n, k) for n, shape in enumerate(shapes) for k in range(len(shape)))
        for each in earlier:
            for n, (was, now) in enumerate(zip(shapes_of(each), shapes, strict=False)):
                changing.update((n, k) for k, size in enumerate(now) if was[k] != size)
        if self._captures.get(form, 0) >= policy.SIZED_CAPTURES:
            return ()
        return [
            (n, k)
            for n, k in changing - self._fixed.get(form, set())
            if shapes[n][k] > 1 and arguments[n]._data.flags.c_contiguous
        ]

    def learn(self, form: Hashable, template: ShapePolymorphicProgram | None) -> None:
        """Register a capture with symbolic sizes. `template` is None if it failed, as it would for
        the next size.
        """
        if template is None:
            self._captures[form] = policy.SIZED_CAPTURES
            return
        self._fixed.setdefault(form, set()).update(template.fixed)
        self._captures[form] = self._captures.get(form, 0) + 1


class SizeInput(NamedTuple):
    """A symbolic size that becomes a scalar input of the program."""

    size: SymbolicNumber
    dtype: Any
    symbol: LazyValue


class SymbolicArgumentSizes:
    """The sizes of a capture's arguments, symbolic ones at `places`."""

    def __init__(self, places: Places, count: int) -> None:
        """`count` is the number of arguments; the sizes of inputs behind them are guarded
        elsewhere.
        """
        self.places, self.count = sorted(places), count
        self.sizes = SizeGraph(self._operand)
        self._filled = _Filled(self.sizes.values)
        self.operands: list[SizeInput] = []
        self.known: list[tuple[int, int, int]] = []  # argument, dimension and size, not symbolic
        self.asked: list[tuple[Callable[..., bool], bool]] = []  # questions and their answers

    def filled(self, op: Op) -> Op:
        """An op with the present sizes."""
        filled: Op = self._filled.of(op)
        return filled

    def ask(self, question: Callable[..., bool]) -> bool:
        """Answer a question for the present sizes; others must give the same answer."""
        answer = bool(question(fill=self._filled))
        self.asked.append((question, answer))
        return answer

    def shape(self, n: int, shape: Sequence[int]) -> tuple[Any, ...]:
        """Shape of argument `n`, with symbolic sizes."""
        scalar = self.sizes.scalar
        symbolic = tuple([scalar(x) if (n, k) in self.places else x for k, x in enumerate(shape)])
        if n < self.count:
            self.known += [(n, k, x) for k, x in enumerate(shape) if symbolic[k] is x]
        return symbolic

    def _operand(self, size: SymbolicNumber, dtype: dtype) -> Tensor:
        for each in self.operands:
            if each.size is size and each.dtype is dtype:
                return wrap(each.symbol)
        symbol = LazyValue(None, (), (), dtype.numpy)
        self.operands.append(SizeInput(size, dtype, symbol))
        return wrap(symbol)

    def fixed(self) -> list[tuple[int, int]]:
        """Symbolic sizes whose values were read, so that the capture holds for no others."""
        scalars = self.sizes.given
        return [
            dimension
            for dimension, n in zip(self.places, scalars, strict=True)
            if n in self.sizes.read
        ]


class SizedLowering(Protocol):
    """A capture that passes have gone through with symbols for its sizes."""

    def step(self, sizes: Sequence[int]) -> Any:
        """The lowered step for other sizes; None where they decide otherwise."""


class ShapePolymorphicProgram:
    """A shape-polymorphic program: a capture with symbolic sizes."""

    def __init__(self, captured: Trace, resized: SymbolicArgumentSizes) -> None:
        self._captured = captured
        self._operands = resized.operands
        self._places = resized.places
        self._known = resized.known
        self.fixed = resized.fixed()
        self._asked = resized.asked
        self._numbers, self._run = resized.sizes.settle()
        self.lowerings: list[SizedLowering] = []  # with symbolic sizes
        self.why_not = ""  # there are none: a reason
        self.again = False  # whether it was asked for other sizes than those of its capture
        self.given: list[int] = []  # the sizes that it was asked for last

    def captured_for(self, arguments: Sequence[Any]) -> Any:
        """Instantiate the capture for the sizes of these arguments: a `Trace`, or a step where one
        of the lowerings fits. None where the capture does not allow them.
        """
        try:
            sizes = self._sizes_of(arguments)
            if sizes is None:
                return None
            for each in self.lowerings:
                step = each.step(self.given)
                if step is not None:
                    return step
            return self._at(sizes)
        except (AdjointError, NotTraceable) as error:  # by an op that differs for other sizes
            if "compile" in debug.on:
                debug.say("compile", f"captured anew for other sizes: {error}")
            return None

    def _sizes_of(self, arguments: Sequence[Any]) -> dict[int, int] | None:
        """Values of all symbolic sizes for these arguments; None where the capture does not allow
        them.
        """
        if any(arguments[n]._data.shape[k] != x for n, k, x in self._known):
            return None
        given = [arguments[n]._data.shape[k] for n, k in self._places]
        self.again, self.given = bool(self.given), given
        computed = self._run(*given)
        if computed is None:
            return None
        sizes = dict(zip(self._numbers, computed, strict=True))
        fill = _Filled(sizes)
        agree = all(question(fill=fill) is answer for question, answer in self._asked)
        return sizes if agree else None

    def symbolic(self, symbols: Sequence[Any]) -> tuple[Trace, list[tuple[Value, SizeInput]]]:
        """The capture with symbols of another recording in the place of its sizes; numbers computed
        from them are further states, which are returned with them.

        Errors: Unsupported where a size stands for itself alone.
        """
        computed = self._run(*symbols)
        if computed is None:
            raise Unsupported("compile: symbols for the sizes decide otherwise")
        sizes = dict(zip(self._numbers, computed, strict=True))
        filled = _Filled(sizes)
        count = self._captured.inputs.arguments - len(self._operands)
        values = self._captured.program.inputs[count : count + len(self._operands)]
        own = [filled.of(x) for x in values]
        captured = self._with(filled)
        captured.program.inputs += own
        more = len(own)
        inputs, assumptions = captured.inputs, captured.assumptions
        captured = captured._replace(
            inputs=inputs._replace(
                states=[*inputs.states, *[None] * more], owners=[*inputs.owners, *[None] * more]
            ),
            assumptions=assumptions._replace(wants=[*assumptions.wants, *[False] * more]),
        )
        operands = [each._replace(size=filled.of(each.size)) for each in self._operands]
        return captured, list(zip(own, operands, strict=True))

    def _at(self, sizes: dict[int, int]) -> Trace:
        """The capture with these sizes filled in."""
        filled = _Filled(sizes)
        captured = self._captured
        whole = captured.program
        count = captured.inputs.arguments - len(self._operands)
        for value, each in zip(whole.inputs[count:], self._operands, strict=False):
            array = array_of(sizes[each.size.place], each.dtype)
            filled.values[value] = Value(spec_of(array), array=array)
        return self._with(filled)

    def _with(self, filled: _Filled) -> Trace:
        """The capture with what is `filled` in; without inputs that are computed from sizes."""
        captured = self._captured
        count = captured.inputs.arguments - len(self._operands)
        program = filled.program(captured.program)
        del program.inputs[count : captured.inputs.arguments]
        step = captured.gradients.step
        more = len(self._operands)
        inputs, effects, assumptions = captured.inputs, captured.effects, captured.assumptions
        ordered = [(n if n < count else n - more, begins) for n, begins in assumptions.ordered]
        return captured._replace(
            program=program,
            inputs=inputs._replace(
                arguments=count,
                states=list(inputs.states),
                streams=[filled.of(stream) for stream in inputs.streams],
            ),
            effects=effects._replace(updates=[filled.nodes[node] for node in effects.updates]),
            gradients=captured.gradients._replace(
                step=None if step is None else filled.nodes[step]
            ),
            assumptions=assumptions._replace(ordered=ordered),
        )


_RESIZED = (Op, Program, CapturedGenerator, CapturedGenerators, ControlFlowDraws, Subgraph)
# Types whose objects do not depend on sizes.
_WITHOUT_SIZES = (dtype, device, np.dtype, np.ndarray, np.generic, type, TensorBase, NumberPlace)


class _Filled:
    """Substitutes values for symbolic sizes in programs, ops and specs."""

    def __init__(self, sizes: Mapping[int, int] | Sequence[int]) -> None:
        """`sizes` are the values, by number of the symbolic scalar."""
        self.sizes = sizes
        self.memory: dict[int, tuple[Any, Any]] = {}  # see `memory_like`
        self.values: dict[Value, Value] = {}
        self.nodes: dict[Node, Node] = {}
        self._known: dict[int, tuple[Any, Any]] = {}  # objects by id, each with its copy

    def __call__(self, x: Any) -> Any:
        """See `of`."""
        return self.of(x)

    def program(self, program: Program) -> Program:
        """Copy of a program, with values and nodes of its own."""
        inputs = [self._value(x) for x in program.inputs]
        nodes = []
        for node in program.nodes:
            inputs_filled = [self.of(x) for x in node.inputs]
            made = Node(self.of(node.op), inputs_filled, [self.of(y.spec) for y in node.outputs])
            made.module = node.module
            self.values.update(zip(node.outputs, made.outputs, strict=True))
            self.nodes[node] = made
            nodes.append(made)
        copied = Program(inputs, nodes, [self._value(y) for y in program.outputs])
        copied.rows = program.rows
        return copied

    def _value(self, x: Value) -> Value:
        copied = self.values.get(x)
        if copied is None:
            if x.array is not None:
                copied = x
            else:
                copied = Value(self.of(x.spec), x.node, x.index, name=x.name)
            self.values[x] = copied
        return copied

    def of(self, x: Any) -> Any:
        """Copy of `x` with values for sizes, or `x` itself if there is none in it."""
        kind = type(x)
        if kind is SymbolicNumber:
            return self.sizes[x.place] if isinstance(x.arithmetic, SizeGraph) else x
        if kind in PLAIN and kind is not slice:
            return x
        if kind is Value:
            return self._value(x)
        if kind is Spec:
            shape = self.of(x.shape)
            return x if shape is x.shape else x._replace(shape=shape)
        if isinstance(x, tuple):
            parts = [self.of(each) for each in x]
            if all(a is b for a, b in zip(parts, x, strict=True)):
                return x
            return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        if kind is list:
            parts = [self.of(each) for each in x]
            return x if all(a is b for a, b in zip(parts, x, strict=True)) else parts
        if kind is dict:
            items = {key: self.of(each) for key, each in x.items()}
            return x if all(items[key] is x[key] for key in x) else items
        if kind is slice:
            ends = x.start, x.stop, x.step
            filled = self.of(ends)
            return x if filled is ends else slice(*filled)
        if isinstance(x, _RESIZED):
            entry = self._known.get(id(x))
            if entry is None:
                entry = self._known[id(x)] = x, self._new(x)
            return entry[1]
        if x is NotImplemented or isinstance(x, _WITHOUT_SIZES):
            return x
        raise Unsupported(f"compile: sizes within a {kind.__name__}")

    def _new(self, x: Any) -> Any:
        return self.program(x) if type(x) is Program else x.resized(self.of)
