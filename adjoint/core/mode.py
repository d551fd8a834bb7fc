"""The execution mode: how `apply` runs an op here and now (per thread and per asyncio task)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Executor = Callable[[Any, tuple[Any, ...]], Any]


class Mode:
    """One immutable combination of switches; equal switches are the same object."""

    __slots__ = ("anomaly", "executor", "grad", "inference", "plain", "saved_hooks")

    executor: Executor | None  # runs (op, inputs) instead of eager execution: lazy, ...
    grad: bool  # record what gradients need
    inference: bool  # results may never take part in autograd
    anomaly: bool  # remember where each node was made, check gradients for NaN
    saved_hooks: tuple[Any, Any] | None  # (pack, unpack) for what nodes save
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
        self.plain = executor is None and not inference and not anomaly and saved_hooks is None


_made: dict[tuple[Any, ...], Mode] = {}


def mode_with(base: Mode, **changes: Any) -> Mode:
    """The mode that differs from `base` by `changes`."""
    names = ("executor", "grad", "inference", "anomaly", "saved_hooks")
    key = tuple(changes.get(name, getattr(base, name)) for name in names)
    if key[-1] is not None or key[0] is not None:
        return Mode(*key)  # of one use: kept, it would keep what it refers to alive
    mode = _made.get(key)
    return _made.setdefault(key, Mode(*key)) if mode is None else mode


DEFAULT = Mode(None, True, False, False)
_made[(None, True, False, False, None)] = DEFAULT
MODE: ContextVar[Mode] = ContextVar("adjoint_mode", default=DEFAULT)
