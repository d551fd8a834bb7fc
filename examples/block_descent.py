"""Block-coordinate descent: a step changes one block of many, and only its terms are recomputed.

Logistic regression on 64 blocks of features. The score of every sample is a sum over blocks,
written as a tree, so a step runs one product, the sums above it, the loss, and the gradient of the
one block whose turn is next. A careful program would keep the scores up to date by hand; here the
model is written as plainly as the eager one, which computes all of it in every step. (Beck and
Tetruashvili, 2013, "On the Convergence of Block Coordinate Descent Type Methods".)

Expected: gain over eager at least 2
Run: python examples/block_descent.py
"""

import os

import numpy as np
from interleaved import gain

import adjoint as ad
import adjoint.nn.functional as F

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
BLOCKS, WIDTH, SAMPLES = (8, 4, 50) if SMOKE else (64, 32, 2000)


def load():
    """Features in blocks, and labels that depend on some of the blocks."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(BLOCKS, SAMPLES, WIDTH))
    truth = generator.normal(size=(BLOCKS, WIDTH)) * (np.arange(BLOCKS) % 4 == 0)[:, None]
    scores = np.einsum("bsw,bw->s", features, truth) + generator.normal(size=SAMPLES)
    return [ad.tensor(block) for block in features], ad.tensor((scores > 0).astype(float))


def loss_of(features, labels, weights):
    """The mean logistic loss; the sum over blocks is a tree."""
    scores = [x @ w for x, w in zip(features, weights, strict=True)]
    while len(scores) > 1:
        scores = [a + b for a, b in zip(scores[::2], scores[1::2], strict=True)]
    return F.binary_cross_entropy_with_logits(scores[0], labels)


def step_sizes(features):
    """For each block one over a bound of its second derivatives, a quarter of those of X'X/n."""
    return [4 * SAMPLES / float(ad.linalg.eigvalsh(x.T @ x)[-1]) for x in features]


class Eager:
    """Every step computes all scores."""

    def __init__(self, features, labels):
        self.features, self.labels, self.sizes = features, labels, step_sizes(features)
        self.weights = [ad.zeros(WIDTH, dtype=ad.float64, requires_grad=True) for _ in features]

    def loss(self):
        return loss_of(self.features, self.labels, self.weights)

    def step(self, b):
        """Move block b down its gradient; returns the loss before."""
        loss = self.loss()
        (gradient,) = ad.autograd.grad(loss, self.weights[b])
        with ad.no_grad():
            self.weights[b] -= self.sizes[b] * gradient
        return loss.item()


class Reactive:
    """The same on a graph, in which loss and gradients are nodes that refresh themselves."""

    def __init__(self, features, labels):
        self.graph = ad.Graph()
        self.sizes = step_sizes(features)
        self.weights = [self.graph.parameter(np.zeros(WIDTH)) for _ in features]
        self.loss = loss_of(features, labels, self.weights)
        self.gradients = ad.autograd.grad(self.loss, self.weights)

    def step(self, b):
        """Move block b down its gradient; returns the loss before."""
        loss = self.loss.item()
        gradient = self.gradients[b].detach().numpy()
        weight = self.weights[b].detach().numpy()
        self.weights[b].set(weight - self.sizes[b] * gradient)
        return loss


def main():
    features, labels = load()
    eager, reactive = Eager(features, labels), Reactive(features, labels)
    order = [b for _ in range(2 if SMOKE else 4) for b in range(BLOCKS)]
    losses = [(eager.step(b), reactive.step(b)) for b in order]
    largest = max(abs(a / b - 1) for a, b in losses)
    print(f"loss: {losses[0][0]:.4f} at first, {losses[-1][0]:.4f} after {len(losses)} steps")
    print(f"largest relative difference from eager: {largest:.1e}")

    with reactive.graph.events() as log:
        reactive.step(0)
    print(f"a step runs {len(log.ran)} of {len(reactive.graph)} nodes")
    turns = iter(range(10**9)), iter(range(10**9))
    ratio = gain(
        lambda: reactive.step(next(turns[0]) % BLOCKS), lambda: eager.step(next(turns[1]) % BLOCKS)
    )
    print(f"gain over eager: {ratio:.2f}")


if __name__ == "__main__":
    main()
