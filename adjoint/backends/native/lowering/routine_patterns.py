"""Ops that one routine computes, for arrays of any sizes: what an op hands to its routine is
written down with symbols for the sizes, and what they decided (`docs/inside/sizes.md`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....core import policy
from ....core.errors import NotTraceable
from ....core.op import Op
from ....core.spec import Spec, prod
from ....core.symbolic_sizes import KernelGraph
from ....ir.compute import quietly, spec_of
from ..runtime import block_cache, launch
from ..runtime.pool import default_pool
from . import machine_routines
from .machine_routines import SizedArray


class _Note(NamedTuple):
    """A routine that was asked for, whose numbers may be symbolic."""

    address: int
    inputs: tuple[Any, ...]
    output: SizedArray
    units: Any
    work: Any
    before: bytes
    numbers: tuple[Any, ...]
    constant: bytes


class RoutinePattern:
    """One op on row-major arrays of given ranks and dtypes, as a routine, for all sizes that decide
    as those did with which it was written down.

    Errors: NotTraceable and others where it is not one routine on all of them.
    """

    __slots__ = ("_after", "_before", "_constants", "_dtype", "_like", "_run")

    def __init__(self, op: Op, names: Any, arrays: Sequence[Any]) -> None:
        graph = KernelGraph()
        given = [SizedArray(graph.sizes(x.shape), x.dtype) for x in arrays]
        specs = [spec_of(x).with_(shape=y.shape) for x, y in zip(arrays, given, strict=True)]
        inferred = op.infer(*specs)  # which refuses what does not fit
        notes: list[_Note] = []
        with machine_routines.recording(functools.partial(_noted, notes)):
            result = quietly(op.compute, names, *given)
        if len(notes) != 1 or result is not notes[0].output or not isinstance(inferred, Spec):
            raise NotTraceable("more than one routine")
        [note] = notes
        if len(note.inputs) != len(given) or any(
            x is not y for x, y in zip(note.inputs, given, strict=True)
        ):
            raise NotTraceable("a routine on other arrays")
        group = 1
        amount = policy.ROUTINE_GRAIN // note.work if note.work > 1 else policy.ROUTINE_GRAIN
        if amount > 1:
            group = amount
        chunks = -(-note.units // group)
        shape = tuple(note.output.shape)
        self._run = graph.function(
            [shape, chunks, note.units * note.work, note.units, group, *note.numbers]
        )
        if graph.read:
            raise NotTraceable("a size that must be known")
        graph.close()
        self._before = struct.Struct("2q").pack
        self._after = struct.Struct(f"{len(note.numbers)}q").pack
        self._constants = note.before, note.constant
        self._dtype = note.output.dtype
        sizes = [n for x in arrays for n in x.shape]
        found = self._run(*sizes)
        if found is None:
            raise NotTraceable("sizes that decide otherwise")
        shape, chunks, _, *words = found
        self._like = launch.bare(
            note.address, chunks, arrays, [(shape, self._dtype)], *self._packed(words), False, True
        )

    def _packed(self, words: Sequence[int]) -> tuple[bytes, bytes]:
        """The words before and behind the addresses."""
        before, constant = self._constants
        return self._before(*words[:2]) + before, self._after(*words[2:]) + constant

    def launcher(self, arrays: Sequence[Any], sizes: Sequence[int]) -> Callable[..., Any] | None:
        """The launcher for arrays of these sizes; None where they decide otherwise."""
        found = self._run(*sizes)
        if found is None:
            return None
        shape, chunks, elements, *words = found
        quick = elements < policy.ROUTINE_QUICK
        pool = None if quick or chunks < 2 else default_pool().entry()
        made = self._like.resized(arrays, [shape], chunks, *self._packed(words), pool, quick)
        if prod(shape) * self._dtype.itemsize >= block_cache.SMALLEST // 2:
            return functools.partial(quietly, made)
        return made


def _noted(
    notes: list[_Note], address: int, inputs: Sequence[Any], shape: tuple[Any, ...], dtype: Any,
    numbers: Sequence[Any], units: Any, work: Any, before: bytes, constant: bytes,
) -> SizedArray:  # fmt: skip
    """Notes a routine, and returns a stand-in for its result."""
    output = SizedArray(tuple(shape), dtype)
    notes.append(
        _Note(address, tuple(inputs), output, units, work, before, tuple(numbers), constant)
    )
    return output


class RoutinePatterns:
    """The launchers of one op for row-major arrays of any sizes."""

    __slots__ = ("_made", "_names", "_op", "_refused")

    def __init__(self, op: Op, names: Any) -> None:
        self._op = op
        self._names = names
        self._made: list[RoutinePattern] = []
        self._refused = 0  # sizes for which there is no pattern

    def __call__(self, numbers: list[Any], arrays: list[Any], sizes: list[int]) -> Any:
        """The launcher, and None: there are no numbers; None where no pattern serves."""
        if numbers:  # of which the key does not have the values
            return None
        for pattern in self._made:
            made = pattern.launcher(arrays, sizes)
            if made is not None:
                return made, None
        if 0 in sizes or len(self._made) + self._refused >= policy.SIZE_VARIANTS:
            return None
        try:
            pattern = RoutinePattern(self._op, self._names, arrays)
        except Exception:  # the op itself says what is wrong, or computes it
            self._refused += 1
            return None
        self._made.insert(0, pattern)
        made = pattern.launcher(arrays, sizes)
        return None if made is None else (made, None)
