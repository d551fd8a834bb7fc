"""autocast: a region in which operations choose their precision; and questions about it.

Source: https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.modes import F, _ModeSwitch
from ..core.device import get_default_device
from ..core.dtype import as_dtype, bfloat16, dtype, float16
from ..core.errors import InvalidArgument, InvalidType
from ..core.mode import MODE, Mode, mode_with
from ..core.tensor_base import TensorBase
from ..namespaces import cuda
from ..ops.promotion import cast
from .casting import DEFAULT_CASTING, Casting, CastTarget
from .lists import Lists

__all__ = [
    "autocast", "clear_autocast_cache", "get_autocast_dtype", "is_autocast_available",
    "is_autocast_cache_enabled", "is_autocast_enabled", "set_autocast_cache_enabled",
    "set_autocast_dtype", "set_autocast_enabled",
]  # fmt: skip

_SUPPORTED = (bfloat16, float16)
_OTHERS = {  # PyTorch's: there are no tensors, so nothing is converted
    "hpu": bfloat16, "ipu": float16, "maia": bfloat16, "mps": float16, "mtia": float16,
    "privateuseone": float16, "xla": bfloat16, "xpu": float16,
}  # fmt: skip


def _here() -> Casting:
    return MODE.get().autocast or DEFAULT_CASTING


def _assert_device(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise InvalidArgument(
            f"autocast: Expected `device_type` of type `str`, got: `{type(device_type)}`"
        )
    if not is_autocast_available(device_type):
        raise InvalidArgument(
            f"autocast: User specified an unsupported autocast device_type '{device_type}'; use "
            "'cpu' or 'cuda'"
        )


class autocast(_ModeSwitch):  # noqa: N801 - PyTorch's name
    """Run matrix work inside in `dtype`, and what needs the precision in float32.

    Tensors on `device_type` are converted as PyTorch's lists for that device say; gradients come
    back in the dtype of the tensors they belong to. Without `device_type`, those on the default
    device are meant. A parameter is converted once in an outermost region while it does not change
    (unless `cache_enabled` is False). `dtype` is bfloat16 on the CPU and float16 on CUDA unless
    given. A context manager and a decorator; regions nest, and `enabled=False` switches one off.
    Operations in place and with `out=` are never converted.

    Errors: InvalidArgument for another device. An unsupported dtype, or CUDA where there is none,
    warns and disables the region.
    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.autocast

    >>> weight = ad.ones(2, 2, requires_grad=True)
    >>> with ad.autocast("cpu"):
    ...     y = weight @ weight
    >>> y.dtype
    adjoint.bfloat16
    >>> y.sum().backward()
    >>> weight.grad.dtype
    adjoint.float32
    """

    _gives_itself = True

    def __init__(
        self,
        device_type: str | None = None,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        super().__init__()
        if device_type is None:
            device_type = "cuda" if get_default_device().type == "cuda" else "cpu"
        _assert_device(device_type)
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else as_dtype(dtype)
        self.enabled = bool(enabled) and _is_possible(device_type, self.fast_dtype)
        self.cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled

    def _inside(self, mode: Mode) -> Mode:
        """Return the mode that converts inputs of ops."""
        casting = _here()
        target = casting.targets[self.device]._replace(dtype=self.fast_dtype, enabled=self.enabled)
        inside = casting.with_target(self.device, target, self.cache_enabled)
        return mode_with(mode, autocast=inside)

    def __call__(self, function: F) -> F:
        """Decorate `function`: each call is a region of its own."""
        if not callable(function):
            raise InvalidType(
                f"autocast()(func) requires a callable, but got {type(function).__name__}; as a "
                "context manager: with autocast(...): output = model(input)"
            )
        return super().__call__(function)


def warn_of_older(device_type: str, name: str) -> None:
    """The warning of PyTorch's older names, a module for each device."""
    warnings.warn(
        f"adjoint.{device_type}.amp.{name}(args...) is deprecated; use "
        f"adjoint.amp.{name}('{device_type}', args...)",
        FutureWarning,
        stacklevel=3,
    )


def _is_possible(device_type: str, wanted: dtype) -> bool:
    """Whether the region can be enabled; warns where it cannot."""
    if device_type == "cuda" and not cuda.is_available():
        warnings.warn(
            "User provided device_type of 'cuda', but CUDA is not available. Disabling autocast.",
            stacklevel=3,
        )
        return False
    if wanted not in _SUPPORTED:
        warnings.warn(
            f"In {device_type.upper()} autocast, but the target dtype is not supported. Disabling "
            f"autocast. {device_type.upper()} autocast only supports dtypes of "
            f"{', '.join(map(repr, _SUPPORTED))}, got {wanted!r}.",
            stacklevel=3,
        )
        return False
    return True


class autocast_again(_ModeSwitch):  # noqa: N801 - like autocast
    """The autocast state of the place where this was made, with a cache of its own: for what runs
    later and must do the same, such as a checkpoint's recomputation.

    >>> with ad.autocast("cpu"):
    ...     again = ad.amp.autocast_again()
    >>> with again:
    ...     ad.is_autocast_enabled("cpu")
    True
    """

    def __init__(self) -> None:
        super().__init__()
        self.casting: Casting | None = MODE.get().autocast

    def _inside(self, mode: Mode) -> Mode:
        """Return the mode that converts inputs of ops as they were converted then."""
        then = self.casting
        if then is not None:
            then = Casting(then.targets, then.cache_enabled, {})
        return mode_with(mode, autocast=then)


