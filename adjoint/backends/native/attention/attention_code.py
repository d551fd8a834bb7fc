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

from ...codegen import cache, maths, target
from ...codegen.emit import FunctionBody, Module, Reg
from ..gemm.tiles import ADD, ITEM, SCALE, SET, Tiles, below, call, load, store
from . import tile_passes
from .tile_passes import BLOCK, ROW

LARGEST = 256  # features of a head: what the kernels put on the stack is proportional to it
NO_MASK, BOOL_MASK, FLOAT_MASK = range(3)
FILLED = 16  # the widest vector: rows of gradients that are a multiple can be written whole
LEAST = -3.4028234663852886e38  # the running maximum before the first key

SIZES = ("heads1", "heads2", "queries", "keys", "features", "outputs", "span", "spans",
         "groups", "causal", "mask", "factor")  # fmt: skip
STRIDES = ("batch", "head1", "head2", "row")
FORWARD = ("query", "key", "value", "bias", "output", "total")
BACKWARD = (*FORWARD, "grad", "query_grad", "key_grad", "value_grad")
"""What the words of a kernel are: the sizes, STRIDES of each array in bytes, and the addresses of
the arrays. A head's queries are done in `spans` of `span` each. `total` is the
logarithm of each query's sum of exponentials; the gradients of key and value have a further
dimension in front of all, the group, whose strides come after all others."""


class AttentionCode(NamedTuple):
    """Addresses of the kernels, which are as `Pool` says."""

    forward: int
    backward: int


@functools.cache
def code() -> AttentionCode:
    """The kernels, from disk or compiled.

    Errors: Unsupported without llvmlite, or on a processor without fused multiply-add.
    """
    host = target.host()
    name = cache.digest("attention", repr(host))
    symbols = [f"a{name}.{short}" for short in AttentionCode._fields]

    def named() -> str:
        source = text(host)
        for symbol, short in zip(symbols, AttentionCode._fields, strict=True):
            source = source.replace(f"@{short}(", f"@{symbol}(")
        return source

    return AttentionCode(*target.kept(name, named, *symbols))


def text(host: target.Target) -> str:
    """LLVM IR of a module with `forward` and `backward`."""
    module = Module(scalef=host.has("avx512f") and host.vector_bytes == 64)
    functions = Tiles(module, host)
    _Forward(functions).write()
    _Backward(functions).write()
    return str(module)


