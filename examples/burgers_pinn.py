"""A physics-informed network (Raissi et al., 2019) solves Burgers' equation without data.

u_t + u u_x = 0.1 u_xx on [-1, 1], from -sin(pi x), zero at both ends. The loss is what the
equation leaves over, by derivatives of the network (`create_graph`); start and ends hold by how u
is written. It is compared with finite differences on a fine grid.

Expected: largest error at most 0.03
Run: python examples/burgers_pinn.py
"""

import math
import os

import adjoint as torch
from adjoint import nn
from adjoint.autograd import grad
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 2500
CELLS, TIMES = 200, 4000  # of the grid that is compared with
VISCOSITY = 0.1
BATCH = 256


class Solution(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, t, x):
        inside = self.layers(torch.cat([t, x], dim=1))
        return -torch.sin(math.pi * x) + t * (1 - x**2) * inside


def build_model():
    return Solution()


def left_over(model, t, x):
    """What the equation leaves over at each point."""
    u = model(t, x)
    u_t, u_x = grad(u.sum(), (t, x), create_graph=True)
    (u_xx,) = grad(u_x.sum(), x, create_graph=True)
    return u_t + u * u_x - VISCOSITY * u_xx


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for _ in progress(range(steps)):
        t = (torch.randint(0, 1001, (BATCH, 1)) / 1000).requires_grad_()
        x = (torch.randint(-1000, 1001, (BATCH, 1)) / 1000).requires_grad_()
        optimizer.zero_grad()
        loss = left_over(model, t, x).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def by_differences():
    """The solution at t = 1 on a grid, by small steps of finite differences."""
    x = torch.linspace(-1, 1, CELLS + 1, dtype=torch.float64)
    u, h, step = -torch.sin(math.pi * x), 2 / CELLS, 1 / TIMES
    for _ in range(TIMES):
        flow = (u[2:] ** 2 - u[:-2] ** 2) / (4 * h)
        spread = VISCOSITY * (u[2:] - 2 * u[1:-1] + u[:-2]) / h**2
        u[1:-1] += step * (spread - flow)
    return x.float(), u.float()


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    x, wanted = by_differences()
    with torch.no_grad():
        found = model(torch.ones(len(x), 1), x[:, None])[:, 0]
    print(f"largest error: {(found - wanted).abs().max().item():.4f}")


if __name__ == "__main__":
    main()
