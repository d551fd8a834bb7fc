"""What ONNX's layers compute: products, windows, normalization, resizing, recurrence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import nn
from ..core.op import FUNCTIONS, apply
from ..ops.averaging import SumPool
from ..ops.convolution import Convolution, ConvolutionInput
from ..ops.pooling import MaxPool
from ..tensor import Tensor
from .import_ops import Node, axis_in, host, ints, operator, t

F: Any = nn.functional
ad: Any = type("functions", (), {name: staticmethod(f) for name, f in FUNCTIONS.items()})
Pairs = tuple[tuple[int, int], ...]


@operator("Gemm")
def _(n: Node, a: Any, b: Any, c: Any = None) -> Any:
    a, b = t(a), t(b)
    alpha, beta = n.get("alpha", 1.0), n.get("beta", 1.0)
    a = a.t() if n.get("transA", 0) else a
    if n.get("transB", 0) and alpha == beta == 1 and c is not None and c.ndim == 1:
        return F.linear(a, b, t(c))
    product = a @ (b.t() if n.get("transB", 0) else b)
    product = product if alpha == 1 else product * alpha
    return product if c is None else product + (t(c) if beta == 1 else t(c) * beta)


@operator("Einsum")
def _(n: Node, *xs: Any) -> Any:
    return ad.einsum(n.get("equation"), *map(t, xs))


# ---- windows ---------------------------------------------------------------------------------


def _windows(n: Node, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Any, Any, Pairs]:
    """Strides, dilations and padding."""
    rank = len(kernel)
    strides = tuple(n.get("strides") or [1] * rank)
    dilations = tuple(n.get("dilations") or [1] * rank)
    pads = n.get("pads") or [0] * (2 * rank)
    auto = n.get("auto_pad", "NOTSET")
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
    n.check_size([length + low + high for length, (low, high) in zip(size, pairs, strict=True)])
    return strides, dilations, tuple(pairs)


@operator("Conv")
def _(n: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight = t(x), t(weight)
    strides, dilations, pairs = _windows(n, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    op = Convolution(strides, pairs, dilations, n.get("group", 1))
    return apply(op, x, weight, *(() if bias is None else (t(bias),)))


@operator("ConvTranspose")
def _(n: Node, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight = t(x), t(weight)
    if n.get("output_shape") or n.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise n.unsupported("output_shape or auto_pad")
    kernel = tuple(weight.shape[2:])
    strides, dilations, pairs = _windows(n, tuple(x.shape[2:]), kernel)
    more = n.get("output_padding") or [0] * len(kernel)
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


def _pool_pairs(n: Node, x: Tensor) -> tuple[Any, Any, Any, Pairs, Pairs]:
    """Kernel, strides, dilations, the padding, and the padding with what ceil_mode reaches over."""
    kernel = tuple(n.get("kernel_shape"))
    size = tuple(x.shape[2:])
    strides, dilations, pairs = _windows(n, size, kernel)
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


@operator("MaxPool")
def _(n: Node, x: Any) -> Any:
    x = t(x)
    kernel, strides, dilations, _, wide = _pool_pairs(n, x)
    if len(n.outputs) > 1:
        raise n.unsupported("the second output, Indices,")
    return apply(MaxPool(kernel, strides, wide, dilations), x)


@operator("AveragePool")
def _(n: Node, x: Any) -> Any:
    x = t(x)
    kernel, strides, dilations, pairs, wide = _pool_pairs(n, x)
    if any(d != 1 for d in dilations):
        raise n.unsupported("dilation")
    total = apply(SumPool(kernel, strides, wide), x)
    padded = any(any(pair) for pair in wide)
    if not padded or (n.get("count_include_pad", 0) and wide == pairs):
        return total / math.prod(kernel)
    inner = np.ones((1, 1, *x.shape[2:]), np.float32)
    rest = wide
    if n.get("count_include_pad", 0):
        inner = np.pad(inner, ((0, 0), (0, 0), *pairs), constant_values=1)
        rest = tuple((0, w[1] - p[1]) for w, p in zip(wide, pairs, strict=True))
    counts = apply(SumPool(kernel, strides, rest), t(inner))
    return total / counts.to(x.dtype)


@operator("GlobalAveragePool")
def _(n: Node, x: Any) -> Any:
    return t(x).mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def _(n: Node, x: Any) -> Any:
    return t(x).amax(tuple(range(2, x.ndim)), keepdim=True)


# ---- normalization ---------------------------------------------------------------------------


@operator("BatchNormalization")
def _(n: Node, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    momentum, eps = 1 - n.get("momentum", 0.9), n.get("epsilon", 1e-5)
    values = [t(v) for v in (x, mean, variance, scale, bias)]
    return F.batch_norm(*values, n.training, momentum, eps)


@operator("InstanceNormalization")
def _(n: Node, x: Any, scale: Any, bias: Any) -> Any:
    return F.instance_norm(t(x), weight=t(scale), bias=t(bias), eps=n.get("epsilon", 1e-5))


@operator("LayerNormalization")
def _(n: Node, x: Any, scale: Any, bias: Any = None) -> Any:
    x = t(x)
    shape = x.shape[axis_in(n.get("axis", -1), x.ndim) :]
    if len(n.outputs) > 1:
        raise n.unsupported("the mean as an output")
    return F.layer_norm(
        x, shape, t(scale), None if bias is None else t(bias), n.get("epsilon", 1e-5)
    )


@operator("RMSNormalization")
def _(n: Node, x: Any, scale: Any) -> Any:
    x = t(x)
    shape = x.shape[axis_in(n.get("axis", -1), x.ndim) :]
    return F.rms_norm(x, shape, t(scale), n.get("epsilon", 1e-5))


@operator("GroupNormalization")
def _(n: Node, x: Any, scale: Any, bias: Any) -> Any:
    x, scale, bias = t(x), t(scale), t(bias)
    groups = n.get("num_groups")
    if n.opset < 21:  # one scale for each group
        each = x.shape[1] // groups
        scale, bias = (v.repeat_interleave(each) for v in (scale, bias))
    return F.group_norm(x, groups, scale, bias, n.get("epsilon", 1e-5))


@operator("LpNormalization")
def _(n: Node, x: Any) -> Any:
    return F.normalize(t(x), float(n.get("p", 2)), axis_in(n.get("axis", -1), x.ndim))


@operator("LRN")
def _(n: Node, x: Any) -> Any:
    return F.local_response_norm(
        t(x), n.get("size"), n.get("alpha", 1e-4), n.get("beta", 0.75), n.get("bias", 1.0)
    )


# ---- resizing --------------------------------------------------------------------------------


@operator("Resize")
def _(n: Node, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    x = t(x)
    if n.get("antialias", 0) or n.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise n.unsupported("antialias or keep_aspect_ratio_policy")
    axes = n.get("axes") or list(range(x.ndim))
    if sizes is not None and host(sizes).size:
        targets = ints(sizes)
        factors = [size / x.shape[axis] for size, axis in zip(targets, axes, strict=True)]
    else:
        factors = [float(v) for v in host(roi if n.opset < 11 else scales).reshape(-1)]
        targets = [
            math.floor(x.shape[axis] * factor) for factor, axis in zip(factors, axes, strict=True)
        ]
    n.check_size([x.numel(), *targets])
    for axis, size, factor in zip(axes, targets, factors, strict=True):
        if size != x.shape[axis] or factor != 1:
            x = _resized(n, x, axis_in(axis, x.ndim), size, factor)
    return x


@operator("Upsample")
def _(n: Node, x: Any, scales: Any = None) -> Any:
    x = t(x)
    factors = n.get("scales") if scales is None else [float(v) for v in host(scales).reshape(-1)]
    targets = [math.floor(a * b) for a, b in zip(x.shape, factors, strict=True)]
    n.check_size(targets)
    for axis, (size, factor) in enumerate(zip(targets, factors, strict=True)):
        if factor != 1:
            x = _resized(n, x, axis, size, factor)
    return x


def _resized(n: Node, x: Tensor, axis: int, size: int, factor: float) -> Any:
    """One axis resized: elements at source coordinates, or sums of neighbours with weights."""
    length = x.shape[axis]
    at = np.arange(size, dtype=np.float64)
    old = n.kind == "Upsample" or n.opset < 11
    kind = n.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    if kind == "half_pixel" or (kind == "pytorch_half_pixel" and size > 1):
        at = (at + 0.5) / factor - 0.5
    elif kind == "pytorch_half_pixel":
        at = at * 0
    elif kind == "align_corners":
        at = at * ((length - 1) / max(size - 1, 1))
    elif kind == "asymmetric":
        at = at / factor
    else:
        raise n.unsupported(f"coordinate_transformation_mode {kind!r}")
    mode = n.get("mode", "nearest")
    if mode == "nearest":
        rounding = n.get("nearest_mode", "floor" if old else "round_prefer_floor")
        rule: Any = {
            "floor": np.floor, "ceil": np.ceil, "round_prefer_ceil": lambda v: np.floor(v + 0.5),
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        }[rounding]  # fmt: skip
        places = rule(at)
        return x.index_select(axis, t(np.clip(places, 0, length - 1).astype(np.int64)))
    if mode == "linear":
        at = np.clip(at, 0, length - 1)
        first = np.floor(at)
        rest = at - first
        terms = [(first, 1 - rest), (first + 1, rest)]
    elif mode == "cubic":
        a = n.get("cubic_coeff_a", -0.75)
        first = np.floor(at)
        rest = at - first
        terms = [(first + i, _cubic(np.abs(rest - i), a)) for i in (-1, 0, 1, 2)]
        if n.get("exclude_outside", 0):
            raise n.unsupported("exclude_outside")
    else:
        raise n.unsupported(f"mode {mode!r}")
    shape = [1] * x.ndim
    shape[axis] = size
    total: Any = None
    for places, weights in terms:
        part = x.index_select(axis, t(np.clip(places, 0, length - 1).astype(np.int64)))
        part = part * t(weights.reshape(shape)).to(x.dtype)
        total = part if total is None else total + part
    return total


def _cubic(x: Any, a: float) -> Any:
    """Keys's kernel."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


