"""Control flow that depends on values: `cond`, `while_loop` and `scan`, with gradients.

Where values are at hand these are Python's own `if`, `while` and `for`. Where a function is
captured, or a graph recorded, each is one node, whose bodies are programs of their own; its
gradient is such a node again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..autograd.recording import Recorder, is_captured
from ..core.errors import InvalidArgument, InvalidType, ShapeError, Unsupported
from ..core.mode import MODE
from ..core.tensor_base import TensorBase
from ..eager.dispatch import apply
from ..eager.tensors import wrap
from ..graph.node import INFERENCE
from ..ops.shape.joining import stack
from ..ops.shape.movement import movedim
from ..program.capture import Rebuild, parts_of
from .bodies import Body, Scope, captured, keep, leading, like
from .drawing import Drawing
from .flow import Branch, Scan
from .loops import Loop

__all__ = ["cond", "scan", "while_loop"]


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
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
    given, rebuild = parts_of(operands, "cond: the operands have")
    capture = Capture("cond", (pred, *given))
    yes, form = capture.body(true_fn, rebuild, given, "true_fn")
    no, other = capture.body(false_fn, rebuild, given, "false_fn")
    same = yes.specs == no.specs and _alike(form, other, len(yes.outputs))
    if not same:
        raise ShapeError(
            f"cond: true_fn gives {_shown(yes.outputs, form)} and false_fn "
            f"{_shown(no.outputs, other)}; both give tensors of the same shapes and dtypes"
        )
    if not yes.outputs:
        return form(iter(()))
    outside, places = capture.merged(len(given))
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
    op = Branch("cond", (yes, no), places, sources, specs, hints, capture.drawing(yes, no))
    return form(iter(capture.applied(op, (pred, *given, *outside), wanting)))


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
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
    given, rebuild = parts_of(carried, "while_loop: carried_inputs have")
    if not given:
        raise InvalidArgument("while_loop: carried_inputs have no tensor, by which it could end")
    capture = Capture("while_loop", given)
    test, _ = capture.body(_tested(cond_fn), rebuild, given, "cond_fn", carried=True)
    body, form = capture.body(_tupled(body_fn), rebuild, given, "body_fn", carried=True)
    _assert_kept("while_loop: body_fn", given, rebuild, body.outputs, form)
    outside, places = capture.merged(len(given))
    wanting = capture.settled(body, given)
    drawing = capture.drawing(test, body)
    op = Loop(test, body, places, [x.spec for x in given], wanting, drawing)
    return form(iter(capture.applied(op, (*given, *outside), wanting)))


def scan(
    combine_fn: Callable[[Any, Any], Any], init: Any, xs: Any, *, dim: int = 0,
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
        given = carry(iter(args[:n])), row(iter(args[n:]))
        parts, results = [], _pair(combine_fn(*given))
        for name, each in zip(("carry", "result"), results, strict=True):
            tensors, form = parts_of(each, f"scan: combine_fn gives as {name}")
            forms.append(form)
            parts.append(tensors)
        _assert_kept("scan: combine_fn", args[:n], carry, parts[0], forms[0])
        return [*parts[0], *parts[1]]

    slices = [like(x, capture.wants(x), x.shape[1:]) for x in rows]
    body = capture.made(run, [*(like(x, capture.grad) for x in carries), *slices])
    outside, _ = capture.merged(len(body.inputs))
    given = (*carries, *rows, *outside)
    wanting = capture.settled(body, carries)
    if any(wanting):
        keep(body, n)
    places = range(len(body.inputs))
    drawing = capture.drawing(body)
    op = Scan("scan", body, places, n, len(rows), length, reverse, any(wanting), drawing)
    found = capture.applied(op, given, wanting)
    return forms[0](iter(found[:n])), forms[1](iter([_along(dim, y) for y in found[n:]]))


# ---- where values are at hand --------------------------------------------------------------------


def _apart(found: Any, operands: Any) -> Any:
    """What was found; operands in it, and views of these, are copies: captured, they are new."""
    given = {id(_base(x)) for x in _leaves(operands) if isinstance(x, TensorBase)}

    def copied(x: Any) -> Any:
        if isinstance(x, TensorBase):
            return x.clone() if id(_base(x)) in given else x  # type: ignore[attr-defined]
        if isinstance(x, dict):
            return {key: copied(each) for key, each in x.items()}
        if isinstance(x, (tuple, list)):
            kind = type(x)
            return kind(*map(copied, x)) if hasattr(kind, "_fields") else kind(map(copied, x))
        return x

    shows = any(isinstance(x, TensorBase) and id(_base(x)) in given for x in _leaves(found))
    return copied(found) if shows else found


def _base(x: Any) -> Any:
    return x if x._view is None else x._view.base


def _looped(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: Any) -> Any:
    test, body = _tested(cond_fn), _tupled(body_fn)
    counts = not all(isinstance(x, TensorBase) for x in _leaves(carried))  # by Python's numbers
    while test(*carried):
        found = body(*carried)
        if not counts:
            before = parts_of(carried, "while_loop: carried_inputs have")
            after = parts_of(found, "while_loop: body_fn gives")
            _assert_kept("while_loop: body_fn", *before, *after)
        carried = found
    return carried


def _scanned(
    combine_fn: Callable[..., Any], carry: Any, row: Rebuild, rows: list[Any], dim: int,
    reverse: bool,
) -> Any:  # fmt: skip
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


def _along(dim: int, y: Any) -> Any:
    """What lies side by side along the first dimension, along this one, where there is one."""
    return movedim(y, 0, dim) if 0 < dim < y.ndim else y


# ---- where it is captured ------------------------------------------------------------------------


class Capture:
    """The bodies of one call."""

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
        # In a graph it is asked later what wants gradients.
        self.in_graph = mode.executor is None or isinstance(mode.executor, Recorder)
        self.met: list[list[Any]] = []  # what each body has met outside

    def wants(self, x: Any) -> bool:
        """Whether a gradient of a tensor may be wanted."""
        return self.grad and (self.in_graph or x._node is not None)

    def made(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Body:
        """The body of a function that gives a list of tensors."""
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
        self, function: Callable[..., Any], rebuild: Rebuild, given: Sequence[Any], name: str,
        carried: bool = False,
    ) -> tuple[Body, Rebuild]:  # fmt: skip
        """That of a user's function, and the form of what it gives; what is `carried` may get a
        history on the way.
        """
        forms: list[Rebuild] = []

        def run(*args: Any) -> list[Any]:
            parts, form = parts_of(function(*rebuild(iter(args))), f"{self.title}: {name} gives")
            forms.append(form)
            return parts

        arguments = [like(x, self.grad if carried else self.wants(x)) for x in given]
        return self.made(run, arguments), forms[0]

    def merged(self, first: int) -> tuple[list[Any], list[list[int]]]:
        """What all bodies have met, each once, and for each body where its inputs are among the
        `first` and these.
        """
        every = {id(x): x for met in self.met for x in met}
        place = {key: first + n for n, key in enumerate(every)}
        return list(every.values()), [
            [*range(first), *(place[id(x)] for x in met)] for met in self.met
        ]

    def settled(self, body: Body, carried: Sequence[Any]) -> list[bool]:
        """For each output whether it wants a gradient, which what is carried gets on the way."""
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

    def drawing(self, *bodies: Body) -> Drawing:
        """What a node with these bodies draws, here."""
        streams = getattr(MODE.get().executor, "streams", None)
        return Drawing(streams, [body.streams for body in bodies])

    def applied(self, op: Any, inputs: Sequence[Any], wanting: Sequence[bool]) -> list[Any]:
        """The first outputs of a node, with a history where they are `wanting` one. It saves its
        inputs, where the ops in it may save none that were made in inference mode.
        """
        if self.grad:
            inputs = [x.clone() if x._changes is INFERENCE else x for x in inputs]
        found = apply(op, *inputs, *op.drawing.given)
        several = found if type(found) is tuple else (found,)
        op.drawing.leave(several[len(several) - len(op.drawing) :])
        for y, wants in zip(several, wanting, strict=False):
            if not (wants or self.in_graph):
                y._node = None
        return list(several[: len(wanting)])


# ---- forms and checks ----------------------------------------------------------------------------


def _tested(cond_fn: Callable[..., Any]) -> Callable[..., Any]:
    def test(*carried: Any) -> Any:
        go = cond_fn(*carried)
        _assert_one("while_loop: what cond_fn gives", go)
        return go if isinstance(go, TensorBase) else wrap(np.asarray(bool(go)))

    return test


def _tupled(body_fn: Callable[..., Any]) -> Callable[..., Any]:
    def body(*carried: Any) -> Any:
        found = body_fn(*carried)
        if not isinstance(found, (tuple, list)):
            raise InvalidType(
                f"while_loop: body_fn gives a {type(found).__name__}; it gives a tuple of what it "
                "takes"
            )
        return tuple(found)

    return body


def _pair(found: Any) -> tuple[Any, Any]:
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise InvalidType(
            f"scan: combine_fn gives a {type(found).__name__}; it gives the next carry and a result"
        )
    return found[0], found[1]


def _leaves(found: Any) -> list[Any]:
    """What nested tuples, lists and dicts have."""
    if isinstance(found, Mapping):
        found = tuple(found.values())
    if not isinstance(found, (tuple, list)):
        return [found]
    return [x for each in found for x in _leaves(each)]


def _assert_callable(name: str, *functions: Any) -> None:
    for function in functions:
        if not callable(function):
            raise InvalidType(f"{name}: expected a function, got a {type(function).__name__}")


def _assert_one(what: str, x: Any) -> None:
    """Refuse what decides nothing."""
    if isinstance(x, TensorBase):
        if x._data.size != 1:
            raise InvalidArgument(
                f"{what} has shape {tuple(x.shape)}, where a bool or a tensor of one element "
                "decides; use all() or any()"
            )
    elif not isinstance(x, (bool, int, float)):
        raise InvalidType(f"{what} is a {type(x).__name__}; a bool or a tensor of one element is")


def _alike(form: Rebuild, other: Rebuild, count: int) -> bool:
    """Whether two things have the same form, filled with as many tensors."""
    one, two = (each(iter(range(count))) for each in (form, other))
    return bool(one == two)


def _assert_kept(
    name: str, before: Sequence[Any], form: Rebuild, after: Sequence[Any], other: Rebuild
) -> None:
    """Refuse what is carried if it changes."""
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
    """The form of something, with the shapes and dtypes of its tensors."""
    return str(form(iter([_Text(f"{tuple(x.shape)} {x.dtype}") for x in tensors])))
