"""Graph breaks (`ad.compile(mode="pieces")`): Python runs in each call, and the ops between reads
run as compiled fragments.

Operations are recorded, as in `ad.lazy()`, until a value is read. The recorded values that are
still referenced then form a fragment (a piece). A fragment is identified by its trace: ops, how
they depend on one another, and shapes and dtypes of its inputs. It runs op by op the first time,
since it may never come again, and as a compiled program from then on.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn, cast
from weakref import ref

import numpy as np

from ...autograd.capture import program_of
from ...autograd.fusion import HandWritten
from ...autograd.recording import execute_meanwhile
from ...backends import native
from ...core import fork_safety, policy
from ...core.device import CPU
from ...core.errors import Unsupported
from ...core.mode import MODE, mode_with
from ...core.op import Op
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.dispatch import execute
from ...runtime.fused import Declared
from ...runtime.lazy import LazyValue, concrete, realize
from ...runtime.node import Item
from ..bound import BoundWhenRead, P, R
from ..guards.slots import PLAIN
from ..run.bindings import InputBinding, OutputBinding
from ..run.segment import Segment, is_small, unbound
from .routine_ops import recorded
from .step_capture import CAPTURING

Trace = tuple[Any, ...]


class FragmentedFunction(BoundWhenRead[P, R]):
    """A function that is compiled with graph breaks: see `compile`."""

    _unread = frozenset(("function", "_called", "pieces"))  # see `CompiledFunction`

    def __init__(self, function: Callable[P, R], name: str) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._called = name
        self.pieces = FragmentCache()

    def __reduce__(self) -> tuple[Any, ...]:
        return FragmentedFunction, (self.function, self._called)

    def __repr__(self) -> str:
        return f"<compiled in pieces {self._called}>"

    @property
    def programs(self) -> list[Fragment]:
        """Programs of the fragments that came more than once."""
        return self.pieces.all()

    def explain(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused: there is no one program to explain.

        Errors: Unsupported.
        """
        raise Unsupported('explain: mode="pieces" has a program for each piece; leave mode out')

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, recording its ops and running them as fragments."""
        mode = MODE.get()
        if (
            mode.executor is not None
            or mode.saved_hooks is not None
            or mode.anomaly
            or mode.observer is not None
            or mode.inlines
            or native.unusable() is not None
        ):
            return self.function(*args, **kwargs)
        with CAPTURING:  # another thread's tensors may hold symbols
            pass
        recorder = _FragmentRecorder(self.pieces)
        within = mode_with(mode, executor=recorder)
        try:
            MODE.set(within)
            result = self.function(*args, **kwargs)
            recorder.flush()
        finally:  # what the function leaves switched stays so
            left = MODE.get()
            MODE.set(mode if left is within else mode_with(left, executor=None))
            recorder.settle()
        return result


class _FragmentRecorder:
    """Executor of one call, which records ops until a value is read."""

    def __init__(self, programs: FragmentCache) -> None:
        self.programs = programs
        self.values: list[LazyValue] = []  # recorded, and not computed yet
        self.tensors: list[ref[Any]] = []  # recorded tensors, which get memory in the end

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """Record an op and return its result; random numbers are drawn at once."""
        if op.drawn:
            return _eagerly(lambda: execute(op, _concrete(inputs)))
        result = execute_meanwhile(op, inputs)
        for y in result if type(result) is tuple else (result,):
            if type(y._data) is LazyValue:
                self.tensors.append(ref(y))
                self.values.append(y._data)
        return result

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """Record a composite that has a routine as one op."""
        return recorded(self, declared, args)

    def update(self, optimizer: Any, groups: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        """Compute the gradients, and let an optimizer step eagerly."""
        self.flush()
        self.settle()
        _eagerly(lambda: optimizer.update_groups(groups))

    def flush(self) -> None:
        """Compute all recorded values that are still referenced."""
        values = _ordered(self.values)
        self.values.clear()
        referenced = _held(values)
        if referenced:
            self.programs.compute(values, referenced)

    def settle(self) -> None:
        """Give tensors whose values are computed their memory."""
        alive = [x for x in (each() for each in self.tensors) if x is not None]
        self.tensors = []
        for x in alive:
            if type(x._data) is LazyValue and x._data.array is not None:
                concrete(x)


def _eagerly(function: Callable[[], R]) -> R:
    outside = MODE.get()
    try:
        MODE.set(mode_with(MODE.get(), executor=None))
        return function()
    finally:
        MODE.set(outside)


def _concrete(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    for x in inputs:
        if isinstance(x, TensorBase):
            concrete(x)
    return inputs


def _ordered(recorded: list[LazyValue]) -> list[LazyValue]:
    """Values that are not computed yet, with those that they depend on, in topological order."""
    order: dict[LazyValue, None] = {}
    for x in recorded:
        stack = [x]
        while stack:
            y = stack[-1]
            waiting = [
                z for z in y.inputs
                if isinstance(z, LazyValue) and z.array is None and z not in order
            ]  # fmt: skip
            if waiting and y.array is None and y not in order:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            op = y.op
            if y.array is not None:
                continue
            if (
                type(op) is Item and y.inputs[0].array is not None
            ):  # one of several computed outputs
                y.array, y.inputs = y.inputs[0].array[op.index], ()
            else:
                order[y] = None
    return list(order)


def _held(values: list[LazyValue]) -> list[LazyValue]:
    """Values that are referenced from elsewhere than other values and the list."""
    inside: dict[int, int] = {}
    for x in values:
        for y in x.inputs:
            if isinstance(y, LazyValue):
                inside[id(y)] = inside.get(id(y), 0) + 1
    return [
        x for x in values
        if x.dtype is not None and sys.getrefcount(x) > inside.get(id(x), 0) + _ALONE
    ]  # fmt: skip


class FragmentCache:
    """Cache of compiled fragments by trace, which keeps those used last."""

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        # The ops of a trace are kept alive, since it identifies them by id.
        self._found: OrderedDict[Trace, tuple[list[Op], Fragment | None]] = OrderedDict()

    def all(self) -> list[Fragment]:
        """The compiled fragments."""
        return [piece for _, piece in self._found.values() if piece is not None]

    def compute(self, values: list[LazyValue], outputs: list[LazyValue]) -> None:
        """Compute `outputs` of the recorded `values`, by a program if this trace came before."""
        trace, leaves = _trace(values, outputs)
        with self._lock:
            ops, piece = self._found.get(trace, (None, None))
            if ops is None:
                _assert_on_host(values)
                self._found[trace] = [cast(Op, x.op) for x in values], None
            elif piece is None:
                piece = Fragment(values, leaves, outputs)
                self._found[trace] = ops, piece
            self._found.move_to_end(trace)
            while len(self._found) > policy.COMPILED_PIECES:
                self._found.popitem(last=False)
            if piece is not None:
                arrays = piece.run([x.array for x in leaves])
                for x, array in zip(outputs, arrays, strict=True):
                    x.array = array
                    x.inputs = ()
                return
        _eagerly(lambda: realize(outputs))


def _assert_on_host(values: list[LazyValue]) -> None:
    """Refuse values of other devices."""
    for x in values:
        if x.device != CPU:
            raise Unsupported(
                f'compile: mode="pieces" with a tensor on {x.device}; leave mode out, or move '
                'tensors to the host with .to("cpu")'
            )


def _trace(values: list[LazyValue], outputs: list[LazyValue]) -> tuple[Trace, list[LazyValue]]:
    """Key of the fragment that computes `outputs`, and its inputs."""
    number_of = {id(x): n for n, x in enumerate(values)}
    leaves: list[LazyValue] = []
    parts: list[Any] = []
    for x in values:
        inputs: list[Any] = []
        for y in x.inputs:
            if not isinstance(y, LazyValue):
                inputs.append((type(y), repr(y)))
                continue
            if id(y) not in number_of:
                number_of[id(y)] = -1 - len(leaves)
                leaves.append(y)
            inputs.append(number_of[id(y)])
        parts.append((_identity(cast(Op, x.op)), *inputs))
    told = [(x.array.shape, x.array.dtype, x.device) for x in leaves]
    return (*parts, *told, *(number_of[id(x)] for x in outputs)), leaves


def _identity(op: Op) -> Hashable:
    """Key of an op, equal for ops that compute the same; objects that it refers to are
    known by id.
    """
    if "kept" in vars(op):  # one object for equal fields
        return id(op)
    return (type(op), *[_known(x) for x in vars(op).values()])


def _known(x: Any) -> Hashable:
    if type(x) in (tuple, list):
        return tuple([_known(each) for each in x])
    if isinstance(x, HandWritten):  # made anew for each call, so not known by id
        return (x.function, _known(list(x.statics)), tuple(x.specs), tuple(x.wants))
    if isinstance(x, Spec):
        return x
    return (type(x), repr(x)) if type(x) in PLAIN else id(x)


class Fragment:
    """A compiled fragment; one thread at a time runs it."""

    def __init__(
        self, values: list[LazyValue], leaves: list[LazyValue], outputs: list[LazyValue]
    ) -> None:
        order = {id(x): n for n, x in enumerate(values)}
        program = program_of(leaves, outputs, order=lambda x: (order.get(id(x), -1), 0))
        ends = list(dict.fromkeys(program.outputs))
        part = self.part = Segment(program.inputs, program.nodes, ends)
        bound = unbound(program.inputs)
        output_arrays = {
            y: np.empty(y.shape, y.spec.dtype.numpy) for y in part.wanted if not is_small(y)
        }
        part.bind(bound, output_arrays)
        shown = part.shown
        self.inputs = [
            InputBinding(
                bound[x], () if x in shown or x in part.wanted or is_small(x) else part.calls
            )
            for x in program.inputs
        ]
        movable = {y for y, array in output_arrays.items() if bound[y] is array}.difference(shown)
        self.outputs = [
            OutputBinding(bound[y], part.calls if y in movable else ()) for y in program.outputs
        ]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Compute the results in new memory."""
        for target, array in zip(self.inputs, arrays, strict=True):
            target.take(array)
        for fresh in self.outputs:
            fresh.begin()
        self.part.run(None)
        return [fresh.taken() for fresh in self.outputs]


def _count_alone() -> int:
    """Reference count of a value that only a list holds, as `_held` counts it."""
    values = [LazyValue(None, (), (), np.dtype(np.float32))]
    (count,) = [sys.getrefcount(x) for x in values]
    return count


_ALONE = _count_alone()
