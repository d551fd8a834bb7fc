"""Programs of many small steps, each written once for our loops, JAX's, and PyTorch's Python loop.

`python -m benchmarks.loop_programs ours matrix` is a process that prints what it measured whenever
it is asked to: JAX may be in an environment of its own, in which there is nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Run = Callable[[], Any]


class Ours:
    """Loops of a compiled function."""

    def __init__(self) -> None:
        import adjoint

        self.lib, self.compile = adjoint, adjoint.compile  # which imports the compiler
        self.linalg = adjoint.linalg
        self.cat = adjoint.cat

    def tensor(self, x: Any) -> Any:
        """The array in the library's form."""
        return self.lib.tensor(x)

    def scan(self, f: Any, init: Any, xs: Any) -> Any:
        """The library's scan."""
        return self.lib.scan(f, init, xs)

    def while_loop(self, test: Any, body: Any, init: Any) -> Any:
        """The library's loop."""
        return self.lib.while_loop(lambda *c: test(c), lambda *c: body(c), init)

    def roll(self, x: Any, by: int) -> Any:
        """The elements, moved around."""
        return self.lib.roll(x, by, 0)

    def ready(self, f: Any, given: Sequence[Any]) -> Run:
        """What calls a function of arrays."""
        compiled = self.compile(f)
        return lambda: compiled(*given)

    def gradient(self, f: Any, given: Sequence[Any], count: int) -> Run:
        """What computes a loss and its gradients by the first arguments."""
        leaves = [x.requires_grad_() for x in given[:count]]
        rest = given[count:]
        grad = self.lib.autograd.grad

        def step(*rest: Any) -> Any:
            loss = f(*leaves, *rest)
            return loss, *grad(loss, leaves)

        compiled = self.wrap(step)
        return lambda: compiled(*rest)

    def wrap(self, step: Any) -> Any:
        """The step as the library runs it."""
        return self.compile(step)


class Torch(Ours):
    """Python's loops over PyTorch."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 2))
        self.lib, self.linalg, self.cat = torch, torch.linalg, torch.cat

    def tensor(self, x: Any) -> Any:
        """The array in the library's form."""
        return self.lib.tensor(x)

    def scan(self, f: Any, init: Any, xs: Any) -> Any:
        """A loop."""
        found = []
        for x in xs:
            init, y = f(init, x)
            found.append(y)
        return init, self.lib.stack(found)

    def while_loop(self, test: Any, body: Any, init: Any) -> Any:
        """A loop."""
        carry = init
        while test(carry):
            carry = body(carry)
        return carry

    def ready(self, f: Any, given: Sequence[Any]) -> Run:
        """What calls a function of arrays."""

        def run() -> Any:
            with self.lib.no_grad():
                return f(*given)

        return run

    def wrap(self, step: Any) -> Any:
        """The step itself."""
        return step


class Jax(Ours):
    """Loops of a jitted function."""

    def __init__(self) -> None:
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax, self.lib = jax, jax.numpy
        self.linalg, self.cat = jax.numpy.linalg, jax.numpy.concatenate

    def tensor(self, x: Any) -> Any:
        """The array in the library's form."""
        return self.lib.asarray(x)

    def scan(self, f: Any, init: Any, xs: Any) -> Any:
        """The library's scan."""
        return self.jax.lax.scan(f, init, xs)

    def while_loop(self, test: Any, body: Any, init: Any) -> Any:
        """The library's loop."""
        return self.jax.lax.while_loop(test, body, init)

    def roll(self, x: Any, by: int) -> Any:
        """The elements, moved around."""
        return self.lib.roll(x, by)

    def ready(self, f: Any, given: Sequence[Any]) -> Run:
        """What calls a function of arrays."""
        jitted = self.jax.jit(f)
        return lambda: self.jax.block_until_ready(jitted(*given))

    def gradient(self, f: Any, given: Sequence[Any], count: int) -> Run:
        """What computes a loss and its gradients by the first arguments."""
        jitted = self.jax.jit(self.jax.value_and_grad(f, argnums=tuple(range(count))))

        def run() -> Any:
            loss, gradients = self.jax.block_until_ready(jitted(*given))
            return loss, *gradients

        return run


