"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as dt
from ..core.compute import spec_of
from ..core.errors import DTypeError, ShapeError
from ..core.op import Op, Sample, apply, public
from ..core.spec import Spec, broadcast_shapes
from .elementwise import conj
from .movement import Permute
from .samples import array, strided

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["linear", "matmul"]


def transposed(x: Tensor) -> Tensor:
    """The last two dimensions swapped."""
    n = x._data.ndim
    result: Tensor = apply(Permute((*range(n - 2), n - 1, n - 2)), x)
    return result


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    result: Tensor = conj(transposed(x))
    return result


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
            lambda: apply(self, g, adjoint(x2)),
            lambda: apply(self, adjoint(x1), g),
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


class Linear(Op):
    """x @ weight.T + bias as one op; the bias may be missing."""

    needs = ("x2", "x1", "")

    def infer(self, x: Spec, w: Spec, bias: Spec | None = None) -> Spec:
        """(..., in) and (out, in) give (..., out)."""
        if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[1]:
            raise ShapeError(
                f"linear: input {x.shape} and weight {w.shape} (mat1 and mat2 shapes cannot be "
                "multiplied); the last dimension of both must be in_features"
            )
        for spec in (w,) if bias is None else (w, bias):
            if spec.dtype is not x.dtype:
                raise DTypeError(
                    f"linear: mat1 and mat2 must have the same dtype, but got {x.dtype} and "
                    f"{spec.dtype}; convert one with .to()"
                )
        if bias is not None:
            shape = (*x.shape[:-1], w.shape[0])
            if broadcast_shapes(shape, bias.shape, op="linear") != shape:
                raise ShapeError(f"linear: bias {bias.shape} does not fit an output {shape}")
        return x.with_(shape=(*x.shape[:-1], w.shape[0]))

    def compute(self, xp: Any, x: Any, w: Any, bias: Any = None) -> Any:
        """One matmul over all rows."""
        if x.dtype != w.dtype or (bias is not None and bias.dtype != w.dtype):
            self.infer(*(spec_of(a) for a in (x, w, bias) if a is not None))
        rows = x.reshape(-1, x.shape[-1]) if x.ndim > 2 else x
        y = xp.matmul(rows, w.T)
        if x.ndim > 2:
            y = y.reshape(*x.shape[:-1], w.shape[0])
        if bias is not None:
            y += bias
        return y

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """Products over all rows; the engine sums the bias's."""

        def weight() -> Any:
            rows, inputs = (t if t.ndim == 2 else t.reshape(-1, t.shape[-1]) for t in (g, x1))
            return apply(MATMUL, transposed(rows), conj(inputs))

        return (lambda: apply(self, g, adjoint(x2)), weight, g)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """With and without bias, rows, vectors, batches, empty."""
        for dtype in (dt.float64, dt.float32, dt.bfloat16, dt.float16, dt.complex128):
            inputs = (array((2, 3), dtype), array((4, 3), dtype), array((4,), dtype))
            yield Sample(cls(), inputs, dtype.name)
        w = array((4, 3))
        yield Sample(cls(), (array((2, 3)), w), "no-bias")
        yield Sample(cls(), (array((3,)), w, array((4,))), "vector")
        yield Sample(cls(), (array((2, 5, 3)), w, array((4,))), "batch")
        yield Sample(cls(), (array((0, 3)), w, array((4,))), "empty")
        yield Sample(cls(), (strided(array((2, 3))), strided(w), array((4,))), "strided")

    def reference(self, x: Any, w: Any, bias: Any = 0) -> Any:
        """By einsum."""
        wide = [
            v.astype(np.float64)
            if getattr(v, "dtype", None) is not None and v.dtype.kind in "fV"
            else v
            for v in (x, w, bias)
        ]
        return np.einsum("...k,nk->...n", wide[0], wide[1]) + wide[2]


LINEAR = Linear()


@public(method=False)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias.

    Shapes: (..., in) with weight (out, in) and bias (out,) gives (..., out); weight (in,) gives (...).
    Dtypes: all of one dtype.
    Errors: ShapeError where the inner sizes differ; DTypeError where the dtypes do.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear.html

    >>> ad.linear(ad.tensor([[1., 2.]]), ad.tensor([[3., 4.]]), ad.tensor([10.]))
    tensor([[21.]])
    """
    if weight._data.ndim == 1:
        product = matmul(input, weight)
        return product if bias is None else product + bias
    inputs = (input, weight) if bias is None else (input, weight, bias)
    result: Tensor = apply(LINEAR, *inputs)
    return result
