"""Transfer learning on a graph: from the second epoch on, the frozen backbone does not run.

A small convolutional network learns the digits 0 to 4. Its backbone is frozen and a new head learns
5 to 9 from fixed batches. Every batch is an input of the graph, so what the backbone makes of it is
a node that stays: only the head changes, and only the head is computed again. The eager program
that does the same runs the backbone in every epoch.

Expected: gain over eager at least 1.5
Run: python examples/transfer_graph.py
"""

import os
from typing import Any

from interleaved import gain
from sklearn.datasets import load_digits

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

SMOKE = bool(os.environ.get("ADJOINT_SMOKE"))
BATCH = 64


def load(first):
    """Images of the five digits from `first` on, in batches, every fifth image for the test."""
    data = load_digits()
    chosen = (data.target >= first) & (data.target < first + 5)
    images = ad.from_numpy(data.images[chosen] / 16).float().unsqueeze(1)
    labels = ad.from_numpy(data.target[chosen] - first)
    test = ad.arange(len(images)) % 5 == 0
    x, y = images[~test], labels[~test]
    if SMOKE:
        x, y = x[: 3 * BATCH], y[: 3 * BATCH]
    return list(zip(x.split(BATCH), y.split(BATCH), strict=True)), (images[test], labels[test])


def build_backbone():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip


def build_head():
    return nn.Sequential(nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 5))


def optimizer_of(module):
    return ad.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def pretrained():
    """A backbone that knows the digits 0 to 4, frozen."""
    ad.manual_seed(0)
    backbone, head = build_backbone(), build_head()
    batches, _ = load(0)
    optimizer = optimizer_of(nn.ModuleList([backbone, head]))
    for _ in range(1 if SMOKE else 8):
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(head(backbone(x)), y).backward()
            optimizer.step()
    return backbone.requires_grad_(False).eval()


class Eager:
    """Trains a head on the backbone, which runs for every batch."""

    def __init__(self, backbone, head, batches):
        self.batches, self.optimizer = batches, optimizer_of(head)
        self.backbone, self.head = backbone, head

    def losses(self) -> Any:
        """The loss of each batch in turn."""
        for x, y in self.batches:
            yield F.cross_entropy(self.head(self.backbone(x)), y)

    def epoch(self) -> list[float]:
        """One step for each batch; returns their losses."""
        found: list[float] = []
        for loss in self.losses():
            found.append(loss.item())  # before the step: a node of a graph would follow it
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return found


class Reactive(Eager):
    """The same on a graph: the losses are nodes, recorded once."""

    def __init__(self, backbone, head, batches):
        super().__init__(backbone, head, batches)
        self.graph = ad.Graph()
        with self.graph:
            self.recorded = [
                F.cross_entropy(head(backbone(self.graph.input(x))), self.graph.input(y))
                for x, y in batches
            ]

    def losses(self) -> Any:
        """The recorded losses, computed as far as something has changed when they are asked for."""
        return map(self.graph.forward, self.recorded)


def accuracy(backbone, head, x, y):
    with ad.no_grad():
        return (head(backbone(x)).argmax(1) == y).float().mean().item()


def main():
    backbone = pretrained()
    batches, test = load(5)
    ad.manual_seed(1)
    eager = Eager(backbone, build_head(), batches)
    ad.manual_seed(1)
    reactive = Reactive(backbone, build_head(), batches)
    largest = 0.0
    for epoch in range(1, 4 if SMOKE else 21):
        with reactive.graph.events() as log:
            losses = reactive.epoch()
        largest = max(largest, *(abs(a - b) for a, b in zip(losses, eager.epoch(), strict=True)))
        if epoch <= 2:
            convolutions = log.ran.count("Convolution")
            print(f"epoch {epoch}: {len(log.ran)} nodes ran, {convolutions} of them convolutions")
    print(f"largest difference of the losses from eager: {largest:.1e}")
    print(f"test accuracy: {accuracy(backbone, reactive.head, *test):.4f}")
    print(f"gain over eager: {gain(reactive.epoch, eager.epoch):.2f}")


if __name__ == "__main__":
    main()
