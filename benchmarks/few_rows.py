"""Products of one to four rows with a weight, beside PyTorch: see `python -m benchmarks products`.

The weight lies by rows, or by columns (as that of `Linear` does); all of it is read for each call.
Times are the shortest of many, taken in turns.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

import adjoint as ad

SIZES = [(n, n) for n in (64, 128, 256, 512, 1024, 2048, 4096)] + [(576, 49152)]
ROWS = (1, 2, 3, 4)
DTYPES = ("float32", "float64", "bfloat16")
ROUNDS, SECONDS = 40, 0.001


class Case(NamedTuple):
    """A product of `rows` x `inner` with `inner` x `outer`, stored by columns where `turned`."""

    dtype: str
    rows: int
    inner: int
    outer: int
    turned: bool

    def functions(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """The product by this package and by PyTorch."""
        draw = np.random.default_rng(0)
        x = draw.standard_normal((self.rows, self.inner), np.float32)
        shape = (self.outer, self.inner) if self.turned else (self.inner, self.outer)
        w = draw.standard_normal(shape, np.float32)
        pairs = []
        for t in (ad, torch):
            a, b = (t.tensor(v).to(getattr(t, self.dtype)) for v in (x, w))
            pairs.append((a, b.t() if self.turned else b))
        (a, b), (c, d) = pairs
        return lambda: a @ b, lambda: c @ d


def shortest(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """The shortest times of two functions, in microseconds, taken in turns."""
    times = [math.inf, math.inf]
    counts = []
    for function in (ours, theirs):
        function()
        begin = time.perf_counter()
        for _ in range(3):
            function()
        counts.append(max(1, int(SECONDS * 3 / max(time.perf_counter() - begin, 1e-7))))
    for _ in range(ROUNDS):
        for k, function in enumerate((ours, theirs)):
            begin = time.perf_counter()
            for _ in range(counts[k]):
                function()
            times[k] = min(times[k], (time.perf_counter() - begin) / counts[k] * 1e6)
    return times[0], times[1]


def cases(dtypes: tuple[str, ...], turned: bool) -> Iterator[Case]:
    """All products of these dtypes with weights that lie so."""
    for dtype in dtypes:
        for rows in ROWS:
            for inner, outer in SIZES:
                yield Case(dtype, rows, inner, outer, turned)


def table(threads: int, dtypes: tuple[str, ...] = DTYPES) -> None:
    """Print how many times as fast as PyTorch the products are, on so many threads."""
    before = ad.get_num_threads(), torch.get_num_threads()
    ad.set_num_threads(threads)
    torch.set_num_threads(threads)
    try:
        for turned in (False, True):
            print(f"\nPyTorch's time over ours, {threads} thread(s), the weight by "
                  f"{'columns' if turned else 'rows'}")  # fmt: skip
            print(f"{'':16s}" + "".join(f"{f'{k}x{n}':>11s}" for k, n in SIZES))
            found: list[float] = []
            for case in cases(dtypes, turned):
                if case[2:4] == SIZES[0]:
                    print(f"{case.dtype:9s} {case.rows} rows", end="")
                ours, theirs = shortest(*case.functions())
                found.append(theirs / ours)
                end = "\n" if case[2:4] == SIZES[-1] else ""
                print(f"{found[-1]:11.2f}", end=end, flush=True)
            print(f"geometric mean {statistics.geometric_mean(found):.2f}, least {min(found):.2f}")
    finally:
        ad.set_num_threads(before[0])
        torch.set_num_threads(before[1])
