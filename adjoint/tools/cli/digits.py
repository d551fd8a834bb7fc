"""A small convolutional network for 8x8 digits: the model, its training, its evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import adjoint as ad

from ... import nn
from ...data import DataLoader, TensorDataset

BATCH = 64


class DigitNet(nn.Module):
    """Two convolutions, one pooling, two linear layers: 38,282 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, images: Any) -> Any:
        """Logits of the ten digits."""
        return self.classifier(self.features(images))


@dataclass
class History:
    """Record of a training: losses, accuracies and time."""

    losses: list[float] = field(default_factory=list)  # one per step
    accuracies: list[float] = field(default_factory=list)  # on the test set, one per epoch
    steps_per_epoch: int = 0
    seconds: float = 0.0


def logits_of(model: nn.Module, images: Any) -> Any:
    """The model's outputs in evaluation mode."""
    model.eval()
    with ad.no_grad():
        return model(images)


def accuracy_of(logits: Any, labels: Any) -> float:
    """The fraction of images whose largest logit is their label's."""
    return float((logits.argmax(1) == labels).sum().item()) / len(labels)


def train(
    model: nn.Module,
    train_set: TensorDataset,
    test_set: TensorDataset,
    epochs: int,
    max_steps: int | None,
    report: Callable[[float, float | None], None],
) -> History:
    """Adam with a cosine schedule; `report(loss, accuracy)` is called after each step."""
    loader = DataLoader(
        train_set, batch_size=BATCH, shuffle=True, generator=ad.Generator().manual_seed(1)
    )
    steps = len(loader)
    optimizer = ad.optim.Adam(model.parameters(), lr=3e-3)
    schedule = ad.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * steps)
    criterion = nn.CrossEntropyLoss()
    history = History(steps_per_epoch=steps)
    begin = time.perf_counter()
    for _ in range(epochs):
        model.train()
        for number, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            history.losses.append(loss.item())
            if number + 1 < steps:
                report(history.losses[-1], None)
            if max_steps is not None and len(history.losses) >= max_steps:
                break
        accuracy = accuracy_of(logits_of(model, test_set.tensors[0]), test_set.tensors[1])
        history.accuracies.append(accuracy)
        report(history.losses[-1], accuracy)
        if max_steps is not None and len(history.losses) >= max_steps:
            break
    history.seconds = time.perf_counter() - begin
    return history
