"""One capture for many sizes: a program in which sizes are numbers, and the same for some values.

Sizes of arguments that differ from call to call are `core.sizes` while the function is captured:
what it computes of them is written down, and so is what it decides by them. For other sizes the
same program is made of that without calling any of its Python, unless a decision differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..core import debug, policy
from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import AdjointError, NotTraceable, Unsupported
from ..core.op import Op
from ..core.scalar import Number
from ..core.sizes import Sizes
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..graph.lazy import LazyValue
from ..program.compute import spec_of
from ..program.program import Node, Program, Value
from ..program.reads import PLAIN
from .bodies import Body
from .drawing import Drawing, Stream, Streams
from .places import array_of
from .signature import shapes_of

if TYPE_CHECKING:
    from .capture import Captured

Places: TypeAlias = Sequence[tuple[int, int]]  # numbers of arguments, and dimensions


class Changing:
    """Which sizes of a function's arguments change from call to call."""

    def __init__(self, dynamic: bool | None) -> None:
        """`dynamic`: all do (True), none are to be looked at (False), or those that have (None)."""
        self._dynamic = dynamic
        self._known: dict[Any, set[tuple[int, int]]] = {}  # by signatures without sizes
        self._fixed: dict[Any, set[tuple[int, int]]] = {}  # which each capture has read
        self._captures: dict[Any, int] = {}

    def places(self, form: Any, alike: Iterable[Any], arguments: Sequence[Any]) -> Places:
        """Those that are to be numbers in the next capture, for a signature that is of this form
        but for sizes, as those before are that are `alike`.
        """
        if self._dynamic is False:
            return ()
        known = self._known.setdefault(form, set())
        shapes = [x._data.shape for x in arguments]
        if self._dynamic:
            known.update((n, k) for n, shape in enumerate(shapes) for k in range(len(shape)))
        for each in alike:
            for n, (was, now) in enumerate(zip(shapes_of(each), shapes, strict=False)):
                known.update((n, k) for k, size in enumerate(now) if was[k] != size)
        if self._captures.get(form, 0) >= policy.SIZED_CAPTURES:
            return ()
        return [
            (n, k)
            for n, k in known - self._fixed.get(form, set())
            if shapes[n][k] > 1 and arguments[n]._data.flags.c_contiguous
        ]

    def learn(self, form: Any, template: Template | None) -> None:
        """A capture with numbers was made for a signature of a form; it has no template where that
        failed, as it would for the next size.
        """
        if template is None:
            self._captures[form] = policy.SIZED_CAPTURES
            return
        self._fixed.setdefault(form, set()).update(template.fixed)
        self._captures[form] = self._captures.get(form, 0) + 1


class Operand(NamedTuple):
    """A size where it meets tensors."""

    size: Number
    dtype: Any
    symbol: LazyValue


class Resized:
    """The sizes of arguments while a function is captured, those at `places` as numbers."""

    def __init__(self, places: Places, count: int) -> None:
        """`count`: of arguments; what comes behind them is known to be as it was."""
        self.places, self.count = sorted(places), count
        self.sizes = Sizes(self._operand)
        self._filled = _Filled(self.sizes.values)
        self.operands: list[Operand] = []
        self.known: list[tuple[int, int, int]] = []  # sizes that are none, by their places
        self.asked: list[tuple[Callable[..., bool], bool]] = []  # and what was answered

    def ask(self, question: Callable[..., bool]) -> bool:
        """The answer for the sizes of now, which others must agree with."""
        answer = bool(question(fill=self._filled))
        self.asked.append((question, answer))
        return answer

    def shape(self, n: int, shape: Sequence[int]) -> tuple[Any, ...]:
        """That of argument `n`."""
        scalar = self.sizes.scalar
        found = tuple([scalar(x) if (n, k) in self.places else x for k, x in enumerate(shape)])
        if n < self.count:
            self.known += [(n, k, x) for k, x in enumerate(shape) if found[k] is x]
        return found

    def _operand(self, size: Number, dtype: Any) -> Any:
        for each in self.operands:
            if each.size is size and each.dtype is dtype:
                return wrap(each.symbol)
        symbol = LazyValue(None, (), (), dtype.numpy)
        self.operands.append(Operand(size, dtype, symbol))
        return wrap(symbol)

    def fixed(self) -> list[tuple[int, int]]:
        """Those places whose sizes were read, by which the capture stands for no others."""
        given = self.sizes.given
        return [place for place, n in zip(self.places, given, strict=True) if n in self.sizes.read]


