"""Progress bars on long work: tqdm's where it is installed, none otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from . import config
from .argument_repr import argument_repr
from .errors import InvalidArgument

_HIDDEN = {"auto": None, "on": False, "off": True}  # tqdm's `disable`; None: only on a terminal


def progress(iterable: Iterable[Any] | None = None, total: int | None = None) -> Any:
    """Iterate with a bar that shows how far it is; without an iterable, call `update(n)`.

    The bar is tqdm's, with its methods (`set_postfix`, `update`, `close`), and vanishes at the end.
    The environment variable ADJOINT_PROGRESS says when it shows: `auto`, only on a terminal; `on`;
    `off`. Where tqdm is not installed nothing shows.

    Errors: InvalidArgument for another value of ADJOINT_PROGRESS.
    Source: https://tqdm.github.io/docs/tqdm/

    >>> from adjoint.core.progress import progress
    >>> sum(step for step in progress(range(4)))
    6
    """
    wish = config.read("ADJOINT_PROGRESS")
    if wish not in _HIDDEN:
        raise InvalidArgument(f"ADJOINT_PROGRESS is {wish!r}; set it to auto, on or off")
    try:
        from tqdm import tqdm
    except ImportError:
        return NoBar(iterable, total=total)
    return tqdm(iterable, total=total, disable=_HIDDEN[wish], leave=False, dynamic_ncols=True)


class NoBar:
    """Progress bar with tqdm's methods that shows nothing."""

    __repr__ = argument_repr

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        *args: Any,
        total: int | None = None,
        **options: Any,
    ) -> None:
        self.iterable = iterable
        self.total = total
        self.n = 0

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable or ():
            yield item
            self.n += 1

    def __len__(self) -> int:
        return self.total if self.iterable is None else len(self.iterable)  # type: ignore

    def __enter__(self) -> NoBar:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def update(self, n: int = 1) -> None:
        """`n` steps are done."""
        self.n += n

    def set_postfix(self, *values: Any, **more: Any) -> None:
        """Values that a bar would show."""

    def set_description(self, *text: Any, **options: Any) -> None:
        """A text that a bar would show."""

    @staticmethod
    def write(s: str, *args: Any, **options: Any) -> None:
        """Print a text, which a bar would make way for."""
        print(s)

    def close(self) -> None:
        """The work is over."""
