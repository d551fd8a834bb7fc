"""Optimizer steps beside PyTorch's: a million parameters in 20 tensors, 25 million in one, small
tensors, few and many; clipping of gradients. "foreach" and "fused" are PyTorch's faster ways.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import torch

import adjoint as ad

from .timing import compare, header, row

OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 1e-3}),
    "SGD, momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "SGD, momentum, nesterov, weight decay": (
        "SGD", {"lr": 1e-3, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "Adam": ("Adam", {}),
    "Adam, amsgrad": ("Adam", {"amsgrad": True}),
    "AdamW": ("AdamW", {}),
    "Adamax": ("Adamax", {}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {}),
    "Adagrad": ("Adagrad", {}),
    "Adadelta": ("Adadelta", {}),
    "RMSprop": ("RMSprop", {}),
    "RMSprop, centered, momentum": ("RMSprop", {"centered": True, "momentum": 0.9}),
    "Rprop": ("Rprop", {}),
    "ASGD": ("ASGD", {}),
    "Adafactor": ("Adafactor", {}),
    "Muon": ("Muon", {}),
    "LBFGS": ("LBFGS", {"lr": 1e-3, "max_iter": 1, "history_size": 10, "tolerance_change": -1}),
}  # fmt: skip
SMALL = ("SGD", "SGD, momentum", "Adam", "AdamW")
WAYS: dict[str, dict[str, bool]] = {"": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}
READY = 10  # steps before the clock runs: kernels of small parameters are compiled later


def parameters(t: Any, shape: tuple[int, ...], count: int) -> list[Any]:
    """`count` parameters that have gradients."""
    params = [t.nn.Parameter(t.randn(*shape)) for _ in range(count)]
    for p in params:
        p.grad = t.randn(*shape) * 0.01
    return params


def step(
    t: Any, name: str, shape: tuple[int, ...], count: int = 20, **way: bool
) -> Callable[[], object]:
    """The step of an optimizer over `count` parameters as a function of no arguments."""
    kind, options = OPTIMIZERS[name]
    params = parameters(t, shape, count)
    function = getattr(t.optim, kind)(params, **options, **way).step
    if kind == "LBFGS":
        function = functools.partial(function, closure(t, params))
    for _ in range(READY):
        function()
    return function  # type: ignore[no-any-return]


def closure(t: Any, params: list[Any]) -> Callable[[], Any]:
    """What LBFGS calls: gradients that differ from step to step, and a loss that costs nothing."""
    first = [p.grad.clone() for p in params]
    loss, calls = t.tensor(1.0), itertools.count(1)

    def evaluate() -> Any:
        scale = t.tensor(1 + 1 / next(calls))
        for p, g in zip(params, first, strict=True):
            t.mul(g, scale, out=p.grad)
        return loss

    return evaluate


def beside_each_way(name: str, shape: tuple[int, ...], count: int, rounds: int) -> None:
    """A row for each of PyTorch's ways."""
    ours = step(ad, name, shape, count)
    for way, options in WAYS.items():
        theirs = step(torch, name, shape, count, **options)
        label = f"{name}, {count} of {'x'.join(map(str, shape))}"
        row(f"{label}, {way}" if way else label, compare(ours, theirs, rounds=rounds))


def clip(t: Any, shape: tuple[int, ...], count: int) -> Callable[[], object]:
    """Clipping of the gradients of `count` parameters as a function of no arguments."""
    params = parameters(t, shape, count)
    return lambda: t.nn.utils.clip_grad_norm_(params, 1.0)


def main() -> None:
    """Print the tables."""
    for threads in dict.fromkeys((1, os.cpu_count() or 1)):
        torch.set_num_threads(threads)
        ad.set_num_threads(threads)
        header(f"Steps over 20 tensors of 200x250 (float32, {threads} threads)")
        for name in OPTIMIZERS:
            ours, theirs = (step(t, name, (200, 250)) for t in (ad, torch))
            row(name, compare(ours, theirs, rounds=11))
        header(f"Steps over one tensor of 5000x5000 (float32, {threads} threads)")
        for name in ("Adafactor", "Adamax", "RMSprop"):
            ours, theirs = (step(t, name, (5000, 5000), 1) for t in (ad, torch))
            row(name, compare(ours, theirs, rounds=7))
        header(f"Steps over one tensor of 1000x1000 (float32, {threads} threads)")
        for name in ("Adafactor", "Muon", "LBFGS"):
            ours, theirs = (step(t, name, (1000, 1000), 1) for t in (ad, torch))
            row(name, compare(ours, theirs, rounds=7))
        header(f"Adam and PyTorch's ways to run it (float32, {threads} threads)")
        for shape, count in (((200, 250), 20), ((1000, 1000), 1), ((5000, 5000), 1)):
            beside_each_way("Adam", shape, count, 7)
    torch.set_num_threads(1)
    ad.set_num_threads(1)
    header("Steps over small tensors: overhead (float32, one thread)")
    for name in SMALL:
        for count in (6, 20, 200):
            beside_each_way(name, (8, 8), count, 7)
    header("clip_grad_norm_ (float32, one thread)")
    for shape, count in (((8, 8), 6), ((8, 8), 200), ((200, 250), 20), ((5000, 5000), 1)):
        ours, theirs = (clip(t, shape, count) for t in (ad, torch))
        row(f"{count} of {'x'.join(map(str, shape))}", compare(ours, theirs, rounds=7))
