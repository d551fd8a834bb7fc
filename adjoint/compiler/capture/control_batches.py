"""Rules of `vmap` for nodes of control flow: the same node, whose bodies compute a batch. What a
body has recorded is recorded again for inputs with a dimension more, with what its tape left out.
A branch of a predicate for each entry computes both sides and selects; a loop goes on as long as
any entry does, and leaves alone those that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import singledispatch
from typing import Any

from ...autograd.batching import Batched, BatchLevel, refuse
from ...autograd.levels import entered
from ...core.errors import NotTraceable
from ...core.mode import MODE, mode_with, switched
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ops.elementwise.comparison import where
from ...ops.shape.movement import Expand, movedim, reshape
from ...runtime.dispatch import apply
from ...runtime.lazy import LazyValue
from ...runtime.node import Item
from ...runtime.tensors import spec_of, wrap, zeros
from .body_recorder import Scope, symbol
from .control_flow_ops import Branch, Call, ControlFlow, Scan
from .control_forms import Tensors
from .loops import Loop, LoopGradient
from .subgraphs import Subgraph, captured, keep

Replay = Callable[..., Tensors]  # of a level, a scope and tensors


def batched(op: ControlFlow, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    """The results of a node on a batch, with the batch's dimension in front of all of them; inputs
    with a flag have it.

    Errors: Unsupported for one that draws; NotTraceable where a body is not recorded again.
    """
    if len(op.drawing):
        refuse(
            f"called random operation within {op.title}, which counts its draws; draw outside of "
            "vmap, and give the numbers as operands"
        )
    return _batched(op, size, flags, inputs)


@singledispatch
def _batched(op: ControlFlow, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    raise NotTraceable(f"{op.title} has no rule for batches")


# ---- bodies --------------------------------------------------------------------------------------


def _body(
    title: str, size: int, given: Sequence[tuple[Any, bool]], flags: Sequence[bool],
    function: Replay, wide: Collection[int] = (),
) -> tuple[Subgraph, list[bool]]:  # fmt: skip
    """A body that computes `function` for a batch, and which outputs vary in it; those of `wide` do
    in any case. `given` are specs of its inputs, and whether each has a history.
    """
    scope = Scope()
    specs = [
        spec.with_(shape=(size, *spec.shape)) if flag else spec
        for (spec, _), flag in zip(given, flags, strict=True)
    ]
    inputs = [symbol(spec, wants) for spec, (_, wants) in zip(specs, given, strict=True)]
    varies: list[bool] = []

    def run(*xs: Tensor) -> list[Any]:
        level = BatchLevel(size, "error")
        results = []
        with entered(level):
            pairs = zip(xs, flags, strict=True)
            made = function(
                level, scope, *(wrap(Batched(level, x)) if flag else x for x, flag in pairs)
            )
        for k, y in enumerate(made):
            here = level.at(y)
            inner = y._data.inner if here else y
            vary = here and not y._data.whole
            if k in wide and not vary:
                inner, vary = _expanded(inner, size), True
            varies.append(vary)
            results.append(inner)
        return results

    grad = any(wants for _, wants in given)
    body, outside = captured(title, inputs, run, inputs, scope, grad, lambda x: x._node is not None)
    if outside:
        raise NotTraceable("a tensor of another body")
    return body, varies


def _expanded(x: Tensor, size: int) -> Tensor:
    return apply(Expand((size, *x._data.shape)), x)


def _given(body: Subgraph) -> list[tuple[Any, bool]]:
    """Specs of a body's inputs, and whether they had a history when it was recorded."""
    return [(x.spec, wants) for x, wants in zip(body.inputs, _wanted(body), strict=True)]


def _wanted(body: Subgraph) -> list[bool]:
    """Flags of a body's inputs: whether each had a history, if the outputs have one."""
    return body.wanted if _is_taped(body) else [False] * len(body.wanted)


