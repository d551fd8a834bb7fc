"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, ShapeError
from ...core.mistakes import MISTAKES, assert_tensor, recovered
from ...core.mode import is_casting
from ...core.op import Op, Sample
from ...core.overrides import ABSENT, FOLLOWED, concerns, leading, overridden
from ...core.spec import Spec, broadcast_shapes, prod
from ...core.types import Tensor
from ...eager.dispatch import apply, apply_view, run_known
from ...eager.public import METHODS, explaining, public
from ...program.compute import spec_of
from ..elementwise.namespace import conj
from ..promotion import cast
from ..samples import FLOATS, array, each_dtype, strided
from ..shape.movement import Permute
from ..shape.sizes import hold_sizes, is_of_graph

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "dot", "ger", "inner", "linear",
    "matmul", "mm", "mv", "outer", "vdot",
]  # fmt: skip


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
        """By einsum."""
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
        """One matmul over all rows."""
        if x.dtype != w.dtype or (bias is not None and bias.dtype != w.dtype):
            self.infer(*(spec_of(a) for a in (x, w, bias) if a is not None))
        y = xp.linear(_rows(x), w, bias)
        return y if x.ndim == 2 else y.reshape(*x.shape[:-1], w.shape[0])

    def batch(  # type: ignore[override]
        self, size: int, flags: Any, x: Any, w: Any, bias: Any = None
    ) -> Any:
        """As more rows, where all share the weight; else a product each."""
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
        """By einsum."""
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
        """One matmul over all rows."""
        x = xp.matmul(_rows(g), _conjugate(xp, w))
        return x if g.ndim == 2 else x.reshape(*g.shape[:-1], w.shape[1])

    def batch(self, size: int, flags: Any, g: Any, w: Any) -> Any:  # type: ignore[override]
        """As more rows, where all share the weight; else a product each."""
        if not flags[1]:
            return apply(LINEAR_INPUT, g, w)
        *rows, _ = g._data.shape[1:] if flags[0] else g._data.shape
        x = apply(MATMUL, _rows_each(g, flags[0]), w.conj())
        return x.reshape(size, *rows, w._data.shape[-1])

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """The layer of `g`, and the gradient of its weight."""
        return (lambda: apply(LINEAR, g, x2), lambda: apply(LINEAR_WEIGHT, x1, g))

    def reference(self, g: Any, w: Any) -> Any:
        """By einsum."""
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
        """One matmul over all rows."""
        return xp.matmul(_rows(g).T, _conjugate(xp, _rows(x)))

    def batch(self, size: int, flags: Any, g: Any, x: Any) -> Any:  # type: ignore[override]
        """A product each."""
        return apply(MATMUL, _rows_each(g, flags[0]).mT, _rows_each(x, flags[1]).conj())

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """A layer of the rows, and the gradient of its input."""
        return (lambda: apply(LINEAR, x2, g), lambda: apply(LINEAR_INPUT, x1, g))

    def reference(self, g: Any, x: Any) -> Any:
        """By einsum, over all rows."""
        wide = [v.astype(np.float64) if v.dtype.kind in "fV" else v for v in (g, x)]
        rows, inputs = (v.reshape(prod(v.shape[:-1]), v.shape[-1]) for v in wide)
        return np.einsum("rn,rk->nk", rows, inputs.conj())


LINEAR_WEIGHT = LinearWeight()


@public(method=False)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias.

    Shapes: (..., in), weight (out, in) and bias (out,) give (..., out); weight (in,) gives (...).
    Dtypes: all of one dtype.
    Errors: ShapeError where the inner sizes differ; DTypeError where the dtypes do.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear.html

    >>> ad.linear(ad.tensor([[1., 2.]]), ad.tensor([[3., 4.]]), ad.tensor([10.]))
    tensor([[21.]])
    """
    if FOLLOWED and concerns(input, weight, bias):
        said = overridden(linear, leading(input, weight, bias), {})
        if said is not ABSENT:
            return said
    try:
        if weight._data.ndim == 1:
            product = matmul(input, weight)
            return product if bias is None else product + bias
        if bias is None:
            return _apply_again(LINEAR, input, weight)
        return _apply_again(LINEAR, input, weight, bias)
    except MISTAKES as error:
        return recovered(error, linear, linear, (input, weight, bias), {})


def _apply_again(op: Op, *inputs: Any) -> Any:
    """`apply` for an op that was probably launched before: it is asked for that first."""
    y = run_known(op, tuple(inputs))
    return apply(op, *inputs) if y is None else y


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
    """Another name of `outer`.

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
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
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
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
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
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
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
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2).

    Shapes: (b, n, k) and (b, k, m), `input` broadcast to (b, n, m).
    Dtypes: all of one dtype.
    Errors: ShapeError for other shapes. Where beta is 0, NaN in `input` has no effect.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.baddbmm.html

    >>> ad.baddbmm(ad.ones(1), ad.ones(2, 1, 3), ad.ones(2, 3, 1)).flatten()
    tensor([4., 4.])
    """
    return _once("baddbmm", input, batch1, batch2, beta, alpha)


@public(inplace=True, out=True)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
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
