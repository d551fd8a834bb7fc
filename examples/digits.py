"""Train a small network on handwritten digits, save it, read it back."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import adjoint as ad
from adjoint import nn

EPOCHS = 1 if os.environ.get("ADJOINT_SMOKE") else 15


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@ad.no_grad()
def accuracy(network: nn.Module, images: ad.Tensor, labels: ad.Tensor) -> float:
    network.eval()
    return float((network(images).argmax(1) == labels).float().mean())


def main() -> None:
    ad.manual_seed(0)
    train, test = ad.data.digits()
    loader = ad.data.DataLoader(train, batch_size=64, shuffle=True)
    network = make_network()
    optimizer = ad.optim.AdamW(network.parameters(), lr=3e-3)
    schedule = ad.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    for epoch in range(EPOCHS):
        network.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(network(images), labels)
            loss.backward()
            optimizer.step()
        schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, "
              f"test accuracy {accuracy(network, *test.tensors):.2%}")  # fmt: skip

    path = Path(tempfile.mkdtemp()) / "digits.safetensors"
    ad.save(network.state_dict(), path)
    again = make_network()
    again.load_state_dict(ad.load(path))
    assert accuracy(again, *test.tensors) == accuracy(network, *test.tensors)
    print(f"saved to {path} and read back")


if __name__ == "__main__":
    main()
