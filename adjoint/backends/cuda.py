"""Settings of CUDA under PyTorch's names: kept, and without effect where no device is.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.cuda
"""

from __future__ import annotations

__all__ = ["is_built", "matmul"]


class _Matmul:
    """Settings of matrix products on CUDA."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True


matmul = _Matmul()


def is_built() -> bool:
    """Whether adjoint can use CUDA at all.

    >>> ad.backends.cuda.is_built()
    False
    """
    return False
