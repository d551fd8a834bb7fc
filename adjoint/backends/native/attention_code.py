"""Attention's machine code: the two kernels, forward and backward, in tiles of queries and keys.

Scores are computed transposed, a row per key and a lane per query, so that maxima and sums over the
keys need nothing across lanes. The forward kernel makes a pass over the keys for each block of
queries and keeps a running maximum and sum (Dao et al., FlashAttention, 2022); the backward kernel
makes the weights again from the scores and the logarithm of that sum (Dao, FlashAttention-2, 2023).
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ...compiler import cache, maths, target
from ...compiler.emit import Body, Module, Reg
from .tiles import ADD, ITEM, SCALE, SET, Tiles, below, call, load, load_masked, store, store_masked

BLOCK = 64  # queries, and keys, of a tile
LARGEST = 256  # features of a head: what the kernels put on the stack is proportional to it
ROW = BLOCK * ITEM  # bytes of a row of a tile of scores
NO_MASK, BOOL_MASK, FLOAT_MASK = range(3)
FILLED = 16  # the widest vector: rows of gradients that are a multiple can be written whole
LEAST = -3.4028234663852886e38  # the running maximum before the first key
SMALLEST = -87.0  # where exp gives nearly the smallest normal number
DATA = object.__basicsize__  # offset of a NumPy array object's data pointer

SIZES = ("heads1", "heads2", "queries", "keys", "features", "outputs", "blocks", "groups",
         "causal", "mask", "factor")  # fmt: skip
STRIDES = ("batch", "head1", "head2", "row")
FORWARD = ("query", "key", "value", "bias", "output", "total")
BACKWARD = (*FORWARD, "grad", "query_grad", "key_grad", "value_grad")
"""What the words of a kernel are: the sizes, STRIDES of each array in bytes, and the addresses of
the arrays as Python objects. `total` is the logarithm of each query's sum of exponentials; the
gradients of key and value have a further dimension in front of all, the group, which is `batch`'s
in the word after their strides."""


class Code(NamedTuple):
    """Addresses of the kernels, which are as `Pool` says."""

    forward: int
    backward: int


@functools.cache
def code() -> Code:
    """The kernels, from disk or compiled.

    Errors: Unsupported without llvmlite, or on a processor without fused multiply-add.
    """
    host = target.host()
    source = text(host)
    name = cache.digest(source, repr(host))
    symbols = (f"a{name}.forward", f"a{name}.backward")
    for symbol, short in zip(symbols, Code._fields, strict=True):
        source = source.replace(f"@{short}(", f"@{symbol}(")
    found = cache.read(name)
    if found is None:
        found = host.compile(source)
        cache.write(name, found)
    return Code(*target.load(found, *symbols))


def text(host: target.Target) -> str:
    """LLVM IR of a module with `forward` and `backward`."""
    module = Module(scalef=host.has("avx512f") and host.vector_bytes == 64)
    tiles = Tiles(module, host)
    _Forward(tiles).write()
    _Backward(tiles).write()
    return str(module)


class _Kernel:
    """What both kernels have in common: words, scratch memory, tiles of scores."""

    name: str
    arrays: tuple[str, ...]
    queries: Reg  # transposed, times the factor
    tile: Reg  # scores, then weights: a row for each key
    room: Reg  # the mask's part for the tile

    def __init__(self, tiles: Tiles) -> None:
        self.tiles, self.lanes = tiles, tiles.registers.lanes
        b = self.b = Body(tiles.module)
        words = Reg(b, "ptr", 0, "%words")
        self.word: dict[str, Reg] = {}
        for n, name in enumerate(word_names(self.arrays)):
            at = b.at(words, n, "i64")
            kind = "ptr" if name in self.arrays else "i64"
            self.word[name] = b.emit(kind, 0, f"load {kind}, ptr {at.ref}, align 8")
        for name in self.arrays:
            self.word[name] = load(b, b.at(self.word[name], DATA), 0, "ptr")
        bits = b.convert("trunc", self.word["factor"], "i32")
        self.factor = b.convert("bitcast", bits, "float")
        self.one = b.const("float", 1.0)
        self.features = self.padded(self.word["features"])  # with what fills rows up to vectors
        self.outputs = self.padded(self.word["outputs"])

    def padded(self, elements: Reg) -> Reg:
        """As many elements as whole vectors have."""
        return (elements + (self.lanes - 1)) & -self.lanes

    def scratch(self, rows: Reg | int, columns: Reg | int) -> Reg:
        """Memory on the stack for a tile."""
        size = rows * columns
        count = size.ref if isinstance(size, Reg) else size
        return self.b.emit("ptr", 0, f"alloca float, i64 {count}, align 64")

    def place(self, name: str, chunk: Reg) -> Reg:
        """Where an array's part for a head begins."""
        b, word = self.b, self.word
        head2 = b.binary("urem", chunk, word["heads2"])
        rest = b.binary("udiv", chunk, word["heads2"])
        head1 = b.binary("urem", rest, word["heads1"])
        batch = b.binary("udiv", rest, word["heads1"])
        offset = batch * word[f"{name}.batch"] + head1 * word[f"{name}.head1"]
        return b.at(word[name], offset + head2 * word[f"{name}.head2"])

    def rows(self, name: str, start: Reg, first: Reg) -> Reg:
        """Where an array's rows from number `first` on are."""
        return self.b.at(start, first * self.word[f"{name}.row"])

    def aligned(self, name: str, start: Reg, rows: Reg, width: str, room: Reg) -> tuple[Reg, Reg]:
        """Rows of whole vectors without gaps: an array's own, or a copy in `room`; the stride."""
        b, row = self.b, self.word[f"{name}.row"]
        columns = self.word[width]
        step = self.padded(columns) * ITEM
        where = b.alloca("ptr", 0, start)
        with b.when(b.compare("ne", row, step) | b.compare("ne", columns * ITEM, step)):
            call(b, self.tiles.copy(), start, row, room, step, rows, columns)
            b.put(where, room)
        return b.get(where), step

    def products(
        self, tile: Reg, name: str, start: Reg, width: str, right: Reg, block: _KeyBlocks
    ) -> None:
        """A tile of products: rows of an array, for the block's keys, with the queries'."""
        b, row = self.b, self.word[f"{name}.row"]
        with block.parts(block.size) as (k, keys):
            vectors = self.tiles.vectors(b, block.queries - k)
            call(b, self.tiles.multiply(), b.at(start, k * row), row, ITEM,
                 b.at(right, k, "float"), ROW, b.at(b.at(tile, k * ROW), k, "float"), ROW, keys,
                 self.word[width], vectors, SET, tile)  # fmt: skip

    def scores(self, tile: Reg, key: Reg, queries: Reg, bias: Reg, block: _KeyBlocks) -> None:
        """The tile of scores of a block of keys, with what is masked at -infinity."""
        b, word = self.b, self.word
        self.products(tile, "key", key, "features", queries, block)
        with b.when(block.diagonal), block.parts(block.size) as (k, keys):
            call(b, _causal(self.tiles), b.at(b.at(tile, k * ROW), k, "float"), keys)
        for kind, elem in ((BOOL_MASK, "i8"), (FLOAT_MASK, "float")):
            with b.when(b.compare("eq", word["mask"], kind)):
                start = self.rows("bias", bias, block.first_query)
                call(b, self.tiles.transpose(elem), b.at(start, block.first, elem),
                     word["bias.row"], self.room, ROW, block.queries, block.size,
                     self.one)  # fmt: skip
                call(b, _masked(self.tiles, elem), tile, self.room, block.size)

    def write(self) -> None:
        """Add the kernel to the module."""
        b = self.b
        with b.loop(Reg(b, "i64", 0, "%begin"), Reg(b, "i64", 0, "%end")) as chunk:
            self.chunk(chunk)
        header = f"void @{self.name}(i64 %begin, i64 %end, ptr %words)"
        text = b.function(header, attributes='nounwind "probe-stack"="inline-asm"')
        self.tiles.module.functions[self.name] = text

    def chunk(self, chunk: Reg) -> None:
        """What is done for one chunk."""
        raise NotImplementedError


