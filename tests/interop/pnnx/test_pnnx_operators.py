"""Every operator that is read, in files written by hand, against PyTorch's of the same name."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
import adjoint.pnnx
from adjoint.pnnx.step import TABLE
from tests.interop.pnnx.pnnx_files import bin_file, operator_files, param_text, shaped

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

rng = np.random.default_rng(0)


def floats(*shape):
    """Values between 0.1 and 0.9, where every function is smooth."""
    return (rng.random(shape) * 0.8 + 0.1).astype(np.float32)


V, M, S, X, Y = floats(4), floats(3, 4), floats(2, 6, 10), floats(2, 6, 8, 8), floats(2, 4, 6, 6, 6)
Q = floats(6, 6)
K, J = rng.integers(0, 6, (3, 4)), rng.integers(1, 5, (3, 4))
B, C = M > 0.5, K > 2
Z = (floats(2, 6) + 1j * floats(2, 6)).astype(np.complex64)
CASES = []  # kind, arrays, parameters, options


def case(kinds, arrays, params=None, **options):
    """Cases for operators that take the same."""
    for kind in kinds.split():
        CASES.append((kind, arrays, params or {}, options))


# ---- nn.* ----------------------------------------------------------------------------------------

case("nn.ReLU nn.ReLU6 nn.SELU nn.GELU nn.SiLU nn.Mish nn.Hardswish nn.Hardsigmoid nn.Sigmoid "
     "nn.Tanh nn.LogSigmoid nn.Softsign nn.Tanhshrink nn.Identity nn.Softmax2d nn.Flatten",
     [X])  # fmt: skip
case("nn.ELU nn.CELU", [X - 0.5], {"alpha": 0.5})
case("nn.Hardshrink nn.Softshrink", [X - 0.5], {"lambd": 0.25})
case("nn.LeakyReLU", [X - 0.5], {"negative_slope": 0.2})
case("nn.Hardtanh", [X - 0.5], {"min_val": -0.25, "max_val": 0.25})
case("nn.Threshold", [X], {"threshold": 0.5, "value": 0.25})
case("nn.Softplus", [X], {"beta": 2.0, "threshold": 1.0})
case("nn.RReLU", [X - 0.5], {"lower": 0.125, "upper": 0.25})
case("nn.PReLU", [X - 0.5], {"num_parameters": 6})
case("nn.Softmax nn.LogSoftmax nn.Softmin nn.GLU", [X], {"dim": 1})
case("nn.Dropout nn.Dropout2d nn.AlphaDropout", [X], {"p": 0.5})
case("nn.Dropout3d", [Y], {"p": 0.5})
for d, a in enumerate((S, X, Y), 1):
    c, ones = a.shape[1], (1,) * d
    kernel = {"kernel_size": (2,) * d, "stride": (2,) * d, "padding": ones}
    case(f"nn.Conv{d}d", [a], {**kernel, "in_channels": c, "out_channels": 4, "groups": 2,
         "dilation": ones, "bias": True, "padding_mode": "zeros"})  # fmt: skip
    case(f"nn.ConvTranspose{d}d", [a], {**kernel, "in_channels": c, "out_channels": 4, "groups": 2,
                                        "output_padding": ones, "bias": True})  # fmt: skip
    case(f"nn.MaxPool{d}d", [a], {**kernel, "dilation": ones, "ceil_mode": True,
                                  "return_indices": False})  # fmt: skip
    case(f"nn.AvgPool{d}d", [a], {**kernel, "ceil_mode": False, "count_include_pad": False})
    case(f"nn.AdaptiveAvgPool{d}d", [a], {"output_size": (3,) * d})
    case(f"nn.AdaptiveMaxPool{d}d", [a], {"output_size": (3,) * d, "return_indices": False})
    case(f"nn.BatchNorm{d}d", [a], {"num_features": c, "eps": 1e-4, "affine": True})
    case(f"nn.InstanceNorm{d}d", [a], {"num_features": c, "eps": 1e-4, "affine": True,
                                       "track_running_stats": d == 2})  # fmt: skip
    pads = (1, 2) * d
    case(f"nn.ReflectionPad{d}d nn.ReplicationPad{d}d nn.ZeroPad{d}d", [a], {"padding": pads})
    case(f"nn.ConstantPad{d}d", [a], {"padding": pads, "value": 0.5})
case("nn.Conv2d", [X], {"in_channels": 6, "out_channels": 4, "kernel_size": (3, 3), "bias": False,
                        "padding": (1, 1), "padding_mode": "reflect"})  # fmt: skip
case("nn.Conv2d", [X], {"in_channels": 6, "out_channels": 4, "kernel_size": (3, 3),
                        "padding": "same"})  # fmt: skip
case("nn.LPPool1d", [S], {"norm_type": 2.0, "kernel_size": 2, "stride": 2, "ceil_mode": False})
case("nn.LPPool2d", [X], {"norm_type": 2.0, "kernel_size": (2, 2), "stride": (2, 2)})
case("nn.AdaptiveAvgPool2d", [X], {"output_size": (3, 0)}, expect=lambda x: F.adaptive_avg_pool2d(
    x, (3, None)))  # fmt: skip
case("nn.MaxPool2d", [X], {"kernel_size": (2, 2), "return_indices": True}, outputs=2)
case("nn.ChannelShuffle", [X], {"groups": 3})
case("nn.PixelShuffle", [X[:, :4]], {"upscale_factor": 2})
case("nn.PixelUnshuffle", [X], {"downscale_factor": 2})
case("nn.Unfold", [X], {"kernel_size": (2, 2), "stride": (2, 2), "dilation": (1, 1)})
case("nn.Fold", [floats(2, 24, 16)], {"output_size": (8, 8), "kernel_size": (2, 2),
                                      "stride": (2, 2)})  # fmt: skip
case("nn.Upsample", [X], {"size": (7, 9), "mode": "bilinear", "align_corners": False})
case("nn.UpsamplingNearest2d", [X], {"scale_factor": (2.0, 2.0), "size": None})
case("nn.UpsamplingBilinear2d", [X], {"size": (9, 9)})
case("nn.Linear", [S], {"in_features": 10, "out_features": 3, "bias": True})
case("nn.Embedding", [K], {"num_embeddings": 6, "embedding_dim": 4, "sparse": False})
case("nn.GroupNorm", [X], {"num_groups": 2, "num_channels": 6, "eps": 1e-4, "affine": True})
case("nn.LayerNorm", [X], {"normalized_shape": (8, 8), "eps": 1e-4, "elementwise_affine": True})
case("nn.LayerNorm", [X], {"normalized_shape": (8,), "elementwise_affine": False})
case("nn.RMSNorm", [X], {"normalized_shape": (8,), "eps": 1e-4, "elementwise_affine": True})
case("nn.LocalResponseNorm", [X], {"size": 3, "alpha": 1e-3, "beta": 0.75, "k": 1.0})
sizes = {"input_size": 10, "hidden_size": 5, "num_layers": 2, "bidirectional": True}
case("nn.LSTM", [S], {**sizes, "batch_first": True, "proj_size": 3}, outputs=3)
case("nn.LSTM", [S, floats(4, 6, 5), floats(4, 6, 5)], sizes, outputs=3,
     call=lambda m, x, h, c: m(x, (h, c)))  # fmt: skip
case("nn.GRU", [S, floats(4, 6, 5)], sizes, outputs=2)
case("nn.RNN", [S], {**sizes, "bias": False, "nonlinearity": "relu"}, outputs=1)
heads = {"embed_dim": 10, "num_heads": 2, "bias": True, "add_bias_kv": False, "batch_first": True}
case("nn.MultiheadAttention", [S], heads, call=lambda m, x: m(x, x, x)[0])
case("nn.MultiheadAttention", [S], heads, outputs=2, call=lambda m, x: m(x, x, x))
case("nn.MultiheadAttention", [S, Q], heads, keys=("query", "attn_mask"),
     call=lambda m, x, mask: m(x, x, x, attn_mask=mask)[0])  # fmt: skip
case("nn.MultiheadAttention", [S, floats(2, 5, 4)], {**heads, "kdim": 4, "vdim": 4,
     "add_bias_kv": True}, call=lambda m, x, y: m(x, y, y)[0])  # fmt: skip
case("nn.MultiheadAttention", [S, S + 1, S + 2], heads, call=lambda m, x, y, z: m(x, y, z)[0])
case("nn.MultiheadAttention", [S, S + 1, S + 2, Q], heads,
     keys=("query", "key", "value", "attn_mask"),
     call=lambda m, x, y, z, mask: m(x, y, z, attn_mask=mask)[0])  # fmt: skip

# ---- F.* -----------------------------------------------------------------------------------------

case("F.relu F.relu6 F.selu F.gelu F.silu F.mish F.hardswish F.hardsigmoid F.sigmoid F.tanh "
     "F.logsigmoid F.softsign F.tanhshrink F.elu F.celu F.leaky_relu F.hardtanh F.hardshrink "
     "F.softshrink F.softplus", [X - 0.5], keys=("input",))  # fmt: skip
case("F.elu F.celu", [X - 0.5], {"alpha": 0.5}, keys=("input",))
case("F.gelu", [X], {"approximate": "tanh"}, keys=("input",))
case("F.rrelu", [X - 0.5], {"lower": 0.125, "upper": 0.25}, keys=("input",))
case("F.threshold", [X], {"threshold": 0.5, "value": 0.25}, keys=("input",))
case("F.softmax F.log_softmax F.softmin F.glu", [X], {"dim": 1}, keys=("input",))
case("F.normalize", [X], {"dim": 1, "p": 2.0, "eps": 1e-12}, keys=("input",))
case("F.prelu", [X - 0.5, floats(6)], keys=("input", "weight"))
case("F.dropout F.dropout2d F.alpha_dropout F.feature_alpha_dropout", [X], {"p": 0.5},
     keys=("input",), expect=lambda x: x)  # fmt: skip
case("F.dropout3d", [Y], {"p": 0.5}, keys=("input",), expect=lambda x: x)
for d, a in enumerate((S, X, Y), 1):
    kernel = {"kernel_size": (2,) * d, "stride": None, "padding": (1,) * d}
    case(f"F.max_pool{d}d", [a], {**kernel, "dilation": (1,) * d, "ceil_mode": True,
                                  "return_indices": False}, keys=("input",))  # fmt: skip
    case(f"F.avg_pool{d}d", [a], {**kernel, "ceil_mode": False, "count_include_pad": True},
         keys=("input",))  # fmt: skip
    case(f"F.adaptive_avg_pool{d}d", [a], {"output_size": (3,) * d}, keys=("input",))
    case(f"F.adaptive_max_pool{d}d", [a], {"output_size": (3,) * d, "return_indices": True},
         keys=("input",), outputs=2)  # fmt: skip
    more = {"stride": (2,) * d, "padding": (1,) * d, "groups": 2, "dilation": (1,) * d}
    c = a.shape[1]
    case(
        f"F.conv{d}d", [a, floats(4, c // 2, *(3,) * d), V], more, keys=("input", "weight", "bias")
    )
    case(f"F.conv_transpose{d}d", [a, floats(c, 2, *(3,) * d)], {**more, "bias": None},
         keys=("input", "weight"))  # fmt: skip
case("F.adaptive_avg_pool2d", [X], {"output_size": (0, 3)}, keys=("input",),
     expect=lambda x: F.adaptive_avg_pool2d(x, (None, 3)))  # fmt: skip
case("F.lp_pool1d", [S], {"norm_type": 2, "kernel_size": 2, "stride": None}, keys=("input",))
case("F.lp_pool2d", [X], {"norm_type": 2, "kernel_size": (2, 2), "stride": None}, keys=("input",))
case("F.pad", [X], {"pad": (1, 2, 3, 4), "mode": "constant", "value": 2.0}, keys=("input",))
for mode in ("reflect", "replicate", "circular"):
    case("F.pad", [X], {"pad": (1, 2, 1, 2), "mode": mode, "value": None}, keys=("input",))
case("F.pixel_shuffle", [X[:, :4]], {"upscale_factor": 2}, keys=("input",))
case("F.pixel_unshuffle", [X], {"downscale_factor": 2}, keys=("input",))
case("F.unfold", [X], {"kernel_size": (2, 2), "padding": (1, 1), "stride": (2, 2)}, keys=("input",))
case("F.fold", [floats(2, 24, 16)], {"output_size": (8, 8), "kernel_size": (2, 2),
     "stride": (2, 2)}, keys=("input",))  # fmt: skip
bilinear = {"mode": "bilinear", "align_corners": True}
case("F.interpolate F.upsample", [X], {**bilinear, "size": (9, 7)}, keys=("input",),
     expect=lambda x: F.interpolate(x, (9, 7), **bilinear))  # fmt: skip
case("F.upsample_nearest", [X], {"scale_factor": (2.0, 2.0)}, keys=("input",),
     expect=lambda x: F.interpolate(x, scale_factor=2))  # fmt: skip
case("F.upsample_bilinear", [X], {"size": (9, 7)}, keys=("input",),
     expect=lambda x: F.interpolate(x, (9, 7), **bilinear))  # fmt: skip
case("F.grid_sample", [X, floats(2, 3, 3, 2)], {"mode": "bilinear", "padding_mode": "zeros",
     "align_corners": False}, keys=("input", "grid"))  # fmt: skip
case("F.affine_grid", [floats(2, 2, 3)], {"size": (2, 6, 4, 4), "align_corners": False},
     keys=("theta",))  # fmt: skip
case("F.linear", [S, floats(3, 10)], {"bias": None}, keys=("input", "weight"))
case("F.embedding", [K, floats(6, 4)], {"sparse": False}, keys=("input", "weight"))
case("F.layer_norm", [S, floats(10), floats(10)], {"normalized_shape": (10,), "eps": 1e-4},
     keys=("input", "weight", "bias"))  # fmt: skip
case("F.rms_norm", [S], {"normalized_shape": (10,), "weight": None, "eps": None}, keys=("input",))
case("F.group_norm", [S, floats(6), floats(6)], {"num_groups": 2, "eps": 1e-4},
     keys=("input", "weight", "bias"))  # fmt: skip
case("F.instance_norm", [S], {"running_mean": None, "running_var": None, "weight": None,
     "bias": None, "eps": 1e-4}, keys=("input",))  # fmt: skip
case("F.batch_norm", [S, floats(6), floats(6)], {"weight": None, "bias": None, "eps": 1e-4},
     keys=("input", "running_mean", "running_var"))  # fmt: skip
case(
    "F.local_response_norm",
    [S],
    {"size": 3, "alpha": 1e-3, "beta": 0.75, "k": 1.0},
    keys=("input",),
)
case(
    "F.pairwise_distance", [M, M + 1], {"p": 2.0, "eps": 1e-6, "keepdim": False}, keys=("x1", "x2")
)
case("F.scaled_dot_product_attention", [S, S + 1, S + 2, Q], {"dropout_p": 0.5, "is_causal": False},
     keys=("query", "key", "value", "attn_mask"),
     expect=lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m))  # fmt: skip

# ---- torch.* -------------------------------------------------------------------------------------

case("torch.abs torch.acos torch.asin torch.asinh torch.atan torch.atanh torch.ceil torch.cos "
     "torch.cosh torch.erf torch.exp torch.expm1 torch.floor torch.lgamma torch.log torch.log10 "
     "torch.log1p torch.neg torch.positive torch.reciprocal torch.round torch.rsqrt torch.sign "
     "torch.sin torch.sinh torch.sqrt torch.square torch.tan torch.tanh torch.trunc torch.clone "
     "torch.real torch.t", [M], keys=("input",))  # fmt: skip
case("torch.acosh", [M + 1], keys=("input",))
case("torch.imag torch.view_as_real", [Z], keys=("input",))
case("torch.view_as_complex", [floats(3, 2)], keys=("input",))
case("torch.complex", [M, M + 1], keys=("real", "imag"))
case("torch.logical_not torch.bitwise_not", [B], keys=("input",))
pairs = ("torch.add torch.sub torch.mul torch.div torch.fmod torch.remainder torch.eq "
         "torch.ne torch.lt torch.le torch.gt torch.ge torch.floor_divide")  # fmt: skip
case(f"{pairs} torch.atan2 torch.maximum torch.minimum torch.logaddexp torch.max torch.min",
     [M, M[::-1] / 3], keys=("input", "other"))  # fmt: skip
case(pairs, [M], {"other": 0.25}, keys=("input",),
     expect=lambda x, kind: getattr(torch, kind[6:])(x, 0.25))  # fmt: skip
case("torch.pow", [M, M + 1], keys=("input", "exponent"))
case("torch.logical_and torch.logical_or torch.logical_xor torch.bitwise_and torch.bitwise_or "
     "torch.bitwise_xor", [B, C], keys=("input", "other"))  # fmt: skip
case("torch.bitwise_left_shift torch.bitwise_right_shift", [K, J], keys=("input", "other"))
case("torch.clamp", [M], {"min": 0.25, "max": 0.5}, keys=("input",))
case("torch.clamp", [M], {"min": None, "max": 0.5}, keys=("input",))
case("torch.clamp_min", [M], {"min": 0.5}, keys=("input",))
case("torch.clamp_max", [M], {"max": 0.5}, keys=("input",))
case("torch.sum torch.mean torch.max torch.min torch.prod torch.argmax", [S], keys=("input",))
case("torch.sum torch.mean torch.amax torch.amin torch.logsumexp", [S],
     {"dim": (1, 2), "keepdim": True}, keys=("input",))  # fmt: skip
case(
    "torch.std torch.var", [S], {"dim": (1,), "unbiased": False, "keepdim": False}, keys=("input",)
)
case("torch.argmax torch.argmin torch.prod", [S], {"dim": 1, "keepdim": True}, keys=("input",))
case("torch.max torch.min", [S], {"dim": 1, "keepdim": True}, keys=("input",), outputs=2)
case("torch.norm", [S], {"p": 2, "dim": (-1,), "keepdim": True}, keys=("input",))
case("torch.cumsum torch.cumprod", [S], {"dim": 1}, keys=("input",))
case(
    "torch.topk",
    [S],
    {"k": 3, "dim": 1, "largest": True, "sorted": True},
    keys=("input",),
    outputs=2,
)
case("torch.matmul", [S, S.transpose(0, 2, 1)], keys=("input", "other"))
case("torch.bmm", [S, S.transpose(0, 2, 1)], keys=("input", "mat2"))
case("torch.mm", [M, M.T], keys=("input", "mat2"))
case("torch.mv", [M, V], keys=("input", "vec"))
case(
    "torch.addmm", [floats(3, 3), M, M.T], {"alpha": 2, "beta": 0.5}, keys=("input", "mat1", "mat2")
)
case("torch.baddbmm", [floats(2, 6, 6), S, S.transpose(0, 2, 1)], {"alpha": 2, "beta": 0.5},
     keys=("input", "batch1", "batch2"))  # fmt: skip
case("torch.einsum", [S, S], {"equation": "ijl,ikl->ijk"},
     expect=lambda a, b: torch.einsum("ijl,ikl->ijk", a, b))  # fmt: skip
case("torch.cross", [floats(2, 3), floats(2, 3)], {"dim": 1}, keys=("input", "other"))
case("torch.flatten", [X], {"start_dim": 1, "end_dim": -2}, keys=("input",))
case("torch.reshape Tensor.reshape", [S], {"shape": (2, 3, -1)}, keys=("input",))
case("Tensor.reshape", [S], {"shape": (-2, 3, 2)}, expect=lambda x: x.reshape(-1, 3, 2))
case("Tensor.view", [S], {"shape": (2, 3, 20)}, keys=("input",), expect=lambda x: x.view(2, 3, 20))
case("torch.permute", [S], {"dims": (2, 0, 1)}, keys=("input",))
case("torch.transpose", [S], {"dim0": 0, "dim1": 2}, keys=("input",))
case("torch.squeeze Tensor.squeeze", [S[:, :1]], keys=("input",))
case("torch.squeeze torch.unsqueeze Tensor.squeeze Tensor.unsqueeze", [S[:, :1]], {"dim": 1},
     keys=("input",))  # fmt: skip
case("torch.flip", [S], {"dims": (1,)}, keys=("input",))
case("torch.roll", [S], {"shifts": (1, 2), "dims": (1, 2)}, keys=("input",))
case("torch.tile", [S], {"dims": (2, 1)}, keys=("input",))
case("torch.repeat_interleave", [S], {"repeats": 2, "dim": 1}, keys=("input",))
case("torch.narrow", [S], {"dim": 1, "start": 1, "length": 3}, keys=("input",))
case("torch.as_strided", [S], {"size": (2, 3), "stride": (1, 2)}, keys=("input",))
case("torch.diag", [V], {"diagonal": 1}, keys=("input",))
case("torch.split", [S], {"split_size_or_sections": (1, 5), "dim": 1}, keys=("tensor",), outputs=2)
case("torch.chunk", [S], {"chunks": 3, "dim": 1}, keys=("input",), outputs=3)
case("torch.unbind", [S], {"dim": 0}, keys=("input",), outputs=2)
case("torch.tensor_split", [S], {"sections": 3, "dim": 2}, keys=("input",), outputs=3,
     expect=lambda x: torch.tensor_split(x, 3, 2))  # fmt: skip
case("torch.tensor_split", [S], {"indices": (1, 4), "dim": 2}, keys=("input",), outputs=3,
     expect=lambda x: torch.tensor_split(x, (1, 4), 2))  # fmt: skip
case("torch.cat torch.stack", [M, M + 1], {"dim": 1},
     expect=lambda a, b, kind: getattr(torch, kind[6:])((a, b), 1))  # fmt: skip
case("torch.where", [B, M, M + 1], keys=("condition", "input", "other"))
case("torch.masked_select", [M, B], keys=("input", "mask"))
case("torch.gather", [M, K[:, :2] % 4], {"dim": 1}, keys=("input", "index"))
case("torch.index_select", [S, np.array([0, 3, 1])], {"dim": 1}, keys=("input", "index"))
case("torch.scatter_add", [M, K % 3, M + 1], {"dim": 0}, keys=("input", "index", "src"))
case("torch.slice_scatter", [M, M[:, 1:3] + 1], {"dim": 1, "start": 1, "end": 3, "step": 1},
     keys=("input", "src"))  # fmt: skip
case("torch.zeros_like torch.ones_like", [M], {"dtype": "torch.double"}, keys=("input",),
     expect=lambda x, kind: getattr(torch, kind[6:])(x, dtype=torch.double))  # fmt: skip
case("torch.full_like", [M], {"fill_value": 2.5, "dtype": None}, keys=("input",))
case("torch.zeros torch.ones", [], {"size": (2, 3), "dtype": "torch.long", "device": "cpu"},
     expect=lambda kind: getattr(torch, kind[6:])(2, 3, dtype=torch.long))  # fmt: skip
case("torch.full", [], {"size": (2, 3), "fill_value": 2.5}, expect=lambda: torch.full((2, 3), 2.5))
case("torch.arange", [], {"start": 1, "end": 7, "step": 2, "dtype": "torch.float"},
     expect=lambda: torch.arange(1.0, 7, 2))  # fmt: skip
case("torch.arange", [], {"end": 7}, expect=lambda: torch.arange(7))
case("torch.empty torch.randn", [], {"size": (2, 3)}, expect="shape")
case("torch.empty_like torch.randn_like", [M], keys=("input",), expect="shape")
case("torch.stft", [floats(2, 64), np.ones(16, np.float32)], {"n_fft": 16, "center": True,
     "pad_mode": "reflect", "return_complex": True}, keys=("input", "window"))  # fmt: skip
case("torch.istft", [(floats(9, 17) + 1j).astype(np.complex64), np.ones(16, np.float32)],
     {"n_fft": 16, "center": True}, keys=("input", "window"), tolerance=1e-4)  # fmt: skip
case("torch.fft.fft torch.fft.ifft torch.fft.rfft torch.fft.ihfft", [S],
     {"dim": -1, "n": None, "norm": None}, keys=("input",))  # fmt: skip
case("torch.fft.fft2 torch.fft.ifft2 torch.fft.rfft2 torch.fft.ihfft2 torch.fft.fftn "
     "torch.fft.ifftn torch.fft.rfftn torch.fft.ihfftn", [S],
     {"dim": (-2, -1), "s": None, "norm": "ortho"}, keys=("input",))  # fmt: skip
case("torch.fft.irfft torch.fft.hfft", [Z], {"dim": -1, "n": None, "norm": None}, keys=("input",))
case("torch.fft.irfft2 torch.fft.hfft2 torch.fft.irfftn torch.fft.hfftn", [Z],
     {"dim": (-2, -1), "s": None, "norm": None}, keys=("input",))  # fmt: skip

# ---- Tensor.* ------------------------------------------------------------------------------------

LAST = 2**31 - 1
case("Tensor.permute", [S], {"dims": (2, 0, 1)}, keys=("input",))
case("Tensor.transpose", [S], {"dim0": 0, "dim1": 2}, keys=("input",))
case("Tensor.t Tensor.clone Tensor.detach", [M], keys=("input",))
case("Tensor.contiguous", [M], {"memory_format": "torch.contiguous_format"}, keys=("input",),
     expect=lambda x: x)  # fmt: skip
case("Tensor.flatten", [S], {"start_dim": 1, "end_dim": -1}, keys=("input",))
case("Tensor.unflatten", [S], {"dim": 1, "sizes": (2, 3)}, keys=("input",))
case("Tensor.expand", [S[:, :1]], {"sizes": (-1, 4, 10)}, keys=("input",),
     expect=lambda x: x.expand(-1, 4, 10))  # fmt: skip
case(
    "Tensor.repeat", [S], {"sizes": (1, 2, 3)}, keys=("input",), expect=lambda x: x.repeat(1, 2, 3)
)
case("Tensor.expand_as Tensor.reshape_as Tensor.view_as", [S, S + 1], keys=("input", "other"))
case("Tensor.type_as", [K, M], keys=("input", "other"))
case("Tensor.to", [M], {"copy": False, "dtype": "torch.double"}, keys=("input",),
     expect=lambda x: x.double())  # fmt: skip
case("Tensor.masked_fill", [M, B], {"value": float("-inf")}, keys=("input", "mask"))
case("Tensor.fill", [M], {"value": 0.5}, keys=("input",), expect=lambda x: torch.full_like(x, 0.5))
case("Tensor.copy", [M, V], keys=("self", "src"), expect=lambda x, y: y.expand(3, 4))
case("Tensor.select", [S], {"dim": 1, "index": -1}, keys=("input",))
case("Tensor.slice", [S], {"dim": 1, "start": 1, "end": -1, "step": 2}, keys=("input",),
     expect=lambda x: x[:, 1:-1:2])  # fmt: skip
case("Tensor.slice", [S], {"dims": (0, 2), "starts": (0, 1), "ends": (0, LAST), "steps": (0, 3),
     "selects": (1, LAST)}, keys=("input",), expect=lambda x: x[1, :, 1::3])  # fmt: skip
case("Tensor.slice", [S], {"dim": -1, "select": 2}, keys=("input",), expect=lambda x: x[..., 2])
case("Tensor.slice_copy", [S, S[:, 2:4] + 1], {"dim": 1, "start": 2, "end": 4, "step": 1},
     keys=("self", "src"), expect=lambda x, y: torch.cat((x[:, :2], y, x[:, 4:]), 1))  # fmt: skip
case("Tensor.index", [S], {"expr": "[None,[0,2,1]]"}, expect=lambda x: x[:, [0, 2, 1]])
case("Tensor.index", [S, np.array([1, 0])], {"expr": "[@1]"}, expect=lambda x, i: x[i])
case("Tensor.index", [M, B], {"expr": "[@1]"}, expect=lambda x, m: x[m])
case("Tensor.new_zeros Tensor.new_ones", [K], {"size": (2, 3)}, keys=("input",))
case("Tensor.new_full", [K], {"size": (2, 3), "fill_value": 7}, keys=("input",))
case("Tensor.new_empty", [K], {"size": (2, 3)}, keys=("input",), expect="shape")

# ---- ATen's, by position -------------------------------------------------------------------------

case("aten::deg2rad aten::digamma aten::erfc aten::erfinv aten::exp2 aten::frac aten::isfinite "
     "aten::isinf aten::isnan aten::log2 aten::nan_to_num aten::rad2deg aten::sinc aten::tril "
     "aten::triu aten::trace aten::argsort aten::diff", [M])  # fmt: skip
case("aten::contiguous aten::alias aten::detach", [M], expect=lambda x: x)
case("aten::mT", [M], expect=lambda x: x.mT)
case("aten::numpy_T", [M], expect=lambda x: x.T)
case("aten::mH", [Z], expect=lambda x: x.mH)
case("aten::all aten::any", [B])
case("aten::prod aten::median", [M])
case("aten::hypot aten::xlogy", [M, M + 1])
case("aten::outer aten::dot", [V, V + 1])
case("aten::kron", [M, M])
case("aten::take_along_dim", [M, K % 3], expect=lambda x, i: torch.take_along_dim(x, i))
EXPRESSIONS = {  # the other arguments, as pnnx writes them
    "aten::clamp_max": ("0.5", lambda x: x.clamp_max(0.5)),
    "aten::clamp_min": ("0.5", lambda x: x.clamp_min(0.5)),
    "aten::cummax": ("1", lambda x: torch.cummax(x, 1)),
    "aten::cummin": ("1", lambda x: torch.cummin(x, 1)),
    "aten::logcumsumexp": ("1", lambda x: torch.logcumsumexp(x, 1)),
    "aten::sort": ("-1 True", lambda x: torch.sort(x, -1, True)),
    "aten::std": ("True", lambda x: x.std()),
    "aten::var": ("False", lambda x: x.var(unbiased=False)),
    "aten::movedim": ("0 1", lambda x: torch.movedim(x, 0, 1)),
    "aten::rot90": ("1 [0,1]", lambda x: torch.rot90(x, 1, (0, 1))),
    "aten::unfold": ("1 2 1", lambda x: x.unfold(1, 2, 1)),
    "aten::linalg_norm": ("None [1] True None", lambda x: torch.linalg.norm(x, None, (1,), True)),
    "aten::linalg_vector_norm": (
        "3.0 [1] False None", lambda x: torch.linalg.vector_norm(x, 3.0, 1)),
}  # fmt: skip
REST = {  # tested below, each on its own
    "pnnx.Expression", "pnnx.SliceIndexes", "prim::TupleConstruct", "prim::ListConstruct",
    "prim::TupleUnpack", "prim::ListUnpack", "Tensor.index_put", "Tensor.size", "Tensor.dim",
    "aten::channel_shuffle", "aten::cosine_similarity", "aten::one_hot", "aten::meshgrid",
    "aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", "aten::numel",
    "aten::unsafe_chunk", "aten::unsafe_split", "aten::unsafe_split_with_sizes",
    "aten::embedding_bag", "prim::DictConstruct",
}  # fmt: skip


# what pass_level1 and pass_level2 of pnnx register
REGISTERED = """
F.adaptive_avg_pool1d F.adaptive_avg_pool2d F.adaptive_avg_pool3d F.adaptive_max_pool1d
F.adaptive_max_pool2d F.adaptive_max_pool3d F.affine_grid F.alpha_dropout F.avg_pool1d
F.avg_pool2d F.avg_pool3d F.batch_norm F.celu F.conv1d F.conv2d F.conv3d F.conv_transpose1d
F.conv_transpose2d F.conv_transpose3d F.dropout F.dropout2d F.dropout3d F.elu F.embedding
F.feature_alpha_dropout F.fold F.gelu F.glu F.grid_sample F.group_norm F.hardshrink F.hardsigmoid
F.hardswish F.hardtanh F.instance_norm F.interpolate F.layer_norm F.leaky_relu F.linear
F.local_response_norm F.log_softmax F.logsigmoid F.lp_pool1d F.lp_pool2d F.max_pool1d F.max_pool2d
F.max_pool3d F.mish F.normalize F.pad F.pairwise_distance F.pixel_shuffle F.pixel_unshuffle
F.prelu F.relu F.relu6 F.rms_norm F.rrelu F.scaled_dot_product_attention F.selu F.sigmoid F.silu
F.softmax F.softmin F.softplus F.softshrink F.softsign F.tanh F.tanhshrink F.threshold F.unfold
F.upsample F.upsample_bilinear F.upsample_nearest Tensor.copy Tensor.expand Tensor.expand_as
Tensor.fill Tensor.index Tensor.index_put Tensor.masked_fill Tensor.new_empty Tensor.new_full
Tensor.new_ones Tensor.new_zeros Tensor.permute Tensor.repeat Tensor.reshape Tensor.reshape_as
Tensor.select Tensor.size Tensor.slice Tensor.to Tensor.type_as Tensor.unflatten
nn.AdaptiveAvgPool1d nn.AdaptiveAvgPool2d nn.AdaptiveAvgPool3d nn.AdaptiveMaxPool1d
nn.AdaptiveMaxPool2d nn.AdaptiveMaxPool3d nn.AlphaDropout nn.AvgPool1d nn.AvgPool2d nn.AvgPool3d
nn.BatchNorm1d nn.BatchNorm2d nn.BatchNorm3d nn.CELU nn.ChannelShuffle nn.ConstantPad1d
nn.ConstantPad2d nn.ConstantPad3d nn.Conv1d nn.Conv2d nn.Conv3d nn.ConvTranspose1d
nn.ConvTranspose2d nn.ConvTranspose3d nn.Dropout nn.Dropout2d nn.Dropout3d nn.ELU nn.Embedding
nn.Fold nn.GELU nn.GLU nn.GRU nn.GroupNorm nn.Hardshrink nn.Hardsigmoid nn.Hardswish nn.Hardtanh
nn.InstanceNorm1d nn.InstanceNorm2d nn.InstanceNorm3d nn.LPPool1d nn.LPPool2d nn.LSTM nn.LayerNorm
nn.LeakyReLU nn.Linear nn.LocalResponseNorm nn.LogSigmoid nn.LogSoftmax nn.MaxPool1d nn.MaxPool2d
nn.MaxPool3d nn.Mish nn.MultiheadAttention nn.PReLU nn.PixelShuffle nn.PixelUnshuffle nn.RMSNorm
nn.RNN nn.RReLU nn.ReLU nn.ReLU6 nn.ReflectionPad1d nn.ReflectionPad2d nn.ReplicationPad1d
nn.ReplicationPad2d nn.ReplicationPad3d nn.SELU nn.SiLU nn.Sigmoid nn.Softmax nn.Softmax2d
nn.Softmin nn.Softplus nn.Softshrink nn.Softsign nn.Tanh nn.Tanhshrink nn.Threshold nn.Unfold
nn.Upsample nn.UpsamplingBilinear2d nn.UpsamplingNearest2d nn.ZeroPad2d nn.quantized.Conv2d
nn.quantized.DeQuantize nn.quantized.Linear nn.quantized.Quantize pnnx.Attribute pnnx.Expression
pnnx.Input pnnx.Output pnnx.SliceIndexes torch.addmm torch.amax torch.amin torch.arange
torch.argmax torch.argmin torch.as_strided torch.baddbmm torch.bitwise_and
torch.bitwise_left_shift torch.bitwise_not torch.bitwise_or torch.bitwise_right_shift
torch.bitwise_xor torch.bmm torch.cat torch.chunk torch.clamp torch.clone torch.complex
torch.cross torch.cumprod torch.cumsum torch.dequantize torch.diag torch.einsum torch.empty
torch.empty_like torch.eq torch.fft.fft torch.fft.fft2 torch.fft.fftn torch.fft.hfft
torch.fft.hfft2 torch.fft.hfftn torch.fft.ifft torch.fft.ifft2 torch.fft.ifftn torch.fft.ihfft
torch.fft.ihfft2 torch.fft.ihfftn torch.fft.irfft torch.fft.irfft2 torch.fft.irfftn torch.fft.rfft
torch.fft.rfft2 torch.fft.rfftn torch.flatten torch.flip torch.full torch.full_like torch.gather
torch.ge torch.gt torch.imag torch.index_select torch.istft torch.le torch.lgamma
torch.logical_and torch.logical_not torch.logical_or torch.logical_xor torch.logsumexp torch.lt
torch.masked_select torch.matmul torch.max torch.mean torch.min torch.mm torch.mv torch.narrow
torch.ne torch.norm torch.normal torch.ones torch.ones_like torch.positive torch.prod
torch.quantize_per_tensor torch.randn torch.randn_like torch.real torch.repeat_interleave
torch.roll torch.scatter_add torch.slice_scatter torch.split torch.squeeze torch.stack torch.std
torch.stft torch.sum torch.t torch.tensor_split torch.tile torch.topk torch.transpose torch.unbind
torch.unsqueeze torch.var torch.view_as_complex torch.view_as_real torch.where torch.zeros
torch.zeros_like torchaudio.F.inverse_spectrogram torchaudio.F.spectrogram
torchvision.ops.DeformConv2d torchvision.ops.RoIAlign
""".split()  # noqa: SIM905 - as a text of names


def test_the_documented_counts():
    text = Path(__file__).parents[3].joinpath("docs", "pnnx.md").read_text()
    ends = {"pnnx.Input", "pnnx.Output", "pnnx.Attribute"}
    gaps = [name for name in REGISTERED if name not in TABLE and name not in ends]
    assert f"| {len(REGISTERED) - len(gaps)} | {len(REGISTERED)} |" in text
    assert all(f"`{name}`" in text for name in gaps)
    others = [name for name in TABLE if name not in REGISTERED]
    aten = sum(name.startswith("aten::") for name in others)
    assert f"{aten} of ATen's, 5 of TorchScript's | {len(others)} |" in text


def test_every_operator_has_a_case():
    assert {c[0] for c in CASES} | set(EXPRESSIONS) | REST == set(TABLE)


def expected(kind, arrays, params, options):
    """What PyTorch's function, method or module of that name gives; and the module's weights."""
    inputs = [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]
    if callable(options.get("expect")):
        more = [kind] if "kind" in options["expect"].__code__.co_varnames else []
        return options["expect"](*inputs, *more), {}
    if kind.startswith("nn."):
        module = getattr(nn, kind[3:])(**params).eval()
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                if tensor.is_floating_point():
                    tensor.copy_(torch.from_numpy(floats(*tensor.shape)))
        state = {k: v.numpy() for k, v in module.state_dict().items() if k != "num_batches_tracked"}
        call = options.get("call", lambda m, *xs: m(*xs))
        return call(module, *inputs), state
    prefix, _, name = kind.replace("aten::", "torch.").rpartition(".")
    home = {"F": F, "torch": torch, "torch.fft": torch.fft}.get(prefix)
    if prefix == "Tensor":
        return getattr(inputs[0], name)(*inputs[1:], **params), {}
    function = getattr(home, name)
    keys = options.get("keys", ())
    return function(*inputs[len(keys) :], **dict(zip(keys, inputs, strict=False)), **params), {}


def flat(found):
    return [t for x in found for t in flat(x)] if isinstance(found, (tuple, list)) else [found]


def assert_same(found, wanted, tolerance=1e-5):
    for a, b in zip(flat(found), flat(wanted), strict=True):
        a, b = np.asarray(a.detach().numpy()), b.detach().resolve_conj().numpy()
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind, arrays, params, options", CASES, ids=[c[0] for c in CASES])
def test_operator(kind, arrays, params, options):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of old names
        if options.get("expect") != "shape":
            wanted, weights = expected(kind, arrays, params, options)
        else:
            wanted, weights = torch.zeros(params.get("size") or arrays[0].shape), {}
    outputs = options.get("outputs", 1)
    text, archive = operator_files(kind, arrays, params, options.get("keys", ()), outputs, weights)
    module = ad.pnnx.load(io.BytesIO(text), io.BytesIO(archive))
    with ad.no_grad():
        found = module(*map(ad.tensor, arrays))
    if options.get("expect") == "shape":
        assert found.shape == wanted.shape
        return
    wanted = flat(wanted)[:outputs]
    assert_same(found, wanted, options.get("tolerance", 1e-5))


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_arguments_that_are_expressions(kind):
    words, function = EXPRESSIONS[kind]
    given = words.split()
    lines = [f"pnnx.Expression e{i} 0 1 a{i} expr={word}" for i, word in enumerate(given)]
    wanted = function(torch.from_numpy(M))
    made = ["y", "z"][: len(flat(wanted))]
    names = " ".join(["x", *(f"a{i}" for i in range(len(given))), *made])
    found = run(
        "pnnx.Input i 0 1 x", *lines, f"{kind} k {1 + len(given)} {len(made)} {names}",
        *(f"pnnx.Output pnnx_output_{i} 1 0 {name}" for i, name in enumerate(made)), inputs=[M],
    )  # fmt: skip
    assert_same(found, wanted)


def run(*lines, inputs=(), weights=None):
    """The outputs of a graph."""
    archive = io.BytesIO(bin_file(weights or {}))
    return ad.pnnx.load(io.BytesIO(param_text(*lines)), archive)(*map(ad.tensor, inputs))


# ---- one by one ----------------------------------------------------------------------------------

ENDS = ("pnnx.Input i 0 1 x", "pnnx.Output o 1 0 y")


def expression(text, *arrays):
    names = [f"i{n}" for n in range(len(arrays))]
    return run(
        *(f"pnnx.Input pnnx_input_{n} 0 1 {name}" for n, name in enumerate(names)),
        f"pnnx.Expression e {len(names)} 1 {' '.join(names)} y expr={text}",
        "pnnx.Output o 1 0 y", inputs=arrays,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("add(@0,mul(@1,2))", lambda x, y: x + y * 2),
        ("sub(2,@0)", lambda x, y: 2 - x),
        ("div(2,add(@0,@1))", lambda x, y: 2 / (x + y)),
        ("add(@0,,mul(@1,3))", lambda x, y: x + 3 * y),  # two commas, as pnnx writes them
        ("pow(@0,2)", lambda x, y: x**2),
        ("pow(2,@0)", lambda x, y: 2**x),
        ("mul(reciprocal(@0),2)", lambda x, y: 2 / x),
        ("log1p,@0", lambda x, y: x.log1p()),  # without brackets, as pnnx writes some
        ("add(expm1,@0,@1)", lambda x, y: x.expm1() + y),
        ("maximum(@0,min(@1,0.5))", lambda x, y: torch.maximum(x, y.clamp_max(0.5))),
        ("atan2(@0,@1)", torch.atan2),
        ("fmod(@0,0.3)", lambda x, y: torch.fmod(x, 0.3)),
        ("floor_divide(@0,0.3)", lambda x, y: x // 0.3),
        ("remainder(@0,0.3)", lambda x, y: x % 0.3),
        ("logaddexp(@0,@1)", torch.logaddexp),
        ("and(gt(@0,@1),lt(@0,0.5))", lambda x, y: (x > y) & (x < 0.5)),
        ("xor(ge(@0,@1),or(eq(@0,@1),ne(@0,@1)))", lambda x, y: (x >= y) ^ (x == x)),
        ("torch.double(@0)", lambda x, y: x.double()),
        ("add(@0,size(@1,1))", lambda x, y: x + 4),
        ("mul(@0,int(floor_divide(size(@0,0),2)))", lambda x, y: x),
        ("add(@0,sub(pow(2,3),sqrt(16)))", lambda x, y: x + 4),
        ("round(mul(square(neg(@0)),4.0e+00))", lambda x, y: (x * x * 4).round()),
        ("sign(sub(abs(sin(@0)),tanh(@1)))", lambda x, y: (x.sin().abs() - y.tanh()).sign()),
    ],
)
def test_expression(text, wanted):
    assert_same(
        expression(text, M, M[::-1].copy()), wanted(*map(torch.tensor, (M, M[::-1].copy())))
    )


def test_every_function_of_an_expression_means_the_same_for_numbers_and_tensors():
    from adjoint.pnnx.expression import _ONE, _OPERATORS, _TWO, compiled, evaluated

    for name in _ONE:
        for number in [True] if "not" in name else [1.5] if name == "acosh" else [0.25, 0.75]:
            plain = evaluated(compiled(f"{name}({number})", 0), ())
            if name == "bitwise_not" or name == "not":
                assert plain == ~True
                continue
            tensor = evaluated(compiled(f"{name}(@0)", 1), (ad.tensor(number),))
            assert tensor.item() == pytest.approx(plain, rel=1e-5), name
    for name in (*_TWO, *_OPERATORS):
        whole = name in ("and", "or", "xor", "lshift", "rshift")
        a, b = (6, 1) if whole else (0.75, 0.5)
        plain = evaluated(compiled(f"{name}({a},{b})", 0), ())
        both = evaluated(compiled(f"{name}(@0,@1)", 2), (ad.tensor(a), ad.tensor(b)))
        left = evaluated(compiled(f"{name}(@0,{b})", 1), (ad.tensor(a),))
        right = evaluated(compiled(f"{name}({a},@0)", 1), (ad.tensor(b),))
        assert [x.item() for x in (both, left, right)] == pytest.approx([plain] * 3, rel=1e-6), name


def test_dynamic_sizes():
    """As pnnx writes a model that it knows no shapes of."""
    found = run(
        "pnnx.Input i 0 1 x",
        "pnnx.Expression e 1 1 x s expr=[size(@0,0),int(div(size(@0,1),2)),2]",
        "Tensor.reshape r 2 1 x s y $input=x $shape=s", "pnnx.Output o 1 0 y", inputs=[M],
    )  # fmt: skip
    assert_same(found, torch.from_numpy(M).reshape(3, 2, 2))


def test_parameters_that_are_operands():
    found = run(
        "pnnx.Input i 0 1 x", "pnnx.Expression a 0 1 d expr=1", "pnnx.Expression b 0 1 n expr=2",
        "torch.chunk c 3 2 x n d p q $input=x $chunks=n $dim=d", "torch.cat k 3 1 q p d y $dim=d",
        "pnnx.Output o 1 0 y", inputs=[M],
    )  # fmt: skip
    assert_same(found, torch.from_numpy(np.concatenate((M[:, 2:], M[:, :2]), 1)))


def test_slice_indexes():
    found = run(
        "pnnx.Input i 0 1 x", "Tensor.size z 1 1 x n dim=1",
        "pnnx.Expression e 1 1 n h expr=sub(@0,2)", "pnnx.SliceIndexes s 1 1 h a indexes=(1,@0)",
        "pnnx.SliceIndexes t 0 1 b indexes=(3,2147483647)",
        "Tensor.slice l 3 1 x a b y dims=(0,1) steps=(1,1) $input=x $starts=a $ends=b",
        "pnnx.Output o 1 0 y", inputs=[M],
    )  # fmt: skip
    assert_same(found, torch.from_numpy(M[1:3, 2:].copy()))


def test_tuples():
    lines = (
        "pnnx.Input i 0 1 x", "torch.unbind u 1 3 x a b c dim=0",
        "prim::TupleConstruct t 2 1 a b p", "prim::TupleUnpack v 1 2 p d e",
        "prim::ListConstruct l 2 1 e c q",
        "prim::ListUnpack w 1 2 q f g", "Tensor.dim n 1 1 x r",
        "pnnx.Expression z 2 1 d r s expr=mul(@0,@1)",
        "pnnx.Output o 1 0 q", "pnnx.Output p 1 0 s", "pnnx.Output q 1 0 g",
    )  # fmt: skip
    found = run(*lines, inputs=[M])
    assert_same(found, [torch.from_numpy(r) for r in (M[1], M[2], M[0] * 2, M[2])])


def test_counts_and_parts_that_trusted_callers_take():
    found = run(
        "pnnx.Input i 0 1 x", "aten::numel n 1 1 x n",
        "pnnx.Expression e 2 1 x n y expr=div(@0,@1)",
        "pnnx.Expression a 0 1 two expr=2", "pnnx.Expression b 0 1 one expr=1",
        "pnnx.Expression c 0 1 parts expr=[1,3]", "aten::unsafe_chunk k 3 1 x two one p",
        "prim::ListUnpack u 1 2 p c d", "aten::unsafe_split s 3 1 x two one q",
        "prim::ListUnpack v 1 2 q f g", "aten::unsafe_split_with_sizes w 3 1 x parts one r",
        "prim::ListUnpack z 1 2 r h k", *(f"pnnx.Output o{n} 1 0 {n}" for n in "ycdfghk"),
        inputs=[M],
    )  # fmt: skip
    x = torch.from_numpy(M)
    wanted = [x / x.numel(), *x.chunk(2, 1), *x.split(2, 1), *x.split([1, 3], 1)]
    assert_same(found, wanted)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_of_rows(mode):
    table, indices = np.random.default_rng(0).random((5, 3), np.float32), np.array([1, 4, 2, 2, 0])
    lines = (
        "pnnx.Input i 0 1 x", "pnnx.Attribute w 0 1 t @data=(5,3)f32",
        "pnnx.Attribute o 0 1 at @data=(3)i64", "pnnx.Expression a 0 1 no expr=False",
        f"pnnx.Expression b 0 1 m expr={mode}", "pnnx.Expression c 0 1 none expr=None",
        "pnnx.Expression d 0 1 pad expr=2",
        "aten::embedding_bag e 9 4 t x at no m no none no pad y q r s", "pnnx.Output z 1 0 y",
    )  # fmt: skip
    offsets = np.array([0, 2, 2])
    found = run(*lines, inputs=[indices], weights={"w.data": table, "o.data": offsets})
    names = ("sum", "mean", "max")
    wanted = F.embedding_bag(*map(torch.from_numpy, (indices, table, offsets)), mode=names[mode],
                             padding_idx=2)  # fmt: skip
    assert_same(found, wanted)


def test_dicts_and_tuples_come_out_as_such():
    found = run(
        "pnnx.Input i 0 1 x", "pnnx.Expression a 0 1 k expr=first-one",
        "pnnx.Expression b 0 1 l expr=2", "pnnx.Expression c 1 1 x y expr=neg(@0)",
        "prim::TupleConstruct t 2 1 x y p", "prim::DictConstruct d 4 1 k x l p z",
        "pnnx.Output o 1 0 z", inputs=[M],
    )  # fmt: skip
    assert list(found) == ["first-one", "2"] and type(found["2"]) is tuple
    assert_same([found["first-one"], *found["2"]], [torch.from_numpy(x) for x in (M, M, -M)])


def test_index_put():
    found = run(
        "pnnx.Input i 0 1 x", "pnnx.Attribute k 0 1 a @data=(2)i64",
        "pnnx.Expression e 1 1 a l expr=[None,@0]",
        "Tensor.index_put p 2 1 x l y accumulate=False values=2.0 $input=x $indices=l",
        "pnnx.Output o 1 0 y", inputs=[M], weights={"k.data": np.array([0, 2])},
    )  # fmt: skip
    wanted = torch.from_numpy(M.copy())
    wanted[:, [0, 2]] = 2
    assert_same(found, wanted)


def test_functions_with_several_expressions():
    found = run(
        "pnnx.Input i 0 1 x", "pnnx.Expression a 0 1 n expr=3", "pnnx.Expression b 0 1 d expr=1",
        "pnnx.Expression c 0 1 e expr=1.0e-8", "aten::channel_shuffle s 2 1 x n y",
        "pnnx.Expression f 1 1 x z expr=add(@0,1)", "aten::cosine_similarity t 4 1 x z d e w",
        "pnnx.Output o 1 0 y", "pnnx.Output p 1 0 w", inputs=[X],
    )  # fmt: skip
    x = torch.from_numpy(X)
    assert_same(found, (torch.channel_shuffle(x, 3), F.cosine_similarity(x, x + 1, 1)))
    found = run(
        "pnnx.Input i 0 1 x", "pnnx.Expression a 0 1 n expr=6", "pnnx.Expression m 0 1 j expr=ij",
        "aten::one_hot h 2 1 x n y", "torch.unbind u 1 3 x a b c dim=0",
        "pnnx.Expression l 2 1 a b k expr=[@0,@1]", "aten::meshgrid g 2 1 k j w",
        "pnnx.Output o 1 0 y", "pnnx.Output p 1 0 w", inputs=[K],
    )  # fmt: skip
    i = torch.from_numpy(K)
    assert_same(found, (F.one_hot(i, 6), *torch.meshgrid(i[0], i[1], indexing="ij")))


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("both", [False, True])
def test_recurrence_that_is_no_layer(kind, both):
    """As pnnx writes a layer that is the whole model."""
    torch.manual_seed(0)
    name, _, sort = kind.upper().partition("_")
    more = {"nonlinearity": sort.lower()} if sort else {}
    layer = getattr(nn, name)(10, 5, 2, bidirectional=both, bias=both, **more)
    weights = {f"w{i}.data": w.detach().numpy() for i, w in enumerate(layer._flat_weights)}
    rows, count = (4 if both else 2), len(weights)
    states = ["h", "c"] if name == "LSTM" else ["h"]
    lines = [f"pnnx.Attribute w{i} 0 1 w{i} @data={shaped(w)}"
             for i, w in enumerate(weights.values())]  # fmt: skip
    lines += [f"pnnx.Attribute {s} 0 1 {s} @data=({rows},6,5)f32" for s in states]
    lines.append(f"pnnx.Expression l {count} 1 {' '.join(f'w{i}' for i in range(count))} ws expr="
                 f"[{','.join(f'@{i}' for i in range(count))}]")  # fmt: skip
    if name == "LSTM":
        lines.append("pnnx.Expression s 2 1 h c hs expr=[@0,@1]")
    facts = [
        both,
        2,
        0.0,
        False,
        both,
        False,
    ]  # biases, layers, dropout, training, both, batch_first
    lines += [f"pnnx.Expression f{i} 0 1 f{i} expr={v}" for i, v in enumerate(facts)]
    made = " ".join(["y", *(f"{s}2" for s in states)])
    state = "hs" if name == "LSTM" else "h"
    lines.append(f"aten::{kind} k 9 {1 + len(states)} x {state} ws f0 f1 f2 f3 f4 f5 {made}")
    outputs = [f"pnnx.Output pnnx_output_{i} 1 0 {v}" for i, v in enumerate(made.split())]
    zeros = {f"{s}.data": np.zeros((rows, 6, 5), np.float32) for s in states}
    text = param_text("pnnx.Input i 0 1 x #x=(2,6,10)f32", *lines, *outputs)
    module = ad.pnnx.load(io.BytesIO(text), io.BytesIO(bin_file({**weights, **zeros})))
    for batch in (6, 4):  # the state is a constant of the traced batch
        x = floats(2, batch, 10)
        assert_same(module(ad.tensor(x)), layer(torch.from_numpy(x)))


# ---- modules that pnnx kept whole ----------------------------------------------------------------


class Scaled(ad.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layer = ad.nn.Linear(width, width)
        self.register_buffer("factor", ad.ones(width))

    def forward(self, x, y):
        return self.layer(x) * self.factor + y


def own_files(kind="mine.Scaled"):
    weights = {"layer.weight": floats(3, 3), "layer.bias": floats(3), "factor": floats(3)}
    return operator_files(kind, [M[:, :3], M[:, :3]], {}, (), 1, {**weights, "pnnx_00": floats(2)})


def loaded(operators, kind="mine.Scaled"):
    text, weights = own_files(kind)
    return adjoint.pnnx.load(io.BytesIO(text), io.BytesIO(weights), operators=operators)


@pytest.mark.parametrize("make", [Scaled, lambda: Scaled(3)])
def test_a_module_of_ones_own_gets_the_weights_of_the_file(make):
    model = loaded({"mine.Scaled": make})
    layer, x = model.get_submodule("op"), ad.tensor(floats(5, 3))
    assert set(layer.state_dict()) == {"layer.weight", "layer.bias", "factor"}
    assert model(x, x).tolist() == layer(x, x).tolist()
    assert layer.layer.weight.min().item() >= 0.1  # the file's


@pytest.mark.parametrize(
    ("operators", "error", "said"),
    [
        (None, ad.Unsupported, r"mine\.Scaled.*operators=\{'mine\.Scaled': the class\}"),
        ({"mine.Other": Scaled}, ad.Unsupported, r"operators=\{'mine\.Scaled'"),
        ({"mine.Scaled": lambda: 3}, ad.InvalidType, "gave int; give a class"),
        ({"mine.Scaled": ad.nn.ReLU}, ad.CheckpointError, "are not of such a layer"),
        (
            {"mine.Scaled": lambda: Scaled(4)},
            ad.CheckpointError,
            r"should be \(4, 4\), is \(3, 3\)",
        ),
        ({"nn.ReLU": Scaled}, ad.InvalidArgument, "'nn.ReLU', which is known"),
    ],
)
def test_what_is_no_such_module_is_refused(operators, error, said):
    with pytest.raises(error, match=said):
        loaded(operators)


def test_names_that_are_no_modules_are_not_said_to_be():
    with pytest.raises(ad.Unsupported) as raised:
        loaded({}, "torch.unheard_of")
    assert "operators=" not in str(raised.value)
