"""How each primitive is written as ONNX nodes: one function each, in `TABLE` by the op's name.

A function takes the exporter, the value, and the inputs of its op (values and numbers); it returns
the name of the result, or a tuple of names for an op with several outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import Unsupported
from ..ops.slicing import basic_index
from .capture import Dim, Value
from .export import Exporter, element_type

Lower = Callable[..., Any]
TABLE: dict[str, Lower] = {}
_LAST = np.iinfo(np.int64).max  # a slice's stop that stands for the end


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Enter a function for the ops called `names`."""

    def enter(function: Lower) -> Lower:
        for name in names:
            TABLE[name] = function
        return function

    return enter


def ints(values: Sequence[int]) -> Any:
    """Ints as the one-dimensional tensor that ONNX takes for axes and sizes."""
    return np.array(values, np.int64).reshape(-1)


# ---- elementwise -----------------------------------------------------------------------------

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
    def lower(e: Exporter, v: Value, *inputs: Any) -> str:
        return e.emit(kind, [e.name(x, v.dtype) for x in inputs])

    return lower


for _name, _kind in _SAME.items():
    TABLE[_name] = _elementwise(_kind)


def common(inputs: Sequence[Any]) -> Any:
    """The dtype in which values and numbers are compared."""
    dtypes = [x.dtype for x in inputs if isinstance(x, Value)]
    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = found if dtype == found else np.promote_types(found, dtype)
    if found.kind in "iub" and any(isinstance(x, float) for x in inputs):
        return np.dtype(np.float32)
    if found.kind == "b" and any(type(x) is int for x in inputs):
        return np.dtype(np.int64)
    return found


def _comparison(kind: str) -> Lower:
    def lower(e: Exporter, v: Value, *inputs: Any) -> str:
        dtype = common(inputs)
        return e.emit(kind, [e.name(x, dtype) for x in inputs])

    return lower


for _name, _kind in {
    "Eq": "Equal", "Lt": "Less", "Le": "LessOrEqual", "Gt": "Greater", "Ge": "GreaterOrEqual",
}.items():  # fmt: skip
    TABLE[_name] = _comparison(_kind)


@lowers("Ne")
def _(e: Exporter, v: Value, a: Any, b: Any) -> str:
    return e.emit("Not", [TABLE["Eq"](e, v, a, b)])


@lowers("Isnan")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("IsNaN", [e.name(x)])


@lowers("Isinf")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("IsInf", [e.name(x, np.dtype(np.float32))])


@lowers("Where")
def _(e: Exporter, v: Value, condition: Any, a: Any, b: Any) -> str:
    return e.emit("Where", [e.name(condition), e.name(a, v.dtype), e.name(b, v.dtype)])


@lowers("MaskedFill")
def _(e: Exporter, v: Value, x: Any, mask: Any, value: Any) -> str:
    return e.emit("Where", [e.name(mask), e.name(value, v.dtype), e.name(x)])


@lowers("Clamp")
def _(e: Exporter, v: Value, x: Any, low: Any, high: Any) -> str:
    if not isinstance(low, Value) and not isinstance(high, Value):
        return e.emit("Clip", [e.name(each, v.dtype) for each in (x, low, high)])
    raised = e.emit("Max", [e.name(x, v.dtype), e.name(low, v.dtype)])
    return e.emit("Min", [raised, e.name(high, v.dtype)])


@lowers("Square")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Mul", [e.name(x)] * 2)


@lowers("Rsqrt")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Reciprocal", [e.emit("Sqrt", [e.name(x, v.dtype)])])


@lowers("Exp2")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Pow", [e.name(2.0, v.dtype), e.name(x, v.dtype)])


@lowers("Expm1")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Sub", [e.emit("Exp", [e.name(x, v.dtype)]), e.name(1, v.dtype)])


@lowers("Log1p")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Log", [e.emit("Add", [e.name(x, v.dtype), e.name(1, v.dtype)])])


@lowers("Log2", "Log10")
def _(e: Exporter, v: Value, x: Any) -> str:
    base = 2 if v.op is not None and v.op.name == "log2" else 10
    return e.emit("Mul", [e.emit("Log", [e.name(x, v.dtype)]), e.name(1 / math.log(base), v.dtype)])


