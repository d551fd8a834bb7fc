"""Identity, Linear, Bilinear."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .. import init
from ..parameter import Parameter
from .module import Module

__all__ = ["Bilinear", "Identity", "Linear"]

T = TypeVar("T")


class Identity(Module):
    """Module that returns its input, whatever arguments it was made with.

        y = x

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Identity.html

    >>> ad.nn.Identity(54)(3)
    3
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: T) -> T:
        """The input."""
        return input


class Linear(Module):
    """Affine map of the last dimension.

        y = x weight^T + bias

    The parameters start uniform within 1 / sqrt(in_features).

    Args:
        in_features: Size of each input vector.
        out_features: Size of each output vector.
        bias: Whether to add a learned bias. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (..., in_features) -> (..., out_features).
    Errors: ShapeError for an input of another last size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html

    >>> ad.nn.Linear(20, 30)(ad.zeros(128, 20)).shape
    adjoint.Size([128, 30])
    """

    weight: Parameter
    _shown_as = "in_features={in_features}, out_features={out_features}, bias={bias}"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self._new_parameter("weight", (out_features, in_features), device, dtype)
        self._new_parameter("bias", (out_features,), device, dtype, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: uniform within 1/sqrt(in_features).

        >>> ad.nn.Linear(2, 2).reset_parameters()
        """
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            init.uniform_bound_(self.bias, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        """The affine map."""
        return F.linear(input, self.weight, self.bias)


class Bilinear(Module):
    """Bilinear form of two inputs for each output feature.

        y[o] = x1^T weight[o] x2 + bias[o]

    The parameters start uniform within 1 / sqrt(in1_features).

    Args:
        in1_features: Size of the first vectors.
        in2_features: Size of the second vectors.
        out_features: Size of the results.
        bias: Whether to add a learned bias. Default: True.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: (..., in1_features), (..., in2_features) -> (..., out_features).
    Errors: ShapeError for inputs of other sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Bilinear.html

    >>> ad.nn.Bilinear(2, 3, 4)(ad.zeros(5, 2), ad.zeros(5, 3)).shape
    adjoint.Size([5, 4])
    """

    _shown_as = (
        "in1_features={in1_features}, in2_features={in2_features}, out_features={out_features}, "
        "bias={bias}"
    )

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self._new_parameter("weight", (out_features, in1_features, in2_features), device, dtype)
        self._new_parameter("bias", (out_features,), device, dtype, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: uniform within 1/sqrt(in1_features).

        >>> ad.nn.Bilinear(2, 2, 2).reset_parameters()
        """
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """The bilinear form."""
        return F.bilinear(input1, input2, self.weight, self.bias)
