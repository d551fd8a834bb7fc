"""What distributions with a location and a scale share."""

from __future__ import annotations

from typing import Any

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all


class LocationScale(Distribution):
    """The base of distributions over all numbers, moved and stretched, with `loc` as mode."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real  # type: ignore[assignment]
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self) -> Any:
        """The location."""
        return self.loc

    mode = mean
