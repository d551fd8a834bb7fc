"""The kernel IR: scalar expressions over an index space, with reductions in between.

A kernel of rank r computes its outputs at every index of a space of r axes whose sizes are known
only when it runs. Its values form a directed acyclic graph. A value varies over some of the axes; a
reduction makes a value that no longer varies over the reduced ones, and later values may use both
it and what was there before, so softmax is one kernel:

>>> k = Kernel(rank=2)
>>> x = k.input("float32")
>>> e = k.exp(x - k.max(x, axes=(1,)))
>>> _ = k.output(e / k.sum(e, axes=(1,)))
>>> print(k)
kernel rank=2
  %0 = input 0 float32 : float32 (0, 1)
  %1 = max %0 over (1,) : float32 (0,)
  %2 = sub %0 %1 : float32 (0, 1)
  %3 = exp %2 : float32 (0, 1)
  %4 = sum %3 over (1,) : float32 (0,)
  %5 = div %3 %4 : float32 (0, 1)
  output %5 float32 (0, 1)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from adjoint.core.errors import DTypeError, InvalidArgument, ShapeError, Unsupported

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
NARROW = ("float16", "bfloat16")  # kept in memory only: computed in float32
STORAGE = DTYPES + NARROW
NUMBERS = INTEGERS + FLOATS
BITS = ("bool", *INTEGERS)
ITEMSIZE = {name: int("".join(filter(str.isdigit, name)) or 8) // 8 for name in STORAGE}


class Rule(NamedTuple):
    """Signature of an elementwise op: number of operands, their dtypes and the result's."""

    arity: int
    dtypes: tuple[str, ...]  # that its operands may have; all operands have the same one
    result: str = ""  # a dtype, or "" for the operands'


MATHS = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "tanh",
    "sigmoid",
    "erf",
    "erfc",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
]
OPS: dict[str, Rule] = {
    **{name: Rule(1, FLOATS) for name in MATHS},
    **{
        name: Rule(1, FLOATS)
        for name in ["sqrt", "rsqrt", "reciprocal", "floor", "ceil", "round", "trunc"]
    },
    **{name: Rule(1, FLOATS, "bool") for name in ["isnan", "isinf", "isfinite"]},
    **{name: Rule(1, NUMBERS) for name in ["neg", "abs", "sign"]},
    **{name: Rule(2, FLOATS) for name in ["div", "pow", "atan2", "copysign", "nextafter"]},
    **{name: Rule(2, NUMBERS) for name in ["add", "sub", "mul", "floor_div", "mod", "fmod"]},
    **{name: Rule(2, DTYPES) for name in ["maximum", "minimum"]},
    **{name: Rule(2, DTYPES, "bool") for name in ["lt", "le", "gt", "ge", "eq", "ne"]},
    **{name: Rule(2, BITS) for name in ["and", "or", "xor"]},
    **{name: Rule(2, INTEGERS) for name in ["shl", "shr"]},
    "not": Rule(1, BITS),
    "fma": Rule(3, FLOATS),
}
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "sum": NUMBERS,
    "prod": NUMBERS,
    "max": DTYPES,
    "min": DTYPES,
    "any": ("bool",),
    "all": ("bool",),
}

Number: TypeAlias = "bool | int | float"


