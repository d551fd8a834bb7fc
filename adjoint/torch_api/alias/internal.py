"""`torch._utils`: helpers of PyTorch's own that packages have come to use."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import adjoint

from ...core.device import device as Device  # noqa: N812 - `device` is an argument
from ...core.errors import InvalidArgument

__all__ = ["classproperty", "is_compiling"]


class classproperty:  # noqa: N801 - PyTorch's name
    """An attribute of a class, worked out when it is read.

    >>> class Layer:
    ...     @classproperty
    ...     def title(cls):
    ...         return cls.__name__.lower()
    >>> Layer.title
    'layer'
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.function(type(instance) if owner is None else owner)


def is_compiling() -> bool:
    """Whether a function is being captured by `adjoint.compile`."""
    return bool(adjoint.compiler.is_compiling())


def _flatten_dense_tensors(tensors: Iterable[Any]) -> Any:
    """All elements of several tensors in one of a single dimension; of one tensor, a view."""
    parts = [each.contiguous().view(-1) for each in tensors]
    return adjoint.cat(parts) if len(parts) != 1 else parts[0]


def _unflatten_dense_tensors(flat: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Parts of `flat` with the shapes of `tensors`, as views."""
    parts = flat.split([each.numel() for each in tensors])
    return tuple(part.view(each.shape) for part, each in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Iterable[Any], size_limit: int) -> Iterable[list[Any]]:
    """Lists of tensors of one type, each of at most `size_limit` bytes unless that is one's."""
    waiting: dict[Any, tuple[list[Any], int]] = {}
    for each in tensors:
        kind, size = each.type(), each.numel() * each.element_size()
        several, total = waiting.get(kind, ([], 0))
        if total and total + size > size_limit:
            yield several
            several, total = [], 0
        several.append(each)
        waiting[kind] = several, total + size
    for several, _ in waiting.values():
        yield several


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device: -1 of the CPU where that is allowed.

    Errors: InvalidArgument for the CPU where it is not, and for no device.
    """
    if isinstance(device, int):
        return device
    place = Device(device) if isinstance(device, str) else device
    if isinstance(place, Device):
        if place.type == "cpu" and allow_cpu:
            return -1
        if place.type == "cpu":
            raise InvalidArgument(f"Expected a non cpu device, but got: {device}")
        return int(place.index or 0)
    raise InvalidArgument(
        f"Expected a torch.device with a specified index or an integer, but got: {device}"
    )


def _get_all_device_indices() -> list[int]:
    """The numbers of all devices; none are here."""
    return []


def _import_dotted_name(name: str) -> Any:
    """The object with a dotted name, whose first part is a module."""
    return pkgutil.resolve_name(name)
