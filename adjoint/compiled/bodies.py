"""What a function of control flow does, captured: the body of a branch or of a loop.

A body is run once on symbols, and keeps its tape. What it reads outside of itself, a module's
weights say, becomes further inputs. From the tape comes its derivative, which is another body, so
there are gradients of every order: what `detach`, `no_grad` and custom Functions said is in it.
"""

from __future__ import annotations

import copy
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..autograd.gradients import grad
from ..autograd.recording import execute_lazily
from ..backends import native
from ..core.errors import Unsupported
from ..core.mode import MODE
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..eager.fused import Declared
from ..eager.tensors import wrap
from ..graph.lazy import LazyValue, run
from ..inference.roles import CHEAP
from ..ops.index.selected import Selected, of_selected
from ..ops.promotion import with_wide_numbers
from ..ops.random.draws import Draw
from ..program.capture import program_of, recording
from ..program.compute import spec_of
from ..program.program import Program, Value
from ..program.watch import place_of_caller
from .drawing import Streams
from .handover import Argument
from .routines import recorded
from .step import Part, is_small, unbound

ndarray = np.ndarray


class Scope:
    """What a body and its derivatives know of in common."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}  # all that was recorded, by id
        self.stands: dict[int, tuple[Any, Any]] = {}  # for tensors from outside; by id

    def add(self, x: Any) -> None:
        """A tensor's value is recorded here."""
        self.values[id(x._data)] = x._data

    def stand_of(self, tensor: Any) -> Any:
        """The tensor that stands for one that was met before."""
        held, stand = self.stands.get(id(tensor), (None, None))
        return stand if held is not None and held() is tensor else None


class _Met:
    """A tensor from outside that a body reads, with what it was; `stand` is saved in its place."""

    def __init__(self, tensor: Any, stand: Any) -> None:
        self.tensor, self.stand = tensor, stand
        self.data, self.node = tensor._data, tensor._node
        self.place = ""  # where it was written

    @property
    def is_changed(self) -> bool:
        """Whether it was written, or got a history."""
        x, stand = self.tensor, self.stand
        return x._data is not stand._data or x._node is not stand._node

    @property
    def is_local(self) -> bool:
        """Whether it was made within the body, of Python's numbers: nobody else holds it."""
        x = self.tensor
        exported = x._changes is not None and x._changes.exported
        if type(self.data) is not ndarray or x._view is not None or exported:
            return False
        del x
        return sys.getrefcount(self.tensor) <= _HELD and sys.getrefcount(self.data) <= _HELD


_HELD = 2  # references to what only a `_Met` holds, as `sys.getrefcount` counts them


