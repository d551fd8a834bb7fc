"""Elementary functions of vectors, as polynomials in LLVM IR.

Each function is written once for both float dtypes unless they need different ways. `HOW` says for
each dtype which way is taken: "here" (in that precision), "float64" (float32 computed in float64
and rounded once) or "libm" (the C library, lane by lane). sin, cos and tan call the C library for
the lanes whose arguments are too large for a reduction in three steps.

Sources: Muller, Elementary Functions, 2016 (reductions); Cody and Waite, 1980; fdlibm (the
correction terms of log1p and the logarithms to other bases); the coefficients are our own, see
coefficients.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from . import coefficients
from .emit import Body, Module, Reg, suffix, type_name
from .ir import MATHS

__all__ = ["HOW", "evaluate", "libm"]


class Format(NamedTuple):
    """The constants of a floating-point format that the functions need."""

    bits: int
    mantissa: int
    integer: str
    ln2: tuple[float, float]  # a head whose product with an exponent is exact, and the rest
    log10_2: tuple[float, float]
    half_pi: tuple[float, float, float]
    exp_low: float  # below it exp gives 0
    exp_high: float  # above it infinity, yet 2**(n - 1) is finite
    tanh_high: float  # above it tanh is 1
    smallest_normal: float
    huge_angle: float  # above it the reduction in three steps is inexact
    magic: float  # added and subtracted, it rounds to an integer, left in the low bits


FORMATS = {
    "float": Format(
        32, 23, "i32", (0.693359375, -0.00021219444005469057),
        (0.301025390625, 4.605039066518657e-06),
        (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
        -104.0, 89.0, 10.0, 2.0**-126, 40000.0, 1.5 * 2.0**23,
    ),
    "double": Format(
        64, 52, "i64", (0.6931471803691238, 1.9082149292705877e-10),
        (0.3010299955494702, 1.1451100898021838e-10),
        (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        -746.0, 710.0, 20.0, 2.0**-1022, 1e6, 1.5 * 2.0**52,
    ),
}  # fmt: skip

LIBM = {
    "double": {"erf", "erfc", "asinh", "acosh", "atanh", "pow"},
    "float": set(),
}
WIDE = {"tan", "erfc", "asinh", "acosh", "atanh", "pow", "atan2"}  # float32 in float64
NAMES = [*MATHS, "pow", "atan2"]


def _how(name: str, dtype: str) -> str:
    if name in LIBM["float" if dtype == "float32" else "double"]:
        return "libm"
    return "float64" if dtype == "float32" and name in WIDE else "here"


HOW = {(name, dtype): _how(name, dtype) for name in NAMES for dtype in ("float32", "float64")}


def evaluate(b: Body, name: str, *args: Reg) -> Reg:
    """A function of `NAMES`, by a call of a function of the module that LLVM will inline."""
    x = args[0]
    symbol = f"{name}.{suffix(x.elem, x.lanes)}"
    if symbol not in b.module.functions:
        b.module.functions[symbol] = ""  # not again while it is being made
        _define(b.module, symbol, name, [(a.elem, a.lanes) for a in args])
    return b.call(symbol, x.elem, x.lanes, list(args))


_texts: dict[tuple[str, bool], tuple[dict[str, str], dict[str, str]]] = {}


def _define(module: Module, symbol: str, name: str, types: list[tuple[str, int]]) -> None:
    """Adds a function, with what it needs, to a module; its text is made once a process."""
    key = (symbol, module.scalef)
    if key not in _texts:
        alone = Module(scalef=module.scalef)
        alone.functions[symbol] = ""
        b = Body(alone)
        args = [Reg(b, elem, lanes, f"%a{i}") for i, (elem, lanes) in enumerate(types)]
        elem, lanes = types[0]
        if name in LIBM[elem]:
            result = libm(b, name, args)
        elif elem == "float" and name in WIDE:
            wide = [b.convert("fpext", a, "double") for a in args]
            result = b.convert("fptrunc", WIDE_FUNCTIONS[name](b, *wide), "float")
        else:
            result = FUNCTIONS[name](b, *args)
        parameters = ", ".join(f"{a.type} {a.ref}" for a in args)
        header = f"internal {type_name(elem, lanes)} @{symbol}({parameters})"
        alone.functions[symbol] = b.function(header, result, "alwaysinline nounwind")
        _texts[key] = (alone.functions, alone.declarations)
    functions, declarations = _texts[key]
    module.functions.update(functions)
    module.declarations.update(declarations)


def libm(
    b: Body, name: str, args: list[Reg], mask: Reg | None = None, other: Reg | None = None
) -> Reg:
    """The C library's function in the lanes of the mask (all, if None), `other` in the rest."""
    x = args[0]
    function = name + ("f" if x.elem == "float" else "")
    b.module.declare(function, x.elem, [x.elem] * len(args))
    symbol = f"lanes.{name}.{suffix(x.elem, x.lanes)}"
    mask = mask or b.const("i1", 1, x.lanes)
    other = other or x
    if symbol not in b.module.functions:
        inner = Body(b.module)
        given = [Reg(inner, a.elem, a.lanes, f"%a{i}") for i, a in enumerate([*args, mask, other])]
        result = inner.alloca(x.elem, x.lanes, given[-1])
        with inner.loop(0, inner.const("i64", x.lanes)) as i, inner.when(inner.lane(given[-2], i)):
            y = inner.call(function, x.elem, 0, [inner.lane(a, i) for a in given[: len(args)]])
            old = inner.get(result)
            text = f"insertelement {x.type} {old.ref}, {x.elem} {y.ref}, i64 {i.ref}"
            inner.put(result, inner.emit(x.elem, x.lanes, text))
        parameters = ", ".join(f"{a.type} {a.ref}" for a in given)
        header = f"internal {x.type} @{symbol}({parameters})"
        b.module.functions[symbol] = inner.function(
            header, inner.get(result), "noinline cold nounwind"
        )
    return b.call(symbol, x.elem, x.lanes, [*args, mask, other])


