"""Levels: values that a function transform puts in the place of its arguments (`vmap`, `jvp`).

A tensor at a level holds a `Leveled` value where others hold an array: one more data type, which
wraps tensors of the levels outside. What an op means for such inputs, its level says in terms of
ops on what they wrap, which may be of an outer level again; so transforms nest, and shapes, checks,
composites and the tape see a plain tensor. The tape of a level is its own: gradients that are asked
for inside flow through the tensors at the level, those of the outside through what they wrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

from ..core.device import device_of
from ..core.errors import AutogradError, Unsupported
from ..core.mode import MODE, Mode, mode_with
from ..core.op import Op
from ..core.overrides import UNASKED
from ..core.tensor_base import TensorBase
from ..eager.dispatch import apply, finish
from ..eager.record import parents_of
from ..eager.tensors import wrap
from ..eager.writes import WRITERS, ViewWrite
from ..graph.lazy import LazyValue, concrete
from ..graph.node import next_order

__all__ = [
    "Level",
    "Leveled",
    "Transforming",
    "current",
    "entered",
    "innermost",
    "outside",
    "recording_beyond",
]


class Leveled(LazyValue):
    """The value of a tensor at a level: `inner` is the tensor that it wraps."""

    __slots__ = ("inner", "level")

    inner: Any
    level: Level
    rises = True  # what it is written to is of its level from then on

    def __init__(self, level: Level, inner: Any, shape: tuple[int, ...]) -> None:
        data = inner._data
        super().__init__(None, (), shape, data.dtype, device_of(data))
        self.level = level
        self.inner = inner

    def realize(self) -> Any:
        """The array, where there is one."""
        return self.level.read(self)

    def settle(self, tensor: Any) -> Any:
        """The same; the tensor stays at its level."""
        return self.level.read(self)

    @property
    def expired(self) -> bool:
        """Whether the level is over, and its tensors are plain from then on (see `settle`)."""
        return False

    def without_history(self) -> Any:
        """The value with all outer levels' history cut: what `detach` gives."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {tuple(self.shape)} of {self.inner!r}>"


