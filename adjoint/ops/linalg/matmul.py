"""Products of matrices and vectors by their dimensions; sums with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, ShapeError
from ...core.mode import is_casting
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...core.spec import broadcast_shapes, prod
from ...core.tensor_type import Tensor
from ...runtime.public import METHODS, explaining, public
from ..elementwise.namespace import conj
from ..promotion import cast
from .fully_connected import Linear as Linear
from .fully_connected import LinearInput as LinearInput
from .fully_connected import LinearWeight as LinearWeight
from .fully_connected import linear
from .matrix_product import MatMul as MatMul
from .matrix_product import matmul, product, transposed

if TYPE_CHECKING:
    from ...ops.argument_types import Number

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "dot", "ger", "inner", "linear",
    "matmul", "mm", "mv", "outer", "vdot",
]  # fmt: skip


def assert_ndim(name: str, **expected: tuple[Any, int]) -> None:
    """Refuse arguments that are no tensors of the given number of dimensions."""
    for argument, (x, ndim) in expected.items():
        assert_tensor(name, x, argument)
        if x._data.ndim != ndim:
            raise ShapeError(
                f"{name}: {argument} must be a {ndim}D tensor, got {x._data.ndim}D of shape "
                f"{tuple(x.shape)}; use matmul for other shapes"
            )


@public(out=True)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices.

    Shapes: (n, k) and (k, m) give (n, m).
    Dtypes: both operands have the same.
    Errors: ShapeError for other shapes; DTypeError where the dtypes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.mm.html

    >>> ad.mm(ad.tensor([[1., 2.]]), ad.tensor([[3.], [4.]]))
    tensor([[11.]])
    """
    if FOLLOWED and concerns(mat2):
        said = overridden(METHODS["mm"], (input, mat2), {})
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    assert_ndim("mm", input=(input, 2), mat2=(mat2, 2))
    return product("mm", input, mat2)


@public(out=True)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices.

    Shapes: (b, n, k) and (b, k, m) give (b, n, m); batches do not broadcast.
    Dtypes: both operands have the same.
    Errors: ShapeError for other shapes; DTypeError where the dtypes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.bmm.html

    >>> ad.bmm(ad.ones(2, 1, 3), ad.ones(2, 3, 1)).flatten()
    tensor([3., 3.])
    """
    if FOLLOWED and concerns(mat2):
        said = overridden(METHODS["bmm"], (input, mat2), {})
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    assert_ndim("bmm", batch1=(input, 3), batch2=(mat2, 3))
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError(
            f"bmm: Expected size for first two dimensions of batch2 tensor to be: "
            f"[{input.shape[0]}, {input.shape[2]}] but got: "
            f"{list(mat2.shape[:2])}; matmul broadcasts"
        )
    return product("bmm", input, mat2)


@public(out=True)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector.

    Shapes: (n, k) and (k,) give (n,).
    Dtypes: both operands have the same.
    Errors: ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.mv.html

    >>> ad.mv(ad.tensor([[1., 2.], [3., 4.]]), ad.tensor([1., 1.]))
    tensor([3., 7.])
    """
    assert_ndim("mv", input=(input, 2), vec=(vec, 1))
    return product("mv", input, vec.unsqueeze(-1)).squeeze(-1)


@public(out=True)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements.

    Shapes: (n,) and (n,) give a 0-d tensor.
    Dtypes: both operands have the same.
    Errors: ShapeError for other shapes or different sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.dot.html

    >>> ad.dot(ad.tensor([1., 2.]), ad.tensor([3., 4.]))
    tensor(11.)
    """
    assert_ndim("dot", input=(input, 1), tensor=(tensor, 1))
    if input.shape != tensor.shape:
        raise ShapeError(
            f"dot: inconsistent tensor size, expected tensor {list(input.shape)} and src "
            f"{list(tensor.shape)} to have the same number of elements"
        )
    return product("dot", input.unsqueeze(0), tensor.unsqueeze(-1)).reshape(())


@public(out=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product of two vectors, the first of them conjugated.

    Shapes: (n,) and (n,) give a 0-d tensor.
    Dtypes: both operands have the same.
    Errors: ShapeError for other shapes or different sizes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.vdot.html

    >>> ad.vdot(ad.tensor([1j]), ad.tensor([1j]))
    tensor(1.+0.j)
    """
    assert_ndim("vdot", input=(input, 1), other=(other, 1))
    return dot(conj(input), other)


