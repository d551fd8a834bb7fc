"""Machine code for the places of the largest or smallest elements of rows, in order.

Elements are compared by keys: integers that order as they do, NaN above everything. The best keys
so far stand in a sorted list; a vector of elements is looked at more closely only where one of them
is better than the last of these.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....core import policy
from ...codegen.emit import Reg
from ..lowering.machine_routines import ARRAYS, NUMBERS, MachineFunction, compute

_BITS = {"float": 32, "i32": 32, "double": 64, "i64": 64}
_INT64 = np.dtype(np.int64)


def _write_ranked(elem: str, largest: bool) -> MachineFunction:
    """out[row, :k] = the places of the k best in x[row, :n], equal ones in their order."""
    f = MachineFunction("x out", "n k")
    b = f.b
    kind = f"i{_BITS[elem]}"
    best = Reg(b, "ptr", 0, b.name())
    b.allocas.append(f"{best.ref} = alloca [{policy.RANK_MOST} x {kind}], align 64")
    with b.loop(f.first, f.last) as row:
        start, out = row * f.n, row * f.k
        with b.loop(0, f.k) as j:
            _insert(f, best, out, j, _key(f, start + j, elem, 0, largest), j)
        worst = f.k - 1

        def look(
            j: Reg, lanes: int, start: Reg = start, out: Reg = out, worst: Reg = worst
        ) -> None:
            key = _key(f, start + j, elem, lanes, largest)
            limit = f.load(best, worst, kind)
            better = key > (b.splat(limit, lanes) if lanes else limit)
            with b.when(b.any(better) if lanes else better):
                for lane in range(max(lanes, 1)):
                    one = b.lane(key, lane) if lanes else key
                    with b.when(one > f.load(best, worst, kind)):
                        _insert(f, best, out, worst, one, j + lane)

        f.columns(f.k, f.n, look)
    return f


def _key(f: MachineFunction, at: Reg, elem: str, lanes: int, largest: bool) -> Reg:
    """A signed integer that is the larger, the better an element is."""
    b = f.b
    x = f.load(f.x, at, elem, lanes)
    if elem in ("float", "double"):
        bits = _BITS[elem]
        kind = f"i{bits}"
        missing = b.compare("uno", x, x)
        x = x + 0.0  # of zeros, the positive one
        key = b.convert("bitcast", x, kind)
        key = key ^ (b.binary("ashr", key, bits - 1) & ((1 << bits - 1) - 1))
        x = b.select(missing, (1 << bits - 1) - 1, key)
    return x if largest else ~x


def _insert(f: MachineFunction, best: Reg, out: Reg, last: Reg, key: Reg, place: Reg) -> None:
    """Puts a key in order among those before the position `last`, which is lost."""
    b = f.b
    at = b.alloca("i64", 0)
    b.put(at, last)
    head, inside, move, end = (b.label() for _ in range(4))
    b.start(head)
    b.branch(b.get(at) > 0, inside, end)
    b.start(inside)
    before = b.get(at) - 1
    other = f.load(best, before, key.elem)
    b.branch(key > other, move, end)
    b.start(move)
    f.store(best, b.get(at), other)
    f.store(f.out, out + b.get(at), f.load(f.out, out + before, "i64"))
    b.put(at, before)
    b.line(f"br label %{head}")
    b.start(end)
    f.store(best, b.get(at), key)
    f.store(f.out, out + b.get(at), place)


def ranked(x: Any, axis: int, k: int, largest: bool) -> Any:
    """The places along an axis of the k largest or smallest elements, the most extreme first, equal
    ones in their order; NotImplemented where that is better done otherwise.
    """
    elem = NUMBERS.get(x.dtype) if type(x) in ARRAYS else None
    if elem is None or axis != x.ndim - 1 or not x.flags.c_contiguous or not x.size:
        return NotImplemented
    n = x.shape[-1]
    if not 0 < k <= (n if n <= policy.RANK_SORTED else min(policy.RANK_MOST, n // 4)):
        return NotImplemented
    rows = math.prod(x.shape[:-1])
    routine, shape = (_write_ranked, elem, largest), (*x.shape[:-1], k)
    return compute(routine, (x,), shape, _INT64, (n, k), rows, n)
