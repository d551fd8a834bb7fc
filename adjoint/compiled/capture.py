"""A training step as a `Program`: the function is run once on symbols, for all that it touches.

Its arguments, and each tensor that an operation meets, hold symbols while it runs, so a value that
it reads is an error and not a constant. What tensors hold in the end that were there before is what
the step writes; leaves' gradients and optimizers' steps are noted as they happen.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..autograd.recording import execute_lazily
from ..core import policy
from ..core.deferred import Later
from ..core.device import CPU, device_of, is_device_array
from ..core.errors import Unsupported
from ..core.mode import MODE
from ..core.op import Op
from ..core.overrides import asks
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.fused import Declared
from ..eager.tensors import wrap
from ..eager.views import register_view
from ..graph.cells import Cell
from ..graph.lazy import LazyValue, record, run
from ..graph.memory_order import memory_like
from ..graph.node import INFERENCE, Item, Version
from ..ops.create.conversion import Transfer
from ..ops.index.selected import Selected, of_selected
from ..ops.promotion import with_wide_numbers
from ..ops.random.draws import Draw
from ..program.capture import program_of, recording
from ..program.compute import spec_of
from ..program.program import Node, Program, Value
from .arguments import assert_apart, place_of
from .backward import Backward, Cotangents, Gradients, differentiated
from .drawing import Advance, Stream, Streams
from .places import Operands
from .returned import Returned
from .routines import recorded

ndarray = np.ndarray


class Update(Op, abstract=True):
    """An optimizer's step. Its inputs are, for each group, the columns of tensors that it is about:
    parameters, gradients, each kind of state; its outputs the same without gradients, changed.
    """

    def __init__(self, optimizer: Any, groups: Sequence[tuple[Any, Sequence[Any]]]) -> None:
        self.optimizer = optimizer
        self.groups = [(group, list(parameters)) for group, parameters in groups]
        self.skips = False  # where the last input is true
        self.options: list[tuple[Any, str, Any]] = []  # groups, and what they are to hold meanwhile
        self.columns: list[list[list[Any]]] = []  # of each group
        for group, parameters in self.groups:
            states = []
            for p in parameters:
                state = optimizer.state.get(p) or {}
                if not state and optimizer.begin(p, group):
                    raise NotReady(optimizer, self.groups)
                states.append(state)
            if _lacking(optimizer, group, states):
                raise NotReady(optimizer, self.groups)
            names = [name for name in states[0] if name not in optimizer.scalars]
            kinds = [[state[name] for state in states] for name in names]
            self.columns.append([parameters, [p.grad for p in parameters], *kinds])
        self.n_outputs = len(self.written())  # type: ignore[misc]

    def forget_gradients(self) -> None:
        """Keep nothing of a capture that is over: symbols, and all that they were computed from."""
        for columns in self.columns:
            columns[1] = [None] * len(columns[0])

    def given(self) -> list[Any]:
        """The tensors that it reads; of gradients None, once the capture is over."""
        return [x for columns in self.columns for column in columns for x in column]

    def written(self) -> list[Any]:
        """The tensors that it writes."""
        return [x for first, _, *more in self.columns for column in (first, *more) for x in column]

    def resized(self, fill: Callable[[Any], Any]) -> Op:
        """One of its own: states have the sizes that they have, and may be replaced."""
        made = copy.copy(self)
        made.columns = [[list(column) for column in columns] for columns in self.columns]
        return made

    def infer(self, *specs: Spec) -> Any:
        """Those of what is written."""
        by_tensor = dict(zip(map(id, self.given()), specs, strict=not self.skips))
        return tuple(by_tensor[id(x)] for x in self.written())


def _lacking(optimizer: Any, group: Any, states: Sequence[Any]) -> list[tuple[Any, Any]]:
    """What states lack that began with other options than the group has now: each, and its rest."""
    whole = [dict(state) for state in states]
    optimizer.complete(group, whole)
    pairs = zip(states, whole, strict=True)
    rests = [(s, {key: x for key, x in w.items() if key not in s}) for s, w in pairs]
    return [(state, rest) for state, rest in rests if rest]


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
    written: list[int]  # which of them, and (~n) of the arguments, it writes: the first outputs
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
    calls: list[Callable[..., Any]]  # to be made after each run, with the last of what is returned
    options: int  # how many numbers of a run are optimizers' options: the first
    alike: list[tuple[Any, Any]]  # tensors, and those that show the same memory
    device: Any  # of all tensors
    looked: list[tuple[Any, Any]]  # tensors whose values Python has read, and these
    ordered: list[tuple[int, bool]]  # inputs that are to lie row-major; and to begin a storage


class _Recorder:
    """Records ops on symbols for whatever they touch."""

    def __init__(self, operands: Operands) -> None:
        self.operands = operands
        self.mode = MODE.get()  # outside
        operands.settle, operands.undo = self.assert_delayed, self.undo_delayed
        self.calls: list[tuple[Callable[..., Any], Any, Any]] = []  # to be made after each run
        self.delayed: list[tuple[dict[str, Any], str, Any, Later]] = []  # what they change
        self.met: dict[int, Met] = {}
        self.views: list[tuple[Any, Any, Any]] = []
        self.outside: list[tuple[Any, Any, Any]] = []  # views that the function may not know
        self.places: dict[Any, Met] | None = None  # by their memory, arguments excepted
        self.alike: list[tuple[Any, ...]] = []  # tensors, others of that memory; see `_join`
        self.fresh: dict[int, tuple[Any, Any]] = {}  # tensors made meanwhile, by id: their arrays
        self.order: dict[int, tuple[int, int]] = {}  # of recorded values, by id
        self.alive: list[Any] = []  # those values
        self.streams = Streams(_READS)
        self.checks: list[tuple[LazyValue, Callable[[], Exception]]] = []
        self.device: Any = None  # of all that was met
        self.updates = 0  # of optimizers
        self.skip: Any = None  # a value where that is true, optimizers do not step
        self.set: set[int] = set()  # ids of leaves whose gradient was set
        self.read: set[int] = set()  # of those of which it was read whether they have one
        self.counts: list[tuple[Any, int]] = []  # versions that steps of optimizers have counted
        self.cleared: set[int] = set()  # of those whose gradient was set before any was added to it
        self.hooked: dict[int, tuple[Any, dict[int, Any], dict[int, Any]]] = {}  # see `note_hooks`
        self.computed: set[int] = set()  # ids of arguments that have a history outside
        self.given: set[int] = set()  # ids of arguments, which another call may give other values
        self.looked: dict[int, tuple[Any, Any]] = {}  # tensors that are to hold what they do
        self.ordered: dict[int, bool] = {}  # ids of symbols; see `note_memory`

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The recorded result."""
        for rule in (of_selected, with_wide_numbers):
            found = rule(op, inputs, self)
            if found is not NotImplemented:
                return found
        for x in inputs:
            if isinstance(x, TensorBase):
                self.meet(x)
        if isinstance(op, Draw):
            op, inputs = self.streams.drawn(op, inputs)
        found = execute_lazily(op, inputs)
        if self.device not in (None, CPU) and self._leaves_device(op, inputs, found):
            moved = [
                self(Transfer(self.device), (x,))
                if isinstance(x, TensorBase) and x.device == CPU
                else x
                for x in inputs
            ]
            found = execute_lazily(op, tuple(moved))
        for y in found if type(found) is tuple else (found,):
            self.note(y._data)
        return found

    def _leaves_device(self, op: Op, inputs: tuple[Any, ...], found: Any) -> bool:
        """Whether an op of tensors of the device, and of numbers of the host, gives some of the
        host's: which is so for those that go by a number's tensor, not by all.
        """
        if isinstance(op, Transfer):
            return False
        results = found if type(found) is tuple else (found,)
        return any(y.device == CPU for y in results) and any(
            isinstance(x, TensorBase) and x.device == self.device for x in inputs
        )

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Any:
        """The recorded result of a composite; NotImplemented where its own ops are recorded."""
        if any(isinstance(x, TensorBase) and type(x._data) is Selected for x in args):
            return NotImplemented
        return recorded(self, declared, args)

    def note(self, value: Any, executed: bool = True) -> None:
        """A value was recorded: now, where an op has `executed`. What it is computed from and was
        recorded by no op of the program's, as writes to views are, stands as early as it can, since
        what comes behind an optimizer's step or the results may not be read before.
        """
        if type(value) is Selected:
            raise Unsupported(_SELECTED)
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
        if type(x._data) is ndarray or is_device_array(x._data):
            self.fresh[id(x)] = x, x._data

    def meet(self, x: Any, shape: Any = None) -> None:
        """Give a tensor a symbol, and its gradient too; to one that is fresh, a constant. `shape`
        is its own unless sizes are numbers.
        """
        if type(x._data) is not ndarray and not is_device_array(x._data):
            if not isinstance(x._data, LazyValue):
                raise Unsupported("compile: a tensor that holds no values")
            if isinstance(x._data, Cell):
                raise Unsupported(
                    f"compile: the function reads a node of a graph, {x._data.label!r}; give it as "
                    "an argument, or call the function inside `with graph:`"
                )
            return
        if id(x) in self.fresh and not (x._changes is not None and x._changes.exported):
            device = self._device_of(x)
            constant = LazyValue(None, (), x._data.shape, x._data.dtype, device)
            constant.array = x._data
            x._data = constant
            return
        if x._view is not None and x._leaf is None:  # a leaf is a state, of whatever memory
            self.meet(x._view.base)
            self.views.append((x, x._data, x._node))
            value = x._view.base._data
            for op in x._view.ops:
                value = record(op, (value,))
                self.note(value)
            x._data = value
            return
        leaf = x._leaf
        device = self._device_of(x)
        place = place_of(x._data)
        known = None if self.places is None else self.places.get(place)
        if known is not None and leaf is None:
            self.views.append((x, x._data, x._node))
            self._join(x, known.tensor)
            return
        symbol = LazyValue(None, (), shape or x._data.shape, x._data.dtype, device)
        if known is not None and known.tensor._leaf is None:  # the leaf is the state
            symbol = known.symbol
            del self.met[id(known.tensor)]
            self.views.append((known.tensor, known.array, known.node))
        if self.operands.resized is not None and type(x._data) is ndarray:
            symbol.lies = _strides(x._data)
        met = Met(x, x._data, symbol, x._node, None if leaf is None else leaf.grad)
        self.met[id(x)] = met
        if x._changes is not None:  # what is outside and shows a write meanwhile
            views = [reference() for reference in x._changes.views or ()]
            self.outside += [(y, y._data, y._node) for y in views if y is not None]
        x._data = symbol
        if self.places is not None and met.array.size:
            self.places[place] = met
        if known is not None and symbol is known.symbol:
            x._data = known.tensor._data
            self._join(known.tensor, x)
        if leaf is not None and leaf.grad is not None:
            self.meet(leaf.grad)

    def known_values(self, x: Any) -> Any:
        """The values of a tensor that is computed from constants, and from small tensors of
        integers or booleans from outside, which are to hold the same from now on; None for others.
        """
        self.meet(x)
        symbols = {id(m.symbol): m for m in self.met.values()}
        looked, stack, seen = [], [x._data], set()
        while stack:
            value = stack.pop()
            if id(value) in seen or not isinstance(value, LazyValue) or value.array is not None:
                continue
            seen.add(id(value))
            if value.op is None:
                met = symbols.get(id(value))
                if met is None or not self._stays(met):
                    return None
                looked.append(met)
            elif value.op.drawn or value.op.opaque or value.op.n_outputs != 1:
                return None
            stack.extend(value.inputs)
        program = program_of([m.symbol for m in looked], [x._data], _constant)
        arrays = {y: m.array for y, m in zip(program.inputs, looked, strict=True)}
        for node in program.nodes:
            given = [arrays.get(y, y.array) if type(y) is Value else y for y in node.inputs]
            arrays[node.output] = run(node.op, given)
        for m in looked:
            self.looked[id(m.tensor)] = m.tensor, m.array.copy()
        [y] = program.outputs
        return arrays.get(y, y.array)

    def _stays(self, met: Met) -> bool:
        """Whether a tensor from outside is expected to hold the same in the next call."""
        x, array = met.tensor, met.array
        return (
            type(array) is ndarray
            and array.dtype.kind in "bui"
            and array.nbytes <= policy.GUARDED_BYTES
            and id(x) not in self.given
            and id(x) not in self.fresh
            and id(x) not in self.operands.varying
        )

    def _device_of(self, x: Any) -> Any:
        """Where a tensor is: where all are.

        Errors: Unsupported for a second device, and for the one of tensors without elements.
        """
        place = CPU if type(x._data) is ndarray else device_of(x._data)
        if place.type == "meta":
            raise Unsupported(
                "compile: tensors on meta have no elements, so that there is nothing to compile; "
                "call the function itself, which infers shapes and dtypes"
            )
        if x._data.ndim or place != CPU:  # one of the host without dimensions is a number
            self.device = self.device or place
            if place != self.device:
                raise Unsupported(
                    f"compile: tensors on {self.device} and {place} in one function; a program is "
                    f"of one device: move them outside with .to({str(self.device)!r})"
                )
        return place

    def _join(self, x: Any, other: Any) -> None:
        """Let writes to `x` and to `other`, which show one memory, be seen by both."""
        if other._changes is None:
            other._changes = Version()
        version = other._changes
        self.alike.append((x, other, x._changes, version, list(version.views or ())))
        x._data, x._changes = other._data, version
        for each in (x, other):
            if all(reference() is not each for reference in other._changes.views or ()):
                register_view(each)

    def replace(self, x: Any, y: Any) -> None:
        """`x.data = y`: it has the value, and shares what is written, from now on.

        Errors: Unsupported for another shape or dtype, and where a view or alias of `x` would keep
        its memory.
        """
        if x._data.shape != y._data.shape or x._data.dtype != y._data.dtype:
            raise Unsupported(
                f"compile: data of shape {tuple(y.shape)} and {y.dtype} for a tensor of shape "
                f"{tuple(x.shape)} and {x.dtype}; replace it outside of the function"
            )
        others = [reference() for reference in (x._changes.views or ())] if x._changes else []
        if x._view is not None or any(each is not None and each is not x for each in others):
            raise Unsupported(
                "compile: data of a tensor of which there are views, which would keep its memory; "
                "write to it by copy_()"
            )
        self.meet(y)
        shared = y._changes
        if any(
            y is m.tensor or (shared is not None and shared is m.tensor._changes)
            for m in self.met.values()
        ):
            raise Unsupported(
                "compile: data that is the memory of another tensor from outside, which both would "
                "show; write to it by copy_(), or give data a clone"
            )
        x._data = y._data
        if y._view is None and y._leaf is None:
            self._join(y, x)

    def shows(self, view: LazyValue, x: LazyValue) -> bool:
        """Whether a reshape of `x`, which may be a view of others, shows its memory."""
        return view is x or self.ask(partial(_shows, view, x))

    def ask(self, question: Callable[..., bool]) -> bool:
        """The answer to a question about sizes, which may be numbers: `question(fill)` of what
        gives the sizes. For other sizes it is asked again.
        """
        resized = self.operands.resized
        return question() if resized is None else resized.ask(question)

    def array_of(self, symbol: LazyValue) -> Any:
        """The array for which a symbol stands."""
        return next((m.array for m in self.met.values() if m.symbol is symbol), None)

    def note_memory(self, symbol: LazyValue, begins: bool) -> None:
        """The program goes by the order of memory from outside; `begins`: and by where that of a
        storage begins.
        """
        self.ordered[id(symbol)] = begins or self.ordered.get(id(symbol), False)

    def sources(self) -> list[Any]:
        """Tensors with a history of their own, whose gradients may be wanted; each node once."""
        known = [(x, node) for x, _, node in self.views]
        known += [(m.tensor, m.node) for m in self.met.values()]
        found = {node: x for x, node in known if node is not None and x._node is node}
        return list(found.values())

    def behind(self, results: Sequence[Any], sources: Sequence[Any]) -> Gradients:
        """What computes gradients, when those of the results come from outside; none where hooks
        or backward functions would draw or write then, which a run would do at once.
        """
        held = {id(m.tensor): m.tensor._data for m in self.met.values()}
        found = [m.tensor._leaf for m in self.met.values() if m.tensor._leaf is not None]
        leaves = [(x, x.grad, None if x.grad is None else x.grad._data) for x in found]
        drawn = self.streams.counts()
        back = differentiated(results, sources, self.note)
        changed = [
            m for m in self.met.values()
            if m.tensor._data is not held.get(id(m.tensor), m.symbol)
        ]  # fmt: skip
        for m in changed:
            m.tensor._data = held.get(id(m.tensor), m.symbol)
        added = [
            (x, g, value) for x, g, value in leaves
            if x.grad is not g or (g is not None and g._data is not value)
        ]  # fmt: skip
        for x, g, value in added:
            x.grad = g
            if g is not None:
                g._data = value
        draws = self.streams.counts() != drawn
        self.streams.rewind(drawn)
        if changed or added or draws:
            what = "writes to a tensor" if changed else "draws random numbers"
            what = "sets gradients" if added else what
            return Gradients(why=f"a hook, or a custom Function, {what} in it")
        return back

    def note_draw(self, generator: Any) -> tuple[int, int]:
        """The program draws random numbers."""
        return self.streams.next_draw(generator)

    def note_more_draws(self) -> None:
        """Each run is to let generators go on by the draws that only it counts."""
        for n, more in self.streams.more():
            done = self(Advance(self.streams.all[n]), (more,))
            self.note_check(done, lambda: AssertionError("a generator does not go on"))

    def note_gradient(self, x: Any) -> None:
        """The program is about to set the gradient of `x`."""
        self.meet(x)
        self.set.add(id(x))
        g = None if x._leaf is None else x._leaf.grad
        if g is None or id(g) in self.met:
            self.cleared.add(id(x))

    def adds_to_gradient(self, x: Any) -> bool:
        """Whether the gradient of `x` is computed of the one that was there before."""
        met = self.met.get(id(x))
        return met is not None and met.gradient is not None and id(x) not in self.cleared

    def note_gradient_read(self, x: Any) -> None:
        """Python reads whether `x` has a gradient."""
        self.meet(x)
        met = self.met.get(id(x))
        if met is not None and x._leaf.grad is met.gradient:
            self.read.add(id(x))

    def note_hooks(self, x: Any, hooks: dict[int, Any]) -> None:
        """Python is about to add to the hooks of a tensor."""
        if type(x._data) is Selected:
            raise Unsupported(_SELECTED)
        self.meet(x)
        self.hooked.setdefault(id(hooks), (x, hooks, dict(hooks)))  # as they were before

    def note_retained(self, x: Any) -> None:
        """A tensor that was computed is to keep its gradient.

        Errors: Unsupported where that was outside: its gradient comes when the program has run.
        """
        met = self.met.get(id(x))
        if type(x._data) is Selected:
            raise Unsupported(_SELECTED)
        outside = met is not None and x._node is met.node and x._node is not x._leaf
        if outside or id(x) in self.computed:
            raise Unsupported(
                "compile: retain_grad() of a tensor that was computed with gradients outside; "
                "call it outside of the function"
            )

    def assert_unhooked(self) -> None:
        """Refuse hooks that stay at tensors from outside, where each call would add another."""
        for x, hooks, before in self.hooked.values():
            met = self.met.get(id(x))
            if met is not None and x._node is met.node and hooks != before:
                raise Unsupported(
                    "compile: the function registers a hook on a tensor from outside; register it "
                    "outside of the function, or remove it within"
                )

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
        try:
            op = Update(optimizer, groups)
        except NotReady as error:
            error.skips = self.skip is not None
            if not self._begin(error):
                raise
            op = Update(optimizer, groups)
        op.options = self.operands.options(groups)
        self.updates += 1
        for x in op.given():
            self.meet(x)
        op.skips = self.skip is not None
        skip = (self.skip,) if op.skips else ()
        found = record(op, (*[x._data for x in op.given()], *skip))
        for x, value in zip(op.written(), found, strict=True):
            self.note(value)
            x._data = value
        self.counts += announce_changes(op.written())

    def _begin(self, error: NotReady) -> bool:
        """Give an optimizer that has no state yet what it begins with, as things are outside. False
        where it cannot have that now.
        """
        begun, reads, state = self.operands.begun, self.operands.reads, error.optimizer.state
        parameters = [p for _, each in error.groups for p in each]
        if begun is None or reads is None or error.skips or any(state.get(p) for p in parameters):
            return False
        if any(id(p) not in self.met for p in parameters):
            return False
        within = [p._data for p in parameters]
        token = MODE.set(self.mode)
        try:
            for p in parameters:
                p._data = self.met[id(p)].array
            if not begun.begin(error):
                return False
        finally:
            MODE.reset(token)
            for p, value in zip(parameters, within, strict=True):
                p._data = value
        reads.renew(state, ("state", "state_dict"))
        return True

    def not_ready(self, why: str) -> None:
        """The function is to be run eagerly first.

        Errors: NotReady.
        """
        raise NotReady(None, (), why)

    @contextlib.contextmanager
    def skipping(self, skip: Any) -> Iterator[None]:
        """Where `skip`, a tensor of one boolean, is true, the optimizer that steps within does not.

        Errors: Unsupported for optimizers that write to tensors by operations.
        """
        before = {id(m.tensor): m.tensor._data for m in self.met.values()}
        kept, self.skip = self.skip, skip._data
        try:
            yield
        finally:
            self.skip = kept
        for m in list(self.met.values()):
            value = m.tensor._data
            if value is before.get(id(m.tensor), m.symbol):
                continue
            source = value.inputs[0] if type(value.op) is Item else value
            if not isinstance(source.op, Update):
                raise Unsupported(
                    "compile: a step that GradScaler may skip, of an optimizer whose update is "
                    "written with operations on tensors (Muon, Adafactor); step it outside"
                )

    def note_call(
        self, function: Callable[..., Any], args: Any, kwargs: Any,
        changes: Iterable[tuple[dict[str, Any], Iterable[str]]],
    ) -> None:  # fmt: skip
        """Each run of the program is to be followed by a call that changes entries of dicts."""
        self.calls.append((function, args, kwargs))
        for held, names in changes:
            for name in names:
                later = Later(name)
                self.delayed.append((held, name, held[name], later))
                reads = self.operands.reads
                if reads is not None:
                    known = reads.later.get(id(held), frozenset())
                    reads.later[id(held)] = known | {name}
                held[name] = later

    def undo_delayed(self) -> None:
        """Let entries hold what they held before calls that will change them."""
        while self.delayed:
            held, name, value, _ = self.delayed.pop()
            held[name] = value

    def assert_delayed(self) -> None:
        """Refuse entries that were set after a call that will change them."""
        latest = {(id(held), name): (held, later) for held, name, _, later in self.delayed}
        for (_, name), (held, later) in latest.items():
            if held.get(name) is not later:
                raise Unsupported(
                    f"compile: the function sets {name} after a schedule's step, which is made "
                    "when the program has run; step schedules last, or outside of the function"
                )

    def restore(self) -> None:
        """Give all tensors back what they held, and generators their states."""
        self.streams.restore()
        for version, count in reversed(self.counts):
            version.count = count
        for _, hooks, before in self.hooked.values():
            hooks.clear()
            hooks.update(before)
        for x, _, own, version, views in reversed(self.alike):
            x._changes = own
            version.views = views or None
        for x, array in self.fresh.values():
            x._data = array  # which may be known elsewhere by now
        for x, array, node in (*self.outside, *self.views):
            x._data, x._node = array, node
        for met in self.met.values():
            met.tensor._data, met.tensor._node = met.array, met.node
            if met.tensor._leaf is not None:
                met.tensor._leaf.grad = met.gradient