class _Kernel:
    """Base of the forward and the backward kernel: words, scratch memory, tiles of scores."""

    name: str
    arrays: tuple[str, ...]
    queries: Reg  # transposed, times the factor
    tile: Reg  # scores, then weights: a row for each key
    room: Reg  # the mask's part for the tile

    def __init__(self, tiles: Tiles) -> None:
        self.tiles, self.lanes = tiles, tiles.registers.lanes
        b = self.b = FunctionBody(tiles.module)
        words = Reg(b, "ptr", 0, "%words")
        self.word: dict[str, Reg] = {}
        for n, name in enumerate(word_names(self.arrays)):
            at = b.at(words, n, "i64")
            kind = "ptr" if name in self.arrays else "i64"
            self.word[name] = b.emit(kind, 0, f"load {kind}, ptr {at.ref}, align 8")
        bits = b.convert("trunc", self.word["factor"], "i32")
        self.factor = b.convert("bitcast", bits, "float")
        self.one = b.const("float", 1.0)
        self.causal = b.compare("ne", self.word["causal"], 0)
        self.features = self.padded(self.word["features"])  # with what fills rows up to vectors
        self.outputs = self.padded(self.word["outputs"])

    def padded(self, elements: Reg) -> Reg:
        """A number of elements rounded up to whole vectors."""
        return (elements + (self.lanes - 1)) & -self.lanes

    def scratch(self, rows: Reg | int, columns: Reg | int) -> Reg:
        """Memory on the stack for a tile."""
        size = rows * columns
        count = size.ref if isinstance(size, Reg) else size
        return self.b.emit("ptr", 0, f"alloca float, i64 {count}, align 64")

    def place(self, name: str, chunk: Reg) -> Reg:
        """Address of an array's part for a head."""
        b, word = self.b, self.word
        head2 = b.binary("urem", chunk, word["heads2"])
        rest = b.binary("udiv", chunk, word["heads2"])
        head1 = b.binary("urem", rest, word["heads1"])
        batch = b.binary("udiv", rest, word["heads1"])
        offset = batch * word[f"{name}.batch"] + head1 * word[f"{name}.head1"]
        return b.at(word[name], offset + head2 * word[f"{name}.head2"])

    def rows(self, name: str, start: Reg, first: Reg) -> Reg:
        """Address of an array's rows from number `first` on."""
        return self.b.at(start, first * self.word[f"{name}.row"])

    def end(self, query: Reg) -> Reg:
        """The first key that no query before `query` may attend to."""
        b, keys = self.b, self.word["keys"]
        return b.select(self.causal, b.intrinsic("smin", keys, query), keys)

    def spread(self, name: str, width: str) -> Reg:
        """Whether an array has gaps between its rows, or rows that are not whole vectors."""
        columns = self.word[width]
        step = self.padded(columns) * ITEM
        row = self.word[f"{name}.row"]
        return self.b.compare("ne", row, step) | self.b.compare("ne", columns * ITEM, step)

    def dense(self, name: str, width: str, start: Reg, rows: Reg, room: Reg) -> Reg:
        """Rows of whole vectors without gaps: an array's own, or a copy in `room`."""
        b, spread = self.b, self.spread(name, width)
        with b.when(spread):
            step = self.padded(self.word[width]) * ITEM
            row = self.word[f"{name}.row"]
            call(b, self.tiles.copy(), start, row, room, step, rows, self.word[width])
        return b.select(spread, room, start)

    def products(
        self, tile: Reg, name: str, start: Reg, width: str, right: Reg, block: _Block
    ) -> None:
        """A tile of products: rows of an array, for the block's keys, with the queries'."""
        b, row = self.b, self.word[f"{name}.row"]
        with block.parts(block.size) as (k, keys):
            vectors = self.tiles.vectors(b, block.queries - k)
            call(b, self.tiles.multiply(), b.at(start, k * row), row, ITEM,
                 b.at(right, k, "float"), ROW, b.at(b.at(tile, k * ROW), k, "float"), ROW, keys,
                 self.word[width], vectors, SET, tile)  # fmt: skip

    def scores(self, tile: Reg, key: Reg, queries: Reg, bias: Reg, block: _Block) -> None:
        """The tile of scores of a block of keys, with what is masked at -infinity."""
        b, word = self.b, self.word
        self.products(tile, "key", key, "features", queries, block)
        with b.when(block.diagonal), block.parts(block.size) as (k, keys):
            call(b, tile_passes.causal(self.tiles), b.at(b.at(tile, k * ROW), k, "float"), keys)
        for kind, elem in ((BOOL_MASK, "i8"), (FLOAT_MASK, "float")):
            with b.when(b.compare("eq", word["mask"], kind)):
                start = self.rows("bias", bias, block.first_query)
                turn = self.tiles.transpose_bools() if elem == "i8" else self.tiles.transpose()
                call(b, turn, b.at(start, block.first, elem),
                     word["bias.row"], self.room, ROW, block.queries, block.size,
                     self.one)  # fmt: skip
                call(b, tile_passes.masked(self.tiles, elem), tile, self.room, block.size)

    def write(self) -> None:
        """Add the kernel to the module."""
        b = self.b
        with b.loop(Reg(b, "i64", 0, "%begin"), Reg(b, "i64", 0, "%end")) as chunk:
            self.chunk(chunk)
        header = f"void @{self.name}(i64 %begin, i64 %end, ptr %words)"
        text = b.function(header, attributes='"probe-stack"="inline-asm"')
        self.tiles.module.functions[self.name] = text

    def chunk(self, chunk: Reg) -> None:
        """Writes the code for one chunk of the work."""
        raise NotImplementedError


