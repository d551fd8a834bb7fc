"""Analysis of a kernel's loops and their cost, whatever the layout."""

from __future__ import annotations

from typing import Any

from . import ir
from .ir import Kernel, KernelValue

COSTS = {
    **dict.fromkeys(ir.MATHS, 25),
    **dict.fromkeys(("pow", "atan2"), 60),
    **dict.fromkeys(("mod", "fmod", "floor_div"), 20),
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal"), 8),
    "random": 100,
}
MUCH = 40  # more work than looking whether any lane of a vector wants it


def cost(kernel: Kernel) -> float:
    """The work per element, in additions."""
    return 1.0 + sum(COSTS.get(v.op, 1) for v in kernel.live() if v.inputs) / 8


def in_place(kernel: Kernel) -> set[int]:
    """The outputs that may be an input's memory: no element is read after it was written."""
    analysis = Analysis(kernel)
    if analysis.spills:
        return set()
    last = len(analysis.stages) - 1
    return {k for k in analysis.stages[last][1] if analysis.full_output(k)}


class Analysis:
    """Assignment of a kernel's values and outputs to loops."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.live = kernel.live()
        self.full = {v.number: self._is_full(v) for v in self.live}
        self.depth: dict[int, int] = {}  # how many loops must be over before a value is known
        for v in self.live:
            below = max((self.depth[x.number] for x in v.inputs), default=0)
            self.depth[v.number] = below + (v.op in ir.REDUCTIONS)
        self.stages = self._stages()
        self.spills = self._spills()

    def _is_full(self, v: KernelValue) -> bool:
        reduced = self.kernel.reduced
        return not reduced or any(a in reduced for a in v.axes)

    def full_output(self, k: int) -> bool:
        """Whether an output is written over the whole space."""
        return not self.kernel.reduced or len(self.kernel.outputs[k].axes) == self.kernel.rank

    def _stages(self) -> list[tuple[list[KernelValue], list[int]]]:
        """The reductions, and the outputs (by number), that each loop over the reduced axes
        computes.
        """
        count = max((self.depth[v.number] for v in self.live if v.op in ir.REDUCTIONS), default=0)
        stages: list[tuple[list[KernelValue], list[int]]] = [([], []) for _ in range(count + 1)]
        for v in self.live:
            if v.op in ir.REDUCTIONS:
                stages[self.depth[v.number] - 1][0].append(v)
        for k, output in enumerate(self.kernel.outputs):
            if self.full_output(k):
                stages[self.depth[output.value.number]][1].append(k)
        return stages if stages[-1][1] else stages[:-1]

    def _spills(self) -> dict[int, tuple[int, int]]:
        """Costly values kept for a later loop where an output will be: {value: (loop, output)}."""
        spills: dict[int, tuple[int, int]] = {}
        last = len(self.stages) - 1
        room = list(self.stages[last][1])
        for stage in range(last):
            later = {v.number for s in range(stage + 1, last + 1) for v in self.needed(s, {})}
            for v in self.needed(stage, {}):
                fits = [k for k in room if self.kernel.outputs[k].dtype == v.dtype]
                costly = COSTS.get(v.op, 0) >= 8
                if costly and fits and v.number in later and v.number not in spills:
                    spills[v.number] = (stage, fits[0])
                    room.remove(fits[0])
        return spills

    def needed(self, stage: int, spills: dict[int, tuple[int, int]]) -> list[KernelValue]:
        """The full values that a loop computes or loads, in order."""
        wanted = self._results(stage, spills)
        for v in reversed(self.live):
            loaded = v.number in spills and spills[v.number][0] < stage
            if v.number in wanted and v.op not in ir.REDUCTIONS and not loaded:
                wanted.update(x.number for x in v.inputs if self.full[x.number])
        return [v for v in self.live if v.number in wanted and self.full[v.number]]

    def _results(self, stage: int, spills: dict[int, tuple[int, int]]) -> set[int]:
        """Numbers of the values that a loop reduces, writes or keeps for a later loop."""
        reductions, outputs = self.stages[stage]
        results = {r.inputs[0].number for r in reductions}
        results |= {self.kernel.outputs[k].value.number for k in outputs}
        return results | {n for n, (s, _) in spills.items() if s == stage}

    def branches(
        self, stage: int, spills: dict[int, tuple[int, int]]
    ) -> dict[tuple[int, int], list[KernelValue]]:
        """Values that a loop computes only for one choice of a `where`, if they cost much: a vector
        in which no lane takes that choice skips them. Keys: the number of the `where`, and which
        operand.
        """
        needed = self.needed(stage, spills)
        paths: dict[int, tuple[tuple[int, int], ...]]  # the choices on the way to all uses
        paths = dict.fromkeys(self._results(stage, spills), ())
        for v in reversed(needed):
            if not v.inputs or v.op == "random" or (v.number in spills):
                paths[v.number] = ()
            for side, x in enumerate(v.inputs):
                chosen = ((v.number, side),) if v.op == "where" and side else ()
                path = paths[v.number] + chosen
                paths[x.number] = _common(paths.get(x.number, path), path)
        work: dict[tuple[tuple[int, int], ...], int] = {}
        for v in needed:
            path = paths[v.number]
            for k in range(1, len(path) + 1):
                work[path[:k]] = work.get(path[:k], 0) + COSTS.get(v.op, 1)
        choices: dict[tuple[int, int], list[KernelValue]] = {}
        for v in needed:
            path = paths[v.number]
            while path and work[path] < MUCH:
                path = path[:-1]
            if path:
                choices.setdefault(path[-1], []).append(v)
        return choices


def _common(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """The longest common prefix of two sequences."""
    k = 0
    while k < min(len(a), len(b)) and a[k] == b[k]:
        k += 1
    return a[:k]