# Pieces ------------------------------------------------------------------------------------------


def poly(b: Body, x: Reg, name: str) -> Reg:
    """Horner's scheme with the coefficients of that name for x's format."""
    c = getattr(coefficients, f"{name}_{FORMATS[x.elem].bits}")
    y = b.const(x.elem, c[-1], x.lanes)
    for term in reversed(c[:-1]):
        y = b.fma(y, x, term)
    return y


def scale(b: Body, y: Reg, n: Reg) -> Reg:
    """y * 2**n for integral n of moderate size, right also where the result is subnormal: which
    takes twenty times as long, so what is to be 0 in the end should come here as something else.
    """
    form = FORMATS[y.elem]
    if b.module.scalef and y.lanes * form.bits == 512:
        short, mask = ("ps", "i16") if y.elem == "float" else ("pd", "i8")
        name = f"llvm.x86.avx512.mask.scalef.{short}.512"
        b.module.declare(name, y.type, [y.type, y.type, y.type, mask, "i32"])
        args = f"{y.type} {y.ref}, {y.type} {n.ref}, {y.type} {y.ref}, {mask} -1, i32 4"
        text = f"call {y.type} @{name}({args})"
        return b.emit(y.elem, y.lanes, text)
    if b.module.scalef and y.lanes * form.bits == 1024:
        low, high = (scale(b, *pair) for pair in zip(b.halves(y), b.halves(n), strict=True))
        return b.join(low, high)
    whole = b.convert("fptosi", n, form.integer)
    half = b.binary("ashr", whole, 1)
    for part in (half, whole - half):
        bits = b.binary("shl", part + ((1 << form.bits - form.mantissa - 2) - 1), form.mantissa)
        y = y * b.convert("bitcast", bits, y.elem)
    return y


