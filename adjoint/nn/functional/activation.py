"""Activation functions as `torch.nn.functional` has them: with `inplace` where it does."""

from __future__ import annotations

import inspect
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

from ...core.errors import InvalidArgument
from ...core.keywords import unexpected
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...core.tensor_base import TensorBase
from ...ops.elementwise import functions
from ...ops.nn import activation as ops
from ...ops.nn.softmax import LogSoftmax, Softmax, normalised
from ...ops.random.streams import draw_exponential, draw_for
from ...runtime.fused import checking, fused
from ...runtime.public import explaining
from ...tensor import Tensor

__all__ = [
    "celu", "elu", "gumbel_softmax", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
    "log_softmax", "mish", "normalize", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu",
    "softmax", "softmin", "tanh", "threshold",
]  # fmt: skip


def _with_inplace(name: str, example: str) -> Callable[..., Any]:
    """The activation `name` with a last argument `inplace`."""
    compute = getattr(ops, name)
    parameters = list(inspect.signature(compute).parameters.values())
    place = len(parameters)  # of `inplace`
    names = frozenset(each.name for each in parameters)

    def function(*args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        if len(args) == place + 1:
            *args, inplace = args  # type: ignore[assignment]
        if kwargs and not names.issuperset(kwargs):
            raise unexpected(function, kwargs)
        if FOLLOWED and (kwargs or concerns(args)):
            said = overridden(function, args, {"inplace": inplace, **kwargs})
            if said is not ABSENT:
                return said
        if not inplace:
            return compute(*args, **kwargs)
        return in_place(*args, **kwargs)

    def in_place(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        change = getattr(input, f"{name}_", None)
        if change is not None:
            return change(*args, **kwargs)
        return input.copy_(compute(input.clone(), *args, **kwargs))

    last = inspect.Parameter(
        "inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation=bool
    )
    function.__signature__ = inspect.Signature([*parameters, last])  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = name
    described = (inspect.getdoc(compute) or name).partition("\n\nShape")[0]
    function.__doc__ = f"""{textwrap.indent(described, "    ").strip()}
        inplace: Write the result into `input`. Default: False.

    Shape: any; the result has the shape of `input`.
    Dtypes: floating point.
    Errors: those of `adjoint.{name}`; AutogradError for `inplace` on a leaf that requires grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.{name}.html

    >>> {example}
    """
    return function


_X = "ad.nn.functional.{}(ad.tensor([0.0, 8.0])).tolist()\n    "
relu = _with_inplace("relu", _X.format("relu") + "[0.0, 8.0]")
relu6 = _with_inplace("relu6", _X.format("relu6") + "[0.0, 6.0]")
elu = _with_inplace("elu", _X.format("elu") + "[0.0, 8.0]")
selu = _with_inplace("selu", "ad.nn.functional.selu(ad.zeros(1)).tolist()\n    [0.0]")
celu = _with_inplace("celu", _X.format("celu") + "[0.0, 8.0]")
leaky_relu = _with_inplace("leaky_relu", _X.format("leaky_relu") + "[0.0, 8.0]")
silu = _with_inplace("silu", "ad.nn.functional.silu(ad.zeros(1)).tolist()\n    [0.0]")
mish = _with_inplace("mish", "ad.nn.functional.mish(ad.zeros(1)).tolist()\n    [0.0]")
hardtanh = _with_inplace("hardtanh", _X.format("hardtanh") + "[0.0, 1.0]")
hardsigmoid = _with_inplace("hardsigmoid", _X.format("hardsigmoid") + "[0.5, 1.0]")
hardswish = _with_inplace("hardswish", _X.format("hardswish") + "[0.0, 8.0]")
threshold = _with_inplace(
    "threshold", "ad.nn.functional.threshold(ad.ones(1), 2, 5).tolist()\n    [5.0]"
)


@explaining
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
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
        inplace: Write the result into the input. Default: False.

    Shape: any.
    Errors: InvalidArgument where lower > upper; DTypeError for integers; AutogradError for
    `inplace` on a leaf that requires grad.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rrelu.html

    >>> ad.nn.functional.rrelu(ad.ones(1)).tolist()
    [1.0]
    """
    function = ops.rrelu_ if inplace else ops.rrelu
    return function(input, lower, upper, training)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent.

        y = (exp(x) - exp(-x)) / (exp(x) + exp(-x))

    Args:
        input: Values.

    Shape: any.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.tanh.html

    >>> ad.nn.functional.tanh(ad.zeros(1)).tolist()
    [0.0]
    """
    if FOLLOWED and concerns(input):
        if isinstance(input, TensorBase):
            return input.tanh()  # which is what an override is asked for, as in PyTorch
        said = overridden(tanh, (input,), {})
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    return functions.tanh(input)


def sigmoid(input: Tensor) -> Tensor:
    """Logistic function.

        y = 1 / (1 + exp(-x))

    Args:
        input: Values.

    Shape: any.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.sigmoid.html

    >>> ad.nn.functional.sigmoid(ad.zeros(1)).tolist()
    [0.5]
    """
    if FOLLOWED and concerns(input):
        if isinstance(input, TensorBase):
            return input.sigmoid()
        said = overridden(sigmoid, (input,), {})
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    return functions.sigmoid(input)


def _implicit_dim(name: str, ndim: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=4,
    )
    return 0 if ndim in (0, 1, 3) else 1


@checking
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """Softmax: positive numbers along a dimension that sum to one.

        y = exp(x) / sum of exp(x) along `dim`

    Args:
        input: Values.
        dim: Dimension along which is summed. Default: None, which warns: 0 for inputs of 0, 1 and 3
            dimensions, else 1.
        _stacklevel: Accepted for programs written for PyTorch; changes nothing. Default: 3.
        dtype: Data type to which the input is converted first. Default: None, that of the input.

    Shape: any.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html

    >>> ad.nn.functional.softmax(ad.zeros(2), dim=0).tolist()
    [0.5, 0.5]
    """
    if dim is None:
        return ops.softmax(input, _implicit_dim("softmax", input.ndim), dtype)
    return normalised(Softmax, "softmax", input, dim, dtype)


@checking
def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Any:
    """Logarithm of softmax, computed without overflow.

        y = x - log(sum of exp(x) along `dim`)

    Args:
        input: Values.
        dim: Dimension along which is summed. Default: None, which warns: 0 for inputs of 0, 1 and 3
            dimensions, else 1.
        _stacklevel: Accepted for programs written for PyTorch; changes nothing. Default: 3.
        dtype: Data type to which the input is converted first. Default: None, that of the input.

    Shape: any.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.log_softmax.html

    >>> ad.nn.functional.log_softmax(ad.zeros(1), dim=0).tolist()
    [0.0]
    """
    if dim is None:
        return ops.log_softmax(input, _implicit_dim("log_softmax", input.ndim), dtype)
    return normalised(LogSoftmax, "log_softmax", input, dim, dtype)


@checking
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """Softmax of the negated input.

        y = exp(-x) / sum of exp(-x) along `dim`

    Args:
        input: Values.
        dim: Dimension along which is summed. Default: None, which warns: 0 for inputs of 0, 1 and 3
            dimensions, else 1.
        _stacklevel: Accepted for programs written for PyTorch; changes nothing. Default: 3.
        dtype: Data type to which the input is converted first. Default: None, that of the input.

    Shape: any.
    Errors: IndexingError for a dim out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmin.html

    >>> ad.nn.functional.softmin(ad.zeros(2), dim=0).tolist()
    [0.5, 0.5]
    """
    where = _implicit_dim("softmin", input.ndim) if dim is None else dim
    return ops.softmin(input, where, dtype)


@explaining
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Sample of the Gumbel-Softmax distribution (Jang et al., 2017).

        y = softmax((logits + g) / tau) along `dim`, g drawn from the Gumbel distribution

    A `hard` sample has the gradient of the soft one.

    Args:
        logits: Unnormalized log-probabilities.
        tau: Temperature, above 0: the lower, the nearer to a one-hot vector. Default: 1.
        hard: Give a one-hot vector. Default: False.
        eps: Accepted for programs written for PyTorch; changes nothing. Default: 1e-10.
        dim: Dimension of the classes. Default: -1.

    Shape: any.
    Errors: InvalidArgument for a tau that is not positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gumbel_softmax.html

    >>> ad.nn.functional.gumbel_softmax(ad.zeros(3), hard=True).sum().item()
    1.0
    """
    if tau <= 0:
        raise InvalidArgument(f"gumbel_softmax: tau must be positive, got {tau}")
    shape, place = tuple(logits.shape), {"dtype": logits.dtype, "device": logits.device}
    noise = -draw_for((logits,), draw_exponential, shape, **place, like=logits).log()
    soft: Tensor = ops.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = soft.argmax(dim, keepdim=True)
    chosen = soft.detach().new_zeros(soft.shape).scatter_(dim, index, 1.0)
    return chosen - soft.detach() + soft


@fused
def _normalized(input: Any, p: float, dim: int, eps: float) -> Tensor:
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps)


@explaining
def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """Division by the norm along a dimension.

        y = x / max(p-norm of x along `dim`, eps)

    Args:
        input: Values.
        p: Exponent of the norm. Default: 2.0.
        dim: Dimension, or several, along which the norm is. Default: 1.
        eps: Least norm. Default: 1e-12.
        out: Tensor to write the result into. Default: None.

    Shape: any.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html

    >>> ad.nn.functional.normalize(ad.tensor([[3., 4.]]))
    tensor([[0.6000, 0.8000]])
    """
    result = _normalized(input, p, dim, eps)
    return result if out is None else out.copy_(result)
