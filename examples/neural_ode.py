"""A neural ordinary differential equation (Chen et al., 2018), differentiated by another one.

A network is the velocity of a point; solving forward gives the path. Backward solves the costate's
equation from the end to the start, which needs no memory of what a step computes: `Solve` is a
custom `autograd.Function` that does so. It learns a spiral from pieces of one noisy path, and is
asked for pieces of twice their length.

Expected: mean distance from the true path at most 0.1
Run: python examples/neural_ode.py
"""

import os

import adjoint as torch
from adjoint import nn
from adjoint.autograd import Function, grad
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 1500
STEP = 0.05
COUNT = 200  # steps of the path
PIECE = 8  # steps of a piece that is learnt
BATCH = 32


class Velocity(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 2))

    def forward(self, y):
        return self.layers(y**3)


def build_model():
    return Velocity()


def advance(f, y, step):
    """One step of Runge and Kutta's method of fourth order, for a state of several tensors."""

    def at(k, part):
        return [a + part * step * b for a, b in zip(y, k, strict=True)]

    k1 = f(y)
    k2 = f(at(k1, 0.5))
    k3 = f(at(k2, 0.5))
    k4 = f(at(k3, 1.0))
    slopes = zip(y, k1, k2, k3, k4, strict=True)
    return [a + step / 6 * (b + 2 * c + 2 * d + e) for a, b, c, d, e in slopes]


class Solve(Function):
    """The points that `model` leads to from `start` in so many steps."""

    @staticmethod
    def forward(ctx, model, start, steps, *weights):
        path = [start]
        for _ in range(steps):
            path += advance(lambda y: [model(y[0])], [path[-1]], STEP)
        ctx.model, ctx.weights = model, weights
        path = torch.stack(path)
        ctx.save_for_backward(path)
        return path

    @staticmethod
    def backward(ctx, given):
        (path,) = ctx.saved_tensors
        model, weights = ctx.model, ctx.weights

        def backwards(state):
            """What the point, the costate and the weights' gradients change by."""
            y, a = state[0].detach().requires_grad_(), state[1]
            with torch.enable_grad():
                velocity = model(y)
            changes = grad(velocity, (y, *weights), a)
            return [velocity.detach(), *(-change for change in changes)]

        a, gradients = given[-1], [torch.zeros_like(w) for w in weights]
        for place in reversed(range(1, len(path))):
            _, a, *gradients = advance(backwards, [path[place], a, *gradients], -STEP)
            a = a + given[place - 1]
        return None, a, None, *gradients


def solve(model, start, steps):
    return Solve.apply(model, start, steps, *model.parameters())


def load():
    """The true path: points of a spiral."""
    turn = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    path = [torch.tensor([[2.0, 0.0]])]
    for _ in range(COUNT):
        path += advance(lambda y: [y[0] ** 3 @ turn], [path[-1]], STEP)
    return torch.cat(path)


def train(model, steps):
    path = load()
    path = path + 0.01 * torch.randn(*path.shape)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for _ in progress(range(steps)):
        first = torch.randint(0, COUNT - PIECE, (BATCH,))
        wanted = torch.stack([path[first + k] for k in range(PIECE + 1)])
        optimizer.zero_grad()
        loss = (solve(model, wanted[0], PIECE) - wanted).abs().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    path = load()
    starts = torch.arange(0, COUNT - 2 * PIECE)
    wanted = torch.stack([path[starts + k] for k in range(2 * PIECE + 1)])
    with torch.no_grad():
        apart = (solve(model, wanted[0], 2 * PIECE) - wanted).square().sum(dim=2).sqrt()
    print(f"mean distance from the true path: {apart.mean().item():.4f}")


if __name__ == "__main__":
    main()
