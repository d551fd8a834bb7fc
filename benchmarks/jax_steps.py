"""Training steps in JAX, each one jitted function of all its state, which it takes over."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax import lax

Run = Callable[[], object]
_each = jax.tree_util.tree_map


def _jnp(arrays: Sequence[Any]) -> list[Any]:
    return [jnp.asarray(x) for x in arrays]


class _Weights:
    """Draws weights as layers begin with them."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        return jnp.asarray(self.draw.standard_normal(shape) * scale, jnp.float32)

    def linear(self, inputs: int, outputs: int) -> Any:
        return self.normal(outputs, inputs, scale=inputs**-0.5), jnp.zeros(outputs)


def _trained(loss_of: Any, weights: Any, change: Any, states: int, batch: Sequence[Any]) -> Run:
    """Runs a step: `loss_of(weights, *batch)` is differentiated, and `change(count, p, g, *states)`
    gives each parameter and its states anew.
    """

    def step(state: Any, *batch: Any) -> Any:
        weights, kept, count = state
        loss, gradients = jax.value_and_grad(loss_of)(weights, *batch)
        count = count + 1
        leaves, form = jax.tree_util.tree_flatten(weights)
        gradients = jax.tree_util.tree_leaves(gradients)
        found = [
            change(count, p, g, *each) for p, g, each in zip(leaves, gradients, kept, strict=True)
        ]
        weights = jax.tree_util.tree_unflatten(form, [each[0] for each in found])
        return (weights, [each[1:] for each in found], count), loss

    jitted = jax.jit(step, donate_argnums=0)
    kept = [
        tuple(jnp.zeros_like(p) for _ in range(states)) for p in jax.tree_util.tree_leaves(weights)
    ]
    state = [(weights, kept, jnp.zeros(()))]
    given = _jnp(batch)

    def run() -> None:
        state[0], loss = jitted(state[0], *given)
        loss.block_until_ready()

    return run


def adam(rate: float, decay: float = 0.0) -> Any:
    """AdamW; Adam without decay."""

    def change(count: Any, p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p * (1 - rate * decay) if decay else p
        scaled = rate / (1 - 0.9**count)
        return p - scaled * m / (jnp.sqrt(v) / jnp.sqrt(1 - 0.999**count) + 1e-8), m, v

    return change


def momentum(rate: float) -> Any:
    """SGD with momentum 0.9."""

    def change(count: Any, p: Any, g: Any, m: Any) -> Any:
        m = 0.9 * m + g
        return p - rate * m, m

    return change


def cross_entropy(x: Any, y: Any) -> Any:
    """The mean over rows."""
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()


def _linear(w: Any, x: Any) -> Any:
    return x @ w[0].T + w[1]


def mlp(sizes: Sequence[int], x: Any, y: Any, batches: int = 1) -> Run:
    """Fully connected layers with ReLU, Adam; the gradients are those of several batches."""
    make = _Weights()
    weights = [make.linear(i, o) for i, o in itertools.pairwise(sizes)]

    def loss_of_one(weights: Any, x: Any, y: Any) -> Any:
        for w in weights[:-1]:
            x = jax.nn.relu(_linear(w, x))
        return cross_entropy(_linear(weights[-1], x), y)

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        parts = zip(jnp.split(x, batches), jnp.split(y, batches), strict=True)
        return sum(loss_of_one(weights, *part) for part in parts) / batches

    return _trained(loss_of, weights, adam(1e-3), 2, (x, y))


def pointwise(x: Any) -> Run:
    """A chain of functions of each element, its sum and gradient."""

    def total(x: Any) -> Any:
        return (jnp.tanh(x) * jax.nn.sigmoid(x) + jnp.exp(-x * x) * jnp.sin(x)).sum()

    jitted = jax.jit(jax.value_and_grad(total))
    given = jnp.asarray(x)
    return lambda: jax.block_until_ready(jitted(given))


def products(pairs: Sequence[tuple[Any, Any]]) -> Run:
    """Products of pairs, their sum and its gradients."""

    def total(pairs: Any) -> Any:
        return sum((a @ b).sum() for a, b in pairs)

    jitted = jax.jit(jax.value_and_grad(total))
    given = [tuple(_jnp(each)) for each in pairs]
    return lambda: jax.block_until_ready(jitted(given))


def chain(x: Any, weights: Sequence[Any]) -> Run:
    """Products one after another, the sum and its gradients."""

    def total(x: Any, weights: Any) -> Any:
        for w in weights:
            x = x @ w
        return x.sum()

    jitted = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))
    given = jnp.asarray(x), _jnp(weights)
    return lambda: jax.block_until_ready(jitted(*given))