@dataclass(frozen=True, eq=False)
class KernelValue:
    """One value of a kernel: an op, what it is applied to, and the axes it varies over."""

    kernel: Kernel
    number: int  # its place in kernel.values; greater than its inputs'
    op: str
    inputs: tuple[KernelValue, ...]
    dtype: str
    axes: tuple[int, ...]  # ascending
    attr: Any = None  # input: (position, storage dtype); const: its value; reductions: axes; ...

    def __repr__(self) -> str:
        words = [self.op, *(f"%{x.number}" for x in self.inputs)]
        if self.op in REDUCTIONS:
            words.append(f"over {self.attr}")
        elif isinstance(self.attr, tuple):
            words.extend(map(str, self.attr))
        elif self.attr is not None:
            words.append(_literal(self.attr))
        return f"%{self.number} = {' '.join(words)} : {self.dtype} {self.axes}"

    def __add__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("add", self, other)

    def __radd__(self, other: Number) -> KernelValue:
        return self.kernel.op("add", other, self)

    def __sub__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("sub", self, other)

    def __rsub__(self, other: Number) -> KernelValue:
        return self.kernel.op("sub", other, self)

    def __mul__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("mul", self, other)

    def __rmul__(self, other: Number) -> KernelValue:
        return self.kernel.op("mul", other, self)

    def __truediv__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("div", self, other)

    def __rtruediv__(self, other: Number) -> KernelValue:
        return self.kernel.op("div", other, self)

    def __floordiv__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("floor_div", self, other)

    def __mod__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("mod", self, other)

    def __pow__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("pow", self, other)

    def __neg__(self) -> KernelValue:
        return self.kernel.op("neg", self)

    def __invert__(self) -> KernelValue:
        return self.kernel.op("not", self)

    def __and__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("and", self, other)

    def __or__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("or", self, other)

    def __xor__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("xor", self, other)

    def __lt__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("lt", self, other)

    def __le__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("le", self, other)

    def __gt__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("gt", self, other)

    def __ge__(self, other: KernelValue | Number) -> KernelValue:
        return self.kernel.op("ge", self, other)


class Output(NamedTuple):
    """A value that the kernel writes: over the whole space, or over what the reductions keep."""

    value: KernelValue
    dtype: str  # in memory
    axes: tuple[int, ...]


