"""Capture of a training step as a `Program`: the function is traced once on symbols.

Arguments, and every tensor that an operation reads, hold symbols while the function runs, so
reading a value is an error and does not make a constant. Tensors from outside that hold another
symbol in the end are written by the step; gradients of leaves and optimizers' steps are noted as
they happen.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ...autograd.capture import program_of, recording
from ...autograd.recording import execute_lazily
from ...core import fork_safety, policy
from ...core.deferred_effects import Later
from ...core.device import CPU, device, device_of, is_device_array
from ...core.errors import Unsupported
from ...core.mode import MODE
from ...core.op import Op
from ...core.overrides import asks
from ...core.signal_deferral import DEFERRED, complete
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...ir.compute import spec_of
from ...ir.program import Node, Program, Value
from ...nn import Module
from ...ops.create.conversion import Transfer
from ...ops.index.number_places import has_numbers
from ...ops.index.selected import Selected, of_selected
from ...ops.promotion import with_wide_numbers
from ...ops.random.draws import Draw
from ...ops.random.generators import default_generator
from ...runtime.cells import Cell
from ...runtime.lazy import LazyValue, record, run
from ...runtime.memory_order import memory_like
from ...runtime.node import INFERENCE, Item, Version
from ...runtime.tensors import wrap
from ...runtime.views import register_view
from ..guards.arguments import assert_apart, place_of
from .backward import Backward, Cotangents, Gradients, differentiated
from .capturing import Capturing, assert_modes
from .differentiation import Differentiation, assert_reads_none, differentiated_results
from .lifted_state import ScalarInputs
from .module_places import ModulePlaces
from .number_indices import symbols_of, take_numbers
from .random_state import AdvanceGenerator, CapturedGenerators
from .returned_tensors import Returned
from .trace import Assumptions, Effects, Trace, TraceInputs

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray, Casting
    from ...ops.random.random import Generator
    from ...optim.elementwise import ElementwiseOptimizer
    from ...runtime.memory_order import Fill
    from ..guards.state_snapshot import StateSnapshot
    from .dynamic_shapes import SymbolicArgumentSizes

ndarray = np.ndarray
R = TypeVar("R")


class Update(Op, abstract=True):
    """An optimizer's step as an op. Its inputs are, for each group, columns of tensors: parameters,
    gradients, and each kind of state. Its outputs are the same without gradients, updated.
    """

    def __init__(
        self, optimizer: ElementwiseOptimizer, groups: Sequence[tuple[Any, Sequence[Any]]]
    ) -> None:
        self.optimizer = optimizer
        self.groups = [(group, list(parameters)) for group, parameters in groups]
        self.skips = False  # whether there is a last input, and no step is made where it is true
        self.options: list[tuple[Any, str, Any]] = []  # groups, and what they are to hold meanwhile
        self.columns: list[list[list[Any]]] = []  # of each group
        for group, parameters in self.groups:
            states = []
            for p in parameters:
                state = optimizer.state.get(p) or {}
                if not state and optimizer.begin(p, group):
                    raise RunEagerlyFirst(optimizer, self.groups)
                states.append(state)
            if _lacking(optimizer, group, states):
                raise RunEagerlyFirst(optimizer, self.groups)
            names = [name for name in states[0] if name not in optimizer.scalars]
            kinds = [[state[name] for state in states] for name in names]
            self.columns.append([parameters, [p.grad for p in parameters], *kinds])
        self.n_outputs = len(self.written())  # type: ignore[misc]

    def forget_gradients(self) -> None:
        """Drop the gradients of a capture that is over: symbols, with all that they were computed
        from.
        """
        for columns in self.columns:
            columns[1] = [None] * len(columns[0])

    def given(self) -> list[Any]:
        """Tensors that the step reads; None for gradients once the capture is over."""
        return [x for columns in self.columns for column in columns for x in column]

    def written(self) -> list[Any]:
        """Tensors that the step writes."""
        return [x for first, _, *more in self.columns for column in (first, *more) for x in column]

    def resized(self, fill: Callable[[Any], Any]) -> Op:
        """Copy with columns of its own; states keep their sizes, and may be replaced."""
        made = copy.copy(self)
        made.columns = [[list(column) for column in columns] for columns in self.columns]
        return made

    def infer(self, *specs: Spec) -> tuple[Spec, ...]:
        """Specs of the updated tensors."""
        by_tensor = dict(zip(map(id, self.given()), specs, strict=not self.skips))
        return tuple(by_tensor[id(x)] for x in self.written())


def _filling(resized: SymbolicArgumentSizes | None) -> Callable[[Op], Op]:
    """Function that puts the present sizes into an op."""
    return (lambda op: op) if resized is None else resized.filled


def _lacking(
    optimizer: ElementwiseOptimizer, group: dict[str, Any], states: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """Missing entries of states that were made before an option of the group was turned on: pairs
    of a state and its missing entries.
    """
    whole = [dict(state) for state in states]
    optimizer.complete(group, whole)
    pairs = zip(states, whole, strict=True)
    rests = [(s, {key: x for key, x in w.items() if key not in s}) for s, w in pairs]
    return [(state, rest) for state, rest in rests if rest]


class OutsideTensor(NamedTuple):
    """A tensor from outside that the function uses, with its data, node and gradient before."""

    tensor: Any
    array: Any
    symbol: LazyValue
    node: Any
    gradient: Any  # the gradient, if it is a leaf


class StepRecorder(Capturing):
    """Executor that records ops on symbols, and registers all tensors that they use."""

    def __init__(self, operands: ScalarInputs) -> None:
        self.operands = operands
        self.mode = MODE.get()  # around the capture
        operands.settle, operands.undo = self.settle, self.undo_delayed
        self.calls: list[tuple[Callable[..., Any], Any, Any]] = []  # to be made after each run
        self.delayed: list[tuple[dict[str, Any], str, Any, Later]] = []  # entries that they change
        self.met: dict[int, OutsideTensor] = {}
        self.views: list[tuple[Any, Any, Any]] = []
        self.outside: list[tuple[Any, Any, Any]] = []  # views that the function may not know
        self.places: dict[Any, OutsideTensor] | None = None  # tensors by memory, arguments excepted
        self.alike: list[tuple[Any, ...]] = []  # pairs of tensors with one memory; see `_join`
        self.fresh: dict[int, tuple[Any, Any]] = {}  # tensors made meanwhile, by id: their arrays
        self.made: dict[Any, Any] = {}  # the same tensors, by their memory
        self.shown: list[tuple[Any, Any]] = []  # arrays that others see, as they were
        self.states: dict[int, Any] = {}  # tensors that are states of generators, by id
        self.order: dict[int, tuple[int, int]] = {}  # of recorded values, by id
        self.alive: list[Any] = []  # the recorded values, whose ids are keys
        self.module_places = ModulePlaces()  # observes backward passes, too
        self.paths: dict[int, str] = {}  # of the modules that recorded values, by id
        self.streams = CapturedGenerators(_READS)
        self.checks: list[tuple[LazyValue, Callable[[], Exception]]] = []
        self.device: Any = None  # common device of all tensors
        self.updates = 0  # number of optimizers' steps
        self.skip: Any = None  # a boolean value: optimizers do not step where it is true
        self.set: set[int] = set()  # ids of leaves whose gradient was set
        self.read: set[int] = set()  # ids of leaves of which Python has read whether they have one
        self.counts: list[tuple[Any, int]] = []  # versions that optimizers have bumped; old counts
        self.cleared: set[int] = set()  # ids of leaves whose gradient was set before it was used
        self.hooked: dict[int, tuple[Any, dict[int, Any], dict[int, Any]]] = {}  # see `note_hooks`
        self.computed: set[int] = set()  # ids of arguments that have a history outside
        self.given: set[int] = set()  # ids of arguments, which another call may give other values
        self.looked: dict[int, tuple[Any, Any]] = {}  # tensors whose values are guarded
        self.ordered: dict[int, bool] = {}  # ids of symbols; see `note_memory`

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """Record an op and return its result."""
        for rule in (of_selected, with_wide_numbers):
            result = rule(op, inputs, self)
            if result is not NotImplemented:
                return result
        for x in inputs:
            if isinstance(x, TensorBase):
                self.meet(x)
        if isinstance(op, Draw):
            op, inputs = self.streams.drawn(op, inputs)
        result = execute_lazily(op, inputs)
        if self.device not in (None, CPU) and self._leaves_device(op, inputs, result):
            moved = [
                self(Transfer(self.device), (x,))
                if isinstance(x, TensorBase) and x.device == CPU
                else x
                for x in inputs
            ]
            result = execute_lazily(op, tuple(moved))
        for y in result if type(result) is tuple else (result,):
            self.note(y._data)
        return result

    def _leaves_device(self, op: Op, inputs: tuple[Any, ...], result: Any) -> bool:
        """Whether an op of tensors on the device and scalars of the host gives a result on the
        host: so do ops that follow the device of a scalar's tensor.
        """
        if isinstance(op, Transfer):
            return False
        results = result if type(result) is tuple else (result,)
        return any(y.device == CPU for y in results) and any(
            isinstance(x, TensorBase) and x.device == self.device for x in inputs
        )

    def note(self, value: object, executed: bool = True) -> None:
        """Note the order of a recorded value: now, if an op has `executed`. Values that it depends
        on and that no op has recorded, such as writes to views, come as early as possible, since
        values behind an optimizer's step or the results may not be read before it.
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
            if path := self.module_places.path:
                self.paths[id(x)] = path

    def call_module(
        self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Call a module, which is noted as that of what it records."""
        return self.module_places.call(module, args, kwargs)

    def note_fresh(self, x: TensorBase) -> None:
        """Note a tensor that the function has made from constants: writes to it change no state."""
        if type(x._data) is ndarray or is_device_array(x._data):
            self.fresh[id(x)] = x, x._data
            self.made[place_of(x._data)] = x

    def meet(self, x: TensorBase, shape: tuple[int, ...] | None = None) -> None:
        """Register a tensor from outside: it gets a symbol, as does its gradient; a fresh tensor
        gets a constant. `shape` is its own unless sizes are symbolic.
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
        self.assert_no_state(x)
        if id(x) in self.fresh and not (x._changes is not None and x._changes.exported):
            device = self._device_of(x)
            constant = LazyValue(None, (), x._data.shape, x._data.dtype, device)
            constant.array = x._data
            x._data = constant
            return
        if id(x) in self.fresh and type(x._data) is ndarray:
            self.shown.append((x._data, x._data.copy()))
        made = self.made.get(place_of(x._data)) if x._data.size else None
        if made is not None and made is not x and x._leaf is None:  # such as a gradient handed on
            self.meet(made)
            self.views.append((x, x._data, x._node))
            self._join(x, made)
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
        memory_key = place_of(x._data)
        same_memory = None if self.places is None else self.places.get(memory_key)
        if same_memory is not None and leaf is None:
            self.views.append((x, x._data, x._node))
            self._join(x, same_memory.tensor)
            return
        symbol = LazyValue(None, (), shape or x._data.shape, x._data.dtype, device)
        if same_memory is not None and same_memory.tensor._leaf is None:  # the leaf is the state
            symbol = same_memory.symbol
            del self.met[id(same_memory.tensor)]
            self.views.append((same_memory.tensor, same_memory.array, same_memory.node))
        if self.operands.resized is not None and type(x._data) is ndarray:
            symbol.lies = _strides(x._data)
        met = OutsideTensor(x, x._data, symbol, x._node, None if leaf is None else leaf.grad)
        self.met[id(x)] = met
        self._note_views(x)
        x._data = symbol
        if self.places is not None and met.array.size:
            self.places[memory_key] = met
        if same_memory is not None and symbol is same_memory.symbol:
            x._data = same_memory.tensor._data
            self._join(same_memory.tensor, x)
        if leaf is not None and leaf.grad is not None:
            self.meet(leaf.grad)

    def _note_views(self, x: TensorBase) -> None:
        """Write down the views of an outside tensor, which would show writes."""
        if x._changes is not None:
            views = [reference() for reference in x._changes.views or ()]
            self.outside += [(y, y._data, y._node) for y in views if y is not None]

    def known_values(self, x: TensorBase) -> BackendArray | None:
        """The values of a tensor that is computed from constants and from small integer or boolean
        tensors from outside, which become guarded values; None for other tensors.
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
            elif (
                value.op.drawn
                or value.op.opaque
                or value.op.n_outputs != 1
                or has_numbers(value.op)
            ):
                return None
            stack.extend(value.inputs)
        program = program_of([m.symbol for m in looked], [x._data], _constant)
        arrays = {y: m.array for y, m in zip(program.inputs, looked, strict=True)}
        for node in program.nodes:
            inputs = [arrays.get(y, y.array) if type(y) is Value else y for y in node.inputs]
            arrays[node.output] = run(node.op, inputs)
        for m in looked:
            self.looked[id(m.tensor)] = m.tensor, m.array.copy()
        [y] = program.outputs
        return arrays.get(y, y.array)

    def _stays(self, met: OutsideTensor) -> bool:
        """Whether an outside tensor is expected to hold the same values in the next call."""
        x, array = met.tensor, met.array
        return (
            type(array) is ndarray
            and array.dtype.kind in "bui"
            and array.nbytes <= policy.GUARDED_BYTES
            and id(x) not in self.given
            and id(x) not in self.fresh
            and id(x) not in self.operands.varying
        )

    @property
    def follows_numbers(self) -> bool:
        """Whether numbers that are inputs may stay numbers where they are indices."""
        return self.device in (None, CPU)

    follows_tensors = follows_numbers  # likewise integers of tensors that are computed

    def _device_of(self, x: TensorBase) -> device:
        """The device of a tensor, which must be that of all tensors.

        Errors: Unsupported for a second device, and for the one of tensors without elements.
        """
        device = CPU if type(x._data) is ndarray else device_of(x._data)
        if device.type == "meta":
            raise Unsupported(
                "compile: tensors on meta have no elements, so that there is nothing to compile; "
                "call the function itself, which infers shapes and dtypes"
            )
        if x._data.ndim or device != CPU:  # one of the host without dimensions is a number
            self.device = self.device or device
            if device != self.device:
                raise Unsupported(
                    f"compile: tensors on {self.device} and {device} in one function; a program is "
                    f"of one device: move them outside with .to({str(self.device)!r})"
                )
        return device

    def _join(self, x: TensorBase, other: TensorBase) -> None:
        """Let `x` and `other`, which show one memory, share symbol and version, so that both see
        writes.
        """
        if other._changes is None:
            other._changes = Version()
        version = other._changes
        self.alike.append((x, other, x._changes, version, list(version.views or ())))
        x._data, x._changes = other._data, version
        for each in (x, other):
            if all(reference() is not each for reference in other._changes.views or ()):
                register_view(each)

    def replace(self, x: TensorBase, y: TensorBase) -> None:
        """Trace `x.data = y`: from now on `x` has the value of `y`, and shares its writes.

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
        """Whether a reshape of `x`, which may be a view, shows the memory of `x`."""
        return view is x or self.ask(partial(_shows, view, x))

    def ask(self, question: Callable[..., bool]) -> bool:
        """Answer a question about sizes, which may be symbolic: `question(fill)`, where `fill`
        gives the sizes. It is asked again for other sizes.
        """
        resized = self.operands.resized
        return question() if resized is None else resized.ask(question)

    def array_of(self, symbol: LazyValue) -> BackendArray | None:
        """The array for which a symbol stands, or None."""
        return next((m.array for m in self.met.values() if m.symbol is symbol), None)

    def note_memory(self, symbol: LazyValue, begins: bool) -> None:
        """Register a dependence on the memory order of an outside tensor; with `begins` also on
        where it begins in its storage.
        """
        self.ordered[id(symbol)] = begins or self.ordered.get(id(symbol), False)

    def sources(self) -> list[Any]:
        """Tensors with a history from outside, whose gradients may be wanted; one for each node."""
        candidates = [(x, node) for x, _, node in self.views]
        candidates += [(m.tensor, m.node) for m in self.met.values()]
        by_node = {node: x for x, node in candidates if node is not None and x._node is node}
        return list(by_node.values())

    def behind(self, results: Sequence[Any], sources: Sequence[Any]) -> Gradients:
        """Trace the backward of the results for gradients that arrive from outside. There is none
        where hooks or backward functions would draw or write, since each run would do so at once.
        """
        back, effect = self.without_effects(partial(differentiated, results, sources, self.note))
        return Gradients(why=f"a hook, or a custom Function, {effect} in it") if effect else back

    def without_effects(self, trace: Callable[[], R]) -> tuple[R, str]:
        """Trace something that is to have no effects. Returns its result, and its first effect in
        words, which is undone; '' if there is none.
        """
        data_before = {id(m.tensor): m.tensor._data for m in self.met.values()}
        leaf_nodes = [m.tensor._leaf for m in self.met.values() if m.tensor._leaf is not None]
        leaves = [(x, x.grad, None if x.grad is None else x.grad._data) for x in leaf_nodes]
        drawn = self.streams.counts()
        result = trace()
        changed = [
            m for m in self.met.values()
            if m.tensor._data is not data_before.get(id(m.tensor), m.symbol)
        ]  # fmt: skip
        for m in changed:
            m.tensor._data = data_before.get(id(m.tensor), m.symbol)
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
        if not (changed or added or draws):
            return result, ""
        what = "writes to a tensor" if changed else "draws random numbers"
        return result, "sets gradients" if added else what

    def derived(
        self, returned: Returned, levels: Sequence[Differentiation], arguments: Sequence[Any]
    ) -> Returned:
        """Trace the gradients of what a function returned in place of that, and forget its effects,
        which its own program has.

        Errors: Unsupported where the gradients cannot be traced.
        """
        returning = partial(Returned, met=self.met, arguments=arguments, fresh=self.fresh)
        trace = partial(differentiated_results, returned, levels, arguments, returning)
        derived, effect = self.without_effects(trace)
        if effect or self.updates:
            effect = effect and f"a hook, or a custom Function, {effect} in it"
            raise Unsupported(effect or "an optimizer has stepped")
        if self.streams.more():
            raise Unsupported("the function draws as many random numbers as only a run can tell")
        self.checks.clear()
        self.calls.clear()
        for stream in self.streams.all:
            stream.repeats = True
        return derived

    def note_draw(self, generator: Generator) -> tuple[int, int]:
        """Register a random draw."""
        return self.streams.next_draw(generator)

    def note_more_draws(self) -> None:
        """Record ops by which each run advances generators by the draws that only the run
        counts.
        """
        for n, more in self.streams.more():
            done = self(AdvanceGenerator(self.streams.all[n]), (more,))
            self.note_check(done, lambda: AssertionError("a generator does not go on"))

    def note_gradient(self, x: TensorBase) -> None:
        """Note that the gradient of `x` is about to be set."""
        self.meet(x)
        self.set.add(id(x))
        g = None if x._leaf is None else x._leaf.grad
        if g is None or id(g) in self.met:
            self.cleared.add(id(x))

    def adds_to_gradient(self, x: TensorBase) -> bool:
        """Whether the gradient of `x` is computed from the one that it had before."""
        met = self.met.get(id(x))
        return met is not None and met.gradient is not None and id(x) not in self.cleared

    def note_gradient_read(self, x: TensorBase) -> None:
        """Note that Python reads whether `x` has a gradient."""
        self.meet(x)
        met = self.met.get(id(x))
        if x._leaf is None:  # it may be set all the same
            if id(x) in self.given:
                raise Unsupported(
                    "compile: the function reads the gradient of a tensor that requires none and "
                    "comes with each call; give the gradient as an argument of its own"
                )
            if met is not None or any(y is x for y, *_ in self.views):
                self.note_setting(lambda: x._leaf is not None and x._leaf.grad is not None)
        elif met is not None and x._leaf.grad is met.gradient:
            self.read.add(id(x))

    def note_hooks(self, x: TensorBase, hooks: dict[int, Any]) -> None:
        """Note the hooks of a tensor before Python adds to them."""
        if type(x._data) is Selected:
            raise Unsupported(_SELECTED)
        self.meet(x)
        self.hooked.setdefault(id(hooks), (x, hooks, dict(hooks)))  # as they were before

    def note_retained(self, x: TensorBase) -> None:
        """Refuse retain_grad() of a tensor that was computed outside.

        Errors: Unsupported, since its gradient would come after the program has run.
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
        """Refuse hooks that remain on outside tensors, to which each call would add another."""
        for x, hooks, before in self.hooked.values():
            met = self.met.get(id(x))
            if met is not None and x._node is met.node and hooks != before:
                raise Unsupported(
                    "compile: the function registers a hook on a tensor from outside; register it "
                    "outside of the function, or remove it within"
                )

    def assert_shown_unwritten(self) -> None:
        """Refuse arrays of NumPy's or buffers that were written once they had become tensors: all
        that was recorded would see the last values.

        Errors: Unsupported.
        """
        for array, before in self.shown:
            if array.tobytes() != before.tobytes():
                raise Unsupported(
                    "compile: the function writes to an array or buffer that it has made a tensor "
                    "of (from_numpy, from_dlpack, frombuffer), which a program does not see; make "
                    "the tensor once the array is written, or write to the tensor"
                )

    def note_check(self, wrong: TensorBase, error: Callable[[], Exception]) -> None:
        """Add a run-time check: each run raises `error` if the value `wrong` is true."""
        if isinstance(wrong._data, LazyValue):
            self.checks.append((wrong._data, error))
        elif bool(wrong):
            raise error()

    def note_targets(self) -> None:
        """Note that gradients are asked for by certain tensors: it matters which are the same."""
        self.operands.has_targets = True

    def note_read(self) -> None:
        """Refuse the read of a value."""
        raise Unsupported(_READS)

    def note_fact(self, what: str, x: object) -> None:
        """Refuse to say what a tensor from outside is besides its values: a program would go on
        with what it was at capture.

        Errors: Unsupported.
        """
        is_outside = id(x) in self.given
        if what in _OF_MEMORY:
            own = getattr(x, "_data", None)
            is_outside = id(x) in self.met or not (
                isinstance(own, LazyValue) or id(x) in self.fresh
            )
        if is_outside:
            raise Unsupported(
                f"compile: the function reads {what} of a tensor from outside, which a program "
                "does not follow; read it outside of the function, and give it what depends on it"
            )

    def note_switch(self, what: str) -> None:
        """Refuse to switch a setting of this library, which a program would not do again.

        Errors: Unsupported.
        """
        raise Unsupported(
            f"compile: the function calls {what}(), which switches a setting of the library, and a "
            "program would not do so again; call it outside of the function"
        )

    def note_seed(self, generator: Generator) -> None:
        """Note that the function seeds a generator, or has made one.

        Errors: Unsupported for one from outside.
        """
        reads = self.operands.reads
        outside = generator is default_generator or (reads is not None and reads.has_met(generator))
        self.streams.note_seed(generator, outside)

    def note_state(self, generator: Generator, state: TensorBase) -> int | None:
        """Note that the function sets the state of a generator."""
        return self.streams.note_state(generator, state)

    def note_state_read(self, state: TensorBase, generator: Generator) -> None:
        """Note that a tensor is a generator's state: the function may set it again, but not read
        it, since it differs in each call.
        """
        self.states[id(state)] = state
        self.streams.note_state_read(state, generator)

    def assert_no_state(self, x: TensorBase) -> None:
        """Refuse to compute with a generator's state, or to return it.

        Errors: Unsupported.
        """
        if id(x) in self.states:
            raise Unsupported(
                "compile: the function reads the state of a generator (get_rng_state, get_state), "
                "which differs in each call; read it outside of the function"
            )

    @property
    def snapshot(self) -> StateSnapshot | None:
        """Snapshot of what the function reaches; None where nothing is guarded."""
        return self.operands.reads

    def note_setting(self, read: Callable[[], object]) -> None:
        """Guard a setting of this library."""
        if self.operands.reads is not None:
            self.operands.reads.guard_setting(read)

    def assert_not_inferring(self) -> None:
        """Refuse to say whether inference mode is on, where it is: captures run without.

        Errors: Unsupported.
        """
        if self.mode.inference:
            raise Unsupported(
                "compile: the function reads is_inference_mode_enabled; read it outside"
            )

    def update(
        self, optimizer: ElementwiseOptimizer, groups: Sequence[tuple[Any, Sequence[Any]]]
    ) -> None:
        """Record an optimizer's step.

        Errors: Unsupported for one that the function has made, or reached by a way that is not
        guarded: each call would step another one.
        """
        reads = self.operands.reads
        if reads is not None and not reads.has_met(optimizer):
            raise Unsupported(
                f"compile: the function steps an optimizer, {type(optimizer).__name__}, which it "
                "makes itself, or reaches in a way that cannot be followed; make it outside, and "
                "keep it in a variable or an attribute"
            )
        try:
            op = Update(optimizer, groups)
        except RunEagerlyFirst as error:
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
        updated = record(op, (*[x._data for x in op.given()], *skip))
        for x, value in zip(op.written(), updated, strict=True):
            self.note(value)
            x._data = value
        self.counts += announce_changes(op.written())

    def _begin(self, error: RunEagerlyFirst) -> bool:
        """Initialize the state of an optimizer that has none, with its parameters as they are
        outside. False where that is not possible now.
        """
        begun, reads, state = self.operands.begun, self.operands.reads, error.optimizer.state
        parameters = [p for _, each in error.groups for p in each]
        if begun is None or reads is None or error.skips or any(state.get(p) for p in parameters):
            return False
        if any(id(p) not in self.met for p in parameters):
            return False
        within = [p._data for p in parameters]
        outside = MODE.get()
        try:
            MODE.set(self.mode)
            for p in parameters:
                p._data = self.met[id(p)].array
            if not begun.begin(error):
                return False
        finally:
            MODE.set(outside)
            with DEFERRED:
                for p, value in zip(parameters, within, strict=True):
                    p._data = value
        reads.renew(state, ("state", "state_dict"))
        return True

    def not_ready(self, why: str) -> None:
        """Demand that the function runs eagerly first.

        Errors: RunEagerlyFirst.
        """
        raise RunEagerlyFirst(None, (), why)

    @contextlib.contextmanager
    def skipping(self, skip: TensorBase) -> Iterator[None]:
        """Context in which an optimizer does not step where the boolean tensor `skip` is true.

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
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        changes: Iterable[tuple[dict[str, Any], Iterable[str]]],
    ) -> None:  # fmt: skip
        """Register a Python call to be made after each run, with the entries of dicts that it
        changes.
        """
        self.calls.append((function, args, kwargs))
        for entries, names in changes:
            for name in names:
                later = Later(name)
                self.delayed.append((entries, name, entries[name], later))
                reads = self.operands.reads
                if reads is not None:
                    changed_later = reads.later.get(id(entries), frozenset())
                    reads.later[id(entries)] = changed_later | {name}
                entries[name] = later

    def undo_delayed(self) -> None:
        """Restore entries that hold placeholders for the changes of later calls."""
        while self.delayed:
            entries, name, value, _ = self.delayed.pop()
            entries[name] = value

    def settle(self) -> None:
        """Refuse entries, and states of generators, that runs would not come to."""
        self.assert_delayed()
        self.streams.assert_kept()

    def assert_delayed(self) -> None:
        """Refuse entries that were set after a call that will change them."""
        latest = {(id(entries), name): (entries, later) for entries, name, _, later in self.delayed}
        for (_, name), (entries, later) in latest.items():
            if entries.get(name) is not later:
                raise Unsupported(
                    f"compile: the function sets {name} after a schedule's step, which is made "
                    "when the program has run; step schedules last, or outside of the function"
                )

    def restore(self) -> None:
        """Give all tensors their data, nodes and gradients back, and generators their states."""
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
            x._data = array  # others may hold it by now
        for x, array, node in (*self.outside, *self.views):
            x._data, x._node = array, node
        for met in self.met.values():
            met.tensor._data, met.tensor._node = met.array, met.node
            if met.tensor._leaf is not None:
                met.tensor._leaf.grad = met.gradient


