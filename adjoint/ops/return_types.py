"""Named tuples that functions with several results return, as `torch.return_types` does."""

# ruff: noqa: N801 - PyTorch's names

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ..core import config
from ..core.tensor_type import Tensor

T = TypeVar("T")


def return_type(name: str) -> Callable[[type[T]], type[T]]:
    """Declare the class of `name`'s result: a named tuple that prints one field per line."""

    def declare(base: Any) -> Any:
        def __repr__(self: Any) -> str:  # noqa: N807 - becomes the class's
            lines = ",\n".join(f"{f}={v!r}" for f, v in zip(self._fields, self, strict=True))
            return f"{config.CALLED}.return_types.{name}(\n{lines})"

        return type(name, (base,), {"__slots__": (), "__repr__": __repr__, "__module__": __name__})

    return declare


@return_type("max")
class max(NamedTuple):
    """The result of `max`."""

    values: Tensor
    indices: Tensor


@return_type("min")
class min(NamedTuple):
    """The result of `min`."""

    values: Tensor
    indices: Tensor


@return_type("aminmax")
class aminmax(NamedTuple):
    """The result of `aminmax`."""

    min: Tensor
    max: Tensor


@return_type("median")
class median(NamedTuple):
    """The result of `median`."""

    values: Tensor
    indices: Tensor


@return_type("nanmedian")
class nanmedian(NamedTuple):
    """The result of `nanmedian`."""

    values: Tensor
    indices: Tensor


@return_type("mode")
class mode(NamedTuple):
    """The result of `mode`."""

    values: Tensor
    indices: Tensor


@return_type("sort")
class sort(NamedTuple):
    """The result of `sort`."""

    values: Tensor
    indices: Tensor


@return_type("topk")
class topk(NamedTuple):
    """The result of `topk`."""

    values: Tensor
    indices: Tensor


@return_type("kthvalue")
class kthvalue(NamedTuple):
    """The result of `kthvalue`."""

    values: Tensor
    indices: Tensor


@return_type("cummax")
class cummax(NamedTuple):
    """The result of `cummax`."""

    values: Tensor
    indices: Tensor


@return_type("cummin")
class cummin(NamedTuple):
    """The result of `cummin`."""

    values: Tensor
    indices: Tensor


@return_type("histogram")
class histogram(NamedTuple):
    """The result of `histogram`."""

    hist: Tensor
    bin_edges: Tensor


@return_type("histogramdd")
class histogramdd(NamedTuple):
    """The result of `histogramdd`."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


@return_type("frexp")
class frexp(NamedTuple):
    """The result of `frexp`."""

    mantissa: Tensor
    exponent: Tensor
