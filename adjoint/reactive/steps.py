"""Training steps: eager execution in a graph, in which unchanged values are not recomputed.

Inside `with graph.step():` ops run eagerly and are recorded on the tape, so that every value, error
and gradient is that of PyTorch's rules. What a step saves is found by numbering values: equal ops
on equal values have equal results, whatever Python code asks for them. A value that some step asked
for again is kept, and the next step that asks for it gets it without computing. No code is watched
and none is skipped, so nothing that a program does between can make a reused value wrong: only
writes to memory could, and each write to a tensor changes its version.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..autograd import refreshing
from ..backends import numpy as backend
from ..core import policy
from ..core.errors import GraphError
from ..core.mode import MODE, Mode, ModeSwitch, mode_with
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..nn.modules.module import Module
from ..runtime.cells import Cell, GraphState, users_frame, wants_gradient
from ..runtime.dispatch import execute, finish
from ..runtime.fused import Declared
from ..runtime.lazy import LazyValue, as_array
from ..runtime.node import INFERENCE, Leaf, Version
from ..runtime.record import parents_of
from ..runtime.tensors import wrap
from ..runtime.views import register_view

ndarray = np.ndarray
_SIMPLE = frozenset((int, float, bool, str, bytes, type(None)))


class _Known:
    """Record of a value: its number, when it was last asked for, and its arrays, if kept."""

    __slots__ = ("arrays", "last", "number", "op", "seconds")

    def __init__(self, number: int, op: Any) -> None:
        self.number = number
        self.op = op  # for the log
        self.last = 0
        self.arrays: tuple[Any, ...] | None = None
        self.seconds = 0.0  # that computing it took


class _Seen:
    """Record of an input tensor: the number of the value that it shows until somebody writes to
    it.
    """

    __slots__ = ("content", "count", "data", "last", "number", "tensor")

    def __init__(self, tensor: Any, number: Any, last: int, content: bytes | None = None) -> None:
        self.tensor = weakref.ref(tensor)
        self.data = weakref.ref(tensor._data)
        self.count = _count(tensor)
        self.number = number
        self.last = last  # block that asked for it
        self.content = content  # its bytes, if others may write to the memory, too


def _count(tensor: Any) -> int:
    version = tensor._changes
    return 0 if version is None else int(version.count)


class Steps:
    """Values that the steps of one graph share and may reuse.

    It is the executor of a step that is observed.
    """

    def __init__(self, state: GraphState) -> None:
        self._state = state
        self._values: dict[Any, _Known] = {}
        self._tensors: dict[int, _Seen] = {}
        self._given: dict[int, tuple[Any, Any]] = {}  # LazyValues handed out, and their numbers
        self._number = itertools.count(1).__next__
        self._bytes = 0  # kept
        self._block = 0
        self._noted = 0  # new values of this block
        self._asked_for = False  # whether values are to be reused, at whatever cost
        self._tries = 0  # observed blocks since it was last found to pay, or tried
        self._wait = 0  # blocks until it is tried again
        self._leaves = -1
        self._saved = 0.0
        self._asked = 0
        self._eager: tuple[Any, Any] = (None, None)
        self._pure: weakref.WeakSet[Module] = weakref.WeakSet()
        self._refused: weakref.WeakSet[Module] = weakref.WeakSet()  # which was said
        self.counts = {"steps": 0, "step_ops": 0, "step_reused": 0, "step_unknown": 0}
        self.unknown: dict[str, int] = {}  # by the reason why

    def clear(self) -> None:
        """Forget all values."""
        for each in (self._values, self._tensors, self._given):
            each.clear()
        self._bytes = 0

    def trust(self, module: Module) -> None:
        """Allow calls of `module` to be skipped when its arguments, parameters and buffers are
        unchanged.
        """
        self._pure.add(module)

    # ---- blocks ----------------------------------------------------------------------------------

    def begin(self, mode: Mode, reuse: bool | None) -> Mode:
        """Begin a block in `mode`; returns the mode inside."""
        self._block += 1
        self.counts["steps"] += 1
        self._asked_for = bool(reuse or self._pure or self._state.observer is not None)
        observed = reuse is not False and (self._asked_for or self._pays())
        self._saved, self._asked, self._noted = 0.0, 0, 0
        return mode_with(mode, executor=self if observed else None, step=self)

    def end(self, mode: Mode) -> None:
        """End the block that ran in this mode."""
        executor: Any = mode.executor
        if executor is not self:
            return
        self._tries += 1
        if self._asked_for or self._saved > policy.STEP_LOOK * 1e-9 * self._asked:
            self._tries = 0
        elif self._tries >= policy.STEP_BLOCKS:
            self._wait = policy.STEP_WAIT
            self.clear()
        if self._block % policy.STEP_BLOCKS == 0:
            oldest = self._oldest()
            self._keep(lambda known: known.last > oldest)
            kept = [a for v in self._values.values() if v.arrays for a in v.arrays]
            self._bytes = sum(a.nbytes for a in kept)

    def _oldest(self) -> int:
        """The number of the block up to which values are forgotten, unless they were asked for
        later.
        """
        return self._block - policy.STEP_BLOCKS

    def _keep(self, predicate: Callable[[_Known], bool]) -> None:
        """Forget all values but those for which `predicate` is true, and tensors that are gone or
        have not been used for long.
        """
        oldest = self._oldest()
        self._values = {k: v for k, v in self._values.items() if predicate(v)}
        self._tensors = {
            k: v for k, v in self._tensors.items() if v.last > oldest and v.tensor() is not None
        }
        self._given = {k: v for k, v in self._given.items() if v[0]() is not None}

    def _pays(self) -> bool:
        """Whether to look for values to reuse: as long as it saves time, and again after a while or
        after a change of what is frozen.
        """
        if self._leaves != refreshing.revision():
            self._leaves = refreshing.revision()
            self._tries = self._wait = 0
        if self._wait:
            self._wait -= 1
            if not self._wait:
                self._tries = 0
        return not self._wait

    # ---- an op -----------------------------------------------------------------------------------

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The eager result of `op`, without computing where its value is known."""
        numbers = None if op.drawn or op.opaque else self._numbers(inputs)
        key = None if numbers is None else (op, _kinds(op), numbers)
        record = self._known(key, op, inputs)
        if record is not None and (record.arrays is not None or self._is_seen_view(op, inputs)):
            return self._reused(op, inputs, record)
        return self._computed(
            op, record, lambda: self._eagerly(execute, op, self._plain(op, inputs))
        )

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Any:
        """The result of a composite, reused only if it requires no gradient."""
        mode = MODE.get()
        wants = mode.grad and any(isinstance(x, TensorBase) and x._node for x in args)
        numbers = None if wants else self._numbers(args)
        key = None if numbers is None else (declared, _casts(mode), numbers)
        run = declared.run
        return self._once(key, run, args, lambda: self._eagerly(run, *self._plain(None, args)))

    def call_module(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module; the result of a trusted module may be reused."""
        mode = MODE.get()
        if module not in self._pure:
            return module._call_impl(*args, **kwargs)
        state = (*module.parameters(), *module.buffers())
        inputs = (*args, *kwargs.values(), *state)
        wants = mode.grad and any(isinstance(x, TensorBase) and x._node for x in inputs)
        modes = tuple([m.training for m in module.modules()])
        simple = all(isinstance(x, TensorBase) or type(x) in _SIMPLE for x in inputs)
        numbers = self._numbers(inputs) if simple and not wants else None
        key = (module, modes, _casts(mode), tuple(kwargs), numbers) if numbers else None
        if key is None and module not in self._refused:
            self._refused.add(module)
            warnings.warn(
                f"Graph.reuse: a call of {type(module).__name__} cannot be reused "
                f"({self._reason(module, inputs)}); said once for each module",
                stacklevel=users_frame()[0],
            )
        return self._once(key, module, inputs, lambda: module._call_impl(*args, **kwargs))

    def _once(self, key: Any, op: Any, inputs: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """The result of `compute()`, computed or reused for this key: tensors that require no
        gradient.
        """
        record = self._known(key, op, inputs)
        if record is None or record.arrays is None:
            return self._computed(op, record, compute)
        self._reuse(record)
        ys = tuple([wrap(self._value(a, (record.number, i))) for i, a in enumerate(record.arrays)])
        return ys[0] if len(ys) == 1 else ys

    def _computed(self, op: Any, record: _Known | None, compute: Callable[[], Any]) -> Any:
        """The result of `compute()`, recorded under the name of `op`."""
        began = time.perf_counter()
        y = compute()
        self._note(op, record, y, time.perf_counter() - began)
        return y

    def _known(self, key: Any, op: Any, inputs: tuple[Any, ...]) -> _Known | None:
        """The record of the value with this key, made if need be; None if the value cannot be
        recognised again.
        """
        self._asked += 1
        self.counts["step_ops"] += 1
        try:
            record = None if key is None else self._values.get(key)
        except TypeError:  # a field or an argument that cannot be compared
            key = None
        if key is None:
            self.counts["step_unknown"] += 1
            reason = self._reason(op, inputs)
            self.unknown[reason] = self.unknown.get(reason, 0) + 1
            return None
        if record is None:
            if self._noted == policy.STEP_NOTED:  # in a block that is a whole training, perhaps
                self._keep(lambda record: record.last != self._block or record.arrays is not None)
                self._noted = 0
            self._noted += 1
            record = self._values[key] = _Known(self._number(), op)
        return record

    def _reason(self, op: Any, inputs: tuple[Any, ...]) -> str:
        """The reason why the value of `op` on `inputs` cannot be recognised again."""
        if isinstance(op, Op):
            if op.drawn:
                return "random numbers"
            if op.opaque:
                return "code of the program's own"
        for x in inputs:
            if isinstance(x, TensorBase):
                if x._changes is INFERENCE:
                    return "an inference tensor, whose changes are not counted"
                if self._number_of(x) is None:
                    return "memory of another device, or a value that is not computed yet"
            elif isinstance(x, (tuple, list)) or (op in self._pure and type(x) not in _SIMPLE):
                return f"an argument of type {type(x).__name__}"
        if not isinstance(op, Op):
            return "a gradient is wanted through the whole of it"
        return "a field that cannot be compared"

    def _eagerly(self, function: Callable[..., Any], *args: Any) -> Any:
        mode = MODE.get()
        if self._eager[0] is not mode:
            self._eager = (mode, mode_with(mode, executor=None))
        try:
            MODE.set(self._eager[1])
            return function(*args)
        finally:
            MODE.set(mode)

    def _note(self, op: Any, record: _Known | None, y: Any, seconds: float) -> None:
        """Number the results of an op that was computed; keep them if they were asked for
        before.
        """
        if self._state.observer is not None:
            self._state.observer.on_run(_Ran(op), int(seconds * 1e9))
        if record is None:
            return
        ys = y if type(y) is tuple else (y,)
        if not all(isinstance(each, TensorBase) for each in ys):
            return
        again, record.last, record.seconds = record.last, self._block, seconds
        view = isinstance(op, Op) and op.view
        arrays = [] if view or again in (0, self._block) else list(map(self._own, ys))
        size = sum(0 if a is None else a.nbytes for a in arrays)
        if arrays and all(a is not None for a in arrays) and size + self._bytes < policy.STEP_BYTES:
            self._bytes += size
            record.arrays = tuple(arrays)
            for each, array in zip(ys, arrays, strict=True):
                each._data = self._value(array, None)
        for i, each in enumerate(ys):
            self._bind(each, (record.number, i))

    def _own(self, y: Any) -> Any:
        """The array of `y`, if nothing else shows it or can write to it; else None."""
        if y._view is None and self._is_given(y):
            return y._data.array
        own = type(y._data) is ndarray and y._data.base is None and y._changes is None
        return y._data if own else None

    def _is_given(self, x: Any) -> bool:
        """Whether `x` shows a kept array."""
        entry = self._given.get(id(x._data))
        return entry is not None and entry[0]() is x._data

    def _bind(self, x: Any, number: Any) -> None:
        """Record that the tensor `x` shows the value of this number."""
        data = x._data
        if type(data) is LazyValue:
            self._given[id(data)] = (weakref.ref(data), number)
        elif type(data) is ndarray and x._changes is not INFERENCE:
            self._tensors[id(x)] = _Seen(x, number, self._block)

    def _value(self, array: Any, number: Any) -> LazyValue:
        """A recorded value that holds `array` and copies it before a write."""
        value = LazyValue(None, (), array.shape, array.dtype)
        value.array = array
        if number is not None:
            self._given[id(value)] = (weakref.ref(value), number)
        return value

    # ---- reused values ---------------------------------------------------------------------------

    def _reuse(self, record: _Known) -> None:
        record.last = self._block
        self._saved += record.seconds
        self.counts["step_reused"] += 1
        if self._state.observer is not None:
            self._state.observer.on_reuse(_Ran(record.op))

    def _is_seen_view(self, op: Op, inputs: tuple[Any, ...]) -> bool:
        """Whether `op` views a value that was handed out, whose memory nobody writes to."""
        return op.view and type(inputs[0]._data) is LazyValue

    def _reused(self, op: Op, inputs: tuple[Any, ...], record: _Known) -> Any:
        """The tensors of `op` with its kept value, recorded on this step's tape."""
        self._reuse(record)
        arrays = record.arrays
        if arrays is not None:
            inputs = self._plain(op, inputs)
        else:
            computed = op.compute(backend, inputs[0]._data.array, *inputs[1:])
            arrays = tuple(map(as_array, computed)) if op.n_outputs != 1 else (as_array(computed),)
        values = tuple([self._value(a, (record.number, i)) for i, a in enumerate(arrays)])
        wants = any(isinstance(x, TensorBase) and x._node is not None for x in inputs)
        result = values if op.n_outputs != 1 else values[0]
        return finish(op, inputs, result, parents_of(inputs), wants)

    # ---- inputs ----------------------------------------------------------------------------------

    def _numbers(self, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Keys of the inputs, equal if the inputs hold equal values; None where that cannot be
        told.
        """
        keys: list[Any] = []
        for x in inputs:
            if isinstance(x, TensorBase):
                number = self._number_of(x)
                if number is None:
                    return None
                keys.append(number)
            elif type(x) is float:
                keys.append((float, x, math.copysign(1.0, x)))
            elif isinstance(x, (tuple, list)) and any(isinstance(each, TensorBase) for each in x):
                return None
            else:
                keys.append((type(x), x))
        return tuple(keys)

    def _number_of(self, x: Any) -> Any:
        data = x._data
        kind = type(data)
        if kind is LazyValue:
            return self._given[id(data)][1] if self._is_given(x) else None
        if isinstance(data, Cell):
            data.realize()
            return ("cell", data.order, data.version)
        if kind is not ndarray or x._changes is INFERENCE:
            return None
        seen = self._tensors.get(id(x))
        is_unchanged = seen is not None and seen.tensor() is x and seen.data() is data
        is_unchanged = is_unchanged and seen.count == _count(x)  # type: ignore[union-attr]
        if is_unchanged:
            seen.last = self._block  # type: ignore[union-attr]
        exported = x._changes is not None and x._changes.exported
        if exported:
            content = data.tobytes()
            if is_unchanged and seen.content == content:  # type: ignore[union-attr]
                return seen.number  # type: ignore[union-attr]
        elif is_unchanged:
            return seen.number  # type: ignore[union-attr]
        if x._changes is None:
            x._changes = Version()
        seen = self._tensors[id(x)] = _Seen(
            x, self._number(), self._block, content if exported else None
        )
        return seen.number

    def _plain(self, op: Op | None, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs for eager execution, with kept arrays as their memory. The input of a view
        stays as it is, since the view must show its own memory.
        """
        if op is not None and op.view:
            return tuple(self.pinned(inputs))
        return tuple(
            [
                _readable(x) if isinstance(x, TensorBase) and self._is_given(x) else x
                for x in self.pinned(inputs)
            ]
        )

    def pinned(self, inputs: tuple[Any, ...]) -> Iterator[Any]:
        """The inputs of an op in a step; tensors of a graph are replaced by their present values.

        Errors: GraphError for a computed node that wants a gradient.
        """
        for x in inputs:
            if not isinstance(x, TensorBase) or not isinstance(x._data, Cell):
                yield x
                continue
            node = x._node
            if node is not None and type(node) is not Leaf:
                if MODE.get().grad and wants_gradient(x._data):
                    raise GraphError(
                        f"step: {x._data!r} was recorded outside the step and wants a gradient, "
                        "which would not reach it; compute it inside the step, or use "
                        ".detach() of it"
                    )
                node = None
            yield wrap(x._data.settle(None), node)


def _casts(mode: Mode) -> Any:
    """Key of autocast's settings, for results of composites and modules."""
    return mode.autocast and mode.autocast.signature


def _readable(x: Any) -> Any:
    """`x` with its kept array as memory. If that is saved for a gradient, writes to `x` must reach
    it: it shares the version of `x`, and gets the new memory of `x` when that is written.
    """
    y = wrap(x._data.array, x._node, x._changes)
    if MODE.get().grad:
        if x._changes is None:
            x._changes = y._changes = Version()
        y._view = x._view
        register_view(x)
        register_view(y)
    return y


def _kinds(op: Op) -> Any:
    """The types of an op's fields, if equal fields may have different types."""
    return tuple(map(type, op._attributes())) if type(op).numbers else None


class _Ran:
    """An op of a step, in the form that a graph's log expects."""

    def __init__(self, op: Any) -> None:
        self.op = op


class Block(ModeSwitch):
    """One step: `with graph.step():`."""

    def __init__(self, steps: Steps, reuse: bool | None) -> None:
        super().__init__()
        self._steps = steps
        self._reuse = reuse

    def _inside(self, mode: Mode) -> Mode:
        """Begin the step; return its mode."""
        self._mode = self._steps.begin(mode, self._reuse)
        return self._mode

    def _left(self) -> None:
        """End the step."""
        self._steps.end(self._mode)
