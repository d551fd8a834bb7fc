"""Elementary functions of vectors, as polynomials in LLVM IR.

Each function is written once for both float dtypes unless they need different ways. `HOW` says for
each dtype which way is taken: "here" (in that precision), "float64" (float32 computed in float64
and rounded once) or "libm" (the C library, lane by lane). sin, cos and tan call the C library for
the lanes whose arguments are too large for a reduction in three steps.

Sources: Muller, Elementary Functions, 2016 (reductions); Cody and Waite, 1980; fdlibm (the
correction terms of log1p and the logarithms to other bases); the coefficients are our own, see
coefficients.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .coefficients import fitted
from .emit import FunctionBody, Module, Operand, Reg, literal, suffix, type_name
from .ir import MATHS

__all__ = ["HOW", "evaluate", "inverse_root", "libm", "root"]


class Limits(NamedTuple):
    """Arguments in a floating-point format at which functions take another way."""

    exp_low: float  # below it exp gives 0
    exp_high: float  # above it infinity, yet 2**(n - 1) is finite
    tanh_high: float  # above it tanh is 1
    huge_angle: float  # above it the reduction in three steps is inexact


class Format(NamedTuple):
    """The constants of a floating-point format that the functions need."""

    bits: int
    mantissa: int
    integer: str
    ln2: tuple[float, float]  # a head whose product with an exponent is exact, and the rest
    half_pi: tuple[float, float, float]
    smallest_normal: float
    magic: float  # added and subtracted, it rounds to an integer, left in the low bits
    limits: Limits


FORMATS = {
    "float": Format(
        32, 23, "i32", (0.693359375, -0.00021219444005469057),
        (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        2.0**-126, 1.5 * 2.0**23, Limits(-104.0, 89.0, 10.0, 40000.0),
    ),
    "double": Format(
        64, 52, "i64", (0.6931471803691238, 1.9082149292705877e-10),
        (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        2.0**-1022, 1.5 * 2.0**52, Limits(-746.0, 710.0, 20.0, 1e6),
    ),
}  # fmt: skip

LIBM = {"double": {"erf", "erfc", "asinh", "acosh", "atanh", "pow"}, "float": set()}
WIDE = {"asinh", "acosh"}  # float32 in float64
NAMES = [*MATHS, "pow", "atan2"]


def _how(name: str, dtype: str) -> str:
    if name in LIBM["float" if dtype == "float32" else "double"]:
        return "libm"
    return "float64" if dtype == "float32" and name in WIDE else "here"


HOW = {(name, dtype): _how(name, dtype) for name in NAMES for dtype in ("float32", "float64")}


def evaluate(b: FunctionBody, name: str, *args: Reg) -> Reg:
    """A function of `NAMES`, by a call of a function of the module that LLVM will inline."""
    x = args[0]
    symbol = f"{name}.{suffix(x.elem, x.lanes)}"
    if symbol not in b.module.functions:
        b.module.functions[symbol] = ""  # not again while it is being made
        _define(b.module, symbol, name, [(a.elem, a.lanes) for a in args])
    return b.call(symbol, x.elem, x.lanes, list(args))


LONG = 7  # terms of a polynomial from which even and odd powers are summed apart
_texts: dict[tuple[str, bool], tuple[dict[str, str], dict[str, str]]] = {}


def _define(module: Module, symbol: str, name: str, types: list[tuple[str, int]]) -> None:
    """Adds a function and its dependencies to a module; its text is made once a process."""
    key = (symbol, module.scalef)
    if key not in _texts:
        alone = Module(scalef=module.scalef)
        alone.functions[symbol] = ""
        b = FunctionBody(alone)
        args = [Reg(b, elem, lanes, f"%a{i}") for i, (elem, lanes) in enumerate(types)]
        elem, lanes = types[0]
        if name in LIBM[elem]:
            result = libm(b, name, args)
        elif elem == "float" and name in WIDE:
            wide = [b.convert("fpext", a, "double") for a in args]
            result = b.convert("fptrunc", FUNCTIONS[name](b, *wide), "float")
        else:
            result = FUNCTIONS[name](b, *args)
        parameters = ", ".join(f"{a.type} {a.ref}" for a in args)
        header = f"internal {type_name(elem, lanes)} @{symbol}({parameters})"
        alone.functions[symbol] = b.function(header, result, "alwaysinline")
        _texts[key] = (alone.functions, alone.declarations)
    functions, declarations = _texts[key]
    module.functions.update(functions)
    module.declarations.update(declarations)


def libm(
    b: FunctionBody, name: str, args: list[Reg], mask: Reg | None = None, other: Reg | None = None
) -> Reg:
    """The C library's function in the lanes of the mask (all, if None), `other` in the rest."""
    x = args[0]
    function = name + ("f" if x.elem == "float" else "")
    b.module.declare(function, x.elem, [x.elem] * len(args))
    symbol = f"lanes.{name}.{suffix(x.elem, x.lanes)}"
    mask = mask or b.const("i1", 1, x.lanes)
    other = other or x
    if symbol not in b.module.functions:
        inner = FunctionBody(b.module)
        given = [Reg(inner, a.elem, a.lanes, f"%a{i}") for i, a in enumerate([*args, mask, other])]
        result = inner.alloca(x.elem, x.lanes, given[-1])
        with inner.loop(0, inner.const("i64", x.lanes)) as i, inner.when(inner.lane(given[-2], i)):
            y = inner.call(function, x.elem, 0, [inner.lane(a, i) for a in given[: len(args)]])
            old = inner.get(result)
            text = f"insertelement {x.type} {old.ref}, {x.elem} {y.ref}, i64 {i.ref}"
            inner.put(result, inner.emit(x.elem, x.lanes, text))
        parameters = ", ".join(f"{a.type} {a.ref}" for a in given)
        header = f"internal {x.type} @{symbol}({parameters})"
        b.module.functions[symbol] = inner.function(header, inner.get(result), "noinline cold")
    return b.call(symbol, x.elem, x.lanes, [*args, mask, other])


