"""Whole training steps: compiled here (`ad.compile`), eagerly here, and by the peers.

The peers are PyTorch eagerly (fused Adam), `torch.compile` of its model and loss, and JAX jit of
the whole step. All take turns; the ratio is to the fastest of them. The machine's multiply-add peak
and bandwidth, measured beside it, say what a step must take at least.
`python -m benchmarks compile --rows mlp gpt` measures some rows only.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import adjoint as ad

from .timing import _time
from .training import gpt_model, resnet_model

ROUNDS = 25
Step = Callable[..., Any]
Wrap = Callable[[Any], Any]


def _trained(model: Any, loss_of: Step, optimizer: Any) -> Step:
    """The usual training step: `loss_of` the model and a batch."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _adam(t: Any, model: Any, name: str = "Adam") -> Any:
    options = {"fused": True} if t is torch else {}
    return getattr(t.optim, name)(model.parameters(), lr=1e-3, **options)


def _classifier(t: Any, model: Any, optimizer: Any, inner: Wrap) -> Step:
    model, criterion = inner(model), t.nn.CrossEntropyLoss()
    return _trained(model, lambda x, y: criterion(model(x), y), optimizer)


class Row:
    """A step: its batch, the same program for both frameworks, JAX's, and its work."""

    def __init__(
        self, title: str, batch: Sequence[Any], make: Callable[[Any, Wrap], Step],
        jax: Callable[[Any], Any], flops: float = 0,
    ) -> None:  # fmt: skip
        self.title, self.batch, self.make, self.jax, self.flops = title, batch, make, jax, flops


def _drawn() -> Any:
    return np.random.default_rng(0)


def pointwise(size: int = 1 << 20) -> Row:
    """A chain of functions of each element, its sum and its gradient."""

    def make(t: Any, inner: Wrap) -> Step:
        total = inner(lambda x: (t.tanh(x) * t.sigmoid(x) + t.exp(-x * x) * t.sin(x)).sum())

        def step(x: Any) -> Any:
            x = x.detach().requires_grad_()
            return t.autograd.grad(total(x), x)[0]

        return step

    x = _drawn().standard_normal(size).astype(np.float32)
    title = f"pointwise tanh(x)*sigmoid(x) + exp(-x*x)*sin(x), sum and gradient, {size}"
    return Row(title, [x], make, lambda peers: peers.pointwise(x))


def perceptron(sizes: Sequence[int], batch: int) -> Row:
    """Fully connected layers, Adam."""

    def make(t: Any, inner: Wrap) -> Step:
        layers: list[Any] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [t.nn.Linear(inputs, outputs), t.nn.ReLU()]
        model = t.nn.Sequential(*layers[:-1])
        return _classifier(t, model, _adam(t, model), inner)

    draw = _drawn()
    x = draw.standard_normal((batch, sizes[0])).astype(np.float32)
    y = draw.integers(0, sizes[-1], batch)
    work = sum(i * o for i, o in itertools.pairwise(sizes))
    title = f"MLP {'-'.join(map(str, sizes))}, batch {batch}, Adam"
    flops = 6 * batch * work - 2 * batch * sizes[0] * sizes[1]
    return Row(title, [x, y], make, lambda peers: peers.mlp(sizes, x, y), flops)


def resnet() -> Row:
    """A ResNet of three blocks, 16 to 64 channels, 32x3x32x32, SGD with momentum."""

    def make(t: Any, inner: Wrap) -> Step:
        model = resnet_model(t)
        optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        return _classifier(t, model, optimizer, inner)

    draw = _drawn()
    x = draw.standard_normal((32, 3, 32, 32)).astype(np.float32)
    y = draw.integers(0, 10, 32)
    title = "ResNet 16-32-64, 32x3x32x32, SGD with momentum"
    return Row(title, [x, y], make, lambda peers: peers.resnet(x, y), 2.4e9)


