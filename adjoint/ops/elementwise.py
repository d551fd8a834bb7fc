"""Elementwise primitives: arithmetic, comparison, logic, bits, and functions of one real variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..core import dtype as dt
from ..core.errors import DTypeError, InvalidArgument
from ..core.op import FUNCTIONS, INPLACE, METHODS, Op, apply, public
from ..core.op import _with_out as with_out
from ..core.spec import Spec, broadcast_shapes
from .promotion import promote
from .samples import COMPLEX, FLOATS, INTS, binary_samples, unary_samples

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["add", "div", "exp", "mul", "neg", "sub", "tanh"]

PYTORCH = "https://docs.pytorch.org/docs/stable/generated/torch."


class Elementwise(Op, abstract=True):
    """Base of ops that work element by element, broadcasting their inputs."""

    ufunc: ClassVar[str]  # the function's name in a backend namespace
    result: ClassVar[str] = "same"  # the output's dtype: "same" as the inputs', "bool" or "real"

    def infer(self, *specs: Any) -> Spec:
        """The broadcast shape; all tensor inputs have one dtype already."""
        tensors = [spec for spec in specs if isinstance(spec, Spec)]
        shape = broadcast_shapes(*(spec.shape for spec in tensors), op=self.name)
        first = tensors[0]
        for spec in tensors:
            if spec.dtype is not first.dtype:
                raise DTypeError(
                    f"{self.name}: dtypes {first.dtype} and {spec.dtype} differ; convert one with .to()"
                )
        if self.result == "bool":
            return first.with_(shape=shape, dtype=dt.bool_)
        if self.result == "real":
            return first.with_(shape=shape, dtype=first.dtype.to_real())
        return first.with_(shape=shape)

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """The backend's function of that name."""
        return getattr(xp, self.ufunc)(*arrays)

    def reference(self, *arrays: Any) -> Any:
        """NumPy's ufunc in the widest precision."""
        wide = [
            a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
            if hasattr(a, "dtype") and a.dtype.kind in "fcV"
            else a
            for a in arrays
        ]
        return getattr(np, self.ufunc)(*wide)


def unary(op: Op, floating: bool = True, inplace: bool = True, alias: str = "") -> Any:
    """The public function and method of a one-input op; integers become floats where `floating`.

    Its documentation is the op's docstring, completed.
    """
    name = alias or op.name

    def function(input: Any) -> Any:
        if input._data.dtype.kind in "biu" and floating:
            input = input.to(dt.get_default_dtype())
        return apply(op, input)

    return _publish(function, op, name, inplace, _UNARY_DOC)


def binary(op: Op, floating: bool = False, inplace: bool = True, alias: str = "") -> Any:
    """The public function and method of a two-input op, promoting dtypes as PyTorch does."""
    name = alias or op.name

    def function(input: Any, other: Any) -> Any:
        return apply(op, *promote(name, input, other, floating=floating)[1])

    return _publish(function, op, name, inplace, _BINARY_DOC)


_UNARY_DOC = """
    Shape: any; the result has the shape of `input`.
    Dtypes: {dtypes}.
    Errors: InvalidType where `input` is not a tensor.
    Source: {source}{name}.html"""

_BINARY_DOC = """
    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: {dtypes}.
    Errors: ShapeError where the shapes do not broadcast.
    Source: {source}{name}.html"""


def _publish(
    function: Callable[..., Any], op: Op, name: str, inplace: bool, template: str
) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = type(op).__module__
    summary, _, rest = (type(op).__doc__ or "").partition("\n\n")
    dtypes = {
        "same": "the result has the promoted dtype of the inputs",
        "bool": "the result is bool",
        "real": "the result is real",
    }[getattr(op, "result", "same")]
    details = template.format(dtypes=dtypes, source=PYTORCH, name=name)
    function.__doc__ = f"{summary}\n{details}\n\n{rest}"
    FUNCTIONS[name] = METHODS[name] = function
    if inplace:
        INPLACE[f"{name}_"] = function
    return with_out(function)


# ---- arithmetic ----------------------------------------------------------------------------------