def lstm(x: Any, y: Any, hidden: int, classes: int) -> Run:
    """An LSTM over a batch of sequences and a layer on its last output, Adam."""
    make = _Weights()
    inputs = x.shape[2]
    weights = (
        make.normal(4 * hidden, inputs, scale=hidden**-0.5),
        make.normal(4 * hidden, hidden, scale=hidden**-0.5),
        jnp.zeros(4 * hidden),
        jnp.zeros(4 * hidden),
        make.linear(hidden, classes),
    )

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        w_ih, w_hh, b_ih, b_hh, decoder = weights
        before = x.transpose(1, 0, 2) @ w_ih.T + (b_ih + b_hh)

        def cell(carry: Any, gates: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(gates + h @ w_hh.T, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((x.shape[0], hidden))
        (h, _), _ = lax.scan(cell, (zeros, zeros), before)
        return cross_entropy(_linear(decoder, h), y)

    return _trained(loss_of, weights, adam(1e-3), 2, (x, y))


def _norm(w: Any, x: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    scale = lax.rsqrt((centred * centred).mean(axes, keepdims=True) + 1e-5)
    return centred * scale * w[0].reshape(shape) + w[1].reshape(shape)


def gpt(x: Any, y: Any, words: int, width: int, heads: int, layers: int) -> Run:
    """A GPT, AdamW."""
    make = _Weights()
    ones = lambda: (jnp.ones(width), jnp.zeros(width))  # noqa: E731
    block = lambda: {  # noqa: E731
        "norm1": ones(), "norm2": ones(), "qkv": make.linear(width, 3 * width),
        "proj": make.linear(width, width), "up": make.linear(width, 4 * width),
        "down": make.linear(4 * width, width),
    }  # fmt: skip
    weights = {
        "tokens": make.normal(words, width),
        "places": make.normal(x.shape[1], width),
        "blocks": [block() for _ in range(layers)],
        "norm": ones(),
        "head": make.linear(width, words),
    }
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        b, n = x.shape
        h = weights["tokens"][x] + weights["places"]
        for w in weights["blocks"]:
            parts = jnp.split(_linear(w["qkv"], _norm(w["norm1"], h, (-1,), (width,))), 3, axis=-1)
            q, k, v = (
                part.reshape(b, n, heads, width // heads).transpose(0, 2, 1, 3) for part in parts
            )
            scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
            shares = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
            h = h + _linear(w["proj"], (shares @ v).transpose(0, 2, 1, 3).reshape(b, n, width))
            inner = _linear(w["up"], _norm(w["norm2"], h, (-1,), (width,)))
            h = h + _linear(w["down"], jax.nn.gelu(inner, approximate=False))
        out = _linear(weights["head"], _norm(weights["norm"], h, (-1,), (width,)))
        return cross_entropy(out.reshape(-1, words), y)

    return _trained(loss_of, weights, adam(1e-3, 0.01), 2, (x, y))


def resnet(x: Any, y: Any) -> Run:
    """A ResNet of three blocks, 16 to 64 channels, SGD with momentum; its norms keep statistics."""
    make = _Weights()

    def conv(inputs: int, outputs: int, size: int) -> Any:
        return make.normal(outputs, inputs, size, size, scale=(inputs * size * size) ** -0.5)

    def norm(n: int) -> Any:
        return jnp.ones(n), jnp.zeros(n)

    def block(before: int, after: int) -> Any:
        short = (conv(before, after, 1), jnp.zeros(after)) if after > before else None
        return conv(before, after, 3), norm(after), conv(after, after, 3), norm(after), short

    weights = (
        conv(3, 16, 3), norm(16), [block(16, 16), block(16, 32), block(32, 64)], make.linear(64, 10)
    )  # fmt: skip

    def convolved(w: Any, x: Any, stride: int, padding: int) -> Any:
        pads = [(padding, padding)] * 2
        numbers = ("NCHW", "OIHW", "NCHW")
        return lax.conv_general_dilated(x, w, (stride, stride), pads, dimension_numbers=numbers)

    def loss_of(weights: Any, kept: Any, x: Any, y: Any) -> Any:
        first, norm1, blocks, head = weights
        statistics = []

        def normed(w: Any, x: Any) -> Any:
            statistics.append((x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1)))
            return _norm(w, x, (0, 2, 3), (1, -1, 1, 1))

        h = jax.nn.relu(normed(norm1, convolved(first, x, 1, 1)))
        for w1, n1, w2, n2, short in blocks:
            stride = 1 if short is None else 2
            inner = jax.nn.relu(normed(n1, convolved(w1, h, stride, 1)))
            inner = normed(n2, convolved(w2, inner, 1, 1))
            if short is not None:
                h = convolved(short[0], h, 2, 0) + short[1].reshape(1, -1, 1, 1)
            h = jax.nn.relu(inner + h)
        loss = cross_entropy(_linear(head, h.mean((2, 3))), y)
        return loss, _each(lambda old, new: 0.9 * old + 0.1 * new, kept, statistics)

    change = momentum(0.01)

    def step(state: Any, x: Any, y: Any) -> Any:
        weights, means, kept = state
        (loss, kept), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, kept, x, y)
        leaves, form = jax.tree_util.tree_flatten(weights)
        pairs = zip(leaves, jax.tree_util.tree_leaves(gradients), means, strict=True)
        found = [change(0, p, g, m) for p, g, m in pairs]
        weights = jax.tree_util.tree_unflatten(form, [p for p, _ in found])
        return (weights, [m for _, m in found], kept), loss

    jitted = jax.jit(step, donate_argnums=0)
    kept = [(jnp.zeros(n), jnp.ones(n)) for n in (16, 16, 16, 32, 32, 64, 64)]
    state = [(weights, [jnp.zeros_like(p) for p in jax.tree_util.tree_leaves(weights)], kept)]
    given = _jnp((x, y))

    def run() -> None:
        state[0], loss = jitted(state[0], *given)
        loss.block_until_ready()

    return run


def dqn(states: Any, actions: Any, rewards: Any, following: Any, ends: Any) -> Run:
    """An update of a value network of 4-64-64-2 towards a target network, Adam, smooth L1."""
    make = _Weights()
    sizes = (states.shape[1], 64, 64, 2)
    weights = [make.linear(i, o) for i, o in itertools.pairwise(sizes)]
    target = [make.linear(i, o) for i, o in itertools.pairwise(sizes)]

    def values(weights: Any, x: Any) -> Any:
        for w in weights[:-1]:
            x = jax.nn.relu(_linear(w, x))
        return _linear(weights[-1], x)

    def loss_of(weights: Any, s: Any, a: Any, r: Any, f: Any, e: Any) -> Any:
        q = jnp.take_along_axis(values(weights, s), a[:, None], 1)[:, 0]
        aim = r + 0.99 * values(target, f).max(1) * (1 - e)
        d = jnp.abs(q - aim)
        return jnp.where(d < 1, 0.5 * d * d, d - 0.5).mean()

    return _trained(loss_of, weights, adam(1e-3), 2, (states, actions, rewards, following, ends))


def characters(x: Any, y: Any, words: int, hidden: int) -> Run:
    """A loop over an LSTM cell that reads and predicts characters, Adam."""
    make = _Weights()
    weights = (
        make.normal(words, hidden),
        make.normal(4 * hidden, hidden, scale=hidden**-0.5),
        make.normal(4 * hidden, hidden, scale=hidden**-0.5),
        jnp.zeros(4 * hidden),
        jnp.zeros(4 * hidden),
        make.linear(hidden, words),
    )

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        embedding, w_ih, w_hh, b_ih, b_hh, head = weights
        h = c = jnp.zeros((x.shape[1], hidden))
        loss = 0.0
        for t in range(x.shape[0]):
            gates = embedding[x[t]] @ w_ih.T + b_ih + h @ w_hh.T + b_hh
            i, f, g, o = jnp.split(gates, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            loss = loss + cross_entropy(_linear(head, h), y[t])
        return loss / x.shape[0]

    return _trained(loss_of, weights, adam(1e-3), 2, (x, y))


def pinn(points: Any, width: int) -> Run:
    """A network u(x) with u'' = -sin x, by its second derivatives, Adam."""
    make = _Weights()
    weights = [make.linear(i, o) for i, o in itertools.pairwise((1, width, width, 1))]

    def u(weights: Any, x: Any) -> Any:
        for w in weights[:-1]:
            x = jnp.tanh(_linear(w, x))
        return _linear(weights[-1], x)

    def loss_of(weights: Any, x: Any) -> Any:
        first = jax.grad(lambda x: u(weights, x).sum())
        second = jax.grad(lambda x: first(x).sum())(x)
        return ((second + jnp.sin(x)) ** 2).mean() + (u(weights, jnp.zeros((1, 1))) ** 2).sum()

    return _trained(loss_of, weights, adam(1e-3), 2, (points,))
