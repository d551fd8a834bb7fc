"""Draws of every distribution and of the functions that draw, beside PyTorch's, on one thread.

python -m benchmarks sampling [--rows PATTERN] [--sizes N ...] [--follow]

Each cell is our time / PyTorch's for that many numbers, interleaved; the worst rows come first.
`--follow` draws PyTorch's own numbers (`random.follow_torch`), as programs under the alias do.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

import adjoint as ad

from .timing import compare

SIZES = (1, 100, 10_000, 1_000_000)

# `t` is the framework, `D` its distributions; `n` the size, `f` makes a tensor of n equal numbers.
FUNCTIONS = {
    "rand": "t.rand(n)",
    "rand float64": "t.rand(n, dtype=t.float64)",
    "randn": "t.randn(n)",
    "randn float64": "t.randn(n, dtype=t.float64)",
    "randint": "t.randint(0, 1000, (n,))",
    "randperm": "t.randperm(n)",
    "normal": "t.normal(a, b)",
    "bernoulli": "t.bernoulli(p)",
    "bernoulli_": "e.bernoulli_(0.3)",
    "uniform_": "e.uniform_(-1, 2)",
    "normal_": "e.normal_(1, 2)",
    "exponential_": "e.exponential_(2.0)",
    "geometric_": "e.geometric_(0.3)",
    "cauchy_": "e.cauchy_()",
    "log_normal_": "e.log_normal_()",
    "random_": "e.random_()",
    "poisson small": "t.poisson(a)",
    "poisson large": "t.poisson(c)",
    "binomial small": "t.binomial(b, p)",
    "binomial large": "t.binomial(h, p)",
    "gamma small": "D.Gamma(p, b).sample()",
    "gamma large": "D.Gamma(c, b).sample()",
    "gamma float64": "D.Gamma(d, d).sample()",
    "dirichlet rows of 4": "D.Dirichlet(q).sample()",
    "multinomial with": "t.multinomial(w, n, True)",
    "multinomial without": "t.multinomial(p, (n + 1) // 2)",
    "multinomial of rows": "t.multinomial(q, 2)",
    "dropout": "t.nn.functional.dropout(a, 0.3)",
}
DISTRIBUTIONS = {
    "Bernoulli": "p1",
    "Beta": "a1, b1",
    "Binomial": "20, p1",
    "Categorical": "w",
    "Cauchy": "a1, b1",
    "Chi2": "c1",
    "ContinuousBernoulli": "p1",
    "Dirichlet": "w",
    "Exponential": "a1",
    "FisherSnedecor": "a1, c1",
    "Gamma": "a1, b1",
    "GeneralizedPareto": "a1, b1, p1",
    "Geometric": "p1",
    "Gumbel": "a1, b1",
    "HalfCauchy": "a1",
    "HalfNormal": "a1",
    "InverseGamma": "a1, b1",
    "Kumaraswamy": "a1, b1",
    "LKJCholesky": "3, a1",
    "Laplace": "a1, b1",
    "LogNormal": "a1, b1",
    "LogisticNormal": "w, w",
    "LowRankMultivariateNormal": "w, t.ones(4, 2), w",
    "Multinomial": "20, w",
    "MultivariateNormal": "w, t.eye(4)",
    "NegativeBinomial": "20, p1",
    "Normal": "a1, b1",
    "OneHotCategorical": "w",
    "OneHotCategoricalStraightThrough": "w",
    "Pareto": "a1, b1",
    "Poisson": "c1",
    "RelaxedBernoulli": "b1, p1",
    "RelaxedOneHotCategorical": "b1, w",
    "StudentT": "c1",
    "Uniform": "a1, c1",
    "VonMises": "a1, b1",
    "Weibull": "a1, b1",
    "Wishart": "t.tensor(6.0), t.eye(4)",
    "MixtureSameFamily": "D.Categorical(w), D.Normal(w, w)",
    "Independent": "D.Normal(w, w), 1",
    "TransformedDistribution": "D.Normal(a1, b1), [D.transforms.SigmoidTransform()]",
}


def _names(t: Any, n: int) -> dict[str, Any]:
    """What names in expressions stand for, in framework `t`."""
    w = t.tensor([0.1, 0.4, 0.2, 0.3])
    return {
        "t": t, "D": t.distributions, "n": n, "w": w, "q": w.repeat(max(n // 4, 1), 1),
        "a": t.full((n,), 1.5), "b": t.full((n,), 2.0), "c": t.full((n,), 30.0),
        "d": t.full((n,), 30.0, dtype=t.float64), "h": t.full((n,), 1000.0),
        "e": t.empty(n), "p": t.full((n,), 0.3),
        "a1": t.tensor(1.5), "b1": t.tensor(2.0), "c1": t.tensor(30.0), "p1": t.tensor(0.3),
    }  # fmt: skip


def _call(t: Any, name: str, n: int) -> Callable[[], object]:
    """A function that draws row `name` at size `n`."""
    names = _names(t, n)
    if name in FUNCTIONS:
        return eval(f"lambda: {FUNCTIONS[name]}", names)  # type: ignore[no-any-return]
    made = eval(f"D.{name}({DISTRIBUTIONS[name]})", names)
    return lambda: made.sample((n,))


def _missing() -> list[str]:
    """Distributions that no row draws and that can be drawn."""
    base = ad.distributions.Distribution
    kinds = {k for k in ad.distributions.__all__ if isinstance(getattr(ad.distributions, k), type)}
    kinds = {k for k in kinds if issubclass(getattr(ad.distributions, k), base)}
    return sorted(kinds - set(DISTRIBUTIONS) - {"Distribution", "ExponentialFamily"})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sampling")
    parser.add_argument("--rows", default="")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ad.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.follow:
        ad.random.follow_torch()
    rows = [row for row in (*FUNCTIONS, *DISTRIBUTIONS) if re.search(options.rows, row)]
    table = []
    for row in rows:
        cells = []
        for n in options.sizes:
            ours, theirs = (_call(t, row, n) for t in (ad, torch))
            found = compare(ours, theirs, options.rounds, 0.005)
            cells.append((1 / found.ratio, found.ours, found.theirs))
        table.append((row, cells))
        print(end=".", flush=True)
    print("\nour time / PyTorch's; in brackets ours in microseconds")
    print(f"{'':34s}" + "".join(f"{n:>19,}" for n in options.sizes))
    for row, cells in sorted(table, key=lambda each: -max(c[0] for c in each[1])):
        print(f"{row:34s}" + "".join(f"{c[0]:8.2f} ({c[1]:8.0f})" for c in cells))
    over = [row for row, cells in table if max(c[0] for c in cells) > 2]
    print(f"rows above 2: {len(over)} of {len(table)}; not drawn: {_missing() or 'none'}")


if __name__ == "__main__":
    main()