def _is_taped(body: Subgraph) -> bool:
    return any(y._node is not None for y in body.outputs)


def _replayed(body: Subgraph, scope: Scope, given: Tensors) -> list[Any]:
    """Record again what a body has recorded, for other inputs: its outputs and kept values.

    Errors: NotTraceable for what its tape has besides ops: hooks, custom Functions.
    """
    if body._program is not None or body.checks or body.streams.all:
        raise NotTraceable(f"{body.title}: sizes, checks or draws of a body")
    taped = _is_taped(body)
    made: dict[int, Any] = {
        id(x._data): y
        for x, y in zip(body.inputs, given, strict=True)
        if x._data.op is None or not taped  # values of another body have its history
    }
    stack = [*(y._data for y in body.outputs), *body.kept]
    while stack:
        x = stack[-1]
        if id(x) in made:
            stack.pop()
        elif x.op is None or x.array is not None:
            made[id(x)] = constant = wrap(x)
            scope.add(constant)
        elif waiting := [y for y in x.inputs if isinstance(y, LazyValue) and id(y) not in made]:
            stack += waiting
        elif type(x.op) is Item:
            made[id(x)] = made[id(x.inputs[0])][x.op.index]
        else:
            made[id(x)] = _again(body.scope, x, made, taped)
    outputs = [_following(made[id(y._data)], y._node is not None) for y in body.outputs]
    return [*outputs, *(made[id(value)] for value in body.kept)]


def _again(scope: Scope, x: Tensor, made: dict[int, Any], taped: bool) -> Tensor:
    """Apply the op of a recorded value to what stands for its inputs."""
    _, follows, node = scope.applied.get(id(x), (None, (), None))
    if len(follows) != len(x.inputs):
        raise NotTraceable(f"{x.op.name}, which was recorded by another way")
    extra = getattr(node, "extra", None)
    if extra is not None:
        raise NotTraceable(f"{x.op.name}, whose gradient has hooks")
    pairs = zip(x.inputs, [flag and taped for flag in follows], strict=True)
    inputs = [_following(made[id(y)], flag) if isinstance(y, LazyValue) else y for y, flag in pairs]
    records = taped and (node is not None or not any(follows))
    with switched(mode_with(MODE.get(), grad=records)):
        return apply(x.op, *inputs)


def _following(x: Tensor, follows: bool) -> Tensor:
    """A tensor with the history that the tape knew of, or without."""
    if not isinstance(x, TensorBase):
        return x
    inner: Any = x._data.inner if isinstance(x._data, Batched) else x
    if follows == (inner._node is not None):
        return x
    if follows:
        raise NotTraceable("a gradient that a custom Function computes")
    tensor: Tensor = x
    return tensor.detach()


# ---- nodes ---------------------------------------------------------------------------------------


def _spread(results: Tensors, varies: Sequence[bool], size: int) -> list[Any]:
    """Results that all vary."""
    pairs = zip(results, varies, strict=True)
    return [y if vary else _expanded(y, size) for y, vary in pairs]


def _several(result: Any) -> Tensors:
    return result if type(result) is tuple else (result,)