@lowers("Erfc")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Sub", [e.name(1, v.dtype), e.emit("Erf", [e.name(x, v.dtype)])])


@lowers("Silu")
def _(e: Exporter, v: Value, x: Any) -> str:
    name = e.name(x)
    return e.emit("Mul", [name, e.emit("Sigmoid", [name])])


@lowers("Gelu")
def _(e: Exporter, v: Value, x: Any) -> str:
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
def _(e: Exporter, v: Value, x: Any) -> str:
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
def _(e: Exporter, v: Value, x: Any) -> str:
    beta, threshold = v.attribute("beta"), v.attribute("threshold")
    name = e.name(x)
    scaled = name if beta == 1 else e.emit("Mul", [name, e.name(beta, v.dtype)])
    soft = e.emit("Softplus", [scaled])
    if beta != 1:
        soft = e.emit("Div", [soft, e.name(beta, v.dtype)])
    linear = e.emit("Greater", [scaled, e.name(threshold, v.dtype)])
    return e.emit("Where", [linear, name, soft])


@lowers("Mish")
def _(e: Exporter, v: Value, x: Any) -> str:
    name = e.name(x)
    return e.emit("Mul", [name, e.emit("Tanh", [e.emit("Softplus", [name])])])


@lowers("Floor", "Ceil", "Round")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.name(x) if v.dtype.kind in "iub" else e.emit(type(v.op).__name__, [e.name(x)])


@lowers("Trunc")
def _(e: Exporter, v: Value, x: Any) -> str:
    name = e.name(x)
    if v.dtype.kind in "iub":
        return name
    return e.emit("Mul", [e.emit("Sign", [name]), e.emit("Floor", [e.emit("Abs", [name])])])


@lowers("FloorDivide")
def _(e: Exporter, v: Value, a: Any, b: Any) -> str:
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind == "u":
        return e.emit("Div", names)
    if v.dtype.kind == "i":  # exact: what remains has the divisor's sign
        return e.emit("Div", [e.emit("Sub", [names[0], e.emit("Mod", names)]), names[1]])
    return e.emit("Floor", [e.emit("Div", names)])


@lowers("TruncDivide")
def _(e: Exporter, v: Value, a: Any, b: Any) -> str:
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind in "iu":
        return e.emit("Div", names)
    ratio = e.emit("Div", names)
    return e.emit("Mul", [e.emit("Sign", [ratio]), e.emit("Floor", [e.emit("Abs", [ratio])])])


@lowers("Fmod")
def _(e: Exporter, v: Value, a: Any, b: Any) -> str:
    return e.emit("Mod", [e.name(a, v.dtype), e.name(b, v.dtype)], fmod=1)


@lowers("Remainder")
def _(e: Exporter, v: Value, a: Any, b: Any) -> str:
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind in "iu":
        return e.emit("Mod", names)
    whole = e.emit("Floor", [e.emit("Div", names)])
    return e.emit("Sub", [names[0], e.emit("Mul", [whole, names[1]])])


@lowers("Addcmul", "Addcdiv")
def _(e: Exporter, v: Value, x: Any, a: Any, b: Any, factor: Any) -> str:
    kind = "Mul" if v.op is not None and v.op.name == "addcmul" else "Div"
    inner = e.emit(kind, [e.name(a, v.dtype), e.name(b, v.dtype)])
    return e.emit("Add", [e.name(x, v.dtype), e.emit("Mul", [inner, e.name(factor, v.dtype)])])


@lowers("Lerp")
def _(e: Exporter, v: Value, a: Any, b: Any, weight: Any) -> str:
    start = e.name(a, v.dtype)
    step = e.emit("Sub", [e.name(b, v.dtype), start])
    return e.emit("Add", [start, e.emit("Mul", [step, e.name(weight, v.dtype)])])


@lowers("Cast")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Cast", [e.name(x)], to=element_type(v.dtype))


