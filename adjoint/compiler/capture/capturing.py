"""What an executor that captures is told, besides operations: reads, settings, effects.

    step_capture.StepRecorder     a whole function, compiled
    body_recorder.BodyRecorder    a branch or a loop's body; a compiled function as one node

Python runs while these record, and a program does not run it again. So whatever else it reads or
does is told to them, by `core.mode.tell` and its kin, and each of them has an answer to every
kind: it guards, follows or refuses. A kind that one of them lacked would be taken for constant
there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...core.errors import Unsupported
from ...core.mode import Mode
from ...core.op import Op
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...ops.index.selected import Selected
from ...runtime.fused import Declared
from .routine_ops import recorded

if TYPE_CHECKING:
    from ...ops.random.random import Generator
    from ...runtime.lazy import LazyValue
    from ..guards.state_snapshot import StateSnapshot


class Capturing(ABC):
    """Executor that captures. Those below record; the others are told before Python goes on.

    Errors: Unsupported from each, for what cannot be captured.
    """

    @abstractmethod
    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """Record an op and return its result."""

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """Record a composite and return its result; NotImplemented where its own ops are to be
        recorded.
        """
        if any(isinstance(x, TensorBase) and type(x._data) is Selected for x in args):
            return NotImplemented
        return recorded(self, declared, args)

    @abstractmethod
    def meet(self, x: TensorBase) -> None:
        """Note that a tensor is about to be used, or written."""

    @abstractmethod
    def note_read(self) -> None:
        """Note that Python reads a value."""

    @abstractmethod
    def note_check(self, wrong: TensorBase, error: Callable[[], Exception]) -> None:
        """Note that each run is to raise `error()` if the value `wrong` is true."""

    @abstractmethod
    def note_fact(self, what: str, x: TensorBase) -> None:
        """Note that Python reads what a tensor is besides its values, shape and dtype."""

    @abstractmethod
    def note_memory(self, symbol: LazyValue, begins: bool) -> None:
        """Note that what is recorded depends on the order of a tensor's memory."""

    @abstractmethod
    def note_gradient(self, x: TensorBase) -> None:
        """Note that a tensor's gradient is about to be set."""

    @abstractmethod
    def note_gradient_read(self, x: TensorBase) -> None:
        """Note that Python reads a tensor's gradient."""

    @abstractmethod
    def note_targets(self) -> None:
        """Note that gradients are asked for by certain tensors: it matters which are the same."""

    @abstractmethod
    def note_hooks(self, x: TensorBase, hooks: dict[int, Any]) -> None:
        """Note that Python is about to add to the hooks of a tensor."""

    @abstractmethod
    def note_retained(self, x: TensorBase) -> None:
        """Note retain_grad() of a tensor."""

    @abstractmethod
    def note_draw(self, generator: Generator) -> tuple[int, int]:
        """Register a draw: the place of its stream among those of the program, its number there."""

    @abstractmethod
    def note_seed(self, generator: Generator) -> None:
        """Note that a generator is seeded, or made."""

    @abstractmethod
    def note_state(self, generator: Generator, state: TensorBase) -> int | None:
        """Note that the state of a generator is set. How many draws it had made, where the capture
        has read that state, in which generators count and do not move.
        """

    @abstractmethod
    def note_state_read(self, state: TensorBase, generator: Generator) -> None:
        """Note a tensor that is the state of a generator."""

    @abstractmethod
    def note_setting(self, read: Callable[[], object]) -> None:
        """Note that Python reads a setting of this library, which `read` gives."""

    @abstractmethod
    def note_switch(self, what: str) -> None:
        """Note that the function of this name switches a setting of this library."""

    @abstractmethod
    def assert_not_inferring(self) -> None:
        """Refuse to say whether inference mode is on, where the capture does not know."""

    @abstractmethod
    def note_call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        changes: Iterable[tuple[dict[str, Any], Iterable[str]]],
    ) -> None:  # fmt: skip
        """Note a call with a side effect that can wait for the end of a run; see
        `core.deferred_effects`.
        """

    @property
    @abstractmethod
    def snapshot(self) -> StateSnapshot | None:
        """Snapshot of what the captured function reached; None where nothing is guarded."""

    @abstractmethod
    def update(self, optimizer: Any, groups: Any) -> None:
        """Record an optimizer's step."""


def assert_modes(before: Mode, after: Mode, function: str = "compile: the function") -> None:
    """Refuse a function that leaves a mode of this library switched.

    Errors: Unsupported.
    """
    for name in ("grad", "inference", "anomaly", "saved_hooks", "autocast", "overrides"):
        was, now = (_setting(getattr(mode, name)) for mode in (before, after))
        if was is not now and was != now:
            raise Unsupported(
                f"{function} leaves the mode {name} switched, which a program would not "
                "do again; switch it in a block (with ...:), or outside of the function"
            )


def _setting(value: object) -> object:
    """A switch of a mode, as equal ones compare; None where it is off."""
    return getattr(value, "settings", value) or None