LIBRARIES = {"ours": Ours, "jax": Jax, "torch": Torch}
draw = np.random.default_rng(0)


def matrix(t: Any) -> tuple[Run, int]:
    """10,000 steps of a 3x3 carry times a 3x3 matrix, in float64."""
    q = np.linalg.qr(draw.standard_normal((3, 3)))[0]

    def f(c: Any, m: Any, xs: Any) -> Any:
        return t.scan(lambda c, x: (c @ m, x), c, xs)[0]

    return t.ready(f, [t.tensor(x) for x in (np.eye(3), q, np.zeros(10_000))]), 10_000


def _pendulums(t: Any) -> tuple[Any, list[Any]]:
    def force(a: Any, g: Any, k: Any) -> Any:
        zero = a[:1] * 0
        right, left = t.cat([a[1:], zero]), t.cat([zero, a[:-1]])
        return -g * t.lib.sin(a) + k * (right - 2 * a + left)

    def f(a: Any, v: Any, g: Any, k: Any, xs: Any) -> Any:
        h = 0.01

        def turn(carry: Any, x: Any) -> Any:
            a, v = carry
            a1, v1 = v, force(a, g, k)
            a2, v2 = v + h / 2 * v1, force(a + h / 2 * a1, g, k)
            a3, v3 = v + h / 2 * v2, force(a + h / 2 * a2, g, k)
            a4, v4 = v + h * v3, force(a + h * a3, g, k)
            after = a + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
            return (after, v + h / 6 * (v1 + 2 * v2 + 2 * v3 + v4)), x

        a, v = t.scan(turn, (a, v), xs)[0]
        return (a * a).sum() + (v * v).sum()

    starts = [draw.standard_normal(8), np.zeros(8), 1 + draw.random(8), 2 + draw.random(8)]
    return f, [t.tensor(x) for x in (*starts, np.zeros(2_000))]


def pendulums(t: Any) -> tuple[Run, int]:
    """Runge-Kutta 4, a chain of 8 pendulums, 2,000 steps, in float64."""
    f, given = _pendulums(t)
    return t.ready(f, given), 2_000


def pendulums_gradient(t: Any) -> tuple[Run, int]:
    """Its gradient by state and parameters."""
    f, given = _pendulums(t)
    return t.gradient(f, given, 4), 2_000


def ring(t: Any) -> tuple[Run, int]:
    """The gradient through 200 steps of a ring of 60 numbers (Lorenz 1996), in float64."""

    def f(c: Any, force: Any, xs: Any) -> Any:
        def turn(c: Any, x: Any) -> Any:
            change = (t.roll(c, -1) - t.roll(c, 2)) * t.roll(c, 1) - c + force
            return c + 0.01 * change, x

        c, _ = t.scan(turn, c, xs)
        return (c * c).sum()

    starts = 8 + draw.standard_normal(60), np.array(8.0), np.zeros(200)
    return t.gradient(f, [t.tensor(x) for x in starts], 2), 200


def kalman(t: Any) -> tuple[Run, int]:
    """A Kalman filter of 4 states and 2 observed ones, 500 updates: the gradient of the likelihood
    by the dynamics and both noises, in float64.
    """

    def f(a: Any, q: Any, r: Any, h: Any, seen: Any) -> Any:
        def turn(carry: Any, y: Any) -> Any:
            m, p, total = carry
            m, p = a @ m, a @ p @ a.T + q @ q.T
            s = h @ p @ h.T + r @ r.T
            error = y - h @ m
            gain = t.linalg.solve(s, h @ p).T
            likely = t.linalg.slogdet(s)[1] + error @ t.linalg.solve(s, error)
            return (m + gain @ error, p - gain @ h @ p, total + likely), y

        first = h[0] * 0, q * 0 + p0, (h * 0).sum()
        return t.scan(turn, first, seen)[0][2]

    p0 = t.tensor(np.eye(4))
    turned = np.linalg.qr(draw.standard_normal((4, 4)))[0] * 0.95
    given = (
        turned, np.eye(4) * 0.3, np.eye(2) * 0.5, draw.standard_normal((2, 4)),
        draw.standard_normal((500, 2)),
    )  # fmt: skip
    return t.gradient(f, [t.tensor(x) for x in given], 3), 500


