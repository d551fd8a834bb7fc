"""The reference backend: NumPy's namespace (array API standard names), plus extras.

A name that is not here is a gap: asking for it raises BackendGap.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...core.device import register_backend
from ...core.errors import BackendGap
from .bessel import bessel_j0  # noqa: F401 - these files add their functions to EXTRAS
from .convolution import conv  # noqa: F401
from .draws import generator  # noqa: F401
from .extras import EXTRAS
from .factorization import lu_factor  # noqa: F401
from .selection import where  # noqa: F401
from .special_functions import erf  # noqa: F401

moves = False  # the native backend's namespace has functions for indices, which say True


def __getattr__(name: str) -> Any:
    function = EXTRAS.get(name)
    if function is None:
        function = getattr(np, name, None)
    if function is None:
        raise BackendGap(f"{name} on backend 'numpy'; compose it from operations that exist")
    globals()[name] = function
    return function


register_backend(np.ndarray, sys.modules[__name__])
