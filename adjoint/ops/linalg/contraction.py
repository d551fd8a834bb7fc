"""Products that are named by dimensions: einsum, tensordot, kron, cross, chains of matrices."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.argument_errors import assert_tensor
from ...core.errors import InvalidArgument, ShapeError
from ...core.spec import broadcast_shapes, normalize_axis, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, public, with_out
from ...runtime.writes import values_of
from ..elementwise.namespace import conj
from ..promotion import promote
from ..shape.sizes import hold_sizes
from .matrix_product import matmul, product

if TYPE_CHECKING:
    from ...ops.argument_types import Dims

__all__ = ["chain_matmul", "cross", "einsum", "kron", "tensordot"]


class Term:
    """A tensor with one label per dimension; no label occurs twice."""

    def __init__(self, tensor: Any, labels: tuple[Any, ...]) -> None:
        self.tensor = tensor
        self.labels = labels

    def sizes(self) -> dict[Any, int]:
        """The size of each labelled dimension."""
        return dict(zip(self.labels, self.tensor.shape, strict=True))

    def without(self, labels: set[Any]) -> Term:
        """The term without these dimensions, of size 1."""
        places = tuple(i for i, label in enumerate(self.labels) if label in labels)
        if not places:
            return self
        rest = tuple(label for label in self.labels if label not in labels)
        return Term(self.tensor.squeeze(places), rest)

    def summed(self, labels: set[Any], dtype: Any = None) -> Term:
        """The sum over the dimensions with these labels; of integers in int64 unless `dtype`."""
        axes = tuple(i for i, label in enumerate(self.labels) if label in labels)
        if not axes:
            return self
        total = self.tensor.sum(dim=axes, dtype=dtype)
        return Term(total, tuple(x for x in self.labels if x not in labels))

    def ordered(self, labels: Sequence[Any]) -> Any:
        """The tensor with its dimensions in this order, size 1 for a label that it lacks."""
        own = [self.labels.index(label) for label in labels if label in self.labels]
        tensor = _permuted(self.tensor, own)
        if len(own) == len(labels):
            return tensor
        sizes = self.sizes()
        return tensor.reshape(tuple(sizes.get(label, 1) for label in labels))


def _contract(a: Term, b: Term, keep: set[Any], dtype: Any = None) -> Term:
    """The product of two terms, summed over the labels that are not to be kept."""
    sizes_a, sizes_b = a.sizes(), b.sizes()
    if a.tensor.dtype is not b.tensor.dtype:  # without a sum, it is an elementwise product
        single = {x for x in sizes_a if sizes_a[x] == 1 == sizes_b.get(x) and x not in keep}
        a, b = a.without(single), b.without(single)
        sizes_a, sizes_b = a.sizes(), b.sizes()
    # A dimension of size 1 broadcasts: the other operand can be summed by itself.
    uneven = {x for x in sizes_a if x in sizes_b and sizes_a[x] != sizes_b[x] and x not in keep}
    alone_a = {x for x in sizes_a if x not in keep and (x not in sizes_b or x in uneven)}
    alone_b = {x for x in sizes_b if x not in keep and (x not in sizes_a or x in uneven)}
    a, b = a.summed(alone_a, dtype), b.summed(alone_b, dtype)
    pair, labels = _paired(a.labels, a.tensor.shape, b.labels, b.tensor.shape, keep)
    if pair is None:
        return Term(a.ordered(labels) * b.ordered(labels), labels)
    return Term(pair(a.tensor, b.tensor), labels)


class Pair(NamedTuple):
    """Contraction of two tensors, as stacks of matrices: in which order their dimensions are taken,
    and what shape that gets (None: the one it has); how many dimensions of the product are those of
    the stack, and the shape behind them (None, too).
    """

    orders: tuple[tuple[int, ...], tuple[int, ...]]
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    stack: int
    shape: tuple[int, ...] | None

    def __call__(self, a: Any, b: Any) -> Any:
        """The contraction."""
        left, right = map(_laid, (a, b), self.orders, self.shapes)
        result = product("einsum", left, right)
        if self.shape is None:
            return result
        return result.reshape(*result.shape[: self.stack], *self.shape)


def _laid(x: Any, order: tuple[int, ...], shape: tuple[int, ...] | None) -> Any:
    x = _permuted(x, order)
    return x if shape is None else x.reshape(shape)


def _permuted(x: Any, order: Sequence[int]) -> Any:
    return x if list(order) == list(range(len(order))) else x.permute(order)


def _paired(
    a: Sequence[Any], shape_a: Any, b: Sequence[Any], shape_b: Any, keep: Collection[Any]
) -> tuple[Pair | None, tuple[Any, ...]]:
    """The contraction of tensors with these labels and shapes over the labels that both have and
    that are not to be kept, and the labels of the result; None where there are none.
    """
    shared = [x for x in a if x in b]
    summed = [x for x in shared if x not in keep]
    batch = [x for x in shared if x in keep]
    rows, columns = [x for x in a if x not in shared], [x for x in b if x not in shared]
    labels = (*batch, *rows, *columns)
    if not summed:
        return None, labels
    sizes_a, sizes_b = dict(zip(a, shape_a, strict=True)), dict(zip(b, shape_b, strict=True))
    m, n = (sizes_a[x] for x in rows), (sizes_b[x] for x in columns)
    k = prod(sizes_a[x] for x in summed)
    single = len(summed) == 1
    left = (*(sizes_a[x] for x in batch), prod(sizes_a[x] for x in rows), k)
    right = (*(sizes_b[x] for x in batch), k, prod(sizes_b[x] for x in columns))
    pair = Pair(
        (
            tuple(a.index(x) for x in (*batch, *rows, *summed)),
            tuple(b.index(x) for x in (*batch, *summed, *columns)),
        ),
        (
            None if single and len(rows) == 1 else left,
            None if single and len(columns) == 1 else right,
        ),
        len(batch),
        None if len(rows) == len(columns) == 1 else (*m, *n),
    )
    return pair, labels


def _diagonal(tensor: Any, labels: list[Any], name: str) -> Term:
    """A term from labels that may repeat: the diagonal of the repeated dimensions."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if tensor.shape[first] != tensor.shape[second]:
                raise ShapeError(
                    f"{name}: subscript {label} is repeated for operand of shape "
                    f"{tuple(tensor.shape)} but the sizes don't match, {tensor.shape[second]} != "
                    f"{tensor.shape[first]}"
                )
            tensor = tensor.diagonal(0, first, second)
            del labels[second], labels[first]
            labels.append(label)
    return Term(tensor, tuple(labels))


