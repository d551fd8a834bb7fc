"""Draws that fill a tensor in place: `uniform_`, `normal_` and their relatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core import dtype as dt
from ...core.errors import InvalidArgument, InvalidType
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...runtime.public import INPLACE
from ..promotion import cast
from .draws import Exponential
from .generators import torch_generator
from .random import _assert_probability, _assert_std, _chosen, _draw_integers, _like, _mask
from .streams import _assert_kind, draw_for, draw_normal, draw_uniform, drawn, followed

if TYPE_CHECKING:
    from ...ops.argument_types import Random

__all__: list[str] = []


# Each takes the tensor as it is and returns what it becomes; see autograd/inplace.py.


def _uniform(self: Tensor, *bounds: Any, generator: Random | None = None, **named: Any) -> Tensor:
    """Numbers spread evenly over [from, to); 0 and 1 unless given."""
    low, high = _bounds("uniform_", bounds, named, (0.0, 1.0))
    if not low <= high:
        raise InvalidArgument(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
        )
    shape = tuple(self.shape)
    return draw_uniform(shape, self.dtype, generator, self.device, self, low, high)


def _bounds(name: str, given: tuple[Any, ...], named: dict[str, Any], default: Any) -> list[Any]:
    """The arguments `from` (which Python cannot name) and `to`."""
    if len(given) > 2 or not set(named) <= {"from", "to"}:
        raise InvalidType(f"{name}: takes from and to, got {given} and {named}")
    found = list(given) + list(default[len(given) :])
    return [named.get("from", found[0]), named.get("to", found[1])]


def _normal(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Random | None = None
) -> Tensor:
    """Normal numbers."""
    _assert_std(std, "normal_")
    shape = tuple(self.shape)
    return draw_normal(shape, self.dtype, generator, self.device, self, mean, std)


def _bernoulli(self: Tensor, p: Any = 0.5, *, generator: Random | None = None) -> Tensor:
    """1 with probability p (a number, or a tensor that broadcasts), else 0."""
    if isinstance(p, TensorBase):
        chances = cast(p.expand(self.shape), dt.float64)  # type: ignore[attr-defined]
        if torch_generator(generator, self.device) is not None:
            chances = p.expand(self.shape)  # type: ignore[attr-defined]
        return cast(_chosen(chances.detach(), generator, self), self.dtype)
    _assert_probability(p, "bernoulli_")
    return _mask(tuple(self.shape), self.dtype, p, 1.0, generator, self.device, self)


def _random(self: Tensor, *bounds: Any, generator: Random | None = None, **named: Any) -> Tensor:
    """Whole numbers of [from, to); of all that the dtype holds exactly unless given."""
    if len(bounds) == 1 and not named:
        bounds = (0, bounds[0])
    d = self.dtype
    digits = {dt.float64: 53, dt.float32: 24, dt.float16: 11, dt.bfloat16: 8, dt.bool_: 0}
    most = 2 ** digits[d] if d in digits else dt.iinfo(d).max
    low, high = _bounds("random_", bounds, named, (0, None))
    if (low, high) == (0, None) and (own := torch_generator(generator, self.device)) is not None:
        shape = tuple(self.shape)
        return followed(own, self.device, "whole", (1 if d is dt.bool_ else most,), shape, d, self)
    high = most + 1 if high is None and d is not dt.int64 else 2**63 - 1 if high is None else high
    return _draw_integers(low, high, tuple(self.shape), d, generator, self.device, self)


def _unit(self: Tensor, generator: Any) -> Tensor:
    """Uniform numbers of (0, 1] in at least float32."""
    wide = dt.float64 if self.dtype is dt.float64 else dt.float32
    drawn: Any = draw_uniform(tuple(self.shape), wide, generator, self.device)
    return 1 - drawn  # type: ignore[no-any-return]


def _as_torch(self: Tensor, generator: Any, method: str, *args: float) -> Tensor | None:
    """A tensor's numbers from PyTorch's generator, if that is in use; else None."""
    own = torch_generator(generator, self.device)
    if own is None:
        return None
    shape = tuple(self.shape)
    return followed(own, self.device, method, tuple(map(float, args)), shape, self.dtype, self)


def _exponential(self: Tensor, lambd: float = 1.0, *, generator: Random | None = None) -> Tensor:
    """Numbers with the exponential distribution of rate lambd."""
    if not lambd > 0:
        raise InvalidArgument(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    _assert_kind("exponential_", self.dtype)
    if (found := _as_torch(self, generator, "exponential", lambd)) is not None:
        return found
    values = drawn(Exponential, generator, self.device, tuple(self.shape), self.dtype)
    return values if lambd == 1.0 else values / lambd


def _geometric(self: Tensor, p: float, *, generator: Random | None = None) -> Tensor:
    """The number of trials up to the first success, each of probability p."""
    if not 0 < p < 1:
        raise InvalidArgument(f"geometric_ expects p to be in (0, 1), but got p={p}")
    _assert_kind("geometric_", self.dtype, (1, 2))
    if (found := _as_torch(self, generator, "geometric", p)) is not None:
        return found
    trials = (_unit(self, generator).log() / math.log1p(-p)).ceil().clamp(min=1)
    return cast(trials, self.dtype)


def _cauchy(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Random | None = None
) -> Tensor:
    """Numbers with the Cauchy distribution."""
    if not sigma > 0:
        raise InvalidArgument(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    _assert_kind("cauchy_", self.dtype)
    if (found := _as_torch(self, generator, "cauchy", median, sigma)) is not None:
        return found
    angle = (_unit(self, generator) - 0.5) * math.pi
    return cast(angle.tan() * sigma + median, self.dtype)


def _log_normal(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Random | None = None
) -> Tensor:
    """Numbers whose logarithm is normal with this mean and standard deviation."""
    if not std > 0:
        raise InvalidArgument(f"log_normal_ expects std > 0.0, but found std={std}")
    _assert_kind("log_normal_", self.dtype)
    if (found := _as_torch(self, generator, "log_normal", mean, std)) is not None:
        return found
    drawn: Any = draw_normal(tuple(self.shape), self.dtype, generator, self.device)
    logarithm: Any = drawn * std + mean
    return logarithm.exp()


def _drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def draw(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _like(draw_for((self,), function, self, *args, **kwargs), self)

    return draw


draw_cauchy = _drawing(_cauchy)  # in the shape of a tensor that has no values yet

for _function in (
    _uniform, _normal, _bernoulli, _random, _exponential, _geometric, _cauchy, _log_normal,
):  # fmt: skip
    INPLACE[f"{_function.__name__[1:]}_"] = _drawing(_function)
