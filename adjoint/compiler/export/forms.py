"""Tree specs in files: the structure of arguments and results around their tensors.

A form is a tuple: ("tensor", n) for the tensor number n, ("constant", value), ("tuple", forms),
("list", forms), ("dict", pairs of keys and forms). Forms of results also have ("argument", n) and
("state", n) for tensors that existed before, and ("number", n) for computed Python numbers. Users'
classes are not needed to read a file: named tuples become tuples, data classes and other dicts
become dicts.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...core.device import device
from ...core.dtype import dtype
from ...core.errors import CheckpointError, InvalidType
from ...core.spec import Size, Spec
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from ...core.tree import named_arguments

Form: TypeAlias = tuple[str, Any]

MAX_DEPTH = 50  # containers inside one another
_CONSTANTS = frozenset((type(None), bool, int, float, complex, str, bytes, Size, dtype, device))


def form_of(x: object, tensor: Callable[[Any], Form], what: str, depth: int = 0) -> Form:
    """The form of `x`; `tensor` gives the part that represents a tensor or computed number.

    Errors: InvalidType, beginning with `what`, for other things than tensors, constants and
    containers.
    """
    kind = type(x)
    if kind is SymbolicNumber or isinstance(x, TensorBase):
        return tensor(x)
    if kind in _CONSTANTS:
        return "constant", x
    if depth >= MAX_DEPTH:
        raise InvalidType(f"{what}: more than {MAX_DEPTH} containers inside one another")
    if dataclasses.is_dataclass(kind):
        x = {field.name: getattr(x, field.name) for field in dataclasses.fields(kind)}
    if isinstance(x, Mapping):
        pairs = []
        for key, value in x.items():
            if type(key) not in _CONSTANTS:
                raise InvalidType(f"{what}: {key!r:.80} as a key, which no file can hold")
            pairs.append((key, form_of(value, tensor, what, depth + 1)))
        return "dict", pairs
    if isinstance(x, (tuple, list)):
        name = "list" if isinstance(x, list) else "tuple"
        return name, [form_of(each, tensor, what, depth + 1) for each in x]
    raise InvalidType(
        f"{what}: a {kind.__name__}, which no file can hold; tensors and constants can be stored, "
        "in tuples, lists, dicts and data classes"
    )


def filled(form: Any, tensors: Mapping[str, Sequence[Any]], depth: int = 0) -> Any:
    """Rebuild a value from its form, with these tensors by the kind of part that represents
    them.

    Errors: CheckpointError for an invalid form.
    """
    if type(form) is not tuple or len(form) != 2 or depth > MAX_DEPTH:
        raise CheckpointError(f"{form!r:.80} is no form of arguments or results")
    kind, parts = form
    if kind in tensors:
        if type(parts) is not int or not 0 <= parts < len(tensors[kind]):
            raise CheckpointError(f"it has no {kind} {parts!r:.40}")
        return tensors[kind][parts]
    if kind == "constant" and type(parts) in _CONSTANTS:
        return parts
    if kind in ("tuple", "list") and type(parts) is list:
        items = [filled(each, tensors, depth + 1) for each in parts]
        return items if kind == "list" else tuple(items)
    if kind == "dict" and type(parts) is list:
        pairs = [(key, filled(each, tensors, depth + 1)) for key, each in parts]
        if all(type(key) in _CONSTANTS for key, _ in pairs) and len(dict(pairs)) == len(pairs):
            return dict(pairs)
    raise CheckpointError(f"{kind!r:.40} is no form of arguments or results")


def sign(x: object, grad: bool, key: list[Any], tensors: list[Any]) -> None:
    """Add the key of an argument to `key`, and its tensors to `tensors`."""
    kind = type(x)
    if isinstance(x, TensorBase):
        data = x._data
        key.append((data.shape, data.dtype, grad and x._node is not None))
        tensors.append(x)
    elif kind is float or kind is complex:
        key.append((kind, repr(x)))  # 0.0 and -0.0 are equal, NaN is not
    elif kind in _CONSTANTS:
        key.append((kind, x))
    elif isinstance(x, (tuple, list)):
        key.append((list if isinstance(x, list) else tuple, len(x)))
        for each in x:
            sign(each, grad, key, tensors)
    elif isinstance(x, Mapping):
        key.append((dict, *x))
        for each in x.values():
            sign(each, grad, key, tensors)
    elif dataclasses.is_dataclass(kind):
        sign({f.name: getattr(x, f.name) for f in dataclasses.fields(kind)}, grad, key, tensors)
    else:
        key.append((kind, id(x)))  # which equals no exported key


def described(args: Sequence[Any], kwargs: Mapping[str, Any], spec: Callable[[Any], Spec]) -> str:
    """Description of a call's arguments."""
    descriptions: list[str] = []
    for name, x in named_arguments(args, kwargs):
        if isinstance(x, TensorBase):
            s = spec(x)
            wants = " that wants a gradient" if x._node is not None else ""
            descriptions.append(f"{name}: {tuple(s.shape)} {s.dtype.name}{wants}")
        else:
            descriptions.append(
                f"{name}: {x!r:.60}" if type(x) in _CONSTANTS else f"{name}: a {type(x)}"
            )
    return ", ".join(descriptions) or "no arguments"


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that can be given by position or by name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C code
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def by_position(
    names: Sequence[str], args: Any, kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """Arguments with as many as possible given by position."""
    if not kwargs:
        return args, kwargs
    args, kwargs = list(args), dict(kwargs)
    for name in names[len(args) :]:
        if name not in kwargs:
            break
        args.append(kwargs.pop(name))
    return tuple(args), kwargs
