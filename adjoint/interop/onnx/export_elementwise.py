"""Export of elementwise primitives as ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import Unsupported
from .capture import GraphValue
from .export import Exporter, element_type
from .export_table import TABLE, Lower, lowers

_SAME = {
    "Abs": "Abs", "Sgn": "Sign", "Sqrt": "Sqrt", "Reciprocal": "Reciprocal", "Exp": "Exp",
    "Log": "Log", "Sigmoid": "Sigmoid", "Sinh": "Sinh", "Cosh": "Cosh", "Tanh": "Tanh",
    "Asinh": "Asinh", "Acosh": "Acosh", "Atanh": "Atanh", "Sin": "Sin", "Cos": "Cos", "Tan": "Tan",
    "Asin": "Asin", "Acos": "Acos", "Atan": "Atan", "Erf": "Erf", "Relu": "Relu", "Add": "Add",
    "Sub": "Sub", "Mul": "Mul", "TrueDivide": "Div", "Neg": "Neg",
    "Maximum": "Max", "Minimum": "Min", "ClampMin": "Max", "ClampMax": "Min",
    "Pow": "Pow", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor", "LogicalNot": "Not",
}  # fmt: skip


def _elementwise(kind: str) -> Lower:
    def lower(e: Exporter, v: GraphValue, *inputs: Any) -> str:
        return e.emit(kind, [e.name(x, v.dtype) for x in inputs])

    return lower


for _name, _kind in _SAME.items():
    TABLE[_name] = _elementwise(_kind)


def common(inputs: Sequence[Any]) -> Any:
    """The dtype in which values and numbers are compared."""
    dtypes = [x.dtype for x in inputs if isinstance(x, GraphValue)]
    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = found if dtype == found else np.promote_types(found, dtype)
    if found.kind in "iub" and any(isinstance(x, float) for x in inputs):
        return np.dtype(np.float32)
    if found.kind == "b" and any(type(x) is int for x in inputs):
        return np.dtype(np.int64)
    return found


def _comparison(kind: str) -> Lower:
    def lower(e: Exporter, v: GraphValue, *inputs: Any) -> str:
        dtype = common(inputs)
        return e.emit(kind, [e.name(x, dtype) for x in inputs])

    return lower


for _name, _kind in {
    "Eq": "Equal", "Lt": "Less", "Le": "LessOrEqual", "Gt": "Greater", "Ge": "GreaterOrEqual",
}.items():  # fmt: skip
    TABLE[_name] = _comparison(_kind)


lowers("Ne")(lambda e, v, a, b: e.emit("Not", [TABLE["Eq"](e, v, a, b)]))
lowers("Isnan")(lambda e, v, x: e.emit("IsNaN", [e.name(x)]))
lowers("Isinf")(lambda e, v, x: e.emit("IsInf", [e.name(x, np.dtype(np.float32))]))


@lowers("Where")
def _(e: Exporter, v: GraphValue, condition: Any, a: Any, b: Any) -> str:
    return e.emit("Where", [e.name(condition), e.name(a, v.dtype), e.name(b, v.dtype)])


@lowers("MaskedFill")
def _(e: Exporter, v: GraphValue, x: Any, mask: Any, value: Any) -> str:
    return e.emit("Where", [e.name(mask), e.name(value, v.dtype), e.name(x)])


@lowers("Clamp")
def _(e: Exporter, v: GraphValue, x: Any, low: Any, high: Any) -> str:
    if not isinstance(low, GraphValue) and not isinstance(high, GraphValue):
        return e.emit("Clip", [e.name(each, v.dtype) for each in (x, low, high)])
    raised = e.emit("Max", [e.name(x, v.dtype), e.name(low, v.dtype)])
    return e.emit("Min", [raised, e.name(high, v.dtype)])


lowers("Square")(lambda e, v, x: e.emit("Mul", [e.name(x)] * 2))
lowers("Rsqrt")(lambda e, v, x: e.emit("Reciprocal", [e.emit("Sqrt", [e.name(x, v.dtype)])]))
lowers("Exp2")(lambda e, v, x: e.emit("Pow", [e.name(2.0, v.dtype), e.name(x, v.dtype)]))


@lowers("Expm1")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    return e.emit("Sub", [e.emit("Exp", [e.name(x, v.dtype)]), e.name(1, v.dtype)])


@lowers("Log1p")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    return e.emit("Log", [e.emit("Add", [e.name(x, v.dtype), e.name(1, v.dtype)])])


@lowers("Log2", "Log10")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    base = 2 if v.op is not None and v.op.name == "log2" else 10
    return e.emit("Mul", [e.emit("Log", [e.name(x, v.dtype)]), e.name(1 / math.log(base), v.dtype)])


@lowers("Erfc")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    return e.emit("Sub", [e.name(1, v.dtype), e.emit("Erf", [e.name(x, v.dtype)])])


@lowers("Silu")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    name = e.name(x)
    return e.emit("Mul", [name, e.emit("Sigmoid", [name])])


@lowers("Gelu")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    name = e.name(x)
    if e.opset >= 20:
        return e.emit("Gelu", [name], approximate="tanh" if v.attribute("tanh") else "none")

    def number(value: float) -> str:
        return e.name(value, v.dtype)

    if v.attribute("tanh"):
        cube = e.emit("Mul", [e.emit("Mul", [name, name]), name])
        inner = e.emit("Add", [name, e.emit("Mul", [cube, number(0.044715)])])
        bent = e.emit("Tanh", [e.emit("Mul", [inner, number(math.sqrt(2 / math.pi))])])
    else:
        bent = e.emit("Erf", [e.emit("Mul", [name, number(math.sqrt(0.5))])])
    return e.emit("Mul", [e.emit("Mul", [name, number(0.5)]), e.emit("Add", [bent, number(1.0)])])


@lowers("Elu")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    alpha, scale, rate = (v.attribute(n) for n in ("alpha", "scale", "rate"))
    name = e.name(x)
    if rate == 1 and scale == 1:
        return e.emit("Elu", [name], alpha=alpha)
    if rate == 1:
        return e.emit("Selu", [name], alpha=alpha, gamma=scale)
    if scale == 1 and rate * alpha == 1:
        return e.emit("Celu", [name], alpha=alpha)
    scaled = e.emit("Mul", [e.emit("Min", [name, e.name(0, v.dtype)]), e.name(rate, v.dtype)])
    low = e.emit("Mul", [e.emit("Elu", [scaled]), e.name(alpha * scale, v.dtype)])
    high = e.emit("Mul", [e.emit("Relu", [name]), e.name(scale, v.dtype)])
    return e.emit("Add", [low, high])


@lowers("Softplus")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    beta, threshold = v.attribute("beta"), v.attribute("threshold")
    name = e.name(x)
    scaled = name if beta == 1 else e.emit("Mul", [name, e.name(beta, v.dtype)])
    soft = e.emit("Softplus", [scaled])
    if beta != 1:
        soft = e.emit("Div", [soft, e.name(beta, v.dtype)])
    linear = e.emit("Greater", [scaled, e.name(threshold, v.dtype)])
    return e.emit("Where", [linear, name, soft])


@lowers("Mish")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    name = e.name(x)
    return e.emit("Mul", [name, e.emit("Tanh", [e.emit("Softplus", [name])])])


@lowers("Floor", "Ceil", "Round")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    return e.name(x) if v.dtype.kind in "iub" else e.emit(type(v.op).__name__, [e.name(x)])


@lowers("Trunc")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    name = e.name(x)
    if v.dtype.kind in "iub":
        return name
    return e.emit("Mul", [e.emit("Sign", [name]), e.emit("Floor", [e.emit("Abs", [name])])])


@lowers("FloorDivide")
def _(e: Exporter, v: GraphValue, a: Any, b: Any) -> str:
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind == "u":
        return e.emit("Div", names)
    if v.dtype.kind == "i":  # exact: what remains has the divisor's sign
        return e.emit("Div", [e.emit("Sub", [names[0], e.emit("Mod", names)]), names[1]])
    return e.emit("Floor", [e.emit("Div", names)])


@lowers("TruncDivide")
def _(e: Exporter, v: GraphValue, a: Any, b: Any) -> str:
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind in "iu":
        return e.emit("Div", names)
    ratio = e.emit("Div", names)
    return e.emit("Mul", [e.emit("Sign", [ratio]), e.emit("Floor", [e.emit("Abs", [ratio])])])


lowers("Fmod")(lambda e, v, a, b: e.emit("Mod", [e.name(a, v.dtype), e.name(b, v.dtype)], fmod=1))


@lowers("Remainder")
def _(e: Exporter, v: GraphValue, a: Any, b: Any) -> str:
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind in "iu":
        return e.emit("Mod", names)
    whole = e.emit("Floor", [e.emit("Div", names)])
    return e.emit("Sub", [names[0], e.emit("Mul", [whole, names[1]])])


@lowers("Addcmul", "Addcdiv")
def _(e: Exporter, v: GraphValue, x: Any, a: Any, b: Any, factor: Any) -> str:
    kind = "Mul" if v.op is not None and v.op.name == "addcmul" else "Div"
    inner = e.emit(kind, [e.name(a, v.dtype), e.name(b, v.dtype)])
    return e.emit("Add", [e.name(x, v.dtype), e.emit("Mul", [inner, e.name(factor, v.dtype)])])


@lowers("Lerp")
def _(e: Exporter, v: GraphValue, a: Any, b: Any, weight: Any) -> str:
    start = e.name(a, v.dtype)
    step = e.emit("Sub", [e.name(b, v.dtype), start])
    return e.emit("Add", [start, e.emit("Mul", [step, e.name(weight, v.dtype)])])


lowers("Cast")(lambda e, v, x: e.emit("Cast", [e.name(x)], to=element_type(v.dtype)))


@lowers("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _(e: Exporter, v: GraphValue, a: Any, b: Any) -> str:
    kind = type(v.op).__name__
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind == "b":
        return e.emit(kind.removeprefix("Bitwise"), names)
    if e.opset < 18:
        raise Unsupported(f"onnx.export: {kind} of integers needs opset_version 18")
    return e.emit(kind, names)


@lowers("BitwiseNot")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    if v.dtype.kind == "b":
        return e.emit("Not", [e.name(x)])
    ones = np.iinfo(v.dtype).max if v.dtype.kind == "u" else -1
    return e.emit("Sub", [e.name(ones, v.dtype), e.name(x)])
