"""Python's `multiprocessing` with PyTorch's additional names. Tensors are sent as copies; those in
shared memory (`share_memory_`) are sent as that memory.

Source: https://docs.pytorch.org/docs/stable/multiprocessing.html

>>> ad.multiprocessing.get_sharing_strategy()
'copies'
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403
from typing import Any

from ..core.errors import Unsupported

__all__ = [
    *multiprocessing.__all__, "get_all_sharing_strategies", "get_sharing_strategy",
    "set_sharing_strategy", "spawn",
]  # fmt: skip


def get_sharing_strategy() -> str:
    """The way in which tensors are sent to other processes: by copies."""
    return "copies"


def get_all_sharing_strategies() -> set[str]:
    """The supported ways in which tensors are sent."""
    return {"copies"}


def set_sharing_strategy(new_strategy: str) -> None:
    """Set the way in which tensors are sent to other processes.

    Errors: Unsupported for another way than copies.
    """
    if new_strategy != "copies":
        raise Unsupported(
            f"set_sharing_strategy: {new_strategy!r}; tensors are sent as copies here, but for "
            "those that share_memory_() has moved to memory that processes share"
        )


class ProcessContext:
    """The processes started by `spawn`."""

    def __init__(self, processes: list[Any]) -> None:
        self.processes = processes

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for all; True once all have ended.

        Errors: RuntimeError where one has failed; the others are ended then.
        """
        import multiprocessing.connection
        import time

        limit = None if timeout is None else time.monotonic() + timeout
        while alive := [p for p in self.processes if p.is_alive()]:
            if any(p.exitcode for p in self.processes):
                break
            left = None if limit is None else limit - time.monotonic()
            if left is not None and left <= 0:
                return False
            multiprocessing.connection.wait([p.sentinel for p in alive], left)
        failed = [(i, p) for i, p in enumerate(self.processes) if p.exitcode]
        if failed:
            for process in self.processes:
                process.terminate()
            i, process = failed[0]
            raise RuntimeError(f"spawn: process {i} ended with code {process.exitcode}")
        return True


def spawn(
    fn: Any,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes, i from 0.

    Errors: RuntimeError where one fails.
    Source: https://docs.pytorch.org/docs/stable/multiprocessing.html#torch.multiprocessing.spawn.spawn
    """
    context = multiprocessing.get_context(start_method)
    processes = []
    for i in range(nprocs):
        process: Any = context.Process(target=fn, args=(i, *args), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        processes.append(process)
    made = ProcessContext(processes)
    if not join:
        return made
    made.join()
    return None
