"""Control flow that depends on values, with gradients: `cond`, `while_loop`, `fori_loop`, `scan`.

In eager execution these are Python's own `if`, `while` and `for`. While a function is captured, or
a graph recorded, each is one node, whose bodies are programs of their own; its gradient is such a
node again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...autograd.recording import is_captured
from ...core.dtype import int64
from ...core.errors import InvalidArgument, InvalidType, ShapeError
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...core.tree import leaves, mapped, parts_of
from ...ops.create.creation import tensor
from ...ops.shape.movement import movedim
from ...runtime.public import naming
from ...runtime.tensors import wrap
from .control_capture import Capture
from .control_flow_ops import Branch
from .control_forms import (
    Tensors,
    Tree,
    along_first,
    as_tensors,
    assert_callable,
    assert_kept,
    assert_one,
    shown,
)
from .eager_scan import scanned
from .loops import Loop
from .scan_turns import PLANS, Turns
from .subgraphs import keep

__all__ = ["cond", "fori_loop", "scan", "while_loop"]


@naming
def cond(
    pred: TensorBase | float,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Tensors = (),
) -> Tree:
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
    assert_callable("cond", true_fn, false_fn)
    if not isinstance(operands, (tuple, list)):
        raise InvalidType(
            f"cond: operands are a tuple or list of tensors, got a {type(operands).__name__}"
        )
    assert_one("cond: pred", pred)
    if not isinstance(pred, TensorBase) or not is_captured(pred):
        return _apart(true_fn(*operands) if pred else false_fn(*operands), operands)
    tensors, given = parts_of(operands, "cond: the operands have")
    capture = Capture("cond", (pred, *tensors))
    yes, form = capture.body(true_fn, given, tensors, "true_fn")
    no, other = capture.body(false_fn, given, tensors, "false_fn")
    same = yes.specs == no.specs and form.is_like(other, len(yes.outputs))
    if not same:
        raise ShapeError(
            f"cond: true_fn gives {shown(yes.outputs, form)} and false_fn "
            f"{shown(no.outputs, other)}; both give tensors of the same shapes and dtypes"
        )
    if not yes.outputs:
        return form.unflatten(())
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
    return form.unflatten(capture.applied(op, (pred, *tensors, *outside), wanting))


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Tensors, *,
    max_steps: int | None = None,
) -> Tree:  # fmt: skip
    """`carried_inputs`, replaced by `body_fn(*carried)` as long as `cond_fn(*carried)` is true, and
    `max_steps` times at most.

    Inside `ad.compile` or a Graph the loop is one node, which runs as often as the values say;
    gradients flow to the carried inputs and to whatever tensors `body_fn` reads, as in eager loops:
    each iteration's carried values are kept. Of a captured loop there are the first two orders;
    with `max_steps` it is a `scan` of so many turns, most of which may do nothing, and there are
    all orders.

    Shapes: `cond_fn` gives a bool or a tensor of one element; `body_fn` what it takes, a tuple of
    tensors, or of tuples, lists and dicts of them, whose shapes and dtypes stay the same. Python
    numbers among them become tensors.
    Errors: ShapeError where `body_fn` gives another form, shape or dtype than it took; where
    captured, Unsupported for functions that read values, write outside, or draw in a Graph, and
    AutogradError for third derivatives without `max_steps`.
    Source: https://docs.pytorch.org/docs/main/higher_order_ops/while_loop.html

    >>> ad.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (0, ad.ones(2)))
    (tensor(3), tensor([8., 8.]))
    """
    assert_callable("while_loop", cond_fn, body_fn)
    if not isinstance(carried_inputs, (tuple, list)):
        raise InvalidType(
            "while_loop: carried_inputs are a tuple or list of tensors, got a "
            f"{type(carried_inputs).__name__}"
        )
    if max_steps is not None and (type(max_steps) is not int or max_steps < 0):
        raise InvalidArgument(f"while_loop: max_steps={max_steps!r}; it is an int, 0 or more")
    carried = as_tensors(tuple(carried_inputs))
    if not is_captured(*(x for x in leaves(carried) if isinstance(x, TensorBase))):
        return _apart(_looped(cond_fn, body_fn, carried, max_steps), carried)
    if max_steps is not None:
        return _bounded(cond_fn, body_fn, carried, max_steps)
    tensors, given = parts_of(carried, "while_loop: carried_inputs have")
    if not tensors:
        raise InvalidArgument("while_loop: carried_inputs have no tensor, by which it could end")
    capture = Capture("while_loop", tensors)
    test, _ = capture.body(_tested(cond_fn), given, tensors, "cond_fn", carried=True)
    again = _tupled(body_fn)
    body, form = capture.body(again, given, tensors, "body_fn", carried=True)
    assert_kept("while_loop: body_fn", tensors, given, body.outputs, form)
    outside, input_numbers = capture.merged(len(tensors))
    wanting = capture.settled(body, tensors)
    drawing = capture.drawing(test, body)
    op = Loop(test, body, input_numbers, [x.spec for x in tensors], wanting, drawing)
    return form.unflatten(capture.applied(op, (*tensors, *outside), wanting))


def _bounded(
    cond_fn: Callable[..., object], body_fn: Callable[..., object], carried: object, most: int
) -> tuple[object, ...]:
    """A while loop of at most so many turns as a scan, of which turns behind the end do nothing."""
    test, body = _tested(cond_fn), _tupled(body_fn)

    def go_on(*carried: object) -> tuple[object, object]:
        go = test(*carried).reshape(()).bool()
        return go, cond(go, body, lambda *same: same, carried)

    def turn(carry: tuple[TensorBase, Tensors], _: object) -> tuple[object, None]:
        go, carried = carry
        return cond(go, go_on, lambda *same: (tensor(False), same), carried), None

    (_, last), _ = scan(turn, (tensor(True), carried), length=most)
    return tuple(last)


def fori_loop(
    lower: object, upper: object, body_fn: Callable[[Any, Any], Any], init_val: object
) -> Tree:
    """`init_val`, replaced by `body_fn(i, value)` for each `i` from `lower` to `upper` - 1,
    an int64 tensor.

    Bounds that are Python numbers make it a `scan`, whose gradients are of any order; tensors,
    which need not be known when a program is captured, a `while_loop`.

    Shapes: bounds have one element; `init_val` and what `body_fn` gives are alike, tensors or
    tuples, lists and dicts of them. Python numbers among them become tensors.
    Errors: InvalidType for bounds that are no integers; those of `scan` and `while_loop`.
    Source: https://docs.jax.dev/en/latest/_autosummary/jax.lax.fori_loop.html

    >>> ad.fori_loop(0, 5, lambda i, total: total + i, 0)
    tensor(10)
    >>> ad.fori_loop(ad.tensor(2), 4, lambda i, x: x * i, ad.ones(2))
    tensor([6., 6.])
    """
    assert_callable("fori_loop", body_fn)
    bounds = [_bound("lower", lower), _bound("upper", upper)]

    def turn(carry: tuple[Tensor, Tree], _: object) -> tuple[Any, None]:
        i, value = carry
        return (i + 1, body_fn(i, value)), None

    if not any(isinstance(x, TensorBase) for x in bounds):
        begin, end = bounds
        (_, value), _ = scan(turn, (tensor(begin), init_val), length=max(end - begin, 0))
        return value
    numbers: list[Any] = [x if isinstance(x, TensorBase) else tensor(x) for x in bounds]
    begin, end = numbers
    _, value = while_loop(
        lambda i, _: i < end, lambda *carry: turn(carry, None)[0], (begin.clone(), init_val)
    )
    return value


def _bound(name: str, x: object) -> Any:
    """A bound of a loop: an int, or an int64 tensor without dimensions."""
    if isinstance(x, TensorBase):
        assert_one(f"fori_loop: {name}", x)
        if x._data.dtype.kind in "iu":
            number: Tree = x
            return number.reshape(()).to(int64)
    elif hasattr(x, "__index__") and not isinstance(x, bool):
        return x
    kind = x.dtype if isinstance(x, TensorBase) else type(x).__name__
    raise InvalidType(f"fori_loop: {name} is a {kind}; integers, and tensors of one, are bounds")


@naming
def scan(
    combine_fn: Callable[[Any, Any], Any], init: object, xs: object = None, *,
    length: int | None = None, dim: int = 0, reverse: bool = False, unroll: int = 1,
    checkpoint: str = "auto",
) -> Tree:  # fmt: skip
    """`combine_fn(carry, x)`, which gives the next carry and a result, for each slice of `xs` along
    `dim`: the last carry, and the results side by side along `dim`, a new dimension (along the
    first one, where they have too few).

    Without `xs` there are `length` turns, in which `x` is None. `reverse` begins with the last
    slice. Inside `ad.compile` or a Graph the loop is one node, whose body is captured once; its
    gradient is a scan the other way, of any order. There `unroll` turns are captured as one, and
    `checkpoint` says what is kept for the gradient: "none" keeps what each turn computed that is
    costly, "turn" what was carried into each, "sqrt" what was carried into each of as many segments
    as they have turns, which then run again one by one. "auto" is "none" up to a GiB, then "sqrt".
    Asked for eagerly, "turn" and "sqrt" capture the function as well; otherwise it is captured
    there in its second call, or at once from 64 turns, where it only computes, and kept
    (`ADJOINT_SCAN=python`: never).

    Shapes: `init` and the carry are alike, tensors or tuples, lists and dicts of them, in which
    Python numbers become tensors; all of `xs` have the same size along `dim`, which may be 0.
    Errors: ShapeError for other sizes, and where `combine_fn` gives another form, shape or dtype of
    carry than it took; where captured, Unsupported for one that reads values, writes outside, or
    draws in a Graph, or where it would draw again.
    Source: https://docs.pytorch.org/docs/main/higher_order_ops/scan.html

    >>> total = lambda carry, x: (carry + x, carry + x)
    >>> ad.scan(total, 0.0, ad.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([1., 3., 6.]))
    >>> ad.scan(lambda x, _: (x * 2, x), 1, length=4)
    (tensor(16), tensor([1, 2, 4, 8]))
    """
    assert_callable("scan", combine_fn)
    _assert_options(unroll, checkpoint)
    init = as_tensors(init)
    carries, _ = parts_of(init, "scan: init has")
    rows, row = parts_of(xs, "scan: xs have")
    dim, rows, turns = _rows(rows, dim, length)
    way = Turns(combine_fn, row, reverse)
    if turns and not is_captured(*carries, *rows) and checkpoint in ("auto", "none"):
        made = scanned(way, init, rows, turns)
        if made is None:
            made = _apart(way.in_python(init, rows, turns), init)
        last, results = made
    else:
        last, results = way.captured(init, rows, turns, checkpoint, unroll)
    tensors, form = parts_of(results, "scan: combine_fn gives as result")
    return last, form.unflatten([_along(dim, y) for y in tensors])


def _assert_options(unroll: object, checkpoint: object) -> None:
    """Refuse options of a scan that it does not know."""
    if isinstance(unroll, bool) or not isinstance(unroll, int) or unroll < 1:
        raise InvalidArgument(f"scan: unroll={unroll!r}; it is a number of turns, 1 or more")
    if checkpoint not in PLANS:
        raise InvalidArgument(
            f"scan: checkpoint={checkpoint!r}; it is 'auto', 'none', 'turn' or 'sqrt'"
        )


def _rows(rows: list[Any], dim: int, length: Any) -> tuple[int, list[Any], Any]:
    """The dimension of a scan, its `xs` with that in front, and the number of turns.

    Errors: ShapeError where they differ.
    """
    if length is not None and (isinstance(length, bool) or not hasattr(length, "__index__")):
        raise InvalidType(f"scan: length is a {type(length).__name__}; it is a number of turns")
    if not rows:
        if length is None:
            raise InvalidArgument(
                "scan: xs have no tensor, whose slices would be gone through; give length="
            )
        if length < 0:
            raise InvalidArgument(f"scan: length={length}; it is 0 or more")
        return 0, rows, length
    dim, rows, turns = along_first("scan", rows, dim)
    if length is not None and length != turns:
        raise ShapeError(f"scan: length={length}, but xs have {turns} slices along dim {dim}")
    return dim, rows, turns


# ---- eager execution -----------------------------------------------------------------------------


def _apart(result: object, operands: object) -> Tree:
    """The result of a body, in which operands and views of them are replaced by copies, as they
    would be new tensors if it were captured.
    """
    bases = {id(_base(x)) for x in leaves(operands) if isinstance(x, TensorBase)}

    def copied(x: Any) -> Any:
        shows = isinstance(x, TensorBase) and id(_base(x)) in bases
        return x.clone() if shows else x

    shows = any(isinstance(x, TensorBase) and id(_base(x)) in bases for x in leaves(result))
    return mapped(result, copied) if shows else result


def _base(x: TensorBase) -> TensorBase:
    return x if x._view is None else x._view.base


def _looped(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: tuple[Any, ...],
    most: int | None,
) -> tuple[Any, ...]:  # fmt: skip
    test, body = _tested(cond_fn), _tupled(body_fn)
    counts = not all(isinstance(x, TensorBase) for x in leaves(carried))  # by Python's objects
    turns = itertools.count() if most is None else range(most)
    for _ in turns:
        if not test(*carried):
            break
        carried_next = body(*carried)
        if not counts:
            before = parts_of(carried, "while_loop: carried_inputs have")
            after = parts_of(carried_next, "while_loop: body_fn gives")
            assert_kept("while_loop: body_fn", *before, *after)
        carried = carried_next
    return carried


def _along(dim: int, y: Tensor) -> Tensor:
    """Move the first dimension of results, along which they were stacked, to `dim`, if they have
    that many.
    """
    return movedim(y, 0, dim) if 0 < dim < y.ndim else y


# ---- functions as the nodes call them ------------------------------------------------------------


def _tested(cond_fn: Callable[..., Any]) -> Callable[..., Any]:
    def test(*carried: Any) -> TensorBase:
        go = cond_fn(*carried)
        assert_one("while_loop: what cond_fn gives", go)
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
        carried_next: tuple[Tree, ...] = as_tensors(tuple(result), carried)
        return carried_next

    return body