def _parse_labels(text: str, what: str) -> list[str]:
    """`"a...b"` as ["a", "...", "b"]."""
    labels: list[str] = []
    rest = text.replace(" ", "")
    while rest:
        if rest.startswith("..."):
            if "..." in labels:
                raise InvalidArgument(f"einsum: found '...' more than once in {what} {text!r}")
            labels.append("...")
            rest = rest[3:]
            continue
        if not (rest[0].isascii() and rest[0].isalpha()):
            raise InvalidArgument(
                f"einsum: invalid subscript given at {what} {text!r}, subscripts must be in "
                f"[a-zA-Z] or '...', got {rest[0]!r}"
            )
        labels.append(rest[0])
        rest = rest[1:]
    return labels


def _parse(equation: str, count: int) -> tuple[list[list[str]], list[str] | None]:
    left, arrow, right = equation.partition("->")
    inputs = [_parse_labels(text, "operand") for text in left.split(",")]
    if len(inputs) != count:
        raise InvalidArgument(
            f"einsum: the equation {equation!r} has {len(inputs)} operands, but {count} tensors "
            "were provided; more operands were provided than specified in the equation, or fewer"
        )
    return inputs, _parse_labels(right, "output") if arrow else None


@public(method=False)
def einsum(*args: Any) -> Tensor:
    """Products of tensors summed over named dimensions (Einstein's convention).

    `einsum("ij,jk->ik", a, b)`, or with lists of numbers: `einsum(a, [0, 1], b, [1, 2], [0, 2])`;
    the tensors behind an equation may come in one list, which overrides and traces do not see.
    '...' stands for dimensions that broadcast; a label repeated in one operand takes the diagonal;
    without '->' the labels that occur once are kept, in alphabetical order.

    Shapes: dimensions with one label have one size (or 1).
    Dtypes: all operands have the same.
    Errors: InvalidArgument for a malformed equation; ShapeError where sizes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.einsum.html

    >>> a = ad.tensor([[1., 2.], [3., 4.]])
    >>> ad.einsum("ij,kj->ik", a, a)
    tensor([[ 5., 11.],
            [11., 25.]])
    >>> ad.einsum("ii", a)
    tensor(5.)
    """
    if not args:
        raise InvalidArgument("einsum: must specify the equation string and at least one operand")
    inputs: list[list[Any]]
    output: list[Any] | None
    if isinstance(args[0], str):
        operands = list(_operands_apart(args)[1:])
        if not operands:
            raise InvalidArgument("einsum: must provide at least one operand")
        plan = _plan_of(args[0], operands)
        if plan is not None:
            pair, order = plan
            return _permuted(pair(*operands), order)
        inputs, output = _parse(args[0], len(operands))
    else:
        operands = list(args[0 : len(args) - len(args) % 2 : 2])
        lists = [["..." if x is Ellipsis else x for x in each] for each in args[1::2]]
        inputs = lists[: len(operands)]
        output = None
        if len(args) % 2:
            output = ["..." if x is Ellipsis else x for x in args[-1]]
    for i, operand in enumerate(operands):
        assert_tensor("einsum", operand, f"operands[{i}]")
    return _einsum(operands, inputs, output)


