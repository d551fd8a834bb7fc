"""Training with differential privacy (Abadi et al., 2016): a gradient for each image, by `func`.

Each image's gradient is clipped, so that none says much, and noise is added to the sum.
`vmap(grad(...))` gives all of a batch at once, equal to a loop over its images; the program
measures what it gains over that loop.

Expected: test accuracy at least 0.88
Run: python examples/private_sgd.py
"""

import os
import time

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.func import functional_call, grad, vmap
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 300
BATCH = 256
CLIP, NOISE = 1.0, 2.0


def build_model():
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def load():
    """Rows of 64 pixels from 0 to 1 and labels, for training and for the test."""
    digits = load_digits()
    parts = train_test_split(
        digits.data / 16, digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    x_train, x_test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    y_train, y_test = (torch.tensor(part) for part in parts[2:])
    return x_train, y_train, x_test, y_test


def gradients(model, x, y):
    """By name, each parameter's gradients for each of the images."""
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, image, label):
        return F.cross_entropy(functional_call(model, weights, (image[None],)), label[None])

    return vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)


def one_by_one(model, x, y):
    """The same by a loop."""
    found = {name: [] for name, _ in model.named_parameters()}
    for image, label in zip(x, y, strict=True):
        loss = F.cross_entropy(model(image[None]), label[None])
        for name, g in zip(found, torch.autograd.grad(loss, list(model.parameters())), strict=True):
            found[name].append(g)
    return {name: torch.stack(each) for name, each in found.items()}


def train(model, steps):
    x, y, _, _ = load()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    losses = []
    for _ in progress(range(steps)):
        chosen = torch.randint(0, len(x), (BATCH,))
        each = gradients(model, x[chosen], y[chosen])
        sizes = torch.stack([g.flatten(1).square().sum(dim=1) for g in each.values()]).sum(0).sqrt()
        scale = (CLIP / sizes).clamp(max=1.0)
        for name, p in model.named_parameters():
            total = torch.tensordot(scale, each[name], dims=1)
            p.grad = (total + NOISE * CLIP * torch.randn(*p.shape)) / BATCH
        optimizer.step()
        losses.append(sizes.mean().item())
    return losses


def main():
    torch.manual_seed(0)
    model = build_model()
    x, y, x_test, y_test = load()
    times: list[float] = []
    for way in (gradients, one_by_one) * 3:
        begin = time.perf_counter()
        found = way(model, x[:BATCH], y[:BATCH])
        times.append(time.perf_counter() - begin)
    same = gradients(model, x[:BATCH], y[:BATCH])
    apart = max((found[name] - same[name]).abs().max().item() for name in same)
    print(f"vmap(grad) is {min(times[1::2]) / min(times[::2]):.0f} times as fast as the loop")
    print(f"and differs by {apart:.1e}")
    train(model, STEPS)
    right = model(x_test).argmax(dim=1) == y_test
    print(f"test accuracy: {right.float().mean().item():.4f}")


if __name__ == "__main__":
    main()
