"""Levels of function transforms (`vmap`, `jvp`): values that take the place of their arguments.

A tensor at a level holds a `Leveled` value where others hold an array: one more data type, which
wraps tensors of the levels outside. What an op means for such inputs, its level says in terms of
ops on what they wrap, which may be of an outer level again; so transforms nest, and shapes, checks,
composites and the tape see a plain tensor. The tape of a level is its own: gradients that are asked
for inside flow through the tensors at the level, those of the outside through what they wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..core.device import device_of
from ..core.errors import AutogradError, Unsupported
from ..core.mode import MODE, Mode, mode_with, switched
from ..core.op import Op
from ..core.overrides import UNASKED
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.dispatch import apply, finish
from ..runtime.lazy import LazyValue, concrete
from ..runtime.node import next_order
from ..runtime.record import parents_of
from ..runtime.tensors import wrap
from ..runtime.writes import WRITERS, ViewWrite

if TYPE_CHECKING:
    from ..runtime.fused import Declared
    from .protocols import BackendArray

__all__ = [
    "DERIVING",
    "ENABLED",
    "Level",
    "Leveled",
    "Transforming",
    "current",
    "entered",
    "history_of",
    "innermost",
    "outside",
    "recording_beyond",
]

DERIVING: ContextVar[str] = ContextVar("deriving", default="")  # the transform of `func` around
ENABLED: ContextVar[bool] = ContextVar("forward_ad", default=True)  # whether tangents are computed


class Leveled(LazyValue):
    """The value of a tensor at a level; `inner` is the tensor that it wraps."""

    __slots__ = ("inner", "level")

    inner: Any
    level: Level
    rises = True  # a tensor that it is written to joins its level

    def __init__(self, level: Level, inner: TensorBase, shape: tuple[int, ...]) -> None:
        data = inner._data
        super().__init__(None, (), shape, data.dtype, device_of(data))
        self.level = level
        self.inner = inner

    def realize(self) -> BackendArray:
        """The array, where the level has one for the value."""
        return self.level.read(self)

    def settle(self, tensor: TensorBase) -> BackendArray:
        """The array; the tensor stays at its level."""
        return self.level.read(self)

    @property
    def expired(self) -> bool:
        """Whether the level has ended, and its tensors are plain (see `settle`)."""
        return False

    def without_history(self) -> BackendArray:
        """The value without the history of outer levels, as `detach` returns it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {tuple(self.shape)} of {self.inner!r}>"