def _operands_apart(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of einsum, of which a list of all operands becomes so many, as in PyTorch."""
    one_list = len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], (tuple, list))
    return (args[0], *args[1]) if one_list else args


vars(einsum)["operands_apart"] = _operands_apart


def _plan_of(equation: str, operands: list[Any]) -> Any:
    """The plan by which an equation was done before with arrays of such shapes; None for the
    general way.
    """
    if len(operands) != 2:
        return None
    for x in operands:
        if not isinstance(x, TensorBase) or type(x._data) is not np.ndarray:
            return None
    if operands[0]._data.dtype is not operands[1]._data.dtype:
        return None
    return _planned(equation, *(x._data.shape for x in operands))


@functools.lru_cache(maxsize=1024)
def _planned(equation: str, *shapes: tuple[int, ...]) -> tuple[Pair, tuple[int, ...]] | None:
    """The contraction of two tensors, and the order of the dimensions that this gives; None where
    more is to be done (a label is repeated, broadcast, or summed in one of them), or said.
    """
    (first, second), output = _parse(equation, 2)
    if output is None or any("..." in labels for labels in (first, second, output)):
        return None
    if any(len(labels) != len(set(labels)) for labels in (first, second, output)):
        return None
    if (len(first), len(second)) != tuple(map(len, shapes)):
        return None
    sizes: dict[Any, int] = {}
    for label, size in zip((*first, *second), (*shapes[0], *shapes[1]), strict=True):
        if sizes.setdefault(label, size) != size:
            return None
    pair, labels = _paired(first, shapes[0], second, shapes[1], output)
    if pair is None or set(labels) != set(output):
        return None
    return pair, tuple(map(labels.index, output))


def _einsum(operands: list[Any], inputs: list[list[Any]], output: list[Any] | None) -> Tensor:
    terms = []
    hidden = 0  # dimensions that '...' stands for, in the operand where it has most
    for i, (tensor, labels) in enumerate(zip(operands, inputs, strict=True)):
        named = len([x for x in labels if x != "..."])
        extra = tensor.ndim - named
        if extra < 0 or (extra and "..." not in labels):
            raise ShapeError(
                f"einsum: the number of subscripts in the equation ({named}) does not match the "
                f"number of dimensions ({tensor.ndim}) for operand {i} of shape "
                f"{tuple(tensor.shape)}; use '...' for more dimensions"
            )
        if "..." in labels:
            hidden = max(hidden, extra)
            at = labels.index("...")
            labels = [*labels[:at], *(-j for j in range(extra, 0, -1)), *labels[at + 1 :]]
            # Numbers of a sublist cannot meet these: they are not negative.
        terms.append(_diagonal(tensor, list(labels), "einsum"))
    ellipsis = list(range(-hidden, 0))
    counts: dict[Any, int] = {}
    for labels in inputs:
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
    if output is None:
        once = sorted(x for x, n in counts.items() if n == 1 and x != "...")
        target = [*ellipsis, *once]
    else:
        target = [y for x in output for y in (ellipsis if x == "..." else [x])]
        for label in target:
            if target.count(label) > 1:
                raise InvalidArgument(f"einsum: output subscript {label} appears more than once")
            if label not in counts and label not in ellipsis:
                raise InvalidArgument(
                    f"einsum: output subscript {label} does not appear in the equation for any "
                    "input operand"
                )
    _assert_sizes(terms)
    keep = set(target)
    for step in _path(terms, target):
        chosen = [terms[i] for i in step]
        terms = [term for i, term in enumerate(terms) if i not in step]
        merged = chosen.pop(0)
        while chosen:
            other = chosen.pop(0)
            needed = keep.union(*(term.labels for term in (*terms, *chosen)))
            merged = _contract(merged, other, needed)
        terms.append(merged)
    last = terms[0].summed(set(terms[0].labels) - keep)
    return last.ordered(target)


def _assert_sizes(terms: list[Term]) -> None:
    sizes: dict[Any, int] = {}
    for i, term in enumerate(terms):
        for label, size in term.sizes().items():
            known = sizes.get(label, 1)
            if size != known and 1 not in (size, known):
                raise ShapeError(
                    f"einsum: operands do not broadcast with remapped shapes: subscript {label} "
                    f"has size {size} for operand {i} which does not broadcast with previously "
                    f"seen size {known}; give equal sizes one letter"
                )
            sizes[label] = size if known == 1 else known


def _path(terms: list[Term], target: list[Any]) -> Sequence[tuple[int, ...]]:
    """Contraction order: the terms to contract, step by step. A result is appended to those that
    are left.
    """
    if len(terms) <= 2:
        return [tuple(range(len(terms)))] if len(terms) == 2 else []
    number = {x: i for i, x in enumerate(dict.fromkeys(y for t in terms for y in t.labels))}
    if len(number) > 50:
        return [(0, 1)] + [(0, len(terms) - 2 - i) for i in range(len(terms) - 2)]
    arguments: list[Any] = []
    for term in terms:
        arguments += [np.broadcast_to(0.0, term.tensor.shape), [number[x] for x in term.labels]]
    path, _ = np.einsum_path(
        *arguments, [number[x] for x in target if x in number], optimize="greedy"
    )
    return [tuple(sorted(step)) for step in path[1:] if len(step) > 1]


@public(method=False, out=True)
def tensordot(a: Tensor, b: Tensor, dims: Dims = 2) -> Tensor:
    """The product of two tensors summed over pairs of dimensions.

    `dims` is how many of a's last and b's first dimensions to pair, or two lists of dimensions.

    Shapes: a's other dimensions, then b's.
    Dtypes: both operands have the same.
    Errors: ShapeError where the paired dimensions differ in size.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.tensordot.html

    >>> ad.tensordot(ad.ones(2, 3, 4), ad.ones(3, 4, 5), dims=2).shape
    adjoint.Size([2, 5])
    """
    b = hold_sizes("tensordot", b)
    a = hold_sizes("tensordot", a)
    if isinstance(dims, TensorBase):
        dims = values_of(dims).tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise InvalidArgument(
                f"tensordot: expects dims >= 0 and at most {min(a.ndim, b.ndim)}, but got "
                f"dims={dims}"
            )
        first, second = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    axes_a = [normalize_axis(d, a.ndim, "tensordot") for d in first]
    axes_b = [normalize_axis(d, b.ndim, "tensordot") for d in second]
    if len(axes_a) != len(axes_b):
        raise InvalidArgument(
            f"tensordot: both dimension lists should have same length, got {first} and {second}"
        )
    labels_a: list[Any] = [("a", i) for i in range(a.ndim)]
    labels_b: list[Any] = [("b", i) for i in range(b.ndim)]
    for i, j in zip(axes_a, axes_b, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise ShapeError(
                f"tensordot: contracted dimensions need to match, but first has size {a.shape[i]} "
                f"in dim {i} and second has size {b.shape[j]} in dim {j}"
            )
        labels_b[j] = labels_a[i]
    paired = {labels_a[i] for i in axes_a}
    keep = {x for x in (*labels_a, *labels_b) if x not in paired}
    terms = Term(a, tuple(labels_a)), Term(b, tuple(labels_b))
    return _contract(*terms, keep, a.dtype).tensor


@public(out=True)
@explaining
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: `other` scaled by each element of `input`, as blocks.

    Shapes: sizes multiply; the tensor with fewer dimensions gets size 1 in front.
    Dtypes: the promoted dtype of the inputs.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.kron.html

    >>> ad.kron(ad.tensor([[1, 2]]), ad.tensor([[1], [10]]))
    tensor([[ 1,  2],
            [10, 20]])
    """
    rank = max(input.ndim, other.ndim)
    a = (1,) * (rank - input.ndim) + tuple(input.shape)
    b = (1,) * (rank - other.ndim) + tuple(other.shape)
    left = input.reshape(tuple(x for size in a for x in (size, 1)))
    right = other.reshape(tuple(x for size in b for x in (1, size)))
    return (left * right).reshape(tuple(m * n for m, n in zip(a, b, strict=True)))


@public(out=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product of 3-vectors along `dim` (the first dimension of size 3 where None).

    Shapes: `input` and `other` broadcast; their size along `dim` is 3.
    Dtypes: the promoted dtype of the inputs.
    Errors: ShapeError where the size along `dim` is not 3.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.cross.html

    >>> ad.cross(ad.tensor([1., 0., 0.]), ad.tensor([0., 1., 0.]))
    tensor([0., 0., 1.])
    """
    if input.ndim != other.ndim:
        raise ShapeError(
            f"cross: inputs must have the same number of dimensions, got {tuple(input.shape)} and "
            f"{tuple(other.shape)}"
        )
    shape = broadcast_shapes(input.shape, other.shape, op="cross")
    if dim is None:
        if 3 not in input.shape:
            raise ShapeError(f"cross: no dimension of size 3 in input, got {tuple(input.shape)}")
        dim = list(input.shape).index(3)
    axis = normalize_axis(dim, len(shape), "cross")
    if input.shape[axis] != 3 or other.shape[axis] != 3:
        raise ShapeError(
            f"cross: inputs dimension {dim} must have length 3. Got {input.shape[axis]} and "
            f"{other.shape[axis]}"
        )
    _, (a, b) = promote("cross", input, other)
    left = a.roll(-1, axis) * b.roll(-2, axis)
    return left - a.roll(-2, axis) * b.roll(-1, axis)


@explaining
@with_out
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices, in the order that takes the fewest multiplications.

    Shapes: matrices; the first and the last may be vectors (a row, a column).
    Dtypes: all operands have the same.
    Errors: InvalidArgument for fewer than two tensors; ShapeError where inner sizes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.multi_dot.html

    >>> ad.linalg.multi_dot([ad.ones(2, 3), ad.ones(3, 4), ad.ones(4)])
    tensor([12., 12.])
    """
    if len(tensors) < 2:
        raise InvalidArgument(f"multi_dot: expected at least 2 tensors but got {len(tensors)}")
    chain = list(tensors)
    row, column = chain[0].ndim == 1, chain[-1].ndim == 1
    if row:
        chain[0] = chain[0].unsqueeze(0)
    if column:
        chain[-1] = chain[-1].unsqueeze(-1)
    for i, x in enumerate(chain):
        if x.ndim != 2:
            raise ShapeError(
                f"multi_dot: tensor {i} must be 2D, got {x.ndim}D of shape {tuple(x.shape)}; only "
                "the first and the last may be 1D"
            )
    for i in range(len(chain) - 1):
        if chain[i].shape[1] != chain[i + 1].shape[0]:
            raise ShapeError(
                f"multi_dot: tensors {i} and {i + 1} with shapes {tuple(tensors[i].shape)} and "
                f"{tuple(tensors[i + 1].shape)} cannot be multiplied"
            )
    result = _multiply(chain)
    if row:
        result = result.squeeze(0)
    if column:
        result = result.squeeze(-1)
    return result


def _multiply(chain: list[Any]) -> Any:
    """The product by the optimal parenthesisation (dynamic programming over intervals)."""
    sizes = [x.shape[0] for x in chain] + [chain[-1].shape[1]]
    n = len(chain)
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            costs = [
                cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            ]
            cost[i][j] = min(costs)
            split[i][j] = i + costs.index(cost[i][j])

    def multiply(i: int, j: int) -> Any:
        if i == j:
            return chain[i]
        return matmul(multiply(i, split[i][j]), multiply(split[i][j] + 1, j))

    return multiply(0, n - 1)


@public(method=False, out=True)
def chain_matmul(*matrices: Any) -> Tensor:
    """The product of matrices in the best order; `linalg.multi_dot` under its older name.

    Shapes: matrices whose inner sizes agree.
    Dtypes: all operands have the same.
    Errors: ShapeError where inner sizes differ.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.chain_matmul.html

    >>> ad.chain_matmul(ad.ones(2, 3), ad.ones(3, 4), ad.ones(4, 1)).flatten()
    tensor([12., 12.])
    """
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


@with_out
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sum of conj(x) * y along `dim`.

    Shapes: `x` and `y` broadcast; `dim` is dropped.
    Dtypes: the promoted dtype of the inputs.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.linalg.vecdot.html

    >>> ad.linalg.vecdot(ad.tensor([[1., 2.], [3., 4.]]), ad.tensor([1., 1.]))
    tensor([3., 7.])
    """
    return (conj(x) * y).sum(dim=dim)