@lowers("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _(e: Exporter, v: Value, a: Any, b: Any) -> str:
    kind = type(v.op).__name__
    names = [e.name(a, v.dtype), e.name(b, v.dtype)]
    if v.dtype.kind == "b":
        return e.emit(kind.removeprefix("Bitwise"), names)
    if e.opset < 18:
        raise Unsupported(f"onnx.export: {kind} of integers needs opset_version 18")
    return e.emit(kind, names)


@lowers("BitwiseNot")
def _(e: Exporter, v: Value, x: Any) -> str:
    if v.dtype.kind == "b":
        return e.emit("Not", [e.name(x)])
    ones = np.iinfo(v.dtype).max if v.dtype.kind == "u" else -1
    return e.emit("Sub", [e.name(ones, v.dtype), e.name(x)])


# ---- shapes ----------------------------------------------------------------------------------


@lowers("Reshape")
def _(e: Exporter, v: Value, x: Any) -> str:
    shape = v.shape
    vary = [i for i, size in enumerate(shape) if isinstance(size, Dim)]
    if len(vary) == 1 and 0 not in shape:
        target = [-1 if isinstance(size, Dim) else size for size in shape]
        return e.emit("Reshape", [e.name(x), e.constant(ints(target))])
    unknown = [i for i in vary if not shape[i].linear]  # type: ignore[union-attr]
    if len(unknown) == 1 and 0 not in shape:
        shape = tuple(-1 if i == unknown[0] else size for i, size in enumerate(shape))
    return e.emit("Reshape", [e.name(x), e.sizes(shape)], allowzero=int(0 in shape))


@lowers("Permute")
def _(e: Exporter, v: Value, x: Any) -> str:
    axes = v.attribute("axes")
    name = e.name(x)
    return name if axes == tuple(range(len(axes))) else e.emit("Transpose", [name], perm=axes)


@lowers("Expand")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.emit("Expand", [e.name(x), e.sizes(v.shape)])


@lowers("Clone")
def _(e: Exporter, v: Value, x: Any) -> str:
    return e.name(x)


@lowers("BasicIndex")
def _(e: Exporter, v: Value, x: Any) -> str:
    name = e.name(x)
    rows = [each.op.items for each in v.each]  # type: ignore[union-attr]
    axis = 0
    starts: list[Any] = []
    stops: list[Any] = []
    steps, axes, squeezed, added = [], [], [], []
    shape = x.shape
    place = 0
    for items in zip(*rows, strict=True):
        if items[0] is None:
            added.append(place)
            place += 1
            continue
        if isinstance(items[0], tuple):
            start, stop, step = v.sizes([list(item) for item in items])
            if (start, stop, step) != (0, shape[axis], 1):
                starts.append(start)
                stops.append(stop)
                steps.append(step)
                axes.append(axis)
            place += 1
        else:
            start = v.size(items)
            starts.append(start)
            stops.append(v.size([item + 1 for item in items]))
            steps.append(1)
            axes.append(axis)
            squeezed.append(axis)
        axis += 1
    if axes:
        options = [e.sizes(starts), e.sizes(stops), e.constant(ints(axes)), e.sizes(steps)]
        name = e.emit("Slice", [name, *options])
    if squeezed:
        name = e.emit("Squeeze", [name, e.constant(ints(squeezed))])
    return e.emit("Unsqueeze", [name, e.constant(ints(added))]) if added else name


@lowers("Place")
def _(e: Exporter, v: Value, x: Any) -> str:
    """Padding, for slices of step 1; an integer index is a slice of one element."""
    before: list[Any] = []
    after: list[Any] = []
    rows = [each.op.items for each in v.each]  # type: ignore[union-attr]
    added = []
    for axis, items in enumerate(zip(*rows, strict=True)):
        total = [each.shape[axis] for each in v.each]
        if items[0] is None or (isinstance(items[0], tuple) and items[0][2] != 1):
            raise Unsupported("onnx.export: place: ONNX pads with steps of 1 only")
        if not isinstance(items[0], tuple):
            added.append(axis)
            items = tuple((i, i + 1, 1) for i in items)
        before.append(v.size([item[0] for item in items]))
        after.append(v.size([n - item[1] for n, item in zip(total, items, strict=True)]))
    rest = len(v.shape) - len(before)
    name = e.name(x)
    if added:
        name = e.emit("Unsqueeze", [name, e.constant(ints(added))])
    pads = e.sizes([*before, *[0] * rest, *after, *[0] * rest])
    return e.emit("Pad", [name, pads, e.name(v.attribute("value"), v.dtype)])


@lowers("Cat")
def _(e: Exporter, v: Value, *inputs: Any) -> str:
    return e.emit("Concat", [e.name(x, v.dtype) for x in inputs], axis=v.attribute("axis"))


@lowers("Stack")
def _(e: Exporter, v: Value, *inputs: Any) -> str:
    axis = v.attribute("axis")
    place = e.constant(ints([axis]))
    names = [e.emit("Unsqueeze", [e.name(x, v.dtype), place]) for x in inputs]
    return e.emit("Concat", names, axis=axis)


@lowers("Split")
def _(e: Exporter, v: Value, x: Any) -> tuple[str, ...]:
    sizes = v.field_sizes("sizes")
    inputs = [e.name(x), e.sizes(sizes)]
    return e.emit_several("Split", inputs, len(sizes), axis=v.attribute("axis"))


@lowers("Unbind")
def _(e: Exporter, v: Value, x: Any) -> tuple[str, ...]:
    axis, count = v.attribute("axis"), v.attribute("count")
    name = e.name(x)
    return tuple(e.emit("Gather", [name, e.constant(np.int64(i))], axis=axis) for i in range(count))


@lowers("Flip")
def _(e: Exporter, v: Value, x: Any) -> str:
    axes = v.attribute("axes")
    n = len(axes)
    ends = [ints(each) for each in ([-1] * n, [-_LAST] * n, axes, [-1] * n)]
    return e.emit("Slice", [e.name(x), *map(e.constant, ends)])


@lowers("Triangle")
def _(e: Exporter, v: Value, x: Any) -> str:
    diagonal = e.constant(np.int64(v.attribute("diagonal")))
    upper = int(v.attribute("upper"))
    if v.dtype.kind != "b":
        return e.emit("Trilu", [e.name(x), diagonal], upper=upper)
    number = e.emit("Cast", [e.name(x)], to=element_type(np.int64))
    kept = e.emit("Trilu", [number, diagonal], upper=upper)
    return e.emit("Cast", [kept], to=element_type(v.dtype))


# ---- reductions ------------------------------------------------------------------------------


def reduce(e: Exporter, kind: str, name: str, axes: Sequence[int], keepdims: bool) -> str:
    """A reducing node: the axes are an input or an attribute, depending on the opset."""
    if not axes:
        return name
    if kind == "ReduceSum" or e.opset >= 18:
        return e.emit(kind, [name, e.constant(ints(axes))], keepdims=int(keepdims))
    return e.emit(kind, [name], axes=list(axes), keepdims=int(keepdims))


def _reduction(kind: str) -> Lower:
    def lower(e: Exporter, v: Value, x: Any) -> str:
        return reduce(e, kind, e.name(x, v.dtype), v.attribute("axes"), v.attribute("keepdims"))

    return lower


for _name, _kind in {
    "Sum": "ReduceSum", "Mean": "ReduceMean", "Prod": "ReduceProd", "Amax": "ReduceMax",
    "Amin": "ReduceMin", "LogSumExp": "ReduceLogSumExp",
}.items():  # fmt: skip
    TABLE[_name] = _reduction(_kind)


@lowers("All", "Some")
def _(e: Exporter, v: Value, x: Any) -> str:
    kind = "ReduceMin" if type(v.op).__name__ == "All" else "ReduceMax"
    truth = e.emit("Cast", [e.name(x, np.dtype(bool))], to=element_type(np.int32))
    found = reduce(e, kind, truth, v.attribute("axes"), v.attribute("keepdims"))
    return e.emit("Cast", [found], to=element_type(bool))


@lowers("Argmax", "Argmin")
def _(e: Exporter, v: Value, x: Any) -> str:
    kind = "ArgMax" if type(v.op).__name__ == "Argmax" else "ArgMin"
    axes, keepdims = v.attribute("axes"), v.attribute("keepdims")
    if len(axes) == 1:
        return e.emit(kind, [e.name(x)], axis=axes[0], keepdims=int(keepdims))
    flat = e.emit("Reshape", [e.name(x), e.constant(ints([-1]))])
    place = e.emit(kind, [flat], axis=0, keepdims=0)
    return e.emit("Reshape", [place, e.sizes(v.shape)]) if keepdims else place


@lowers("VarMean")
def _(e: Exporter, v: Value, x: Any) -> tuple[str, ...]:
    axes, keepdims = v.attribute("axes"), v.attribute("keepdims")
    name = e.name(x)
    mean = reduce(e, "ReduceMean", name, axes, True)
    centred = e.emit("Sub", [name, mean])
    total = reduce(e, "ReduceSum", e.emit("Mul", [centred, centred]), axes, keepdims)
    sizes = [x.shape[axis] for axis in axes]
    if any(isinstance(size, Dim) for size in sizes):
        raise Unsupported("onnx.export: var over a size that may vary; export it with a fixed size")
    count = max(math.prod(sizes) - v.attribute("correction"), 0)
    spread = e.emit("Div", [total, e.name(count, x.dtype)])
    if v.attribute("root"):
        spread = e.emit("Sqrt", [spread])
    if not keepdims:
        mean = e.emit("Squeeze", [mean, e.constant(ints(axes))])
    return spread, mean


@lowers("Norm")
def _(e: Exporter, v: Value, x: Any) -> str:
    p, axes, keepdims = (v.attribute(n) for n in ("p", "axes", "keepdims"))
    name = e.name(x)
    if p == 2:
        return reduce(e, "ReduceL2", name, axes, keepdims)
    size = e.emit("Abs", [name])
    if p == 0:
        zero = e.emit("Equal", [name, e.name(0, x.dtype)])
        ones = e.emit("Cast", [e.emit("Not", [zero])], to=element_type(v.dtype))
        return reduce(e, "ReduceSum", ones, axes, keepdims)
    if math.isinf(p):
        return reduce(e, "ReduceMax" if p > 0 else "ReduceMin", size, axes, keepdims)
    if p == 1:
        return reduce(e, "ReduceSum", size, axes, keepdims)
    powers = e.emit("Pow", [size, e.name(p, v.dtype)])
    total = reduce(e, "ReduceSum", powers, axes, keepdims)
    return e.emit("Pow", [total, e.name(1 / p, v.dtype)])


@lowers("CumSum")
def _(e: Exporter, v: Value, x: Any) -> str:
    place = e.constant(np.int64(v.attribute("axis")))
    return e.emit("CumSum", [e.name(x, v.dtype), place], reverse=int(v.attribute("reverse")))


@lowers("TopPlaces")
def _(e: Exporter, v: Value, x: Any) -> str:
    k, axis = v.attribute("k"), v.attribute("axis")
    inputs = [e.name(x), e.constant(ints([k]))]
    largest = int(v.attribute("largest"))
    return e.emit_several("TopK", inputs, 2, axis=axis, largest=largest, sorted=1)[1]


@lowers("ArgSort")
def _(e: Exporter, v: Value, x: Any) -> str:
    axis = v.attribute("axis")
    inputs = [e.name(x), e.sizes([x.shape[axis]])]
    largest = int(v.attribute("descending"))
    return e.emit_several("TopK", inputs, 2, axis=axis, largest=largest, sorted=1)[1]


@lowers("Softmax", "LogSoftmax")
def _(e: Exporter, v: Value, x: Any) -> str:
    axes = v.attribute("axes")
    name = e.name(x, v.dtype)
    kind = type(v.op).__name__
    if len(axes) == 1:
        return e.emit(kind, [name], axis=axes[0])
    total = reduce(e, "ReduceLogSumExp", name, axes, True)
    logs = e.emit("Sub", [name, total])
    return logs if kind == "LogSoftmax" else e.emit("Exp", [logs])


# ---- indexing by tensors ---------------------------------------------------------------------


@lowers("Index")
def _(e: Exporter, v: Value, x: Any, index: Any) -> str:
    axes = v.attribute("axes")
    name, places = e.name(x), e.name(index)
    if len(axes) == 1:
        return e.emit("Gather", [name, places], axis=axes[0])
    order = [*axes, *(i for i in range(len(x.shape)) if i not in axes)]
    if order != sorted(order):
        name = e.emit("Transpose", [name], perm=order)
    rank = len(index.shape)
    last = e.emit("Transpose", [places], perm=[*range(1, rank), 0])
    found = e.emit("GatherND", [name, last])
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    if not first:
        return found
    back = [*range(rank - 1, rank - 1 + first), *range(rank - 1)]
    return e.emit("Transpose", [found], perm=[*back, *range(len(back), len(v.shape))])


@lowers("Gather")
def _(e: Exporter, v: Value, x: Any, index: Any) -> str:
    axis = v.attribute("axis")
    return e.emit("GatherElements", [e.name(x), e.name(index)], axis=axis)


@lowers("Scatter")
def _(e: Exporter, v: Value, x: Any, index: Any, src: Any) -> str:
    places = e.name(index)
    if isinstance(src, Value):
        updates = e.name(src, v.dtype)
        if src.shape != index.shape:
            n = len(index.shape)
            ends = [e.constant(ints([0] * n)), e.sizes(index.shape)]
            updates = e.emit("Slice", [updates, *ends])
    else:
        updates = e.emit("Expand", [e.name(src, v.dtype), e.sizes(index.shape)])
    options = {"reduction": "add"} if v.attribute("accumulate") else {}
    inputs = [e.name(x), places, updates]
    return e.emit("ScatterElements", inputs, axis=v.attribute("axis"), **options)


@lowers("IndexPut")
def _(e: Exporter, v: Value, x: Any, index: Any, value: Any) -> str:
    axes = v.attribute("axes")
    if axes != tuple(range(len(axes))):
        raise Unsupported("onnx.export: index_put: ONNX writes along the first dimensions only")
    places = e.name(index)
    rank = len(index.shape)
    if len(axes) == 1:
        places = e.emit("Unsqueeze", [places, e.constant(ints([-1]))])
        selected = index.shape
    else:
        places = e.emit("Transpose", [places], perm=[*range(1, rank), 0])
        selected = index.shape[1:]
    shape = e.sizes([*selected, *x.shape[len(axes) :]])
    updates = e.emit("Expand", [e.name(value, v.dtype), shape])
    options = {"reduction": "add"} if v.attribute("accumulate") else {}
    return e.emit("ScatterND", [e.name(x), places, updates], **options)


@lowers("ViewWrite", "Overwrite")
def _(e: Exporter, v: Value, base: Any, value: Any) -> str:
    """The elements at the places that are written, replaced one by one."""
    if any(isinstance(size, Dim) for size in v.shape):
        raise Unsupported(
            "onnx.export: writing into a part of a tensor whose sizes vary; build it with cat()"
        )
    shape = v.each[0].shape
    places = np.arange(math.prod(shape)).reshape(shape)
    op: Any = v.op
    for view in [basic_index(op.items)] if hasattr(op, "items") else op.ops:
        places = view.compute(np, places)
    flat = e.emit("Reshape", [e.name(base), e.constant(ints([-1]))])
    part = e.emit("Expand", [e.name(value, v.dtype), e.constant(ints(places.shape))])
    part = e.emit("Reshape", [part, e.constant(ints([-1]))])
    at = e.constant(places.reshape(-1).astype(np.int64))
    written = e.emit("ScatterElements", [flat, at, part], axis=0)
    return e.emit("Reshape", [written, e.constant(ints(shape))])


# ---- products, convolution, pooling ----------------------------------------------------------


@lowers("MatMul")
def _(e: Exporter, v: Value, a: Any, b: Any) -> str:
    return e.emit("MatMul", [e.name(a), e.name(b)])


@lowers("Linear")
def _(e: Exporter, v: Value, x: Any, weight: Any, *bias: Any) -> str:
    terms = [e.name(each) for each in bias if each is not None]
    if len(x.shape) == 2:
        return e.emit("Gemm", [e.name(x), e.name(weight), *terms], transB=1)
    product = e.emit("MatMul", [e.name(x), e.emit("Transpose", [e.name(weight)], perm=[1, 0])])
    return e.emit("Add", [product, terms[0]]) if terms else product


def _geometry(v: Value) -> dict[str, Any]:
    pairs = v.attribute("padding")
    return {
        "strides": v.attribute("stride"),
        "pads": [lo for lo, _ in pairs] + [hi for _, hi in pairs],
    }


@lowers("Convolution")
def _(e: Exporter, v: Value, x: Any, weight: Any, *bias: Any) -> str:
    names = [e.name(each) for each in (x, weight, *bias) if each is not None]
    return e.emit(
        "Conv", names, dilations=v.attribute("dilation"), group=v.attribute("groups"),
        kernel_shape=weight.shape[2:], **_geometry(v),
    )  # fmt: skip


@lowers("ConvolutionInput")
def _(e: Exporter, v: Value, x: Any, weight: Any) -> str:
    stride, dilation = v.attribute("stride"), v.attribute("dilation")
    kernel = weight.shape[2:]
    extra = [
        y - ((n - 1) * s - lo - hi + d * (k - 1) + 1)
        for y, n, s, d, k, (lo, hi) in zip(
            v.each[0].shape[2:], x.each[0].shape[2:], stride, dilation, kernel,
            v.attribute("padding"), strict=True,
        )
    ]  # fmt: skip
    return e.emit(
        "ConvTranspose", [e.name(x), e.name(weight)], dilations=dilation, kernel_shape=kernel,
        group=v.attribute("groups"), output_padding=extra, **_geometry(v),
    )  # fmt: skip


def _with_channels(e: Exporter, v: Value, x: Any, pool: Callable[[str], str]) -> str:
    """Pool the trailing dimensions; ONNX wants exactly two before them."""
    rank = len(v.attribute("kernel"))
    lead = len(x.shape) - rank
    name = e.name(x)
    if lead == 2:
        return pool(name)
    if lead < 2:
        axes = e.constant(ints(range(2 - lead)))
        return e.emit("Squeeze", [pool(e.emit("Unsqueeze", [name, axes])), axes])
    tail = [size if isinstance(size, int) else 0 for size in x.shape[lead:]]
    if 0 in tail:
        raise Unsupported("onnx.export: pooling of more than two leading and varying dimensions")
    pooled = pool(e.emit("Reshape", [name, e.constant(ints([1, -1, *tail]))]))
    return e.emit("Reshape", [pooled, e.sizes(v.shape)])


@lowers("MaxPool")
def _(e: Exporter, v: Value, x: Any) -> str:
    geometry = _pool_geometry(e, v)
    return _with_channels(
        e, v, x, lambda name: e.emit(
            "MaxPool", [cropped(e, v, name)], kernel_shape=v.attribute("kernel"),
            dilations=v.attribute("dilation"), **geometry)
    )  # fmt: skip


def _pool_geometry(e: Exporter, v: Value) -> dict[str, Any]:
    geometry = _geometry(v)
    geometry["pads"] = [max(pad, 0) for pad in geometry["pads"]]
    return geometry


def cropped(e: Exporter, v: Value, name: str) -> str:
    """What negative padding leaves."""
    pairs = v.attribute("padding")
    if all(hi >= 0 for _, hi in pairs):
        return name
    axes = [i + 2 for i, (_, hi) in enumerate(pairs) if hi < 0]
    stops = [hi for _, hi in pairs if hi < 0]
    ends = [ints(each) for each in ([0] * len(axes), stops, axes)]
    return e.emit("Slice", [name, *map(e.constant, ends)])


@lowers("SumPool")
def _(e: Exporter, v: Value, x: Any) -> str:
    kernel = v.attribute("kernel")
    geometry = _pool_geometry(e, v)
    mean = _with_channels(
        e, v, x, lambda name: e.emit(
            "AveragePool", [cropped(e, v, name)], kernel_shape=kernel, count_include_pad=1,
            **geometry)
    )  # fmt: skip
    return e.emit("Mul", [mean, e.name(math.prod(kernel), v.dtype)])