# ---- recurrence ------------------------------------------------------------------------------


@operator("LSTM", "GRU", "RNN")
def _(n: Node, x: Any, weight: Any, own_weight: Any, *given: Any) -> Any:
    bias_pair, lengths, h, c, peepholes = given + (None,) * (5 - len(given))
    x, weight, own_weight = t(x), t(weight), t(own_weight)
    directions, rows, hidden = own_weight.shape
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[n.kind]
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
    functions = n.get("activations", usual[n.kind] * directions)
    if peepholes is not None or n.get("clip") or n.get("input_forget", 0) or n.get("layout", 0):
        raise n.unsupported("peepholes, clip, input_forget or layout")
    if lengths is not None and (host(lengths) != x.shape[0]).any():
        raise n.unsupported("sequences of different lengths")
    if n.kind != "RNN" and functions != usual[n.kind] * directions:
        raise n.unsupported(f"activations {functions}")
    if (
        x.ndim != 3
        or rows != gates * hidden
        or weight.shape[:2] != own_weight.shape[:2]
        or not x.shape[0]
    ):
        raise ValueError("shapes of X, W and R do not fit")
    way = n.get("direction", "forward")
    if directions != 1 + (way == "bidirectional"):
        raise ValueError(f"direction {way} with {directions} sets of weights")
    outputs, hs, cs = [], [], []
    for d in range(directions):
        backwards = way == "reverse" or d == 1
        bias = None if bias_pair is None else t(bias_pair)[d]
        start = [x.new_zeros(x.shape[1], hidden) if v is None else t(v)[d] for v in (h, c)]
        activation = ad.relu if functions[d : d + 1] == ["Relu"] else ad.tanh
        source = x.flip(0) if backwards else x
        steps, last = _recurrence(n, source, weight[d], own_weight[d], bias, start, activation)
        y = ad.stack(steps)
        outputs.append(y.flip(0) if backwards else y)
        hs.append(last[0])
        cs.append(last[1])
    result = (ad.stack(outputs, 1), ad.stack(hs))
    return (*result, ad.stack(cs)) if n.kind == "LSTM" else result


