"""OpenMP under PyTorch's name: adjoint itself starts no threads with it.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.openmp
"""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether adjoint computes with OpenMP's threads.

    >>> ad.backends.openmp.is_available()
    False
    """
    return False
