"""Split of one reduction kernel into two: partial results of parts of the space, and their
combination.

So a reduction to few results can use all threads, in an order that sizes alone determine.
"""

from __future__ import annotations

from .ir import REDUCTIONS, Kernel, KernelValue


def can_split(kernel: Kernel) -> bool:
    """Whether the kernel only writes what its reductions keep, and reduces once."""
    if not kernel.reduced or any(len(o.axes) == kernel.rank for o in kernel.outputs):
        return False
    return not any(_depends(v.inputs[0]) for v in _reductions(kernel))


def _reductions(kernel: Kernel) -> list[KernelValue]:
    return [v for v in kernel.live() if v.op in REDUCTIONS]


def _depends(value: KernelValue) -> bool:
    """Whether a value depends on a reduction."""
    dependent: set[int] = set()
    for v in value.kernel.values[: value.number + 1]:
        if v.op in REDUCTIONS or any(x.number in dependent for x in v.inputs):
            dependent.add(v.number)
    return value.number in dependent


def partial(kernel: Kernel) -> Kernel:
    """A kernel with the same inputs whose outputs are the results of the reductions."""
    part = Kernel(kernel.rank)
    copies: dict[int, KernelValue] = {}
    for v in kernel.values:
        if v.op == "input":
            copies[v.number] = part.input(v.attr[1], v.axes)
        elif v.op == "scalar":
            copies[v.number] = part.scalar(v.dtype)
        else:
            copies[v.number] = copied(part, v, copies)
    for v in _reductions(kernel):
        part.output(copies[v.number])
    return part


def combining(kernel: Kernel) -> tuple[Kernel, list[int], list[int]]:
    """A kernel over the kept axes and the parts (its last axis) that finishes the outputs.

    Its inputs are the partial results, then the kernel's inputs at the positions of the first list;
    its scalars are the kernel's, then the values of `size` at the numbers of the second.
    """
    kept = [a for a in range(kernel.rank) if a not in kernel.reduced]
    place = {axis: k for k, axis in enumerate(kept)}
    whole = Kernel(len(kept) + 1)
    parts = (len(kept),)
    copies = {
        v.number: whole.reduce(v.op, whole.input(v.dtype), parts) for v in _reductions(kernel)
    }
    after: list[KernelValue] = []
    wanted = {o.value.number for o in kernel.outputs}
    for v in reversed(kernel.values):
        if v.number in wanted and v.number not in copies:
            after.append(v)
            wanted.update(x.number for x in v.inputs)
    after.reverse()
    for v in kernel.scalars:
        copies[v.number] = whole.scalar(v.dtype)
    positions, sizes = [], []
    for v in after:
        if v.op == "input":
            copies[v.number] = whole.input(v.attr[1], [place[a] for a in v.axes])
            positions.append(v.attr[0])
        elif v.op == "size":
            copies[v.number] = whole.scalar("int64")
            sizes.append(v.number)
        elif v.op == "index":
            copies[v.number] = whole.index(place[v.attr[0]])
        elif v.op != "scalar":
            copies[v.number] = copied(whole, v, copies)
    for output in kernel.outputs:
        whole.output(copies[output.value.number], output.dtype)
    return whole, positions, sizes


def copied(kernel: Kernel, v: KernelValue, copies: dict[int, KernelValue]) -> KernelValue:
    """Copies a value into another kernel: the same op on the copies of its inputs."""
    inputs = [copies[x.number] for x in v.inputs]
    if v.op in REDUCTIONS:
        return kernel.reduce(v.op, inputs[0], v.attr)
    if v.op == "const":
        return kernel.const(v.attr, v.dtype)
    if v.op == "index":
        return kernel.index(v.attr[0])
    if v.op == "size":
        return kernel.size(v.attr)
    if v.op == "cast":
        return kernel.cast(inputs[0], v.attr[0])
    if v.op == "where":
        return kernel.where(*inputs)
    if v.op == "random":
        return kernel.random(v.axes, *inputs)
    return kernel.op(v.op, *inputs)
