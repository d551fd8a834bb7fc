"""einops, torchdiffeq, lion-pytorch: small packages that run as they are."""

from __future__ import annotations

import einops
import torch
from common import data, fill, told, train
from einops.layers.torch import Rearrange, Reduce
from lion_pytorch import Lion
from torch import nn
from torchdiffeq import odeint, odeint_adjoint


def case_einops():
    x = data(2, 3, 4, 6)
    packed, how = einops.pack([data(2, 3), data(2, 4, 3)], "b * c" if False else "b *")
    return [
        einops.rearrange(x, "b c (h p) w -> b (h w) (p c)", p=2),
        einops.reduce(x, "b c h w -> b c", "max"),
        einops.repeat(x, "b c h w -> b (r c) h w", r=2),
        einops.einsum(x, data(6, 5), "b c h w, w o -> b o c"),
        packed,
        [u.shape for u in einops.unpack(packed, how, "b *")],
    ]


def case_layers():
    model = fill(
        nn.Sequential(
            Rearrange("b c h w -> b (c h w)"),
            nn.Linear(48, 8),
            nn.ReLU(),
            nn.Linear(8, 4),
            Rearrange("b (n k) -> b n k", k=2),
            Reduce("b n k -> b n", "mean"),
        )
    )
    x = data(3, 3, 4, 4)
    return train(model, lambda: model(x).square().sum())


class Slope(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 2))

    def forward(self, t, y):
        return self.net(y**3)


def case_torchdiffeq():
    found = []
    times = torch.linspace(0, 1, 5)
    for solve, method in ((odeint, "dopri5"), (odeint, "rk4"), (odeint_adjoint, "dopri5")):
        model = fill(Slope())
        y = data(3, 2)
        options = {"rtol": 1e-5, "atol": 1e-6} if method == "dopri5" else {}
        loss = lambda: solve(model, y, times, method=method, **options).square().mean()  # noqa: E731, B023
        found.append(train(model, loss))
    return found


def case_lion():
    model = fill(nn.Linear(5, 3))
    x = data(4, 5)
    optimizer = Lion(model.parameters(), lr=1e-2, weight_decay=0.1)
    return [train(model, lambda: model(x).square().mean(), optimizer=optimizer), told(model.weight)]
