"""Whole training steps: compiled here (`ad.compile`), eagerly here, and by the peers.

The peers are PyTorch eagerly (fused Adam), `torch.compile` of its model and loss, and JAX jit of
the whole step. All take turns, each in a process of its own; the ratio is to the fastest of them.
The machine's multiply-add peak and bandwidth, measured beside it, say what a step must take at
least.
`python -m benchmarks compile --rows mlp gpt` measures some rows only. Instead of times, `--memory`
measures peaks of memory, `--first` the first calls, `--floors` what the machine would take at
least, `--busy` how much slower steps get while one core is busy.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence

import torch

from . import floors, fresh
from .steps import LARGE, ROWS, WAYS, Row, prepared, ways_of
from .timing import BusyCore, _time

ROUNDS = 25
TURN = 8e4  # microseconds


def _turns(row: str) -> dict[str, list[float]]:
    """Microseconds a call of each way in turns; three first calls' seconds come first."""
    contenders = {way: fresh.Contender(row, way) for way in ways_of(row)}
    try:
        calls = {way: max(2, int(TURN / each.time(5))) for way, each in contenders.items()}
        times = {way: [each.first] for way, each in contenders.items()}
        for _ in range(ROUNDS):
            for way, each in contenders.items():
                times[way].append(each.time(calls[way]))
    finally:
        for each in contenders.values():
            each.end()
    return times


def _compare(name: str) -> None:
    row, times = ROWS[name](), _turns(name)
    peers = [name for name in times if name not in ("compiled", "eager")]
    best = min(peers, key=lambda name: statistics.median(times[name][1:]))
    print(f"\n{row.title}" + (f": {row.flops / 1e6:.1f} MFLOP in products" if row.flops else ""))
    for name, each in times.items():
        pairs = zip(each[1:], times["compiled"][1:], strict=True)
        ratios = sorted(a / b for a, b in pairs)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"  {name:14s} {statistics.median(each[1:]):9.1f} {min(each[1:]):9.1f} {each[0]:7.2f} s"
            f" {statistics.median(ratios):6.2f} x ({low:.2f} to {high:.2f})"
            f"{' *' if name == best else ''}",
            flush=True,
        )


def _machine() -> None:
    """What the processor does at most: multiply-adds in a large product, bytes in a large copy."""
    a, b = (torch.randn(1024, 1024) for _ in range(2))
    seconds = min(_time(lambda: a @ b, 1) for _ in range(20)) / 1e6
    big, other = torch.ones(1 << 25), torch.empty(1 << 25)
    moved = min(_time(lambda: other.copy_(big), 1) for _ in range(10)) / 1e6
    print(
        f"{torch.get_num_threads()} threads: {2 * 1024**3 / seconds / 1e9:.0f} GFLOP/s in a product"
        f" of 1024 x 1024, {2 * big.nbytes / moved / 1e9:.1f} GB/s in a copy; load average "
        f"{os.getloadavg()[0]:.1f}\n\n"
        f"{'':16s}a step, us      best  first calls   compiled is so many times as fast"
    )


def _slowdowns(row: Row, named: Sequence[str], core: BusyCore) -> list[float]:
    """How many times as long each way takes while a core is busy, in turns."""
    functions = [prepared(row, way) for way in named]
    for function in functions:
        for _ in range(3):
            function()
    calls = [max(1, int(2e5 / _time(f, 5))) for f in functions]  # longer than a time slice
    factors: list[list[float]] = []
    for _ in range(ROUNDS // 3):
        quiet = [_time(f, k) for f, k in zip(functions, calls, strict=True)]
        with core.busy():
            busy = [_time(f, k) for f, k in zip(functions, calls, strict=True)]
        factors.append([b / q for b, q in zip(busy, quiet, strict=True)])
    return [statistics.median(column) for column in zip(*factors, strict=True)]


def _print_busy(rows: Sequence[str], named: Sequence[str]) -> None:
    with BusyCore(torch.get_num_threads()) as core:
        print(f"How many times as long steps take while one core of {len(core.cores)} is busy")
        print(f"{'':12s}" + "".join(f"{way:>15s}" for way in named))
        for name in rows:
            found = _slowdowns(ROWS[name](), named, core)
            print(f"{name:12s}" + "".join(f"{x:15.2f}" for x in found), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compile")
    parser.add_argument("--rows", nargs="+", choices=ROWS, help="only these")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[:3], help="of other tables")
    parser.add_argument("--memory", action="store_true", help="peaks of memory, a process each")
    parser.add_argument("--first", action="store_true", help="first calls, a process each")
    parser.add_argument("--floors", action="store_true", help="time over the machine's least")
    parser.add_argument("--busy", action="store_true", help="slowdown while one core is busy")
    options = parser.parse_args()
    rows = options.rows or [name for name in ROWS if name not in LARGE]
    if options.memory:
        fresh.print_memory(options.rows or list(ROWS), options.ways)
    if options.first:
        fresh.print_first(rows)
    if options.busy:
        _print_busy(rows, options.ways)
    if options.floors:
        floors.print_floors(rows)
    if options.memory or options.first or options.busy or options.floors:
        return
    _machine()
    for name in rows:
        _compare(name)


if __name__ == "__main__":
    main()
