"""Base class of the elementwise ops, and the makers of their public functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.argument_errors import assert_tensor
from ...core.errors import DTypeError
from ...core.op import Op
from ...core.spec import Spec, broadcast_shapes
from ...core.symbolic_scalar import SymbolicFloat, SymbolicNumber
from ...core.tensor_base import TensorBase
from ...runtime.dispatch import apply
from ...runtime.op_functions import binary_operator, unary_operator
from ...runtime.public import FUNCTIONS, INPLACE, METHODS, with_out, write_out
from ...runtime.tensors import fresh
from ..promotion import cast, number, promote
from ..samples import ALL_FLOATS, unary_samples

PYTORCH = "https://docs.pytorch.org/docs/stable/generated/torch."
SPECIAL = "https://docs.pytorch.org/docs/stable/special.html#torch.special."

ANY, ORDERED, REAL, FLOATING, ANALYTIC = "biufc", "biuf", "iuf", "f", "fc"
INTEGRAL, INTEGERS, NUMBERS, COMPLEX_ONLY = "biu", "iu", "iufc", "c"


class Elementwise(Op, abstract=True):
    """Base of ops that work element by element, broadcasting their inputs."""

    ufunc: ClassVar[str]  # the function's name in a backend namespace
    scipy: ClassVar[str] = ""  # its name in scipy.special, where NumPy has no such function
    result: ClassVar[str] = "same"  # the output's dtype: "same" as the inputs', "bool" or "real"
    kinds: ClassVar[str] = ANY  # what dtypes it takes: bool, signed (i), unsigned, float, complex
    # Whether a number beside float16 or bfloat16 keeps its precision, as it does in PyTorch for
    # products and quotients; otherwise it takes part as the nearest value of that dtype.
    wide_numbers: ClassVar[bool] = False
    numbers_fit: ClassVar[bool] = False  # are ints refused that the dtype does not hold? or wrapped
    pointwise = True

    def infer(self, *specs: Any) -> Spec:
        """The broadcast shape; all tensor inputs have one dtype already."""
        tensors = [spec for spec in specs if isinstance(spec, Spec)]
        shape = broadcast_shapes(*(spec.shape for spec in tensors), op=self.name)
        first = tensors[0]
        for spec in tensors:
            if spec.dtype is not first.dtype:
                raise DTypeError(
                    f"{self.name}: dtypes {first.dtype} and {spec.dtype} differ; convert one with "
                    ".to()"
                )
        if kind_of(first.dtype) not in self.kinds:
            raise not_implemented(self.name, first.dtype, self.kinds)
        if self.result == "bool":
            return first.with_(shape=shape, dtype=dt.bool_)
        if self.result == "real":
            return first.with_(shape=shape, dtype=first.dtype.to_real())
        return first.with_(shape=shape)

    def compute(self, xp: Any, *arrays: Any) -> Any:
        """The backend's function of that name."""
        return getattr(xp, self.ufunc)(*arrays)

    @np.errstate(all="ignore")
    def reference(self, *arrays: Any) -> Any:
        """NumPy's ufunc, or SciPy's, in the widest precision."""
        if not self.scipy:
            return getattr(np, self.ufunc)(*map(widen, arrays))
        from scipy import special

        return getattr(special, self.scipy)(*map(widen, arrays))


class Floating(Elementwise, abstract=True):
    """The base of functions of floating-point numbers."""

    kinds = FLOATING


class Analytic(Elementwise, abstract=True):
    """The base of functions of floating-point and complex numbers."""

    kinds = ANALYTIC
    samples = unary_samples(dtypes=ALL_FLOATS)


class Comparison(Elementwise, abstract=True):
    """Base of ops that say yes or no about each element."""

    result = "bool"
    exact = True


def widen(a: Any) -> Any:
    """A floating-point or complex array in the widest precision; anything else as it is."""
    if hasattr(a, "dtype") and a.dtype.kind in "fcV":
        return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    return a


_KINDS = {d: "f" if d.is_floating_point else d.numpy.kind for d in dt.BY_NUMPY.values()}


def kind_of(d: dt.dtype) -> str:
    """Kind of a dtype as one letter: b (bool), i, u (signed and unsigned integer), f (floating
    point), c (complex).
    """
    return _KINDS[d]


_REMEDIES = {
    "c": "use its real or imaginary part, or abs()",
    "b": "convert with .int()",
    "f": "convert with .long()",
    "i": "convert with .float()",
    "u": "convert with .float()",
}


def not_implemented(name: str, d: dt.dtype, kinds: str) -> DTypeError:
    """The error of a function that does not take dtype `d`."""
    kind = kind_of(d)
    remedy = "convert with .float()" if kind == "b" and "i" not in kinds else _REMEDIES[kind]
    return DTypeError(f'{name}: "{name}" not implemented for {d}; {remedy}')


def assert_kind(name: str, d: dt.dtype, kinds: str) -> None:
    """Refuse dtypes that `kinds` does not name."""
    if _KINDS[d] not in kinds:
        raise not_implemented(name, d, kinds)


def operand(x: Any) -> Any:
    """A tensor for a NumPy array; anything else as it is."""
    return fresh(x) if isinstance(x, np.ndarray) else x


PLAIN = frozenset((dt.float32.numpy, dt.float64.numpy))
_NUMBERS = frozenset((int, float))


