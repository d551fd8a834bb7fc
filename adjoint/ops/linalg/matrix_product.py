"""The product of matrices as an op, and as the function `matmul`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError, ShapeError
from ...core.mode import is_casting
from ...core.op import Op, Sample
from ...core.overrides import ABSENT, FOLLOWED, concerns, overridden
from ...core.spec import Spec, broadcast_shapes, prod
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply, apply_view, run_known
from ...runtime.public import METHODS, public
from ..elementwise.namespace import conj
from ..samples import array
from ..shape.movement import Permute
from ..shape.sizes import hold_sizes, is_of_graph

__all__ = ["matmul"]


_SWAP = Permute((1, 0))


def transposed(x: Tensor) -> Tensor:
    """The last two dimensions swapped."""
    n = x._data.ndim
    swap = _SWAP if n == 2 else Permute((*range(n - 2), n - 1, n - 2))
    return apply_view(swap, x)


def conj_transposed(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    return conj(transposed(x))


class MatMul(Op):
    """The matrix product of the last two dimensions, the others broadcast."""

    library = "product"
    ufunc = "matmul"
    needs = ("x2", "x1")
    core = (2,)

    def infer(self, x1: Spec, x2: Spec) -> Spec:
        """Inner sizes must agree, batch dimensions broadcast."""
        a, b = x1.shape, x2.shape
        if len(a) < 2 or len(b) < 2:
            raise ShapeError(f"matmul: needs at least 2 dimensions, got {a} @ {b}")
        if x1.dtype is not x2.dtype:
            raise DTypeError(
                f"matmul: expected both to have the same dtype, but got: {x1.dtype} and "
                f"{x2.dtype}; convert one with .to()"
            )
        if a[-1] != b[-2]:
            raise ShapeError(
                f"matmul: inner sizes differ, {a} @ {b} (mat1 and mat2 shapes cannot be "
                "multiplied); transpose one operand?"
            )
        batch = broadcast_shapes(a[:-2], b[:-2], op="matmul")
        return x1.with_(shape=(*batch, a[-2], b[-1]))

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """The backend's matmul."""
        return xp.matmul(x1, x2)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """g @ x2^H and x1^H @ g."""
        return (
            lambda: apply(MATMUL, g, conj_transposed(x2)),
            lambda: apply(MATMUL, conj_transposed(x1), g),
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Matrices, batches that broadcast, empty."""
        for dtype in (dt.float64, dt.float32, dt.bfloat16, dt.float16, dt.int64, dt.complex128):
            yield Sample(cls(), (array((2, 3), dtype), array((3, 4), dtype)), dtype.name)
        yield Sample(cls(), (array((5, 2, 3)), array((3, 4))), "batch-left")
        yield Sample(cls(), (array((2, 3)), array((5, 3, 2))), "batch-right")
        yield Sample(cls(), (array((2, 1, 2, 3)), array((3, 3, 2))), "batch-both")
        yield Sample(cls(), (array((0, 3)), array((3, 2))), "empty-rows")
        yield Sample(cls(), (array((2, 0)), array((0, 2))), "empty-inner")

    def reference(self, x1: Any, x2: Any) -> Any:
        """Reference value by einsum."""
        wide = [x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (x1, x2)]
        return np.einsum("...ij,...jk->...ik", *wide)


MATMUL = MatMul()


def product(name: str, x1: Tensor, x2: Tensor) -> Tensor:
    """The matrix product of tensors of 2 dimensions or more; errors speak of `name`."""
    a, b = x1._data, x2._data
    plain = a.ndim == 2 == b.ndim and a.dtype is b.dtype
    if plain and a.shape[1] == b.shape[0] and a.dtype.kind != "b":
        return apply(MATMUL, x1, x2)
    if a.dtype is not b.dtype or a.shape[-1] != b.shape[-2] or a.dtype.kind == "b":
        if a.dtype.kind == "b":
            raise DTypeError(
                f"{name}: not implemented for bool; convert with .to(), or use & and any"
            )
        if x1.dtype is not x2.dtype and not is_casting():
            raise DTypeError(
                f"{name}: expected m1 and m2 to have the same dtype, but got: {x1.dtype} != "
                f"{x2.dtype}; convert one with .to()"
            )
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"{name}: mat1 and mat2 shapes cannot be multiplied ({_by(a)} and {_by(b)}): inner "
                f"sizes {a.shape[-1]} and {b.shape[-2]} differ; transpose one operand?"
            )
    result: Tensor
    if a.ndim > 2 and b.ndim == 2:  # all rows at once: one product, and no batch of gradients
        if is_of_graph(x1) and 0 not in (*a.shape, *b.shape):  # of a batch of any size
            x: Any = hold_sizes(name, x1, dims=range(1, a.ndim - 1))
            rows = apply(MATMUL, x.flatten(0, -2), x2)
            return rows.unflatten(0, (-1, *a.shape[1:-1]))
        x1 = hold_sizes(name, x1)
        result = apply(MATMUL, x1.reshape(prod(a.shape[:-1]), a.shape[-1]), x2)
        return result.reshape(*a.shape[:-1], b.shape[-1])
    result = apply(MATMUL, x1, x2)
    return result


def _by(array: Any) -> str:
    return "x".join(map(str, array.shape))


@public(out=True)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product; 1-d operands count as a row on the left and a column on the right.

    Shapes: (..., n, k) @ (..., k, m) -> (..., n, m), batch dimensions broadcast.
    Dtypes: both operands have the same.
    Errors: ShapeError where the inner sizes differ; DTypeError where the dtypes do.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.matmul.html

    >>> ad.matmul(ad.tensor([[1., 2.]]), ad.tensor([[3.], [4.]]))
    tensor([[11.]])
    """
    known: Tensor | None = run_known(MATMUL, (input, other))
    if known is not None:
        return known
    if FOLLOWED and concerns(other):
        said = overridden(METHODS["matmul"], (input, other), {})
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    assert_tensor("matmul", input)
    assert_tensor("matmul", other, "other")
    rows, columns = input._data.ndim, other._data.ndim
    if rows >= 2 and columns >= 2:
        return product("matmul", input, other)
    if rows == 0 or columns == 0:
        raise ShapeError(
            f"matmul: both arguments need to be at least 1D, but they are {rows}D and {columns}D; "
            "use * for numbers"
        )
    left = input.unsqueeze(0) if rows == 1 else input
    right = other.unsqueeze(-1) if columns == 1 else other
    result = product("matmul", left, right)
    if rows == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if columns == 1 else result


def _rows_each(x: Any, flag: bool) -> Any:
    """The rows of a tensor, or, with a `flag`, of each entry of a batch."""
    *lead, last = x._data.shape
    return x.reshape(lead[0], prod(lead[1:]), last) if flag else x.reshape(prod(lead), last)
