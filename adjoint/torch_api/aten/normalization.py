"""Normalizations with the statistics that they went by, and norms of whole dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.dtype import LOW_PRECISION
from ...core.errors import InvalidArgument, ShapeError, Unsupported
from ...core.spec import normalize_axis
from ...namespaces.linalg import matrix_norm, vector_norm
from ...nn import functional as F  # noqa: N812 - the name everyone knows it by
from ...nn.functional.normalization import wide
from ...runtime.public import explaining, with_out
from ...tensor import Tensor

if TYPE_CHECKING:
    from ...ops.argument_types import Dims, Number


def _statistics(input: Any, axes: Any, eps: float, keepdim: bool = False) -> tuple[Any, Any]:
    """The mean, and one divided by the standard deviation, over some dimensions."""
    x = wide(input)
    mean = x.mean(axes, keepdim=keepdim)
    return mean, (x.var(axes, correction=0, keepdim=keepdim) + eps).rsqrt()


def _kept(input: Any, weight: Any) -> Any:
    """Dtype in which PyTorch keeps statistics: the parameters', unless they are narrow as well."""
    return input.dtype if weight is None or input.dtype not in LOW_PRECISION else weight.dtype


@explaining
def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Any, Any, Any]:
    """`nn.functional.layer_norm`, and the means and reciprocal deviations that it went by, which
    have no gradient.

    Shapes: (..., *normalized_shape), both statistics with a 1 for each of `normalized_shape`.
    Errors: ShapeError where the input does not end in normalized_shape.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.layer_norm.html

    >>> ad.native_layer_norm(ad.tensor([[1., 3.]]), (2,), None, None, 0.0)[1:]
    (tensor([[2.]]), tensor([[1.]]))
    """
    found = F.layer_norm(input, normalized_shape, weight, bias, eps)
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    kept = _kept(input, weight)
    mean, scale = _statistics(input.detach(), axes, eps, keepdim=True)
    return found, mean.to(kept), scale.to(kept)


@explaining
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,  # noqa: N803 - PyTorch's names
    C: int,  # noqa: N803
    HxW: int,  # noqa: N803
    group: int,
    eps: float,
) -> tuple[Any, Any, Any]:
    """`nn.functional.group_norm`, and the means and reciprocal deviations of the groups.

    Shapes: (N, C, ...) of N * C * HxW elements; both statistics (N, group).
    Errors: ShapeError for another number of elements, or where `group` does not divide C.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.group_norm.html

    >>> ad.native_group_norm(ad.tensor([[1., 3.]]), None, None, 1, 2, 1, 1, 0.0)[1:]
    (tensor([[2.]]), tensor([[1.]]))
    """
    if input.numel() != N * C * HxW:
        raise ShapeError(
            f"native_group_norm: Expected N * C * HxW = {N * C * HxW} elements, but got input of "
            f"shape {tuple(input.shape)}"
        )
    found = F.group_norm(input, group, weight, bias, eps)
    kept = _kept(input, weight)
    mean, scale = _statistics(input.reshape(N, group, C // group * HxW), 2, eps)
    return found, mean.to(kept), scale.to(kept)


@with_out
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, Any, Any]:
    """`nn.functional.batch_norm`, and the means and reciprocal deviations of the batch, which have
    no gradient: none but in training.

    Shapes: (batch, channels, ...); the other tensors (channels,), or (0,) for none.
    Errors: those of `nn.functional.batch_norm`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.batch_norm.html

    >>> x = ad.tensor([[1.], [3.]])
    >>> ad.native_batch_norm(x, None, None, None, None, True, 0.1, 0.0)[1:]
    (tensor([2.]), tensor([1.]))
    """
    found = batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, True
    )
    kept = _kept(input, weight)
    if not training:
        return found, input.new_empty(0, dtype=kept), input.new_empty(0, dtype=kept)
    mean, scale = _statistics(input.detach(), _all_but_channels(input), eps)
    return found, mean.to(kept), scale.to(kept)


def _all_but_channels(input: Any) -> tuple[int, ...]:
    return (0, *range(2, input.ndim))


