"""Activation layers."""

from __future__ import annotations

from typing import Any, ClassVar

from ...core.errors import ShapeError
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from ..init import constant_
from .attention import MultiheadAttention as MultiheadAttention  # PyTorch has it here too
from .module import Module

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU",
    "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh",
    "Tanhshrink", "Threshold",
]  # fmt: skip


class _MayOverwrite(Module):
    """The base of activations that may overwrite their input."""

    _shown_unless: ClassVar[tuple[tuple[str, Any], ...]] = (("inplace", False),)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class _WithAlpha(_MayOverwrite):
    """The base of the two that are linear above 0 and approach -alpha below."""

    _shown_as = "alpha={alpha}"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha


class _Shrinks(Module):
    """The base of the two for which what lies within lambd of 0 is 0."""

    _shown_as = "{lambd}"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class _Along(Module):
    """The base of those that normalise along one dimension."""

    _shown_as = "dim={dim}"

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class ReLU(_MayOverwrite):
    """max(0, x).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html

    >>> ad.nn.ReLU()(ad.tensor([-1., 2.])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.relu(input, inplace=self.inplace)


class ReLU6(_MayOverwrite):
    """min(max(0, x), 6).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html

    >>> ad.nn.ReLU6()(ad.tensor([-1., 8.])).tolist()
    [0.0, 6.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.relu6(input, inplace=self.inplace)


class LeakyReLU(_MayOverwrite):
    """x where it is positive, negative_slope * x elsewhere.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html

    >>> ad.nn.LeakyReLU(0.5)(ad.tensor([-1., 2.])).tolist()
    [-0.5, 2.0]
    """

    _shown_as = "negative_slope={negative_slope}"

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)


class RReLU(_MayOverwrite):
    """Leaky ReLU whose slope is drawn from [lower, upper) in training.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RReLU.html

    >>> ad.nn.RReLU()(ad.ones(1)).tolist()
    [1.0]
    """

    _shown_as = "lower={lower}, upper={upper}"

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class ELU(_WithAlpha):
    """x where it is positive, alpha * (exp(x) - 1) elsewhere.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ELU.html

    >>> ad.nn.ELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.elu(input, self.alpha, inplace=self.inplace)


class SELU(_MayOverwrite):
    """ELU with the constants that keep mean 0 and variance 1.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SELU.html

    >>> ad.nn.SELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.selu(input, inplace=self.inplace)


class CELU(_WithAlpha):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CELU.html

    >>> ad.nn.CELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.celu(input, self.alpha, inplace=self.inplace)


class GELU(Module):
    """x times the normal distribution function at x; approximate="tanh" for the faster form.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GELU.html

    >>> ad.nn.GELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    _shown_as = "approximate={approximate!r}"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.gelu(input, approximate=self.approximate)


class SiLU(_MayOverwrite):
    """x * sigmoid(x).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SiLU.html

    >>> ad.nn.SiLU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.silu(input, inplace=self.inplace)


class Mish(_MayOverwrite):
    """x * tanh(softplus(x)).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Mish.html

    >>> ad.nn.Mish()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.mish(input, inplace=self.inplace)


class Tanh(Module):
    """The hyperbolic tangent.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Tanh.html

    >>> ad.nn.Tanh()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return input.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Sigmoid.html

    >>> ad.nn.Sigmoid()(ad.zeros(1)).tolist()
    [0.5]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return input.sigmoid()


class LogSigmoid(Module):
    """log(sigmoid(x)), computed without overflow.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSigmoid.html

    >>> ad.nn.LogSigmoid()(ad.zeros(1))
    tensor([-0.6931])
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.logsigmoid(input)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; x itself above threshold.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softplus.html

    >>> ad.nn.Softplus()(ad.zeros(1))
    tensor([0.6931])
    """

    _shown_as = "beta={beta}, threshold={threshold}"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softplus(input, self.beta, self.threshold)


class Softsign(Module):
    """x / (1 + |x|).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softsign.html

    >>> ad.nn.Softsign()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softsign(input)


class Softshrink(_Shrinks):
    """x moved towards 0 by lambd.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softshrink.html

    >>> ad.nn.Softshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softshrink(input, self.lambd)


class Hardshrink(_Shrinks):
    """x, or 0 within lambd of it.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardshrink.html

    >>> ad.nn.Hardshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardshrink(input, self.lambd)


class Tanhshrink(Module):
    """x - tanh(x).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Tanhshrink.html

    >>> ad.nn.Tanhshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.tanhshrink(input)


class Hardtanh(_MayOverwrite):
    """x bounded to [min_val, max_val].

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardtanh.html

    >>> ad.nn.Hardtanh()(ad.tensor([-3., 2.])).tolist()
    [-1.0, 1.0]
    """

    _shown_as = "min_val={min_val}, max_val={max_val}"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)


class Hardsigmoid(_MayOverwrite):
    """x / 6 + 1/2 bounded to [0, 1].

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardsigmoid.html

    >>> ad.nn.Hardsigmoid()(ad.zeros(1)).tolist()
    [0.5]
    """

    _shown_unless = ()  # PyTorch does not show it

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardsigmoid(input, inplace=self.inplace)


class Hardswish(_MayOverwrite):
    """x * hardsigmoid(x).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardswish.html

    >>> ad.nn.Hardswish()(ad.zeros(1)).tolist()
    [0.0]
    """

    _shown_unless = ()  # PyTorch does not show it

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardswish(input, inplace=self.inplace)


class Threshold(_MayOverwrite):
    """x above threshold, value elsewhere.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Threshold.html

    >>> ad.nn.Threshold(0.5, 7.0)(ad.zeros(1)).tolist()
    [7.0]
    """

    _shown_as = "threshold={threshold}, value={value}"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)


class GLU(Module):
    """The first half along dim times the sigmoid of the second.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GLU.html

    >>> ad.nn.GLU()(ad.zeros(2)).tolist()
    [0.0]
    """

    _shown_as = "dim={dim}"

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.glu(input, self.dim)


class Softmax(_Along):
    """exp(x) / sum(exp(x)) along dim.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax.html

    >>> ad.nn.Softmax(dim=0)(ad.zeros(1)).tolist()
    [1.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softmax(input, self.dim)


class LogSoftmax(_Along):
    """log(softmax(x)) along dim.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSoftmax.html

    >>> ad.nn.LogSoftmax(dim=0)(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.log_softmax(input, self.dim)


class Softmin(_Along):
    """softmax(-x) along dim.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmin.html

    >>> ad.nn.Softmin(dim=0)(ad.zeros(1)).tolist()
    [1.0]
    """

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of images.

    Shapes: (batch, channels, height, width) or without batch.
    Errors: ShapeError for other ranks.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax2d.html

    >>> ad.nn.Softmax2d()(ad.zeros(1, 2, 1, 1)).reshape(-1).tolist()
    [0.5, 0.5]
    """

    def forward(self, input: Any) -> Any:
        """Softmax over dimension -3."""
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: expected input to be 3D or 4D (got {input.ndim}D)")
        return F.softmax(input, -3)


class PReLU(Module):
    """x where it is positive, weight * x elsewhere, with a learned weight (one, or per channel).

    Shape: any; with several parameters dimension 1 is the channels.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.PReLU.html

    >>> ad.nn.PReLU()(ad.tensor([-1., 2.])).tolist()
    [-0.25, 2.0]
    """

    _shown_as = "num_parameters={num_parameters}"

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self._new_parameter("weight", (num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the weight with its initial value.

        >>> ad.nn.PReLU().reset_parameters()
        """
        constant_(self.weight, self.init)

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.prelu(input, self.weight)