class _KeyBlocks:
    """The loop over the blocks of keys that a block of queries may attend to.

    In causal attention, blocks of queries and of keys begin at multiples of the same number, so
    that one block of keys is partly allowed: the one on the diagonal. It is done in parts of a
    vector: keys from number k of the block on with queries from number k on, queries to number i
    with keys to number i.
    """

    first_query: Reg
    queries: Reg  # how many queries there are
    end: Reg  # of the keys
    first: Reg  # the block's first key
    size: Reg
    diagonal: Reg  # whether it is on the diagonal
    step: Reg  # the size of a part

    def __init__(self, kernel: _Kernel, first_query: Reg) -> None:
        self.kernel, self.first_query = kernel, first_query
        b, word = kernel.b, kernel.word
        self.queries = b.intrinsic("smin", word["queries"] - first_query, BLOCK)
        self.causal = b.compare("ne", word["causal"], 0)
        end = b.intrinsic("smin", word["keys"], first_query + self.queries)
        self.end = b.select(self.causal, end, word["keys"])

    @contextlib.contextmanager
    def loop(self) -> Iterator[None]:
        """What is written inside runs for each block."""
        b, lanes = self.kernel.b, self.kernel.lanes
        with b.loop(0, self.end, BLOCK) as first:
            self.first, self.size = first, b.intrinsic("smin", self.end - first, BLOCK)
            self.diagonal = self.causal & b.compare("eq", first, self.first_query)
            self.step = b.select(self.diagonal, b.const("i64", lanes), BLOCK)
            yield

    @contextlib.contextmanager
    def parts(self, size: Reg) -> Iterator[tuple[Reg, Reg]]:
        """The first number and the size of each part of the block's keys or queries."""
        b = self.kernel.b
        with b.loop(0, size, self.step) as i:
            yield i, b.intrinsic("smin", size - i, self.step)

    def combine(
        self, tile: Reg, rows: Reg, row: Reg, result: Reg, width: Reg, vectors: Reg,
        start: int, factors: Reg | None = None,
    ) -> None:  # fmt: skip
        """Rows of keys or values, summed over the keys with the tile, into rows of queries."""
        b, tiles = self.kernel.b, self.kernel.tiles
        how = b.select(b.compare("eq", self.first, 0), b.const("i64", SET), start)
        with self.parts(self.queries) as (i, count):
            keys = b.intrinsic("smin", self.size, i + self.step)
            call(b, tiles.multiply(), b.at(tile, i, "float"), ITEM, ROW, rows, row,
                 b.at(result, i * width), width, count, keys, vectors, how,
                 b.at(factors or tile, i, "float"))  # fmt: skip