# Pieces ------------------------------------------------------------------------------------------


def poly(b: FunctionBody, x: Reg, name: str, start: int = 0) -> Reg:
    """The polynomial with the coefficients of that name for x's format, from the one on: even and
    odd powers apart if they are many, so that instructions wait for half as many others.
    """
    c = fitted(f"{name}_{FORMATS[x.elem].bits}")[start:]
    if len(c) < LONG:
        return _horner(b, x, c)
    square = x * x
    return b.fma(_horner(b, square, c[1::2]), x, _horner(b, square, c[::2]))


def _horner(b: FunctionBody, x: Reg, c: Sequence[Operand]) -> Reg:
    y = b.like(x, c[-1])
    for term in reversed(c[:-1]):
        y = b.fma(y, x, term)
    return y


def scale(b: FunctionBody, y: Reg, n: Reg) -> Reg:
    """y * 2**n for integral n of moderate size, right also where the result is subnormal: which
    takes twenty times as long, so what is to be 0 in the end should come here as something else.
    """
    form = FORMATS[y.elem]
    if b.module.scalef and y.lanes * form.bits == 512:
        return _avx512(b, "scalef", y, n)
    if b.module.scalef and y.lanes * form.bits == 1024:
        low, high = (scale(b, *pair) for pair in zip(b.halves(y), b.halves(n), strict=True))
        return b.join(low, high)
    whole = b.convert("fptosi", n, form.integer)
    half = b.binary("ashr", whole, 1)
    for part in (half, whole - half):
        bits = b.binary("shl", part + ((1 << form.bits - form.mantissa - 2) - 1), form.mantissa)
        y = y * b.convert("bitcast", bits, y.elem)
    return y


def scale_normal(b: FunctionBody, y: Reg, n: Reg) -> Reg:
    """y * 2**n where y and the result are normal numbers: n is added to the exponent."""
    if b.module.scalef:
        return scale(b, y, n)
    form = FORMATS[y.elem]
    whole = b.convert("fptosi", n, form.integer)
    bits = b.convert("bitcast", y, form.integer) + b.binary("shl", whole, form.mantissa)
    return b.convert("bitcast", bits, y.elem)


def wanted(b: FunctionBody, some: Reg, x: Reg) -> Reg:
    """x where its result is wanted, else something harmless. AVX-512 scales in those lanes alone,
    if the select comes right after.
    """
    return x if b.module.scalef else b.select(some, x, 0.0)


def _short(b: FunctionBody, name: str, x: Reg) -> Reg:
    """x86's reciprocals (of the root) to 14 bits."""
    full = f"llvm.x86.avx512.{name}14.ps.512"
    b.module.declare(full, x.type, [x.type, x.type, "i16"])
    return b.call(full, x.elem, x.lanes, [x, x, b.const("i16", -1)])


def _has_short(b: FunctionBody, x: Reg) -> bool:
    return b.module.scalef and x.elem == "float" and x.lanes == 16


