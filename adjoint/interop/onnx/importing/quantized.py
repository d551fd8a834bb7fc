"""ONNX's quantized operators: bytes that stand for numbers, by scale and zero point.

There are no quantized dtypes here: bytes are int8 and uint8 tensors, and sums are exact in int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.dtype import float32, float64, from_numpy_dtype, int32
from ....tensor import Tensor
from ..files import DTYPES
from .imported_node import ImportedNode, ad, axis_in, operator, t
from .layer_ops import convolve


def _along(n: ImportedNode, value: Tensor, x: Tensor) -> Any:
    """A scale or zero point in the shape in which it meets `x`: one, or one a slice or block."""
    if value.numel() == 1:
        return value.reshape([1] * x.ndim)
    axis, block = axis_in(n.get("axis", 1), x.ndim), n.get("block_size", 0)
    if block:
        return value.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return value.reshape(shape)


def _rounded(x: Tensor, zero: Any, dtype: Any) -> Any:
    """`x` on the grid of `dtype`, what lies outside at its ends."""
    limits = np.iinfo(dtype.numpy)
    x = ad.round(x) if zero is None else ad.round(x) + zero.to(x.dtype)
    return ad.clamp(x, int(limits.min), int(limits.max)).to(dtype)


@operator("QuantizeLinear", tensors=2)
def _(n: ImportedNode, x: Any, scale: Any, zero: Any = None) -> Any:
    kind = n.get("output_dtype", 0) or 2
    dtype = t(zero).dtype if zero is not None else from_numpy_dtype(DTYPES.get(kind, np.uint8))
    if dtype.numpy.kind not in "iu" or kind not in DTYPES:
        raise n.unsupported(f"element type {kind}")
    precision = float64 if dtype.itemsize > 2 else float32
    given = None if zero is None else _along(n, t(zero), x)
    return _rounded(x.to(precision) / _along(n, scale, x).to(precision), given, dtype)


@operator("DequantizeLinear", tensors=2)
def _(n: ImportedNode, x: Any, scale: Any, zero: Any = None) -> Any:
    difference = x.to(int32)
    if zero is not None:
        difference = difference - _along(n, t(zero), x).to(int32)
    kind = n.get("output_dtype", 0)
    dtype = scale.dtype if not kind else from_numpy_dtype(DTYPES[kind])
    return (difference.to(float32) * _along(n, scale, x).to(float32)).to(dtype)


@operator("DynamicQuantizeLinear", tensors=1)
def _(n: ImportedNode, x: Any) -> Any:
    low, high = (ad.minimum(x.amin(), x.new_zeros(())), ad.maximum(x.amax(), x.new_zeros(())))
    scale = (high - low) / 255
    scale = ad.where(scale == 0, ad.ones_like(scale), scale)
    zero = _rounded(-low / scale, None, from_numpy_dtype(np.dtype(np.uint8)))
    return _rounded(x / scale, zero, zero.dtype), scale, zero


def _centered(x: Any, zero: Any, axis: int) -> Any:
    """Bytes less their zero point (one, or one a slice along `axis`), as exact floats."""
    x = t(x).to(float64)
    if zero is None:
        return x
    zero = t(zero).to(float64)
    if zero.numel() == 1:
        return x - zero.reshape(())
    if zero.ndim > 1:
        return x - zero
    shape = [1] * x.ndim
    shape[axis] = -1
    return x - zero.reshape(shape)


@operator("MatMulInteger")
def _(n: ImportedNode, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    product = _centered(a, a_zero, t(a).ndim - 2) @ _centered(b, b_zero, t(b).ndim - 1)
    return product.to(int32)


@operator("QLinearMatMul")
def _(
    n: ImportedNode, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any,
    scale: Any, zero: Any,
) -> Any:  # fmt: skip
    product = _centered(a, a_zero, t(a).ndim - 2) @ _centered(b, b_zero, t(b).ndim - 1)
    a_scale, b_scale, scale = (t(s).to(float64) for s in (a_scale, b_scale, scale))
    a_scale = a_scale.unsqueeze(-1) if a_scale.ndim == 1 and a_scale.numel() > 1 else a_scale
    zero = t(zero)
    return _rounded(product * (a_scale * b_scale / scale), zero, zero.dtype)


@operator("ConvInteger")
def _(n: ImportedNode, x: Any, weight: Any, x_zero: Any = None, zero: Any = None) -> Any:
    return convolve(n, _centered(x, x_zero, 1), _centered(weight, zero, 0)).to(int32)


@operator("QLinearConv")
def _(
    n: ImportedNode, x: Any, x_scale: Any, x_zero: Any, weight: Any, w_scale: Any, w_zero: Any,
    scale: Any, zero: Any, bias: Any = None,
) -> Any:  # fmt: skip
    sums = convolve(n, _centered(x, x_zero, 1), _centered(weight, w_zero, 0))
    shape = [-1, *[1] * (sums.ndim - 2)]
    if bias is not None:
        sums = sums + t(bias).to(float64).reshape(shape)
    x_scale, w_scale, scale = (t(s).to(float64) for s in (x_scale, w_scale, scale))
    zero = t(zero)
    return _rounded(sums * (x_scale * w_scale / scale).reshape(shape), zero, zero.dtype)
