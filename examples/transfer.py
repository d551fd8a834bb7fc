"""Transfer learning: a frozen adapter in the middle, new layers on both sides of it.

First stem, adapter and head learn the digits 0 to 4. Then the images are turned upside down and
inverted and show 5 to 9: stem and head are new, the adapter is frozen. It stores no gradient, yet
lets gradients pass, so the stem below it learns.

Expected: test accuracy at least 0.94
Run: python examples/transfer.py
"""

import os

from sklearn.datasets import load_digits

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 1200


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.adapter = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 32), nn.GELU())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.adapter(self.stem(x)))


def load(first, changed):
    """Images of the five digits from `first` on; every fifth one is for the test."""
    x, y = load_digits(return_X_y=True)
    chosen = (y >= first) & (y < first + 5)
    x, y = torch.from_numpy(x[chosen] / 16).float(), torch.from_numpy(y[chosen] - first)
    if changed:
        x = 1 - x.flip(1)
    test = torch.arange(len(x)) % 5 == 0
    return x[~test], y[~test], x[test], y[test]


def fit(model, x, y, steps):
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.RMSprop(trainable, lr=2e-3)
    losses = []
    while len(losses) < steps:
        for chosen in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[chosen]), y[chosen])
            loss.backward()
            nn.utils.clip_grad_norm_(trainable, 1.0)
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    return losses


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def build_model():
    """The network for the first task, and the one for the second with its own stem and head."""
    return nn.ModuleList([Net(), Net()])


def train(models, steps):
    first, second = models
    x, y, x_test, y_test = load(0, changed=False)
    losses = fit(first, x, y, steps // 2)
    print(f"digits 0 to 4: {accuracy(first, x_test, y_test):.4f}")

    second.adapter.load_state_dict(first.adapter.state_dict())
    second.adapter.requires_grad_(False)
    x, y, _, _ = load(5, changed=True)
    losses += fit(second, x, y, steps - steps // 2)
    assert all(p.grad is None for p in second.adapter.parameters())
    for before, after in zip(first.adapter.parameters(), second.adapter.parameters(), strict=True):
        assert torch.equal(before, after)
    return losses


def main():
    torch.manual_seed(0)
    models = build_model()
    train(models, STEPS)
    _, _, x, y = load(5, changed=True)
    print(f"test accuracy: {accuracy(models[1], x, y):.4f}")


if __name__ == "__main__":
    main()
