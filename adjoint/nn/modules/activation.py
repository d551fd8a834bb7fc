"""Activation layers."""

from __future__ import annotations

from typing import Any

from ...core.errors import ShapeError
from ...ops.creation import empty
from .. import functional as F  # noqa: N812 - the name everyone knows it by
from ..init import constant_
from ..parameter import Parameter
from .attention import MultiheadAttention as MultiheadAttention  # PyTorch has it here too
from .module import Module

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class ReLU(Module):
    """max(0, x).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html

    >>> ad.nn.ReLU()(ad.tensor([-1., 2.])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.relu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return "inplace=True" if self.inplace else ""


class ReLU6(Module):
    """min(max(0, x), 6).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html

    >>> ad.nn.ReLU6()(ad.tensor([-1., 8.])).tolist()
    [0.0, 6.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.relu6(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return "inplace=True" if self.inplace else ""


class LeakyReLU(Module):
    """x where it is positive, negative_slope * x elsewhere.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html

    >>> ad.nn.LeakyReLU(0.5)(ad.tensor([-1., 2.])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class RReLU(Module):
    """Leaky ReLU whose slope is drawn from [lower, upper) in training.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.RReLU.html

    >>> ad.nn.RReLU()(ad.ones(1)).tolist()
    [1.0]
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return f"lower={self.lower}, upper={self.upper}" + (
            ", inplace=True" if self.inplace else ""
        )


class ELU(Module):
    """x where it is positive, alpha * (exp(x) - 1) elsewhere.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.ELU.html

    >>> ad.nn.ELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.elu(input, self.alpha, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class SELU(Module):
    """ELU with the constants that keep mean 0 and variance 1.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SELU.html

    >>> ad.nn.SELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.selu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return "inplace=True" if self.inplace else ""


class CELU(Module):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.CELU.html

    >>> ad.nn.CELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.celu(input, self.alpha, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """x times the normal distribution function at x; approximate="tanh" for the faster form.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GELU.html

    >>> ad.nn.GELU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The settings."""
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.SiLU.html

    >>> ad.nn.SiLU()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.silu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return "inplace=True" if self.inplace else ""


class Mish(Module):
    """x * tanh(softplus(x)).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Mish.html

    >>> ad.nn.Mish()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.mish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return "inplace=True" if self.inplace else ""


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

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """The settings."""
        return f"beta={self.beta}, threshold={self.threshold}"


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


class Softshrink(Module):
    """x moved towards 0 by lambd.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softshrink.html

    >>> ad.nn.Softshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The settings."""
        return str(self.lambd)


class Hardshrink(Module):
    """x, or 0 within lambd of it.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardshrink.html

    >>> ad.nn.Hardshrink()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The settings."""
        return str(self.lambd)


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


class Hardtanh(Module):
    """x bounded to [min_val, max_val].

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardtanh.html

    >>> ad.nn.Hardtanh()(ad.tensor([-3., 2.])).tolist()
    [-1.0, 1.0]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return f"min_val={self.min_val}, max_val={self.max_val}" + (
            ", inplace=True" if self.inplace else ""
        )


class Hardsigmoid(Module):
    """x / 6 + 1/2 bounded to [0, 1].

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardsigmoid.html

    >>> ad.nn.Hardsigmoid()(ad.zeros(1)).tolist()
    [0.5]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardsigmoid(input, inplace=self.inplace)


class Hardswish(Module):
    """x * hardsigmoid(x).

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Hardswish.html

    >>> ad.nn.Hardswish()(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.hardswish(input, inplace=self.inplace)


class Threshold(Module):
    """x above threshold, value elsewhere.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Threshold.html

    >>> ad.nn.Threshold(0.5, 7.0)(ad.zeros(1)).tolist()
    [7.0]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The settings."""
        return f"threshold={self.threshold}, value={self.value}" + (
            ", inplace=True" if self.inplace else ""
        )


class GLU(Module):
    """The first half along dim times the sigmoid of the second.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.GLU.html

    >>> ad.nn.GLU()(ad.zeros(2)).tolist()
    [0.0]
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The settings."""
        return f"dim={self.dim}"


class Softmax(Module):
    """exp(x) / sum(exp(x)) along dim.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmax.html

    >>> ad.nn.Softmax(dim=0)(ad.zeros(1)).tolist()
    [1.0]
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        """The settings."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along dim.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSoftmax.html

    >>> ad.nn.LogSoftmax(dim=0)(ad.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        """The settings."""
        return f"dim={self.dim}"


class Softmin(Module):
    """softmax(-x) along dim.

    Shape: any; the result has the shape of the input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Softmin.html

    >>> ad.nn.Softmin(dim=0)(ad.zeros(1)).tolist()
    [1.0]
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        """The settings."""
        return f"dim={self.dim}"


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

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty((num_parameters,), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the weight with its initial value.

        >>> ad.nn.PReLU().reset_parameters()
        """
        constant_(self.weight, self.init)

    def forward(self, input: Any) -> Any:
        """The activation, elementwise."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of weights."""
        return f"num_parameters={self.num_parameters}"
