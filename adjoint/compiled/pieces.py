"""`ad.compile(mode="pieces")`: Python runs in each call, and what it recorded is run as programs.

Operations are recorded, as in `ad.lazy()`, until something is read; all that was recorded by then,
and that somebody still holds, is a piece. A piece that came before has a program, found by its
trace: ops, how they depend on one another, and shapes and dtypes of what was there before. The
first time it runs op by op, since it may never come again.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, cast
from weakref import ref

import numpy as np

from ..autograd.fusion import Written
from ..autograd.recording import execute_meanwhile
from ..backends import native
from ..core import policy
from ..core.device import CPU
from ..core.errors import Unsupported
from ..core.mode import MODE, mode_with
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.dispatch import execute
from ..eager.fused import Declared
from ..graph.lazy import LazyValue, concrete, realize
from ..graph.node import Item
from ..program.capture import program_of
from ..program.reads import PLAIN
from .capture import CAPTURING
from .handover import Argument, Fresh
from .routines import recorded
from .step import Part, is_small, unbound

Trace = tuple[Any, ...]


class PiecewiseFunction:
    """A function whose recorded pieces run as programs: see `compile`."""

    _unread = frozenset(("function", "_called", "pieces"))  # as of `CompiledFunction`

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._called = name
        self.pieces = Programs()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        return PiecewiseFunction, (self.function, self._called)

    def __repr__(self) -> str:
        return f"<compiled in pieces {self._called}>"

    @property
    def programs(self) -> list[Piece]:
        """Those of the pieces that came more than once."""
        return self.pieces.all()

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """There is no one program to explain.

        Errors: Unsupported.
        """
        raise Unsupported('explain: mode="pieces" has a program for each piece; leave mode out')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        mode = MODE.get()
        if (
            mode.executor is not None
            or mode.saved_hooks is not None
            or mode.anomaly
            or mode.observer is not None
            or mode.inlines
            or native.reason_off() is not None
        ):
            return self.function(*args, **kwargs)
        with CAPTURING:  # another thread's tensors may hold symbols
            pass
        recorder = _Recorder(self.pieces)
        token = MODE.set(mode_with(mode, executor=recorder))
        try:
            found = self.function(*args, **kwargs)
            recorder.flush()
        finally:
            MODE.reset(token)
            recorder.settle()
        return found


class _Recorder:
    """The executor of one call."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.values: list[LazyValue] = []  # recorded, and not computed yet
        self.tensors: list[ref[Any]] = []  # which are to have memory in the end

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The recorded result; random numbers are drawn at once."""
        if op.drawn:
            return _eagerly(lambda: execute(op, _concrete(inputs)))
        found = execute_meanwhile(op, inputs)
        for y in found if type(found) is tuple else (found,):
            if type(y._data) is LazyValue:
                self.tensors.append(ref(y))
                self.values.append(y._data)
        return found

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Any:
        """The recorded result of a composite that has a routine."""
        return recorded(self, declared, args)

    def update(self, optimizer: Any, groups: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        """An optimizer steps, on gradients that are computed."""
        self.flush()
        self.settle()
        _eagerly(lambda: optimizer.update_groups(groups))

    def flush(self) -> None:
        """Compute all that was recorded and that somebody holds."""
        values = _ordered(self.values)
        self.values.clear()
        wanted = _held(values)
        if wanted:
            self.programs.compute(values, wanted)

    def settle(self) -> None:
        """Give tensors memory, where their values are computed."""
        alive = [x for x in (each() for each in self.tensors) if x is not None]
        self.tensors = []
        for x in alive:
            if type(x._data) is LazyValue and x._data.array is not None:
                concrete(x)


def _eagerly(function: Callable[[], Any]) -> Any:
    token = MODE.set(mode_with(MODE.get(), executor=None))
    try:
        return function()
    finally:
        MODE.reset(token)


def _concrete(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    for x in inputs:
        if isinstance(x, TensorBase):
            concrete(x)
    return inputs


def _ordered(recorded: list[LazyValue]) -> list[LazyValue]:
    """These and what they depend on, inputs first: what is not computed yet."""
    found: dict[LazyValue, None] = {}
    for x in recorded:
        stack = [x]
        while stack:
            y = stack[-1]
            waiting = [
                z for z in y.inputs
                if isinstance(z, LazyValue) and z.array is None and z not in found
            ]  # fmt: skip
            if waiting and y.array is None and y not in found:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            op = y.op
            if y.array is not None:
                continue
            if type(op) is Item and y.inputs[0].array is not None:  # of several, all computed
                y.array, y.inputs = y.inputs[0].array[op.index], ()
            else:
                found[y] = None
    return list(found)


def _held(values: list[LazyValue]) -> list[LazyValue]:
    """Those that more than the others, and the list, refer to."""
    inside: dict[int, int] = {}
    for x in values:
        for y in x.inputs:
            if isinstance(y, LazyValue):
                inside[id(y)] = inside.get(id(y), 0) + 1
    return [
        x for x in values
        if x.dtype is not None and sys.getrefcount(x) > inside.get(id(x), 0) + _ALONE
    ]  # fmt: skip


class Programs:
    """The programs of pieces, by trace; those used last."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # With the ops of a trace, which it knows by their ids.
        self._found: OrderedDict[Trace, tuple[list[Op], Piece | None]] = OrderedDict()

    def all(self) -> list[Piece]:
        """Those that there are."""
        return [piece for _, piece in self._found.values() if piece is not None]

    def compute(self, values: list[LazyValue], wanted: list[LazyValue]) -> None:
        """Compute `wanted`, of `values` in the order in which they were recorded."""
        trace, leaves = _trace(values, wanted)
        with self._lock:
            ops, piece = self._found.get(trace, (None, None))
            if ops is None:
                _assert_on_host(values)
                self._found[trace] = [cast(Op, x.op) for x in values], None
            elif piece is None:
                piece = Piece(values, leaves, wanted)
                self._found[trace] = ops, piece
            self._found.move_to_end(trace)
            while len(self._found) > policy.COMPILED_PIECES:
                self._found.popitem(last=False)
            if piece is not None:
                arrays = piece.run([x.array for x in leaves])
                for x, array in zip(wanted, arrays, strict=True):
                    x.array = array
                    x.inputs = ()
                return
        _eagerly(lambda: realize(wanted))


