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

from ...codegen.emit import FunctionBody, Reg, type_name
from ...codegen.target import Target
from .few_rows_code import FewRowsWriter
from .product_writer import ADD, BIAS, FEW_ROWS, RELU, SCALE, ProductWriter, Shape

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
TURNED_ROWS, TURNED_COLUMNS = 128, 256  # of c, where its transpose is computed


class _Tile(NamedTuple):
    """A tile of c while its code is written."""

    rows: int
    width: int  # in vectors
    by_columns: bool  # whether the scalars of a for one k lie side by side
    masks: list[Reg | None]  # for each vector of a row, the lanes that are there; None for all
    a: Reg  # address of its first row of a
    outs: dict[tuple[int, int], Reg]  # addresses of its vectors, by row and place in the row
    sums: dict[tuple[int, int], Reg]  # variables that hold them


class _LeftRows(NamedTuple):
    """Ways to read rows of a: where they lie, or from a copy in groups of as many rows as a vector
    has lanes, in which the scalars for one k lie side by side.
    """

    copy: Reg  # address of the copy's memory, null for none
    copied: Reg  # whether there is one
    in_group: Reg  # elements between the rows of one group
    step: Reg  # between those scalars of a tile that do not lie side by side
    first_tile: Reg  # place in the table of tiles of the first one that reads in this way
    within: Reg  # bits of a row's number that say which of its group it is


class _Block(NamedTuple):
    """The rows of a and part of k that are multiplied at a time, while their code is written."""

    band: Reg  # the first row of a and of c
    height: Reg  # number of rows
    p: Reg  # the first k
    k: Reg  # how many
    mode: Reg  # what tiles do with their sums for this part of k
    beta: Reg
    a: Reg  # variable: address of what is read of a
    a_row: Reg  # variable: elements between its rows


class _Panel(NamedTuple):
    """Columns of b that are read as up to three vectors, while their code is written."""

    j: Reg  # the first column
    w: Reg  # number of vectors
    lanes: Reg  # lanes of the last that are there
    b: Reg  # variable: address of what is read, b or the panel
    b_row: Reg  # variable: elements between its rows


TASK_WORDS = 5  # number of the shape, offsets in bytes into a, b, c and bias