CAPTURING = fork_safety.lock()  # by one thread at a time: tensors hold symbols meanwhile


def announce_changes(tensors: Sequence[Any]) -> list[tuple[Any, int]]:
    """Bump the versions of tensors before an optimizer's step, so that backward refuses what was
    saved of them. Returns the versions with their counts before.
    """
    counts = []
    for x in tensors:
        version = x._changes
        if version is INFERENCE:  # inference tensors are never saved
            continue
        if version is None:
            version = x._changes = Version()
        counts.append((version, version.count))
        version.count += 1
        version.changed_by = "step"
    return counts


class RetraceWithLeaves(Unsupported):
    """Retrace: leaves among the arguments get gradients, so they must be known by identity."""


class RunEagerlyFirst(Unsupported):
    """Retrace: an optimizer has no state yet, or the step must run eagerly first; `why` says so."""

    def __init__(
        self, optimizer: Any, groups: Sequence[tuple[Any, Sequence[Any]]], why: str = ""
    ) -> None:
        super().__init__(why or f"{type(optimizer).__name__} has no state yet")
        self.optimizer, self.groups = optimizer, groups
        self.skips = False  # whether the step may be left out, and no state made


class InitializedOptimizers:
    """Initial states of optimizers, made before their first step or their first one with an
    option. `undo` takes them away again, where an error ends the call.
    """

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any]] = []  # a dict, and a key of it

    def begin(self, error: RunEagerlyFirst) -> bool:
        """Make the missing states. False, with nothing done, where the first step differs from all
        later ones.
        """
        optimizer = error.optimizer
        states: list[tuple[Any, Any]] = []
        all_alike = True
        rests: list[tuple[Any, Any]] = []
        for group, parameters in error.groups:
            for p in parameters:
                state = optimizer.state.get(p)
                if state:
                    rests += _lacking(optimizer, group, [state])
                else:
                    state = optimizer.begin(p, group)
                    states.append((p, state))
                    all_alike = all_alike and optimizer.begins_alike(group, state)
        if not all_alike:
            return False
        if states:
            rests.append((optimizer.state, dict(states)))
        for holder, entries in rests:
            holder.update(entries)
            self._made += [(holder, key) for key in entries]
        return bool(rests)

    def keep(self) -> None:
        """Let optimizers have the states: the call has happened."""
        self._made.clear()

    def undo(self) -> None:
        """Take the states away again."""
        for holder, key in self._made:
            holder.pop(key, None)
        self._made.clear()


