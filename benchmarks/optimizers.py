"""Optimizer steps beside PyTorch's: a million parameters in 20 tensors, and 20 small tensors."""

from __future__ import annotations

import os

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
}  # fmt: skip
SMALL = ("SGD", "SGD, momentum", "Adam", "AdamW")


def step(t: object, name: str, shape: tuple[int, ...], count: int = 20) -> object:
    """The step of an optimizer over `count` parameters as a function of no arguments."""
    kind, options = OPTIMIZERS[name]
    params = [t.nn.Parameter(t.randn(*shape)) for _ in range(count)]
    for p in params:
        p.grad = t.randn(*shape) * 0.01
    return getattr(t.optim, kind)(params, **options).step


def main() -> None:
    """Print the tables."""
    for threads in dict.fromkeys((1, os.cpu_count() or 1)):
        torch.set_num_threads(threads)
        header(f"Steps over 20 tensors of 200x250 (float32, {threads} threads)")
        for name in OPTIMIZERS:
            ours, theirs = (step(t, name, (200, 250)) for t in (ad, torch))
            row(name, compare(ours, theirs, rounds=11))
    torch.set_num_threads(1)
    header("Steps over 20 tensors of 8x8: overhead (float32, one thread)")
    for name in SMALL:
        ours, theirs = (step(t, name, (8, 8)) for t in (ad, torch))
        row(name, compare(ours, theirs, rounds=11))
