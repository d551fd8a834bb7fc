"""Machine code for matrix products, as LLVM IR: tiles in registers, panels in the cache.

c = alpha a b + beta c, or a b + bias, and of these what is above 0. The inner loop (`tiles`) keeps
a tile of c in registers, ROWS rows by one to WIDTH vectors, and for each k multiplies scalars of a
by vectors of b. The vectors come from a panel, a slice of b copied to where it stays in the
first-level cache, in the order of its use; where b is stored by columns, that copy transposes it.
The scalars are read where they are.
Each element's sum is taken in the same order, blocks of k one after another, whatever tile and
thread it falls to.

Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

from typing import NamedTuple

from ....kernels.emit import Body, Module, Reg, type_name
from ....kernels.target import Target

ROWS = 8  # of a tile
WIDTH = 3  # vectors of a tile
DEPTH = 256  # of a panel: with its width, 48 KiB of float32
CONFLICTING = 1024  # elements between rows of b that fall on each other in the cache
BAND = 512  # rows of a that are used with one panel
FAR, WIDE = 256, 256  # elements between rows of a, columns of b, from which a is copied too
FEW = 64  # rows for which a panel does not pay: vectors are read from b
NARROW = 256, 96  # elements between rows of b up to which they are as good: AVX-512, others
FAR_AHEAD = 96  # of k: enough time for what is written to be fetched meanwhile
LARGE = 5 << 19  # multiply-adds from which a library's product is faster
TURNED_LEFT = 64  # rows, columns and k from which a that is stored by columns is read better here
UNEVEN = 512  # elements between rows of b with which the library takes up to 1.6 times as long
SMALL_RIGHT = 1 << 17  # elements of b up to which a bias costs the library more than it is ahead
SCALE, ADD, BIAS, RELU = 1, 2, 4, 8  # what a tile does with its sums
TURNED_ROWS, TURNED_COLUMNS = 128, 256  # of c, where its transpose is computed


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


TASK_WORDS = 5  # number of the shape, offsets in bytes into a, b, c and bias


class _Code:
    """The functions for one element type."""

    def __init__(self, target: Target, elem: str) -> None:
        self.module = Module()
        self.elem = elem
        self.size = {"float": 4, "double": 8}[elem]
        self.lanes = target.vector_bytes // self.size
        self.vector = type_name(elem, self.lanes)
        self.rows = ROWS if target.vector_bytes == 64 else ROWS // 2  # fewer registers
        self.width = WIDTH
        # Elsewhere a mask takes registers: LLVM would make it anew for each k.
        self.masks = target.has("avx512f")
        self.narrow = NARROW[0 if self.masks else 1]
        self.heights = [ROWS >> i for i in range(ROWS.bit_length())]

    def fits(self, rows: int, width: int) -> bool:
        """Whether there are registers for such a tile."""
        return rows <= self.rows or width == 1

    def argument(self, b: Body, elem: str, name: str) -> Reg:
        return Reg(b, elem, 0, f"%{name}")

    def load(self, b: Body, at: Reg, mask: Reg | None = None) -> Reg:
        """A vector, zeros where the mask is not set."""
        if mask is None:
            return b.emit(self.elem, self.lanes, f"load {self.vector}, ptr {at.ref}, align 4")
        return b.load_masked(self.elem, self.lanes, at, mask, 4)

    def store(self, b: Body, x: Reg, at: Reg) -> None:
        """Write a vector."""
        b.line(f"store {self.vector} {x.ref}, ptr {at.ref}, align 4")

    def mask(self, b: Body, count: Reg) -> Reg:
        """The first `count` lanes."""
        return b.iota("i64", self.lanes) < b.splat(count, self.lanes)

    def define(self, name: str, parameters: str, b: Body, result: Reg | None = None) -> None:
        """Add a function."""
        kind = "internal void" if result is None else f"internal {result.type}"
        if not name.startswith("."):
            kind = kind.removeprefix("internal ")
        header = f"{kind} @{name}({parameters})"
        # Large frames touch each page of the stack, so that its end is noticed.
        attributes = 'nounwind "probe-stack"="inline-asm"'
        self.module.functions[name] = b.function(header, result, attributes)

    # ---- the tile --------------------------------------------------------------------------------

    def tiles(self, rows: int, width: int, by_columns: bool) -> None:
        """Tiles below each other: c = sum, times alpha (mode has SCALE), plus beta c (ADD) or bias
        (BIAS), but at least 0 (RELU); each `rows` by `width` vectors, of the last of which `count`
        lanes are there. The scalars of a for one k lie side by side (`by_columns`), or those of one
        row do; `step` lies between the others. From tile to tile, a moves by `near` and `far` in
        turns. Whole tiles fetch the next one's part of a meanwhile (side by side, where two share
        lines, the second next one's).
        """
        b = Body(self.module)
        k, step, b_row, c_row, mode, count, tiles, near, far = (
            self.argument(b, "i64", name)
            for name in ("k", "step", "b_row", "c_row", "mode", "count", "tiles", "near", "far")
        )
        a, right, c, bias = (self.argument(b, "ptr", name) for name in ("a", "b", "c", "bias"))
        alpha, beta = (self.argument(b, self.elem, name) for name in ("alpha", "beta"))
        rest = self.mask(b, count)
        masks: list[Reg | None] = [None] * (width - 1) + [rest]
        reads = masks if self.masks else [None] * width
        places = [(i, j) for i in range(rows) for j in range(width)]
        self.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        first, top, left, row = (b.alloca("ptr") for _ in range(4))
        b.put(first, a)
        b.put(top, c)
        with b.loop(0, tiles) as tile:
            c_here, a_here = b.get(top), b.get(first)
            outs = {
                (i, j): b.at(b.at(c_here, c_row * i, self.elem), j * self.lanes, self.elem)
                for i, j in places
            }
            with b.when(k >= FAR_AHEAD):
                for at in outs.values():
                    b.line(f"call void @llvm.prefetch.p0(ptr {at.ref}, i32 1, i32 3, i32 1)")
            zero = b.const(self.elem, 0.0, self.lanes)
            sums = {at: b.alloca(self.elem, self.lanes, zero) for at in places}
            starts = [b.at(a_here, step * i, self.elem) for i in range(1 if by_columns else rows)]
            b.put(left, a_here)
            b.put(row, right)
            with b.loop(0, k) as p:
                here = b.get(row)
                vectors = [
                    self.load(b, b.at(here, j * self.lanes, self.elem), reads[j])
                    for j in range(width)
                ]
                column = b.get(left)
                if rows == self.rows == ROWS:
                    later = b.at(column, near + far, self.elem)
                    if not by_columns:  # a line of each row in turns
                        line = (p & (rows - 1)) * step + (p & -(64 // self.size))
                        later = b.at(a_here, near + line, self.elem)
                    b.line(f"call void @llvm.prefetch.p0(ptr {later.ref}, i32 0, i32 3, i32 1)")
                for i in range(rows):
                    at = b.at(column, i, self.elem) if by_columns else b.at(starts[i], p, self.elem)
                    scalar = b.emit(self.elem, 0, f"load {self.elem}, ptr {at.ref}")
                    factor = b.splat(scalar, self.lanes)
                    for j in range(width):
                        b.put(sums[i, j], b.fma(factor, vectors[j], b.get(sums[i, j])))
                b.put(row, b.at(here, b_row, self.elem))
                if by_columns:
                    b.put(left, b.at(column, step, self.elem))
            with b.when(b.compare("ne", mode, 0)):
                with b.when(b.compare("ne", mode & SCALE, 0)):
                    for place in places:
                        b.put(sums[place], b.get(sums[place]) * b.splat(alpha, self.lanes))
                with b.when(b.compare("ne", mode & ADD, 0)):
                    for i, j in places:
                        old = self.load(b, outs[i, j], masks[j])
                        b.put(sums[i, j], b.fma(old, b.splat(beta, self.lanes), b.get(sums[i, j])))
                with b.when(b.compare("ne", mode & BIAS, 0)):
                    for j in range(width):
                        added = self.load(b, b.at(bias, j * self.lanes, self.elem), masks[j])
                        for i in range(rows):
                            b.put(sums[i, j], b.get(sums[i, j]) + added)
                with b.when(b.compare("ne", mode & RELU, 0)):
                    for place in places:
                        b.put(sums[place], b.intrinsic("maximum", b.get(sums[place]), zero))
            for i, j in places:
                if j < width - 1:
                    self.store(b, b.get(sums[i, j]), outs[i, j])
            last = [(b.get(sums[i, width - 1]), outs[i, width - 1]) for i in range(rows)]
            b.store_masked(last, rest, 4)
            b.put(top, b.at(c_here, c_row * rows, self.elem))
            even = b.compare("eq", tile & 1, 0)
            b.put(first, b.at(a_here, b.select(even, near, far), self.elem))
        self.define(
            f".tiles{rows}x{width}{'c' if by_columns else 'r'}",
            f"i64 %k, ptr %a, i64 %step, ptr %b, i64 %b_row, ptr %c, i64 %c_row, "
            f"{self.elem} %alpha, {self.elem} %beta, i64 %mode, ptr %bias, i64 %count, "
            f"i64 %tiles, i64 %near, i64 %far",
            b,
        )

    # ---- panels ----------------------------------------------------------------------------------

    def copy(self, width: int) -> None:
        """`k` rows of `width` vectors, `count` lanes of the last, into a panel."""
        b = Body(self.module)
        k, b_row, count = (self.argument(b, "i64", name) for name in ("k", "b_row", "count"))
        right, panel = (self.argument(b, "ptr", name) for name in ("b", "panel"))
        last = self.mask(b, count)
        with b.loop(0, k) as p:
            source = b.at(right, p * b_row, self.elem)
            target = b.at(panel, p * (width * self.lanes), self.elem)
            for j in range(width):
                x = self.load(
                    b, b.at(source, j * self.lanes, self.elem), last if j == width - 1 else None
                )
                self.store(b, x, b.at(target, j * self.lanes, self.elem))
        self.define(f".copy{width}", "i64 %k, ptr %b, i64 %b_row, ptr %panel, i64 %count", b)

    def transpose(self) -> None:
        """`k` columns of up to `valid` rows become vectors, of which `count` lanes are written;
        the last row stands in for those that are missing.
        """
        b = Body(self.module)
        k, row, out_row, valid, count, biased = (
            self.argument(b, "i64", name)
            for name in ("k", "row", "out_row", "valid", "count", "biased")
        )
        source, target, bias = (self.argument(b, "ptr", name) for name in ("source", "to", "bias"))
        mask = self.mask(b, count)
        group = 16 // self.size  # elements that are moved together
        starts = []
        for i in range(self.lanes):
            at = b.intrinsic("smin", valid - 1, i) if i else b.const("i64", 0)
            starts.append(b.at(source, row * at, self.elem))
        added = b.alloca(self.elem, self.lanes, b.const(self.elem, 0.0, self.lanes))
        with b.when(b.compare("ne", biased, 0)):
            b.put(added, self.load(b, bias, mask))
        whole = b.binary("and", k, -group)
        with b.loop(0, whole, group) as p:
            parts = [self._gathered(b, starts, q, p, group) for q in range(group)]
            pairs = [
                (x + b.get(added), b.at(target, (p + i) * out_row, self.elem))
                for i, x in enumerate(self._turned(b, parts))
            ]
            b.store_masked(pairs, mask, 4)
        with b.loop(whole, k) as p:
            x = b.const(self.elem, 0.0, self.lanes)
            for i, start in enumerate(starts):
                at = b.at(start, p, self.elem)
                one = b.emit(self.elem, 0, f"load {self.elem}, ptr {at.ref}")
                x = b.emit(
                    self.elem,
                    self.lanes,
                    f"insertelement {x.type} {x.ref}, {self.elem} {one.ref}, i32 {i}",
                )
            at = b.at(target, p * out_row, self.elem)
            b.store_masked([(x + b.get(added), at)], mask, 4)
        self.define(
            ".transpose",
            "i64 %k, i64 %valid, ptr %source, i64 %row, ptr %to, i64 %out_row, i64 %count, "
            "i64 %biased, ptr %bias",
            b,
        )

    def _gathered(self, b: Body, starts: list[Reg], first: int, p: Reg, group: int) -> Reg:
        """From every `group`-th row, the elements at p."""
        parts = []
        for start in starts[first::group]:
            at = b.at(start, p, self.elem)
            kind = type_name(self.elem, group)
            parts.append(b.emit(self.elem, group, f"load {kind}, ptr {at.ref}, align 4"))
        while len(parts) > 1:
            parts = [b.join(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
        return parts[0]

    def _turned(self, b: Body, parts: list[Reg]) -> list[Reg]:
        """The transpose within each group of lanes."""

        def shuffle(x: Reg, y: Reg, picks: list[int]) -> Reg:
            group = len(picks)
            lanes = [
                start + pick if pick < group else self.lanes + start + pick - group
                for start in range(0, self.lanes, group)
                for pick in picks
            ]
            text = ", ".join(f"i32 {lane}" for lane in lanes)
            return b.emit(
                self.elem,
                self.lanes,
                f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{self.lanes} x i32> <{text}>",
            )

        if len(parts) == 2:
            first, second = parts
            return [shuffle(first, second, [0, 2]), shuffle(first, second, [1, 3])]
        pairs = (parts[0], parts[1]), (parts[2], parts[3])
        low, high = (
            [shuffle(x, y, picks) for x, y in pairs] for picks in ([0, 4, 1, 5], [2, 6, 3, 7])
        )
        return [
            shuffle(x, y, picks) for x, y in (low, high) for picks in ([0, 1, 4, 5], [2, 3, 6, 7])
        ]

    # ---- the product -----------------------------------------------------------------------------

    PRODUCT = (
        "i64 %m, i64 %n, i64 %k, {e} %alpha, ptr %a, i64 %a_row, i64 %a_column, ptr %b, i64 %b_row,"
        " i64 %b_column, {e} %beta, ptr %c, i64 %c_row, i64 %mode, ptr %bias"
    )

    def _arguments(self, b: Body) -> dict[str, Reg]:
        found = {}
        for part in self.PRODUCT.format(e=self.elem).split(", "):
            elem, name = part.split()
            found[name[1:]] = Reg(b, elem, 0, name)
        return found

    def blocks(self) -> None:
        """The product, panel by panel; `start`: the mode of the first block of k (see `tile`)."""
        b = Body(self.module)
        g = self._arguments(b)
        rows, width, lanes = self.rows, self.width, self.lanes
        names = [
            f".tiles{r if self.fits(r, w) else rows}x{w}{kind}"
            for kind in "rc"
            for w in range(1, width + 1)
            for r in self.heights
        ]
        tiles = ", ".join(f"ptr @{name}" for name in names)
        self.module.declarations[".tiles"] = (
            f"@.tiles = internal constant [{len(names)} x ptr] [{tiles}]"
        )
        copies = ", ".join(f"ptr @.copy{w}" for w in range(1, width + 1))
        self.module.declarations[".copies"] = (
            f"@.copies = internal constant [{width} x ptr] [{copies}]"
        )
        room = DEPTH * 4 // self.size * width * lanes
        b.allocas.append(f"%panel = alloca [{room} x {self.elem}], align 64")
        panel = Reg(b, "ptr", 0, "%panel")
        depth = DEPTH * 4 // self.size
        one = b.const("i64", 1)
        count = b.intrinsic("smax", b.binary("udiv", g["k"] + (depth - 1), depth), one)
        even = b.binary("udiv", g["k"] + count - 1, count)
        step = b.intrinsic("smax", b.binary("and", even + 3, -4), one)
        ends = b.intrinsic("smax", g["k"], one)
        by_columns = b.compare("eq", g["a_row"], 1)
        far = b.select(by_columns, g["a_column"], g["a_row"]) > FAR
        wanted = far & (g["n"] >= WIDE) & (by_columns | b.compare("eq", g["a_column"], 1))
        copy_slot = b.alloca("ptr")
        b.put(copy_slot, Reg(b, "ptr", 0, "null"))
        self.module.declare("malloc", "ptr", ["i64"])
        self.module.declare("free", "void", ["ptr"])
        with b.when(wanted):
            size = b.const("i64", (BAND + lanes) * depth * self.size)
            b.put(copy_slot, b.emit("ptr", 0, f"call ptr @malloc(i64 {size.ref})"))
        copy = b.get(copy_slot)
        has_copy = b.emit("i64", 0, f"ptrtoint ptr {copy.ref} to i64")
        copied = b.compare("ne", has_copy, 0)
        in_group = b.select(copied, one, g["a_row"])  # between rows of one group
        side_by_side = copied | by_columns
        step_a = b.select(
            copied, b.const("i64", lanes), b.select(by_columns, g["a_column"], g["a_row"])
        )
        kinds = len(self.heights)
        first_tile = b.select(side_by_side, b.const("i64", kinds * width), b.const("i64", 0))
        within_mask = b.select(copied, b.const("i64", lanes - 1), b.const("i64", 0))
        with b.loop(0, g["m"], BAND) as band:
            height = b.intrinsic("smin", g["m"] - band, BAND)
            with b.loop(0, ends, step) as p:
                k = b.intrinsic("smin", g["k"] - p, step)
                first = b.compare("eq", p, 0)
                scaled = g["mode"] & SCALE
                last = b.select(p + step >= ends, g["mode"] & RELU, 0)
                mode = b.select(first, g["mode"] & ~RELU, scaled | ADD) | last
                beta = b.select(first, g["beta"], b.const(self.elem, 1.0))
                a = b.at(g["a"], band * g["a_row"] + p * g["a_column"], self.elem)
                left_a, row_a = b.alloca("ptr"), b.alloca("i64")
                b.put(left_a, a)
                b.put(row_a, g["a_row"])
                with b.when(copied):
                    self._copy_left(b, g, a, k, height, copy)
                    b.put(left_a, copy)
                    b.put(row_a, k)
                slot = b.alloca("i64", 0, 0)
                head, inside, after = b.label(), b.label(), b.label()
                b.start(head)
                j = b.get(slot)
                b.branch(j < g["n"], inside, after)
                b.start(inside)
                left = g["n"] - j
                vectors = b.binary("udiv", left + (lanes - 1), lanes)
                # never 3 + 1: a tile of one vector is slow
                w = b.select(
                    b.compare("eq", vectors, width + 1),
                    width - 1,
                    b.intrinsic("smin", vectors, width),
                )
                lanes_left = b.intrinsic("smin", left - (w - 1) * lanes, lanes)
                source = b.at(g["b"], p * g["b_row"] + j * g["b_column"], self.elem)
                vector_b, row_b = b.alloca("ptr"), b.alloca("i64")
                b.put(vector_b, source)
                b.put(row_b, g["b_row"])
                by_rows = b.compare("eq", g["b_column"], 1)
                apart = b.compare("ne", g["b_row"] & (CONFLICTING - 1), 0)  # not in one cache set
                good = (height <= rows) | (height <= FEW) & apart | (g["b_row"] <= self.narrow)
                if not self.masks:  # whole vectors can be read from a panel only
                    good = good & b.compare("eq", lanes_left, lanes)
                with b.when(~(by_rows & good)):
                    b.put(vector_b, panel)
                    b.put(row_b, w * lanes)
                    with b.when(by_rows):
                        self._call_indexed(
                            b, ".copies", width, w - 1,
                            f"i64 {k.ref}, ptr {source.ref}, i64 {g['b_row'].ref}, "
                            f"ptr {panel.ref}, i64 {lanes_left.ref}",
                        )  # fmt: skip
                    with b.when(~by_rows), b.loop(0, w) as v:
                        start = b.at(source, v * g["b_column"] * lanes, self.elem)
                        valid = b.intrinsic("smin", left - v * lanes, lanes)
                        to = b.at(panel, v * lanes, self.elem)
                        self._transpose(b, k, valid, start, g["b_column"], to, w * lanes,
                                        b.const("i64", lanes), None)  # fmt: skip
                c = b.at(g["c"], band * g["c_row"] + j, self.elem)
                bias = b.at(g["bias"], j, self.elem)
                here, stride = b.get(vector_b), b.get(row_b)
                row = b.alloca("i64", 0, 0)
                for number, r in enumerate(self.heights):
                    i = b.get(row)
                    fitting = b.binary("udiv", height - i, r)
                    if r > rows:  # which may be more than a group of what was copied has
                        alone = b.compare("eq", w, 1) & ~copied
                        fitting = b.select(alone, fitting, 0)
                    with b.when(fitting > 0):
                        within = b.binary("and", i, within_mask)
                        a_here = b.at(
                            b.get(left_a), (i - within) * b.get(row_a) + within * in_group,
                            self.elem,
                        )  # fmt: skip
                        c_here = b.at(c, i * g["c_row"], self.elem)
                        near = (in_group if r < lanes else b.get(row_a)) * r
                        far = b.get(row_a) * (2 * r) - near  # a group is one tile or two
                        self._call_indexed(
                            b, ".tiles", len(names), first_tile + (w - 1) * kinds + number,
                            f"i64 {k.ref}, ptr {a_here.ref}, i64 {step_a.ref}, ptr {here.ref}, "
                            f"i64 {stride.ref}, ptr {c_here.ref}, i64 {g['c_row'].ref}, "
                            f"{self.elem} {g['alpha'].ref}, {self.elem} {beta.ref}, "
                            f"i64 {mode.ref}, ptr {bias.ref}, i64 {lanes_left.ref}, "
                            f"i64 {fitting.ref}, i64 {near.ref}, i64 {far.ref}",
                        )  # fmt: skip
                        b.put(row, i + fitting * r)
                b.put(slot, j + w * lanes)
                b.line(f"br label %{head}")
                b.start(after)
        with b.when(copied):
            b.line(f"call void @free(ptr {copy.ref})")
        self.define(".blocks", self.PRODUCT.format(e=self.elem), b)

    def _copy_left(
        self, b: Body, g: dict[str, Reg], a: Reg, k: Reg, height: Reg, copy: Reg
    ) -> None:
        """A block of a in groups of as many rows as a vector has lanes, column by column."""
        with b.loop(0, height, self.lanes) as i:
            valid = b.intrinsic("smin", height - i, self.lanes)
            source = b.at(a, i * g["a_row"], self.elem)
            to = b.at(copy, i * k, self.elem)
            lanes = b.const("i64", self.lanes)
            by_columns = b.compare("eq", g["a_row"], 1)
            with b.when(by_columns):
                b.line(
                    f"call void @.copy1(i64 {k.ref}, ptr {source.ref}, i64 {g['a_column'].ref}, "
                    f"ptr {to.ref}, i64 {valid.ref})"
                )
            with b.when(~by_columns):
                self._transpose(b, k, valid, source, g["a_row"], to, lanes, lanes, None)

    def _call_indexed(self, b: Body, table: str, size: int, index: Reg, arguments: str) -> None:
        place = b.emit(
            "ptr", 0, f"getelementptr [{size} x ptr], ptr @{table}, i64 0, i64 {index.ref}"
        )
        function = b.emit("ptr", 0, f"load ptr, ptr {place.ref}")
        b.line(f"call void {function.ref}({arguments})")

    def _transpose(
        self, b: Body, k: Reg, valid: Reg, source: Reg, row: Reg, to: Reg, out_row: Reg, count: Reg,
        bias: tuple[Reg, Reg] | None,
    ) -> None:  # fmt: skip
        biased, added = ("0", "null") if bias is None else (x.ref for x in bias)
        b.line(
            f"call void @.transpose(i64 {k.ref}, i64 {valid.ref}, ptr {source.ref}, i64 {row.ref}, "
            f"ptr {to.ref}, i64 {out_row.ref}, i64 {count.ref}, i64 {biased}, ptr {added})"
        )

    def turned(self) -> None:
        """The product with few rows and b stored by columns: its transpose, block by block of c's
        columns, so that the smaller operand is what is copied.
        """
        b = Body(self.module)
        g = self._arguments(b)
        room = TURNED_ROWS * TURNED_COLUMNS
        b.allocas.append(f"%turned = alloca [{room} x {self.elem}], align 64")
        scratch = Reg(b, "ptr", 0, "%turned")
        biased = g["mode"] & BIAS
        scaled = g["mode"] & SCALE
        with b.loop(0, g["n"], TURNED_COLUMNS) as j:
            columns = b.intrinsic("smin", g["n"] - j, TURNED_COLUMNS)
            left = b.at(g["b"], j * g["b_column"], self.elem)
            b.line(
                f"call void @.blocks(i64 {columns.ref}, i64 {g['m'].ref}, i64 {g['k'].ref}, "
                f"{self.elem} {g['alpha'].ref}, ptr {left.ref}, i64 {g['b_column'].ref}, i64 1, "
                f"ptr {g['a'].ref}, i64 1, i64 {g['a_row'].ref}, {self.elem} {g['beta'].ref}, "
                f"ptr {scratch.ref}, i64 {g['m'].ref}, i64 {scaled.ref}, ptr null)"
            )
            with b.loop(0, columns, self.lanes) as i:
                valid = b.intrinsic("smin", columns - i, self.lanes)
                source = b.at(scratch, i * g["m"], self.elem)
                to = b.at(g["c"], j + i, self.elem)
                bias = b.at(g["bias"], j + i, self.elem)
                self._transpose(b, g["m"], valid, source, g["m"], to, g["c_row"], valid,
                                (biased, bias))  # fmt: skip
        self._rectify(b, g)
        self.define(".turned", self.PRODUCT.format(e=self.elem), b)

    def product(self) -> None:
        """The product, whichever way is faster: the library's is for large ones, where there is
        one.
        """
        b = Body(self.module)
        g = self._arguments(b)
        call = ", ".join(f"{x.type} {x.ref}" for x in g.values())
        by_columns = b.compare("eq", g["b_row"], 1) & b.compare("ne", g["b_column"], 1)
        plain = b.compare("eq", g["a_column"], 1) & b.compare("eq", g["mode"] & ADD, 0)
        # elements that are moved in each way
        turned = g["m"] * g["k"] + g["m"] * g["n"] * 2
        few = (g["m"] <= TURNED_ROWS) & (turned < g["n"] * g["k"])
        self.module.declarations[".library"] = "@.library = internal global ptr null"
        library = b.emit("ptr", 0, "load ptr, ptr @.library")
        there = b.emit("i1", 0, f"icmp ne ptr {library.ref}, null")
        biased = b.compare("ne", g["mode"] & BIAS, 0)
        large = (g["m"] * g["n"] * g["k"] > LARGE) & ~(biased & (g["n"] * g["k"] <= SMALL_RIGHT))
        if not self.masks:  # with AVX2, 1.05 to 1.6 times as fast: gradients of weights, and rows
            smallest = b.intrinsic("smin", b.intrinsic("smin", g["m"], g["n"]), g["k"])
            better = (smallest >= TURNED_LEFT) & (g["m"] <= BAND)
            by_rows = b.compare("eq", g["a_column"], 1) & b.compare("eq", g["b_column"], 1)
            ours = by_rows & b.compare("eq", g["b_row"], UNEVEN)
            large = large & ~(ours | b.compare("eq", g["a_row"], 1) & better)
        here, other, theirs, own, end = (b.label() for _ in range(5))
        b.branch(by_columns & plain & few, here, other)
        b.start(here)
        b.line(f"call void @.turned({call})")
        b.line(f"br label %{end}")
        b.start(other)
        b.branch(there & large, theirs, own)
        b.start(theirs)
        self._call_library(b, g, library)
        b.line(f"br label %{end}")
        b.start(own)
        b.line(f"call void @.blocks({call})")
        b.line(f"br label %{end}")
        b.start(end)
        self.define(".product", self.PRODUCT.format(e=self.elem), b)

    def _call_library(self, b: Body, g: dict[str, Reg], library: Reg) -> None:
        """Its interface is that of `blas`; a bias is put into c first."""
        beta = b.alloca(self.elem, 0, g["beta"])
        with b.when(b.compare("eq", g["mode"] & ADD, 0)):
            b.put(beta, b.const(self.elem, 0.0))
        with b.when(b.compare("ne", g["mode"] & BIAS, 0)):
            b.put(beta, b.const(self.elem, 1.0))
            with b.loop(0, g["m"]) as i, b.loop(0, g["n"], self.lanes) as j:
                mask = self.mask(b, g["n"] - j)
                added = self.load(b, b.at(g["bias"], j, self.elem), mask)
                to = b.at(g["c"], i * g["c_row"] + j, self.elem)
                b.store_masked([(added, to)], mask, 4)
        n, t = (b.const("i8", ord(letter)) for letter in "NT")
        pairs = []
        for x in "ab":
            row, column = g[f"{x}_row"], g[f"{x}_column"]
            by_rows = b.compare("eq", column, 1)
            pairs.append((b.select(by_rows, n, t), b.select(by_rows, row, column)))
        (ta, lda), (tb, ldb) = pairs
        e = self.elem
        b.emit(
            "i32", 0,
            f"call i32 {library.ref}(i8 signext {ta.ref}, i8 signext {tb.ref}, i64 {g['m'].ref}, "
            f"i64 {g['n'].ref}, i64 {g['k'].ref}, {e} {g['alpha'].ref}, ptr {g['a'].ref}, "
            f"i64 {lda.ref}, ptr {g['b'].ref}, i64 {ldb.ref}, {e} {b.get(beta).ref}, "
            f"ptr {g['c'].ref}, i64 {g['c_row'].ref})",
        )  # fmt: skip
        self._rectify(b, g)

    def _rectify(self, b: Body, g: dict[str, Reg]) -> None:
        """The same as tiles do for RELU, when all has been written."""
        zero = b.const(self.elem, 0.0, self.lanes)
        with (
            b.when(b.compare("ne", g["mode"] & RELU, 0)),
            b.loop(0, g["m"]) as i,
            b.loop(0, g["n"], self.lanes) as j,
        ):
            mask = self.mask(b, g["n"] - j)
            at = b.at(g["c"], i * g["c_row"] + j, self.elem)
            x = b.intrinsic("maximum", self.load(b, at, mask), zero)
            b.store_masked([(x, at)], mask, 4)

    # ---- entries ---------------------------------------------------------------------------------

    def blas(self, name: str) -> None:
        """The interface that `gemm.address` describes."""
        b = Body(self.module)
        n, k, lda, ldb = (self.argument(b, "i64", x) for x in ("n", "k", "lda", "ldb"))
        ta, tb = (self.argument(b, "i8", x) for x in ("ta", "tb"))
        one = b.const("i64", 1)
        by_rows_a, by_rows_b = (b.compare("eq", t, ord("N")) for t in (ta, tb))
        a_row, a_column = b.select(by_rows_a, lda, one), b.select(by_rows_a, one, lda)
        b_row, b_column = b.select(by_rows_b, ldb, one), b.select(by_rows_b, one, ldb)
        beta = self.argument(b, self.elem, "beta")
        alpha = self.argument(b, self.elem, "alpha")
        nothing = b.const("i64", 0)
        scaled = b.select(b.compare("eq", alpha, 1.0), nothing, b.const("i64", SCALE))
        start = scaled | b.select(b.compare("eq", beta, 0.0), nothing, b.const("i64", ADD))
        b.line(
            f"call void @.product(i64 %m, i64 {n.ref}, i64 {k.ref}, {self.elem} %alpha, ptr %a, "
            f"i64 {a_row.ref}, i64 {a_column.ref}, ptr %b, i64 {b_row.ref}, i64 {b_column.ref}, "
            f"{self.elem} %beta, ptr %c, i64 %ldc, i64 {start.ref}, ptr null)"
        )
        zero = b.const("i32", 0)
        e = self.elem
        self.define(
            name,
            f"i8 signext %ta, i8 signext %tb, i64 %m, i64 %n, i64 %k, {e} %alpha, ptr %a, "
            f"i64 %lda, ptr %b, i64 %ldb, {e} %beta, ptr %c, i64 %ldc",
            b,
            zero,
        )

    def connect(self, name: str) -> None:
        """Sets the library's product."""
        b = Body(self.module)
        b.line("store ptr %library, ptr @.library")
        self.define(name, "ptr %library", b)

    def chunks(self, name: str) -> None:
        """Tasks `begin` to `end` - 1. The words are the addresses of the shapes and of the tasks, 1
        with a bias and 0 without; then those of a, b, the bias if there is one, and c.
        """
        b = Body(self.module)
        begin, end = self.argument(b, "i64", "begin"), self.argument(b, "i64", "end")
        words = self.argument(b, "ptr", "words")

        def word(base: Reg, index: Reg | int, elem: str = "i64") -> Reg:
            at = b.at(base, index, "i64")
            return b.emit(elem, 0, f"load {elem}, ptr {at.ref}")

        shapes, tasks, first, right = (word(words, i, "ptr") for i in (0, 1, 3, 4))
        biased = word(words, 2)
        result = word(words, biased + 5, "ptr")
        given = b.compare("ne", biased, 0)
        added = b.select(given, word(words, 5, "ptr"), Reg(b, "ptr", 0, "null"))
        arrays = (first, right, result, added)
        with b.loop(begin, end) as i:
            task = b.at(tasks, i * TASK_WORDS, "i64")
            shape = b.at(shapes, word(task, 0) * len(Shape._fields), "i64")
            fields = Shape(*(word(shape, j) for j in range(len(Shape._fields))))  # type: ignore[arg-type]
            a, right, c, bias = (b.at(array, word(task, 1 + j)) for j, array in enumerate(arrays))
            none = b.emit("i1", 0, f"icmp eq ptr {arrays[3].ref}, null")
            start = b.select(none, b.const("i64", 0), BIAS) | fields.mode  # type: ignore[operator]
            x = {name: value.ref for name, value in fields._asdict().items()}
            one = b.const(self.elem, 1.0).ref
            b.line(
                f"call void @.product(i64 {x['m']}, i64 {x['n']}, i64 {x['k']}, {self.elem} {one}, "
                f"ptr {a.ref}, i64 {x['a_row']}, i64 {x['a_column']}, ptr {right.ref}, "
                f"i64 {x['b_row']}, i64 {x['b_column']}, {self.elem} {one}, ptr {c.ref}, "
                f"i64 {x['c_row']}, i64 {start.ref}, ptr {bias.ref})"
            )
        self.define(name, "i64 %begin, i64 %end, ptr %words", b)


def text(target: Target, elem: str, symbol: str) -> str:
    """The module with functions `symbol`.gemm and `symbol`.chunks for `float` or `double`."""
    code = _Code(target, elem)
    for width in range(1, code.width + 1):
        code.copy(width)
        for rows in code.heights:
            if code.fits(rows, width):
                code.tiles(rows, width, False)
                code.tiles(rows, width, True)
    code.transpose()
    code.blocks()
    code.turned()
    code.product()
    code.blas(f"{symbol}.gemm")
    code.connect(f"{symbol}.connect")
    code.chunks(f"{symbol}.chunks")
    return str(code.module)
