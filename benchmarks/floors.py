"""What compiled steps would take at least on this machine, and where the rest of their time goes.

A step's floor is the sum of its kernels': of each the operations of its products at the speed of a
large product, or the bytes that it reads and writes at memory's, whichever takes longer. What lies
in the caches is read faster, so small kernels may be below their floors.
"""

from __future__ import annotations

from collections.abc import Sequence

import adjoint as ad

from .steps import ROWS, Row, of_framework
from .timing import _time

REPEATS = 7
KINDS = {"product": "products", "oneDNN": "products", "kernel": "kernels"}
COLUMNS = ("products", "kernels", "optimizer", "other", "calls")


def measure(row: Row) -> list[str]:
    """The cells of a row of the table."""
    step, batch = of_framework(row, ad)
    step = ad.compile(step)
    for _ in range(3):
        step(*batch)
    count = max(1, int(2e4 / _time(lambda: step(*batch), 5)))
    call = min(_time(lambda: step(*batch), count) for _ in range(REPEATS))
    found = [step.explain(*batch) for _ in range(REPEATS)]
    spent = dict.fromkeys(COLUMNS, 0.0)
    floor = 0.0
    for each in zip(*(explained.rows for explained in found), strict=True):
        least = min(each, key=lambda one: one.seconds)
        kind = "optimizer" if least.how == "optimizer" else KINDS.get(least.how, "other")
        spent[kind] += least.seconds * 1e6
        floor += found[0].least(least) * 1e6
    spent["calls"] = max(call - sum(spent.values()), 0.0)
    rows = found[0].rows
    products = sum(each.operations for each in rows if KINDS.get(each.how) == "products")
    operations = max(products, row.flops)  # a routine's are not known by the step
    floor += (operations - products) / found[0].peaks.operations * 1e6
    moved = sum(each.bytes for each in rows)
    return [
        f"{operations / 1e9:8.3f}", f"{moved / 1e6:8.2f}", f"{call:10.1f}", f"{floor:10.1f}",
        f"{call / floor:7.2f}", *(f"{spent[name] / call:10.0%}" for name in COLUMNS),
    ]  # fmt: skip


def print_floors(rows: Sequence[str]) -> None:
    """The table; shares are of each call, steps timed alone: `other` are routines and copies,
    `calls` is what is left.
    """
    peaks = _peaks()
    print(
        f"Compiled steps over the machine's floor: {ad.get_num_threads()} threads, "
        f"{peaks.operations / 1e9:.0f} GFLOP/s in products, {peaks.bytes / 1e9:.1f} GB/s"
    )
    head = f"{'':12s}{'GFLOP':>8s}{'MB':>8s}{'us':>10s}{'floor us':>10s}{'over':>7s}"
    print(head + "".join(f"{name:>10s}" for name in COLUMNS))
    for name in rows:
        print(f"{name:12s}" + "".join(measure(ROWS[name]())), flush=True)


def _peaks() -> ad.inference.performance_report.Peaks:
    doubled = ad.compile(lambda x: x * 2)
    return doubled.explain(ad.ones(1)).peaks