class _Forward(_Kernel):
    """A chunk is a block of queries of a head."""

    name, arrays = "forward", FORWARD

    def __init__(self, tiles: Tiles) -> None:
        super().__init__(tiles)
        self.queries = self.scratch(self.word["features"], BLOCK)
        self.tile, self.room = self.scratch(BLOCK, BLOCK), self.scratch(BLOCK, BLOCK)
        self.values = self.scratch(self.outputs, BLOCK)
        self.result = self.scratch(self.outputs, BLOCK)
        self.high, self.sum, self.change = (self.scratch(1, BLOCK) for _ in range(3))

    def chunk(self, chunk: Reg) -> None:
        """The outputs of the queries."""
        b, word, tiles, lanes = self.b, self.word, self.tiles, self.lanes
        head = b.binary("udiv", chunk, word["blocks"])
        first_query = b.binary("urem", chunk, word["blocks"]) * BLOCK
        query, key, value, bias, output, total = (self.place(name, head) for name in self.arrays)
        block = _KeyBlocks(self, first_query)
        call(b, tiles.transpose(), self.rows("query", query, first_query), word["query.row"],
             self.queries, ROW, block.queries, word["features"], self.factor)  # fmt: skip
        with b.loop(0, b.const("i64", BLOCK), lanes) as i:
            store(b, b.const("float", LEAST, lanes), b.at(self.high, i, "float"))
            store(b, b.const("float", 0.0, lanes), b.at(self.sum, i, "float"))
        with block.loop():
            self.scores(self.tile, self.rows("key", key, block.first), self.queries, bias, block)
            call(b, _softmax(tiles), self.tile, block.size, block.queries, block.step, self.high,
                 self.sum, self.change)  # fmt: skip
            values = self.rows("value", value, block.first)
            values, row = self.aligned("value", values, block.size, "outputs", self.values)
            block.combine(self.tile, values, row, self.result, self.outputs * ITEM,
                          tiles.vectors(b, self.outputs), SCALE, self.change)  # fmt: skip
        self.finish(self.rows("output", output, first_query),
                    self.rows("total", total, first_query), block.queries)  # fmt: skip

    def finish(self, output: Reg, total: Reg, queries: Reg) -> None:
        """Divide by the sums, and keep their logarithms; a query that may attend to nothing
        gets 0, and infinity.
        """
        b, word, lanes = self.b, self.word, self.lanes
        with b.loop(0, queries, lanes) as i:
            high, sums = (load(b, b.at(p, i, "float"), lanes) for p in (self.high, self.sum))
            none = b.compare("eq", sums, 0.0)
            logs = b.select(none, math.inf, high + maths.evaluate(b, "log", sums))
            store_masked(b, logs, b.at(total, i, "float"), below(b, lanes, queries - i))
            store(b, b.select(none, 0.0, 1.0 / sums), b.at(self.change, i, "float"))
        row = self.outputs * ITEM
        with b.loop(0, word["outputs"], lanes) as j:
            mask = below(b, lanes, word["outputs"] - j)
            source, place = b.at(self.result, j, "float"), b.at(output, j, "float")
            with b.loop(0, queries) as i:
                factor = b.splat(load(b, b.at(self.change, i, "float")), lanes)
                x = load(b, b.at(source, i * row), lanes) * factor
                store_masked(b, x, b.at(place, i * word["output.row"]), mask)


