"""The entry of each row at a class index, as classification losses want it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.elements import are_below
from ...core.errors import DTypeError, IndexingError
from ...core.op import Op, Sample
from ...core.spec import Spec, broadcast_shapes
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ..samples import array

__all__: list[str] = []  # losses are made of these


@dataclass(eq=False, repr=False)
class _Picking(Op, abstract=True):
    """Base of ops on an index that has size 1 along `axis`, where `classes` can be picked."""

    axis: int
    ignore: int
    exact = True

    def _shape(self, x: Spec, index: Spec, classes: int) -> tuple[int, ...]:
        """The shape of both, broadcast along other axes, with `classes` along this one."""
        if index.dtype is not dt.int64:
            raise DTypeError(
                f"{self.name}: expected an int64 index, got {index.dtype}; use .long()"
            )
        shapes = [(*s.shape[: self.axis], 1, *s.shape[self.axis + 1 :]) for s in (x, index)]
        shape = broadcast_shapes(*shapes, op=self.name)
        return (*shape[: self.axis], classes, *shape[self.axis + 1 :])

    def _kept(self, index: Any, classes: int, loss: str) -> Any:
        """Mask of the entries that are not ignored; None for all.

        Errors: IndexingError for other entries outside the classes.
        """
        if not index.size:
            return None
        if are_below(index, classes) and not 0 <= self.ignore < classes:
            return None
        kept = index != self.ignore
        wrong = index[kept & ((index < 0) | (index >= classes))]
        if wrong.size:
            raise IndexingError(
                f"{loss}: Target {wrong[0]} is out of bounds; targets must be from 0 to "
                f"{classes - 1}, or ignore_index={self.ignore}"
            )
        return kept

    def _positions(self, shape: tuple[int, ...], index: Any) -> Any:
        """A NumPy index of the entries in an array of `shape`, with `index` along `axis`."""
        last = len(shape) - 1
        places = [np.arange(n).reshape((-1,) + (1,) * (last - i)) for i, n in enumerate(shape)]
        places[self.axis] = index
        return tuple(places)


@dataclass(eq=False, repr=False)
class Pick(_Picking):
    """The entry of `x` along `axis` at each index, 0 where that is `ignore`; x may broadcast along
    the others. `loss` is the function that errors name.
    """

    loss: str = "nll_loss"
    needs = ("x2 spec1", "")
    library = "moves"

    def infer(self, x: Spec, index: Spec) -> Spec:
        """The index's shape."""
        return x.with_(shape=self._shape(x, index, 1))

    def compute(self, xp: Any, x: Any, index: Any) -> Any:
        """Elements by position; or as a backend has it."""
        if type(x) is not np.ndarray:
            return xp.pick(self, x, index)
        if xp.moves and not 0 <= self.ignore < x.shape[self.axis]:
            found = xp.gather(x, self.axis, index)
            if found is not NotImplemented:  # all are among the classes
                return found
        kept = self._kept(index, x.shape[self.axis], self.loss)
        if kept is None:
            return x[self._positions(x.shape, index)]
        picked = x[self._positions(x.shape, np.where(kept, index, 0))]
        return np.where(kept, picked, np.zeros((), x.dtype))

    def guard(self, x: Spec, index: Any) -> None:
        """Refuse what `compute` refuses: a kernel picks nothing there."""
        self._kept(index, x.shape[self.axis], self.loss)

    def gradient(self, g: Tensor, index: Tensor, spec: Spec) -> tuple[Any, ...]:
        """g where the entries came from."""
        return (
            apply(PlaceAt(self.axis, self.ignore, spec.shape[self.axis], self.loss), g, index),
            None,
        )

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each axis, dtypes, ignored entries, broadcast, empty."""
        index = np.array([[0], [2], [1]])
        for dtype in (dt.float64, dt.float32, dt.bfloat16, dt.complex128):
            yield Sample(cls(1, -100), (array((3, 3), dtype), index), dtype.name)
        yield Sample(cls(1, 2), (array((3, 3)), index), "ignored")
        yield Sample(cls(1, -1), (array((3, 3)), index - 1), "negative-ignored")
        yield Sample(cls(1, -100), (array((1, 3)), index), "broadcast")
        yield Sample(cls(1, -100), (array((2, 3, 2)), np.array([[[0, 2]], [[1, 1]]])), "middle")
        yield Sample(cls(0, -100), (array((3,)), index[1]), "1-d")
        yield Sample(cls(1, -100), (array((0, 3)), index[:0]), "empty")

    def reference(self, x: Any, index: Any) -> Any:
        """NumPy's take_along_axis."""
        kept = index != self.ignore
        picked = np.take_along_axis(x, np.where(kept, index, 0), self.axis)
        return np.where(kept, picked, np.zeros((), x.dtype))


@dataclass(eq=False, repr=False)
class PlaceAt(_Picking):
    """Zeros with `g` at each index along `axis`, which then has `classes` entries."""

    classes: int
    loss: str = "nll_loss"
    needs = ("x2", "")

    def infer(self, g: Spec, index: Spec) -> Spec:
        """`classes` along the axis."""
        return g.with_(shape=self._shape(g, index, self.classes))

    def compute(self, xp: Any, g: Any, index: Any) -> Any:
        """Places elements by position; or as a backend has it."""
        if type(g) is not np.ndarray:
            return xp.place_at(self, g, index)
        kept = self._kept(index, self.classes, self.loss)
        shape = tuple(self.classes if i == self.axis else n for i, n in enumerate(index.shape))
        result = np.zeros(shape, g.dtype)
        if kept is not None:
            index, g = np.where(kept, index, 0), np.where(kept, g, np.zeros((), g.dtype))
        result[self._positions(shape, index)] = g
        return result

    def guard(self, g: Spec, index: Any) -> None:
        """Refuse what `compute` refuses."""
        self._kept(index, self.classes, self.loss)

    def gradient(self, g: Tensor, index: Tensor) -> tuple[Any, ...]:
        """Entries of g at the index."""
        return (apply(Pick(self.axis, self.ignore, self.loss), g, index), None)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Dtypes, ignored entries."""
        index = np.array([[0], [2], [1]])
        for dtype in (dt.float64, dt.float32, dt.bfloat16, dt.complex128):
            yield Sample(cls(1, -100, 3), (array((3, 1), dtype), index), dtype.name)
        yield Sample(cls(1, 2, 4), (array((3, 1)), index), "ignored")
        yield Sample(cls(0, -100, 3), (array((1, 3)), index.T), "first")

    def reference(self, g: Any, index: Any) -> Any:
        """Reference value by comparison with every class."""
        classes = np.arange(self.classes).reshape(
            [-1 if i == self.axis else 1 for i in range(index.ndim)]
        )
        return np.where((classes == index) & (index != self.ignore), g, np.zeros((), g.dtype))
