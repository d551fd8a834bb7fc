"""Rebinding of optimizer states that `load_state_dict` has replaced: the program goes on with the
new tensors, without recompiling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.tensor_base import TensorBase

if TYPE_CHECKING:
    pass


def renewed(step: Any) -> dict[int, Any] | None:
    """The tensors of an optimizer's states now, by the ids of those that they replace; None where
    the structure of the states has changed.
    """
    op, optimizer = step.op, step.optimizer
    replacements: dict[int, Any] = {}
    before = {id(p): state for _, p, state in step.kept if isinstance(p, TensorBase)}
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
                replacements[id(kind[i])] = state[name]
    data_ids = {id(x._data) for x in replacements.values()}
    return replacements if len(data_ids) == len(replacements) else None


def _is_like(x: TensorBase, y: object) -> bool:
    """Whether `y` can replace the state tensor `x`."""
    return (
        isinstance(y, TensorBase)
        and x.spec == y.spec
        and type(x._data) is type(y._data)
        and y._node is x._node is None
        and y._view is x._view is None
        and y._leaf is x._leaf is None
    )


def follow(program: Any) -> bool:
    """Rebind a `Compiled` to the states that its optimizers have now, if these have the structure
    of those before and the program uses them for nothing else. Returns whether it did.
    """
    captured = program.captured
    steps = [(step, renewed(step)) for step in program.steps]
    replacements: dict[int, Any] = {}
    for _, each in steps:
        if each is None:
            return False
        replacements.update(each)
    numbers = {id(x): n for n, x in enumerate(captured.inputs.states) if id(x) in replacements}
    first = {program.states[n]: x for x, n in numbers.items()}
    if len(numbers) < len(replacements) or any(
        id(x) in replacements for both in captured.assumptions.alike for x in both
    ):
        return False
    for node in captured.effects.updates:
        for x, value in zip(node.op.given(), node.values, strict=False):
            if id(x) not in replacements or value is program.states[numbers[id(x)]]:
                continue
            if program.after.get(value) is not x:  # something has written it before
                return False
    ends = {*program.results, *program.gradients, *program.tangents, *program.checked}
    read = ends.union(*(part.inputs for part in program.parts))
    if not read.isdisjoint(first) or any(id(program.after.get(x)) in replacements for x in read):
        return False
    pairs = zip(captured.effects.written, program.written, strict=True)
    if any(n in numbers.values() and y not in program.after for n, y in pairs):
        return False

    def now(x: object) -> Any:
        return replacements.get(id(x), x)

    captured.inputs.states[:] = map(now, captured.inputs.states)
    program.wanting[:] = [
        (now(x), requires_grad, hooks) for x, requires_grad, hooks in program.wanting
    ]
    program.after.update((y, now(x)) for y, x in program.after.items())
    for op in {id(node.op): node.op for node in captured.effects.updates}.values():
        for _, _, *kinds in op.columns:
            for kind in kinds:
                kind[:] = map(now, kind)
    for step, _ in steps:
        step.know_states()
    return True
