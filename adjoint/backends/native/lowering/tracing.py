"""Kernels from the definitions that NumPy runs: `op.compute` called with symbols for arrays.

A `Traced` stands for an array of known shape and dtype; what is done to it is written down in the
kernel IR. `TracingNamespace` stands for NumPy's namespace. So an op says once what it computes.
What cannot be written down (gathers, sorting, complex numbers, reductions over different axes)
raises NotTraceable with the reason, and NumPy computes it. Every other error is a mistake of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....core import policy
from ....core.array_properties import ArrayProperties
from ....core.errors import NotTraceable
from ....core.spec import broadcast
from ....core.symbolic_scalar import SymbolicFloat, as_float32
from ....ir.compute import quietly
from ... import numpy as reference
from ...codegen import Kernel, KernelValue
from ...codegen.ir import OPS, REDUCTIONS, STORAGE
from ...numpy import special_functions
from ...numpy.blocks import kernel_for

_NARROW = {"float16", "bfloat16"}
_FUNCTIONS = {
    "negative": "neg", "abs": "abs", "absolute": "abs", "sqrt": "sqrt", "reciprocal": "reciprocal",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "round", "isnan": "isnan",
    "isinf": "isinf", "isfinite": "isfinite", "invert": "not", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "tanh": "tanh", "sigmoid": "sigmoid", "erf": "erf", "erfc": "erfc", "sin": "sin", "cos": "cos",
    "tan": "tan", "sinh": "sinh", "cosh": "cosh", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "add": "add",
    "subtract": "sub", "multiply": "mul", "divide": "div", "arctan2": "atan2", "power": "pow",
    "copysign": "copysign", "nextafter": "nextafter", "left_shift": "shl", "right_shift": "shr",
    "floor_divide": "floor_div", "fmod": "fmod", "remainder": "mod", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
}  # fmt: skip
_BOOLEAN = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}


class UnknownNumber(NotTraceable):
    """A number that comes with each call, where only a known one will do."""


class Tracer:
    """A kernel being written, over the index space of sizes `space`."""

    def __init__(self, space: tuple[int, ...]) -> None:
        self.space = space
        self.kernel = Kernel(rank=len(space))
        self.names = TracingNamespace(self)
        self.numbers: list[float] = []  # the values of the kernel's scalars
        self.ordered = False  # whether a copy was to be row-major, however the inputs lie

    def input(self, shape: tuple[int, ...], dtype: Any) -> Traced:
        """A symbol for an array of that shape, which broadcasts to the space."""
        name = name_of(dtype)
        dims = tuple(range(len(self.space) - len(shape), len(self.space)))
        value = self.kernel.input(name, dims)
        return Traced(self, value, shape, dims, _wide(dtype))

    def number(self, value: Any, dtype: Any, counts: bool = False) -> KernelValue:
        """A Python number beside values of `dtype`: a constant, or a scalar where it may depend on
        sizes (so that kernels of other sizes are the same): one that `counts`, such as that of the
        elements of a mean, and a large one.
        """
        name = name_of(dtype)
        if not isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
            raise NotTraceable(f"{type(value).__name__} beside {dtype}")
        counts = counts and type(value) in (int, float) and float(value).is_integer()
        if (counts or (type(value) is int and abs(value) > 64)) and dtype.kind == "f":
            number = float(value)
            self.numbers.append(as_float32(number) if dtype.itemsize == 4 else number)
            return self.kernel.scalar(name)
        value = value.item() if isinstance(value, np.generic) else value
        if dtype.kind in "iu" and not isinstance(value, int):
            raise NotTraceable("a fraction beside integers")
        return self.kernel.const(bool(value) if dtype.kind == "b" else value, name)

    def close(self) -> None:
        """Drops everything once it is written: now, not when somebody looks for cycles."""
        self.kernel.close()
        self.kernel.values.clear()
        self.kernel.inputs.clear()
        vars(self.names).clear()


def name_of(dtype: Any) -> str:
    """The dtype's name in the IR."""
    name = str(dtype)
    if name not in STORAGE:
        raise NotTraceable(f"no kernel computes {name}")
    return name


