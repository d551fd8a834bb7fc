"""What ONNX's operators compute: one function each, in `TABLE` by the operator's name.

A function takes the node and its inputs: tensors, constant arrays, or None for one left out. It
returns a tensor, an array, or a tuple of them. Arrays are values that the graph's structure may
depend on, such as shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import nn
from ..core.dtype import from_numpy_dtype
from ..core.errors import CheckpointError, Unsupported
from ..core.op import FUNCTIONS, apply
from ..graph.recorded import concrete
from ..ops.advanced import Index, IndexPut
from ..ops.creation import full
from ..ops.memory import from_numpy
from ..ops.scatter import Gather, Scatter
from ..tensor import Tensor
from .files import DTYPES

F: Any = nn.functional
ad: Any = type("functions", (), {name: staticmethod(f) for name, f in FUNCTIONS.items()})
MOST = 1 << 31  # elements of a tensor whose size is data
TABLE: dict[str, Callable[..., Any]] = {}
LAST = np.iinfo(np.int64).max


class TooLarge(CheckpointError):  # noqa: N818 - reads as what happened
    """A size that is data is larger than allowed here."""


class Node:
    """One node of the graph."""

    __slots__ = ("attributes", "inputs", "kind", "label", "limit", "opset", "outputs", "training")

    def __init__(
        self, kind: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
        attributes: dict[str, Any], opset: int, label: str,
    ) -> None:  # fmt: skip
        self.kind = kind
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes
        self.opset = opset
        self.label = label
        self.training = False
        self.limit: int | None = None

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def check_size(self, sizes: Sequence[int]) -> None:
        """TooLarge where a tensor of these sizes must not be made; before it is."""
        limit = MOST if self.limit is None else self.limit
        total = math.prod(int(size) for size in sizes)
        if total > limit or any(size < 0 for size in sizes):
            raise TooLarge(f"onnx: node {self.label}: a tensor of sizes {list(sizes)[:8]}")

    def unsupported(self, what: str) -> Unsupported:
        """The error for a gap."""
        return Unsupported(f"onnx: node {self.label}: {what} is not supported")


def operator(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function for the operators called `names`."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            TABLE[name] = function
        return function

    return enter


def t(x: Any) -> Tensor:
    """A tensor; constant arrays become one."""
    return x if isinstance(x, Tensor) else from_numpy(np.ascontiguousarray(x).reshape(x.shape))


def host(x: Any) -> Any:
    """The array of a value."""
    return np.asarray(concrete(x)) if isinstance(x, Tensor) else np.asarray(x)


def ints(x: Any) -> list[int]:
    """The ints of a small vector."""
    array = host(x)
    if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > 256:
        raise ValueError(f"expected a vector of integers, got {array.dtype} {array.shape}")
    return [int(v) for v in array.reshape(-1)]


def axes_of(n: Node, given: Any, rank: int, name: str = "axes") -> list[int] | None:
    """Axes from the second input or the attribute, counted from the front."""
    axes = ints(given) if given is not None else n.get(name)
    return None if axes is None else [axis_in(axis, rank) for axis in axes]


def axis_in(axis: int, rank: int) -> int:
    """`axis` counted from the front; IndexError out of range."""
    if not -rank <= axis < max(rank, 1):
        raise IndexError(f"axis {axis} of a tensor of {rank} dimensions")
    return axis % rank if rank else 0


# ---- elementwise -----------------------------------------------------------------------------


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


@operator("Identity")
def _(n: Node, x: Any) -> Any:
    return x


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
def _(n: Node, a: Any, b: Any) -> Any:
    if t(a).dtype.is_floating_point:
        return ad.div(t(a), t(b))
    if isinstance(b, np.ndarray) and not b.all():
        raise ZeroDivisionError("integer division by zero")
    return ad.div(t(a), t(b), rounding_mode="trunc")


@operator("Mod")
def _(n: Node, a: Any, b: Any) -> Any:
    if isinstance(b, np.ndarray) and b.dtype.kind in "iu" and not b.all():
        raise ZeroDivisionError("integer division by zero")
    return (ad.fmod if n.get("fmod", 0) else ad.remainder)(t(a), t(b))


@operator("Pow")
def _(n: Node, a: Any, b: Any) -> Any:
    if isinstance(b, np.ndarray) and b.size == 1 and b.dtype.kind == "f":
        return ad.pow(t(a), float(b.reshape(-1)[0])).to(t(a).dtype)
    return ad.pow(t(a), t(b)).to(t(a).dtype)


def _variadic(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(n: Node, *xs: Any) -> Any:
        result = t(xs[0])
        for x in xs[1:]:
            result = function(result, t(x))
        return result

    return run


TABLE["Max"] = _variadic(ad.maximum)
TABLE["Min"] = _variadic(ad.minimum)
TABLE["Sum"] = _variadic(ad.add)
TABLE["Mean"] = lambda n, *xs: TABLE["Sum"](n, *xs) / len(xs)


@operator("Where")
def _(n: Node, condition: Any, a: Any, b: Any) -> Any:
    return ad.where(t(condition), t(a), t(b))


@operator("IsInf")
def _(n: Node, x: Any) -> Any:
    x = t(x)
    found = ad.isinf(x)
    if not n.get("detect_negative", 1):
        found = found & (x > 0)
    return found if n.get("detect_positive", 1) else found & (x < 0)


@operator("Clip")
def _(n: Node, x: Any, low: Any = None, high: Any = None) -> Any:
    low = n.get("min") if low is None else low
    high = n.get("max") if high is None else high
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        x = t(x) if low is None else ad.maximum(t(x), t(low))
        return x if high is None else ad.minimum(x, t(high))
    bounds = [None if b is None else host(b).reshape(-1)[0].item() for b in (low, high)]
    return t(x) if bounds == [None, None] else ad.clamp(t(x), *bounds)


@operator("LeakyRelu")
def _(n: Node, x: Any) -> Any:
    return F.leaky_relu(t(x), n.get("alpha", 0.01))


@operator("PRelu")
def _(n: Node, x: Any, slope: Any) -> Any:
    return ad.where(t(x) > 0, t(x), t(x) * t(slope))


@operator("Elu")
def _(n: Node, x: Any) -> Any:
    return F.elu(t(x), n.get("alpha", 1.0))


@operator("Celu")
def _(n: Node, x: Any) -> Any:
    return F.celu(t(x), n.get("alpha", 1.0))


@operator("Selu")
def _(n: Node, x: Any) -> Any:
    gamma = n.get("gamma", 1.0507009873554805)
    return F.elu(t(x), n.get("alpha", 1.6732632423543772)) * gamma


@operator("ThresholdedRelu")
def _(n: Node, x: Any) -> Any:
    return F.threshold(t(x), n.get("alpha", 1.0), 0.0)


@operator("HardSigmoid")
def _(n: Node, x: Any) -> Any:
    return ad.clamp(t(x) * n.get("alpha", 0.2) + n.get("beta", 0.5), 0, 1)


@operator("Softplus")
def _(n: Node, x: Any) -> Any:
    return F.softplus(t(x))


@operator("Gelu")
def _(n: Node, x: Any) -> Any:
    return F.gelu(t(x), approximate=n.get("approximate", "none"))


@operator("Softmax", "LogSoftmax")
def _(n: Node, x: Any) -> Any:
    x = t(x)
    function = F.softmax if n.kind == "Softmax" else F.log_softmax
    if n.opset >= 13:
        return function(x, axis_in(n.get("axis", -1), x.ndim))
    axis = axis_in(n.get("axis", 1), x.ndim)  # before 13, over all dimensions from there on
    return function(x.flatten(axis), axis).reshape(x.shape)


@operator("Dropout")
def _(n: Node, x: Any, ratio: Any = None, training: Any = None) -> Any:
    p = n.get("ratio", 0.5) if ratio is None else float(host(ratio).reshape(()))
    return F.dropout(t(x), p, n.training)


@operator("Cast")
def _(n: Node, x: Any) -> Any:
    dtype = DTYPES.get(n.get("to"))
    if dtype is None:
        raise n.unsupported(f"element type {n.get('to')}")
    return t(x).to(from_numpy_dtype(dtype))


@operator("CastLike")
def _(n: Node, x: Any, like: Any) -> Any:
    return t(x).to(t(like).dtype)


# ---- constants and shapes --------------------------------------------------------------------


@operator("Constant")
def _(n: Node) -> Any:
    for name, dtype in (("value", None), ("value_float", np.float32), ("value_floats", np.float32),
                        ("value_int", np.int64), ("value_ints", np.int64)):  # fmt: skip
        if name in n.attributes:
            return np.array(n.attributes[name], dtype)
    raise n.unsupported("a constant of this kind")


@operator("ConstantOfShape")
def _(n: Node, shape: Any) -> Any:
    sizes = ints(shape)
    n.check_size(sizes)
    value = n.get("value")
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return full(sizes, fill[0].item(), dtype=from_numpy_dtype(fill.dtype))


@operator("Range")
def _(n: Node, start: Any, stop: Any, step: Any) -> Any:
    first, last, by = (host(x).reshape(()) for x in (start, stop, step))
    count = max(math.ceil((last.item() - first.item()) / by.item()), 0)
    n.check_size([count])
    return (first + np.arange(count) * by).astype(first.dtype)


@operator("Shape")
def _(n: Node, x: Any) -> Any:
    return np.array(x.shape, np.int64)[n.get("start", 0) : n.get("end")]


@operator("Size")
def _(n: Node, x: Any) -> Any:
    return np.array(math.prod(x.shape), np.int64)


@operator("Reshape")
def _(n: Node, x: Any, shape: Any = None) -> Any:
    sizes = n.get("shape") if shape is None else ints(shape)
    if not n.get("allowzero", 0):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return t(x).reshape(sizes)


@operator("Flatten")
def _(n: Node, x: Any) -> Any:
    axis = n.get("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise IndexError(f"axis {axis} of a tensor of {x.ndim} dimensions")
    axis = axis + x.ndim if axis < 0 else axis
    return t(x).reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose")
def _(n: Node, x: Any) -> Any:
    return t(x).permute(n.get("perm", list(range(x.ndim))[::-1]))


@operator("Squeeze")
def _(n: Node, x: Any, axes: Any = None) -> Any:
    found = axes_of(n, axes, x.ndim)
    if found is None:
        return t(x).squeeze()
    if any(x.shape[axis] != 1 for axis in found):
        raise ValueError(f"squeezing axes {found} of shape {tuple(x.shape)}")
    return t(x).reshape([size for i, size in enumerate(x.shape) if i not in found])


@operator("Unsqueeze")
def _(n: Node, x: Any, axes: Any = None) -> Any:
    given = n.get("axes") if axes is None else ints(axes)
    rank = x.ndim + len(given)
    places = {axis_in(axis, rank) for axis in given}
    if len(places) != len(given):
        raise ValueError(f"axes {given} repeat")
    rest = iter(x.shape)
    return t(x).reshape([1 if i in places else next(rest) for i in range(rank)])


@operator("Concat")
def _(n: Node, *xs: Any) -> Any:
    return ad.cat([t(x) for x in xs], axis_in(n.get("axis"), xs[0].ndim))


@operator("Split")
def _(n: Node, x: Any, sizes: Any = None) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    given = n.get("split") if sizes is None else ints(sizes)
    if given is None:
        count = len(n.outputs)
        each = -(-x.shape[axis] // count)
        given = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    return tuple(ad.split(t(x), given, axis))


@operator("Slice")
def _(n: Node, x: Any, *given: Any) -> Any:
    x = t(x)
    given += (None,) * (4 - len(given))
    starts, ends, axes, steps = (
        n.get(name) if each is None else ints(each)
        for name, each in zip(("starts", "ends", "axes", "steps"), given, strict=True)
    )
    axes = list(range(len(starts))) if axes is None else axes
    key: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        axis = axis_in(axis, x.ndim)
        places = range(*slice(start, end, step).indices(x.shape[axis]))
        if step > 0:
            key[axis] = slice(places.start, max(places.stop, places.start), step)
        else:
            x = x.index_select(axis, t(np.array(places, np.int64)))
    return x[tuple(key)]


@operator("Expand")
def _(n: Node, x: Any, shape: Any) -> Any:
    sizes = np.broadcast_shapes(tuple(x.shape), tuple(ints(shape)))
    n.check_size(sizes)
    return t(x).expand(sizes)


@operator("Tile")
def _(n: Node, x: Any, repeats: Any) -> Any:
    counts = ints(repeats)
    n.check_size([a * b for a, b in zip(x.shape, counts, strict=True)])
    return t(x).repeat(counts)


@operator("Pad")
def _(n: Node, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    x = t(x)
    given = n.get("pads") if pads is None else ints(pads)
    places = list(range(x.ndim)) if axes is None else [axis_in(a, x.ndim) for a in ints(axes)]
    if len(given) != 2 * len(places):
        raise ValueError(f"{len(given)} pads for {len(places)} axes")
    pairs = {axis: (given[i], given[i + len(places)]) for i, axis in enumerate(places)}
    n.check_size([size + sum(pairs.get(i, ())) for i, size in enumerate(x.shape)])
    mode = n.get("mode", "constant")
    if mode == "constant":
        fill = n.get("value", 0.0) if value is None else host(value).reshape(()).item()
        flat = [pad for i in reversed(range(x.ndim)) for pad in pairs.get(i, (0, 0))]
        return F.pad(x, flat, value=fill)
    for axis, (low, high) in pairs.items():
        if low or high:
            size = x.shape[axis]
            kept = np.arange(size)[max(-low, 0) : size - max(-high, 0)]
            wide = np.pad(kept, (max(low, 0), max(high, 0)), mode=mode)
            x = x.index_select(axis, t(wide))
    return x


@operator("Trilu")
def _(n: Node, x: Any, k: Any = None) -> Any:
    diagonal = 0 if k is None else int(host(k).reshape(()))
    return (ad.triu if n.get("upper", 1) else ad.tril)(t(x), max(min(diagonal, 1 << 40), -1 << 40))


@operator("DepthToSpace")
def _(n: Node, x: Any) -> Any:
    b, c, h, w = x.shape
    r = n.get("blocksize")
    if n.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(t(x), r)
    parts = t(x).reshape(b, r, r, c // (r * r), h, w).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(b, c // (r * r), h * r, w * r)


@operator("SpaceToDepth")
def _(n: Node, x: Any) -> Any:
    b, c, h, w = x.shape
    r = n.get("blocksize")
    parts = t(x).reshape(b, c, h // r, r, w // r, r).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(b, c * r * r, h // r, w // r)


# ---- indexing --------------------------------------------------------------------------------


@operator("Gather")
def _(n: Node, x: Any, index: Any) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    if isinstance(index, np.ndarray) and index.ndim == 0:
        return t(x).select(axis, int(index))
    return apply(Index((axis,)), t(x), t(index))


@operator("GatherElements")
def _(n: Node, x: Any, index: Any) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    return apply(Gather(axis), t(x), _wrapped(t(index), x.shape[axis]))


def _wrapped(index: Any, size: int) -> Any:
    """Negative indices count from the end."""
    return ad.where(index < 0, index + size, index).to(from_numpy_dtype(np.dtype(np.int64)))


def _columns(index: Any) -> tuple[tuple[int, ...], Any]:
    """Indices whose last dimension names the axes, as `Index` takes them."""
    count = index.shape[-1]
    if not 1 <= count <= 16:
        raise ValueError(f"{count} indices for each element")
    index = t(index)
    if count == 1:
        return (0,), index.squeeze(-1)
    return tuple(range(count)), index.permute(index.ndim - 1, *range(index.ndim - 1))


@operator("GatherND")
def _(n: Node, x: Any, index: Any) -> Any:
    if n.get("batch_dims", 0):
        raise n.unsupported("batch_dims")
    axes, columns = _columns(index)
    return apply(Index(axes), t(x), columns)


@operator("ScatterND")
def _(n: Node, x: Any, index: Any, updates: Any) -> Any:
    axes, columns = _columns(index)
    return apply(IndexPut(axes, _adds(n)), t(x), columns, t(updates))


def _adds(n: Node) -> bool:
    reduction = n.get("reduction", "none")
    if reduction not in ("none", "add"):
        raise n.unsupported(f"reduction {reduction!r}")
    return bool(reduction == "add")


@operator("ScatterElements", "Scatter")
def _(n: Node, x: Any, index: Any, updates: Any) -> Any:
    axis = axis_in(n.get("axis", 0), x.ndim)
    places = _wrapped(t(index), x.shape[axis])
    return apply(Scatter(axis, _adds(n)), t(x), places, t(updates))


@operator("OneHot")
def _(n: Node, index: Any, depth: Any, values: Any) -> Any:
    count = int(host(depth).reshape(()))
    n.check_size([*index.shape, count])
    axis = axis_in(n.get("axis", -1), index.ndim + 1)
    shape = [1] * (index.ndim + 1)
    shape[axis] = count
    classes = t(np.arange(count).reshape(shape))
    places = _wrapped(t(index), count).unsqueeze(axis)
    off, on = (t(x) for x in host(values))
    return ad.where(places == classes, on, off)


@operator("NonZero")
def _(n: Node, x: Any) -> Any:
    return ad.nonzero(t(x)).permute(1, 0)


@operator("TopK")
def _(n: Node, x: Any, k: Any = None) -> Any:
    count = n.get("k") if k is None else ints(k)[0]
    axis = axis_in(n.get("axis", -1), x.ndim)
    return tuple(ad.topk(t(x), count, axis, bool(n.get("largest", 1)), bool(n.get("sorted", 1))))


# ---- reductions ------------------------------------------------------------------------------


def _reduction(function: Callable[[Tensor, tuple[int, ...], bool], Any]) -> Callable[..., Any]:
    def run(n: Node, x: Any, axes: Any = None) -> Any:
        found = axes_of(n, axes, x.ndim)
        if not found:
            if n.get("noop_with_empty_axes", 0):
                return x
            found = list(range(x.ndim))
        if not x.ndim:
            return function(t(x).reshape(1), (0,), False)
        return function(t(x), tuple(found), bool(n.get("keepdims", 1)))

    return run


def _product(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Any:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keepdim, dtype=x.dtype)
    return x


for _kind, _reduce in {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep, dtype=x.dtype),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt(),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
}.items():
    TABLE[_kind] = _reduction(_reduce)


@operator("ArgMax", "ArgMin")
def _(n: Node, x: Any) -> Any:
    if n.get("select_last_index", 0):
        raise n.unsupported("select_last_index")
    function = ad.argmax if n.kind == "ArgMax" else ad.argmin
    return function(t(x), axis_in(n.get("axis", 0), x.ndim), keepdim=bool(n.get("keepdims", 1)))


@operator("CumSum")
def _(n: Node, x: Any, axis: Any) -> Any:
    x = t(x)
    place = axis_in(int(host(axis).reshape(())), x.ndim)
    backwards = n.get("reverse", 0)
    source = x.flip(place) if backwards else x
    total = source.cumsum(place, dtype=x.dtype)
    total = total - source if n.get("exclusive", 0) else total
    return total.flip(place) if backwards else total


# ---- which inputs are structure, and what may be folded --------------------------------------

HOST_INPUTS: dict[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "TopK": (1,), "Split": (1,), "Squeeze": (1,),
    "Unsqueeze": (1,), "CumSum": (1,), "Trilu": (1,), "Clip": (1, 2), "Dropout": (1, 2),
    "OneHot": (1, 2), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Upsample": (1,), "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4), "ConstantOfShape": (0,), "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5),
}  # fmt: skip
HEAVY = {"Constant", "MatMul", "NonZero", "TopK", "Dropout"}  # not computed while loading
FOLDED = set(TABLE) - HEAVY

from . import import_layers  # noqa: E402, F401 - enters the layers, which are not folded either
