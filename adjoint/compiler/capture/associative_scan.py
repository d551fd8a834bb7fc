"""`associative_scan`: running totals by an associative function, of which most run side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.batching import Batched, BatchLevel
from ...autograd.levels import entered
from ...core.errors import InvalidArgument, InvalidType
from ...core.tensor_type import Tensor
from ...core.tree import TreeSpec, parts_of
from ...ops.shape.arranging import flip
from ...ops.shape.concatenation import cat
from ...ops.shape.joining import stack
from ...ops.shape.movement import movedim, reshape
from ...runtime.tensors import wrap
from .control_forms import Tensors, Tree, along_first, as_tensors, assert_callable, assert_kept

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Tree, dim: int, reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Tree:  # fmt: skip
    """The slices of `xs` along `dim` up to each of them, combined by the associative `combine_fn`
    of two slices: running totals, of which log2(n) steps compute many at once.

    `reverse` begins with the last slice. `combine_mode` is "pointwise" or "generic", as in PyTorch;
    here both take any function, on any device. Gradients are of any order.

    Shapes: `xs` is a tensor, or a tuple, list or dict of them of the same size along `dim`;
    `combine_fn` takes two such slices, without `dim`, and gives another.
    Errors: ShapeError for other sizes, and where `combine_fn` gives another form, shape or dtype
    than it took; Unsupported where it reads values or draws random numbers.
    Source: https://docs.pytorch.org/docs/main/higher_order_ops/associative_scan.html

    >>> ad.associative_scan(lambda a, b: a * b, ad.tensor([1.0, 2.0, 3.0, 4.0]), 0)
    tensor([ 1.,  2.,  6., 24.])
    """
    assert_callable("associative_scan", combine_fn)
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise InvalidType(f"associative_scan: dim is a {type(dim).__name__}; it is an int")
    if combine_mode not in ("pointwise", "generic"):
        raise InvalidArgument(
            f"associative_scan: combine_mode={combine_mode!r}; it is 'pointwise' or 'generic'"
        )
    rows, form = parts_of(xs, "associative_scan: xs have")
    if not rows:
        raise InvalidArgument("associative_scan: xs have no tensor")
    dim, rows, count = along_first("associative_scan", rows, dim)
    if reverse:
        rows = [flip(x, (0,)) for x in rows]
    totals = _totals(combine_fn, form, rows) if count > 1 else [x.clone() for x in rows]
    if reverse:
        totals = [flip(y, (0,)) for y in totals]
    return form.unflatten([movedim(y, 0, dim) for y in totals])


def _totals(
    combine_fn: Callable[[Any, Any], Any], form: TreeSpec, rows: Tensors
) -> list[Any]:  # fmt: skip
    """Totals up to each row: pairs are combined, their totals computed, and the rows between them
    combined with those (Blelloch, 1990).
    """
    count = len(rows[0])
    if count == 1:
        return list(rows)
    whole = count - count % 2
    pairs = _combined(combine_fn, form, [x[0:whole:2] for x in rows], [x[1::2] for x in rows])
    odd = _totals(combine_fn, form, pairs)
    first = [x[:1] for x in rows]
    if count == 2:
        return [cat([x, y]) for x, y in zip(first, odd, strict=True)]
    before = odd if count % 2 else [y[:-1] for y in odd]
    later = _combined(combine_fn, form, before, [x[2::2] for x in rows])
    even = [cat([x, y]) for x, y in zip(first, later, strict=True)]
    return [_interleaved(x, y) for x, y in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """Rows of both in turn; `even` may have one more."""
    count, *shape = odd.shape
    rows = reshape(stack([even[:count], odd], 1), (2 * count, *shape))
    return rows if len(even) == count else cat([rows, even[count:]])


def _combined(
    combine_fn: Callable[[Any, Any], Any], form: TreeSpec, a: Tensors, b: Tensors
) -> list[Any]:  # fmt: skip
    """`combine_fn` of each row of `a` with that of `b`, all at once."""
    size = len(a[0])
    level = BatchLevel(size, "error")
    one, two = ([wrap(Batched(level, x)) for x in rows] for rows in (a, b))
    with entered(level):
        before = form.unflatten(one)
        result = as_tensors(combine_fn(before, form.unflatten(two)), before)
        made, other = parts_of(result, "associative_scan: combine_fn gives")
        assert_kept("associative_scan: combine_fn", one, form, made, other)
    results: list[Any] = []
    for y in made:
        inner: Any = y._data.inner if level.at(y) else y
        shared = not level.at(y) or y._data.whole
        results.append(inner.expand(size, *inner.shape) if shared else inner)
    return results
