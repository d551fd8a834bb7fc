"""Algebraic simplification: rewrites that keep every bit, and rewrites that change rounding.

`exact_algebra` keeps every bit, also of signed zeros, infinities and subnormal numbers; a NaN stays
one (IEEE 754 leaves its sign open, and processors differ). `reassociate` treats arithmetic as
associative and distributive: results differ by rounding, and by more where something overflows or
is close to zero.

Each rule looks at one node. It gives None, an equal value, or an equal computation: an op and
inputs, with nodes that must come before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core import policy
from ...core.dtype import dtype, float32, float64
from ...core.op import Op
from ...core.spec import prod
from ...ir.program import Node, Program, Value, inferred, make
from ...ir.rewriting import rewriting
from ...ops.elementwise.arithmetic import Add, Mul, Neg, Sub, TrueDivide
from ...ops.elementwise.comparison import Maximum, Minimum, Where
from ...ops.elementwise.functions import Abs, Reciprocal, Square
from ...ops.elementwise.logic import LogicalNot
from ...ops.nn.activation import Relu
from ...ops.promotion import Cast
from ...ops.reduce.reduction import Mean, Sum
from ...ops.shape.movement import Expand

Made = tuple[Op, tuple[Any, ...], tuple[Node, ...]]


class _Look:
    """The program as rewrite rules see it."""

    def __init__(self, graph: Program) -> None:
        self.given = {*graph.inputs}
        self.outputs = {*graph.outputs}
        self.readers = {x: len(nodes) for x, nodes in graph.users().items()}

    def behind(self, x: object, *kinds: type[Op]) -> Node | None:
        """The node that computes a value in this program, if its op is of one of these types."""
        if not isinstance(x, Value) or x.node is None or x in self.given:
            return None
        return x.node if type(x.node.op) in kinds else None

    def alone(self, x: Value) -> bool:
        """Whether only one node reads the value, so that it becomes dead if that node does without
        it.
        """
        return self.readers.get(x) == 1 and x not in self.outputs


Rule = Callable[[Node, _Look], "Made | Value | None"]


def _rewritten(graph: Program, rules: Sequence[Rule]) -> int:
    """Apply rules to each node until none fits; returns how often one did."""
    look = _Look(graph)
    changes: dict[Value, Value] = {}
    nodes: list[Node] = []
    count = 0
    for node in graph.renewed(changes):
        made: Made | Value | None = None
        while len(node.outputs) == 1:
            made = _first(node, rules, look)
            if made is None:
                break
            count += 1
            if isinstance(made, Value):
                changes[node.output] = made
                break
            node.op, node.inputs = made[:2]
            nodes += made[2]
        if not isinstance(made, Value):
            nodes.append(node)
    graph.nodes = nodes
    graph.replace(changes)
    return count


def _first(node: Node, rules: Sequence[Rule], look: _Look) -> Made | Value | None:
    """Result of the first rule that keeps shape and dtype."""
    for rule in rules:
        made = rule(node, look)
        if made is None:
            continue
        specs = (made.spec,) if isinstance(made, Value) else inferred(made[0], made[1])
        if specs == (node.output.spec,):
            return made
    return None


def _number(x: object) -> float | None:
    """The value of a Python number, or of a constant array with equal elements; None for others and
    for complex ones.
    """
    if type(x) is float or (type(x) is int and abs(x) <= 1 << 53):
        return float(x)
    if isinstance(x, Value) and x.array is not None and x.spec.dtype.is_floating_point:
        array = x.array
        if array.size and not any(
            n > 1 and s for n, s in zip(array.shape, array.strides, strict=True)
        ):
            return float(array[(0,) * array.ndim])
    return None


_FLOATS = (float32, float64)
_LEAST = {float32: 2.0**-126, float64: 2.0**-1022}  # numbers that are not subnormal
_MOST = {float32: (2 - 2.0**-23) * 2.0**127, float64: (2 - 2.0**-52) * 2.0**1023}


def _is_normal(number: float, kind: dtype) -> bool:
    """Whether a number is within the normal range of a float dtype."""
    return _LEAST[kind] <= abs(number) <= _MOST[kind]


# ---- exact rules ---------------------------------------------------------------------------------


@rewriting
def exact_algebra(graph: Program) -> int:
    """Drop or simplify operations whose result stays the same to the bit: x + -0, x - 0, x * 1, x /
    1, negations of negations, of operands and of factors, signs that are squared, casts of casts
    that lose nothing, choices between equals. Divisions by powers of 2 become multiplications.
    Returns how many.
    """
    return _rewritten(graph, _EXACT)


def _neutral(node: Node, look: _Look) -> Value | None:
    op, inputs = type(node.op), node.inputs
    if op not in (Add, Sub, Mul, TrueDivide) or node.output.spec.dtype.is_complex:
        return None
    for x, other in ((inputs[0], inputs[1]), (inputs[1], inputs[0])):
        c = _number(other)
        if isinstance(x, Value) and c is not None:
            if op in (Mul, TrueDivide):
                fits = c == 1
            else:  # 0 - 0 and -0 + -0 keep the sign of the first; integers have but one zero
                negative = (op is Add) == (math.copysign(1, c) < 0)
                fits = c == 0 and (negative or not node.output.spec.dtype.is_floating_point)
            if fits:
                return x
        if op in (Sub, TrueDivide):
            break
    return None


def _negated(node: Node, look: _Look) -> Made | Value | None:
    op, inputs = type(node.op), node.inputs
    inner = [look.behind(x, Neg) for x in inputs]
    if op is Neg and inner[0] is not None:
        operand: Value = inner[0].inputs[0]
        return operand
    if not node.output.spec.dtype.is_floating_point:
        return None  # the least integer is its own negative
    if op is Neg:
        product = look.behind(inputs[0], Mul, TrueDivide)
        if product is not None and look.alone(inputs[0]):
            x, y = product.inputs
            c = _number(y)
            return None if c is None else (product.op, (x, -c), ())
        return None
    if op not in (Add, Sub, Mul, TrueDivide):
        return None
    bare = [x if n is None else n.inputs[0] for x, n in zip(inputs, inner, strict=True)]
    if op in (Mul, TrueDivide):
        if inner[0] is not None and inner[1] is not None:
            return node.op, tuple(bare), ()
        if inner[0] is not None and (c := _number(inputs[1])) is not None:
            return node.op, (bare[0], -c), ()
        return None
    if inner[1] is not None:
        return (Sub() if op is Add else Add()), (inputs[0], bare[1]), ()
    if op is Add and inner[0] is not None:
        return Sub(), (inputs[1], bare[0]), ()
    return None


def _unsigned(node: Node, look: _Look) -> Made | Value | None:
    x = node.inputs[0] if node.inputs else None
    if type(node.op) not in (Abs, Square) or not node.output.spec.dtype.is_floating_point:
        return None
    inner = look.behind(x, Neg, Abs)
    if inner is None or inner.output.spec.dtype is not inner.inputs[0].spec.dtype:
        return None
    return node.op, inner.inputs, ()


def _halved(node: Node, look: _Look) -> Made | None:
    if type(node.op) is not TrueDivide or node.output.spec.dtype not in _FLOATS:
        return None
    x, c = node.inputs[0], _number(node.inputs[1])
    if c is None or c == 0 or not isinstance(x, Value) or abs(math.frexp(c)[0]) != 0.5:
        return None
    kind = node.output.spec.dtype
    if x.spec.dtype is not kind or not (_is_normal(c, kind) and _is_normal(1 / c, kind)):
        return None
    return Mul(), (x, 1 / c), ()


def _twice(node: Node, look: _Look) -> Made | Value | None:
    """Rule for an op applied to its own kind: casts, expansions, and idempotent ops."""
    op = node.op
    inner = look.behind(node.inputs[0], type(op)) if node.inputs else None
    if inner is None:
        return None
    if isinstance(op, (Relu, Abs)):
        return node.inputs[0] if inner.output.spec == node.output.spec else None
    if isinstance(op, LogicalNot):
        x = inner.inputs[0]
        return x if isinstance(x, Value) and x.spec.dtype.category == 0 else None
    if isinstance(op, Expand):
        return op, inner.inputs, ()
    if isinstance(op, Cast):
        x = inner.inputs[0]
        first, second, last = x.spec.dtype, inner.output.spec.dtype, op.to
        if not _holds(second, first):
            return None
        if last is first:
            return x if isinstance(x, Value) else None
        if last.category == 1 and second.category >= 2 and not _holds(last, first):
            return None  # the cast of a float beyond an integer's range is undefined
        return op, (x,), ()
    return None


def _holds(wide: dtype, narrow: dtype) -> bool:
    """Whether each value of dtype `narrow` can be represented in `wide`, with its sign."""
    if wide is narrow or narrow.category == 0:
        return True
    if wide.category < narrow.category:
        return False
    if narrow.category == 1 and wide.category >= 2:
        return 8 * narrow.itemsize - narrow.is_signed <= _DIGITS[wide.to_real().name]
    if wide.category == narrow.category == 1:
        signs = wide.is_signed - narrow.is_signed
        return signs >= 0 and wide.itemsize >= narrow.itemsize + signs
    a, b = wide.to_real(), narrow.to_real()
    return _DIGITS[a.name] >= _DIGITS[b.name] and _RANGE[a.name] >= _RANGE[b.name]


_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_RANGE = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}  # bits of exponents


def _alike(node: Node, look: _Look) -> Value | None:
    """Rule for a choice between equal values."""
    if type(node.op) in (Where, Maximum, Minimum):
        x, y = node.inputs[-2:]
        if isinstance(x, Value) and x is y:
            return x
    return None


_EXACT: tuple[Rule, ...] = (_neutral, _negated, _unsigned, _halved, _twice, _alike)


# ---- rules that change rounding ------------------------------------------------------------------


@rewriting
def reassociate(graph: Program) -> int:
    """Merge constants of sums and of products, multiply by reciprocals instead of dividing, sum
    before scaling, and scale a sum instead of its terms. Returns how many.
    """
    return _rewritten(graph, _NEARLY)


def _scale(node: Node | None) -> tuple[Value, float] | None:
    """The operand of a node that multiplies it by a number, and the number."""
    if node is None or node.output.spec.dtype not in _FLOATS:
        return None
    kind = type(node.op)
    if kind is Neg:
        return node.inputs[0], -1.0
    if kind not in (Mul, TrueDivide):
        return None
    positions = ((0, 1), (1, 0)) if kind is Mul else ((0, 1),)
    for i, j in positions:
        x, c = node.inputs[i], _number(node.inputs[j])
        if isinstance(x, Value) and c is not None and x.spec.dtype is node.output.spec.dtype:
            factor = c if kind is Mul else 1 / c if c else math.inf
            return (x, factor) if _is_normal(factor, x.spec.dtype) else None
    return None


def _shift(node: Node | None) -> tuple[Value, float] | None:
    """The operand of a node that adds a number to it, and the number."""
    if node is None or node.output.spec.dtype not in _FLOATS or type(node.op) not in (Add, Sub):
        return None
    positions = ((0, 1), (1, 0)) if type(node.op) is Add else ((0, 1),)
    for i, j in positions:
        x, c = node.inputs[i], _number(node.inputs[j])
        if isinstance(x, Value) and c is not None and x.spec.dtype is node.output.spec.dtype:
            return (x, c if type(node.op) is Add else -c) if math.isfinite(c) else None
    return None


def _merged_factors(node: Node, look: _Look) -> Made | None:
    outer = _scale(node)
    if outer is None or type(node.op) is Neg:
        return None
    inner = _scale(look.behind(outer[0], Mul, TrueDivide, Neg))
    if inner is not None:
        factor = inner[1] * outer[1]
        return (
            (Mul(), (inner[0], factor), ()) if _is_normal(factor, node.output.spec.dtype) else None
        )
    return (Mul(), (outer[0], outer[1]), ()) if type(node.op) is TrueDivide else None


def _merged_terms(node: Node, look: _Look) -> Made | None:
    outer = _shift(node)
    inner = None if outer is None else _shift(look.behind(outer[0], Add, Sub))
    if outer is None or inner is None:
        return None
    total = inner[1] + outer[1]
    kind = node.output.spec.dtype
    return (Add(), (inner[0], total), ()) if total == 0 or _is_normal(total, kind) else None


def _divided_by_few(node: Node, look: _Look) -> Made | None:
    """Rule for dividing rows by one number each: their reciprocals are fewer than the quotients."""
    if type(node.op) is not TrueDivide or node.output.spec.dtype not in _FLOATS:
        return None
    x, y = node.inputs
    if not (isinstance(x, Value) and isinstance(y, Value)) or x.spec.dtype is not y.spec.dtype:
        return None
    if prod(y.shape) * policy.DIVISION > prod(x.shape):
        return None
    inverse = make(Reciprocal(), y)
    return Mul(), (x, inverse.output), (inverse,)


def _summed_before(node: Node, look: _Look) -> Made | None:
    """Rule for a sum or mean of values scaled by one number: scale the sum."""
    if type(node.op) not in (Sum, Mean) or not look.alone(x := node.inputs[0]):
        return None
    inner = look.behind(x, Mul, TrueDivide, Neg)
    if inner is None or x.spec.dtype not in _FLOATS:
        return None
    if prod(node.output.shape) >= prod(x.shape):
        return None
    scaled = _scale(inner)
    factor: Any = None
    if scaled is not None:
        whole, factor = scaled
    elif type(inner.op) is Mul:
        single = [
            (a, b) for a, b in (inner.inputs, inner.inputs[::-1])
            if isinstance(b, Value) and not b.shape and b.spec.dtype is x.spec.dtype
        ]  # fmt: skip
        if not single:
            return None
        whole, factor = single[0]
    if factor is None or not isinstance(whole, Value) or whole.spec != x.spec:
        return None
    total = make(node.op, whole)
    return Mul(), (total.output, factor), (total,)


def _scaled_after(node: Node, look: _Look) -> Made | None:
    """Rule for x * c + y * c with one number or value c: (x + y) * c."""
    if type(node.op) not in (Add, Sub) or node.output.spec.dtype not in _FLOATS:
        return None
    products = [look.behind(x, Mul) for x in node.inputs]
    if products[0] is None or products[1] is None or products[0] is products[1]:
        return None
    if not all(look.alone(p.output) for p in products if p is not None):
        return None
    for x, c in (products[0].inputs, products[0].inputs[::-1]):
        for y, d in (products[1].inputs, products[1].inputs[::-1]):
            same = c is d if isinstance(c, Value) else type(c) is type(d) and c == d
            if not (same and isinstance(x, Value) and isinstance(y, Value)):
                continue
            if x.spec == y.spec == node.output.spec:
                total = make(node.op, x, y)
                return Mul(), (total.output, c), (total,)
    return None


_NEARLY: tuple[Rule, ...] = (
    _merged_factors, _merged_terms, _divided_by_few, _summed_before, _scaled_after,
)  # fmt: skip
