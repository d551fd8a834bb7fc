"""`vmap`: a function of one example as a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd.batching import Batched, BatchLevel
from ...autograd.levels import entered
from ...core.errors import InvalidArgument
from ...core.tensor_base import TensorBase
from ...ops.random.generators import get_rng_state, set_rng_state
from ...ops.shape.concatenation import cat
from ...ops.shape.movement import movedim
from ...runtime.public import naming
from ...runtime.tensors import wrap
from ..utils._pytree import TreeSpec, tree_flatten, tree_is_leaf, tree_unflatten

__all__ = ["vmap"]

_RANDOMNESS = ("error", "different", "same")


@naming
def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that maps `func` over a dimension of its inputs, all entries at once.

    `in_dims` says which dimension of each input holds the examples (an int, None for an input that
    all share, or the inputs' structure of them), `out_dims` where those of the outputs go. What is
    passed by keyword all share. Random
    ops are refused, or draw numbers for each example ("different"), or the same for all, as
    `randomness` says. At most `chunk_size` examples are computed at a time. Ops without a rule for
    batches run once for each example, with a warning.

    Shapes: inside, tensors do not have the mapped dimension.
    Errors: InvalidArgument for dimensions that do not fit the inputs; Unsupported where `func`
    reads a value, or writes one for each example into a tensor that all share.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.vmap.html

    >>> ad.func.vmap(ad.dot)(ad.ones(3, 2), ad.tensor([[1., 2.], [3., 4.], [5., 6.]]))
    tensor([ 3.,  7., 11.])
    """
    if randomness not in _RANDOMNESS:
        raise InvalidArgument(
            f"vmap: Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness!r}"
        )
    if chunk_size is not None and not (isinstance(chunk_size, int) and chunk_size > 0):
        raise InvalidArgument(
            f"vmap: Chunk size should be None or greater than 0. (got {chunk_size!r})"
        )

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        flat, spec, dims = _inputs(func, in_dims, args, kwargs)
        size = _batch_size(func, flat, dims)
        step = size if chunk_size is None else chunk_size
        columns: list[list[Any]] = []
        starts = range(0, size, step) if size else (0,)
        same = randomness == "same" and len(starts) > 1
        state = get_rng_state() if same else None
        for start in starts:
            if same and start:
                set_rng_state(state)  # each piece draws the numbers of the first
            level = BatchLevel(min(step, size - start), randomness)
            piece = [
                x if dim is None or level.size == size else x.narrow(dim, start, level.size)
                for x, dim in zip(flat, dims, strict=True)
            ]
            found, form = _mapped(func, level, piece, spec, dims)
            placed = _placed(func, level, found, form, out_dims)
            columns = columns or [[] for _ in placed]
            for column, each in zip(columns, placed, strict=True):
                column.append(each)
        joined = [
            parts[0][0] if len(parts) == 1 or dim is None else cat([y for y, _ in parts], dim)
            for parts in columns
            for dim in (parts[0][1],)
        ]
        return tree_unflatten(joined, form)

    return mapped


def _mapped(
    func: Any, level: BatchLevel, flat: list[Any], spec: TreeSpec, dims: list[Any]
) -> tuple[list[Any], TreeSpec]:
    """The outputs of `func` for all examples, flat, and their form."""
    batched = [
        x if dim is None else wrap(Batched(level, movedim(x, dim, 0)))
        for x, dim in zip(flat, dims, strict=True)
    ]
    values = [None if dim is None else x._data for x, dim in zip(batched, dims, strict=True)]
    args, kwargs = tree_unflatten(batched, spec)
    with entered(level):
        result = func(*args, **kwargs)
    for x, y, value, dim in zip(flat, batched, values, dims, strict=True):
        if value is not None and y._data is not value:  # it was written to
            outer = movedim(x, dim, 0) if dim else x
            outer.copy_(y._data.inner)
            level.put(y, wrap(Batched(level, outer)))  # what is returned of it is in that memory
    return tree_flatten(result)


