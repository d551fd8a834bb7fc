"""Convolutions by oneDNN; NumPy's where it has none.

Names, shapes and arguments are those of `backends/numpy/convolution.py`. Beside them, a caller may
pass a token that changes with the content of the weights: they are then reordered once per token.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.errors import Unsupported
from ...codegen import target
from ...numpy import convolution as reference
from ..gemm.products import FLOAT32, matmul
from . import api as onednn
from .convolution_plans import (
    ConvolutionGeometry,
    ConvolutionPlan,
    W,
    backward_data,
    backward_weights,
    forward,
)
from .plan import aligned_bytes, planned, temporary, threads

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


class _Kept(NamedTuple):
    array: Any  # a weak reference to the weights
    token: Any
    blocked: Any


_kept: dict[tuple[int, Any], _Kept] = {}


def _run(planned: ConvolutionPlan, key: Any, arrays: tuple[Any, ...], token: Any) -> None:
    """Run a plan with arrays x, w, y, bias."""
    plan, size = planned.plan, planned.weights
    if not size:
        plan.run(*arrays, arrays[0])
        return
    if token is None:
        plan.run(*arrays, temporary(size))
        return
    w = arrays[W]
    name = (id(w), key)
    kept = _kept.get(name)
    if kept is not None and kept.token == token and kept.array() is w:
        plan.run(*arrays, kept.blocked, first=1)
        return
    blocked = aligned_bytes(size)
    plan.run(*arrays, blocked)
    _keep(name, w, token, blocked)


def _keep(name: Any, w: Any, token: Any, blocked: Any) -> None:
    """Remember reordered weights until the array dies; the oldest go where they become too many."""

    def forget(dead: Any) -> None:
        kept = _kept.get(name)
        if kept is not None and kept.array is dead:
            _kept.pop(name, None)

    _kept.pop(name, None)
    total = blocked.size + sum(kept.blocked.size for kept in list(_kept.values()))
    for old in list(_kept):
        if total <= policy.WEIGHT_BYTES:
            break
        gone = _kept.pop(old, None)
        total -= gone.blocked.size if gone else 0
    if blocked.size <= policy.WEIGHT_BYTES:
        _kept[name] = _Kept(weakref.ref(w, forget), token, blocked)


def _assert_fitting(fits: bool, a: Any, b: Any) -> None:
    """Leave arrays that do not belong together to NumPy, which has the error for it."""
    if not fits or a.dtype != b.dtype:
        raise Unsupported(f"convolution of {a.shape} {a.dtype} and {b.shape} {b.dtype}")


_geometry: Any = ConvolutionGeometry  # of arguments in their order


def _forward(x: Any, w: Any, bias: Any, count: Sizes, *options: Any) -> ConvolutionPlan:
    _assert_fitting(x.shape[1] == w.shape[1] * options[-1], x, w)
    if bias is not None:
        _assert_fitting(bias.shape == w.shape[:1], bias, x)
    sizes = (len(x), x.shape[1], len(w), x.shape[2:], w.shape[2:], count)
    return forward(_geometry(*sizes, *options, x.dtype), bias is not None)


def _backward_data(y: Any, w: Any, size: Sizes, *options: Any) -> ConvolutionPlan:
    groups = options[-1]
    _assert_fitting(y.shape[1] == len(w) and len(w) % groups == 0, y, w)
    sizes = (len(y), w.shape[1] * groups, len(w), tuple(size), w.shape[2:], y.shape[2:])
    return backward_data(_geometry(*sizes, *options, y.dtype))


def _backward_weights(x: Any, y: Any, kernel: Sizes, *options: Any) -> ConvolutionPlan:
    groups = options[-1]
    fits = len(x) == len(y) and x.shape[1] % groups == 0 == y.shape[1] % groups
    _assert_fitting(fits, x, y)
    sizes = (len(x), x.shape[1], y.shape[1], x.shape[2:], tuple(kernel), y.shape[2:])
    return backward_weights(_geometry(*sizes, *options, x.dtype))


def _key(kind: str, x: Any, y: Any, bias: Any, *options: Any) -> Any:
    """Cache key of the plan for arrays like these."""
    biased = None if bias is None else (bias.shape, bias.dtype.char)
    return kind, x.shape, y.shape, x.dtype.char, y.dtype.char, biased, options, threads()


def plan_of_conv(x: Any, w: Any, bias: Any, *options: Any) -> ConvolutionPlan | None:
    """The plan of `conv` for the count, the stride, the padding, the dilation and the groups; None
    where NumPy computes it.
    """
    plan: ConvolutionPlan | None = planned(
        _key("conv", x, w, bias, *options), _forward, x, w, bias, *options
    )
    return plan


def plan_of_conv_input(y: Any, w: Any, *options: Any) -> ConvolutionPlan | None:
    """The plan of `conv_input`, for the size and so on; None where NumPy computes it."""
    plan: ConvolutionPlan | None = planned(
        _key("conv_input", y, w, None, *options), _backward_data, y, w, *options
    )
    return plan


def plan_of_conv_weight(x: Any, y: Any, *options: Any) -> ConvolutionPlan | None:
    """The plan of `conv_weight`, for the kernel and so on; None where NumPy computes it."""
    plan: ConvolutionPlan | None = planned(
        _key("conv_weight", x, y, None, *options), _backward_weights, x, y, *options
    )
    return plan


def block() -> int:
    """Channels in one of the blocks in which oneDNN's convolutions compute here; 0 without it."""
    if onednn.unavailable() is not None or target.host().vector_bytes < 32:
        return 0
    return target.host().vector_bytes // FLOAT32.itemsize


