"""Machine code for products of one to four rows, as LLVM IR: the other matrix is read once, as it
lies, and its rate bounds the product.

The order of an element's sum is that of its k and nothing else: neither how the matrices lie, nor
the number of rows, nor the columns of a part change its bits. For vectors of L lanes there are
2 L classes of terms, those whose numbers leave the same remainder. Each class is added up one by
one; then sums of classes are added, of those that are L apart first, those side by side last.

Where that matrix, the weight, is stored by columns, this is the order of dot products in vectors.
Where it is stored by rows, GROUP rows of a class at a time are added up, of a block of columns;
sums of classes lie on a stack, which stays in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

from ...codegen.emit import FunctionBody, Reg
from .product_writer import ADD, BIAS, RELU, ProductWriter

MOST = 4  # rows
CHAINS = 2  # vectors of partial sums of a dot product
GROUP = 8  # rows of the weight that are added up without writing their sum
BLOCK = 32768  # bytes of the result's rows that are computed at a time: pages of the weight's rows
FOUR = 4  # lanes from which sums of vectors are added across columns


class DotTile(NamedTuple):
    """Rows and columns of the result that are computed at once."""

    rows: int
    columns: int


def dot_tiles(wide: bool) -> list[DotTile]:
    """The tile for each number of rows, as many sums as there are registers for; `wide`: 32."""
    if wide:
        return [DotTile(1, 4), DotTile(2, 4), DotTile(3, 2), DotTile(4, 2)]
    return [DotTile(1, 4), DotTile(2, 2), DotTile(3, 2), DotTile(2, 2)]


def widths(wide: bool) -> list[int]:
    """Vectors of each row that are summed at once, for each number of rows."""
    return [4, 4, 2, 2] if wide else [4, 2, 1, 1]


class FewRowsWriter:
    """The functions for products of few rows, in the module of a writer of products."""

    def __init__(self, writer: ProductWriter) -> None:
        self.writer, self.elem, self.lanes = writer, writer.elem, writer.lanes

    def write(self) -> None:
        """Add all functions; `.few` has the parameters of `.product`."""
        wide = self.writer.masks
        for tile in dict.fromkeys(dot_tiles(wide)):
            self.dots(tile)
        for rows, width in enumerate(widths(wide), 1):
            self.sums(rows, width)
        self.few()

    # ---- the weight by columns -------------------------------------------------------------------

    DOTS = (
        "i64 %k, ptr %a, i64 %a_row, ptr %b, i64 %b_column, i64 %count, ptr %c, i64 %c_row,"
        " i64 %mode, ptr %bias, i64 %bias_step"
    )

    def dots(self, tile: DotTile) -> None:
        """Dot products of rows with columns, of which the last of `count` stands in for those that
        are missing; rows and columns have no gaps.
        """
        w = self.writer
        b = FunctionBody(w.module)
        g = w.arguments(b, self.DOTS)
        left = [b.at(g["a"], g["a_row"] * i, self.elem) for i in range(tile.rows)]
        right = []
        for j in range(tile.columns):
            at = b.intrinsic("smin", g["count"] - 1, j)
            right.append(b.at(g["b"], g["b_column"] * at, self.elem))
        zero = b.const(self.elem, 0.0, self.lanes)
        places = [(i, j, u) for i in range(tile.rows) for j in range(tile.columns)
                  for u in range(CHAINS)]  # fmt: skip
        sums = {place: b.alloca(self.elem, self.lanes, zero) for place in places}

        def add(p: Reg, masks: list[Reg | None]) -> None:
            for u, mask in enumerate(masks):
                rows, columns = (
                    [w.load(b, b.at(at, p + u * self.lanes, self.elem), mask) for at in starts]
                    for starts in (left, right)
                )
                for i, x in enumerate(rows):
                    for j, y in enumerate(columns):
                        b.put(sums[i, j, u], b.fma(x, y, b.get(sums[i, j, u])))

        step = CHAINS * self.lanes
        whole = g["k"] & -step
        with b.loop(0, whole, step) as p:
            add(p, [None] * CHAINS)
        rest = g["k"] - whole
        with b.when(rest > 0):
            add(whole, [w.mask(b, rest - u * self.lanes) for u in range(CHAINS)])
        for i in range(tile.rows):
            each = [b.get(sums[i, j, 0]) + b.get(sums[i, j, 1]) for j in range(tile.columns)]
            self._put(b, g, self._across(b, each), i)
        w.define(f".dots{tile.rows}x{tile.columns}", self.DOTS.format(e=self.elem), b)

    def _across(self, b: FunctionBody, sums: list[Reg]) -> Reg:
        """The sum of each vector's lanes, as a vector."""
        while sums[0].lanes > FOUR:
            pairs = [b.halves(x) for x in sums]
            sums = [low + high for low, high in pairs]

        def both(x: Reg, y: Reg, picks: list[int]) -> Reg:
            listed = ", ".join(f"i32 {lane}" for lane in picks)
            kind = f"<{len(picks)} x i32>"
            text = f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, {kind} <{listed}>"
            return b.emit(self.elem, len(picks), text)

        twos = [
            both(x, y, [0, 1, 4, 5]) + both(x, y, [2, 3, 6, 7])
            for x, y in zip(sums[::2], sums[1::2], strict=True)
        ]
        first, last = twos[0], twos[-1]
        if len(twos) == 1:
            return both(first, first, [0, 2]) + both(first, first, [1, 3])
        return both(first, last, [0, 2, 4, 6]) + both(first, last, [1, 3, 5, 7])

    def _put(self, b: FunctionBody, g: dict[str, Reg], x: Reg, row: int) -> None:
        """Write some elements of a row of the result, changed by what the mode has."""
        value = b.alloca(self.elem, x.lanes, x)
        at = b.at(g["c"], g["c_row"] * row, self.elem)
        mask = b.iota("i64", x.lanes) < b.splat(g["count"], x.lanes)
        self._finish(b, g, value, at, mask, g["bias"])
        b.store_masked([(b.get(value), at)], mask, 4)

    def _finish(
        self, b: FunctionBody, g: dict[str, Reg], value: Reg, at: Reg, mask: Reg, bias: Reg
    ) -> None:
        """Changes a variable by what the mode has: ADD, BIAS and RELU, in this order."""
        lanes, mode = value.lanes, g["mode"]
        with b.when(b.compare("ne", mode & ADD, 0)):
            b.put(value, b.load_masked(self.elem, lanes, at, mask, 4) + b.get(value))
        with b.when(b.compare("ne", mode & BIAS, 0)):
            one = b.emit(self.elem, 0, f"load {self.elem}, ptr {bias.ref}")
            alone = b.compare("eq", g["bias_step"], 0)
            own = b.alloca(self.elem, lanes, b.splat(one, lanes))
            with b.when(~alone):
                b.put(own, b.load_masked(self.elem, lanes, bias, mask, 4))
            b.put(value, b.get(value) + b.get(own))
        with b.when(b.compare("ne", mode & RELU, 0)):
            zero = b.const(self.elem, 0.0, lanes)
            b.put(value, b.intrinsic("maximum", b.get(value), zero))

    # ---- the weight by rows ----------------------------------------------------------------------

    SUMS = (
        "i64 %k, ptr %a, i64 %a_row, i64 %a_step, ptr %b, i64 %b_step, i64 %n, ptr %before,"
        " i64 %first, ptr %left, i64 %merged, ptr %to, i64 %row"
    )

    def sums(self, rows: int, width: int) -> None:
        """Multiples of `k` rows of the weight, GROUP at most, added to what is `before`, or to
        zeros where they are the `first`; then to so many sums of other classes as are `merged`:
        that which is `left`, and the ones below it on the stack. A sum has `rows` rows of `n`
        elements, each `row` after the one before.
        """
        w = self.writer
        b = FunctionBody(w.module)
        g = w.arguments(b, self.SUMS)
        starts = [b.at(g["a"], g["a_row"] * i, self.elem) for i in range(rows)]
        size = g["row"] * rows  # of a sum

        def scalars(q: Reg | int) -> list[Reg]:
            places = [b.at(start, g["a_step"] * q, self.elem) for start in starts]
            each = [b.emit(self.elem, 0, f"load {self.elem}, ptr {at.ref}") for at in places]
            return [b.splat(x, self.lanes) for x in each]

        def columns(factors: list[list[Reg]]) -> None:
            step = width * self.lanes
            whole = b.binary("udiv", g["n"], step) * step
            with b.loop(0, whole, step) as j:
                add(j, [None] * width, factors)
            with b.loop(whole, g["n"], self.lanes) as j:
                add(j, [w.mask(b, g["n"] - j)], factors)

        def add(j: Reg, masks: list[Reg | None], factors: list[list[Reg]]) -> None:
            """Computes a vector for each mask, from column `j` on."""
            zero = b.const(self.elem, 0.0, self.lanes)
            places = [(i, v) for i in range(rows) for v in range(len(masks))]
            offsets = {(i, v): g["row"] * i + j + v * self.lanes for i, v in places}
            totals = {place: b.alloca(self.elem, self.lanes, zero) for place in places}

            def own(base: Reg, place: tuple[int, int]) -> Reg:
                return b.at(base, offsets[place], self.elem)

            with b.when(b.compare("eq", g["first"], 0)):
                for place, total in totals.items():
                    b.put(total, w.load(b, own(g["before"], place)))

            def one(q: Reg | int, by: list[Reg]) -> None:
                row = b.at(g["b"], g["b_step"] * q + j, self.elem)
                for v, mask in enumerate(masks):
                    x = w.load(b, b.at(row, v * self.lanes, self.elem), mask)
                    for i, factor in enumerate(by):
                        b.put(totals[i, v], b.fma(factor, x, b.get(totals[i, v])))

            for number, by in enumerate(factors):
                one(number, by)
            if not factors:
                with b.loop(0, g["k"]) as q:
                    one(q, scalars(q))
            with b.loop(0, g["merged"]) as depth:
                left = b.at(g["left"], -(depth * size), self.elem)
                for place, total in totals.items():
                    b.put(total, w.load(b, own(left, place)) + b.get(total))
            for place, total in totals.items():
                w.store(b, b.get(total), own(g["to"], place))

        full = b.compare("eq", g["k"], GROUP)
        with b.when(full):
            columns([scalars(q) for q in range(GROUP)])
        with b.when(~full):
            columns([])
        w.define(f".sums{rows}", self.SUMS.format(e=self.elem), b)

    # ---- the product -----------------------------------------------------------------------------

    def few(self) -> None:
        """The product; where it has a single column, that is taken for the row, and the other
        matrix for the weight: then the rows of c follow each other.
        """
        w = self.writer
        b = FunctionBody(w.module)
        g = w.arguments(b, w.PRODUCT)
        turned = b.compare("eq", g["n"], 1)
        pairs = (("m", "n"), ("a", "b"), ("a_row", "b_column"), ("a_column", "b_row"))
        swapped = dict(g)
        for one, other in pairs:
            swapped[one] = b.select(turned, g[other], g[one])
            swapped[other] = b.select(turned, g[one], g[other])
        swapped["bias_step"] = b.select(turned, b.const("i64", 0), b.const("i64", 1))
        g = swapped
        dots = b.compare("eq", g["b_row"], 1)
        room = (CHAINS * self.lanes).bit_length() * BLOCK
        b.allocas.append(f"%stack = alloca [{room} x i8], align 64")
        for m in range(1, MOST + 1):
            with b.when(b.compare("eq", g["m"], m)):
                with b.when(dots):
                    self._by_columns(b, g, m)
                with b.when(~dots):
                    self._by_rows(b, g, m)
        w.define(".few", w.PRODUCT.format(e=self.elem), b)

    def _by_columns(self, b: FunctionBody, g: dict[str, Reg], m: int) -> None:
        tile = dot_tiles(self.writer.masks)[m - 1]
        with b.loop(0, g["n"], tile.columns) as j:
            right = b.at(g["b"], j * g["b_column"], self.elem)
            count = b.intrinsic("smin", g["n"] - j, tile.columns)
            bias = b.at(g["bias"], j * g["bias_step"], self.elem)
            for i in range(0, m, tile.rows):
                left = b.at(g["a"], g["a_row"] * i, self.elem)
                c = b.at(g["c"], g["c_row"] * i + j, self.elem)
                values = (g["k"], left, g["a_row"], right, g["b_column"], count, c, g["c_row"],
                          g["mode"], bias, g["bias_step"])  # fmt: skip
                self._call(b, f".dots{tile.rows}x{tile.columns}", values)

    def _by_rows(self, b: FunctionBody, g: dict[str, Reg], m: int) -> None:
        w = self.writer
        block = BLOCK // w.size // m & -w.lanes
        classes = CHAINS * self.lanes
        depth = classes.bit_length()
        stack = Reg(b, "ptr", 0, "%stack")
        # Classes of no terms would add zeros: there are as many as there are terms, rounded up.
        levels = b.alloca("i64", 0, 0)
        for bits in range(1, depth):
            with b.when(g["k"] > 1 << (bits - 1)):
                b.put(levels, bits)
        level = b.get(levels)
        count = b.binary("shl", b.const("i64", 1), level)
        with b.loop(0, g["n"], block) as j:
            n = b.intrinsic("smin", g["n"] - j, block)
            with b.loop(0, count) as i:
                number = b.binary("lshr", b.intrinsic("bitreverse", i), 64 - level)
                number = b.select(b.compare("eq", level, 0), b.const("i64", 0), number)
                top = b.at(stack, b.intrinsic("ctpop", i) * (m * block), self.elem)
                self._class(b, g, m, j, n, number, top, self._trailing_ones(b, i), block)
            c = b.at(g["c"], j, self.elem)
            with b.loop(0, b.const("i64", m)) as i, b.loop(0, n, self.lanes) as at:
                mask = w.mask(b, n - at)
                sums = w.load(b, b.at(stack, i * block + at, self.elem))
                place = b.at(c, i * g["c_row"] + at, self.elem)
                value = b.alloca(self.elem, self.lanes, sums)
                bias = b.at(g["bias"], (j + at) * g["bias_step"], self.elem)
                self._finish(b, g, value, place, mask, bias)
                b.store_masked([(b.get(value), place)], mask, 4)

    def _trailing_ones(self, b: FunctionBody, i: Reg) -> Reg:
        b.module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
        return b.emit("i64", 0, f"call i64 @llvm.cttz.i64(i64 {(~i).ref}, i1 0)")

    def _class(
        self, b: FunctionBody, g: dict[str, Reg], m: int, j: Reg, n: Reg, number: Reg, top: Reg,
        merged: Reg, block: int,
    ) -> None:  # fmt: skip
        """The sum of the terms of a class, for columns from `j` on, and its sum with those of
        others that lie below `top` on the stack.
        """
        classes, size = CHAINS * self.lanes, m * block
        left = b.at(top, -size, self.elem)
        end = b.at(top, -(merged * size), self.elem)
        nothing, row = b.const("i64", 0), b.const("i64", block)
        a_step, b_step = g["a_column"] * classes, g["b_row"] * classes
        group = GROUP * classes
        end_of_terms = b.intrinsic("smax", number + 1, g["k"])  # one without terms is added, too
        with b.loop(number, end_of_terms, group) as p:
            terms = b.binary("udiv", g["k"] - p + (classes - 1), classes)
            k = b.intrinsic("smin", terms, GROUP)
            first = b.convert("zext", b.compare("eq", p, number), "i64")
            last = p + group >= g["k"]
            left_right = b.at(g["b"], g["b_row"] * p + j, self.elem)
            factors = b.at(g["a"], g["a_column"] * p, self.elem)
            values = (k, factors, g["a_row"], a_step, left_right, b_step, n, top, first, left,
                      b.select(last, merged, nothing), b.select(last, end, top), row)  # fmt: skip
            self._call(b, f".sums{m}", values)

    def _call(self, b: FunctionBody, name: str, values: tuple[Reg, ...]) -> None:
        b.line(f"call void @{name}({', '.join(f'{x.type} {x.ref}' for x in values)})")
