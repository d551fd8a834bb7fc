"""Second derivatives from outside of a compiled model, beside PyTorch's eager execution: training
steps of force matching, WGAN-GP and MAML, measured in turn; both compute the same to rounding.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from .timing import compare, header, row

Step = Callable[[], Any]
Wrap = Callable[[Any], Any]


def _numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _dense(t: Any, *sizes: int, act: str = "SiLU") -> Any:
    """A network of linear layers, with the same weights in every framework."""
    layers: list[Any] = []
    for k, (i, o) in enumerate(itertools.pairwise(sizes)):
        layer = t.nn.Linear(i, o)
        with t.no_grad():
            layer.weight.copy_(t.tensor(_numbers(k, o, i) / math.sqrt(i)))
            layer.bias.copy_(t.tensor(_numbers(9 + k, o) * 0.1))
        layers += [layer, getattr(t.nn, act)()]
    return t.nn.Sequential(*layers[:-1])


def _potential(t: Any) -> Any:
    """Energy of molecules from the distances of their atoms: radial functions, then a network."""

    class Potential(t.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = _dense(t, 8, 32, 32, 1)
            self.register_buffer("centres", t.linspace(0.5, 4.0, 8))

        def forward(self, positions: Any) -> Any:
            offsets = positions.unsqueeze(1) - positions.unsqueeze(2)
            distances = (offsets.pow(2).sum(-1) + 1e-2).sqrt()
            inside = (distances < 5.0).to(distances.dtype)
            cutoff = 0.5 * (t.cos(distances * (math.pi / 5.0)) + 1.0) * inside
            radial = t.exp(-2.0 * (distances.unsqueeze(-1) - self.centres) ** 2)
            features = (radial * cutoff.unsqueeze(-1)).sum(2)
            return self.net(features).sum((1, 2))

    return Potential()


def _forces(t: Any, wrap: Wrap) -> Step:
    potential = _potential(t)
    model, optimizer = wrap(potential), t.optim.Adam(potential.parameters(), lr=1e-3)
    positions = t.tensor(_numbers(50, 4, 12, 3) * 1.5, requires_grad=True)
    energies, forces = t.tensor(_numbers(51, 4)), t.tensor(_numbers(52, 4, 12, 3))

    def step() -> Any:
        energy = model(positions)
        (slopes,) = t.autograd.grad(energy.sum(), positions, create_graph=True)
        loss = ((energy - energies) ** 2).mean() + 10 * ((slopes + forces) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _penalty(t: Any, wrap: Wrap) -> Step:
    critic = _dense(t, 2, 64, 64, 1, act="LeakyReLU")
    model, optimizer = wrap(critic), t.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    real, fake = t.tensor(_numbers(60, 64, 2)), t.tensor(_numbers(61, 64, 2) * 2)
    share = t.tensor(np.random.default_rng(62).random((64, 1), np.float32))

    def step() -> Any:
        between = (share * real + (1 - share) * fake).requires_grad_()
        y = model(between)
        (slopes,) = t.autograd.grad(y, between, t.ones_like(y), create_graph=True)
        penalty = ((slopes.norm(2, dim=1) - 1) ** 2).mean()
        loss = model(fake).mean() - model(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _meta(t: Any, wrap: Wrap) -> Step:
    net = _dense(t, 1, 40, 40, 1, act="Tanh")
    parameters = list(net.parameters())

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = weights
        h = t.tanh(t.nn.functional.linear(x, w1, b1))
        h = t.tanh(t.nn.functional.linear(h, w2, b2))
        return ((t.nn.functional.linear(h, w3, b3) - y) ** 2).mean()

    loss, optimizer = wrap(loss_of), t.optim.Adam(parameters, lr=1e-3)
    tasks = [[t.tensor(_numbers(70 + 4 * n + k, 10, 1)) for k in range(4)] for n in range(4)]

    def step() -> Any:
        optimizer.zero_grad()
        total: Any = 0.0
        for x, y, x_after, y_after in tasks:
            fast: Any = parameters
            for _ in range(3):
                slopes = t.autograd.grad(loss(fast, x, y), fast, create_graph=True)
                fast = [p - 0.01 * g for p, g in zip(fast, slopes, strict=True)]
            after = loss(fast, x_after, y_after)
            after.backward()
            total = total + after.detach()
        optimizer.step()
        return total

    return step


ROWS = {"force matching": _forces, "WGAN-GP": _penalty, "MAML, 3 inner steps": _meta}


def assert_equal(ours: Step, theirs: Step, steps: int = 5) -> None:
    """Refuse to measure steps whose losses differ by more than rounding."""
    for _ in range(steps):
        np.testing.assert_allclose(ours().numpy(), theirs().numpy(), 2e-4, 2e-5)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks derivatives", description=__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    os.environ["ADJOINT_NUM_THREADS"] = str(asked.threads)
    import torch

    import adjoint as ad

    torch.set_num_threads(asked.threads)
    header(f"Second derivatives from outside of a compiled model, {asked.threads} thread(s)")
    ratios = []
    for name, make in ROWS.items():
        ours, theirs = make(ad, ad.compile), make(torch, lambda function: function)
        assert_equal(ours, theirs)
        result = compare(ours, theirs, asked.rounds)
        ratios.append(result.ratio)
        row(name, result)
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}")
