"""Products of groups of matrices, and names that go with scaled ones."""

from __future__ import annotations

import enum
from typing import Any

from ...core.errors import DTypeError, ShapeError
from ...ops.shape.concatenation import cat, stack
from ...ops.shape.sizes import hold_sizes, hold_values
from ...runtime.public import explaining
from ...tensor import Tensor

__all__ = [
    "GRID_SAMPLE_INTERPOLATION_MODES", "GRID_SAMPLE_PADDING_MODES", "ScalingType", "SwizzleType",
    "assert_int_or_pair", "grouped_mm",
]  # fmt: skip

GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


class ScalingType(enum.Enum):
    """Kinds of scales: for which part of a matrix of narrow numbers one scale counts.

    A scale counts for the whole (TensorWise), for a row (RowWise), or for blocks of the sizes
    named.
    """

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.Enum):
    """Orders in which scales lie in memory.

    Either as they are computed, or in the blocks of 32 x 4 x 4 that some devices read.
    """

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def assert_int_or_pair(arg: list[int], arg_name: str, message: str) -> None:
    """Refuse what is neither a number nor two of them.

        isinstance(arg, int) or len(arg) == 2

    Args:
        arg: Value to check.
        arg_name: Name of the argument, for the message.
        message: Message with a place `{}` for the name.

    Errors: AssertionError with the message.
    """
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


@explaining
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Any:
    """Products of groups of matrices.

        y[g] = mat_a[g] @ mat_b[g]

    Three dimensions hold a matrix for each group. A matrix of two has the groups side by side, each
    of which ends at an offset: rows of `mat_a`, columns of `mat_b` or, where both have two, parts
    of the inner dimension.

    Args:
        mat_a: First factors.
        mat_b: Second factors.
        offs: Ends of the groups, a row of int32; None where both have three dimensions. Default:
            None.
        bias: Not supported: only None. Default: None.
        out_dtype: Data type of the result, that of the factors or None. Default: None.

    Shapes: (g, n, k) and (g, k, m) give (g, n, m); (n, k) and (g, k, m) give (n, m); (g, n, k) and
    (k, m) give (n, m); (n, k) and (k, m) give (g, n, m).
    Dtypes: bfloat16, float16 and float32.
    Errors: ShapeError for others; DTypeError for other dtypes, a `bias` or another `out_dtype`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html

    >>> a, b = ad.ones(3, 2), ad.stack([ad.eye(2), 2 * ad.eye(2)])
    >>> ad.nn.functional.grouped_mm(a, b, offs=ad.tensor([1, 3], dtype=ad.int32))[:, 0]
    tensor([1., 2., 2.])
    """
    name = "grouped_mm"
    if mat_a.dtype is not mat_b.dtype or mat_a.dtype.name not in ("bfloat16", "float16", "float32"):
        raise DTypeError(
            f"{name}: Expected both matrices to be bfloat16, float16 or float32, got {mat_a.dtype} "
            f"and {mat_b.dtype}"
        )
    if bias is not None or out_dtype not in (None, mat_a.dtype):
        raise DTypeError(f"{name}: a bias and another out_dtype are not there, in PyTorch neither")
    ranks = (mat_a.ndim, mat_b.ndim)
    if not set(ranks) <= {2, 3} or mat_a.shape[-1] != mat_b.shape[-2]:
        raise ShapeError(
            f"{name}: matrices of two or three dimensions whose inner sizes agree, got "
            f"{tuple(mat_a.shape)} and {tuple(mat_b.shape)}"
        )
    if ranks == (3, 3):
        if offs is not None or mat_a.shape[0] != mat_b.shape[0]:
            raise ShapeError(
                f"{name}: as many matrices on both sides and no offs, got {tuple(mat_a.shape)} and "
                f"{tuple(mat_b.shape)}"
            )
        return mat_a @ mat_b
    if offs is None or offs.ndim != 1 or offs.dtype.name != "int32":
        raise ShapeError(f"{name}: offs, a row of int32, says where the groups end")
    ends = [int(n) for n in offs.tolist()]
    bounds = list(zip([0, *ends], ends, strict=False))
    across = mat_a.shape[0] if ranks == (2, 3) else mat_b.shape[1] if ranks == (3, 2) else (
        mat_a.shape[1]
    )  # fmt: skip
    groups = max(mat_a.shape[0] if ranks[0] == 3 else 0, mat_b.shape[0] if ranks[1] == 3 else 0)
    if any(b < a for a, b in bounds) or (ends and ends[-1] > across) or (
        ranks != (2, 2) and groups != len(ends)
    ):  # fmt: skip
        raise ShapeError(f"{name}: offs {ends} do not cut {across} into {groups} groups")
    mat_a = hold_values(name, hold_sizes(name, mat_a), offs)
    a, b = mat_a, mat_b
    if ranks == (2, 2):
        return stack([a[:, i:j] @ b[i:j] for i, j in bounds])
    if ranks == (2, 3):
        parts = [a[i:j] @ b[g] for g, (i, j) in enumerate(bounds)]
        rest = across - (ends[-1] if ends else 0)
        return cat([*parts, a.new_zeros((rest, b.shape[2]))])
    parts = [a[g] @ b[:, i:j] for g, (i, j) in enumerate(bounds)]
    rest = across - (ends[-1] if ends else 0)
    return cat([*parts, a.new_zeros((a.shape[1], rest))], 1)
