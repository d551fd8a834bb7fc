"""Common layers of `t`, adjoint or torch, each with the shapes of its inputs ("i": integers)."""

from __future__ import annotations

from typing import Any


def layers(t: Any) -> dict[str, Any]:
    """By name: the module, without dropout, and shapes."""
    n = t.nn
    encoder = n.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    decoder = n.TransformerDecoderLayer(4, 2, 8, 0.0, n.GELU())
    x = (2, 5, 4)
    return {
        "Linear": (n.Linear(3, 4), [(2, 3)]),
        "Bilinear": (n.Bilinear(3, 4, 2), [(2, 3), (2, 4)]),
        "Conv1d": (n.Conv1d(4, 3, 3, padding="same"), [(2, 4, 5)]),
        "Conv2d": (n.Conv2d(2, 4, 3, 1, 1, groups=2, padding_mode="reflect"), [(1, 2, 5, 5)]),
        "Conv3d": (n.Conv3d(1, 2, 2, bias=False), [(1, 1, 3, 3, 3)]),
        "ConvTranspose2d": (n.ConvTranspose2d(2, 3, 3, stride=2), [(1, 2, 4, 4)]),
        "BatchNorm1d": (n.BatchNorm1d(4), [(3, 4)]),
        "BatchNorm2d": (n.BatchNorm2d(3, affine=False), [(2, 3, 4, 4)]),
        "InstanceNorm2d": (n.InstanceNorm2d(3, affine=True), [(2, 3, 4, 4)]),
        "LayerNorm": (n.LayerNorm(4), [x]),
        "GroupNorm": (n.GroupNorm(2, 4), [(2, 4, 3)]),
        "RMSNorm": (n.RMSNorm(4), [x]),
        "Embedding": (n.Embedding(5, 3, padding_idx=0), [("i", 2, 3)]),
        "EmbeddingBag": (n.EmbeddingBag(5, 3), [("i", 2, 3)]),
        "RNN": (n.RNN(4, 3, 2, nonlinearity="relu"), [x]),
        "LSTM": (n.LSTM(4, 3, 2, bidirectional=True), [x]),
        "LSTM with projections": (n.LSTM(4, 3, proj_size=2, batch_first=True), [x]),
        "GRU": (n.GRU(4, 3, bias=False), [x]),
        "LSTMCell": (n.LSTMCell(4, 3), [(2, 4)]),
        "MultiheadAttention": (n.MultiheadAttention(4, 2, batch_first=True), [x, x, x]),
        "MultiheadAttention of others": (
            n.MultiheadAttention(4, 2, bias=False, add_bias_kv=True, kdim=3, vdim=5),
            [x, (2, 5, 3), (2, 5, 5)],
        ),
        "TransformerEncoderLayer": (encoder, [x]),
        "TransformerEncoder": (n.TransformerEncoder(encoder, 2), [x]),
        "TransformerDecoder": (n.TransformerDecoder(decoder, 2), [x, x]),
        "Transformer": (n.Transformer(4, 2, 1, 1, 8, 0.0, activation="gelu"), [x, x]),
        "Sequential": (
            n.Sequential(n.Conv2d(1, 4, 3), n.BatchNorm2d(4), n.ReLU6(), n.MaxPool2d(2),
                         n.AvgPool2d(2), n.Upsample(scale_factor=2), n.PixelShuffle(2),
                         n.ReflectionPad2d(1), n.AdaptiveAvgPool2d(2), n.Flatten(),
                         n.Linear(4, 2), n.Identity(), n.Dropout(0.0)),
            [(2, 1, 10, 10)],
        ),
        "activations": (
            n.Sequential(n.ReLU(), n.GELU("tanh"), n.LeakyReLU(0.2), n.PReLU(), n.Hardswish(),
                         n.SiLU(), n.ELU(), n.Softplus(), n.Hardtanh(), n.Mish(), n.Softmax(-1)),
            [(2, 3)],
        ),
        "loss": (n.CrossEntropyLoss(label_smoothing=0.1), [(3, 5), ("i", 3)]),
    }  # fmt: skip
