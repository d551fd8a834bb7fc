"""Smooth activations; the piecewise ones are in `piecewise`. Those whose composition would keep
several tensors alive for backward, or lose precision, are primitives; the others are compositions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import InvalidArgument, ShapeError
from ...core.op import Sample
from ...core.spec import normalize_axis
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.fused import checking, fused
from ...runtime.public import explaining, public
from ..elementwise.comparison import where
from ..elementwise.functions import abs, exp, sigmoid, tanh
from ..elementwise.pointwise import ANALYTIC, NUMBERS, Analytic, Floating, conj
from ..elementwise.relational import le
from ..promotion import cast
from ..samples import FLOATS, array, unary_samples
from ..shape.sizes import hold_sizes
from ..special.special import erf
from .piecewise import Relu as Relu
from .piecewise import ReluGradient as ReluGradient
from .piecewise import (
    _inplace,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    softshrink,
    threshold,
    threshold_,
)
from .softmax import assert_dtype, log_softmax, softmax, softmin, wide

__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish",
    "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish",
    "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "selu", "selu_", "silu", "softmax",
    "softmin", "softplus", "softshrink", "softsign", "tanhshrink", "threshold", "threshold_",
]  # fmt: skip

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


# ---- primitives ----------------------------------------------------------------------------------


def _with_fields(base: Any, *variants: tuple[Any, ...]) -> Any:
    """The samples of `base`, and one for the op made with each of `variants`."""

    def samples(cls: Any) -> Iterable[Sample]:
        yield from base.__func__(cls)
        for fields in variants:
            yield Sample(cls(*fields), (array((3, 4), low=-4, high=4),), f"fields{fields}")

    return classmethod(samples)


@dataclass(eq=False, repr=False)
class Elu(Floating):
    """scale x where x > 0, otherwise scale alpha (exp(rate x) - 1).

    Serves elu, selu and celu. A primitive because the composition keeps four tensors where one is
    enough.
    """

    alpha: float = 1.0
    scale: float = 1.0
    rate: float = 1.0
    samples = _with_fields(unary_samples(), (0.5, 1.0, 2.0), (SELU_ALPHA, SELU_SCALE, 1.0))

    def compute(self, xp: Any, x: Any) -> Any:
        """exp only of what is not positive: no overflow; where it is positive that part is 0."""
        low = xp.expm1(xp.minimum(x, x.dtype.type(0)) * self.rate) * (self.alpha * self.scale)
        return xp.maximum(x, x.dtype.type(0)) * self.scale + low

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g scale where x > 0, otherwise g scale alpha rate exp(rate x)."""
        return (_elu_gradient(g, x, self.alpha, self.scale, self.rate),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by masks."""
        x = np.asarray(x, np.float64)
        y = np.array(x * self.scale)
        y[x <= 0] = self.scale * self.alpha * np.expm1(self.rate * x[x <= 0])
        return y


@dataclass(eq=False, repr=False)
class Gelu(Floating):
    """x times the normal distribution function of x, or its approximation by tanh.

    A primitive because the composition keeps four (six) tensors of a transformer's widest layer
    where one is enough.
    """

    tanh: bool = False
    samples = _with_fields(unary_samples(-4, 4), (True,))

    def compute(self, xp: Any, x: Any) -> Any:
        """x / 2 (1 + erf(x / sqrt 2))."""
        if self.tanh:
            return 0.5 * x * (1 + xp.tanh(_C * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1 + xp.erf(x * _SQRT_HALF))

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g (Phi(x) + x phi(x)), or the approximation's own derivative."""
        return (_gelu_gradient(g, x, self.tanh),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by SciPy's distribution function, or by the logistic form of tanh."""
        import scipy.special

        x = np.asarray(x, np.float64)
        if self.tanh:
            return x * scipy.special.expit(2 * _C * (x + 0.044715 * x**3))
        return x * scipy.special.ndtr(x)


_SQRT_HALF = float(np.sqrt(0.5))
_NORMAL = float(1 / np.sqrt(2 * np.pi))
_C = float(np.sqrt(2 / np.pi))


@fused
def _gelu_gradient(g: Tensor, input: Tensor, approximate: bool) -> Tensor:
    x = wide(input)
    if approximate:
        t = tanh(_C * (x + 0.044715 * x * x * x))
        inner = _C * (1 + 3 * 0.044715 * x * x)
        return cast(g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner), input.dtype)
    phi = exp(x * x * -0.5) * _NORMAL
    return cast(g * (0.5 * (1 + erf(x * _SQRT_HALF)) + x * phi), input.dtype)


@fused
def _silu_gradient(g: Tensor, input: Tensor) -> Tensor:
    x = wide(input)
    s = sigmoid(x)
    return cast(g * conj(s * (1 + x * (1 - s))), input.dtype)


class Silu(Analytic):
    """x sigmoid(x).

    A primitive because the composition keeps the sigmoid as well as x.
    """

    samples = unary_samples(-5, 5, dtypes=(*FLOATS, dt.complex128))

    def compute(self, xp: Any, x: Any) -> Any:
        """x / (1 + exp(-x)), whose overflow gives the right limit."""
        return x / (1 + xp.exp(-x))

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g s (1 + x (1 - s)) with s = sigmoid(x)."""
        return (_silu_gradient(g, x),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by tanh."""
        x = x if x.dtype.kind == "c" else np.asarray(x, np.float64)
        return x * (0.5 + 0.5 * np.tanh(x / 2))


@dataclass(eq=False, repr=False)
class Softplus(Floating):
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold.

    A primitive because the stable composition keeps three tensors where one is enough.
    """

    beta: float = 1.0
    threshold: float = 20.0
    samples = _with_fields(unary_samples(-5, 5), (2.0, 3.0), (0.5, float("inf")))

    def compute(self, xp: Any, x: Any) -> Any:
        """max(z, 0) + log1p(exp(-|z|)) with z = beta x: exp cannot overflow."""
        z = x * self.beta
        y = (xp.maximum(z, x.dtype.type(0)) + xp.log1p(xp.exp(-xp.abs(z)))) / self.beta
        return xp.where(z > self.threshold, x, y)

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g sigmoid(beta x); g where beta x > threshold."""
        return (_softplus_gradient(g, x, self.beta, self.threshold),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by logaddexp."""
        x = np.asarray(x, np.float64)
        y = np.logaddexp(x * self.beta, 0) / self.beta
        return np.where(x * self.beta > self.threshold, x, y)


class Mish(Floating):
    """x tanh(log(1 + exp(x))).

    A primitive because the composition keeps three tensors where one is enough.
    """

    samples = unary_samples(-5, 5)

    def compute(self, xp: Any, x: Any) -> Any:
        """x tanh(softplus(x))."""
        return x * xp.tanh(_SOFTPLUS.compute(xp, x))

    def gradient(self, g: Tensor, x: Tensor) -> tuple[Any, ...]:
        """g (t + x s (1 - t^2)) with t = tanh(softplus(x)) and s = sigmoid(x)."""
        return (_mish_gradient(g, x),)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value with tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2)."""
        x = np.asarray(x, np.float64)
        e = np.exp(np.minimum(x, 20))
        n = e * (e + 2)
        return np.where(x > 20, x, x * (n / (n + 2)))


@fused
def _elu_gradient(g: Tensor, input: Tensor, alpha: float, scale: float, rate: float) -> Tensor:
    x = wide(input)
    below = le(x, 0)
    slope = alpha * scale * rate * exp(where(below, x, 0) * rate)
    return cast(g * where(below, slope, scale), input.dtype)


@fused
def _softplus_gradient(g: Tensor, input: Tensor, beta: float, threshold: float) -> Tensor:
    z = wide(input) * beta
    slope = sigmoid(z)
    if threshold < 40:  # beyond that sigmoid is 1 anyway
        slope = where(z > threshold, 1, slope)
    return cast(g * slope, input.dtype)


@fused
def _mish_gradient(g: Tensor, input: Tensor) -> Tensor:
    x = wide(input)
    t = tanh(apply(_SOFTPLUS, x))
    return cast(g * (t + x * sigmoid(x) * (1 - t * t)), input.dtype)


_SILU, _MISH, _SOFTPLUS = Silu(), Mish(), Softplus()
_LOG_SIGMOID = Softplus(1.0, float("inf"))


# ---- smooth units --------------------------------------------------------------------------------


@public(method=False, inplace=True)
@checking
def elu(input: Tensor, alpha: float = 1.0) -> Any:
    """Exponential linear unit (Clevert et al., 2016).

        y = x                       where x > 0
        y = alpha (exp(x) - 1)      elsewhere

    Args:
        input: Values.
        alpha: Minus the limit of y for very negative x. Default: 1.0.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.elu.html

    >>> ad.elu(ad.tensor([-1., 2.]))
    tensor([-0.6321,  2.0000])
    """
    assert_dtype("elu", input)
    return Elu.of(float(alpha)), input


@public(method=False, inplace=True)
@checking
def selu(input: Tensor) -> Any:
    """Scaled exponential linear unit, which keeps mean 0 and variance 1 (Klambauer et al., 2017).

        y = 1.0507 x                           where x > 0
        y = 1.0507 * 1.6733 (exp(x) - 1)       elsewhere

    Args:
        input: Values.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.selu.html

    >>> ad.selu(ad.tensor([-1., 2.]))
    tensor([-1.1113,  2.1014])
    """
    assert_dtype("selu", input)
    return Elu.of(SELU_ALPHA, SELU_SCALE), input


@public(method=False, inplace=True)
@checking
def celu(input: Tensor, alpha: float = 1.0) -> Any:
    """Exponential linear unit whose slope is continuous for every alpha (Barron, 2017).

        y = max(0, x) + min(0, alpha (exp(x / alpha) - 1))

    Args:
        input: Values.
        alpha: Minus the limit of y for very negative x; not 0. Default: 1.0.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: InvalidArgument for alpha 0; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.celu.html

    >>> ad.celu(ad.tensor([-1., 2.]), 0.5)
    tensor([-0.4323,  2.0000])
    """
    assert_dtype("celu", input)
    if alpha == 0:
        raise InvalidArgument(f"celu: alpha cannot be 0, got {alpha}; use relu")
    return Elu.of(float(alpha), 1.0, 1.0 / alpha), input


@public(method=False)
@checking
def gelu(input: Tensor, approximate: str = "none") -> Any:
    """Gaussian error linear unit (Hendrycks and Gimpel, 2016).

        y = x Phi(x), Phi the distribution function of the standard normal distribution
        y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2      for "tanh"

    Args:
        input: Values.
        approximate: "none" for the first formula, "tanh" for the second. Default: "none".

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: InvalidArgument for another `approximate`; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html

    >>> ad.gelu(ad.tensor([-1., 2.])), ad.gelu(ad.tensor([-1., 2.]), approximate="tanh")
    (tensor([-0.1587,  1.9545]), tensor([-0.1588,  1.9546]))
    """
    assert_dtype("gelu", input)
    if approximate not in ("none", "tanh"):
        raise InvalidArgument(
            f"gelu: approximate argument must be either none or tanh, got {approximate!r}"
        )
    return Gelu.of(approximate == "tanh"), input


@public(method=False, inplace=True)
@checking
def silu(input: Tensor) -> Any:
    """Sigmoid linear unit, also called swish.

        y = x sigmoid(x)

    Args:
        input: Values.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point and complex, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.silu.html

    >>> ad.silu(ad.tensor([-1., 2.]))
    tensor([-0.2689,  1.7616])
    """
    assert_dtype("silu", input, ANALYTIC)
    return _SILU, input


@public(method=False, inplace=True)
@checking
def mish(input: Tensor) -> Any:
    """Mish (Misra, 2019): x times the hyperbolic tangent of its softplus.

        y = x tanh(log(1 + exp(x)))

    Args:
        input: Values.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mish.html

    >>> ad.mish(ad.tensor([-1., 2.]))
    tensor([-0.3034,  1.9440])
    """
    assert_dtype("mish", input)
    return _MISH, input


@public(method=False)
@checking
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """Smooth form of the rectified linear unit.

        y = log(1 + exp(beta x)) / beta      where beta x <= threshold
        y = x                                elsewhere

    Args:
        input: Values.
        beta: How sharp the bend at zero is. Default: 1.0.
        threshold: Value of beta x above which y is x. Default: 20.0.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softplus.html

    >>> ad.softplus(ad.tensor([-1., 2.]))
    tensor([0.3133, 2.1269])
    """
    assert_dtype("softplus", input)
    return Softplus.of(float(beta), float(threshold)), input


@explaining
@public(method=False)
def logsigmoid(input: Tensor) -> Tensor:
    """Logarithm of the sigmoid, computed without overflow.

        y = log(1 / (1 + exp(-x)))

    Args:
        input: Values.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.logsigmoid.html

    >>> ad.logsigmoid(ad.tensor([-100., 2.]))
    tensor([-100.0000,   -0.1269])
    """
    assert_dtype("logsigmoid", input)
    return -apply(_LOG_SIGMOID, -input)


@public(method=False)
@checking
def softsign(input: Tensor) -> Any:
    """Smooth sign, which approaches its limits slowly.

        y = x / (1 + |x|)

    Args:
        input: Values.

    Shape: any; the result has the shape of `input`.
    Dtypes: integers become floats.
    Errors: DTypeError for bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softsign.html

    >>> ad.softsign(ad.tensor([-1., 3.]))
    tensor([-0.5000,  0.7500])
    """
    assert_dtype("softsign", input, NUMBERS)
    return _softsign, input


@fused
def _softsign(input: Tensor) -> Tensor:
    return input / (abs(input) + 1)


@public(method=False)
@checking
def tanhshrink(input: Tensor) -> Any:
    """Difference of a value and its hyperbolic tangent.

        y = x - tanh(x)

    Args:
        input: Values.

    Shape: any; the result has the shape of `input`.
    Dtypes: integers become floats.
    Errors: DTypeError for bool.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.tanhshrink.html

    >>> ad.tanhshrink(ad.tensor([-1., 2.]))
    tensor([-0.2384,  1.0360])
    """
    assert_dtype("tanhshrink", input, NUMBERS)
    return _tanhshrink, input


@fused
def _tanhshrink(input: Tensor) -> Tensor:
    return input - tanh(input)


@public(method=False)
@checking
def glu(input: Tensor, dim: int = -1) -> Any:
    """Gated linear unit (Dauphin et al., 2017).

        y = a sigmoid(b), a and b the halves of the input along `dim`

    Args:
        input: Values.
        dim: Dimension that is halved. Default: -1.

    Shapes: (..., 2 n, ...) -> (..., n, ...).
    Dtypes: floating point, kept.
    Errors: ShapeError where the size along `dim` is odd, or the input has no dimension;
    IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.glu.html

    >>> ad.glu(ad.tensor([4., 0.]))
    tensor([2.])
    """
    assert_dtype("glu", input)
    if not input.ndim:
        raise ShapeError("glu: does not support scalars, input has shape (); use at least 1-d")
    axis = normalize_axis(dim, input.ndim, "glu")
    size = input.shape[axis]
    if size % 2:
        raise ShapeError(
            f"glu: Halving dimension must be even, but dimension {axis} is size {size} (shape "
            f"{tuple(input.shape)}); pad it or choose another dim"
        )
    return _gated, hold_sizes("glu", input, dims=(axis,)), axis


@fused
def _gated(input: Any, axis: int) -> Tensor:
    halves = input.unflatten(axis, (2, input.shape[axis] // 2))
    return halves.select(axis, 0) * sigmoid(halves.select(axis, 1))


# ---- in place ------------------------------------------------------------------------------------


elu_ = _inplace(elu, alpha="Minus the limit for very negative elements. Default: 1.0.")
selu_ = _inplace(selu)
celu_ = _inplace(celu, alpha="Minus the limit for very negative elements; not 0. Default: 1.0.")
