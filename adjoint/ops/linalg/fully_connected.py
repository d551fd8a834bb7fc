"""Fully connected layers: `linear`, whose gradients are ops, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import MISTAKES, recovered
from ...core.errors import DTypeError, ShapeError
from ...core.keywords import unexpected
from ...core.op import Op, Sample
from ...core.overrides import ABSENT, FOLLOWED, concerns, leading, overridden
from ...core.spec import Spec, broadcast_shapes, prod
from ...core.tensor_type import Tensor
from ...ir.compute import spec_of
from ...runtime.dispatch import apply, run_known
from ...runtime.public import public
from ..samples import FLOATS, array, each_dtype, strided
from .matrix_product import MATMUL, _rows_each, matmul

__all__ = ["linear"]


class Linear(Op):
    """x @ weight.T + bias as one op; the bias may be missing."""

    library = "linear"
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
        """A single matmul over all rows."""
        if x.dtype != w.dtype or (bias is not None and bias.dtype != w.dtype):
            self.infer(*(spec_of(a) for a in (x, w, bias) if a is not None))
        y = xp.linear(_rows(x), w, bias)
        return y if x.ndim == 2 else y.reshape(*x.shape[:-1], w.shape[0])

    def batch(  # type: ignore[override]
        self, size: int, flags: Any, x: Any, w: Any, bias: Any = None
    ) -> Any:
        """The op for a batch: more rows, where all share the weight; else a product each."""
        if not any(flags[1:]):
            return apply(LINEAR, x, w) if bias is None else apply(LINEAR, x, w, bias)
        *rows, _ = x._data.shape[1:] if flags[0] else x._data.shape
        y = apply(MATMUL, _rows_each(x, flags[0]), w.mT)
        if bias is not None:
            y = y + (bias.unsqueeze(1) if flags[2] and bias._data.ndim > 1 else bias)
        return y.reshape(size, *rows, y._data.shape[-1])

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """Products over all rows; the engine sums the bias's."""
        return (
            lambda: _apply_again(LINEAR_INPUT, g, x2),
            lambda: _apply_again(LINEAR_WEIGHT, g, x1),
            g,
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """With and without bias, rows, vectors, batches, empty."""
        yield from each_dtype(cls(), (*FLOATS, dt.complex128), (2, 3), (4, 3), (4,))
        w = array((4, 3))
        yield Sample(cls(), (array((2, 3)), w), "no-bias")
        yield Sample(cls(), (array((3,)), w, array((4,))), "vector")
        yield Sample(cls(), (array((2, 5, 3)), w, array((4,))), "batch")
        yield Sample(cls(), (array((0, 3)), w, array((4,))), "empty")
        yield Sample(cls(), (strided(array((2, 3))), strided(w), array((4,))), "strided")

    def reference(self, x: Any, w: Any, bias: Any = 0) -> Any:
        """Reference value by einsum."""
        wide = [
            v.astype(np.float64)
            if getattr(v, "dtype", None) is not None and v.dtype.kind in "fV"
            else v
            for v in (x, w, bias)
        ]
        return np.einsum("...k,nk->...n", wide[0], wide[1]) + wide[2]


LINEAR = Linear()


def _rows(x: Any) -> Any:
    """An array as a matrix: its last dimension, and all others."""
    return x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _conjugate(xp: Any, x: Any) -> Any:
    return xp.conjugate(x) if x.dtype.kind == "c" else x


def _gradient_samples(second: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Any:
    """Rows, vectors, batches, empty; `second` gives the second input's shape for the first's."""

    def samples(cls: Any) -> Iterable[Sample]:
        for dtype in (dt.float64, dt.float32, dt.bfloat16, dt.float16, dt.complex128):
            yield Sample(cls(), (array((2, 4), dtype), array(second((2, 4)), dtype)), dtype.name)
        for label, shape in (("vector", (4,)), ("batch", (2, 5, 4)), ("empty", (0, 4))):
            yield Sample(cls(), (array(shape), array(second(shape))), label)
        yield Sample(cls(), (strided(array((2, 4))), strided(array(second((2, 4))))), "strided")

    return classmethod(samples)


class LinearInput(Op):
    """The gradient of a linear layer's input: g conj(weight), over all rows."""

    library = "linear_input"
    needs = ("x2", "x1")
    samples = _gradient_samples(lambda g: (4, 3))

    def infer(self, g: Spec, w: Spec) -> Spec:
        """(..., out) and (out, in) give (..., in)."""
        if len(w.shape) != 2 or not g.shape or g.shape[-1] != w.shape[0] or g.dtype is not w.dtype:
            raise ShapeError(f"linear_input: {g} is no gradient of a layer with weight {w}")
        return g.with_(shape=(*g.shape[:-1], w.shape[1]))

    def compute(self, xp: Any, g: Any, w: Any) -> Any:
        """A single matmul over all rows."""
        x = xp.matmul(_rows(g), _conjugate(xp, w))
        return x if g.ndim == 2 else x.reshape(*g.shape[:-1], w.shape[1])

    def batch(self, size: int, flags: Any, g: Any, w: Any) -> Any:  # type: ignore[override]
        """The op for a batch: more rows, where all share the weight; else a product each."""
        if not flags[1]:
            return apply(LINEAR_INPUT, g, w)
        *rows, _ = g._data.shape[1:] if flags[0] else g._data.shape
        x = apply(MATMUL, _rows_each(g, flags[0]), w.conj())
        return x.reshape(size, *rows, w._data.shape[-1])

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """The layer of `g`, and the gradient of its weight."""
        return (lambda: apply(LINEAR, g, x2), lambda: apply(LINEAR_WEIGHT, x1, g))

    def reference(self, g: Any, w: Any) -> Any:
        """Reference value by einsum."""
        wide = [v.astype(np.float64) if v.dtype.kind in "fV" else v for v in (g, w)]
        return np.einsum("...n,nk->...k", wide[0], wide[1].conj())


LINEAR_INPUT = LinearInput()


class LinearWeight(Op):
    """The gradient of a linear layer's weight: g^T conj(x), over all rows."""

    library = "linear_weight"
    needs = ("x2", "x1")
    samples = _gradient_samples(lambda g: (*g[:-1], 3))

    def infer(self, g: Spec, x: Spec) -> Spec:
        """(..., out) and (..., in) give (out, in)."""
        if not g.shape or g.shape[:-1] != x.shape[:-1] or g.dtype is not x.dtype:
            raise ShapeError(f"linear_weight: {g} and {x} are no rows of one layer")
        return g.with_(shape=(g.shape[-1], x.shape[-1]))

    def compute(self, xp: Any, g: Any, x: Any) -> Any:
        """A single matmul over all rows."""
        return xp.matmul(_rows(g).T, _conjugate(xp, _rows(x)))

    def batch(self, size: int, flags: Any, g: Any, x: Any) -> Any:  # type: ignore[override]
        """A product each."""
        return apply(MATMUL, _rows_each(g, flags[0]).mT, _rows_each(x, flags[1]).conj())

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """A layer of the rows, and the gradient of its input."""
        return (lambda: apply(LINEAR, x2, g), lambda: apply(LINEAR_INPUT, x1, g))

    def reference(self, g: Any, x: Any) -> Any:
        """Reference value by einsum, over all rows."""
        wide = [v.astype(np.float64) if v.dtype.kind in "fV" else v for v in (g, x)]
        rows, inputs = (v.reshape(prod(v.shape[:-1]), v.shape[-1]) for v in wide)
        return np.einsum("rn,rk->nk", rows, inputs.conj())


LINEAR_WEIGHT = LinearWeight()


@public(method=False)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, **others: Any) -> Tensor:
    """Affine map of the last dimension.

        y = x weight^T + bias

    Args:
        input: Vectors.
        weight: Matrix of the map, a row for each output.
        bias: Number added to each output. Default: None.

    Shapes: (..., in), weight (out, in) and bias (out,) give (..., out); weight (in,) gives (...).
    Dtypes: all of one dtype.
    Errors: ShapeError where the inner sizes differ; DTypeError where the dtypes do.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear.html

    >>> ad.linear(ad.tensor([[1., 2.]]), ad.tensor([[3., 4.]]), ad.tensor([10.]))
    tensor([[21.]])
    """
    if others:
        raise unexpected(linear, others)
    if FOLLOWED and concerns(input, weight, bias):
        said = overridden(linear, leading(input, weight, bias), {})
        if said is not ABSENT:
            return said
    try:
        if weight._data.ndim == 1:
            product = matmul(input, weight)
            return product if bias is None else product + bias
        inputs = (input, weight) if bias is None else (input, weight, bias)
        y = run_known(LINEAR, inputs)  # it was probably launched before
        return apply(LINEAR, *inputs) if y is None else y
    except MISTAKES as error:
        return recovered(error, linear, linear, (input, weight, bias), {})


def _apply_again(op: Op, *inputs: Any) -> Any:
    """`apply` for an op that was probably launched before: it is asked for that first."""
    y = run_known(op, tuple(inputs))
    return apply(op, *inputs) if y is None else y