class Kernel:
    """A kernel under construction; its methods append values and check them at once.

    Every function of `OPS` and `REDUCTIONS` is a method: `k.exp(x)`, `k.where(c, x, y)`,
    `k.sum(x, axes=(1,))`. Python numbers become constants of the other operands' dtype.

    >>> k = Kernel(rank=1)
    >>> k.output(k.input("float32") * 2 + 1).dtype
    'float32'
    """

    def __init__(self, rank: int) -> None:
        if rank < 0:
            raise InvalidArgument(f"Kernel: rank {rank} is negative")
        self.rank = rank
        self.values: list[KernelValue] = []
        self.inputs: list[KernelValue] = []
        self.scalars: list[KernelValue] = []
        self.outputs: list[Output] = []
        self.reduced: tuple[int, ...] = ()  # the axes of every reduction in this kernel
        self._known: dict[tuple, KernelValue] = {}
        self._key: str | None = None

    # Values that come from outside ---------------------------------------------------------------

    def input(self, dtype: str, axes: Iterable[int] | None = None) -> KernelValue:
        """The next input array, which has one dimension for each of `axes` (all of them, if None).

        float16 and bfloat16 are widened to float32 when they are loaded.
        """
        attr = (len(self.inputs), dtype)
        value = self._append("input", (), _widened(dtype), self._axes(axes), attr)
        self.inputs.append(value)
        return value

    def scalar(self, dtype: str) -> KernelValue:
        """The next number that is passed with each call (a learning rate, say)."""
        value = self._append("scalar", (), dtype, (), (len(self.scalars),))
        self.scalars.append(value)
        return value

    def const(self, value: Number, dtype: str) -> KernelValue:
        """A number known now."""
        return self._append("const", (), dtype, (), _constant(value, dtype))

    def index(self, axis: int) -> KernelValue:
        """The position along an axis, int64."""
        (axis,) = self._axes((axis,))
        return self._append("index", (), "int64", (axis,), (axis,))

    def random(
        self, axes: Iterable[int] | None, seed: KernelValue, draw: KernelValue
    ) -> KernelValue:
        """The numbers (32 bits) of a stream of NumPy's Philox, one for each position along `axes`
        in row-major order, in which the first output over the whole space must lie in memory.
        `seed` and `draw`, uint64, are the same everywhere.
        """
        return self._append("random", (seed, draw), "uint32", self._axes(axes))

    def size(self, axes: Iterable[int]) -> KernelValue:
        """The number of positions along the axes together, int64."""
        return self._append("size", (), "int64", (), self._axes(axes))

    # Functions -----------------------------------------------------------------------------------

    def op(self, name: str, *operands: KernelValue | Number) -> KernelValue:
        """An elementwise op of `OPS`, by name."""
        values = self._operands(name, operands)
        rule = OPS.get(name)
        if rule is None:
            raise Unsupported(f"kernel op {name!r}; there are {', '.join(sorted(OPS))}")
        over_root = name == "div" and values[1].op == "sqrt" and values[0].op == "const"
        if over_root and values[0].attr == 1:
            name, values = "rsqrt", values[1].inputs  # quicker, and no less accurate
        return self._append(name, values, rule.result or values[0].dtype, _union(values))

    def __getattr__(self, name: str) -> Any:
        if name in REDUCTIONS:
            return lambda x, axes=None: self.reduce(name, x, axes)
        name = name.rstrip("_")  # and_, or_, not_
        if name in OPS:
            return lambda *operands: self.op(name, *operands)
        raise AttributeError(f"a kernel has no op {name!r}")

    def where(
        self, condition: KernelValue, x: KernelValue | Number, y: KernelValue | Number
    ) -> KernelValue:
        """`x` where the condition holds, else `y`."""
        x, y = self._operands("where", (x, y))
        return self._append("where", (condition, x, y), x.dtype, _union((condition, x, y)))

    def cast(self, x: KernelValue, dtype: str) -> KernelValue:
        """The value in another dtype; casting to float16 or bfloat16 rounds and stays float32."""
        if x.dtype == dtype:
            return x
        return self._append("cast", (x,), _widened(dtype), x.axes, (dtype,))

    def reduce(self, name: str, x: KernelValue, axes: Iterable[int] | None = None) -> KernelValue:
        """A reduction of `REDUCTIONS`; all reductions of one kernel are over the same axes."""
        over = self._axes(axes)
        if name not in REDUCTIONS:
            raise Unsupported(f"reduction {name!r}; there are {', '.join(REDUCTIONS)}")
        if self.reduced and self.reduced != over:
            raise ShapeError(
                f"{name}: over axes {over}, but the kernel already reduces over {self.reduced}; "
                "use a second kernel"
            )
        value = self._append(name, (x,), x.dtype, tuple(a for a in x.axes if a not in over), over)
        self.reduced = over
        return value

    def mean(self, x: KernelValue, axes: Iterable[int] | None = None) -> KernelValue:
        """The sum divided by the number of positions."""
        over = self._axes(axes)
        return self.reduce("sum", x, over) / self.cast(self.size(over), x.dtype)

    def argmax(self, x: KernelValue, axis: int) -> KernelValue:
        """The position of the first greatest element, int64; the first NaN where there is one."""
        return self._argument("max", x, axis)

    def argmin(self, x: KernelValue, axis: int) -> KernelValue:
        """The position of the first smallest element, int64; the first NaN where there is one."""
        return self._argument("min", x, axis)

    def _argument(self, name: str, x: KernelValue, axis: int) -> KernelValue:
        (axis,) = self._axes((axis,))
        best = self.eq(x, self.reduce(name, x, (axis,)))
        if x.dtype in FLOATS:
            best = best | self.isnan(x)
        candidates = self.where(best, self.index(axis), self.size((axis,)))
        return self.reduce("min", candidates, (axis,))

    def output(
        self, value: KernelValue, dtype: str | None = None, full: bool | None = None
    ) -> Output:
        """Writes a value, to memory of `dtype` (its own, if None).

        A value that varies over a reduced axis is written over the whole space, another over the
        kept axes only, unless `full`.
        """
        everywhere = tuple(range(self.rank))
        kept = tuple(a for a in everywhere if a not in self.reduced)
        varies = not self.reduced or any(a in self.reduced for a in value.axes)
        axes = everywhere if varies or full else kept
        output = Output(value, dtype or value.dtype, axes)
        _check_output(self, output)
        self.outputs.append(output)
        self._key = None
        return output

    def close(self) -> None:
        """Keep nothing by which values that are appended would be found to be there already: that
        is as much memory as the values.
        """
        self._known.clear()

    # What others read ----------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """A text that is equal for kernels of equal structure."""
        if self._key is None:
            self._key = str(self)
        return self._key

    def live(self) -> list[KernelValue]:
        """The values that the outputs need, inputs first used first."""
        wanted = {o.value.number for o in self.outputs}
        for value in reversed(self.values):
            if value.number in wanted:
                wanted.update(x.number for x in value.inputs)
        return [v for v in self.values if v.number in wanted]

    def __str__(self) -> str:
        lines = [f"kernel rank={self.rank}", *(f"  {v!r}" for v in self.values)]
        lines += [f"  output %{o.value.number} {o.dtype} {o.axes}" for o in self.outputs]
        return "\n".join(lines)

    # Construction --------------------------------------------------------------------------------

    def _axes(self, axes: Iterable[int] | None) -> tuple[int, ...]:
        if axes is None:
            return tuple(range(self.rank))
        given = tuple(axes)
        normal = tuple(sorted(a + self.rank if a < 0 else a for a in given))
        if len(set(normal)) != len(normal) or any(not 0 <= a < self.rank for a in normal):
            raise ShapeError(f"axes {given} of a kernel of rank {self.rank}")
        return normal

    def _operands(
        self, name: str, operands: Iterable[KernelValue | Number]
    ) -> tuple[KernelValue, ...]:
        operands = tuple(operands)
        dtype = next((x.dtype for x in operands if isinstance(x, KernelValue)), None)
        if dtype is None:
            raise DTypeError(f"{name}: no operand is a kernel value")
        return tuple(x if isinstance(x, KernelValue) else self.const(x, dtype) for x in operands)

    def _append(
        self,
        op: str,
        inputs: tuple[KernelValue, ...],
        dtype: str,
        axes: tuple[int, ...],
        attr: Any = None,
    ) -> KernelValue:
        sign = math.copysign(1, attr) if isinstance(attr, float) else 1  # -0.0 == 0.0
        known = (op, tuple(x.number for x in inputs), dtype, axes, repr(attr), sign)
        if known in self._known and all(x.kernel is self for x in inputs):
            return self._known[known]
        value = KernelValue(self, len(self.values), op, inputs, dtype, axes, attr)
        _check(value)
        self.values.append(value)
        self._known[known] = value
        self._key = None
        return value