def root(b: FunctionBody, x: Reg) -> Reg:
    """The square root, correctly rounded: x86's instruction takes longer than its approximation,
    one step towards the root and half its inverse, and one towards the root with an exact residual.
    """
    if not _has_short(b, x):
        return b.intrinsic("sqrt", x)
    y = _short(b, "rsqrt", x)
    g, h = x * y, y * 0.5
    error = b.fma(-g, h, 0.5)
    g, h = b.fma(g, error, g), b.fma(h, error, h)
    return _usual_root(b, x, b.fma(b.fma(-g, g, x), h, g), lambda: b.intrinsic("sqrt", x))


def inverse_root(b: FunctionBody, x: Reg) -> Reg:
    """1 / sqrt(x) to about one unit."""
    if not _has_short(b, x):
        return 1.0 / b.intrinsic("sqrt", x)
    y = _short(b, "rsqrt", x)
    g = x * y
    error = b.fma(-g, y, 1.0)
    error = b.fma(-y, b.fma(x, y, -g), error)
    y = b.fma(y * error, b.fma(error, 0.375, 0.5), y)
    return _usual_root(b, x, y, lambda: 1.0 / b.intrinsic("sqrt", x))


def _usual_root(b: FunctionBody, x: Reg, y: Reg, exact: Callable[[], Reg]) -> Reg:
    """y, corrected where x is negative, tiny or infinite, if there are such lanes."""
    usual = (x >= 2.0**-100) & (x < math.inf)
    result = b.alloca(x.elem, x.lanes, y)
    with b.when(b.any(~usual)):
        b.put(result, b.select(usual, y, exact()))
    return b.get(result)


def inverse(b: FunctionBody, x: Reg, rest: Reg | None = None) -> Reg:
    """1 / (x + rest) to about one unit, for x well inside the range; quicker than a division."""
    if not _has_short(b, x):
        y = 1.0 / x
        return y if rest is None else b.fma(y * rest, -y, y)
    y = _short(b, "rcp", x)
    error = b.fma(-x, y, 1.0)
    return b.fma(y, error if rest is None else b.fma(-rest, y, error), y)


def fabs(b: FunctionBody, x: Reg) -> Reg:
    return b.intrinsic("fabs", x)


def copysign(b: FunctionBody, x: Reg, sign: Reg) -> Reg:
    return b.intrinsic("copysign", x, sign)


def at_least(b: FunctionBody, x: Reg, low: float) -> Reg:
    """max(x, low); NaN stays NaN."""
    return b.select(x < low, low, x)


def at_most(b: FunctionBody, x: Reg, high: float) -> Reg:
    """min(x, high); NaN stays NaN."""
    return b.select(x > high, high, x)


def whole_part(b: FunctionBody, x: Reg, factor: float) -> Reg:
    """x * factor rounded to an integer, for a product of moderate size."""
    magic = FORMATS[x.elem].magic
    return b.fma(x, factor, b.const(x.elem, magic, x.lanes)) - magic


def reduced_exp(b: FunctionBody, x: Reg) -> tuple[Reg, Reg]:
    """n and r with exp(x) = 2**n * exp(r), |r| at most half log(2), for x of moderate size."""
    head, tail = FORMATS[x.elem].ln2
    n = whole_part(b, x, 1 / math.log(2))
    return n, b.fma(n, -tail, b.fma(n, -head, x))


def short_exp(b: FunctionBody, r: Reg) -> Reg:
    """exp(r) for small r."""
    return b.fma(b.fma(poly(b, r, "EXP"), r, 1.0), r, 1.0)


def short_expm1(b: FunctionBody, r: Reg) -> Reg:
    """exp(r) - 1 for small r."""
    return b.fma(r * r, poly(b, r, "EXP"), r)


def split(b: FunctionBody, x: Reg) -> tuple[Reg, Reg]:
    """n and f with x = 2**n * (1 + f), 1 + f from 3/4 to 3/2. Where x is 0 or infinite, n is
    -inf or inf; where it is negative or NaN, f is NaN.
    """
    form = FORMATS[x.elem]
    if b.module.scalef and x.lanes * form.bits in (512, 1024):
        one = _avx512(b, "getmant", x, b.const("i32", 15))
        return _avx512(b, "getexp", x) - _avx512(b, "getexp", one), one - 1.0
    small = x < form.smallest_normal
    shift = form.mantissa + 2
    bits = b.convert("bitcast", b.select(small, x * 2.0**shift, x), form.integer)
    low = 0x3F400000 if form.bits == 32 else 0x3FE8000000000000  # 3/4
    whole = b.binary("ashr", bits - low, form.mantissa)
    f = b.convert("bitcast", bits - b.binary("shl", whole, form.mantissa), x.elem) - 1.0
    n = b.convert("sitofp", whole, x.elem)
    n = n - b.select(small, b.const(x.elem, shift, x.lanes), 0.0)
    n = b.select(b.compare("eq", x, 0.0), -math.inf, b.select(x < math.inf, n, math.inf))
    return n, b.select(x >= 0.0, f, math.nan)