class _Recorder:
    """Records ops on symbols, and what of outside they read."""

    def __init__(
        self, title: str, scope: Scope, wants: Callable[[Any], bool], arguments: Sequence[Any]
    ) -> None:
        self.title = title
        self.scope = scope
        self.wants = wants  # whether a tensor from outside wants a gradient
        self.met: dict[int, _Met] = {}
        self.places = dict.fromkeys(map(id, arguments), "")  # where they are written
        self.checks: list[tuple[Any, Callable[[], Exception]]] = []
        self.outer = MODE.get().executor
        around = getattr(self.outer, "streams", None)
        self.streams = None if around is None else Streams(_READS.format(title))

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The recorded result."""
        for rule in (of_selected, with_wide_numbers):
            found = rule(op, inputs, self)
            if found is not NotImplemented:
                return found
        if isinstance(op, Draw) and self.streams is not None:
            op, inputs = self.streams.drawn(op, inputs)
        elif op.drawn:
            raise Unsupported(f"{self.title}: {op.name}, random numbers by another way")
        given = [self._met(x, op.view) if isinstance(x, TensorBase) else x for x in inputs]
        found = execute_lazily(op, tuple(given))
        for y in found if type(found) is tuple else (found,):
            self.scope.add(y)
        return found

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Any:
        """The recorded result of a composite; NotImplemented where its own ops are recorded."""
        if any(isinstance(x, TensorBase) and type(x._data) is Selected for x in args):
            return NotImplemented
        return recorded(self, declared, args)

    def _met(self, x: Any, by_view: bool = False) -> Any:
        """The tensor that an op is recorded for: not one from outside, which nodes would save. A
        view knows its base, which may be written.
        """
        if not self.is_within(x._data):
            self._take(x)
        met = self.met.get(id(x))
        return x if met is None or by_view or met.is_changed else met.stand

    def adopt(self, inputs: Sequence[Any]) -> None:
        """A custom Function is about to read the nodes of what it is given."""
        for x in inputs:
            if isinstance(x, TensorBase):
                self._met(x)

    def _take(self, x: Any) -> _Met:
        stand = self.scope.stand_of(x)
        met = self.met[id(x)] = _Met(x, like(x, self.wants(x)) if stand is None else stand)
        x._data, x._node = met.stand._data, met.stand._node
        self.scope.add(x)
        return met

    def is_within(self, data: Any) -> bool:
        """Whether a value was recorded here, perhaps by no op of the body's."""
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
            known = [y for y in before if id(y) in values]
            if not before:
                return False
            stack.append((known or before)[0])
        return False

    # ---- what a body is not to do ----------------------------------------------------------------

    def meet(self, x: Any) -> None:
        """A tensor is about to be written."""
        base = x if x._view is None else x._view.base
        met = self.met.get(id(base))
        if met is None and not self.is_within(base._data):
            met = self._take(base)
        if met is not None and not met.place:
            met.place = place_of_caller()
        if self.places.get(id(base)) == "":
            self.places[id(base)] = place_of_caller()

    def note_read(self) -> None:
        """A value is read."""
        raise Unsupported(_READS.format(self.title))

    def note_memory(self, symbol: Any, begins: bool) -> None:
        """The order of memory from outside is gone by, of which a body knows nothing."""
        raise Unsupported(
            f"{self.title}: as_strided: of memory from outside of its function; use it outside, or "
            f"of .clone(memory_format=contiguous_format){place_of_caller()}"
        )

    def note_draw(self, generator: Any) -> tuple[int, int]:
        """Random numbers are drawn."""
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

    def note_gradient(self, x: Any) -> None:
        """A gradient is set."""
        if not self.is_within(x._data) or id(x) in self.met:
            raise Unsupported(
                f"{self.title}: a function of it sets the gradient of a tensor from outside; set "
                f"it outside{place_of_caller()}"
            )

    def note_hooks(self, x: Any, hooks: dict[int, Any]) -> None:
        """A hook is about to be added."""
        if not self.is_within(x._data) or id(x) in self.met or type(x._data) is Selected:
            raise Unsupported(
                f"{self.title}: a function of it registers a hook on a tensor from outside; "
                f"register it outside{place_of_caller()}"
            )

    def note_gradient_read(self, x: Any) -> None:
        """Python reads whether there is a gradient."""
        note = getattr(self.outer, "note_gradient_read", None)
        if note is not None:
            note(x)

    def note_check(self, wrong: Any, error: Callable[[], Exception]) -> None:
        """Each run is to raise an error where a value is true."""
        self.checks.append((self._met(wrong)._data, error))

    def ask(self, question: Callable[..., bool]) -> bool:
        """The answer to a question about sizes, which may be numbers of the function around."""
        ask = getattr(self.outer, "ask", None)
        return bool(question() if ask is None else ask(question))

    def result(self, y: Any) -> Any:
        """A tensor that the body gives; it holds on to nothing that `_Met.is_local` counts."""
        if type(y._data) is Selected:
            raise Unsupported(_READS.format(self.title))
        y = self._met(y)
        return wrap(y._data, y._node)

    def close(self, arguments: Sequence[tuple[Any, Any, Any]]) -> list[_Met]:
        """What was met, as inputs; tensors that the body made itself are constants.

        Errors: Unsupported where something from outside was changed, or one of the `arguments`.
        """
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
        """Give all tensors back what they held."""
        if self.streams is not None:
            self.streams.restore()
        for met in self.met.values():
            met.tensor._data, met.tensor._node = met.data, met.node


