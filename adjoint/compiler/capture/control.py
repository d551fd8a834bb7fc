"""Control flow that depends on values: `cond`, `while_loop` and `scan`, with gradients.

In eager execution these are Python's own `if`, `while` and `for`. While a function is captured, or
a graph recorded, each is one node, whose bodies are programs of their own; its gradient is such a
node again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.capture import Rebuild, parts_of
from ...autograd.recording import Recorder, is_captured
from ...core.errors import InvalidArgument, InvalidType, ShapeError, Unsupported
from ...core.mode import MODE
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ops.shape.joining import stack
from ...ops.shape.movement import movedim
from ...runtime.dispatch import apply
from ...runtime.node import INFERENCE
from ...runtime.public import naming
from ...runtime.tensors import wrap
from .control_flow_ops import Branch, Scan
from .loops import Loop
from .random_state import ControlFlowDraws
from .subgraphs import Scope, Subgraph, captured, keep, leading, like

if TYPE_CHECKING:
    from .control_flow_ops import ControlFlow

__all__ = ["cond", "scan", "while_loop"]


@naming
def cond(
    pred: TensorBase | float,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """`true_fn(*operands)` where `pred` is true, else `false_fn(*operands)`.

    Inside `ad.compile` or a Graph both are captured, and each run picks one by the value of `pred`;
    gradients flow to operands and to whatever tensors the functions read (a module's weights).

    Shapes: `pred` is a bool or a tensor of one element; operands and results are tensors, or
    tuples, lists and dicts of them. Captured branches give the same shapes and dtypes.
    Errors: InvalidArgument for another `pred`; where captured, ShapeError for branches that give
    different things, Unsupported for one that reads values, writes outside, or draws in a Graph.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cond.html

    >>> x = ad.tensor([1.0, -2.0], requires_grad=True)
    >>> ad.cond(x.sum() > 0, lambda v: v * 2, lambda v: v.exp().sum() + v, (x,)).sum().backward()
    >>> x.grad
    tensor([6.4366, 1.2707])
    """
    _assert_callable("cond", true_fn, false_fn)
    if not isinstance(operands, (tuple, list)):
        raise InvalidType(
            f"cond: operands are a tuple or list of tensors, got a {type(operands).__name__}"
        )
    _assert_one("cond: pred", pred)
    if not isinstance(pred, TensorBase) or not is_captured(pred):
        return _apart(true_fn(*operands) if pred else false_fn(*operands), operands)
    tensors, rebuild = parts_of(operands, "cond: the operands have")
    capture = Capture("cond", (pred, *tensors))
    yes, form = capture.body(true_fn, rebuild, tensors, "true_fn")
    no, other = capture.body(false_fn, rebuild, tensors, "false_fn")
    same = yes.specs == no.specs and _alike(form, other, len(yes.outputs))
    if not same:
        raise ShapeError(
            f"cond: true_fn gives {_shown(yes.outputs, form)} and false_fn "
            f"{_shown(no.outputs, other)}; both give tensors of the same shapes and dtypes"
        )
    if not yes.outputs:
        return form(iter(()))
    outside, input_numbers = capture.merged(len(tensors))
    wanting = [
        y._node is not None or z._node is not None
        for y, z in zip(yes.outputs, no.outputs, strict=True)
    ]
    specs, count = yes.specs, len(yes.outputs)
    sources: list[list[int | None]] = [[*range(count)], [*range(count)]]
    hints: list[list[int]] = [[], []]
    for k, body in enumerate((yes, no)):
        if any(wanting):
            keep(body)
        hints[k] = [n if n < count else n + len(specs) - count for _, n in body.hints]
        sources[k] += range(count, count + len(body.kept))
        sources[1 - k] += [None] * len(body.kept)
        specs += [value.spec for value in body.kept]
    op = Branch("cond", (yes, no), input_numbers, sources, specs, hints, capture.drawing(yes, no))
    return form(iter(capture.applied(op, (pred, *tensors, *outside), wanting)))


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]
) -> Any:
    """`carried_inputs`, replaced by `body_fn(*carried)` as long as `cond_fn(*carried)` is true.

    Inside `ad.compile` or a Graph the loop is one node, which runs as often as the values say;
    gradients flow to the carried inputs and to whatever tensors `body_fn` reads, as in eager loops:
    each iteration's carried values are kept.

    Shapes: `cond_fn` gives a bool or a tensor of one element; `body_fn` what it takes, a tuple of
    tensors, or of tuples, lists and dicts of them, whose shapes and dtypes stay the same.
    Errors: ShapeError where `body_fn` gives another form, shape or dtype than it took; where
    captured, Unsupported for functions that read values, write outside, or draw in a Graph, and
    AutogradError for third derivatives.
    Source: https://docs.pytorch.org/docs/main/higher_order_ops/while_loop.html

    >>> ad.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (ad.tensor(0), ad.ones(2)))
    (tensor(3), tensor([8., 8.]))
    """
    _assert_callable("while_loop", cond_fn, body_fn)
    if not isinstance(carried_inputs, (tuple, list)):
        raise InvalidType(
            "while_loop: carried_inputs are a tuple or list of tensors, got a "
            f"{type(carried_inputs).__name__}"
        )
    carried = tuple(carried_inputs)
    leaves = _leaves(carried)
    if not is_captured(*(x for x in leaves if isinstance(x, TensorBase))):
        return _apart(_looped(cond_fn, body_fn, carried), carried)
    numbers = [x for x in leaves if isinstance(x, (int, float))]
    if numbers:
        raise InvalidType(
            f"while_loop: carried_inputs have {numbers[0]!r}, of which a program knows no next "
            f"value; give tensor({numbers[0]!r})"
        )
    tensors, rebuild = parts_of(carried, "while_loop: carried_inputs have")
    if not tensors:
        raise InvalidArgument("while_loop: carried_inputs have no tensor, by which it could end")
    capture = Capture("while_loop", tensors)
    test, _ = capture.body(_tested(cond_fn), rebuild, tensors, "cond_fn", carried=True)
    body, form = capture.body(_tupled(body_fn), rebuild, tensors, "body_fn", carried=True)
    _assert_kept("while_loop: body_fn", tensors, rebuild, body.outputs, form)
    outside, input_numbers = capture.merged(len(tensors))
    wanting = capture.settled(body, tensors)
    drawing = capture.drawing(test, body)
    op = Loop(test, body, input_numbers, [x.spec for x in tensors], wanting, drawing)
    return form(iter(capture.applied(op, (*tensors, *outside), wanting)))


@naming
def scan(
    combine_fn: Callable[[Any, Any], Any], init: object, xs: object, *, dim: int = 0,
    reverse: bool = False,
) -> Any:  # fmt: skip
    """`combine_fn(carry, x)`, which gives the next carry and a result, for each slice of `xs` along
    `dim`: the last carry, and the results side by side along `dim`, a new dimension (along the
    first one, where they have too few).

    `reverse` begins with the last slice. Inside `ad.compile` or a Graph the loop is one node, whose
    body is captured once; its gradient is a scan the other way, of any order.

    Shapes: `init` and the carry are alike, tensors or tuples, lists and dicts of them; all of `xs`
    have the same size along `dim`, which may be 0.
    Errors: ShapeError for other sizes, and where `combine_fn` gives another form, shape or dtype of
    carry than it took; where captured, Unsupported for one that reads values, writes outside, or
    draws in a Graph.
    Source: https://docs.pytorch.org/docs/main/higher_order_ops/scan.html

    >>> total = lambda carry, x: (carry + x, carry + x)
    >>> ad.scan(total, ad.tensor(0.0), ad.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([1., 3., 6.]))
    """
    _assert_callable("scan", combine_fn)
    carries, carry = parts_of(init, "scan: init has")
    rows, row = parts_of(xs, "scan: xs have")
    if not rows:
        raise InvalidArgument("scan: xs have no tensor, whose slices would be gone through")
    if any(not -x.ndim <= dim < x.ndim for x in rows):
        raise ShapeError(
            f"scan: dim={dim}, but xs have shapes {[tuple(x.shape) for x in rows]}; each of them "
            "has that dimension"
        )
    dim %= rows[0].ndim
    if dim:
        rows = [movedim(x, dim, 0) for x in rows]
    length = rows[0].shape[0]
    if any(x.shape[0] != length for x in rows):
        raise ShapeError(
            f"scan: xs have {[x.shape[0] for x in rows]} slices along dim {dim}; give as many of "
            "each"
        )
    if length and not is_captured(*carries, *rows):
        return _apart(_scanned(combine_fn, init, row, rows, dim, reverse), init)
    capture = Capture("scan", (*carries, *rows))
    n = len(carries)
    forms: list[Rebuild] = []

    def run(*args: Any) -> list[Any]:
        arguments = carry(iter(args[:n])), row(iter(args[n:]))
        parts, results = [], _pair(combine_fn(*arguments))
        for name, each in zip(("carry", "result"), results, strict=True):
            tensors, form = parts_of(each, f"scan: combine_fn gives as {name}")
            forms.append(form)
            parts.append(tensors)
        _assert_kept("scan: combine_fn", args[:n], carry, parts[0], forms[0])
        return [*parts[0], *parts[1]]

    slices = [like(x, capture.wants(x), x.shape[1:]) for x in rows]
    body = capture.made(run, [*(like(x, capture.grad) for x in carries), *slices])
    outside, _ = capture.merged(len(body.inputs))
    inputs = (*carries, *rows, *outside)
    wanting = capture.settled(body, carries)
    if any(wanting):
        keep(body, n)
    numbers = range(len(body.inputs))
    drawing = capture.drawing(body)
    op = Scan("scan", body, numbers, n, len(rows), length, reverse, any(wanting), drawing)
    outputs = capture.applied(op, inputs, wanting)
    return forms[0](iter(outputs[:n])), forms[1](iter([_along(dim, y) for y in outputs[n:]]))


# ---- eager execution -----------------------------------------------------------------------------


def _apart(result: object, operands: object) -> object:
    """The result of a body, in which operands and views of them are replaced by copies, as they
    would be new tensors if it were captured.
    """
    bases = {id(_base(x)) for x in _leaves(operands) if isinstance(x, TensorBase)}

    def copied(x: Any) -> Any:
        if isinstance(x, TensorBase):
            return x.clone() if id(_base(x)) in bases else x  # type: ignore[attr-defined]
        if isinstance(x, dict):
            return {key: copied(each) for key, each in x.items()}
        if isinstance(x, (tuple, list)):
            kind = type(x)
            return kind(*map(copied, x)) if hasattr(kind, "_fields") else kind(map(copied, x))
        return x

    shows = any(isinstance(x, TensorBase) and id(_base(x)) in bases for x in _leaves(result))
    return copied(result) if shows else result


def _base(x: TensorBase) -> TensorBase:
    return x if x._view is None else x._view.base


def _looped(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: tuple[Any, ...]
) -> tuple[Any, ...]:
    test, body = _tested(cond_fn), _tupled(body_fn)
    counts = not all(isinstance(x, TensorBase) for x in _leaves(carried))  # by Python's numbers
    while test(*carried):
        carried_next = body(*carried)
        if not counts:
            before = parts_of(carried, "while_loop: carried_inputs have")
            after = parts_of(carried_next, "while_loop: body_fn gives")
            _assert_kept("while_loop: body_fn", *before, *after)
        carried = carried_next
    return carried


def _scanned(
    combine_fn: Callable[..., Any], carry: object, row: Rebuild, rows: list[Any], dim: int,
    reverse: bool,
) -> tuple[Any, Any]:  # fmt: skip
    before = parts_of(carry, "scan: init has")
    order = range(rows[0].shape[0])
    results: list[list[Any]] = []
    for t in reversed(order) if reverse else order:
        carry, y = _pair(combine_fn(carry, row(iter([x[t] for x in rows]))))
        parts = parts_of(carry, "scan: combine_fn gives as carry")
        _assert_kept("scan: combine_fn", *before, *parts)
        tensors, form = parts_of(y, "scan: combine_fn gives as result")
        results.append(tensors)
    if reverse:
        results.reverse()
    columns = [stack(list(column)) for column in zip(*results, strict=True)]
    return carry, form(iter([_along(dim, y) for y in columns]))


def _along(dim: int, y: Tensor) -> Tensor:
    """Move the first dimension of results, along which they were stacked, to `dim`, if they have
    that many.
    """
    return movedim(y, 0, dim) if 0 < dim < y.ndim else y


# ---- captured execution --------------------------------------------------------------------------


class Capture:
    """Traces the bodies of one call, and applies the node that runs them."""

    def __init__(self, title: str, tensors: Sequence[Any]) -> None:
        mode = MODE.get()
        for x in tensors:
            if x.device.type != "cpu":
                raise Unsupported(
                    f"{title}: a tensor on {x.device}, where control flow is captured; move it by "
                    ".cpu(), or call it eagerly"
                )
        self.title = title
        self.grad = mode.grad and not mode.inference
        self.autocast = mode.autocast.without_cache() if mode.casts else None
        # In a graph, gradients may be requested later.
        self.in_graph = mode.executor is None or isinstance(mode.executor, Recorder)
        self.met: list[list[Any]] = []  # outside tensors that each body has captured

    def wants(self, x: TensorBase) -> bool:
        """Whether a gradient of a tensor may be wanted."""
        return self.grad and (self.in_graph or x._node is not None)

    def made(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Subgraph:
        """Trace a function that gives a list of tensors, and note what it captured."""
        body, outside = captured(
            self.title,
            arguments,
            function,
            arguments,
            Scope(),
            self.grad,
            self.wants,
            self.autocast,
        )
        self.met.append(outside)
        return body

    def body(
        self, function: Callable[..., Any], rebuild: Rebuild, tensors: Sequence[Any], name: str,
        carried: bool = False,
    ) -> tuple[Subgraph, Rebuild]:  # fmt: skip
        """Trace a user's function for symbols like `tensors`: the body, and the form of what it
        returns. Tensors that are `carried` may get a history on the way.
        """
        forms: list[Rebuild] = []

        def run(*args: Any) -> list[Any]:
            parts, form = parts_of(function(*rebuild(iter(args))), f"{self.title}: {name} gives")
            forms.append(form)
            return parts

        arguments = [like(x, self.grad if carried else self.wants(x)) for x in tensors]
        return self.made(run, arguments), forms[0]

    def merged(self, first: int) -> tuple[list[Any], list[list[int]]]:
        """Captured outside tensors of all bodies, each once, and for each body the numbers of its
        inputs among the `first` tensors and these.
        """
        every = {id(x): x for met in self.met for x in met}
        number_of = {key: first + n for n, key in enumerate(every)}
        return list(every.values()), [
            [*range(first), *(number_of[id(x)] for x in met)] for met in self.met
        ]

    def settled(self, body: Subgraph, carried: Sequence[Any]) -> list[bool]:
        """For each output whether it requires a gradient. Carried tensors may come to require one
        in an iteration, so this is a fixed point.
        """
        count = len(carried)
        inputs = body.inputs
        live = {x._node for x in inputs[count:]}
        live |= {x._node for x, own in zip(inputs, carried, strict=False) if self.wants(own)}
        live.discard(None)
        reached = [leading(y) for y in body.outputs]
        changes = True
        while changes:
            changes = False
            for x, nodes in zip(inputs[:count], reached, strict=False):
                if x._node is not None and x._node not in live and not live.isdisjoint(nodes):
                    live.add(x._node)
                    changes = True
        wanting = [not live.isdisjoint(nodes) for nodes in reached]
        wanting[:count] = [x._node in live for x in inputs[:count]]
        for x in (*inputs[:count], *body.outputs):
            if x._node is not None and live.isdisjoint(leading(x)):
                x._node = None
        return wanting

    def drawing(self, *bodies: Subgraph) -> ControlFlowDraws:
        """Register the draws of a node with these bodies."""
        streams = getattr(MODE.get().executor, "streams", None)
        return ControlFlowDraws(streams, [body.streams for body in bodies])

    def applied(self, op: ControlFlow, inputs: Sequence[Any], wanting: Sequence[bool]) -> list[Any]:
        """Apply a node: its first outputs, with a history where `wanting` says so. It saves its
        inputs, so those made in inference mode, which ops may not save, are cloned.
        """
        if self.grad:
            inputs = [x.clone() if x._changes is INFERENCE else x for x in inputs]
        result = apply(op, *inputs, *op.drawing.given)
        several = result if type(result) is tuple else (result,)
        op.drawing.leave(several[len(several) - len(op.drawing) :])
        for y, wants in zip(several, wanting, strict=False):
            if not (wants or self.in_graph):
                y._node = None
        return list(several[: len(wanting)])


# ---- forms and checks ----------------------------------------------------------------------------


def _tested(cond_fn: Callable[..., Any]) -> Callable[..., Any]:
    def test(*carried: Any) -> TensorBase:
        go = cond_fn(*carried)
        _assert_one("while_loop: what cond_fn gives", go)
        return go if isinstance(go, TensorBase) else wrap(np.asarray(bool(go)))

    return test


def _tupled(body_fn: Callable[..., Any]) -> Callable[..., Any]:
    def body(*carried: Any) -> tuple[Any, ...]:
        result = body_fn(*carried)
        if not isinstance(result, (tuple, list)):
            raise InvalidType(
                f"while_loop: body_fn gives a {type(result).__name__}; it gives a tuple of what it "
                "takes"
            )
        return tuple(result)

    return body


def _pair(result: object) -> tuple[Any, Any]:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise InvalidType(
            f"scan: combine_fn gives a {type(result).__name__}; it gives the next carry and a "
            "result"
        )
    return result[0], result[1]


def _leaves(tree: object) -> list[Any]:
    """Flatten nested tuples, lists and dicts."""
    if isinstance(tree, Mapping):
        tree = tuple(tree.values())
    if not isinstance(tree, (tuple, list)):
        return [tree]
    return [x for each in tree for x in _leaves(each)]


def _assert_callable(name: str, *functions: Any) -> None:
    for function in functions:
        if not callable(function):
            raise InvalidType(f"{name}: expected a function, got a {type(function).__name__}")


def _assert_one(what: str, x: object) -> None:
    """Refuse a condition that is not one boolean or element."""
    if isinstance(x, TensorBase):
        if x._data.size != 1:
            raise InvalidArgument(
                f"{what} has shape {tuple(x.shape)}, where a bool or a tensor of one element "
                "decides; use all() or any()"
            )
    elif not isinstance(x, (bool, int, float)):
        raise InvalidType(f"{what} is a {type(x).__name__}; a bool or a tensor of one element is")


def _alike(form: Rebuild, other: Rebuild, count: int) -> bool:
    """Whether two results have the same structure around `count` tensors."""
    one, two = (each(iter(range(count))) for each in (form, other))
    return bool(one == two)


def _assert_kept(
    name: str, before: Sequence[Any], form: Rebuild, after: Sequence[Any], other: Rebuild
) -> None:
    """Refuse a loop body that changes the structure, shapes or dtypes of carried values."""
    same = len(before) == len(after) and _alike(form, other, len(before))
    if not same or any(x.spec != y.spec for x, y in zip(before, after, strict=False)):
        raise ShapeError(
            f"{name} is given {_shown(before, form)} and gives {_shown(after, other)}; what is "
            "carried keeps its form, shapes and dtypes"
        )


class _Text(str):
    __slots__ = ()
    __repr__ = str.__str__


def _shown(tensors: Sequence[Any], form: Rebuild) -> str:
    """Describe a result's structure, with the shapes and dtypes of its tensors."""
    return str(form(iter([_Text(f"{tuple(x.shape)} {x.dtype}") for x in tensors])))