def _wide(dtype: Any) -> Any:
    """The dtype in which values of `dtype` are computed."""
    return np.dtype(np.float32) if str(dtype) in _NARROW else np.dtype(dtype)


class _TracedFlags:
    """Flags of a symbol, as `ndarray.flags` has them: values are not written, so views of them are
    not.
    """

    writeable = False


class Traced(ArrayProperties):
    """A symbol for an array: a value of the kernel, and which axes of the space its dims are."""

    __slots__ = ("dims", "dtype", "shape", "tracer", "value")

    tracer: Tracer
    value: KernelValue
    shape: tuple[int, ...]
    dims: tuple[int, ...]  # the axis of the space of each dimension
    dtype: Any

    flags = _TracedFlags

    def __init__(
        self,
        tracer: Tracer,
        value: KernelValue,
        shape: tuple[int, ...],
        dims: tuple[int, ...],
        dtype: Any,
    ) -> None:
        self.tracer = tracer
        self.value = value
        self.shape = shape
        self.dims = dims
        self.dtype = dtype

    @property
    def real(self) -> Traced:
        """The value itself: no complex numbers get here."""
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Traced:
        """The values in another dtype; narrow floats are rounded and stay float32."""
        dtype = np.dtype(dtype)
        value = self.tracer.kernel.cast(self.value, name_of(dtype))
        return Traced(self.tracer, value, self.shape, self.dims, _wide(dtype))

    def copy(self, order: str = "C") -> Traced:
        """A copy of the values, row-major for order C; others lie as a kernel's inputs do."""
        if order != "K":
            self.tracer.ordered = True
        return Traced(self.tracer, self.value, self.shape, self.dims, self.dtype)

    def reshape(self, *shape: Any) -> Traced:
        """Dimensions of size 1 added or dropped."""
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in wanted:
            rest = -math.prod(wanted) or 1
            wanted = tuple(self.size // rest if n == -1 else n for n in wanted)
        left = [(n, d) for n, d in zip(self.shape, self.dims, strict=True) if n != 1]
        if [n for n, _ in left] != [n for n in wanted if n != 1]:
            raise NotTraceable("another shape")
        axes = iter(d for _, d in left)
        dims = [-1 if n == 1 else next(axes) for n in wanted]
        return Traced(self.tracer, self.value, wanted, _filled(dims, self.tracer.space), self.dtype)

    def transpose(self, axes: Sequence[int]) -> Traced:
        """Dimensions in another order."""
        return Traced(
            self.tracer,
            self.value,
            tuple(self.shape[a] for a in axes),
            tuple(self.dims[a] for a in axes),
            self.dtype,
        )

    def __getitem__(self, key: Any) -> Traced:
        return self.tracer.names.part(self, key)

    def __setitem__(self, key: Any, part: Traced) -> None:
        self.tracer.names.put(self, key, part)

    def __bool__(self) -> bool:
        raise NotTraceable("a decision on values")

    __float__ = __int__ = __index__ = __complex__ = __bool__  # type: ignore[assignment]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        raise NotTraceable("a loop over values")

    __contains__ = __iter__  # type: ignore[assignment]

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotTraceable("a function that takes arrays only")

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        """NumPy's functions themselves, which its numbers' operators call too."""
        function = getattr(self.tracer.names, ufunc.__name__)
        return (function if method == "__call__" else getattr(function, method))(
            *operands, **options
        )

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise NotTraceable(f"NumPy's own {function.__name__}")

    def __matmul__(self, other: Any) -> Any:
        raise NotTraceable("a matrix product")

    __rmatmul__ = __matmul__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array_"):  # what NumPy asks before `__array__`
            raise AttributeError(name)
        raise NotTraceable(f"no kernel does {name}")


def _filled(dims: Sequence[int], space: tuple[int, ...]) -> tuple[int, ...]:
    """`dims` with an axis for each dimension of size 1 (-1), as broadcasting aligns it."""
    axes = list(dims)
    for i in reversed(range(len(axes))):
        if axes[i] == -1:
            axes[i] = len(space) - len(axes) + i
    return tuple(axes)


def _operator(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def operator(self: Traced, other: Any) -> Any:
        pair = (other, self) if reflected else (self, other)
        return elementwise(name, *pair)

    return operator


for _dunder, _ir in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow", "and": "and",
    "or": "or", "xor": "xor", "floordiv": "floor_div", "mod": "mod", "lshift": "shl",
    "rshift": "shr",
}.items():  # fmt: skip
    setattr(Traced, f"__{_dunder}__", _operator(_ir))
    setattr(Traced, f"__r{_dunder}__", _operator(_ir, reflected=True))
for _dunder in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Traced, f"__{_dunder}__", _operator(_dunder))
Traced.__neg__ = lambda self: elementwise("neg", self)  # type: ignore[attr-defined,operator]
Traced.__invert__ = lambda self: elementwise("not", self)  # type: ignore[attr-defined,operator]
Traced.__abs__ = lambda self: elementwise("abs", self)  # type: ignore[attr-defined]
Traced.__pos__ = lambda self: self  # type: ignore[attr-defined,operator]
Traced.__hash__ = None  # type: ignore[assignment]


