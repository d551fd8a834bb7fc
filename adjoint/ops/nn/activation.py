"""Activation functions. Those whose composition would keep several tensors alive for backward, or
lose precision, are primitives; the others are compositions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.mistakes import assert_tensor
from ...core.op import Sample
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...core.spec import Spec, normalize_axis
from ...core.types import Tensor
from ...eager.dispatch import apply
from ...eager.fused import checking, fused
from ...eager.public import explaining, public
from ..elementwise.comparison import clamp, ge, gt, le, lt, where
from ..elementwise.functions import abs, exp, sigmoid, tanh
from ..elementwise.pointwise import (
    ANALYTIC,
    NUMBERS,
    REAL,
    Analytic,
    Elementwise,
    Floating,
    conj,
    unary,
)
from ..promotion import cast
from ..random.random import followed, rand_like, torch_generator
from ..samples import FLOATS, array, binary_samples, unary_samples
from ..shape.sizes import hold_sizes
from ..special.special import erf
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


class Relu(Elementwise):
    """max(x, 0); NaN stays NaN.

    A primitive because the gradient reads only the output: nothing else is kept, and the in-place
    form works.
    """

    kinds = REAL
    exact = True
    samples = unary_samples(dtypes=(*FLOATS, dt.int64))

    def compute(self, xp: Any, x: Any) -> Any:
        """The larger of x and 0."""
        return xp.maximum(x, x.dtype.type(0))

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g, but 0 where y <= 0 (so 0 at 0, and g at NaN)."""
        return (apply(_RELU_GRADIENT, g, y),)

    def gradient_over(self, xp: Any, g: Any, y: Any) -> None:
        """The same: what is 0 is written, the rest stays."""
        xp.zero_where(g, y <= 0)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """By selection."""
        return np.where(np.asarray(x <= 0), 0, np.asarray(x, np.float64))


