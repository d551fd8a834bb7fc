"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.errors import InvalidArgument
from ...runtime.public import naming
from ...tensor import Tensor
from ..modules.module import Module

__all__ = ["functional_call"]

_Values = Mapping[str, Any]


@naming
def functional_call(
    module: Module,
    parameter_and_buffer_dicts: _Values | Sequence[_Values],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors in the place of its parameters and buffers.

        y = module(*args, **kwargs), with the values of the dicts under their names

    What the call assigns or writes to them is seen in the dict, not in the module.

    Args:
        module: Module to call; it is as before afterwards.
        parameter_and_buffer_dicts: Dict of full names and tensors, or several of them.
        args: Arguments of the call, a tuple, or the only one. Default: None.
        kwargs: Keyword arguments of the call. Default: None.
        tie_weights: Replace a tensor that the module has under several names under all of them.
            Default: True.
        strict: Refuse missing and unknown names. Default: False.

    Errors: InvalidArgument for a name in two dicts, for tied tensors that are given as different
    ones, and where `strict` names are missing or not known.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html

    >>> layer = ad.nn.Linear(1, 1)
    >>> values = {"weight": ad.tensor([[2.]]), "bias": ad.tensor([1.])}
    >>> ad.func.functional_call(layer, values, ad.tensor([[3.]]))
    tensor([[7.]])
    """
    values = _as_one(parameter_and_buffer_dicts)
    places = _places(module)
    if strict:
        missing, unknown = sorted(places.keys() - values), sorted(values.keys() - places)
        if missing or unknown:
            raise InvalidArgument(
                f"functional_call: Missing key(s): {missing}; Unexpected key(s): {unknown}"
            )
    given = args if isinstance(args, tuple) else () if args is None else (args,)
    with _in_place_of_own(places, values, tie_weights):
        return module(*given, **(kwargs or {}))


def _as_one(given: Any) -> MutableMapping[str, Any]:
    if isinstance(given, MutableMapping):
        return given
    if isinstance(given, Mapping):
        return dict(given)
    values: dict[str, Any] = {}
    for each in given:
        twice = sorted(values.keys() & each)
        if twice:
            raise InvalidArgument(
                f"functional_call: {twice} appeared in multiple dictionaries; behavior of "
                "functional call is ambiguous"
            )
        values.update(each)
    return values


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Find each parameter and buffer by its full name: its module's dict, and its name there."""
    found = {}
    for prefix, each in module.named_modules(remove_duplicate=False):
        for own in (each._parameters, each._buffers):
            for name, value in own.items():
                if value is not None:
                    found[f"{prefix}.{name}" if prefix else name] = (own, name)
    return found


@contextmanager
def _in_place_of_own(
    places: Mapping[str, tuple[dict[str, Any], str]], values: Any, tie_weights: bool
) -> Iterator[None]:
    own = {name: where[key] for name, (where, key) in places.items()}
    used: dict[str, str] = {name: name for name in places if name in values}  # name: whose value
    if tie_weights:
        first: dict[int, str] = {}
        for name in used:
            other = first.setdefault(id(own[name]), name)
            if values[other] is not values[name]:
                raise InvalidArgument(
                    f"functional_call: {other!r} and {name!r} are tied, but different values were "
                    "given for them; give one of them, or pass tie_weights=False"
                )
        for name, value in own.items():
            if id(value) in first:
                used.setdefault(name, first[id(value)])
    try:
        for name, source in used.items():
            where, key = places[name]
            where[key] = values[source]
        yield
    finally:
        for name, source in used.items():
            where, key = places[name]
            now = where.get(key)
            if name == source and now is not values[name] and isinstance(now, Tensor):
                values[name] = now  # the call assigned another tensor
            where[key] = own[name]
