"""Placement of a file's tensors on devices, by `map_location`.

Tensors that share memory still share it on another device: their memory is moved once, and each is
made anew as what it shows of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..core.device import CPU, as_device, device, namespace_of, transfer
from ..core.errors import DeviceError
from ..nn.modules.module import Module
from ..ops.create.memory import owner_of
from ..tensor import Tensor


class Placement:
    """Moves the tensors of one file to where `map_location` says: None (back to where they were),
    a device, a tensor (to where that is), a dict of names of devices, or a function
    `(tensor, name of its device) -> tensor, or None for "where it was"`.
    """

    def __init__(self, map_location: Any) -> None:
        self.rule = map_location
        self.fixed = None
        if map_location is not None and not isinstance(map_location, (dict, Callable)):  # type: ignore[arg-type]
            self.fixed = as_device(getattr(map_location, "device", map_location))
        self.memories: dict[tuple[int, device], Any] = {}  # by id of the host's; moved once
        self.kept: list[Any] = []  # what the ids stand for

    def device_for(self, saved: str) -> device:
        """Device to which a tensor saved from device `saved` goes.

        Errors: DeviceError where that does not exist here.
        """
        if self.fixed is not None:
            return self.fixed
        wanted = self.rule.get(saved, saved) if isinstance(self.rule, dict) else saved
        try:
            return as_device(wanted)
        except DeviceError as error:
            raise DeviceError(
                f"load: a tensor was saved from device {saved!r}: {error}; map_location='cpu' "
                "loads it into the host's memory"
            ) from None

    def moved(self, tensor: Any, saved: str = "cpu") -> Any:
        """A tensor of the host where it goes."""
        if callable(self.rule):
            found = self.rule(tensor, saved)
            if found is not None:
                return found
        there = self.device_for(saved)
        if there.type == "meta":  # there is no memory to share
            return tensor.detach().to(there)
        return tensor if there is CPU else self.shown_on(tensor, there)

    def shown_on(self, tensor: Any, there: device) -> Any:
        """The tensor's part of its memory, of which all is copied once to a device."""
        array = tensor._data
        owner = owner_of(array)
        key = (id(owner), there)
        if key not in self.memories:
            whole = owner.reshape(-1).view(np.uint8) if owner.size else owner.reshape(-1)
            self.memories[key] = transfer(whole, there)
            self.kept.append(owner)
        memory = self.memories[key]
        start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        flat = memory[start : start + memory.size // array.itemsize * array.itemsize]
        flat = flat[: flat.size // array.itemsize * array.itemsize].view(array.dtype)
        result = tensor.detach()
        result._changes = None
        result._data = namespace_of(flat).as_strided(flat, array.shape, array.strides)
        return result


def place(value: Any, map_location: Any) -> Any:
    """`value`, loaded into the host's memory, with its tensors where `map_location` says."""
    if map_location is None:
        return value
    return _placed(value, Placement(map_location), {})


def _placed(value: Any, placement: Placement, made: dict[int, tuple[Any, Any]]) -> Any:
    """A value with its tensors placed. `made`: what was placed so far, by id, and the object of
    that id.
    """
    if id(value) in made:
        return made[id(value)][1]
    if isinstance(value, Tensor):
        moved = placement.moved(value)
        if moved is not value and type(moved) is not type(value):
            found = value.detach()
            found._data = moved._data
            value.data = found
            moved = value
        made[id(value)] = value, moved
        return moved
    if isinstance(value, (dict, list, Module)) or is_record(value):
        made[id(value)] = value, value
        inside = value if isinstance(value, (dict, list)) else vars(value)
        pairs = inside.items() if isinstance(inside, dict) else enumerate(inside)
        for key, part in list(pairs):
            inside[key] = _placed(part, placement, made)
    elif type(value) is tuple:
        made[id(value)] = value, tuple(_placed(each, placement, made) for each in value)
        return made[id(value)][1]
    return value


def is_record(x: Any) -> bool:
    """Whether it is one of the standard library's objects of any attributes, and no methods."""
    argparse = sys.modules.get("argparse")  # which a program has imported that has one of its own
    return isinstance(x, SimpleNamespace) or (
        argparse is not None and isinstance(x, argparse.Namespace)
    )
