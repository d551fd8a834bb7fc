"""Batched values (`vmap`): a tensor that wraps one with an additional leading dimension, and hides
it. Each op states how it computes a batch (`Op.core`, `by_rows`, `batched`, `batch`); the few that
do not run once for each entry, with a warning.

How an op computes a batch it says itself (`Op.core`, `by_rows`, `batched`, `batch`); the few that
do not run once for each entry, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..core.device import register_backend
from ..core.errors import Unsupported
from ..core.op import Op
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..ops.random.draws import DrawnFor
from ..ops.shape.joining import stack
from ..ops.shape.movement import Expand, to_shape
from ..runtime.dispatch import apply
from ..runtime.tensors import spec_of, zeros
from ..runtime.writes import ViewWrite
from .levels import Level, Leveled, current, outside, sharing, with_history

if TYPE_CHECKING:
    from .protocols import BackendArray

__all__ = ["BatchLevel", "Batched"]


_UNREADABLE = (
    "It looks like you're calling .item() or .numpy() on a Tensor, or attempting to use it in some "
    "data-dependent control flow: shape {} for each of {} entries, whose values differ. Select "
    "with where(), or loop over the entries outside of vmap"
)


class Batched(Leveled):
    """A value of a `vmap` level: `inner` has the hidden dimension in front, or, if `whole`, lacks
    it and is shared by all entries.
    """

    __slots__ = ("whole",)

    whole: bool

    def __init__(self, level: Level, inner: TensorBase, whole: bool = False) -> None:
        shape = tuple(inner._data.shape)
        super().__init__(level, inner, shape if whole else shape[1:])
        self.whole = whole

    @property
    def varies(self) -> bool:  # type: ignore[override]
        """Whether entries have values of their own."""
        return not self.whole

    def without_history(self) -> Batched:
        """A Batched of `inner.detach()`."""
        return Batched(self.level, self.inner.detach(), self.whole)


class BatchLevel(Level):
    """The level of one call of `vmap`, for batches of `size`."""

    kind = Batched
    name = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.size = size
        self.randomness = randomness

    def lift(self, x: TensorBase) -> Batched:
        """`x` as a value that all entries share."""
        return Batched(self, x, whole=True)

    def read(self, value: Leveled) -> BackendArray:
        """The array of a value that all entries share; an error for other values."""
        assert isinstance(value, Batched)
        if not value.whole:
            refuse(_UNREADABLE.format(tuple(value.shape), self.size))
        data = value.inner._data
        return data.settle(value.inner) if isinstance(data, Leveled) else data

    def values(self, op: Op, inputs: tuple[Any, ...]) -> Leveled | tuple[Leveled, ...]:
        """The op computed by its batching rule on the inner tensors."""
        flags = []
        outer = []
        for x in inputs:
            here = self.at(x)
            flags.append(here and not x._data.whole)
            outer.append(x._data.inner if here else x)
        if op.drawn and any(flags):
            self._assert_random(op, "same randomness with a batched tensor as input")
        if op.drawn and self.randomness != "same":
            self._assert_random(op)
            flags[0], outer[0] = True, outer[0] if flags[0] else self._each(outer[0])
        if not any(flags):
            results = apply(op, *outer)
            several = isinstance(results, tuple)
            return tuple(map(self.lift, results)) if several else self.lift(results)
        specs = op.infer(*map(spec_of, inputs))
        ndims = [x._data.ndim if isinstance(x, TensorBase) else 0 for x in inputs]
        results = _in_batch(op, self.size, flags, ndims, outer, specs)
        if isinstance(specs, Spec):
            return self._batched(op, results, specs)
        return tuple(self._batched(op, y, spec) for y, spec in zip(results, specs, strict=True))

    def _batched(self, op: Op, y: Tensor, spec: Spec) -> Batched:
        shape = (self.size, *spec.shape)
        if y._data.shape != shape:
            raise AssertionError(f"vmap: {op!r} gave {tuple(y.shape)}, not {shape}")
        return Batched(self, y)

    def beside(self, value: Leveled, numbers: Leveled) -> Leveled:
        """The numbers for each entry, with the history of `value`."""
        assert isinstance(value, Batched)
        assert isinstance(numbers, Batched)
        inners = [
            self._each(x.inner) if x.whole and not (value.whole and numbers.whole) else x.inner
            for x in (value, numbers)
        ]
        return Batched(self, with_history(*inners), value.whole and numbers.whole)

    def draw(self, op: Op, inputs: tuple[Any, ...]) -> Leveled | tuple[Leveled, ...]:
        """Random numbers for each entry, or shared by all, as `randomness` says."""
        self._assert_random(op)
        if self.randomness == "same":
            return NotImplemented
        if isinstance(op, DrawnFor):
            each = op.of_each(self.size)
            if each is None:
                refuse(f"{op.name} with randomness='different'; draw outside of vmap")
            return Batched(self, apply(each, *inputs))
        if inputs:
            return self.values(op, inputs)
        if op.batch is not None:
            return Batched(self, op.batch(self.size, []))
        made = op.batched(self.size)
        if made is None:
            refuse(f"{op.name} with randomness='different'; draw outside of vmap")
        return Batched(self, apply(made))

    def _assert_random(self, op: Op, why: str = "") -> None:
        if self.randomness == "error":
            refuse(
                "called random operation while in randomness error mode. Please either use the "
                "'same' or 'different' randomness flags on vmap or perform the randomness "
                f"operation out of vmap ({op.name})"
            )
        if why and self.randomness == "same":
            refuse(f"does not currently support {why} ({op.name}); use randomness='different'")

    def _each(self, x: Tensor) -> Tensor:
        return apply(Expand((self.size, *x._data.shape)), x)

    def write(self, x: TensorBase, y: TensorBase) -> None:
        """Refuse to write different values per entry to `x`, which has memory for one."""
        if not y._data.whole:
            refuse(
                "inplace arithmetic(self, *extra_args) is not possible because there exists a "
                f"Tensor `other` in extra_args that has more elements than `self`: shape "
                f"{tuple(x.shape)} is written with one value for each of {self.size} entries. Use "
                "the operation that is not in place, or make `self` of a batched tensor "
                "(x.new_zeros(...) + x.sum() * 0)"
            )
        here = current()
        if here is not None and any(map(here.has_made, sharing(x))):
            super().write(x, y)
        else:
            with outside(self):  # one value for all: as a write of what was made outside
                x.copy_(y._data.inner)  # type: ignore[attr-defined]


def refuse(why: str) -> NoReturn:
    """Raise Unsupported on behalf of `vmap`."""
    raise Unsupported(f"vmap: {why}")


# ---- rules ---------------------------------------------------------------------------------------


def _in_batch(
    op: Op,
    size: int,
    flags: Sequence[bool],
    ndims: Sequence[int],
    inputs: Sequence[Any],
    specs: Spec | Sequence[Spec],
) -> Any:
    """The results of `op` on a batch. Inputs with a flag have the batch dimension in front of their
    `ndims` dimensions, as have the results, whose entries have the `specs`.
    """
    if op.batch is not None:
        return op.batch(size, flags, *inputs)
    if op.pointwise or op.core is not None:
        results = apply(op, *_aligned(op.core or (0,), flags, ndims, inputs))
    elif op.by_rows:
        results = apply(
            op, *[_merged(x, size, flag) for x, flag in zip(inputs, flags, strict=True)]
        )
    else:
        made = (
            _of_views(op, size, spec_of(inputs[0])) if type(op) is ViewWrite else op.batched(size)
        )
        if made is None:
            return one_by_one(op, size, flags, inputs, specs)
        results = apply(made, *_whole(size, flags, inputs))
    if isinstance(specs, Spec):
        return _shaped(results, (size, *specs.shape))
    return tuple(_shaped(y, (size, *s.shape)) for y, s in zip(results, specs, strict=True))


def _shaped(y: Tensor, shape: tuple[int, ...]) -> Tensor:
    return y if tuple(y._data.shape) == shape else apply(to_shape(shape), y)


def _aligned(
    core: tuple[int, ...], flags: Sequence[bool], ndims: Sequence[int], inputs: Sequence[Any]
) -> list[Any]:
    """Inputs reshaped to the same number of dimensions before those that the op works on, so that
    they broadcast behind the batch dimension.
    """
    lead = [ndim - core[min(i, len(core) - 1)] for i, ndim in enumerate(ndims)]
    most = max(lead)
    aligned = []
    for x, flag, n in zip(inputs, flags, lead, strict=True):
        if flag and n < most:
            size, *rest = x._data.shape
            x = apply(to_shape((size, *(1,) * (most - n), *rest)), x)
        aligned.append(x)
    return aligned


def _whole(size: int, flags: Sequence[bool], inputs: Sequence[Any]) -> list[Any]:
    """Tensors expanded to have the batch dimension in front, all of them."""
    return [
        apply(Expand((size, *x._data.shape)), x) if isinstance(x, TensorBase) and not flag else x
        for x, flag in zip(inputs, flags, strict=True)
    ]


def _merged(x: Any, size: int, flag: bool) -> object:
    """A tensor with the batch dimension merged into its own first dimension."""
    if not isinstance(x, TensorBase):
        return x
    if not flag:
        x = apply(Expand((size, *x._data.shape)), x)
    _, rows, *rest = x._data.shape
    return apply(to_shape((size * rows, *rest)), x)


def _of_views(op: ViewWrite, size: int, base: Spec) -> ViewWrite:
    """A write through views, for each entry."""
    ops = []
    for view in op.ops:
        made = view.batched(size)
        if made is None:
            refuse(f"a write through {view.name}; write to a clone of the view")
        ops.append(made)
    return ViewWrite(tuple(ops))


def one_by_one(
    op: Op, size: int, flags: Sequence[bool], inputs: Sequence[Any], specs: Any
) -> Tensor | tuple[Tensor, ...]:
    """The op run for each entry separately, with a warning."""
    warnings.warn(
        f"vmap: {op.name} has no rule for batches, so it runs once for each of {size} entries",
        UserWarning,
        stacklevel=2,
    )
    single = isinstance(specs, Spec)
    if not size:
        made = [
            zeros((0, *s.shape), s.dtype.numpy, s.device) for s in ((specs,) if single else specs)
        ]
        return made[0] if single else tuple(made)
    rows = []
    for i in range(size):
        each = [x[i] if flag else x for x, flag in zip(inputs, flags, strict=True)]
        rows.append(apply(op, *each))
    if single:
        return stack(rows)
    return tuple(stack(list(column)) for column in zip(*rows, strict=True))


register_backend(Batched, None, lambda value: value.device)
