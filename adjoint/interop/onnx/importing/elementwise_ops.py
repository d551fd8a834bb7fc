"""ONNX's elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.dtype import from_numpy_dtype
from ....tensor import Tensor
from ..files import DTYPES
from .imported_node import TABLE, F, ImportedNode, ad, axis_in, host, operator, t


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, x: function(t(x))


for _kind, _function in {
    "Abs": ad.abs, "Neg": ad.neg, "Sqrt": ad.sqrt, "Exp": ad.exp, "Log": ad.log, "Sin": ad.sin,
    "Cos": ad.cos, "Tan": ad.tan, "Asin": ad.asin, "Acos": ad.acos, "Atan": ad.atan,
    "Sinh": ad.sinh, "Cosh": ad.cosh, "Tanh": ad.tanh, "Asinh": ad.asinh, "Acosh": ad.acosh,
    "Atanh": ad.atanh, "Sigmoid": ad.sigmoid, "Relu": ad.relu, "Erf": ad.erf, "Floor": ad.floor,
    "Ceil": ad.ceil, "Round": ad.round, "Sign": ad.sign, "Reciprocal": ad.reciprocal,
    "Not": ad.logical_not, "IsNaN": ad.isnan, "Softsign": F.softsign, "Mish": F.mish,
    "HardSwish": F.hardswish, "BitwiseNot": ad.bitwise_not,
}.items():  # fmt: skip
    TABLE[_kind] = _unary(_function)


operator("Identity")(lambda n, x: x)


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, a, b: function(t(a), t(b))


for _kind, _function in {
    "Add": ad.add, "Sub": ad.sub, "Mul": ad.mul, "And": ad.logical_and, "Or": ad.logical_or,
    "Xor": ad.logical_xor, "Equal": ad.eq, "Less": ad.lt, "LessOrEqual": ad.le, "Greater": ad.gt,
    "GreaterOrEqual": ad.ge, "BitwiseAnd": ad.bitwise_and, "BitwiseOr": ad.bitwise_or,
    "BitwiseXor": ad.bitwise_xor, "MatMul": ad.matmul,
}.items():  # fmt: skip
    TABLE[_kind] = _binary(_function)


@operator("Div")
def _(n: ImportedNode, a: Any, b: Any) -> Any:
    if t(a).dtype.is_floating_point:
        return ad.div(t(a), t(b))
    if isinstance(b, np.ndarray) and not b.all():
        raise ZeroDivisionError("integer division by zero")
    return ad.div(t(a), t(b), rounding_mode="trunc")


@operator("Mod")
def _(n: ImportedNode, a: Any, b: Any) -> Any:
    if isinstance(b, np.ndarray) and b.dtype.kind in "iu" and not b.all():
        raise ZeroDivisionError("integer division by zero")
    return (ad.fmod if n.get("fmod", 0) else ad.remainder)(t(a), t(b))


@operator("Pow")
def _(n: ImportedNode, a: Any, b: Any) -> Any:
    if isinstance(b, np.ndarray) and b.size == 1 and b.dtype.kind == "f":
        return ad.pow(t(a), float(b.reshape(-1)[0])).to(t(a).dtype)
    return ad.pow(t(a), t(b)).to(t(a).dtype)


def _variadic(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(n: ImportedNode, *xs: Any) -> Any:
        result = t(xs[0])
        for x in xs[1:]:
            result = function(result, t(x))
        return result

    return run


TABLE["Max"] = _variadic(ad.maximum)
TABLE["Min"] = _variadic(ad.minimum)
TABLE["Sum"] = _variadic(ad.add)
TABLE["Mean"] = lambda n, *xs: TABLE["Sum"](n, *xs) / len(xs)


operator("Where")(lambda n, condition, a, b: ad.where(t(condition), t(a), t(b)))


@operator("IsInf", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    found = ad.isinf(x)
    if not n.get("detect_negative", 1):
        found = found & (x > 0)
    return found if n.get("detect_positive", 1) else found & (x < 0)


@operator("Clip")
def _(n: ImportedNode, x: Any, low: Any = None, high: Any = None) -> Any:
    low = n.get("min") if low is None else low
    high = n.get("max") if high is None else high
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        x = t(x) if low is None else ad.maximum(t(x), t(low))
        return x if high is None else ad.minimum(x, t(high))
    bounds = [None if b is None else host(b).reshape(-1)[0].item() for b in (low, high)]
    return t(x) if bounds == [None, None] else ad.clamp(t(x), *bounds)


operator("LeakyRelu")(lambda n, x: F.leaky_relu(t(x), n.get("alpha", 0.01)))
operator("PRelu")(lambda n, x, slope: ad.where(t(x) > 0, t(x), t(x) * t(slope)))
operator("Elu")(lambda n, x: F.elu(t(x), n.get("alpha", 1.0)))
operator("Celu")(lambda n, x: F.celu(t(x), n.get("alpha", 1.0)))


@operator("Selu")
def _(n: ImportedNode, x: Any) -> Any:
    gamma = n.get("gamma", 1.0507009873554805)
    return F.elu(t(x), n.get("alpha", 1.6732632423543772)) * gamma


operator("ThresholdedRelu")(lambda n, x: F.threshold(t(x), n.get("alpha", 1.0), 0.0))


@operator("HardSigmoid")
def _(n: ImportedNode, x: Any) -> Any:
    return ad.clamp(t(x) * n.get("alpha", 0.2) + n.get("beta", 0.5), 0, 1)


operator("Softplus")(lambda n, x: F.softplus(t(x)))
operator("Gelu")(lambda n, x: F.gelu(t(x), approximate=n.get("approximate", "none")))


@operator("Softmax", "LogSoftmax", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    function = F.softmax if n.kind == "Softmax" else F.log_softmax
    if n.opset >= 13:
        return function(x, axis_in(n.get("axis", -1), x.ndim))
    axis = axis_in(n.get("axis", 1), x.ndim)  # before 13, over all dimensions from there on
    return function(x.flatten(axis), axis).reshape(x.shape)


@operator("Dropout")
def _(n: ImportedNode, x: Any, ratio: Any = None, training: Any = None) -> Any:
    p = n.get("ratio", 0.5) if ratio is None else float(host(ratio).reshape(()))
    x = t(x)
    if len(n.outputs) < 2:
        return F.dropout(x, p, n.training)
    mask = F.dropout(ad.ones_like(x), p, n.training)
    return x * mask, mask != 0


@operator("Cast")
def _(n: ImportedNode, x: Any) -> Any:
    return t(x).to(from_numpy_dtype(n.dtype("to")))


operator("CastLike")(lambda n, x, like: t(x).to(t(like).dtype))


@operator("Swish", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    return x * ad.sigmoid(x * n.get("alpha", 1.0))


@operator("Shrink")
def _(n: ImportedNode, x: Any) -> Any:
    x, bias, lambd = t(x), n.get("bias", 0.0), n.get("lambd", 0.5)
    inside = ad.where(x > lambd, x - bias, ad.zeros_like(x))
    return ad.where(x < -lambd, x + bias, inside).to(x.dtype)


@operator("BitShift", tensors=2)
def _(n: ImportedNode, a: Any, b: Any) -> Any:
    direction, bits = n.get("direction"), 8 * a.dtype.itemsize
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction {direction!r}")
    out = b < 0 if bits == 64 else b.to(from_numpy_dtype(np.dtype(np.int64))) >= bits
    out = out | (b >= min(bits, 64))
    shift = ad.where(out, ad.full_like(b, bits - 1), b)  # a sign fills what is shifted out
    if direction == "RIGHT":
        found = ad.bitwise_right_shift(a, shift)
        return ad.where(out & (a >= 0), ad.zeros_like(a), found)
    return ad.where(out, ad.zeros_like(a), ad.bitwise_left_shift(a, shift))


@operator("BitCast")
def _(n: ImportedNode, x: Any) -> Any:
    dtype = DTYPES.get(n.get("to"))
    if dtype is None or dtype.itemsize != t(x).dtype.itemsize:
        raise n.unsupported(f"a cast of bits from {t(x).dtype} to element type {n.get('to')}")
    return t(x).view(from_numpy_dtype(dtype))