_READS = (
    "{}: a function of it reads a value (item, bool, int, a loop over a tensor), on which what is "
    "captured cannot depend; use where(), or cond within it"
)


def like(x: Any, wants: bool, shape: Sequence[int] | None = None) -> Any:
    """A tensor of which only shape and dtype are known, which may want a gradient."""
    return symbol(x.spec if shape is None else x.spec.with_(shape=tuple(shape)), wants)


def symbol(spec: Spec, wants: bool) -> Any:
    """A tensor of which only this is known."""
    dtype = spec.dtype.numpy
    y = wrap(LazyValue(None, (), spec.shape, dtype, spec.device))
    if wants and dtype.kind in "fcV":
        y.requires_grad_()
    return y


class Body:
    """A captured function of tensors: `inputs` are symbols, from which `outputs` and their tape
    lead back. Make one with `captured`.
    """

    def __init__(self, title: str, scope: Scope) -> None:
        self.title = title
        self.scope = scope
        self.inputs: list[Any] = []  # arguments, then what was met outside
        self.outputs: list[Any] = []
        self.kept: list[Any] = []  # recorded values that are given, too
        self.hints: list[tuple[Any, int]] = []  # those that a derivative takes rather than computes
        self.checks: list[tuple[Any, Callable[[], Exception]]] = []
        self.streams = Streams("")  # from which it draws
        self.more: list[tuple[int, Any]] = []  # by how many draws of them are more, if not known
        self.drew: list[int] = []  # how many draws the last run made of each
        self.derivatives: dict[Any, Any] = {}
        self.lock = threading.RLock()
        self._ready: _Native | _OneByOne | None = None
        self._program: Program | None = None  # of one whose sizes are known by now

    @property
    def specs(self) -> list[Spec]:
        """Those of the outputs."""
        return [y.spec for y in self.outputs]

    def program(self) -> Program:
        """What computes outputs, kept values and checks."""
        if self._program is not None:
            return self._program
        more = [x._data for _, x in self.more]
        wrong = [x for x, _ in self.checks]
        ends = [*(y._data for y in self.outputs), *self.kept, *more, *wrong]
        return program_of([x._data for x in self.inputs], ends, _constant)

    def resized(self, fill: Callable[[Any], Any]) -> Body:
        """The same to run, of what `fill` gives for its program: sizes for numbers."""
        made = copy.copy(self)
        made.lock, made.derivatives, made._ready = threading.RLock(), {}, None
        made.streams = fill(self.streams)
        made._program = fill(self.program())
        return made

    def run(
        self, arrays: Sequence[Any], outs: Sequence[Any] | None = None, now: Sequence[Any] = ()
    ) -> list[Any]:
        """The outputs and the kept values: in `outs`, or else in memory of their own. An input that
        is None is what it was in the last run, for which one holds the `lock`. `now` is where the
        generators are from which it draws.

        Errors: those of its operations, and of its checks.
        """
        with self.lock:
            if self._ready is None:
                self._ready = (_Native if native.load() else _OneByOne)(self.program())
            self.draw_from(now)
            found = self._ready.run(arrays)
            count = len(found) - len(self.checks)
            for wrong, (_, error) in zip(found[count:], self.checks, strict=True):
                if bool(wrong):
                    raise error()
            self.drew = [stream.count for stream in self.streams.all]
            count -= len(self.more)
            for (n, _), more in zip(self.more, found[count:], strict=False):
                self.drew[n] += int(more)
            if outs is None:
                return [y.copy() for y in found[:count]]
            for out, y in zip(outs, found[:count], strict=True):
                out[...] = y
            return list(outs)

    def draw_from(self, now: Sequence[Any]) -> None:
        """Let it draw, and its derivative draw again, from generators as they are `now`."""
        for stream, at in zip(self.streams.all, now, strict=True):
            stream.set(at)

    def derived(
        self, name: str, given: Sequence[Any], hints: bool, create: bool, function: Any
    ) -> tuple[Body, list[Any]]:
        """Another body, of the inputs, then of `given`, with which `function` is called, then of
        the kept values where there are `hints`; and what else it met outside.
        """
        extra = [wrap(value) for value, _ in self.hints] if hints else []
        title = self.title if self.title.endswith(name) else f"{self.title}{name}"
        inputs = (*self.inputs, *given, *extra)
        return captured(title, inputs, function, given, self.scope, create, _has_node)