def inverse(b: Body, x: Reg) -> Reg:
    """1 / x to about one unit, for x well inside the range; quicker than a division."""
    if not (b.module.scalef and x.elem == "float" and x.lanes == 16):
        return 1.0 / x
    name = "llvm.x86.avx512.rcp14.ps.512"
    b.module.declare(name, x.type, [x.type, x.type, "i16"])
    y = b.emit(
        x.elem, x.lanes, f"call {x.type} @{name}({x.type} {x.ref}, {x.type} {x.ref}, i16 -1)"
    )
    return b.fma(y, b.fma(-x, y, 1.0), y)


def fabs(b: Body, x: Reg) -> Reg:
    return b.intrinsic("fabs", x)


def copysign(b: Body, x: Reg, sign: Reg) -> Reg:
    return b.intrinsic("copysign", x, sign)


def at_least(b: Body, x: Reg, low: float) -> Reg:
    """max(x, low); NaN stays NaN."""
    return b.select(x < low, low, x)


def at_most(b: Body, x: Reg, high: float) -> Reg:
    """min(x, high); NaN stays NaN."""
    return b.select(x > high, high, x)


def whole_part(b: Body, x: Reg, factor: float) -> Reg:
    """x * factor rounded to an integer, for a product of moderate size."""
    magic = FORMATS[x.elem].magic
    return b.fma(x, factor, b.const(x.elem, magic, x.lanes)) - magic


def reduced_exp(b: Body, x: Reg) -> tuple[Reg, Reg]:
    """n and r with exp(x) = 2**n * exp(r), |r| at most half log(2), for x of moderate size."""
    head, tail = FORMATS[x.elem].ln2
    n = whole_part(b, x, 1 / math.log(2))
    return n, b.fma(n, -tail, b.fma(n, -head, x))


def short_exp(b: Body, r: Reg) -> Reg:
    """exp(r) for small r."""
    return b.fma(b.fma(poly(b, r, "EXP"), r, 1.0), r, 1.0)


def short_expm1(b: Body, r: Reg) -> Reg:
    """exp(r) - 1 for small r."""
    return b.fma(r * r, poly(b, r, "EXP"), r)


def split(b: Body, x: Reg) -> tuple[Reg, Reg]:
    """n and f with x = 2**n * (1 + f), 1 + f from sqrt(1/2) to sqrt(2), for positive finite x."""
    form = FORMATS[x.elem]
    small = x < form.smallest_normal
    shift = form.mantissa + 2
    bits = b.convert("bitcast", b.select(small, x * 2.0**shift, x), form.integer)
    root = 0x3F3504F3 if form.bits == 32 else 0x3FE6A09E667F3BCD
    n = b.binary("ashr", bits - root, form.mantissa)
    f = b.convert("bitcast", bits - b.binary("shl", n, form.mantissa), x.elem) - 1.0
    return b.convert("sitofp", n, x.elem) - b.select(small, b.const(x.elem, shift, x.lanes), 0.0), f


def log_tail(b: Body, f: Reg, half_square: Reg) -> Reg:
    """t with log(1 + f) = f - half_square + t, half_square being f**2 / 2."""
    if f.elem == "float":
        return f * f * f * poly(b, f, "LOG")
    s = f / (f + 2.0)
    z = s * s
    return s * b.fma(z, poly(b, z, "LOG"), half_square)


def log_domain(b: Body, x: Reg, y: Reg) -> Reg:
    """y, corrected where x is 0, negative, infinite or NaN."""
    y = b.select(x < math.inf, y, x)
    y = b.select(b.compare("eq", x, 0.0), -math.inf, y)
    return b.select(x < 0.0, math.nan, y)


def sine_cosine(b: Body, x: Reg) -> tuple[Reg, Reg, Reg]:
    """sin and cos of x less q quarter turns, and q (its low bits)."""
    form = FORMATS[x.elem]
    q, r = reduced_angle(b, x)
    z = r * r
    s = b.fma(r * z, poly(b, z, "SIN"), r)
    c = b.fma(z * z, poly(b, z, "COS"), b.fma(z, -0.5, 1.0))
    assert q.elem == form.integer
    return s, c, q


