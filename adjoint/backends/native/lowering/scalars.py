"""Kernels whose numbers come with each call, so that another number is not another kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import NotTraceable
from ....core.scalar import Scalar
from ....kernels import Value
from .tracing import Tracer, name_of


class ScalarTracer(Tracer):
    """A tracer that takes `Scalar`s: they are scalars of its kernel, and among its `numbers`."""

    def __init__(self, space: tuple[int, ...]) -> None:
        super().__init__(space)
        self._known: dict[tuple[int, str], Value] = {}

    def number(self, value: Any, dtype: Any) -> Value:
        """A constant, or a scalar of the kernel."""
        if type(value) is not Scalar:
            return super().number(value, dtype)
        if dtype.kind != "f" and not (dtype.kind in "iu" and value.is_whole()):
            raise NotTraceable("a fraction beside integers")
        key = (value.place, name_of(dtype))
        if key not in self._known:
            self._known[key] = self.kernel.scalar(key[1])
            self.numbers.append(value.as_float32() if key[1] == "float32" else value)
        return self._known[key]


def has_lost_numbers(tracer: Tracer) -> bool:
    """Whether a `Scalar` was taken for a number that is known: as a float it is NaN."""
    return any(v.op == "const" and v.attr != v.attr for v in tracer.kernel.values)


def values_of(numbers: Sequence[Any]) -> list[float]:
    """A kernel's scalars with which it was written down."""
    return [x.arithmetic.values[x.place] if type(x) is Scalar else x for x in numbers]
