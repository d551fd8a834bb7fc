"""A training step as one native program: one loop, run eagerly and by `ad.compile`.

Expected: largest difference from eager at most 1e-3
Run: python examples/compiled_training.py
"""

import copy
import os
import statistics
import time

from sklearn.datasets import load_digits

import adjoint as torch
from adjoint import nn
from adjoint.utils.data import DataLoader, TensorDataset

EPOCHS = 1 if os.environ.get("ADJOINT_SMOKE") else 20


def load():
    """1797 images of 64 pixels; batches of 64, and one that is smaller."""
    x, y = load_digits(return_X_y=True)
    return TensorDataset(torch.from_numpy(x / 16).float(), torch.from_numpy(y))


def step_of(model, optimizer):
    """The usual step, as a function."""
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def step(images, labels):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def run(step, optimizer):
    """The losses of all steps, and the median step's seconds; the rate falls between calls."""
    torch.manual_seed(1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    losses, seconds = [], []
    for _ in range(EPOCHS):
        for images, labels in DataLoader(load(), batch_size=64, shuffle=True):
            begin = time.perf_counter()
            losses.append(step(images, labels).item())
            seconds.append(time.perf_counter() - begin)
        scheduler.step()
    return losses, statistics.median(seconds)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    models = model, copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    step = torch.compile(step_of(models[1], optimizers[1]))
    eager, slow = run(step_of(models[0], optimizers[0]), optimizers[0])
    compiled, fast = run(step, optimizers[1])
    print(f"loss: {eager[0]:.3f} to {eager[-1]:.3f}; {len(eager)} steps")
    for reason in step.reasons:
        print(f"compiled: {reason}")
    print(f"a step takes {1e6 * slow:.0f} microseconds eagerly, {1e6 * fast:.0f} compiled")
    largest = max(abs(a - b) for a, b in zip(eager, compiled, strict=True))
    print(f"largest difference from eager: {largest:.1e}")


if __name__ == "__main__":
    main()
