"""The two gradients of a convolution, as functions; PyTorch's `torch.nn.grad`.

Source: https://github.com/pytorch/pytorch/blob/main/torch/nn/grad.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import ShapeError
from ..core.tensor_type import Tensor
from ..ops.nn.convolution import convolution_of
from ..runtime.public import explaining

__all__ = [
    "conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
    "conv3d_weight",
]  # fmt: skip


def _size_of(name: str, rank: int, size: Sequence[int], lead: tuple[int, int]) -> Any:
    """The spatial part of a size whose first two dimensions are known."""
    given = tuple(int(n) for n in size)
    if len(given) != rank + 2 or given[:2] != lead:
        raise ShapeError(
            f"{name}: expected a size of {rank + 2} dimensions that begins with {lead}, got {given}"
        )
    return given[2:]


def _input(rank: int) -> Callable[..., Tensor]:
    name = f"conv{rank}d_input"

    def gradient(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        op = convolution_of(rank, weight.shape[2:], stride, padding, dilation, groups)
        lead = grad_output.shape[0], weight.shape[1] * groups
        size = _size_of(name, rank, input_size, lead)
        return op.to_input(grad_output, weight, size)  # type: ignore[no-any-return]

    gradient.__doc__ = f"""The gradient of `conv{rank}d` with respect to its input.

    Shapes: `input_size` is the input's, with its batch; `grad_output` the result's.
    Errors: ShapeError where these do not fit.
    Source: https://github.com/pytorch/pytorch/blob/main/torch/nn/grad.py

    >>> w, g = ad.ones({", ".join("1" * 2 + "2" * rank)}), ad.ones({", ".join("1" * (rank + 2))})
    >>> ad.nn.grad.{name}(({", ".join("1" * 2 + "2" * rank)}), w, g).sum()
    tensor({2**rank}.)
    """
    return _named(gradient, name)


def _weight(rank: int) -> Callable[..., Tensor]:
    name = f"conv{rank}d_weight"

    def gradient(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        op = convolution_of(rank, tuple(weight_size)[2:], stride, padding, dilation, groups)
        lead = grad_output.shape[1], input.shape[1] // groups
        size = _size_of(name, rank, weight_size, lead)
        return op.to_weight(input, grad_output, size)  # type: ignore[no-any-return]

    gradient.__doc__ = f"""The gradient of `conv{rank}d` with respect to its weight.

    Shapes: `weight_size` is the weight's; `grad_output` the result's, with its batch.
    Errors: ShapeError where these do not fit.
    Source: https://github.com/pytorch/pytorch/blob/main/torch/nn/grad.py

    >>> x, g = ad.ones({", ".join("1" * 2 + "2" * rank)}), ad.ones({", ".join("1" * (rank + 2))})
    >>> ad.nn.grad.{name}(x, ({", ".join("1" * 2 + "2" * rank)}), g).sum()
    tensor({2**rank}.)
    """
    return _named(gradient, name)


def _named(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    return explaining(function)


conv1d_input, conv2d_input, conv3d_input = map(_input, (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = map(_weight, (1, 2, 3))