class _Block:
    """A block of queries, and one of keys that some of them may attend to.

    In causal attention, blocks of queries and of keys begin at multiples of the same number, so
    that one block of keys is partly allowed: the one on the diagonal. It is done in parts of a
    vector: keys from number k of the block on with queries from number k on, queries to number i
    with keys to number i.
    """

    first_query: Reg
    queries: Reg  # how many queries there are
    end: Reg  # of the keys that they may attend to
    first: Reg  # the first key
    size: Reg  # how many keys there are
    diagonal: Reg  # whether the block is on the diagonal
    step: Reg  # the size of a part

    def __init__(self, kernel: _Kernel, first_query: Reg) -> None:
        self.kernel, self.first_query = kernel, first_query
        b = kernel.b
        self.queries = b.intrinsic("smin", kernel.word["queries"] - first_query, BLOCK)
        self.end = kernel.end(first_query + self.queries)

    @contextlib.contextmanager
    def keys(self, first: Reg) -> Iterator[None]:
        """Runs the code written inside if a query may attend to the block of keys from `first`."""
        b = self.kernel.b
        with b.when(first < self.end):
            self.first, self.size = first, b.intrinsic("smin", self.end - first, BLOCK)
            self.diagonal = self.kernel.causal & b.compare("eq", first, self.first_query)
            self.step = b.select(self.diagonal, b.const("i64", self.kernel.lanes), BLOCK)
            yield

    @contextlib.contextmanager
    def parts(self, size: Reg) -> Iterator[tuple[Reg, Reg]]:
        """The first number and the size of each part of the block's keys or queries."""
        b = self.kernel.b
        with b.loop(0, size, self.step) as i:
            yield i, b.intrinsic("smin", size - i, self.step)

    def combine(
        self, tile: Reg, rows: Reg, width: Reg, result: Reg, start: int, factors: Reg
    ) -> None:
        """Rows of keys or values, summed over the keys with the tile, into rows of queries."""
        b, tiles = self.kernel.b, self.kernel.tiles
        how = b.select(b.compare("eq", self.first, 0), b.const("i64", SET), start)
        with self.parts(self.queries) as (i, count):
            keys = b.intrinsic("smin", self.size, i + self.step)
            call(b, tiles.multiply(), b.at(tile, i, "float"), ITEM, ROW, rows, width * ITEM,
                 b.at(result, i * width, "float"), width * ITEM, count, keys,
                 tiles.vectors(b, width), how, b.at(factors, i, "float"))  # fmt: skip


class _Forward(_Kernel):
    """A chunk is a span of a head's queries: blocks of keys are fetched once for all its blocks."""

    name, arrays = "forward", FORWARD

    def __init__(self, tiles: Tiles) -> None:
        super().__init__(tiles)
        span = self.word["span"]
        self.queries = self.scratch(self.word["features"], span)
        self.tile, self.room = self.scratch(BLOCK, BLOCK), self.scratch(BLOCK, BLOCK)
        self.values = self.scratch(self.outputs, BLOCK)
        self.result = self.scratch(self.outputs, span)
        self.high, self.sum = self.scratch(span, 1), self.scratch(span, 1)
        self.change = self.scratch(BLOCK, 1)

    def chunk(self, chunk: Reg) -> None:
        """The outputs of the queries."""
        b, word, tiles, lanes = self.b, self.word, self.tiles, self.lanes
        head = b.binary("udiv", chunk, word["spans"])
        begin = b.binary("urem", chunk, word["spans"]) * word["span"]
        end = b.intrinsic("smin", begin + word["span"], word["queries"])
        query, key, value, bias, output, total = (self.place(name, head) for name in self.arrays)
        with b.loop(begin, end, BLOCK) as first_query:
            n, block = first_query - begin, _Block(self, first_query)
            call(b, tiles.transpose(), self.rows("query", query, first_query), word["query.row"],
                 b.at(self.queries, n * word["features"], "float"), ROW, block.queries,
                 word["features"], self.factor)  # fmt: skip
            with b.loop(n, n + BLOCK, lanes) as i:
                store(b, b.const("float", LEAST, lanes), b.at(self.high, i, "float"))
                store(b, b.const("float", 0.0, lanes), b.at(self.sum, i, "float"))
        keys = self.end(end)
        with b.loop(0, keys, BLOCK) as first:
            size = b.intrinsic("smin", keys - first, BLOCK)
            own = self.rows("value", value, first)
            values = self.dense("value", "outputs", own, size, self.values)
            with b.loop(begin, end, BLOCK) as first_query:
                n, block = first_query - begin, _Block(self, first_query)
                with block.keys(first):
                    queries = b.at(self.queries, n * word["features"], "float")
                    self.scores(self.tile, self.rows("key", key, first), queries, bias, block)
                    call(b, tile_passes.softmax(tiles), self.tile, block.size, block.queries,
                         block.step, b.at(self.high, n, "float"), b.at(self.sum, n, "float"),
                         self.change)  # fmt: skip
                    result = b.at(self.result, n * self.outputs, "float")
                    block.combine(self.tile, values, self.outputs, result, SCALE, self.change)
        with b.loop(begin, end, BLOCK) as first_query:
            places = (self.rows("output", output, first_query),
                      self.rows("total", total, first_query))  # fmt: skip
            self.finish(first_query - begin, _Block(self, first_query).queries, *places)

    def finish(self, n: Reg, queries: Reg, output: Reg, total: Reg) -> None:
        """Divide by the sums, and keep their logarithms; a query that may attend to nothing
        gets 0, and infinity.
        """
        b, word, lanes = self.b, self.word, self.lanes
        with b.loop(0, queries, lanes) as i:
            high, sums = (load(b, b.at(p, n + i, "float"), lanes) for p in (self.high, self.sum))
            none = b.compare("eq", sums, 0.0)
            logs = b.select(none, math.inf, high + maths.evaluate(b, "log", sums))
            b.store_masked([(logs, b.at(total, i, "float"))], below(b, lanes, queries - i))
            store(b, b.select(none, 0.0, 1.0 / sums), b.at(self.change, i, "float"))
        result = b.at(self.result, n * self.outputs, "float")
        with b.loop(0, word["outputs"], lanes) as j:
            mask = below(b, lanes, word["outputs"] - j)
            source, place = b.at(result, j, "float"), b.at(output, j, "float")
            with b.loop(0, queries) as i:
                factor = b.splat(load(b, b.at(self.change, i, "float")), lanes)
                x = load(b, b.at(source, i * self.outputs, "float"), lanes) * factor
                b.store_masked([(x, b.at(place, i * word["output.row"]))], mask)


