"""A program as text: inputs, steps with shapes and buffers, outputs."""

from __future__ import annotations

from typing import Any

from ..program.program import Value
from .schedule import Schedule


def listing(title: str, schedule: Schedule, memory: Any) -> str:
    """One line for each input, view, step and output, in the order in which they run."""
    graph = schedule.graph
    names: dict[Value, str] = {}

    def name(x: Any) -> str:
        if not isinstance(x, Value):
            return repr(x)
        if x.array is not None:
            return x.name or f"constant{list(x.shape)}"
        return names.setdefault(x, f"%{len(names)}")

    rows = [(name(x), x.name, _about(x), f"buffer {schedule.numbers[x]}", "") for x in graph.inputs]
    made = {y: step for step in schedule.steps for y in step.outputs}
    done: set[Any] = set()

    def add_step(step: Any) -> None:
        if step in done:
            return
        done.add(step)
        for x in step.values:
            if x in made and made[x].how == "copy":
                add_step(made[x])
        call = f"{step.op.name}({', '.join(map(name, step.inputs))})"
        for y in step.outputs:
            place = f"buffer {schedule.numbers[y]}" if y in schedule.numbers else ""
            rows.append((name(y), call, _about(y), place, step.how))

    for node in graph.nodes:
        if node.outputs[0] in made:
            add_step(made[node.outputs[0]])
            continue
        call = f"{node.op.name}({', '.join(map(name, node.inputs))})"
        for y in node.outputs:
            root = schedule.roots.get(y, y)
            place = f"in buffer {schedule.numbers[root]}" if root in schedule.numbers else ""
            rows.append((name(y), call, _about(y), place, "view"))
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(5)]
    widths[1] = min(widths[1], 60)
    lines = [
        f"{title}: {len(graph.nodes)} nodes, {len(schedule.steps)} steps, arena "
        f"{size(memory.planned)} ({size(memory.without_reuse)} without reuse), constants "
        f"{size(memory.constants)}"
    ]
    for row in rows:
        target, call, about, place, how = (
            text.ljust(width) for text, width in zip(row, widths, strict=True)
        )
        lines.append(f"  {target} = {call}  {about}  {place}  {how}".rstrip())
    lines.append(f"  return {', '.join(map(name, graph.outputs))}")
    return "\n".join(lines)


def _about(x: Value) -> str:
    return f"{x.spec.dtype.name}{list(x.shape)}"


def size(count: int) -> str:
    """Bytes for people."""
    if count < 1 << 10:
        return f"{count} B"
    unit, name = next((u, n) for u, n in _UNITS if count >= u)
    return f"{count / unit:.1f} {name}"


_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
