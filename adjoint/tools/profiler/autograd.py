"""`ad.autograd.profiler`: the older names."""

from __future__ import annotations

from typing import Any

from ...core.missing_names import Unmade
from .annotations import record_function
from .events import EventList, FunctionEvent, FunctionEventAvg
from .profiling import profile as _profile

__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "emit_itt", "emit_nvtx", "profile",
    "record_function",
]  # fmt: skip


class emit_nvtx(Unmade):  # noqa: N801 - PyTorch's name
    """Marks of ops for NVIDIA's tools."""

    said = "autograd.profiler", "of NVIDIA's tools; profiler.profile writes traces"


class emit_itt(Unmade):  # noqa: N801 - PyTorch's name
    """Marks of ops for Intel's tools."""

    said = "autograd.profiler", "of Intel's tools; profiler.profile writes traces"


class profile(_profile):  # noqa: N801 - PyTorch's name
    """A profile of a block, whose results are asked of itself; `enabled=False` records nothing.

    `use_cuda`, `use_device`, `use_kineto` and `use_cpu` are accepted and change nothing.
    Source: https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.profiler.profile

    >>> with ad.autograd.profiler.profile() as prof:
    ...     y = ad.ones(2).exp()
    >>> "exp" in prof.table()
    True
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        acc_events: bool = False,
    ) -> None:
        self.enabled = enabled
        super().__init__(
            record_shapes=record_shapes, with_flops=with_flops, profile_memory=profile_memory,
            with_stack=with_stack, with_modules=with_modules, acc_events=acc_events,
        )  # fmt: skip

    def __enter__(self) -> profile:
        if self.enabled:
            self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled:
            self.stop()

    @property
    def function_events(self) -> EventList[FunctionEvent]:
        """List of all events."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each moment once."""
        return self.events().self_cpu_time_total

    def table(self, *args: Any, **kwargs: Any) -> str:
        """Text table of the events; see `EventList.table`."""
        return self.events().table(*args, **kwargs)
