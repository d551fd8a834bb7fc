"""Casts that autocast makes to the inputs of one operation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..core.dtype import bfloat16, dtype, float16, float32, float64
from ..core.errors import AutogradError
from ..core.mode import MODE, without_autocast
from ..core.op import Op
from ..core.tensor_base import TensorBase
from ..ops.promotion import Cast
from ..runtime.dispatch import proceed
from ..runtime.lazy import LazyValue
from .lists import CPU, CUDA, LOWER, PROMOTE, REFUSE, SAME, Lists


class CastTarget(NamedTuple):
    """Autocast on one device."""

    dtype: dtype
    enabled: bool
    lists: Lists


class _Cached(NamedTuple):
    """A parameter in the lower dtype, and the tensor it was made from."""

    tensor: weakref.ref[Any]
    data: weakref.ref[Any]
    version: int
    value: Any


class Casting:
    """One immutable combination of autocast's switches; `apply` calls it where it is active.

    A parameter is converted once in an outermost context (`cache`, which contexts inside share) and
    once more after it has changed.
    """

    __slots__ = ("active", "cache", "cache_enabled", "settings", "signature", "targets")

    targets: dict[str, CastTarget]  # by device type
    active: bool  # on any device
    signature: Any  # equal for castings that convert alike
    settings: Any  # equal for castings of which all questions have the same answers
    cache: dict[Any, _Cached] | None  # None outside all contexts

    def __init__(
        self,
        targets: dict[str, CastTarget],
        cache_enabled: bool = True,
        cache: dict[Any, _Cached] | None = None,
    ) -> None:
        self.targets = targets
        self.cache_enabled = cache_enabled
        self.cache = cache
        enabled = [(name, t.dtype) for name, t in sorted(targets.items()) if t.enabled]
        self.active = bool(enabled)
        self.signature = tuple(enabled) or None
        told = [(name, t.dtype, t.enabled) for name, t in sorted(targets.items())]
        self.settings = None if cache_enabled and told == _USUAL else (cache_enabled, *told)

    def with_target(self, device: str, target: CastTarget, cache_enabled: bool) -> Casting:
        """This combination with another target for one device, in a context inside it."""
        cache = {} if self.cache is None else self.cache
        return Casting({**self.targets, device: target}, cache_enabled, cache)

    def without_cache(self) -> Casting:
        """This combination, keeping nothing."""
        return Casting(self.targets, self.cache_enabled)

    # ---- one operation ---------------------------------------------------------------------------

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Any:
        """Run the primitive `op` on `inputs`, converted as its class is listed."""
        target = self._target(inputs)
        if target is not None:
            policy = target.lists.ops.get(type(op))
            if policy is not None:
                inputs = tuple([self._converted(x, target, policy) for x in inputs])
        return proceed(op, inputs)

    def call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """`function(*args, **kwargs)` with tensors converted as `name` is listed; nothing inside is
        converted.
        """
        tensors = list(_tensors((args, kwargs)))
        target = self._target(tensors)
        policy = None if target is None else target.lists.functions.get(name)
        if target is None or policy is None:
            return function(*args, **kwargs)
        if callable(policy):
            policy = policy(*args, **kwargs)
        if policy == REFUSE:
            raise AutogradError(
                f"{name} is unsafe to autocast: its input overflows in {target.dtype}; use "
                "binary_cross_entropy_with_logits, or call it in a region with enabled=False"
            )
        if policy == PROMOTE:
            eligible = [x.dtype for x in tensors if _is_eligible(x)]
            policy = "float32" if float32 in eligible else LOWER
        if policy != SAME:

            def convert(x: Any) -> Any:
                return self._converted(x, target, policy)

            args, kwargs = _mapped(args, convert), _mapped(kwargs, convert)
        return without_autocast(function, *args, **kwargs)

    def _target(self, inputs: Any) -> CastTarget | None:
        """The settings for the device of the first tensor of `inputs`; None for no autocast."""
        for x in inputs:
            if isinstance(x, TensorBase):
                target = self.targets.get(x.device.type)
                return target if target is not None and target.enabled else None
        return None

    def _converted(self, x: Any, target: CastTarget, policy: str) -> Any:
        if not isinstance(x, TensorBase) or not _is_eligible(x):
            return x
        to = target.dtype if policy == LOWER else float32
        if x.dtype is to:
            return x
        return self._lowered(x, to) if policy == LOWER else proceed(Cast(to), (x,))

    def _lowered(self, x: Any, to: dtype) -> Any:
        """`x` in the lower dtype; from the cache where it is a parameter."""
        mode = MODE.get()
        is_parameter = x._node is not None and x._node is x._leaf and x._view is None
        data = x._data
        if (
            not (self.cache_enabled and is_parameter and x.dtype is float32)
            or self.cache is None
            or mode.executor not in (None, mode.step)  # which records: the cast is part of it
            or isinstance(data, LazyValue)
        ):
            return proceed(Cast(to), (x,))
        key = (id(x), to, mode.grad, mode.inference)
        found = self.cache.get(key)
        version = 0 if x._changes is None else x._changes.count
        if (
            found is not None
            and found.tensor() is x
            and found.data() is data
            and found.version == version
        ):
            return found.value
        value = proceed(Cast(to), (x,))
        self.cache[key] = _Cached(weakref.ref(x), weakref.ref(data), version, value)
        return value


_TARGETS = {
    "cpu": CastTarget(bfloat16, False, CPU),
    "cuda": CastTarget(float16, False, CUDA),
    "torch": CastTarget(bfloat16, False, CUDA),  # what runs there runs the same way on CUDA
}
_USUAL = [(name, t.dtype, t.enabled) for name, t in sorted(_TARGETS.items())]  # settings
DEFAULT_CASTING = Casting(_TARGETS)


def _is_eligible(x: Any) -> bool:
    """Whether autocast may convert it: a floating-point tensor of at most 32 bits."""
    kind: dtype = x.dtype
    return kind.is_floating_point and kind is not float64


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in `value`, in order; inside tuples, lists and dicts too."""
    if isinstance(value, TensorBase):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with its tensors replaced by what `function` gives for them."""
    if isinstance(value, TensorBase):
        return function(value)
    if type(value) in (tuple, list):
        return type(value)([_mapped(each, function) for each in value])
    if type(value) is dict:
        return {key: _mapped(each, function) for key, each in value.items()}
    return value
