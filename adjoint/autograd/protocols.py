"""What is needed of arrays of all backends, of observers and of autocast: types for annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ..core.tensor_base import TensorBase

if TYPE_CHECKING:
    from ..runtime.node import Node

SomeTensors: TypeAlias = TensorBase | Iterable[TensorBase | None]  # one, or several


class Flags(Protocol):
    """How an array lies in memory."""

    @property
    def c_contiguous(self) -> bool:
        """Whether it is row-major."""

    @property
    def writeable(self) -> bool:
        """Whether its memory may be written to."""


class BackendArray(Protocol):
    """The array of a backend: NumPy's, a device's, or a recorded value in the place of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of all dimensions."""

    @property
    def dtype(self) -> np.dtype:
        """The element type, as NumPy has it."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next along each dimension."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def nbytes(self) -> int:
        """The bytes that all elements take."""

    @property
    def itemsize(self) -> int:
        """The bytes that one element takes."""

    @property
    def flags(self) -> Flags:
        """How it lies in memory."""

    def copy(self) -> BackendArray:
        """An array of equal elements in memory of its own."""

    @property
    def base(self) -> object:
        """The array in whose memory it lies; None where that is its own."""


class Observer(Protocol):
    """Observer of what runs: ops, and nodes of backward."""

    def begin(self, name: str) -> object:
        """An event begins."""

    def begin_node(self, node: Node) -> object:
        """An event begins: the gradient of a node."""

    def end(self) -> None:
        """The event that began last ends."""

    def end_node(self) -> None:
        """The event of a node's gradient, which began last, ends."""

    def depth(self) -> int:
        """Number of events that have begun and not ended."""

    def close(self, depth: int) -> None:
        """End events until so many are left."""


class StepObserver(Protocol):
    """Observer of the steps of compiled programs, one by one."""

    def step(self, steps: Sequence[Any], run: Callable[[], object]) -> object:
        """Call `run`, which computes `steps`."""

    def around(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        """Call `function` as an event of that name."""


class Casting(Protocol):
    """Converter of the inputs of ops: autocast."""

    @property
    def signature(self) -> object:
        """Equal for what converts alike."""

    def without_cache(self) -> Casting:
        """Converter that keeps no converted values."""