class _Backward(_Kernel):
    """A chunk is a group of a head's blocks of queries: every so many-th one."""

    name, arrays = "backward", BACKWARD

    def __init__(self, tiles: Tiles) -> None:
        super().__init__(tiles)
        self.queries = self.scratch(self.word["features"], BLOCK)
        self.grads = self.scratch(self.word["outputs"], BLOCK)  # of the output, transposed
        self.tile, self.room = self.scratch(BLOCK, BLOCK), self.scratch(BLOCK, BLOCK)
        self.slopes = self.scratch(BLOCK, BLOCK)  # gradients of the scores
        self.query_rows = self.scratch(self.features, BLOCK)
        self.grad_rows = self.scratch(self.outputs, BLOCK)
        self.key_rows = self.scratch(self.features, BLOCK)
        self.result = self.scratch(self.features, BLOCK)
        self.total, self.dots = (self.scratch(1, BLOCK) for _ in range(2))

    def chunk(self, chunk: Reg) -> None:
        """The gradients of the group's queries; their part of those of the keys and values."""
        b, word, tiles = self.b, self.word, self.tiles
        head = b.binary("udiv", chunk, word["groups"])
        group = b.binary("urem", chunk, word["groups"])
        starts = {name: self.place(name, head) for name in self.arrays}
        end = _KeyBlocks(self, group * BLOCK).end  # the first block sets what is before it
        for name, width in (("key_grad", self.features), ("value_grad", self.outputs)):
            starts[name] = b.at(starts[name], group * word[f"{name}.group"])
            rest = self.rows(name, starts[name], end)
            call(b, tiles.clear(), rest, word[f"{name}.row"], word["keys"] - end, width)
        with b.loop(group, word["blocks"], word["groups"]) as n:
            start = b.select(b.compare("eq", n, group), b.const("i64", SET), ADD)
            self.block(n * BLOCK, start, starts)

    def block(self, first_query: Reg, start: Reg, starts: dict[str, Reg]) -> None:
        """What a block of queries contributes."""
        b, word, tiles, lanes = self.b, self.word, self.tiles, self.lanes
        block = _KeyBlocks(self, first_query)
        query, grad, output, total, query_grad = (
            self.rows(name, starts[name], first_query)
            for name in ("query", "grad", "output", "total", "query_grad")
        )
        call(b, tiles.transpose(), query, word["query.row"], self.queries, ROW, block.queries,
             word["features"], self.factor)  # fmt: skip
        call(b, tiles.transpose(), grad, word["grad.row"], self.grads, ROW, block.queries,
             word["outputs"], self.one)  # fmt: skip
        call(b, _dots(tiles), output, word["output.row"], grad, word["grad.row"], self.dots,
             block.queries, word["outputs"])  # fmt: skip
        with b.loop(0, block.queries, lanes) as i:
            x = load_masked(b, b.at(total, i, "float"), below(b, lanes, block.queries - i))
            store(b, x, b.at(self.total, i, "float"))
        query, query_row = self.aligned("query", query, block.queries, "features", self.query_rows)
        grad, grad_row = self.aligned("grad", grad, block.queries, "outputs", self.grad_rows)
        width = self.features * ITEM
        with block.loop():
            key = self.rows("key", starts["key"], block.first)
            value = self.rows("value", starts["value"], block.first)
            self.scores(self.tile, key, self.queries, starts["bias"], block)
            self.products(self.slopes, "value", value, "outputs", self.grads, block)
            call(b, _slopes(tiles), self.tile, self.slopes, block.size, block.queries, block.step,
                 self.total, self.dots, self.factor)  # fmt: skip
            for tile, rows, row, name, columns in (
                (self.tile, grad, grad_row, "value_grad", self.outputs),
                (self.slopes, query, query_row, "key_grad", self.features),
            ):
                place = self.rows(name, starts[name], block.first)
                with block.parts(block.size) as (k, keys):
                    call(b, tiles.multiply(), b.at(b.at(tile, k * ROW), k, "float"), ROW, ITEM,
                         b.at(rows, k * row), row, b.at(place, k * word[f"{name}.row"]),
                         word[f"{name}.row"], keys, block.queries - k, tiles.vectors(b, columns),
                         start, tile)  # fmt: skip
            key, key_row = self.aligned("key", key, block.size, "features", self.key_rows)
            block.combine(self.slopes, key, key_row, self.result, width,
                          tiles.vectors(b, self.features), ADD)  # fmt: skip
        with b.loop(0, word["features"], lanes) as j:
            mask = below(b, lanes, word["features"] - j)
            source, place = b.at(self.result, j, "float"), b.at(query_grad, j, "float")
            with b.loop(0, block.queries) as i:
                x = load(b, b.at(source, i * width), lanes)
                store_masked(b, x, b.at(place, i * word["query_grad.row"]), mask)