def _assert_on_host(values: list[LazyValue]) -> None:
    """Refuse values of devices, whose memory is another one's."""
    for x in values:
        if x.device != CPU:
            raise Unsupported(
                f'compile: mode="pieces" with a tensor on {x.device}; leave mode out, or move '
                'tensors to the host with .to("cpu")'
            )


def _trace(values: list[LazyValue], wanted: list[LazyValue]) -> tuple[Trace, list[LazyValue]]:
    """What says which program computes `wanted`; and the values that were there before."""
    places = {id(x): n for n, x in enumerate(values)}
    leaves: list[LazyValue] = []
    parts: list[Any] = []
    for x in values:
        given: list[Any] = []
        for y in x.inputs:
            if not isinstance(y, LazyValue):
                given.append((type(y), repr(y)))
                continue
            if id(y) not in places:
                places[id(y)] = -1 - len(leaves)
                leaves.append(y)
            given.append(places[id(y)])
        parts.append((_identity(cast(Op, x.op)), *given))
    told = [(x.array.shape, x.array.dtype, x.device) for x in leaves]
    return (*parts, *told, *(places[id(x)] for x in wanted)), leaves


def _identity(op: Op) -> Any:
    """What ops that compute the same have in common; what they refer to is known by ids."""
    if "kept" in vars(op):  # one object for equal fields
        return id(op)
    return (type(op), *[_known(x) for x in vars(op).values()])


def _known(x: Any) -> Any:
    if type(x) in (tuple, list):
        return tuple([_known(each) for each in x])
    if isinstance(x, Written):  # which is made anew for each call
        return (x.function, _known(list(x.statics)), tuple(x.specs), tuple(x.wants))
    if isinstance(x, Spec):
        return x
    return (type(x), repr(x)) if type(x) in PLAIN else id(x)


class Piece:
    """A program for a trace; one thread at a time runs it."""

    def __init__(
        self, values: list[LazyValue], leaves: list[LazyValue], wanted: list[LazyValue]
    ) -> None:
        order = {id(x): n for n, x in enumerate(values)}
        program = program_of(leaves, wanted, order=lambda x: (order.get(id(x), -1), 0))
        ends = list(dict.fromkeys(program.outputs))
        part = self.part = Part(program.inputs, program.nodes, ends)
        known = unbound(program.inputs)
        places = {y: np.empty(y.shape, y.spec.dtype.numpy) for y in part.wanted if not is_small(y)}
        part.bind(known, places)
        shown = part.shown
        self.inputs = [
            Argument(known[x], () if x in shown or x in part.wanted or is_small(x) else part.calls)
            for x in program.inputs
        ]
        movable = {y for y, place in places.items() if known[y] is place}.difference(shown)
        self.outputs = [
            Fresh(known[y], part.calls if y in movable else ()) for y in program.outputs
        ]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The results, in memory of their own."""
        for target, array in zip(self.inputs, arrays, strict=True):
            target.take(array)
        for fresh in self.outputs:
            fresh.begin()
        self.part.run(None)
        return [fresh.taken() for fresh in self.outputs]


def _count_alone() -> int:
    """References to a value that only the list has, as `_held` counts them."""
    values = [LazyValue(None, (), (), np.dtype(np.float32))]
    (count,) = [sys.getrefcount(x) for x in values]
    return count


_ALONE = _count_alone()