def reduced_angle(b: Body, x: Reg) -> tuple[Reg, Reg]:
    form = FORMATS[x.elem]
    shifted = b.fma(x, 2 / math.pi, b.const(x.elem, form.magic, x.lanes))
    q = b.convert("bitcast", shifted, form.integer)
    n = shifted - form.magic
    r = x
    for part in form.half_pi:
        r = b.fma(n, -part, r)
    return q, r


def negate_if(b: Body, y: Reg, bits: Reg) -> Reg:
    """-y where bit 1 of the integer is set."""
    form = FORMATS[y.elem]
    sign = b.binary("shl", bits & 2, form.bits - 2)
    return b.convert("bitcast", b.convert("bitcast", y, form.integer) ^ sign, y.elem)


def with_huge(b: Body, name: str, x: Reg, y: Reg) -> Reg:
    """y, or the C library's result in the lanes where x is huge."""
    huge = fabs(b, x) > FORMATS[x.elem].huge_angle
    result = b.alloca(x.elem, x.lanes, y)
    with b.when(b.any(huge)):
        b.put(result, libm(b, name, [x], huge, y))
    return b.get(result)


# Functions ---------------------------------------------------------------------------------------


def exp(b: Body, x: Reg) -> Reg:
    form = FORMATS[x.elem]
    none = x < form.exp_low
    n, r = reduced_exp(b, at_most(b, b.select(none, 0.0, x), form.exp_high))
    return b.select(none, 0.0, scale(b, short_exp(b, r), n))


def exp2(b: Body, x: Reg) -> Reg:
    form = FORMATS[x.elem]
    none = x < form.exp_low * 1.5
    x = at_most(b, b.select(none, 0.0, x), form.exp_high * 1.5)
    n = b.intrinsic("rint", x)
    return b.select(none, 0.0, scale(b, short_exp(b, (x - n) * math.log(2)), n))


def expm1(b: Body, x: Reg) -> Reg:
    form = FORMATS[x.elem]
    low = -4 * form.tanh_high  # where the result has long been -1
    n, r = reduced_exp(b, at_most(b, at_least(b, x, low), form.exp_high))
    power = scale(b, b.const(x.elem, 0.5, x.lanes), n)
    y = b.fma(power, short_expm1(b, r), power - 0.5) * 2.0
    return copysign(b, y, x)


def log(b: Body, x: Reg) -> Reg:
    n, f = split(b, x)
    return log_domain(b, x, _log(b, n, f, None))


def _log(b: Body, n: Reg, f: Reg, c: Reg | None) -> Reg:
    """n log 2 + log(1 + f) + c."""
    head, tail = FORMATS[f.elem].ln2
    half_square = f * f * 0.5
    low = b.fma(n, tail, log_tail(b, f, half_square))
    if c is not None:
        low = low + c
    return b.fma(n, head, f - (half_square - low))


def log1p(b: Body, x: Reg) -> Reg:
    u = x + 1.0
    n, f = split(b, u)
    lost = b.select(x > 1.0, 1.0 - (u - x), x - (u - 1.0)) / u
    near = b.compare("eq", n, 0.0)
    y = _log(b, n, b.select(near, x, f), b.select(near, 0.0, lost))
    return copysign(b, log_domain(b, u, y), x)


def _log_base(b: Body, x: Reg, factor: tuple[float, float], power: tuple[float, float]) -> Reg:
    """log(x) * factor, for log(2) * factor = power; both given as head and tail."""
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


def log2(b: Body, x: Reg) -> Reg:
    factor = (1.4426950216293335, 1.925963033500011e-08)
    if x.elem == "double":
        factor = (1.4426950408889634, 2.0355273740931033e-17)
    return _log_base(b, x, factor, (1.0, 0.0))


def log10(b: Body, x: Reg) -> Reg:
    factor = (0.4342944920063019, -1.0103049952192578e-08)
    if x.elem == "double":
        factor = (0.4342944819032518, 1.098319650216765e-17)
    return _log_base(b, x, factor, FORMATS[x.elem].log10_2)