def _has_node(x: Any) -> bool:
    return x._node is not None


def captured(
    title: str,
    inputs: Sequence[Any],
    function: Callable[..., Sequence[Any]],
    arguments: Sequence[Any],
    scope: Scope,
    grad: bool,
    wants: Callable[[Any], bool],
    autocast: Any = None,
) -> tuple[Body, list[Any]]:
    """The body of `function(*arguments)`, which gives a list of tensors, as a function of `inputs`
    (symbols, or values of the `scope`); and the tensors that it met outside, which are its last
    inputs. It `wants` gradients of some of these.

    Errors: Unsupported for what cannot be captured.
    """
    body = Body(title, scope)
    for x in inputs:
        scope.add(x)
    before = [(x, x._data, x._node) for x in arguments]
    recorder = _Recorder(title, scope, wants, arguments)
    try:
        with recording(_READS.format(title), executor=recorder, grad=grad, autocast=autocast):
            body.outputs = [recorder.result(y) for y in function(*arguments)]
            if recorder.streams is not None:
                body.streams, body.more = recorder.streams, recorder.streams.more()
        present = set(map(id, inputs))
        outside = [met for met in recorder.close(before) if id(met.stand) not in present]
    finally:
        recorder.restore()
    body.inputs = [*inputs, *(met.stand for met in outside)]
    body.checks = recorder.checks
    if any(x._leaf is not None and x._leaf.grad is not None for x in body.inputs):
        raise Unsupported(
            f"{title}: a backward within a function of it reaches a tensor from outside; use "
            "autograd.grad within, or call backward outside"
        )
    return body, [met.tensor for met in outside]


class Pullback(NamedTuple):
    """A body's derivative."""

    body: Body  # of the body's inputs, gradients of the `seeds`, hints, and what it met
    seeds: tuple[int, ...]  # outputs, by number
    reached: tuple[int, ...]  # inputs whose gradients it gives, by number
    outside: list[Any]


def pullback(body: Body, given: Sequence[bool], create: bool, hints: bool = True) -> Pullback:
    """How gradients of those outputs that are `given` lead to those of the inputs; with `create`,
    what has a derivative itself.
    """
    seeds = tuple([k for k, y in enumerate(body.outputs) if given[k] and y._node is not None])
    key = seeds, create, hints
    found = body.derivatives.get(key)
    if found is None:
        found = body.derivatives[key] = _pullback(body, seeds, create, hints)
    return found


def _pullback(body: Body, seeds: tuple[int, ...], create: bool, hints: bool) -> Pullback:
    places = [k for k, x in enumerate(body.inputs) if x._node is not None]
    reached: list[int] = []

    def back(*gs: Any) -> list[Any]:
        if not gs or not places:
            return []
        found = gradients(
            [body.outputs[k] for k in seeds], [body.inputs[k] for k in places], gs, create
        )
        reached[:] = [k for k, g in zip(places, found, strict=True) if g is not None]
        return [g for g in found if g is not None]

    given = [like(body.outputs[k], create) for k in seeds]
    made, outside = body.derived("_backward", given, hints, create, back)
    if hints and any(node.op.drawn for node in made.program().nodes):
        raise Unsupported(
            f"{made.title}: it would draw again what was drawn forward; draw outside, and give "
            "the numbers as operands"
        )
    return Pullback(made, seeds, tuple(reached), outside)


