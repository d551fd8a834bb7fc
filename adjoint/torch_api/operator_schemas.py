"""Schemas of operators: inferred from a function's annotations, and read from text."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..core.errors import InvalidArgument
from ..core.tensor_base import TensorBase
from ..runtime.node import INFERENCE

__all__ = ["infer_schema"]


_TYPES: dict[Any, str] = {
    int: "SymInt", float: "float", bool: "bool", str: "str", complex: "complex",
    dtype: "ScalarType", device: "Device",
}  # fmt: skip


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
) -> str:
    """The schema described by the annotations of a function.

    Errors: InvalidArgument for a parameter without a type, or of a type that operators do not take.
    Source: https://docs.pytorch.org/docs/stable/library.html#torch.library.infer_schema

    >>> def f(x: ad.Tensor, sizes: list[int], k: float = 2.0) -> ad.Tensor: ...
    >>> ad.library.infer_schema(f, mutates_args=())
    '(Tensor x, SymInt[] sizes, float k=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function)
    hints = _hints(prototype_function)
    names = signature.parameters.keys()
    every = mutates_args == "unknown"
    mutated = (
        set(names)
        if every
        else {mutates_args}
        if isinstance(mutates_args, str)
        else {*mutates_args}
    )
    if not every and mutated - names:
        raise InvalidArgument(
            f"infer_schema: mutates_args names {sorted(mutated - names)}, which are no parameters "
            f"of {signature}"
        )
    parts = []
    keyword_only = False
    for i, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parts.append("*")
        if name not in hints:
            raise InvalidArgument(
                f"infer_schema(func): Parameter {name} must have a type annotation. Got func with "
                f"signature {signature})"
            )
        kind = _type_name(hints[name], f"Parameter {name}")
        if name in mutated:
            if not kind.startswith("Tensor"):
                if not every:
                    raise InvalidArgument(
                        f"infer_schema(func): Parameter {name} is in mutable_args but only Tensors "
                        "or collections of Tensors can be mutated"
                    )
            else:
                kind = f"Tensor(a{i}!){kind[len('Tensor') :]}"
        default = parameter.default
        suffix = ""
        if default is not inspect.Parameter.empty:
            shown = str(default).removeprefix("torch.").removeprefix("adjoint.")
            suffix = f'="{default}"' if isinstance(default, str) else f"={shown}"
        parts.append(f"{kind} {name}{suffix}")
    return f"{op_name or ''}({', '.join(parts)}) -> {_result(hints, signature)}"


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; strings among them are evaluated."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        raise InvalidArgument(
            f"infer_schema(func): an annotation of {function} means nothing: {error}"
        ) from None


def _type_name(hint: Any, what: str) -> str:
    if hint is type(None):
        return "None"
    if isinstance(hint, type) and issubclass(hint, TensorBase):
        return "Tensor"
    if hint in _TYPES:
        return _TYPES[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        rest = [each for each in args if each is not type(None)]
        if set(rest) == {int, float, bool}:
            return "Scalar" if len(rest) == len(args) else "Scalar?"
        if len(rest) == 1 and len(rest) < len(args):
            return f"{_type_name(rest[0], what)}?"
    if origin in (list, collections.abc.Sequence) and len(args) == 1:
        return f"{_type_name(args[0], what)}[]"
    raise InvalidArgument(
        f"infer_schema(func): {what} has unsupported type {hint}. The valid types are: Tensor, "
        "int, float, bool, str, complex, dtype, device, Union[int, float, bool], and Optional, "
        "list and Sequence of them"
    )


def _result(hints: dict[str, Any], signature: inspect.Signature) -> str:
    if "return" not in hints:
        raise InvalidArgument(
            f"infer_schema(func): No return type annotation was provided. Got func with signature "
            f"{signature}"
        )
    hint = hints["return"]
    if hint is type(None):
        return "()"
    if typing.get_origin(hint) is tuple:
        return f"({', '.join(_type_name(each, 'Return') for each in typing.get_args(hint))})"
    return _type_name(hint, "Return")


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _declared(schema: str) -> list[inspect.Parameter]:
    """The parameters of a schema."""
    start, end = schema.index("("), schema.index("->")
    inside = schema[start + 1 : schema.rindex(")", start, end)]
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    depth = 0
    piece = ""
    for letter in f"{inside},":
        depth += (letter in "([") - (letter in ")]")
        if letter != "," or depth:
            piece += letter
            continue
        text, piece = piece.strip(), ""
        if text == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif text:
            left, equals, default = text.partition("=")
            name = left.split()[-1]
            value = _literal(default.strip()) if equals else inspect.Parameter.empty
            parameters.append(inspect.Parameter(name, kind, default=value))
    return parameters


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a dtype, say, or `Mean`
        return text


def kind_of(values: Iterable[Any]) -> str:
    """The kind of the device on which an operator computes: that of its first tensor."""
    return next((x.device.type for x in flat(values) if isinstance(x, TensorBase)), "cpu")


def is_alias(y: Any, x: Any) -> bool:
    """Whether two tensors show the same memory."""
    return y is x or (
        y._changes is not None and y._changes is x._changes and y._changes is not INFERENCE
    )


def flat(values: Iterable[Any]) -> Iterable[Any]:
    """The values, of tuples and lists one by one."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from flat(value)
        else:
            yield value