class Level:
    """One call of a transform: its values, and the meaning of ops on them."""

    kind: type[Leveled]  # of its values
    name: str  # of the transform, in messages
    silent = False  # whether levels outside compute no tangents, where this one does

    def __init__(self) -> None:
        self.order = next_order()  # grows with creation: an inner level's is greater

    def values(self, op: Op, inputs: tuple[Any, ...]) -> Leveled | tuple[Leveled, ...]:
        """The values of `op` on inputs some of which are at this level (a tuple for several
        outputs); called in the mode outside.
        """
        raise NotImplementedError

    def run(self, op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """The tensors of `op` on inputs some of which are at this level."""
        return finished(op, inputs, self.values(op, inputs))

    def lift(self, x: TensorBase) -> Leveled:
        """The tensor `x` as a constant at this level."""
        raise NotImplementedError

    def read(self, value: Leveled) -> BackendArray:
        """The array of a value, when the program reads it."""
        raise NotImplementedError

    def draw(self, op: Op, inputs: tuple[Any, ...]) -> Leveled | tuple[Leveled, ...]:
        """The values of a random op without inputs at this level; NotImplemented if it is the same
        inside as outside.
        """
        return NotImplemented

    def write(self, x: TensorBase, y: TensorBase) -> None:
        """Write the value of `y`, which is at this level, to `x`, which is not.

        Errors: AutogradError where `x` was not made inside.
        """
        here = current()
        if here is None or not any(map(here.has_made, sharing(x))):
            raise AutogradError(
                f"{self.name}: During a grad (vjp, jvp, grad, etc) transform, the function "
                "provided attempted to call in-place operation that would mutate a captured "
                "Tensor. This is not supported; please rewrite the function being transformed to "
                "explicitly accept the mutated Tensor(s) as inputs."
            )
        self.raised(x)
        self.put(x, y)

    def put(self, x: TensorBase, y: TensorBase) -> None:
        """Write the value of `y` to `x`, which is at this level; whatever shares its memory sees
        the numbers, and what shares its history, too, sees the derivatives.
        """
        given = y._data if self.at(y) else self.lift(wrap(y._data, y._node))
        view = x._view
        base, root = history_of(x)
        whole = own = given  # of the base, and of the tensor that the history is of
        if view is not None:
            whole = own = self._of_values(ViewWrite(view.ops), base._data, given)
            if root is not None:
                rest = view.ops[len(root.ops) :]
                top = x if view.alias is None else view.alias
                own = self._of_values(ViewWrite(rest), top._data, given) if rest else given
        for each in sharing(x):
            if isinstance(each._data, Leveled) and each._data.level.order > self.order:
                raise Unsupported(
                    f"{each._data.level.name}: a tensor inside {self.name} is written to, of "
                    "which others were made duals; write to it before, or to a clone"
                )
            ops = () if each._view is None else each._view.ops
            akin = all(a is b for a, b in zip(history_of(each), (base, root), strict=True))
            part = own if akin else whole
            for op in ops[len(root.ops) :] if akin and root is not None else ops:
                part = self._of_values(op, part)
            if not akin:
                with outside(self):
                    part = with_history(each, wrap(part))._data
            each._data = part

    def beside(self, value: Leveled, numbers: Leveled) -> Leveled:
        """The numbers of one value with the derivatives of another, both of this level."""
        raise NotImplementedError

    def _of_values(self, op: Op, *values: Any) -> Any:
        """The value of `op` on values of this level, computed outside of it."""
        with outside(self):
            return self.values(op, tuple([wrap(value) for value in values]))

    def raised(self, x: TensorBase) -> None:
        """Move `x`, its base and its views to this level."""
        for each in sharing(x):
            each._data = self.lift(wrap(each._data, each._node, each._changes))

    def at(self, x: object) -> bool:
        """Whether `x` is a tensor at this level."""
        return (
            isinstance(x, TensorBase)
            and isinstance(x._data, Leveled)
            and x._data.level is self
        )  # fmt: skip


def history_of(x: TensorBase) -> tuple[TensorBase, Any]:
    """Whose history a tensor shares: its base, and the outermost view of it that was detached."""
    view = x._view
    if view is None:
        return x, None
    root = view if view.detached else None
    while root is not None and root.above is not None and root.above.detached:
        root = root.above
    return view.base, root


def sharing(x: TensorBase) -> list[TensorBase]:
    """A tensor, its base, and the tensors that are known to share their memory."""
    version = x._changes
    tensors = {id(x): x}
    if x._view is not None:
        tensors[id(x._view.base)] = x._view.base
    for reference in (version.views or ()) if version is not None else ():
        each = reference()
        if each is not None:
            tensors[id(each)] = each
    return list(tensors.values())


def with_history(x: TensorBase, numbers: TensorBase) -> Tensor:
    """A tensor with the numbers of `numbers`, and the history and derivatives of `x`."""
    level = innermost((x, numbers))
    if level is None:
        return wrap(numbers._data, x._node)
    values = [y._data if level.at(y) else level.lift(y) for y in (x, numbers)]
    return wrap(level.beside(*values), x._node)


class Transforming:
    """The executor inside a transform: ops on values of its level are run by the level, others as
    outside.
    """

    def __init__(
        self,
        level: Level,
        outer: Callable[[Any, tuple[Any, ...]], Any] | None,
        keeps: bool | None = None,
    ) -> None:
        self.level = level
        self.outer = outer  # the executor outside
        self.keeps = keeps  # whether the outside records, if that differs from the inside
        self._modes: dict[Mode, Mode] = {}
        self._made: dict[int, Any] = {}  # tensors that were made inside, which may join the level

    def note_fresh(self, tensor: TensorBase) -> None:
        """Note that a tensor was made inside."""
        self._made[id(tensor)] = ref(tensor)
        outer = getattr(self.outer, "note_fresh", None)
        if outer is not None:
            outer(tensor)

    def has_made(self, tensor: TensorBase) -> bool:
        """Whether a tensor was made inside."""
        made = self._made.get(id(tensor))
        return made is not None and made() is tensor

    def mode(self) -> Mode:
        """The mode outside, with the switches that are set here."""
        inside = MODE.get()
        outside_mode = self._modes.get(inside)
        if outside_mode is None:
            grad = inside.grad if self.keeps is None else self.keeps
            outside_mode = mode_with(inside, executor=self.outer, grad=grad, overrides=UNASKED)
            self._modes[inside] = outside_mode
        return outside_mode

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """The results of `op`: by its inputs' level, or as outside."""
        level = self.level
        top = innermost(inputs)
        here = top is level
        if top is not None and top.order > level.order:
            return top.run(op, inputs)
        inside = MODE.get()
        try:
            MODE.set(self.mode())
            if here:
                values = level.values(op, inputs)
            else:
                values = level.draw(op, inputs) if op.drawn else NotImplemented
                if values is NotImplemented:
                    with switched(ENABLED.get() and not level.silent, variable=ENABLED):
                        results = apply(op, *inputs)
                    if not op.view:
                        for y in results if isinstance(results, tuple) else (results,):
                            self._made[id(y)] = ref(y)
                    return results
        finally:
            MODE.set(inside)
        return finished(op, inputs, values)

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> object:
        """A composite of tensors that are not at this level, run as outside; NotImplemented for
        others.
        """
        top = innermost(args)
        if top is not None and top.order >= self.level.order:
            return NotImplemented
        inside = MODE.get()
        try:
            MODE.set(self.mode())
            return declared.run(*args)
        finally:
            MODE.set(inside)

    def __getattr__(self, name: str) -> Any:
        """Attributes of the executor outside, a capture's, which is not told about values at this
        level.
        """
        attribute = getattr(self.__dict__["outer"], name)
        if name != "meet":
            return attribute
        return lambda x: None if isinstance(x._data, Leveled) else attribute(x)


def finished(
    op: Op, inputs: tuple[Any, ...], values: Leveled | tuple[Leveled, ...]
) -> Tensor | tuple[Tensor, ...]:
    """The tensors of the values that `op` computed at a level."""
    parents = parents_of(inputs)
    wants = any(parent is not None for parent in parents)
    return finish(op, inputs, values, parents, wants)


def current() -> Transforming | None:
    """The innermost transform that runs here, or None."""
    executor = MODE.get().executor
    return executor if isinstance(executor, Transforming) else None


def entered(level: Level) -> switched:
    """A block in which `level` is the innermost."""
    mode = MODE.get()
    return switched(mode_with(mode, executor=Transforming(level, mode.executor)))


def innermost(inputs: Iterable[Any]) -> Level | None:
    """The innermost level that any of the inputs is at."""
    level = None
    for x in inputs:
        data = x._data if isinstance(x, TensorBase) else None
        while isinstance(data, Leveled) and data.expired:
            data.settle(x)
            data = x._data
        if isinstance(data, Leveled) and (level is None or data.level.order > level.order):
            level = data.level
    return level


def outside(level: Level) -> switched:
    """A block in which ops run as outside of `level`, where that is the innermost."""
    here = current()
    return switched(here.mode() if here is not None and here.level is level else MODE.get())


def recording_beyond(place: Transforming | None) -> switched:
    """A block in which the levels outside of `place` record as they do now, whatever becomes of the
    mode: for a walk back over what was recorded there.
    """
    mode = MODE.get()
    return switched(mode_with(mode, executor=_keeping(mode.executor, place, mode.grad)))


def _keeping(
    executor: Callable[[Any, tuple[Any, ...]], Any] | None, place: Transforming | None, grad: bool
) -> Callable[[Any, tuple[Any, ...]], Any] | None:
    if place is None or not isinstance(executor, Transforming):
        return executor
    keeps = executor.keeps
    if executor.level is place.level:
        return Transforming(executor.level, executor.outer, grad if keeps is None else keeps)
    inner = grad if keeps is None else keeps
    return Transforming(executor.level, _keeping(executor.outer, place, inner), keeps)


def run_leveled(op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    """Run `op` by the innermost level of its inputs, where that is not the level that is
    entered.
    """
    top = innermost(inputs)
    if top is None:  # levels that are over
        return apply(op, *inputs)
    here = current()
    if here is not None and here.level is top:
        return here(op, inputs)
    return top.run(op, inputs)


def write_leveled(x: TensorBase, y: TensorBase) -> None:
    """Write the value of `y` to `x`, where one or both are at a level; base and views see it."""
    own, top = innermost((x,)), innermost((x, y))
    if top is None:  # the levels are over
        data = x._data
        if isinstance(data, LazyValue):
            WRITERS[type(data)](x, y)
        else:
            data[...] = concrete(y)
    elif top is own:
        top.put(x, y)
    else:
        top.write(x, y)
