"""A captured function as what a file holds: plain values and tensors (see io/checkpoint.py).

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
from typing import Any

import numpy as np

from ..compiled.backward import Cotangents
from ..compiled.capture import Begun, NotReady, Update
from ..compiled.drawing import Drawn
from ..compiled.function import CompiledFunction, Described
from ..compiled.places import Result, Settled
from ..compiled.routines import Ahead, Behind
from ..core import errors
from ..core.errors import Unsupported
from ..core.mode import MODE, mode_with
from ..core.scalar import Number
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.tensors import wrap
from ..eager.writes import ViewWrite
from ..io.ops import Ops
from ..nn.parameter import Parameter
from ..ops.random.draws import Followed
from ..ops.shape.movement import Refit
from ..program.capture import symbol
from ..program.program import Value
from ..program.reads import Slot, now, place_key
from ..version import __version__
from .forms import Form, form_of
from .names import names_of, number_names, scalers_of
from .numbers import Held, written_numbers
from .optimizers import written_optimizer
from .scalers import written_scaler
from .schedules import assert_unread, parts_of, scheduled, written_schedule

VERSION = 1
OPS = Ops(Refit, ViewWrite)  # beside those of the registry

Example = tuple[tuple[Any, ...], dict[str, Any]]  # arguments by position and by name


def contents_of(function: Any, examples: Sequence[Example], name: str) -> dict[str, Any]:
    """What a file is to hold of a function, for arguments like the examples.

    Errors: Unsupported and InvalidType for what cannot be captured or stored.
    """
    call = CompiledFunction(function, "error", len(examples), name, dynamic=False)
    begun = Begun()  # for the while
    try:
        with Settled(function) as settled:
            known = -1
            while known < settled.count:  # what one example sets, others may only read
                known = settled.count
                captured = [
                    each
                    for example in examples
                    for each in _captured(call, settled, example, begun)
                ]
            return _Writer(function, captured).contents()
    finally:
        begun.undo()


def _captured(
    call: CompiledFunction, settled: Settled, example: Example, begun: Begun
) -> list[tuple[Example, bool, Described]]:
    """What the function does with an example: in the mode of now, and without gradients where it
    gives some.
    """
    args, kwargs = _apart(example)
    mode = MODE.get()
    while True:
        try:
            captured = call.captured(settled, mode, *args, **kwargs)
            break
        except NotReady as error:
            _begin(error, begun)
    found = [((args, kwargs), mode.grad and not mode.inference, captured)]
    if captured.captured.backward.step is not None:
        without = call.captured(settled, mode_with(mode, grad=False), *args, **kwargs)
        found.append(((args, kwargs), False, without))
    return found


def _apart(x: Any) -> Any:
    """Arguments among which no tensor is another."""
    if isinstance(x, TensorBase):
        if isinstance(x, Parameter):
            return x  # which is refused
        apart = wrap(x._data)
        return apart if x._node is None else apart.requires_grad_()
    if isinstance(x, dict):
        return {key: _apart(each) for key, each in x.items()} if type(x) is dict else x
    if type(x) in (tuple, list):
        return type(x)([_apart(each) for each in x])
    return type(x)(*map(_apart, x)) if hasattr(type(x), "_fields") else x


def _begin(error: NotReady, begun: Begun) -> None:
    """Give an optimizer the state with which it would begin.

    Errors: Unsupported where its first step differs, or there is none.
    """
    if error.optimizer is None:
        raise Unsupported(f"export: {error}; call the function once before") from error
    if not begun.begin(error):
        raise Unsupported(
            f"export: the first step of {type(error.optimizer).__name__} differs from all later "
            "ones, which is what is exported; call the function once before"
        ) from error


class Table:
    """Tensors, and constants' arrays, by number."""

    def __init__(self, tensors: Sequence[Any] = ()) -> None:
        self.tensors: list[Any] = list(tensors)
        self._kept = list(tensors)  # what has these ids
        self._places = {id(x): n for n, x in enumerate(tensors)}

    def number(self, x: Any) -> int:
        """The number of a tensor, or an array."""
        place = self._places.get(id(x))
        if place is None:
            place = self._places[id(x)] = len(self.tensors)
            self._kept.append(x)
            known = isinstance(x, TensorBase) and _is_given(x)
            self.tensors.append(x if known else wrap(getattr(x, "_data", x)))
        return place


