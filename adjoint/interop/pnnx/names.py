"""Operators that are functions of ours under the same name, called as PyTorch calls them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ... import nn
from ...core.dtype import as_dtype
from ...namespaces import fft
from ...runtime.public import FUNCTIONS
from ...tensor import Tensor
from .step import GraphStep, operator, words
from .text import DTYPE_NAMES

FUNCTIONAL = words("""
adaptive_avg_pool1d adaptive_max_pool1d avg_pool1d avg_pool2d avg_pool3d celu conv1d
conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d elu embedding fold gelu glu
group_norm hardshrink hardsigmoid hardswish hardtanh layer_norm leaky_relu linear
local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d max_pool1d max_pool2d max_pool3d mish
normalize pad pairwise_distance pixel_shuffle pixel_unshuffle prelu relu relu6 rms_norm selu sigmoid
silu softmax softmin softplus softshrink softsign tanh tanhshrink threshold unfold
""")

TORCH = words("""
abs acos acosh addmm amax amin argmax argmin as_strided asin asinh atan atan2 atanh baddbmm
bitwise_not bmm ceil chunk clamp clamp_max clamp_min clone complex cos cosh cross cumprod cumsum
diag erf exp expm1 flatten flip floor gather imag index_select istft lgamma log log10 log1p
logaddexp logical_not logsumexp masked_select matmul maximum mean minimum mm mv narrow neg norm
positive pow prod real reciprocal repeat_interleave roll round rsqrt scatter_add sign sin sinh
slice_scatter split sqrt square std stft sum t tan tanh topk transpose trunc unbind unsqueeze var
view_as_complex view_as_real where
""")

TENSOR = words("clone expand_as masked_fill permute reshape_as t transpose type_as view_as")

FFT = words("""
fft fft2 fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2
rfftn
""")

# what pnnx has no name for keeps ATen's, with all arguments by position
ATEN = words("""
all any argsort channel_shuffle clamp_max clamp_min cosine_similarity cummax cummin deg2rad diff
digamma dot erfc erfinv exp2 frac hypot isfinite isinf isnan kron log2 logcumsumexp median movedim
nan_to_num outer rad2deg rot90 sinc sort take_along_dim trace tril triu xlogy
""")


def converted(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with dtypes for their names; what says where and how memory lies is left out."""
    return {
        name: as_dtype(DTYPE_NAMES[v]) if isinstance(v, str) and v in DTYPE_NAMES else v
        for name, v in params.items()
        if name not in _PLACES
    }


_PLACES = {"device", "layout", "memory_format", "non_blocking", "pin_memory", "requires_grad"}


def call_by_name(function: Callable[..., Any], s: GraphStep, *xs: Any) -> Any:
    """Call as PyTorch would: inputs that have a name by it, the others in their order."""
    named = dict(s.params)
    plain = []
    for key, x in zip(s.keys, xs, strict=True):
        if key:
            named[key] = x
        else:
            plain.append(x)
    found = function(*plain, **named)
    return tuple(found) if isinstance(found, (tuple, list)) else found


def _enter(prefix: str, names: list[str], find: Callable[[str], Callable[..., Any]]) -> None:
    for name in names:
        operator(prefix + name)(functools.partial(call_by_name, find(name)))


_enter("F.", FUNCTIONAL, lambda name: getattr(nn.functional, name))
for _name in ("affine_grid", "grid_sample"):  # a file without the option means its default
    operator(f"F.{_name}")(
        functools.partial(
            call_by_name, functools.partial(getattr(nn.functional, _name), align_corners=False)
        )
    )
_enter("torch.", TORCH, FUNCTIONS.__getitem__)
_enter("Tensor.", TENSOR, lambda name: getattr(Tensor, name))
_enter("aten::", ATEN, lambda name: getattr(nn.functional, name, None) or FUNCTIONS[name])
_enter("torch.fft.", FFT, lambda name: getattr(fft, name))
