"""A program as text: one line per node, with the values that it reads."""

from __future__ import annotations

from collections.abc import Sequence

from .program import Node, Program, Value


class ValueNames:
    """Names of values in a listing: numbered in order of appearance; constants by their names or
    sizes.
    """

    def __init__(self) -> None:
        self._names: dict[Value, str] = {}

    def __call__(self, x: object) -> str:
        """The name of a value; of a number, its repr."""
        if not isinstance(x, Value):
            return repr(x)
        if x.array is not None:
            return x.name or f"constant{list(x.shape)}"
        return self._names.setdefault(x, f"%{len(self._names)}")


def about(x: Value) -> str:
    """Text of a value's dtype and sizes."""
    return f"{x.spec.dtype.name}{list(x.shape)}"


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows `target, call, ...` as lines with aligned columns; some lines are longer."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    widths[:2] = [min(width, most) for width, most in zip(widths, (16, 60), strict=False)]
    lines = []
    for row in rows:
        target, call, *more = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        lines.append("  ".join((f"  {target} = {call}", *more)).rstrip())
    return lines


def call_of(node: Node, name: ValueNames) -> str:
    """Text of a node's op and its inputs."""
    return f"{node.op.name}({', '.join(map(name, node.inputs))})"


def listing(program: Program) -> str:
    """One line for each input and node, and the outputs.

    >>> from adjoint.ops.elementwise.functions import Tanh
    >>> from adjoint.ir.program import make
    >>> x = Value(ad.ones(3).spec, name="x")
    >>> tanh = make(Tanh(), x)
    >>> print(listing(Program([x], [tanh], [tanh.output])))
      %0 = x         float32[3]
      %1 = tanh(%0)  float32[3]
      return %1
    """
    name = ValueNames()
    rows = [(name(x), x.name or "input", about(x)) for x in program.inputs]
    for node in program.nodes:
        call = call_of(node, name)
        targets = ", ".join(map(name, node.outputs))
        rows.append((targets, call, ", ".join(map(about, node.outputs))))
    return "\n".join([*columns(rows), f"  return {', '.join(map(name, program.outputs))}"])