def _is_given(x: Any) -> bool:
    """Whether a tensor has no history."""
    return x._node is None or x._node is x._leaf


def state_of(
    table: Table, graded: Iterable[Any], optimizers: Sequence[Any], generators: Iterable[Any],
    scalers: Iterable[Any], numbers: Iterable[Held], schedules: Iterable[Any],
) -> dict[str, Any]:  # fmt: skip
    """That part of a file which changes when programs run; `graded` are leaves whose gradients
    these have to do with.
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


def _place_in(table: list[Any], x: Any) -> int:
    """The place of `x` itself in a table, where it is put when it comes first."""
    for n, each in enumerate(table):
        if each is x:
            return n
    table.append(x)
    return len(table) - 1


class _Writer:
    """Collects what programs have in common."""

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
        self.slots: dict[Any, Slot] = {}  # places of numbers
        met = {id(x) for each in self.captured for x in each.states if x is not None}
        self.names = {name: self.tensor(x) for name, x in names_of(function, met).items()}
        self.scalers = scalers_of(function, met)

    def contents(self) -> dict[str, Any]:
        """All of it."""
        programs = [_Program(self, *each).written() for each in self.described]
        graded = [
            x
            for each in self.captured
            for x in (*each.owners, *each.leaves, *each.dropped)
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

    def place(self, slot: Slot) -> int:
        """The number of a place that holds a number."""
        key = place_key(slot)
        self.slots.setdefault(key, slot)
        return list(self.slots).index(key)

    def _numbers(self) -> list[Held]:
        """All numbers that programs are given, options of optimizers among them."""
        slots = list(self.slots.values())
        groups = {
            id(group): (n, g)
            for n, optimizer in enumerate(self.optimizers)
            for g, group in enumerate(optimizer.param_groups)
        }
        parts = [part for each in self.schedules for part in parts_of(each)]
        within = _within([*parts, *self.scalers])
        found = []
        for slot, name in zip(slots, number_names(self.function, slots), strict=True):
            if id(slot.holder) in within:
                raise Unsupported(
                    f"export: the function sets {name}, which a schedule or a GradScaler holds; "
                    "set it outside"
                )
            value, option = now(slot), groups.get(id(slot.holder))
            holder, key = ({name: value}, name) if option is None else (slot.holder, slot.key)
            found.append(Held(holder, key, type(value), option))
        return found

    def _routine(self, written: Any) -> dict[str, Any]:
        inputs = list(map(symbol, written.specs))
        places = {id(x): n for n, x in enumerate(inputs)}
        what = f"export: {written.function.__name__}"
        return {
            "name": composite_name(written.function),
            "arguments": form_of(
                tuple(written.filled(inputs)), lambda x: ("tensor", places[id(x)]), what
            ),
            "specs": [_spec(spec) for spec in written.specs],
            "wants": list(written.wants),
        }


def composite_name(function: Any) -> str:
    """By which a composite that has a routine is found."""
    return f"{function.__module__}.{function.__qualname__}"


def _spec(spec: Spec) -> tuple[tuple[int, ...], Any]:
    return tuple(spec.shape), spec.dtype


class _Program:
    """One captured program, written."""

    def __init__(self, of: _Writer, example: Example, grad: bool, described: Described) -> None:
        self.of = of
        self.example = example
        self.grad = grad
        self.captured = captured = described.captured
        self.described = described
        self.ops: dict[int, tuple[int, Any]] = {}  # by id: the number, and what is written
        self.wanting: list[bool] = []  # for each argument whether it wants a gradient
        self.specs: dict[Spec, int] = {}
        self.numbers: dict[Value, int] = {}
        self.constants: dict[Any, tuple[int, Any]] = {}
        tensors = [
            x if owner is None else owner._leaf.grad
            for x, owner in zip(captured.states, captured.owners, strict=True)
        ]
        self.places = {id(x): n for n, x in enumerate(tensors)}  # of states

    def written(self) -> dict[str, Any]:
        """All of it."""
        captured = self.captured
        graph = captured.program
        if any(n < 0 for n in captured.written):
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
        back = captured.backward
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
            "written": list(captured.written),
            "leaves": [number(x) for x in captured.leaves],
            "presence": [(number(x), had) for x, had in captured.presence],
            "dropped": [number(x) for x in captured.dropped],
            "ordered": [each for each in captured.ordered if each[0] < captured.arguments],
            "returned": returned,
            "calls": calls,
            "numbers": numbers,
            "histories": list(captured.returned.histories),
            "made": list(captured.returned.leaves),
            "why": None if captured.returned.why is None else str(captured.returned.why),
            "streams": [
                (_place_in(self.of.generators, each.generator), each.count)
                for each in captured.streams
            ],
            "backward": (
                steps[0] if steps else None, list(back.results),
                [*map(self._source, back.sources)], [sorted(each) for each in back.leading],
            ),
            "errors": [_error(each()) for each in captured.errors],
            "ops": [op for _, op in self.ops.values()],
            "constants": [x for _, x in self.constants.values()],
            "kinds": [_spec(spec) for spec in self.specs],
        }  # fmt: skip

    def _spec(self, spec: Spec) -> int:
        return self.specs.setdefault(spec, len(self.specs))

    def _input(self, x: Any) -> int:
        """The number of a value, a constant or a Python number."""
        if isinstance(x, Value) and x in self.numbers:
            return self.numbers[x]
        if not isinstance(x, Value):
            key: Any = (type(x), repr(x))
            found = ("number", OPS.field(x, "export: a value"))
        elif x.array is None:
            raise Unsupported(f"export: {x!r} is computed in another program")
        else:
            key, found = id(x.array), ("tensor", self.of.tensor(x.array))
        return -1 - self.constants.setdefault(key, (len(self.constants), found))[0]

    def _op(self, op: Any) -> int:
        if id(op) not in self.ops:
            self.ops[id(op)] = len(self.ops), self._written_op(op)
        return self.ops[id(op)][0]

    def _written_op(self, op: Any) -> tuple[Any, ...]:
        of = self.of
        if isinstance(op, Update):
            groups = []
            for group, parameters in op.groups:
                (place,) = (n for n, g in enumerate(op.optimizer.param_groups) if g is group)
                groups.append((place, [of.tensor(p) for p in parameters]))
            options = [self._option(op.optimizer, *each) for each in op.options]
            return "update", _place_in(of.optimizers, op.optimizer), groups, op.skips, options
        if isinstance(op, Drawn):
            if isinstance(op.draw, Followed):
                raise Unsupported(
                    "export: a file draws adjoint's random numbers, not those of PyTorch's "
                    "generator; call random.follow_torch(False) before"
                )
            draw = replace(op.draw, seed=0, draw=0)
            stream = self.captured.streams.index(op.stream)
            if not all(type(getattr(draw, name)) is float for name in op.named):
                raise Unsupported(
                    f"export: {op.name} by a whole number that the function sets; draw by one that "
                    "stays"
                )
            inner = OPS.written(draw, "export: a draw")
            return "draw", stream, op.place, inner, list(op.named)
        if isinstance(op, Cotangents):
            return "cotangents", op.n_outputs
        if isinstance(op, Ahead):
            return "ahead", _place_in(of.routines, op.written)
        if isinstance(op, Behind):
            return "behind", _place_in(of.routines, op.written), list(op.given)
        return OPS.written(op, f"export: a value of {op.name}")

    @staticmethod
    def _option(optimizer: Any, group: Any, name: str, x: Any) -> tuple[int, str, Form]:
        """An option that an optimizer has while it steps: of which group, and what."""
        (place,) = (n for n, g in enumerate(optimizer.param_groups) if g is group)
        if type(x) is Result:
            return place, name, ("number", x.place)
        if type(x) not in (int, float):
            raise Unsupported(
                f"export: the function sets the option {name} of an optimizer to {x!r:.40} before "
                "its step; set it outside, or to a number"
            )
        return place, name, ("constant", x)

    def _arguments(self) -> Form:
        def tensor(x: Any) -> Form:
            self.wanting.append(self.grad and x._node is not None)
            return "tensor", len(self.wanting) - 1

        return form_of(self.example, tensor, "export: the arguments")

    def _states(self) -> list[tuple[str, int]]:
        captured, found = self.captured, []
        values = captured.program.inputs[captured.arguments :]
        for value, x, owner in zip(values, captured.states, captured.owners, strict=True):
            if owner is not None:
                found.append(("gradient", self.of.tensor(owner)))
                continue
            if self.grad and not _is_given(x):
                raise Unsupported(
                    f"export: a tensor of shape {tuple(x._data.shape)} was computed outside of the "
                    "function, and a history is in no file; compute it within, or detach() it"
                )
            found.append(("tensor" if value.array is None else "constant", self.of.tensor(x)))
        return found

    def _returned(self) -> tuple[Form, dict[str, Any] | None, list[int]]:
        """The form of what is returned, and of calls' arguments; what is computed of numbers, if
        there are some; and whose calls these are.
        """
        returned, places = self.captured.returned, self.described.places
        computed = [wrap(_NOTHING) for _ in returned.histories]
        arguments = [wrap(_NOTHING) for _ in range(self.captured.arguments)]
        found, given = returned.results.rebuilt(computed, arguments, returned.numbers)
        pairs = zip(self.captured.calls, given, strict=True)
        schedules = [scheduled(call, *each) for call, each in pairs]
        calls = [_place_in(self.of.schedules, each) for each in schedules]
        assert_unread(self.described.later, schedules)
        left: Sequence[Any] = ()
        if places.slots:
            found, left = found
        results: list[Number] = []  # which it returns

        def part(x: Any) -> Form:
            if type(x) is not Number:
                return known[id(x)]
            return "number", _place_in(results, x)

        known: dict[int, Form] = {key: ("state", n) for key, n in self.places.items()}
        known.update((id(x), ("tensor", n)) for n, x in enumerate(computed))
        known.update((id(x), ("argument", n)) for n, x in enumerate(arguments))
        form = form_of((found, given), part, "export: what the function returns")
        if not places.slots:
            return form, None, calls
        slots = [places.slots[n] for n in places.changed]
        for slot, x in zip(slots, left, strict=True):
            if x.__class__ is not type(now(slot)):
                [name] = number_names(self.of.function, [slot])
                raise Unsupported(
                    f"export: the function sets {name} from {now(slot)!r} to a "
                    f"{x.__class__.__name__}; numbers of a file stay ints or floats: begin with "
                    "what the function sets"
                )
        numbered = [self.of.place(slot) for slot in places.slots]
        changed = [self.of.place(slot) for slot in slots]
        ends = list(zip(changed, left, strict=True))
        return form, written_numbers(self.described.operands, numbered, results, ends), calls

    def _source(self, x: Any) -> tuple[str, int]:
        return ("argument", x) if type(x) is int else ("state", self.places[id(x)])


_NOTHING = np.zeros(0)


def _within(objects: Iterable[Any]) -> set[int]:
    """The ids of what holds the attributes of objects, and of lists and dicts among these."""
    held = [vars(each) for each in objects]
    return {id(x) for each in held for x in (each, *each.values()) if type(x) in (dict, list)}


def _error(error: Exception) -> tuple[str, str]:
    """An exception of ours, by its name."""
    name = type(error).__name__
    if getattr(errors, name, None) is not type(error):
        raise Unsupported(f"export: a check that raises {name}, which is no class of adjoint's")
    return name, str(error)
