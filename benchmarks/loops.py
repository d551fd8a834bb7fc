"""Loops of many small steps: microseconds a step of ours, JAX's and PyTorch's, measured in turn.

JAX is asked for in the interpreter that `ADJOINT_JAX` names, or in this one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from typing import Any

from .loop_programs import ROWS

ROUNDS = 7


class Contender:
    """A row in a library, in a process of its own."""

    def __init__(self, library: str, row: str, threads: int) -> None:
        python = (os.environ.get("ADJOINT_JAX") if library == "jax" else "") or sys.executable
        env = {
            **os.environ, "OMP_NUM_THREADS": str(threads), "ADJOINT_NUM_THREADS": str(threads),
            "PYTHONDONTWRITEBYTECODE": "",  # a first call compiles no Python
            "ADJOINT_CACHE_BYTES": "0",  # nor finds what it compiles on disk, as JAX does not
        }  # fmt: skip
        self.process: Any = subprocess.Popen(
            [python, "-m", "benchmarks.loop_programs", library, row],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        said = self.process.stdout.readline()
        self.said: dict[str, Any] = json.loads(said) if said else {}
        self.times: list[float] = []

    def measure(self) -> None:
        """Take a turn."""
        if self.said:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.times.append(float(self.process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks loops", description=__doc__)
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    print(
        f"\nus a step ({asked.threads} threads; medians of {asked.rounds} rounds in turn; first "
        f"calls in s)\n{'':20s}{'ours':>9s}{'JAX':>9s}{'PyTorch':>10s}{'JAX/ours':>10s}"
        f"{'PyT/ours':>10s}   first calls"
    )
    ratios: dict[str, list[float]] = {"jax": [], "torch": []}
    for row in asked.rows:
        each = {name: Contender(name, row, asked.threads) for name in ("ours", "jax", "torch")}
        for _ in range(asked.rounds):
            for contender in each.values():
                contender.measure()
        sums = [contender.said["sums"] for contender in each.values() if contender.said]
        for found in sums:
            for x, y in zip(found, sums[0], strict=True):
                assert math.isclose(x, y, rel_tol=1e-2, abs_tol=1e-3), (row, sums)
        us = {name: statistics.median(c.times) if c.said else math.nan for name, c in each.items()}
        by = {
            name: statistics.median(
                t / o for t, o in zip(each[name].times, each["ours"].times, strict=True)
            ) if each[name].said else math.nan
            for name in ("jax", "torch")
        }  # fmt: skip
        for name, ratio in by.items():
            ratios[name] += [] if math.isnan(ratio) else [ratio]
        first = " ".join(f"{c.said.get('first', math.nan):.2f}" for c in each.values())
        print(
            f"{row:20s}{us['ours']:9.3f}{us['jax']:9.3f}{us['torch']:10.2f}{by['jax']:10.2f}"
            f"{by['torch']:10.1f}   {first}",
            flush=True,
        )
        for contender in each.values():
            contender.close()
    means = [statistics.geometric_mean(x) if x else math.nan for x in ratios.values()]
    print(f"{'geometric mean':48s}{means[0]:10.2f}{means[1]:10.1f}")