def _avx512(b: FunctionBody, name: str, x: Reg, *more: Reg) -> Reg:
    """One of x86's masked vector instructions with a rounding operand, in all lanes."""
    if x.lanes * FORMATS[x.elem].bits == 1024:
        low, high = (_avx512(b, name, half, *more) for half in b.halves(x))
        return b.join(low, high)
    short, mask = ("ps", "i16") if x.elem == "float" else ("pd", "i8")
    full = f"llvm.x86.avx512.mask.{name}.{short}.512"
    args = [x, *more, x, b.const(mask, -1), b.const("i32", 4)]
    b.module.declare(full, x.type, [a.type for a in args])
    return b.call(full, x.elem, x.lanes, args)


def can_look_up(b: FunctionBody, x: Reg) -> bool:
    """Whether `lookup` is at hand for float32 vectors like x."""
    return b.module.scalef and x.elem == "float" and x.lanes in (16, 32)


def lookup(b: FunctionBody, place: Reg, table: Sequence[float]) -> Reg:
    """The numbers at places in a table of 32, which two AVX-512 registers hold; of a place, the
    lowest five bits count.
    """
    if place.lanes == 32:
        low, high = (lookup(b, half, table) for half in b.halves(place))
        return b.join(low, high)
    parts = []
    for part in (table[:16], table[16:]):
        numbers = ", ".join(f"float {literal('float', v)}" for v in part)
        parts.append(Reg(b, "float", 16, f"<{numbers}>"))
    name = "llvm.x86.avx512.vpermi2var.ps.512"
    b.module.declare(name, parts[0].type, [parts[0].type, place.type, parts[0].type])
    return b.call(name, "float", 16, [parts[0], place, parts[1]])


def near_quarter(
    b: FunctionBody, a: Reg, table: Sequence[Sequence[float]]
) -> tuple[Reg, Reg, Sequence[Reg]]:
    """a less the middle of its quarter of an octave, or all of a below 5/64; and the coefficients
    there: the first, and the others. For a below 16.
    """
    bits = b.convert("bitcast", at_least(b, a, 0.0625), "i32")
    quarter = b.binary("lshr", bits, 21)
    first, *others = [lookup(b, quarter, numbers) for numbers in table]
    return a - lookup(b, quarter, fitted("QUARTERS_32")), first, others


def log_tail(b: FunctionBody, f: Reg, half_square: Reg) -> Reg:
    """t with log(1 + f) = f - half_square + t, half_square being f**2 / 2, in float64."""
    s = f / (f + 2.0)
    z = s * s
    return s * b.fma(z, poly(b, z, "LOG"), half_square)


def log_domain(b: FunctionBody, x: Reg, y: Reg) -> Reg:
    """y, corrected where x is 0, negative, infinite or NaN."""
    y = b.select(x < math.inf, y, x)
    y = b.select(b.compare("eq", x, 0.0), -math.inf, y)
    return b.select(x < 0.0, math.nan, y)


def sine_cosine(b: FunctionBody, x: Reg) -> tuple[Reg, Reg, Reg]:
    """sin and cos of x less q quarter turns, and q (its low bits)."""
    form = FORMATS[x.elem]
    q, r = reduced_angle(b, x)
    z = r * r
    s = b.fma(r * z, poly(b, z, "SIN"), r)
    c = b.fma(z * z, poly(b, z, "COS"), b.fma(z, -0.5, 1.0))
    assert q.elem == form.integer
    return s, c, q


def reduced_angle(b: FunctionBody, x: Reg) -> tuple[Reg, Reg]:
    form = FORMATS[x.elem]
    shifted = b.fma(x, 2 / math.pi, b.const(x.elem, form.magic, x.lanes))
    q = b.convert("bitcast", shifted, form.integer)
    n = shifted - form.magic
    r = x
    for part in form.half_pi:
        r = b.fma(n, -part, r)
    return q, r


def negate_if(b: FunctionBody, y: Reg, bits: Reg) -> Reg:
    """-y where bit 1 of the integer is set."""
    form = FORMATS[y.elem]
    sign = b.binary("shl", bits & 2, form.bits - 2)
    return b.convert("bitcast", b.convert("bitcast", y, form.integer) ^ sign, y.elem)


