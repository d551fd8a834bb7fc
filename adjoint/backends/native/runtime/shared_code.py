"""Writing functions that deal in memory which threads share: atomic instructions, early returns.

A variable is a register that says where it lies and what it holds, as those of
`FunctionBody.alloca` are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...codegen.emit import BITS, FunctionBody, Module, Operand, Reg


class Writer(FunctionBody):
    """The body of a function that returns where it likes."""

    def const(self, elem: str, value: float, lanes: int = 0) -> Reg:
        """A number, or an address that is one."""
        if elem != "ptr":
            return super().const(elem, value, lanes)
        return Reg(self, elem, 0, f"inttoptr (i64 {value} to ptr)" if value else "null")

    # Memory --------------------------------------------------------------------------------------

    def place(self, elem: str, pointer: Reg, offset: Reg | int, scale: str = "i8") -> Reg:
        """The variable that lies `offset` elements of type `scale` beyond an address."""
        return Reg(self, elem, 0, self.at(pointer, offset, scale).ref)

    def address(self, slot: Reg) -> Reg:
        """Address of a variable."""
        return Reg(self, "ptr", 0, slot.ref)

    def read(self, slot: Reg, order: str = "monotonic") -> Reg:
        """A shared variable's value."""
        return self.emit(
            slot.elem, 0, f"load atomic {slot.type}, ptr {slot.ref} {_how(slot, order)}"
        )

    def write(self, slot: Reg, value: Operand, order: str = "monotonic") -> None:
        """Sets a shared variable."""
        value = self.like(slot, value)
        self.line(f"store atomic {value.type} {value.ref}, ptr {slot.ref} {_how(slot, order)}")

    def update(self, how: str, slot: Reg, value: Operand, order: str = "monotonic") -> Reg:
        """Changes a shared variable (add, sub, and, or, max, xchg); its value before."""
        value = self.like(slot, value)
        text = f"atomicrmw {how} ptr {slot.ref}, {value.type} {value.ref} {order}"
        return self.emit(slot.elem, 0, text)

    def replace(self, slot: Reg, old: Operand, new: Operand, orders: str) -> Reg:
        """Sets a shared variable to `new` where it holds `old`; whether it did."""
        before, after = self.like(slot, old), self.like(slot, new)
        text = f"cmpxchg ptr {slot.ref}, {slot.type} {before.ref}, {slot.type} {after.ref} {orders}"
        pair = self.emit(slot.elem, 0, text)
        return self.emit("i1", 0, f"extractvalue {{{slot.type}, i1}} {pair.ref}, 1")

    # Calls ---------------------------------------------------------------------------------------

    def invoke(self, result: str, function: Reg | str, *arguments: Reg) -> Reg:
        """Calls a function by its name, or by its address."""
        name = function.ref if isinstance(function, Reg) else f"@{function}"
        text = f"call {result} {name}({', '.join(f'{a.type} {a.ref}' for a in arguments)})"
        if result != "void":
            return self.emit(result.split(" ")[0], 0, text)
        self.line(text)
        return Reg(self, "void", 0, "")

    # Control -------------------------------------------------------------------------------------

    def go(self, label: str) -> None:
        """Goes on elsewhere."""
        self.line(f"br label %{label}")

    def ret(self, value: Reg | None = None) -> None:
        """Ends the function here."""
        self.line("ret void" if value is None else f"ret {value.type} {value.ref}")

    @contextlib.contextmanager
    def counting(self, count: Operand) -> Iterator[tuple[Reg, str]]:
        """Runs what is written inside for 0, 1, ... below `count`, at least once; gives the number,
        and the label at which the next one is.
        """
        head, last, after = self.label(), self.label(), self.label()
        i, following, before = self.name(), self.name(), self.block
        self.start(head)
        self.line(f"{i} = phi i64 [0, %{before}], [{following}, %{last}]")
        yield Reg(self, "i64", 0, i), last
        self.start(last)
        self.line(f"{following} = add i64 {i}, 1")
        self.branch(Reg(self, "i64", 0, following) < count, head, after)
        self.start(after)

    @contextlib.contextmanager
    def forever(self) -> Iterator[tuple[str, str]]:
        """Runs what is written inside again and again; gives the labels of its start and end."""
        again, after = self.label(), self.label()
        self.start(again)
        yield again, after
        self.go(again)
        self.start(after)


def _how(slot: Reg, order: str) -> str:
    return f"{order}, align {BITS[slot.elem] // 8}"


@contextlib.contextmanager
def function(module: Module, header: str) -> Iterator[tuple[Any, ...]]:
    """Writes a function, such as `i64 @twice(i64 %x)`: gives its body and its parameters. One that
    gives nothing returns at its end.
    """
    b = Writer(module)
    before, _, listed = header.rstrip(")").partition("(")
    parameters = (p.split(" ") for p in listed.split(", ") if p)
    yield b, *(Reg(b, elem, 0, name) for elem, name in parameters)
    if "void @" in before:
        b.ret()
    lines = [f"define {header} {{", "entry:", *b.allocas, *b.lines, "}"]
    module.functions[before.partition("@")[2]] = "\n".join(lines)
