"""Activation layers."""

from __future__ import annotations

from typing import Any, ClassVar

from ...tensor import Tensor
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from ..init import constant_
from .attention import MultiheadAttention as MultiheadAttention  # PyTorch has it here too
from .module import Module
from .shrinkage import Hardshrink, Softshrink, Tanhshrink
from .softmaxes import LogSoftmax, Softmax, Softmax2d, Softmin

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


class ReLU(_MayOverwrite):
    """Rectified linear unit.

        y = max(0, x)

    The gradient at 0 is 0.

    Args:
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html

    >>> ad.nn.ReLU()(ad.tensor([-1., 2.])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.relu(input, inplace=self.inplace)


class ReLU6(_MayOverwrite):
    """Rectified linear unit that is bounded by 6.

        y = min(max(0, x), 6)

    The gradient is 0 at both bounds and beyond.

    Args:
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html

    >>> ad.nn.ReLU6()(ad.tensor([-1., 8.])).tolist()
    [0.0, 6.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.relu6(input, inplace=self.inplace)


class LeakyReLU(_MayOverwrite):
    """Rectified linear unit with a small slope below zero.

        y = x                     where x > 0
        y = negative_slope x      elsewhere

    Args:
        negative_slope: Slope below zero. Default: 0.01.
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html

    >>> ad.nn.LeakyReLU(0.5)(ad.tensor([-1., 2.])).tolist()
    [-0.5, 2.0]
    """

    _shown_as = "negative_slope={negative_slope}"

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)


class RReLU(_MayOverwrite):
    """Leaky ReLU whose slopes are drawn at random in training (Xu et al., 2015).

        y = x            where x > 0
        y = slope x      elsewhere

    In training each element has a slope of its own, uniform in [lower, upper); otherwise it is
    (lower + upper) / 2.

    Args:
        lower: Least slope. Default: 1/8.
        upper: Largest slope. Default: 1/3.
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Errors: InvalidArgument where lower > upper, in the call.
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

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class ELU(_WithAlpha):
    """Exponential linear unit (Clevert et al., 2016).

        y = x                       where x > 0
        y = alpha (exp(x) - 1)      elsewhere

    Args:
        alpha: Minus the limit of y for very negative x. Default: 1.0.
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ELU.html

    >>> ad.nn.ELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.elu(input, self.alpha, inplace=self.inplace)


class SELU(_MayOverwrite):
    """Scaled exponential linear unit, which keeps mean 0 and variance 1 (Klambauer et al., 2017).

        y = 1.0507 x                           where x > 0
        y = 1.0507 * 1.6733 (exp(x) - 1)       elsewhere

    Args:
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SELU.html

    >>> ad.nn.SELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.selu(input, inplace=self.inplace)


class CELU(_WithAlpha):
    """Exponential linear unit whose slope is continuous for every alpha (Barron, 2017).

        y = max(0, x) + min(0, alpha (exp(x / alpha) - 1))

    Args:
        alpha: Minus the limit of y for very negative x; not 0. Default: 1.0.
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Errors: InvalidArgument for alpha 0 and DTypeError for integers, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CELU.html

    >>> ad.nn.CELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.celu(input, self.alpha, inplace=self.inplace)


class GELU(Module):
    """Gaussian error linear unit (Hendrycks and Gimpel, 2016).

        y = x Phi(x), Phi the distribution function of the standard normal distribution
        y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2      for "tanh"

    Args:
        approximate: "none" for the first formula, "tanh" for the second. Default: "none".

    Shape: any; the result has the shape of the input.
    Errors: InvalidArgument for another `approximate`, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GELU.html

    >>> ad.nn.GELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    _shown_as = "approximate={approximate!r}"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.gelu(input, approximate=self.approximate)


class SiLU(_MayOverwrite):
    """Sigmoid linear unit, also called swish.

        y = x sigmoid(x)

    Args:
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SiLU.html

    >>> ad.nn.SiLU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.silu(input, inplace=self.inplace)


class Mish(_MayOverwrite):
    """Mish (Misra, 2019): x times the hyperbolic tangent of its softplus.

        y = x tanh(log(1 + exp(x)))

    Args:
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Mish.html

    >>> ad.nn.Mish()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.mish(input, inplace=self.inplace)


class Tanh(Module):
    """Hyperbolic tangent.

        y = (exp(x) - exp(-x)) / (exp(x) + exp(-x))

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Tanh.html

    >>> ad.nn.Tanh()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return input.tanh()


