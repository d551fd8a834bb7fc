"""Sub-graphs of control flow: the captured body of a branch or of a loop.

A body is traced once on symbols, and keeps its tape. Tensors that it reads from outside (the
weights of a module, say) become further inputs. Its derivative is traced from the tape and is
another body, so there are gradients of every order; the tape respects `detach`, `no_grad` and
custom Functions.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...autograd.capture import program_of, recording
from ...autograd.gradients import grad
from ...backends import native
from ...core import fork_safety
from ...core.errors import Unsupported
from ...core.mode import MODE
from ...core.signal_deferral import complete
from ...core.spec import Spec
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from ...ir.compute import spec_of
from ...ir.program import Program, Value
from ...ops.index.number_places import has_numbers
from ...runtime.lazy import LazyValue, run
from ...runtime.tensors import wrap
from ..passes.fusion_roles import CHEAP
from ..run.bindings import InputBinding
from ..run.segment import Segment, is_small, unbound
from .body_recorder import READS, BodyRecorder, Scope, like
from .capturing import assert_modes
from .number_indices import symbols_of, take_numbers
from .random_state import CapturedGenerators

if TYPE_CHECKING:
    from ...autograd.protocols import Casting
    from ..guards.state_snapshot import StateSnapshot
    from .fused_loop import LoopText

ndarray = np.ndarray


class Subgraph:
    """A captured sub-graph: `inputs` are symbols, from which `outputs` were traced with their tape.
    Made by `captured`.
    """

    def __init__(self, title: str, scope: Scope) -> None:
        self.title = title
        self.scope = scope
        self.inputs: list[Any] = []  # arguments, then captured outside tensors
        self.wanted: list[bool] = []  # which of them had a history when it was traced
        self.outputs: list[Any] = []
        self.kept: list[Any] = []  # recorded values that are further outputs, for the derivative
        self.hints: list[tuple[Any, int]] = []  # values that the derivative takes: value, output
        self.checks: list[tuple[Any, Callable[[], Exception]]] = []
        self.streams = CapturedGenerators("")  # from which it draws
        self.more: list[tuple[int, Any]] = []  # stream, extra draws that only a run can count
        self.calls_back = False  # whether its derivative calls what the user gave: Functions, hooks
        self.drew: list[int] = []  # how many draws the last run made of each
        self.derivatives: dict[Any, Any] = {}
        self.called: list[str] = []  # ops for which a loop calls Python in each turn
        self.by_records: str | None = None  # why its loop is not one function; "" where it is
        self.machines: dict[Any, Any] = {}  # loops over it, by what they do with it
        self.texts: dict[Any, LoopText] = {}  # code of scans over it, likewise, of any length
        # While loops that are bound to memory, by the first half of the numbers of their runs.
        self.bound: Any = weakref.WeakValueDictionary()
        self.lock = fork_safety.lock()
        self._ready: _Native | _OneByOne | None = None
        self._program: Program | None = None  # if symbolic sizes have been filled in

    @property
    def specs(self) -> list[Spec]:
        """Specs of the outputs."""
        ends = self.outputs if self._program is None else self._program.outputs
        return [y.spec for y in ends[: len(self.outputs)]]

    @property
    def input_specs(self) -> list[Spec]:
        """Specs of the inputs."""
        return [x.spec for x in (self.inputs if self._program is None else self._program.inputs)]

    def program(self) -> Program:
        """New program that computes outputs, kept values, draw counts and checks."""
        if self._program is not None:
            return self._program.copied()  # who compiles it changes its nodes
        more = [x._data for _, x in self.more]
        wrong = [x for x, _ in self.checks]
        ends = [*(y._data for y in self.outputs), *self.kept, *more, *wrong]
        program = program_of([x._data for x in self.inputs], ends, _constant, reads=symbols_of)
        if any(has_numbers(node.op) for node in program.nodes):
            take_numbers(program)
        return program

    def resized(self, fill: Callable[[Any], Any]) -> Subgraph:
        """Copy of the body for other sizes; `fill` replaces symbolic sizes in its program by
        numbers.
        """
        made = copy.copy(self)
        made.lock, made.derivatives, made.machines = fork_safety.lock(), {}, {}
        made.bound, made._ready, made.by_records = weakref.WeakValueDictionary(), None, None
        made.streams = fill(self.streams)
        program = self.program()
        filled = made._program = fill(program)
        if not _are_alike(program, filled):
            made.texts = {}
        return made

    def run(
        self, arrays: Sequence[Any], outs: Sequence[Any] | None = None, now: Sequence[Any] = ()
    ) -> list[Any]:
        """Compute the outputs and the kept values, into `outs` or new memory. An input that is None
        keeps its value from the last run, for which the caller holds the `lock`. `now` are the
        states of the generators from which the body draws.

        Errors: those of its operations, and of its checks.
        """
        with self.lock:
            if self._ready is None:
                self._ready = (_Native if native.load() else _OneByOne)(self.program())
            self.draw_from(now)
            computed = self._ready.run(arrays)
            count = len(computed) - len(self.checks)
            for wrong, (_, error) in zip(computed[count:], self.checks, strict=True):
                if bool(wrong):
                    raise error()
            count -= len(self.more)
            self.drew = self.draws(computed[count : count + len(self.more)])
            if outs is None:
                return [y.copy() for y in computed[:count]]
            for out, y in zip(outs, computed[:count], strict=True):
                out[...] = y
            return list(outs)

    def draws(self, counts: Sequence[Any]) -> list[int]:
        """How many draws a run made of each stream, where it has counted these extra ones."""
        drew = [stream.count for stream in self.streams.all]
        for (n, _), more in zip(self.more, counts, strict=True):
            drew[n] += int(more)
        return drew

    def draw_from(self, now: Sequence[Any]) -> None:
        """Set the generators from which the body and its derivative draw to the states `now`."""
        for stream, at in zip(self.streams.all, now, strict=True):
            stream.set(at)

    def derived(
        self,
        name: str,
        arguments: Sequence[Any],
        hints: bool,
        create: bool,
        function: Callable[..., Sequence[Any]],
    ) -> tuple[Subgraph, list[Any]]:
        """Trace `function(*arguments)` as another body of this scope, and return it with the
        outside tensors that it captured. Its inputs are those of this body, the arguments, and,
        with `hints`, the kept values.
        """
        extra = [wrap(value) for value, _ in self.hints] if hints else []
        title = self.title if self.title.endswith(name) else f"{self.title}{name}"
        inputs = (*self.inputs, *arguments, *extra)
        return captured(title, inputs, function, arguments, self.scope, create, _has_node)


def _are_alike(program: Program, filled: Program) -> bool:
    """Whether no symbolic size was in a program that was filled: all of it is the same then, by
    identity, since to compare sizes is to decide by them.
    """
    values = [*zip(program.inputs, filled.inputs, strict=True)]
    for a, b in zip(program.nodes, filled.nodes, strict=True):
        if a.op is not b.op or any(isinstance(x, SymbolicNumber) for x in a.inputs):
            return False
        values += zip(a.outputs, b.outputs, strict=True)
    return all(x.spec is y.spec for x, y in values)


def _has_node(x: TensorBase) -> bool:
    return x._node is not None


def captured(
    title: str,
    inputs: Sequence[Any],
    function: Callable[..., Sequence[Any]],
    arguments: Sequence[Any],
    scope: Scope,
    grad: bool,
    wants: Callable[[Any], bool],
    autocast: Casting | None = None,
    reads: StateSnapshot | None = None,
) -> tuple[Subgraph, list[Any]]:
    """Trace `function(*arguments)`, which gives a list of tensors, as a body of `inputs` (symbols,
    or values of the `scope`). Returns the body and the outside tensors that it captured, which are
    its last inputs; `wants` says which of these require gradients, `reads` takes guards.

    Errors: Unsupported for what cannot be captured.
    """
    body = Subgraph(title, scope)
    for x in inputs:
        scope.add(x)
    before = [(x, x._data, x._node) for x in arguments]
    recorder = BodyRecorder(title, scope, wants, arguments, reads)
    try:
        with recording(READS.format(title), executor=recorder, grad=grad, autocast=autocast):
            mode = MODE.get()
            results = function(*arguments)
            assert_modes(mode, MODE.get(), f"{title}: a function of it")
            body.outputs = [recorder.result(y) for y in results]
            del results  # what the body made itself is held by nobody else
            if recorder.streams is not None:
                body.streams, body.more = recorder.streams, recorder.streams.more()
        present = set(map(id, inputs))
        outside = [met for met in recorder.close(before) if id(met.stand) not in present]
    finally:
        complete([lambda: recorder.restore()])
    body.inputs = [*inputs, *(met.stand for met in outside)]
    body.wanted = [x._node is not None for x in body.inputs]
    body.checks, body.calls_back = recorder.checks, recorder.calls_back
    if any(x._leaf is not None and x._leaf.grad is not None for x in body.inputs):
        raise Unsupported(
            f"{title}: a backward within a function of it reaches a tensor from outside; use "
            "autograd.grad within, or call backward outside"
        )
    return body, [met.tensor for met in outside]


class SubgraphVJP(NamedTuple):
    """Vector-Jacobian product of a body, as another body."""

    body: Subgraph  # its inputs: the body's, gradients of the `seeds`, hints, `outside`
    seeds: tuple[int, ...]  # numbers of outputs whose gradients are taken
    reached: tuple[int, ...]  # numbers of inputs whose gradients are computed
    outside: list[Any]  # tensors that the derivative captured besides


def pullback(
    body: Subgraph, has_gradient: Sequence[bool], create: bool, hints: bool = True
) -> SubgraphVJP:
    """The VJP of a body for those outputs for which `has_gradient` is true; with `create` it can be
    differentiated again. Cached.
    """
    seeds = tuple(
        [k for k, y in enumerate(body.outputs) if has_gradient[k] and y._node is not None]
    )
    key = seeds, create, hints
    vjp = body.derivatives.get(key)
    if vjp is None:
        vjp = body.derivatives[key] = _pullback(body, seeds, create, hints)
    return vjp


def _pullback(body: Subgraph, seeds: tuple[int, ...], create: bool, hints: bool) -> SubgraphVJP:
    with_history = [k for k, x in enumerate(body.inputs) if x._node is not None]
    reached: list[int] = []

    def back(*gs: Any) -> list[Any]:
        if not gs or not with_history:
            return []
        computed = gradients(
            [body.outputs[k] for k in seeds], [body.inputs[k] for k in with_history], gs, create
        )
        reached[:] = [k for k, g in zip(with_history, computed, strict=True) if g is not None]
        return [g for g in computed if g is not None]

    cotangents = [like(body.outputs[k], create) for k in seeds]
    made, outside = body.derived("_backward", cotangents, hints, create, back)
    if hints and any(node.op.drawn for node in made.program().nodes):
        raise Unsupported(
            f"{made.title}: it would draw again what was drawn forward; draw outside, and give "
            "the numbers as operands"
        )
    return SubgraphVJP(made, seeds, tuple(reached), outside)


def gradients(
    ys: Sequence[Any], xs: Sequence[Any], gs: Sequence[Any], create: bool
) -> tuple[Any, ...]:
    """Gradients of `xs`, None where there is no path; the tape is retained."""
    return grad(ys, xs, gs, retain_graph=True, create_graph=create, allow_unused=True)


def leading(y: TensorBase) -> set[Any]:
    """All autograd nodes that the gradient of `y` would reach."""
    reached: set[Any] = set()
    stack = [] if y._node is None else [y._node]
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack += [parent for parent in node.parents if parent is not None]
    return reached


def keep(body: Subgraph, first: int = 0) -> None:
    """Add outputs to a body for values that its derivative would otherwise recompute, unless they
    are cheap. Values among the outputs from number `first` on need no second output.
    """
    back = pullback(body, [True] * len(body.outputs), False, hints=False)
    count = len(body.inputs)
    later = {id(x._data) for x in back.body.inputs[count : count + len(back.seeds)]}
    input_ids = {id(x._data) for x in body.inputs}
    depends: dict[int, bool] = {}
    order: list[Any] = []
    stack = [y._data for y in back.body.outputs]
    while stack:  # inputs first
        x = stack[-1]
        if id(x) in depends:
            stack.pop()
            continue
        before = [] if id(x) in input_ids else [y for y in x.inputs if isinstance(y, LazyValue)]
        waiting = [y for y in before if id(y) not in depends]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        depends[id(x)] = id(x) in later or any(depends[id(y)] for y in before)
        order.append(x)
    needed = [y._data for y in back.body.outputs]
    needed += [y for x in order if depends[id(x)] for y in x.inputs if isinstance(y, LazyValue)]
    seen: set[int] = set()
    while needed:
        x = needed.pop()
        if id(x) in seen or depends[id(x)] or id(x) in input_ids or x.op is None:
            continue
        seen.add(id(x))
        if x.dtype is None or x.op.view or type(x.op).__name__ in CHEAP:
            needed += [y for y in x.inputs if isinstance(y, LazyValue)]
            continue
        same = [k for k, y in enumerate(body.outputs) if y._data is x and k >= first]
        if not same:
            body.kept.append(x)
        body.hints.append((x, same[0] if same else len(body.outputs) + len(body.kept) - 1))


# ---- running -------------------------------------------------------------------------------------


class _Native:
    """Executor of a body with native kernels and its own buffers: one run at a time."""

    def __init__(self, program: Program) -> None:
        made = {y for node in program.nodes for y in node.outputs}
        computed = dict.fromkeys(y for y in program.outputs if y in made)
        bound = unbound(program.inputs)
        part = self.part = Segment(program.inputs, program.nodes, list(computed))
        part.bind(bound, {})
        fixed = part.shown.union(program.outputs)
        calls = part.native_calls()
        self.inputs = [
            InputBinding(bound[x], () if x in fixed or is_small(x) else calls)
            for x in program.inputs
        ]
        self.outputs = [bound.get(y, y.array) for y in program.outputs]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Compute the outputs; the arrays are overwritten by the next run."""
        for target, array in zip(self.inputs, arrays, strict=True):
            if array is not None:
                target.take(array)
        self.part.run(None)
        return self.outputs


class _OneByOne:
    """Executor of a body that computes op by op, where native code is not available."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs: list[Any] = [None] * len(program.inputs)
        self.constants = {x: x.array for x in program.constants()}

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Compute the outputs, as copies."""
        program = self.program
        self.inputs = [x if y is None else y for x, y in zip(self.inputs, arrays, strict=True)]
        values = {**self.constants, **dict(zip(program.inputs, self.inputs, strict=True))}
        for node in program.nodes:
            result = run(node.op, [values[x] if isinstance(x, Value) else x for x in node.inputs])
            several = result if type(result) is tuple else (result,)
            values.update(zip(node.outputs, several, strict=True))
        return [values[y].copy() for y in program.outputs]  # which inputs may be


def _constant(data: LazyValue) -> Value:
    return Value(spec_of(data.array), array=data.array)
