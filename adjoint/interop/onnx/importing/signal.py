"""ONNX's operators on signals: Fourier transforms, windows, Mel weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....namespaces.fft import fft, ifft, irfft
from ....tensor import Tensor
from .imported_node import ImportedNode, ad, axis_in, host, operator, t


def _complex(x: Tensor) -> Any:
    """Complex numbers of a last dimension of two, real ones of one."""
    if x.shape[-1] not in (1, 2):
        raise ValueError(f"numbers of {x.shape[-1]} parts")
    return ad.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x.squeeze(-1)


def _number(x: Any, default: int) -> int:
    return default if x is None else int(host(x).reshape(()))


@operator("DFT", tensors=1)
def _(n: ImportedNode, x: Any, length: Any = None, axis: Any = None) -> Any:
    chosen = n.get("axis", 1) if n.opset < 20 else _number(axis, -2)
    place = axis_in(chosen, x.ndim)
    if place == x.ndim - 1:
        raise ValueError("a transform of the parts of complex numbers")
    values, onesided = _complex(x), bool(n.get("onesided", 0))
    inverse = bool(n.get("inverse", 0))
    size = _number(length, 0)
    if not size:
        size = x.shape[place]
        if inverse and onesided:
            size = 2 * (size - 1)
    n.check_size([size, *(v for i, v in enumerate(x.shape) if i != place)])
    if inverse and onesided:
        return irfft(values, size, place).unsqueeze(-1)
    found = (ifft if inverse else fft)(values, size, place)
    if onesided:
        found = found.narrow(place, 0, size // 2 + 1)
    return ad.view_as_real(found)


@operator("STFT", tensors=1)
def _(n: ImportedNode, signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    values = _complex(signal) if signal.ndim == 3 else signal
    if window is None and length is None:
        raise ValueError("neither a window nor the length of a frame")
    size = _number(length, 0 if window is None else window.shape[0])
    hop = _number(step, 1)
    if not 0 < size <= values.shape[1] or hop < 1:
        raise ValueError(f"frames of {size}, {hop} apart, of {values.shape[1]}")
    n.check_size([values.shape[0], (values.shape[1] - size) // hop + 1, size])
    frames = values.unfold(1, size, hop)
    frames = frames if window is None else frames * t(window)
    found = fft(frames, size, -1)
    if n.get("onesided", 1):
        found = found.narrow(-1, 0, size // 2 + 1)
    return ad.view_as_real(found)


LONGEST_WINDOW = 1 << 24
_COSINES = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


@operator(*_COSINES)
def _(n: ImportedNode, size: Any) -> Any:
    count = _number(size, 0)
    if not 0 <= count <= LONGEST_WINDOW:
        raise n.unsupported(f"a window of {count}")
    turn = 2 * math.pi / max(count if n.get("periodic", 1) else count - 1, 1)
    at = np.arange(count) * turn
    found = sum(c * np.cos(i * at) for i, c in enumerate(_COSINES[n.kind]))
    return np.asarray(found).astype(n.dtype("output_datatype", 1))


@operator("MelWeightMatrix")
def _(n: ImportedNode, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    count, size = _number(bins, 0), _number(length, 0)
    half = size // 2 + 1
    n.check_size([half, count])
    ends = [2595 * np.log10(1 + float(host(x).reshape(())) / 700) for x in (low, high)]
    mels = ends[0] + np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((size + 1) * hertz // float(host(rate).reshape(()))).astype(np.int64)
    at = np.arange(half)
    found = np.zeros((half, count))
    for i, (first, middle, last) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rise = np.where(middle == first, at == middle, (at - first) / max(middle - first, 1))
        fall = (last - at) / max(last - middle, 1)
        found[:, i] = np.where((first <= at) & (at <= middle), rise, 0)
        found[:, i] = np.where((middle <= at) & (at < last), fall, found[:, i])
    return found.astype(n.dtype("output_datatype", 1))
