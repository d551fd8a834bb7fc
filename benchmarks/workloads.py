"""Programs beyond deep networks' training steps, the same on both frameworks."""

from __future__ import annotations

import importlib
import math
import os

import torch

import adjoint as ad

from .timing import compare, header, row

POINTS = (100, 300, 1000)
DTYPES = ("float32", "float64")


def gaussian_process(t: object, points: int, dtype: str) -> object:
    """A step on the log marginal likelihood of a Gaussian process, by Adam."""
    kind = getattr(t, dtype)
    t.manual_seed(0)
    x = t.rand(points, 3, dtype=kind)
    y = x.sum(1, keepdim=True).sin()
    eye = t.eye(points, dtype=kind)
    length, scale, noise = (t.zeros((), dtype=kind, requires_grad=True) for _ in range(3))
    optimizer = t.optim.Adam([length, scale, noise], lr=1e-2)

    def run() -> None:
        distance = ((x.unsqueeze(1) - x.unsqueeze(0)) / length.exp()).square().sum(-1)
        covariance = scale.exp() * (distance * -0.5).exp() + (0.1 * noise.exp() + 1e-4) * eye
        factor = t.linalg.cholesky(covariance)
        weights = t.cholesky_solve(y, factor)
        fit = 0.5 * (y * weights).sum() + factor.diagonal().log().sum()
        loss = fit + 0.5 * points * math.log(2 * math.pi)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return run


def policy(t: object) -> object:
    """One observation through a policy, 4-64-64-2 with tanh, and an action drawn."""
    nn = t.nn
    model = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    categorical = importlib.import_module(f"{t.__name__}.distributions").Categorical
    observation = t.randn(1, 4)

    def run() -> None:
        with t.no_grad():
            categorical(logits=model(observation)).sample()

    return run


def policy_training(t: object) -> object:
    """The same, and the action's log probability differentiated."""
    nn = t.nn
    model = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    categorical = importlib.import_module(f"{t.__name__}.distributions").Categorical
    observation = t.randn(1, 4)

    def run() -> None:
        found = categorical(logits=model(observation))
        (-found.log_prob(found.sample())).sum().backward()

    return run


def main() -> None:
    """Print the table."""
    threads = os.cpu_count() or 1
    torch.set_num_threads(threads)
    header(f"Whole programs ({threads} threads)")
    for points in POINTS:
        for dtype in DTYPES:
            ours, theirs = (gaussian_process(t, points, dtype) for t in (ad, torch))
            label = f"Gaussian process, {points} points, {dtype}"
            row(label, compare(ours, theirs, rounds=11, seconds=0.3))
    for label, make in {"policy, batch 1": policy, "policy, its gradient": policy_training}.items():
        row(label, compare(make(ad), make(torch), rounds=11, seconds=0.1))
