"""A step of a generative adversarial network on a graph that is recorded once.

Three calls of the discriminator stay in the graph: on real images, on `fake.detach()`, through
which no gradient reaches the generator, and on `fake` itself. They share the drawn images: the
generator runs once a step for both losses. The losses are those of the eager program
(Goodfellow et al., 2014, "Generative Adversarial Nets").

Expected: largest difference from eager at most 1e-4
Run: python examples/gan_graph.py
"""

import os
from typing import Any

from interleaved import gain
from sklearn.datasets import load_digits

import adjoint as ad
from adjoint import nn

COMPARED = 20  # steps; in longer runs of this game rounding errors grow
STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 300
LATENT, BATCH = 16, 64


def build():
    """Generator and discriminator from the same seed each time."""
    ad.manual_seed(0)
    generator = nn.Sequential(
        nn.Linear(LATENT, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2),
        nn.Linear(128, 64), nn.Sigmoid(),
    )  # fmt: skip
    discriminator = nn.Sequential(
        nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2),
        nn.Linear(128, 1),
    )  # fmt: skip
    return generator, discriminator


class Batches:
    """Real images and noise, the same ones for each program."""

    def __init__(self):
        self.real = ad.from_numpy(load_digits().data / 16).float()
        self.generator = ad.Generator().manual_seed(1)

    def __next__(self):
        chosen = ad.randint(0, len(self.real), (BATCH,), generator=self.generator)
        return self.real[chosen], ad.randn(BATCH, LATENT, generator=self.generator)


class Eager:
    """One step for each of the two networks."""

    def __init__(self):
        self.generator, self.discriminator = build()
        self.batches = Batches()
        self.optimizers = [
            ad.optim.Adam(module.parameters(), lr=5e-4, betas=(0.5, 0.999))
            for module in (self.discriminator, self.generator)
        ]
        self.criterion = nn.BCEWithLogitsLoss()
        self.ones, self.zeros = ad.ones(BATCH, 1), ad.zeros(BATCH, 1)

    def forward(self, real, noise):
        """The drawn images, and the losses of discriminator and generator as functions: the second
        is asked for after the discriminator's step.
        """
        fake = self.generator(noise)

        def first():
            on_real = self.criterion(self.discriminator(real), self.ones)
            return on_real + self.criterion(self.discriminator(fake.detach()), self.zeros)

        return fake, first, lambda: self.criterion(self.discriminator(fake), self.ones)

    def losses(self) -> Any:
        """The losses on the next batch, as functions."""
        return self.forward(*next(self.batches))[1:]

    def step(self) -> list[float]:
        """Both steps on the next batch; returns both losses."""
        found: list[float] = []
        for loss, optimizer in zip(self.losses(), self.optimizers, strict=True):
            loss = loss()
            found.append(loss.item())  # before the step: a node of a graph would follow it
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return found


class Reactive(Eager):
    """The same losses as nodes; a step sets the inputs."""

    def __init__(self):
        super().__init__()
        self.graph = ad.Graph()
        self.real = self.graph.input((BATCH, 64), "real")
        self.noise = self.graph.input((BATCH, LATENT), "noise")
        with self.graph:
            self.fake, first, second = self.forward(self.real, self.noise)
            self.nodes = first(), second()

    def losses(self) -> Any:
        """The recorded losses, stale until they are asked for."""
        with self.graph.batch():
            for x, value in zip((self.real, self.noise), next(self.batches), strict=True):
                x.set(value)
        return [lambda node=node: self.graph.forward(node) for node in self.nodes]


def nodes_ran(reactive):
    """How many nodes run for the drawn images, and then for each of the two losses."""
    reactive.losses()  # sets the inputs
    nodes = [reactive.fake, *reactive.nodes]
    counts = []
    for node in nodes:
        with reactive.graph.events() as log:
            reactive.graph.forward(node)
        counts.append(len(log.ran))
    return counts


def main():
    eager, reactive = Eager(), Reactive()
    largest = 0.0
    for i in range(STEPS):
        losses = reactive.step()
        if i < COMPARED:
            pairs = zip(eager.step(), losses, strict=True)
            largest = max(largest, *(abs(a - b) for a, b in pairs))
    counts = nodes_ran(reactive)
    print(f"{len(reactive.graph)} nodes, recorded once")
    print(
        "nodes that run: {} to draw images, {} more for one loss, {} for the other".format(*counts)
    )
    print(f"largest difference from eager: {largest:.1e}")
    print(f"gain over eager: {gain(reactive.step, eager.step, calls=5):.2f}")


if __name__ == "__main__":
    main()
