"""Events in the Chrome trace event format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .events import MEMORY, FunctionEvent


def trace_of(events: Any) -> dict[str, Any]:
    """The trace that is written as JSON: the events, the memory that came and went, the user's
    metadata.
    """
    trace = events.trace
    process = os.getpid()
    threads = sorted({event.thread for event in events})
    named = {"name": "process_name", "ph": "M", "ts": 0, "pid": process, "tid": 0}
    found: list[dict[str, Any]] = [{**named, "args": {"name": "adjoint"}}]
    for thread in threads:
        args = {"name": f"thread {thread}"}
        found.append({**named, "name": "thread_name", "tid": thread, "args": args})
    found += [_complete(event, process) for event in events if event.name != MEMORY]
    found += _memory(trace.memory, trace.origin, process) if trace is not None else []
    head: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms", "deviceProperties": []}
    for name in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"):
        if trace is not None and getattr(trace, name):
            head[name] = 1
    metadata = {} if trace is None else trace.metadata
    return {**head, **metadata, "traceEvents": found}


def _complete(event: FunctionEvent, process: int) -> dict[str, Any]:
    """An event with a duration."""
    args: dict[str, Any] = {"External id": event.id}
    if event.input_shapes:
        args["Input Dims"] = event.input_shapes
    if event.stack:
        args["Call stack"] = ";".join(event.stack)
    if event.flops:
        args["flops"] = event.flops
    if event.args is not None:
        args["args"] = event.args
    return {
        "ph": "X", "cat": event.kind, "name": event.name, "pid": process, "tid": event.thread,
        "ts": event.time_range.start, "dur": event.cpu_time_total, "args": args,
    }  # fmt: skip


def _memory(changes: Sequence[Any], origin: int, process: int) -> list[dict[str, Any]]:
    """Trace events of allocations and frees, one instant each, with the sum so far."""
    found, total = [], 0
    for when, size, thread in changes:
        total += size
        found.append({
            "ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": process,
            "tid": thread, "ts": (when - origin) / 1e3,
            "args": {"Bytes": size, "Total Allocated": total, "Device Type": 0, "Device Id": -1},
        })  # fmt: skip
    return found
