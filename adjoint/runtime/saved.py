"""Saved values of nodes under PyTorch's names: `y.grad_fn._saved_self`, `_raw_saved_self`.

The names are of the arguments of the functions that PyTorch's nodes differentiate. A node here
answers by those of them that it saved itself; the table says which these are, op by op. An op that
is not in it (a composite that saves other values than PyTorch's, say) has no such attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import AutogradError, InvalidType, MissingName
from ..core.mode import MODE, mode_with
from ..core.package import NAME
from ..core.tensor_base import TensorBase
from .node import RELEASED, Item, Leaf, Node, Packed, assert_unchanged, unpacked

__all__ = ["SavedTensor", "names_of", "saved_attribute"]

_TABLE = (  # what PyTorch calls the inputs ("-": otherwise saved there), and the output; the ops
    ("self", "result", "Exp Log Sqrt Rsqrt Sin Cos Tan Tanh Sigmoid Abs Reciprocal Square Relu Erf "
     "Erfc Erfinv Log1p Log2 Log10 Expm1 Exp2 Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Prod "
     "CumProd LogSumExp LogCumSumExp Amax Amin Norm Sgn Lgamma Polygamma Logit I0 Sinc Median "
     "Angle Softmax LogSoftmax"),
    ("self", "-", "Gelu Elu Silu Softplus LeakyRelu Hardtanh Hardswish Mish Hardsigmoid Softshrink "
     "Hardshrink Threshold MaxPool VarMean"),
    ("self other", "result", "Mul TrueDivide Maximum Minimum Atan2 Fmod Remainder Hypot Fmax Fmin "
     "Copysign"),
    ("self other", "-", "Logaddexp"),
    ("self exponent", "result", "Pow"),
    ("self min max", "-", "Clamp"),
    ("self min", "-", "ClampMin"),
    ("self mat2", "-", "MatMul"),
    ("mat1 -", "-", "Linear"),
    ("self target", "-", "Mse SmoothL1 Huber BinaryCrossEntropy BceWithLogits"),
    ("- index", "-", "Gather Scatter"),
    ("- mask", "-", "MaskedFill"),
    ("condition", "-", "Where"),
    ("- tensor1 tensor2 value", "-", "Addcmul Addcdiv"),
    ("- - weight", "-", "Lerp"),
    ("input weight", "-", "Convolution ConvolutionInput Standardize StandardizeGroups "
     "StandardizeChannels"),
    ("-", "inverse", "Inverse"),
    ("-", "L", "Cholesky"),
    ("A -", "result", "Solve"),
)  # fmt: skip
_CALLED = {op: (inputs.split(), y) for inputs, y, ops in _TABLE for op in ops.split()}
_PREFIXES = ("_raw_saved_", "_saved_")


def names_of(node: Any) -> dict[str, int]:
    """PyTorch's names of the values that a node saves, with the index of each in `saved`."""
    op = node.op
    if not type(op).__module__.startswith(f"{NAME}."):
        return {}
    inputs, y = _CALLED.get(type(op).__name__, ([], "-"))
    indices = {}
    for place, token in enumerate(op.tokens):
        if token == "y":
            indices[y] = place
        elif token[0] == "x" and (token[1:].isdigit() or token == "x"):
            number = int(token[1:] or 1) - 1
            if number < len(inputs):
                indices[inputs[number]] = place
    indices.pop("-", None)
    return indices


def saved_attribute(node: Node, name: str) -> Any:
    """The value of `node.NAME`, where the node itself has no attribute of that name.

    Errors: AttributeError; of a value that PyTorch would have there, MissingName.
    """
    prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
    if prefix is None:
        raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}")
    computing = node.parents[0] if isinstance(node.op, Item) else node
    names = names_of(computing)
    place = names.get(name.removeprefix(prefix))
    if place is None:
        what = ", ".join(prefix + each for each in names)
        raise MissingName(
            f"{node.name()!r} object has no attribute {name!r}: it saves nothing that PyTorch "
            f"calls so; {f'there is {what}' if names else 'node.saved is what it keeps'}"
        )
    if prefix == "_raw_saved_":
        return SavedTensor(computing, place)
    return _value(computing, place)


def _value(node: Node, place: int) -> Any:
    """A saved value, checked as a backward does; an output has its history again."""
    output = node.op.tokens[place] == "y"
    saved = node.saved
    if saved is RELEASED or (output and node.op.output_again is not None):
        saved = node.values()  # which says what is wrong, or computes the output again
    value = saved[place]
    if isinstance(value, TensorBase):
        assert_unchanged(node.op.name, value, 0 if node.versions is None else node.versions[place])
    value = unpacked(value)
    if isinstance(value, TensorBase) and isinstance(value._node, Leaf):
        value._leaf = value._node  # of one that hooks gave: a leaf, as what they were given
    if not (output and isinstance(value, TensorBase)):
        return value
    again = TensorBase.__new__(type(value))
    again._data, again._changes, again._node = value._data, value._changes, node
    again._leaf = again._view = None
    return again


class SavedTensor:
    """One value that a node saved, as `grad_fn._raw_saved_self` gives it: hooks can be put on it.

    Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#hooks-for-saved-tensors

    >>> x = ad.tensor([2.0], requires_grad=True)
    >>> y = x.sin()
    >>> y.grad_fn._raw_saved_self.register_hooks(lambda t: t.tolist(), ad.tensor)
    >>> y.backward()
    >>> x.grad
    tensor([-0.4161])
    """

    def __init__(self, node: Node, place: int) -> None:
        self._node, self._place = node, place

    def register_hooks(
        self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        """Save `pack_hook(tensor)` instead of the tensor; `unpack_hook` restores it when it is
        read.

        Errors: InvalidType for what is not called with one argument; AutogradError where it has
        hooks, is None or was released, and where the pack hook changes its argument.
        """
        node, place = self._node, self._place
        if not (callable(pack_hook) and callable(unpack_hook)):
            raise InvalidType(
                "register_hooks: incompatible function arguments, expected two functions, got "
                f"{type(pack_hook).__name__} and {type(unpack_hook).__name__}"
            )
        saved = node.saved
        if saved is RELEASED:
            raise AutogradError(
                "register_hooks: Calling register_hooks on a saved tensor after it has been freed. "
                "Pass retain_graph=True to the backward that released it, or put hooks on it before"
            )
        value = saved[place]
        if type(value) is Packed:
            raise AutogradError(
                "register_hooks: Calling register_hooks on a saved tensor whose hooks have already "
                "been set. Hint: only one pair of hooks is allowed at a time"
            )
        if not isinstance(value, TensorBase):
            raise AutogradError(
                "register_hooks: Calling register_hooks on a saved tensor with value None is "
                f"forbidden: {node.name()} keeps {value!r} there"
            )
        checked: Any = _value(node, place)  # refuses one that was changed
        before = checked._version
        mode = MODE.get()
        try:
            MODE.set(mode_with(mode, grad=False, saved_hooks=None))
            packed = Packed(checked.detach(), value._node, (pack_hook, unpack_hook))
        finally:
            MODE.set(mode)
        if checked._version != before:
            raise AutogradError(
                "register_hooks: A saved tensor pack hook is modifying its input in place; clone "
                "it first"
            )
        node.saved = (*saved[:place], packed, *saved[place + 1 :])
