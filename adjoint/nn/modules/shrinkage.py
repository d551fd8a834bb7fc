"""Shrinkage as layers: what is near zero becomes zero."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from .module import Module

__all__ = ["Hardshrink", "Softshrink", "Tanhshrink"]


class _Shrinks(Module):
    """The base of the two for which what lies within lambd of 0 is 0."""

    _shown_as = "{lambd}"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class Softshrink(_Shrinks):
    """Move of all values towards zero, as far as to it.

        y = x - lambd      where x > lambd
        y = x + lambd      where x < -lambd
        y = 0              elsewhere

    Args:
        lambd: How far values move, at least 0. Default: 0.5.

    Shape: any; the result has the shape of the input.
    Errors: InvalidArgument for a negative lambd, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softshrink.html

    >>> ad.nn.Softshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.softshrink(input, self.lambd)


class Hardshrink(_Shrinks):
    """Zero in the place of small values.

        y = x      where |x| > lambd
        y = 0      elsewhere

    Args:
        lambd: Largest value that becomes zero. Default: 0.5.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardshrink.html

    >>> ad.nn.Hardshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.hardshrink(input, self.lambd)


class Tanhshrink(Module):
    """Difference of a value and its hyperbolic tangent.

        y = x - tanh(x)

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Tanhshrink.html

    >>> ad.nn.Tanhshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.tanhshrink(input)
