"""Kernels of a composite: each is a part of its computation, with the arguments of each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....core import policy
from ....core.errors import NotTraceable
from ....core.spec import prod
from ....core.symbolic_sizes import all_known
from ....ir.partition import PlannedKernel
from ...codegen import Kernel, KernelValue, split
from ...codegen.ir import REDUCTIONS
from ...codegen.run import KernelEntry, Pair, Runner, compiled
from ..runtime.pool import default_pool
from .composite_tracing import Shaped
from .tracing import Tracer

# Places of arrays among the inputs and what kernels have given, in order, and views of them.
Reading: TypeAlias = "tuple[tuple[int, ...], tuple[tuple[int, int], ...]]"


def reading(arguments: Sequence[int], gathers: Sequence[Any], first: int) -> Reading | None:
    """The arrays that a kernel reads of these arguments where all lie row-major; None where they
    are more than the `first` inputs, in whatever shapes, and what other kernels have given.
    """
    further = len(gathers)
    roots = []
    for n in arguments:
        if first <= n < first + further:
            gather = gathers[n - first]
            if type(gather) is not Shaped or gather.source >= first:
                return None
            roots.append(gather.source)
        else:
            roots.append(n if n < first else n - further)
    inputs = tuple(sorted(set(roots)))
    return inputs, tuple((inputs.index(n), 0) for n in roots)


class WrittenKernel(NamedTuple):
    """A part as a kernel of its own."""

    kernel: Kernel
    sources: list[Any]  # of its numbers: themselves, or `SymbolicFloat`s
    sizes: tuple[int, ...]  # of its axes
    spanned: list[int]  # its axes that inputs need not have, by number


def written(part: PlannedKernel, tracer: Tracer, space: tuple[int, ...]) -> WrittenKernel:
    """The kernel of a part of what `tracer` has written over `space`.

    Errors: NotTraceable for what is no single kernel.
    """
    spanned = set(part.axes).union(*(v.axes for v in part.values))
    spanned.update(*(w.axes for _, w in part.results))
    everywhere = tuple(d for d in sorted(spanned) if space[d] != 1)
    small = tuple(d for d in everywhere if d not in part.axes)
    # The kernel has the axes that it spans only, so that what it writes has no others.
    place = {d: k for k, d in enumerate(sorted({*everywhere, *part.axes}))}
    kernel = Kernel(len(place))
    kernel.reduced = tuple(place[d] for d in part.axes)
    sources: list[Any] = []
    copies: dict[int, KernelValue] = {}
    loaded = {n for kind, n in part.loads if kind == "value"}
    for v in part.values:
        if not place.keys() >= set(v.axes):
            raise NotTraceable("a value along an axis of size 1")
        axes = tuple(place[d] for d in v.axes)
        if v.op == "input":
            copies[v.number] = kernel.input(v.attr[1], axes)
        elif v.number in part.known:
            copies[v.number] = kernel.input(part.known[v.number][1].dtype, axes)
        elif v.number in loaded:
            copies[v.number] = kernel.input(v.dtype, axes)
        elif v.op == "scalar":
            sources.append(tracer.numbers[v.attr[0]])
            copies[v.number] = kernel.scalar(v.dtype)
        elif v.op in REDUCTIONS:
            copies[v.number] = kernel.reduce(v.op, copies[v.inputs[0].number], kernel.reduced)
        elif v.op == "index":
            copies[v.number] = kernel.index(place[v.attr[0]])
        elif v.op == "random":
            if v.axes != everywhere or all(w.axes != everywhere for _, w in part.results):
                raise NotTraceable("random numbers without a result of their extent")
            copies[v.number] = kernel.random(axes, *(copies[x.number] for x in v.inputs))
        else:
            copies[v.number] = split.copied(kernel, v, copies)
    for v in part.outputs:
        if v.axes != small:
            raise NotTraceable("a small value that varies over fewer axes than its kernel")
        kernel.output(copies[v.number])
    for _, w in part.results:
        if w.axes not in (small, everywhere):
            raise NotTraceable("results of different extent")
        kernel.output(copies[w.value.number], w.dtype, full=w.axes == everywhere)
    sizes = tuple(space[d] for d in place)
    return WrittenKernel(kernel, sources, sizes, [place[d] for d in everywhere])


class Stage:
    """A kernel with the arguments of each call."""

    __slots__ = (
        "arguments", "compiled", "ordered", "reading", "run", "shape", "sizes", "sources",
    )  # fmt: skip

    arguments: tuple[int, ...]  # positions among inputs and what earlier kernels have written
    reading: Reading | None  # of row-major arrays
    ordered: bool  # whether outputs are row-major, however the inputs lie
    run: Runner | None  # by threads, where that pays

    def __init__(self, part: PlannedKernel, tracer: Tracer, space: tuple[int, ...]) -> None:
        self.ordered = tracer.ordered
        kernel, self.sources, self.sizes, spanned = written(part, tracer, space)
        self.compiled = compiled(kernel)
        known = {a for v in kernel.inputs for a in v.axes}
        self.shape = None if known.issuperset(spanned) else self.sizes
        if all_known(self.sizes):
            self._begin()

    def _begin(self) -> None:
        """Decides who runs it, now that the sizes are known."""
        self.run = default_pool().run if prod(self.sizes) >= policy.PARALLEL else None

    def sized(self, fill: Callable[[Any], Any]) -> Stage:
        """The kernel for other sizes, which `fill` puts in the place of symbols."""
        other = object.__new__(Stage)
        other.arguments, other.compiled, other.ordered = self.arguments, self.compiled, self.ordered
        other.reading = self.reading
        other.sources, other.sizes = self.sources, fill(self.sizes)
        other.shape = None if self.shape is None else other.sizes
        other._begin()
        return other

    def entry(self, operands: Sequence[Any]) -> tuple[KernelEntry | Pair, list[Any]]:
        """The prepared call for arrays like these, and arrays like those that it gives."""
        outs = self.outs()
        entry = self.compiled.entry(operands, self.shape, outs)
        return entry, list(entry.allocate()) if outs is None else outs

    def outs(self) -> list[Any] | None:
        """Arrays for the outputs, where their order matters."""
        if not self.ordered:
            return None
        return [np.empty(x, self.compiled.dtype(k)) for k, x in enumerate(self.shapes())]

    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes in which the kernel gives its outputs."""
        outputs = self.compiled.kernel.outputs
        return [tuple([self.sizes[a] for a in o.axes]) for o in outputs]
