"""Intel's MKL: whether NumPy multiplies matrices with it.

Source: https://docs.pytorch.org/docs/stable/backends.html#module-torch.backends.mkl
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether NumPy was built with MKL.

    >>> ad.backends.mkl.is_available() in (False, True)
    True
    """
    facts: Any = np.show_config(mode="dicts")
    return "mkl" in facts.get("Build Dependencies", {}).get("blas", {}).get("name", "").lower()
