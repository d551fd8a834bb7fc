"""Events as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import InvalidArgument, UnknownColumn

SORTS = (
    "count", "cpu_time", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage",
    "self_cpu_memory_usage", "flops", "key", "device_time", "device_time_total",
    "self_device_time_total", "device_memory_usage", "self_device_memory_usage", "cuda_time",
    "cuda_time_total", "self_cuda_time_total", "cuda_memory_usage", "self_cuda_memory_usage",
)  # fmt: skip
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}
_SIZES = (("Gb", 1 << 30), ("Mb", 1 << 20), ("Kb", 1 << 10))
_FLOPS = (("TFLOPs", 1e12), ("GFLOPs", 1e9), ("MFLOPs", 1e6), ("KFLOPs", 1e3), ("FLOPs", 1.0))
_WIDTH = 12  # of a column of numbers


def time_text(us: float, unit: str | None = None) -> str:
    """A time in the given unit, or in that which suits it.

    >>> time_text(1500.0), time_text(1500.0, "us")
    ('1.500ms', '1500.000us')
    """
    if unit is None:
        unit = "s" if us >= 1e6 else "ms" if us >= 1e3 else "us"
    return f"{us / _UNITS[unit]:.3f}{unit}"


def memory_text(size: int) -> str:
    """A number of bytes.

    >>> memory_text(2048), memory_text(-3)
    ('2.00 Kb', '-3 b')
    """
    for unit, least in _SIZES:
        if abs(size) >= least:
            return f"{size / least:.2f} {unit}"
    return f"{size} b"


def _share(part: float, whole: float) -> str:
    return f"{part * 100 / whole:.2f}%" if whole else "--"


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def table(
    events: Any,
    sort_by: str | None,
    row_limit: int,
    source_width: int,
    name_width: int,
    shapes_width: int,
    header: str | None,
    top_level_only: bool,
    unit: str | None,
) -> str:
    """Text table of events; see `EventList.table`."""
    if sort_by is not None and sort_by not in SORTS:
        raise UnknownColumn(f"table: sort_by={sort_by!r}; one of {', '.join(SORTS)}")
    if unit is not None and unit not in _UNITS:
        raise InvalidArgument(f"table: time_unit={unit!r}; one of {', '.join(_UNITS)}")
    if not events:
        return ""
    total = sum(e.self_cpu_time_total for e in events)
    rows = list(events)
    if top_level_only:
        rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
    if sort_by is not None:
        rows.sort(key=lambda e: getattr(e, sort_by), reverse=True)
    if row_limit >= 0:
        rows = rows[:row_limit]
    columns = _columns(events, total, unit, source_width, name_width, shapes_width)
    return _text(rows, columns, header, f"Self CPU time total: {time_text(total, unit)}")


Column = tuple[str, Callable[[Any], str], bool]  # title, what an event has there, left


def _columns(
    events: Any, total: float, unit: str | None, source: int, name: int, shapes: int
) -> list[Column]:
    """The columns; those of what was recorded only."""
    found: list[Column] = [
        ("Name", lambda e: _shortened(e.key, name), False),
        ("Self CPU %", lambda e: _share(e.self_cpu_time_total, total), False),
        ("Self CPU", lambda e: time_text(e.self_cpu_time_total, unit), False),
        ("CPU total %", lambda e: _share(e.cpu_time_total, total), False),
        ("CPU total", lambda e: time_text(e.cpu_time_total, unit), False),
        ("CPU time avg", lambda e: time_text(e.cpu_time, unit), False),
    ]
    if events.trace is not None and events.trace.profile_memory:
        found.append(("CPU Mem", lambda e: memory_text(e.cpu_memory_usage), False))
        found.append(("Self CPU Mem", lambda e: memory_text(e.self_cpu_memory_usage), False))
    found.append(("# of Calls", lambda e: str(e.count), False))
    if any(e.input_shapes for e in events):
        found.append(("Input Shapes", lambda e: _shortened(str(e.input_shapes), shapes), False))
    if any(e.stack for e in events):
        line: Callable[[Any], str] = lambda e: _shortened(e.stack[0] if e.stack else "", source)  # noqa: E731
        found.append(("Source Location", line, True))
    most = max(e.flops for e in events)
    if most:
        title, size = next((text, least) for text, least in _FLOPS if most >= least)
        flops: Callable[[Any], str] = lambda e: f"{e.flops / size:.3f}" if e.flops else "--"  # noqa: E731
        found.append((f"Total {title}", flops, False))
    return found


def _text(rows: Sequence[Any], columns: Sequence[Column], header: str | None, total: str) -> str:
    cells = [[title for title, _, _ in columns], *([f(e) for _, f, _ in columns] for e in rows)]
    widths = [max(_WIDTH, *(len(row[i]) for row in cells)) for i in range(len(columns))]
    rule = "  ".join("-" * width for width in widths)

    def line(row: Sequence[str]) -> str:
        parts = zip(row, widths, columns, strict=True)
        return "  ".join(x.ljust(w) if left else x.rjust(w) for x, w, (_, _, left) in parts)

    lines = [rule, line(cells[0]), rule, *map(line, cells[1:]), rule, total, ""]
    if header is not None:
        lines = ["=" * len(rule), header, *lines]
    return "\n".join(lines)
