"""Elementwise functions, and the reductions and scans of those that NumPy has as ufuncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .array import NUMBERS, Array, as_tensor, torch_dtype, unwrap
from .namespace import FUNCTIONS, extra

_FLOAT64, _COMPLEX128 = torch.float64, torch.complex128


# ---- operands ------------------------------------------------------------------------------------


def paired(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands as PyTorch takes them, promoted as NumPy promotes: a number adapts to an array,
    0-d arrays do not.
    """
    if type(a) is Array:
        if type(b) is Array:
            if a.dtype is b.dtype:
                return a.tensor, b.tensor
            common = torch_dtype(np.result_type(a.dtype, b.dtype))
            return a.tensor.to(common), b.tensor.to(common)
        number = unwrap(b)
        return _beside(a.tensor, number), number
    if type(b) is Array:
        number = unwrap(a)
        return number, _beside(b.tensor, number)
    return torch.as_tensor(unwrap(a)), unwrap(b)


def _beside(t: Any, number: Any) -> Any:
    """The tensor in the dtype in which NumPy computes with that number."""
    kind = type(number)
    if kind is float and not (t.is_floating_point() or t.is_complex()):
        return t.to(_FLOAT64)
    if kind is complex and not t.is_complex():
        return t.to(_COMPLEX128 if t.dtype is not torch.float32 else torch.complex64)
    return t


