"""Serialization of a captured function: plain values and tensors (see io/checkpoint.py).

    "adjoint.export"  the version of this form        "version"  of adjoint, for people
    "name"            the function's                  "positional"  its arguments that have places
    "tensors"         all tensors, which are spoken of by number from here on
    "gradients"       number of a leaf -> number of its gradient
    "names"           name -> number: the state dict
    "optimizers"      class, options, groups of numbers, states: number -> name -> number
    "schedules"       see `schedules.py`
    "generators"      states of generators
    "scalers"         GradScalers: numbers of their tensors, and settings
    "numbers"         that Python sets: see `numbers.py`
    "routines"        composites that are computed whole: name, arguments, specs, wanted gradients
    "programs"        one for each example and mode: see `_Program.written`

In a program values are numbered: inputs, then the outputs of nodes, in order. Among a node's inputs
are numbers of earlier values and, below zero, of constants: -1 is the first. Shapes and dtypes of
all values are stored, to be compared with what the ops infer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.capture import symbol
from ...core import errors
from ...core.errors import Unsupported
from ...core.mode import MODE, mode_with
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from ...core.version import __version__
from ...io.stored_ops import Ops
from ...ir.program import Value
from ...nn.parameter import Parameter
from ...ops.random.draws import Followed
from ...ops.shape.movement import Refit
from ...runtime.tensors import wrap
from ...runtime.writes import ViewWrite
from ..capture.backward import Cotangents
from ..capture.lifted_state import RestoredState, ScalarResult
from ..capture.random_state import FunctionalDraw
from ..capture.routine_ops import RoutineBackward, RoutineForward
from ..capture.step_capture import InitializedOptimizers, RunEagerlyFirst, Update
from ..function import CompiledFunction, Described
from ..guards.slot_values import now
from ..guards.slots import GuardSource, place_key
from .forms import Form, form_of
from .numbers import NumberSlot, written_numbers
from .optimizers import written_optimizer
from .scalers import written_scaler
from .schedules import assert_unread, parts_of, scheduled, written_schedule
from .state_paths import names_of, number_names, scalers_of

if TYPE_CHECKING:
    from ...autograd.fusion import HandWritten
    from ...optim.elementwise import ElementwiseOptimizer

VERSION = 1
OPS = Ops(Refit, ViewWrite)  # beside those of the registry

Example = tuple[tuple[Any, ...], dict[str, Any]]  # arguments by position and by name


def contents_of(
    function: Callable[..., Any], examples: Sequence[Example], name: str
) -> dict[str, Any]:
    """Content of the file for a function, captured with these examples.

    Errors: Unsupported and InvalidType for what cannot be captured or stored.
    """
    call = CompiledFunction(function, "error", len(examples), name, dynamic=False)
    begun = InitializedOptimizers()  # undone in the end
    try:
        with RestoredState(function) as settled:
            count = -1
            while count < settled.count:  # attributes that one example sets, others may only read
                count = settled.count
                captured = [
                    each
                    for example in examples
                    for each in _captured(call, settled, example, begun)
                ]
            return _ContentWriter(function, captured).contents()
    finally:
        begun.undo()


def _captured(
    call: CompiledFunction[..., Any],
    settled: RestoredState,
    example: Example,
    begun: InitializedOptimizers,
) -> list[tuple[Example, bool, Described]]:
    """Capture a function with one example: in the present mode, and also without gradients if it
    has some.
    """
    args, kwargs = _apart(example)
    mode = MODE.get()
    while True:
        try:
            captured = call.captured(settled, mode, *args, **kwargs)
            break
        except RunEagerlyFirst as error:
            _begin(error, begun)
    captures = [((args, kwargs), mode.grad and not mode.inference, captured)]
    if captured.captured.gradients.step is not None:
        without = call.captured(settled, mode_with(mode, grad=False), *args, **kwargs)
        captures.append(((args, kwargs), False, without))
    return captures


def _apart(x: Any) -> Any:
    """Copy of arguments in which no tensor occurs twice."""
    if isinstance(x, TensorBase):
        if isinstance(x, Parameter):
            return x  # refused later
        apart = wrap(x._data)
        return apart if x._node is None else apart.requires_grad_()
    if isinstance(x, dict):
        return {key: _apart(each) for key, each in x.items()} if type(x) is dict else x
    if type(x) in (tuple, list):
        return type(x)([_apart(each) for each in x])
    return type(x)(*map(_apart, x)) if hasattr(type(x), "_fields") else x


def _begin(error: RunEagerlyFirst, begun: InitializedOptimizers) -> None:
    """Initialize the state of an optimizer that has none.

    Errors: Unsupported where its first step differs from later ones, or no optimizer is known.
    """
    if error.optimizer is None:
        raise Unsupported(f"export: {error}; call the function once before") from error
    if not begun.begin(error):
        raise Unsupported(
            f"export: the first step of {type(error.optimizer).__name__} differs from all later "
            "ones, which is what is exported; call the function once before"
        ) from error


class Table:
    """Table of a file's tensors, and constant arrays, by number."""

    def __init__(self, tensors: Sequence[Any] = ()) -> None:
        self.tensors: list[Any] = list(tensors)
        self._kept = list(tensors)  # kept alive, since ids are keys
        self._places = {id(x): n for n, x in enumerate(tensors)}

    def number(self, x: object) -> int:
        """The number of a tensor or an array, added if it is new."""
        number = self._places.get(id(x))
        if number is None:
            number = self._places[id(x)] = len(self.tensors)
            self._kept.append(x)
            is_plain = isinstance(x, TensorBase) and _is_given(x)
            self.tensors.append(x if is_plain else wrap(getattr(x, "_data", x)))
        return number


