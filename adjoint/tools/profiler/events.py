"""Events, sums of events, and lists of both."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...core.errors import ProfilerError, UnknownColumn
from .activities import DeviceType

OP, USER, PYTHON = "cpu_op", "user_annotation", "python_function"  # kinds, as traces call them
MEMORY = "[memory]"  # what was freed outside of all events
E = TypeVar("E", bound="FunctionEvent | FunctionEventAvg")  # what a list has
_METRICS = ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total")


class Interval(NamedTuple):
    """Interval of time, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Length in microseconds."""
        return self.end - self.start


class OnTheHost:
    """Device fields of events, all zero: devices' own time and memory are not measured."""

    device_type = DeviceType.CPU
    device_time_total = self_device_time_total = device_time = 0.0
    cuda_time_total = self_cuda_time_total = cuda_time = 0.0
    device_memory_usage = self_device_memory_usage = 0
    cuda_memory_usage = self_cuda_memory_usage = 0
    is_async = is_remote = is_legacy = False
    use_device = None
    node_id = -1

    count: int
    cpu_time_total: float

    @property
    def cpu_time(self) -> float:
        """Microseconds for each call, what ran inside included."""
        return self.cpu_time_total / self.count if self.count else 0.0


class FunctionEvent(OnTheHost):
    """One event: an op, a node of backward, a part of the program."""

    count = 1

    def __init__(
        self, id: int, name: str, kind: str, thread: int, parent: Any, origin: int
    ) -> None:
        self.id = id
        self.name = name
        self.kind = kind
        self.thread = thread
        self.cpu_parent: FunctionEvent | None = parent
        self.cpu_children: list[FunctionEvent] = []
        self.input_shapes: Any = []
        self.stack: list[str] = []
        self.flops = 0
        self.args: str | None = None
        self.self_cpu_memory_usage = 0
        self.began = self.ended = 0  # nanoseconds; `ended` is 0 while it lasts
        self.origin = origin  # when the profile began

    @property
    def key(self) -> str:
        """Name by which events are grouped."""
        return self.name

    @property
    def is_user_annotation(self) -> bool:
        """Whether the program gave it its name, or a loader or an optimizer did."""
        return self.kind == USER

    @property
    def time_range(self) -> Interval:
        """Interval of the event."""
        return Interval((self.began - self.origin) / 1e3, (self.ended - self.origin) / 1e3)

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Microseconds, what ran inside included."""
        return (self.ended - self.began) / 1e3

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds, without the events inside."""
        return self.cpu_time_total - sum(e.cpu_time_total for e in self.cpu_children)

    @property
    def cpu_memory_usage(self) -> int:
        """Bytes allocated less bytes freed, what ran inside included."""
        return self.self_cpu_memory_usage + sum(e.cpu_memory_usage for e in self.cpu_children)

    def __repr__(self) -> str:
        return f"<FunctionEvent {self.name} {self.cpu_time_total:.3f}us>"


class FunctionEventAvg(OnTheHost):
    """The sum of events that have a key in common."""

    def __init__(self, key: str | None = None) -> None:
        self.key = key
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.flops = 0
        self.input_shapes: Any = ""
        self.stack: list[str] = []
        self.is_user_annotation = False

    def add(self, other: Any) -> FunctionEventAvg:
        """Add an event, or a sum of some."""
        if not self.count:
            self.key = self.key or other.key
            self.is_user_annotation = other.is_user_annotation
        self.count += other.count
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} "
            f"self_cpu_time={self.self_cpu_time_total:.3f}us cpu_time={self.cpu_time:.3f}us>"
        )


_ADDED = (
    "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "flops",
)  # fmt: skip


class EventList(list[E]):
    """Events in the order in which they began, or sums of events."""

    def __init__(self, events: Iterable[E] = (), *, trace: Any = None) -> None:
        super().__init__(events)
        self.trace = trace  # the recording that they are of, or whose sums they are

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each moment once."""
        return sum(event.self_cpu_time_total for event in self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as text, a row each; the largest first, where `sort_by` names an attribute.

        `row_limit` of -1 shows all. `time_unit` is "s", "ms" or "us"; without it each time has its
        own. With `top_level_events_only` events inside others are left out.
        Errors: UnknownColumn for `sort_by` of something else; InvalidArgument for another unit.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.profile.key_averages.html

        >>> with ad.profiler.profile() as prof:
        ...     y = ad.ones(3).exp()
        >>> "exp" in prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10)
        True
        """
        from .table import table

        return table(
            self, sort_by, row_limit, max_src_column_width, max_name_column_width,
            max_shapes_column_width, header, top_level_events_only, time_unit,
        )  # fmt: skip

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList[FunctionEventAvg]:
        """The sums of events of one name; of one name and shapes, or lines of the program.

        Ops have no overloads: `group_by_overload_name` changes nothing.
        Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.profile.key_averages.html

        >>> with ad.profiler.profile() as prof:
        ...     y = ad.ones(3).exp().exp()
        >>> [sum.count for sum in prof.events().key_averages() if sum.key == "exp"]
        [2]
        """
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            stack = event.stack[:group_by_stack_n]
            shapes = str(event.input_shapes) if group_by_input_shapes else ""
            key = event.key, shapes, *stack
            if key not in found:
                made = found[key] = FunctionEventAvg(event.key)
                made.stack = stack
                made.input_shapes = event.input_shapes if group_by_input_shapes else ""
            found[key].add(event)
        return EventList(found.values(), trace=self.trace)

    def total_average(self) -> FunctionEventAvg:
        """The sum of all events, called "Total".

        Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.profile.total_average.html

        >>> with ad.profiler.profile() as prof:
        ...     y = ad.ones(3).exp().exp()
        >>> prof.events().total_average().key
        'Total'
        """
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def export_chrome_trace(self, path: Any) -> None:
        """Write the events for chrome://tracing and https://ui.perfetto.dev (see
        `profile.export_chrome_trace`).

        Errors: ProfilerError for sums, which have no time at which they were.
        """
        from .trace import trace_of

        if any(isinstance(event, FunctionEventAvg) for event in self):
            raise ProfilerError(
                "export_chrome_trace: sums of events; export prof.events(), or the profile itself"
            )
        text = json.dumps(trace_of(self))
        if str(path).endswith(".gz"):
            Path(path).write_bytes(gzip.compress(text.encode()))
        else:
            Path(path).write_text(text)

    def supported_export_stacks_metrics(self) -> list[str]:
        """Metrics that `export_stacks` can count."""
        return list(_METRICS)

    def export_stacks(self, path: Any, metric: str) -> None:
        """Write a line for each place in the program, of the functions that lead there and how much
        of `metric` was spent, as flame graphs are drawn from.

        Errors: UnknownColumn for another metric than those of `supported_export_stacks_metrics`.
        """
        if metric not in _METRICS:
            raise UnknownColumn(f"export_stacks: metric={metric!r}; one of {', '.join(_METRICS)}")
        spent: dict[str, float] = {}
        for event in self:
            if event.stack:
                place = ";".join(text.replace(";", ",") for text in reversed(event.stack))
                spent[place] = spent.get(place, 0.0) + getattr(event, metric)
        lines = [f"{place} {int(amount)}\n" for place, amount in spent.items() if int(amount) > 0]
        Path(path).write_text("".join(lines))

    def __str__(self) -> str:
        return self.table()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from ...reactive.view.notebook import of_text

        return of_text(self, self.table())
