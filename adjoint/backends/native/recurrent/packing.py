"""The weights of recurrent layers in the order in which tiles read them, as machine code."""

from __future__ import annotations

import functools
import sys

from ...codegen.emit import FunctionBody, Module, Reg
from ...codegen.target import Target
from ..gemm import tiles
from ..runtime import object_code

WORDS = ("row", "units", "depth", "gates", "tile", "weight", "packed")
# The words of the argument: numbers (`row` in bytes), then the addresses of arrays.


@functools.cache
def packing() -> int:
    """Address of `void kernel(int64 begin, int64 end, int64 *words)`: groups of `tile` units of
    float32 weights, whose rows are without gaps, into `packed` (groups, depth, gates, tile), of
    which it leaves whole vectors beyond the last unit as they are.

    Errors: Unsupported without llvmlite.
    """
    this = sys.modules[__name__]
    return object_code.load(this, "pack", text, ("pack",))[0]


def text(host: Target, symbol: str) -> str:
    """The module, with the function `symbol`.pack: each gate of a group is a transpose."""
    module = Module()
    transpose = tiles.Tiles(module, host).transpose()
    b = FunctionBody(module)
    words = [
        b.emit("i64", 0, f"load i64, ptr {b.at(Reg(b, 'ptr', 0, '%words'), n, 'i64').ref}")
        for n in range(len(WORDS))
    ]
    row, units, depth, gates, tile = words[:5]
    weight, packed = (b.convert("inttoptr", x, "ptr") for x in words[5:])
    bytes_ = tile * tiles.ITEM  # of a vector of units of one gate
    with b.loop(Reg(b, "i64", 0, "%begin"), Reg(b, "i64", 0, "%end")) as group:
        first = group * tile
        with b.loop(0, gates) as gate:
            source = b.at(weight, (gate * units + first) * row)
            target = b.at(packed, (group * depth * gates + gate) * bytes_)
            count = b.intrinsic("smin", units - first, tile)
            tiles.call(b, transpose, source, row, target, gates * bytes_, count, depth,
                       b.const("float", 1.0))  # fmt: skip
    header = f"void @{symbol}.pack(i64 %begin, i64 %end, ptr noalias readonly %words)"
    module.functions["pack"] = b.function(header)
    return str(module)
