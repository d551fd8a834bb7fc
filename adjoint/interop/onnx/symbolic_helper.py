"""`torch.onnx.symbolic_*`: what packages say of their operators to PyTorch's exporter.

There is no exporter of TorchScript here: `adjoint.onnx.export` writes ops, and an operator of a
package as the ops of which it is made. What packages register is therefore never asked, and
building such a graph is refused.

>>> @ad.onnx.symbolic_helper.parse_args("v", "i")
... def symbolic(g, x, k): ...
>>> ad.onnx.register_custom_op_symbolic("doc::op", symbolic, 11)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...core.missing_names import refused

__all__ = ["parse_args", "quantized_args", "register_custom_op_symbolic"]

F = TypeVar("F", bound=Callable[..., Any])


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """A decorator that changes nothing: it says how a symbolic function's arguments are read.

    >>> ad.onnx.symbolic_helper.parse_args("v")(len) is len
    True
    """
    return _given


def quantized_args(*arg_q_descriptors: bool, **_: Any) -> Callable[[F], F]:
    """A decorator that changes nothing: it says which arguments are quantized.

    >>> ad.onnx.symbolic_helper.quantized_args(True)(len) is len
    True
    """
    return _given


def _given(function: F) -> F:
    return function


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Does nothing: no exporter here asks for symbolic functions.

    >>> ad.onnx.register_custom_op_symbolic("doc::op", len, 11)
    """


for _name in (
    "add", "cat", "clamp", "div", "expand", "flatten", "gather", "index", "linear", "matmul",
    "max", "mean", "min", "mul", "permute", "relu", "reshape", "select", "sigmoid", "softmax",
    "split", "squeeze", "stack", "sub", "sum", "transpose", "unsqueeze", "view", "zeros",
):  # fmt: skip
    globals()[_name] = refused(
        "onnx.symbolic", _name, "of PyTorch's exporter; adjoint.onnx.export writes files"
    )
