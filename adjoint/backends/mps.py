"""Apple's GPUs under PyTorch's names: not used.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.mps
"""

from __future__ import annotations

__all__ = ["is_available", "is_built"]


def is_built() -> bool:
    """Whether adjoint can use Apple's GPUs at all.

    >>> ad.backends.mps.is_built()
    False
    """
    return False


def is_available() -> bool:
    """Whether there is one here to use."""
    return False