def lstm() -> Row:
    """LSTM 32-128, 50 steps, batch 32, Adam."""

    def make(t: Any, inner: Wrap) -> Step:
        class Model(t.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.lstm = t.nn.LSTM(32, 128, batch_first=True)
                self.decoder = t.nn.Linear(128, 10)

            def forward(self, x: Any) -> Any:
                return self.decoder(self.lstm(x)[0][:, -1])

        model = Model()
        return _classifier(t, model, _adam(t, model), inner)

    draw = _drawn()
    x = draw.standard_normal((32, 50, 32)).astype(np.float32)
    y = draw.integers(0, 10, 32)
    title = "LSTM 32-128, 50 steps, batch 32, Adam"
    return Row(title, [x, y], make, lambda peers: peers.lstm(x, y, 128, 10), 0.73e9)


def gpt() -> Row:
    """GPT, 4 layers 128 wide, 12x64 tokens, AdamW."""
    words = 96

    def make(t: Any, inner: Wrap) -> Step:
        model = gpt_model(t, words, length=64, width=128, heads=4, layers=4)
        optimizer = _adam(t, model, "AdamW")
        model, criterion = inner(model), t.nn.CrossEntropyLoss()
        return _trained(model, lambda x, y: criterion(model(x), y.reshape(-1)), optimizer)

    draw = _drawn()
    x, y = draw.integers(0, words, (12, 64)), draw.integers(0, words, 12 * 64)
    title = "GPT, 4 layers 128 wide, 12x64 tokens, AdamW"
    return Row(title, [x, y], make, lambda peers: peers.gpt(x, y, words, 128, 4, 4), 4.0e9)


def products(count: int = 100) -> Row:
    """Products of pairs of 4x4, with their gradients."""
    draw = _drawn()
    arrays = [draw.standard_normal((4, 4)).astype(np.float32) for _ in range(2 * count)]

    def make(t: Any, inner: Wrap) -> Step:
        def total(*xs: Any) -> Any:
            return sum((a @ b).sum() for a, b in zip(xs[::2], xs[1::2], strict=True))

        total = inner(total)

        def step(*xs: Any) -> Any:
            own = [x.detach().requires_grad_() for x in xs]
            return t.autograd.grad(total(*own), own)

        return step

    pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
    title = f"{count} products of 4x4 with gradients"
    return Row(title, arrays, make, lambda peers: peers.products(pairs))


def chain(count: int = 100) -> Row:
    """Products of 4x4 one after another, with the gradients of all factors."""
    draw = _drawn()
    x, *weights = [(draw.standard_normal((4, 4)) / 2).astype(np.float32) for _ in range(count + 1)]

    def make(t: Any, inner: Wrap) -> Step:
        def total(x: Any, *weights: Any) -> Any:
            for w in weights:
                x = x @ w
            return x.sum()

        total = inner(total)

        def step(*xs: Any) -> Any:
            own = [x.detach().requires_grad_() for x in xs]
            return t.autograd.grad(total(*own), own)

        return step

    title = f"a chain of {count} products of 4x4 with gradients"
    return Row(title, [x, *weights], make, lambda peers: peers.chain(x, weights))


def dqn() -> Row:
    """An update of a value network, 4-64-64-2, batch 64, with a target network, Adam."""

    def make(t: Any, inner: Wrap) -> Step:
        def network() -> Any:
            nn = t.nn
            return nn.Sequential(
                nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
            )

        model, target = network(), network()
        optimizer = _adam(t, model)
        called, aimed, criterion = inner(model), inner(target), t.nn.SmoothL1Loss()

        def loss_of(states: Any, actions: Any, rewards: Any, following: Any, ends: Any) -> Any:
            q = called(states).gather(1, actions.unsqueeze(1)).squeeze(1)
            with t.no_grad():
                aim = rewards + 0.99 * aimed(following).max(1).values * (1 - ends)
            return criterion(q, aim)

        return _trained(model, loss_of, optimizer)

    draw = _drawn()
    states, following = (draw.standard_normal((64, 4)).astype(np.float32) for _ in range(2))
    rewards, ends = (draw.integers(0, 2, 64).astype(np.float32) for _ in range(2))
    batch = [states, draw.integers(0, 2, 64), rewards, following, ends]
    title = "DQN update 4-64-64-2, batch 64, Adam"
    return Row(title, batch, make, lambda peers: peers.dqn(*batch))


def characters() -> Row:
    """A loop over an LSTM cell that predicts characters, 16 steps of 16, Adam."""
    words, hidden, length, count = 32, 32, 16, 16

    def make(t: Any, inner: Wrap) -> Step:
        class Model(t.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.embedding = t.nn.Embedding(words, hidden)
                self.cell = t.nn.LSTMCell(hidden, hidden)
                self.head = t.nn.Linear(hidden, words)

            def forward(self, x: Any, y: Any) -> Any:
                h, c = t.zeros(x.shape[1], hidden), t.zeros(x.shape[1], hidden)
                loss = 0.0
                for k in range(x.shape[0]):
                    h, c = self.cell(self.embedding(x[k]), (h, c))
                    loss = loss + t.nn.functional.cross_entropy(self.head(h), y[k])
                return loss / x.shape[0]

        model = Model()
        return _trained(model, inner(model), _adam(t, model))

    draw = _drawn()
    x, y = (draw.integers(0, words, (length, count)) for _ in range(2))
    title = f"char-LSTM, a loop over a cell of {hidden}, {length} steps of {count}, Adam"
    return Row(title, [x, y], make, lambda peers: peers.characters(x, y, words, hidden))


def pinn() -> Row:
    """A network with u'' = -sin x, by second derivatives, Adam."""
    width, count = 32, 128

    def make(t: Any, inner: Wrap) -> Step:
        nn = t.nn
        model = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

        def loss_of(points: Any) -> Any:
            x = points.detach().requires_grad_()
            u = model(x)
            (first,) = t.autograd.grad(u.sum(), x, create_graph=True)
            (second,) = t.autograd.grad(first.sum(), x, create_graph=True)
            return ((second + x.sin()) ** 2).mean() + (model(t.zeros(1, 1)) ** 2).sum()

        return _trained(model, loss_of, _adam(t, model))  # inductor has no second derivatives

    points = np.linspace(0, np.pi, count, dtype=np.float32)[:, None]
    title = f"PINN 1-{width}-{width}-1, {count} points, second derivatives, Adam"
    return Row(title, [points], make, lambda peers: peers.pinn(points, width))


ROWS: dict[str, Callable[[], Row]] = {
    "pointwise": pointwise,
    "mlp": lambda: perceptron((784, 256, 256, 10), 64),
    "resnet": resnet,
    "lstm": lstm,
    "gpt": gpt,
    "products": products,
    "chain": chain,
    "small": lambda: perceptron((64, 32, 10), 32),
    "dqn": dqn,
    "characters": characters,
    "pinn": pinn,
}


def _turns(functions: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Microseconds a call, of each in turns; the first call's seconds come first."""
    first = {}
    for name, function in functions.items():
        began = time.perf_counter()
        for _ in range(3):  # ours compiles with the second, once optimizers have a state
            function()
        first[name] = time.perf_counter() - began
    calls = {name: max(1, int(2e4 / _time(f, 5))) for name, f in functions.items()}
    times: dict[str, list[float]] = {name: [first[name]] for name in functions}
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, function in functions.items():
                times[name].append(_time(function, calls[name]))
    finally:
        gc.enable()
    return times


def _same(x: Any) -> Any:
    return x


def _called(step: Step, batch: Sequence[Any]) -> Callable[[], object]:
    return lambda: step(*batch)


def _compare(row: Row) -> None:
    ours, theirs = ([t.tensor(x) for x in row.batch] for t in (ad, torch))
    functions: dict[str, Callable[[], object]] = {
        "compiled": _called(ad.compile(row.make(ad, _same)), ours),
        "eager": _called(row.make(ad, _same), ours),
        "PyTorch": _called(row.make(torch, _same), theirs),
        "torch.compile": _called(row.make(torch, torch.compile), theirs),
    }
    if importlib.util.find_spec("jax") is not None:
        from . import jax_steps

        functions["JAX jit"] = row.jax(jax_steps)
    times = _turns(functions)
    peers = [name for name in times if name not in ("compiled", "eager")]
    best = min(peers, key=lambda name: statistics.median(times[name][1:]))
    print(f"\n{row.title}" + (f": {row.flops / 1e6:.1f} MFLOP in products" if row.flops else ""))
    for name, each in times.items():
        pairs = zip(each[1:], times["compiled"][1:], strict=True)
        ratios = sorted(a / b for a, b in pairs)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"  {name:14s} {statistics.median(each[1:]):9.1f} us, best {min(each[1:]):9.1f}; three "
            f"first calls {each[0]:6.2f} s; compiled is {statistics.median(ratios):.2f} times as "
            f"fast ({low:.2f} to {high:.2f}){'  <- the best peer' if name == best else ''}",
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
        f"{os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compile")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, help="only these")
    named = parser.parse_args().rows
    _machine()
    for name in named:
        _compare(ROWS[name]())


if __name__ == "__main__":
    main()
