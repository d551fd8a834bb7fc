"""Compiled steps whose batches have other sizes with each call: what a new size costs, and keeps.

`python -m benchmarks compile --sizes --rows mlp gpt` prints the table. The last dimension of token
batches varies, of others the first.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .fresh import _status
from .steps import ROWS, of_framework

COUNT = 20  # sizes


def _cut(batch: Sequence[Any], n: int) -> list[Any]:
    first = batch[0]
    if first.dtype.kind != "i":
        return [x[:n] for x in batch]
    return [np.ascontiguousarray(x.reshape(first.shape)[..., :n]) for x in batch]


def _once(step: Any, batch: Sequence[Any]) -> float:
    begin = time.perf_counter()
    step(*batch)
    return 1e3 * (time.perf_counter() - begin)


def print_sizes(rows: Sequence[str]) -> None:
    """Milliseconds of the first call for a size, and of the second; MiB that each size keeps."""
    import adjoint as ad

    print(
        "Other sizes with each call: ms of the first call, ms of the second, MiB that a size keeps"
    )
    for name in rows:
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