class Add(Elementwise):
    """The sum of two tensors."""

    ufunc = "add"
    samples = binary_samples(dtypes=FLOATS + INTS + COMPLEX)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g for both."""
        return (g, g)


class Sub(Elementwise):
    """The difference of two tensors."""

    ufunc = "subtract"
    samples = binary_samples(dtypes=FLOATS + INTS + COMPLEX)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """g and -g."""
        return (g, lambda: -g)


class Mul(Elementwise):
    """The product of two tensors.

    >>> ad.mul(ad.tensor([1., 2.]), 3)
    tensor([3., 6.])
    """

    ufunc = "multiply"
    needs = ("x2", "x1")
    samples = binary_samples(dtypes=FLOATS + INTS + COMPLEX)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """Each input's gradient is g times the other input."""
        return (lambda: g * conj(x2), lambda: g * conj(x1))


class TrueDivide(Elementwise):
    """The quotient of two tensors; integers divide to floats."""

    ufunc = "divide"
    needs = ("x2", "x1 x2")
    samples = binary_samples(dtypes=FLOATS + COMPLEX, low2=0.5)

    def gradient(self, g: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        """g / x2 and -g x1 / x2^2."""
        return (
            lambda: g / conj(x2),
            lambda: -g * conj(x1 / x2 / x2),
        )


class Neg(Elementwise):
    """The negative of each element.

    >>> ad.neg(ad.tensor([1., -2.]))
    tensor([-1.,  2.])
    """

    ufunc = "negative"
    samples = unary_samples(dtypes=FLOATS + (dt.int64,) + COMPLEX)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """-g."""
        return (-g,)


def conj(x: Any) -> Any:
    """The complex conjugate; real tensors and numbers are their own."""
    if isinstance(x, (int, float)):
        return x
    if isinstance(x, complex):
        return x.conjugate()
    return x if x._data.dtype.kind != "c" else x.conj()


ADD, SUB, MUL, DIV = Add(), Sub(), Mul(), TrueDivide()

neg = unary(Neg(), floating=False)
mul = binary(MUL)


@public(inplace=True, out=True)
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: the promoted dtype of the inputs.
    Errors: ShapeError where the shapes do not broadcast.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.add.html

    >>> ad.add(ad.tensor([1., 2.]), ad.tensor([10., 20.]), alpha=2)
    tensor([21., 42.])
    """
    if alpha != 1:
        other = other * alpha
    result: Tensor = apply(ADD, *promote("add", input, other)[1])
    return result


@public(inplace=True, out=True)
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: the promoted dtype of the inputs; bool is refused.
    Errors: ShapeError where the shapes do not broadcast; DTypeError for two bool tensors.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.sub.html

    >>> ad.sub(ad.tensor([1., 2.]), 3)
    tensor([-2., -1.])
    """
    if alpha != 1:
        other = other * alpha
    common, values = promote("sub", input, other)
    if common is dt.bool_:
        raise DTypeError(
            "sub: Subtraction of two bool tensors is not supported; use logical_xor or ~"
        )
    result: Tensor = apply(SUB, *values)
    return result


@public(inplace=True, out=True)
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, rounded towards zero ("trunc") or down ("floor") where asked.

    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: integers divide to the default floating-point dtype, unless rounded.
    Errors: ShapeError where the shapes do not broadcast; InvalidArgument for another mode.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.div.html

    >>> ad.div(ad.tensor([7, -7]), 2), ad.div(ad.tensor([7, -7]), 2, rounding_mode="trunc")
    (tensor([ 3.5000, -3.5000]), tensor([ 3, -3]))
    """
    if rounding_mode is None:
        result: Tensor = apply(DIV, *promote("div", input, other, floating=True)[1])
        return result
    raise InvalidArgument(
        f"div: expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"{rounding_mode!r}"
    )


# ---- functions of one variable -------------------------------------------------------------------


class Exp(Elementwise):
    """e to the power of each element.

    >>> ad.exp(ad.tensor([0., 1.]))
    tensor([1.0000, 2.7183])
    """

    ufunc = "exp"
    needs = "y"
    samples = unary_samples(dtypes=FLOATS + COMPLEX)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g y."""
        return (g * conj(y),)


class Tanh(Elementwise):
    """The hyperbolic tangent of each element.

    >>> ad.tanh(ad.tensor([0., 1.]))
    tensor([0.0000, 0.7616])
    """

    ufunc = "tanh"
    needs = "y"
    samples = unary_samples(dtypes=FLOATS + COMPLEX)

    def gradient(self, g: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g (1 - y^2)."""
        return (g * conj(1 - y * y),)


exp = unary(Exp())
tanh = unary(Tanh())
