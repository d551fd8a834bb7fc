"""The reference backend: NumPy's namespace (array API standard names), plus extras.

A name that is not here is a gap: asking for it raises BackendGap.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...core.device import register_backend
from ...core.errors import BackendGap

_EXTRAS: dict[str, Any] = {}


def extra(function: Any) -> Any:
    """Add `function` to the namespace under its own name."""
    _EXTRAS[function.__name__] = function
    return function


def __getattr__(name: str) -> Any:
    found = _EXTRAS.get(name)
    if found is None:
        found = getattr(np, name, None)
    if found is None:
        raise BackendGap(f"{name} on backend 'numpy'; compose it from operations that exist")
    globals()[name] = found
    return found


register_backend(np.ndarray, sys.modules[__name__])

from .convolution import conv  # noqa: E402, F401 - adds its kernels, which need `extra`
from .factorization import lu_factor  # noqa: E402, F401 - likewise
from .selection import where  # noqa: E402, F401 - likewise
from .special import erf  # noqa: E402, F401 - likewise
