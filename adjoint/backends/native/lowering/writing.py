"""Elementwise computations whose result is written over an array that exists: in-place methods.

The kernel's output is that array, also where it is one of the inputs: an element is written when
all that is computed from it is known. Where it overlaps an input otherwise, the input is copied
first. Numbers come with each call (`core.scalar`), so that another rate is not another kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core import policy
from ....core.errors import NotTraceable
from ....core.scalar import Arithmetic
from ....kernels import Compiled
from ....kernels.run import Entry
from ....program.compute import quietly
from ....program.program import Program
from ..runtime.pool import default_pool
from .composite_tracing import traced
from .multi_tensor import WritingNames
from .scalars import ScalarTracer, has_lost_numbers, values_of
from .tracing import Traced, name_of

__all__ = ["Writer", "has_threads", "launches"]

launches: list[int] = [0]  # kernels that were run, for the tests that count them


class Writer:
    """A program on arrays that lie in memory as `arrays` do; its output is written over the first.

    Its numbers are of `arithmetic`, or known.

    Errors: NotTraceable for what is not elementwise, or not in the kernel IR.
    """

    def __init__(self, arrays: Sequence[Any], program: Program, arithmetic: Arithmetic) -> None:
        out = arrays[0]
        if not _is_apart_in_itself(out):
            raise NotTraceable("an array whose elements may share memory")
        tracer = ScalarTracer(out.shape)
        names = WritingNames(tracer)
        given: list[Any] = []
        for x in arrays:
            if x.dtype.kind == "c" or not x.dtype.isnative or x.ndim > out.ndim:
                raise NotTraceable("complex numbers, a foreign byte order, or a larger array")
            given.append(tracer.input(x.shape, x.dtype))
        y, kernel = traced(names, program, given)[program.outputs[0]], tracer.kernel
        if not isinstance(y, Traced) or y.shape != out.shape or y.dtype != given[0].dtype:
            raise NotTraceable("a result that the array does not take as it is")
        if kernel.reduced or list(y.dims) != sorted(y.dims):
            raise NotTraceable("a result that is not elementwise")
        if has_lost_numbers(tracer):
            raise NotTraceable("a number that was taken for known")
        kernel.output(y.value, name_of(out.dtype))
        self._arithmetic = arithmetic
        self._numbers = tracer.numbers
        self._compiled = Compiled(kernel)
        entry = self._compiled.entry_into(arrays, [out])
        if not isinstance(entry, Entry):
            raise NotTraceable("a reduction")
        self._entry = entry
        self._run = default_pool().run if out.size >= policy.PARALLEL else None

    def __call__(self, arrays: Sequence[Any], numbers: Sequence[float]) -> bool:
        """Compute and write; False, and nothing is done, where the kernel is that of other numbers.

        `numbers` are the values of the arithmetic's scalars.
        """
        values = self._arithmetic.run(numbers)
        if values is None:
            return False
        scalars = values_of(self._numbers, values)
        if self._entry.call(arrays, arrays[:1], scalars, self._run):
            quietly(self._copy_and_write, arrays, scalars)
        launches[0] += 1
        return True

    def _copy_and_write(self, arrays: Sequence[Any], scalars: Sequence[float]) -> None:
        """Where an input overlaps what is written otherwise than element by element."""
        self._compiled(*arrays, out=arrays[0], scalars=scalars, run=self._run)


def has_threads() -> bool:
    """Whether several threads share large loops."""
    return default_pool().num_threads > 1


def _is_apart_in_itself(out: Any) -> bool:
    """Whether no two elements share memory, as far as one sees it from the strides."""
    if out.flags.c_contiguous:
        return True
    reach = int(out.itemsize)
    steps = zip(map(abs, out.strides), out.shape, strict=True)
    for step, size in sorted(pair for pair in steps if pair[1] > 1):
        if step < reach:
            return False
        reach += step * (size - 1)
    return bool(out.size)
