"""Gaussian-process regression, its hyperparameters learnt by the marginal likelihood.

The kernel's length, its size and the noise are parameters; the loss is the negative logarithm of
what the data's probability is under the process (Rasmussen and Williams, 2006, chapter 2), through
a Cholesky decomposition. The measure is how many new points fall into the interval that is to hold
95 % of them, and the error.

Expected: root mean square error at most 0.12
Run: python examples/gaussian_process.py
"""

import math
import os

import adjoint as torch
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 300
NOISE = 0.1


class Process(nn.Module):
    """A zero-mean process with a squared-exponential kernel; its numbers are logarithms."""

    def __init__(self):
        super().__init__()
        self.length = nn.Parameter(torch.zeros(()))
        self.size = nn.Parameter(torch.zeros(()))
        self.noise = nn.Parameter(torch.full((), -1.0))

    def kernel(self, a, b):
        apart = (a[:, None] - b) / self.length.exp()
        return (2 * self.size).exp() * (-0.5 * apart.square()).exp()

    def factor(self, x):
        noise = (2 * self.noise).exp() + 1e-6
        return torch.linalg.cholesky(self.kernel(x, x) + noise * torch.eye(len(x), dtype=x.dtype))

    def cost(self, x, y):
        """The negative logarithm of the probability of `y`, a point."""
        lower = self.factor(x)
        white = torch.linalg.solve_triangular(lower, y[:, None], upper=False)
        fit = 0.5 * white.square().sum() + lower.diagonal().log().sum()
        return fit / len(x) + 0.5 * math.log(2 * math.pi)

    def predict(self, x, y, new):
        """The mean and the standard deviation of new observations."""
        lower, between = self.factor(x), self.kernel(x, new)
        solved = torch.linalg.solve_triangular(
            lower, torch.cat([between, y[:, None]], dim=1), upper=False
        )
        mean = solved[:, :-1].T @ solved[:, -1]
        variance = (2 * self.size).exp() + (2 * self.noise).exp()
        return mean, (variance - solved[:, :-1].square().sum(dim=0)).sqrt()


def build_model():
    return Process().double()


def load():
    """Sixty noisy points of a curve for training, two hundred for the test."""
    x = torch.cat([torch.linspace(0, 8, 60), torch.linspace(0.01, 7.9, 200)]).double()
    y = torch.sin(2 * x) * torch.exp(-x / 6) + NOISE * torch.randn(260).double()
    return x.split([60, 200]), y.split([60, 200])


def train(model, steps):
    (x, _), (y, _) = load()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in progress(range(steps)):
        optimizer.zero_grad()
        loss = model.cost(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    torch.manual_seed(0)
    (x, new), (y, wanted) = load()
    with torch.no_grad():
        mean, deviation = model.predict(x, y, new)
    inside = ((wanted - mean).abs() < 1.96 * deviation).double().mean().item()
    length, size, noise = (p.exp().item() for p in model.parameters())
    print(f"length {length:.2f}, size {size:.2f}, noise {noise:.3f} (true 0.1)")
    print(f"inside the interval of 95 %: {inside:.3f}")
    print(f"root mean square error: {(wanted - mean).square().mean().sqrt().item():.4f}")


if __name__ == "__main__":
    main()