class Sigmoid(Module):
    """Logistic function.

        y = 1 / (1 + exp(-x))

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Sigmoid.html

    >>> ad.nn.Sigmoid()(ad.zeros(1)).tolist()
    [0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return input.sigmoid()


class LogSigmoid(Module):
    """Logarithm of the sigmoid, computed without overflow.

        y = log(1 / (1 + exp(-x)))

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSigmoid.html

    >>> ad.nn.LogSigmoid()(ad.zeros(1))
    tensor([-0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.logsigmoid(input)


class Softplus(Module):
    """Smooth form of the rectified linear unit.

        y = log(1 + exp(beta x)) / beta      where beta x <= threshold
        y = x                                elsewhere

    Args:
        beta: How sharp the bend at zero is. Default: 1.0.
        threshold: Value of beta x above which y is x. Default: 20.0.

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

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.softplus(input, self.beta, self.threshold)


class Softsign(Module):
    """Smooth sign, which approaches its limits slowly.

        y = x / (1 + |x|)

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softsign.html

    >>> ad.nn.Softsign()(ad.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.softsign(input)


class Hardtanh(_MayOverwrite):
    """Bounds for all values, a piecewise linear hyperbolic tangent.

        y = min(max(min_val, x), max_val)

    The gradient is 0 at both bounds and beyond.

    Args:
        min_val: Lower bound. Default: -1.0.
        max_val: Upper bound. Default: 1.0.
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Errors: InvalidArgument where min_val > max_val, in the call.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardtanh.html

    >>> ad.nn.Hardtanh()(ad.tensor([-3., 2.])).tolist()
    [-1.0, 1.0]
    """

    _shown_as = "min_val={min_val}, max_val={max_val}"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)


class Hardsigmoid(_MayOverwrite):
    """Piecewise linear sigmoid.

        y = min(max(0, x + 3), 6) / 6

    Args:
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardsigmoid.html

    >>> ad.nn.Hardsigmoid()(ad.zeros(1)).tolist()
    [0.5]
    """

    _shown_unless = ()  # PyTorch does not show it

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.hardsigmoid(input, inplace=self.inplace)


class Hardswish(_MayOverwrite):
    """Piecewise form of SiLU (Howard et al., 2019).

        y = x min(max(0, x + 3), 6) / 6

    Args:
        inplace: Write the result into the input. Default: False.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardswish.html

    >>> ad.nn.Hardswish()(ad.zeros(1)).tolist()
    [0.0]
    """

    _shown_unless = ()  # PyTorch does not show it

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.hardswish(input, inplace=self.inplace)


class Threshold(_MayOverwrite):
    """Values above a threshold, and a constant in the place of the others.

        y = x          where x > threshold
        y = value      elsewhere

    Args:
        threshold: Threshold.
        value: Value elsewhere.
        inplace: Write the result into the input. Default: False.

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

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)


class GLU(Module):
    """Gated linear unit (Dauphin et al., 2017).

        y = a sigmoid(b), a and b the halves of the input along `dim`

    Args:
        dim: Dimension that is halved. Default: -1.

    Shapes: (..., 2 n, ...) -> (..., n, ...).
    Errors: ShapeError where the size along `dim` is odd, or the input has no dimension;
    IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GLU.html

    >>> ad.nn.GLU()(ad.zeros(2)).tolist()
    [0.0]
    """

    _shown_as = "dim={dim}"

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.glu(input, self.dim)


class PReLU(Module):
    """Leaky ReLU with learned slopes (He et al., 2015).

        y = x              where x > 0
        y = weight x       elsewhere

    Args:
        num_parameters: Number of slopes: 1, or one for each channel. Default: 1.
        init: First value of the slopes. Default: 0.25.
        device: Device of the parameters. Default: None, the default device.
        dtype: Data type of the parameters. Default: None, the default data type.

    Shapes: any; with several parameters dimension 1 is the channels; the result has the shape of
    the input.
    Errors: ShapeError where the number of channels is another.
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

    def forward(self, input: Tensor) -> Tensor:
        """The activation, elementwise."""
        return F.prelu(input, self.weight)


for _kind in (Softmax, LogSoftmax, Softmin, Softmax2d, Softshrink, Hardshrink, Tanhshrink):
    _kind.__module__ = __name__  # where PyTorch has them: files name them so
