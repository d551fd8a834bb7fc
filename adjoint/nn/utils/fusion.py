"""Batch normalization in evaluation, folded into the layer before it.

Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_conv_bn_eval.html
"""

from __future__ import annotations

import copy
from typing import Any

from ...core.errors import InvalidArgument
from ...runtime.public import explaining, naming
from ...tensor import Tensor
from ..parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
]  # fmt: skip


def _assert_evaluation(name: str, *modules: Any) -> None:
    if any(each.training for each in modules):
        raise InvalidArgument(f"{name}: Fusion only for eval!; call .eval() on both modules")


def _folded(
    weight: Any, bias: Any, mean: Any, var: Any, eps: float, scale: Any, shift: Any, form: list[int]
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the layer with a normalization behind it."""
    bias = mean.new_zeros(mean.shape) if bias is None else bias
    scale = mean.new_ones(mean.shape) if scale is None else scale
    shift = mean.new_zeros(mean.shape) if shift is None else shift
    factor = scale * (var + eps).rsqrt()
    return (
        Parameter((weight * factor.reshape(form)).to(weight.dtype), weight.requires_grad),
        Parameter(((bias - mean) * factor + shift).to(bias.dtype), bias.requires_grad),
    )


@explaining
def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution with the batch normalization behind it folded in.

        f = bn_w / sqrt(bn_rv + bn_eps)
        weight = conv_w f, bias = (conv_b - bn_rm) f + bn_b

    Args:
        conv_w: Weight of the convolution.
        conv_b: Bias of the convolution, or None.
        bn_rm: Running mean.
        bn_rv: Running variance.
        bn_eps: Number added to the variance.
        bn_w: Weight of the normalization, or None.
        bn_b: Bias of the normalization, or None.
        transpose: Whether the convolution is a transposed one, whose output channels are dimension
            1. Default: False.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_conv_bn_weights.html
    """
    form = [1, -1] if transpose else [-1, 1]
    form += [1] * (conv_w.ndim - 2)
    return _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, form)


@explaining
def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer with the batch normalization behind it folded in.

        f = bn_w / sqrt(bn_rv + bn_eps)
        weight = linear_w f, bias = (linear_b - bn_rm) f + bn_b

    Args:
        linear_w: Weight of the layer.
        linear_b: Bias of the layer, or None.
        bn_rm: Running mean.
        bn_rv: Running variance.
        bn_eps: Number added to the variance.
        bn_w: Weight of the normalization.
        bn_b: Bias of the normalization.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_linear_bn_weights.html
    """
    return _folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


@naming
def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Copy of a convolution that does what it and the batch normalization behind it do.

        fused(x) = bn(conv(x)), in evaluation mode

    Args:
        conv: Convolution.
        bn: Batch normalization behind it.
        transpose: Whether the convolution is a transposed one. Default: False.

    Errors: InvalidArgument for modules in training.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_conv_bn_eval.html

    >>> conv, bn = ad.nn.Conv1d(1, 2, 1).eval(), ad.nn.BatchNorm1d(2).eval()
    >>> x = ad.ones(1, 1, 3)
    >>> ad.nn.utils.fuse_conv_bn_eval(conv, bn)(x).allclose(bn(conv(x)))
    True
    """
    _assert_evaluation("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose,
    )  # fmt: skip
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Copy of a linear layer that does what it and the batch normalization behind it do.

        fused(x) = bn(linear(x)), in evaluation mode

    Args:
        linear: Linear layer.
        bn: Batch normalization behind it.

    Errors: InvalidArgument for modules in training, and for a normalization of another size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_linear_bn_eval.html
    """
    _assert_evaluation("fuse_linear_bn_eval", linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise InvalidArgument(
            "fuse_linear_bn_eval: To fuse, linear.out_features == bn.num_features or "
            f"bn.num_features == 1, got {linear.out_features} and {bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
