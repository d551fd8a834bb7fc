"""Interleaved timing: ours, theirs, ours, theirs, ...; the median of the rounds' ratios."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Ratio(NamedTuple):
    """What one comparison gave; times in microseconds a call."""

    ours: float
    theirs: float
    ratio: float  # theirs / ours: above 1 where we are faster
    low: float  # quartiles of the rounds' ratios
    high: float


def _time(
    function: Callable[[], object], calls: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    begin = clock()
    for _ in range(calls):
        function()
    return (clock() - begin) / calls * 1e6


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 15,
    seconds: float = 0.03,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """Compare two functions of no arguments over `rounds` rounds of about `seconds` each."""
    for function in (ours, theirs):
        function()
    calls = [max(1, int(seconds * 1e6 / max(_time(f, 3, clock), 0.1))) for f in (ours, theirs)]
    gc.collect()
    gc.disable()
    try:
        times = [
            (_time(ours, calls[0], clock), _time(theirs, calls[1], clock)) for _ in range(rounds)
        ]
    finally:
        gc.enable()
    ratios = sorted(t / o for o, t in times)
    return Ratio(
        statistics.median(o for o, _ in times),
        statistics.median(t for _, t in times),
        statistics.median(ratios),
        ratios[len(ratios) // 4],
        ratios[-1 - len(ratios) // 4],
    )


def header(title: str) -> None:
    """Print a table's head."""
    print(f"\n{title}\n{'':44s} {'ours us':>10s} {'PyTorch us':>11s} {'ratio':>7s}  quartiles")


def row(label: str, result: Ratio) -> None:
    """Print a table's row."""
    print(
        f"{label:44s} {result.ours:10.2f} {result.theirs:11.2f} {result.ratio:7.2f}  "
        f"{result.low:.2f} to {result.high:.2f}",
        flush=True,
    )


class BusyCore:
    """Another process that keeps one of the cores in use busy whenever that is asked for, while
    this one is bound to so many cores.
    """

    def __init__(self, threads: int) -> None:
        self.cores = sorted(os.sched_getaffinity(0))[:threads]

    def __enter__(self) -> BusyCore:
        self._before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores)
        spin = f"import os\nos.sched_setaffinity(0, [{self.cores[-1]}])\nwhile True: pass"
        self._other = subprocess.Popen([sys.executable, "-c", spin])
        time.sleep(0.2)
        self._other.send_signal(signal.SIGSTOP)
        return self

    def __exit__(self, *error: object) -> None:
        self._other.kill()
        self._other.wait()
        os.sched_setaffinity(0, self._before)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Within it the core is."""
        self._other.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._other.send_signal(signal.SIGSTOP)
