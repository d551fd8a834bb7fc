"""The `.bin` file: a zip archive, not compressed, with one member for each weight.

Source: https://github.com/Tencent/ncnn/tree/master/tools/pnnx#the-pnnxbin-format
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtype import as_dtype
from ...core.errors import CheckpointError, Unsupported
from ...io.zip_archive import Archive
from ...ops.create.exchange import from_numpy
from ...tensor import Tensor
from .text import Operator, product


class Weights:
    """The members of an archive, each of which is one weight and is read once."""

    def __init__(self, archive: Archive | None) -> None:
        self.archive = archive
        self.read: set[str] = set()

    def of(self, op: Operator) -> dict[str, Tensor]:
        """The tensors of an operator, by the names of its arguments."""
        return {key: self._weight(op, key) for key in op.weights}

    def _weight(self, op: Operator, key: str) -> Tensor:
        name = f"{op.name}.{key}"
        if name in self.read:
            raise CheckpointError(f"two operators have the weight {name[:80]!r}")
        self.read.add(name)
        return _weight(op, key, name, self.archive)


def _weight(op: Operator, key: str, name: str, archive: Archive | None) -> Tensor:
    shape, dtype = op.weights[key]
    if dtype == "null":
        raise Unsupported(f"pnnx.load: weight {key[:80]!r} of {op.label} has no element type")
    wanted = as_dtype(dtype)
    size = product(shape) * wanted.numpy.itemsize
    if not size:
        return from_numpy(_empty(name, shape, wanted))
    if archive is None:
        raise CheckpointError(f"{op.label} has weights, and there is no .bin file for them")
    member = archive.member(name)
    if member.stored != size:
        raise CheckpointError(
            f"weight {name[:80]!r} is {shape} of {dtype}, {size} bytes, and has {member.stored}"
        )
    stored = np.dtype("u1") if dtype == "bool" else wanted.numpy
    array = archive.array(name, stored)
    return from_numpy((array != 0 if dtype == "bool" else array).reshape(shape))


def _empty(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array without elements; the other sizes are data and may be too large for NumPy."""
    try:
        return np.empty(shape, dtype.numpy)
    except ValueError as error:
        raise CheckpointError(f"{name[:80]!r} has a shape that no array has: {shape}") from error
