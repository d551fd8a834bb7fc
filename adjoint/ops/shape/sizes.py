"""Numbers that functions compute from sizes, in a graph whose inputs may change their shapes.

Elsewhere a size is a number and stays right. In a graph it would stay what it was: functions that
compute with sizes either record an op that asks for them again (`over_size`, `filled_like`), or
`hold_sizes`, so that the graph refuses others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import GraphError, ShapeError
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...runtime.cells import Cell
from ...runtime.dispatch import apply
from ...runtime.views import mark_view
from ..samples import array

__all__ = ["HoldSizes", "OverSize", "hold_sizes", "hold_values", "is_of_graph", "over_size"]

ndarray = np.ndarray
_ANY = -1  # a size that may change


@dataclass(eq=False, repr=False)
class HoldSizes(Op):
    """The value of its first input; all inputs keep the sizes that they had when it was recorded
    (-1: any), and with a `digest` the values behind the first. `reader` is the function that
    computed with them.
    """

    reader: str
    sizes: tuple[tuple[int, ...], ...]
    digest: str = ""
    exact = True

    def infer(self, spec: Spec, *others: Spec) -> Spec:
        """The first input's spec; ShapeError where a size is another one."""
        for held, each in zip(self.sizes, (spec, *others), strict=True):
            same = len(held) == len(each.shape)
            if not same or any(n not in (_ANY, m) for n, m in zip(held, each.shape, strict=True)):
                wanted = ", ".join("any" if n == _ANY else str(n) for n in held)
                raise ShapeError(
                    f"{self.reader}: it was recorded for sizes ({wanted}) and computed with them, "
                    f"the new shape is {tuple(each.shape)}; record it again"
                )
        return spec

    def compute(self, xp: Any, x: Any, *others: Any) -> Any:
        """The first array; GraphError where other values were read."""
        if self.digest and _digest(others) != self.digest:
            raise GraphError(
                f"{self.reader}: it was recorded for other values of a node, which say "
                "how large its result is; record it again"
            )
        return x

    def gradient(self, g: Any, specs: Any) -> tuple[Any, ...]:
        """The whole cotangent for the first input."""
        return (g, *(None,) * (len(specs) - 1))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """One input, and others of other shapes."""
        yield Sample(cls("f", ((2, _ANY),)), (array((2, 3)),))
        yield Sample(cls("f", ((2, 3), (4,))), (array((2, 3)), array((4,))), "two")

    def reference(self, x: Any, *others: Any) -> Any:
        """The first."""
        return x


@dataclass(eq=False, repr=False)
class OverSize(Op):
    """The first input divided by the number of elements of the second along `axes`; with `bessel`
    times n / (n - 1) of it.
    """

    axes: tuple[int, ...]
    bessel: bool

    def _factor(self, shape: tuple[int, ...]) -> tuple[float, float]:
        n = math.prod(shape[i] for i in self.axes)
        return (n / max(n - 1, 1), 1) if self.bessel else (1, n)

    def infer(self, spec: Spec, of: Spec) -> Spec:
        """The first input's spec."""
        return spec

    def compute(self, xp: Any, y: Any, x: Any) -> Any:
        """Multiplied, or divided."""
        times, over = self._factor(x.shape)
        return y * times if self.bessel else y / over

    def gradient(self, g: Any, spec2: Spec) -> tuple[Any, ...]:
        """The cotangent with the factor of the value."""
        times, over = self._factor(spec2.shape)
        return (g * times if self.bessel else g / over, None)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Both kinds."""
        for bessel in (False, True):
            yield Sample(cls((0, 2), bessel), (array((3,)), array((4, 3, 2))), f"{bessel}")

    def reference(self, y: Any, x: Any) -> Any:
        """Reference value by NumPy."""
        n = np.prod([x.shape[i] for i in self.axes])
        return y * (n / (n - 1)) if self.bessel else y / n


def _digest(arrays: Iterable[Any]) -> str:
    """A text that is equal for equal arrays."""
    text = hashlib.sha256()
    for each in arrays:
        text.update(np.ascontiguousarray(each).tobytes())
    return text.hexdigest()


def is_of_graph(x: Any) -> bool:
    """Whether `x` is a node, whose sizes may change.

    >>> from adjoint.ops.shape.sizes import is_of_graph
    >>> is_of_graph(ad.ones(2)), is_of_graph(ad.Graph().input((2,)))
    (False, True)
    """
    return isinstance(x, TensorBase) and isinstance(x._data, Cell)


def hold_sizes(
    reader: str, x: Any, *others: Any, dims: Iterable[int] | None = None, viewed: bool = False
) -> Any:
    """`x`; in a graph a node that refuses other sizes of it (along `dims`), and of `others`, with
    which the function `reader` computes. `viewed`: the function returns views of it, alone.

    >>> from adjoint.ops.shape.sizes import hold_sizes
    >>> x = ad.Graph().input(ad.ones(2, 3))
    >>> y = hold_sizes("f", x, dims=(1,))
    >>> x.set(ad.ones(4, 3)).shape, y.shape
    (adjoint.Size([4, 3]), adjoint.Size([4, 3]))
    """
    if not isinstance(x, TensorBase) or (type(x._data) is ndarray and not others):
        return x  # what is no tensor, the function itself refuses
    nodes = [each for each in others if is_of_graph(each)]
    if not nodes and (others or not is_of_graph(x)):
        return x
    shape = tuple(x._data.shape)
    if dims is not None:
        axes = {dim % max(len(shape), 1) for dim in dims}
        shape = tuple([n if i in axes else _ANY for i, n in enumerate(shape)])
    sizes = (shape, *(tuple(each._data.shape) for each in nodes))
    y = apply(HoldSizes(reader, sizes), x, *nodes)
    if viewed:
        mark_view(y, x, y._data.op)
    return y


def hold_values(reader: str, x: Any, *others: Any) -> Any:
    """`x`, which the function `reader` computed from the values of `others`; where these are nodes,
    one that cannot be read any more when their values are other ones.
    """
    nodes = [each for each in others if is_of_graph(each)]
    if not nodes:
        return x
    sizes = tuple([tuple(each._data.shape) for each in (x, *nodes)])
    read = [each._data.realize() for each in nodes]
    return apply(HoldSizes(reader, sizes, _digest(read)), x, *nodes)


def over_size(y: Any, count: Any, x: Any, *axes: int, bessel: bool = False) -> Any:
    """`y / count`, or with `bessel` y * count / (count - 1), where `count` is the number of
    elements of `x` along `axes`; in a graph one that counts again.
    """
    if is_of_graph(x):
        return apply(OverSize(axes, bessel), y, x)
    return y * (count / max(count - 1, 1)) if bessel else y / count
