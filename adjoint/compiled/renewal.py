"""Optimizers' states that were replaced by others of the same form (`load_state_dict`): a program
goes on with these, and compiles nothing.
"""

from __future__ import annotations

from typing import Any

from ..core.tensor_base import TensorBase


def renewed(step: Any) -> dict[int, Any] | None:
    """For a `Stepping` the tensors of its optimizer's states now, by the ids of those that stood in
    their places; None where the states have another form.
    """
    op, optimizer = step.op, step.optimizer
    found: dict[int, Any] = {}
    before = {id(p): state for held, p, state in step.kept if isinstance(p, TensorBase)}
    for (_, parameters), (_, _, *kinds) in zip(op.groups, op.columns, strict=True):
        for i, p in enumerate(parameters):
            was, state = before[id(p)], optimizer.state.get(p)
            if not was and not state:
                continue
            if type(state) is not dict or not was or list(was) != list(state):
                return None
            names = [name for name in state if name not in optimizer.scalars]
            if len(state) != step.sizes[id(was)] or len(names) != len(kinds):
                return None
            for name, kind in zip(names, kinds, strict=True):
                if not _is_like(kind[i], state[name]):
                    return None
                found[id(kind[i])] = state[name]
    places = {id(x._data) for x in found.values()}
    return found if len(places) == len(found) else None


def _is_like(x: Any, y: Any) -> bool:
    """Whether `y` may stand where `x` stood."""
    return (
        isinstance(y, TensorBase)
        and x.spec == y.spec
        and type(x._data) is type(y._data)
        and y._node is x._node is None
        and y._view is x._view is None
        and y._leaf is x._leaf is None
    )


def follow(program: Any) -> bool:
    """Let a `Compiled` go on with the states that its optimizers have now, where these have the
    form of those before, which nothing else in it reads or writes; whether it does.
    """
    captured = program.captured
    steps = [(step, renewed(step)) for step in program.steps]
    found: dict[int, Any] = {}
    for _, each in steps:
        if each is None:
            return False
        found.update(each)
    numbers = {id(x): n for n, x in enumerate(captured.states) if id(x) in found}
    first = {program.states[n]: x for x, n in numbers.items()}
    if len(numbers) < len(found) or any(id(x) in found for both in captured.alike for x in both):
        return False
    for node in captured.updates:
        for x, value in zip(node.op.given(), node.values, strict=False):
            if id(x) not in found or value is program.states[numbers[id(x)]]:
                continue
            if program.after.get(value) is not x:  # something has written it before
                return False
    ends = {*program.results, *program.gradients, *program.tangents, *program.checked}
    read = ends.union(*(part.inputs for part in program.parts))
    if not read.isdisjoint(first) or any(id(program.after.get(x)) in found for x in read):
        return False
    pairs = zip(captured.written, program.written, strict=True)
    if any(n in numbers.values() and y not in program.after for n, y in pairs):
        return False

    def now(x: Any) -> Any:
        return found.get(id(x), x)

    captured.states[:] = map(now, captured.states)
    program.wanting[:] = [(now(x), wanted, hooks) for x, wanted, hooks in program.wanting]
    program.after.update((y, now(x)) for y, x in program.after.items())
    for op in {id(node.op): node.op for node in captured.updates}.values():
        for _, _, *kinds in op.columns:
            for kind in kinds:
                kind[:] = map(now, kind)
    for step, _ in steps:
        step.know_states()
    return True
