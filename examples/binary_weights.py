"""A custom Function: a network whose weights are only -1 and +1 (Courbariaux et al., 2015).

The sign has derivative zero almost everywhere. A `torch.autograd.Function` gives it the
straight-through estimate instead: the gradient passes where the real weight lies within [-1, 1].

Expected: test accuracy at least 0.95
Run: python examples/binary_weights.py
"""

import os

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 690


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight):
        ctx.save_for_backward(weight)
        return torch.where(weight >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad_output):
        (weight,) = ctx.saved_tensors
        return grad_output * (weight.abs() <= 1)


class BinaryLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.uniform_(self.weight, -1, 1)

    def forward(self, x):
        return F.linear(x, Binarize.apply(self.weight)) / x.shape[1] ** 0.5


def build_model():
    return nn.Sequential(
        BinaryLinear(64, 256), nn.BatchNorm1d(256), nn.Hardtanh(),
        BinaryLinear(256, 10), nn.BatchNorm1d(10),
    )  # fmt: skip


def load():
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=360, stratify=y, random_state=0)
    return [torch.from_numpy(p).float() if p.ndim == 2 else torch.from_numpy(p) for p in parts]


def train(model, steps):
    x, _, y, _ = load()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=steps)
    losses = []
    model.train()
    while len(losses) < steps:
        for chosen in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[chosen]), y[chosen])
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    _, x, _, y = load()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    bits = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    print(f"{bits} weights of one bit each")
    print(f"test accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
