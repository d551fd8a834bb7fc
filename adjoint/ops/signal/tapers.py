"""Window functions, which fade a piece of a signal in and out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import index
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import InvalidArgument, InvalidType
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, public
from ..create.allocation import finish
from ..create.conversion import strided
from ..create.values import target

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]

_DOC = """{summary}

    Shapes: 1-d, of size `M`; `sym=False` gives the window for spectra, whose first value would
    follow its last.
    Dtypes: float32 or float64; the default dtype without `dtype`.
    Errors: InvalidArgument for a negative `M`, another dtype or a parameter out of range.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.signal.windows.{name}.html

    >>> ad.signal.windows.{name}({call})
    {result}
    """


def _window(
    name: str,
    size: int,
    values: Callable[[], Any],
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    d = target(dtype) or dt.get_default_dtype()
    if size < 0:
        raise InvalidArgument(f"{name}: requires non-negative window length, got M={size}")
    if layout is not None and layout is not strided:
        raise InvalidArgument(f"{name}: is implemented for strided tensors only, got: {layout}")
    if d not in (dt.float32, dt.float64):
        raise InvalidArgument(f"{name}: expects float32 or float64 dtypes, got: {d}")
    array = values() if size else np.empty(0)
    return finish(array.astype(d.numpy), device, requires_grad)


def _length(size: Any) -> int:
    """The number of places, also where an integer tensor of one element says it."""
    try:
        return index(size)
    except TypeError as error:
        raise InvalidType(f"window: its length must be an integer, got {size!r}") from error


def _period(size: int, sym: bool) -> int:
    """The number of steps from the first value to where it comes again."""
    return size - 1 if sym else size


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # documented below
    size = _length(M)
    if tau <= 0:
        raise InvalidArgument(f"exponential: Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise InvalidArgument(
            f"exponential: Center must be None for symmetric windows, got {center}"
        )
    if center is None:
        center = (size if not sym and size > 1 else size - 1) / 2
    middle = center
    return _window(
        "exponential", size, lambda: np.exp(-np.abs(np.arange(size) - middle) / tau),
        dtype, layout, device, requires_grad,
    )  # fmt: skip


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # documented below
    size = _length(M)
    steps = size + 1 if not sym and size > 1 else size
    return _window(
        "cosine", size, lambda: np.sin((np.arange(size) + 0.5) * (math.pi / steps)),
        dtype, layout, device, requires_grad,
    )  # fmt: skip


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # documented below
    size = _length(M)
    if std <= 0:
        raise InvalidArgument(f"gaussian: Standard deviation must be positive, got: {std} instead.")
    middle = (size if not sym and size > 1 else size - 1) / 2
    return _window(
        "gaussian", size, lambda: np.exp(-((np.arange(size) - middle) ** 2) / (2 * std * std)),
        dtype, layout, device, requires_grad,
    )  # fmt: skip


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # documented below
    size = _length(M)
    if beta < 0:
        raise InvalidArgument(f"kaiser: beta must be non-negative, got: {beta} instead.")

    def values() -> Any:
        if size == 1:
            return np.ones(1)
        place = 2 * np.arange(size) / _period(size, sym) - 1
        return np.i0(beta * np.sqrt(np.maximum(1 - place * place, 0))) / np.i0(beta)

    return _window("kaiser", size, values, dtype, layout, device, requires_grad)


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # documented below
    size = _length(M)

    def values() -> Any:
        return np.ones(1) if size == 1 else 1 - np.abs(2 * np.arange(size) / _period(size, sym) - 1)

    return _window("bartlett", size, values, dtype, layout, device, requires_grad)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # documented below
    size = _length(M)
    if not isinstance(a, Iterable):
        raise InvalidType(f"general_cosine: Coefficients must be a list/tuple, got {a!r}")
    weights = [float(w) for w in a]
    if not weights:
        raise InvalidArgument("general_cosine: Coefficients cannot be empty")

    def values() -> Any:
        if size == 1:
            return np.ones(1)
        angle = 2 * math.pi * np.arange(size) / _period(size, sym)
        return sum((-1) ** i * w * np.cos(i * angle) for i, w in enumerate(weights))

    return _window("general_cosine", size, values, dtype, layout, device, requires_grad)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # documented below
    return general_cosine(
        M, a=(alpha, 1 - alpha), sym=sym, dtype=dtype, layout=layout, device=device,
        requires_grad=requires_grad,
    )  # fmt: skip


general_hamming.__doc__ = _DOC.format(
    summary="alpha - (1 - alpha) cos(2 pi n / period).", name="general_hamming", call="3",
    result="tensor([0.0800, 1.0000, 0.0800])",
)  # fmt: skip


def _sum_of_cosines(name: str, summary: str, *weights: float) -> Any:
    def window(
        M: int,
        *,
        sym: bool = True,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        return general_cosine(
            M, a=weights, sym=sym, dtype=dtype, layout=layout, device=device,
            requires_grad=requires_grad,
        )  # fmt: skip

    window.__name__ = window.__qualname__ = name
    window.__doc__ = _DOC.format(summary=summary, name=name, call="1", result="tensor([1.])")
    return window


hamming = _sum_of_cosines("hamming", "0.54 - 0.46 cos(2 pi n / period).", 0.54, 0.46)
hann = _sum_of_cosines("hann", "(1 - cos(2 pi n / period)) / 2.", 0.5, 0.5)
blackman = _sum_of_cosines("blackman", "A sum of three cosines.", 0.42, 0.5, 0.08)
nuttall = _sum_of_cosines(
    "nuttall", "A sum of four cosines.", 0.3635819, 0.4891775, 0.1365995, 0.0106411
)
for _function, _summary, _call, _result in (
    (exponential, "exp(-|n - center| / tau).", "3", "tensor([0.3679, 1.0000, 0.3679])"),
    (cosine, "One half of a sine wave.", "3", "tensor([0.5000, 1.0000, 0.5000])"),
    (gaussian, "A bell curve of standard deviation `std`.", "3",
     "tensor([0.6065, 1.0000, 0.6065])"),
    (kaiser, "A window by Bessel functions, narrower as `beta` grows.", "3, beta=1.0",
     "tensor([0.7898, 1.0000, 0.7898])"),
    (bartlett, "A triangle.", "3", "tensor([0., 1., 0.])"),
    (general_cosine, "The sum of (-1)^i a[i] cos(2 pi i n / period).", "3, a=(0.5, 0.5)",
     "tensor([0., 1., 0.])"),
):  # fmt: skip
    _function.__doc__ = _DOC.format(
        summary=_summary, name=_function.__name__, call=_call, result=_result
    )


# ---- the older names -----------------------------------------------------------------------------


@public(method=False)
@explaining
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """(1 - cos(2 pi n / period)) / 2 for n below `window_length`.

    Errors: those of `adjoint.signal.windows.hann`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.hann_window.html

    >>> ad.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return hann(window_length, sym=not periodic, **options)


