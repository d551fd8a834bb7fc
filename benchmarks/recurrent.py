"""Recurrent layers over 50 steps, and single cells: forward alone, and with all gradients."""

from __future__ import annotations

import os

import torch

import adjoint as ad

from .timing import compare, header, row

KINDS = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
SIZES = (32, 128, 512)  # of input and state
BATCHES = (1, 32, 128)
STEPS = 50


def layer(t: object, kind: str, size: int, batch: int, gradients: bool) -> object:
    """A layer over a batch of sequences, or a cell, as a function of no arguments."""
    model = getattr(t.nn, kind)(size, size)
    x = t.randn(batch, size) if "Cell" in kind else t.randn(STEPS, batch, size)
    output_is_first = kind != "RNNCell" and kind != "GRUCell"

    def run() -> None:
        if gradients:
            model.zero_grad()
            found = model(x)
            output = found[0] if output_is_first else found
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
        for kind in KINDS:
            for size in SIZES:
                for batch in BATCHES:
                    ours, theirs = (layer(t, kind, size, batch, gradients) for t in (ad, torch))
                    label = f"{kind} {size}, batch {batch}"
                    row(label, compare(ours, theirs, rounds=7, seconds=0.05))
