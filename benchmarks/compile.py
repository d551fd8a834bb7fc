"""Whole training steps: compiled here (`ad.compile`), eagerly here, and by the peers.

The peers are PyTorch eagerly (fused Adam), `torch.compile` of its model and loss, and JAX jit of
the whole step. All take turns; the ratio is to the fastest of them. The machine's multiply-add peak
and bandwidth, measured beside it, say what a step must take at least.
"""

from __future__ import annotations

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

ROUNDS = 25


def perceptron(t: Any, sizes: Sequence[int], fused: bool = False) -> tuple[Any, ...]:
    """Model, criterion and optimizer of fully connected layers; the same in both frameworks."""
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [t.nn.Linear(inputs, outputs), t.nn.ReLU()]
    model = t.nn.Sequential(*layers[:-1])
    options = {"fused": True} if fused else {}
    return model, t.nn.CrossEntropyLoss(), t.optim.Adam(model.parameters(), lr=1e-3, **options)


def step_of(model: Any, criterion: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """The usual training step."""

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def jax_step(sizes: Sequence[int], x: Any, y: Any) -> Callable[[], object]:
    """The same step as one jitted function of all state, which it takes over."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp

    draw = np.random.default_rng(0)
    pairs = list(itertools.pairwise(sizes))
    weights = [
        (jnp.asarray(draw.standard_normal((o, i)) / i**0.5, jnp.float32), jnp.zeros(o))
        for i, o in pairs
    ]

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        for k, (w, b) in enumerate(weights):
            x = x @ w.T + b
            if k < len(weights) - 1:
                x = jax.nn.relu(x)
        picked = jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1)
        return -picked.mean()

    def step(state: Any, x: Any, y: Any) -> Any:
        weights, means, squares, count = state
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        count = count + 1
        each = jax.tree_util.tree_map
        means = each(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = each(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradients)
        rate, root = 1e-3 / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        weights = each(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + 1e-8), weights, means, squares
        )
        return (weights, means, squares, count), loss

    jitted = jax.jit(step, donate_argnums=0)
    zeros = jax.tree_util.tree_map(jnp.zeros_like, weights)
    state = [(weights, zeros, jax.tree_util.tree_map(jnp.zeros_like, weights), jnp.zeros(()))]
    x, y = jnp.asarray(x), jnp.asarray(y)

    def run() -> None:
        state[0], loss = jitted(state[0], x, y)
        loss.block_until_ready()

    return run


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


def _compare(title: str, sizes: Sequence[int], batch: int) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((batch, sizes[0])).astype(np.float32)
    y = draw.integers(0, sizes[-1], batch)
    ours, theirs = (ad.tensor(x), ad.tensor(y)), (torch.tensor(x), torch.tensor(y))
    compiled, eager = ad.compile(step_of(*perceptron(ad, sizes))), step_of(*perceptron(ad, sizes))
    plain = step_of(*perceptron(torch, sizes, fused=True))
    model, criterion, optimizer = perceptron(torch, sizes, fused=True)
    inductor = step_of(torch.compile(model), criterion, optimizer)
    functions: dict[str, Callable[[], object]] = {
        "compiled": lambda: compiled(*ours),
        "eager": lambda: eager(*ours),
        "PyTorch": lambda: plain(*theirs),
        "torch.compile": lambda: inductor(*theirs),
    }
    if importlib.util.find_spec("jax") is not None:
        functions["JAX jit"] = jax_step(sizes, x, y)
    times = _turns(functions)
    peers = [name for name in times if name not in ("compiled", "eager")]
    best = min(peers, key=lambda name: statistics.median(times[name][1:]))
    work = sum(i * o for i, o in itertools.pairwise(sizes))
    work = 6 * batch * work - 2 * batch * sizes[0] * sizes[1]
    print(f"\n{title}: {work / 1e6:.1f} MFLOP in products")
    for name, each in times.items():
        pairs = zip(each[1:], times["compiled"][1:], strict=True)
        ratios = sorted(a / b for a, b in pairs)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"  {name:14s} {statistics.median(each[1:]):9.1f} us, best {min(each[1:]):9.1f}; three "
            f"first calls {each[0]:6.2f} s; compiled is {statistics.median(ratios):.2f} times as "
            f"fast ({low:.2f} to {high:.2f}){'  <- the best peer' if name == best else ''}"
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
    _machine()
    _compare("MLP 784-256-256-10, batch 64, Adam", (784, 256, 256, 10), 64)
    _compare("MLP 64-32-10, batch 32, Adam", (64, 32, 10), 32)


if __name__ == "__main__":
    main()