def with_huge(b: FunctionBody, name: str, x: Reg, y: Reg) -> Reg:
    """y, or the C library's result in the lanes where x is huge."""
    huge = fabs(b, x) > FORMATS[x.elem].limits.huge_angle
    result = b.alloca(x.elem, x.lanes, y)
    with b.when(b.any(huge)):
        b.put(result, libm(b, name, [x], huge, y))
    return b.get(result)


# Functions ---------------------------------------------------------------------------------------


def exp(b: FunctionBody, x: Reg) -> Reg:
    form = FORMATS[x.elem]
    some = b.compare("uge", x, form.limits.exp_low)
    n, r = reduced_exp(b, at_most(b, wanted(b, some, x), form.limits.exp_high))
    return b.select(some, scale(b, short_exp(b, r), n), 0.0)


def exp2(b: FunctionBody, x: Reg) -> Reg:
    form = FORMATS[x.elem]
    some = b.compare("uge", x, form.limits.exp_low * 1.5)
    x = at_most(b, wanted(b, some, x), form.limits.exp_high * 1.5)
    n = b.intrinsic("rint", x)
    return b.select(some, scale(b, short_exp(b, (x - n) * math.log(2)), n), 0.0)


def expm1(b: FunctionBody, x: Reg) -> Reg:
    form = FORMATS[x.elem]
    low = -4 * form.limits.tanh_high  # where the result has long been -1
    n, r = reduced_exp(b, at_most(b, at_least(b, x, low), form.limits.exp_high))
    power = scale_normal(b, b.const(x.elem, 0.5, x.lanes), n)
    y = b.fma(power, short_expm1(b, r), power - 0.5) * 2.0
    return copysign(b, y, x)


def log(b: FunctionBody, x: Reg) -> Reg:
    return _log(b, *split(b, x), None)


def _log(b: FunctionBody, n: Reg, f: Reg, c: Reg | None) -> Reg:
    """n log 2 + log(1 + f) + c."""
    if f.elem == "float":  # whose log(2) is better by chance than a format half as long again
        square, p = f * f, poly(b, f, "LOG")
        rest = b.fma(square, p, f) if c is None else b.fma(square, p, c) + f
        return b.fma(n, math.log(2), rest)
    head, tail = FORMATS[f.elem].ln2
    half_square = f * f * 0.5
    low = b.fma(n, tail, log_tail(b, f, half_square))
    if c is not None:
        low = low + c
    return b.fma(n, head, f - (half_square - low))


def log1p(b: FunctionBody, x: Reg) -> Reg:
    u = x + 1.0
    n, f = split(b, u)
    lost = b.select(x > 1.0, 1.0 - (u - x), x - (u - 1.0)) / u
    near = b.compare("eq", n, 0.0)
    y = _log(b, n, b.select(near, x, f), b.select(near, 0.0, lost))
    return copysign(b, log_domain(b, u, y), x)


def _log_base(
    b: FunctionBody, x: Reg, factor: tuple[float, float], power: tuple[float, float]
) -> Reg:
    """log(x) * factor, for log(2) * factor = power; both given as head and tail, in float64."""
    n, f = split(b, x)
    half_square = f * f * 0.5
    lost = b.fma(f * 0.5, f, -half_square)
    head = f - half_square
    tail = (f - head) - half_square + (log_tail(b, f, half_square) - lost)
    product = head * factor[0]
    low = b.fma(head, factor[0], -product) + b.fma(head, factor[1], tail * factor[0])
    whole = n * power[0]
    total = whole + product
    low = low + b.fma(n, power[1], (whole - total) + product)
    return log_domain(b, x, total + low)


def log2(b: FunctionBody, x: Reg) -> Reg:
    if x.elem == "float":
        n, f = split(b, x)
        return b.fma(b.fma(f * f, poly(b, f, "LOG"), f), 1 / math.log(2), n)
    factor = (1.4426950408889634, 2.0355273740931033e-17)
    return _log_base(b, x, factor, (1.0, 0.0))


def log10(b: FunctionBody, x: Reg) -> Reg:
    if x.elem == "float":
        n, f = split(b, x)
        square, p = f * f, poly(b, f, "LOG")
        near = b.fma(square, p, f)
        product = near * 0.4342944920063019
        low = b.fma(near, 0.4342944920063019, -product)
        low = b.fma(b.fma(square, p, f - near), 0.4342944920063019, low)
        low = b.fma(n, 4.605039066518657e-06, b.fma(near, -1.0103049952192578e-08, low))
        return b.fma(n, 0.301025390625, product) + low
    factor = (0.4342944819032518, 1.098319650216765e-17)
    return _log_base(b, x, factor, (0.3010299955494702, 1.1451100898021838e-10))


