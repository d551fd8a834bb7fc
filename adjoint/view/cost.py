"""Multiply-adds of the ops that are made of them: matrix products and convolutions.

This is the field's usual count: work that is done element by element is not in it.
"""

from __future__ import annotations

from typing import Any

from ..core.op import Op
from ..core.spec import prod
from ..ops.linalg.matmul import Linear, LinearInput, LinearWeight, MatMul
from ..ops.nn.convolution import Convolution, ConvolutionInput, ConvolutionWeight


def multiply_adds(op: Op, inputs: tuple[Any, ...], output: Any) -> int:
    """How many `op` takes on these tensors; 0 for an op of another kind."""
    if isinstance(op, MatMul):
        return prod(output.shape) * int(inputs[0].shape[-1])
    if isinstance(op, Linear):
        return prod(output.shape) * int(inputs[1].shape[1])
    if isinstance(op, LinearInput):
        return prod(inputs[0].shape) * int(inputs[1].shape[1])
    if isinstance(op, LinearWeight):
        return prod(inputs[0].shape) * int(inputs[1].shape[-1])
    if isinstance(op, Convolution):  # each output reads one window of each channel of its group
        return prod(output.shape) * prod(inputs[1].shape[1:])
    if isinstance(op, ConvolutionInput):  # each input adds to one window of each channel
        return prod(inputs[0].shape) * prod(inputs[1].shape[1:])
    if isinstance(op, ConvolutionWeight):
        return prod(inputs[1].shape) * prod(output.shape[1:])
    return 0
