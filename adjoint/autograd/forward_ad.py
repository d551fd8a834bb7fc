"""`torch.autograd.forward_ad`: dual tensors, which carry a tangent through one forward pass.

Source: https://docs.pytorch.org/docs/stable/autograd.html#forward-mode-automatic-differentiation

>>> import adjoint.autograd.forward_ad as fwad
>>> with fwad.dual_level():
...     x = fwad.make_dual(ad.tensor([1.0, 2.0]), ad.tensor([1.0, 0.0]))
...     fwad.unpack_dual(x * x).tangent
tensor([2., 0.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.argument_repr import argument_repr
from ..core.errors import AutogradError, InvalidArgument, InvalidType, Unsupported
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.lazy import LazyValue
from .dual import ENABLED, Dual
from .forward_level import ForwardLevel, OpenDual, assert_open_to, looks
from .levels import innermost

__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual",
    "unpack_dual",
]  # fmt: skip

_levels: list[ForwardLevel] = []  # the open level of all threads; at most one


class UnpackedDualTensor(NamedTuple):
    """A value and its tangent, or None where it has no tangent."""

    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Open the level on which dual tensors are made, in all threads; returns its number, 0.

    Errors: AutogradError where it is open: there are no nested ones (`func.jvp` nests).
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.forward_ad.enter_dual_level.html

    >>> fwad = ad.autograd.forward_ad
    >>> fwad.enter_dual_level()
    0
    >>> fwad.exit_dual_level()
    """
    assert_open_to("a dual level")
    if _levels:
        raise AutogradError(
            "enter_dual_level: Nested forward mode AD is not supported at the moment; nest "
            "func.jvp instead"
        )
    _levels.append(ForwardLevel())
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: all dual tensors become plain tensors with the values of their primals.

    Errors: AutogradError where none is open, or not that one.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.forward_ad.exit_dual_level.html

    >>> fwad = ad.autograd.forward_ad
    >>> fwad.enter_dual_level()
    0
    >>> x = fwad.make_dual(ad.ones(1), ad.ones(1)) * 2
    >>> fwad.exit_dual_level()
    >>> x
    tensor([2.])
    """
    if not _levels:
        raise AutogradError("exit_dual_level: Dual level must be a positive number; none is open")
    if level not in (None, 0):
        raise AutogradError(
            f"exit_dual_level: Trying to exit a forward AD level that was not the last one that "
            f"was created, {level}. This is not supported."
        )
    _levels.pop().close()


class dual_level:  # noqa: N801 - PyTorch's name
    """Context manager of forward mode: inside, `make_dual` makes dual tensors, which become plain
    at its end; as a decorator, around each call.

    Errors: AutogradError inside another one.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.forward_ad.dual_level.html

    >>> fwad = ad.autograd.forward_ad
    >>> with fwad.dual_level():
    ...     x = fwad.make_dual(ad.zeros(1), ad.ones(1))
    ...     fwad.unpack_dual(x.sin())
    UnpackedDualTensor(primal=tensor([0.]), tangent=tensor([1.]))
    """

    __repr__ = argument_repr

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs `function` inside a level of its own."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return wrapper


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A dual tensor with the value of `tensor`, whose memory it shares, and with `tangent`.

    What is computed of it carries the tangent of the result along (`unpack_dual`). Writes to it
    write to `tensor`, too, and to `tangent`, unless that lies in memory in another way.

    Shapes: both alike; dtypes are floating point or complex, that of `tangent` is converted.
    Errors: AutogradError outside a level, and for tensors that are duals already; ShapeError for
    other shapes; InvalidArgument for other dtypes; Unsupported where ops are recorded (graphs,
    compiled functions) and for tensors inside `func.vmap` where the level is outside of that.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.forward_ad.make_dual.html

    >>> fwad = ad.autograd.forward_ad
    >>> with fwad.dual_level():
    ...     fwad.make_dual(ad.ones(2), ad.tensor([1.0, 2.0])) * 3
    tensor([3., 3.], tangent=tensor([3., 6.]))
    """
    for name, x in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(x, TensorBase):
            raise InvalidType(f"make_dual: {name} must be a Tensor, not {type(x).__name__}")
    if not _levels or (level is not None and level < 0):
        raise AutogradError(
            "make_dual: Trying to create a dual Tensor for forward AD but no level exists, make "
            "sure to enter_dual_level() first."
        )
    here = _at(level, "make_dual")
    for name, x in (("primal", tensor), ("tangent", tangent)):
        if x._data.dtype.kind not in "fcV":
            raise InvalidArgument(
                f"make_dual: Expected {name} to be floating point or complex, but got: {x.dtype}; "
                "convert it"
            )
    if tangent._data.dtype.kind == "c" != tensor._data.dtype.kind:
        raise InvalidArgument(
            f"make_dual: the tangent is {tangent.dtype}, the primal {tensor.dtype}, which cannot "
            "take imaginary parts; give a real tangent"
        )
    top = innermost((tensor, tangent))
    if top is here:
        what = (
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            "same level 0 is not supported"
            if here.at(tensor)
            else "Setting a forward grad that itself has a forward gradient at the same level 0 is "
            "not supported"
        )
        raise AutogradError(f"make_dual: {what}; unpack_dual it first")
    if top is not None and top.order > here.order:
        raise Unsupported(
            f"make_dual: inside {top.name}, which began inside the dual level; enter the level "
            "inside of the function that is transformed, or use func.jvp there"
        )
    return here.make(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The primal and the tangent of a dual tensor; of other tensors, the value and None. Also works
    on the dual values inside `func.jvp`.

    Errors: InvalidType for what is no tensor.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.forward_ad.unpack_dual.html

    >>> fwad = ad.autograd.forward_ad
    >>> fwad.unpack_dual(ad.ones(1)).tangent is None
    True
    >>> ad.func.jvp(lambda x: fwad.unpack_dual(x).tangent * 2, (ad.ones(1),), (ad.ones(1),))[0]
    tensor([2.])
    """
    if not isinstance(tensor, TensorBase):
        raise InvalidType(f"unpack_dual: must be a Tensor, not {type(tensor).__name__}")
    innermost((tensor,))  # of a level that was left it is plain
    data = tensor._data
    if level is not None and level < 0:
        return UnpackedDualTensor(tensor, None)
    if isinstance(data, OpenDual):
        tangent = data.tangent if looks() else None
        return UnpackedDualTensor(data.level.primal(tensor), tangent)
    if isinstance(data, Dual):
        return UnpackedDualTensor(data.inner, data.tangent if ENABLED.get() else None)
    if not _levels or isinstance(data, LazyValue):
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(_levels[-1].primal(tensor), None)


def _at(level: int | None, name: str) -> ForwardLevel:
    if level not in (None, 0):
        raise AutogradError(f"{name}: Invalid level given, {level}; there is level 0 alone")
    return _levels[-1]


class _set_fwd_grad_enabled:  # noqa: N801 - PyTorch's name
    """Switch the computation of tangents on or off in this thread, at once as a function, or for a
    `with` block.
    """

    def __init__(self, mode: bool) -> None:
        self._token = ENABLED.set(bool(mode))

    def __enter__(self) -> None:
        """Does nothing: the constructor has set the switch."""

    def __exit__(self, *exc: Any) -> None:
        ENABLED.reset(self._token)


def _is_fwd_grad_enabled() -> bool:
    return ENABLED.get()