class ReluGradient(Elementwise):
    """g where y > 0 (or NaN), otherwise 0.

    A primitive because the result depends on y, with gradient 0: second derivatives of a
    piecewise linear network are zeros, not missing.
    """

    kinds = REAL
    needs = ("x2", "spec2")
    exact = True
    samples = binary_samples(number=False)

    def compute(self, xp: Any, g: Any, y: Any) -> Any:
        """By selection: an infinite g does not become NaN."""
        return xp.where_not_above_zero(y, g.dtype.type(0), g)

    def gradient(self, g: Tensor, y: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The same for g; 0 for y."""
        return (lambda: apply(self, g, y), lambda: g.new_zeros(spec.shape))

    def reference(self, g: Any, y: Any) -> Any:
        """By a product."""
        return np.asarray(g, np.float64) * (np.asarray(y, np.float64) > 0)


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
        """By masks."""
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
        """By SciPy's distribution function, or by the logistic form of tanh."""
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
        """By tanh."""
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
        """By logaddexp."""
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
        """With tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2)."""
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


_RELU_GRADIENT, _SILU, _MISH, _SOFTPLUS = ReluGradient(), Silu(), Mish(), Softplus()
_relu = unary(Relu(), floating=False, method=False)
_LOG_SIGMOID = Softplus(1.0, float("inf"))


# ---- rectifiers ----------------------------------------------------------------------------------


@public(inplace=True)
def relu(input: Tensor) -> Tensor:
    """max(input, 0), elementwise; the gradient at 0 is 0.

    Shape: any; the result has the shape of `input`.
    Dtypes: real numbers, kept.
    Errors: DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.relu.html

    >>> ad.relu(ad.tensor([-1., 2.]))
    tensor([0., 2.])
    """
    if FOLLOWED and concerns(input):
        said = overridden(relu, (input,), {})
        if said is not ABSENT:
            return said
    return _relu(input)


@public(method=False, inplace=True)
@checking
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """input limited to [min_val, max_val]; the gradient is 0 at and beyond both ends.

    Shape: any; the result has the shape of `input`.
    Dtypes: real numbers, kept.
    Errors: InvalidArgument where min_val > max_val; DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardtanh.html

    >>> ad.hardtanh(ad.tensor([-2., 0.5, 2.]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    assert_dtype("hardtanh", input, REAL)
    if min_val > max_val:
        raise InvalidArgument(
            f"hardtanh: min_val cannot be greater than max_val, got {min_val} > {max_val}; "
            "swap them"
        )
    if input._data.dtype.kind in "iu":
        min_val, max_val = int(min_val), int(max_val)
    return _hardtanh, input, min_val, max_val


@fused
def _hardtanh(input: Tensor, low: float, high: float) -> Tensor:
    return where(ge(input, high), high, where(le(input, low), low, input))


@public(method=False, inplace=True)
def relu6(input: Tensor) -> Tensor:
    """input limited to [0, 6]; the gradient is 0 at and beyond both ends.

    Shape: any; the result has the shape of `input`.
    Dtypes: real numbers, kept.
    Errors: DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.relu6.html

    >>> ad.relu6(ad.tensor([-1., 3., 8.]))
    tensor([0., 3., 6.])
    """
    assert_dtype("relu6", input, REAL)
    return hardtanh(input, 0.0, 6.0)


@public(method=False, inplace=True)
@checking
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Any:
    """input where it is positive, otherwise negative_slope * input.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.leaky_relu.html

    >>> ad.leaky_relu(ad.tensor([-1., 2.]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    assert_dtype("leaky_relu", input)
    return _leaky_relu, input, negative_slope


@fused
def _leaky_relu(input: Tensor, slope: float) -> Tensor:
    return where(gt(input, 0), input, input * slope)


@public()
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where it is positive, otherwise weight * input.

    Shapes: `weight` has one element, or one for each channel (dimension 1) of `input`.
    Dtypes: floating point, the same for both.
    Errors: ShapeError where `weight` does not fit; DTypeError where the dtypes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.prelu.html

    >>> ad.prelu(ad.tensor([-1., 2.]), ad.tensor([0.25]))
    tensor([-0.2500,  2.0000])
    """
    assert_dtype("prelu", input)
    assert_dtype("prelu", weight)
    if weight.dtype is not input.dtype:
        raise DTypeError(
            f"prelu: type promotion is not supported, got {input.dtype} and {weight.dtype}; "
            "convert one with .to()"
        )
    if weight.ndim > 1:
        raise ShapeError(
            f"prelu: expected `weight` to be a scalar or 1D tensor, got {tuple(weight.shape)}; "
            "reshape it"
        )
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if not input.ndim or channels != weight.numel():
            raise ShapeError(
                f"prelu: weight has {weight.numel()} elements, input of shape "
                f"{tuple(input.shape)} has {channels} channels; give one weight, or one for each "
                "channel"
            )
        weight = weight.reshape((-1,) + (1,) * (input.ndim - 2))
    elif weight.ndim > input.ndim:
        weight = weight.reshape(())
    positive = gt(input, 0)
    # The product sees 0 in place of what is positive: an infinity there would spoil its gradient.
    return where(positive, input, weight * where(positive, 0, input))


def _slopes(input: Any, lower: float, upper: float) -> Any:
    """Uniform numbers for `input`; PyTorch's generator draws them where it is not positive only."""
    own = torch_generator(None, input.device)
    if own is None:
        return rand_like(input) * (upper - lower) + lower
    negative = le(input.detach(), 0)
    count = int(negative.sum())
    drawn = followed(own, input.device, "uniform", (lower, upper), (count,), dt.float64)
    return input.new_zeros(input.shape).masked_scatter(negative, cast(drawn, input.dtype))


@explaining
@public(method=False, inplace=True)
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """leaky_relu whose slope is drawn from [lower, upper] for each element where `training`, and
    is their mean otherwise.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: InvalidArgument where lower > upper; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rrelu.html

    >>> ad.rrelu(ad.tensor([-1., 2.]), 0.1, 0.3)
    tensor([-0.2000,  2.0000])
    """
    assert_dtype("rrelu", input)
    if lower > upper:
        raise InvalidArgument(
            f"rrelu: lower bound should be less than or equal to the upper bound, got {lower} > "
            f"{upper}; swap them"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slope = _slopes(input, lower, upper)
    return where(gt(input, 0), input, input * slope)


@public(method=False, inplace=True)
@checking
def threshold(input: Tensor, threshold: float, value: float) -> Any:
    """input where it is above `threshold`, otherwise `value`.

    Shape: any; the result has the shape of `input`.
    Dtypes: real numbers, kept.
    Errors: DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.threshold.html

    >>> ad.threshold(ad.tensor([0.5, 2.]), 1, 7)
    tensor([7., 2.])
    """
    assert_dtype("threshold", input, REAL)
    if input._data.dtype.kind in "iu":
        threshold, value = int(threshold), int(value)
    return _threshold, input, threshold, value


@fused
def _threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    return where(le(input, threshold), value, input)


# ---- smooth units --------------------------------------------------------------------------------


@public(method=False, inplace=True)
@checking
def elu(input: Tensor, alpha: float = 1.0) -> Any:
    """input where it is positive, otherwise alpha * (exp(input) - 1).

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
    """elu scaled so that layers keep mean 0 and variance 1 (Klambauer et al., 2017).

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
    """input where it is positive, otherwise alpha * (exp(input / alpha) - 1).

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
    """input * Phi(input), Phi the normal distribution function, or its approximation by "tanh".

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
    """input * sigmoid(input), also called swish.

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
    """input * tanh(softplus(input)).

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
    """log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold.

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
    """log(sigmoid(input)), without overflow.

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
    """input / (1 + |input|).

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
    """input - tanh(input).

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
    """a * sigmoid(b), where a and b are the halves of input along `dim`.

    Shapes: (..., 2 n, ...) -> (..., n, ...).
    Dtypes: floating point, kept.
    Errors: ShapeError where the size along `dim` is odd; IndexingError for a dim out of range.
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


# ---- piecewise linear ----------------------------------------------------------------------------


@public(method=False, inplace=True)
@checking
def hardsigmoid(input: Tensor) -> Any:
    """relu6(input + 3) / 6.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardsigmoid.html

    >>> ad.hardsigmoid(ad.tensor([-4., 0., 4.]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    assert_dtype("hardsigmoid", input)
    return _hardsigmoid, input


@fused
def _hardsigmoid(input: Tensor) -> Tensor:
    # At the ends, and at NaN, the gradient is 0.
    inside = where(lt(input, 3), (input + 3) / 6, math.nan)
    return where(ge(input, 3), 1, where(le(input, -3), 0, inside))


@public(method=False, inplace=True)
@checking
def hardswish(input: Tensor) -> Any:
    """input * relu6(input + 3) / 6.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardswish.html

    >>> ad.hardswish(ad.tensor([-4., 1., 4.]))
    tensor([-0.0000,  0.6667,  4.0000])
    """
    assert_dtype("hardswish", input)
    return _hardswish, input


@fused
def _hardswish(input: Tensor) -> Tensor:
    # The gradient is 0 at the lower end, and 1 at the upper end and at NaN.
    inside = gt(input, -3) & lt(input, 3)
    x = where(inside, input, 0)
    return where(inside, x * (x + 3) / 6, where(le(input, -3), input * 0, input))


@public()
@checking
def hardshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """input where |input| > lambd, otherwise 0.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardshrink.html

    >>> ad.hardshrink(ad.tensor([-1., 0.3]))
    tensor([-1.,  0.])
    """
    assert_dtype("hardshrink", input)
    return _hardshrink, input, lambd


@fused
def _hardshrink(input: Tensor, lambd: float) -> Tensor:
    return where(ge(input, -lambd) & le(input, lambd), 0, input)


@public(method=False)
@checking
def softshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """input moved towards 0 by lambd; 0 where |input| <= lambd.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point, kept.
    Errors: InvalidArgument for a negative lambd; DTypeError for other dtypes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softshrink.html

    >>> ad.softshrink(ad.tensor([-1., 0.3]))
    tensor([-0.5000,  0.0000])
    """
    assert_dtype("softshrink", input)
    if not lambd >= 0:
        raise InvalidArgument(f"softshrink: lambda must not be negative, got {lambd}; use {-lambd}")
    return _softshrink, input, lambd


@fused
def _softshrink(input: Tensor, lambd: float) -> Tensor:
    return input - clamp(input, -lambd, lambd)


# ---- in place ------------------------------------------------------------------------------------


def _inplace(function: Any) -> Any:
    """The function form of the in-place method, as torch.nn.functional has it."""
    name = f"{function.__name__}_"

    def change(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        assert_tensor(name, input)
        return getattr(input, name)(*args, **kwargs)

    change.__name__ = change.__qualname__ = name
    change.__doc__ = f"""In-place version of `{function.__name__}`: changes `input` and returns it.

    Shape: any.
    Errors: those of `{function.__name__}`; AutogradError for a leaf that requires grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.{name}.html

    >>> x = ad.tensor([-1.0, 2.0])
    >>> ad.{name}(x{", 0.0, 0.0" if name == "threshold_" else ""}) is x
    True
    """
    return change


relu_ = _inplace(relu)
leaky_relu_ = _inplace(leaky_relu)
elu_ = _inplace(elu)
selu_ = _inplace(selu)
celu_ = _inplace(celu)
hardtanh_ = _inplace(hardtanh)
threshold_ = _inplace(threshold)
rrelu_ = _inplace(rrelu)
