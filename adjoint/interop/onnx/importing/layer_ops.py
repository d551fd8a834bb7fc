"""ONNX's layers: products, windows, normalization, resizing, losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core.dtype import int64
from ....ops.nn.averaging import SumPool
from ....ops.nn.convolution_ops import Convolution, ConvolutionInput
from ....ops.nn.pooling import MaxPool, MaxPoolIndices
from ....runtime.dispatch import apply
from ....tensor import Tensor
from .imported_node import F, ImportedNode, ad, axis_in, host, ints, operator, t

Pairs = tuple[tuple[int, int], ...]
LARGEST_WINDOW = 1 << 16  # along an axis
MOST_NEIGHBOURS = 4096  # that an element of a smaller image is the mean of


@operator("Gemm", tensors=2)
def _(n: ImportedNode, a: Any, b: Any, c: Any = None) -> Any:
    alpha, beta = n.get("alpha", 1.0), n.get("beta", 1.0)
    a = a.t() if n.get("transA", 0) else a
    if n.get("transB", 0) and alpha == beta == 1 and c is not None and c.ndim == 1:
        return F.linear(a, b, t(c))
    product = a @ (b.t() if n.get("transB", 0) else b)
    product = product if alpha == 1 else product * alpha
    return product if c is None else product + (t(c) if beta == 1 else t(c) * beta)


operator("Einsum")(lambda n, *xs: ad.einsum(n.get("equation"), *map(t, xs)))


# ---- windows ---------------------------------------------------------------------------------


def windows(
    n: ImportedNode, size: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Any, Any, Pairs]:
    """Strides, dilations and padding."""
    rank = len(kernel)
    strides = tuple(n.get("strides") or [1] * rank)
    dilations = tuple(n.get("dilations") or [1] * rank)
    pads = n.get("pads") or [0] * (2 * rank)
    auto = n.get("auto_pad", "NOTSET")
    if max(kernel, default=0) > LARGEST_WINDOW:
        raise n.unsupported(f"a window of {max(kernel)}")
    if len(kernel) != len(size) or {len(strides), len(dilations), len(pads) // 2} != {rank}:
        raise ValueError("kernel, strides, dilations and pads do not fit the input")
    if min(strides) < 1 or min(dilations) < 1 or min(kernel) < 1 or min(pads) < 0:
        raise ValueError("kernel, strides, dilations must be positive and pads not negative")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for length, k, s, d in zip(size, kernel, strides, dilations, strict=True):
            total = max((-(-length // s) - 1) * s + d * (k - 1) + 1 - length, 0)
            small, large = total // 2, total - total // 2
            pairs.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return strides, dilations, tuple(pairs)
    if auto == "VALID":
        pads = [0] * (2 * rank)
    pairs = list(zip(pads[:rank], pads[rank:], strict=True))
    padded = [length + low + high for length, (low, high) in zip(size, pairs, strict=True)]
    n.check_size(padded)
    return strides, dilations, tuple(pairs)


@operator("Conv")
def _(n: ImportedNode, x: Any, weight: Any, bias: Any = None) -> Any:
    return convolve(n, t(x), t(weight), *(() if bias is None else (t(bias),)))


def convolve(n: ImportedNode, x: Tensor, weight: Tensor, *bias: Tensor) -> Any:
    """A convolution by the node's attributes."""
    strides, dilations, pairs = windows(n, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    return apply(Convolution(strides, pairs, dilations, n.get("group", 1)), x, weight, *bias)


@operator("ConvTranspose", tensors=2)
def _(n: ImportedNode, x: Any, weight: Any, bias: Any = None) -> Any:
    kernel = tuple(weight.shape[2:])
    strides, dilations, pairs = windows(n, tuple(x.shape[2:]), kernel)
    more = n.get("output_padding") or [0] * len(kernel)
    auto, wanted = n.get("auto_pad", "NOTSET"), n.get("output_shape")
    if wanted or auto.startswith("SAME"):
        sizes = wanted or [size * s for size, s in zip(x.shape[2:], strides, strict=True)]
        pairs = _padding_to(sizes[-len(kernel) :], x, kernel, strides, dilations, more, auto)
    size = tuple(
        (length - 1) * s + d * (k - 1) + 1 + extra - low - high
        for length, s, d, k, extra, (low, high) in zip(
            x.shape[2:], strides, dilations, kernel, more, pairs, strict=True
        )
    )
    pairs = tuple(
        (low, high - extra if extra >= s else high)
        for (low, high), extra, s in zip(pairs, more, strides, strict=True)
    )
    n.check_size([x.shape[0], weight.shape[1] * n.get("group", 1), *size])
    result = apply(ConvolutionInput(strides, pairs, dilations, n.get("group", 1), size), x, weight)
    return result if bias is None else result + t(bias).reshape(-1, *[1] * len(kernel))


def _padding_to(
    sizes: Any, x: Tensor, kernel: Any, strides: Any, dilations: Any, more: Any, auto: str
) -> Pairs:
    """The padding with which a transposed convolution gives an output of these sizes."""
    pairs = []
    for want, length, k, s, d, extra in zip(
        sizes, x.shape[2:], kernel, strides, dilations, more, strict=True
    ):
        total = (length - 1) * s + extra + d * (k - 1) + 1 - want
        small, large = total // 2, total - total // 2
        pairs.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return tuple(pairs)


def _pool_pairs(n: ImportedNode, x: Tensor) -> tuple[Any, Any, Any, Pairs, Pairs]:
    """Kernel, strides, dilations, the padding, and the padding with what ceil_mode reaches over."""
    kernel = tuple(n.get("kernel_shape"))
    size = tuple(x.shape[2:])
    strides, dilations, pairs = windows(n, size, kernel)
    if not n.get("ceil_mode", 0):
        return kernel, strides, dilations, pairs, pairs
    wide = []
    for length, k, s, d, (low, high) in zip(size, kernel, strides, dilations, pairs, strict=True):
        reach = d * (k - 1) + 1
        count = -(-(length + low + high - reach) // s) + 1
        if (count - 1) * s >= length + low:  # a window that would begin in the padding
            count -= 1
        wide.append((low, max((count - 1) * s + reach - length - low, high)))
    return kernel, strides, dilations, pairs, tuple(wide)


@operator("MaxPool", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    kernel, strides, dilations, _, wide = _pool_pairs(n, x)
    y = apply(MaxPool(kernel, strides, wide, dilations), x)
    if len(n.outputs) < 2:
        return y
    size = x.shape[2:]
    places = apply(MaxPoolIndices(kernel, strides, wide, dilations), x, y)  # within an image
    if n.get("storage_order", 0):
        at, places = places, 0
        for axis in range(len(size) - 1, -1, -1):
            places = places + at % size[axis] * math.prod(size[:axis])
            at = at // size[axis]
    images = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(size))
    return y, places + t(images * math.prod(size))


@operator("AveragePool", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    kernel, strides, dilations, pairs, wide = _pool_pairs(n, x)
    total = _sums(x, kernel, strides, wide, dilations)
    padded = any(any(pair) for pair in wide)
    if not padded or (n.get("count_include_pad", 0) and wide == pairs):
        return total / math.prod(kernel)
    inner = np.ones((1, 1, *x.shape[2:]), np.float32)
    rest = wide
    if n.get("count_include_pad", 0):
        inner = np.pad(inner, ((0, 0), (0, 0), *pairs), constant_values=1)
        rest = tuple((0, w[1] - p[1]) for w, p in zip(wide, pairs, strict=True))
    counts = _sums(t(inner), kernel, strides, rest, dilations)
    return total / counts.to(x.dtype)


def _sums(x: Tensor, kernel: Any, strides: Any, pairs: Pairs, dilations: Any) -> Any:
    """The sum of each window."""
    if all(d == 1 for d in dilations):
        return apply(SumPool(kernel, strides, pairs), x)
    for length, k, d, (low, high) in zip(x.shape[2:], kernel, dilations, pairs, strict=True):
        if d * (k - 1) >= length + low + high:
            raise ValueError(f"a window of {k}, {d} apart, of {length}")
    channels = x.shape[1]  # a convolution with ones, each channel by itself
    ones = x.new_ones(channels, 1, *kernel)
    return apply(Convolution(strides, pairs, dilations, channels), x, ones)


@operator("LpPool")
def _(n: ImportedNode, x: Any) -> Any:
    x, p = t(x), float(n.get("p", 2))
    kernel, strides, dilations, _, wide = _pool_pairs(n, x)
    return _sums(x.abs() ** p, kernel, strides, wide, dilations) ** (1 / p)


@operator("GlobalLpPool")
def _(n: ImportedNode, x: Any) -> Any:
    x, p = t(x), float(n.get("p", 2))
    return (x.abs() ** p).sum(tuple(range(2, x.ndim)), keepdim=True) ** (1 / p)


@operator("MaxUnpool", tensors=2)
def _(n: ImportedNode, x: Any, places: Any, shape: Any = None) -> Any:
    kernel = tuple(n.get("kernel_shape"))
    strides, _, pairs = windows(n, tuple(x.shape[2:]), kernel)
    size = [
        (length - 1) * s + k - low - high
        for length, s, k, (low, high) in zip(x.shape[2:], strides, kernel, pairs, strict=True)
    ]
    whole = [*x.shape[:2], *size]
    wanted = whole if shape is None else ints(shape)
    n.check_size(wanted)
    found = x.new_zeros(math.prod(whole)).scatter(0, places.reshape(-1), x.reshape(-1))
    found = found.reshape(whole)
    more = [(0, a - b) for a, b in zip(wanted, whole, strict=True)]
    return F.pad(found, [v for pair in reversed(more) for v in pair])


operator("GlobalAveragePool")(lambda n, x: t(x).mean(tuple(range(2, x.ndim)), keepdim=True))
operator("GlobalMaxPool")(lambda n, x: t(x).amax(tuple(range(2, x.ndim)), keepdim=True))


# ---- normalization ---------------------------------------------------------------------------


@operator("BatchNormalization")
def _(n: ImportedNode, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    momentum, eps = 1 - n.get("momentum", 0.9), n.get("epsilon", 1e-5)
    if n.get("training_mode", 0) and len(n.outputs) > 1:
        x, mean, variance = t(x), t(mean), t(variance)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        now, spread = x.mean(axes), x.var(axes, correction=0)
        y = F.batch_norm(x, None, None, t(scale), t(bias), True, momentum, eps)
        return y, mean + (now - mean) * momentum, variance + (spread - variance) * momentum
    values = [t(v) for v in (x, mean, variance, scale, bias)]
    return F.batch_norm(*values, n.training, momentum, eps)


@operator("InstanceNormalization")
def _(n: ImportedNode, x: Any, scale: Any, bias: Any) -> Any:
    return F.instance_norm(t(x), weight=t(scale), bias=t(bias), eps=n.get("epsilon", 1e-5))


@operator("LayerNormalization", tensors=1)
def _(n: ImportedNode, x: Any, scale: Any, bias: Any = None) -> Any:
    shape = x.shape[axis_in(n.get("axis", -1), x.ndim) :]
    eps = n.get("epsilon", 1e-5)
    y = F.layer_norm(x, shape, t(scale), None if bias is None else t(bias), eps)
    if len(n.outputs) < 2:
        return y
    axes = list(range(x.ndim - len(shape), x.ndim))
    deviation = (x.var(axes, correction=0, keepdim=True) + eps).rsqrt()
    return y, x.mean(axes, keepdim=True), deviation


@operator("RMSNormalization", tensors=1)
def _(n: ImportedNode, x: Any, scale: Any) -> Any:
    shape = x.shape[axis_in(n.get("axis", -1), x.ndim) :]
    return F.rms_norm(x, shape, t(scale), n.get("epsilon", 1e-5))


@operator("GroupNormalization", tensors=3)
def _(n: ImportedNode, x: Any, scale: Any, bias: Any) -> Any:
    groups = n.get("num_groups")
    if n.opset < 21:  # one scale for each group
        each = x.shape[1] // groups
        scale, bias = (v.repeat_interleave(each) for v in (scale, bias))
    return F.group_norm(x, groups, scale, bias, n.get("epsilon", 1e-5))


@operator("MeanVarianceNormalization", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    axes = [axis_in(axis, x.ndim) for axis in n.get("axes", [0, 2, 3])]
    center = x - x.mean(axes, keepdim=True)
    return center / ((center * center).mean(axes, keepdim=True).sqrt() + 1e-9)


@operator("LpNormalization")
def _(n: ImportedNode, x: Any) -> Any:
    return F.normalize(t(x), float(n.get("p", 2)), axis_in(n.get("axis", -1), x.ndim))


@operator("LRN")
def _(n: ImportedNode, x: Any) -> Any:
    return F.local_response_norm(
        t(x), n.get("size"), n.get("alpha", 1e-4), n.get("beta", 0.75), n.get("bias", 1.0)
    )


# ---- resizing --------------------------------------------------------------------------------


@operator("Resize", tensors=1)
def _(n: ImportedNode, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    axes = [axis_in(axis, x.ndim) for axis in n.get("axes") or range(x.ndim)]
    if sizes is not None and host(sizes).size:
        targets = ints(sizes)
        factors = [size / x.shape[axis] for size, axis in zip(targets, axes, strict=True)]
        policy = n.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = {"not_larger": min, "not_smaller": max}[policy](factors)
            factors = [one] * len(axes)
            targets = [math.floor(x.shape[axis] * one + 0.5) for axis in axes]
    else:
        factors = [float(v) for v in host(roi if n.opset < 11 else scales).reshape(-1)]
        targets = [
            math.floor(x.shape[axis] * factor) for factor, axis in zip(factors, axes, strict=True)
        ]
    n.check_size([x.numel(), *targets])
    crop = n.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    parts = [float(v) for v in host(roi).reshape(-1)] if crop else [0.0, 1.0] * len(axes)
    if len(parts) != 2 * len(axes):
        raise ValueError(f"a region of {len(parts)} numbers for {len(axes)} axes")
    for i, (axis, size, factor) in enumerate(zip(axes, targets, factors, strict=True)):
        if size != x.shape[axis] or factor != 1 or crop:
            x = _resized(n, x, axis, size, factor, (parts[i], parts[i + len(axes)]))
    return x


@operator("Upsample", tensors=1)
def _(n: ImportedNode, x: Any, scales: Any = None) -> Any:
    factors = n.get("scales") if scales is None else [float(v) for v in host(scales).reshape(-1)]
    targets = [math.floor(a * b) for a, b in zip(x.shape, factors, strict=True)]
    n.check_size(targets)
    for axis, (size, factor) in enumerate(zip(targets, factors, strict=True)):
        if factor != 1:
            x = _resized(n, x, axis, size, factor, (0.0, 1.0))
    return x


def _resized(
    n: ImportedNode, x: Tensor, axis: int, size: int, factor: float, region: tuple[float, float]
) -> Any:
    """One axis resized: elements at source coordinates, or sums of neighbours with weights."""
    length = x.shape[axis]
    old = n.kind == "Upsample" or n.opset < 11
    kind = n.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    at = _source_places(n, kind, length, size, factor, region)
    mode = n.get("mode", "nearest")
    if mode == "nearest":
        rounding = n.get("nearest_mode", "floor" if old else "round_prefer_floor")
        rule: Any = {
            "floor": np.floor, "ceil": np.ceil, "round_prefer_ceil": lambda v: np.floor(v + 0.5),
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        }[rounding]  # fmt: skip
        terms = [(rule(at), np.ones(size))]
    elif mode in ("linear", "cubic"):
        shrinks = min(factor, 1.0) if n.get("antialias", 0) else 1.0
        terms = _neighbours(n, np.clip(at, 0, length - 1) if mode == "linear" else at, shrinks)
        if mode == "cubic" and n.get("exclude_outside", 0):
            kept = [w * ((places >= 0) & (places < length)) for places, w in terms]
            whole = np.add.reduce(kept)
            terms = [(places, w / whole) for (places, _), w in zip(terms, kept, strict=True)]
    else:
        raise n.unsupported(f"mode {mode!r}")
    shape = [1] * x.ndim
    shape[axis] = size
    total: Any = None
    for places, weights in terms:
        part = x.index_select(axis, t(np.clip(places, 0, length - 1).astype(np.int64)))
        if mode != "nearest":
            part = part * t(weights.reshape(shape)).to(x.dtype)
        total = part if total is None else total + part
    if kind == "tf_crop_and_resize":
        outside = t(((at < 0) | (at > length - 1)).reshape(shape))
        total = total.masked_fill(outside, n.get("extrapolation_value", 0.0))
    return total


def _source_places(
    n: ImportedNode, kind: str, length: int, size: int, factor: float, region: tuple[float, float]
) -> Any:
    """Coordinates in the source of each element of the result."""
    at = np.arange(size, dtype=np.float64)
    if kind == "half_pixel" or (kind == "pytorch_half_pixel" and size > 1):
        return (at + 0.5) / factor - 0.5
    if kind == "pytorch_half_pixel":
        return at * 0
    if kind == "half_pixel_symmetric":
        return length / 2 * (1 - size / (factor * length)) + (at + 0.5) / factor - 0.5
    if kind == "align_corners":
        return at * ((length - 1) / max(size - 1, 1))
    if kind == "asymmetric":
        return at / factor
    if kind == "tf_crop_and_resize":
        begin, end = region
        if size == 1:
            return at + (begin + end) / 2 * (length - 1)
        return (begin + at * (end - begin) / (size - 1)) * (length - 1)
    raise n.unsupported(f"coordinate_transformation_mode {kind!r}")


def _neighbours(n: ImportedNode, at: Any, shrinks: float) -> list[tuple[Any, Any]]:
    """Place and weight of each neighbour; where the result is smaller, as wide as it shrinks."""
    cubic = n.get("mode") == "cubic"
    reach = 2 if cubic else 1
    n.check_size([len(at), int(2 * reach / shrinks) + 2])
    if 2 * reach / shrinks > MOST_NEIGHBOURS:
        raise n.unsupported(f"a mean over {int(2 * reach / shrinks)} neighbours")
    first = np.floor(at)
    rest = at - first
    begin = math.floor(-reach / shrinks) + 1
    terms = []
    for i in range(begin, 2 - begin):
        far = np.abs(i - rest) * shrinks
        weights = _cubic(far, n.get("cubic_coeff_a", -0.75)) if cubic else np.clip(1 - far, 0, 1)
        terms.append((first + i, weights))
    total = np.add.reduce([w for _, w in terms])
    return [(places, w / total) for places, w in terms]


def _cubic(x: Any, a: float) -> Any:
    """Keys's kernel."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


# ---- losses ----------------------------------------------------------------------------------


def _nll(n: ImportedNode, scores: Tensor, target: Any, weight: Any) -> Any:
    weight = None if weight is None else t(weight)
    ignored = n.get("ignore_index", -100)  # no class is numbered so
    reduction = n.get("reduction", "mean")
    return F.nll_loss(
        scores, t(target).to(int64), weight, ignore_index=ignored, reduction=reduction
    )


@operator("NegativeLogLikelihoodLoss")
def _(n: ImportedNode, scores: Any, target: Any, weight: Any = None) -> Any:
    return _nll(n, t(scores), target, weight)


@operator("SoftmaxCrossEntropyLoss")
def _(n: ImportedNode, scores: Any, target: Any, weight: Any = None) -> Any:
    logs = F.log_softmax(t(scores), 1)
    loss = _nll(n, logs, target, weight)
    return (loss, logs) if len(n.outputs) > 1 else loss
