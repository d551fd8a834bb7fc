"""A diffusion model of handwritten digits (Ho et al., 2020).

A network learns to tell the noise in an image that was mixed with noise to some degree; drawing
begins with noise alone and takes it out step by step. How close the drawings are to real digits is
measured as in examples/gan.py (noise: 9.9; one half of the real digits to the other: 0.06).

Expected: Frechet distance at most 0.4
Run: python examples/diffusion.py
"""

import math
import os

from sklearn.datasets import load_digits

import adjoint as torch
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 3000
DRAWN = 20 if os.environ.get("ADJOINT_SMOKE") else 1797
LEVELS = 100
WIDTH = 256
BATCH = 128


class Denoiser(nn.Module):
    """The noise in rows of 64 pixels, by residual layers that are told its level."""

    def __init__(self, layers=3):
        super().__init__()
        self.level = nn.Embedding(LEVELS, WIDTH)
        self.first = nn.Linear(64, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)
            )
            for _ in range(layers)
        )
        self.last = nn.Linear(WIDTH, 64)

    def forward(self, x, level):
        told = self.level(level)
        h = self.first(x)
        for layer in self.layers:
            h = h + layer(h + told)
        return self.last(h)


def build_model():
    return Denoiser()


def kept():
    """How much of the image each level keeps: the cosine schedule of Nichol and Dhariwal, 2021."""
    angle = (torch.arange(LEVELS + 1) / LEVELS + 0.008) / 1.008 * math.pi / 2
    share = angle.cos().square()
    return share[1:] / share[0]


def load():
    """All 1797 images as rows of 64 pixels from -1 to 1."""
    return torch.from_numpy(load_digits().data).float() / 8 - 1


def train(model, steps):
    images, share = load(), kept()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        x = images[torch.randint(0, len(images), (BATCH,))]
        level = torch.randint(0, LEVELS, (BATCH,))
        noise = torch.randn(BATCH, 64)
        part = share[level].unsqueeze(1)
        optimizer.zero_grad()
        loss = (model(part.sqrt() * x + (1 - part).sqrt() * noise, level) - noise).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def draw(model, count):
    """Images made of noise."""
    model.eval()
    share = kept()
    before = torch.cat([torch.ones(1), share[:-1]])
    x = torch.randn(count, 64)
    for level in reversed(range(LEVELS)):
        now, then = share[level], before[level]
        noise = model(x, torch.full((count,), level))
        image = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
        step = 1 - now / then
        x = (then.sqrt() * step * image + (now / then).sqrt() * (1 - then) * x) / (1 - now)
        if level:
            x = x + (step * (1 - then) / (1 - now)).sqrt() * torch.randn(count, 64)
    return x.clamp(-1, 1)


def frechet_distance(a, b):
    """Distance between the normal distributions fitted to the rows of `a` and of `b`."""
    a, b = a.double(), b.double()
    mean, cov_a, cov_b = a.mean(0) - b.mean(0), torch.cov(a.T), torch.cov(b.T)
    values, vectors = torch.linalg.eigh(cov_a)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    cross = torch.linalg.eigvalsh(root @ cov_b @ root).clamp(min=0).sqrt().sum()
    return (mean @ mean + cov_a.trace() + cov_b.trace() - 2 * cross).item()


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    drawn = (draw(model, DRAWN) + 1) / 2
    for row in drawn[:6].reshape(6, 8, 8).permute(1, 0, 2).tolist():
        print("   ".join("".join(" .:-=+*#"[int(7.99 * p)] * 2 for p in image) for image in row))
    print(f"Frechet distance: {frechet_distance(drawn, (load() + 1) / 2):.4f}")


if __name__ == "__main__":
    main()
