"""Pattern matching of compositions that libraries have as one function."""

from __future__ import annotations

import math
from typing import Any

from ...core.op import Op
from ...ir.program import Node, Program, Value, make
from ...ir.rewriting import rewriting
from ...ops.elementwise.arithmetic import Add, Mul, TrueDivide
from ...ops.elementwise.comparison import Clamp, ClampMin, Where
from ...ops.elementwise.logic import BitwiseAnd
from ...ops.elementwise.relational import Ge, Gt, Le, Lt
from ...ops.nn.activation import Gelu, Relu
from ...ops.special.special import Erf
from .basic_passes import drop_dead
from .static_layers import Activation


@rewriting
def name_activations(graph: Program) -> int:
    """Replace clamps, leaky ReLU, hard sigmoid, hard swish and GELU, written as several ops, by one
    op each; returns how many.
    """
    count = 0
    changes: dict[Value, Value] = {}
    for i, node in enumerate(graph.renewed(changes)):
        match = _clip(node) or _leaky(node) or _hard(node) or _gelu(node)
        if match is not None:
            op, x = match
            made = graph.nodes[i] = make(op, x)
            changes[node.output] = made.output
            count += 1
    graph.replace(changes)
    drop_dead(graph)
    return count


def _number(x: object) -> bool:
    return type(x) in (int, float)


def _is(x: object, kind: type[Op]) -> bool:
    return isinstance(x, Value) and type(x.op) is kind


def _inputs(x: Value) -> tuple[Any, ...]:
    assert x.node is not None
    return x.node.inputs


def _clip(node: Node) -> tuple[Op, Value] | None:
    """Match where(x >= high, high, where(x <= low, low, x)), and clamps between numbers."""
    if isinstance(node.op, (Clamp, ClampMin)) and isinstance(node.inputs[0], Value):
        x, low, *rest = node.inputs
        high = rest[0] if rest else math.inf
        if x.spec != node.output.spec or not (_number(low) and _number(high) and low <= high):
            return None
        return (Relu() if (low, high) == (0, math.inf) else Activation("clip", low, high)), x
    if type(node.op) is not Where:
        return None
    above, high, inner = node.inputs
    if not (_is(above, Ge) and _number(high) and _is(inner, Where)):
        return None
    below, low, x = _inputs(inner)
    fits = _is(below, Le) and _number(low) and isinstance(x, Value)
    if fits and _inputs(above) == (x, high) and _inputs(below) == (x, low) and low <= high:
        return (Activation("clip", low, high), x) if x.spec == node.output.spec else None
    return None


def _leaky(node: Node) -> tuple[Op, Value] | None:
    """Match where(x > 0, x, x * slope)."""
    if type(node.op) is not Where:
        return None
    positive, x, scaled = node.inputs
    if not (_is(positive, Gt) and _is(scaled, Mul) and isinstance(x, Value)):
        return None
    slope = _inputs(scaled)[1]
    if _inputs(positive) == (x, 0) and _inputs(scaled)[0] is x and _number(slope):
        return (Activation("leaky", slope), x) if x.spec == node.output.spec else None
    return None


def _hard(node: Node) -> tuple[Op, Value] | None:
    """Match clip(x + 3, 0, 6) / 6, and x * clip(x + 3, 0, 6) / 6; or our own forms, by cases."""
    if type(node.op) is Where:
        return _hard_cases(node)
    if type(node.op) is not TrueDivide or node.inputs[1] != 6:
        return None
    y = node.inputs[0]
    factor = None
    if _is(y, Mul):
        factor, y = _inputs(y)
        if not _is(y, Activation):
            factor, y = y, factor
    if not (_is(y, Activation) and y.op == Activation("clip", 0.0, 6.0)):
        return None
    moved = _inputs(y)[0]
    if not _is(moved, Add) or _inputs(moved)[1] != 3:
        return None
    x = _inputs(moved)[0]
    if not isinstance(x, Value) or x.spec != node.output.spec:
        return None
    if factor is None:
        return Activation("hardsigmoid"), x
    return (Activation("hardswish"), x) if factor is x else None


def _hard_cases(node: Node) -> tuple[Op, Value] | None:
    """Match where(x >= 3, 1, where(x <= -3, 0, where(x < 3, (x + 3) / 6, nan))), and where(inside,
    z * (z + 3) / 6, where(x <= -3, x * 0, x)) with z = where(inside, x, 0).
    """
    first, then, rest = node.inputs
    if not _is(rest, Where):
        return None
    low, least, last = _inputs(rest)
    if _is(first, Ge):
        x = z = _inputs(first)[0]
        if _inputs(first)[1] != 3 or (then, least) != (1, 0) or not _is(last, Where):
            return None
        below, y, other = _inputs(last)
        fits = _is(below, Lt) and _inputs(below) == (x, 3) and _number(other) and other != other
        kind, (y, by) = "hardsigmoid", _inputs(y) if _is(y, TrueDivide) else (None, 0)
    else:
        x, (y, by) = last, _inputs(then) if _is(then, TrueDivide) else (None, 0)
        z, y = _inputs(y) if _is(y, Mul) else (None, None)
        fits = _is(z, Where) and _inputs(z) == (first, x, 0) and _is_inside(first, x)
        kind, fits = "hardswish", fits and _is(least, Mul) and _inputs(least) == (x, 0)
    fits = fits and _is(low, Le) and _inputs(low) == (x, -3) and by == 6
    fits = fits and _is(y, Add) and _inputs(y) == (z, 3)
    if not fits or not isinstance(x, Value) or x.spec != node.output.spec:
        return None
    return Activation(kind), x


def _is_inside(x: Any, value: object) -> bool:
    """Whether `x` is the condition that a value is between -3 and 3."""
    if not _is(x, BitwiseAnd):
        return False
    above, below = _inputs(x)
    ends = _is(above, Gt) and _inputs(above) == (value, -3)
    return ends and _is(below, Lt) and _inputs(below) == (value, 3)


def _gelu(node: Node) -> tuple[Op, Value] | None:
    """Match x / 2 * (1 + erf(x / sqrt(2))), its factors in any order."""
    if type(node.op) is not Mul:
        return None
    factors = _factors(node.output)
    halves = [f for f in factors if _number(f)]
    rest = [f for f in factors if isinstance(f, Value)]
    if math.prod(halves) != 0.5 or len(rest) != 2:
        return None
    for x, one in (rest, rest[::-1]):
        if not _is(one, Add) or _inputs(one)[1] != 1 or not _is(_inputs(one)[0], Erf):
            continue
        scaled = _inputs(_inputs(one)[0])[0]
        if not (_is(scaled, Mul) or _is(scaled, TrueDivide)) or _inputs(scaled)[0] is not x:
            continue
        by = _inputs(scaled)[1]
        expected = math.sqrt(2) if _is(scaled, TrueDivide) else math.sqrt(0.5)
        if _number(by) and math.isclose(by, expected, rel_tol=1e-6) and x.spec == node.output.spec:
            return Gelu(False), x
    return None


def _factors(x: Any) -> list[Any]:
    """Factors of a nested product."""
    if not _is(x, Mul):
        return [x]
    return [f for each in _inputs(x) for f in _factors(each)]