def tanh(b: FunctionBody, x: Reg) -> Reg:
    """A polynomial near the middle of a quarter of an octave, where registers hold the coefficients
    of all; else one near 0, or 1 - 2 / (exp(2|x|) + 1), where errors of exp matter less.
    """
    if can_look_up(b, x):
        a = at_most(b, fabs(b, x), 9.5)  # of which tanh is 1
        t, first, others = near_quarter(b, a, fitted("TANH_TABLE_32"))
        first = b.select(a < 0.078125, t, first)
        return copysign(b, b.fma(_horner(b, t, others), t, first), x)
    a = at_most(b, fabs(b, x), FORMATS[x.elem].limits.tanh_high)
    n = whole_part(b, a, 2 / math.log(2))
    r = b.fma(n, -math.log(2) / 2, a)
    e = scale_normal(b, b.fma(b.fma(poly(b, r, "TANH_EXP"), r, 2.0), r, 1.0), n)
    far = b.fma(inverse(b, e + 1.0), -2.0, 1.0)
    z = a * a
    near = b.fma(a * z, poly(b, z, "TANH"), a)
    return copysign(b, b.select(a < 0.56, near, far), x)


def sigmoid(b: FunctionBody, x: Reg) -> Reg:
    """2**-n / (2**-n + exp(r)), where exp(-x) = 2**n exp(r)."""
    form = FORMATS[x.elem]
    none = x < form.limits.exp_low
    a = at_least(b, b.select(none, 0.0, -x), -2 * form.limits.tanh_high)
    n, r = reduced_exp(b, a)
    least = 1.0 + math.frexp(form.smallest_normal)[1]  # below it the power is nothing beside 1
    power = scale_normal(b, b.const(x.elem, 1.0, x.lanes), at_least(b, -n, least))
    small = b.fma(r * r, poly(b, r, "EXP"), r) + at_most(b, power, 1.0)
    large = at_least(b, power, 1.0)
    below = small + large
    return b.select(none, 0.0, scale(b, inverse(b, below, small - (below - large)), -n))


def erf(b: FunctionBody, x: Reg) -> Reg:
    """A polynomial near a multiple of 1/8, where registers hold the coefficients of all; else one
    near 0, or 1 - erfc(|x|), of whose logarithm to base 2 there is one.
    """
    magic = FORMATS[x.elem].magic
    if can_look_up(b, x):
        a = at_most(b, fabs(b, x), 3.93)  # of which erf is 1
        shifted = b.fma(a, 8.0, magic)
        t = b.fma(shifted - magic, -0.125, a)
        eighths = b.convert("bitcast", shifted, "i32")
        first, *others = [lookup(b, eighths, c) for c in fitted("ERF_TABLE_32")]
        first = b.select(a <= 0.0625, t, first)
        return copysign(b, b.fma(_horner(b, t, others), t, first), x)
    a = at_most(b, fabs(b, x), 4.0)
    near = b.fma(a, poly(b, a * a, "ERF_SMALL"), a)
    power = poly(b, a, "ERF_LARGE")
    n = (power + magic) - magic
    far = 1.0 - scale_normal(b, poly(b, power - n, "EXP2"), n)
    return copysign(b, b.select(a < 0.925, near, far), x)


def erfc(b: FunctionBody, x: Reg) -> Reg:
    """1 - erf(x) in float32: for a = |x|, exp(-a**2) times a polynomial near the middle of a
    quarter of an octave, or one in (a - 2) / (a + 2), over a + 2; most rounding errors are made
    good.
    """
    head, tail = FORMATS[x.elem].ln2
    a = at_most(b, fabs(b, x), 10.5)
    if can_look_up(b, x):
        t, c, others = near_quarter(b, a, fitted("ERFCX_TABLE_32"))
        q = _horner(b, t, others)
        y = b.fma(q, t, c)
        rest = b.fma(q, t, c - y)
    else:
        below = a + 2.0
        u = inverse(b, below)
        error = b.fma(-u, a - (below - 2.0), b.fma(-u, below, 1.0))
        t = (a - 2.0) * b.fma(u, error, u)
        q, first = poly(b, t, "ERFC", 1), fitted("ERFC_32")[0]
        p = b.fma(q, t, first)
        y = p * u
        rest = b.fma(b.fma(q, t, first - p), u, b.fma(y, error, b.fma(p, u, -y)))
    square = a * a
    n = whole_part(b, square, -1 / math.log(2))
    above = b.fma(n, -head, -square)
    below = b.fma(n, -tail, b.fma(-a, a, square))
    r = above + below
    m = r + b.fma(r * r, poly(b, r, "EXP"), below - (r - above))  # exp(-a**2) / 2**n - 1
    y = y + b.fma(m, y, b.fma(m, rest, rest))
    some = b.compare("ule", a, 10.06)
    y = b.select(some, scale(b, y, wanted(b, some, n)), 0.0)
    return b.select(x < 0.0, 2.0 - y, y)


