"""The execution mode: how `apply` runs an op here and now (per thread and per asyncio task)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Executor = Callable[[Any, tuple[Any, ...]], Any]


class Mode:
    """One immutable combination of switches; equal switches are the same object."""

    __slots__ = ("anomaly", "executor", "grad", "inference", "lasting", "plain", "saved_hooks")

    executor: Executor | None  # runs (op, inputs) instead of eager execution: lazy, ...
    grad: bool  # record what gradients need
    inference: bool  # results may never take part in autograd
    anomaly: bool  # remember where each node was made, check gradients for NaN
    saved_hooks: tuple[Any, Any] | None  # (pack, unpack) for what nodes save
    lasting: bool  # refers to nothing of the user's, so that it may be kept
    plain: bool  # eager and nothing watches: operators may take their short cut

    def __init__(
        self,
        executor: Executor | None,
        grad: bool,
        inference: bool,
        anomaly: bool,
        saved_hooks: tuple[Any, Any] | None = None,
    ) -> None:
        self.executor = executor
        self.grad = grad
        self.inference = inference
        self.anomaly = anomaly
        self.saved_hooks = saved_hooks
        self.lasting = executor is None and saved_hooks is None
        self.plain = self.lasting and not inference and not anomaly


_derived: dict[Any, Mode] = {}  # (mode, changes) -> mode
_made: dict[tuple[Any, ...], Mode] = {}


def mode_with(base: Mode, **changes: Any) -> Mode:
    """The mode that differs from `base` by `changes`."""
    short = (base, *changes.items())
    mode = _derived.get(short)
    if mode is not None:
        return mode
    names = ("executor", "grad", "inference", "anomaly", "saved_hooks")
    key = tuple(changes.get(name, getattr(base, name)) for name in names)
    if key[0] is not None or key[-1] is not None:
        return Mode(*key)
    mode = _made.setdefault(key, Mode(*key))
    if base.lasting:
        _derived[short] = mode
    return mode


DEFAULT = Mode(None, True, False, False)
_made[(None, True, False, False, None)] = DEFAULT
MODE: ContextVar[Mode] = ContextVar("adjoint_mode", default=DEFAULT)
