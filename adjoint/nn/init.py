"""Initial values of parameters: every function fills its tensor in place and returns it.

Source: https://docs.pytorch.org/docs/stable/nn.init.html
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..autograd.modes import no_grad
from ..core.errors import InvalidArgument, ShapeError
from ..core.mode import as_set
from ..ops.create.creation import eye as identity
from ..ops.create.like import empty_like
from ..ops.elementwise.comparison import where
from ..ops.linalg.matrix_factors import qr
from ..ops.random.generators import torch_generator
from ..ops.random.random import randperm
from ..runtime.public import naming
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..ops.argument_types import Random

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip


def _without_grad(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(function)
    @as_set
    def fill(*args: Any, **kwargs: Any) -> Tensor:
        with no_grad():
            return function(*args, **kwargs)

    return fill


_GAINS: dict[str, Callable[[Any], float]] = {
    **dict.fromkeys(
        ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
         "conv_transpose3d", "sigmoid"),
        lambda slope: 1.0,
    ),
    "tanh": lambda slope: 5.0 / 3,
    "relu": lambda slope: math.sqrt(2.0),
    "leaky_relu": lambda slope: math.sqrt(2.0 / (1 + (0.01 if slope is None else slope) ** 2)),
    "selu": lambda slope: 3.0 / 4,
}  # fmt: skip


@naming
def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """Factor that keeps the variance of signals behind a nonlinearity.

        linear, conv*, sigmoid    1
        tanh                      5 / 3
        relu                      sqrt(2)
        leaky_relu                sqrt(2 / (1 + slope^2))
        selu                      3 / 4

    Args:
        nonlinearity: Name of the nonlinearity, as in the list.
        param: Slope of "leaky_relu" below zero. Default: None, 0.01.

    Errors: InvalidArgument for an unknown name or a slope that is no number.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.calculate_gain

    >>> round(ad.nn.init.calculate_gain("relu"), 4)
    1.4142
    """
    if nonlinearity not in _GAINS:
        raise InvalidArgument(
            f"calculate_gain: Unsupported nonlinearity {nonlinearity}; known: {', '.join(_GAINS)}"
        )
    if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
        raise InvalidArgument(f"calculate_gain: negative_slope {param} not a valid number")
    return _GAINS[nonlinearity](param)


@_without_grad
def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Random | None = None
) -> Tensor:
    """Fill with numbers drawn uniformly from an interval.

        x ~ U[a, b)

    Args:
        tensor: Tensor to fill, in place; it is returned.
        a: Lower bound. Default: 0.0.
        b: Upper bound. Default: 1.0.
        generator: Source of the random numbers. Default: None, the default one.

    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.uniform_

    >>> bool((ad.nn.init.uniform_(ad.empty(5), 2, 3) >= 2).all())
    True
    """
    return tensor.uniform_(a, b, generator=generator)


def uniform_bound_(tensor: Tensor, fan_in: int) -> Tensor:
    """Fill uniformly within 1 / sqrt(fan_in), as layers do for their biases.

        x ~ U[-1 / sqrt(fan_in), 1 / sqrt(fan_in)); 0 where fan_in is 0

    Args:
        tensor: Tensor to fill, in place; it is returned.
        fan_in: Number of inputs of an output.
    """
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform_(tensor, -bound, bound)


@_without_grad
def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Random | None = None
) -> Tensor:
    """Fill with normally distributed numbers.

        x ~ N(mean, std^2)

    Args:
        tensor: Tensor to fill, in place; it is returned.
        mean: Mean. Default: 0.0.
        std: Standard deviation. Default: 1.0.
        generator: Source of the random numbers. Default: None, the default one.

    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.normal_

    >>> ad.nn.init.normal_(ad.empty(2, 3)).shape
    adjoint.Size([2, 3])
    """
    return tensor.normal_(mean, std, generator=generator)


@_without_grad
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Random | None = None,
) -> Tensor:
    """Fill with normally distributed numbers within [a, b].

        x ~ N(mean, std^2), given that a <= x <= b

    A mean that is more than 2 std outside of [a, b] warns.

    Args:
        tensor: Tensor to fill, in place; it is returned.
        mean: Mean before values are cut off. Default: 0.0.
        std: Standard deviation before values are cut off. Default: 1.0.
        a: Lower bound. Default: -2.0.
        b: Upper bound. Default: 2.0.
        generator: Source of the random numbers. Default: None, the default one.

    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.trunc_normal_

    >>> bool((ad.nn.init.trunc_normal_(ad.empty(9), a=-1, b=1).abs() <= 1).all())
    True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of "
            "values may be incorrect.",
            stacklevel=3,
        )

    if torch_generator(generator, tensor.device) is not None:
        return _truncated(tensor, mean, std, a, b, generator)

    def normal_cdf(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = normal_cdf((a - mean) / std), normal_cdf((b - mean) / std)
    tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
    tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean)
    return tensor.clamp_(a, b)


