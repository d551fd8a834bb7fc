"""Fusion roles: whether a node is elementwise or a reduction, costly or cheap, or cannot be
fused.
"""

from __future__ import annotations

from ...ir.partition import Role
from ...ir.program import Node

COSTLY = {
    "Exp", "Log", "Tanh", "Sigmoid", "Gelu", "Silu", "Erf", "Softplus", "Mish", "Softmax", "Power",
    "Sin", "Cos", "Elu", "LogSoftmax",
}  # fmt: skip
REDUCING = {
    "Sum", "Mean", "Max", "Min", "Amax", "Amin", "Softmax", "LogSoftmax", "LogSumExp", "Prod",
    "Variance", "All", "Some", "Norm",
}  # fmt: skip
CHEAP = {
    "Add", "Sub", "Mul", "TrueDivide", "Neg", "Addcmul", "Addcdiv", "Lerp", "Eq", "Ne", "Lt", "Le",
    "Gt", "Ge", "Where", "Maximum", "Minimum", "Clamp", "ClampMin", "ClampMax", "Abs", "Square",
    "Sqrt", "Rsqrt", "Reciprocal", "LogicalAnd", "LogicalOr", "LogicalNot", "Cast", "MaskedFill",
    "Relu", "ReluGradient",
}  # fmt: skip


def role(node: Node) -> Role | str:
    """The role of a node in a kernel; a reason, as text, where no kernel computes it or none is
    worth it.
    """
    from ...ops.elementwise.namespace import Elementwise

    op = node.op
    kind = type(op).__name__
    if op.library:
        return "a library or a routine computes it"
    if len(node.outputs) != 1 or op.view or not node.values:
        return "a view" if op.view else "no step of a kernel"
    if not (isinstance(op, Elementwise) or kind in REDUCING or kind in ("Activation", "Cast",
            "MaskedFill", "BitwiseNot", "PlaceAt")):  # fmt: skip
        return "neither elementwise nor a reduction"
    specs = [x.spec for x in (*node.values, node.output)]
    if any(s.dtype.category == 3 or 0 in s.shape for s in specs):
        return "complex numbers, or nothing to compute"
    return Role(kind in REDUCING, kind in COSTLY)


def is_cheap(node: Node) -> bool:
    """Whether a kernel rather recomputes the node than reads its result."""
    return type(node.op).__name__ in CHEAP and not isinstance(role(node), str)
