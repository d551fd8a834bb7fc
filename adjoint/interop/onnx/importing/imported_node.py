"""A node of an imported graph, and the table of what operators compute, by their names.

A function takes the node and its inputs: tensors, constant arrays, or None for one left out. It
returns a tensor, an array, or a tuple of them. Arrays are values that the graph's structure may
depend on, such as shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .... import nn
from ....core.errors import CheckpointError, Unsupported
from ....ops.create.exchange import from_numpy
from ....runtime.lazy import concrete
from ....runtime.public import FUNCTIONS
from ....tensor import Tensor
from ..files import DTYPES

F: Any = nn.functional
ad: Any = type("functions", (), {name: staticmethod(f) for name, f in FUNCTIONS.items()})
MOST = 1 << 31  # elements of a tensor whose size is data
TABLE: dict[str, Callable[..., Any]] = {}
LAST = np.iinfo(np.int64).max


class TooLarge(CheckpointError):  # noqa: N818 - reads as what happened
    """A size that is data is larger than allowed here."""


@dataclass(eq=False, repr=False, slots=True)
class ImportedNode:
    """One node of the graph."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int
    label: str
    training: bool = False
    limit: int | None = None
    outside: tuple[str, ...] = ()  # the last inputs: what graphs inside of the node compute with
    run: Any = None  # what computes the nodes of these graphs

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def dtype(self, name: str, default: int | None = None) -> Any:
        """NumPy's dtype for the element type that an attribute gives."""
        found = DTYPES.get(self.get(name, default))
        if found is None:
            raise self.unsupported(f"element type {self.get(name)}")
        return found

    def check_size(self, sizes: Sequence[int]) -> None:
        """TooLarge where a tensor of these sizes must not be made; before it is."""
        limit = MOST if self.limit is None else self.limit
        total = math.prod(int(size) for size in sizes)
        if total > limit or any(size < 0 for size in sizes):
            raise TooLarge(f"onnx: node {self.label}: a tensor of sizes {list(sizes)[:8]}")

    def unsupported(self, what: str) -> Unsupported:
        """The error for a gap."""
        return Unsupported(f"onnx: node {self.label}: {what} is not supported")


def operator(*names: str, tensors: int = 0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function for the operators `names`, whose first inputs, so many, are tensors."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(n: ImportedNode, *inputs: Any) -> Any:
            return function(n, *map(t, inputs[:tensors]), *inputs[tensors:])

        TABLE.update(dict.fromkeys(names, run if tensors else function))
        return function

    return enter


def t(x: Any) -> Tensor:
    """A tensor; constant arrays become one."""
    return x if isinstance(x, Tensor) else from_numpy(np.ascontiguousarray(x).reshape(x.shape))


def host(x: Any) -> Any:
    """The array of a value."""
    return np.asarray(concrete(x)) if isinstance(x, Tensor) else np.asarray(x)


def ints(x: Any) -> list[int]:
    """The ints of a small vector."""
    array = host(x)
    if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > 256:
        raise ValueError(f"expected a vector of integers, got {array.dtype} {array.shape}")
    return [int(v) for v in array.reshape(-1)]


def axes_of(n: ImportedNode, given: Any, rank: int, name: str = "axes") -> list[int] | None:
    """Axes from the second input or the attribute, counted from the front."""
    axes = ints(given) if given is not None else n.get(name)
    return None if axes is None else [axis_in(axis, rank) for axis in axes]


def axis_in(axis: int, rank: int) -> int:
    """`axis` counted from the front; IndexError out of range."""
    if not -rank <= axis < max(rank, 1):
        raise IndexError(f"axis {axis} of a tensor of {rank} dimensions")
    return axis % rank if rank else 0