def tanh(b: Body, x: Reg) -> Reg:
    """A polynomial near 0, else 1 - 2 / (exp(2|x|) + 1), where errors of exp matter less."""
    a = at_most(b, fabs(b, x), FORMATS[x.elem].tanh_high)
    n = whole_part(b, a, 2 / math.log(2))
    r = b.fma(n, -math.log(2) / 2, a)
    e = scale(b, b.fma(b.fma(poly(b, r, "TANH_EXP"), r, 2.0), r, 1.0), n)
    far = b.fma(inverse(b, e + 1.0), -2.0, 1.0)
    z = a * a
    near = b.fma(a * z, poly(b, z, "TANH"), a)
    return copysign(b, b.select(a < 0.56, near, far), x)


def sigmoid(b: Body, x: Reg) -> Reg:
    """exp(a) / (1 + exp(a)) or its complement, for a = -|x|, with two rounding errors made good."""
    form = FORMATS[x.elem]
    head, tail = form.ln2
    a = -fabs(b, x)
    none = a < form.exp_low
    a = b.select(none, 0.0, a)
    n = whole_part(b, a, 1 / math.log(2))
    above = b.fma(n, -head, a)
    r = b.fma(n, -tail, above)
    lost = b.fma(n, -tail, above - r)
    whole = r + 1.0
    rest = b.fma(r * r, poly(b, r, "EXP"), (r - (whole - 1.0)) + lost)
    e = b.select(none, 0.0, scale(b, whole + rest, n))
    below = e + 1.0
    lost = e - (below - 1.0)
    above = b.select(x < 0.0, e, b.const(x.elem, 1.0, x.lanes))
    factor = inverse(b, below)
    y = above * factor
    return b.fma(b.fma(-y, lost, b.fma(-y, below, above)), factor, y)


def erf(b: Body, x: Reg) -> Reg:
    """A polynomial near 0, else 1 - erfc(|x|), of whose logarithm to base 2 there is one."""
    magic = FORMATS[x.elem].magic
    a = at_most(b, fabs(b, x), 4.0)
    near = b.fma(a, poly(b, a * a, "ERF_SMALL"), a)
    power = poly(b, a, "ERF_LARGE")
    n = (power + magic) - magic
    far = 1.0 - scale(b, poly(b, power - n, "EXP2"), n)
    return copysign(b, b.select(a < 0.925, near, far), x)


def erfc(b: Body, x: Reg) -> Reg:
    a = at_most(b, fabs(b, x), 10.5)
    t = (a - 3.0) / (a + 3.0)
    y = evaluate(b, "exp", -(a * a)) * poly(b, t, "ERFC") / b.fma(a, 2.0, 1.0)
    return b.select(x < 0.0, 2.0 - y, y)


def sin(b: Body, x: Reg) -> Reg:
    s, c, q = sine_cosine(b, x)
    y = negate_if(b, b.select(b.compare("ne", q & 1, 0), c, s), q)
    return with_huge(b, "sin", x, b.select(b.compare("eq", x, 0.0), x, y))


def cos(b: Body, x: Reg) -> Reg:
    s, c, q = sine_cosine(b, x)
    y = negate_if(b, b.select(b.compare("ne", q & 1, 0), s, c), q + 1)
    return with_huge(b, "cos", x, y)


def tan(b: Body, x: Reg) -> Reg:
    s, c, q = sine_cosine(b, x)
    odd = b.compare("ne", q & 1, 0)
    y = b.select(odd, -c, s) / b.select(odd, s, c)
    return with_huge(b, "tan", x, b.select(b.compare("eq", x, 0.0), x, y))


def atan(b: Body, x: Reg) -> Reg:
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


