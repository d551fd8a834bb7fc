"""Settings of threads and precision: what a program may request, and what it gets.

Large arrays are computed by the native backend's pool of threads; where that is off, matrix
products run on the threads of NumPy's BLAS library and everything else on the caller's.

Source: https://docs.pytorch.org/docs/stable/torch.html#parallelism
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, InvalidType
from ..core.mode import note_setting, note_switch
from ..ir.executable import forget_calls
from . import native, settings

__all__ = [
    "are_deterministic_algorithms_enabled", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled", "set_float32_matmul_precision",
    "set_flush_denormal", "set_num_interop_threads", "set_num_threads",
    "use_deterministic_algorithms",
]  # fmt: skip

_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "_64", "")


@functools.cache
def _blas(action: str) -> Any:
    """NumPy's OpenBLAS function that gets or sets the number of threads; None if it is not there.

    NumPy's extension links the library, so its handle finds the library's symbols.
    """
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            function = getattr(library, f"{prefix}{action}_num_threads{suffix}", None)
            if function is not None:
                return function
    return None


def get_num_threads() -> int:
    """The number of threads that compute large arrays.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_num_threads.html

    >>> ad.get_num_threads() >= 1
    True
    """
    return int(note_setting(_num_threads))


def _num_threads() -> int:
    if native.reason_off() is None:
        from .native.runtime.pool import default_pool

        return default_pool().num_threads
    get = _blas("get")
    if get is not None:
        return int(get())
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdecimal():
        return max(1, int(limit))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def set_num_threads(num: int) -> None:
    """Set the number of threads that compute large arrays.

    Where the native backend is off and NumPy's BLAS library is not OpenBLAS, this changes nothing
    and warns.

    Errors: InvalidType unless `num` is an int; InvalidArgument unless it is positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html

    >>> before = ad.get_num_threads()
    >>> ad.set_num_threads(1)
    >>> ad.get_num_threads()
    1
    >>> ad.set_num_threads(before)
    """
    _assert_count("set_num_threads", num)
    set_ = _blas("set")
    if native.reason_off() is None:
        from .native.runtime.pool import default_pool

        default_pool().set_num_threads(num)
        forget_calls()  # products are cut for so many threads
    elif set_ is None:
        warnings.warn(
            "set_num_threads: NumPy's BLAS library offers no way to set its threads; set "
            "OMP_NUM_THREADS before Python starts",
            stacklevel=2,
        )
    if set_ is not None:
        set_(ctypes.c_int(num))


def _assert_count(name: str, num: Any) -> None:
    if not isinstance(num, int) or isinstance(num, bool):
        raise InvalidType(f"{name} expects an int, but got {type(num).__name__}")
    if num < 1:
        raise InvalidArgument(f"{name} expects a positive integer, but got {num}")


def get_num_interop_threads() -> int:
    """The number of operations that run at the same time: one.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_num_interop_threads.html

    >>> ad.get_num_interop_threads()
    1
    """
    return 1


def set_num_interop_threads(num: int) -> None:
    """Accepted for PyTorch programs; operations run one after another all the same.

    Errors: InvalidType unless `num` is an int; InvalidArgument unless it is positive.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_num_interop_threads.html

    >>> ad.set_num_interop_threads(2)
    """
    _assert_count("set_num_interop_threads", num)


def set_flush_denormal(mode: bool) -> bool:
    """Whether tiny numbers can be made zero for speed: False, they are always kept.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html

    >>> ad.set_flush_denormal(True)
    False
    """
    return False


class _Wishes:
    """Settings that programs have requested and may read back; no computation on the CPU depends on
    them.
    """

    deterministic = warns = False
    precision = "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Request that the same program gives the same bits. Every operation does so anyway, except
    some of PyTorch's on CUDA, which follow this setting.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html

    >>> ad.use_deterministic_algorithms(False)
    """
    note_switch("use_deterministic_algorithms")
    _Wishes.deterministic = bool(mode)
    _Wishes.warns = bool(warn_only)
    level = ("warn" if warn_only else "error") if mode else "default"
    settings.hand_on("set_deterministic_debug_mode", (level,))


def are_deterministic_algorithms_enabled() -> bool:
    """The last argument of `use_deterministic_algorithms`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.are_deterministic_algorithms_enabled.html

    >>> ad.are_deterministic_algorithms_enabled()
    False
    """
    return bool(note_setting(lambda: _Wishes.deterministic))


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was last called with `warn_only`.

    >>> ad.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return bool(note_setting(lambda: _Wishes.deterministic and _Wishes.warns))


def set_float32_matmul_precision(precision: str) -> None:
    """Permit less exact float32 matrix products: on CUDA, where PyTorch follows it; on the CPU they
    are computed in full float32 all the same.

    Errors: InvalidArgument unless it is "highest", "high" or "medium".
    Source: https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html

    >>> ad.set_float32_matmul_precision("highest")
    """
    if precision not in ("highest", "high", "medium"):
        raise InvalidArgument(
            f"set_float32_matmul_precision: {precision!r} is not one of 'highest', 'high', 'medium'"
        )
    note_switch("set_float32_matmul_precision")
    _Wishes.precision = precision
    settings.hand_on("set_float32_matmul_precision", (precision,))


def get_float32_matmul_precision() -> str:
    """The last argument of `set_float32_matmul_precision`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.get_float32_matmul_precision.html

    >>> ad.get_float32_matmul_precision()
    'highest'
    """
    return str(note_setting(lambda: _Wishes.precision))
