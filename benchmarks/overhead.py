"""Overhead per operation on 4x4 float32, where the arithmetic itself costs nothing."""

from __future__ import annotations

import torch

import adjoint as ad

from .timing import compare, header, row

SETUP = {
    "a": lambda t: t.ones(4, 4),
    "b": lambda t: t.ones(4, 4),
    "p": lambda t: t.ones(4, 4).requires_grad_(),
    "q": lambda t: t.ones(4, 4).requires_grad_(),
    "g": lambda t: t.ones(4, 4),
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


def function(expression: str, t: object) -> object:
    """The expression as a function of no arguments, on framework `t`."""
    scope = {"t": t, **{name: make(t) for name, make in SETUP.items()}}
    return eval(f"lambda: {expression}", scope)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    header("Overhead per operation (4x4 float32, one thread; gradients accumulate)")
    for label, expression in EXPRESSIONS.items():
        row(label, compare(function(expression, ad), function(expression, torch)))