def word_names(arrays: tuple[str, ...]) -> list[str]:
    """What a kernel's words are, in order."""
    strides = [f"{name}.{step}" for name in arrays for step in STRIDES]
    groups = ["key_grad.group", "value_grad.group"] if "key_grad" in arrays else []
    return [*SIZES, *strides, *groups, *arrays]


def bits(number: float) -> int:
    """A float32 as a word."""
    return int.from_bytes(struct.pack("<f", number), "little")


# Passes over tiles --------------------------------------------------------------------------------


def _causal(tiles: Tiles) -> str:
    """`void f(tile, keys)`: -infinity where the key's number is above the query's; a vector."""
    b, given = tiles.body("causal", "*tile", "keys")
    tile, keys = given
    lanes = tiles.registers.lanes
    with b.loop(0, keys) as k:
        place = b.at(tile, k * ROW)
        late = b.compare("gt", b.splat(b.convert("trunc", k, "i32"), lanes), b.iota("i32", lanes))
        store(b, b.select(late, -math.inf, load(b, place, lanes)), place)
    return tiles.finish("causal", b, given)


def _masked(tiles: Tiles, elem: str) -> str:
    """`void f(tile, bias, keys)`: bias added, or -infinity where a bool mask's is not 0."""
    name = f"masked.{elem}"
    b, given = tiles.body(name, "*tile", "*bias", "keys")
    tile, bias, keys = given
    lanes = tiles.registers.lanes
    with b.loop(0, keys * BLOCK, lanes) as i:
        place = b.at(tile, i, "float")
        x, y = load(b, place, lanes), load(b, b.at(bias, i, "float"), lanes)
        store(b, x + y if elem == "float" else b.select(y < 0.0, y, x), place)
    return tiles.finish(name, b, given)


def _exp(b: Body, x: Reg) -> Reg:
    """exp of what is not above 88, NaN included; 0 where the result would be subnormal, which
    processors take a hundred times as long for, and which no sum with a 1 in it can tell from 0.
    """
    n, r = maths.reduced_exp(b, maths.at_least(b, x, SMALLEST))
    return b.select(x < SMALLEST, 0.0, maths.scale(b, maths.short_exp(b, r), n))


