"""Export of the other primitives as ONNX nodes: shapes, reductions, indexing, products, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.errors import Unsupported
from ...ops.index.slicing import basic_index
from .capture import Dim, GraphValue
from .export import Exporter, element_type
from .export_table import TABLE, Lower, ints, lowers

_LAST = np.iinfo(np.int64).max  # a slice's stop that stands for the end


# ---- shapes ----------------------------------------------------------------------------------


@lowers("Reshape")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
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
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    axes = v.attribute("axes")
    name = e.name(x)
    return name if axes == tuple(range(len(axes))) else e.emit("Transpose", [name], perm=axes)


lowers("Expand")(lambda e, v, x: e.emit("Expand", [e.name(x), e.sizes(v.shape)]))
lowers("Clone")(lambda e, v, x: e.name(x))


@lowers("BasicIndex")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
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
def _(e: Exporter, v: GraphValue, x: Any) -> str:
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
def _(e: Exporter, v: GraphValue, *inputs: Any) -> str:
    return e.emit("Concat", [e.name(x, v.dtype) for x in inputs], axis=v.attribute("axis"))


@lowers("Stack")
def _(e: Exporter, v: GraphValue, *inputs: Any) -> str:
    axis = v.attribute("axis")
    place = e.constant(ints([axis]))
    names = [e.emit("Unsqueeze", [e.name(x, v.dtype), place]) for x in inputs]
    return e.emit("Concat", names, axis=axis)


@lowers("Split")
def _(e: Exporter, v: GraphValue, x: Any) -> tuple[str, ...]:
    sizes = v.field_sizes("sizes")
    inputs = [e.name(x), e.sizes(sizes)]
    return e.emit_several("Split", inputs, len(sizes), axis=v.attribute("axis"))


@lowers("Unbind")
def _(e: Exporter, v: GraphValue, x: Any) -> tuple[str, ...]:
    axis, count = v.attribute("axis"), v.attribute("count")
    name = e.name(x)
    return tuple(e.emit("Gather", [name, e.constant(np.int64(i))], axis=axis) for i in range(count))


@lowers("Flip")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    axes = v.attribute("axes")
    n = len(axes)
    ends = [ints(each) for each in ([-1] * n, [-_LAST] * n, axes, [-1] * n)]
    return e.emit("Slice", [e.name(x), *map(e.constant, ends)])


@lowers("Roll")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    """Rolls by joining two slices: the elements that come in at the start, then the others."""
    axis, cut = v.attribute("axis"), ints([-v.attribute("shift")])
    name = e.name(x)
    ends = (cut, ints([_LAST])), (ints([0]), cut)
    parts = [
        e.emit("Slice", [name, e.constant(low), e.constant(high), e.constant(ints([axis]))])
        for low, high in ends
    ]
    return e.emit("Concat", parts, axis=axis)


lowers("Tile")(lambda e, v, x: e.emit("Tile", [e.name(x), e.sizes(v.field_sizes("times"))]))


@lowers("Triangle")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
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
    def lower(e: Exporter, v: GraphValue, x: Any) -> str:
        return reduce(e, kind, e.name(x, v.dtype), v.attribute("axes"), v.attribute("keepdims"))

    return lower


for _name, _kind in {
    "Sum": "ReduceSum", "Mean": "ReduceMean", "Prod": "ReduceProd", "Amax": "ReduceMax",
    "Amin": "ReduceMin", "LogSumExp": "ReduceLogSumExp",
}.items():  # fmt: skip
    TABLE[_name] = _reduction(_kind)


@lowers("All", "Some")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    kind = "ReduceMin" if type(v.op).__name__ == "All" else "ReduceMax"
    truth = e.emit("Cast", [e.name(x, np.dtype(bool))], to=element_type(np.int32))
    found = reduce(e, kind, truth, v.attribute("axes"), v.attribute("keepdims"))
    return e.emit("Cast", [found], to=element_type(bool))


@lowers("Argmax", "Argmin")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    kind = "ArgMax" if type(v.op).__name__ == "Argmax" else "ArgMin"
    axes, keepdims = v.attribute("axes"), v.attribute("keepdims")
    if len(axes) == 1:
        return e.emit(kind, [e.name(x)], axis=axes[0], keepdims=int(keepdims))
    flat = e.emit("Reshape", [e.name(x), e.constant(ints([-1]))])
    place = e.emit(kind, [flat], axis=0, keepdims=0)
    return e.emit("Reshape", [place, e.sizes(v.shape)]) if keepdims else place


@lowers("VarMean")
def _(e: Exporter, v: GraphValue, x: Any) -> tuple[str, ...]:
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
def _(e: Exporter, v: GraphValue, x: Any) -> str:
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
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    place = e.constant(np.int64(v.attribute("axis")))
    return e.emit("CumSum", [e.name(x, v.dtype), place], reverse=int(v.attribute("reverse")))


@lowers("TopPlaces")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    k, axis = v.attribute("k"), v.attribute("axis")
    inputs = [e.name(x), e.constant(ints([k]))]
    largest = int(v.attribute("largest"))
    return e.emit_several("TopK", inputs, 2, axis=axis, largest=largest, sorted=1)[1]


@lowers("ArgSort")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    axis = v.attribute("axis")
    inputs = [e.name(x), e.sizes([x.shape[axis]])]
    largest = int(v.attribute("descending"))
    return e.emit_several("TopK", inputs, 2, axis=axis, largest=largest, sorted=1)[1]


@lowers("Softmax", "LogSoftmax")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
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
def _(e: Exporter, v: GraphValue, x: Any, index: Any) -> str:
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
def _(e: Exporter, v: GraphValue, x: Any, index: Any) -> str:
    axis = v.attribute("axis")
    return e.emit("GatherElements", [e.name(x), e.name(index)], axis=axis)


@lowers("Scatter")
def _(e: Exporter, v: GraphValue, x: Any, index: Any, src: Any) -> str:
    places = e.name(index)
    if isinstance(src, GraphValue):
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
def _(e: Exporter, v: GraphValue, x: Any, index: Any, value: Any) -> str:
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
def _(e: Exporter, v: GraphValue, base: Any, value: Any) -> str:
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


lowers("MatMul")(lambda e, v, a, b: e.emit("MatMul", [e.name(a), e.name(b)]))


@lowers("Linear")
def _(e: Exporter, v: GraphValue, x: Any, weight: Any, *bias: Any) -> str:
    terms = [e.name(each) for each in bias if each is not None]
    if len(x.shape) == 2:
        return e.emit("Gemm", [e.name(x), e.name(weight), *terms], transB=1)
    product = e.emit("MatMul", [e.name(x), e.emit("Transpose", [e.name(weight)], perm=[1, 0])])
    return e.emit("Add", [product, terms[0]]) if terms else product


def _geometry(v: GraphValue) -> dict[str, Any]:
    pairs = v.attribute("padding")
    return {
        "strides": v.attribute("stride"),
        "pads": [lo for lo, _ in pairs] + [hi for _, hi in pairs],
    }


@lowers("Convolution")
def _(e: Exporter, v: GraphValue, x: Any, weight: Any, *bias: Any) -> str:
    names = [e.name(each) for each in (x, weight, *bias) if each is not None]
    return e.emit(
        "Conv", names, dilations=v.attribute("dilation"), group=v.attribute("groups"),
        kernel_shape=weight.shape[2:], **_geometry(v),
    )  # fmt: skip


@lowers("ConvolutionInput")
def _(e: Exporter, v: GraphValue, x: Any, weight: Any) -> str:
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


def _with_channels(e: Exporter, v: GraphValue, x: Any, pool: Callable[[str], str]) -> str:
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
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    geometry = _pool_geometry(e, v)
    return _with_channels(
        e, v, x, lambda name: e.emit(
            "MaxPool", [cropped(e, v, name)], kernel_shape=v.attribute("kernel"),
            dilations=v.attribute("dilation"), **geometry)
    )  # fmt: skip


def _pool_geometry(e: Exporter, v: GraphValue) -> dict[str, Any]:
    geometry = _geometry(v)
    geometry["pads"] = [max(pad, 0) for pad in geometry["pads"]]
    return geometry


def cropped(e: Exporter, v: GraphValue, name: str) -> str:
    """Slices off the elements that negative padding removes."""
    pairs = v.attribute("padding")
    if all(hi >= 0 for _, hi in pairs):
        return name
    axes = [i + 2 for i, (_, hi) in enumerate(pairs) if hi < 0]
    stops = [hi for _, hi in pairs if hi < 0]
    ends = [ints(each) for each in ([0] * len(axes), stops, axes)]
    return e.emit("Slice", [name, *map(e.constant, ends)])


@lowers("SumPool")
def _(e: Exporter, v: GraphValue, x: Any) -> str:
    kernel = v.attribute("kernel")
    geometry = _pool_geometry(e, v)
    mean = _with_channels(
        e, v, x, lambda name: e.emit(
            "AveragePool", [cropped(e, v, name)], kernel_shape=kernel, count_include_pad=1,
            **geometry)
    )  # fmt: skip
    return e.emit("Mul", [mean, e.name(math.prod(kernel), v.dtype)])


# ---- recurrence ------------------------------------------------------------------------------

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}  # ONNX's order of ours: i o f c, z r h


@lowers("RecurrentLayer")
def _(
    e: Exporter, v: GraphValue, x: Any, weight: Any, own_weight: Any, *rest: Any
) -> tuple[str, ...]:
    kind = v.attribute("kind")
    biases, state = (rest[:2], rest[2:]) if v.attribute("has_bias") else ((), rest)
    order = _GATES.get(kind, (0,))

    def ordered(y: Any) -> str:
        name = e.name(y)
        if len(order) == 1:
            return name
        rows = e.constant(ints([own_weight.shape[1]] * len(order)))
        parts = e.emit_several("Split", [name, rows], len(order), axis=0)
        return e.emit("Concat", [parts[gate] for gate in order], axis=0)

    def first(name: str) -> str:
        return e.emit("Unsqueeze", [name, e.constant(ints([0]))])

    bias = first(e.emit("Concat", [ordered(b) for b in biases], axis=0)) if biases else ""
    options: dict[str, Any] = {"hidden_size": own_weight.shape[1]}
    if v.attribute("reverse"):
        options["direction"] = "reverse"
    if kind == "GRU":
        options["linear_before_reset"] = 1
    if kind.startswith("RNN"):
        options["activations"] = ["Relu" if kind == "RNN_RELU" else "Tanh"]
    inputs = [e.name(x), *(first(ordered(w)) for w in (weight, own_weight)), bias, ""]
    inputs += [first(e.name(s)) for s in state]
    outputs = e.emit_several(kind.split("_")[0], inputs, len(state) + 1, **options)
    y = e.emit("Squeeze", [outputs[0], e.constant(ints([1]))])
    return (y, *(e.emit("Squeeze", [s, e.constant(ints([0]))]) for s in outputs[1:]))
