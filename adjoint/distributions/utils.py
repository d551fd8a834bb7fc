"""Helpers of distributions: parameters brought together, probabilities and their logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..autograd.modes import enable_grad
from ..core.argument_errors import misplaced
from ..core.dtype import finfo, get_default_dtype
from ..core.errors import InvalidArgument
from ..core.spec import broadcast_shapes
from ..ops.create.creation import tensor
from ..ops.create.like import zeros_like
from ..ops.nn.softmax import log_softmax, softmax
from ..ops.random.random import rand, randn
from ..ops.shape.triangles import tril_indices
from ..ops.special.special import logaddexp
from ..tensor import Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "euler_constant", "lazy_property", "logits_to_probs",
    "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape.

    >>> [x.shape for x in ad.distributions.utils.broadcast_all(ad.zeros(3), 1.0)]
    [adjoint.Size([3]), adjoint.Size([3])]
    """
    for v in values:
        if not isinstance(v, (Tensor, int, float)):
            raise InvalidArgument(str(misplaced(v, "broadcast_all", due="a tensor or a number")))
    like = next((v for v in values if isinstance(v, Tensor)), None)
    place: dict[str, Any] = {"dtype": get_default_dtype()}
    if like is not None:
        place = {"dtype": like.dtype, "device": like.device}
    made = [v if isinstance(v, Tensor) else tensor(v, **place) for v in values]
    shape = broadcast_shapes(*(v.shape for v in made), op="distribution")
    return tuple(v.expand(shape) for v in made)


def sum_rightmost(value: Any, count: int) -> Any:
    """`value` summed over its last `count` dimensions."""
    return value.sum(tuple(range(-count, 0))) if count else value


_sum_rightmost = sum_rightmost  # as packages ask for it


def softplus(x: Any) -> Any:
    """log(1 + e^x), without overflow."""
    return logaddexp(x, zeros_like(x))


def open_uniform(shape: Any, like: Any) -> Any:
    """Uniform draws from (0, 1), never 0, in the dtype and on the device of `like`."""
    return rand(shape, dtype=like.dtype, device=like.device).clamp(min=finfo(like.dtype).tiny)


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    """Standard normal draws, as packages ask for them."""
    return randn(shape, dtype=dtype, device=device)


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """Matrices whose triangle, up to the diagonal `diag`, holds a vector row by row; else zeros.

    >>> ad.distributions.utils.vec_to_tril_matrix(ad.tensor([1., 2., 3.]))
    tensor([[1., 0.],
            [2., 3.]])
    """
    count = vec.shape[-1]
    n = (
        -(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5
    ) / 2
    size = round(n)
    if n - size > finfo(vec.dtype).eps:
        raise InvalidArgument(
            f"The size of last dimension is {count} which cannot be expressed as the lower "
            "triangular part of a square D x D matrix."
        )
    rows, columns = tril_indices(size, size, diag, device=vec.device)
    matrix = vec.new_zeros((*vec.shape[:-1], size, size))
    matrix[..., rows, columns] = vec
    return matrix


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The triangle of matrices, up to the diagonal `diag`, row by row.

    >>> ad.distributions.utils.tril_matrix_to_vec(ad.tensor([[1., 0.], [2., 3.]]))
    tensor([1., 2., 3.])
    """
    n = mat.shape[-1]
    if not -n < diag < n:
        raise InvalidArgument(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def clamp_probs(probs: Any) -> Any:
    """`probs` kept from 0 and 1 by the dtype's epsilon.

    >>> float(ad.distributions.utils.clamp_probs(ad.tensor(0.0))) > 0
    True
    """
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities of logits: by the sigmoid where `is_binary`, by softmax otherwise.

    >>> ad.distributions.utils.logits_to_probs(ad.zeros(2))
    tensor([0.5000, 0.5000])
    """
    return logits.sigmoid() if is_binary else softmax(logits, -1)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Logits of probabilities, finite for 0 and 1.

    >>> ad.distributions.utils.probs_to_logits(ad.tensor(0.5), is_binary=True)
    tensor(0.)
    """
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def normalized(logits: Any) -> Any:
    """Logits moved so that their exponentials sum to 1."""
    return log_softmax(logits, -1)


class lazy_property:  # noqa: N801 - PyTorch's name
    """A property computed on first use, with gradients, and kept.

    >>> ad.distributions.Bernoulli(0.5).logits
    tensor(0.)
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.wrapped.__name__] = value
        return value


HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
