"""Writing the functions of matrix products: what a product is told, vectors, masks."""

from __future__ import annotations

from typing import NamedTuple

from ...codegen.emit import FunctionBody, Module, Reg, type_name
from ...codegen.target import Target

SCALE, ADD, BIAS, RELU = 1, 2, 4, 8  # what is done with sums
FEW_ROWS = 16  # the product is one of few rows (see few_rows_code.py), or a part of one


class Shape(NamedTuple):
    """The words that describe one product: sizes, and strides in elements."""

    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    b_row: int
    b_column: int
    c_row: int
    mode: int = 0  # ADD: c is added to; RELU: what is below 0 becomes 0


class ProductWriter:
    """The functions for one element type, in one module."""

    def __init__(self, target: Target, elem: str) -> None:
        self.module = Module()
        self.elem = elem
        self.size = {"float": 4, "double": 8}[elem]
        self.lanes = target.vector_bytes // self.size
        self.vector = type_name(elem, self.lanes)
        # Elsewhere a mask takes registers: LLVM would make it anew for each k.
        self.masks = target.has("avx512f")

    PRODUCT = (
        "i64 %m, i64 %n, i64 %k, {e} %alpha, ptr %a, i64 %a_row, i64 %a_column, ptr %b, i64 %b_row,"
        " i64 %b_column, {e} %beta, ptr %c, i64 %c_row, i64 %mode, ptr %bias"
    )

    def argument(self, b: FunctionBody, elem: str, name: str) -> Reg:
        """An argument of a function, by its type and name."""
        return Reg(b, elem, 0, f"%{name}")

    def arguments(self, b: FunctionBody, parameters: str) -> dict[str, Reg]:
        """The arguments of a function with these parameters, by their names."""
        registers = {}
        for part in parameters.format(e=self.elem).split(", "):
            elem, name = part.split()
            registers[name[1:]] = Reg(b, elem, 0, name)
        return registers

    def load(self, b: FunctionBody, at: Reg, mask: Reg | None = None) -> Reg:
        """A vector, zeros where the mask is not set."""
        if mask is None:
            return b.emit(self.elem, self.lanes, f"load {self.vector}, ptr {at.ref}, align 4")
        return b.load_masked(self.elem, self.lanes, at, mask, 4)

    def store(self, b: FunctionBody, x: Reg, at: Reg) -> None:
        """Write a vector."""
        b.line(f"store {self.vector} {x.ref}, ptr {at.ref}, align 4")

    def mask(self, b: FunctionBody, count: Reg) -> Reg:
        """The first `count` lanes."""
        return b.iota("i64", self.lanes) < b.splat(count, self.lanes)

    def define(
        self, name: str, parameters: str, b: FunctionBody, result: Reg | None = None
    ) -> None:
        """Add a function."""
        kind = "internal void" if result is None else f"internal {result.type}"
        if not name.startswith("."):
            kind = kind.removeprefix("internal ")
        header = f"{kind} @{name}({parameters})"
        # Large frames touch each page of the stack, so that its end is noticed.
        attributes = '"probe-stack"="inline-asm"'
        self.module.functions[name] = b.function(header, result, attributes)
