"""XOR: the smallest problem that one linear layer cannot solve.

Expected: loss at most 0.01
Run: python examples/xor.py
"""

import os

import adjoint as torch
from adjoint import nn

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 1000


def build_model():
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


def train(model, steps):
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    loss_fn = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    losses = train(model, STEPS)
    with torch.no_grad():
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            p = torch.sigmoid(model(torch.tensor([float(a), float(b)]))).item()
            print(f"{a} xor {b}: {p:.3f}")
    print(f"loss: {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
