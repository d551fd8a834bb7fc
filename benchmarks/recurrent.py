"""Recurrent layers: 50 steps, forward alone and with the gradients of all parameters."""

from __future__ import annotations

import os

import torch

import adjoint as ad

from .timing import compare, header, row

SIZES = (32, 128, 512)  # of input and state
BATCHES = (1, 32, 128)
STEPS = 50


def layer(t: object, kind: str, size: int, batch: int, gradients: bool) -> object:
    """One layer over a batch of sequences, as a function of no arguments."""
    model = getattr(t.nn, kind)(size, size)
    x = t.randn(STEPS, batch, size)

    def run() -> None:
        if gradients:
            model.zero_grad()
            output = model(x)[0]
            output.backward(t.ones_like(output))
        else:
            with t.no_grad():
                model(x)

    return run


def main() -> None:
    """Print the table."""
    threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    torch.set_num_threads(threads)
    for gradients in (False, True):
        what = "forward and backward" if gradients else "forward"
        header(f"Recurrent layers, {what} (float32, {STEPS} steps, {threads} threads)")
        for kind in ("LSTM", "GRU", "RNN"):
            for size in SIZES:
                for batch in BATCHES:
                    ours, theirs = (layer(t, kind, size, batch, gradients) for t in (ad, torch))
                    label = f"{kind} {size}, batch {batch}"
                    row(label, compare(ours, theirs, rounds=7, seconds=0.05))
