"""What the cases share: weights and data made by NumPy, the same for PyTorch and adjoint."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def rng(name="", seed=0):
    return np.random.default_rng(zlib.crc32(name.encode()) + seed)


def data(*shape, seed=0, scale=1.0):
    """Normal numbers as a tensor."""
    return torch.from_numpy((rng("data", seed).standard_normal(shape) * scale).astype(np.float32))


def labels(count, *shape, seed=0):
    return torch.from_numpy(rng("labels", seed).integers(0, count, shape))


@torch.no_grad()
def fill(module, seed=0):
    """Give all parameters the numbers that belong to their names; buffers stay as they are made."""
    for name, p in module.named_parameters():
        draw = rng(name, seed).standard_normal(tuple(p.shape))
        if p.ndim > 1:
            draw *= np.prod(p.shape[1:]) ** -0.5
        else:
            draw = draw * 0.1 + (name.endswith(("weight", "gamma", "scale")))
        p.copy_(torch.from_numpy(np.asarray(draw)).to(p.dtype))
    return module


def told(x):
    """A few numbers that say what a tensor holds: mean, mean size, and eight of its elements."""
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    if isinstance(x, dict):
        return {str(key): told(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [told(each) for each in x]
    x = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
    flat = x.reshape(-1).astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    if x.dtype.kind == "c":
        flat = np.concatenate([flat.real, flat.imag])
    shown = flat[np.linspace(0, flat.size - 1, 8).astype(int)] if flat.size > 8 else flat
    ends = [float(flat.mean()), float(np.abs(flat).mean())] if flat.size else []
    return {"shape": list(x.shape), "numbers": [*ends, *map(float, shown)]}


def gradients(module):
    """What gradients come to: how many there are, and the mean size of six of them."""
    found = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    names = sorted(found)
    some = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, 6).astype(int))]
    return [len(names), *(float(found[n].abs().mean()) for n in some)]


def train(module, loss_of, steps=3, lr=0.01, optimizer=None):
    """Losses of some steps, the first step's gradients, and the loss after them."""
    optimizer = optimizer or torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
    losses, first = [], None
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        first = first or gradients(module)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(loss_of().item())
    return {"losses": losses, "gradients": first}
