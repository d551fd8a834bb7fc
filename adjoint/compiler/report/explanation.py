"""Reports of a compiled function's program: what it guards, and what each kernel costs as
measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.spec import prod
from ..freeze.performance_report import Explanation, StepRow, peaks, rows_of
from ..schedule.listing import size

if TYPE_CHECKING:
    from ..run.step import CompiledStep


def report(
    title: str, number: int, why: str, listing: Mapping[str, str], program: CompiledStep
) -> str:
    """Text about a new `Compiled`: why it was compiled, its guards, and its size."""
    steps = sum(len(call) for part in program.listed() for call, *_ in part)
    memory = size(program.sizes()[0])
    paths = program.guards.paths()
    lines = [
        f"{title}: program {number}, {why}",
        *(f"  {name}: {value}" for name, value in listing.items()),
        f"  read elsewhere, and compared in each call ({len(paths)}): {', '.join(paths)}",
        f"  {len(program.parts)} parts, {steps} steps, {memory} between them; writes "
        f"{len(program.written)} states, sets {len(program.gradients)} gradients",
    ]
    return "\n".join(lines)


def explanation(title: str, program: Any, seconds: Sequence[float], reasons: Sequence[str]) -> Any:
    """Explanation of a `Compiled` whose steps took the given seconds."""
    forward: list[StepRow] = []
    backward: list[StepRow] = []
    taken = iter(seconds)
    optimizers = iter(program.steps)
    parts = program.listed()
    before = 0  # regions
    for k, part in enumerate(parts):
        if program.tangents and k == len(parts) - 1:
            backward = rows_of(
                (steps, native, 0.0, region and before + region) for steps, native, region in part
            )
            break
        forward += rows_of(
            (steps, native, next(taken), region and before + region)
            for steps, native, region in part
        )
        before = max(before, *(row.apart for row in forward)) if forward else before
        optimizer = next(optimizers, None)
        if optimizer is not None:
            op = optimizer.op
            gradients = [p for _, parameters in op.groups for p in parameters]  # are as large
            written = op.written()
            moved = sum(x._data.nbytes for x in (*written, *gradients, *written))
            name = f"{type(optimizer.optimizer).__name__}.step"
            forward.append(StepRow(name, "optimizer", optimizer.native, 0, moved, next(taken)))
    for call in program.captured.effects.calls:
        name = f"{type(call.args[0]).__name__}.{call.func.__name__}"
        forward.append(StepRow(name, "after it", False, 0, 0, 0.0))
    cuts = [cut for part in program.parts for cut in part.cuts]
    device = program.captured.assumptions.device
    memory, whole = program.sizes()
    grads = sum(prod(x.shape) * x.dtype.itemsize for x in program.captured.effects.leaves)
    return Explanation(title, forward, backward, cuts, memory, whole, reasons, peaks(device), grads)
