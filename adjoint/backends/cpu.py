"""The processor under PyTorch's name: which vector instructions it has.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.cpu
"""

from __future__ import annotations

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """The widest vector instructions that kernels use: "AVX512", "AVX2", "DEFAULT" for others.

    >>> ad.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
    True
    """
    from ..core.errors import Unsupported
    from .codegen.target import host

    try:
        target = host()
    except Unsupported:  # no kernels
        return "DEFAULT"
    if target.has("avx512f") and target.vector_bytes == 64:
        return "AVX512"
    return "AVX2" if target.has("avx2") else "DEFAULT"
