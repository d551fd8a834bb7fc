"""Two tasks on one shared backbone, their conflicting gradients projected (Yu et al., 2020).

One head names the digit, the other finds the centre of its ink. Each task's gradient with respect
to the backbone is taken on its own, through one graph that `retain_graph=True` keeps for the
second; where the two point against each other, each loses its part along the other.

Expected: test accuracy at least 0.95
Run: python examples/multitask.py
"""

import os

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 700


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU())
        self.digit = nn.Linear(48, 10)
        self.centre = nn.Linear(48, 2)

    def forward(self, x):
        shared = self.backbone(x)
        return self.digit(shared), self.centre(shared)


def load():
    """Images, digits and centres of ink, for training and for the test."""
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=360, stratify=y, random_state=0)
    images = [torch.from_numpy(part).float() for part in parts[:2]]
    digits = [torch.from_numpy(part) for part in parts[2:]]
    return [(x, y, centre_of_ink(x)) for x, y in zip(images, digits, strict=True)]


def centre_of_ink(x):
    x = x.reshape(-1, 8, 8)
    places = torch.linspace(-1, 1, 8)
    across = (x.sum(dim=1) * places).sum(dim=1)
    down = (x.sum(dim=2) * places).sum(dim=1)
    return 4 * torch.stack([across, down], dim=1) / x.sum(dim=(1, 2)).unsqueeze(1)


def project(g, other):
    """`g` without its part along `other`, if they conflict."""
    dot = sum((a * b).sum() for a, b in zip(g, other, strict=True))
    if dot >= 0:
        return g
    scale = dot / sum((b * b).sum() for b in other)
    return [a - scale * b for a, b in zip(g, other, strict=True)]


def build_model():
    return MultiTask()


def train(model, steps):
    (x, digits, centres), _ = load()
    shared = list(model.backbone.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    while len(losses) < steps:
        for chosen in torch.randperm(len(x)).split(64):
            logits, centre = model(x[chosen])
            loss_digit = F.cross_entropy(logits, digits[chosen])
            loss_centre = F.smooth_l1_loss(centre, centres[chosen])

            g_digit = torch.autograd.grad(loss_digit, shared, retain_graph=True)
            g_centre = torch.autograd.grad(loss_centre, shared, retain_graph=True)
            optimizer.zero_grad()
            (loss_digit + loss_centre).backward()  # for the heads
            mixed = zip(project(g_digit, g_centre), project(g_centre, g_digit), strict=True)
            for parameter, (a, b) in zip(shared, mixed, strict=True):
                parameter.grad = a + b
            optimizer.step()
            losses.append((loss_digit + loss_centre).item())
            if len(losses) == steps:
                break
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    _, (x, digits, centres) = load()
    with torch.no_grad():
        logits, centre = model(x)
        error = (centre - centres).abs().mean().item() / centres.abs().mean().item()
        accuracy = (logits.argmax(1) == digits).float().mean().item()
    print(f"relative error of the centre: {error:.4f}")
    print(f"test accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