def sin(b: FunctionBody, x: Reg) -> Reg:
    s, c, q = sine_cosine(b, x)
    y = negate_if(b, b.select(b.compare("ne", q & 1, 0), c, s), q)
    return with_huge(b, "sin", x, b.select(b.compare("eq", x, 0.0), x, y))


def cos(b: FunctionBody, x: Reg) -> Reg:
    s, c, q = sine_cosine(b, x)
    y = negate_if(b, b.select(b.compare("ne", q & 1, 0), s, c), q + 1)
    return with_huge(b, "cos", x, y)


def tan(b: FunctionBody, x: Reg) -> Reg:
    if x.elem == "float":
        y, odd = short_tan(b, x)
        y = b.select(odd, -inverse(b, y), y)
    else:
        s, c, q = sine_cosine(b, x)
        odd = b.compare("ne", q & 1, 0)
        y = b.select(odd, -c, s) / b.select(odd, s, c)
    return with_huge(b, "tan", x, b.select(b.compare("eq", x, 0.0), x, y))


def short_tan(b: FunctionBody, x: Reg) -> tuple[Reg, Reg]:
    """tan of x less q quarter turns, and whether q is odd, in float32."""
    first, second, third = FORMATS[x.elem].half_pi
    shifted = b.fma(x, 2 / math.pi, b.const(x.elem, FORMATS[x.elem].magic, x.lanes))
    n = shifted - FORMATS[x.elem].magic
    above = b.fma(n, -first, x)
    product = n * second
    r = above - product
    moved = r - above
    lost = (above - (r - moved)) - (product + moved) - b.fma(n, second, -product)
    lost = b.fma(n, -third, lost)
    z = r * r
    tail = r * z * poly(b, z, "TAN")
    y = r + tail
    return r + (tail + b.fma(y * y, lost, lost)), b.compare(
        "ne", b.convert("bitcast", shifted, "i32") & 1, 0
    )


def atan(b: FunctionBody, x: Reg) -> Reg:
    head, tail = FORMATS[x.elem].half_pi[:2]
    a = fabs(b, x)
    if x.elem == "float":
        far = a > 1.0
        t = b.select(far, 1.0 / a, a)
        z = t * t
        y = b.fma(t * z, poly(b, z, "ATAN"), t)
        return copysign(b, b.select(far, head - (y - tail), y), x)
    far, middle = a > math.tan(3 * math.pi / 8), a > math.tan(math.pi / 8)
    above = b.select(far, b.const(x.elem, -1.0, x.lanes), b.select(middle, a - 1.0, a))
    below = b.select(far, a, b.select(middle, a + 1.0, 1.0))
    t = above / below
    z = t * t
    half = b.const(x.elem, head / 2, x.lanes)
    start = b.select(far, head, b.select(middle, half, 0.0))
    rest = b.select(far, tail, b.select(middle, b.const(x.elem, tail / 2, x.lanes), 0.0))
    return copysign(b, start + (b.fma(t * z, poly(b, z, "ATAN"), t) + rest), x)


def atan2(b: FunctionBody, y: Reg, x: Reg) -> Reg:
    form = FORMATS[x.elem]
    head, tail = form.half_pi[:2]
    a, c = fabs(b, y), fabs(b, x)
    same = b.compare("eq", a, c)  # of which the quotient may be NaN
    zero = b.compare("eq", a, 0.0)
    one = b.select(zero, a, b.const(x.elem, 1.0, x.lanes))
    if x.elem == "float":
        steep = a > c
        t = b.select(same, one, b.select(steep, c, a) / b.select(steep, a, c))
        z = t * t
        angle = b.fma(t * z, poly(b, z, "ATAN"), t)
        angle = b.select(steep, head - (angle - tail), angle)
    else:
        angle = evaluate(b, "atan", b.select(same, one, a / c))
    negative = b.convert("bitcast", x, form.integer) < 0
    angle = b.select(negative, 2 * head - (angle - 2 * tail), angle)
    return b.select(b.compare("uno", x, y), math.nan, copysign(b, angle, y))


