"""Piecewise activations: rectifiers, and the identity clipped, gated or shrunk by parts."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, InvalidArgument, ShapeError
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...core.spec import Spec
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ...runtime.fused import checking, fused
from ...runtime.public import explaining, public
from ..create.values import convert_number
from ..elementwise.comparison import clamp, where
from ..elementwise.pointwise import REAL, Elementwise, unary
from ..elementwise.relational import ge, gt, le, lt
from ..promotion import cast
from ..random.generators import torch_generator
from ..random.random import rand_like
from ..random.streams import followed
from ..samples import FLOATS, binary_samples, unary_samples
from .softmax import assert_dtype

__all__ = [
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_",
    "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "softshrink", "threshold", "threshold_",
]  # fmt: skip


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
        """Writes the gradient over g: zeros where y is 0."""
        xp.zero_where(g, y <= 0)

    @np.errstate(all="ignore")
    def reference(self, x: Any) -> Any:
        """Reference value by selection."""
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
        """Selection of g where y is positive: an infinite g does not become NaN."""
        return xp.where_not_above_zero(y, g.dtype.type(0), g)

    def gradient(self, g: Tensor, y: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The op itself for g; 0 for y."""
        return (lambda: apply(self, g, y), lambda: g.new_zeros(spec.shape))

    def reference(self, g: Any, y: Any) -> Any:
        """Reference value by a product."""
        return np.asarray(g, np.float64) * (np.asarray(y, np.float64) > 0)


_RELU_GRADIENT = ReluGradient()
_relu = unary(Relu(), floating=False, method=False)


# ---- rectifiers ----------------------------------------------------------------------------------


@public(inplace=True)
def relu(input: Tensor) -> Tensor:
    """Rectified linear unit.

        y = max(0, x)

    The gradient at 0 is 0.

    Args:
        input: Values.

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
    """Bounds for all values, a piecewise linear hyperbolic tangent.

        y = min(max(min_val, x), max_val)

    The gradient is 0 at both bounds and beyond.

    Args:
        input: Values.
        min_val: Lower bound. Default: -1.0.
        max_val: Upper bound. Default: 1.0.

    Shape: any; the result has the shape of `input`.
    Dtypes: real numbers, kept.
    Errors: InvalidArgument where min_val > max_val; DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardtanh.html

    >>> ad.hardtanh(ad.tensor([-2., 0.5, 2.]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    assert_dtype("hardtanh", input, REAL)
    if min_val < 0 and input.dtype.category == 1 and not input.dtype.is_signed:
        raise DTypeError(
            f"hardtanh: cannot do hardtanh on an unsigned type with negative limits, got "
            f"{input.dtype} and {min_val}; convert the input with .int()"
        )
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
    """Rectified linear unit that is bounded by 6.

        y = min(max(0, x), 6)

    The gradient is 0 at both bounds and beyond.

    Args:
        input: Values.

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
    """Rectified linear unit with a small slope below zero.

        y = x                     where x > 0
        y = negative_slope x      elsewhere

    Args:
        input: Values.
        negative_slope: Slope below zero. Default: 0.01.

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
    """Leaky ReLU with learned slopes (He et al., 2015).

        y = x              where x > 0
        y = weight x       elsewhere

    Args:
        input: Values.
        weight: Slopes: one, or one for each channel.

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
    """Leaky ReLU whose slopes are drawn at random in training (Xu et al., 2015).

        y = x            where x > 0
        y = slope x      elsewhere

    In training each element has a slope of its own, uniform in [lower, upper); otherwise it is
    (lower + upper) / 2.

    Args:
        input: Values.
        lower: Least slope. Default: 1/8.
        upper: Largest slope. Default: 1/3.
        training: Whether to draw. Default: False.

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


@public(method=False, inplace=True, out=True)
@checking
def threshold(input: Tensor, threshold: float, value: float) -> Any:
    """Values above a threshold, and a constant in the place of the others.

        y = x          where x > threshold
        y = value      elsewhere

    Args:
        input: Values.
        threshold: Threshold.
        value: Value elsewhere.

    Shape: any; the result has the shape of `input`.
    Dtypes: real numbers, kept.
    Errors: DTypeError for bool and complex.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.threshold.html

    >>> ad.threshold(ad.tensor([0.5, 2.]), 1, 7)
    tensor([7., 2.])
    """
    assert_dtype("threshold", input, REAL)
    if input._data.dtype.kind in "iu":
        threshold, value = (
            convert_number(number, input.dtype, "threshold") for number in (threshold, value)
        )
    return _threshold, input, threshold, value


@fused
def _threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    return where(le(input, threshold), value, input)


# ---- piecewise linear ----------------------------------------------------------------------------


@public(method=False, inplace=True)
@checking
def hardsigmoid(input: Tensor) -> Any:
    """Piecewise linear sigmoid.

        y = min(max(0, x + 3), 6) / 6

    Args:
        input: Values.

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
    """Piecewise form of SiLU (Howard et al., 2019).

        y = x min(max(0, x + 3), 6) / 6

    Args:
        input: Values.

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


@public(out=True)
@checking
def hardshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """Zero in the place of small values.

        y = x      where |x| > lambd
        y = 0      elsewhere

    Args:
        input: Values.
        lambd: Largest value that becomes zero. Default: 0.5.

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
    """Move of all values towards zero, as far as to it.

        y = x - lambd      where x > lambd
        y = x + lambd      where x < -lambd
        y = 0              elsewhere

    Args:
        input: Values.
        lambd: How far values move, at least 0. Default: 0.5.

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


def _inplace(function: Any, **arguments: str) -> Any:
    """The function form of the in-place method, as torch.nn.functional has it. `arguments` say
    what those besides the input are.
    """
    name = f"{function.__name__}_"
    others = "".join(f"\n        {each}: {what}" for each, what in arguments.items())

    def change(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        assert_tensor(name, input)
        return getattr(input, name)(*args, **kwargs)

    change.__name__ = change.__qualname__ = name
    change.__module__ = function.__module__
    change.__doc__ = f"""In-place version of `{function.__name__}`: changes `input` and returns it.

        input = {function.__name__}(input, ...)

    Args:
        input: Tensor to change.{others}

    Shape: any.
    Errors: those of `{function.__name__}`; AutogradError for a leaf that requires grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.{name}.html

    >>> x = ad.tensor([-1.0, 2.0])
    >>> ad.{name}(x{", 0.0, 0.0" if name == "threshold_" else ""}) is x
    True
    """
    functools.update_wrapper(change, function, (), ())  # its signature
    return change


relu_ = _inplace(relu)
leaky_relu_ = _inplace(leaky_relu, negative_slope="Slope below zero. Default: 0.01.")
hardtanh_ = _inplace(
    hardtanh, min_val="Least value. Default: -1.0.", max_val="Largest value. Default: 1.0."
)
threshold_ = _inplace(threshold, threshold="Threshold.", value="Value elsewhere.")
rrelu_ = _inplace(
    rrelu,
    lower="Least slope. Default: 1/8.",
    upper="Largest slope. Default: 1/3.",
    training="Whether slopes are drawn. Default: False.",
)