@public(out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The dot products of all rows of `input` with all rows of `other`.

    Shapes: (*a, n) and (*b, n) give (*a, *b); a 0-d operand multiplies.
    Dtypes: both operands have the same.
    Errors: ShapeError where the last dimensions differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.inner.html

    >>> ad.inner(ad.tensor([[1., 2.], [3., 4.]]), ad.tensor([1., 1.]))
    tensor([3., 7.])
    """
    if not input._data.ndim or not other._data.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise ShapeError(
            f"inner: the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    rows, columns = (x.reshape(prod(x.shape[:-1]), x.shape[-1]) for x in (input, other))
    result = product("inner", rows, transposed(columns))
    return result.reshape(*input.shape[:-1], *other.shape[:-1])


@public(out=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of all elements of one vector with all of another.

    Shapes: (n,) and (m,) give (n, m).
    Dtypes: the promoted dtype of the inputs.
    Errors: ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.outer.html

    >>> ad.outer(ad.tensor([1, 2]), ad.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    assert_ndim("outer", input=(input, 1), vec2=(vec2, 1))
    return input.unsqueeze(-1) * vec2


@public(out=True)
def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """Alias of `outer`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.ger.html

    >>> ad.ger(ad.tensor([1, 2]), ad.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    return outer(input, vec2)


def _weighted(input: Tensor, beta: Any, added: Tensor, alpha: Any, name: str) -> Tensor:
    """beta * input + alpha * added, in the shape of `added`; `input` is not read for beta 0."""
    if broadcast_shapes(input.shape, added.shape, op=name) != added.shape:
        raise ShapeError(
            f"{name}: The expanded size of the tensor {list(added.shape)} must match the existing "
            f"size {list(input.shape)} of input"
        )
    if input.dtype is not added.dtype:
        raise DTypeError(
            f"{name}: self and the matrices must have the same dtype, got {input.dtype} and "
            f"{added.dtype}; convert one with .to()"
        )
    if added.dtype.category < 2:
        beta, alpha = int(beta), int(alpha)  # as PyTorch: a fraction is dropped
    if alpha != 1:
        added = cast(added * alpha, added.dtype)  # bools stay bools
    if beta == 0:
        return added + zeros_from(input) if input._node is not None else added
    return added + (input if beta == 1 else cast(input * beta, input.dtype))


def _once(name: str, input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2); narrow floats are rounded once, at the end."""
    narrow = input.dtype
    if narrow in dt.LOW_PRECISION and narrow is mat1.dtype is mat2.dtype and not is_casting():
        input, mat1, mat2 = (cast(x, dt.float32) for x in (input, mat1, mat2))
        return cast(_once(name, input, mat1, mat2, beta, alpha), narrow)
    return _weighted(input, beta, product(name, mat1, mat2), alpha, name)


def zeros_from(x: Tensor) -> Tensor:
    """Zeros that take part in autograd: NaN in `x` has no effect, its gradient is 0, not None."""
    return x.masked_fill(x.new_ones((), dtype=dt.bool_), 0)


@public(inplace=True, out=True)
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2).

    Shapes: (n, k) and (k, m), `input` broadcast to (n, m).
    Dtypes: all of one dtype.
    Errors: ShapeError for other shapes. Where beta is 0, NaN in `input` has no effect.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.addmm.html

    >>> ad.addmm(ad.ones(1, 1), ad.tensor([[1., 2.]]), ad.tensor([[3.], [4.]]), alpha=2)
    tensor([[23.]])
    """
    assert_ndim("addmm", mat1=(mat1, 2), mat2=(mat2, 2))
    return _once("addmm", input, mat1, mat2, beta, alpha)


@public(inplace=True, out=True)
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * (mat @ vec).

    Shapes: (n, k) and (k,), `input` broadcast to (n,).
    Dtypes: all of one dtype.
    Errors: ShapeError for other shapes. Where beta is 0, NaN in `input` has no effect.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.addmv.html

    >>> ad.addmv(ad.ones(1), ad.tensor([[1., 2.]]), ad.tensor([3., 4.]))
    tensor([12.])
    """
    assert_ndim("addmv", mat=(mat, 2), vec=(vec, 1))
    return _weighted(input, beta, mv(mat, vec), alpha, "addmv")


@public(inplace=True, out=True)
@explaining
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2).

    Shapes: (n,) and (m,), `input` broadcast to (n, m).
    Dtypes: all of one dtype.
    Errors: ShapeError for other shapes. Where beta is 0, NaN in `input` has no effect.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.addr.html

    >>> ad.addr(ad.ones(1, 2), ad.tensor([2.]), ad.tensor([3., 4.]))
    tensor([[7., 9.]])
    """
    if vec1.dtype.category < 2 and (isinstance(beta, float) or isinstance(alpha, float)):
        raise DTypeError(
            f"addr: For integral input tensors, arguments beta and alpha must not be floating "
            f"point numbers, got {beta} and {alpha}"
        )
    return _weighted(input, beta, outer(vec1, vec2), alpha, "addr")


@public(inplace=True, out=True)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2).

    Shapes: (b, n, k) and (b, k, m), `input` broadcast to (b, n, m).
    Dtypes: all of one dtype.
    Errors: ShapeError for other shapes. Where beta is 0, NaN in `input` has no effect.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.baddbmm.html

    >>> ad.baddbmm(ad.ones(1), ad.ones(2, 1, 3), ad.ones(2, 3, 1)).flatten()
    tensor([4., 4.])
    """
    assert_ndim("baddbmm", batch1=(batch1, 3), batch2=(batch2, 3))
    return _once("baddbmm", input, batch1, batch2, beta, alpha)


@public(inplace=True, out=True)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * the sum of bmm(batch1, batch2) over the batch.

    Shapes: (b, n, k) and (b, k, m), `input` broadcast to (n, m).
    Dtypes: all of one dtype.
    Errors: ShapeError for other shapes. Where beta is 0, NaN in `input` has no effect.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.addbmm.html

    >>> ad.addbmm(ad.ones(1, 1), ad.ones(2, 1, 3), ad.ones(2, 3, 1))
    tensor([[7.]])
    """
    return _weighted(input, beta, bmm(batch1, batch2).sum(0, dtype=batch1.dtype), alpha, "addbmm")
