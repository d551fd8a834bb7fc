"""A whole backward where all has changed, with forward and the optimizer's step: in a graph that
was recorded once and is set, and eagerly. In turns in one process, so that the ratio counts.

Part of `python -m benchmarks graphs` (`--only backward`).
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import TypeAlias

import adjoint as ad
from adjoint import nn

TURNS, FIRST = 300, 60  # of which the first, where kernels are compiled, do not count
Make: TypeAlias = Callable[[], nn.Module]


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def _normalized() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1)),
        *(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 1)),
    )


MODELS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "mlp": (_mlp, (4, 8)),
    "batch norm, dropout": (_normalized, (16, 8)),
    "transformer layer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0), (5, 2, 16)),
    "gru": (lambda: nn.GRU(4, 8), (5, 2, 4)),
    "lstm": (lambda: nn.LSTM(4, 8), (5, 2, 4)),
}


def _loss(model: nn.Module, x: ad.Tensor) -> ad.Tensor:
    y = model(x)
    y = y[0] if isinstance(y, tuple) else y
    return nn.functional.mse_loss(y, ad.zeros(y.shape))


def measured(make: Make, shape: tuple[int, ...]) -> tuple[float, float]:
    """Microseconds of a step eagerly and in a graph: medians of turns."""
    ad.manual_seed(0)
    values = itertools.cycle([ad.randn(*shape) for _ in range(4)])
    eager, inside = make(), make()
    graph = ad.Graph()
    x = graph.input(next(values))
    with graph:
        loss = _loss(inside, x)
    first, second = (ad.optim.SGD(model.parameters(), lr=0.0) for model in (eager, inside))

    def eagerly() -> None:
        first.zero_grad()
        _loss(eager, next(values)).backward()
        first.step()

    def in_graph() -> None:
        second.zero_grad()
        x.set(next(values))
        loss.backward()
        second.step()

    times: tuple[list[int], list[int]] = ([], [])
    for _ in range(TURNS):
        for found, run in zip(times, (eagerly, in_graph), strict=True):
            began = time.thread_time_ns()
            run()
            found.append(time.thread_time_ns() - began)
    ours, theirs = (statistics.median(found[FIRST:]) / 1e3 for found in times)
    return ours, theirs


def main() -> None:
    """Print the table."""
    print("\nAll has changed: forward, backward and SGD in a graph, and eagerly (us)")
    for name, (make, shape) in MODELS.items():
        eager, graph = measured(make, shape)
        print(
            f"{name:22s} eager {eager:8.1f}  graph {graph:8.1f}  {graph / eager:5.2f}", flush=True
        )
