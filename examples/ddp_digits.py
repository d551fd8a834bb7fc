"""Handwritten digits on several ranks: each trains on its share of each batch.

Expected: test accuracy at least 0.96
Run: python examples/ddp_digits.py, or adjoint run --nproc 2 examples/ddp_digits.py
"""

import os

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import adjoint as torch
import adjoint.distributed as dist
from adjoint import nn
from adjoint.nn.parallel import DistributedDataParallel
from adjoint.utils.data import DataLoader, TensorDataset
from adjoint.utils.data.distributed import DistributedSampler

STEPS = 5 if os.environ.get("ADJOINT_SMOKE") else 460  # 20 epochs
BATCH = 64  # of all ranks together


def load():
    """Training and test set: 1437 and 360 images of 64 pixels."""
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=360, stratify=y, random_state=0)
    x_train, x_test = (torch.from_numpy(part).float() for part in parts[:2])
    y_train, y_test = (torch.from_numpy(part) for part in parts[2:])
    return TensorDataset(x_train, y_train), TensorDataset(x_test, y_test)


def build_model():
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def train(model, steps, dataset):
    """The mean loss of all ranks, step by step."""
    sampler = DistributedSampler(dataset, seed=0)
    loader = DataLoader(dataset, batch_size=BATCH // dist.get_world_size(), sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    losses, epoch = [], 0
    model.train()
    while len(losses) < steps:
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total, dist.ReduceOp.AVG)
            losses.append(total.item())
            if len(losses) == steps:
                break
        epoch += 1
    return losses


@torch.no_grad()
def accuracy(model, dataset):
    """Each rank counts its share, without padding; the counts are added up."""
    model.eval()
    sampler = DistributedSampler(dataset, shuffle=False, exact=True)
    correct = torch.zeros((), dtype=torch.int64)
    for images, labels in DataLoader(dataset, batch_size=256, sampler=sampler):
        correct += (model(images).argmax(dim=1) == labels).sum()
    dist.all_reduce(correct)
    return correct.item() / len(dataset)


def main():
    dist.init_process_group()
    torch.manual_seed(0)
    train_set, test_set = load()
    model = DistributedDataParallel(build_model())
    losses = train(model, STEPS, train_set)
    result = accuracy(model.module, test_set)
    if dist.get_rank() == 0:
        print(f"ranks: {dist.get_world_size()}")
        print(f"last loss: {losses[-1]:.4f}")
        print(f"test accuracy: {result:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
