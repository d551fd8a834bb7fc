"""Operations for which autocast converts, by device: PyTorch's lists.

Hot primitives are listed by op class and converted where every op passes (`apply`); all others are
listed by the public function's name and converted around the call (`wiring`), so that a composition
gets its inputs in one dtype and is not converted inside.

Source: https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.op import Op
from ..ops.elementwise import functions as ew
from ..ops.elementwise.power import Pow
from ..ops.elementwise.trigonometry import Acos, Asin, Tan
from ..ops.linalg.fully_connected import Linear
from ..ops.linalg.matrix_product import MatMul
from ..ops.nn.convolution_ops import Convolution
from ..ops.nn.softmax import LogSoftmax, Softmax
from ..ops.reduce.reduction import LogSumExp, Sum
from ..ops.reduce.scan import CumProd, CumSum
from ..ops.special.special import Erfinv

LOWER = "lower"  # to the context's dtype
WIDE = "float32"
PROMOTE = "promote"  # to the widest dtype among the inputs
SAME = "same"  # as they are, inside too
REFUSE = "refuse"


Policy = str | Callable[..., str]  # a function gets the call's arguments


class Lists(NamedTuple):
    """Conversions of one device's autocast."""

    ops: dict[type[Op], str]  # op class -> LOWER or WIDE
    functions: dict[str, Policy]  # public function -> any of the five, or what says which


def _functions(**names: str) -> dict[str, Policy]:
    return {name: policy for policy, text in names.items() for name in text.split()}


def _padding(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> str:
    """Reflections of one and two dimensions and all replications are listed, as functions of their
    own.
    """
    listed = mode == "replicate" or (mode == "reflect" and len(pad) <= 4)
    return WIDE if listed else SAME


_PRODUCTS: dict[type[Op], str] = dict.fromkeys((MatMul, Linear, Convolution), LOWER)

_SENSITIVE: tuple[type[Op], ...] = (
    Acos, Asin, ew.Cosh, CumProd, CumSum, Erfinv, ew.Exp, ew.Expm1, ew.Log, ew.Log10, ew.Log1p,
    ew.Log2, LogSoftmax, LogSumExp, Pow, ew.Reciprocal, ew.Rsqrt, ew.Sinh, Softmax, Sum, Tan,
)  # fmt: skip

_CONVOLUTIONS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
_LOSSES = (
    "binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss "
    "huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss "
    "multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss "
    "triplet_margin_loss "
)
_POOLING = (
    "avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d max_pool3d fractional_max_pool2d "
    "fractional_max_pool3d max_unpool2d max_unpool3d "
)
_LINEAR_ALGEBRA = (
    "cholesky cholesky_inverse cholesky_solve geqrf inverse lu_solve orgqr ormqr pinverse qr svd "
    "trace triangular_solve linalg.cholesky linalg.cholesky_ex linalg.cond linalg.eig linalg.eigh "
    "linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex "
    "linalg.lstsq linalg.lu_factor linalg.lu_factor_ex linalg.matrix_rank linalg.qr linalg.solve "
    "linalg.solve_ex linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve "
)
_FOURIER = "".join(
    f"fft.{inverse}{kind}fft{rank} "
    for inverse in ("", "i")
    for kind in ("", "r", "h")
    for rank in ("", "2", "n")
)

CPU = Lists(
    ops=_PRODUCTS,
    functions=_functions(
        lower=_CONVOLUTIONS + "addbmm addmm baddbmm chain_matmul linalg.multi_dot linalg.vecdot "
        "prelu scaled_dot_product_attention",
        float32=_LOSSES + _POOLING + _LINEAR_ALGEBRA + _FOURIER + "binary_cross_entropy cdist "
        "ctc_loss grid_sample nanquantile polar prod quantile stft view_as_complex",
        promote="cat index_copy stack",
        same="addmv addr bilinear dot ger inner mv vdot",
    )
    | {"pad": _padding},
)

CUDA = Lists(
    ops=_PRODUCTS | dict.fromkeys(_SENSITIVE, WIDE),
    functions=_functions(
        lower=_CONVOLUTIONS + "addbmm addmm addmv addr baddbmm chain_matmul einsum "
        "linalg.multi_dot linalg.vecdot prelu scaled_dot_product_attention",
        float32=_LOSSES + "cdist cosine_similarity ctc_loss dist group_norm layer_norm "
        "linalg.matrix_norm linalg.norm linalg.vector_norm norm pdist prod renorm rms_norm "
        "softplus",
        promote="addcdiv addcmul atan2 bilinear cat cross dot grid_sample index_copy index_put "
        "linalg.cross scatter_add stack tensordot vdot",
        refuse="binary_cross_entropy",
        same="nanmean nansum trace",
    ),
)