def _is_given(x: TensorBase) -> bool:
    """Whether a tensor has no history."""
    return x._node is None or x._node is x._leaf


def state_of(
    table: Table, graded: Iterable[Any], optimizers: Sequence[Any], generators: Iterable[Any],
    scalers: Iterable[Any], numbers: Iterable[NumberSlot], schedules: Iterable[Any],
) -> dict[str, Any]:  # fmt: skip
    """The part of a file's content that changes when programs run; `graded` are leaves whose
    gradients the programs use.
    """
    gradients = {
        table.number(x): table.number(x._leaf.grad) for x in graded if x._leaf.grad is not None
    }
    return {
        "version": __version__,
        "gradients": gradients,
        "optimizers": [written_optimizer(each, table.number) for each in optimizers],
        "schedules": [written_schedule(each, optimizers) for each in schedules],
        "generators": [each.get_state() for each in generators],
        "scalers": [written_scaler(each, table.number) for each in scalers],
        "numbers": [each.written() for each in numbers],
        "tensors": table.tensors,
    }


def _place_in(table: list[Any], x: object) -> int:
    """Index of the object `x` in a table, to which it is added if it is new."""
    for n, each in enumerate(table):
        if each is x:
            return n
    table.append(x)
    return len(table) - 1


class _ContentWriter:
    """Collects the content that the programs of a file share."""

    def __init__(
        self, function: Callable[..., Any], captured: Sequence[tuple[Example, bool, Described]]
    ) -> None:
        self.function = function
        self.described = captured
        self.captured = [each.captured for *_, each in captured]
        self.table = Table()
        self.tensor = self.table.number
        self.optimizers: list[Any] = []
        self.schedules: list[Any] = []
        self.generators: list[Any] = []
        self.routines: list[Any] = []
        self.slots: dict[Any, GuardSource] = {}  # slots of numbers, by key
        met = {id(x) for each in self.captured for x in each.inputs.states if x is not None}
        self.names = {name: self.tensor(x) for name, x in names_of(function, met).items()}
        self.scalers = scalers_of(function, met)

    def contents(self) -> dict[str, Any]:
        """Serialize all programs and the content that they share."""
        programs = [_Program(self, *each).written() for each in self.described]
        graded = [
            x
            for each in self.captured
            for x in (*each.inputs.owners, *each.effects.leaves, *each.effects.dropped)
            if x is not None
        ]
        return {
            "adjoint.export": VERSION,
            "names": self.names,
            **state_of(
                self.table,
                graded,
                self.optimizers,
                self.generators,
                self.scalers,
                self._numbers(),
                self.schedules,
            ),
            "routines": [self._routine(each) for each in self.routines],
            "programs": programs,
        }

    def place(self, slot: GuardSource) -> int:
        """Index of a slot that holds a number."""
        key = place_key(slot)
        self.slots.setdefault(key, slot)
        return list(self.slots).index(key)

    def _numbers(self) -> list[NumberSlot]:
        """All numbers that are inputs of programs, including options of optimizers."""
        slots = list(self.slots.values())
        groups = {
            id(group): (n, g)
            for n, optimizer in enumerate(self.optimizers)
            for g, group in enumerate(optimizer.param_groups)
        }
        parts = [part for each in self.schedules for part in parts_of(each)]
        within = _within([*parts, *self.scalers])
        numbers = []
        for slot, name in zip(slots, number_names(self.function, slots), strict=True):
            if id(slot.holder) in within:
                raise Unsupported(
                    f"export: the function sets {name}, which a schedule or a GradScaler holds; "
                    "set it outside"
                )
            value, option = now(slot), groups.get(id(slot.holder))
            holder, key = ({name: value}, name) if option is None else (slot.holder, slot.key)
            numbers.append(NumberSlot(holder, key, type(value), option))
        return numbers

    def _routine(self, written: HandWritten) -> dict[str, Any]:
        inputs = list(map(symbol, written.specs))
        number_of = {id(x): n for n, x in enumerate(inputs)}
        what = f"export: {written.function.__name__}"
        return {
            "name": composite_name(written.function),
            "arguments": form_of(
                tuple(written.filled(inputs)), lambda x: ("tensor", number_of[id(x)]), what
            ),
            "specs": [_spec(spec) for spec in written.specs],
            "wants": list(written.wants),
        }


