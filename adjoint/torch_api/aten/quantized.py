"""PyTorch's functions for quantized numbers in which dense tensors take part: rounding to a few
levels that training goes through, and questions that dense tensors refuse.

There are no quantized tensors here; functions that make one are absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autograd.function import Function
from ...core import config
from ...core import dtype as dt
from ...core.errors import AutogradError, InvalidArgument, InvalidType, ShapeError, Unsupported
from ...core.missing_names import refused
from ...core.mode import refuse_where
from ...core.spec import normalize_axis
from ...runtime.public import explaining
from ...tensor import Tensor


class qscheme:  # noqa: N801 - PyTorch's name
    """Scheme of a quantized tensor: by one scale, or one for each channel. Names alone.

    >>> ad.per_tensor_affine, isinstance(ad.per_tensor_affine, ad.qscheme)
    (adjoint.per_tensor_affine, True)
    """

    __slots__ = ("name",)

    name: str

    def __init__(self, *args: Any) -> None:
        raise InvalidType("cannot create 'qscheme' instances; per_tensor_affine is one")

    def __repr__(self) -> str:
        return f"{config.CALLED}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


def _scheme(name: str) -> qscheme:
    found = object.__new__(qscheme)
    found.name = name
    return found


per_tensor_affine = _scheme("per_tensor_affine")
per_channel_affine = _scheme("per_channel_affine")
per_tensor_symmetric = _scheme("per_tensor_symmetric")
per_channel_symmetric = _scheme("per_channel_symmetric")
per_channel_affine_float_qparams = _scheme("per_channel_affine_float_qparams")


# ---- rounding to levels --------------------------------------------------------------------------


class _RoundToLevels(Function):
    """Values rounded to levels; the gradient passes where a value was within them."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, scale: Any, zero: Any, least: int, most: int, between: bool
    ) -> Any:
        """The levels times the scale; `between`: zero may lie between two of them."""
        steps = (x if x.dtype is dt.float64 else x.to(dt.float32)) * (1 / scale)
        level = (steps + zero).round() if between else steps.round() + zero
        ctx.save_for_backward((level >= least) & (level <= most))
        inside = level.fmax(level.new_full((), least)).fmin(level.new_full((), most))
        return ((inside - zero) * scale).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """The cotangent, and zeros outside."""
        (mask,) = ctx.saved_tensors
        return g * mask, None, None, None, None, None


def _assert_levels(name: str, input: Any, least: int, most: int, *parameters: Any) -> None:
    if input.dtype.category != 2:
        raise Unsupported(f"{name}: not implemented for {input.dtype}; use .float()")
    if least > most:
        raise InvalidArgument(
            f"{name}: `quant_min` should be less than or equal to `quant_max`, got {least} and "
            f"{most}"
        )
    for each in parameters:
        if isinstance(each, Tensor) and each.requires_grad:
            raise AutogradError(
                f"{name}: is not differentiable with respect to scale and zero_point; detach() them"
            )


def _out_of_levels(name: str, least: int, most: int) -> InvalidArgument:
    return InvalidArgument(
        f"{name}: `zero_point` must be between `quant_min` {least} and `quant_max` {most}."
    )


