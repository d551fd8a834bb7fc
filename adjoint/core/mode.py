"""The execution mode: how `apply` runs an op here and now (per thread and per asyncio task)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .argument_repr import argument_repr

if TYPE_CHECKING:
    from .protocols import Caster

Executor = Callable[[Any, tuple[Any, ...]], Any]
R = TypeVar("R")


class Mode:
    """One immutable combination of execution switches; equal combinations are the same object."""

    __slots__ = (
        "anomaly", "autocast", "blocks", "casts", "checks_nan", "executor", "fuses", "grad",
        "inference", "inlines", "lasting", "observer", "overrides", "plain", "run", "saved_hooks",
        "step", "watched",
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
    blocks: tuple[Any, ...]  # the graphs (GraphState) in whose blocks this stands, the inmost last
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
        autocast: Caster | None = None,
        step: object = None,
        observer: Executor | None = None,
        overrides: tuple[int, tuple[Any, ...]] | None = None,
        checks_nan: bool = True,
        inlines: bool = False,
        blocks: tuple[Any, ...] = (),
    ) -> None:
        self.blocks = blocks
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
        optional = executor, saved_hooks, autocast, step, observer
        self.lasting = all(each is None for each in optional) and not asks and not blocks
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
        "overrides", "checks_nan", "inlines", "blocks",
    )  # fmt: skip
    key = tuple(changes.get(name, getattr(base, name)) for name in names)
    overrides = key[8]
    if any(key[i] is not None for i in (0, 4, 5, 6, 7)) or (overrides and overrides[1]) or key[11]:
        return Mode(*key)
    mode = _made.setdefault(key, Mode(*key))
    if base.lasting:
        _derived[short] = mode
    return mode


def unobserved(mode: Mode) -> Mode:
    """The mode without the executor of a graph's step: ops are computed, not recorded."""
    if mode.step is None or mode.executor is not mode.step:
        return mode
    return mode_with(mode, executor=None)


DEFAULT = Mode(None, True, False, False)
_made[(None, True, False, False, None, None, None, None, None, True, False, ())] = DEFAULT
MODE: ContextVar[Mode] = ContextVar("adjoint_mode", default=DEFAULT)


class switched:  # noqa: N801 - reads as what it does
    """`with switched(mode):` runs its block in another mode; or with another value of a context
    variable.

    Compiled, no bytecode runs between a switch and what undoes it, so that no signal's handler can
    raise there. `ended`, where it is given, is called behind the block with the block's error, or
    None, and may raise another.
    """

    def __init__(
        self,
        value: Any,
        ended: Callable[[BaseException | None], object] | None = None,
        variable: ContextVar[Any] | None = None,
    ) -> None:
        self.value = value
        self.ended = ended
        self.variable = MODE if variable is None else variable
        self.before: Any = None

    def __enter__(self) -> None:
        self.before = self.variable.get()
        self.variable.set(self.value)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.variable.set(self.before)
        if self.ended is not None:
            self.ended(error)


class ModeSwitch:
    """A block in another mode that is entered as often as one likes, nested too: the base of
    `no_grad` and its like. Compiled for the reason of `switched`.

    Instances have `_outside`, pairs of the mode to go back to and that of the block, the innermost
    last. What the block switches without this object's doing stays switched behind it.
    """

    _outside: list[Any]
    changes: dict[str, Any] = {}  # noqa: RUF012 - what a subclass switches, never changed
    _gives_itself = False  # to `with ... as`

    __repr__ = argument_repr

    def __init__(self) -> None:
        self._outside = []

    def __enter__(self) -> Any:
        self._enter()
        return self if self._gives_itself else None

    def __exit__(self, *exc: Any) -> None:
        self._leave()
        self._left()

    def _enter(self) -> None:
        """Switch to the mode of the block."""
        mode = MODE.get()
        inside = self._inside(mode)
        self._outside.append((mode, inside))
        MODE.set(inside)

    def _leave(self) -> None:
        """Switch back what the last `_enter` has switched."""
        outside, inside = self._outside.pop()
        now = MODE.get()
        if now is not inside:
            outside = mode_with(outside, **_switched_within(outside, inside, now, self.changes))
        MODE.set(outside)

    def _inside(self, mode: Mode) -> Mode:
        """Return the mode of the block, entered in `mode`. A subclass says which."""
        raise NotImplementedError

    def _left(self) -> None:
        """Do what is to be done behind the block, in the mode outside of it. Nothing, here."""


