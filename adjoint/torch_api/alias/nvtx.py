"""`torch.cuda.nvtx`: marks for NVIDIA's tools, which PyTorch without CUDA refuses, too."""

from typing import Any, NoReturn

from ...core.errors import DeviceError

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def mark(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused, as all functions here.

    Errors: DeviceError, always.
    """
    raise DeviceError(
        "cuda.nvtx: NVTX functions not installed: they are for CUDA devices; "
        "profiler.record_function marks parts of a program"
    )


range = range_start = range_end = range_push = range_pop = mark
