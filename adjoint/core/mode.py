"""The execution mode: how `apply` runs an op here and now (per thread and per asyncio task)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Executor = Callable[[Any, tuple[Any, ...]], Any]


class Mode:
    """One immutable combination of switches; equal switches are the same object."""

    __slots__ = (
        "anomaly", "autocast", "casts", "checks_nan", "executor", "fuses", "grad", "inference",
        "inlines", "lasting", "observer", "overrides", "plain", "run", "saved_hooks", "step",
        "watched",
    )  # fmt: skip

    executor: Executor | None  # runs (op, inputs) instead of eager execution: lazy, ...
    grad: bool  # record what gradients need
    inference: bool  # results may never take part in autograd
    anomaly: bool  # remember where each node was made, and, where `checks_nan`, look for NaN
    checks_nan: bool  # in gradients, in anomaly mode
    inlines: bool  # compiled functions run as what they stand for
    saved_hooks: tuple[Any, Any] | None  # (pack, unpack) for what nodes save
    autocast: Any  # converts the inputs of ops, then runs them by `executor` (amp.casting.Casting)
    step: Any  # what a graph's values are inside its `step()` (reactive.steps.Steps)
    observer: Any  # sees what runs (profiler.recorder.Recorder): ops, nodes of backward, `observed`
    overrides: Any  # who is asked what public functions do (core/overrides.py): None as ever
    watched: bool  # it sees ops, too: they run here
    casts: bool  # `autocast` is active
    run: Executor | None  # what `apply` calls: `observer`, or an active `autocast`, or `executor`
    lasting: bool  # refers to nothing of the user's, so that it may be kept
    plain: bool  # eager and nothing watches: operators may take their short cut
    fuses: bool  # composites may run as kernels

    def __init__(
        self,
        executor: Executor | None,
        grad: bool,
        inference: bool,
        anomaly: bool,
        saved_hooks: tuple[Any, Any] | None = None,
        autocast: Any = None,
        step: Any = None,
        observer: Any = None,
        overrides: tuple[int, tuple[Any, ...]] | None = None,
        checks_nan: bool = True,
        inlines: bool = False,
    ) -> None:
        self.checks_nan = checks_nan
        self.inlines = inlines
        self.executor = executor
        self.grad = grad
        self.inference = inference
        self.anomaly = anomaly
        self.saved_hooks = saved_hooks
        self.autocast = autocast
        self.step = step
        self.observer = observer
        self.overrides = overrides
        asks = overrides is not None and bool(overrides[1])  # a mode of functions sees them all
        self.casts = autocast is not None and autocast.active
        computes = executor is None or executor is step  # where others record, nothing runs
        self.run = autocast if self.casts else executor
        self.watched = observer is not None and computes
        if self.watched:
            self.run = observer
        given = executor, saved_hooks, autocast, step, observer
        self.lasting = all(each is None for each in given) and not asks
        self.fuses = executor is None and saved_hooks is None and not anomaly
        usual = not inference and not self.casts and observer is None and not asks
        self.plain = self.fuses and usual


_derived: dict[Any, Mode] = {}  # (mode, changes) -> mode
_made: dict[tuple[Any, ...], Mode] = {}


def mode_with(base: Mode, **changes: Any) -> Mode:
    """The mode that differs from `base` by `changes`."""
    short = (base, *changes.items())
    mode = _derived.get(short)
    if mode is not None:
        return mode
    names = (
        "executor", "grad", "inference", "anomaly", "saved_hooks", "autocast", "step", "observer",
        "overrides", "checks_nan", "inlines",
    )  # fmt: skip
    key = tuple(changes.get(name, getattr(base, name)) for name in names)
    overrides = key[8]
    if any(key[i] is not None for i in (0, 4, 5, 6, 7)) or (overrides and overrides[1]):
        return Mode(*key)
    mode = _made.setdefault(key, Mode(*key))
    if base.lasting:
        _derived[short] = mode
    return mode


def unobserved(mode: Mode) -> Mode:
    """The mode in which a step of a graph only computes."""
    if mode.step is None or mode.executor is not mode.step:
        return mode
    return mode_with(mode, executor=None)


DEFAULT = Mode(None, True, False, False)
_made[(None, True, False, False, None, None, None, None, None, True, False)] = DEFAULT
MODE: ContextVar[Mode] = ContextVar("adjoint_mode", default=DEFAULT)


def is_casting() -> bool:
    """Whether autocast converts the inputs of ops here, so that their dtypes may differ."""
    return MODE.get().casts


def observed(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, which an observer sees as one event, around what it does."""
    observer = MODE.get().observer
    if observer is None:
        return function(*args, **kwargs)
    return observer.around(name, function, args, kwargs)


def without_autocast(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)` in the dtypes that its arguments have."""
    if not is_casting():
        return function(*args, **kwargs)
    mode = MODE.get()
    MODE.set(mode_with(mode, autocast=None))
    try:
        return function(*args, **kwargs)
    finally:
        MODE.set(mode)
