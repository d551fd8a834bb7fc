"""Families of computations that differ only in numbers: what was made for some serves for
others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import policy


class Variants:
    """The variants of one computation; numbers decide which of them applies.

    `with_numbers(numbers)` of each gives what computes it for other numbers, or None where these
    decide otherwise.
    """

    __slots__ = ("made", "refused")

    made: list[Any]
    refused: str  # why nothing more can be made

    def __init__(self) -> None:
        self.made = []
        self.refused = ""

    def find(self, numbers: object) -> Any:
        """The computation for these numbers by an existing variant; None if none applies."""
        for variant in self.made:
            adapted = variant.with_numbers(numbers)
            if adapted is not None:
                return adapted
        return None

    def find_or_make(self, numbers: object, make: Callable[[], Any]) -> Any:
        """The computation for these numbers, by an existing variant or a new one from `make()`; or
        a str, the reason why there is none. If `make` returns such a reason, it is not called
        again.
        """
        adapted = self.find(numbers)
        if adapted is None and not self.refused and len(self.made) < policy.VARIANTS:
            made = make()
            if isinstance(made, str):
                self.refused = made
            else:
                self.made.insert(0, made)  # the first may differ, the last will come again
                adapted = made.with_numbers(numbers)
                if adapted is None:
                    self.refused = "numbers of which it has no value"
        return adapted or self.refused or "numbers that decide too much"