@explaining
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.batch_norm`.

    Errors: those of that function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.batch_norm.html

    >>> x = ad.tensor([[1.], [3.]])
    >>> ad.batch_norm(x, None, None, None, None, True, 0.1, 0.0, True)
    tensor([[-1.],
            [ 1.]])
    """
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@explaining
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.instance_norm`.

    Errors: those of that function.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.instance_norm.html

    >>> x = ad.tensor([[[1., 3.]]])
    >>> ad.instance_norm(x, None, None, None, None, True, 0.1, 0.0, True)
    tensor([[[-1.,  1.]]])
    """
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


@explaining
def batch_norm_update_stats(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Any, Any]:
    """The mean and the biased variance of each channel, without a gradient; the running statistics
    move towards them (towards the unbiased variance), in place.

    Shapes: (batch, channels, ...); the other tensors (channels,).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html

    >>> ad.batch_norm_update_stats(ad.tensor([[1.], [3.]]), None, None, 0.1)
    (tensor([2.]), tensor([1.]))
    """
    x = wide(input.detach())
    axes = _all_but_channels(input)
    mean, variance = x.mean(axes), x.var(axes, correction=0)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_(x.var(axes).to(running_var.dtype), momentum)
    return mean.to(input.dtype), variance.to(input.dtype)


@explaining
def native_norm(
    input: Tensor, p: Number = 2, dim: Dims = (), keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The p-norm of all entries of a sparse tensor.

    Errors: Unsupported for a dense one, as in PyTorch; InvalidArgument for some of its dimensions,
    or `keepdim`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.norm.html

    >>> ad.native_norm(ad.tensor([3., 0., 4.]).to_sparse())
    tensor(5.)
    """
    if input.layout.name != "sparse_coo":
        raise Unsupported("native_norm: is for sparse tensors (COO); use linalg.vector_norm")
    axes = [dim] if isinstance(dim, int) else list(dim)
    if axes and sorted(normalize_axis(i, input.ndim, "native_norm") for i in axes) != [
        *range(input.ndim)
    ]:
        raise InvalidArgument(
            f"native_norm: dim must be empty or all dimensions of a sparse tensor, got {dim}"
        )
    if keepdim:
        raise InvalidArgument("native_norm: keepdim=True is not there for sparse tensors; reshape")
    return vector_norm(input.coalesce().values(), 2 if p is None else p, dtype=dtype)


@explaining
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but `dim`; -1 stands for none, so that all are reduced.

    Shapes: a 1 for each dimension but `dim`; () for -1.
    Errors: IndexingError for a dimension that is not there.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.weight_norm.html

    >>> ad.norm_except_dim(ad.tensor([[3., 4.], [0., 1.]]))
    tensor([[5.],
            [1.]])
    """
    if dim == -1:
        return v.norm(pow)
    kept = normalize_axis(dim, v.ndim, "norm_except_dim")
    others = tuple(i for i in range(v.ndim) if i != kept)
    return v.norm(pow, others, keepdim=True) if others else v.abs()


@explaining
@with_out
def frobenius_norm(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """The square root of the sum of squares over one dimension, two, or all for ().

    Errors: ShapeError for more than two.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_norm.html

    >>> ad.frobenius_norm(ad.tensor([[3., 4.]]), ())
    tensor(5.)
    """
    axes = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(axes) > 2:
        raise ShapeError(
            f"frobenius_norm: Expected at most 2 dimensions, but got {len(axes)} dimensions; use "
            "linalg.vector_norm"
        )
    if len(axes) == 2:
        return matrix_norm(input, "fro", axes, keepdim)
    return vector_norm(input, 2, axes or None, keepdim)


@explaining
@with_out
def nuclear_norm(input: Tensor, *args: Any, **options: Any) -> Tensor:
    """The sum of the singular values: `nuclear_norm(input, keepdim=False)` over the last two
    dimensions, `nuclear_norm(input, dim, keepdim=False)` over others.

    Errors: those of `linalg.matrix_norm`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_norm.html

    >>> ad.nuclear_norm(ad.eye(3))
    tensor(3.)
    """
    names = ("keepdim",) if args and isinstance(args[0], bool) else ("dim", "keepdim")
    given = {**dict(zip(names, args, strict=False)), **options}
    if len(args) > len(names) or not given.keys() <= {"dim", "keepdim"}:
        raise InvalidArgument(
            f"nuclear_norm: takes input, dim and keepdim, got {len(args)} more arguments and "
            f"{sorted(options)}"
        )
    axes = given.get("dim", (-2, -1))
    return matrix_norm(input, "nuc", axes, given.get("keepdim", False))
