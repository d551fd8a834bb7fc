"""Super-resolution by a sub-pixel convolution (Shi et al., 2016): digits of 4x4 pixels become 8x8.

The network adds to what bicubic interpolation gives. The measure is the gain in the peak
signal-to-noise ratio over interpolation alone, on images it has not seen.

Expected: gain over bicubic in dB at least 3
Run: python examples/super_resolution.py
"""

import os

from sklearn.datasets import load_digits

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 2000
BATCH = 64


class SubPixel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 4, 3, padding=1), nn.PixelShuffle(2),
        )  # fmt: skip

    def forward(self, x):
        return enlarged(x) + self.layers(x)


def build_model():
    return SubPixel()


def enlarged(x):
    return F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)


def load():
    """Images of shape (N, 1, 8, 8): 1500 for training, 297 for the test."""
    images = torch.from_numpy(load_digits().images[:, None]).float() / 16
    return images.split([1500, 297])


def train(model, steps):
    images, _ = load()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        x = images[torch.randint(0, len(images), (BATCH,))]
        optimizer.zero_grad()
        loss = F.mse_loss(model(F.avg_pool2d(x, 2)), x)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def decibels(found, wanted):
    """Peak signal-to-noise ratio."""
    return -10 * F.mse_loss(found, wanted).log10().item()


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    _, x = load()
    with torch.no_grad():
        small = F.avg_pool2d(x, 2)
        bicubic, found = decibels(enlarged(small), x), decibels(model.eval()(small), x)
    print(f"bicubic {bicubic:.2f} dB, network {found:.2f} dB")
    print(f"gain over bicubic in dB: {found - bicubic:.4f}")


if __name__ == "__main__":
    main()