def _truncated(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Any:
    """As PyTorch does: what lies outside is drawn again; where that is most, points of [a, b] are
    taken as often as their density says.
    """

    def below(x: float) -> float:
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    if below(b) - below(a) > 0.3:
        low, high = tensor.new_tensor(a).item(), tensor.new_tensor(b).item()
        result: Any = tensor.normal_(mean, std, generator=generator)
        while bool((outside := (result < low) | (result > high)).any()):
            more = empty_like(result).normal_(mean, std, generator=generator)
            result = where(outside, more, result)
        return result if result is tensor else tensor.copy_(result)
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    result, waiting = tensor, None
    while waiting is None or bool(waiting.any()):
        points = empty_like(tensor).uniform_(a, b, generator=generator)
        result = points if waiting is None else where(waiting, points, result)
        density = points.sub(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        refused = empty_like(tensor).uniform_(generator=generator).log_() > density
        waiting = refused if waiting is None else waiting & refused
    return tensor.copy_(result)


@_without_grad
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value.

        x = val

    Args:
        tensor: Tensor to fill, in place; it is returned.
        val: Value.

    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.constant_

    >>> ad.nn.init.constant_(ad.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

        x = 1

    Args:
        tensor: Tensor to fill, in place; it is returned.

    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.ones_

    >>> ad.nn.init.ones_(ad.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

        x = 0

    Args:
        tensor: Tensor to fill, in place; it is returned.

    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.zeros_

    >>> ad.nn.init.zeros_(ad.empty(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


@_without_grad
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity.

        x[i, j] = 1 where i = j, 0 elsewhere

    Args:
        tensor: Matrix to fill, in place; it is returned.

    Errors: ShapeError for anything but a matrix.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.eye_

    >>> ad.nn.init.eye_(ad.empty(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if tensor.ndim != 2:
        raise ShapeError(
            f"eye_: Only tensors with 2 dimensions are supported, got {tuple(tensor.shape)}"
        )
    return tensor.copy_(identity(*tensor.shape))


@_without_grad
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it keeps its input channels.

        x[c, c, middle] = 1 in each group, 0 elsewhere

    Args:
        tensor: Weight (out, in, *kernel) to fill, in place; it is returned.
        groups: Number of groups of the convolution. Default: 1.

    Errors: ShapeError unless the tensor has 3 to 5 dimensions and `groups` divides the first.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.dirac_

    >>> ad.nn.init.dirac_(ad.empty(1, 1, 3)).tolist()
    [[[0.0, 1.0, 0.0]]]
    """
    if not 3 <= tensor.ndim <= 5:
        raise ShapeError(
            f"dirac_: Only tensors with 3, 4, or 5 dimensions are supported, got "
            f"{tuple(tensor.shape)}"
        )
    if tensor.shape[0] % groups:
        raise ShapeError(f"dirac_: dim 0, {tensor.shape[0]}, must be divisible by groups={groups}")
    tensor.zero_()
    out_channels = tensor.shape[0] // groups
    center = tuple(size // 2 for size in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(out_channels, tensor.shape[1])):
            tensor[(group * out_channels + channel, channel, *center)] = 1
    return tensor


def _fans(tensor: Tensor, name: str) -> tuple[int, int]:
    """How many inputs an output has, and how many outputs an input has."""
    if tensor.ndim < 2:
        raise ShapeError(
            f"{name}: Fan in and fan out can not be computed for tensor with fewer than 2 "
            f"dimensions, got {tuple(tensor.shape)}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out: Callable[[Tensor], tuple[int, int]] = functools.partial(
    _fans, name="_calculate_fan_in_and_fan_out"
)


@naming
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Random | None = None) -> Tensor:
    """Fill uniformly, so that variances stay in both directions (Glorot and Bengio, 2010).

        x ~ U(-b, b), b = gain sqrt(6 / (fan_in + fan_out))

    fan_in is the second size and fan_out the first, both times the kernel's size.

    Args:
        tensor: Tensor to fill, in place; it is returned.
        gain: Factor of the values. Default: 1.0.
        generator: Source of the random numbers. Default: None, the default one.

    Errors: ShapeError for fewer than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.xavier_uniform_

    >>> bool((ad.nn.init.xavier_uniform_(ad.empty(3, 3)).abs() <= 1).all())
    True
    """
    fan_in, fan_out = _fans(tensor, "xavier_uniform_")
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


@naming
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Random | None = None) -> Tensor:
    """Fill normally, so that variances stay in both directions (Glorot and Bengio, 2010).

        x ~ N(0, std^2), std = gain sqrt(2 / (fan_in + fan_out))

    fan_in is the second size and fan_out the first, both times the kernel's size.

    Args:
        tensor: Tensor to fill, in place; it is returned.
        gain: Factor of the values. Default: 1.0.
        generator: Source of the random numbers. Default: None, the default one.

    Errors: ShapeError for fewer than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.xavier_normal_

    >>> ad.nn.init.xavier_normal_(ad.empty(3, 3)).shape
    adjoint.Size([3, 3])
    """
    fan_in, fan_out = _fans(tensor, "xavier_normal_")
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str, name: str = "_calculate_correct_fan") -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise InvalidArgument(
            f"{name}: Mode {mode} not supported, please use one of ['fan_in', 'fan_out']"
        )
    return _fans(tensor, name)[mode == "fan_out"]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str, name: str) -> float:
    fan = _calculate_correct_fan(tensor, mode, name)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


@naming
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Random | None = None,
) -> Tensor:
    """Fill uniformly, so that signals keep their variance behind a nonlinearity (He et al., 2015).

        x ~ U(-b, b), b = gain sqrt(3 / fan), gain = calculate_gain(nonlinearity, a)

    fan_in is the second size and fan_out the first, both times the kernel's size. A tensor without
    elements is returned with a warning.

    Args:
        tensor: Tensor to fill, in place; it is returned.
        a: Slope of "leaky_relu" below zero. Default: 0.
        mode: "fan_in" to keep the variance forward, "fan_out" backward. Default: "fan_in".
        nonlinearity: Name that `calculate_gain` knows. Default: "leaky_relu".
        generator: Source of the random numbers. Default: None, the default one.

    Errors: ShapeError for fewer than 2 dimensions; InvalidArgument for an unknown mode or
    nonlinearity.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.kaiming_uniform_

    >>> bool((ad.nn.init.kaiming_uniform_(ad.empty(3, 6)).abs() <= 1).all())
    True
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_uniform_")
    return uniform_(tensor, -bound, bound, generator)


@naming
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Random | None = None,
) -> Tensor:
    """Fill normally, so that signals keep their variance behind a nonlinearity (He et al., 2015).

        x ~ N(0, std^2), std = gain / sqrt(fan), gain = calculate_gain(nonlinearity, a)

    fan_in is the second size and fan_out the first, both times the kernel's size. A tensor without
    elements is returned with a warning.

    Args:
        tensor: Tensor to fill, in place; it is returned.
        a: Slope of "leaky_relu" below zero. Default: 0.
        mode: "fan_in" to keep the variance forward, "fan_out" backward. Default: "fan_in".
        nonlinearity: Name that `calculate_gain` knows. Default: "leaky_relu".
        generator: Source of the random numbers. Default: None, the default one.

    Errors: ShapeError for fewer than 2 dimensions; InvalidArgument for an unknown mode or
    nonlinearity.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.kaiming_normal_

    >>> ad.nn.init.kaiming_normal_(ad.empty(3, 6), mode="fan_out").shape
    adjoint.Size([3, 6])
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_normal_")
    return normal_(tensor, 0.0, std, generator)


@_without_grad
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Random | None = None) -> Tensor:
    """Fill with a matrix whose rows or columns are orthonormal (Saxe et al., 2014).

        x = gain Q, with Q from the QR decomposition of a normally distributed matrix

    Dimensions behind the first are taken as one.

    Args:
        tensor: Tensor to fill, in place; it is returned.
        gain: Factor of the values. Default: 1.
        generator: Source of the random numbers. Default: None, the default one.

    Errors: ShapeError for fewer than 2 dimensions.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.orthogonal_

    >>> q = ad.nn.init.orthogonal_(ad.empty(3, 3))
    >>> bool(((q @ q.T - ad.eye(3)).abs() < 1e-5).all())
    True
    """
    if tensor.ndim < 2:
        raise ShapeError(
            f"orthogonal_: Only tensors with 2 or more dimensions are supported, got "
            f"{tuple(tensor.shape)}"
        )
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    drawn = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
    q, r = qr(drawn.T if rows < columns else drawn)
    q = q * r.diagonal().sign()  # makes the distribution uniform (Mezzadri, 2006)
    q = q.T if rows < columns else q
    return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


@_without_grad
def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Random | None = None
) -> Tensor:
    """Fill a matrix normally, then set a share of each column to zero (Martens, 2010).

        x ~ N(0, std^2), but 0 at ceil(sparsity rows) places of each column

    Args:
        tensor: Matrix to fill, in place; it is returned.
        sparsity: Share of zeros in each column.
        std: Standard deviation of the others. Default: 0.01.
        generator: Source of the random numbers. Default: None, the default one.

    Errors: ShapeError for anything but a matrix.
    Source: https://docs.pytorch.org/docs/stable/nn.init.html#torch.nn.init.sparse_

    >>> (ad.nn.init.sparse_(ad.empty(4, 2), 0.5) == 0).sum(0).tolist()
    [2, 2]
    """
    if tensor.ndim != 2:
        raise ShapeError(
            f"sparse_: Only tensors with 2 dimensions are supported, got {tuple(tensor.shape)}"
        )
    rows, columns = tensor.shape
    tensor.normal_(0, std, generator=generator)
    for column in range(columns):
        zeros = randperm(rows, generator=generator)[: math.ceil(sparsity * rows)]
        tensor[zeros, column] = 0
    return tensor


def _old(new: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function under its name without `_`, which PyTorch deprecates."""
    name = new.__name__.rstrip("_")

    @functools.wraps(new)
    def fill(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return new(*args, **kwargs)

    fill.__name__ = fill.__qualname__ = name
    return fill


uniform, normal, constant, eye = map(_old, (uniform_, normal_, constant_, eye_))
dirac, sparse, orthogonal = map(_old, (dirac_, sparse_, orthogonal_))
xavier_uniform, xavier_normal = map(_old, (xavier_uniform_, xavier_normal_))
kaiming_uniform, kaiming_normal = map(_old, (kaiming_uniform_, kaiming_normal_))
