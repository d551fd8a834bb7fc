"""A siamese network (Bromley et al., 1993): are these two the same digit?

Two images go through one network; codes of the same digit are pulled together, others are pushed
apart up to a margin (Hadsell et al., 2006). It learns from half of the images and is asked about
the others. Guessing is right in half of the pairs.

Expected: accuracy on new images at least 0.95
Run: python examples/siamese.py
"""

import os

from sklearn.datasets import load_digits

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 1000
MARGIN = 1.0
BATCH = 64


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 2 * 2, 16)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.normalize(self.fc(x.flatten(1)), dim=1)


def build_model():
    return Encoder()


def load(known):
    """Images of shape (N, 1, 8, 8), a list for each digit: half of them, or the others."""
    digits = load_digits()
    images = torch.from_numpy(digits.images[:, None]).float() / 16
    target = torch.from_numpy(digits.target)
    return [images[target == digit][0 if known else 1 :: 2] for digit in range(10)]


def pairs(images, count):
    """Two batches, of the same digit in the first half, of two digits in the second."""
    first = torch.randint(0, len(images), (count,))
    other = (first + torch.randint(1, len(images), (count,))) % len(images)
    same = torch.arange(count) < count // 2
    second = torch.where(same, first, other)
    places = torch.randint(0, 1 << 30, (2, count)).tolist()
    a, b = (
        torch.stack(
            [images[k][n % len(images[k])] for k, n in zip(kinds.tolist(), row, strict=True)]
        )
        for kinds, row in zip((first, second), places, strict=True)
    )
    return a, b, same


def distance(model, a, b):
    return F.pairwise_distance(model(a), model(b))


def train(model, steps):
    images = load(known=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        a, b, same = pairs(images, BATCH)
        apart = distance(model, a, b)
        optimizer.zero_grad()
        loss = torch.where(same, apart.square(), (MARGIN - apart).clamp(min=0).square()).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    with torch.no_grad():
        a, b, same = pairs(load(known=True), 2000)
        known = distance(model.eval(), a, b)
        bound = (known[same].median() + known[~same].median()) / 2  # in the middle
        a, b, same = pairs(load(known=False), 2000)
        right = (distance(model, a, b) < bound) == same
    print(f"accuracy on new images: {right.float().mean().item():.4f}")


if __name__ == "__main__":
    main()