@public(method=False)
@explaining
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """alpha - beta cos(2 pi n / period) for n below `window_length`.

    Errors: those of `adjoint.signal.windows.hamming`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.hamming_window.html

    >>> ad.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    return general_cosine(window_length, a=(alpha, beta), sym=not periodic, **options)


@public(method=False)
@explaining
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / period) + 0.08 cos(4 pi n / period) for n below `window_length`.

    Errors: those of `adjoint.signal.windows.blackman`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.blackman_window.html

    >>> ad.blackman_window(4, dtype=ad.float64)[1:]
    tensor([0.3400, 1.0000, 0.3400], dtype=adjoint.float64)
    """
    return blackman(window_length, sym=not periodic, **options)


@public(method=False)
@explaining
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle over `window_length` places.

    Errors: those of `adjoint.signal.windows.bartlett`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.bartlett_window.html

    >>> ad.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return bartlett(window_length, sym=not periodic, **options)


@public(method=False)
@explaining
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """Kaiser's window of `window_length` places, narrower as `beta` grows.

    Errors: those of `adjoint.signal.windows.kaiser`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.kaiser_window.html

    >>> ad.kaiser_window(3, False, 1.0)
    tensor([0.7898, 1.0000, 0.7898])
    """
    return kaiser(window_length, beta=beta, sym=not periodic, **options)
