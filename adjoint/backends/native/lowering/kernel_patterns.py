"""Ops as kernels for arrays of any sizes: an op's computation is written down with symbols for the
sizes, too, and what they decided.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....core import policy
from ....core.device import CPU
from ....core.errors import NotTraceable, Unsupported
from ....core.op import Op
from ....core.spec import Spec
from ....core.symbolic_sizes import KernelGraph, step
from ....ir.compute import spec_of
from ...codegen import Compiled
from .scalars import ScalarTracer, has_lost_numbers
from .tracing import Traced, UnknownNumber, common_shape

ndarray = np.ndarray


class KernelPattern:
    """One op on arrays of given ranks and dtypes, as a kernel, for all sizes that decide as those
    did with which it was written down.

    `run(*sizes)` takes the sizes of all arrays, and gives a tuple (the shapes of the results, the
    sizes of the index space, whether threads share the work), and a function from the floats that
    come with a call to the kernel's scalars (or None, where they decide otherwise); None for sizes
    that do.
    """

    __slots__ = ("box", "compiled", "fixed", "ordered", "refusal", "run", "several")

    def __init__(self, op: Op, arrays: Sequence[Any], vary: bool = False, box: Any = None) -> None:
        """With `vary`, floats among the op's fields, and among the inputs, come with each call, in
        this order; other numbers are part of the kernel. With `box`, a dtype, the ints among the
        inputs come as arrays of one element.

        Errors: UnknownNumber where floats must be known.
        """
        self.box = box
        numbers = numbers_of(op, arrays)
        # Of each number: its value where that is part of the kernel, else None.
        self.fixed = [
            None if (vary if type(n) is float else box is not None) else n for n in numbers
        ]
        self.refusal = ""  # why such calls are no kernel
        arrays = self.boxed(arrays)
        try:
            self.run = self._written(op, arrays, vary, KernelGraph.sizes)
        except (UnknownNumber, Unsupported):  # of what asks for the value of a number
            self.run = self._written(op, arrays, vary, KernelGraph.known_sizes)

    def _written(
        self, op: Op, arrays: Sequence[Any], vary: bool, sizes: Callable[..., tuple[int, ...]]
    ) -> Callable[..., Any]:
        """Write the kernel down, with what `sizes` has for those of an array; returns `run`."""
        graph = KernelGraph()
        symbolic = _with_scalars(op, graph) if vary else op
        operands = [graph.scalar(a) if type(a) is float and vary else a for a in arrays]
        floats = len(graph.given)
        shapes = [sizes(graph, a.shape) for a in arrays if type(a) is ndarray]
        try:
            tracer, specs = self._traced(op, symbolic, arrays, operands, shapes)
        except UnknownNumber:
            raise
        except NotTraceable as error:
            self.refusal = str(error)
            return graph.function([], floats, [((), (), False)])
        if has_lost_numbers(tracer):
            raise UnknownNumber("a number that was taken for known")
        self.ordered = tracer.ordered
        self.compiled = Compiled(tracer.kernel)
        parallel = step(operator.ge, math.prod(tracer.space), policy.PARALLEL)
        early = [tuple(tuple(spec.shape) for spec in specs), tuple(tracer.space), parallel]
        return graph.function(tracer.numbers, floats, early)

    def _traced(
        self, op: Op, symbolic: Op, arrays: Sequence[Any], operands: Sequence[Any],
        shapes: Sequence[tuple[int, ...]],
    ) -> tuple[ScalarTracer, Sequence[Spec]]:  # fmt: skip
        """The kernel of `op`, which is `symbolic` with symbols for its floats as `operands` are the
        `arrays`; and its results.
        """
        tracer = ScalarTracer(common_shape(shapes))
        remaining = iter(shapes)
        symbols, given = list(operands), list(arrays)
        for k, a in enumerate(arrays):
            if type(a) is ndarray:
                shape = next(remaining)
                symbols[k] = tracer.input(shape, a.dtype)
                given[k] = spec_of(a).with_(shape=shape)
        inferred = op.infer(*given)
        self.several = not isinstance(inferred, Spec)
        specs = inferred if self.several else (inferred,)
        if any(spec.device != CPU for spec in specs):
            raise NotTraceable("a result on another device")
        results = symbolic.compute(tracer.names, *symbols)
        for y, spec in zip(results if self.several else (results,), specs, strict=True):
            if not isinstance(y, Traced) or math.prod(y.shape) != math.prod(spec.shape):
                raise NotTraceable("a result that is no array")
            if tracer.ordered and (y.shape != spec.shape or tracer.space != spec.shape):
                raise NotTraceable("an order of memory of another shape")
            if list(y.dims) != sorted(y.dims):
                raise NotTraceable("a transposed result")
            written = tracer.kernel.output(y.value, str(spec.dtype.numpy))
            if math.prod(tracer.space[axis] for axis in written.axes) != math.prod(spec.shape):
                raise NotTraceable("a result smaller than an input it does not read")
        return tracer, specs

    def takes(self, numbers: Sequence[Any]) -> bool:
        """Whether the kernel's numbers are among these, and the others fit it."""
        for n, fixed in zip(numbers, self.fixed, strict=True):
            if fixed is not None:
                if type(n) is not type(fixed) or n != fixed:
                    return False
            elif type(n) is int and (self.box is None or not holds(self.box, n)):
                return False
        return True

    def floats(self, numbers: Sequence[Any]) -> list[float]:
        """The numbers that come with each call."""
        pairs = zip(numbers, self.fixed, strict=True)
        return [n for n, fixed in pairs if fixed is None and type(n) is float]

    def boxed(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The inputs, ints as arrays where the kernel takes them so."""
        if self.box is None:
            return arrays
        return [np.asarray(a, self.box) if type(a) is int else a for a in arrays]


def pattern_key(op: Op, arrays: Sequence[Any], vary: bool, box: Any) -> Any:
    """A key that is equal for calls whose patterns differ by sizes only."""
    key: list[Any] = [op.without_numbers([]) if vary else op, vary, box]
    for a in arrays:
        if type(a) is ndarray:
            key.append((a.ndim, a.dtype))
        elif vary if type(a) is float else type(a) is int and box is not None:
            key.append(type(a))
        else:
            key.append((type(a), repr(a)))  # 0.0 == -0.0
    return tuple(key)


# ---- numbers -------------------------------------------------------------------------------------


def _float_fields(op: Op) -> list[str]:
    """The names of the op's fields that hold floats."""
    fields = getattr(type(op), "__dataclass_fields__", ())
    return [name for name in fields if type(getattr(op, name)) is float]


def _with_scalars(op: Op, arithmetic: KernelGraph) -> Op:
    """The op with symbols for the floats among its fields."""
    names = _float_fields(op)
    if not names:
        return op
    other = copy.copy(op)
    vars(other).update((name, arithmetic.scalar(getattr(op, name))) for name in names)
    return other


def numbers_of(op: Op, arrays: Sequence[Any]) -> list[Any]:
    """The floats among the op's fields, then the numbers among its inputs."""
    return [
        *[getattr(op, name) for name in _float_fields(op)],
        *[a for a in arrays if type(a) is float or type(a) is int],
    ]


def holds(dtype: Any, n: int) -> bool:
    """Whether a dtype of integers has this number."""
    low, high = _range(dtype)
    return low <= n <= high


@functools.cache
def _range(dtype: Any) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
