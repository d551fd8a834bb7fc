"""The elementwise ops of the IR as LLVM instructions on vectors."""

from __future__ import annotations

import math

from . import ir
from .emit import BITS, LLVM_TYPES, FunctionBody, Reg
from .maths import evaluate, inverse_root, libm, root

INTRINSICS = {"floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def apply(b: FunctionBody, op: str, dtype: str, args: list[Reg]) -> Reg:
    """The op on operands of that IR dtype."""
    x = args[0]
    unsigned = dtype in ir.UNSIGNED
    floating = dtype in ir.FLOATS
    if op in ir.MATHS or op in ("pow", "atan2"):
        return evaluate(b, op, *args)
    if op == "sqrt":
        return root(b, x)
    if op == "rsqrt":
        return inverse_root(b, x)
    if op == "reciprocal":
        return 1.0 / x
    if op in INTRINSICS:
        return b.intrinsic(INTRINSICS[op], x)
    if op in COMPARISONS:
        return b.compare(op, x, args[1], unsigned)
    if op in ("add", "sub", "mul", "div"):
        return b.arith(op, x, args[1])
    if op in ("and", "or", "xor"):
        return b.binary(op, x, args[1])
    if op in ("maximum", "minimum"):
        if floating:
            return _extremum(b, op, x, args[1])
        return b.minmax(op[:3], x, args[1], unsigned)
    if op in ("floor_div", "mod", "fmod"):
        return (_float_division if floating else _integer_division)(b, op, x, args[1], unsigned)
    if op in ("shl", "shr"):
        return _shift(b, op, x, args[1], unsigned)
    if op == "fma":
        return b.fma(*args)
    if op == "copysign":
        return b.intrinsic("copysign", x, args[1])
    if op == "nextafter":
        return _nextafter(b, x, args[1])
    if op == "isnan":
        return b.compare("uno", x, x)
    if op == "isinf":
        return b.compare("eq", b.intrinsic("fabs", x), math.inf)
    if op == "isfinite":
        return b.intrinsic("fabs", x) < math.inf
    if op == "neg":
        return -x
    if op == "not":
        return ~x
    if op == "abs":
        if floating:
            return b.intrinsic("fabs", x)
        return x if unsigned else b.select(x < 0, -x, x)
    assert op == "sign"
    one = b.const(x.elem, 1, x.lanes)
    if unsigned:
        return b.select(b.compare("eq", x, 0), x, one)
    return b.select(x > 0, one, b.select(x < 0, -1, x))


def _extremum(b: FunctionBody, op: str, x: Reg, y: Reg) -> Reg:
    """The greater or smaller one, or NaN if either is. The intrinsic, which also says which of the
    zeros is greater, is several instructions on x86 if neither operand is a known number.
    """
    if not (b.module.scalef and x.ref[0] == y.ref[0] == "%"):
        return b.intrinsic(op, x, y)
    chosen = b.select(x > y if op == "maximum" else x < y, x, y)
    return b.select(b.compare("uno", x, x), x, chosen)


def _integer_division(b: FunctionBody, op: str, x: Reg, y: Reg, unsigned: bool) -> Reg:
    """Rounded down (fmod: toward zero); 0 where the divisor is 0; no trap there or at overflow."""
    zero = b.compare("eq", y, 0)
    safe = b.select(zero, 1, y)
    if unsigned:
        result = b.binary("udiv" if op == "floor_div" else "urem", x, safe)
        return b.select(zero, 0, result)
    minus = b.compare("eq", y, -1)  # INT_MIN / -1 overflows
    safe = b.select(minus, 1, safe)
    rest = b.binary("srem", x, safe)
    if op == "fmod":
        return b.select(zero | minus, 0, rest)
    off = b.compare("ne", rest, 0) & ((rest ^ safe) < 0)
    if op == "mod":
        return b.select(zero | minus, 0, b.select(off, rest + safe, rest))
    quotient = b.binary("sdiv", x, safe)
    quotient = b.select(minus, -x, b.select(off, quotient - 1, quotient))
    return b.select(zero, 0, quotient)


def _float_division(b: FunctionBody, op: str, x: Reg, y: Reg, unsigned: bool) -> Reg:
    """Python's // and %, C's fmod."""
    rest = _fmod(b, x, y)
    if op == "fmod":
        return rest
    some = b.compare("ne", rest, 0.0)
    off = some & ((rest < 0.0) ^ (y < 0.0))
    if op == "mod":
        zero = b.intrinsic("copysign", b.const(x.elem, 0.0, x.lanes), y)
        return b.select(some, b.select(off, rest + y, rest), zero)
    quotient = (x - rest) / y
    quotient = b.select(off, quotient - 1.0, quotient)
    down = b.intrinsic("floor", quotient)
    down = b.select(quotient - down > 0.5, down + 1.0, down)
    zero = b.intrinsic("copysign", b.const(x.elem, 0.0, x.lanes), x / y)
    down = b.select(b.compare("eq", quotient, 0.0), zero, down)
    return b.select(b.compare("eq", y, 0.0), x / y, down)


def _fmod(b: FunctionBody, x: Reg, y: Reg) -> Reg:
    """Exact remainder of x / y with the quotient rounded toward 0. Where the quotient is small, it
    is off by one at most, and a fused multiply-add loses nothing. Other lanes call the C library.
    """
    a, d = b.intrinsic("fabs", x), b.intrinsic("fabs", y)
    quotient = b.intrinsic("trunc", a / d)
    rest = b.fma(-quotient, d, a)
    rest = b.select(rest < 0.0, rest + d, rest)
    rest = b.select(b.compare("ge", rest, d), rest - d, rest)
    usual = (quotient < 2.0 ** (22 if x.elem == "float" else 51)) & (d < math.inf)
    result = b.alloca(x.elem, x.lanes, b.intrinsic("copysign", rest, x))
    with b.when(b.any(~usual)):
        b.put(result, libm(b, "fmod", [x, y], ~usual, b.get(result)))
    return b.get(result)


def _nextafter(b: FunctionBody, x: Reg, y: Reg) -> Reg:
    """One step of the bits: up where y lies farther from 0 on the side of x, else down."""
    integer = "i32" if x.elem == "float" else "i64"
    bits = b.convert("bitcast", x, integer)
    away = b.compare("eq", x < y, x > 0.0)
    moved = b.convert("bitcast", b.select(away, bits + 1, bits - 1), x.elem)
    one = b.convert("bitcast", b.const(integer, 1, x.lanes), x.elem)
    moved = b.select(b.compare("eq", x, 0.0), b.intrinsic("copysign", one, y), moved)
    moved = b.select(b.compare("eq", x, y), y, moved)
    return b.select(b.compare("uno", x, y), x + y, moved)


def _shift(b: FunctionBody, op: str, x: Reg, y: Reg, unsigned: bool) -> Reg:
    """0 (or the sign) where the distance is not less than the width, as in NumPy."""
    bits = BITS[x.elem]
    far = b.compare("ge", y, bits, unsigned=True)
    if op == "shr" and not unsigned:
        return b.binary("ashr", x, b.select(far, bits - 1, y))
    return b.select(far, 0, b.binary("shl" if op == "shl" else "lshr", x, b.select(far, 0, y)))


def cast(b: FunctionBody, x: Reg, source: str, to: str) -> Reg:
    """x of IR dtype `source` as `to`; a narrow float is rounded to and then float32 again.

    Floats out of an integer's range give some value of that integer.
    """
    if to in ir.NARROW:
        once = (source, to) == ("float64", "float16")  # bfloat16: twice, as ml_dtypes rounds
        wide = _odd_float(b, x) if once else cast(b, x, source, "float32")
        return from_memory(b, to_memory(b, wide, to), to)
    elem = LLVM_TYPES[to]
    if to == "bool":
        return b.compare("ne", x, 0.0 if source in ir.FLOATS else 0)
    if source == "bool":
        return b.select(x, b.const(elem, 1, x.lanes), 0)
    if source in ir.FLOATS and to in ir.FLOATS:
        return b.convert("fpext" if to == "float64" else "fptrunc", x, elem)
    if source in ir.FLOATS:
        if to == "uint64":
            whole = b.convert("fptoui", x, "i64")
        else:
            narrow = ir.ITEMSIZE[to] < 4 or to == "int32"
            whole = b.convert("fptosi", x, "i32" if narrow else "i64")
        whole = b.emit(whole.elem, whole.lanes, f"freeze {whole.type} {whole.ref}")
        return whole if whole.elem == elem else b.convert("trunc", whole, elem)
    if to in ir.FLOATS:
        return b.convert("uitofp" if source in ir.UNSIGNED else "sitofp", x, elem)
    if ir.ITEMSIZE[to] > ir.ITEMSIZE[source]:
        return b.convert("zext" if source in ir.UNSIGNED else "sext", x, elem)
    return b.convert("trunc", x, elem)


def _odd_float(b: FunctionBody, x: Reg) -> Reg:
    """float64 as float32, where inexact the odd one of its neighbours: what is rounded to float16
    next is then rounded once (Boldo and Melquiond, 2008, "Emulation of FMA and correctly rounded
    sums: proved algorithms using rounding to odd").
    """
    near = b.convert("fptrunc", x, "float")
    back = b.convert("fpext", near, "double")
    bits = b.convert("bitcast", near, "i32")
    away = b.intrinsic("fabs", back) > b.intrinsic("fabs", x)
    odd = b.select(away, bits - 1, bits) | 1
    return b.convert("bitcast", b.select((back < x) | (back > x), odd, bits), "float")


def memory_type(dtype: str) -> str:
    """The LLVM type of an element in memory."""
    return {"bool": "i8", "float16": "half", "bfloat16": "i16"}.get(dtype) or LLVM_TYPES[dtype]


def from_memory(b: FunctionBody, x: Reg, dtype: str) -> Reg:
    """Converts a loaded vector to the type in which the IR computes."""
    if dtype == "bool":
        return b.compare("ne", x, 0)
    if dtype == "float16":
        return b.convert("fpext", x, "float")
    if dtype == "bfloat16":
        return b.convert("bitcast", b.binary("shl", b.convert("zext", x, "i32"), 16), "float")
    return x


def to_memory(b: FunctionBody, x: Reg, dtype: str) -> Reg:
    """Converts a computed vector to its type in memory; narrow floats are rounded to nearest, ties
    to even.
    """
    if dtype == "bool":
        return b.convert("zext", x, "i8")
    if dtype == "float16":  # LLVM would make one rounding of two, float64 to float16: a libcall
        return b.convert("fptrunc", b.intrinsic("arithmetic.fence", x), "half")
    if dtype == "bfloat16":
        bits = b.convert("bitcast", x, "i32")
        upper = b.binary("lshr", bits, 16)
        rounded = b.binary("lshr", bits + 0x7FFF + (upper & 1), 16)
        return b.convert("trunc", b.select(b.compare("uno", x, x), upper | 0x40, rounded), "i16")
    return x
