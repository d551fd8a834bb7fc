"""Sizes that change: what a size costs that was never seen, beside PyTorch in turns.

python -m benchmarks sizes [--only operations programs steps] [--rows PATTERN] [--count N]

- **operations**: every operation of `benchmarks operations`, each call with other sizes, drawn from
  1 to 64 and from 65 to 512: microseconds of the first call with a size, of the second, and of a
  repeated one; how many machine codes the new sizes took, after three.
- **programs**: six of which every batch has another size: the first pass over so many sizes, and
  the second.
- **steps**: compiled training steps: milliseconds of the first and of the second call with a size,
  and the memory that a size keeps.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

import adjoint as ad
from adjoint.backends.codegen import target

from .fresh import _status
from .operations import Data, Row, rows
from .size_programs import PROGRAMS, Workload
from .steps import LARGE, ROWS, of_framework

RANGES = ((1, 64), (65, 512))
SEEN = 3  # sizes before the new ones: the patterns are known by then
REPEATS = 9  # calls with a size after the second
COUNT = 20  # sizes of a step


# ---- operations ----------------------------------------------------------------------------------


class Drawn(Data):
    """The inputs of an operation for sizes that were drawn: no two axes are alike."""

    def __init__(self, t: Any, sizes: Sequence[int], label: str) -> None:
        rows, columns, *others = sizes
        super().__init__(t, rows * columns, label)
        self.matrix = (rows, columns)
        few = [-(-n // 4) for n in others]
        self.cube = (few[0], few[1], few[2])
        self.images = (few[0], 2 * -(-few[1] // 4), -(-few[2] // 4), 8)
        self.heads = (few[0], few[1], few[2], 16)


def draw(rng: np.random.Generator, low: int, high: int) -> list[int]:
    """Sizes of all axes; that of columns is even, which `glu` asks for."""
    rows, columns, *others = map(int, rng.integers(low, high + 1, 5))
    return [rows, columns + columns % 2, *others]


class Cost(NamedTuple):
    """Microseconds of calls of one operation: with new sizes, the second ones, repeated ones."""

    first: float
    second: float
    repeated: float


def ready(row: Row, t: Any, sizes: Sequence[int]) -> tuple[Callable[[], object], Drawn]:
    """The operation as a function of no arguments, whose inputs are made."""
    code = compile(f"lambda: {row.expression}", "<row>", "eval")
    data = Drawn(t, sizes, row.label)
    inner = next(each for each in code.co_consts if hasattr(each, "co_names"))
    for name in inner.co_names:
        with contextlib.suppress(KeyError):
            data[name]
    return eval(code, data), data


def pairs(
    row: Row, low: int, high: int, count: int
) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Our call and PyTorch's, which has run once, for so many drawn sizes."""
    rng = np.random.default_rng([low, high])
    refused = 0
    while count and refused < 20:
        sizes = draw(rng, low, high)
        theirs, inputs = ready(row, torch, sizes)
        try:
            theirs()
        except (IndexError, RuntimeError, ValueError):
            refused += 1
            continue
        ours, own = ready(row, ad, sizes)
        own.ones.update({shape: ad.ones(shape) for shape in inputs.ones})
        yield ours, theirs
        count -= 1


@contextlib.contextmanager
def counting_codes() -> Iterator[set[str]]:
    """Collects the names of machine codes that are loaded or compiled within it."""
    names: set[str] = set()
    load = target.object_code

    def counted(name: str, text: Callable[[], str]) -> bytes:
        names.add(name)
        return load(name, text)

    target.object_code = counted
    try:
        yield names
    finally:
        target.object_code = load


def _cost(functions: Sequence[Callable[[], object]]) -> Cost:
    """The medians over all sizes: each function is called once in every pass."""
    passes = []
    for _ in range(2 + REPEATS):
        times = []
        for function in functions:
            begin = time.perf_counter()
            function()
            times.append(1e6 * (time.perf_counter() - begin))
        passes.append(times)
    repeated = [min(each) for each in zip(*passes[2:], strict=True)]
    return Cost(*map(statistics.median, (passes[0], passes[1], repeated)))


def measure(row: Row, low: int, high: int, count: int) -> tuple[Cost, Cost, int] | None:
    """Ours, PyTorch's, and the machine codes that new sizes took."""
    calls = list(pairs(row, low, high, count + SEEN))
    if len(calls) <= SEEN:
        return None
    gc.collect()
    gc.disable()
    try:
        for our, _ in calls[:SEEN]:
            our()
        with counting_codes() as names:
            ours = _cost([our for our, _ in calls[SEEN:]])
        return ours, _cost([their for _, their in calls[SEEN:]]), len(names)
    finally:
        gc.enable()


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(max(x, 0.1)) for x in values) / len(values))


