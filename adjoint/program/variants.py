"""Computations whose numbers come with each call: what was made once serves other numbers too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import policy


class Variants:
    """What computes one thing for any numbers: several, where numbers decide between them.

    `with_numbers(numbers)` of each gives what computes it for other numbers, or None where these
    decide otherwise.
    """

    __slots__ = ("made", "refused")

    made: list[Any]
    refused: str  # why nothing more can be made

    def __init__(self) -> None:
        self.made = []
        self.refused = ""

    def find(self, numbers: Any) -> Any:
        """What computes it for these numbers; None where nothing made so far does."""
        for variant in self.made:
            found = variant.with_numbers(numbers)
            if found is not None:
                return found
        return None

    def find_or_make(self, numbers: Any, make: Callable[[], Any]) -> Any:
        """What computes it for these numbers, made by `make()` if need be; or a str, the
        reason why nothing does, which `make` may give, too: then it is not asked again.
        """
        found = self.find(numbers)
        if found is None and not self.refused and len(self.made) < policy.VARIANTS:
            made = make()
            if isinstance(made, str):
                self.refused = made
            else:
                self.made.insert(0, made)  # the first may differ, the last will come again
                found = made.with_numbers(numbers)
                if found is None:
                    self.refused = "numbers of which it has no value"
        return found or self.refused or "numbers that decide too much"
