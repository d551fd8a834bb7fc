"""PyTorch's top-level names of objects that are defined elsewhere: constants, in-place methods as
functions (`ad.exp_(x)` is `x.exp_()`), and functions of `adjoint.nn.functional`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, inf, nan, pi
from typing import Any

from ..namespaces import linalg
from ..runtime.public import explaining
from ..tensor import Tensor
from .functional import (
    adaptive_avg_pool1d,
    adaptive_max_pool1d,
    alpha_dropout,
    avg_pool1d,
    bilinear,
    channel_shuffle,
    cosine_similarity,
    dropout,
    feature_alpha_dropout,
    group_norm,
    layer_norm,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    rms_norm,
)

newaxis = None

IN_PLACE = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_",
    "arctanh_", "as_strided_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_",
    "clamp_max_", "clamp_min_", "clip_", "conj_physical_", "cos_", "cosh_", "deg2rad_", "detach_",
    "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "gcd_", "i0_",
    "index_put_", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_", "nan_to_num_",
    "neg_", "negative_", "rad2deg_", "reciprocal_", "resize_as_", "round_", "rsqrt_", "sigmoid_",
    "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_", "trunc_", "xlogy_", "zero_",
)  # fmt: skip
globals().update({name: getattr(Tensor, name) for name in IN_PLACE})


@explaining
def detach(input: Tensor) -> Tensor:
    """A tensor that shares the memory, without history.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html

    >>> ad.detach(ad.ones(1, requires_grad=True)).requires_grad
    False
    """
    return input.detach()


@explaining
def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made in inference mode.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_inference.html

    >>> with ad.inference_mode():
    ...     x = ad.ones(1)
    >>> ad.is_inference(x)
    True
    """
    return bool(input.is_inference())


@explaining
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """The powers of the elements as rows, the highest power first unless `increasing`.

    Shapes: (n,) gives (n, N); N is n unless given.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.vander.html

    >>> ad.vander(ad.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [4, 2, 1],
            [9, 3, 1]])
    """
    powers: Tensor = linalg.vander(x, N=N)
    return powers if increasing else powers.flip(-1)


@explaining
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` at `indices`; `adjoint.nn.functional.embedding` is preferred.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html

    >>> ad.embedding(ad.tensor([[1., 2.], [3., 4.]]), ad.tensor([1]))
    tensor([[3., 4.]])
    """
    from .functional import embedding as rows

    padding = None if padding_idx == -1 else padding_idx
    return rows(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


__all__ = [
    "e", "inf", "nan", "newaxis", "pi",
    *IN_PLACE,
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear",
    "channel_shuffle", "cosine_similarity", "dropout", "feature_alpha_dropout", "group_norm",
    "layer_norm", "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "rms_norm",
    "SymBool", "SymFloat", "SymInt", "_assert", "_assert_async", "_check", "_check_index",
    "_check_is_size", "_check_not_implemented", "_check_type", "_check_value",
    "detach", "embedding", "is_inference", "vander",
]  # fmt: skip


@explaining
def _assert(condition: Any, message: str) -> None:
    """`assert` as a function of a bool, or a tensor with one; tracing (`adjoint.fx`) keeps it.

    >>> ad._assert(True, "is true")
    """
    if not condition:
        raise AssertionError(message)


def _assert_async(
    input: Tensor, assert_msg: str = "Expected Tensor with single nonzero value"
) -> None:
    """`_assert` for a tensor of one value, which is read at once here; raises RuntimeError."""
    if not input:
        raise RuntimeError(assert_msg)


class SymInt:
    """Stand-in for PyTorch's symbolic sizes, without instances: sizes are ints.

    >>> isinstance(3, ad.SymInt)
    False
    """


class SymFloat:
    """Stand-in for PyTorch's symbolic floats, without instances.

    >>> isinstance(3.0, ad.SymFloat)
    False
    """


class SymBool:
    """Stand-in for PyTorch's symbolic bools, without instances.

    >>> isinstance(True, ad.SymBool)
    False
    """


def _checking(error: type[Exception], name: str) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], str] | None = None) -> None:
        if not cond:
            raise error("Expected cond to be True" if message is None else str(message()))

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Raise {error.__name__} with what `message()` says where `cond` is False."
    return check


_check = _checking(RuntimeError, "_check")
_check_index = _checking(IndexError, "_check_index")
_check_value = _checking(ValueError, "_check_value")
_check_type = _checking(TypeError, "_check_type")
_check_not_implemented = _checking(NotImplementedError, "_check_not_implemented")


def _check_is_size(i: Any, message: Callable[[], str] | None = None, *, max: Any = None) -> None:
    """Raise RuntimeError unless a number is a valid size."""
    _check(i >= 0 and (max is None or i <= max), message)
