"""A training step in a file: one process begins to train and exports the step, a second one, which
has none of the model's code, trains on; the first, which goes on too, gets the same losses.

Expected: largest difference between the processes at most 0
Run: python examples/exported_training.py
"""

import os
import subprocess
import sys
import tempfile

from sklearn.datasets import load_digits

import adjoint as torch
from adjoint import nn

STEPS = 10 if os.environ.get("ADJOINT_SMOKE") else 200
SECOND = """
import sys
import adjoint as torch

step, data = torch.export.load(sys.argv[1]), torch.load(sys.argv[2])
step.optimizers[0].param_groups[0]["lr"] = 1e-3
losses = [step(x, y).item() for x, y in zip(data["x"], data["y"])]
torch.save({"losses": losses, "weights": step.state_dict()}, sys.argv[3])
"""


def batches():
    """So many batches of 64 images of 8 x 8, and their digits."""
    x, y = load_digits(return_X_y=True)
    torch.manual_seed(0)
    chosen = torch.randint(0, len(y), (2 * STEPS, 64))
    images, digits = torch.from_numpy(x / 16).float(), torch.from_numpy(y)
    return images[chosen].unflatten(2, (1, 8, 8)), digits[chosen]


def step_of(model, optimizer):
    """The usual step, as a function."""

    def step(images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    x, y = batches()
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = torch.compile(step_of(model, optimizer))
    for k in range(STEPS):
        first = step(x[k], y[k]).item()
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("step.adjoint", "data", "results")]
        torch.export(step, (x[0], y[0]), files[0])
        torch.save({"x": x[STEPS:], "y": y[STEPS:]}, files[1])
        print(f"after {STEPS} steps: loss {first:.3f}, a file of {os.path.getsize(files[0])} bytes")
        subprocess.run([sys.executable, "-c", SECOND, *files], check=True)
        second = torch.load(files[2])
    optimizer.param_groups[0]["lr"] = 1e-3
    losses = [step(x[k], y[k]).item() for k in range(STEPS, 2 * STEPS)]
    print(f"after {2 * STEPS} steps: loss {losses[-1]:.3f} here, {second['losses'][-1]:.3f} there")
    apart = [abs(a - b) for a, b in zip(losses, second["losses"], strict=True)]
    weights = model.state_dict()
    apart += [(weights[name] - w).abs().max().item() for name, w in second["weights"].items()]
    print(f"largest difference between the processes: {max(apart):.1e}")


if __name__ == "__main__":
    main()
