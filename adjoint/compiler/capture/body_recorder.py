"""Records the body of a branch or of a loop, or a function that is one node: operations on symbols,
and the tensors from outside that they read.

A body is pure: it computes, draws, and checks values. Other effects, and what a run could not see
again, are refused with the user's line (`capturing.py` lists all kinds).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...autograd.recording import execute_lazily
from ...core.errors import Unsupported
from ...core.mode import MODE
from ...core.op import Op
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ops.index.selected import Selected, of_selected
from ...ops.promotion import with_wide_numbers
from ...ops.random.draws import Draw
from ...runtime.lazy import LazyValue
from ...runtime.tensors import wrap
from ..guards.code_observer import place_of_caller
from .capturing import Capturing
from .random_state import CapturedGenerators

if TYPE_CHECKING:
    from ...ops.random.random import Generator
    from ..guards.state_snapshot import StateSnapshot

ndarray = np.ndarray


class Scope:
    """Recorded values and captured outside tensors that a body shares with its derivatives."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}  # all that was recorded, by id
        self.stands: dict[int, tuple[Any, Any]] = {}  # outside tensors by id: reference, symbol
        # How ops were applied, by the ids of recorded values: the value, which inputs had a history
        # then, and the node
        self.applied: dict[int, tuple[Any, tuple[bool, ...], Any]] = {}

    def add(self, x: TensorBase) -> None:
        """Note that a tensor's value is recorded in this scope."""
        self.values[id(x._data)] = x._data

    def note(self, inputs: Sequence[Any], result: Any) -> None:
        """Note how an op was applied."""
        several = type(result) is tuple
        ys = result if several else (result,)
        value = ys[0]._data.inputs[0] if several else ys[0]._data
        node = next((y._node for y in ys if y._node is not None), None)
        follows = tuple([getattr(x, "_node", None) is not None for x in inputs])
        self.applied[id(value)] = value, follows, node

    def stand_of(self, tensor: TensorBase) -> Tensor | None:
        """The symbol of an outside tensor that was captured before, or None."""
        reference, stand = self.stands.get(id(tensor), (None, None))
        return stand if reference is not None and reference() is tensor else None


class _OutsideTensor:
    """An outside tensor that a body reads, with its data and node at that time; nodes save the
    symbol `stand` instead of it.
    """

    def __init__(self, tensor: TensorBase, stand: Tensor) -> None:
        self.tensor, self.stand = tensor, stand
        self.data, self.node = tensor._data, tensor._node
        self.place = ""  # where it was written

    @property
    def is_changed(self) -> bool:
        """Whether the tensor was written, or got a history."""
        x, stand = self.tensor, self.stand
        return x._data is not stand._data or x._node is not stand._node

    @property
    def is_local(self) -> bool:
        """Whether the tensor was made within the body from Python numbers, so that nobody else
        holds it.
        """
        x = self.tensor
        exported = x._changes is not None and x._changes.exported
        if type(self.data) is not ndarray or x._view is not None or exported:
            return False
        del x
        return sys.getrefcount(self.tensor) <= _HELD and sys.getrefcount(self.data) <= _HELD


_HELD = 2  # references to what only a `_OutsideTensor` holds, as `sys.getrefcount` counts them