def gradients(ys: Sequence[Any], xs: Sequence[Any], gs: Sequence[Any], create: bool) -> Any:
    """Those of `xs`, None for what is not reached; the tape stays."""
    return grad(ys, xs, gs, retain_graph=True, create_graph=create, allow_unused=True)


def leading(y: Any) -> set[Any]:
    """The nodes that a tensor's gradient would reach."""
    found: set[Any] = set()
    stack = [] if y._node is None else [y._node]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [parent for parent in node.parents if parent is not None]
    return found


def keep(body: Body, first: int = 0) -> None:
    """Let a body give what its derivative would compute again, as far as that is not cheap; what is
    among the outputs from the `first` on is given already.
    """
    back = pullback(body, [True] * len(body.outputs), False, hints=False)
    count = len(body.inputs)
    later = {id(x._data) for x in back.body.inputs[count : count + len(back.seeds)]}
    given = {id(x._data) for x in body.inputs}
    depends: dict[int, bool] = {}
    order: list[Any] = []
    stack = [y._data for y in back.body.outputs]
    while stack:  # inputs first
        x = stack[-1]
        if id(x) in depends:
            stack.pop()
            continue
        before = [] if id(x) in given else [y for y in x.inputs if isinstance(y, LazyValue)]
        waiting = [y for y in before if id(y) not in depends]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        depends[id(x)] = id(x) in later or any(depends[id(y)] for y in before)
        order.append(x)
    wanted = [y._data for y in back.body.outputs]
    wanted += [y for x in order if depends[id(x)] for y in x.inputs if isinstance(y, LazyValue)]
    seen: set[int] = set()
    while wanted:
        x = wanted.pop()
        if id(x) in seen or depends[id(x)] or id(x) in given or x.op is None:
            continue
        seen.add(id(x))
        if x.dtype is None or x.op.view or type(x.op).__name__ in CHEAP:
            wanted += [y for y in x.inputs if isinstance(y, LazyValue)]
            continue
        same = [k for k, y in enumerate(body.outputs) if y._data is x and k >= first]
        if not same:
            body.kept.append(x)
        body.hints.append((x, same[0] if same else len(body.outputs) + len(body.kept) - 1))


# ---- running -------------------------------------------------------------------------------------


class _Native:
    """A body's kernels, in memory of their own: one run at a time."""

    def __init__(self, program: Program) -> None:
        made = {y for node in program.nodes for y in node.outputs}
        wanted = dict.fromkeys(y for y in program.outputs if y in made)
        known = unbound(program.inputs)
        part = self.part = Part(program.inputs, program.nodes, list(wanted))
        part.bind(known, {})
        fixed = part.shown.union(program.outputs)
        calls = part.native_calls()
        self.inputs = [
            Argument(known[x], () if x in fixed or is_small(x) else calls) for x in program.inputs
        ]
        self.outputs = [known.get(y, y.array) for y in program.outputs]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """What it computes, where it lies until the next run."""
        for target, array in zip(self.inputs, arrays, strict=True):
            if array is not None:
                target.take(array)
        self.part.run(None)
        return self.outputs


class _OneByOne:
    """A body's operations, where there is no native code."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs: list[Any] = [None] * len(program.inputs)
        self.constants = {x: x.array for x in program.constants()}

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """What they compute."""
        program = self.program
        self.inputs = [x if y is None else y for x, y in zip(self.inputs, arrays, strict=True)]
        values = {**self.constants, **dict(zip(program.inputs, self.inputs, strict=True))}
        for node in program.nodes:
            found = run(node.op, [values[x] if isinstance(x, Value) else x for x in node.inputs])
            several = found if type(found) is tuple else (found,)
            values.update(zip(node.outputs, several, strict=True))
        return [values[y].copy() for y in program.outputs]  # which inputs may be


def _constant(data: Any) -> Value:
    return Value(spec_of(data.array), array=data.array)