# ---- questions and switches ----------------------------------------------------------------------


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows the device type.

    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.is_autocast_available

    >>> ad.amp.is_autocast_available("cpu"), ad.amp.is_autocast_available("fpga")
    (True, False)
    """
    return device_type in DEFAULT_CASTING.targets


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast converts tensors of the device type here.

    Source: https://docs.pytorch.org/docs/stable/amp.html

    >>> with ad.autocast("cpu"):
    ...     ad.is_autocast_enabled("cpu")
    True
    """
    return target_of(device_type).enabled


def get_autocast_dtype(device_type: str) -> dtype:
    """The dtype in which autocast runs, or would run, matrix work on the device type here.

    Source: https://docs.pytorch.org/docs/stable/amp.html

    >>> ad.get_autocast_dtype("cpu"), ad.get_autocast_dtype("cuda")
    (adjoint.bfloat16, adjoint.float16)
    """
    return target_of(device_type).dtype


def is_autocast_cache_enabled() -> bool:
    """Whether converted parameters are kept while a region lasts.

    Source: https://docs.pytorch.org/docs/stable/amp.html

    >>> ad.is_autocast_cache_enabled()
    True
    """
    return _here().cache_enabled


def _set(casting: Casting) -> None:
    switched = casting.cache is not None or not casting.cache_enabled
    switched = switched or any(x != _target(DEFAULT_CASTING, d) for d, x in casting.targets.items())
    MODE.set(mode_with(MODE.get(), autocast=casting if switched else None))


def _target(casting: Casting, device_type: str) -> CastTarget:
    found = casting.targets.get(device_type)
    if found is not None:
        return found
    if device_type not in _OTHERS:
        _assert_device(device_type)
    return CastTarget(_OTHERS[device_type], False, Lists({}, {}))


def target_of(device_type: str) -> CastTarget:
    """The settings of autocast on a device type in this context."""
    return _target(_here(), device_type)


def change_target(device_type: str, **changes: Any) -> None:
    """Do otherwise on a device type from here on."""
    here, target = _here(), target_of(device_type)._replace(**changes)
    _set(Casting({**here.targets, device_type: target}, here.cache_enabled, here.cache))


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Switch autocast on or off from here on; regions restore what was outside.

    Source: https://docs.pytorch.org/docs/stable/amp.html

    >>> ad.set_autocast_enabled("cpu", False)
    """
    change_target(device_type, enabled=bool(enabled))


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the dtype of autocast from here on; regions restore what was outside.

    Source: https://docs.pytorch.org/docs/stable/amp.html

    >>> ad.set_autocast_dtype("cpu", ad.bfloat16)
    """
    change_target(device_type, dtype=dtype)


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Switch the cache of converted parameters on or off from here on.

    Source: https://docs.pytorch.org/docs/stable/amp.html

    >>> ad.set_autocast_cache_enabled(True)
    """
    here = _here()
    _set(Casting(here.targets, bool(enabled), here.cache))


def clear_autocast_cache() -> None:
    """Forget the converted parameters of this region.

    Source: https://docs.pytorch.org/docs/stable/amp.html

    >>> ad.clear_autocast_cache()
    """
    cache = _here().cache
    if cache is not None:
        cache.clear()


# ---- custom autograd functions -------------------------------------------------------------------


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: dtype | None = None
) -> Any:
    """Decorate `forward` of a custom autograd Function: it remembers the autocast state for
    `custom_bwd`; with `cast_inputs`, inside autocast, it gets its floating-point tensors in that
    dtype and runs without autocast.

    Errors: InvalidArgument for another device.
    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.custom_fwd

    >>> class Product(ad.autograd.Function):
    ...     @staticmethod
    ...     @ad.amp.custom_fwd(device_type="cpu", cast_inputs=ad.float32)
    ...     def forward(ctx, a, b):
    ...         ctx.save_for_backward(a, b)
    ...         return a @ b
    ...     @staticmethod
    ...     @ad.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         a, b = ctx.saved_tensors
    ...         return g @ b.mT, a.mT @ g
    >>> with ad.autocast("cpu"):
    ...     Product.apply(ad.ones(2, 2), ad.ones(2, 2)).dtype
    adjoint.float32
    """
    _assert_device(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        enabled = is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            args, kwargs = _cast_all((args, kwargs), device_type, cast_inputs)
            return fwd(ctx, *args, **kwargs)

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorate `backward` of a custom autograd Function: it runs in forward's autocast state.

    Errors: InvalidArgument for another device; AttributeError where `forward` is not decorated.
    Source: https://docs.pytorch.org/docs/stable/amp.html#torch.amp.custom_bwd

    >>> ad.amp.custom_bwd(device_type="cpu")(lambda ctx, g: g).__name__
    '<lambda>'
    """
    _assert_device(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return backward


def _cast_all(value: Any, device_type: str, to: dtype) -> Any:
    """`value` with its floating-point tensors, but float64, in dtype `to`."""
    if isinstance(value, TensorBase):
        kind = value.dtype
        eligible = kind.is_floating_point and kind.itemsize < 8
        return cast(value, to) if eligible and value.device.type == device_type else value
    if type(value) in (tuple, list):
        return type(value)([_cast_all(each, device_type, to) for each in value])
    if type(value) is dict:
        return {key: _cast_all(each, device_type, to) for key, each in value.items()}
    return value
