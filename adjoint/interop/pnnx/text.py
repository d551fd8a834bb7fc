"""The `.param` text: one operator a line, read strictly and within limits.

    7767517
    operators operands
    kind name inputs outputs operand... key=value @weight=(shape)type $argument=operand #operand=(shape)type

Source: https://github.com/Tencent/ncnn/tree/master/tools/pnnx#the-pnnxparam-format
"""  # noqa: E501 - a line of the format

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import CheckpointError

MAGIC = "7767517"
TEXT = 16 << 20  # bytes of a file
OPERATORS = 1 << 17
LINE = 1 << 20  # characters of a line
NAME = 1000  # characters of a name
LIST = 1 << 16  # numbers of a list
RANK = 32  # dimensions of a shape
DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "i32": "int32", "i64": "int64",
    "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool", "c64": "complex64",
    "c128": "complex128", "bf16": "bfloat16",
}  # fmt: skip

DTYPE_NAMES = {  # as parameters name them
    "torch.float": "float32", "torch.double": "float64", "torch.half": "float16",
    "torch.bfloat16": "bfloat16", "torch.int": "int32", "torch.long": "int64",
    "torch.short": "int16", "torch.bool": "bool",
    **{f"torch.{name}": name for name in DTYPES.values() if name not in ("bool", "bfloat16")},
}  # fmt: skip

_INTEGER = re.compile(r"[+-]?\d{1,19}")
_NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,4})?")
_COMPLEX = re.compile(rf"({_NUMBER.pattern})([+-].*)j")
_SHAPED = re.compile(r"\(([\d,?%\w]*)\)(\w+)")
_WORDS = {"None": None, "True": True, "False": False, "()": None, "[]": None,
          "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}  # fmt: skip


@dataclass(eq=False)
class Operator:
    """One line of the file."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)  # argument -> operand
    shapes: dict[str, tuple[tuple[int | None, ...], str]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name of the operator in messages."""
        return label_of(self.name, self.kind)


def label_of(name: str, kind: str) -> str:
    """Name of an operator in messages."""
    return f"{name[:80]!r} ({kind[:60]})"


def read_operators(text: bytes) -> list[Operator]:
    """The operators of a `.param` file, in its order."""
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        raise CheckpointError("the .param file is not UTF-8 text") from None
    lines = [line for line in lines if line.strip()]
    if len(lines) < 2 or lines[0].strip() != MAGIC:
        first = lines[0][:40] if lines else ""
        raise CheckpointError(
            f"not a PNNX .param file: it begins with {first!r}, not {MAGIC} (an ncnn .param file "
            "has the same look; read the one called .pnnx.param)"
        )
    counts = lines[1].split()
    if len(counts) != 2 or not all(re.fullmatch(r"\d{1,9}", count) for count in counts):
        raise CheckpointError(f"the second line has no two counts: {lines[1][:80]!r}")
    if int(counts[0]) > OPERATORS or len(lines) - 2 > OPERATORS:
        raise CheckpointError(
            f"{max(int(counts[0]), len(lines) - 2)} operators; {OPERATORS} are read"
        )
    operators = []
    for number, line in enumerate(lines[2:], 3):
        if len(line) > LINE:
            raise CheckpointError(f"line {number} has {len(line)} characters; {LINE} are read")
        try:
            operators.append(_operator(line.split()))
        except CheckpointError as error:
            raise CheckpointError(f"line {number}: {error}") from None
    operands = {name for op in operators for name in (*op.inputs, *op.outputs)}
    if (len(operators), len(operands)) != (int(counts[0]), int(counts[1])):
        raise CheckpointError(
            f"the file says {counts[0]} operators and {counts[1]} operands and has "
            f"{len(operators)} and {len(operands)}; was it cut short?"
        )
    return operators


def _operator(words: list[str]) -> Operator:
    """An operator from the words of its line."""
    if len(words) < 4:
        raise CheckpointError(f"expected kind, name and two counts, got {' '.join(words)[:80]!r}")
    kind, name = words[:2]
    if not all(re.fullmatch(r"\d{1,6}", count) for count in words[2:4]):
        raise CheckpointError(f"operator {name[:80]!r} has no two counts: {words[2:4]}"[:200])
    given, made = int(words[2]), int(words[3])
    names, rest = words[4 : 4 + given + made], words[4 + given + made :]
    if len(names) != given + made or any(len(word) > NAME for word in (kind, name, *names)):
        raise CheckpointError(f"operator {name[:80]!r}: operands are missing or too long")
    op = Operator(kind, name, tuple(names[:given]), tuple(names[given:]))
    for word in rest:
        key, equals, value = word.partition("=")
        tables: dict[str, dict[str, Any]] = {"@": op.weights, "$": op.arguments, "#": op.shapes}
        target = tables.get(key[:1], op.params)
        key = key if target is op.params else key[1:]
        if not equals or not key or len(key) > NAME:
            raise CheckpointError(f"operator {op.label}: {word[:80]!r} is no key=value")
        if key in target and target is not op.shapes:
            raise CheckpointError(f"operator {op.label} has {key[:80]!r} twice")
        if target is op.weights:
            sizes, dtype = _shaped(value)
            if None in sizes:
                raise CheckpointError(f"operator {op.label}: weight {word[:80]!r} has no size")
            target[key] = (sizes, dtype)
        elif target is op.shapes:
            target[key] = _shaped(value)
        elif target is op.arguments:
            if value not in op.inputs:
                raise CheckpointError(f"operator {op.label} has no input {value[:80]!r}")
            target[key] = value
        else:
            target[key] = read_value(value) if key != "expr" else value
    return op


def _shaped(text: str) -> tuple[tuple[int | None, ...], str]:
    """(shape, dtype) of `(2,3)f32`; None for a size that is not known."""
    found = _SHAPED.fullmatch(text)
    if not found or (found[2] not in DTYPES and found[2] != "null"):
        raise CheckpointError(f"{text[:80]!r} is no shape and type such as (2,3)f32")
    sizes: list[int | None] = []
    for part in found[1].split(",") if found[1] else ():
        if part == "?" or part.startswith("%"):
            sizes.append(None)
        elif re.fullmatch(r"\d{1,10}", part) and int(part) < 1 << 31:
            sizes.append(int(part))
        else:
            raise CheckpointError(f"{part[:40]!r} in {text[:80]!r} is no size")
    if len(sizes) > RANK:
        raise CheckpointError(f"a shape of {len(sizes)} dimensions; {RANK} are read")
    return tuple(sizes), DTYPES.get(found[2], "null")


def product(sizes: Iterable[int]) -> int:
    """The product of sizes, or of the first of them where that alone is too large for any array."""
    total = 1
    for size in sizes:
        total *= size
        if abs(total) >> 63:
            break
    return total


def read_value(text: str) -> Any:
    """A parameter: None, a bool, a number, a string, or a tuple of these."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) >= 2 and text[0] + text[-1] in ("()", "[]"):
        parts = text[1:-1].split(",")
        if len(parts) > LIST:
            raise CheckpointError(f"a list of {len(parts)} values; {LIST} are read")
        return tuple(_scalar(part) for part in parts if part)
    return _scalar(text)


def _scalar(text: str) -> Any:
    """A number, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        value = int(text)
        if not -(1 << 63) <= value < 1 << 63:
            raise CheckpointError(f"{text[:40]} is out of range")
        return value
    if _NUMBER.fullmatch(text):
        return float(text)
    both = _COMPLEX.fullmatch(text)
    if both and _NUMBER.fullmatch(both[5].removeprefix("+")):
        return complex(float(both[1]), float(both[5]))
    return text