def verify(kernel: Kernel) -> None:
    """Checks a whole kernel, as construction checks each value.

    Errors: DTypeError, ShapeError, InvalidArgument or Unsupported, naming the value.
    """
    reductions = {v.attr for v in kernel.values if v.op in REDUCTIONS}
    if reductions - {kernel.reduced}:
        raise ShapeError(f"kernel: reductions over {sorted(reductions)}, not {kernel.reduced}")
    for number, value in enumerate(kernel.values):
        if value.number != number:
            raise InvalidArgument(f"{value!r}: it is value {number} of its kernel")
        _check(value)
        for x in value.inputs:
            if x.number >= number or kernel.values[x.number] is not x:
                raise InvalidArgument(f"{value!r}: %{x.number} does not come before it")
    if not kernel.outputs:
        raise InvalidArgument("kernel: no outputs")
    for output in kernel.outputs:
        _check_output(kernel, output)


def _check_output(kernel: Kernel, output: Output) -> None:
    value, dtype, axes = output
    if value.kernel is not kernel:
        raise InvalidArgument(f"output {value!r}: a value of another kernel")
    if dtype not in STORAGE or _widened(dtype) != value.dtype:
        raise DTypeError(f"output {value!r} as {dtype}: cast it first")
    everywhere = tuple(range(kernel.rank))
    kept = tuple(a for a in everywhere if a not in kernel.reduced)
    if axes != everywhere and axes != kept:
        raise ShapeError(f"output {value!r} over {axes}: neither all axes nor those kept, {kept}")
    if any(a not in axes for a in value.axes):
        raise ShapeError(f"output {value!r} over {axes}: it varies over other axes")


