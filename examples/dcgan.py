"""A deep convolutional adversarial network (Radford et al., 2016) that draws handwritten digits.

Transposed convolutions draw, strided ones judge, with batch norm in both, and weights that begin as
the paper's. How close the drawings are to real digits is measured as in examples/gan.py (noise:
9.9; one half of the real digits to the other: 0.06).

Expected: Frechet distance at most 0.6
Run: python examples/dcgan.py
"""

import os

from sklearn.datasets import load_digits

import adjoint as torch
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 1500
LATENT = 16
BATCH = 64


def build_model(width=32):
    model = nn.ModuleDict(
        {
            "generator": nn.Sequential(
                nn.ConvTranspose2d(LATENT, 2 * width, 2, bias=False),
                nn.BatchNorm2d(2 * width), nn.ReLU(),
                nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width), nn.ReLU(),
                nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Tanh(),
            ),
            "discriminator": nn.Sequential(
                nn.Conv2d(1, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
                nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
                nn.Conv2d(2 * width, 1, 2), nn.Flatten(0),
            ),
        }
    )  # fmt: skip
    return model.apply(initialize)


def initialize(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.05)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)


def load():
    """All 1797 images, of shape (1797, 1, 8, 8), from -1 to 1."""
    return torch.from_numpy(load_digits().images[:, None]).float() / 8 - 1


def train(model, steps):
    generator, discriminator = model["generator"], model["discriminator"]
    real = load()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=5e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH), torch.zeros(BATCH)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        images = real[torch.randint(0, len(real), (BATCH,))]
        fake = generator(torch.randn(BATCH, LATENT, 1, 1))

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
        drawn = (model["generator"].eval()(torch.randn(1797, LATENT, 1, 1)) + 1) / 2
    for row in drawn[:6, 0].permute(1, 0, 2).tolist():
        print("   ".join("".join(" .:-=+*#"[int(7.99 * p)] * 2 for p in image) for image in row))
    real = (load() + 1) / 2
    print(f"Frechet distance: {frechet_distance(drawn.flatten(1), real.flatten(1)):.4f}")


if __name__ == "__main__":
    main()
