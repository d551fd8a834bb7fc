"""Kernels whose numbers come with each call, so that another number is not another kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import NotTraceable
from ....core.symbolic_scalar import as_float32, is_lost
from ....core.symbolic_sizes import SYMBOLS
from ...codegen import KernelValue
from .tracing import Tracer, name_of


class ScalarTracer(Tracer):
    """A tracer that takes symbolic numbers: they are scalars of its kernel, and among its
    `numbers`.
    """

    def __init__(self, space: tuple[int, ...]) -> None:
        super().__init__(space)
        self._known: dict[tuple[int, str], KernelValue] = {}

    def number(self, value: Any, dtype: Any, counts: bool = False) -> KernelValue:
        """A constant, or a scalar of the kernel."""
        if type(value) not in SYMBOLS:
            return super().number(value, dtype, counts)
        is_whole = type(value.arithmetic.values[value.place]) is int
        if dtype.kind != "f" and not (dtype.kind in "iu" and is_whole):
            raise NotTraceable("a fraction beside integers")
        key = (value.place, name_of(dtype))
        if key not in self._known:
            self._known[key] = self.kernel.scalar(key[1])
            single = key[1] == "float32"
            self.numbers.append(
                value.arithmetic.compute(as_float32, value, 0.0) if single else value
            )
        return self._known[key]


def has_lost_numbers(tracer: Tracer) -> bool:
    """Whether a `SymbolicFloat` was used as a known number."""
    return any(v.op == "const" and is_lost(v.attr) for v in tracer.kernel.values)


def values_of(numbers: Sequence[Any]) -> list[float]:
    """A kernel's scalars with which it was written down."""
    return [x.arithmetic.values[x.place] if type(x) in SYMBOLS else x for x in numbers]