def print_operations(pattern: re.Pattern[str], count: int) -> None:
    """Print each operation's cost in both ranges, then means and the most expensive."""
    excesses: dict[tuple[int, int], list[tuple[float, str]]] = {each: [] for each in RANGES}
    seconds: list[float] = []
    print("us of the first call with new sizes, the second, a repeated one; PyTorch's first and")
    print("repeated; machine codes that the new sizes took")
    print(f"{'':50s}" + "".join(f"{f'sizes {low} to {high}':>44s}" for low, high in RANGES))
    for row in rows():
        label = f"{row.family}: {row.label}"
        if not pattern.search(label):
            continue
        line = f"{label:50s}"
        for low, high in RANGES:
            found = measure(row, low, high, count)
            if found is None:
                line += f"{'-':>44s}"
                continue
            ours, theirs, codes = found
            excesses[low, high].append((ours.first - ours.repeated, label))
            seconds.append(ours.second - ours.repeated)
            line += f"{ours.first:10.1f}{ours.second:8.1f}{ours.repeated:8.1f}"
            line += f"{theirs.first:8.1f}{theirs.repeated:6.1f}{codes:4d}"
        print(line, flush=True)
    for (low, high), each in excesses.items():
        if each:
            worst = ", ".join(f"{label} {us:.0f}" for us, label in sorted(each, reverse=True)[:8])
            mean = _mean([us for us, _ in each])
            print(f"sizes {low} to {high}: a new size costs {mean:.1f} us more; most: {worst}")
    if seconds:
        print(f"the second call with a size costs {_mean(seconds):.1f} us more")


# ---- programs ------------------------------------------------------------------------------------


def _pass(step: Callable[..., object], batches: Sequence[Any]) -> list[float]:
    times = []
    for batch in batches:
        begin = time.perf_counter()
        step(*batch)
        times.append(time.perf_counter() - begin)
    return times


def _passes(workload: Workload, count: int, compiled: bool) -> tuple[float, float]:
    """PyTorch's time over ours: the first pass over the sizes, and the second. Both frameworks in
    turns of ten batches.
    """
    steps, batches = [], []
    for t in (ad, torch):
        step = workload.make(t)
        steps.append(t.compile(step) if compiled and t is ad else step)
        batches.append([tuple(map(t.from_numpy, each)) for each in workload.batches(count + SEEN)])
        _pass(steps[-1], batches[-1][:SEEN])
    ratios = []
    for _ in range(2):
        totals = [0.0, 0.0]
        for first in range(SEEN, SEEN + count, 10):
            for k in range(2):
                totals[k] += sum(_pass(steps[k], batches[k][first : first + 10]))
        ratios.append(totals[1] / totals[0])
    return ratios[0], ratios[1]


def print_programs(pattern: re.Pattern[str], count: int) -> None:
    """Print PyTorch's time over ours for each program, eagerly and compiled."""
    print(f"PyTorch's time over ours, {count} sizes; first pass and second")
    print(f"{'':34s}{'eager':>16s}{'compiled':>16s}")
    ratios: list[tuple[float, float]] = []
    for name, workload in PROGRAMS.items():
        if not pattern.search(name):
            continue
        eager, compiled = (_passes(workload, count, way) for way in (False, True))
        ratios.append((eager[0], compiled[0]))
        line = "".join(f"{first:8.2f}{second:8.2f}" for first, second in (eager, compiled))
        print(f"{name:34s}{line}", flush=True)
    if ratios:
        means = [_mean(each) for each in zip(*ratios, strict=True)]
        print(f"{'mean of first passes':34s}{means[0]:8.2f}{means[1]:16.2f}")


# ---- steps ---------------------------------------------------------------------------------------


def _cut(batch: Sequence[Any], n: int) -> list[Any]:
    first = batch[0]
    if first.dtype.kind != "i":
        return [x[:n] for x in batch]
    return [np.ascontiguousarray(x.reshape(first.shape)[..., :n]) for x in batch]


def _once(step: Any, batch: Sequence[Any]) -> float:
    begin = time.perf_counter()
    step(*batch)
    return 1e3 * (time.perf_counter() - begin)


def print_steps(pattern: re.Pattern[str]) -> None:
    """Print milliseconds of the first call for a size, and of the second; MiB that each size
    keeps. The last dimension of token batches varies, of others the first.
    """
    print(
        "Other sizes with each call: ms of the first call, ms of the second, MiB that a size keeps"
    )
    for name in ROWS:
        if name in LARGE or not pattern.search(name):
            continue
        row = ROWS[name]()
        whole = row.batch[0].shape[-1 if row.batch[0].dtype.kind == "i" else 0]
        for way in ("compiled", "eager"):
            step, batch = of_framework(row, ad)
            step = ad.compile(step) if way == "compiled" else step
            for _ in range(3):
                step(*batch)
            gc.collect()
            before = _status()["VmRSS"]
            times = []
            for n in range(whole - 1, max(0, whole - 1 - COUNT), -1):
                smaller = [ad.tensor(x) for x in _cut(row.batch, n)]
                times.append((_once(step, smaller), _once(step, smaller)))
            kept = (_status()["VmRSS"] - before) / len(times)
            first, second = (statistics.median(each) for each in zip(*times, strict=True))
            print(f"{name:12s}{way:>10s}{first:10.1f}{second:10.1f}{kept:10.2f}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sizes", description=__doc__)
    tables = ("operations", "programs", "steps")
    parser.add_argument("--only", nargs="+", choices=tables, default=tables[:2])
    parser.add_argument("--rows", default="", help="a pattern of families and labels")
    parser.add_argument("--count", type=int, default=0, help="sizes; 20 of operations, 150 of all")
    parser.add_argument("--threads", type=int, default=ad.get_num_threads())
    options = parser.parse_args()
    pattern = re.compile(options.rows)
    ad.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    print(f"PyTorch {torch.__version__}, {options.threads} threads")
    if "operations" in options.only:
        print_operations(pattern, options.count or 20)
    if "programs" in options.only:
        print_programs(pattern, options.count or 150)
    if "steps" in options.only:
        print_steps(pattern)


if __name__ == "__main__":
    main()
