"""x-transformers: decoders with several options train and generate; an encoder of images."""

from __future__ import annotations

import torch
from common import data, fill, labels, train
from torch.nn.functional import cross_entropy
from x_transformers import (
    AutoregressiveWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
)

OPTIONS = [
    {},
    {"rotary_pos_emb": True, "ff_glu": True, "use_rmsnorm": True},
    {"alibi_pos_bias": True, "attn_qk_norm": True},
    {"rel_pos_bias": True, "use_scalenorm": True, "shift_tokens": 1},
    {"attn_num_mem_kv": 2, "residual_attn": True, "attn_flash": False},
    {"attn_one_kv_head": True, "gate_residual": True, "sandwich_norm": True},
]


def case_decoders():
    ids, found = torch.arange(32).reshape(2, 16), []
    for options in OPTIONS:
        layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
        net = TransformerWrapper(num_tokens=40, max_seq_len=32, attn_layers=layers)
        model = fill(AutoregressiveWrapper(net))
        found.append(train(model, lambda: model(ids), 2))  # noqa: B023
        model.eval()
        torch.manual_seed(0)
        found.append(model.generate(ids[:, :4], 4, temperature=0.0).tolist())
    return found


def case_images():
    layers = Encoder(dim=32, depth=1, heads=4)
    model = fill(
        ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=layers)
    )
    return train(model, lambda: cross_entropy(model(data(2, 3, 32, 32)), labels(5, 2)), 3)
