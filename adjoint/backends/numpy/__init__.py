"""The reference backend: NumPy's namespace (array API standard names), plus extras.

A name that is not here is a gap: asking for it raises BackendGap.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...core.device import register_backend
from ...core.errors import BackendGap

moves = False  # the native backend's namespace has functions for indices, which say True
_EXTRAS: dict[str, Any] = {}


def extra(function: Any) -> Any:
    """Add `function` to the namespace under its own name."""
    _EXTRAS[function.__name__] = function
    return function


@extra
def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """NumPy's `broadcast_to`, for the usual arrays in a fifth of its time."""
    lead = len(shape) - x.ndim
    if lead >= 0 and x.size and x.flags.c_contiguous and x.dtype.kind in "fiuc":
        strides = [0] * lead
        for have, size, stride in zip(x.shape, shape[lead:], x.strides, strict=True):
            if have != size and have != 1:
                break
            strides.append(stride if have == size else 0)
        else:
            return np.ndarray(shape, x.dtype, x, 0, strides)
    return np.broadcast_to(x, shape)


extra(np.lib.stride_tricks.as_strided)


@extra
def linear(rows: Any, w: Any, bias: Any) -> Any:
    """rows @ w.T, plus bias unless it is None."""
    y = np.matmul(rows, w.T)
    if bias is not None:
        y += bias
    return y


def __getattr__(name: str) -> Any:
    found = _EXTRAS.get(name)
    if found is None:
        found = getattr(np, name, None)
    if found is None:
        raise BackendGap(f"{name} on backend 'numpy'; compose it from operations that exist")
    globals()[name] = found
    return found


register_backend(np.ndarray, sys.modules[__name__])

from .bessel import bessel_j0  # noqa: E402, F401 - adds its functions, which need `extra`
from .convolution import conv  # noqa: E402, F401 - adds its kernels, which need `extra`
from .draws import generator  # noqa: E402, F401 - likewise
from .factorization import lu_factor  # noqa: E402, F401 - likewise
from .selection import where  # noqa: E402, F401 - likewise
from .special import erf  # noqa: E402, F401 - likewise
