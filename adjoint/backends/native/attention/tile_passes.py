"""Elementwise passes of attention over tiles of scores, as functions in LLVM IR."""

from __future__ import annotations

import math

from ...codegen import maths
from ...codegen.emit import FunctionBody, Reg
from ..gemm.tiles import ITEM, Tiles, below, load, store

BLOCK = 64  # queries, and keys, of a tile
ROW = BLOCK * ITEM  # bytes of a row of a tile: a key's scores with all queries
SMALLEST = -87.0  # where exp gives nearly the smallest normal number


def causal(tiles: Tiles) -> str:
    """`void f(tile, keys)`: -infinity where the key's number is above the query's; a vector."""
    b, given = tiles.body("causal", "*tile", "keys")
    tile, keys = given
    lanes = tiles.registers.lanes
    with b.loop(0, keys) as k:
        place = b.at(tile, k * ROW)
        late = b.compare("gt", b.splat(b.convert("trunc", k, "i32"), lanes), b.iota("i32", lanes))
        store(b, b.select(late, -math.inf, load(b, place, lanes)), place)
    return tiles.finish("causal", b, given)


def masked(tiles: Tiles, elem: str) -> str:
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


def _exp(b: FunctionBody, x: Reg) -> Reg:
    """exp of what is not above 88, NaN included; 0 where the result would be subnormal, which
    processors take a hundred times as long for, and which no sum with a 1 in it can tell from 0.
    """
    n, r = maths.reduced_exp(b, maths.at_least(b, x, SMALLEST))
    return b.select(x < SMALLEST, 0.0, maths.scale(b, maths.short_exp(b, r), n))


def softmax(tiles: Tiles) -> str:
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


def slopes(tiles: Tiles) -> str:
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


def dots(tiles: Tiles) -> str:
    """`void f(x, x_row, y, y_row, dots, rows, columns)`: the products of rows with rows, summed."""
    b, given = tiles.body("dots", "*x", "x_row", "*y", "y_row", "*dots", "rows", "columns")
    x, x_row, y, y_row, dots, rows, columns = given
    lanes = tiles.registers.lanes
    with b.loop(0, rows) as i:
        sums = b.alloca("float", lanes, 0.0)
        left, right = b.at(x, i * x_row), b.at(y, i * y_row)
        with b.loop(0, columns, lanes) as j:
            mask = below(b, lanes, columns - j)
            u, v = (b.load_masked("float", lanes, b.at(p, j, "float"), mask) for p in (left, right))
            b.put(sums, b.fma(u, v, b.get(sums)))
        total = b.get(sums)
        while total.lanes > 1:
            low, high = b.halves(total)
            total = low + high
        store(b, b.lane(total, 0), b.at(dots, i, "float"))
    return tiles.finish("dots", b, given)
