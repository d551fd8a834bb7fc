"""Eager execution on devices other than the host, where all tensors of an op must be on one device;
and on sparse tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.device import CPU, is_device_array, namespace_of
from ..core.errors import DeviceError
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..ir.compute import compute_elsewhere
from ..ops.create.conversion import Sparse, Transfer, refused
from ..ops.elementwise.pointwise import Elementwise
from ..ops.index.advanced import Advanced, Overwrite
from ..ops.index.masking import MaskedFill
from ..runtime.dispatch import EXECUTORS, apply, finish


def execute_on_device(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    """`execute` for inputs at least one of which is on a device other than the host.

    Errors: DeviceError where they are on several. As in PyTorch, elementwise ops take 0-d tensors
    of the host, which stand for numbers, and indices may be the host's.
    """
    arrays: list[Any] = []
    parents: list[Any] = []
    wants = False
    xp = None
    for x in inputs:
        node = None
        if isinstance(x, TensorBase):
            data, node = x._data, x._node
            if not is_device_array(data):
                return _with_others(op, inputs)
            space = namespace_of(data)
            if xp is None:
                xp = space
            elif space is not xp:
                raise _mixed(op, inputs)
            wants = wants or node is not None
            x = data
        arrays.append(x)
        parents.append(node)
    return finish(op, inputs, compute_elsewhere(op, xp, arrays), parents, wants)


def _with_others(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    """Run `op` where some inputs are recorded values, or tensors of the host."""
    for x in inputs:
        kind = type(x._data) if isinstance(x, TensorBase) else None
        if kind in EXECUTORS and not is_device_array(x._data):
            return EXECUTORS[kind](op, inputs)  # type: ignore[index]
    return execute_on_device(op, together(op, inputs))


def together(op: Op, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """`inputs` on one device: tensors of the host that serve as numbers or indices become numbers
    or are moved there.

    Errors: DeviceError where those are more than numbers or indices.
    """
    devices = {x.device for x in inputs if isinstance(x, TensorBase)} - {CPU}
    if len(devices) != 1:
        raise _mixed(op, inputs)
    place = devices.pop()
    changed: list[Any] = []
    for i, x in enumerate(inputs):
        if isinstance(x, TensorBase) and x.device is CPU:
            data = x._data
            number = not data.ndim and isinstance(op, (Elementwise, MaskedFill, Overwrite))
            index = i == 1 and isinstance(op, Advanced)
            if not (number or index or (i == 2 and not data.ndim and isinstance(op, Advanced))):
                raise _mixed(op, inputs)
            plain = number and i > 0 and x._node is None
            x = _number(data) if plain else apply(Transfer(place), x)
        changed.append(x)
    return tuple(changed)


def _number(data: np.ndarray) -> complex:
    value = data.item()
    return value if isinstance(value, (bool, int, float, complex)) else float(value)


def _mixed(op: Op, inputs: tuple[Any, ...]) -> DeviceError:
    devices = sorted({str(x.device) for x in inputs if isinstance(x, TensorBase)})
    return DeviceError(
        f"{op.name}: Expected all tensors to be on the same device, but found at least two "
        f"devices, {' and '.join(devices)}; move them to one with .to({devices[-1]!r})"
    )


# ---- sparse tensors ------------------------------------------------------------------------------


def execute_sparsely(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    """Run `op` on inputs some of which are sparse tensors."""
    from ..ops.sparse.rules import run  # with the first sparse tensor

    return run(op, inputs)


def write_sparse(x: Tensor, y: Tensor) -> None:
    """Write the value of the sparse tensor `y` to the sparse tensor `x`; its aliases see it.

    Errors: LayoutError where one is dense.
    """
    old, new = x._data, y._data
    if type(old) is not Sparse or type(new) is not Sparse:
        sparse = old if type(old) is Sparse else new
        raise refused("write in place", sparse, "between dense and sparse tensors is not there")
    version = x._changes
    for reference in (version.views or ()) if version is not None else ():
        other = reference()
        if other is not None and other._data is old:
            other._data = new
    x._data = new
