"""The version of PyTorch's API that is followed, as programs compare it."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]

_FORM = re.compile(
    r"v?(\d+(?:\.\d+)*)[-_.]?(?:(a|b|c|rc|alpha|beta|pre|preview)[-_.]?(\d*))?"
    r"(?:[-_.]?(?:post|rev|r)[-_.]?(\d+))?(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([\w.-]+))?$",
    re.IGNORECASE,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FINAL = 9


def _key(text: str) -> tuple[Any, ...] | None:
    """Sort key of a version (PEP 440); None for a text that is none."""
    found = _FORM.match(text.strip())
    if found is None:
        return None
    numbers, stage, count, after, dev, day, local = found.groups()
    release = [int(n) for n in numbers.split(".")]
    while len(release) > 1 and not release[-1]:
        release.pop()
    place = (_STAGES[stage.lower()], int(count or 0)) if stage else (_FINAL, 0)
    if dev and not stage and after is None:
        place = (-1, 0)  # before the first alpha
    parts = tuple(
        (1, int(p), "") if p.isdecimal() else (0, 0, p.lower())
        for p in re.split(r"[-_.]", local or "")
        if p
    )
    return (
        tuple(release), place, -1 if after is None else int(after),
        (0, int(day or 0)) if dev else (1, 0), parts,
    )  # fmt: skip


class TorchVersion(str):
    """A version that is a str, but compares as a version: with strings, and tuples of numbers.

    >>> from adjoint.torch_api.alias.torch_version import TorchVersion
    >>> TorchVersion("2.13.0") > "2.9", TorchVersion("2.13.0") >= (2, 13)
    (True, True)
    """

    __slots__ = ()

    def _compared(self, other: Any) -> tuple[Any, Any]:
        if isinstance(other, (tuple, list)):
            other = ".".join(map(str, other))
        mine, theirs = _key(str(self)), _key(str(other))
        if mine is None or theirs is None:  # then they are but strings
            return str(self), str(other)
        return mine, theirs

    def __eq__(self, other: object) -> bool:
        mine, theirs = self._compared(other)
        return bool(mine == theirs)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        mine, theirs = self._compared(other)
        return bool(mine < theirs)

    def __le__(self, other: Any) -> bool:
        mine, theirs = self._compared(other)
        return bool(mine <= theirs)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __hash__(self) -> int:
        return str.__hash__(self)


__version__ = TorchVersion("2.13.0")
