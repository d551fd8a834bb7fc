"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.errors import DTypeError, ShapeError
from ..core.op import Op, Sample, apply, public
from ..core.spec import Spec, broadcast_shapes
from .samples import array

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["matmul"]


class MatMul(Op):
    """The matrix product of the last two dimensions, the others broadcast."""

    needs = ("x2", "x1")

    def infer(self, x1: Spec, x2: Spec) -> Spec:
        """Inner sizes must agree, batch dimensions broadcast."""
        a, b = x1.shape, x2.shape
        if len(a) < 2 or len(b) < 2:
            raise ShapeError(f"matmul: needs at least 2 dimensions, got {a} @ {b}")
        if x1.dtype is not x2.dtype:
            raise DTypeError(
                f"matmul: expected both to have the same dtype, but got: {x1.dtype} and {x2.dtype}; "
                "convert one with .to()"
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
            lambda: apply(self, g, x2.mH),
            lambda: apply(self, x1.mH, g),
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
        """By einsum."""
        wide = [x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (x1, x2)]
        return np.einsum("...ij,...jk->...ik", *wide)


MATMUL = MatMul()


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
    rows, columns = input._data.ndim, other._data.ndim
    if rows >= 2 and columns >= 2:
        result: Tensor = apply(MATMUL, input, other)
        return result
    if rows == 0 or columns == 0:
        raise ShapeError(
            f"matmul: both arguments need to be at least 1D, but they are {rows}D and {columns}D; "
            "use * for numbers"
        )
    left = input.unsqueeze(0) if rows == 1 else input
    right = other.unsqueeze(-1) if columns == 1 else other
    result = apply(MATMUL, left, right)
    if rows == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if columns == 1 else result