def _recurrence(
    n: Node, x: Any, weight: Any, own_weight: Any, bias: Any, state: list[Any], activation: Any
) -> tuple[list[Any], list[Any]]:
    """All steps in one direction: the hidden states, and the last state."""
    h, c = state
    hidden = own_weight.shape[1]
    bw, br = (None, None) if bias is None else bias.split(own_weight.shape[0])
    given = F.linear(x, weight, bw)
    after = n.kind == "GRU" and n.get("linear_before_reset", 0)
    steps = []
    for step in given.unbind(0):
        if n.kind == "GRU" and not after:
            own = own_weight.split([2 * hidden, hidden])
            parts = (None, None) if br is None else br.split([2 * hidden, hidden])
            gates = step[:, : 2 * hidden] + F.linear(h, own[0], parts[0])
            z, r = ad.sigmoid(gates).split(hidden, 1)
            new = ad.tanh(step[:, 2 * hidden :] + F.linear(r * h, own[1], parts[1]))
            h = (1 - z) * new + z * h
        elif n.kind == "GRU":
            z1, r1, n1 = step.split(hidden, 1)
            z2, r2, n2 = F.linear(h, own_weight, br).split(hidden, 1)
            z, r = ad.sigmoid(z1 + z2), ad.sigmoid(r1 + r2)
            h = (1 - z) * ad.tanh(n1 + r * n2) + z * h
        elif n.kind == "LSTM":
            i, o, f, g = (step + F.linear(h, own_weight, br)).split(hidden, 1)
            c = ad.sigmoid(f) * c + ad.sigmoid(i) * ad.tanh(g)
            h = ad.sigmoid(o) * ad.tanh(c)
        else:
            h = activation(step + F.linear(h, own_weight, br))
        steps.append(h)
    return steps, [h, c]
