"""Functions of PyTorch's that its builds for CPUs refuse, since they are of another library."""

from __future__ import annotations

from ...core import config
from ...core.missing_names import refused
from ...runtime.public import explaining

_INSTEAD = {
    "cudnn_affine_grid_generator": "affine_grid_generator",
    "cudnn_batch_norm": "nn.functional.batch_norm",
    "cudnn_convolution": "convolution",
    "cudnn_convolution_add_relu": "convolution, add and relu",
    "cudnn_convolution_relu": "convolution and relu",
    "cudnn_convolution_transpose": "convolution",
    "cudnn_grid_sampler": "grid_sampler",
    "batch_norm_backward_elemt": "backward()",
    "batch_norm_backward_reduce": "backward()",
    "batch_norm_elemt": "nn.functional.batch_norm",
    "batch_norm_gather_stats": "nn.SyncBatchNorm",
    "batch_norm_gather_stats_with_counts": "nn.SyncBatchNorm",
    "batch_norm_stats": "native_batch_norm",
    "miopen_batch_norm": "nn.functional.batch_norm",
    "miopen_convolution": "convolution",
    "miopen_convolution_add_relu": "convolution, add and relu",
    "miopen_convolution_relu": "convolution and relu",
    "miopen_convolution_transpose": "convolution",
    "miopen_ctc_loss": "ctc_loss",
    "miopen_depthwise_convolution": "convolution with groups",
    "miopen_rnn": "lstm, gru, rnn_tanh and rnn_relu",
    "mkldnn_adaptive_avg_pool2d": "nn.functional.adaptive_avg_pool2d",
    "mkldnn_linear_backward_weights": "backward()",
    "mkldnn_max_pool2d": "nn.functional.max_pool2d",
    "mkldnn_max_pool3d": "nn.functional.max_pool3d",
}
for _name, _other in _INSTEAD.items():
    _why = f"there is none for tensors of the CPU, in PyTorch neither; use {_other}"
    globals()[_name] = explaining(refused(config.CALLED, _name, _why))
