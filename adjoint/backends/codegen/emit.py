"""Writing LLVM IR as text: registers with operators, a function body, a module.

Text, because building it costs a few microseconds an instruction, far less than objects would.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

LLVM_TYPES = {
    "bool": "i1",
    **{f"{u}int{n}": f"i{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
    "float32": "float",
    "float64": "double",
}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64, "ptr": 64}
FLOAT_TYPES = ("float", "double")


class Reg(NamedTuple):
    """An LLVM value: element type, lanes (0 for a scalar), and how the text refers to it."""

    body: FunctionBody
    elem: str
    lanes: int
    ref: str

    @property
    def type(self) -> str:
        """The type as LLVM writes it."""
        return type_name(self.elem, self.lanes)

    def __add__(self, other: Operand) -> Reg:  # type: ignore[override]
        return self.body.arith("add", self, other)

    def __radd__(self, other: float) -> Reg:
        return self.body.arith("add", self.body.like(self, other), self)

    def __sub__(self, other: Operand) -> Reg:
        return self.body.arith("sub", self, other)

    def __rsub__(self, other: float) -> Reg:
        return self.body.arith("sub", self.body.like(self, other), self)

    def __mul__(self, other: Operand) -> Reg:  # type: ignore[override]
        return self.body.arith("mul", self, other)

    def __rmul__(self, other: float) -> Reg:  # type: ignore[override]
        return self.body.arith("mul", self.body.like(self, other), self)

    def __truediv__(self, other: Operand) -> Reg:
        return self.body.arith("div", self, other)

    def __rtruediv__(self, other: float) -> Reg:
        return self.body.arith("div", self.body.like(self, other), self)

    def __neg__(self) -> Reg:
        if self.elem in FLOAT_TYPES:
            return self.body.emit(self.elem, self.lanes, f"fneg {self.type} {self.ref}")
        return self.body.arith("sub", self.body.like(self, 0), self)

    def __and__(self, other: Operand) -> Reg:
        return self.body.binary("and", self, other)

    def __or__(self, other: Operand) -> Reg:
        return self.body.binary("or", self, other)

    def __xor__(self, other: Operand) -> Reg:
        return self.body.binary("xor", self, other)

    def __invert__(self) -> Reg:
        return self.body.binary("xor", self, 1 if self.elem == "i1" else -1)

    def __lt__(self, other: Operand) -> Reg:  # type: ignore[override]
        return self.body.compare("lt", self, other)

    def __le__(self, other: Operand) -> Reg:  # type: ignore[override]
        return self.body.compare("le", self, other)

    def __gt__(self, other: Operand) -> Reg:  # type: ignore[override]
        return self.body.compare("gt", self, other)

    def __ge__(self, other: Operand) -> Reg:  # type: ignore[override]
        return self.body.compare("ge", self, other)


Operand: TypeAlias = "Reg | int | float"


def type_name(elem: str, lanes: int) -> str:
    """`<16 x float>`, or `float` for 0 lanes."""
    return f"<{lanes} x {elem}>" if lanes else elem


def suffix(elem: str, lanes: int) -> str:
    """Name of the type in an intrinsic's name: v16f32."""
    short = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(elem, elem)
    return f"v{lanes}{short}" if lanes else short


def literal(elem: str, value: float) -> str:
    """A number as LLVM writes it (floats as the bits of a double)."""
    if elem in FLOAT_TYPES:
        if elem == "float" and math.isfinite(value):
            value = struct.unpack("f", struct.pack("f", value))[0]
        return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"
    if elem == "i1":
        return "true" if value else "false"
    return str(int(value))


