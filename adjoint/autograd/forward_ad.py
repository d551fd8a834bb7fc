"""`torch.autograd.forward_ad`: what a tensor inside `func.jvp` carries; others are made by that.

Source: https://docs.pytorch.org/docs/stable/autograd.html#forward-mode-automatic-differentiation

>>> from adjoint.autograd.forward_ad import unpack_dual
>>> unpack_dual(ad.ones(1)).tangent is None
True
>>> ad.func.jvp(lambda x: unpack_dual(x).tangent * 2, (ad.ones(1),), (ad.full((1,), 3.0),))[0]
tensor([6.])
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..absent import refused
from .dual import Dual

__all__ = ["UnpackedDualTensor", "dual_level", "make_dual", "unpack_dual"]

_INSTEAD = "func.jvp(function, primals, tangents) computes forward derivatives"
dual_level = refused("autograd.forward_ad", "dual_level", _INSTEAD)
make_dual = refused("autograd.forward_ad", "make_dual", _INSTEAD)


class UnpackedDualTensor(NamedTuple):
    """A value and its tangent, None where it has none."""

    primal: Any
    tangent: Any


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent of a tensor inside `func.jvp`; outside, the tensor and None."""
    data = tensor._data
    if not isinstance(data, Dual):
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(data.inner, data.tangent)