def elementwise(name: str, *operands: Any) -> Traced:
    """An op of the IR on symbols and numbers, which broadcast."""
    symbols = [x for x in operands if isinstance(x, Traced)]
    if not symbols:
        raise NotTraceable(f"{name} of numbers alone")
    tracer = symbols[0].tracer
    dtype = symbols[0].dtype
    if any(isinstance(x, np.ndarray) for x in operands):
        raise NotTraceable(f"{name} with an array that is no input")
    if any(x.dtype != dtype for x in symbols):
        raise NotTraceable(f"{name} of {' and '.join(str(x.dtype) for x in symbols)}")
    if str(dtype) not in OPS[name].dtypes:
        raise NotTraceable(f"{name} of {dtype}")
    if name == "div" and type(operands[0]) is SymbolicFloat and operands[1].value.op == "sqrt":
        number: Any = operands[0]
        operands = (1 if number == 1 else number, operands[1])  # 1 / sqrt is one op
    values = [
        x.value
        if isinstance(x, Traced)
        else tracer.number(x, dtype, name == "mul" or (name == "div" and n == 1))
        for n, x in enumerate(operands)
    ]
    return _made(symbols, tracer.kernel.op(name, *values))


def _made(symbols: Sequence[Traced], value: KernelValue) -> Traced:
    """The symbol of a value made from `symbols`, broadcast."""
    shape, dims = _aligned(symbols)
    return Traced(symbols[0].tracer, value, shape, dims, np.dtype(value.dtype))


def common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to which arrays broadcast, over which a kernel loops."""
    sizes, conflict = broadcast(shapes)
    if conflict is not None:  # not told by an error, whose message would read the sizes
        raise NotTraceable("shapes that do not broadcast")
    return tuple(sizes)


def _aligned(symbols: Sequence[Traced]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The broadcast shape, and the axis of the space for each of its dimensions."""
    shape = common_shape([x.shape for x in symbols])
    dims = [-1] * len(shape)
    for x in symbols:
        varies = x.value.axes
        for i, (n, d) in enumerate(zip(x.shape, x.dims, strict=True), len(shape) - len(x.shape)):
            if n != 1 and d in varies:
                if dims[i] not in (-1, d):
                    raise NotTraceable("dimensions that are not aligned")
                dims[i] = d
    return shape, _placed(dims, shape, symbols[0].tracer.space)


