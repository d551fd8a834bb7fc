"""What values whose classes are defined in other rooms must have, for annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from .op import Op

__all__ = ["Caster", "HoldsBuffers", "Numbered", "Observer", "Shaped", "Watcher"]


class Shaped(Protocol):
    """A backend's array, or a recorded value: what is asked of it where its elements are not."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def dtype(self) -> np.dtype:
        """The element type, NumPy's."""


class Numbered(Protocol):
    """Generator of random numbers whose draws have numbers (ops.random.generators.Generator)."""

    def next_draw(self) -> tuple[int, int]:
        """The seed and the number of another draw."""


class HoldsBuffers(Protocol):
    """Module with buffers, and a mode (nn.Module)."""

    _buffers: dict[str, Any]
    training: bool


class Caster(Protocol):
    """Converter of the inputs of ops, which then runs them (amp.casting.Casting)."""

    @property
    def active(self) -> bool:
        """Whether it converts anything."""

    def __call__(self, op: Op, inputs: tuple[Any, ...], /) -> Any:
        """The result of an op."""


class Observer(Protocol):
    """Observer of what runs (tools.profiler.recorder.Recorder), as far as graphs tell it."""

    def compute(self, op: Op, arrays: list[Any], run: Callable[..., Any]) -> Any:
        """The result of `run(op, arrays)`."""

    def chain(self, ops: Sequence[Op], arrays: list[Any], kernel: Callable[..., Any]) -> Any:
        """The results of a chain of ops by its kernel."""


class Watcher(Protocol):
    """Watcher that is told of changes of a storage (see `Version.watch`)."""

    def before_change(self) -> bool:
        """Copy what is needed of the contents; whether it no longer depends on them."""

    def changed(self) -> None:
        """The contents are others."""
