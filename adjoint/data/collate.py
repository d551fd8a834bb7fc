"""Collation of a list of items to one batch, and from arrays to tensors, inside any nested
structure.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from ..core.dtype import float64
from ..core.errors import InvalidArgument, InvalidType, ShapeError
from ..ops.create.creation import tensor
from ..ops.create.memory import as_tensor
from ..ops.shape.concatenation import stack
from ..tensor import Tensor

Functions = dict[Any, Callable[..., Any]]  # by types of items, or tuples of types
np_str_obj_array_pattern = re.compile(r"[SaUO]")  # of dtypes that no batch is made of


def default_convert(data: Any) -> Any:
    """Converts NumPy arrays to tensors, inside mappings, namedtuples and sequences; the rest stays.

    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.default_convert

    >>> ad.data.default_convert({"x": np.array([1, 2]), "name": "a"})
    {'x': tensor([1, 2]), 'name': 'a'}
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind in "biufcV":
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _same_type(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        parts = [default_convert(part) for part in data]
        return parts if type(data) is tuple else _rebuilt(data, parts)
    return data


_REFUSED = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
    "{kind}; pass a collate_fn"
)


def default_collate(batch: Sequence[Any]) -> Any:
    """A list of items as one batch: tensors stacked, numbers as a tensor, structures by position.

    Errors: InvalidArgument where sequences have different lengths; InvalidType for items of
    other types.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.default_collate

    >>> ad.data.default_collate([(ad.tensor(1.), {"n": 2}), (ad.tensor(3.), {"n": 4})])
    [tensor([1., 3.]), {'n': tensor([2, 4])}]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: Functions | None = None) -> Any:
    """A list of items as one batch: by the function of the items' type, structures by position.

    `collate_fn_map[type](batch, collate_fn_map=...)` makes the batch of items of that type, or of a
    subclass, or of one of a tuple of types; containers need no function.

    Errors: InvalidArgument where sequences have different lengths; InvalidType for items of
    types without a function.
    Source: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.default_collate

    >>> from adjoint.data.collate import collate
    >>> by_type = {int: lambda items, collate_fn_map: sum(items)}
    >>> collate([{"n": 2}, {"n": 4}], collate_fn_map=by_type)
    {'n': 6}
    """
    first = batch[0]
    functions = collate_fn_map or {}
    for kind in (type(first), *(each for each in functions if isinstance(first, each))):
        if kind in functions:
            return functions[kind](batch, collate_fn_map=functions)
    if isinstance(first, Mapping):
        return _same_type(
            first,
            {
                key: collate([item[key] for item in batch], collate_fn_map=functions)
                for key in first
            },
        )
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise InvalidArgument(
                "default_collate: each element in list of batch should be of equal size, got "
                f"lengths {sorted({len(item) for item in batch})}; pad them, or pass a collate_fn"
            )
        columns = [collate(column, collate_fn_map=functions) for column in zip(*batch, strict=True)]
        return columns if type(first) is tuple else _rebuilt(first, columns)
    raise InvalidType(_REFUSED.format(kind=type(first)))


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: Functions | None = None) -> Tensor:
    """Tensors, stacked."""
    return _stacked(list(batch))


def collate_numpy_array_fn(
    batch: Sequence[Any], *, collate_fn_map: Functions | None = None
) -> Tensor:
    """NumPy arrays of numbers, or its numbers, stacked."""
    if batch[0].dtype.kind not in "biufcV":
        raise InvalidType(_REFUSED.format(kind=batch[0].dtype))
    return _stacked([as_tensor(item) for item in batch])


def _stacked(tensors: list[Tensor]) -> Tensor:
    try:
        return stack(tensors, 0)
    except ShapeError as error:
        raise ShapeError(f"default_collate: {error}; pad them, or pass a collate_fn") from None


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: Functions | None = None) -> Tensor:
    """Python's floats, as float64."""
    return tensor(batch, dtype=float64)


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: Functions | None = None) -> Tensor:
    """Python's other numbers."""
    return tensor(batch)


def collate_str_fn(batch: Sequence[Any], *, collate_fn_map: Functions | None = None) -> Any:
    """Strings, as they are."""
    return batch


collate_numpy_scalar_fn = collate_numpy_array_fn
default_collate_fn_map: Functions = {  # which programs may extend
    Tensor: collate_tensor_fn,
    (str, bytes): collate_str_fn,  # before NumPy's strings
    np.ndarray: collate_numpy_array_fn,
    np.generic: collate_numpy_scalar_fn,
    float: collate_float_fn,
    (int, complex): collate_int_fn,
}


def _same_type(source: Mapping[Any, Any], entries: dict[Any, Any]) -> Any:
    """`entries` as a mapping of `source`'s type, where that can be made."""
    if isinstance(source, MutableMapping):  # a copy keeps what else it holds
        result = copy.copy(source)
        for key, value in entries.items():
            result[key] = value
        return result
    make: Callable[[Any], Any] = type(source)
    try:
        return make(entries)
    except TypeError:
        return entries


def _rebuilt(source: Sequence[Any], parts: list[Any]) -> Any:
    """`parts` as a sequence of `source`'s type, where that can be made."""
    make: Callable[..., Any] = type(source)
    if hasattr(source, "_fields"):
        return make(*parts)
    try:
        return make(parts)
    except TypeError:
        return parts
