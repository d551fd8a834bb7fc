"""Running an op's `compute` on PyTorch tensors: where narrow floats are computed as they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ...core.device import device_of
from ...core.dtype import LOW_PRECISION
from ...core.errors import DeviceError
from ...core.spec import Spec
from ...ir.compute import spec_of
from .. import numpy as reference
from . import philox
from .array import Array, allocating, explained, from_host, to_host, torch_dtype
from .routines import LIBRARY

_LOW = frozenset(d.numpy for d in LOW_PRECISION)
_FLOAT32 = np.dtype(np.float32)


def run(xp: Any, op: Any, arrays: list[Any]) -> Any:
    """`op.compute` on arrays of one device and numbers, as arrays of that device.

    float16 and bfloat16 are given to PyTorch as they are where the op is one function of the
    namespace: its kernels compute in float32 and round once. Other ops are several functions, so
    their inputs are widened to float32 and their results rounded.
    """
    if op.drawn:
        return _on_host(xp, op, arrays)
    low = False
    for x in arrays:
        kind = type(x)
        if kind is Array:
            if x.dtype in _LOW:
                low = True
        elif kind is np.ndarray and x.ndim:
            raise mixed(op, arrays)
    function = LIBRARY.get(type(op).__name__)
    try:
        if function is not None and op.n_outputs == 1:
            direct = function(op, *[x.tensor for x in arrays])
            if direct is not None:
                return Array(direct)
        if low and not (op.exact or op.library or _is_one_function(op)):
            return _widened(xp, op, arrays)
        result = op.compute(xp, *arrays)
    except RuntimeError as error:
        if "same device" in str(error):
            raise mixed(op, arrays) from None
        raise explained(error, op.name) from error
    if op.n_outputs == 1:
        return result if type(result) is Array else _placed(xp, result)
    return tuple(_placed(xp, each) for each in result)


@allocating
def _on_host(xp: Any, op: Any, arrays: list[Any]) -> Any:
    """Random numbers come from the host's generator, so that they are the same everywhere: the
    parameters of a distribution are read, and what is drawn is sent to the device.
    """
    if type(op).__name__ in DRAWN_HERE and math.prod(op.shape) >= philox.LARGE:
        return Array(DRAWN_HERE[type(op).__name__](op, xp.device))
    inputs = [to_host(x) if type(x) is Array else x for x in arrays]
    return from_host(np.asarray(op.compute(reference, *inputs)), xp.device, share=True)


def _uniform(op: Any, device: Any) -> Any:
    count, kind = math.prod(op.shape), torch_dtype(op.dtype.numpy)
    if kind is torch.float64:
        bits = philox.words(op.seed, op.draw, count, device)
        values = ((bits >> 11) & ((1 << 53) - 1)).to(kind) * 2.0**-53
    else:
        values = (philox.halves(op.seed, op.draw, count, device) >> 8).to(torch.float32) * 2.0**-24
    digits = {torch.float16: 11, torch.bfloat16: 8}.get(kind)
    if digits is not None:  # rounded down, so that 1 is never drawn
        values = (torch.floor(values * 2.0**digits) * 2.0**-digits).to(kind)
    return values.reshape(op.shape)


def _mask(op: Any, device: Any) -> Any:
    bits = philox.halves(op.seed, op.draw, math.prod(op.shape), device)
    chosen = (bits < math.ceil(op.keep * 2.0**32)).reshape(op.shape)
    kind = torch_dtype(op.dtype.numpy)
    if kind is torch.bool:
        return chosen
    result = chosen.to(kind)
    return result if op.value == 1.0 else result * op.value


# What is drawn on the device where it is much: the same numbers as on the host.
DRAWN_HERE = {"Uniform": _uniform, "Mask": _mask}


def _is_one_function(op: Any) -> bool:
    return hasattr(op, "ufunc") and not hasattr(op, "axis")


def _widened(xp: Any, op: Any, arrays: list[Any]) -> Any:
    specs = op.infer(*map(spec_of, arrays))
    wide = [x.astype(_FLOAT32) if type(x) is Array and x.dtype in _LOW else x for x in arrays]
    result = op.compute(xp, *wide)
    if isinstance(specs, Spec):
        return _placed(xp, result).astype(specs.dtype.numpy, copy=False)
    return tuple(
        _placed(xp, y).astype(spec.dtype.numpy, copy=False)
        for y, spec in zip(result, specs, strict=True)
    )


def _placed(xp: Any, result: Any) -> Any:
    """A result that is a number as an array of the device."""
    return result if isinstance(result, (Array, np.ndarray)) else xp.asarray(result)


def mixed(op: Any, arrays: list[Any]) -> DeviceError:
    """The error for inputs on different devices."""
    devices = sorted({str(device_of(x)) for x in arrays if hasattr(x, "dtype")})
    return DeviceError(
        f"{op.name}: Expected all tensors to be on the same device, but found at least two "
        f"devices, {' and '.join(devices)}; move them to one with .to({devices[-1]!r})"
    )
