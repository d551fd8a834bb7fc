"""scaled_dot_product_attention from 64 to 2048 tokens, and in layers, beside PyTorch's.

ADJOINT_NUM_THREADS says how many threads both use.
"""

from __future__ import annotations

import math

import numpy as np
import torch

import adjoint as ad
from adjoint.backends.native.runtime.cores import default_num_threads

from .timing import compare, header, row

WORK = 1 << 24  # multiply-adds of about half a millisecond
TOKENS = (64, 128, 256, 512, 1024, 2048)
CASES = [  # batch, heads, tokens, features of a head, what else
    (12, 4, 64, 32, "causal"),
    *[(1, 8, n, 64, kind) for n in TOKENS for kind in ("", "causal")],
    *[(1, 12, n, 32, "") for n in (256, 1024)],
    *[(1, 4, n, 128, "") for n in (256, 1024)],
    *[(2, 8, 256, 64, kind) for kind in ("bool mask", "float mask", "padding", "shared")],
    (8, 4, 77, 40, ""),
]


def attention(t: object, batch: int, heads: int, tokens: int, features: int, kind: str) -> tuple:
    """Forward alone, and forward with backward, as functions of no arguments.

    Heads lie inside of positions, as a layer's projections make them.
    """
    r = np.random.default_rng(0)

    def tensor(heads: int, **options: object) -> object:
        x = r.standard_normal((batch, tokens, heads, features)).astype("f")
        return t.tensor(x).transpose(1, 2).detach().requires_grad_()

    few = heads // 4 if kind == "shared" else heads
    q, k, v, g = (tensor(n) for n in (heads, few, few, heads))
    g = g.detach()
    options: dict = {"is_causal": True} if kind == "causal" else {}
    if kind == "shared":
        options["enable_gqa"] = True
    elif kind == "padding":
        options["attn_mask"] = t.tensor(r.random((batch, 1, 1, tokens)) > 0.2)
    elif kind == "bool mask":
        options["attn_mask"] = t.tensor(r.random((tokens, tokens)) > 0.5)
    elif kind == "float mask":
        options["attn_mask"] = t.tensor(r.standard_normal((tokens, tokens)).astype("f"))

    def forward() -> object:
        return t.nn.functional.scaled_dot_product_attention(q, k, v, **options)

    def inference() -> None:
        with t.no_grad():
            forward()

    def both() -> None:
        t.autograd.grad(forward(), (q, k, v), g)

    return inference, both


def layer(t: object) -> tuple:
    """nn.TransformerEncoderLayer, 4x128 tokens of 256 features, 8 heads, with padding."""
    module = t.nn.TransformerEncoderLayer(256, 8, 512, dropout=0.0, batch_first=True)
    x = t.randn(4, 128, 256)
    padding = t.arange(128) > t.tensor([[100], [127], [60], [127]])

    def both() -> None:
        module(x, src_key_padding_mask=padding).sum().backward()

    return (both,)


def main() -> None:
    """Print the table."""
    threads = default_num_threads()
    torch.set_num_threads(threads)
    header(f"Attention (float32, {threads} threads)")
    ratios = []
    for case in CASES:
        batch, heads, tokens, features, kind = case
        label = f"{batch}x{heads} heads, {tokens} tokens, {features} features {kind}"
        seconds = 0.02 + batch * heads * tokens**2 * features / WORK * 5e-4
        for name, ours, theirs in zip(
            ("", "  and backward"), attention(ad, *case), attention(torch, *case), strict=True
        ):
            found = compare(ours, theirs, rounds=9, seconds=min(seconds, 0.2))
            ratios.append(found.ratio)
            row(name or label.rstrip(), found)
    row(layer.__doc__.rstrip("."), compare(*(layer(t)[0] for t in (ad, torch)), rounds=9))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean of {len(ratios)} rows of attention: {mean:.2f}")