def newton(t: Any) -> tuple[Run, int]:
    """Damped Newton steps on 16 unknowns (Kepler's equation), while_loop, in float64."""

    def f(mean: Any, e: Any) -> Any:
        def left(x: Any) -> Any:
            return x - e * t.lib.sin(x) - mean

        def body(carry: Any) -> Any:
            n, x = carry
            return n + 1, x - 0.03 * left(x) / (1 - e * t.lib.cos(x))

        return t.while_loop(
            lambda carry: abs(left(carry[1])).max() > 1e-9, body, (t.tensor(0), mean)
        )

    given = [t.tensor(x) for x in (draw.random(16) * 3, draw.random(16) * 0.9)]
    run = t.ready(f, given)
    return run, int(run()[0])


def cell(t: Any) -> tuple[Run, int]:
    """A tanh cell of 64 units, batch 1, 1,000 steps: the gradient by its weights, in float32."""

    def f(w: Any, u: Any, b: Any, h: Any, xs: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            h = t.lib.tanh(w @ h + u @ x + b)
            return h, h

        _, ys = t.scan(turn, h, xs)
        return (ys * ys).mean()

    given = (
        draw.standard_normal((64, 64)) / 8, draw.standard_normal((64, 64)) / 8, np.zeros(64),
        np.zeros(64), draw.standard_normal((1000, 64)),
    )  # fmt: skip
    return t.gradient(f, [t.tensor(x.astype(np.float32)) for x in given], 3), 1_000


def lorenz(t: Any) -> tuple[Run, int]:
    """Lorenz's equations by Heun's method with an adaptive step, while_loop, in float64."""

    def slope(y: Any) -> Any:
        a, b, c = y[:1], y[1:2], y[2:]
        return t.cat([10.0 * (b - a), a * (28.0 - c) - b, a * b - 8 / 3 * c])

    def f(y: Any, end: Any) -> Any:
        def body(carry: Any) -> Any:
            n, time, h, y = carry
            first = slope(y)
            coarse = y + h * first
            fine = y + h / 2 * (first + slope(coarse))
            error = abs(fine - coarse).max() / 1e-3
            accept = error < 1
            after = t.lib.where(accept, time + h, time), t.lib.where(accept, fine, y)
            return n + 1, after[0], h * (0.9 / (error + 1e-9) ** 0.5).clip(0.2, 2.0), after[1]

        start = t.tensor(0), end * 0, end * 0 + 1e-3, y
        n, _, _, y = t.while_loop(lambda carry: carry[1] < end, body, start)
        return n, y

    run = t.ready(f, [t.tensor(np.array([1.0, 1.0, 20.0])), t.tensor(np.array(3.0))])
    return run, int(run()[0])


def neural_ode(t: Any) -> tuple[Run, int]:
    """A network 2-32-32-2 as a differential equation, 200 steps by Runge-Kutta 4: the gradient by
    its weights, in float32.
    """

    def f(a: Any, b: Any, c: Any, y: Any, xs: Any) -> Any:
        def slope(y: Any) -> Any:
            return c @ t.lib.tanh(b @ t.lib.tanh(a @ y))

        def turn(y: Any, x: Any) -> Any:
            h = 0.02
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), x

        y, _ = t.scan(turn, y, xs)
        return (y * y).sum()

    shapes = (32, 2), (32, 32), (2, 32), (2,), (200,)
    given = [draw.standard_normal(shape) / max(shape) ** 0.5 for shape in shapes]
    return t.gradient(f, [t.tensor(x.astype(np.float32)) for x in given], 3), 200


