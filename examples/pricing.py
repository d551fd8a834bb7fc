"""A book of options on 300 stocks: one quote moves, and price and sensitivities are refreshed.

Every stock has a spot price and a volatility, 600 quotes in all, and 20 options, priced by the
formula of Black and Scholes (1973). The value of the book and its deltas and vegas are nodes of one
graph: a quote that moves reruns the options of its stock, the sums above them, and the gradients
that depend on it. Two eager programs compute all of it again: one stock after another, as the graph
was written, and as one tensor of all stocks and options.

Expected: gain over eager at least 5
Run: python examples/pricing.py
"""

import math
import os
from functools import partial
from typing import Any

import numpy as np
from interleaved import gain

import adjoint as ad

STOCKS = 12 if os.environ.get("ADJOINT_SMOKE") else 300
OPTIONS = 20
RATE = 0.03
generator = np.random.default_rng(0)
SPOTS = generator.uniform(50, 150, STOCKS)
VOLATILITIES = generator.uniform(0.1, 0.5, STOCKS)
STRIKES = ad.tensor(generator.uniform(0.6, 1.4, (STOCKS, OPTIONS)) * SPOTS[:, None])
YEARS = ad.tensor(generator.uniform(0.1, 3.0, (STOCKS, OPTIONS)))
AMOUNTS = ad.tensor(generator.normal(0, 10, (STOCKS, OPTIONS)))


def normal_cdf(x):
    return 0.5 * (1 + ad.erf(x / math.sqrt(2)))


def calls(spot, volatility, strikes, years, amounts):
    """The value of European call options, elementwise."""
    spread = volatility * ad.sqrt(years)
    d1 = (ad.log(spot / strikes) + (RATE + volatility * volatility / 2) * years) / spread
    discounted = strikes * ad.exp(-RATE * years)
    return amounts * (spot * normal_cdf(d1) - discounted * normal_cdf(d1 - spread))


def total(values):
    """Their sum as a tree, in which one changed value touches few nodes."""
    while len(values) > 1:
        odd = values[len(values) & ~1 :]
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]


def book_value(spots, volatilities):
    """The value of the whole book from one tensor for each quote."""
    rows = zip(spots, volatilities, STRIKES, YEARS, AMOUNTS, strict=True)
    return total([calls(*row).sum() for row in rows])


class Book:
    """The book as a graph: quotes by name, its value, and deltas and vegas as nodes."""

    def __init__(self, spots, volatilities):
        self.graph = ad.Graph()
        self.spots, self.volatilities = (
            [self.graph.input(x, f"{what}{i}", requires_grad=True) for i, x in enumerate(values)]
            for what, values in (("spot", spots), ("volatility", volatilities))
        )
        self.value = book_value(self.spots, self.volatilities)
        quotes = [*self.spots, *self.volatilities]
        self.sensitivities = ad.autograd.grad(self.value, quotes)

    def read(self) -> tuple[Any, Any]:
        """The value, and all sensitivities as one array."""
        self.graph.forward(self.value, *self.sensitivities)
        return self.value.item(), np.array([g.item() for g in self.sensitivities])

    def refresh(self):
        """Bring value and sensitivities up to date."""
        self.graph.forward(self.value, *self.sensitivities)


def eagerly(spots, volatilities):
    """Value and sensitivities, one stock after another."""
    quotes = [ad.tensor(x, requires_grad=True) for x in (*spots, *volatilities)]
    value = book_value(quotes[: len(spots)], quotes[len(spots) :])
    gradients = ad.autograd.grad(value, quotes)
    return value.item(), np.array([g.item() for g in gradients])


def vectorized(spots, volatilities):
    """Value and sensitivities, all stocks in one tensor."""
    s, v = (ad.tensor(x[:, None], requires_grad=True) for x in (spots, volatilities))
    value = calls(s, v, STRIKES, YEARS, AMOUNTS).sum()
    gradients = ad.autograd.grad(value, (s, v))
    return value.item(), np.concatenate([g.numpy()[:, 0] for g in gradients])


def main():
    book = Book(SPOTS, VOLATILITIES)
    book.refresh()
    spots = SPOTS.copy()
    stats = book.graph.stats()

    spots[7] += 1
    book.spots[7].set(spots[7])
    with book.graph.events() as log:
        value, sensitivities = book.read()
    print(f"{2 * STOCKS} quotes, {STOCKS * OPTIONS} options, {stats['nodes']} nodes")
    print(f"one spot moves: {len(log.ran)} nodes run in {log.total_time * 1e6:.0f} microseconds")
    for program in (eagerly, vectorized):
        expected, gradients = program(spots, VOLATILITIES)
        error = max(
            abs(value / expected - 1),
            np.abs(sensitivities - gradients).max() / np.abs(gradients).max(),
        )
        print(f"largest relative difference from {program.__name__}: {error:.1e}")

    def tick():
        spots[7] += 0.01
        book.spots[7].set(spots[7])
        book.refresh()

    def tick_one():
        spots[7] += 0.01
        book.spots[7].set(spots[7])
        book.graph.forward(book.value, book.sensitivities[7], book.sensitivities[7 + STOCKS])

    one_by_one, as_tensor = (partial(f, spots, VOLATILITIES) for f in (eagerly, vectorized))
    print(f"gain over eager: {gain(tick, one_by_one, 5):.2f}")
    print(f"gain over eager with all stocks in one tensor: {gain(tick, as_tensor, calls=3):.2f}")
    print(f"the same, asking for that stock's nodes only: {gain(tick_one, as_tensor, calls=3):.2f}")


if __name__ == "__main__":
    main()