def _arc(b: FunctionBody, a: Reg) -> tuple[Reg, Reg]:
    """A mask of large a, and asin(a), or there asin(sqrt((1 - a) / 2))."""
    far = a > (0.5 if a.elem == "double" else 0.6)  # above: doubling p doubles its error
    z = b.select(far, b.fma(a, -0.5, 0.5), a * a)
    s = b.select(far, b.intrinsic("sqrt", z), a)
    return far, b.fma(s * z, poly(b, z, "ASIN"), s)


def asin(b: FunctionBody, x: Reg) -> Reg:
    head, tail = FORMATS[x.elem].half_pi[:2]
    far, p = _arc(b, fabs(b, x))
    return copysign(b, b.select(far, head - (p + p - tail), p), x)


def acos(b: FunctionBody, x: Reg) -> Reg:
    head, tail = FORMATS[x.elem].half_pi[:2]
    far, p = _arc(b, fabs(b, x))
    outer = b.select(x < 0.0, 2.0 * (head - (p - tail)), p + p)
    return b.select(far, outer, head - (copysign(b, p, x) - tail))


def _half_exp(b: FunctionBody, a: Reg) -> Reg:
    """exp(a) / 2 for a at least 0, finite as long as that is."""
    n, r = reduced_exp(b, at_most(b, a, FORMATS[a.elem].limits.exp_high + 1.0))
    return scale(b, short_exp(b, r), n - 1.0)


def sinh(b: FunctionBody, x: Reg) -> Reg:
    a = fabs(b, x)
    e = _half_exp(b, a)
    z = a * a
    near = b.fma(a * z, poly(b, z, "SINH"), a)
    return copysign(b, b.select(a < 1.0, near, e - 0.25 / e), x)


def cosh(b: FunctionBody, x: Reg) -> Reg:
    e = _half_exp(b, fabs(b, x))
    return e + 0.25 / e


def asinh(b: FunctionBody, x: Reg) -> Reg:
    a = fabs(b, x)
    far = evaluate(b, "log", a + b.intrinsic("sqrt", b.fma(a, a, 1.0)))
    near = b.fma(a * a * a, -1 / 6, a)
    return copysign(b, b.select(a < 2.0**-8, near, far), x)


def acosh(b: FunctionBody, x: Reg) -> Reg:
    z = x - 1.0  # exact, for an x that was float32
    y = evaluate(b, "log1p", z + b.intrinsic("sqrt", b.fma(z, z, z + z)))
    return b.select(x < 1.0, math.nan, y)


def atanh(b: FunctionBody, x: Reg) -> Reg:
    a = fabs(b, x)
    z = a * a
    near = b.fma(a * z, poly(b, z, "ATANH"), a)
    far = evaluate(b, "log", (a + 1.0) / (1.0 - a)) * 0.5
    return copysign(b, b.select(a < 0.5, near, far), x)


def power(b: FunctionBody, x: Reg, y: Reg) -> Reg:
    """2**(y log2(|x|)), which float64 holds to more digits than float32 results have."""
    a = fabs(b, x)
    n, f = split(b, b.convert("fpext", a, "double"))
    exponent = b.fma(f, poly(b, f, "POW_LOG2"), n) * b.convert("fpext", y, "double")
    exponent = at_most(b, at_least(b, exponent, -160.0), 160.0)
    n = b.intrinsic("rint", exponent)
    z = b.convert("fptrunc", scale(b, poly(b, exponent - n, "POW_EXP2"), n), "float")
    half = y * 0.5
    whole = b.compare("eq", b.intrinsic("rint", y), y)
    odd = whole & b.compare("ne", b.intrinsic("rint", half), half)
    z = copysign(b, z, b.select(odd, x, b.const(x.elem, 1.0, x.lanes)))
    z = b.select((x < 0.0) & (x > -math.inf) & ~whole, math.nan, z)
    one = b.compare("eq", x, 1.0) | b.compare("eq", y, 0.0)
    one = one | (b.compare("eq", a, 1.0) & b.compare("eq", fabs(b, y), math.inf))
    return b.select(one, 1.0, z)


FUNCTIONS: dict[str, Callable[..., Reg]] = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log10": log10,
    "log1p": log1p, "tanh": tanh, "sigmoid": sigmoid, "erf": erf, "erfc": erfc, "sin": sin,
    "cos": cos, "tan": tan, "asin": asin, "acos": acos, "atan": atan, "atan2": atan2,
    "sinh": sinh, "cosh": cosh, "asinh": asinh, "acosh": acosh, "atanh": atanh, "pow": power,
}  # fmt: skip