def hidden_markov(t: Any) -> tuple[Run, int]:
    """The forward algorithm of a hidden Markov model of 32 states, 1,000 observations: the gradient
    by the transitions, in float64.
    """

    def f(moves: Any, first: Any, seen: Any) -> Any:
        def turn(carry: Any, likely: Any) -> Any:
            p, total = carry
            p = (p @ moves) * likely
            size = p.sum()
            return (p / size, total + t.lib.log(size)), size

        return t.scan(turn, (first, first.sum() * 0), seen)[0][1]

    moves = draw.random((32, 32))
    given = moves / moves.sum(1, keepdims=True), np.full(32, 1 / 32), draw.random((1000, 32))
    return t.gradient(f, [t.tensor(x) for x in given], 1), 1_000


def gru(t: Any) -> tuple[Run, int]:
    """A GRU cell of 32 units, batch 1, 500 steps: the gradient by its weights, in float32."""

    def f(w: Any, u: Any, v: Any, h: Any, xs: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            gates = 1 / (1 + t.lib.exp(-(w @ h + x[:64])))
            reset, keep = gates[:32], gates[32:]
            new = t.lib.tanh(u @ x[64:] + reset * (v @ h))
            h = keep * h + (1 - keep) * new
            return h, h

        _, ys = t.scan(turn, h, xs)
        return (ys * ys).mean()

    given = (
        draw.standard_normal((64, 32)) / 6, draw.standard_normal((32, 32)) / 6,
        draw.standard_normal((32, 32)) / 6, np.zeros(32), draw.standard_normal((500, 96)),
    )  # fmt: skip
    return t.gradient(f, [t.tensor(x.astype(np.float32)) for x in given], 3), 500


def options(t: Any) -> tuple[Run, int]:
    """Black-Scholes by Monte Carlo, 64 paths of 252 steps: the price of an option and its Greeks,
    in float64.
    """

    def f(spot: Any, sigma: Any, rate: Any, paths: Any, noise: Any) -> Any:
        dt = 1 / 252

        def turn(s: Any, z: Any) -> Any:
            drift = (rate - 0.5 * sigma * sigma) * dt
            return s * t.lib.exp(drift + sigma * dt**0.5 * z), z

        s, _ = t.scan(turn, paths * spot, noise)
        return ((s - 100.0).clip(0.0) * t.lib.exp(-rate)).mean()

    given = 100.0, 0.2, 0.03, np.ones(64), draw.standard_normal((252, 64))
    return t.gradient(f, [t.tensor(np.asarray(x)) for x in given], 3), 252


def bodies(t: Any) -> tuple[Run, int]:
    """Sixteen bodies that attract each other, 500 steps, in float32."""

    def f(x: Any, v: Any, xs: Any) -> Any:
        def turn(carry: Any, unused: Any) -> Any:
            x, v = carry
            apart = x.reshape(16, 1, 3) - x.reshape(1, 16, 3)
            near = ((apart * apart).sum(2) + 0.1) ** -1.5
            v = v - 0.001 * (apart * near.reshape(16, 16, 1)).sum(1)
            return (x + 0.001 * v, v), unused

        return t.scan(turn, (x, v), xs)[0]

    given = draw.standard_normal((16, 3)), draw.standard_normal((16, 3)), np.zeros(500)
    return t.ready(f, [t.tensor(x.astype(np.float32)) for x in given]), 500


ROWS = {
    each.__name__: each
    for each in (
        matrix, pendulums, pendulums_gradient, ring, kalman, newton, cell, lorenz, neural_ode,
        hidden_markov, gru, options, bodies,
    )
}  # fmt: skip


def main(library: str, row: str) -> None:
    """Print the seconds of the first call, the number of turns and the sums of all results; then
    the microseconds a turn for each line that is read.
    """
    t = LIBRARIES[library]()
    began = time.perf_counter()
    run, turns = ROWS[row](t)
    found = run()
    first = time.perf_counter() - began
    arrays = [np.asarray(x.detach() if library != "jax" else x) for x in found] if isinstance(
        found, tuple
    ) else [np.asarray(found.detach() if library != "jax" else found)]  # fmt: skip
    said = {"first": first, "turns": turns, "sums": [float(x.sum()) for x in arrays]}
    print(json.dumps(said), flush=True)
    begin = time.perf_counter()
    run()
    calls = max(1, int(0.1 / (time.perf_counter() - begin)))
    for _ in sys.stdin:
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        print((time.perf_counter() - begin) / calls / turns * 1e6, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
