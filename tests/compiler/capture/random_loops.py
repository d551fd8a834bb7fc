"""Random loops: scans and while loops over random bodies, nested, of any length and carry."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import adjoint as ad

F = ad.nn.functional
SHAPES = [(), (1,), (3,), (15,), (4, 4), (2, 3), (0, 3), (67,), (5, 1, 2)]
LENGTHS = [0, 1, 1, 2, 3, 7, 15, 40]

UNARY: list[Callable[[Any], Any]] = [
    lambda x: x.tanh(),
    lambda x: x.sin() * 0.5,
    lambda x: x * 0.75 + 0.25,
    lambda x: -x,
    lambda x: x.sigmoid(),
    lambda x: x - x.mean() if x.numel() else x,
    lambda x: x.sum().tanh() + x,
    lambda x: x.clip(-0.5, 1.0),
    lambda x: x.flip(0) if x.ndim else x,
    lambda x: ad.where(x > 0.1, x, x * 0.1),
    lambda x: F.softmax(x, -1) if x.ndim and x.shape[-1] else x,
    lambda x: ad.cat([x[1:], x[:1]]) if x.ndim else x,
    lambda x: x.T.contiguous() if x.ndim == 2 and x.shape[0] == x.shape[1] else x,
    lambda x: x.T if x.ndim == 2 and x.shape[0] == x.shape[1] else x,
    lambda x: x.reshape(-1).cumsum(0).reshape(x.shape) * 0.1,
    lambda x: x.reshape(-1).sort()[0].reshape(x.shape),  # computed by NumPy in some cases
    lambda x: x.detach() * 0.5,
    lambda x: x.double().to(x.dtype),
]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: (x - y) * 0.5,
    lambda x, y: x * y.tanh(),
    lambda x, y: ad.maximum(x, y),
    lambda x, y: x / (1.5 + y * y),
    lambda x, y: x @ y * 0.3 if x.ndim == 2 and x.shape[0] == x.shape[1] else x + 0.5 * y,
    lambda x, y: ad.where(y > x, x, y),
]


class Body(NamedTuple):
    """Ops of a body: what they are applied to is chosen among what there is."""

    steps: list[tuple[Any, ...]]
    ends: list[int]  # numbers of what is carried on, then of the result

    def __call__(self, given: list[Any], end: int) -> list[Any]:
        """Values of the ends, after the first `end` of the steps."""
        known = list(given)
        for function, *places in self.steps[:end]:
            known.append(function(*(known[k % len(known)] for k in places)))
        return [known[k % len(known)] for k in self.ends]


class RandomLoop:
    """A function of tensors with loops in it, made from a seed."""

    def __init__(self, seed: int) -> None:
        draw = self.draw = random.Random(seed)
        self.shape = draw.choice(SHAPES)
        self.dtype = draw.choice([ad.float32, ad.float32, ad.float64])
        self.length = draw.choice(LENGTHS)
        self.reverse = draw.random() < 0.4
        self.kind = draw.choice(["scan", "scan", "while"])
        self.carried = draw.choice([1, 2, 3])
        self.inner = draw.choice([None] * 4 + ["scan", "while", "cond"])
        self.counts = draw.random() < 0.5  # a carried integer, read by the body
        self.narrow = draw.random() < 0.2  # a carried float16
        self.gradients = draw.random() < 0.7
        self.body, self.nested = self._body(), self._body()
        self.options: dict[str, Any] = {}  # of a scan

    def _body(self) -> Body:
        draw = self.draw
        steps: list[tuple[Any, ...]] = []
        for _ in range(draw.randrange(1, 7)):
            if draw.random() < 0.5:
                steps.append((draw.choice(UNARY), draw.randrange(20)))
            else:
                steps.append((draw.choice(BINARY), draw.randrange(20), draw.randrange(20)))
        return Body(steps, [draw.randrange(20) for _ in range(self.carried + 1)])

    def arguments(self, seed: int) -> list[Any]:
        """Initial values, rows and weights."""
        ad.manual_seed(seed)
        shape, kind = self.shape, self.dtype
        first = [ad.randn(shape, dtype=kind) for _ in range(self.carried)]
        rows = ad.randn((self.length, *shape), dtype=kind)
        weights = [ad.randn(shape, dtype=kind, requires_grad=self.gradients) for _ in range(2)]
        return [*first, rows, *weights]

    def _within(self, known: list[Any]) -> Any:
        """The result of what is nested, of the shape of all."""
        x, w = known[0], known[-1]
        ends = len(self.nested.steps)
        if self.inner == "scan":
            rows = ad.stack([x, w, x * 0.5])
            return ad.scan(lambda c, r: (self.nested([c, r, w], ends)[0], c), x, rows)[0]
        if self.inner == "while":
            turn = lambda n, c: (n + 1, self.nested([c, w], ends)[0])  # noqa: E731
            return ad.while_loop(lambda n, c: n < 3, turn, (ad.tensor(0), x))[1]
        return ad.cond(x.sum() > 0, lambda c: self.nested([c, w], ends)[0], lambda c: c * 0.5, (x,))

    def turn(self, carry: dict[str, Any], row: Any, weights: list[Any]) -> tuple[Any, Any]:
        """The next carry, and a result."""
        known = [*carry["x"], *weights]
        if row is not None:
            known.append(row)
        if self.counts:
            known.append(known[0] * (carry["n"] % 3 == 1).to(self.dtype))
        if self.narrow:
            known.append(known[0] + carry["h"].to(self.dtype) * 0.1)
        if self.inner is not None:
            known.append(self._within(known))
        *ends, result = self.body(known, len(self.body.steps))
        after = {"x": ends, "n": carry["n"] + 1}
        if self.narrow:
            after["h"] = carry["h"] * 0.5 + ends[0].sum().to(ad.float16)
        return after, result

    def __call__(self, *given: Any) -> list[Any]:
        """Results, and the gradients of the weights."""
        first, rows, weights = given[: self.carried], given[-3], list(given[-2:])
        carry = {"x": list(first), "n": ad.tensor(0)}
        if self.narrow:
            carry["h"] = ad.zeros((), dtype=ad.float16)
        if self.kind == "scan":
            carry, found = ad.scan(
                lambda c, row: self.turn(c, row, weights), carry, rows, reverse=self.reverse,
                **self.options,
            )  # fmt: skip
        else:
            [carry] = ad.while_loop(
                lambda c: c["n"] < self.length,
                lambda c: (self.turn(c, None, weights)[0],),
                (carry,),
            )
            found = carry["n"]
        results = [*carry["x"], carry["n"], *([carry["h"]] if self.narrow else []), found]
        if self.gradients:
            floats = [y for y in results if y.dtype.is_floating_point and y.requires_grad]
            if floats:
                total = sum((y.double() ** 2).sum() for y in floats)
                results += ad.autograd.grad(total, weights, allow_unused=True)
        return [y.detach() if y is not None else ad.zeros(()) for y in results]
