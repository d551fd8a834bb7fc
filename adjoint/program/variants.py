"""Computations whose numbers come with each call: what was made once serves other numbers too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Variants"]


class Variants:
    """What computes one thing for any numbers: several, where numbers decide between them.

    `with_numbers(floats)` of each gives what computes it for other numbers, or None where these
    decide otherwise.
    """

    __slots__ = ("latest", "made")

    made: list[Any]
    latest: Any  # the key of the latest numbers

    def __init__(self) -> None:
        self.made = []
        self.latest = None

    def find(self, floats: Sequence[float], key: Any) -> tuple[Any, bool]:
        """What computes it for these numbers, None where nothing made so far does; and whether they
        came twice in a row: then what is prepared for them alone may pay.
        """
        for variant in self.made:
            found = variant.with_numbers(floats)
            if found is not None:
                again = self.latest == key
                self.latest = key
                return found, again
        return None, False