def _placed(dims: list[int], shape: tuple[int, ...], space: tuple[int, ...]) -> tuple[int, ...]:
    """`dims` with an axis of the space for those that have none (-1), because values do not vary
    over them: any free one of their size will do, best the one that broadcasting aligns.
    """
    taken = {d for d in dims if d != -1}
    if len(taken) != sum(d != -1 for d in dims):
        raise NotTraceable("dimensions that are not aligned")
    shift = len(space) - len(shape)
    axes = list(dims)
    for i, (n, d) in enumerate(zip(shape, dims, strict=True)):
        if d == -1 and n == 1:
            axes[i] = shift + i
        elif d == -1:
            free = [a for a in (shift + i, *range(len(space))) if a >= 0 and a not in taken]
            axes[i] = next((a for a in free if space[a] == n), -1)
            if axes[i] == -1:
                raise NotTraceable("a dimension that is no axis of the space")
            taken.add(axes[i])
    return tuple(axes)


def _truth(x: Any) -> Any:
    if type(x) is SymbolicFloat:
        raise UnknownNumber("the truth of a number that comes with each call")
    if not isinstance(x, Traced):
        return bool(x)
    return x if x.dtype.kind == "b" else elementwise("ne", x, 0)


class _Unwritten(Traced):
    """A symbol to which another value is assigned as a whole."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in ((), ..., (...,)):
            raise NotTraceable("an assignment to a part")
        if not isinstance(value, Traced):
            self.value = self.tracer.number(value, self.dtype)
        elif value.shape == self.shape and value.dtype == self.dtype:
            self.value = value.value
        else:
            raise NotTraceable("an assignment that broadcasts or converts")


class _Function:
    """`xp.add` and the like: an op of the IR, and its `reduce` where it has one."""

    def __init__(
        self, name: str, ir: str | Callable[..., Any], reduction: str = "", truth: bool = False
    ) -> None:
        self.name = name  # NumPy's
        self.ir = partial(elementwise, ir) if isinstance(ir, str) else ir
        self.reduction = reduction
        self.truth = truth  # whether it asks its operands whether they are 0

    def __call__(self, *operands: Any, out: Any = None, **options: Any) -> Any:
        if options:
            raise NotTraceable(f"{self.name} with {', '.join(options)}")
        if not any(isinstance(x, Traced) for x in operands):
            return self._of_numbers(operands)
        if self.truth:
            operands = tuple(map(_truth, operands))
        return _written(self.ir(*operands), out)

    def _of_numbers(self, operands: Sequence[Any]) -> Any:
        """The number that it gives for numbers that are part of the kernel."""
        if any(type(x) is SymbolicFloat for x in operands):
            raise UnknownNumber(f"{self.name} of a number that comes with each call")
        return quietly(getattr(reference, self.name), *operands)

    def reduce(
        self,
        x: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Any:
        """The reduction over `axis`."""
        if not self.reduction or options or (dtype is not None and np.dtype(dtype) != x.dtype):
            raise NotTraceable(f"{self.name}.reduce of this kind")
        return _reduced(self.reduction, _truth(x) if self.truth else x, axis, keepdims)

    def __getattr__(self, name: str) -> Any:
        raise NotTraceable(f"no kernel does {self.name}.{name}")


def _ufunc(function: Callable[..., Any]) -> Any:
    """A method of `TracingNamespace` that is one of NumPy's functions."""
    return property(lambda names: _Function(function.__name__, partial(function, names)))


