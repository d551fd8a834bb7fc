"""Handwritten digits with a small convolutional network: batch norm, pooling, momentum.

Expected: test accuracy at least 0.97
Run: python examples/digits_cnn.py
"""

import os

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn, optim

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 450  # 20 epochs


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


def load():
    """Images of shape (N, 1, 8, 8) and labels, for training and for the test."""
    digits = load_digits()
    parts = train_test_split(
        digits.images[:, None] / 16, digits.target,
        test_size=360, stratify=digits.target, random_state=0,
    )  # fmt: skip
    x_train, x_test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    y_train, y_test = (torch.tensor(part) for part in parts[2:])
    return x_train, y_train, x_test, y_test


def build_model():
    return Net()


def train(model, steps):
    x, y, _, _ = load()
    optimizer = optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses = []
    model.train()
    while len(losses) < steps:
        for chosen in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss = F.nll_loss(model(x[chosen]), y[chosen])
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    _, _, x, y = load()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"test accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
