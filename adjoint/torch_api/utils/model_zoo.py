"""PyTorch's old name for downloads of weights: `hub.load_state_dict_from_url`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..hub import load_state_dict_from_url as load_url

__all__ = ["load_url", "tqdm"]


class tqdm:  # noqa: N801 - that package's name
    """Progress bar with the names of the package tqdm; it shows nothing.

    >>> list(ad.utils.model_zoo.tqdm([1, 2]))
    [1, 2]
    """

    def __init__(self, iterable: Iterable[Any] = (), *args: Any, **kwargs: Any) -> None:
        self.iterable = iterable
        self.n = 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def update(self, n: int = 1) -> None:
        """Counts `n` more steps."""
        self.n += n

    def close(self) -> None:
        """Ends the bar."""

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
