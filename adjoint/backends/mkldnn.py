"""oneDNN under PyTorch's name: not used.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.mkldnn
"""

from __future__ import annotations

__all__ = ["is_available"]

enabled = False


def is_available() -> bool:
    """Whether oneDNN computes anything here.

    >>> ad.backends.mkldnn.is_available()
    False
    """
    return False
