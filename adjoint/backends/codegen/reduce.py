"""The running state of a reduction while a kernel loops over its elements.

Sums of floats are kept short: a few lanes are summed plainly for a block, and blocks are added in
float64 (float32 sums) or in two words with the rounding errors of each addition (float64 sums), so
the error does not grow with the number of elements. The order of the additions is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from . import ir
from .emit import LLVM_TYPES, FunctionBody, Reg


class Accumulator:
    """Running state of one reduction: `copies` vectors; with `columns`, each holds results of its
    own, for each of the rows that are done `together`.
    """

    def __init__(
        self, b: FunctionBody, op: str, dtype: str, lanes: int, copies: int, columns: bool,
        together: int = 1,
    ) -> None:  # fmt: skip
        self.b, self.op, self.dtype, self.lanes, self.columns = b, op, dtype, lanes, columns
        self.elem = LLVM_TYPES[dtype]
        self.floating = dtype in ir.FLOATS
        self.blocks = op == "sum" and self.floating  # whether `fold` must be called now and then
        self.identity = self._identity()
        self.kept = copies if columns else 1
        copies *= together
        self.slots = [b.alloca(self.elem, lanes) for _ in range(copies)]
        self.flags: list[Reg] = []  # float max and min: where a NaN was seen
        self.totals: list[Reg] = []  # float sums of whole blocks
        self.errors: list[Reg] = []  # and what was lost in adding those up (float64)
        if op in ("max", "min") and self.floating:
            self.flags = [b.alloca("i1", lanes) for _ in range(copies)]
        if self.blocks:
            self.totals = [b.alloca("double", lanes) for _ in range(self.kept)]
            if self.elem == "double":
                self.errors = [b.alloca("double", lanes) for _ in range(self.kept)]

    def _identity(self) -> float:
        if self.op in ("max", "min"):
            low = self.op == "max"
            if self.floating:
                return -math.inf if low else math.inf
            if self.dtype == "bool":
                return not low
            bits = 8 * ir.ITEMSIZE[self.dtype]
            if self.dtype in ir.UNSIGNED:
                return 0 if low else (1 << bits) - 1
            return -(1 << bits - 1) if low else (1 << bits - 1) - 1
        return 1 if self.op in ("prod", "all") else 0

    @property
    def state(self) -> list[Reg]:
        """The variables that hold what was taken in, after a fold."""
        return self.totals + self.errors if self.blocks else self.slots + self.flags

    def reset(self) -> None:
        """Sets the state to the reduction's identity, before the first element."""
        for slot in self.slots:
            self.b.put(slot, self.identity)
        for slot in self.flags + self.totals + self.errors:
            self.b.put(slot, 0)

    def step(self, copy: int, x: Reg, mask: Reg | None) -> None:
        """Takes in a vector (its lanes of the mask)."""
        b, slot = self.b, self.slots[copy]
        if self.flags:
            unknown = b.compare("uno", x, x)
            b.put(self.flags[copy], b.get(self.flags[copy]) | (unknown & mask if mask else unknown))
        if mask is not None:
            x = b.select(mask, x, self.identity)
        b.put(slot, self._combine(x, b.get(slot)))

    def _combine(self, x: Reg, y: Reg) -> Reg:
        b = self.b
        if self.op == "sum":
            return y + x
        if self.op == "prod":
            return y * x
        if self.op in ("any", "all"):
            return x | y if self.op == "any" else x & y
        if self.floating:
            return b.select(x > y if self.op == "max" else x < y, x, y)
        return b.minmax(self.op, x, y, self.dtype in ir.UNSIGNED)

    def fold(self) -> None:
        """Ends a block of a float sum."""
        b = self.b
        values = [b.get(slot) for slot in self.slots]
        for slot in self.slots:
            b.put(slot, 0.0)
        for k, x in enumerate(self._joined(values)):
            total = b.get(self.totals[k])
            if not self.errors:
                b.put(self.totals[k], total + b.convert("fpext", x, "double"))
                continue
            after = total + x
            part = after - total
            lost = (total - (after - part)) + (x - part)
            b.put(self.totals[k], after)
            b.put(self.errors[k], b.get(self.errors[k]) + lost)

    def _joined(self, values: list[Reg]) -> list[Reg]:
        """The results as vectors: one for each that is kept."""
        return [self._tree(values[k :: self.kept]) for k in range(self.kept)]

    def _tree(self, values: list[Reg]) -> Reg:
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            odd = values[-1:] if len(values) % 2 else []
            values = [self._combine(x, y) for x, y in pairs] + odd
        return values[0]

    def _across(self, x: Reg) -> Reg:
        """All lanes of x combined, as a scalar."""
        while x.lanes > 1:
            low, high = self.b.halves(x)
            x = self._combine(high, low)
        return self.b.lane(x, 0)

    def _sum(self, total: Reg, error: Reg | None) -> Reg:
        b = self.b
        if error is None:
            return b.convert("fptrunc", total, self.elem)
        finite = b.intrinsic("fabs", total) < math.inf
        return b.select(finite, total + error, total)

    def finish(self) -> list[Reg]:
        """The result: one vector per copy with columns, else one with the result in every lane."""
        b = self.b
        if self.blocks:
            self.fold()
        if self.columns:
            if self.blocks:
                errors: list[Reg | None] = [b.get(e) for e in self.errors]
                errors = errors or [None] * len(self.totals)
                return [self._sum(b.get(t), e) for t, e in zip(self.totals, errors, strict=True)]
            values = self._joined([b.get(slot) for slot in self.slots])
            if self.flags:
                seen = [b.get(flag) for flag in self.flags]
                flags = [_either(seen[k :: self.kept]) for k in range(self.kept)]
                values = [b.select(f, math.nan, v) for f, v in zip(flags, values, strict=True)]
            return values
        if self.blocks:
            error = self._across(b.get(self.errors[0])) if self.errors else None
            result = self._sum(self._across(b.get(self.totals[0])), error)
        else:
            result = self._across(self._tree([b.get(slot) for slot in self.slots]))
        if self.flags:
            seen = [b.get(flag) for flag in self.flags]
            result = b.select(b.any(_either(seen)), math.nan, result)
        return [b.splat(result, self.lanes)]


def _either(flags: list[Reg]) -> Reg:
    """A mask: where one of the flags is set."""
    seen = flags[0]
    for flag in flags[1:]:
        seen = seen | flag
    return seen


def fold(accumulators: Iterable[Accumulator]) -> None:
    """Ends a block of the accumulators that sum floats."""
    for accumulator in accumulators:
        if accumulator.blocks:
            accumulator.fold()
