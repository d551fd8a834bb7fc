"""Discrete Fourier transforms, named as in `torch.fft`.

Source: https://docs.pytorch.org/docs/stable/fft.html

>>> ad.fft.rfft(ad.tensor([1., 0., 0., 0.])).real
tensor([1., 1., 1.])
"""

from __future__ import annotations

from ..ops.signal.fft import *  # noqa: F403 - its __all__ is the list
from ..ops.signal.fft import __all__ as __all__
