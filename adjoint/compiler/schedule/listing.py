"""Text listing of a scheduled program: inputs, steps with shapes and buffers, outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.listing import ValueNames, about, call_of, columns
from .schedule import Schedule

if TYPE_CHECKING:
    from ...ir.program import Value


def listing(title: str, schedule: Schedule, memory: Any) -> str:
    """One line for each input, view, step and output, in the order in which they run."""
    graph = schedule.graph
    name = ValueNames()

    def place_of(x: Value) -> str:
        return f"buffer {schedule.numbers[x]}" if x in schedule.numbers else ""

    rows = [(name(x), x.name or "input", about(x), place_of(x), "") for x in graph.inputs]
    made = {y: step for step in schedule.steps for y in step.outputs}
    done: set[Any] = set()

    def add_step(step: Any) -> None:
        if step in done:
            return
        done.add(step)
        for x in step.values:
            if x in made and made[x].how == "copy":
                add_step(made[x])
        call = call_of(step, name)
        rows.extend((name(y), call, about(y), place_of(y), step.how) for y in step.outputs)

    for node in graph.nodes:
        if node.outputs[0] in made:
            add_step(made[node.outputs[0]])
            continue
        call = call_of(node, name)
        for y in node.outputs:
            buffer = place_of(schedule.roots.get(y, y))
            rows.append((name(y), call, about(y), f"in {buffer}" if buffer else "", "view"))
    lines = [
        f"{title}: {len(graph.nodes)} nodes, {len(schedule.steps)} steps, arena "
        f"{size(memory.planned)} ({size(memory.without_reuse)} without reuse), constants "
        f"{size(memory.constants)}"
    ]
    lines += columns(rows)
    lines.append(f"  return {', '.join(map(name, graph.outputs))}")
    return "\n".join(lines)


def size(count: int) -> str:
    """A number of bytes, as text with a unit."""
    if count < 1 << 10:
        return f"{count} B"
    unit, name = next((u, n) for u, n in _UNITS if count >= u)
    return f"{count / unit:.1f} {name}"


_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
