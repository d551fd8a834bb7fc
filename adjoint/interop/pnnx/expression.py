"""`pnnx.Expression`: arithmetic such as `add(@0,mul(@1,2))`, read to postfix steps and computed.

There is no recursion, so depth costs nothing but memory, and arithmetic of plain numbers stays
within 64 bits.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...core.dtype import as_dtype
from ...core.errors import CheckpointError
from ...ops.create.creation import full
from ...runtime.public import FUNCTIONS
from ...tensor import Tensor
from .text import DTYPE_NAMES, read_value

TOKENS = 1 << 16  # of an expression
DEPTH = 4096  # of nested calls
Instruction = tuple[str, Any, int]  # what to do, with what, how many operands it takes

_TOKEN = re.compile(r"[\[\](),]|[^\[\](),]+")
_INTRINSIC = {"size", "int", "float"}


def _power(a: Any, b: Any) -> Any:
    whole = isinstance(a, int) and isinstance(b, int)
    if whole and abs(a) > 1 and b * math.log2(abs(a)) > 64:
        raise OverflowError(f"{a} to the power of {b}")
    return float(a) ** b if whole and b < 0 else a**b


def _shift(a: Any, b: Any) -> Any:
    if not 0 <= b < 64:
        raise OverflowError(f"a shift by {b}")
    return a << b


# name: what it is for plain numbers, the function of tensors (by default of the same name)
_ONE: dict[str, tuple[Callable[..., Any], str]] = {
    "abs": (abs, ""), "neg": (operator.neg, ""), "positive": (operator.pos, ""),
    "ceil": (math.ceil, ""), "floor": (math.floor, ""), "trunc": (math.trunc, ""),
    "round": (round, ""), "sqrt": (math.sqrt, ""), "rsqrt": (lambda a: 1 / math.sqrt(a), ""),
    "square": (lambda a: a * a, ""), "reciprocal": (lambda a: 1 / a, ""),
    "sign": (lambda a: (a > 0) - (a < 0), ""), "log1p": (math.log1p, ""),
    "expm1": (math.expm1, ""), "erf": (math.erf, ""), "lgamma": (math.lgamma, ""),
    "log2": (math.log2, ""), "bitwise_not": (operator.invert, ""),
    "logical_not": (operator.not_, ""), "not": (operator.invert, "bitwise_not"),
    "sigmoid": (lambda a: 1 / (1 + math.exp(-a)), ""), "relu": (lambda a: max(a, 0), ""),
    **{name: (getattr(math, name), "") for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log", "log10",
        "sin", "sinh", "tan", "tanh",
    )},
}  # fmt: skip
# operators of Python, which tensors define with PyTorch's meaning
_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": operator.pow,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift,
    "rshift": operator.rshift,
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip
_GUARDED = {"pow": _power, "lshift": _shift}  # of plain numbers
_TWO: dict[str, tuple[Callable[..., Any], str]] = {
    "fmod": (math.fmod, "fmod"), "atan2": (math.atan2, "atan2"), "max": (max, "maximum"),
    "min": (min, "minimum"), "maximum": (max, "maximum"),
    "logaddexp": (lambda a, b: max(a, b) + math.log1p(math.exp(-abs(a - b))), "logaddexp"),
    "minimum": (min, "minimum"),
}  # fmt: skip


def compiled(text: str, inputs: int) -> tuple[Instruction, ...]:
    """The postfix form of an expression that has `inputs` operands.

    Errors: CheckpointError for what is no expression.
    """
    tokens = _TOKEN.findall(text)
    if not tokens or len(tokens) > TOKENS:
        raise CheckpointError(f"an expression of {len(tokens)} tokens; 1 to {TOKENS} are read")
    if len(tokens) == 1 and re.fullmatch(r"[a-z][a-z0-9_.]*", text) and not _is_function(text):
        return (("literal", text, 0),)  # the name of a mode, say
    steps: list[Instruction] = []
    open_calls: list[list[Any]] = [["", 0, False]]  # function or "[", operands so far, by comma
    for i, token in enumerate(tokens):
        after = tokens[i + 1] if i + 1 < len(tokens) else ""
        if token == ",":
            continue  # pnnx writes two of them where a factor follows
        if token == "[" or _is_function(token):
            open_calls.append([token, 0, token != "[" and after != "("])
        elif token == "(":
            if not i or not _is_function(tokens[i - 1]):
                raise CheckpointError(f"{text[:80]!r}: '(' without a function before it")
        else:
            if token in ")]":
                name, count, _ = open_calls.pop()
                if not open_calls or (token == "]") != (name == "["):
                    raise CheckpointError(f"{text[:80]!r}: {token!r} closes nothing")
                steps.append(_call(name, count, text))
            else:
                steps.append(_operand(token, inputs, text))
            open_calls[-1][1] += 1
            while open_calls[-1][2] and open_calls[-1][1] == _arity(open_calls[-1][0]):
                name, count, _ = open_calls.pop()  # pnnx writes some as `log1p,@0`
                steps.append(_call(name, count, text))
                open_calls[-1][1] += 1
        if len(open_calls) > DEPTH:
            raise CheckpointError(f"an expression nests deeper than {DEPTH}")
    if len(open_calls) != 1 or open_calls[0][1] != 1:
        raise CheckpointError(f"{text[:80]!r} is no expression: brackets or operands are missing")
    return tuple(steps)


def _is_function(name: str) -> bool:
    return any(name in table for table in (_ONE, _TWO, _OPERATORS, DTYPE_NAMES, _INTRINSIC))


def _arity(name: str) -> int:
    return 2 if name in _TWO or name in _OPERATORS or name == "size" else 1


def _call(name: str, count: int, text: str) -> Instruction:
    if name == "[":
        return ("list", None, count)
    if count != _arity(name):
        raise CheckpointError(f"{text[:80]!r}: {name} of {count} operands")
    return ("call", name, count)


def _operand(token: str, inputs: int, text: str) -> Instruction:
    if token[0] == "@":
        if not re.fullmatch(r"@\d{1,6}", token) or int(token[1:]) >= inputs:
            raise CheckpointError(f"{text[:80]!r}: no operand {token[:20]}; there are {inputs}")
        return ("input", int(token[1:]), 0)
    value = read_value(token)
    if isinstance(value, str):
        raise CheckpointError(f"{text[:80]!r}: {token[:40]!r} is no function, operand or number")
    return ("literal", value, 0)


def evaluated(steps: Sequence[Instruction], inputs: Sequence[Any]) -> Any:
    """The value of an expression for its operands: a tensor, a number, or a list of these."""
    stack: list[Any] = []
    for what, name, count in steps:
        if what == "literal":
            stack.append(name)
            continue
        if what == "input":
            stack.append(inputs[name])
            continue
        operands = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        stack.append(list(operands) if what == "list" else _bounded(_applied(name, operands)))
    return stack[0]


def _applied(name: str, operands: list[Any]) -> Any:
    if name == "size":
        return int(operands[0].shape[operands[1]])
    if name in ("int", "float"):
        return (int if name == "int" else float)(number_of(operands[0]))
    if name in DTYPE_NAMES:
        (x,) = operands
        if isinstance(x, Tensor):
            return x.to(_dtype(name))
        return float(x) if _dtype(name).is_floating_point else int(x)
    symbolic = any(isinstance(x, Tensor) for x in operands)
    if name in _OPERATORS:
        return (_OPERATORS if symbolic else {**_OPERATORS, **_GUARDED})[name](*operands)
    plain, function = (_ONE if len(operands) == 1 else _TWO)[name]
    if not symbolic:
        return plain(*operands)
    return FUNCTIONS[function or name](
        *(x if isinstance(x, Tensor) else full((), x) for x in operands)
    )


def number_of(x: Any) -> Any:
    """A number, from a tensor too."""
    return x.item() if isinstance(x, Tensor) else x


def _dtype(name: str) -> Any:
    return as_dtype(DTYPE_NAMES[name])


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"a number of {value.bit_length()} bits")
    return value