class Level:
    """One call of a transform: which values are its own, and what ops mean for them."""

    kind: type[Leveled]  # of its values
    name: str  # of the transform, in messages

    def __init__(self) -> None:
        self.order = next_order()  # grows with creation: an inner level's is greater

    def values(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The values of `op` on inputs some of which are at this level (a tuple of them for several
        outputs); called in the mode outside.
        """
        raise NotImplementedError

    def run(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The tensors that `op` gives for inputs some of which are at this level."""
        return finished(op, inputs, self.values(op, inputs))

    def lift(self, x: Any) -> Leveled:
        """The value at this level that is no more than the tensor `x`."""
        raise NotImplementedError

    def read(self, value: Leveled) -> Any:
        """The array of a value that the program reads."""
        raise NotImplementedError

    def draw(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """The values of a random op without inputs at this level; NotImplemented: it is the same
        inside as outside.
        """
        return NotImplemented

    def write(self, x: Any, y: Any) -> None:
        """Write what `y` holds, which is at this level, to `x`, which is not.

        Errors: AutogradError where `x` was not made inside.
        """
        here = current()
        if here is None or not here.has_made(x if x._view is None else x._view.base):
            raise AutogradError(
                f"{self.name}: During a grad (vjp, jvp, grad, etc) transform, the function "
                "provided attempted to call in-place operation that would mutate a captured "
                "Tensor. This is not supported; please rewrite the function being transformed to "
                "explicitly accept the mutated Tensor(s) as inputs."
            )
        self.raised(x)
        self.put(x, y)

    def put(self, x: Any, y: Any) -> None:
        """Write what `y` holds to `x`, which is at this level; its base and views see it."""
        value = y._data if self.at(y) else self.lift(wrap(y._data, y._node))
        view = x._view
        if view is None:
            x._data = value
        else:
            value = self._of_values(ViewWrite(view.ops), view.base._data, value)
            view.base._data = value
        version = x._changes
        for reference in (version.views or ()) if version is not None else ():
            other = reference()
            if other is None or (other is x and view is None):
                continue
            if isinstance(other._data, Leveled) and other._data.level.order > self.order:
                raise Unsupported(
                    f"{other._data.level.name}: a tensor inside {self.name} is written to, of "
                    "which others were made duals; write to it before, or to a clone"
                )
            part = value
            for op in () if other._view is None else other._view.ops:
                part = self._of_values(op, part)
            other._data = part

    def _of_values(self, op: Op, *values: Any) -> Any:
        """The value of `op` on values of this level, computed outside of it."""
        with outside(self):
            return self.values(op, tuple([wrap(value) for value in values]))

    def raised(self, x: Any) -> None:
        """Let `x`, its base and its views be at this level."""
        version = x._changes
        base = x if x._view is None else x._view.base
        tensors = [base, x]
        for reference in (version.views or ()) if version is not None else ():
            tensors.append(reference())
        done: list[Any] = []
        for each in tensors:
            if each is not None and not any(each is other for other in done):
                done.append(each)
                each._data = self.lift(wrap(each._data, each._node, each._changes))

    def at(self, x: Any) -> bool:
        """Whether `x` is a tensor at this level."""
        return (
            isinstance(x, TensorBase)
            and isinstance(x._data, Leveled)
            and x._data.level is self
        )  # fmt: skip


class Transforming:
    """The executor inside a transform: ops on values of its level, others as outside."""

    def __init__(self, level: Level, outer: Any, keeps: bool | None = None) -> None:
        self.level = level
        self.outer = outer  # the executor outside
        self.keeps = keeps  # whether the outside records, where it is not as inside
        self._modes: dict[Mode, Mode] = {}
        self._made: dict[int, Any] = {}  # tensors that were made inside, which may become its own

    def note_fresh(self, tensor: Any) -> None:
        """A tensor was made inside."""
        self._made[id(tensor)] = ref(tensor)
        outer = getattr(self.outer, "note_fresh", None)
        if outer is not None:
            outer(tensor)

    def has_made(self, tensor: Any) -> bool:
        """Whether a tensor was made inside."""
        made = self._made.get(id(tensor))
        return made is not None and made() is tensor

    def mode(self) -> Mode:
        """The mode outside, with the switches of this place."""
        inside = MODE.get()
        found = self._modes.get(inside)
        if found is None:
            grad = inside.grad if self.keeps is None else self.keeps
            found = mode_with(inside, executor=self.outer, grad=grad, overrides=UNASKED)
            self._modes[inside] = found
        return found

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """What `op` gives for them."""
        level = self.level
        top = innermost(inputs)
        here = top is level
        if top is not None and top.order > level.order:
            return top.run(op, inputs)
        inside = MODE.get()
        MODE.set(self.mode())
        try:
            if here:
                values = level.values(op, inputs)
            else:
                values = level.draw(op, inputs) if op.drawn else NotImplemented
                if values is NotImplemented:
                    found = apply(op, *inputs)
                    if not op.view:
                        for y in found if isinstance(found, tuple) else (found,):
                            self._made[id(y)] = ref(y)
                    return found
        finally:
            MODE.set(inside)
        return finished(op, inputs, values)

    def composite(self, declared: Any, args: tuple[Any, ...]) -> Any:
        """A composite of tensors that are not at this level, as outside; else NotImplemented."""
        top = innermost(args)
        if top is not None and top.order >= self.level.order:
            return NotImplemented
        inside = MODE.get()
        MODE.set(self.mode())
        try:
            return declared.run(*args)
        finally:
            MODE.set(inside)

    def __getattr__(self, name: str) -> Any:
        """What a capture outside is told: of what is not at this level."""
        found = getattr(self.__dict__["outer"], name)
        if name != "meet":
            return found
        return lambda x: None if isinstance(x._data, Leveled) else found(x)


def finished(op: Op, inputs: tuple[Any, ...], values: Any) -> Any:
    """The tensors of what `op` gave at a level."""
    parents = parents_of(inputs)
    wants = any(parent is not None for parent in parents)
    return finish(op, inputs, values, parents, wants)


def current() -> Transforming | None:
    """The innermost transform that runs here."""
    executor = MODE.get().executor
    return executor if isinstance(executor, Transforming) else None


@contextmanager
def entered(level: Level) -> Iterator[None]:
    """Within it, `level` is the innermost."""
    outside = MODE.get()
    token = MODE.set(mode_with(outside, executor=Transforming(level, outside.executor)))
    try:
        yield
    finally:
        MODE.reset(token)


def innermost(inputs: Any) -> Level | None:
    """The innermost level that any of the inputs is at."""
    found = None
    for x in inputs:
        data = x._data if isinstance(x, TensorBase) else None
        while isinstance(data, Leveled) and data.expired:
            data.settle(x)
            data = x._data
        if isinstance(data, Leveled) and (found is None or data.level.order > found.order):
            found = data.level
    return found


@contextmanager
def outside(level: Level) -> Iterator[None]:
    """Within it, ops run as outside of `level`, where that is the innermost."""
    here = current()
    mode = MODE.get()
    token = MODE.set(here.mode() if here is not None and here.level is level else mode)
    try:
        yield
    finally:
        MODE.reset(token)


@contextmanager
def recording_beyond(place: Transforming | None) -> Iterator[None]:
    """Within it, the levels outside of `place` record as they do now, whatever becomes of the mode:
    for a walk back over what was recorded there.
    """
    mode = MODE.get()
    token = MODE.set(mode_with(mode, executor=_keeping(mode.executor, place, mode.grad)))
    try:
        yield
    finally:
        MODE.reset(token)


def _keeping(executor: Any, place: Transforming | None, grad: bool) -> Any:
    if place is None or not isinstance(executor, Transforming):
        return executor
    keeps = executor.keeps
    if executor.level is place.level:
        return Transforming(executor.level, executor.outer, grad if keeps is None else keeps)
    inner = grad if keeps is None else keeps
    return Transforming(executor.level, _keeping(executor.outer, place, inner), keeps)


def run_leveled(op: Op, inputs: tuple[Any, ...]) -> Any:
    """Run `op` where the innermost level of its inputs is not the one that is entered: that one
    says what it means.
    """
    top = innermost(inputs)
    if top is None:  # levels that are over
        return apply(op, *inputs)
    here = current()
    if here is not None and here.level is top:
        return here(op, inputs)
    return top.run(op, inputs)


def write_leveled(x: Any, y: Any) -> None:
    """`x` takes the value of `y`, either or both of which are at a level; its base and views see
    it.
    """
    found, top = innermost((x,)), innermost((x, y))
    if top is None:  # the levels are over
        data = x._data
        if isinstance(data, LazyValue):
            WRITERS[type(data)](x, y)
        else:
            data[...] = concrete(y)
    elif top is found:
        top.put(x, y)
    else:
        top.write(x, y)