class _Backward(_Kernel):
    """A chunk is a group of a head's spans of queries: every so many-th one."""

    name, arrays = "backward", BACKWARD

    def __init__(self, tiles: Tiles) -> None:
        super().__init__(tiles)
        span = self.word["span"]
        self.queries = self.scratch(self.word["features"], span)
        self.grads = self.scratch(self.word["outputs"], span)  # of the output, transposed
        self.tile, self.room = self.scratch(BLOCK, BLOCK), self.scratch(BLOCK, BLOCK)
        self.slopes = self.scratch(BLOCK, BLOCK)  # gradients of the scores
        self.query_rows = self.scratch(self.features, span)
        self.grad_rows = self.scratch(self.outputs, span)
        self.key_rows = self.scratch(self.features, BLOCK)
        self.result = self.scratch(self.features, span)
        self.total, self.dots = self.scratch(span, 1), self.scratch(span, 1)

    def chunk(self, chunk: Reg) -> None:
        """The gradients of the group's queries; their part of those of the keys and values."""
        b, word, tiles = self.b, self.word, self.tiles
        head = b.binary("udiv", chunk, word["groups"])
        group = b.binary("urem", chunk, word["groups"])
        starts = {name: self.place(name, head) for name in self.arrays}
        keys = _Block(self, group * word["span"]).end  # what is before it, the first block sets
        for name, width in (("key_grad", self.features), ("value_grad", self.outputs)):
            starts[name] = b.at(starts[name], group * word[f"{name}.group"])
            rest = self.rows(name, starts[name], keys)
            call(b, tiles.clear(), rest, word[f"{name}.row"], word["keys"] - keys, width)
        with b.loop(group, word["spans"], word["groups"]) as n:
            self.span(n * word["span"], group * word["span"], starts)

    def span(self, begin: Reg, begin_of_group: Reg, starts: dict[str, Reg]) -> None:
        """Writes the code that adds a span of queries' contribution to the gradients."""
        b, word, lanes = self.b, self.word, self.lanes
        end = b.intrinsic("smin", begin + word["span"], word["queries"])
        with b.loop(begin, end, BLOCK) as first_query:
            self.prepare(first_query - begin, _Block(self, first_query), starts)
        keys = self.end(end)
        with b.loop(0, keys, BLOCK) as first:
            size = b.intrinsic("smin", keys - first, BLOCK)
            own = self.rows("key", starts["key"], first)
            key = self.dense("key", "features", own, size, self.key_rows)
            with b.loop(begin, end, BLOCK) as first_query:
                block = _Block(self, first_query)
                new = b.compare("eq", first_query, begin_of_group)
                start = b.select(new, b.const("i64", SET), ADD)
                with block.keys(first):
                    self.block(first_query - begin, block, key, start, starts)
        with b.loop(begin, end, BLOCK) as first_query:
            queries = _Block(self, first_query).queries
            place = self.rows("query_grad", starts["query_grad"], first_query)
            result = b.at(self.result, (first_query - begin) * self.features, "float")
            with b.loop(0, word["features"], lanes) as j:
                mask = below(b, lanes, word["features"] - j)
                with b.loop(0, queries) as i:
                    x = load(b, b.at(result, i * self.features + j, "float"), lanes)
                    row = b.at(place, i * word["query_grad.row"])
                    b.store_masked([(x, b.at(row, j, "float"))], mask)

    def prepare(self, n: Reg, block: _Block, starts: dict[str, Reg]) -> None:
        """The queries and their outputs' gradients as tiles, from number `n` of the span on."""
        b, word, tiles, lanes = self.b, self.word, self.tiles, self.lanes
        query, grad, output, total = (
            self.rows(name, starts[name], block.first_query)
            for name in ("query", "grad", "output", "total")
        )
        call(b, tiles.transpose(), query, word["query.row"],
             b.at(self.queries, n * word["features"], "float"), ROW, block.queries,
             word["features"], self.factor)  # fmt: skip
        call(b, tiles.transpose(), grad, word["grad.row"],
             b.at(self.grads, n * word["outputs"], "float"), ROW, block.queries, word["outputs"],
             self.one)  # fmt: skip
        self.dense("query", "features", query, block.queries, self.rows_of_queries(n))
        self.dense("grad", "outputs", grad, block.queries, self.rows_of_grads(n))
        call(b, tile_passes.dots(tiles), output, word["output.row"], grad, word["grad.row"],
             b.at(self.dots, n, "float"), block.queries, word["outputs"])  # fmt: skip
        with b.loop(0, block.queries, lanes) as i:
            mask = below(b, lanes, block.queries - i)
            x = b.load_masked("float", lanes, b.at(total, i, "float"), mask)
            store(b, x, b.at(self.total, n + i, "float"))

    def rows_of_queries(self, n: Reg) -> Reg:
        """Address of the copies of the rows of queries from number `n` of the span on."""
        return self.b.at(self.query_rows, n * self.features, "float")

    def rows_of_grads(self, n: Reg) -> Reg:
        """Address of the copies of the rows of the output's gradient."""
        return self.b.at(self.grad_rows, n * self.outputs, "float")

    def block(self, n: Reg, block: _Block, key: Reg, start: Reg, starts: dict[str, Reg]) -> None:
        """Writes the code that adds the contribution of a block of queries with a block of keys."""
        b, word, tiles = self.b, self.word, self.tiles
        queries = b.at(self.queries, n * word["features"], "float")
        grads = b.at(self.grads, n * word["outputs"], "float")
        own_key, own_value = (self.rows(x, starts[x], block.first) for x in ("key", "value"))
        self.scores(self.tile, own_key, queries, starts["bias"], block)
        self.products(self.slopes, "value", own_value, "outputs", grads, block)
        call(b, tile_passes.slopes(tiles), self.tile, self.slopes, block.size, block.queries,
             block.step, b.at(self.total, n, "float"), b.at(self.dots, n, "float"),
             self.factor)  # fmt: skip
        for tile, name, width, room, to, columns in (
            (self.tile, "grad", "outputs", self.rows_of_grads(n), "value_grad", self.outputs),
            (self.slopes, "query", "features", self.rows_of_queries(n), "key_grad", self.features),
        ):
            own = self.rows(name, starts[name], block.first_query)
            rows = b.select(self.spread(name, width), room, own)
            place, row = self.rows(to, starts[to], block.first), word[f"{to}.row"]
            with block.parts(block.size) as (k, keys):
                call(b, tiles.multiply(), b.at(b.at(tile, k * ROW), k, "float"), ROW, ITEM,
                     b.at(rows, k * columns, "float"), columns * ITEM, b.at(place, k * row), row,
                     keys, block.queries - k, tiles.vectors(b, columns), start,
                     tile)  # fmt: skip
        result = b.at(self.result, n * self.features, "float")
        block.combine(self.slopes, key, self.features, result, ADD, self.slopes)


def word_names(arrays: tuple[str, ...]) -> list[str]:
    """Names of a kernel's argument words, in order."""
    strides = [f"{name}.{step}" for name in arrays for step in STRIDES]
    groups = ["key_grad.group", "value_grad.group"] if "key_grad" in arrays else []
    return [*SIZES, *strides, *groups, *arrays]


def bits(number: float) -> int:
    """A float32 as a word."""
    return int.from_bytes(struct.pack("<f", number), "little")
