"""A U-Net (Ronneberger et al., 2015) that finds discs among squares in noisy pictures.

Half of the shapes are squares, which are to be left out; the network says of each pixel whether it
belongs to a disc. The measure is intersection over union, of all discs of new pictures together.

Expected: intersection over union at least 0.9
Run: python examples/unet.py
"""

import os

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 2 if os.environ.get("ADJOINT_SMOKE") else 400
SIZE = 32
BATCH = 16


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Three resolutions; on the way up each has what the way down saw beside it."""

    def __init__(self, width=12):
        super().__init__()
        self.down1, self.down2 = block(1, width), block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.rise2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up2 = block(4 * width, 2 * width)
        self.rise1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up1 = block(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        c = self.up2(torch.cat([self.rise2(c), b], dim=1))
        c = self.up1(torch.cat([self.rise1(c), a], dim=1))
        return self.head(c)


def build_model():
    return UNet()


def pictures(count, shapes=4):
    """Noisy pictures of discs and squares, each of its own brightness, and where the discs are."""
    line = torch.arange(SIZE)
    y, x = line.view(1, 1, SIZE, 1), line.view(1, 1, 1, SIZE)
    corner = (count, shapes, 1, 1)
    down, right = torch.randint(4, SIZE - 4, corner), torch.randint(4, SIZE - 4, corner)
    radius = torch.randint(2, 6, corner)
    discs = (y - down) ** 2 + (x - right) ** 2 <= radius**2
    squares = ((y - down).abs() < radius) & ((x - right).abs() < radius)
    round_ones = torch.randint(0, 2, corner) == 1
    light = torch.randint(3, 10, corner) / 10
    image = (torch.where(round_ones, discs, squares) * light).amax(dim=1, keepdim=True)
    wanted = (discs & round_ones).any(dim=1, keepdim=True)
    return image + 0.1 * torch.randn(count, 1, SIZE, SIZE), wanted.float()


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        x, wanted = pictures(BATCH)
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(x), wanted)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    x, wanted = pictures(200)
    with torch.no_grad():
        found = model.eval()(x) > 0
    both, either = (found & (wanted > 0)).sum(), (found | (wanted > 0)).sum()
    print(f"intersection over union: {(both / either).item():.4f}")


if __name__ == "__main__":
    main()
