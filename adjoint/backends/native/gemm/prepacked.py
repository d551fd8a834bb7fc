"""Products with constants that lie in panels: y = f(x w + bias + added), f one of `KINDS`.

w (k, n) is stored once as panels of a few vectors' columns, in the order in which the inner loop
reads them, so that weights which no cache holds arrive as fast as memory gives them. Tiles of y
stay in registers while a panel goes by; with few rows each weight is read once. Every element is
summed in the order of k, whatever tile and thread it falls to.
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import policy
from ....core.arrays import address
from ....core.errors import Unsupported
from ...codegen import target
from ...codegen.emit import FunctionBody, Module, Reg, type_name
from ...codegen.maths import evaluate
from ...codegen.target import Target
from ..onednn.plan import aligned_bytes, threads
from ..runtime import object_code
from ..runtime.launch_list import Launch
from ..runtime.shared_code import Writer, function

WIDTH = 3  # vectors of a panel
AHEAD = 2048  # bytes of a panel that are fetched before their use
LINE = 64
BIAS, ADDED, CLIPPED = 1, 2, 4  # flags: what there is
CLIP = "clip"
# Words of a call, before the addresses of x, w, y, and of the bias and what is added.
_N, _K, _M, _ROWS, _PANELS, _PARTS, _FLAGS, _KIND, _NUMBERS, _PLACES = range(10)


def _gelu_tanh(b: FunctionBody, x: Reg) -> Reg:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (evaluate(b, "tanh", inner) + 1.0)


def _sixth(b: FunctionBody, x: Reg) -> Reg:
    """min(max(x + 3, 0), 6) / 6"""
    zero, six = (b.const("float", v, x.lanes) for v in (0.0, 6.0))
    inner = b.intrinsic("minimum", b.intrinsic("maximum", x + 3.0, zero), six)
    return inner * (1 / 6)


# Functions of a vector and of a number, by their names in frozen layers.
KINDS: dict[str, Callable[[FunctionBody, Reg, Reg], Reg]] = {
    "linear": lambda b, x, n: x * n,
    "leaky": lambda b, x, n: b.select(x > 0.0, x, x * n),
    "sigmoid": lambda b, x, n: evaluate(b, "sigmoid", x),
    "tanh": lambda b, x, n: evaluate(b, "tanh", x),
    "silu": lambda b, x, n: x * evaluate(b, "sigmoid", x),
    "elu": lambda b, x, n: b.select(x > 0.0, x, evaluate(b, "expm1", x)),
    "gelu": lambda b, x, n: x * 0.5 * (evaluate(b, "erf", x * math.sqrt(0.5)) + 1.0),
    "gelu_tanh": lambda b, x, n: _gelu_tanh(b, x),
    "hardsigmoid": lambda b, x, n: _sixth(b, x),
    "hardswish": lambda b, x, n: x * _sixth(b, x),
}


class Epilogue(NamedTuple):
    """Elementwise function applied to the result: CLIP (between two numbers), which tiles do, or
    one of `KINDS` (with the first number).
    """

    kind: str = CLIP
    first: float = -math.inf
    second: float = math.inf


def tallest(host: Target) -> tuple[int, ...]:
    """The most rows of a tile of one vector, of two, ...: what there are registers for."""
    return (8, 8, 8) if host.vector_bytes == 64 else (8, 6, 4)


def text(host: Target, symbol: str) -> str:
    """The module with the function `symbol`.panels for float32."""
    module = Module()
    lanes = host.vector_bytes // 4
    most = tallest(host)
    module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    for width in range(1, WIDTH + 1):
        for rows in range(1, most[width - 1] + 1):
            _tile(module, rows, width, lanes)
    for kind, formula in KINDS.items():
        _activation(module, kind, formula, lanes)
    _driver(module, f"{symbol}.panels", lanes, most)
    return str(module)


def _activation(
    module: Module, kind: str, formula: Callable[[FunctionBody, Reg, Reg], Reg], lanes: int
) -> None:
    """A function of every element of a part of y, which a cache still holds."""
    vector = type_name("float", lanes)
    header = f"void @.{kind}(ptr %y, ptr %numbers, i64 %n, i64 %rows, i64 %columns)"
    with function(module, header) as (b, y, numbers, n, rows, columns):
        given = b.splat(b.get(b.place("float", numbers, 0)), lanes)
        whole = b.binary("and", columns, -lanes)
        mask = b.iota("i64", lanes) < b.splat(columns - whole, lanes)
        with b.loop(0, rows) as i:
            row = b.at(y, i * n, "float")
            with b.loop(0, whole, lanes) as j:
                at = b.at(row, j, "float")
                x = b.emit("float", lanes, f"load {vector}, ptr {at.ref}, align 4")
                b.line(f"store {vector} {formula(b, x, given).ref}, ptr {at.ref}, align 4")
            with b.when(whole < columns):
                at = b.at(row, whole, "float")
                x = b.load_masked("float", lanes, at, mask, 4)
                b.store_masked([(formula(b, x, given), at)], mask, 4)


def _tile(module: Module, rows: int, width: int, lanes: int) -> None:
    """`rows` of y by `width` vectors, of the last of which `count` lanes are there."""
    vector = type_name("float", lanes)
    header = (
        f"void @.tile{rows}x{width}(ptr %x, ptr %w, ptr %y, ptr %bias, ptr %added, ptr %bounds, "
        "i64 %k, i64 %n, i64 %count, ptr %later, i64 %step)"
    )
    with function(module, header) as (
        b, x, w, y, bias, added, bounds, k, n, count, later, step,
    ):  # fmt: skip

        def load(at: Reg, mask: Reg | None) -> Reg:
            if mask is None:
                return b.emit("float", lanes, f"load {vector}, ptr {at.ref}, align 4")  # type: ignore[no-any-return]
            return b.load_masked("float", lanes, at, mask, 4)  # type: ignore[no-any-return]

        places = [(i, j) for i in range(rows) for j in range(width)]
        zero = b.const("float", 0.0, lanes)
        sums = {at: b.alloca("float", lanes, zero) for at in places}
        starts = [b.at(x, k * i, "float") for i in range(rows)]
        row, fetched = b.alloca("ptr"), b.alloca("ptr")
        b.put(row, w)
        b.put(fetched, later)
        with b.loop(0, k) as p:
            here = b.get(row)
            for line in range(0, width * lanes * 4, LINE):
                at = b.at(b.get(fetched), line)
                b.line(f"call void @llvm.prefetch.p0(ptr {at.ref}, i32 0, i32 3, i32 1)")
            b.put(fetched, b.at(b.get(fetched), step))
            vectors = [load(b.at(here, j * lanes, "float"), None) for j in range(width)]
            for i in range(rows):
                at = b.at(starts[i], p, "float")
                factor = b.splat(b.emit("float", 0, f"load float, ptr {at.ref}"), lanes)
                for j in range(width):
                    b.put(sums[i, j], b.fma(factor, vectors[j], b.get(sums[i, j])))
            b.put(row, b.at(here, width * lanes, "float"))
        rest = b.iota("i64", lanes) < b.splat(count, lanes)
        masks = [None] * (width - 1) + [rest]
        with b.when(b.emit("i1", 0, f"icmp ne ptr {bias.ref}, null")):
            for j in range(width):
                more = load(b.at(bias, j * lanes, "float"), masks[j])
                for i in range(rows):
                    b.put(sums[i, j], b.get(sums[i, j]) + more)
        with b.when(b.emit("i1", 0, f"icmp ne ptr {added.ref}, null")):
            for i, j in places:
                at = b.at(b.at(added, n * i, "float"), j * lanes, "float")
                b.put(sums[i, j], b.get(sums[i, j]) + load(at, masks[j]))
        with b.when(b.emit("i1", 0, f"icmp ne ptr {bounds.ref}, null")):
            low, high = (
                b.splat(b.get(b.place("float", bounds, i, "float")), lanes) for i in (0, 1)
            )
            for place in places:
                raised = b.intrinsic("maximum", b.get(sums[place]), low)
                b.put(sums[place], b.intrinsic("minimum", raised, high))
        last = []
        for i, j in places:
            at = b.at(b.at(y, n * i, "float"), j * lanes, "float")
            if j == width - 1:
                last.append((b.get(sums[i, j]), at))
            else:
                b.line(f"store {vector} {b.get(sums[i, j]).ref}, ptr {at.ref}, align 4")
        b.store_masked(last, rest, 4)


def _define_tables(module: Module, most: Sequence[int]) -> None:
    """Tables of the functions for tiles (by width, and then by height up to the highest of all), of
    those for `KINDS`, and of the heights of tiles by width.
    """
    names = [
        f".tile{min(rows, most[width - 1])}x{width}"
        for width in range(1, WIDTH + 1)
        for rows in range(1, max(most) + 1)
    ]
    tiles = ", ".join(f"ptr @{each}" for each in names)
    module.declarations[".panel_tiles"] = (
        f"@.panel_tiles = internal constant [{len(names)} x ptr] [{tiles}]"
    )
    kinds = ", ".join(f"ptr @.{kind}" for kind in KINDS)
    module.declarations[".kinds"] = f"@.kinds = internal constant [{len(KINDS)} x ptr] [{kinds}]"
    heights = ", ".join(f"i64 {rows}" for rows in most)
    module.declarations[".heights"] = f"@.heights = internal constant [{WIDTH} x i64] [{heights}]"


def _driver(module: Module, name: str, lanes: int, most: Sequence[int]) -> None:
    """Chunks of so many rows and panels; panel by panel, tile below tile."""
    _define_tables(module, most)
    header = f"void @{name}(i64 %begin, i64 %end, ptr %words)"
    with function(module, header) as (b, begin, end, words):
        call = _CallWriter(b, words, lanes, max(most))
        g = call.g
        columns = b.const("i64", WIDTH * lanes)
        with b.loop(begin, end) as chunk:
            first = b.binary("udiv", chunk, g["parts"]) * g["rows"]
            count = b.intrinsic("smin", g["m"] - first, g["rows"])
            start = b.binary("urem", chunk, g["parts"]) * g["panels"] * columns
            stop = b.intrinsic("smin", start + g["panels"] * columns, g["n"])
            with b.loop(start, stop, columns) as j:
                call.multiply(first, count, j)
                with b.when(g["kind"] > 0):
                    of = b.get(_entry(b, ".kinds", len(KINDS), g["kind"] - 1, "ptr"))
                    here = b.at(g["y"], first * g["n"] + j, "float")
                    width = b.intrinsic("smin", g["n"] - j, columns)
                    b.invoke("void", of, here, g["numbers"], g["n"], count, width)


class _CallWriter:
    """Code for one call, whose words it reads first: `g` has them by name, and addresses of what is
    not there as null.
    """

    def __init__(self, b: Writer, words: Reg, lanes: int, highest: int) -> None:
        self.b, self.lanes, self.highest = b, lanes, highest
        self.null = Reg(b, "ptr", 0, "null")
        places = {
            "n": _N, "k": _K, "m": _M, "rows": _ROWS, "panels": _PANELS, "parts": _PARTS,
            "flags": _FLAGS, "kind": _KIND,
        }  # fmt: skip
        self.g = g = {name: b.get(b.place("i64", words, at, "i64")) for name, at in places.items()}
        for i, name in enumerate("xwy"):
            g[name] = b.get(b.place("ptr", words, _PLACES + i, "i64"))
        g["bias"] = self._given(words, BIAS, _PLACES + 3)
        g["added"] = self._given(words, ADDED, (g["flags"] & BIAS) + (_PLACES + 3))
        g["numbers"] = b.at(words, _NUMBERS, "i64")
        clipped = b.compare("ne", g["flags"] & CLIPPED, 0)
        g["bounds"] = b.select(clipped, g["numbers"], self.null)
        self.has_bias, self.has_added = (
            b.emit("i1", 0, f"icmp ne ptr {g[name].ref}, null") for name in ("bias", "added")
        )

    def _given(self, words: Reg, flag: int, place: Reg | int) -> Reg:
        """The address at a place of the words, null where the flag is not set."""
        b = self.b
        there = b.compare("ne", self.g["flags"] & flag, 0)
        return b.select(there, b.get(b.place("ptr", words, place, "i64")), self.null)

    def multiply(self, first: Reg, count: Reg, j: Reg) -> None:
        """`count` rows from `first` on times the panel that begins with column j."""
        b, g, lanes, null = self.b, self.g, self.lanes, self.null
        n, k = g["n"], g["k"]
        width = b.intrinsic(
            "smin", b.binary("udiv", n - j + (lanes - 1), lanes), b.const("i64", WIDTH)
        )
        lanes_left = b.intrinsic("smin", n - j - (width - 1) * lanes, lanes)
        panel = b.at(g["w"], j * k, "float")
        tall = b.get(_entry(b, ".heights", WIDTH, width - 1, "i64"))
        # The one tile of a panel fetches what it reads soon; several fetch the next panel.
        tiles = b.binary("udiv", count + tall - 1, tall)
        bytes_ = width * (4 * lanes)
        step = b.binary("udiv", bytes_, tiles)
        far = b.select(b.compare("eq", tiles, 1), b.const("i64", AHEAD), bytes_ * k)
        later = b.alloca("ptr")
        b.put(later, b.at(panel, far))
        with b.loop(0, count, tall) as i:
            height = b.intrinsic("smin", count - i, tall)
            number = (width - 1) * self.highest + height - 1
            tile = b.get(_entry(b, ".panel_tiles", WIDTH * self.highest, number, "ptr"))
            row = first + i
            out = row * n + j
            b.invoke(
                "void", tile, b.at(g["x"], row * k, "float"), panel, b.at(g["y"], out, "float"),
                b.select(self.has_bias, b.at(g["bias"], j, "float"), null),
                b.select(self.has_added, b.at(g["added"], out, "float"), null),
                g["bounds"], k, n, lanes_left, b.get(later), step,
            )  # fmt: skip
            b.put(later, b.at(b.get(later), step * k))


def _entry(b: Writer, table: str, size: int, index: Reg, elem: str) -> Reg:
    at = b.emit("ptr", 0, f"getelementptr [{size} x {elem}], ptr @{table}, i64 0, i64 {index.ref}")
    return Reg(b, elem, 0, at.ref)


@functools.cache
def _code() -> int | None:
    """The generated function; None without llvmlite or wide vectors."""
    try:
        if target.host().vector_bytes < 32:
            return None
        [code] = object_code.load(sys.modules[__name__], "panels", text, ("panels",))
    except Unsupported:
        return None
    return code


def is_available() -> bool:
    """Whether these products can be computed here."""
    return _code() is not None


class Packed(NamedTuple):
    """A matrix (k, n) as panels."""

    panels: Any
    k: int
    n: int


class PackedProduct(NamedTuple):
    """A layer of a frozen network: a product of so many rows with constants, and what follows."""

    rows: int
    w: Packed
    epilogue: Epilogue

    @property
    def what(self) -> str:
        """The product."""
        return f"layer ({self.rows}, {self.w.k}) @ ({self.w.k}, {self.w.n})"


def packed(w: Any) -> Packed:
    """The panels of a matrix (k, n), each with all its rows."""
    columns = WIDTH * target.host().vector_bytes // 4
    k, n = w.shape
    lanes = columns // WIDTH
    whole = aligned_bytes(4 * k * (-(-n // lanes) * lanes)).view(np.float32)
    at = 0
    for j in range(0, n, columns):
        part = w[:, j : j + columns]
        width = -(-part.shape[1] // lanes) * lanes
        panel = whole[at : at + k * width].reshape(k, width)
        panel[:, : part.shape[1]] = part
        panel[:, part.shape[1] :] = 0
        at += k * width
    return Packed(whole, k, n)


def call(
    x: Any, w: Packed, y: Any, bias: Any = None, added: Any = None, epilogue: Epilogue | None = None
) -> Launch:
    """A call that computes y (m, n) of x (m, k); both lie row by row without gaps, and all arrays
    keep their addresses.
    """
    k, n = w.k, w.n
    m = y.size // n
    code = _code()
    assert code is not None
    columns = WIDTH * target.host().vector_bytes // 4
    panels, rows = -(-n // columns), m
    workers = min(threads(), max(1, m * k * n // policy.CONVOLUTION_GRAIN))
    if panels < policy.PANELS_SHARED * workers and m >= policy.LAYER_FEWEST_ROWS * workers:
        rows, each = -(-m // workers), panels
    else:
        each = -(-panels // workers)
    parts = -(-panels // each)
    chunks = parts * -(-m // rows)
    arrays = [x, w.panels, y, *(v for v in (bias, added) if v is not None)]
    kind, *numbers = epilogue or ("", 0.0, 0.0)
    flags = (bias is not None) * BIAS | (added is not None) * ADDED | (kind == CLIP) * CLIPPED
    number = list(KINDS).index(kind) + 1 if kind in KINDS else 0
    words = struct.pack("8q2f", n, k, m, rows, each, parts, flags, number, *numbers)
    words += struct.pack(f"{len(arrays)}q", *map(address, arrays))
    pointers = range(_PLACES, _PLACES + len(arrays))
    quick = m * k * n < policy.GEMM_QUICK
    return Launch(code, chunks, words, pointers, chunks > 1, quick, arrays)
