"""Throughput of the DataLoader: a pass over a dataset, in this process and with two workers."""

from __future__ import annotations

import numpy as np
import torch

import adjoint as ad

from .timing import compare, header, row


class Rows:
    """Items that are NumPy arrays, made before; so the loader's own work is what is measured."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self.items = np.random.default_rng(0).random((count, *shape), np.float32)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return self.items[i], i % 10


class Scaled(Rows):
    """Items that take some work, as decoding an image does."""

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        item = self.items[i]
        for _ in range(4):
            item = np.tanh(item)
        return item, i % 10


CASES = (
    ("small samples, 64 floats", Rows((64,), 4096), 32),
    ("images, 3x64x64", Rows((3, 64, 64), 512), 32),
    ("large samples, 3x224x224", Rows((3, 224, 224), 128), 16),
    ("images with work, 3x64x64", Scaled((3, 64, 64), 256), 32),
)


def one_pass(loader: object) -> object:
    """A function that reads all batches."""

    def run() -> None:
        for _ in loader:
            pass

    return run


def main() -> None:
    """Print the tables; with workers, they are kept, so that starting them is not measured."""
    torch.set_num_threads(1)
    for workers in (0, 2):
        header(f"DataLoader, {workers} workers: one pass")
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        for label, dataset, size in CASES:
            ours = ad.data.DataLoader(dataset, size, shuffle=True, **options)
            theirs = torch.utils.data.DataLoader(dataset, size, shuffle=True, **options)
            row(f"{label}, batch {size}", compare(one_pass(ours), one_pass(theirs), 7, 0.2))
        rows = np.random.default_rng(0).random((4096, 64), np.float32)
        ours = ad.data.TensorDataset(ad.from_numpy(rows))
        theirs = torch.utils.data.TensorDataset(torch.from_numpy(rows))
        ours = ad.data.DataLoader(ours, 32, shuffle=True, **options)
        theirs = torch.utils.data.DataLoader(theirs, 32, shuffle=True, **options)
        row("TensorDataset, 64 floats, batch 32", compare(one_pass(ours), one_pass(theirs), 7, 0.2))
