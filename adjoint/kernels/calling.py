"""Calling a kernel of machine code: functions that serve all of them, once in a process.

`resolve(words)` prepares words in which the operands' pointers are still the addresses of NumPy
array objects: it puts the data pointers there, which is cheaper than asking for them in Python, and
gives 1 if an output overlaps an input that is read after being overwritten. `launch(words)`
resolves and, unless that gave 1, runs all chunks.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from . import cache, target
from .emit import Body, Module, Reg

__all__ = ["CALLED", "DATA_OFFSET", "Functions", "functions"]

DATA_OFFSET = object.__basicsize__  # of a NumPy array object's data pointer: the first field

CALLED = ("chunks", "kernel", "inputs", "outputs", "spans")
"""The first words: how many chunks; the kernel; how many inputs and outputs; the number of the word
from which on there are, for each operand, low and high, for each output, same, and the pointers."""


class Functions(NamedTuple):
    """Addresses."""

    resolve: int
    launch: int


@functools.cache
def functions() -> Functions:
    """The functions, from disk or compiled.

    Errors: Unsupported without llvmlite.
    """
    name = cache.digest("calling", repr(target.host()))
    symbol = "c" + name
    symbols = [f"{symbol}.{entry}" for entry in Functions._fields]
    return Functions(*target.kept(name, lambda: text(symbol), *symbols))


def text(symbol: str) -> str:
    """LLVM IR of a module with `symbol`.resolve and `symbol`.launch."""
    module = Module()
    module.functions["resolve"] = _resolve(module, symbol)
    module.functions["launch"] = _launch(module, symbol)
    return str(module)


def _load(b: Body, at: Reg, kind: str = "i64") -> Reg:
    return b.emit(kind, 0, f"load {kind}, ptr {at.ref}, align 8")


def _words(b: Body) -> tuple[Reg, dict[str, Reg]]:
    words = Reg(b, "ptr", 0, "%words")
    kinds = {"kernel": "ptr"}
    first = {
        name: _load(b, b.at(words, k, "i64"), kinds.get(name, "i64"))
        for k, name in enumerate(CALLED)
    }
    return words, first


def _resolve(module: Module, symbol: str) -> str:
    b = Body(module)
    words, word = _words(b)
    inputs, outputs = word["inputs"], word["outputs"]
    operands = inputs + outputs
    spans = b.at(words, word["spans"], "i64")
    same = b.at(spans, operands + operands, "i64")
    pointers = b.at(same, outputs, "i64")
    with b.loop(0, operands) as k:
        place = b.at(pointers, k, "i64")
        data = _load(b, b.at(_load(b, place, "ptr"), DATA_OFFSET))
        b.line(f"store i64 {data.ref}, ptr {place.ref}, align 8")
    wrong = b.alloca("i64", 0, 0)

    def span(k: Reg) -> tuple[Reg, Reg, Reg]:
        start, low = _load(b, b.at(pointers, k, "i64")), b.at(spans, k + k, "i64")
        return start, start + _load(b, low), start + _load(b, b.at(low, 8))

    with b.loop(0, outputs) as k:
        start, low, high = span(inputs + k)
        allowed = _load(b, b.at(same, k, "i64"))
        with b.loop(0, inputs) as j:
            other, begin, end = span(j)
            bit = b.binary("lshr", allowed, b.intrinsic("smin", j, 63)) & 1
            alike = b.compare("eq", other, start) & b.compare("ne", bit, 0)
            meets = (begin < high) & (low < end)
            with b.when(meets & ~alike):
                b.put(wrong, 1)
    result = b.convert("trunc", b.get(wrong), "i32")
    return b.function(f"i32 @{symbol}.resolve(ptr %words)", result)


def _launch(module: Module, symbol: str) -> str:
    b = Body(module)
    words, word = _words(b)
    wrong = b.call(f"{symbol}.resolve", "i32", 0, [words])
    with b.when(b.compare("eq", wrong, 0)):
        arguments = f"i64 0, i64 {word['chunks'].ref}, ptr {words.ref}"
        b.line(f"call void {word['kernel'].ref}({arguments})")
    return b.function(f"i32 @{symbol}.launch(ptr %words)", wrong)