def promoted(
    name: str, op: Op, values: tuple[Any, ...], *, floating: bool = False, kinds: str = ""
) -> list[Any]:
    """The operands of `op` brought to their common dtype, which must be one of `kinds`."""
    first = values[0]
    if (
        isinstance(first, TensorBase)
        and (d := first._data.dtype) in PLAIN
        and "f" in (kinds or "f")
    ):
        for v in values:
            if not (v._data.dtype is d if isinstance(v, TensorBase) else type(v) in _NUMBERS):
                break
        else:
            return list(values)  # the usual case: nothing to convert
    common, operands = promote(
        name, *map(operand, values), floating=floating, fits=getattr(op, "numbers_fit", False)
    )
    if kinds:
        assert_kind(name, common, kinds)
    narrow = common in dt.LOW_PRECISION and not getattr(op, "wide_numbers", False)
    if narrow or not any(isinstance(v, TensorBase) for v in operands):
        with np.errstate(over="ignore"):
            return [
                v
                if isinstance(v, TensorBase)
                else v.rounded(common.numpy)
                if type(v) is SymbolicFloat
                else v.operand(common)
                if type(v) is SymbolicNumber
                else fresh(np.asarray(v).astype(common.numpy))
                for v in operands
            ]
    return operands


def fitting(value: Any, to: dt.dtype, name: str) -> Any:
    """A Python number as an array of dtype `to` takes it: for narrow dtypes, its nearest value; an
    int that an integer dtype does not hold is refused.
    """
    value = number(value, to, name, fits=True)
    if to in dt.LOW_PRECISION:
        with np.errstate(over="ignore"):
            if type(value) is SymbolicFloat:
                return value.rounded(to.numpy)
            if type(value) is SymbolicNumber:
                return value.operand(to)
            return float(np.asarray(value).astype(to.numpy))
    return value


def unary(
    op: Any, floating: bool = True, inplace: bool = True, name: str = "", method: bool = True
) -> Any:
    """The public function and method of a one-input op; integers become floats where `floating`.

    With `method` False it is a function of a namespace such as adjoint.special only. Its
    documentation is the op's docstring, completed.
    """
    name = name or op.name
    kinds = op.kinds
    accepted = kinds + INTEGRAL if floating else kinds

    def general(input: Any) -> Any:
        if not isinstance(input, TensorBase):
            assert_tensor(name, input)
        found = input.dtype
        if found.category < 2:
            assert_kind(name, found, accepted)
            if floating:
                input = cast(input, dt.get_default_dtype())  # type: ignore[arg-type]
        elif found.category == 3:
            assert_kind(name, found, accepted)
        return apply(op, input)

    plain = "".join(kind for kind in kinds if kind not in INTEGRAL) if floating else kinds
    return publish(general, op, name, inplace, UNARY_DOC, 1, method, plain)


def binary(
    op: Any, floating: bool = False, inplace: bool = True, name: str = "", method: bool = True
) -> Any:
    """The public function and method of a two-input op, promoting dtypes as PyTorch does."""
    name = name or op.name
    kinds = op.kinds

    def general(input: Any, other: Any) -> Any:
        if isinstance(input, TensorBase) and isinstance(other, TensorBase):
            found = input.dtype
            if found is other.dtype and _KINDS[found] in kinds:
                return apply(op, input, other)
        return apply(op, *promoted(name, op, (input, other), floating=floating, kinds=kinds))

    return publish(general, op, name, inplace, BINARY_DOC, 2, method, kinds)


UNARY_DOC = """
    Shape: any; the result has the shape of `input`.
    Dtypes: {dtypes}.
    Errors: InvalidType where `input` is not a tensor; DTypeError for a dtype it does not take.
    Source: {source}{name}.html"""

BINARY_DOC = """
    Shapes: `input` and `other` broadcast; either may be a Python number.
    Dtypes: {dtypes}.
    Errors: ShapeError where the shapes do not broadcast; DTypeError for a dtype it does not take.
    Source: {source}{name}.html"""


def publish(
    general: Callable[..., Any],
    op: Any,
    name: str,
    inplace: bool,
    template: str,
    inputs: int,
    method: bool,
    kinds: str,
) -> Callable[..., Any]:
    """Name, document and register a function of one op, with eager execution's short cut for
    arrays of dtypes of `kinds`.
    """
    ufunc = op.ufunc if type(op).compute is Elementwise.compute else ""
    if inputs > 2:
        function = with_out(general)
    else:
        function = (unary_operator if inputs == 1 else binary_operator)(op, general, kinds, ufunc)
    for each in (general, function):
        each.__name__ = each.__qualname__ = name
        each.__module__ = type(op).__module__
    summary, _, rest = (type(op).__doc__ or "").partition("\n\n")
    dtypes = {
        "same": "the result has the promoted dtype of the inputs",
        "bool": "the result is bool",
        "real": "the result is real",
    }[getattr(op, "result", "same")]
    source = PYTORCH if method else SPECIAL
    details = template.format(dtypes=dtypes, source=source, name=name)
    if not method:
        details = details.replace(f"{name}.html", name)
    function.__doc__ = f"{summary}\n{details}\n\n{rest}"
    if not method:
        return function
    FUNCTIONS[name] = METHODS[name] = function
    if inplace:
        INPLACE[f"{name}_"] = function
    return function


def alias(function: Callable[..., Any], name: str, inplace: bool = True) -> Any:
    """`function` under a second public name."""
    FUNCTIONS[name] = METHODS[name] = function
    if inplace:
        INPLACE[f"{name}_"] = function
    return function


def to_out(result: Any, out: Any, name: str) -> Any:
    """`result`, or `out` with it written where that is given."""
    return result if out is None else write_out(result, out, name)


def conj(x: Any) -> Any:
    """The complex conjugate; real tensors and numbers are their own."""
    if isinstance(x, TensorBase):
        return x if x._data.dtype.kind != "c" else x.conj_physical()  # type: ignore[attr-defined]
    return x.conjugate() if isinstance(x, complex) else x