@dataclass
class Module:
    """The text of one LLVM module: functions, what they declare, and constant tables."""

    functions: dict[str, str] = field(default_factory=dict)
    declarations: dict[str, str] = field(default_factory=dict)
    scalef: bool = False  # x86's y * 2**n in one instruction
    opaque_loops: bool = False  # LLVM shall not know how a loop's number changes

    def declare(self, name: str, result: str, parameters: list[str]) -> None:
        """Makes a function from outside known."""
        self.declarations[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def __str__(self) -> str:
        return "\n".join([*self.declarations.values(), *self.functions.values()])


class FunctionBody:
    """The body of a function while it is written."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.count = 0
        self.block = "entry"

    # Registers -----------------------------------------------------------------------------------

    def name(self) -> str:
        """A fresh register name."""
        self.count += 1
        return f"%v{self.count}"

    def emit(self, elem: str, lanes: int, text: str) -> Reg:
        """Appends an instruction that gives a value."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return Reg(self, elem, lanes, name)

    def line(self, text: str) -> None:
        """Appends an instruction that gives none."""
        self.lines.append(text)

    def const(self, elem: str, value: float, lanes: int = 0) -> Reg:
        """A number in every lane."""
        text = literal(elem, value)
        return Reg(self, elem, lanes, f"splat ({elem} {text})" if lanes else text)

    def like(self, x: Reg, value: Operand) -> Reg:
        """The operand as a register of x's type."""
        if isinstance(value, Reg):
            if value.lanes == x.lanes:
                return value
            return self.splat(value, x.lanes)
        return self.const(x.elem, value, x.lanes)

    def splat(self, x: Reg, lanes: int) -> Reg:
        """A scalar in every lane."""
        kind = f"<{lanes} x {x.elem}>"
        if x.ref[0] != "%":
            return Reg(self, x.elem, lanes, f"splat ({x.elem} {x.ref})")
        one = self.emit(x.elem, lanes, f"insertelement {kind} poison, {x.elem} {x.ref}, i32 0")
        return self.emit(
            x.elem,
            lanes,
            f"shufflevector {kind} {one.ref}, {kind} poison, <{lanes} x i32> zeroinitializer",
        )

    # Arithmetic ----------------------------------------------------------------------------------

    def arith(self, name: str, a: Reg, b: Operand) -> Reg:
        """add, sub, mul or div by the kind of the operands (division of floats only)."""
        return self.binary("f" + name if a.elem in FLOAT_TYPES else name, a, b)

    def binary(self, name: str, a: Reg, b: Operand) -> Reg:
        """A two-operand instruction."""
        b = self.like(a, b)
        return self.emit(a.elem, a.lanes, f"{name} {a.type} {a.ref}, {b.ref}")

    def compare(self, how: str, a: Reg, b: Operand, unsigned: bool = False) -> Reg:
        """lt, le, gt, ge, eq, ne; false for NaN, except ne. Floats: also `uno`, and `uge` and
        `ule`, which are true for NaN.
        """
        b = self.like(a, b)
        if a.elem in FLOAT_TYPES:
            word = "fcmp " + (how if how[0] == "u" else "une" if how == "ne" else "o" + how)
        elif how in ("eq", "ne"):
            word = "icmp " + how
        else:
            word = "icmp " + ("u" if unsigned or a.elem == "i1" else "s") + how
        return self.emit("i1", a.lanes, f"{word} {a.type} {a.ref}, {b.ref}")

    def select(self, condition: Reg, a: Operand, b: Operand) -> Reg:
        """a where the condition holds, else b."""
        if isinstance(a, Reg):
            b = self.like(a, b)
        else:
            assert isinstance(b, Reg)
            a = self.like(b, a)
        text = f"select {condition.type} {condition.ref}, {a.type} {a.ref}, {b.type} {b.ref}"
        return self.emit(a.elem, a.lanes, text)

    def convert(self, how: str, x: Reg, elem: str) -> Reg:
        """A conversion instruction: bitcast, sext, zext, trunc, fpext, fptrunc, sitofp, ..."""
        if x.elem == elem:
            return x
        to = type_name(elem, x.lanes)
        return self.emit(elem, x.lanes, f"{how} {x.type} {x.ref} to {to}")

    def intrinsic(self, name: str, *args: Operand, elem: str = "") -> Reg:
        """An LLVM intrinsic overloaded on its first argument, result of that type or `elem`."""
        first = args[0]
        assert isinstance(first, Reg)
        regs = [self.like(first, a) for a in args]
        full = f"llvm.{name}.{suffix(first.elem, first.lanes)}"
        result = type_name(elem or first.elem, first.lanes)
        self.module.declare(full, result, [r.type for r in regs])
        text = ", ".join(f"{r.type} {r.ref}" for r in regs)
        return self.emit(elem or first.elem, first.lanes, f"call {result} @{full}({text})")

    def fma(self, a: Reg, b: Operand, c: Operand) -> Reg:
        """a*b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def minmax(self, name: str, a: Reg, b: Reg, unsigned: bool) -> Reg:
        """`max` or `min` of integers or bools."""
        if a.elem == "i1":
            return a | b if name == "max" else a & b
        return self.intrinsic(("u" if unsigned else "s") + name, a, b)

    def call(self, name: str, elem: str, lanes: int, args: list[Reg]) -> Reg:
        """A call of a function of this module, or of one that is declared."""
        text = ", ".join(f"{a.type} {a.ref}" for a in args)
        return self.emit(elem, lanes, f"call {type_name(elem, lanes)} @{name}({text})")

    # Lanes ---------------------------------------------------------------------------------------

    def lane(self, x: Reg, number: Reg | int) -> Reg:
        """One lane as a scalar."""
        at = f"i64 {number.ref}" if isinstance(number, Reg) else f"i32 {number}"
        return self.emit(x.elem, 0, f"extractelement {x.type} {x.ref}, {at}")

    def iota(self, elem: str, lanes: int) -> Reg:
        """0, 1, 2, ..."""
        return Reg(self, elem, lanes, "<" + ", ".join(f"{elem} {i}" for i in range(lanes)) + ">")

    def halves(self, x: Reg) -> tuple[Reg, Reg]:
        """The lower and the upper half of the lanes."""
        half = x.lanes // 2
        parts = []
        for start in (0, half):
            picks = ", ".join(f"i32 {i}" for i in range(start, start + half))
            text = f"shufflevector {x.type} {x.ref}, {x.type} poison, <{half} x i32> <{picks}>"
            parts.append(self.emit(x.elem, half, text))
        return parts[0], parts[1]

    def join(self, low: Reg, high: Reg) -> Reg:
        """Concatenates the lanes of two vectors: the inverse of `halves`."""
        lanes = 2 * low.lanes
        picks = ", ".join(f"i32 {i}" for i in range(lanes))
        text = (
            f"shufflevector {low.type} {low.ref}, {high.type} {high.ref}, <{lanes} x i32> <{picks}>"
        )
        return self.emit(low.elem, lanes, text)

    def any(self, mask: Reg) -> Reg:
        """Whether any lane of a mask is set."""
        return self._bits(mask, "ne", 0)

    def all(self, mask: Reg) -> Reg:
        """Whether all lanes of a mask are set."""
        return self._bits(mask, "eq", -1)

    def _bits(self, mask: Reg, how: str, value: int) -> Reg:
        word = f"i{mask.lanes}"
        bits = self.emit(word, 0, f"bitcast {mask.type} {mask.ref} to {word}")
        return self.emit("i1", 0, f"icmp {how} {word} {bits.ref}, {value}")

    # Memory --------------------------------------------------------------------------------------

    def alloca(self, elem: str, lanes: int = 0, value: Operand | None = None) -> Reg:
        """A variable (of a register, once LLVM has seen it)."""
        name = self.name()
        self.allocas.append(f"{name} = alloca {type_name(elem, lanes)}")
        slot = Reg(self, elem, lanes, name)
        if value is not None:
            self.put(slot, value)
        return slot

    def get(self, slot: Reg) -> Reg:
        """A variable's value."""
        return self.emit(slot.elem, slot.lanes, f"load {slot.type}, ptr {slot.ref}")

    def put(self, slot: Reg, value: Operand) -> None:
        """Sets a variable."""
        value = self.like(slot, value)
        self.line(f"store {value.type} {value.ref}, ptr {slot.ref}")

    def at(self, pointer: Reg, offset: Reg | int, scale: str = "i8") -> Reg:
        """An address: `offset` elements of type `scale` beyond another."""
        offset = offset if isinstance(offset, Reg) else self.const("i64", offset)
        text = f"getelementptr {scale}, ptr {pointer.ref}, i64 {offset.ref}"
        return self.emit("ptr", 0, text)

    def load_masked(self, elem: str, lanes: int, at: Reg, mask: Reg, align: int = 1) -> Reg:
        """A vector, zeros where the mask is not set; nothing else is read."""
        kind = type_name(elem, lanes)
        name = f"llvm.masked.load.{suffix(elem, lanes)}.p0"
        self.module.declare(name, kind, ["ptr", "i32", mask.type, kind])
        text = f"ptr {at.ref}, i32 {align}, {mask.type} {mask.ref}, {kind} zeroinitializer"
        return self.emit(elem, lanes, f"call {kind} @{name}({text})")

    def store_masked(self, pairs: Sequence[tuple[Reg, Reg]], mask: Reg, align: int = 1) -> None:
        """Write vectors of one type, each to its address, in the lanes of a mask.

        Whole ones go another way: under a mask they take AMD's processors more than ten cycles, and
        where there is no instruction for them, a branch a lane.
        """
        whole = self.all(mask)
        with self.when(whole):
            for x, at in pairs:
                self.line(f"store {x.type} {x.ref}, ptr {at.ref}, align {align}")
        with self.when(~whole):
            for x, at in pairs:
                name = f"llvm.masked.store.{suffix(x.elem, x.lanes)}.p0"
                self.module.declare(name, "void", [x.type, "ptr", "i32", mask.type])
                text = f"{x.type} {x.ref}, ptr {at.ref}, i32 {align}, {mask.type} {mask.ref}"
                self.line(f"call void @{name}({text})")

    # Control -------------------------------------------------------------------------------------

    def label(self) -> str:
        """A fresh label."""
        self.count += 1
        return f"L{self.count}"

    def start(self, label: str) -> None:
        """Begins a block; the one before falls into it unless it has ended."""
        if not self.lines or not self.lines[-1].startswith(("br ", "ret ")):
            self.line(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, condition: Reg, yes: str, no: str) -> None:
        """Ends a block."""
        self.line(f"br i1 {condition.ref}, label %{yes}, label %{no}")

    @contextlib.contextmanager
    def when(self, condition: Reg) -> Iterator[None]:
        """Runs the instructions written inside only if the condition holds."""
        yes, end = self.label(), self.label()
        self.branch(condition, yes, end)
        self.start(yes)
        yield
        self.start(end)

    @contextlib.contextmanager
    def loop(self, start: Operand, end: Reg, step: Operand = 1) -> Iterator[Reg]:
        """Runs what is written inside for start, start + step, ... below end (all i64)."""
        head, inside, after = self.label(), self.label(), self.label()
        slot = self.alloca("i64", 0, start)
        self.start(head)
        i = self.get(slot)
        self.branch(i < end, inside, after)
        self.start(inside)
        yield i
        i = i + step
        self.put(slot, self.opaque(i) if self.module.opaque_loops else i)
        self.line(f"br label %{head}")
        self.start(after)

    def opaque(self, x: Reg) -> Reg:
        """A scalar integer, of which LLVM shall not know how it was made."""
        return self.emit(x.elem, 0, f'call {x.type} asm "", "=r,0"({x.type} {x.ref})')

    def function(self, header: str, result: Reg | None = None, attributes: str = "") -> str:
        """The text of a function with this body; that none throws is added for all (target.py)."""
        end = f"ret {result.type} {result.ref}" if result else "ret void"
        lines = ["entry:", *self.allocas, *self.lines, end]
        return "\n".join([f"define {header} {attributes} {{", *lines, "}"])
