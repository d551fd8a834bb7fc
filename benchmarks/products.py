"""100 products of 4x4 with their gradients as one compiled function, beside PyTorch and JAX jit;
products of one to four rows, beside PyTorch.

python -m benchmarks products [--only small rows] [--threads 1 2] [--dtypes float32 float64]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch

import adjoint as ad

from . import few_rows
from .timing import compare, header, row

COUNT = 100


def elementwise(t: Any) -> Callable[[], object]:
    """A chain of elementwise products."""
    first, factor, g = t.ones(4, 4).requires_grad_(), t.ones(4, 4), t.ones(4, 4)

    def step() -> object:
        first.grad = None
        y = first
        for _ in range(COUNT):
            y = y * factor
        y.backward(g)
        return y

    return step


def chain(t: Any) -> Callable[[], object]:
    """A chain of matrix products, with the gradients of both factors."""
    first, factor, g = t.eye(4).requires_grad_(), t.eye(4).requires_grad_(), t.ones(4, 4)

    def step() -> object:
        first.grad = factor.grad = None
        y = first
        for _ in range(COUNT):
            y = y @ factor
        y.backward(g)
        return y

    return step


def apart(t: Any) -> Callable[[], object]:
    """Matrix products of factors of their own, with the gradients of all."""
    pairs = [[t.ones(4, 4).requires_grad_() for _ in range(COUNT)] for _ in range(2)]

    def step() -> object:
        for p in (*pairs[0], *pairs[1]):
            p.grad = None
        total = sum((p @ q).sum() for p, q in zip(*pairs, strict=True))
        total.backward()
        return total

    return step


def of_jax(kind: str) -> Callable[[], object]:
    """The same as one jitted function."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp

    def repeated(p: Any, q: Any) -> Any:
        for _ in range(COUNT):
            p = p * q if kind == "elementwise" else p @ q
        return p

    if kind == "apart":

        def total(factors: Any) -> Any:
            return sum((p @ q).sum() for p, q in zip(*factors, strict=True))

        run = jax.jit(jax.value_and_grad(total))
        given: tuple[Any, ...] = ([[jnp.ones((4, 4)) for _ in range(COUNT)] for _ in range(2)],)
    else:

        def both(p: Any, q: Any, g: Any) -> Any:
            y, back = jax.vjp(repeated, p, q)
            return y, back(g) if kind == "chain" else back(g)[0]

        run, given = jax.jit(both), (jnp.eye(4), jnp.eye(4), jnp.ones((4, 4)))
    return lambda: jax.block_until_ready(run(*given))


def small() -> None:
    """Print the table of small products."""
    header(f"{COUNT} products of 4x4 with their gradients, compiled")
    for kind in (elementwise, chain, apart):
        compiled = ad.compile(kind(ad))
        for _ in range(3):
            compiled()
        row(f"{kind.__name__}, PyTorch", compare(compiled, kind(torch)))
        if importlib.util.find_spec("jax") is not None:
            row(f"{kind.__name__}, JAX jit", compare(compiled, of_jax(kind.__name__)))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks products", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=("small", "rows"), default=("small", "rows"))
    parser.add_argument("--threads", nargs="+", type=int, default=(1, 2))
    parser.add_argument("--dtypes", nargs="+", default=few_rows.DTYPES)
    options = parser.parse_args()
    if "small" in options.only:
        small()
    if "rows" in options.only:
        for threads in options.threads:
            few_rows.table(threads, tuple(options.dtypes))


if __name__ == "__main__":
    main()