def _placed(
    func: Any, level: BatchLevel, outputs: list[Any], form: TreeSpec, out_dims: Any
) -> list[tuple[Any, int | None]]:
    """The outputs with the examples where `out_dims` says; and where that is, None for those that
    all share.
    """
    result = tree_unflatten(outputs, form)
    if isinstance(out_dims, tuple) and len(out_dims) == 1 and isinstance(result, TensorBase):
        (out_dims,) = out_dims
    dims = _broadcast(out_dims, result)
    name = _name(func)
    if dims is None:
        raise InvalidArgument(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with "
            f"the structure of `outputs`: {form}; give an int, or the outputs' structure of them"
        )
    placed: list[tuple[Any, int | None]] = []
    for y, dim in zip(outputs, dims, strict=True):
        batched = level.at(y) and not y._data.whole
        if dim is None:
            if batched:
                raise InvalidArgument(
                    f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is "
                    "None"
                )
            placed.append((y._data.inner if level.at(y) else y, None))
            continue
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise InvalidArgument(
                f"vmap({name}, ..., out_dims={out_dims}): out_dims must be an int, None or a "
                "python collection of ints representing where in the outputs the vmapped "
                "dimension should appear."
            )
        if not isinstance(y, TensorBase):
            raise InvalidArgument(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(y)}. Did "
                "you mean to set out_dims= to None for output?"
            )
        inner: Any = y._data.inner if level.at(y) else y
        inner = inner if batched else inner.expand(level.size, *inner.shape)
        placed.append((movedim(inner, 0, dim) if dim else inner, dim))
    return placed


def _inputs(
    func: Any, in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], TreeSpec, list[Any]]:
    """The inputs one by one, their form, and the dimension of each that holds the examples."""
    name = _name(func)
    place = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple, list)):
        raise InvalidArgument(
            f"{place}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise InvalidArgument(
            f"{place}: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs. The latter is unsupported."
        )
    if isinstance(in_dims, int):
        given: list[Any] | None = [in_dims] * len(tree_flatten(args)[0])
    else:
        given = _broadcast(tuple(in_dims), args)
    if given is None:
        raise InvalidArgument(
            f"{place}: in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {tree_flatten(in_dims)[1]} but inputs has structure "
            f"{tree_flatten(args)[1]}."
        )
    flat, spec = tree_flatten((args, kwargs))
    named, _ = tree_flatten(kwargs)
    dims = given + [None] * len(named)
    found: list[int | None] = []
    for x, dim in zip(flat, dims, strict=True):
        if dim is None:
            found.append(None)
            continue
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise InvalidArgument(
                f"{place}: Got in_dim={dim} for an input but in_dim must be either an integer "
                "dimension or None."
            )
        if not isinstance(x, TensorBase):
            raise InvalidArgument(
                f"{place}: Got in_dim={dim} for an input but the input is of type {type(x)}. We "
                "cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
            )
        ndim = x._data.ndim
        if not -ndim <= dim < ndim:
            raise InvalidArgument(
                f"{place}: Got in_dim={dim} for some input, but that input is a Tensor of "
                f"dimensionality {ndim} so expected in_dim to satisfy -{ndim} <= in_dim < {ndim}."
            )
        found.append(dim % ndim)
    return flat, spec, found


def _batch_size(func: Any, flat: list[Any], dims: list[Any]) -> int:
    sizes = [x._data.shape[dim] for x, dim in zip(flat, dims, strict=True) if dim is not None]
    if not sizes:
        raise InvalidArgument(
            f"vmap({_name(func)}): at least one Tensor must be mapped over; all in_dims are None"
        )
    if any(size != sizes[0] for size in sizes):
        raise InvalidArgument(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


def _broadcast(dims: Any, tree: Any) -> list[Any] | None:
    """The dims broadcast: one for each leaf of `tree`, of which it is a prefix; None where it is
    not.
    """
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree_flatten(tree)[0])
    if tree_is_leaf(tree):
        return None
    parts = tree_flatten(tree, lambda x: x is not tree)[0]
    given, kind = tree_flatten(dims, lambda x: x is not dims)
    sequences = isinstance(dims, (tuple, list)) and isinstance(tree, (tuple, list))
    if isinstance(tree, dict) and isinstance(dims, dict) and tree.keys() == dims.keys():
        given = [dims[key] for key in tree]
    elif not sequences and kind != tree_flatten(tree, lambda x: x is not tree)[1]:
        return None
    if len(parts) != len(given):
        return None
    found: list[Any] = []
    for dim, part in zip(given, parts, strict=True):
        each = _broadcast(dim, part)
        if each is None:
            return None
        found += each
    return found


def _name(func: Any) -> str:
    return getattr(func, "__name__", None) or repr(func)
