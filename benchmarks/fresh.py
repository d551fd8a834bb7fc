"""Measurements of compiled steps that want a process each: times, peak memory, first calls.

`python -m benchmarks.fresh memory gpt compiled` is such a process, which prints what it measured;
`python -m benchmarks.fresh turns gpt compiled` measures so many calls each time it is asked to.
"""

from __future__ import annotations

import compileall
import ctypes
import functools
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from .steps import ROWS, perceptron, prepared, ways_of
from .timing import _time

PAUSE = 0.02  # seconds: the threads of who had the last turn have stopped looking for work
STEPS = 5  # whose memory is measured
REPEATS = 3


def memory(row: str, way: str) -> dict[str, float]:
    """MiB that STEPS steps add at their peak, beside model, optimizer, batch and the libraries that
    steps of a small perceptron bring in; `anonymous` ones in the end are no pages of files; and the
    `whole` process at its peak.
    """
    step = prepared(ROWS[row](), way)
    small = prepared(perceptron((8, 4), 4), way)
    for _ in range(3):
        small()
    del small
    gc.collect()
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))  # what imports and models have left
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is reset
    before = _status()
    for _ in range(STEPS):
        step()
    after = _status()
    return {
        "peak": after["VmHWM"] - before["VmRSS"],
        "in the end": after["VmRSS"] - before["VmRSS"],
        "anonymous": after["RssAnon"] - before["RssAnon"],
        "whole": after["VmHWM"],
    }


def _status() -> dict[str, float]:
    """The process's sizes, in MiB."""
    with open("/proc/self/status") as lines:
        fields = [line.split() for line in lines if line.endswith(" kB\n")]
    return {name.rstrip(":"): int(count) / 1024 for name, count, _ in fields}


def first(row: str, way: str) -> dict[str, float]:
    """Seconds of the calls until all is compiled, by the clock and of the processor."""
    return _first(prepared(ROWS[row](), way))


def _first(step: Callable[[], object]) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    for _ in range(3):
        step()
    return {"wall": time.perf_counter() - began, "processor": time.process_time() - used}


class Contender:
    """A way of a row in a process of its own: none meets the threads of another's library, which
    look for work for some milliseconds behind each call and would take a core meanwhile.
    """

    def __init__(self, row: str, way: str) -> None:
        _write_bytecode()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fresh", "turns", row, way],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.first = self._answer()  # seconds of three first calls

    def _answer(self) -> float:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):  # not a word of a library's
                return float(json.loads(line)["found"])
        raise RuntimeError(f"benchmarks.fresh ended with {self.process.wait()}")

    def time(self, count: int) -> float:
        """Microseconds a call, of so many."""
        assert self.process.stdin is not None
        time.sleep(PAUSE)
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


def turns(row: str, way: str) -> None:
    """What a `Contender` asks for."""
    step = prepared(ROWS[row](), way)
    print(json.dumps({"found": _first(step)["wall"]}), flush=True)
    gc.collect()
    gc.disable()
    for line in sys.stdin:
        step()  # as in the middle of a training, not after a pause
        print(json.dumps({"found": _time(step, int(line))}), flush=True)


@functools.cache
def _write_bytecode() -> None:
    """As pip does for what it installs: a process that compiles modules itself takes 2 MiB for the
    larger ones, and their time, and where the environment says that it shall not write it, always.
    """
    package = importlib.util.find_spec("adjoint")
    assert package is not None and package.submodule_search_locations
    for folder in (*package.submodule_search_locations, os.path.dirname(__file__)):
        compileall.compile_dir(folder, quiet=2)


def _alone(
    what: str, row: str, way: str, environment: dict[str, str] | None = None
) -> dict[str, float]:
    """What a fresh process measures."""
    _write_bytecode()
    command = [sys.executable, "-m", "benchmarks.fresh", what, row, way]
    result = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{result.stderr}")
    found: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return found


def print_memory(rows: Sequence[str], named: Sequence[str]) -> None:
    """The table of peaks: the least of some processes."""
    print(f"MiB that {STEPS} steps add at their peak (a fresh process each, least of {REPEATS};")
    print("in brackets: in the end, and the whole process at its peak)")
    print(f"{'':12s}" + "".join(f"{way:>24s}" for way in named))
    for row in rows:
        line = f"{row:12s}"
        for way in named:
            found = min((_alone("memory", row, way) for _ in range(REPEATS)), key=_peak)
            rest = f"({found['in the end']:.0f}, {found['whole']:.0f})"
            line += f"{found['peak']:12.1f} {rest:>11s}"
        print(line, flush=True)


def _peak(found: dict[str, float]) -> float:
    return found["peak"]


def print_first(rows: Sequence[str]) -> None:
    """The table of first calls, with nothing on disk and with what these put there."""
    print("Three first calls, seconds by the clock (in brackets: of the processor)")
    print(f"{'':12s}{'nothing on disk':>20s}{'kept code':>20s}")
    for row in rows:
        with tempfile.TemporaryDirectory() as folder:
            environment = {"ADJOINT_CACHE_DIR": folder}
            times = [_alone("first", row, "compiled", environment) for _ in range(1 + REPEATS)]
        cold, warm = times[0], min(times[1:], key=lambda each: each["wall"])
        cells = (f"{x['wall']:.2f} ({x['processor']:.2f})" for x in (cold, warm))
        print(f"{row:12s}" + "".join(f"{cell:>20s}" for cell in cells), flush=True)


def main(arguments: Sequence[str]) -> None:
    """Measure in this process, and print that."""
    what, row, way = arguments
    if what == "turns":
        turns(row, way)
        return
    measure: Any = {"memory": memory, "first": first}[what]
    if row not in ROWS or way not in ways_of(row):
        raise SystemExit(f"fresh: no row {row!r} or no way {way!r}")
    print(json.dumps(measure(row, way)))


if __name__ == "__main__":
    main(sys.argv[1:])
