"""Whole trainings beside PyTorch on the same device: the same program, from the same parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adjoint as ad


def peer(device):
    """PyTorch's name of a device."""
    return "cpu" if device == "torch" else device


def mlp(t):
    nn = t.nn
    return nn.Sequential(
        nn.Linear(15, 33), nn.ReLU(), nn.LayerNorm(33), nn.Linear(33, 17), nn.GELU(),
        nn.Linear(17, 5),
    )  # fmt: skip


def conv_net(t):
    nn = t.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 15, 3, stride=2), nn.GroupNorm(3, 15), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(15, 5),
    )  # fmt: skip


def words_net(t):
    nn = t.nn
    return nn.Sequential(
        nn.Embedding(11, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        nn.Flatten(), nn.Linear(7 * 16, 5),
    )  # fmt: skip


RNG = np.random.default_rng(0)
INPUTS = {
    mlp: RNG.standard_normal((31, 15)).astype(np.float32),
    conv_net: RNG.standard_normal((7, 3, 15, 15)).astype(np.float32),
    words_net: RNG.integers(0, 11, (9, 7)),
}
OPTIMIZERS = {
    "SGD": lambda t, p: t.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    # A large eps: where a gradient is 0 but for rounding, Adam would make whole steps of that.
    "Adam": lambda t, p: t.optim.Adam(p, lr=0.01, eps=1e-3),
    "AdamW": lambda t, p: t.optim.AdamW(p, lr=0.01, eps=1e-3, amsgrad=True),
}


def train(t, make, optimizer, device, start=None, dtype=None, steps=5):
    """The losses, and the model after the last step."""
    model = make(t)
    if start is not None:
        model.load_state_dict({name: t.tensor(value) for name, value in start.items()})
    begin = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    model = model.to(device)
    optimizer = OPTIMIZERS[optimizer](t, model.parameters())
    x = t.tensor(INPUTS[make]).to(device)
    y = (t.arange(len(x)) % 5).to(device)
    losses = []
    for _ in range(steps):
        with t.autocast(device, dtype=dtype or t.bfloat16, enabled=dtype is not None):
            loss = t.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model, begin


def arrays(model):
    return {name: value.cpu().numpy() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", INPUTS, ids=lambda make: make.__name__)
def test_parameters_are_those_of_pytorch(make, optimizer, device):
    found, mine, start = train(ad, make, optimizer, device)
    expected, theirs, _ = train(torch, make, optimizer, peer(device), start)
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    theirs = arrays(theirs)
    for name, value in arrays(mine).items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("make", INPUTS, ids=lambda make: make.__name__)
def test_autocast_gives_the_losses_of_pytorch(make, device):
    """To the precision of bfloat16, in which the products are."""
    found, model, start = train(ad, make, "SGD", device, dtype=ad.bfloat16)
    expected, _, _ = train(torch, make, "SGD", peer(device), start, dtype=torch.bfloat16)
    np.testing.assert_allclose(found, expected, rtol=2e-2)
    assert all(p.dtype is p.grad.dtype is ad.float32 for p in model.parameters())