def _check(value: KernelValue) -> None:
    """Raises unless the value follows from its inputs by the rule of its op."""
    op, inputs, kernel = value.op, value.inputs, value.kernel
    if any(x.kernel is not kernel for x in inputs):
        raise InvalidArgument(f"{value!r}: an operand belongs to another kernel")
    if value.dtype not in DTYPES:
        raise DTypeError(f"{value!r}: dtype {value.dtype!r}; there are {', '.join(DTYPES)}")
    if any(not 0 <= a < kernel.rank for a in value.axes):
        raise ShapeError(f"{value!r}: axes {value.axes} in a kernel of rank {kernel.rank}")
    dtypes = tuple(x.dtype for x in inputs)
    axes = _union(inputs)
    result = value.dtype
    if op in OPS:
        rule = OPS[op]
        if len(inputs) != rule.arity:
            raise InvalidArgument(f"{value!r}: takes {rule.arity} operands, not {len(inputs)}")
        if len(set(dtypes)) > 1:
            raise DTypeError(f"{value!r}: operands are {', '.join(dtypes)}; cast one")
        if dtypes[0] not in rule.dtypes:
            raise DTypeError(f"{value!r}: takes {', '.join(rule.dtypes)}, not {dtypes[0]}")
        result = rule.result or dtypes[0]
    elif op in REDUCTIONS:
        if len(inputs) != 1 or not isinstance(value.attr, tuple) or not value.attr:
            raise InvalidArgument(f"{value!r}: takes one operand and the axes to reduce")
        if any(not 0 <= a < kernel.rank for a in value.attr):
            raise ShapeError(f"{value!r}: in a kernel of rank {kernel.rank}")
        if dtypes[0] not in REDUCTIONS[op]:
            raise DTypeError(f"{value!r}: takes {', '.join(REDUCTIONS[op])}, not {dtypes[0]}")
        result, axes = dtypes[0], tuple(a for a in axes if a not in value.attr)
    elif op == "where":
        if len(inputs) != 3:
            raise InvalidArgument(f"{value!r}: takes 3 operands, not {len(inputs)}")
        if dtypes[0] != "bool" or dtypes[1] != dtypes[2]:
            raise DTypeError(f"{value!r}: operands are {', '.join(dtypes)}")
        result = dtypes[1]
    elif op == "cast":
        if len(inputs) != 1 or value.attr[0] not in STORAGE:
            raise DTypeError(f"{value!r}: casts one value to one of {', '.join(STORAGE)}")
        result = _widened(value.attr[0])
    elif op == "input":
        if value.attr[1] not in STORAGE:
            raise DTypeError(f"{value!r}: dtype {value.attr[1]!r}; there are {', '.join(STORAGE)}")
        result, axes = _widened(value.attr[1]), value.axes
    elif op == "index":
        result, axes = "int64", value.attr
    elif op == "size":
        result = "int64"
    elif op == "random":
        if dtypes != ("uint64", "uint64") or axes:
            raise DTypeError(f"{value!r}: takes two uint64 that are the same everywhere")
        result, axes = "uint32", value.axes
    elif op == "const":
        _constant(value.attr, value.dtype)
    elif op != "scalar":
        raise Unsupported(f"{value!r}: no such op")
    if result != value.dtype:
        raise DTypeError(f"{value!r}: its operands give {result}")
    if axes != value.axes:
        raise ShapeError(f"{value!r}: its operands vary over {axes}")


def _widened(dtype: str) -> str:
    return "float32" if dtype in NARROW else dtype


def _union(values: Iterable[KernelValue]) -> tuple[int, ...]:
    return tuple(sorted({a for v in values for a in v.axes}))


def _constant(value: Number, dtype: str) -> Number:
    """The number as the dtype holds it."""
    if dtype == "bool":
        return bool(value)
    if dtype in FLOATS:
        return float(value)
    if dtype not in INTEGERS:
        raise DTypeError(f"constant {value!r}: dtype {dtype!r}; there are {', '.join(DTYPES)}")
    bits = 8 * ITEMSIZE[dtype]
    low, high = (-(1 << bits - 1), 1 << bits - 1) if dtype in SIGNED else (0, 1 << bits)
    if value != int(value) or not low <= value < high:
        raise DTypeError(f"constant {value!r} does not fit {dtype}")
    return int(value)


def _literal(value: Number) -> str:
    return value.hex() if isinstance(value, float) else str(value)