def composite_name(function: Callable[..., Any]) -> str:
    """Name by which a composite with a routine is stored."""
    return f"{function.__module__}.{function.__qualname__}"


def _spec(spec: Spec) -> tuple[tuple[int, ...], Any]:
    return tuple(spec.shape), spec.dtype


class _Program:
    """Serializes one captured program."""

    def __init__(
        self, of: _ContentWriter, example: Example, grad: bool, described: Described
    ) -> None:
        self.of = of
        self.example = example
        self.grad = grad
        self.captured = captured = described.captured
        self.described = described
        self.ops: dict[int, tuple[int, Any]] = {}  # by id: the number, and the serialized op
        self.wanting: list[bool] = []  # for each argument whether it wants a gradient
        self.specs: dict[Spec, int] = {}
        self.numbers: dict[Value, int] = {}
        self.constants: dict[Any, tuple[int, Any]] = {}
        tensors = [
            x if owner is None else owner._leaf.grad
            for x, owner in zip(captured.inputs.states, captured.inputs.owners, strict=True)
        ]
        self.places = {id(x): n for n, x in enumerate(tensors)}  # numbers of states, by id

    def written(self) -> dict[str, Any]:
        """Serialize the program."""
        captured = self.captured
        graph = captured.program
        if any(n < 0 for n in captured.effects.written):
            raise Unsupported("export: the function writes to an argument; let it write to a clone")
        for n, x in enumerate(graph.inputs):
            self.numbers[x] = n
        nodes = []
        for node in graph.nodes:
            op = self._op(node.op)
            inputs = [self._input(x) for x in node.inputs]
            for y in node.outputs:
                self.numbers[y] = len(self.numbers)
            nodes.append([op, inputs, [self._spec(y.spec) for y in node.outputs]])
        back, count = captured.gradients, captured.inputs.arguments
        steps = [n for n, node in enumerate(graph.nodes) if node is back.step]
        number = self.of.tensor
        returned, numbers, calls = self._returned()
        return {
            "grad": self.grad,
            "arguments": self._arguments(),
            "wanting": self.wanting,
            "specs": [self._spec(x.spec) for x in graph.inputs],
            "states": self._states(),
            "nodes": nodes,
            "outputs": [self._input(y) for y in graph.outputs],
            "written": list(captured.effects.written),
            "leaves": [number(x) for x in captured.effects.leaves],
            "presence": [(number(x), had) for x, had in captured.assumptions.presence],
            "dropped": [number(x) for x in captured.effects.dropped],
            "ordered": [each for each in captured.assumptions.ordered if each[0] < count],
            "returned": returned,
            "calls": calls,
            "numbers": numbers,
            "histories": list(captured.outputs.histories),
            "made": list(captured.outputs.leaves),
            "why": None if captured.outputs.why is None else str(captured.outputs.why),
            "streams": [
                (_place_in(self.of.generators, each.generator), each.count)
                for each in captured.inputs.streams
            ],
            "backward": (
                steps[0] if steps else None, list(back.results),
                [*map(self._source, back.sources)], [sorted(each) for each in back.leading],
            ),
            "errors": [_error(each()) for each in captured.assumptions.errors],
            "ops": [op for _, op in self.ops.values()],
            "constants": [x for _, x in self.constants.values()],
            "kinds": [_spec(spec) for spec in self.specs],
        }  # fmt: skip

    def _spec(self, spec: Spec) -> int:
        return self.specs.setdefault(spec, len(self.specs))

    def _input(self, x: object) -> int:
        """The number of a value, a constant or a Python number."""
        if isinstance(x, Value) and x in self.numbers:
            return self.numbers[x]
        if not isinstance(x, Value):
            key: Any = (type(x), repr(x))
            constant = ("number", OPS.field(x, "export: a value"))
        elif x.array is None:
            raise Unsupported(f"export: {x!r} is computed in another program")
        else:
            key, constant = id(x.array), ("tensor", self.of.tensor(x.array))
        return -1 - self.constants.setdefault(key, (len(self.constants), constant))[0]

    def _op(self, op: Op) -> int:
        if id(op) not in self.ops:
            self.ops[id(op)] = len(self.ops), self._written_op(op)
        return self.ops[id(op)][0]

    def _written_op(self, op: Op) -> tuple[Any, ...]:
        of = self.of
        if isinstance(op, Update):
            groups = []
            for group, parameters in op.groups:
                (number,) = (n for n, g in enumerate(op.optimizer.param_groups) if g is group)
                groups.append((number, [of.tensor(p) for p in parameters]))
            options = [self._option(op.optimizer, *each) for each in op.options]
            return "update", _place_in(of.optimizers, op.optimizer), groups, op.skips, options
        if isinstance(op, FunctionalDraw):
            if isinstance(op.draw, Followed):
                raise Unsupported(
                    "export: a file draws adjoint's random numbers, not those of PyTorch's "
                    "generator; call random.follow_torch(False) before"
                )
            draw = replace(op.draw, seed=0, draw=0)
            stream = self.captured.inputs.streams.index(op.stream)
            if not all(type(getattr(draw, name)) is float for name in op.named):
                raise Unsupported(
                    f"export: {op.name} by a whole number that the function sets; draw by one that "
                    "stays"
                )
            inner = OPS.written(draw, "export: a draw")
            return "draw", stream, op.place, inner, list(op.named)
        if isinstance(op, Cotangents):
            return "cotangents", op.n_outputs
        if isinstance(op, RoutineForward):
            return "ahead", _place_in(of.routines, op.written)
        if isinstance(op, RoutineBackward):
            return "behind", _place_in(of.routines, op.written), list(op.given)
        return OPS.written(op, f"export: a value of {op.name}")

    @staticmethod
    def _option(
        optimizer: ElementwiseOptimizer, group: dict[str, Any], name: str, x: object
    ) -> tuple[int, str, Form]:
        """Serialize an option that an optimizer has in its step: the number of its group, its name
        and value.
        """
        (number,) = (n for n, g in enumerate(optimizer.param_groups) if g is group)
        if type(x) is ScalarResult:
            return number, name, ("number", x.place)
        if type(x) not in (int, float):
            raise Unsupported(
                f"export: the function sets the option {name} of an optimizer to {x!r:.40} before "
                "its step; set it outside, or to a number"
            )
        return number, name, ("constant", x)

    def _arguments(self) -> Form:
        def tensor(x: TensorBase) -> Form:
            self.wanting.append(self.grad and x._node is not None)
            return "tensor", len(self.wanting) - 1

        return form_of(self.example, tensor, "export: the arguments")

    def _states(self) -> list[tuple[str, int]]:
        captured, states = self.captured, []
        inputs = captured.inputs
        values = captured.program.inputs[inputs.arguments :]
        for value, x, owner in zip(values, inputs.states, inputs.owners, strict=True):
            if owner is not None:
                states.append(("gradient", self.of.tensor(owner)))
                continue
            if self.grad and not _is_given(x):
                raise Unsupported(
                    f"export: a tensor of shape {tuple(x._data.shape)} was computed outside of the "
                    "function, and a history is in no file; compute it within, or detach() it"
                )
            states.append(("tensor" if value.array is None else "constant", self.of.tensor(x)))
        return states

    def _returned(self) -> tuple[Form, dict[str, Any] | None, list[int]]:
        """Serialize the result: the form of the returned value and of calls' arguments; the
        computations on numbers, if there are any; and the schedules that are called.
        """
        returned, lifted = self.captured.outputs, self.described.places
        computed = [wrap(_NOTHING) for _ in returned.histories]
        arguments = [wrap(_NOTHING) for _ in range(self.captured.inputs.arguments)]
        result, call_arguments = returned.results.rebuilt(computed, arguments, returned.numbers)
        pairs = zip(self.captured.effects.calls, call_arguments, strict=True)
        schedules = [scheduled(call, *each) for call, each in pairs]
        calls = [_place_in(self.of.schedules, each) for each in schedules]
        assert_unread(self.described.later, schedules)
        left: Sequence[Any] = ()
        if lifted.slots:
            result, left = result
        results: list[SymbolicNumber] = []  # numbers that it returns

        def part(x: object) -> Form:
            if type(x) is not SymbolicNumber:
                return forms[id(x)]
            return "number", _place_in(results, x)

        forms: dict[int, Form] = {key: ("state", n) for key, n in self.places.items()}
        forms.update((id(x), ("tensor", n)) for n, x in enumerate(computed))
        forms.update((id(x), ("argument", n)) for n, x in enumerate(arguments))
        form = form_of((result, call_arguments), part, "export: what the function returns")
        if not lifted.slots:
            return form, None, calls
        slots = [lifted.slots[n] for n in lifted.changed]
        for slot, x in zip(slots, left, strict=True):
            if x.__class__ is not type(now(slot)):
                [name] = number_names(self.of.function, [slot])
                raise Unsupported(
                    f"export: the function sets {name} from {now(slot)!r} to a "
                    f"{x.__class__.__name__}; numbers of a file stay ints or floats: begin with "
                    "what the function sets"
                )
        numbered = [self.of.place(slot) for slot in lifted.slots]
        changed = [self.of.place(slot) for slot in slots]
        ends = list(zip(changed, left, strict=True))
        return form, written_numbers(self.described.operands, numbered, results, ends), calls

    def _source(self, x: object) -> tuple[str, int]:
        return ("argument", x) if type(x) is int else ("state", self.places[id(x)])


_NOTHING = np.zeros(0)


def _within(objects: Iterable[Any]) -> set[int]:
    """Ids of the dicts that hold the attributes of objects, and of lists and dicts in these."""
    attribute_dicts = [vars(each) for each in objects]
    return {
        id(x) for each in attribute_dicts for x in (each, *each.values()) if type(x) in (dict, list)
    }


def _error(error: Exception) -> tuple[str, str]:
    """Serialize an exception of adjoint's."""
    name = type(error).__name__
    if getattr(errors, name, None) is not type(error):
        raise Unsupported(f"export: a check that raises {name}, which is no class of adjoint's")
    return name, str(error)
