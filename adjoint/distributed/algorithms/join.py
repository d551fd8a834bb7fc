"""`Join`: ranks that have different numbers of inputs, as far as one rank has."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, NamedTuple

from ...core.errors import Unsupported
from ..group import get_world_size, is_initialized

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """Actions of a rank that has no inputs left, while others go on."""

    def main_hook(self) -> None:
        """Called while other ranks still have inputs."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once all ranks are done."""


class Joinable(abc.ABC):
    """Base of objects that take part in `Join`."""

    @abc.abstractmethod
    def __init__(self) -> None:
        super().__init__()

    @abc.abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook of this object."""

    @property
    @abc.abstractmethod
    def join_device(self) -> Any:
        """Device on which the collectives run."""

    @property
    @abc.abstractmethod
    def join_process_group(self) -> Any:
        """The group of its collectives."""


class _JoinConfig(NamedTuple):
    """Settings with which a Joinable was entered."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool


class Join:
    """A block in which a rank without inputs waits for the others; a world of one never does.

    Errors: Unsupported for several ranks.
    Source: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html

    >>> from adjoint.distributed.algorithms.join import Join
    >>> with Join([]):
    ...     pass
    """

    def __init__(
        self,
        joinables: list[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if enable and is_initialized() and get_world_size() > 1:
            raise Unsupported(
                "distributed Join: ranks with different numbers of inputs; give each as many "
                "(DistributedSampler does), or pass enable=False"
            )
        self._enable = enable
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables] if enable else []

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if type is None:
            for hook in self._hooks:
                hook.post_hook(True)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> None:
        """None: in a world of one nobody waits."""