def _softmax(tiles: Tiles) -> str:
    """`void f(tile, keys, queries, step, high, sum, change)`: scores to weights.

    Query i has keys to number i + step. `high` and `sum` are each query's greatest score and sum of
    weights so far; weights of former blocks are to be multiplied by `change`.
    """
    b, given = tiles.body("softmax", "*tile", "keys", "queries", "step", "*high", "*sum", "*change")
    tile, all_keys, queries, step, high, sums, change = given
    lanes, turns = tiles.registers.lanes, 4
    with b.loop(0, queries, lanes) as i:
        keys = b.intrinsic("smin", all_keys, i + step)
        column, high_at, sum_at = (b.at(p, i, "float") for p in (tile, high, sums))
        before = load(b, high_at, lanes)
        highest = [b.alloca("float", lanes, before) for _ in range(turns)]
        whole = keys - b.binary("urem", keys, turns)
        for first, end, count in ((b.const("i64", 0), whole, turns), (whole, keys, 1)):
            with b.loop(first, end, count) as k:
                for slot in highest[:count]:
                    x, y = load(b, b.at(column, k * ROW), lanes), b.get(slot)
                    b.put(slot, b.select(x > y, x, y))
                    k = k + 1
        top = b.get(highest[0])
        for slot in highest[1:]:
            x = b.get(slot)
            top = b.select(x > top, x, top)
        factor = _exp(b, before - top)
        total = b.alloca("float", lanes, load(b, sum_at, lanes) * factor)
        for first, end, count in ((b.const("i64", 0), whole, turns), (whole, keys, 1)):
            with b.loop(first, end, count) as k:
                for _ in range(count):
                    place = b.at(column, k * ROW)
                    x = _exp(b, load(b, place, lanes) - top)
                    store(b, x, place)
                    b.put(total, b.get(total) + x)
                    k = k + 1
        store(b, top, high_at)
        store(b, b.get(total), sum_at)
        store(b, factor, b.at(change, i, "float"))
    return tiles.finish("softmax", b, given)


def _slopes(tiles: Tiles) -> str:
    """`void f(tile, slopes, keys, queries, step, total, dots, factor)`: scores to weights, and the
    weights' gradients to the scores'. Query i has keys to number i + step.
    """
    b, given = tiles.body(
        "slopes", "*tile", "*slopes", "keys", "queries", "step", "*total", "*dots", ".factor"
    )
    tile, slopes, all_keys, queries, step, total, dots, factor = given
    lanes = tiles.registers.lanes
    with b.loop(0, queries, lanes) as i:
        keys = b.intrinsic("smin", all_keys, i + step)
        column, other = b.at(tile, i, "float"), b.at(slopes, i, "float")
        log, dot = (load(b, b.at(p, i, "float"), lanes) for p in (total, dots))
        scale = b.splat(factor, lanes)
        with b.loop(0, keys) as k:
            place, slope = b.at(column, k * ROW), b.at(other, k * ROW)
            weight = _exp(b, load(b, place, lanes) - log)
            store(b, weight, place)
            store(b, (load(b, slope, lanes) - dot) * (weight * scale), slope)
    return tiles.finish("slopes", b, given)


def _dots(tiles: Tiles) -> str:
    """`void f(x, x_row, y, y_row, dots, rows, columns)`: the products of rows with rows, summed."""
    b, given = tiles.body("dots", "*x", "x_row", "*y", "y_row", "*dots", "rows", "columns")
    x, x_row, y, y_row, dots, rows, columns = given
    lanes = tiles.registers.lanes
    with b.loop(0, rows) as i:
        sums = b.alloca("float", lanes, 0.0)
        left, right = b.at(x, i * x_row), b.at(y, i * y_row)
        with b.loop(0, columns, lanes) as j:
            mask = below(b, lanes, columns - j)
            u, v = (load_masked(b, b.at(p, j, "float"), mask) for p in (left, right))
            b.put(sums, b.fma(u, v, b.get(sums)))
        total = b.get(sums)
        while total.lanes > 1:
            low, high = b.halves(total)
            total = low + high
        store(b, b.lane(total, 0), b.at(dots, i, "float"))
    return tiles.finish("dots", b, given)


__all__ = ["BACKWARD", "BOOL_MASK", "FLOAT_MASK", "FORWARD", "LARGEST", "NO_MASK", "Code", "bits",
           "code", "text", "word_names"]  # fmt: skip
