"""A variational autoencoder of handwritten digits (Kingma and Welling, 2014).

The encoder gives a normal distribution of codes, the decoder each pixel's probability of being
dark. The loss is the negative bound on the log-likelihood: what the code costs, and what the pixels
cost given the code. A pixel that is guessed costs 1 bit, known by its mean 0.6, by itself 0.29.

Expected: test bits per pixel at most 0.57
Run: python examples/vae.py
"""

import math
import os

from sklearn.datasets import load_digits

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 3000
LATENT = 8
BATCH = 128


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, 128), nn.SiLU(), nn.Linear(128, 64))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        noise = torch.randn(len(x), LATENT)
        return self.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance


def build_model():
    return VAE()


def load():
    """The images' pixels as probabilities: 1500 rows for training, 297 for the test."""
    return (torch.from_numpy(load_digits().data).float() / 16).split([1500, 297])


def bound(model, x):
    """The cost of an image in nats, at most; its mean over the rows."""
    logits, mean, log_variance = model(x)
    pixels = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    code = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum()
    return (pixels + code) / len(x)


def train(model, steps):
    x, _ = load()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        optimizer.zero_grad()
        loss = bound(model, x[torch.randint(0, len(x), (BATCH,))])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    _, test = load()
    with torch.no_grad():
        nats = sum(bound(model.eval(), test).item() for _ in range(20)) / 20
        drawn = model.decoder(torch.randn(6, LATENT)).sigmoid().reshape(6, 8, 8)
    for row in drawn.permute(1, 0, 2).tolist():
        print("   ".join("".join(" .:-=+*#"[int(7.99 * p)] * 2 for p in image) for image in row))
    print(f"test bits per pixel: {nats / 64 / math.log(2):.4f}")


if __name__ == "__main__":
    main()
