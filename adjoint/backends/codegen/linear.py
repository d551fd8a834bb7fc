"""Sums that need not wait for other reductions.

What is multiplied with a factor that the summed axes share can be summed without it, and a sum of
terms term by term. So sum(a * x + b * y), for an `a` that is itself a sum over these axes, is known
after the same loop as `a`: the gradients of normalizations are read twice instead of three times.
"""

from __future__ import annotations

from .analysis import Analysis
from .ir import FLOATS, Kernel, KernelValue
from .split import copied


def flattened(kernel: Kernel) -> Kernel:
    """The kernel with sums that wait for other reductions taken apart, wherever that leaves sums of
    earlier values alone.
    """
    analysis = Analysis(kernel)
    apart = {v.number for v in analysis.live if _splits(analysis, v)}
    if not apart:
        return kernel
    other = Kernel(kernel.rank)
    copies: dict[int, KernelValue] = {}

    def total(v: KernelValue) -> KernelValue:
        """The sum of a value."""
        if analysis.depth[v.number] == 0:
            return other.reduce("sum", copies[v.number], kernel.reduced)
        if v.op == "neg":
            return -total(v.inputs[0])
        a, b = v.inputs
        if v.op in ("add", "sub"):
            return total(a) + total(b) if v.op == "add" else total(a) - total(b)
        if v.op == "div":
            return total(a) / copies[b.number]
        if analysis.full[a.number]:
            a, b = b, a
        return copies[a.number] * total(b)

    for v in kernel.values:
        if v.op == "input":
            copies[v.number] = other.input(v.attr[1], v.axes)
        elif v.op == "scalar":
            copies[v.number] = other.scalar(v.dtype)
        elif v.number in apart:
            copies[v.number] = total(v.inputs[0])
        else:
            copies[v.number] = copied(other, v, copies)
    for output in kernel.outputs:
        full = len(output.axes) == kernel.rank
        other.output(copies[output.value.number], output.dtype, full)
    return other


def _splits(analysis: Analysis, v: KernelValue) -> bool:
    """Whether a reduction is a sum that depends on others in factors alone."""
    if v.op != "sum" or v.dtype not in FLOATS or analysis.depth[v.inputs[0].number] == 0:
        return False
    return _linear(analysis, v.inputs[0])


def _linear(analysis: Analysis, v: KernelValue) -> bool:
    """Whether a value is one, or terms, known before any reduction, times factors."""
    if not analysis.full[v.number]:
        return False
    if analysis.depth[v.number] == 0:
        return True
    if v.op in ("add", "sub", "neg"):
        return all(_linear(analysis, x) for x in v.inputs)
    factors = [x for x in v.inputs if not analysis.full[x.number]]
    if v.op == "div":
        return v.inputs[1] in factors and _linear(analysis, v.inputs[0])
    return (
        v.op == "mul"
        and len(factors) == 1
        and all(_linear(analysis, x) for x in v.inputs if x not in factors)
    )
