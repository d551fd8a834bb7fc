"""A generative adversarial network that draws handwritten digits.

Two optimizers take turns. The discriminator learns from `fake.detach()`, so its step leaves no
gradient in the generator. How close the drawings are to real digits is measured by the Fréchet
distance between normal distributions fitted to both (noise: 9.9; one half of the real digits to the
other: 0.06).

Expected: Frechet distance at most 0.6
Run: python examples/gan.py
"""

import os

from sklearn.datasets import load_digits

import adjoint as torch
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 4000
LATENT = 16
BATCH = 64


def build_model():
    return nn.ModuleDict(
        {
            "generator": nn.Sequential(
                nn.Linear(LATENT, 128), nn.BatchNorm1d(128), nn.ReLU(),
                nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(),
                nn.Linear(128, 64), nn.Sigmoid(),
            ),
            "discriminator": nn.Sequential(
                nn.Linear(64, 128), nn.LeakyReLU(0.2),
                nn.Linear(128, 128), nn.LeakyReLU(0.2),
                nn.Linear(128, 1),
            ),
        }
    )  # fmt: skip


def load():
    """All 1797 images as rows of 64 pixels from 0 to 1."""
    return torch.from_numpy(load_digits().data / 16).float()


def train(model, steps):
    generator, discriminator = model["generator"], model["discriminator"]
    real = load()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    losses = []
    generator.train()
    for _ in progress(range(steps)):
        images = real[torch.randint(0, len(real), (BATCH,))]
        fake = generator(torch.randn(BATCH, LATENT))

        d_optimizer.zero_grad()
        d_loss = criterion(discriminator(images), 0.9 * ones)
        d_loss = d_loss + criterion(discriminator(fake.detach()), zeros)
        d_loss.backward()
        d_optimizer.step()

        g_optimizer.zero_grad()
        g_loss = criterion(discriminator(fake), ones)
        g_loss.backward()
        g_optimizer.step()
        losses.append(d_loss.item() + g_loss.item())
    return losses


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
    with torch.no_grad():
        drawn = model["generator"].eval()(torch.randn(1797, LATENT))
    for row in drawn[:4].reshape(4, 8, 8).permute(1, 0, 2).tolist():
        print("   ".join("".join(" .:-=+*#"[int(7.99 * p)] * 2 for p in image) for image in row))
    print(f"Frechet distance: {frechet_distance(drawn, load()):.4f}")


if __name__ == "__main__":
    main()