def plan_of_blocks(
    op: Any, x: Sizes, w: Sizes, y: Sizes, bias: bool, blocks: tuple[int, int]
) -> ConvolutionPlan | None:
    """The plan of a convolution (`op.name` says which of the three) of float32 images, weights and
    values of these shapes, which lie in blocks of so many channels; None where there is none.
    """
    options = op.stride, op.padding, op.dilation, op.groups
    geometry = ConvolutionGeometry(
        x[0], x[1], y[1], x[2:], w[2:], y[2:], *options, FLOAT32, blocks
    )  # fmt: skip
    key = "blocks", op.name, geometry, bias, threads()
    plan: ConvolutionPlan | None = planned(key, _of_blocks, op.name, geometry, bias)
    return plan


def _of_blocks(name: str, geometry: ConvolutionGeometry, bias: bool) -> ConvolutionPlan:
    if name == "convolution":
        return forward(geometry, bias)
    return (backward_data if name == "convolution_input" else backward_weights)(geometry)


def conv(
    x: Any,
    w: Any,
    bias: Any,
    stride: Sizes,
    padding: Pairs,
    dilation: Sizes,
    groups: int,
    count: Sizes,
    token: Any = None,
) -> Any:
    """The cross-correlation of x with w, plus bias (or None).

    `token`, where given, changes whenever the content of w does; w is then reordered once.

    >>> conv(np.ones((1, 1, 3), np.float32), np.ones((1, 1, 2), np.float32), None, (1,), ((0, 0),),
    ...      (1,), 1, (2,))
    array([[[2., 2.]]], dtype=float32)
    """
    key = _key("conv", x, w, bias, count, stride, padding, dilation, groups)
    plan = planned(key, _forward, x, w, bias, count, stride, padding, dilation, groups)
    if plan is None:
        return reference.conv(x, w, bias, stride, padding, dilation, groups, count)
    y = np.empty((len(x), len(w), *count), x.dtype)
    if bias is None and plan.pointwise:
        images, matrix = x.reshape(*x.shape[:2], -1), w.reshape(1, *w.shape[:2])
        matmul(matrix, images, out=y.reshape(*y.shape[:2], -1))
        return y
    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    _run(plan, key, (x, w, y, x if bias is None else np.ascontiguousarray(bias)), token)
    return y


def conv_input(
    y: Any,
    w: Any,
    stride: Sizes,
    padding: Pairs,
    dilation: Sizes,
    groups: int,
    size: Sizes,
    token: Any = None,
) -> Any:
    """The transpose of `conv` in x: images of `size` from values y of conv's output shape."""
    key = _key("conv_input", y, w, None, size, stride, padding, dilation, groups)
    inputs = w.shape[1] * groups
    plan = planned(key, _backward_data, y, w, size, stride, padding, dilation, groups)
    if plan is None:
        return reference.conv_input(y, w, stride, padding, dilation, groups, size)
    x = np.empty((len(y), inputs, *size), y.dtype)
    if plan.pointwise:
        images, matrix = y.reshape(*y.shape[:2], -1), w.reshape(1, *w.shape[:2]).swapaxes(1, 2)
        matmul(matrix, images, out=x.reshape(*x.shape[:2], -1))
        return x
    y, w = np.ascontiguousarray(y), np.ascontiguousarray(w)
    _run(plan, key, (x, w, y, y), token)
    return x


def conv_weight(
    x: Any, y: Any, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, kernel: Sizes
) -> Any:
    """The transpose of `conv` in w: a kernel from images x and values y of conv's output shape."""
    plan = plan_of_conv_weight(x, y, kernel, stride, padding, dilation, groups)
    if plan is None:
        return reference.conv_weight(x, y, stride, padding, dilation, groups, kernel)
    w = np.empty((y.shape[1], x.shape[1] // groups, *kernel), x.dtype)
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    plan.plan.run(x, w, y, y, x)
    return w
