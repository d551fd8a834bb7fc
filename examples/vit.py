"""A vision transformer (Dosovitskiy et al., 2021) that reads handwritten digits.

An image is a sentence of sixteen patches of 2x2 pixels, with a token before it that is read in the
end; the encoder is the module of the library.

Expected: test accuracy at least 0.96
Run: python examples/vit.py
"""

import os

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 900
WIDTH = 48


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, kernel_size=2, stride=2)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, 17, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=96, dropout=0.0, activation="gelu",
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10))

    def forward(self, x):
        words = self.patches(x).flatten(2).transpose(1, 2)
        words = torch.cat([self.token.expand(len(x), -1, -1), words], dim=1) + self.places
        return self.head(self.encoder(words)[:, 0])


def build_model():
    return ViT()


def load():
    """Images of shape (N, 1, 8, 8) and labels, for training and for the test."""
    digits = load_digits()
    parts = train_test_split(
        digits.images[:, None] / 16, digits.target,
        test_size=360, stratify=digits.target, random_state=0,
    )  # fmt: skip
    x_train, x_test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    y_train, y_test = (torch.tensor(part) for part in parts[2:])
    return x_train, y_train, x_test, y_test


def train(model, steps):
    x, y, _, _ = load()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        chosen = torch.randint(0, len(x), (64,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    _, _, x, y = load()
    with torch.no_grad():
        right = model.eval()(x).argmax(dim=1) == y
    print(f"test accuracy: {right.float().mean().item():.4f}")


if __name__ == "__main__":
    main()