class RetraceVarying(Unsupported):
    """Retrace: tensors whose values Python has read are written by the function."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__(_READS)
        self.tensors = tensors


_OF_MEMORY = ("_version", "_base", "data_ptr")  # which change without the tensor's being replaced
_SELECTED = (
    "compile: the function returns, keeps, writes or hooks what x[mask] selects, whose size only "
    "values tell (it reads a value); return where(mask, x, 0), or x and the mask"
)
_READS = (
    "compile: the function reads a value (item, bool, int, print, a loop over a tensor), on which "
    "a program cannot depend; use where(), or read it after the call"
)


def capture(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    grad: bool = True,
    autocast: Casting | None = None,
    operands: ScalarInputs | None = None,
    levels: Sequence[Differentiation] = (),
) -> Trace:
    """Trace `function` on tensors like `arguments`, which stay as they are, in a mode. `operands`
    are Python numbers that become inputs. With `levels` the program computes gradients of what the
    function returns, for which the last of `arguments` are not given to it, and nothing else.

    Errors: Unsupported for what cannot be captured; RunEagerlyFirst where an optimizer has no state
    yet.
    """
    step = _Capture(arguments, operands or ScalarInputs(), levels)
    try:
        with recording(_READS, executor=step.recorder, grad=grad, autocast=autocast):
            step.call(function)
            step.differentiate()
        step.note_effects()
        step.assert_written_alike()
        step.read_program()
    finally:
        complete([lambda: step.recorder.restore()])
    step.assert_memory_apart()
    return step.described()


class _Capture:
    """The parts of one capture, in the order in which `capture` calls them."""

    program: Program
    back: Gradients  # of what is returned, for gradients from outside
    returned: Returned

    def __init__(
        self, arguments: Sequence[Any], operands: ScalarInputs, levels: Sequence[Differentiation]
    ) -> None:
        """Make copies of the arguments, and give them symbols."""
        self.operands, self.levels = operands, levels
        self.recorder = recorder = StepRecorder(operands)
        self.leaves_given = [x._leaf is not None for x in arguments]
        wanting = [x._node is not None for x in arguments]
        self.arguments = [wrap(x._data) for x in arguments]
        for x, given in zip(self.arguments, arguments, strict=True):
            own = given.__dict__  # what Python has put on it
            if own:
                x.__dict__.update(own)
                if operands.reads is not None:
                    operands.reads.of_arguments.update(own)
        resized = operands.resized
        for n, (x, wants) in enumerate(zip(self.arguments, wanting, strict=True)):
            if wants:
                x.requires_grad_()
            recorder.meet(x, None if resized is None else resized.shape(n, x._data.shape))
            if wants:
                x._leaf.shape = tuple(x._data.shape)  # sizes may be symbolic
        triples = zip(self.arguments, self.leaves_given, wanting, strict=True)
        recorder.computed = {id(x) for x, leaf, wants in triples if wants and not leaf}
        self.count = len(recorder.met)
        recorder.given = set(recorder.met)
        recorder.places = {}

    def call(self, function: Callable[..., Any]) -> None:
        """Call the function, and look through what it returns."""
        recorder, arguments, levels = self.recorder, self.arguments, self.levels
        mode = MODE.get()
        own = len(arguments) - sum(len(level.results) for level in levels)
        result = function(*arguments[:own])
        assert_modes(mode, MODE.get())
        call_arguments = [(args, kwargs) for _, args, kwargs in recorder.calls]
        operands = self.operands
        returned = Returned(
            (result, call_arguments), recorder.met, arguments, recorder.fresh,
            operands.arguments.result,
            _filling(operands.resized) if operands.arguments.own else None,
        )  # fmt: skip
        del result, call_arguments
        if levels:
            returned = recorder.derived(returned, levels, arguments)
        self.returned = returned
        _assert_plain(returned.tensors)
        for y in returned.tensors:
            recorder.assert_no_state(y)
        recorder.assert_unhooked()
        recorder.assert_shown_unwritten()
        recorder.note_more_draws()
        self.values = [y._data for y in returned.tensors]

    def differentiate(self) -> None:
        """Trace the backward of what is returned."""
        recorder, returned = self.recorder, self.returned
        _assert_within(self.arguments, self.leaves_given)
        sources = recorder.sources()
        self.sources = [
            next((n for n, y in enumerate(self.arguments) if x is y), x) for x in sources
        ]
        self.back = recorder.behind(() if recorder.updates else returned.tensors, sources)
        returned.close("an optimizer has stepped" if recorder.updates else self.back.why)

    def note_effects(self) -> None:
        """Write down what the function has changed: gradients, and values of tensors."""
        recorder = self.recorder
        met = self.met = list(recorder.met.values())
        if any(m.tensor._node is not m.node for m in met):
            raise Unsupported(
                "compile: a tensor from outside gets a history, or another requires_grad; set "
                "that outside of the function"
            )
        leaves = [m for m in met if m.tensor._leaf is not None]
        ends = [] if self.levels else [(m, m.tensor._leaf.grad) for m in leaves]
        _assert_computed(ends, recorder.met)
        self.owners = {id(m.gradient): m.tensor for m in met if m.gradient is not None}
        if len(self.owners) < sum(m.gradient is not None for m in met):
            raise Unsupported(
                "compile: two tensors have one and the same gradient; give one of them a clone"
            )
        self.presence = [
            (m.tensor, m.gradient is not None)
            for m, g in ends
            if id(m.tensor) not in recorder.cleared
            and (
                id(m.tensor) in recorder.read
                or (m.gradient is None and (g is not None or id(m.tensor) in recorder.set))
            )
        ]
        self.dropped = [m.tensor for m, g in ends if g is None and id(m.tensor) in recorder.set]
        computed = [(m.tensor, g) for m, g in ends if g is not None and id(g) not in recorder.met]
        self.leaves, self.gradients = [x for x, _ in computed], [g._data for _, g in computed]
        if self.leaves and recorder.mode.inference:  # which saves no tensors for it
            raise Unsupported(
                "compile: the function computes gradients in inference mode; call it outside of it"
            )
        self.overwritten = [n for n, m in enumerate(met) if m.tensor._data is not m.symbol]
        self.written = [] if self.levels else self.overwritten

    def assert_written_alike(self) -> None:
        """Refuse writes that change more than values, or values that Python has read.

        Errors: Unsupported; RetraceVarying.
        """
        met, recorder = self.met, self.recorder
        varying = [met[n].tensor for n in self.written if id(met[n].tensor) in recorder.looked]
        if varying:
            raise RetraceVarying(varying)
        for n in self.written:
            was, now = tuple(met[n].symbol.shape), tuple(met[n].tensor._data.shape)
            if was != now:
                raise Unsupported(
                    f"compile: the function gives a tensor from outside another shape, {now} where "
                    f"it was {was}; do that outside (t_(), squeeze_(), ...), or to a clone"
                )
        if any(met[n].symbol.device != met[n].tensor.device for n in self.written):
            raise Unsupported(
                f"compile: a tensor on {CPU} is written a value on {recorder.device}; write it by "
                "copy_(), which moves the value"
            )

    def read_program(self) -> None:
        """Make a program of what was recorded."""
        numbers = [symbol for _, _, symbol in self.operands.given]
        if self.operands.resized is not None:
            numbers += [each.symbol for each in self.operands.resized.operands]
        symbols = [m.symbol for m in self.met]
        self.symbols = [*symbols[: self.count], *numbers, *symbols[self.count :]]
        self.more = self.count + len(numbers)
        written = [self.met[n].tensor._data for n in self.written]
        self.values = [*written, *self.gradients, *self.values]
        program = self._read([g for _, g, _ in self.back.found])
        changed = {
            program.inputs[n if n < self.count else n + len(numbers)] for n in self.overwritten
        }
        if self.levels:
            assert_reads_none(program, changed)
        if self.back.found and _reads_written(program, changed):
            self.back = Gradients()
            self.returned.close("it needs what the function has overwritten")
            program = self._read(())
        self.program = program

    def _read(self, tangents: Sequence[Any]) -> Program:
        """The program that computes all values, `tangents`, and what checks look at.

        Errors: Unsupported for indices of a device's tensors that are numbers.
        """
        recorder = self.recorder
        ends = [*self.values, *tangents, *(wrong for wrong, _ in recorder.checks)]
        for value in ends:
            recorder.note(value, executed=False)
        order, paths = recorder.order, recorder.paths
        program = program_of(
            self.symbols, ends, _constant, lambda value: order[id(value)],
            lambda value: paths.get(id(value), ""), symbols_of,
        )  # fmt: skip
        if any(has_numbers(x.op) for x in program.nodes):
            if not recorder.follows_numbers:
                raise Unsupported(f"compile: an index on {recorder.device} that is a number")
            take_numbers(program)
        return program

    def assert_memory_apart(self) -> None:
        """Refuse writes to memory that others show."""
        met = self.met
        assert_apart([m.array for m in met], [met[n].array for n in self.written])
        if any(id(met[n].tensor) in self.recorder.fresh for n in self.written):
            raise Unsupported(
                "compile: the function writes to memory that a tensor shares with an array "
                "(from_numpy, as_tensor); use tensor(), which copies"
            )

    def _states(self) -> list[Any]:
        """Tensors from outside, or None for gradients. Those that nobody else has are constants."""
        states = []
        for value, m in zip(self.program.inputs[self.more :], self.met[self.count :], strict=True):
            # A tensor that only `recorder.met`, `met` and `m` still refer to becomes a constant.
            if m.tensor._leaf is None and sys.getrefcount(m.tensor) <= _HELD:
                value.array = m.array
            states.append(None if id(m.tensor) in self.owners else m.tensor)
        return states

    def _backward(self) -> Backward:
        """The backward part of the program."""
        program, back = self.program, self.back
        step = next((node for node in program.nodes if isinstance(node.op, Cotangents)), None)
        if step is None and back.found:  # gradients that depend on none
            ys = [program.outputs[len(self.written) + len(self.leaves) + n] for n in back.results]
            step = Node(Cotangents(len(ys)), ys, [y.spec for y in ys])
            program.nodes.append(step)
        sources = [self.sources[k] for k, *_ in back.found]
        return Backward(step, back.results, sources, [n for *_, n in back.found])

    def described(self) -> Trace:
        """The trace, once tensors are as they were."""
        recorder, count, states = self.recorder, self.count, self._states()
        outside = self.met[count:]
        owners = [self.owners.get(id(m.tensor)) for m in outside]
        recorder.streams.take_over(self.program.nodes)
        updates = [node for node in self.program.nodes if isinstance(node.op, Update)]
        for node in updates:
            node.op.forget_gradients()  # type: ignore[attr-defined]
        effects = Effects(
            written=[n - count if n >= count else ~n for n in self.written],
            leaves=self.leaves,
            dropped=self.dropped,
            updates=updates,
            options=len(self.operands.options_given),
            calls=[call for call, _, _ in recorder.calls],
        )
        ordered = recorder.ordered
        assumptions = Assumptions(
            presence=self.presence,
            wants=[m.node is not None for m in outside],
            alike=[(x, other) for x, other, *_ in recorder.alike if type(x._data) is not LazyValue],
            device=recorder.device or CPU,
            looked=list(recorder.looked.values()),
            ordered=[(n, ordered[id(x)]) for n, x in enumerate(self.symbols) if id(x) in ordered],
            errors=[error for _, error in recorder.checks],
        )
        inputs = TraceInputs(self.more, states, owners, recorder.streams.all)
        backward = self._backward()
        return Trace(self.program, inputs, effects, backward, self.returned, assumptions)


def _assert_computed(ends: Sequence[tuple[OutsideTensor, Any]], met: Container[int]) -> None:
    """Refuse gradients that no operation has computed. `ends` are leaves with the gradients that
    they have in the end.
    """
    for m, g in ends:
        from_outside = g is not None and not (isinstance(g._data, LazyValue) and id(g) not in met)
        if from_outside and g is not m.gradient:
            raise Unsupported(
                "compile: a gradient that no operation has computed; give backward a clone"
            )


def _assert_plain(results: Sequence[Any]) -> None:
    """Refuse results of a tensor subclass, which programs do not return."""
    for y in results:
        if asks(type(y)):
            raise Unsupported(
                f"compile: the function returns a tensor of the subclass {type(y).__name__}, and "
                "programs give plain ones; return y.as_subclass(Tensor), and let the caller make "
                "it one of the subclass"
            )


def _assert_within(arguments: Sequence[Any], leaves: Sequence[bool]) -> None:
    """Refuse a backward within the function that has reached an argument."""
    for x, is_leaf in zip(arguments, leaves, strict=True):
        if x._leaf is not None and x._leaf.grad is not None:
            if is_leaf:
                raise RetraceWithLeaves("compile: the gradient of an argument is set")
            raise Unsupported(
                "compile: a backward within the function reaches an argument that was computed "
                "with gradients outside; call backward outside, or detach the argument"
            )


def _reads_written(program: Program, changed: set[Value]) -> bool:
    """Whether the backward part reads a state that the forward part has overwritten."""
    in_backward = False
    for node in program.nodes:
        in_backward = in_backward or isinstance(node.op, Cotangents)
        if in_backward and not changed.isdisjoint(node.values):
            return True
    return False


def _strides(array: BackendArray) -> tuple[int, ...] | None:
    """Strides of memory that is not row-major; None if it is."""
    turned = not array.flags.c_contiguous and min(array.strides) >= 0
    return array.strides if turned else None


def _shows(view: LazyValue, x: LazyValue, fill: Fill | None = None) -> bool:
    array = memory_like(x, fill)
    op: Any = view.op if fill is None else fill(view.op)
    return bool(np.may_share_memory(run(op, [array]), array))


_HELD = 2  # references to a tensor in one `OutsideTensor` as `sys.getrefcount` counts them


def _constant(data: BackendArray) -> Value:
    array = data.array if isinstance(data, LazyValue) else data
    return Value(spec_of(array), array=array)