class _GemmWriter(ProductWriter):
    """The functions for one element type."""

    def __init__(self, target: Target, elem: str) -> None:
        super().__init__(target, elem)
        self.tables: dict[str, int] = {}  # of functions: how many each has
        self.rows = ROWS if target.vector_bytes == 64 else ROWS // 2  # fewer registers
        self.width = WIDTH
        self.narrow = NARROW[0 if self.masks else 1]
        self.heights = [ROWS >> i for i in range(ROWS.bit_length())]

    def fits(self, rows: int, width: int) -> bool:
        """Whether there are registers for such a tile."""
        return rows <= self.rows or width == 1

    # ---- the tile --------------------------------------------------------------------------------

    TILES = (
        "i64 %k, ptr %a, i64 %step, ptr %b, i64 %b_row, ptr %c, i64 %c_row, {e} %alpha, {e} %beta,"
        " i64 %mode, ptr %bias, i64 %count, i64 %tiles, i64 %near, i64 %far"
    )

    def tiles(self, rows: int, width: int, by_columns: bool) -> None:
        """Tiles below each other: c = sum, times alpha (mode has SCALE), plus beta c (ADD) or bias
        (BIAS), but at least 0 (RELU); each `rows` by `width` vectors, of the last of which `count`
        lanes are there. The scalars of a for one k lie side by side (`by_columns`), or those of one
        row do; `step` lies between the others. From tile to tile, a moves by `near` and `far` in
        turns. Whole tiles fetch the next one's part of a meanwhile (side by side, where two share
        lines, the second next one's).
        """
        b = FunctionBody(self.module)
        g = self.arguments(b, self.TILES)
        rest = self.mask(b, g["count"])
        masks: list[Reg | None] = [None] * (width - 1) + [rest]
        places = [(i, j) for i in range(rows) for j in range(width)]
        self.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        first, top, left, row = (b.alloca("ptr") for _ in range(4))
        b.put(first, g["a"])
        b.put(top, g["c"])
        with b.loop(0, g["tiles"]) as number:
            c_here, a_here = b.get(top), b.get(first)
            outs = {
                (i, j): b.at(b.at(c_here, g["c_row"] * i, self.elem), j * self.lanes, self.elem)
                for i, j in places
            }
            with b.when(g["k"] >= FAR_AHEAD):
                for at in outs.values():
                    b.line(f"call void @llvm.prefetch.p0(ptr {at.ref}, i32 1, i32 3, i32 1)")
            zero = b.const(self.elem, 0.0, self.lanes)
            sums = {at: b.alloca(self.elem, self.lanes, zero) for at in places}
            tile = _Tile(rows, width, by_columns, masks, a_here, outs, sums)
            self._accumulate(b, g, tile, left, row)
            with b.when(b.compare("ne", g["mode"], 0)):
                self._apply_mode(b, g, tile)
            for i, j in places:
                if j < width - 1:
                    self.store(b, b.get(sums[i, j]), outs[i, j])
            last = [(b.get(sums[i, width - 1]), outs[i, width - 1]) for i in range(rows)]
            b.store_masked(last, rest, 4)
            b.put(top, b.at(c_here, g["c_row"] * rows, self.elem))
            even = b.compare("eq", number & 1, 0)
            b.put(first, b.at(a_here, b.select(even, g["near"], g["far"]), self.elem))
        name = f".tiles{rows}x{width}{'c' if by_columns else 'r'}"
        self.define(name, self.TILES.format(e=self.elem), b)

    def _accumulate(
        self, b: FunctionBody, g: dict[str, Reg], tile: _Tile, left: Reg, row: Reg
    ) -> None:
        """The inner loop: adds the products for each k to the sums. `left` and `row` are variables
        for the addresses of a and b at which it reads.
        """
        rows, width, by_columns, step = tile.rows, tile.width, tile.by_columns, g["step"]
        reads = tile.masks if self.masks else [None] * width
        starts = [b.at(tile.a, step * i, self.elem) for i in range(1 if by_columns else rows)]
        b.put(left, tile.a)
        b.put(row, g["b"])
        with b.loop(0, g["k"]) as p:
            here = b.get(row)
            vectors = [
                self.load(b, b.at(here, j * self.lanes, self.elem), reads[j]) for j in range(width)
            ]
            column = b.get(left)
            if rows == self.rows == ROWS:
                later = b.at(column, g["near"] + g["far"], self.elem)
                if not by_columns:  # a line of each row in turns
                    line = (p & (rows - 1)) * step + (p & -(64 // self.size))
                    later = b.at(tile.a, g["near"] + line, self.elem)
                b.line(f"call void @llvm.prefetch.p0(ptr {later.ref}, i32 0, i32 3, i32 1)")
            for i in range(rows):
                at = b.at(column, i, self.elem) if by_columns else b.at(starts[i], p, self.elem)
                scalar = b.emit(self.elem, 0, f"load {self.elem}, ptr {at.ref}")
                factor = b.splat(scalar, self.lanes)
                for j in range(width):
                    slot = tile.sums[i, j]
                    b.put(slot, b.fma(factor, vectors[j], b.get(slot)))
            b.put(row, b.at(here, g["b_row"], self.elem))
            if by_columns:
                b.put(left, b.at(column, step, self.elem))

    def _apply_mode(self, b: FunctionBody, g: dict[str, Reg], tile: _Tile) -> None:
        """Changes the sums by what the mode has: SCALE, ADD, BIAS and RELU, in this order."""
        mode, sums = g["mode"], tile.sums
        with b.when(b.compare("ne", mode & SCALE, 0)):
            for slot in sums.values():
                b.put(slot, b.get(slot) * b.splat(g["alpha"], self.lanes))
        with b.when(b.compare("ne", mode & ADD, 0)):
            for (i, j), slot in sums.items():
                old = self.load(b, tile.outs[i, j], tile.masks[j])
                b.put(slot, b.fma(old, b.splat(g["beta"], self.lanes), b.get(slot)))
        with b.when(b.compare("ne", mode & BIAS, 0)):
            for j in range(tile.width):
                added = self.load(b, b.at(g["bias"], j * self.lanes, self.elem), tile.masks[j])
                for i in range(tile.rows):
                    b.put(sums[i, j], b.get(sums[i, j]) + added)
        with b.when(b.compare("ne", mode & RELU, 0)):
            zero = b.const(self.elem, 0.0, self.lanes)
            for slot in sums.values():
                b.put(slot, b.intrinsic("maximum", b.get(slot), zero))

    # ---- panels ----------------------------------------------------------------------------------

    def copy(self, width: int) -> None:
        """`k` rows of `width` vectors, `count` lanes of the last, into a panel."""
        b = FunctionBody(self.module)
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
        b = FunctionBody(self.module)
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

    def _gathered(self, b: FunctionBody, starts: list[Reg], first: int, p: Reg, group: int) -> Reg:
        """The elements at p of every `group`-th row."""
        parts = []
        for start in starts[first::group]:
            at = b.at(start, p, self.elem)
            kind = type_name(self.elem, group)
            parts.append(b.emit(self.elem, group, f"load {kind}, ptr {at.ref}, align 4"))
        while len(parts) > 1:
            parts = [b.join(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
        return parts[0]

    def _turned(self, b: FunctionBody, parts: list[Reg]) -> list[Reg]:
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

    def blocks(self) -> None:
        """The product, panel by panel. The mode is that of the first block of k, to which those
        behind it are added; RELU is left to the last.
        """
        b = FunctionBody(self.module)
        g = self.arguments(b, self.PRODUCT)
        self._define_tables()
        depth = DEPTH * 4 // self.size
        room = depth * self.width * self.lanes
        b.allocas.append(f"%panel = alloca [{room} x {self.elem}], align 64")
        one = b.const("i64", 1)
        count = b.intrinsic("smax", b.binary("udiv", g["k"] + (depth - 1), depth), one)
        even = b.binary("udiv", g["k"] + count - 1, count)
        step = b.intrinsic("smax", b.binary("and", even + 3, -4), one)
        ends = b.intrinsic("smax", g["k"], one)
        left = self._left_rows(b, g, depth)
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
                block = _Block(band, height, p, k, mode, beta, b.alloca("ptr"), b.alloca("i64"))
                b.put(block.a, a)
                b.put(block.a_row, g["a_row"])
                with b.when(left.copied):
                    self._copy_left(b, g, a, k, height, left.copy)
                    b.put(block.a, left.copy)
                    b.put(block.a_row, k)
                slot = b.alloca("i64", 0, 0)
                head, inside, after = b.label(), b.label(), b.label()
                b.start(head)
                j = b.get(slot)
                b.branch(j < g["n"], inside, after)
                b.start(inside)
                panel = self._panel(b, g, block, j)
                self._call_tiles(b, g, left, block, panel)
                b.put(slot, j + panel.w * self.lanes)
                b.line(f"br label %{head}")
                b.start(after)
        with b.when(left.copied):
            b.line(f"call void @free(ptr {left.copy.ref})")
        self.define(".blocks", self.PRODUCT.format(e=self.elem), b)

    def _define_tables(self) -> None:
        """Tables of the functions for tiles (rows of a apart, then side by side; for each, by width
        and then by height) and of those that copy panels (by width).
        """
        widths = range(1, self.width + 1)
        tiles = [
            f".tiles{r if self.fits(r, w) else self.rows}x{w}{kind}"
            for kind in "rc"
            for w in widths
            for r in self.heights
        ]
        for table, names in ((".tiles", tiles), (".copies", [f".copy{w}" for w in widths])):
            functions = ", ".join(f"ptr @{name}" for name in names)
            self.tables[table] = size = len(names)
            self.module.declarations[table] = (
                f"@{table} = internal constant [{size} x ptr] [{functions}]"
            )

    def _left_rows(self, b: FunctionBody, g: dict[str, Reg], depth: int) -> _LeftRows:
        """Decides how a is read, and gets memory for a copy of `depth` columns of a band where one
        pays: rows or columns lie far apart, and many columns of b use them.
        """
        lanes, one = self.lanes, b.const("i64", 1)
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
        in_group = b.select(copied, one, g["a_row"])
        side_by_side = copied | by_columns
        step = b.select(
            copied, b.const("i64", lanes), b.select(by_columns, g["a_column"], g["a_row"])
        )
        kinds = len(self.heights) * self.width
        first_tile = b.select(side_by_side, b.const("i64", kinds), b.const("i64", 0))
        within = b.select(copied, b.const("i64", lanes - 1), b.const("i64", 0))
        return _LeftRows(copy, copied, in_group, step, first_tile, within)

    def _panel(self, b: FunctionBody, g: dict[str, Reg], block: _Block, j: Reg) -> _Panel:
        """The columns from `j` on, copied to the panel unless they can be read where they lie."""
        width, lanes = self.width, self.lanes
        remaining = g["n"] - j
        vectors = b.binary("udiv", remaining + (lanes - 1), lanes)
        # never 3 + 1: a tile of one vector is slow
        w = b.select(
            b.compare("eq", vectors, width + 1), width - 1, b.intrinsic("smin", vectors, width)
        )
        lanes_left = b.intrinsic("smin", remaining - (w - 1) * lanes, lanes)
        source = b.at(g["b"], block.p * g["b_row"] + j * g["b_column"], self.elem)
        panel = _Panel(j, w, lanes_left, b.alloca("ptr"), b.alloca("i64"))
        b.put(panel.b, source)
        b.put(panel.b_row, g["b_row"])
        by_rows = b.compare("eq", g["b_column"], 1)
        apart = b.compare("ne", g["b_row"] & (CONFLICTING - 1), 0)  # not in one cache set
        few = (block.height <= self.rows) | (block.height <= FEW) & apart
        good = few | (g["b_row"] <= self.narrow)
        if not self.masks:  # whole vectors can be read from a panel only
            good = good & b.compare("eq", lanes_left, lanes)
        with b.when(~(by_rows & good)):
            memory = Reg(b, "ptr", 0, "%panel")
            b.put(panel.b, memory)
            b.put(panel.b_row, w * lanes)
            with b.when(by_rows):
                self._call_indexed(
                    b, ".copies", w - 1,
                    f"i64 {block.k.ref}, ptr {source.ref}, i64 {g['b_row'].ref}, "
                    f"ptr {memory.ref}, i64 {lanes_left.ref}",
                )  # fmt: skip
            with b.when(~by_rows), b.loop(0, w) as v:
                start = b.at(source, v * g["b_column"] * lanes, self.elem)
                valid = b.intrinsic("smin", remaining - v * lanes, lanes)
                to = b.at(memory, v * lanes, self.elem)
                self._transpose(b, block.k, valid, start, g["b_column"], to, w * lanes,
                                b.const("i64", lanes), None)  # fmt: skip
        return panel

    def _call_tiles(
        self, b: FunctionBody, g: dict[str, Reg], left: _LeftRows, block: _Block, panel: _Panel
    ) -> None:
        """Computes the columns of a panel for the rows of a block, by tiles as high as fit."""
        c = b.at(g["c"], block.band * g["c_row"] + panel.j, self.elem)
        bias = b.at(g["bias"], panel.j, self.elem)
        here, stride = b.get(panel.b), b.get(panel.b_row)
        row = b.alloca("i64", 0, 0)
        for number, r in enumerate(self.heights):
            i = b.get(row)
            fitting = b.binary("udiv", block.height - i, r)
            if r > self.rows:  # which may be more than a group of what was copied has
                alone = b.compare("eq", panel.w, 1) & ~left.copied
                fitting = b.select(alone, fitting, 0)
            with b.when(fitting > 0):
                within = b.binary("and", i, left.within)
                a_here = b.at(
                    b.get(block.a), (i - within) * b.get(block.a_row) + within * left.in_group,
                    self.elem,
                )  # fmt: skip
                c_here = b.at(c, i * g["c_row"], self.elem)
                near = (left.in_group if r < self.lanes else b.get(block.a_row)) * r
                far = b.get(block.a_row) * (2 * r) - near  # a group is one tile or two
                self._call_indexed(
                    b, ".tiles", left.first_tile + (panel.w - 1) * len(self.heights) + number,
                    f"i64 {block.k.ref}, ptr {a_here.ref}, i64 {left.step.ref}, ptr {here.ref}, "
                    f"i64 {stride.ref}, ptr {c_here.ref}, i64 {g['c_row'].ref}, "
                    f"{self.elem} {g['alpha'].ref}, {self.elem} {block.beta.ref}, "
                    f"i64 {block.mode.ref}, ptr {bias.ref}, i64 {panel.lanes.ref}, "
                    f"i64 {fitting.ref}, i64 {near.ref}, i64 {far.ref}",
                )  # fmt: skip
                b.put(row, i + fitting * r)

    def _copy_left(
        self, b: FunctionBody, g: dict[str, Reg], a: Reg, k: Reg, height: Reg, copy: Reg
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

    def _call_indexed(self, b: FunctionBody, table: str, index: Reg, arguments: str) -> None:
        """A call of the function at a place of a table."""
        size = self.tables[table]
        place = b.emit(
            "ptr", 0, f"getelementptr [{size} x ptr], ptr @{table}, i64 0, i64 {index.ref}"
        )
        function = b.emit("ptr", 0, f"load ptr, ptr {place.ref}")
        b.line(f"call void {function.ref}({arguments})")

    def _transpose(
        self, b: FunctionBody, k: Reg, valid: Reg, source: Reg, row: Reg, to: Reg, out_row: Reg,
        count: Reg, bias: tuple[Reg, Reg] | None,
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
        b = FunctionBody(self.module)
        g = self.arguments(b, self.PRODUCT)
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
        b = FunctionBody(self.module)
        g = self.arguments(b, self.PRODUCT)
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
        rows_few, more, here, other, theirs, own, end = (b.label() for _ in range(7))
        b.branch(b.compare("ne", g["mode"] & FEW_ROWS, 0), rows_few, more)
        b.start(rows_few)
        b.line(f"call void @.few({call})")
        b.line(f"br label %{end}")
        b.start(more)
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

    def _call_library(self, b: FunctionBody, g: dict[str, Reg], library: Reg) -> None:
        """Writes a call of the library's product, through the interface of `blas`; a bias is put
        into c first.
        """
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

    def _rectify(self, b: FunctionBody, g: dict[str, Reg]) -> None:
        """Writes the code for max(c, 0) over all of c, after a library's product; tiles do it
        themselves.
        """
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
        b = FunctionBody(self.module)
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
        b = FunctionBody(self.module)
        b.line("store ptr %library, ptr @.library")
        self.define(name, "ptr %library", b)

    def chunks(self, name: str) -> None:
        """Tasks `begin` to `end` - 1. The words are the addresses of the shapes and of the tasks, 1
        with a bias and 0 without; then those of a, b, the bias if there is one, and c.
        """
        b = FunctionBody(self.module)
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
    code = _GemmWriter(target, elem)
    for width in range(1, code.width + 1):
        code.copy(width)
        for rows in code.heights:
            if code.fits(rows, width):
                code.tiles(rows, width, False)
                code.tiles(rows, width, True)
    FewRowsWriter(code).write()
    code.transpose()
    code.blocks()
    code.turned()
    code.product()
    code.blas(f"{symbol}.gemm")
    code.connect(f"{symbol}.connect")
    code.chunks(f"{symbol}.chunks")
    return str(code.module)
