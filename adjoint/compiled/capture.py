"""A training step as a `Program`: the function is run once on symbols, for all that it touches.

Its arguments, and each tensor that an operation meets, hold symbols while it runs, so a value that
it reads is an error and not a constant. What tensors hold in the end that were there before is what
the step writes; leaves' gradients and optimizers' steps are noted as they happen.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..autograd.recording import execute_lazily
from ..core.errors import Unsupported
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.fused import Declared
from ..eager.tensors import wrap
from ..graph.lazy import LazyValue, record, run
from ..graph.node import Item
from ..ops.random.draws import Draw
from ..program.capture import program_of, recording
from ..program.compute import spec_of
from ..program.program import Node, Program, Value
from .backward import Backward, Cotangents, Gradients, differentiated
from .drawing import Drawn, Stream, Streams
from .returned import Returned
from .routines import whole

ndarray = np.ndarray


class Update(Op, abstract=True):
    """An optimizer's step. Its inputs are, for each group, the columns of tensors that it is about:
    parameters, gradients, each kind of state; its outputs the same without gradients, changed.
    """

    def __init__(self, optimizer: Any, groups: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        self.optimizer = optimizer
        self.groups = [(group, list(parameters)) for group, parameters in groups]
        self.columns: list[list[list[Any]]] = []  # of each group
        for group, parameters in self.groups:
            states = []
            for p in parameters:
                state = optimizer.state.get(p) or {}
                if not state and optimizer.begin(p, group):
                    raise NotReady(f"{type(optimizer).__name__} has no state yet")
                states.append(state)
            names = [name for name in states[0] if name not in optimizer.scalars]
            kinds = [[state[name] for state in states] for name in names]
            self.columns.append([parameters, [p.grad for p in parameters], *kinds])
        self.n_outputs = len(self.written())  # type: ignore[misc]

    def given(self) -> list[Any]:
        """The tensors that it reads."""
        return [x for columns in self.columns for column in columns for x in column]

    def written(self) -> list[Any]:
        """The tensors that it writes."""
        return [x for first, _, *more in self.columns for column in (first, *more) for x in column]

    def infer(self, *specs: Spec) -> Any:
        """Those of what is written."""
        by_tensor = dict(zip(map(id, self.given()), specs, strict=True))
        return tuple(by_tensor[id(x)] for x in self.written())


class Met(NamedTuple):
    """A tensor that was there before, with what it held."""

    tensor: Any
    array: Any
    symbol: LazyValue
    node: Any
    gradient: Any  # of a leaf


class Captured(NamedTuple):
    """What a step does."""

    program: Program  # its inputs are the arguments, then the states
    arguments: int
    states: list[Any]  # tensors that it reads or writes; None for gradients
    written: list[int]  # which of them it writes: the first outputs
    leaves: list[Any]  # tensors whose gradients it sets: the next outputs
    owners: list[Any]  # for each state the leaf whose gradient it is, or None
    presence: list[tuple[Any, bool]]  # leaves that are to have a gradient before, or none
    dropped: list[Any]  # leaves that have none afterwards
    returned: Returned  # of the next outputs
    updates: list[Node]
    streams: list[Stream]  # from which it draws
    backward: Backward  # from the returned ones; its gradients are the next outputs
    errors: list[Callable[[], Exception]]  # for each of the last outputs, raised where that is true
    wants: list[bool]  # for each state whether it wanted a gradient


class _Recorder:
    """Records ops on symbols for whatever they touch."""

    def __init__(self) -> None:
        self.met: dict[int, Met] = {}
        self.views: list[tuple[Any, Any, Any]] = []
        self.fresh: dict[int, tuple[Any, Any]] = {}  # tensors made meanwhile, by id: their arrays
        self.order: dict[int, tuple[int, int]] = {}  # of recorded values, by id
        self.alive: list[Any] = []  # those values
        self.streams = Streams(_READS)
        self.checks: list[tuple[LazyValue, Callable[[], Exception]]] = []
        self.updates = 0  # of optimizers
        self.set: set[int] = set()  # ids of leaves whose gradient was set
        self.read: set[int] = set()  # of those of which it was read whether they have one
        self.cleared: set[int] = set()  # of those whose gradient was set before any was added to it

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The recorded result."""
        for x in inputs:
            if isinstance(x, TensorBase):
                self.meet(x)
        if isinstance(op, Draw):  # no number may be read while there is none
            op = Drawn(op, self.streams.all)
        found = execute_lazily(op, inputs)
        for y in found if type(found) is tuple else (found,):
            self.note(y._data)
        return found

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Any:
        """The recorded result of a composite; NotImplemented where its own ops are recorded."""
        taken = whole(declared, args)
        if taken is None:
            return NotImplemented
        op, inputs = taken
        found = self(op, inputs)
        results = found if type(found) is tuple else (found,)
        return results[: len(op.written.outputs)] if op.written.several else results[0]

    def note(self, value: Any, executed: bool = True) -> None:
        """A value was recorded: now, where an op has `executed`. What it is computed from and was
        recorded by no op of the program's, as writes to views are, stands as early as it can, since
        what comes behind an optimizer's step or the results may not be read before.
        """
        own = {id(value)} if executed else set()
        if executed and isinstance(value, LazyValue) and type(value.op) is Item:
            own.add(id(value.inputs[0]))
        stack = [value]
        while stack:
            x = stack[-1]
            if not isinstance(x, LazyValue) or x.op is None or id(x) in self.order:
                stack.pop()
                continue
            before = [y for y in x.inputs if isinstance(y, LazyValue) and y.op is not None]
            waiting = [y for y in before if id(y) not in self.order]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            number = len(self.alive)
            if id(x) in own:
                self.order[id(x)] = number, 0
            else:
                last = max((self.order[id(y)][0] for y in before), default=-1)
                self.order[id(x)] = last, number + 1
            self.alive.append(x)

    def note_fresh(self, x: Any) -> None:
        """The function has made a tensor of constants: what is written there is no state."""
        if type(x._data) is ndarray:
            self.fresh[id(x)] = x, x._data

    def meet(self, x: Any) -> None:
        """Give a tensor a symbol, and its gradient too; to one that is fresh, a constant."""
        if type(x._data) is not ndarray:
            if not isinstance(x._data, LazyValue):
                raise Unsupported("compile: a tensor that is not in the host's memory")
            return
        if id(x) in self.fresh and not (x._version is not None and x._version.exported):
            constant = LazyValue(None, (), x._data.shape, x._data.dtype)
            constant.array = x._data
            x._data = constant
            return
        if x._view is not None:
            self.meet(x._view.base)
            self.views.append((x, x._data, x._node))
            value = x._view.base._data
            for op in x._view.ops:
                value = record(op, (value,))
                self.note(value)
            x._data = value
            return
        symbol = LazyValue(None, (), x._data.shape, x._data.dtype)
        leaf = x._leaf
        self.met[id(x)] = Met(x, x._data, symbol, x._node, None if leaf is None else leaf.grad)
        x._data = symbol
        if leaf is not None and leaf.grad is not None:
            self.meet(leaf.grad)

    def shows(self, view: LazyValue, x: LazyValue) -> bool:
        """Whether a reshape of `x`, which may be a view of others, shows its memory: what ops have
        computed lies row-major in a program, other memory as it does.
        """
        if view is x:
            return True
        ops: list[Any] = [view.op]
        while x.op is not None and x.op.view and x.op.n_outputs == 1 and len(x.inputs) == 1:
            ops.append(x.op)
            x = x.inputs[0]
        array = next((m.array for m in self.met.values() if m.symbol is x), x.array)
        array = np.empty(x.shape, x.dtype) if array is None else array
        for op in reversed(ops[1:]):
            array = run(op, [array])
        return bool(np.may_share_memory(run(ops[0], [array]), array))

    def sources(self) -> list[Any]:
        """Tensors with a history of their own, whose gradients may be wanted; each node once."""
        known = [(x, node) for x, _, node in self.views]
        known += [(m.tensor, m.node) for m in self.met.values()]
        found = {node: x for x, node in known if node is not None and x._node is node}
        return list(found.values())

    def note_draw(self, generator: Any) -> tuple[int, int]:
        """The program draws random numbers."""
        return self.streams.next_draw(generator)

    def note_gradient(self, x: Any) -> None:
        """The program is about to set the gradient of `x`."""
        self.meet(x)
        self.set.add(id(x))
        g = None if x._leaf is None else x._leaf.grad
        if g is None or id(g) in self.met:
            self.cleared.add(id(x))

    def note_gradient_read(self, x: Any) -> None:
        """Python reads whether `x` has a gradient."""
        self.meet(x)
        met = self.met.get(id(x))
        if met is not None and x._leaf.grad is met.gradient:
            self.read.add(id(x))

    def note_check(self, wrong: Any, error: Callable[[], Exception]) -> None:
        """Each run of the program is to raise an error where a value is true."""
        if isinstance(wrong._data, LazyValue):
            self.checks.append((wrong._data, error))
        elif bool(wrong):
            raise error()

    def note_read(self) -> None:
        """The program reads a value."""
        raise Unsupported(_READS)

    def update(self, optimizer: Any, groups: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        """An optimizer steps."""
        op = Update(optimizer, groups)
        self.updates += 1
        for x in op.given():
            self.meet(x)
        found = record(op, tuple([x._data for x in op.given()]))
        for x, value in zip(op.written(), found, strict=True):
            self.note(value)
            x._data = value

    def restore(self) -> None:
        """Give all tensors back what they held, and generators their states."""
        self.streams.restore()
        for x, array in self.fresh.values():
            x._data = array  # which may be known elsewhere by now
        for x, array, node in self.views:
            x._data, x._node = array, node
        for met in self.met.values():
            met.tensor._data, met.tensor._node = met.array, met.node
            if met.tensor._leaf is not None:
                met.tensor._leaf.grad = met.gradient


CAPTURING = threading.RLock()  # by one thread at a time: tensors hold symbols meanwhile


class Reached(Unsupported):
    """Leaves among the arguments get gradients: they are to be known by identity."""


class NotReady(Unsupported):
    """The step is to be run eagerly first."""


_READS = (
    "compile: the function reads a value (item, bool, int, a loop over a tensor), on which a "
    "program cannot depend; use where(), or read it after the call"
)


def capture(
    function: Callable[..., Any], arguments: Sequence[Any], grad: bool = True, autocast: Any = None
) -> Captured:
    """What `function` does with tensors like `arguments`, which stay as they are, in a mode.

    Errors: Unsupported for what cannot be captured; NotReady where an optimizer has no state yet.
    """
    recorder = _Recorder()
    given_leaves = [x._leaf is not None for x in arguments]
    wanting = [grad and x._node is not None for x in arguments]
    arguments = [wrap(x._data) for x in arguments]
    for x, wants in zip(arguments, wanting, strict=True):
        if wants:
            x.requires_grad_()
        recorder.meet(x)
    count = len(recorder.met)
    try:
        with recording(_READS, executor=recorder, grad=grad, autocast=autocast):
            found = function(*arguments)
            returned = Returned(found, recorder.met, arguments)
            del found
            values = [y._data for y in returned.tensors]
            _assert_within(arguments, given_leaves)
            sources = recorder.sources()
            names = [next((n for n, y in enumerate(arguments) if x is y), x) for x in sources]
            back = differentiated(
                () if recorder.updates else returned.tensors, sources, recorder.note
            )
            returned.close("an optimizer has stepped" if recorder.updates else back.why)
        met = list(recorder.met.values())
        if any(m.tensor._node is not m.node for m in met):
            raise Unsupported(
                "compile: a tensor from outside gets a history, or another requires_grad; set "
                "that outside of the function"
            )
        ends = [(m, m.tensor._leaf.grad) for m in met if m.tensor._leaf is not None]
        for m, g in ends:
            known = g is not None and (id(g) in recorder.met or type(g._data) is ndarray)
            if known and g is not m.gradient:
                raise Unsupported(
                    "compile: a gradient that no operation has computed; give backward a clone"
                )
        owners = {id(m.gradient): m.tensor for m in met if m.gradient is not None}
        if len(owners) < sum(m.gradient is not None for m in met):
            raise Unsupported(
                "compile: two tensors have one and the same gradient; give one of them a clone"
            )
        presence = [
            (m.tensor, m.gradient is not None)
            for m, g in ends
            if id(m.tensor) not in recorder.cleared
            and (
                id(m.tensor) in recorder.read
                or (m.gradient is None and (g is not None or id(m.tensor) in recorder.set))
            )
        ]
        dropped = [m.tensor for m, g in ends if g is None and id(m.tensor) in recorder.set]
        computed = [(m.tensor, g) for m, g in ends if g is not None and id(g) not in recorder.met]
        leaves, gradients = [x for x, _ in computed], [g._data for _, g in computed]
        written = [n for n, m in enumerate(met) if m.tensor._data is not m.symbol]
        del ends, computed
        given = [m.symbol for m in met]
        values = [*(met[n].tensor._data for n in written), *gradients, *values]
        errors = [wrong for wrong, _ in recorder.checks]

        def read(tangents: Sequence[Any]) -> Program:
            ends = [*values, *tangents, *errors]
            for value in ends:
                recorder.note(value, executed=False)
            order = recorder.order
            return program_of(given, ends, _constant, lambda value: order[id(value)])

        program = read([g for _, g, _ in back.found])
        if back.found and _reads_written(program, written):
            back = Gradients()
            returned.close("it needs what the function has overwritten")
            program = read(())
    finally:
        recorder.restore()
    _assert_apart(met, written)
    if any(id(met[n].tensor) in recorder.fresh for n in written):
        raise Unsupported(
            "compile: the function writes to memory that a tensor shares with an array "
            "(from_numpy, as_tensor); use tensor(), which copies"
        )
    if any(n < count for n in written):
        raise Unsupported("compile: the function writes to an argument; write to a clone")
    states = []
    for value, m in zip(program.inputs[count:], met[count:], strict=True):
        # What nobody holds any more but `recorder.met`, `met` and `m` stays as it is.
        if m.tensor._leaf is None and sys.getrefcount(m.tensor) <= _HELD:
            value.array = m.array
        states.append(None if id(m.tensor) in owners else m.tensor)
    recorder.streams.take_over(program.nodes)
    updates = [node for node in program.nodes if isinstance(node.op, Update)]
    step = next((node for node in program.nodes if isinstance(node.op, Cotangents)), None)
    if step is None and back.found:  # gradients that depend on none
        ys = [program.outputs[len(written) + len(leaves) + n] for n in back.results]
        step = Node(Cotangents(len(ys)), ys, [y.spec for y in ys])
        program.nodes.append(step)
    return Captured(
        program, count, states, [n - count for n in written], leaves,
        [owners.get(id(m.tensor)) for m in met[count:]], presence, dropped, returned, updates,
        recorder.streams.all,
        Backward(
            step, back.results, [names[k] for k, *_ in back.found], [n for *_, n in back.found]
        ),
        [error for _, error in recorder.checks], [m.node is not None for m in met[count:]],
    )  # fmt: skip


def _assert_within(arguments: Sequence[Any], leaves: Sequence[bool]) -> None:
    """Refuse a backward that has reached an argument."""
    for x, is_leaf in zip(arguments, leaves, strict=True):
        if x._leaf is not None and x._leaf.grad is not None:
            if is_leaf:
                raise Reached("compile: the gradient of an argument is set")
            raise Unsupported(
                "compile: a backward within the function reaches an argument that was computed "
                "with gradients outside; call backward outside, or detach the argument"
            )


def _reads_written(program: Program, written: Sequence[int]) -> bool:
    """Whether what comes behind the results reads a state that was written meanwhile."""
    changed = {program.inputs[n] for n in written}
    behind = False
    for node in program.nodes:
        behind = behind or isinstance(node.op, Cotangents)
        if behind and not changed.isdisjoint(node.values):
            return True
    return False


def _assert_apart(met: Sequence[Met], written: Sequence[int]) -> None:
    """Refuse tensors that share memory, as `x` and `x.detach()` do, where something is written."""
    changed = {id(met[n].array) for n in written}
    spans = sorted(
        (m.array.ctypes.data, m.array.ctypes.data + m.array.nbytes, id(m.array) in changed)
        for m in met
        if m.array.size
    )
    end, writes = 0, False
    for first, last, changes in spans:
        if first < end and (changes or writes):
            raise Unsupported(
                "compile: memory that is written is shown by another tensor too (x.detach(), "
                "x.data); use one of them in the function, or x.detach().clone()"
            )
        writes = changes or (writes and first < end)
        end = max(end, last)


_HELD = 2  # references to a tensor in one `Met` as `sys.getrefcount` counts them


def _constant(data: Any) -> Value:
    array = data.array if isinstance(data, LazyValue) else data
    return Value(spec_of(array), array=array)