def atan2(b: Body, y: Reg, x: Reg) -> Reg:
    head, tail = FORMATS[x.elem].half_pi[:2]
    a, c = fabs(b, y), fabs(b, x)
    same = b.compare("eq", a, c)
    zero = b.compare("eq", a, 0.0)
    quotient = b.select(same, b.select(zero, a, b.const(x.elem, 1.0, x.lanes)), a / c)
    angle = evaluate(b, "atan", quotient)
    integer = FORMATS[x.elem].integer
    negative = b.convert("bitcast", x, integer) < 0
    angle = b.select(negative, 2 * head - (angle - 2 * tail), angle)
    unknown = b.compare("uno", x, y)
    return b.select(unknown, math.nan, copysign(b, angle, y))


def _arc(b: Body, a: Reg) -> tuple[Reg, Reg]:
    """Where a is large, and asin(a), or there asin(sqrt((1 - a) / 2))."""
    far = a > (0.5 if a.elem == "double" else 0.6)  # above: doubling p doubles its error
    z = b.select(far, b.fma(a, -0.5, 0.5), a * a)
    s = b.select(far, b.intrinsic("sqrt", z), a)
    return far, b.fma(s * z, poly(b, z, "ASIN"), s)


def asin(b: Body, x: Reg) -> Reg:
    head, tail = FORMATS[x.elem].half_pi[:2]
    far, p = _arc(b, fabs(b, x))
    return copysign(b, b.select(far, head - (p + p - tail), p), x)


def acos(b: Body, x: Reg) -> Reg:
    head, tail = FORMATS[x.elem].half_pi[:2]
    far, p = _arc(b, fabs(b, x))
    outer = b.select(x < 0.0, 2.0 * (head - (p - tail)), p + p)
    return b.select(far, outer, head - (copysign(b, p, x) - tail))


def _half_exp(b: Body, a: Reg) -> Reg:
    """exp(a) / 2 for a at least 0, finite as long as that is."""
    n, r = reduced_exp(b, at_most(b, a, FORMATS[a.elem].exp_high + 1.0))
    return scale(b, short_exp(b, r), n - 1.0)


def sinh(b: Body, x: Reg) -> Reg:
    a = fabs(b, x)
    e = _half_exp(b, a)
    z = a * a
    near = b.fma(a * z, poly(b, z, "SINH"), a)
    return copysign(b, b.select(a < 1.0, near, e - 0.25 / e), x)


def cosh(b: Body, x: Reg) -> Reg:
    e = _half_exp(b, fabs(b, x))
    return e + 0.25 / e


def asinh(b: Body, x: Reg) -> Reg:
    a = fabs(b, x)
    far = evaluate(b, "log", a + b.intrinsic("sqrt", b.fma(a, a, 1.0)))
    near = b.fma(a * a * a, -1 / 6, a)
    return copysign(b, b.select(a < 2.0**-8, near, far), x)


def acosh(b: Body, x: Reg) -> Reg:
    z = x - 1.0  # exact, for an x that was float32
    y = evaluate(b, "log1p", z + b.intrinsic("sqrt", b.fma(z, z, z + z)))
    return b.select(x < 1.0, math.nan, y)


def atanh(b: Body, x: Reg) -> Reg:
    a = fabs(b, x)
    far = evaluate(b, "log", (a + 1.0) / (1.0 - a)) * 0.5
    near = b.fma(a * a * a, 1 / 3, a)
    return copysign(b, b.select(a < 2.0**-8, near, far), x)


def power(b: Body, x: Reg, y: Reg) -> Reg:
    a = fabs(b, x)
    z = evaluate(b, "exp2", evaluate(b, "log2", a) * y)
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
    "log1p": log1p, "tanh": tanh, "sigmoid": sigmoid, "erf": erf, "sin": sin, "cos": cos,
    "tan": tan, "asin": asin, "acos": acos, "atan": atan, "atan2": atan2, "sinh": sinh,
    "cosh": cosh,
}  # fmt: skip
WIDE_FUNCTIONS: dict[str, Callable[..., Reg]] = {
    "tan": tan, "erfc": erfc, "asinh": asinh, "acosh": acosh, "atanh": atanh, "pow": power,
    "atan2": atan2,
}  # fmt: skip