CAPTURING = threading.RLock()  # by one thread at a time: tensors hold symbols meanwhile


def announce_changes(tensors: Sequence[Any]) -> list[tuple[Any, int]]:
    """Let backward refuse what was saved of tensors before a step: their versions, with the counts
    that these had.
    """
    found = []
    for x in tensors:
        version = x._changes
        if version is INFERENCE:  # which is never saved
            continue
        if version is None:
            version = x._changes = Version()
        found.append((version, version.count))
        version.count += 1
        version.changed_by = "step"
    return found


class Reached(Unsupported):
    """Leaves among the arguments get gradients: they are to be known by identity."""


class NotReady(Unsupported):
    """An optimizer makes its state in this step, or the step is to be run eagerly first: `why`."""

    def __init__(
        self, optimizer: Any, groups: Sequence[tuple[Any, Sequence[Any]]], why: str = ""
    ) -> None:
        super().__init__(why or f"{type(optimizer).__name__} has no state yet")
        self.optimizer, self.groups = optimizer, groups
        self.skips = False  # whether the step may be left out, and no state made


class Begun:
    """States that optimizers are given before their first step, or their first one with an option:
    what each begins with. They are taken away again where an error ends the block.
    """

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any]] = []  # a dict, and a key of it

    def __enter__(self) -> Begun:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self.undo()

    def begin(self, error: NotReady) -> bool:
        """Make the states that were missing. False, with nothing done, where none can be: the
        first step differs from all later ones.
        """
        optimizer = error.optimizer
        states: list[tuple[Any, Any]] = []
        alike = True
        rests: list[tuple[Any, Any]] = []
        for group, parameters in error.groups:
            for p in parameters:
                state = optimizer.state.get(p)
                if state:
                    rests += _lacking(optimizer, group, [state])
                else:
                    state = optimizer.begin(p, group)
                    states.append((p, state))
                    alike = alike and optimizer.begins_alike(group, state)
        if not alike:
            return False
        if states:
            rests.append((optimizer.state, dict(states)))
        for holder, found in rests:
            holder.update(found)
            self._made += [(holder, key) for key in found]
        return bool(rests)

    def undo(self) -> None:
        """Take them away again."""
        for holder, key in self._made:
            holder.pop(key, None)
        self._made.clear()


