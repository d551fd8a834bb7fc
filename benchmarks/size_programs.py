"""Programs of which every batch has another size, the same on both frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Workload(NamedTuple):
    """One program: `make(t)` gives the step for a framework, `batches(n)` so many batches, arrays
    of sizes that are drawn.
    """

    make: Callable[[Any], Callable[..., object]]
    batches: Callable[[int], list[tuple[np.ndarray, ...]]]


WIDTH = 64  # of what the models compute with


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


def _transformer(t: Any) -> Callable[..., object]:
    """A training step of one encoder layer."""
    t.manual_seed(0)
    layer = t.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
    optimizer = t.optim.SGD(layer.parameters(), lr=1e-3)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()

    return step


def _sentences(count: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(1)
    return [(_normal(rng, 8, int(rng.integers(16, 201)), WIDTH),) for _ in range(count)]


def _recurrent(t: Any) -> Callable[..., object]:
    """A training step of an LSTM that tells sequences apart."""
    t.manual_seed(0)
    lstm = t.nn.LSTM(32, WIDTH, batch_first=True)
    head = t.nn.Linear(WIDTH, 10)
    optimizer = t.optim.SGD([*lstm.parameters(), *head.parameters()], lr=1e-3)

    def step(x: Any, labels: Any) -> None:
        optimizer.zero_grad()
        y, _ = lstm(x)
        t.nn.functional.cross_entropy(head(y[:, -1]), labels).backward()
        optimizer.step()

    return step


def _sequences(count: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(2)
    made = []
    for _ in range(count):
        batch, length = int(rng.integers(1, 33)), int(rng.integers(5, 41))
        made.append((_normal(rng, batch, length, 32), rng.integers(0, 10, batch)))
    return made


def _graph_network(t: Any) -> Callable[..., object]:
    """A training step of two rounds of messages along edges."""
    t.manual_seed(0)
    first, second, last = t.nn.Linear(16, 32), t.nn.Linear(32, 32), t.nn.Linear(32, 1)
    parameters = [p for layer in (first, second, last) for p in layer.parameters()]
    optimizer = t.optim.SGD(parameters, lr=1e-3)

    def step(x: Any, sources: Any, targets: Any) -> None:
        optimizer.zero_grad()
        for layer in (first, second):
            h = layer(x).relu()
            messages = h.index_select(0, sources)
            x = t.zeros(h.shape).index_add(0, targets, messages) + h
        last(x).mean().square().backward()
        optimizer.step()

    return step


def _graphs(count: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(3)
    made = []
    for _ in range(count):
        nodes = int(rng.integers(10, 200))
        edges = int(rng.integers(nodes, 4 * nodes))
        ends = [rng.integers(0, nodes, edges) for _ in range(2)]
        made.append((_normal(rng, nodes, 16), *ends))
    return made


def _images_network(t: Any) -> Callable[..., object]:
    """A small convolutional network, without gradients."""
    t.manual_seed(0)
    nn = t.nn
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip

    def step(x: Any) -> object:
        with t.no_grad():
            return model(x)

    return step


def _images(count: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(4)
    sizes = rng.integers(32, 97, (count, 2))
    return [(_normal(rng, 1, 3, int(h), int(w)),) for h, w in sizes]


def _attention(t: Any) -> Callable[..., object]:
    """One token that attends to a cache, which grows by its key and value."""

    def step(query: Any, keys: Any, values: Any) -> object:
        with t.no_grad():
            keys = t.cat([keys, query], 2)
            values = t.cat([values, query], 2)
            return t.nn.functional.scaled_dot_product_attention(query, keys, values)

    return step


def _caches(count: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(5)
    return [
        (_normal(rng, 1, 4, 1, 16), _normal(rng, 1, 4, n, 16), _normal(rng, 1, 4, n, 16))
        for n in range(1, count + 1)
    ]


def _policy(t: Any) -> Callable[..., object]:
    """A policy, 4-64-64-2 with tanh, and the gradient of its loss."""
    t.manual_seed(0)
    nn = t.nn
    model = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )

    def step(x: Any, actions: Any) -> None:
        log = t.nn.functional.log_softmax(model(x), -1)
        (-log.gather(1, actions)).mean().backward()

    return step


def _observations(count: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(6)
    sizes = map(int, rng.integers(1, 65, count))
    return [(_normal(rng, n, 4), rng.integers(0, 2, (n, 1))) for n in sizes]


PROGRAMS = {
    "transformer layer, 16 to 200 tokens": Workload(_transformer, _sentences),
    "LSTM, lengths and batches": Workload(_recurrent, _sequences),
    "graphs": Workload(_graph_network, _graphs),
    "images": Workload(_images_network, _images),
    "growing cache": Workload(_attention, _caches),
    "policy, 1 to 64 rows": Workload(_policy, _observations),
}