class Template:
    """What was captured for sizes that are numbers."""

    def __init__(self, captured: Captured, resized: Resized) -> None:
        self._captured = captured
        self._operands = resized.operands
        self._places = resized.places
        self._known = resized.known
        self.fixed = resized.fixed()
        self._asked = resized.asked
        self._numbers, self._run = resized.sizes.settle()

    def captured_for(self, arguments: Sequence[Any]) -> Captured | None:
        """What was captured, for the sizes of these arguments; None where it does not stand for
        them.
        """
        try:
            sizes = self._sizes_of(arguments)
            return None if sizes is None else self._at(sizes)
        except (AdjointError, NotTraceable) as error:  # of an op that is another for other sizes
            if "compile" in debug.on:
                debug.say("compile", f"captured anew for other sizes: {error}")
            return None

    def _sizes_of(self, arguments: Sequence[Any]) -> dict[int, int] | None:
        """All sizes, by their places among numbers, for these arguments; None where the capture
        does not stand for them.
        """
        if any(arguments[n]._data.shape[k] != x for n, k, x in self._known):
            return None
        found = self._run(*[arguments[n]._data.shape[k] for n, k in self._places])
        if found is None:
            return None
        sizes = dict(zip(self._numbers, found, strict=True))
        fill = _Filled(sizes)
        agree = all(question(fill=fill) is answer for question, answer in self._asked)
        return sizes if agree else None

    def _at(self, sizes: dict[int, int]) -> Captured:
        """What was captured, for these sizes."""
        filled = _Filled(sizes)
        captured = self._captured
        whole = captured.program
        count = captured.arguments - len(self._operands)
        for value, each in zip(whole.inputs[count:], self._operands, strict=False):
            array = array_of(sizes[each.size.place], each.dtype)
            filled.values[value] = Value(spec_of(array), array=array)
        program = filled.program(whole)
        del program.inputs[count : captured.arguments]
        step = captured.backward.step
        more = len(self._operands)
        ordered = [(n if n < count else n - more, begins) for n, begins in captured.ordered]
        return captured._replace(
            program=program,
            arguments=count,
            updates=[filled.nodes[node] for node in captured.updates],
            streams=[filled.of(stream) for stream in captured.streams],
            backward=captured.backward._replace(step=None if step is None else filled.nodes[step]),
            states=list(captured.states),
            ordered=ordered,
        )


_RESIZED = (Op, Program, Stream, Streams, Drawing, Body)
# What is the same for all sizes.
_WITHOUT_SIZES = (dtype, device, np.dtype, np.ndarray, np.generic, type, TensorBase)


class _Filled:
    """The same with sizes in the place of numbers."""

    def __init__(self, sizes: Mapping[int, int] | Sequence[int]) -> None:
        """`sizes` by their places among numbers."""
        self.sizes = sizes
        self.memory: dict[int, tuple[Any, Any]] = {}  # see `memory_like`
        self.values: dict[Value, Value] = {}
        self.nodes: dict[Node, Node] = {}
        self._known: dict[int, tuple[Any, Any]] = {}  # by id, with what it is of

    def __call__(self, x: Any) -> Any:
        """See `of`."""
        return self.of(x)

    def program(self, program: Program) -> Program:
        """Of values and nodes of its own."""
        inputs = [self._value(x) for x in program.inputs]
        nodes = []
        for node in program.nodes:
            given = [self.of(x) for x in node.inputs]
            made = Node(self.of(node.op), given, [self.of(y.spec) for y in node.outputs])
            self.values.update(zip(node.outputs, made.outputs, strict=True))
            self.nodes[node] = made
            nodes.append(made)
        found = Program(inputs, nodes, [self._value(y) for y in program.outputs])
        found.rows = program.rows
        return found

    def _value(self, x: Value) -> Value:
        found = self.values.get(x)
        if found is None:
            if x.array is not None:
                found = x
            else:
                found = Value(self.of(x.spec), x.node, x.index, name=x.name)
            self.values[x] = found
        return found

    def of(self, x: Any) -> Any:
        """`x` itself where no size is in it."""
        kind = type(x)
        if kind is Number:
            return self.sizes[x.place] if isinstance(x.arithmetic, Sizes) else x
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
            found = self.of(ends)
            return x if found is ends else slice(*found)
        if isinstance(x, _RESIZED):
            found = self._known.get(id(x))
            if found is None:
                found = self._known[id(x)] = x, self._new(x)
            return found[1]
        if x is NotImplemented or isinstance(x, _WITHOUT_SIZES):
            return x
        raise Unsupported(f"compile: sizes within a {kind.__name__}")

    def _new(self, x: Any) -> Any:
        return self.program(x) if type(x) is Program else x.resized(self.of)
