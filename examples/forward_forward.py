"""The forward-forward algorithm (Hinton, 2022): layers that learn without backpropagation.

Each layer has a loss and an optimizer of its own: its activity is to be high for images with their
right label written into them, low for a wrong one. What goes on to the next layer is detached and
normalised, so nothing but the direction of a layer's activity reaches another, and no gradient.

Expected: test accuracy at least 0.92
Run: python examples/forward_forward.py
"""

import os

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 3000
THRESHOLD = 2.0
BATCH = 128


def build_model():
    return nn.ModuleList([nn.Linear(74, 256), nn.Linear(256, 256)])


def load():
    """Rows of 64 pixels from 0 to 1 and labels, for training and for the test."""
    digits = load_digits()
    parts = train_test_split(
        digits.data / 16, digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    x_train, x_test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    y_train, y_test = (torch.tensor(part) for part in parts[2:])
    return x_train, y_train, x_test, y_test


def labelled(x, label):
    """The images with a label written beside their pixels."""
    return torch.cat([x, 3.0 * F.one_hot(label, 10).float()], dim=1)


def activity(layer, x):
    """What the layer gives of the direction of its input, and how active it is with each row."""
    y = F.relu(layer(F.normalize(x, dim=1) * x.shape[1] ** 0.5))
    return y, y.square().mean(dim=1)


def train(model, steps):
    x, y, _, _ = load()
    optimizers = [torch.optim.Adam(layer.parameters(), lr=1e-3) for layer in model]
    losses = []
    model.train()
    for _ in progress(range(steps)):
        chosen = torch.randint(0, len(x), (BATCH,))
        wrong = (y[chosen] + torch.randint(1, 10, (BATCH,))) % 10
        good, bad = labelled(x[chosen], y[chosen]), labelled(x[chosen], wrong)
        total = 0.0
        for layer, optimizer in zip(model, optimizers, strict=True):
            optimizer.zero_grad()
            good, high = activity(layer, good.detach())
            bad, low = activity(layer, bad.detach())
            loss = F.softplus(torch.cat([THRESHOLD - high, low - THRESHOLD])).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total)
    return losses


@torch.no_grad()
def predict(model, x):
    """The label with which all layers together are most active."""
    found = []
    for label in range(10):
        h, total = labelled(x, torch.full((len(x),), label)), torch.zeros(len(x))
        for layer in model:
            h, active = activity(layer, h)
            total = total + active
        found.append(total)
    return torch.stack(found).argmax(dim=0)


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    _, _, x, y = load()
    right = predict(model.eval(), x) == y
    print(f"test accuracy: {right.float().mean().item():.4f}")


if __name__ == "__main__":
    main()