class BodyRecorder(Capturing):
    """Executor that records a body's ops on symbols and captures the outside tensors that they
    read.
    """

    follows_tensors = True  # integers that are computed may be indices

    def __init__(
        self, title: str, scope: Scope, wants: Callable[[Any], bool], arguments: Sequence[Any],
        reads: StateSnapshot | None = None,
    ) -> None:  # fmt: skip
        self.title = title
        self.scope = scope
        self.wants = wants  # whether a tensor from outside wants a gradient
        self.met: dict[int, _OutsideTensor] = {}
        self.places = dict.fromkeys(map(id, arguments), "")  # arguments: where they are written
        self.checks: list[tuple[Any, Callable[[], Exception]]] = []
        self.reads = reads  # of a function that is one node: what it reads is guarded there
        self.mode = MODE.get()
        self.outer = self.mode.executor
        around = getattr(self.outer, "streams", None)
        self.streams = None if around is None else CapturedGenerators(READS.format(title))
        if isinstance(self.outer, BodyRecorder):
            around = self.outer.set
        # Generators whose state is set, as they were before.
        self.set: CapturedGenerators = CapturedGenerators("", around)
        self.states: dict[int, Any] = {}  # tensors that are states of generators, by id
        self.calls_back = False  # whether gradients call a custom Function or a hook of the body's

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """Record an op and return its result."""
        for rule in (of_selected, with_wide_numbers):
            result = rule(op, inputs, self)
            if result is not NotImplemented:
                return result
        if isinstance(op, Draw) and self.streams is not None:
            op, inputs = self.streams.drawn(op, inputs)
        elif op.drawn:
            raise Unsupported(f"{self.title}: {op.name}, random numbers by another way")
        recorded_for = [self._met(x, op.view) if isinstance(x, TensorBase) else x for x in inputs]
        result = execute_lazily(op, tuple(recorded_for))
        self.scope.note(recorded_for, result)
        for y in result if type(result) is tuple else (result,):
            self.scope.add(y)
        return result

    def _met(self, x: TensorBase, by_view: bool = False) -> TensorBase:
        """The tensor for which an op is recorded: the symbol of an outside tensor, so that nodes
        save no outside tensor, and a new tensor for one that was written, which then nobody holds
        if the body made it. View ops get the tensor itself, since a view refers to its base.
        """
        if not self.is_within(x._data):
            self._take(x)
        met = self.met.get(id(x))
        if met is None or by_view:
            return x
        if not met.is_changed:
            return met.stand
        y = wrap(x._data, x._node)
        y._changes = x._changes
        return y

    def adopt(self, inputs: Sequence[Any]) -> None:
        """Capture the inputs of a custom Function, which is about to read their nodes."""
        self.calls_back = True
        for x in inputs:
            if isinstance(x, TensorBase):
                self._met(x)

    def _take(self, x: TensorBase) -> _OutsideTensor:
        if id(x) in self.states:
            self._refuse("computes with the state of a generator", "read it outside")
        stand = self.scope.stand_of(x)
        met = self.met[id(x)] = _OutsideTensor(
            x, like(x, self.wants(x)) if stand is None else stand
        )
        x._data, x._node = met.stand._data, met.stand._node
        self.scope.add(x)
        return met

    def is_within(self, data: object) -> bool:
        """Whether a value was recorded in this body, perhaps by other means than an op."""
        if not isinstance(data, LazyValue):
            return False
        if type(data) is Selected:
            return True
        values, stack = self.scope.values, [data]
        while stack:
            x = stack[-1]
            if id(x) in values:
                values.update((id(y), y) for y in stack)
                return True
            before = [y for y in x.inputs if isinstance(y, LazyValue)]
            recorded_inputs = [y for y in before if id(y) in values]
            if not before:
                return False
            stack.append((recorded_inputs or before)[0])
        return False

    # ---- side effects, most of which a body may not have -----------------------------------------

    def meet(self, x: TensorBase) -> None:
        """Note that a tensor is about to be written, and where."""
        base = x if x._view is None else x._view.base
        met = self.met.get(id(base))
        if met is None and not self.is_within(base._data):
            met = self._take(base)
        if met is not None and not met.place:
            met.place = place_of_caller()
        if self.places.get(id(base)) == "":
            self.places[id(base)] = place_of_caller()

    def note_read(self) -> None:
        """Refuse the read of a value."""
        raise Unsupported(READS.format(self.title))

    def note_memory(self, symbol: object, begins: bool) -> None:
        """Refuse code that depends on the memory order of an outside tensor, which is unknown in a
        body.
        """
        raise Unsupported(
            f"{self.title}: as_strided: of memory from outside of its function; use it outside, or "
            f"of .clone(memory_format=contiguous_format){place_of_caller()}"
        )

    def note_draw(self, generator: Generator) -> tuple[int, int]:
        """Register a random draw: the place of its stream and its number there."""
        if self.streams is None:
            raise Unsupported(
                f"{self.title}: a function of it draws random numbers (dropout?), of which a graph "
                "could not tell how many there are; draw outside, and give them as operands"
                f"{place_of_caller()}"
            )
        if generator.twister is not None:
            raise Unsupported(
                f"{self.title}: a function of it draws from PyTorch's generator, as often as "
                "values say; draw outside, and give the numbers as operands, or call "
                f"random.follow_torch(False){place_of_caller()}"
            )
        return self.streams.next_draw(generator)

    def _refuse(self, does: str, remedy: str) -> NoReturn:
        raise Unsupported(f"{self.title}: a function of it {does}; {remedy}{place_of_caller()}")

    def _is_outside(self, x: TensorBase) -> bool:
        return not self.is_within(x._data) or id(x) in self.met

    def note_gradient(self, x: TensorBase) -> None:
        """Refuse to set the gradient of an outside tensor."""
        if self._is_outside(x):
            self._refuse("sets the gradient of a tensor from outside", "set it outside")

    def note_hooks(self, x: TensorBase, hooks: dict[int, Any]) -> None:
        """Refuse a hook on an outside tensor."""
        if self._is_outside(x) or type(x._data) is Selected:
            self._refuse("registers a hook on a tensor from outside", "register it outside")
        self.calls_back = True

    def note_retained(self, x: TensorBase) -> None:
        """Refuse retain_grad(): gradients of a body's values are computed when it has run."""
        self._refuse("calls retain_grad()", "return the tensor, and call it outside")

    def note_gradient_read(self, x: TensorBase) -> None:
        """Tell the capture around that Python reads whether `x` has a gradient; a function that is
        one node guards it.
        """
        if isinstance(self.outer, Capturing):
            self.outer.note_gradient_read(x)
        elif id(x) in self.places:
            self._refuse("reads the gradient of an operand", "give it as another operand")
        elif self._is_outside(x):
            self.note_setting(lambda: x._leaf is not None and x._leaf.grad is not None)

    def note_targets(self) -> None:
        """Note that gradients are asked for by certain tensors: it matters which are the same."""
        if isinstance(self.outer, Capturing):
            self.outer.note_targets()

    def note_fact(self, what: str, x: TensorBase) -> None:
        """Refuse to say what a tensor is, besides its values, that the body has not computed."""
        if self._is_outside(x) or id(x) in self.places:
            self._refuse(
                f"reads {what} of a tensor from outside", "read it outside, and give what follows"
            )

    @property
    def snapshot(self) -> StateSnapshot | None:
        """Snapshot of what the function around reaches."""
        around = self.outer.snapshot if isinstance(self.outer, Capturing) else None
        return around if self.reads is None else self.reads

    def note_setting(self, read: Callable[[], object]) -> None:
        """Guard a setting of this library. Where nothing around captures, a body is captured by
        each call.
        """
        if isinstance(self.outer, Capturing):
            self.outer.note_setting(read)
        elif self.reads is not None:
            self.reads.guard_setting(read)

    def note_switch(self, what: str) -> None:
        """Refuse to switch a setting of this library."""
        self._refuse(f"calls {what}(), which switches a setting", "call it outside")

    def note_seed(self, generator: Generator) -> None:
        """Refuse to seed a generator, or to make one."""
        self._refuse("sets the seed of a generator, or makes one", "do so outside")

    def note_state(self, generator: Generator, state: TensorBase) -> int | None:
        """Note that the function sets the state of a generator, as `utils.checkpoint` does."""
        return self.set.note_state(generator, state)

    def note_state_read(self, state: TensorBase, generator: Generator) -> None:
        """Note that a tensor is a generator's state: the function may set it again, but not compute
        with it.
        """
        self.states[id(state)] = state
        self.set.note_state_read(state, generator)
        if isinstance(self.outer, Capturing):
            self.outer.note_state_read(state, generator)

    def assert_not_inferring(self) -> None:
        """Refuse to say whether inference mode is on, where it is: captures run without."""
        if self.mode.inference:
            self._refuse("reads is_inference_mode_enabled", "read it outside")
        elif isinstance(self.outer, Capturing):
            self.outer.assert_not_inferring()

    def note_call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        changes: Iterable[tuple[dict[str, Any], Iterable[str]]],
    ) -> None:  # fmt: skip
        """Refuse a call with a side effect, such as a schedule's step."""
        name = getattr(getattr(function, "func", function), "__qualname__", "a function")
        self._refuse(f"calls {name}, which has a side effect", "call it outside")

    def update(self, optimizer: Any, groups: Any) -> None:
        """Refuse an optimizer's step."""
        self._refuse(f"steps {type(optimizer).__name__}", "step it outside")

    def note_check(self, wrong: TensorBase, error: Callable[[], Exception]) -> None:
        """Add a run-time check: each run raises `error` if the value `wrong` is true."""
        self.checks.append((self._met(wrong)._data, error))

    def ask(self, question: Callable[..., bool]) -> bool:
        """Answer a question about sizes, which may be symbolic sizes of the function around."""
        ask = getattr(self.outer, "ask", None)
        return bool(question() if ask is None else ask(question))

    def result(self, y: TensorBase) -> Tensor:
        """A new tensor for an output of the body, so that no reference is left that
        `_OutsideTensor.is_local` counts.
        """
        if type(y._data) is Selected:
            raise Unsupported(READS.format(self.title))
        y = self._met(y)
        return wrap(y._data, y._node)

    def close(self, arguments: Sequence[tuple[Any, Any, Any]]) -> list[_OutsideTensor]:
        """The captured outside tensors, which become inputs; tensors that the body made itself
        become constants.

        Errors: Unsupported where something from outside was changed, or one of the `arguments`.
        """
        self.set.assert_kept()
        for x, data, node in arguments:
            if x._data is not data or x._node is not node:
                raise Unsupported(
                    f"{self.title}: a function of it writes to an operand of shape "
                    f"{tuple(data.shape)}; write to a clone{self.places[id(x)]}"
                )
        outside = []
        for met in self.met.values():
            local = met.is_local
            if met.is_changed and not local:
                raise Unsupported(
                    f"{self.title}: a function of it writes to a tensor from outside, of shape "
                    f"{tuple(met.data.shape)}; return the new value, and write it outside"
                    f"{met.place}"
                )
            if local:
                met.stand._data.array = met.data
            else:
                self.scope.stands[id(met.tensor)] = weakref.ref(met.tensor), met.stand
                outside.append(met)
        return outside

    def restore(self) -> None:
        """Give all captured tensors their data and nodes back."""
        if self.streams is not None:
            self.streams.restore()
        self.set.restore()
        for met in self.met.values():
            met.tensor._data, met.tensor._node = met.data, met.node


READS = (
    "{}: a function of it reads a value (item, bool, int, a loop over a tensor), on which what is "
    "captured cannot depend; use where(), or cond within it"
)


def like(x: TensorBase, wants: bool, shape: Sequence[int] | None = None) -> Tensor:
    """A symbolic tensor with the spec of `x` (or another `shape`), which requires a gradient if
    `wants`.
    """
    return symbol(x.spec if shape is None else x.spec.with_(shape=tuple(shape)), wants)


def symbol(spec: Spec, wants: bool) -> Tensor:
    """A symbolic tensor of a spec, which requires a gradient if `wants` and its dtype allows it."""
    dtype = spec.dtype.numpy
    y = wrap(LazyValue(None, (), spec.shape, dtype, spec.device))
    if wants and dtype.kind in "fcV":
        y.requires_grad_()
    return y