@_batched.register
def _scan(op: Scan, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    """A scan of batches; what is carried has them where any turn's does."""
    n, end = op.carried, op.carried + op.sliced
    flags = list(flags)
    varies: list[bool] = []
    old = op.body
    while True:
        body, varies = _body(
            op.title, size, _given(old), [flags[k] for k in op.places],
            lambda _, scope, *xs: _replayed(old, scope, xs),
            [k for k in range(n) if flags[k]],
        )  # fmt: skip
        if all(flags[k] or not varies[k] for k in range(n)):
            break
        flags[:n] = [flag or vary for flag, vary in zip(flags, varies[:n], strict=False)]
    _settle(body, old)
    first = len(old.outputs)
    body.hints = [(body.outputs[k]._data, k) for _, k in old.hints if k >= first]
    xs = list(inputs)
    for k in range(n):
        if flags[k] and xs[k]._data.ndim == len(old.outputs[k]._data.shape):
            xs[k] = _expanded(xs[k], size)
    xs[n:end] = [movedim(xs[k], 0, 1) if flags[k] else xs[k] for k in range(n, end)]
    made = Scan(op.title, body, op.places, n, op.sliced, op.length, op.reverse, op.keeps)
    results = list(_several(apply(made, *xs)))
    varies = [*varies[:n], *varies[n:], *(varies[:n] if op.keeps else ())]
    for k in range(n, len(results)):
        results[k] = movedim(results[k], 1, 0) if varies[k] else results[k]
    return _spread(results, varies, size)


def _settle(body: Subgraph, old: Subgraph) -> None:
    """Take the history from inputs of a body whose loop never gives them one."""
    for x, before in zip(body.inputs, old.inputs, strict=True):
        if before._node is None:
            x._node = None


@_batched.register
def _branch(op: Branch, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    """A branch that batches share; or both sides, of which each entry selects one."""
    if flags[0]:
        return _selected(op, size, flags, inputs)
    made: list[Subgraph] = []
    varies: list[list[bool]] = []
    for _ in range(2):  # once to see which outputs vary, and with all that do
        wide = [False] * op.n_outputs
        for sources, vary in zip(op.sources, varies, strict=False):
            wide = [
                w or (k is not None and vary[k]) for w, k in zip(wide, sources, strict=True)
            ]  # fmt: skip
        made, varies = [], []
        for old, places, sources in zip(op.bodies, op.places, op.sources, strict=True):
            body, vary = _body(
                op.title, size, _given(old), [flags[1 + k] for k in places],
                lambda _, scope, *xs, old=old: _replayed(old, scope, xs),
                {k for k, w in zip(sources, wide, strict=True) if w and k is not None},
            )  # fmt: skip
            made.append(body)
            varies.append(vary)
    specs = [
        spec.with_(shape=(size, *spec.shape)) if w else spec
        for spec, w in zip(op.specs, wide, strict=True)
    ]
    node = Branch(op.title, made, op.places, op.sources, specs)
    return _spread(_several(apply(node, *inputs)), wide, size)


def _selected(op: Branch, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    """Both sides of a branch, of which each entry selects one."""
    given = [(_entry(x, flag), False) for x, flag in zip(inputs, flags, strict=True)]
    for body, places in zip(op.bodies, op.places, strict=True):
        for k, wants in zip(places, _wanted(body), strict=True):
            given[1 + k] = given[1 + k][0], given[1 + k][1] or wants

    def function(_: Any, scope: Scope, pred: Tensor, *xs: Tensor) -> list[Any]:
        sides = []
        for body, places, sources in zip(op.bodies, op.places, op.sources, strict=True):
            made = _replayed(body, scope, [xs[k] for k in places])
            pairs = zip(sources, op.specs, strict=True)
            sides.append([_zeros(spec) if k is None else made[k] for k, spec in pairs])
        go = reshape(pred, ()) != 0
        return [where(go, y, z) for y, z in zip(*sides, strict=True)]

    return _called(op.title, size, given, flags, inputs, function)


def _zeros(spec: Spec) -> Tensor:
    return zeros(spec.shape, spec.dtype.numpy, spec.device)


def _called(
    title: str, size: int, given: Sequence[tuple[Any, bool]], flags: Sequence[bool],
    inputs: Tensors, function: Replay,
) -> Tensors:  # fmt: skip
    """The results of a call of a body of batches."""
    body, varies = _body(title, size, given, flags, function)
    if any(y._node is not None for y in body.outputs):
        keep(body)
    results = _several(apply(Call(title, body), *inputs))
    return _spread(results[: len(varies)], varies, size)


def _entry(x: Tensor, flag: bool) -> Spec:
    """The spec of an entry of an input."""
    spec = spec_of(x)
    return spec.with_(shape=spec.shape[1:]) if flag else spec


@_batched.register
def _call(op: Call, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    """A call of batches."""
    old = op.body_for([_entry(x, flag) for x, flag in zip(inputs, flags, strict=True)])
    return _called(
        op.title, size, _given(old), flags, inputs,
        lambda _, scope, *xs: _replayed(old, scope, xs),
    )  # fmt: skip


@_batched.register
def _loop(op: Loop, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    """A loop of batches."""
    made, flags, xs = _looped(op, size, flags, inputs)
    results = apply(made, *xs)
    return _spread(results, [*flags[: op.count], False], size)


def _looped(
    op: Loop, size: int, flags: Sequence[bool], inputs: Tensors
) -> tuple[Loop, list[bool], list[Any]]:
    """A loop of batches, which of its inputs have them, and the inputs."""
    n, count = op.count, len(inputs)
    given = [(_entry(x, flag), False) for x, flag in zip(inputs, flags, strict=True)]
    for body, places in zip((op.test, op.body), op.places, strict=True):
        for k, wants in zip(places, _wanted(body), strict=True):
            given[k] = given[k][0], given[k][1] or wants
    flags = list(flags)
    each = False  # whether entries end each by itself

    def go(scope: Scope, xs: Tensors) -> Tensor:
        (y,) = _replayed(op.test, scope, [xs[k] for k in op.places[0]])
        return reshape(y, ()) != 0

    def test(level: BatchLevel, scope: Scope, *xs: Tensor) -> list[Any]:
        nonlocal each
        y = go(scope, xs)
        if not level.at(y) or y._data.whole:
            return [y]
        each = True
        return [y._data.inner.any()]

    def turn(_: Any, scope: Scope, *xs: Tensor) -> list[Any]:
        made = _replayed(op.body, scope, [xs[k] for k in op.places[1]])[:n]
        if not each:
            return made
        return [where(go(scope, xs), y, x) for y, x in zip(made, xs, strict=False)]

    while True:
        tested, _ = _body(op.title, size, given, flags, test)
        if each and not all(flags[:n]):
            flags[:n] = [True] * n
            continue
        wide = [k for k in range(n) if flags[k]]
        body, varies = _body(op.title, size, given, flags, turn, wide)
        if varies == flags[:n]:
            break
        flags[:n] = varies
    specs = [
        spec.with_(shape=(size, *spec.shape)) if flag else spec
        for spec, flag in zip(op.specs[:n], flags, strict=False)
    ]
    for k in range(n):
        if not op.wanting[k]:
            body.inputs[k]._node = body.outputs[k]._node = None
    all_places: list[Sequence[int]] = [range(count), range(count)]
    made = Loop(tested, body, all_places, specs, op.wanting)
    pairs = zip(inputs, flags, given, strict=True)
    xs = [
        _expanded(x, size) if flag and x._data.ndim == len(spec.shape) else x
        for x, flag, (spec, _) in pairs
    ]
    return made, flags, xs


@_batched.register
def _loop_gradient(op: LoopGradient, size: int, flags: Sequence[bool], inputs: Tensors) -> Tensors:
    """The gradient of a loop of batches, which runs again: what the loop kept is of no batch that
    has inputs for each entry.
    """
    inputs = _spread(inputs, flags, size)
    xs, rest = inputs[1 : 1 + op.inputs], iter(inputs[1 + op.inputs :])
    made, _, xs = _looped(op.loop, size, [True] * op.inputs, xs)
    ys = apply(made, *xs)
    gs = [next(rest) if has else None for has in op.given_]
    sent = made.gradient([*gs, None], xs, ys)
    return [
        _zeros(spec.with_(shape=(size, *spec.shape))) if sent[n] is None else sent[n]
        for n, spec in zip(op.ends, op.specs, strict=True)
    ]
