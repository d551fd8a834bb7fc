"""Bounding gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.modes import no_grad
from ...backends import native
from ...core import policy
from ...core.dtype import from_numpy_dtype
from ...core.errors import InvalidArgument, NotTraceable
from ...core.mode import MODE, mode_with, unobserved
from ...core.spec import Spec
from ...core.symbolic_scalar import ScalarGraph
from ...ir import compute
from ...ir.program import Program, Value, make
from ...ops.create.creation import tensor
from ...ops.elementwise.arithmetic import MUL
from ...ops.shape.concatenation import stack
from ...runtime.public import explaining
from ...runtime.tensors import wrap
from ...runtime.writes import announce
from ...tensor import Tensor

if TYPE_CHECKING:
    from ...ops.argument_types import ManyTensors

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _listed(parameters: Any) -> list[Any]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _gradients(parameters: Any) -> list[Any]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` without gradients, and with the same short cuts in a step of a graph as outside:
    other sums would have other last bits.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        outside = MODE.get()
        try:
            MODE.set(mode_with(unobserved(MODE.get()), grad=False))
            return function(*args, **kwargs)
        finally:
            MODE.set(outside)

    return run


def _plain(values: list[Any]) -> bool:
    """Whether all are NumPy arrays of one dtype, and nothing is recorded."""
    dtype = values[0]._data.dtype if values else None
    return MODE.get().plain and all(
        type(x._data) is np.ndarray and x._data.dtype is dtype for x in values
    )


def _joined(values: list[Any], p: float) -> list[Any]:
    """`values` with the small ones as one vector, which takes one norm instead of many."""
    if p == 0 or not _plain(values):  # the norm of norms is the norm of all, but for p = 0
        return values
    small = [x._data.reshape(-1) for x in values if x._data.size <= policy.CLIP_SMALL]
    if len(small) < 2:
        return values
    return [*(x for x in values if x._data.size > policy.CLIP_SMALL), wrap(np.concatenate(small))]


@_alone
def get_total_norm(
    tensors: ManyTensors,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Norm of all tensors taken together as one vector.

        norm = (sum over all elements of |x|^p)^(1 / p), p = norm_type

    Args:
        tensors: Tensors, an iterable or one.
        norm_type: Exponent of the norm; inf is the largest absolute value. Default: 2.0.
        error_if_nonfinite: Raise an error where the norm is infinite or not a number. Default:
            False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.

    Errors: InvalidArgument where it is not finite and `error_if_nonfinite`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html

    >>> ad.nn.utils.get_total_norm([ad.tensor([3.]), ad.tensor([4.])]).item()
    5.0
    """
    values = _listed(tensors)
    if not values:
        return tensor(0.0)
    p = float(norm_type)
    norms = [value.detach().norm(p) for value in _joined(values, p)]
    total = norms[0] if len(norms) == 1 < len(values) else stack(norms).norm(p)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise InvalidArgument(
            f"The total norm of order {p} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped. To disable this error and scale the gradients by the non-finite "
            "norm anyway, set `error_if_nonfinite=False`"
        )
    return total


@_alone
def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scale the gradients in place by a total norm that is known.

        g = g min(1, max_norm / (total_norm + 1e-6))

    Args:
        parameters: Parameters, an iterable of tensors or one tensor.
        max_norm: Largest norm.
        total_norm: Norm of all gradients, a tensor, as `get_total_norm` returns it.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grads_with_norm_.html

    >>> p = ad.ones(1, requires_grad=True)
    >>> p.sum().backward()
    >>> ad.nn.utils.clip_grads_with_norm_(p, 1.0, ad.tensor(2.0))
    >>> round(p.grad.item(), 4)
    0.5
    """
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for gradient in _scaled_together(_gradients(parameters), factor):
        gradient.mul_(factor.to(gradient.dtype))


def _scaled_together(gradients: list[Any], factor: Any) -> list[Any]:
    """Scale those gradients that one kernel can scale; returns the others."""
    if compute.accelerate is None or len(gradients) < 2 or not _plain([*gradients, factor]):
        return gradients
    if factor.item() == 1:
        return []
    kernel = _scaling(gradients[0]._data.dtype)
    if kernel is None:
        return gradients
    watched = announce(gradients, "mul_")
    rest = kernel([[g._data for g in gradients]], [(len(gradients), [factor.item()])])
    for version in watched:
        version.bump("mul_")
    return [gradients[i] for i in rest]


@functools.cache
def _scaling(dtype: Any) -> Any:
    """The kernel that multiplies tensors by a number; None where there is none."""
    if not native.load():
        return None
    from ...backends.native.lowering.multi_tensor import MultiTensor

    x = Value(Spec((2,), from_numpy_dtype(dtype)))
    times = make(MUL, x, ScalarGraph().scalar(1.0))
    try:
        return MultiTensor([dtype], Program([x], [times], times.outputs), [0])
    except NotTraceable:
        return None


def _norms_of(parameters: list[Any], norm_type: float) -> list[Any]:
    """The gradients; for those of parts that a rank has of parameters, the norm over all ranks."""
    parts = [p for p in parameters if hasattr(p, "global_shape")]
    if not parts:
        return _gradients(parameters)
    whole = _gradients([p for p in parameters if not hasattr(p, "global_shape")])
    return [*whole, parts[0].division.norm(parts, norm_type)]


@explaining
@explaining
def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that their total norm is at most max_norm.

        g = g min(1, max_norm / (norm + 1e-6))
        norm = (sum over all elements of all gradients of |g|^p)^(1 / p), p = norm_type

    The result is the norm before.

    Args:
        parameters: Parameters, an iterable of tensors or one tensor.
        max_norm: Largest norm.
        norm_type: Exponent of the norm; inf is the largest absolute value. Default: 2.0.
        error_if_nonfinite: Raise an error where the norm is infinite or not a number. Default:
            False.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.

    Errors: InvalidArgument where the norm is not finite and `error_if_nonfinite`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html

    >>> p = ad.tensor([3.0, 4.0], requires_grad=True)
    >>> (p * p / 2).sum().backward()
    >>> ad.nn.utils.clip_grad_norm_([p], 1.0), p.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    kept = _listed(parameters)
    total = get_total_norm(_norms_of(kept, norm_type), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(kept, max_norm, total)
    return total


@explaining
@no_grad()
@explaining
def clip_grad_value_(
    parameters: Iterable[Any] | Any, clip_value: float, foreach: bool | None = None
) -> None:
    """Bound each element of the gradients, in place.

        g = min(max(g, -clip_value), clip_value)

    Args:
        parameters: Parameters, an iterable of tensors or one tensor.
        clip_value: Largest absolute value.
        foreach: Accepted for programs written for PyTorch; changes nothing. Default: None.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_value_.html

    >>> p = ad.ones(1, requires_grad=True)
    >>> (5 * p).sum().backward()
    >>> ad.nn.utils.clip_grad_value_(p, 2.0)
    >>> p.grad
    tensor([2.])
    """
    bound = float(clip_value)
    for gradient in _gradients(parameters):
        gradient.clamp_(-bound, bound)