_SETTINGS = ("grad", "inference", "anomaly", "checks_nan", "autocast")


def _switched_within(
    outside: Mode, inside: Mode, now: Mode, changes: dict[str, Any]
) -> dict[str, Any]:
    """The settings that were switched in a block of mode `inside`, but for `changes` and what else
    the block differs by from `outside`.
    """
    kept: dict[str, Any] = {}
    for name in _SETTINGS:
        before, value = getattr(inside, name), getattr(now, name)
        if name not in changes and value is not before and before is getattr(outside, name):
            kept[name] = value
    return kept


class ModeSwitchAtOnce(ModeSwitch):
    """A switch that is on from when it was made: as a block it ends with the block."""

    def __enter__(self) -> None:
        if not self._outside:
            self._enter()


def is_casting() -> bool:
    """Whether autocast converts the inputs of ops here, so that their dtypes may differ."""
    return MODE.get().casts


def observed(name: str, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Run `function(*args, **kwargs)`; an active observer (profiler) records it as one event."""
    observer = MODE.get().observer
    if observer is None:
        return function(*args, **kwargs)
    return observer.around(name, function, args, kwargs)


def without_autocast(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Run `function(*args, **kwargs)` with autocast off, in the dtypes of its arguments."""
    if not is_casting():
        return function(*args, **kwargs)
    mode = MODE.get()
    try:
        MODE.set(mode_with(mode, autocast=None))
        return function(*args, **kwargs)
    finally:
        MODE.set(mode)


def as_set(function: Callable[..., R]) -> Callable[..., R]:
    """Declare a function that sets values: what it writes counts, also inside the block of a graph,
    as written outside, so that what was recorded follows.
    """

    @functools.wraps(function)
    def setting(*args: Any, **kwargs: Any) -> R:
        mode = MODE.get()
        if not mode.blocks:
            return function(*args, **kwargs)
        try:
            MODE.set(mode_with(mode, blocks=()))
            return function(*args, **kwargs)
        finally:
            MODE.set(mode)

    return setting


def note_fact(what: str, x: object) -> None:
    """Tell an executor that captures that Python asks what a tensor is besides its values, shape
    and dtype.
    """
    note = getattr(MODE.get().executor, "note_fact", None)
    if note is not None:
        note(what, x)


def tell(name: str, *values: object) -> Any:
    """Result of the method of this name of an executor that has it: one that captures."""
    note = getattr(MODE.get().executor, name, None)
    return None if note is None else note(*values)


def note_switch(what: str) -> None:
    """Tell an executor that captures that a function switches a setting of this library.

    Errors: Unsupported from one that cannot switch it in each run.
    """
    tell("note_switch", what)


def note_setting(read: Callable[[], R]) -> R:
    """A setting of this library, which `read` gives; an executor that captures is told of it."""
    note = getattr(MODE.get().executor, "note_setting", None)
    if note is not None:
        note(read)
    return read()


def are_known() -> bool:
    """Whether values can be read now: not so in a function that is being captured."""
    return not hasattr(MODE.get().executor, "note_check")


def refuse_where(wrong: object, error: Callable[[], Exception]) -> None:
    """Raise `error()` where `wrong`, a tensor of one boolean, is true; in a function that is being
    captured, at each of its runs.
    """
    note = getattr(MODE.get().executor, "note_check", None)
    if note is not None:
        note(wrong, error)
    elif bool(wrong):
        raise error()
