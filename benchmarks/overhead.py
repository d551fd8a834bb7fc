"""Overhead per operation on 4x4 float32, where the arithmetic itself costs nothing: single calls,
and chains of products, in which a call of backward() counts for little.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch

import adjoint as ad

from .timing import compare, header, row

SETUP = {
    "a": lambda t: t.ones(4, 4),
    "b": lambda t: t.ones(4, 4),
    "p": lambda t: t.ones(4, 4).requires_grad_(),
    "q": lambda t: t.ones(4, 4).requires_grad_(),
    "g": lambda t: t.ones(4, 4),
    "m": lambda t: t.ones(4, 4) > 0,
    "i": lambda t: t.ones(4, 4).long(),
}

EXPRESSIONS = {
    "forward: a * b": "a * b",
    "forward, recorded: p * a": "p * a",
    "forward and backward: (p * a).backward(g)": "(p * a).backward(g)",
    "forward and backward: (p * q).backward(g)": "(p * q).backward(g)",
    "forward and backward: (p * q).sum().backward()": "(p * q).sum().backward()",
    "a + b": "a + b",
    "a * 2.0": "a * 2.0",
    "a.exp()": "a.exp()",
    "a.sum()": "a.sum()",
    "a @ b": "a @ b",
    "a.reshape(16)": "a.reshape(16)",
    "a.t()": "a.t()",
    "a[1]": "a[1]",
    "a.add_(b)": "a.add_(b)",
    "t.relu(p)": "t.relu(p)",
    "p.softmax(-1)": "p.softmax(-1)",
    "a > b": "a > b",
    "t.cat([a, b])": "t.cat([a, b])",
    "t.zeros(4, 4)": "t.zeros(4, 4)",
}

# `n()` is another number in each call.
CHANGING = {
    "a * n": "a * n()",
    "p * n": "p * n()",
    "n - a": "n() - a",
    "a ** n": "a ** n()",
    "a > n": "a > n()",
    "a.clamp(-1.0, n)": "a.clamp(-1.0, n())",
    "t.where(m, a, n)": "t.where(m, a, n())",
    "t.add(a, b, alpha=n)": "t.add(a, b, alpha=n())",
    "a.add_(n)": "a.add_(n())",
    "t.nn.functional.softplus(a, n)": "t.nn.functional.softplus(a, n())",
    "i + whole n": "i + int(n())",
}


def function(expression: str, t: Any) -> Callable[[], object]:
    """The expression as a function of no arguments, on framework `t`."""
    scope = {"t": t, **{name: make(t) for name, make in SETUP.items()}}
    scope.update(n=map((0.5).__add__, itertools.count()).__next__)
    return eval(f"lambda: {expression}", scope)  # type: ignore[no-any-return]


def chain(t: Any, length: int, both: bool) -> Callable[[], object]:
    """A product of `length` factors with its gradient, or with those of both factors."""
    first, factor, g = SETUP["p"](t), SETUP["p" if both else "a"](t), SETUP["g"](t)

    def run() -> None:
        y = first
        for _ in range(length):
            y = y * factor
        y.backward(g)

    return run


def import_seconds(name: str) -> float:
    """Processor time of the import in a fresh process, the interpreter's own start excluded; Python
    keeps what it compiles, as after an installation.
    """
    program = f"from time import process_time as t; a = t(); import {name}; print(t() - a)"
    command = [sys.executable, "-c", program]
    with tempfile.TemporaryDirectory() as place:
        keeping = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": place}
        environment = {**os.environ, **keeping}
        times = [
            float(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)
            for _ in range(8)
        ]
    return statistics.median(times[1:])


def main() -> None:
    """Print the table."""
    seconds = (f"{name} {import_seconds(name):.2f}" for name in ("numpy", "adjoint", "torch"))
    print("Import, seconds of processor time:", *seconds)
    torch.set_num_threads(1)
    header("Overhead per operation (4x4 float32, one thread; gradients accumulate)")
    for label, expression in EXPRESSIONS.items():
        row(label, compare(function(expression, ad), function(expression, torch)))
    header("Numbers that change with each call (4x4 float32, one thread)")
    for label, expression in CHANGING.items():
        row(label, compare(function(expression, ad), function(expression, torch)))
    header("Chains of products with their gradients, a product (4x4 float32, one thread)")
    for both in (False, True):
        for length in (1, 10, 100, 1000):
            result = compare(chain(ad, length, both), chain(torch, length, both))
            per = result._replace(ours=result.ours / length, theirs=result.theirs / length)
            row(f"{length} products, {'two gradients' if both else 'one gradient'}", per)