@explaining
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """`input` rounded to the levels `quant_min` to `quant_max`, of which `zero_point` is zero and
    which lie `scale` apart: what a quantized tensor would hold, as floating-point numbers. The
    gradient passes unchanged where a value lies within the levels, else it is zero.

    Dtypes: floating point; scale and zero_point are numbers, or tensors of one.
    Errors: InvalidArgument for levels that are none; Unsupported for integers; AutogradError where
    a gradient of the scale is wanted.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fake_quantize_per_tensor_affine.html

    >>> ad.fake_quantize_per_tensor_affine(ad.tensor([0.14, 3.0]), 0.125, 0, 0, 15)
    tensor([0.1250, 1.8750])
    """
    name = "fake_quantize_per_tensor_affine"
    _assert_levels(name, input, quant_min, quant_max, scale, zero_point)
    for each in (scale, zero_point):
        if isinstance(each, Tensor) and each.numel() != 1:
            raise ShapeError(
                f"{name}: a Tensor with {each.numel()} elements cannot be converted to Scalar; "
                "fake_quantize_per_channel_affine takes several"
            )
    if isinstance(scale, Tensor):
        scale = scale.reshape(()).to(dt.float32)
    else:
        scale = input.new_full((), float(np.float32(scale)), dtype=dt.float32)
    if isinstance(zero_point, Tensor):
        zero_point = zero_point.reshape(()).to(scale.dtype)
    else:
        if not quant_min <= zero_point <= quant_max:
            raise _out_of_levels(name, quant_min, quant_max)
        zero_point = float(zero_point)
    return _RoundToLevels.apply(input, scale, zero_point, quant_min, quant_max, False)


@explaining
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a scale and a zero for each index along `axis`.

    Shapes: `scale` and `zero_point` (input.shape[axis],).
    Dtypes: the scale float32 or bfloat16, the zero int32, float32 or float16.
    Errors: those of `fake_quantize_per_tensor_affine`; InvalidArgument for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.fake_quantize_per_channel_affine.html

    >>> x, zeros = ad.tensor([[0.3], [0.3]]), ad.zeros(2).int()
    >>> ad.fake_quantize_per_channel_affine(x, ad.tensor([0.5, 0.25]), zeros, 0, 0, 15)
    tensor([[0.5000],
            [0.2500]])
    """
    name = "fake_quantize_per_channel_affine"
    _assert_levels(name, input, quant_min, quant_max, scale, zero_point)
    if scale.dtype not in (dt.float32, dt.bfloat16):
        raise InvalidArgument(f"{name}: Scale must be Float or BFloat16, found {scale.dtype}")
    if zero_point.dtype not in (dt.int32, dt.float32, dt.float16):
        raise InvalidArgument(
            f"{name}: Zero-point must be Int32, Float or Half, found {zero_point.dtype}"
        )
    place = normalize_axis(axis, input.ndim, name)
    size = (input.shape[place],)
    if tuple(scale.shape) != size or tuple(zero_point.shape) != size:
        raise ShapeError(
            f"{name}: dimensions of scale {tuple(scale.shape)} and zero-point "
            f"{tuple(zero_point.shape)} are not consistent with input tensor, {size}"
        )
    if not zero_point.dtype.is_floating_point:
        wrong = ((zero_point < quant_min) | (zero_point > quant_max)).any()
        refuse_where(wrong, lambda: _out_of_levels(name, quant_min, quant_max))
    along = [1] * input.ndim
    along[place] = -1
    between = zero_point.dtype.is_floating_point
    scale, zero = (x.to(dt.float32).reshape(along) for x in (scale, zero_point))
    return _RoundToLevels.apply(input, scale, zero, quant_min, quant_max, between)


@explaining
def dequantize(input: Tensor) -> Any:
    """A dense tensor as float32.

    Errors: Unsupported for a sequence of them, as in PyTorch.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.dequantize.html

    >>> ad.dequantize(ad.tensor([1, 2]))
    tensor([1., 2.])
    """
    if isinstance(input, Sequence):
        raise Unsupported(
            "dequantize: of a sequence is for quantized tensors; use .float() of each"
        )
    return input.float()


_DENSE = "is for quantized tensors, and there are none here; fake_quantize_per_tensor_affine rounds"
for _name in (
    "empty_quantized", "int_repr", "q_per_channel_axis", "q_per_channel_scales",
    "q_per_channel_zero_points", "q_scale", "q_zero_point", "quantized_batch_norm",
    "quantized_max_pool1d", "quantized_max_pool2d", "quantized_max_pool3d",
):  # fmt: skip
    globals()[_name] = explaining(refused(config.CALLED, _name, _DENSE))