class TracingNamespace:
    """Namespace that `op.compute` gets while it is traced."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.maximum = _Function("maximum", "maximum", "max")
        self.minimum = _Function("minimum", "minimum", "min")
        self.add = _Function("add", "add", "sum")
        self.multiply = _Function("multiply", "mul", "prod")
        self.logical_and = _Function("logical_and", "and", "all", truth=True)
        self.logical_or = _Function("logical_or", "or", "any", truth=True)

    def next_op(self) -> None:
        """Called before each op of several."""

    def __getattr__(self, name: str) -> Any:
        op = _FUNCTIONS.get(name)
        function = None if op else getattr(reference, name, None)
        if hasattr(function, "kernels"):
            return lambda x: self._in(*kernel_for(function, x.dtype), x)
        if op is None and name in _BOOLEAN:
            return _Function(name, _BOOLEAN[name], truth=True)
        if op is None:
            raise NotTraceable(f"no kernel does {name}")
        return _Function(name, op)

    def _in(self, kernel: Callable[..., Any], dtype: Any, x: Any) -> Any:
        """A function of `backends.numpy.blocks`."""
        return kernel(self, x.astype(dtype)).astype(x.dtype)

    def polygamma(self, n: int, x: Any) -> Any:
        """The derivative of order n of the digamma function."""
        return self._in(special_functions.polygamma_kernels(n)[x.dtype.itemsize < 8], np.float64, x)

    def zeta(self, s: Any, q: Any) -> Any:
        """Hurwitz's zeta function."""
        dtype = next(v.dtype for v in (s, q) if isinstance(v, Traced))
        s, q = (v.astype(np.float64) if isinstance(v, Traced) else v for v in (s, q))
        return special_functions.zeta_kernel(self, s, q, dtype.itemsize < 8).astype(dtype)

    def horner(self, coefficients: tuple[float, ...], t: Any) -> Any:
        """The polynomial with these coefficients, lowest power first; a long one as several in a
        power of t, which do not wait for each other.
        """
        strands = 4 if len(coefficients) >= 12 else 2 if len(coefficients) >= 6 else 1
        power = t
        for _ in range(strands // 2):
            power = power * power
        parts: list[Any] = []
        for k in range(strands):
            own = coefficients[k::strands]
            value: Any = own[-1]
            for c in own[-2::-1]:
                value = elementwise("fma", power, value, c)
            parts.append(value)
        whole = parts[-1]
        for part in parts[-2::-1]:
            whole = elementwise("fma", t, whole, part)
        return whole

    def split(
        self, mask: Any, then: Callable[[Any], Any], otherwise: Callable[[Any], Any], x: Any
    ) -> Any:
        """then(x) where the mask holds, otherwise(x) elsewhere."""
        return self.where(mask, then(x), otherwise(x))

    @_ufunc
    def hypot(self, x: Any, y: Any) -> Any:
        """The root of x x + y y, of which nothing overflows before the end."""
        x, y = (self.abs(v) if isinstance(v, Traced) else abs(float(v)) for v in (x, y))
        top: Any = elementwise("maximum", x, y)
        low: Any = elementwise("minimum", x, y)
        if top.dtype.itemsize < 8:  # the squares are exact
            wide = [v.astype(np.float64) for v in (top, low)]
            root = self.sqrt(wide[0] * wide[0] + wide[1] * wide[1]).astype(top.dtype)
        else:
            ratio = self.where(top > 0, low / top, 0)
            root = self.where(top > low, top * self.sqrt(ratio * ratio + 1), top * math.sqrt(2))
        infinite = elementwise("eq", self.fmax(x, y), math.inf)
        return self.where(infinite, math.inf, root)

    @_ufunc
    def fmax(self, x: Any, y: Any) -> Any:
        """The greater of the two; where one is NaN, the other."""
        return self._ordered("maximum", x, y)

    @_ufunc
    def fmin(self, x: Any, y: Any) -> Any:
        """The smaller of the two; where one is NaN, the other."""
        return self._ordered("minimum", x, y)

    def _ordered(self, name: str, x: Any, y: Any) -> Any:
        result = elementwise(name, x, y)
        if result.dtype.kind == "f":
            if isinstance(x, Traced):
                result = self.where(elementwise("isnan", x), y, result)
            if isinstance(y, Traced):
                result = self.where(elementwise("isnan", y), x, result)
        return result

    @_ufunc
    def logaddexp(self, x: Any, y: Any) -> Any:
        """log(exp(x) + exp(y)), without overflow."""
        rest = self.log1p(self.exp(-self.abs(elementwise("sub", x, y))))
        return self._added(x, y, rest, math.log(2))

    @_ufunc
    def logaddexp2(self, x: Any, y: Any) -> Any:
        """log2(2**x + 2**y), without overflow."""
        rest = self.log1p(self.exp2(-self.abs(elementwise("sub", x, y)))) * (1 / math.log(2))
        return self._added(x, y, rest, 1.0)

    def _added(self, x: Any, y: Any, rest: Any, at_equal: float) -> Any:
        """The greater of the two, and `rest`; equal ones may be infinite."""
        top: Any = elementwise("maximum", x, y)
        return self.where(elementwise("eq", x, y), top + at_equal, top + rest)

    def nan_to_num(self, x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
        """x with other numbers for NaN and the infinities."""
        if x.dtype.kind != "f":
            return x
        y = self.where(elementwise("isnan", x), nan, x)
        y = self.where(elementwise("eq", x, math.inf), posinf, y)
        return self.where(elementwise("eq", x, -math.inf), neginf, y)

    @_ufunc
    def signbit(self, x: Any) -> Any:
        """Whether x is below 0, or -0."""
        return elementwise("lt", elementwise("copysign", 1.0, x), 0)

    def all(self, x: Any) -> Any:
        """Whether a number is not 0."""
        if isinstance(x, (Traced, SymbolicFloat)):
            raise UnknownNumber("a decision on values")
        return bool(x)

    def some(self, mask: Any) -> bool:
        """Whether a mask may hold anywhere."""
        return True

    @_ufunc
    def square(self, x: Any) -> Any:
        """x x."""
        return elementwise("mul", x, x)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """`x` where the condition holds, else `y`."""
        symbols = [v for v in (x, y) if isinstance(v, Traced)]
        if not symbols or not isinstance(condition, Traced) or condition.dtype.kind != "b":
            raise NotTraceable("a choice between numbers, or by a number")
        dtype = symbols[0].dtype
        if any(v.dtype != dtype for v in symbols):
            raise NotTraceable("a choice between dtypes")
        values = [
            v.value if isinstance(v, Traced) else self.tracer.number(v, dtype) for v in (x, y)
        ]
        chosen = self.tracer.kernel.where(condition.value, *values)
        return _made([condition, *symbols], chosen)

    def where_not_above_zero(self, y: Any, x: Any, g: Any) -> Any:
        """`x` where y <= 0, else `g` (also where y is NaN)."""
        return self.where(y <= 0, x, g)

    def max(self, x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
        """The largest element."""
        result = _reduced("max", x, axis, keepdims)
        return result if initial is None else elementwise("maximum", result, float(initial))

    def min(self, x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
        """The smallest element."""
        result = _reduced("min", x, axis, keepdims)
        return result if initial is None else elementwise("minimum", result, float(initial))

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The sum."""
        return _reduced("sum", x, axis, keepdims)

    def squeeze(self, x: Any, axis: Any) -> Any:
        """The value without the dimensions `axis`."""
        axes = (axis,) if isinstance(axis, int) else tuple(axis)
        return x.reshape(tuple(n for i, n in enumerate(x.shape) if i not in axes))

    def broadcast_to(self, x: Any, shape: tuple[int, ...]) -> Any:
        """`x` repeated along new dimensions."""
        varies = [d if d in x.value.axes else -1 for d in x.dims]
        dims = [-1] * (len(shape) - x.ndim) + varies
        axes = _placed(dims, tuple(shape), self.tracer.space)
        return Traced(self.tracer, x.value, tuple(shape), axes, x.dtype)

    def part(self, x: Traced, key: Any) -> Traced:
        """`x[key]`: not here."""
        raise NotTraceable("a part of an array")

    def put(self, x: Traced, key: Any, part: Traced) -> None:
        """`x[key] = part`: not here."""
        raise NotTraceable("a part of an array")

    def tril(self, x: Any, k: int = 0) -> Any:
        """The elements on and below a diagonal of the last two dimensions, 0 elsewhere."""
        return self.where(self._below(x, k + 1), x, 0)

    def triu(self, x: Any, k: int = 0) -> Any:
        """The elements on and above a diagonal of the last two dimensions, 0 elsewhere."""
        return self.where(self._below(x, k), 0, x)

    def _below(self, x: Any, k: int) -> Any:
        """A mask: where the column lies before the row, moved by k."""
        row, column = self._position(x, x.ndim - 2), self._position(x, x.ndim - 1)
        return elementwise("lt", column, row + k if k else row)

    def _position(self, x: Any, i: int) -> Any:
        """The position along a dimension, int32; of as many dimensions as x."""
        dim = x.dims[i]
        if x.shape[i] != self.tracer.space[dim] or x.shape[i] >= 1 << 30:
            raise NotTraceable("positions along a broadcast dimension")
        kernel = self.tracer.kernel
        shape = tuple(n if j == i else 1 for j, n in enumerate(x.shape))
        value = kernel.cast(kernel.index(dim), "int32")
        return Traced(self.tracer, value, shape, x.dims, np.dtype(np.int32))

    def argmax(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The first place of the largest element; of the first NaN where there is one."""
        return self._place("max", x, axis, keepdims)

    def argmin(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """The first place of the smallest element; of the first NaN where there is one."""
        return self._place("min", x, axis, keepdims)

    def _place(self, name: str, x: Any, axis: Any, keepdims: bool) -> Any:
        if x.size > policy.PLACES or 1 in x.shape:
            raise NotTraceable("NumPy is as fast: places in a large array")
        axes = tuple(range(x.ndim)) if axis is None else (axis,)
        best = elementwise("eq", x, _reduced(name, x, axes, True))
        if x.dtype.kind == "f":
            best = elementwise("or", best, elementwise("isnan", x))
        position: Any = None
        for i in axes:
            step = self._position(x, i)
            position = step if position is None else position * x.shape[i] + step
        place = _reduced("min", self.where(best, position, x.size), axes, keepdims)
        return place.astype(np.int64)

    def zeros(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        """The number 0, beside which other operands give the dtype."""
        if shape:
            raise NotTraceable("zeros to write into")
        return 0

    def empty_like(self, x: Any) -> Any:
        """A symbol that takes what is assigned to it, which is how a tensor is overwritten."""
        return _Unwritten(x.tracer, x.value, x.shape, x.dims, x.dtype)

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        """The argument, converted to a dtype if one is given."""
        return x if dtype is None or not isinstance(x, Traced) else x.astype(dtype)

    def transpose(self, x: Any, axes: Any) -> Any:
        """Dimensions in another order."""
        return x.transpose(axes)

    def reshape(self, x: Any, shape: Any) -> Any:
        """Dimensions of size 1 added or dropped."""
        return x.reshape(shape)


def _written(result: Traced, out: Any) -> Traced:
    """`result`, which `out` becomes where there is one."""
    if out is None:
        return result
    if out.shape != result.shape or out.dtype != result.dtype:
        raise NotTraceable("a result of another shape or dtype than `out`")
    out.value, out.dims = result.value, result.dims
    return out  # type: ignore[no-any-return]


def _reduced(name: str, x: Any, axis: Any, keepdims: bool) -> Traced:
    if not isinstance(x, Traced):
        raise NotTraceable(f"{name} of a number")
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = tuple(a % x.ndim for a in axes) if x.ndim else ()
    kept = [i for i in range(x.ndim) if keepdims or i not in axes]
    shape = tuple(1 if i in axes else x.shape[i] for i in kept)
    dims = tuple(x.dims[i] for i in kept)
    axes = tuple(a for a in axes if x.shape[a] != 1)
    if not axes:  # of one element, which is what it gives
        return Traced(x.tracer, x.value, shape, dims, x.dtype)
    over = tuple(sorted(x.dims[a] for a in axes))
    if any(x.shape[a] != x.tracer.space[x.dims[a]] for a in axes):
        raise NotTraceable("a reduction over a broadcast dimension")
    if str(x.dtype) not in REDUCTIONS[name]:
        raise NotTraceable(f"{name} of {x.dtype}")
    kernel = x.tracer.kernel
    if kernel.reduced and kernel.reduced != over:
        raise NotTraceable("reductions over different dimensions")
    return Traced(x.tracer, kernel.reduce(name, x.value, over), shape, dims, x.dtype)