def tensors(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands as tensors: for PyTorch's functions that take no numbers, but tensors of the
    host in their place.
    """
    a, b = paired(a, b)
    if type(a) in NUMBERS:
        a = torch.tensor(a, dtype=b.dtype)
    elif type(b) in NUMBERS:
        b = torch.tensor(b, dtype=a.dtype)
    return a, b


def together(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands as tensors of one device: for PyTorch's functions that take nothing else."""
    a, b = paired(a, b)
    if type(a) in NUMBERS:
        a = torch.full((), a, dtype=b.dtype, device=b.device)
    elif type(b) in NUMBERS:
        b = torch.full((), b, dtype=a.dtype, device=a.device)
    return a, b


def finished(result: Any, out: Any = None, where: Any = True) -> Array:
    """The array of a result, or `out` with it written where the mask says."""
    if out is None:
        return Array(result)
    if where is not True:
        result = torch.where(unwrap(where), result, out.tensor)
    out.tensor.copy_(result)
    return out


# ---- of one input --------------------------------------------------------------------------------


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    def compute(x: Any, out: Any = None, where: Any = True) -> Any:
        if out is None and type(x) is Array:
            return Array(function(x.tensor))
        t = unwrap(x)
        t = t if isinstance(t, torch.Tensor) else torch.as_tensor(t)
        return finished(function(t), out, where)

    compute.__name__ = compute.__qualname__ = name
    FUNCTIONS[name] = compute


def _not_bool(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda t: t.clone() if t.dtype is torch.bool else function(t)


def _whole(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda t: function(t) if t.is_floating_point() else t.clone()


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose kernels are for float32 and float64 only: narrow floats are widened."""

    def compute(*inputs: Any) -> Any:
        kind = next(t.dtype for t in inputs if isinstance(t, torch.Tensor))
        if kind not in _NARROW:
            return function(*inputs)
        return function(*(t.float() if t.dtype is kind else t for t in inputs)).to(kind)

    return compute


_NARROW = frozenset((torch.float16, torch.bfloat16))
special = torch.special
for _name, _function in {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt,
    "square": torch.square, "reciprocal": torch.reciprocal, "sigmoid": torch.sigmoid,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "arcsin": torch.asin,
    "arccos": torch.acos, "arctan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "tanh": torch.tanh, "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh,
    "sinc": torch.sinc, "negative": torch.neg, "absolute": _not_bool(torch.abs),
    "abs": _not_bool(torch.abs), "conj": torch.conj_physical, "conjugate": torch.conj_physical,
    "floor": _whole(torch.floor), "ceil": _whole(torch.ceil), "trunc": _whole(torch.trunc),
    "rint": _whole(torch.round), "isnan": torch.isnan, "isinf": torch.isinf,
    "isfinite": torch.isfinite, "signbit": torch.signbit, "logical_not": torch.logical_not,
    "invert": torch.bitwise_not, "positive": torch.clone,
    "erf": special.erf, "erfc": special.erfc, "erfinv": special.erfinv,
    "erfcx": _wide(special.erfcx),
    "lgamma": torch.lgamma, "digamma": special.digamma, "i0": special.i0, "i0e": special.i0e,
    "i1": special.i1, "i1e": special.i1e,
    "bessel_k0": _wide(special.modified_bessel_k0),
    "bessel_k1": _wide(special.modified_bessel_k1),
    "bessel_k0e": _wide(special.scaled_modified_bessel_k0),
    "bessel_k1e": _wide(special.scaled_modified_bessel_k1),
    "airy_ai": _wide(special.airy_ai), "log_ndtr": _wide(special.log_ndtr),
    "ndtri": _wide(special.ndtri),
}.items():  # fmt: skip
    _unary(_name, _function)


@extra
def polygamma(n: int, x: Any) -> Array:
    """The derivative of order n of the digamma function."""
    return Array(torch.polygamma(n, x.tensor))


@extra
def real(x: Any) -> Any:
    """The real part."""
    return x.real


@extra
def imag(x: Any) -> Any:
    """The imaginary part."""
    return x.imag


@extra
def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """Numbers in the place of NaN and infinities."""
    t = x.tensor
    if not (t.is_floating_point() or t.is_complex()):
        return Array(t.clone())
    return Array(torch.nan_to_num(t, nan, posinf, neginf))


@extra
def frexp(x: Any) -> tuple[Array, Array]:
    """Mantissa and exponent."""
    mantissa, exponent = torch.frexp(x.tensor)
    return Array(mantissa), Array(exponent)


# ---- of two inputs -------------------------------------------------------------------------------


class Ufunc:
    """A function of two inputs, with what NumPy's ufuncs have besides."""

    def __init__(self, name: str, function: Callable[[Any, Any], Any], operands: Any) -> None:
        self.__name__ = name
        self.function, self.operands = function, operands
        self.inplace = getattr(torch.Tensor, f"{getattr(function, '__name__', '')}_", None)

    def __call__(self, a: Any, b: Any, out: Any = None, where: Any = True) -> Array:
        """The function, element by element."""
        if type(a) is Array and type(b) is Array and a.dtype is b.dtype:
            if out is None:
                return Array(self.function(a.tensor, b.tensor))
            if a is out and a.shape == b.shape and self.inplace is not None and where is True:
                self.inplace(a.tensor, b.tensor)
                return out
        return finished(self.function(*self.operands(a, b)), out, where)

    def reduce(
        self, x: Array, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Array:
        """All elements along the axes taken together."""
        from . import reduction

        return reduction.REDUCE[self.__name__](x, axis, dtype, keepdims)

    def accumulate(self, x: Array, axis: int = 0, dtype: Any = None, out: Any = None) -> Array:
        """Each element taken together with those before it."""
        from . import reduction

        return finished(reduction.ACCUMULATE[self.__name__](x.tensor, axis), out)

    def at(self, x: Array, index: Any, values: Any) -> None:
        """`x[index] = f(x[index], values)`, for repeated indices again and again."""
        from . import selection

        selection.AT[self.__name__](x, index, values)


def _binary(name: str, function: Callable[[Any, Any], Any], operands: Any = paired) -> None:
    FUNCTIONS[name] = Ufunc(name, function, operands)


def _divide(a: Any, b: Any) -> Any:
    integers = not any(
        isinstance(x, float) or (isinstance(x, torch.Tensor) and not _is_integral(x))
        for x in (a, b)
    )
    if integers:  # NumPy divides them in double precision
        a = a.to(_FLOAT64) if isinstance(a, torch.Tensor) else a
        b = b.to(_FLOAT64) if isinstance(b, torch.Tensor) else b
    return torch.true_divide(a, b)


def _is_integral(t: Any) -> bool:
    return not (t.is_floating_point() or t.is_complex())


def _subtract(a: Any, b: Any) -> Any:
    return torch.subtract(a, b) if isinstance(a, torch.Tensor) else torch.rsub(b, a)


def _extreme(clamp: Any, function: Any) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        for x, number in ((a, b), (b, a)):
            if type(number) in NUMBERS:
                if x.dtype is torch.bool:
                    return function(x, torch.tensor(bool(number)))
                return clamp(x, number)
        return function(a, b)

    return compute


def _shift(function: Any) -> Callable[[Any, Any], Any]:
    """PyTorch shifts what it is given; NumPy's operations have checked the distance."""
    return lambda a, b: function(a, b)


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, torch.Tensor) and a.dtype is torch.bool:
        a = a.to(torch.int8)
    return torch.pow(a, b)


for _name, _function in {
    "subtract": _subtract, "divide": _divide, "true_divide": _divide, "multiply": torch.mul,
    "power": _power,
    "maximum": _extreme(torch.clamp_min, torch.maximum),
    "minimum": _extreme(torch.clamp_max, torch.minimum),
}.items():  # fmt: skip
    _binary(_name, _function)
for _name, _function in {
    "add": torch.add, "floor_divide": torch.floor_divide,
    "fmod": torch.fmod, "remainder": torch.remainder,
    "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor, "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift, "logical_and": torch.logical_and,
    "logical_or": torch.logical_or, "logical_xor": torch.logical_xor, "equal": torch.eq,
    "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le, "greater": torch.gt,
    "greater_equal": torch.ge,
}.items():  # fmt: skip
    _binary(_name, _function, tensors)


for _name, _function in {
    "fmax": torch.fmax, "fmin": torch.fmin, "arctan2": torch.atan2, "hypot": torch.hypot,
    "copysign": torch.copysign, "nextafter": torch.nextafter, "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2, "gcd": torch.gcd, "lcm": torch.lcm,
    "zeta": _wide(special.zeta),
}.items():  # fmt: skip
    _binary(_name, _function, together)


# ---- choices -------------------------------------------------------------------------------------


@extra
def where(condition: Any, x1: Any, x2: Any) -> Array:
    """x1 where the condition is true, otherwise x2."""
    chosen = condition.tensor
    if type(x1) is not Array and type(x2) is not Array:
        x1, x2 = unwrap(x1), unwrap(x2)
        kind = torch_dtype(np.result_type(x1, x2))
        a, b = (torch.full((), each, dtype=kind, device=chosen.device) for each in (x1, x2))
        return Array(torch.where(chosen, a, b))
    a, b = paired(x1, x2)
    return Array(torch.where(chosen if chosen.dtype is torch.bool else chosen != 0, a, b))


@extra
def where_not_above_zero(y: Array, x1: Any, x2: Array) -> Array:
    """x1 (a number) where y <= 0, otherwise x2."""
    if unwrap(x1) == 0 and y.shape == x2.shape and y.tensor.is_floating_point():
        return Array(torch.ops.aten.threshold_backward(x2.tensor, y.tensor, 0))
    return where(FUNCTIONS["less_equal"](y, 0), x1, x2)


@extra
def zero_where(x: Array, condition: Array) -> None:
    """Write 0 into `x` where the condition is true."""
    x.tensor.masked_fill_(condition.tensor, 0)


@extra
def clip(x: Any, low: Any = None, high: Any = None, out: Any = None) -> Array:
    """Each element brought into the range."""
    bounds = [unwrap(low), unwrap(high)]
    if any(isinstance(bound, torch.Tensor) for bound in bounds):
        bounds = [None if b is None else as_tensor(b, x).to(x.tensor.dtype) for b in bounds]
    return finished(torch.clamp(x.tensor, *bounds), out)


@extra
def copyto(target: Array, source: Any, casting: str = "", where: Any = True) -> None:
    """Write into `target`, where the mask says."""
    value = as_tensor(source, target).to(target.tensor.dtype)
    if where is not True:
        value = torch.where(unwrap(where), value, target.tensor)
    target.tensor.copy_(value)
