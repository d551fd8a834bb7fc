"""A graph convolutional network (Kipf and Welling, 2017) on Zachary's karate club.

34 members, 78 friendships; the club broke in two. Two members' sides are known, the instructor's
and the president's, and the network tells the others' from who is whose friend: it mixes each
member's features with those of friends, twice. The data is Zachary's table of 1977.

Expected: accuracy at least 0.94
Run: python examples/karate_gcn.py
"""

import os

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 200
FRIENDS = {
    0: [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31], 1: [2, 3, 7, 13, 17, 19, 21, 30],
    2: [3, 7, 8, 9, 13, 27, 28, 32], 3: [7, 12, 13], 4: [6, 10], 5: [6, 10, 16], 6: [16],
    8: [30, 32, 33], 9: [33], 13: [33], 14: [32, 33], 15: [32, 33], 18: [32, 33], 19: [33],
    20: [32, 33], 22: [32, 33], 23: [25, 27, 29, 32, 33], 24: [25, 27, 31], 25: [31],
    26: [29, 33], 27: [33], 28: [31, 33], 29: [32, 33], 30: [32, 33], 31: [32, 33], 32: [33],
}  # fmt: skip
PRESIDENT = [9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33]  # whose side


def load():
    """The normalised adjacency matrix with each member a friend of its own, and all sides."""
    a = torch.eye(34)
    for one, others in FRIENDS.items():
        for other in others:
            a[one, other] = a[other, one] = 1.0
    degree = a.sum(dim=1).rsqrt()
    sides = torch.zeros(34, dtype=torch.int64)
    sides[PRESIDENT] = 1
    return degree[:, None] * a * degree, sides


class GCN(nn.Module):
    """Features are one-hot, so that the first layer learns what each member is like."""

    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = nn.Linear(34, width), nn.Linear(width, 2)

    def forward(self, a):
        h = torch.tanh(a @ self.first(torch.eye(34)))
        return a @ self.second(h)


def build_model():
    return GCN()


def train(model, steps):
    a, _ = load()
    known, sides = torch.tensor([0, 33]), torch.tensor([0, 1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a)[known], sides)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    a, sides = load()
    with torch.no_grad():
        right = model.eval()(a).argmax(dim=1) == sides
    print("on the other side than told:", (~right).nonzero().flatten().tolist())
    print(f"accuracy: {right.float().mean().item():.4f}")


if __name__ == "__main__":
    main()
