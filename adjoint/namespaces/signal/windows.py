"""Window functions, named as in `torch.signal.windows`.

Source: https://docs.pytorch.org/docs/stable/signal.html
"""

from __future__ import annotations

from ...ops.signal.tapers import (
    bartlett,
    blackman,
    cosine,
    exponential,
    gaussian,
    general_cosine,
    general_hamming,
    hamming,
    hann,
    kaiser,
    nuttall,
)

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip
