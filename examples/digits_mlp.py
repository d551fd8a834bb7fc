"""Handwritten digits with a multilayer perceptron, dropout and a learning-rate schedule.

Expected: test accuracy at least 0.97
Run: python examples/digits_mlp.py
"""

import os

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
from adjoint import nn
from adjoint.utils.data import DataLoader, TensorDataset

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 690  # 30 epochs


def load():
    """Training and test set: 1437 and 360 images of 64 pixels."""
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=360, stratify=y, random_state=0)
    x_train, x_test = (torch.from_numpy(part).float() for part in parts[:2])
    y_train, y_test = (torch.from_numpy(part) for part in parts[2:])
    return TensorDataset(x_train, y_train), TensorDataset(x_test, y_test)


def build_model(dropout=0.2):
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(128, 64), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(64, 10),
    )  # fmt: skip


def train(model, steps, shuffle=True):
    loader = DataLoader(load()[0], batch_size=64, shuffle=shuffle)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    losses = []
    model.train()
    while len(losses) < steps:
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    return losses


@torch.no_grad()
def accuracy(model, dataset):
    model.eval()
    correct = 0
    for images, labels in DataLoader(dataset, batch_size=256):
        correct += (model(images).argmax(dim=1) == labels).sum().item()
    return correct / len(dataset)


def main():
    torch.manual_seed(0)
    train_set, test_set = load()
    model = build_model()
    train(model, STEPS)
    print(f"training accuracy: {accuracy(model, train_set):.4f}")
    print(f"test accuracy: {accuracy(model, test_set):.4f}")


if __name__ == "__main__":
    main()
