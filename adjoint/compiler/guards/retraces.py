"""Reasons to trace a function again, with more known of it: see `CompiledFunction._captured`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core.errors import Unsupported
from .slots import GuardSource


class RetraceToLift(Unsupported):
    """Error: the function sets slots that were not declared as outputs of the program: see
    `moved`.
    """

    def __init__(self, message: str, slots: Sequence[GuardSource]) -> None:
        super().__init__(message)
        self.slots = slots


class RetraceToFollow(Unsupported):
    """Error: code has run to which nothing led, or a module was imported; with its `names` it is
    found.
    """

    def __init__(self, message: str, names: Iterable[str]) -> None:
        super().__init__(message)
        self.names = frozenset(names)


class RetraceOnRenewal(Unsupported):
    """Error: the function may have read state that was renewed since (`StateSnapshot.renew`)."""


class RetraceOnCache(Unsupported):
    """Error: a function that keeps its results has computed one of symbols; a call that runs
    eagerly lets it keep what it would give.
    """
