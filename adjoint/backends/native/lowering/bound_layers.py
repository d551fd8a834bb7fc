"""Convolutions and pooling bound to arrays that stay where they are.

As eager execution computes them, but for what that keeps between calls: of a maximum pooling, the
places of the maxima are an output of their own, which its gradient reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.op import Op
from ..onednn import eager_convolution, pooling_plans
from ..onednn.plan import OneDnnPlan
from .bound import Call, bound_op, bound_product, dense
from .scratch import Scratch


def bound_layer(op: Op, inputs: Sequence[Any], out: Any, scratch: Scratch) -> list[Call]:
    """Calls that compute a convolution, a sum of windows, or the transpose of one of these into
    `out`, which is row-major, when run one after another: by oneDNN, or, where that has none, as
    any op.
    """
    given, calls = dense(inputs)
    made = _LAYERS[op.name](op, given, out, scratch)
    return bound_op(op, inputs, [out]) if made is None else [*calls, *made]


def _sum_pool(op: Any, inputs: Sequence[Any], out: Any, scratch: Scratch) -> list[Call] | None:
    [x] = inputs
    return _by_plan(_plan_of_sums(op, False, x, out), (x, out), 0, scratch)


def _sum_pool_input(
    op: Any, inputs: Sequence[Any], out: Any, scratch: Scratch
) -> list[Call] | None:
    [g] = inputs
    return _by_plan(_plan_of_sums(op, True, out, g), (out, g), 0, scratch)


def _plan_of_sums(op: Any, backward: bool, images: Any, values: Any) -> OneDnnPlan | None:
    lead = images.ndim - len(op.kernel)
    return pooling_plans.sums(
        backward, images.shape[:lead], images.shape[lead:], images.dtype, op.kernel, op.stride,
        op.padding, values.shape[lead:],
    )  # fmt: skip


def _by_plan(
    plan: OneDnnPlan | None, arrays: Sequence[Any], weights: int, scratch: Scratch
) -> list[Call] | None:
    """The plan's call with as many bytes for reordered weights as the last of the arrays."""
    if plan is None:
        return None
    memory = scratch(plan.work + weights)
    if weights:
        arrays = (*arrays[:-1], memory[plan.work :])
    call = plan.call(*arrays, work=memory)
    return None if call is None else [call]


# A convolution's slots: images, weights, values, the bias, reordered weights.


def _convolution(op: Any, inputs: Sequence[Any], out: Any, scratch: Scratch) -> list[Call] | None:
    x, w, *more = inputs
    bias = more[0] if more else None
    planned = eager_convolution.plan_of_conv(x, w, bias, out.shape[2:], *_options(op))
    if planned is None:
        return None
    if planned.pointwise and bias is None:
        return _at_each_place(w.reshape(w.shape[:2]), x, out, scratch)
    return _by_plan(
        planned.plan, (x, w, out, x if bias is None else bias, x), planned.weights, scratch
    )


def _convolution_input(
    op: Any, inputs: Sequence[Any], out: Any, scratch: Scratch
) -> list[Call] | None:
    y, w = inputs
    planned = eager_convolution.plan_of_conv_input(y, w, op.size, *_options(op))
    if planned is None:
        return None
    if planned.pointwise:
        return _at_each_place(w.reshape(w.shape[:2]).T, y, out, scratch)
    return _by_plan(planned.plan, (out, w, y, y, y), planned.weights, scratch)


def _convolution_weight(
    op: Any, inputs: Sequence[Any], out: Any, scratch: Scratch
) -> list[Call] | None:
    x, y = inputs
    planned = eager_convolution.plan_of_conv_weight(x, y, op.kernel, *_options(op))
    return planned and _by_plan(planned.plan, (x, out, y, y, y), planned.weights, scratch)


def bound_blocked(op: Any, inputs: Sequence[Any], out: Any, scratch: Scratch) -> list[Call]:
    """Calls that compute a convolution of images in blocks (`inference.layouts`) into `out`, all of
    them dense, by oneDNN, which has a plan for it.
    """
    (a, b), bias = inputs[:2], inputs[2:]
    arrays = {"convolution": (a, b, out), "convolution_input": (out, b, a)}.get(
        op.name, (a, out, b)
    )
    blocks = op.images, op.values
    x, w, y = arrays
    shapes = [
        (v.shape[0], v.shape[1] * block, *v.shape[2:-1]) if block else v.shape
        for v, block in ((x, op.images), (w, 0), (y, op.values))
    ]
    planned = eager_convolution.plan_of_blocks(
        op.base, shapes[0], shapes[1], shapes[2], bool(bias), blocks
    )  # fmt: skip
    assert planned is not None
    made = _by_plan(planned.plan, (x, w, y, *(bias or [x]), x), planned.weights, scratch)
    assert made is not None
    return made


def _options(op: Any) -> tuple[Any, ...]:
    return op.stride, op.padding, op.dilation, op.groups


def _at_each_place(matrix: Any, x: Any, out: Any, scratch: Scratch) -> list[Call]:
    """The product of a matrix with the channels of images, place by place."""
    images, places = (v.reshape(*v.shape[:2], -1) for v in (x, out))
    return bound_product("product", (matrix[None], images), places, scratch)


_LAYERS = {
    "convolution": _convolution,
    "convolution_input": _convolution_input,
    "convolution_weight": _convolution_weight,
    "sum_pool": _sum_pool,
    "sum_pool_input": _sum_pool_input,
}  # by `Op.name`


def windows_of(op: Any, x: Any, values: Any) -> pooling_plans.Windows | None:
    """The generated code for a maximum pooling of images into values, and for its gradient; None
    where there is none.
    """
    lead = x.ndim - len(op.kernel)
    if x.dtype != values.dtype or x.shape[:lead] != values.shape[:lead]:
        return None
    kernel, stride, padding, dilation = op.options
    return pooling_plans.windows(x, kernel, stride, padding, dilation, values.shape[lead:])


def bound_maxima(op: Any, x: Any, out: Any, places: Any) -> list[Call]:
    """Calls that compute the largest element of each window, and its position in the window, when
    run one after another; for arrays that have `windows_of`.
    """
    windows = windows_of(op, x, out)
    assert windows is not None
    (x,), calls = dense([x])
    return [*calls, windows.forward_call(x, out, places)]


def bound_maxima_input(op: Any, g: Any, places: Any, out: Any) -> list[Call]:
    """Calls that add each window's g at the position of its maximum, when run one after another;
    for arrays that have `windows_of`.
    """
    windows = windows_of(op, out, g)
    assert windows is not None
    (g,), calls = dense([g])
    return [*calls, windows.backward_call(g, places, out)]