class Varying(Unsupported):
    """Tensors whose values Python has read are written by the function."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__(_READS)
        self.tensors = tensors


_SELECTED = (
    "compile: the function returns, keeps, writes or hooks what x[mask] selects, whose size only "
    "values tell (it reads a value); return where(mask, x, 0), or x and the mask"
)
_READS = (
    "compile: the function reads a value (item, bool, int, a loop over a tensor), on which a "
    "program cannot depend; use where(), or read it after the call"
)


def capture(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    grad: bool = True,
    autocast: Any = None,
    operands: Operands | None = None,
) -> Captured:
    """What `function` does with tensors like `arguments`, which stay as they are, in a mode;
    `operands` are numbers that it meets.

    Errors: Unsupported for what cannot be captured; NotReady where an optimizer has no state yet.
    """
    operands = operands or Operands()
    recorder = _Recorder(operands)
    given_leaves = [x._leaf is not None for x in arguments]
    wanting = [x._node is not None for x in arguments]
    arguments = [wrap(x._data) for x in arguments]
    resized = operands.resized
    for n, (x, wants) in enumerate(zip(arguments, wanting, strict=True)):
        if wants:
            x.requires_grad_()
        recorder.meet(x, None if resized is None else resized.shape(n, x._data.shape))
        if wants:
            x._leaf.shape = tuple(x._data.shape)  # of which sizes may be numbers
    pairs = zip(arguments, given_leaves, wanting, strict=True)
    recorder.computed = {id(x) for x, leaf, wants in pairs if wants and not leaf}
    count = len(recorder.met)
    recorder.given = set(recorder.met)
    recorder.places = {}
    try:
        with recording(_READS, executor=recorder, grad=grad, autocast=autocast):
            found = function(*arguments)
            given_to = [(args, kwargs) for _, args, kwargs in recorder.calls]
            returned = Returned((found, given_to), recorder.met, arguments, recorder.fresh)
            del found, given_to
            _assert_plain(returned.tensors)
            recorder.assert_unhooked()
            recorder.note_more_draws()
            values = [y._data for y in returned.tensors]
            _assert_within(arguments, given_leaves)
            sources = recorder.sources()
            names = [next((n for n, y in enumerate(arguments) if x is y), x) for x in sources]
            back = recorder.behind(() if recorder.updates else returned.tensors, sources)
            returned.close("an optimizer has stepped" if recorder.updates else back.why)
        met = list(recorder.met.values())
        if any(m.tensor._node is not m.node for m in met):
            raise Unsupported(
                "compile: a tensor from outside gets a history, or another requires_grad; set "
                "that outside of the function"
            )
        ends = [(m, m.tensor._leaf.grad) for m in met if m.tensor._leaf is not None]
        for m, g in ends:
            known = g is not None and not (
                isinstance(g._data, LazyValue) and id(g) not in recorder.met
            )
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
        varying = [met[n].tensor for n in written if id(met[n].tensor) in recorder.looked]
        if varying:
            raise Varying(varying)
        for n in written:
            was, now = tuple(met[n].symbol.shape), tuple(met[n].tensor._data.shape)
            if was != now:
                raise Unsupported(
                    f"compile: the function gives a tensor from outside another shape, {now} where "
                    f"it was {was}; do that outside (t_(), squeeze_(), ...), or to a clone"
                )
        if any(met[n].symbol.device != met[n].tensor.device for n in written):
            raise Unsupported(
                f"compile: a tensor on {CPU} is written a value on {recorder.device}; write it by "
                "copy_(), which moves the value"
            )
        del ends, computed
        numbers = [symbol for _, _, symbol in operands.given]
        if resized is not None:
            numbers += [each.symbol for each in resized.operands]
        symbols = [m.symbol for m in met]
        given = [*symbols[:count], *numbers, *symbols[count:]]
        values = [*(met[n].tensor._data for n in written), *gradients, *values]
        errors = [wrong for wrong, _ in recorder.checks]

        def read(tangents: Sequence[Any]) -> Program:
            ends = [*values, *tangents, *errors]
            for value in ends:
                recorder.note(value, executed=False)
            order = recorder.order
            return program_of(given, ends, _constant, lambda value: order[id(value)])

        program = read([g for _, g, _ in back.found])
        changed = {program.inputs[n if n < count else n + len(numbers)] for n in written}
        if back.found and _reads_written(program, changed):
            back = Gradients()
            returned.close("it needs what the function has overwritten")
            program = read(())
    finally:
        recorder.restore()
    assert_apart([m.array for m in met], [met[n].array for n in written])
    if any(id(met[n].tensor) in recorder.fresh for n in written):
        raise Unsupported(
            "compile: the function writes to memory that a tensor shares with an array "
            "(from_numpy, as_tensor); use tensor(), which copies"
        )
    states = []
    more = count + len(numbers)
    for value, m in zip(program.inputs[more:], met[count:], strict=True):
        # What nobody holds any more but `recorder.met`, `met` and `m` stays as it is.
        if m.tensor._leaf is None and sys.getrefcount(m.tensor) <= _HELD:
            value.array = m.array
        states.append(None if id(m.tensor) in owners else m.tensor)
    recorder.streams.take_over(program.nodes)
    updates = [node for node in program.nodes if isinstance(node.op, Update)]
    for node in updates:
        node.op.forget_gradients()  # type: ignore[attr-defined]
    step = next((node for node in program.nodes if isinstance(node.op, Cotangents)), None)
    if step is None and back.found:  # gradients that depend on none
        ys = [program.outputs[len(written) + len(leaves) + n] for n in back.results]
        step = Node(Cotangents(len(ys)), ys, [y.spec for y in ys])
        program.nodes.append(step)
    return Captured(
        program, more, states, [n - count if n >= count else ~n for n in written], leaves,
        [owners.get(id(m.tensor)) for m in met[count:]], presence, dropped, returned, updates,
        recorder.streams.all,
        Backward(
            step, back.results, [names[k] for k, *_ in back.found], [n for *_, n in back.found]
        ),
        [error for _, error in recorder.checks], [m.node is not None for m in met[count:]],
        [call for call, _, _ in recorder.calls], len(operands.options_given),
        [(x, other) for x, other, *_ in recorder.alike if type(x._data) is not LazyValue],
        recorder.device or CPU, list(recorder.looked.values()),
        [(n, recorder.ordered[id(x)]) for n, x in enumerate(given) if id(x) in recorder.ordered],
    )  # fmt: skip


def _assert_plain(results: Sequence[Any]) -> None:
    """Refuse what programs do not give."""
    for y in results:
        if asks(type(y)):
            raise Unsupported(
                f"compile: the function returns a tensor of the subclass {type(y).__name__}, and "
                "programs give plain ones; return y.as_subclass(Tensor), and let the caller make "
                "it one of the subclass"
            )


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


def _reads_written(program: Program, changed: set[Value]) -> bool:
    """Whether what comes behind the results reads a state that was written meanwhile."""
    behind = False
    for node in program.nodes:
        behind = behind or isinstance(node.op, Cotangents)
        if behind and not changed.isdisjoint(node.values):
            return True
    return False


def _strides(array: Any) -> Any:
    """Those of memory that is not row-major; None for others."""
    turned = not array.flags.c_contiguous and min(array.strides) >= 0
    return array.strides if turned else None


def _shows(view: LazyValue, x: LazyValue, fill: Any = None) -> bool:
    array = memory_like(x, fill)
    op: Any = view.op if fill is None else fill(view.op)
    return bool(np.may_share_memory(run(op, [array]), array))


_HELD = 2  # references to a tensor in one `Met` as `sys.getrefcount` counts them


def _constant(data: Any) -> Value:
    array = data.array if isinstance(data, LazyValue) else data
    return Value(spec_of(array), array=array)
