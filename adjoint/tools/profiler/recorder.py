"""Recorder of a program's events: the observer of its mode (see `core.mode`)."""

from __future__ import annotations

import bisect
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.mode import MODE, Mode, mode_with
from ...core.op import Op
from ...core.package import FOLDER
from ...core.tensor_base import TensorBase
from ...nn.hooks import EVERYWHERE, Entry, add
from ...reactive.view.table import multiply_adds
from ...runtime.cells import Cell
from ...runtime.dispatch import apply
from ...runtime.lazy import LazyValue, concrete
from ...runtime.node import Item, Node, next_order
from .events import MEMORY, OP, PYTHON, USER, FunctionEvent


class _Thread(threading.local):
    """Events that are open in a thread, the innermost last."""

    def __init__(self) -> None:
        self.id = threading.get_native_id()
        self.open: list[FunctionEvent] = []


class EventRecorder:
    """Records one window of a profile. Ops compute in the mode without it, so that they take the
    ways that they take otherwise; around other events it stays, and sees what they do.
    """

    def __init__(
        self,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
    ) -> None:
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.metadata: dict[str, Any] = {}
        self.events: list[FunctionEvent] = []
        self.memory: list[tuple[int, int, int]] = []  # when, bytes (freed: negative), thread
        self.active = False
        self.origin = time.perf_counter_ns()
        self._thread = _Thread()
        self._inside: tuple[Any, Any] = (None, None)  # a mode, and the same without this
        self._arrays: dict[int, Any] = {}  # weak references to what was allocated
        self._hooks: list[Any] = []
        self._modules: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._classes: dict[str, int] = {}  # how many modules of a class have got a name
        self._calls: list[tuple[Any, FunctionEvent]] = []  # of modules
        self._entered: list[tuple[int, str]] = [(0, "")]  # the module from a node's order on
        self._backward: list[FunctionEvent] = []  # of modules whose gradients are computed

    # ---- begin and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Observe the mode of this thread from now on."""
        if self.with_modules and not self._hooks:
            self._hooks = [
                add(EVERYWHERE.forward_pre, Entry(self._enter_module)),
                add(EVERYWHERE.forward, Entry(self._leave_module, always_call=True)),
            ]
        self.active = True
        MODE.set(mode_with(MODE.get(), observer=self))

    def follow(self, earlier: EventRecorder) -> None:
        """Go on from an earlier window: its events and times come before those of this one."""
        self.origin = earlier.origin
        self.events += earlier.events
        self.memory += earlier.memory

    def stop(self) -> None:
        """Observe no more; events that last end now."""
        self.active = False
        mode = MODE.get()
        if mode.observer is self:
            MODE.set(mode_with(mode, observer=None))
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        now = time.perf_counter_ns()
        for event in self.events:
            event.ended = event.ended or now

    # ---- events ----------------------------------------------------------------------------------

    def begin(self, name: str, kind: str = OP, inputs: Sequence[Any] = ()) -> FunctionEvent:
        """Open an event inside the innermost one of this thread."""
        thread = self._thread
        parent = thread.open[-1] if thread.open else None
        event = FunctionEvent(len(self.events), name, kind, thread.id, parent, self.origin)
        if self.active:
            self.events.append(event)
            if parent is not None:
                parent.cpu_children.append(event)
        if self.record_shapes and inputs:
            event.input_shapes = [list(getattr(x, "shape", ())) for x in inputs]
        if self.with_stack:
            event.stack = _users_stack()
        thread.open.append(event)
        event.began = time.perf_counter_ns()
        return event

    def begin_node(self, node: Node) -> FunctionEvent:
        """Open an event for the gradient of a node, in one for the module that recorded it."""
        if self.with_modules:
            name = self._entered[bisect.bisect(self._entered, (node.order,)) - 1][1]
            if name:
                self._backward.append(self.begin(f"{name} (backward)", PYTHON))
        return self.begin(node.name())

    def end_node(self) -> None:
        """Close the event of a node's gradient."""
        self.end()
        if self._backward and self._thread.open[-1:] == [self._backward[-1]]:
            self.end(self._backward.pop())

    def end(self, event: FunctionEvent | None = None) -> None:
        """Closes an event (by default the innermost one) and the events open inside it."""
        now = time.perf_counter_ns()
        opened = self._thread.open
        if event is not None and event not in opened:  # of another asyncio task
            event.ended = event.ended or now
            return
        while opened:
            last = opened.pop()
            last.ended = last.ended or now
            if event is None or last is event:
                return

    def depth(self) -> int:
        """Number of open events."""
        return len(self._thread.open)

    def close(self, depth: int) -> None:
        """Close events until so many are open."""
        while len(self._thread.open) > depth:
            self.end()

    # ---- what runs -------------------------------------------------------------------------------

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """Runs `apply` as an event; where a graph records the op, nothing runs."""
        recorded = [x for x in inputs if isinstance(x, TensorBase) and _is_recorded(x)]
        if any(isinstance(x._data, Cell) for x in recorded) and MODE.get().step is None:
            return self._silently(apply, op, *inputs)
        for x in recorded:
            concrete(x)  # which ops do, too, but unobserved
        event = self.begin(op.name, OP, inputs)
        y = self._unobserved(event, apply, op, *inputs)
        if self.with_flops:
            event.flops = _flops(op, inputs, y)
        return y

    def composite(self, declared: Any, args: tuple[Any, ...], one_by_one: bool) -> Any:
        """A composite: by its kernels, or op by op, each an event inside."""
        if any(isinstance(x, TensorBase) and _is_recorded(x) for x in args):
            return declared.function(*args)
        name = declared.function.__name__.strip("_")
        if one_by_one:
            return self._around(self.begin(name, OP, args), declared.function, args, {})
        return self._unobserved(self.begin(name, OP, args), declared.run, *args)

    def in_place(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A method that changes its tensor."""
        tensors = [x for x in args if isinstance(x, TensorBase)]
        event = self.begin(name, OP, tensors)
        return self._unobserved(event, method, *args, in_place=True, **kwargs)

    def around(
        self, name: str, function: Callable[..., Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        """A block that records a part of the program as an event, with the events inside."""
        return self._around(self.begin(name, USER), function, args, kwargs or {})

    def compute(self, op: Op, arrays: list[Any], run: Callable[..., Any]) -> Any:
        """A recorded op that is computed now, by `run(op, arrays)`."""
        if type(op) is Item:  # no more than a choice among results
            return run(op, arrays)
        event = self.begin(op.name, OP, arrays)
        try:
            y = run(op, arrays)
            self._allocated(event, y)
        finally:
            self.end(event)
        if self.with_flops:
            event.flops = _flops(op, arrays, y)
        return y

    def chain(self, ops: Sequence[Op], arrays: list[Any], kernel: Callable[..., Any]) -> Any:
        """Recorded ops that one kernel computes."""
        event = self.begin(_joined(ops), OP, arrays)
        try:
            found = kernel(arrays)
            for y in found:
                self._allocated(event, y)
        finally:
            self.end(event)
        return found

    def step(self, steps: Sequence[Any], run: Callable[[], object]) -> None:
        """Steps of a program whose memory is there already, by one call."""
        inputs = [x for step in steps for x in step.values] if self.record_shapes else ()
        event = self.begin(_joined([step.op for step in steps]), OP, inputs)
        try:
            run()
        finally:
            self.end(event)
        if self.with_flops:
            event.flops = sum(_flops(s.op, s.inputs, s.outputs[0]) for s in steps)

    def _around(self, event: FunctionEvent, function: Any, args: Any, kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            self.end(event)

    def _unobserved(
        self, event: FunctionEvent, function: Any, *args: Any, in_place: bool = False, **kwargs: Any
    ) -> Any:
        try:
            y = self._silently(function, *args, **kwargs)
            if self.profile_memory and not in_place:
                for each in y if type(y) is tuple else (y,):
                    self._allocated(event, getattr(each, "_data", None))
            return y
        finally:
            self.end(event)

    def _silently(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a function in the mode without this observer."""
        mode: Mode = MODE.get()
        known, inside = self._inside
        if known is not mode:
            inside = mode_with(mode, observer=None)
            self._inside = mode, inside
        try:
            MODE.set(inside)
            return function(*args, **kwargs)
        finally:
            # A block that was left may have brought back a mode of when this was active.
            MODE.set(mode if self.active else inside)

    # ---- memory ----------------------------------------------------------------------------------

    def made(self, arrays: Sequence[Any]) -> None:
        """Records the arrays that a program hands out as allocated in the event that is open."""
        if self._thread.open:
            self._allocated(self._thread.open[-1], tuple(arrays))

    def _allocated(self, event: FunctionEvent, found: Any) -> None:
        """An event has made an array, or several."""
        if not self.profile_memory or not self.active:
            return
        for array in found if type(found) is tuple else (found,):
            if type(array) is not np.ndarray or array.base is not None or not array.nbytes:
                continue
            size = array.nbytes
            event.self_cpu_memory_usage += size
            self.memory.append((time.perf_counter_ns(), size, self._thread.id))

            def freed(reference: Any, size: int = size) -> None:
                self._freed(reference, size)

            reference = weakref.ref(array, freed)
            self._arrays[id(reference)] = reference

    def _freed(self, reference: Any, size: int) -> None:
        """An array that an event had made is gone; it counts for the innermost event."""
        self._arrays.pop(id(reference), None)
        if not self.active:
            return
        thread = self._thread
        self.memory.append((time.perf_counter_ns(), -size, thread.id))
        if thread.open:
            thread.open[-1].self_cpu_memory_usage -= size
        else:
            event = self.begin(MEMORY)
            self.end(event)
            event.self_cpu_memory_usage = -size

    # ---- modules ---------------------------------------------------------------------------------

    def _enter_module(self, module: Any, args: Any) -> None:
        if MODE.get().observer is self:
            self._calls.append((module, self.begin(self._name_of(module), PYTHON)))
            self._entered.append((next_order(), self._calls[-1][1].name))

    def _leave_module(self, module: Any, args: Any, output: Any) -> None:
        if any(each is module for each, _ in self._calls):
            while self._calls:
                each, event = self._calls.pop()
                self.end(event)
                self._entered.append((next_order(), self._calls[-1][1].name if self._calls else ""))
                if each is module:
                    return

    def _name_of(self, module: Any) -> str:
        name = self._modules.get(module)
        if name is None and self._calls:  # by its path in the model that is called
            from ...nn.error_paths import path_within  # which few programs need

            model = self._calls[0][0]
            path = path_within(model, module)
            if path:
                name = self._modules[module] = f"{self._name_of(model)}.{path}"
        if name is None:
            kind = type(module).__name__
            number = self._classes.get(kind, 0)
            self._classes[kind] = number + 1
            name = self._modules[module] = f"nn.Module: {kind}_{number}"
        return name


def _is_recorded(x: Any) -> bool:
    """Whether a tensor's value is recorded and not computed yet."""
    return isinstance(x._data, LazyValue) and x._data.kept is None


def _joined(ops: Sequence[Op]) -> str:
    """The name of what does several ops at once: the first ones."""
    return "_".join(op.name for op in ops[:3]) + ("_..." if len(ops) > 3 else "")


def _flops(op: Op, inputs: Sequence[Any], y: Any) -> int:
    """Multiplications and additions of a product or a convolution; 0 for other ops."""
    return 2 * multiply_adds(op, inputs, y)  # type: ignore[arg-type]


def _users_stack() -> list[str]:
    """The functions of the program that are running, the innermost first."""
    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(FOLDER) and "<frozen" not in code.co_filename:
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found
