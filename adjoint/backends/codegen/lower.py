"""A kernel and a layout as LLVM IR: explicit vector code.

The module has one function. `kernel(begin, end, words)` runs chunks begin to end; threads may run
different ranges at once. `words` are 64 bits each, in the order of `word_names`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import columns, ir, philox, vector_instructions
from .analysis import COSTS, Analysis
from .emit import LLVM_TYPES, FunctionBody, Module, Reg, suffix, type_name
from .ir import Kernel, KernelValue
from .reduce import Accumulator, fold
from .schedule import WIDE, LoopLayout
from .target import Target

__all__ = ["lower", "word_names"]

FOLD = 8  # vectors that are summed plainly into each accumulator


def word_names(kernel: Kernel, layout: LoopLayout) -> list[str]:
    """Names of the words passed to a kernel, in order: sizes and strides, pointers from p0 on, and
    scalars.
    """
    operands = range(len(kernel.inputs) + len(kernel.outputs))
    loops = [*(f"o{k}" for k in range(layout.outer)), *(f"i{k}" for k in range(layout.inner)), "v"]
    return [
        "rows", "length", "parts2", "length2", "units", "group", *loops,
        *(f"s{k}.{name}" for k in operands for name in loops),
        *(f"s{k}.p" for k in operands if layout.split and k >= len(kernel.inputs)),
        *(f"z{v.number}" for v in kernel.values if v.op == "size"),
        *(f"p{k}" for k in operands),
        *(f"c{k}" for k in range(len(kernel.scalars))),
    ]  # fmt: skip


def lower(kernel: Kernel, layout: LoopLayout, target: Target, symbol: str) -> str:
    """The text of the module: the function `symbol`."""
    return Lowering(kernel, layout, target).text(symbol)


class Lowering(Analysis):
    def __init__(self, kernel: Kernel, layout: LoopLayout, target: Target) -> None:
        super().__init__(kernel)
        self.layout = layout
        self.inner = [f"i{k}" for k in range(layout.inner)]
        self.names = word_names(kernel, layout)
        # What LLVM would find out about loops takes a quarter of the time to compile, and gives
        # addresses that x86 computes for nothing.
        self.module = Module(
            scalef=target.has("avx512f") and target.vector_bytes == 64,
            opaque_loops=not target.has("neon"),
        )
        self.lanes = target.vector_bytes // self._itemsize()
        self.dtypes = [v.attr[1] for v in kernel.inputs] + [o.dtype for o in kernel.outputs]
        self.steady = self._steady()
        self.spills = {n: s for n, s in self.spills.items() if n not in self.steady}
        self.rare = [self.branches(stage, self.spills) for stage in range(len(self.stages))]

    def _itemsize(self) -> int:
        """Bytes of the dtype that fills a vector register: the narrowest float, or the widest
        integer.
        """
        floats = [ir.ITEMSIZE[v.dtype] for v in self.live if v.dtype in ir.FLOATS]
        others = [ir.ITEMSIZE[v.dtype] for v in self.live]
        return min(floats) if floats else max(others, default=8)

    def copies(self, stage: int) -> int:
        """Number of vectors that a turn of a loop handles: a power of two."""
        work = sum(1 + COSTS.get(v.op, 1) for v in self.needed(stage, self.spills))
        if self.stages[stage][0]:
            return 4 if work <= 40 else 2
        return 4 if work <= 12 else 2 if work <= 80 else 1

    def _steady(self) -> set[int]:
        """Full values that are the same along the vector loop: computed before it."""
        steady: set[int] = set()
        if self.layout.columns:
            return steady
        for v in self.live:
            if not self.full[v.number] or v.op in (*ir.REDUCTIONS, "const", "random"):
                continue
            if v.op == "input":
                if self.layout.classes[v.attr[0]] == "b":
                    steady.add(v.number)
            elif v.op == "index":
                if self.layout.index[v.attr[0]] != "v":
                    steady.add(v.number)
            elif all(x.number in steady or not self.full[x.number] for x in v.inputs):
                steady.add(v.number)
        return steady

    # The functions -------------------------------------------------------------------------------

    def text(self, symbol: str) -> str:
        b = self.b = FunctionBody(self.module)
        words = Reg(b, "ptr", 0, "%words")
        self.words = {}
        for k, name in enumerate(self.names):
            elem = "ptr" if name[0] == "p" and name[1:].isdigit() else "i64"
            address = b.at(words, k, "i64")
            self.words[name] = b.emit(elem, 0, f"load {elem}, ptr {address.ref}, align 8")
        self._units()
        header = f"void @{symbol}(i64 %begin, i64 %end, ptr noalias readonly %words)"
        self.module.functions[symbol] = b.function(header)
        return str(self.module)

    def _units(self) -> None:
        """The loop over units: a position of the outer loops (an odometer) and a part each."""
        b, words, outer = self.b, self.words, self.layout.outer
        group, rows = words["group"], words["rows"]
        first = Reg(b, "i64", 0, "%begin") * group
        last = b.intrinsic("smin", Reg(b, "i64", 0, "%end") * group, words["units"])
        with b.when(first < last):
            part = b.alloca("i64", 0, b.binary("udiv", first, rows))
            rest = b.binary("urem", first, rows)
            digits = [b.alloca("i64") for _ in range(outer)]
            for k in reversed(range(outer)):
                size = words[f"o{k}"]
                if k:
                    b.put(digits[k], b.binary("urem", rest, size))
                    rest = b.binary("udiv", rest, size)
                else:
                    b.put(digits[k], rest)
            together = self._together()
            with b.loop(first, last, together) as unit:
                self.digits = [b.get(d) for d in digits]
                pointers = [self._outer_pointer(k) for k in range(len(self.dtypes))]
                self._unit(pointers, b.get(part), b.intrinsic("smin", last - unit, together))
                self._advance(digits, part, together)

    def _together(self) -> Reg:
        """Number of units that are done as one: tiles side by side, up to the greatest width."""
        b, one = self.b, self.b.const("i64", 1)
        if not self.layout.tall or self.layout.split:
            return one
        few = b.intrinsic("smax", b.binary("udiv", b.const("i64", WIDE), self.words["length"]), one)
        return b.select(b.compare("eq", self.words["rows"], 1), few, one)

    def _advance(self, digits: list[Reg], part: Reg, units: Reg) -> None:
        b = self.b
        end = b.label()
        for k in reversed(range(len(digits))):
            more = b.get(digits[k]) + 1
            b.put(digits[k], more)
            carry = b.label()
            b.branch(more < self.words[f"o{k}"], end, carry)
            b.start(carry)
            b.put(digits[k], 0)
        b.put(part, b.get(part) + units)
        b.start(end)

    def _outer_pointer(self, k: int) -> Reg:
        p = self.words[f"p{k}"]
        for o, digit in enumerate(self.digits):
            p = self.b.at(p, digit * self.words[f"s{k}.o{o}"])
        return p

    def _unit(self, pointers: list[Reg], part: Reg, units: Reg) -> None:
        """A unit, or some of consecutive parts."""
        b, words, layout = self.b, self.words, self.layout
        which = part
        if layout.columns and layout.split:
            which = b.binary("urem", part, words["parts2"])
            part = b.binary("udiv", part, words["parts2"])
        low = part * words["length"]
        split_loop = "i0" if layout.inner and not layout.columns else "v"
        high = b.intrinsic("smin", low + words["length"] * units, words[split_loop])
        self.range = {split_loop: (low, high)}
        if layout.split:
            for k in range(len(self.kernel.inputs), len(pointers)):
                pointers[k] = b.at(pointers[k], which * words[f"s{k}.p"])
            if layout.columns:
                low2 = which * words["length2"]
                high2 = b.intrinsic("smin", low2 + words["length2"], words["i0"])
                self.range["i0"] = (low2, high2)
        if layout.columns:
            columns.tiles(self, pointers) if layout.tall else columns.blocks(self, pointers)
        else:
            self._rows(pointers)

    def limits(self, loop: str) -> tuple[Reg, Reg]:
        return self.range.get(loop) or (self.b.const("i64", 0), self.words[loop])

    # Rows: reducing along the vector axis, or not at all -----------------------------------------

    def _rows(self, pointers: list[Reg]) -> None:
        b = self.b
        known: dict[int, Reg] = {}
        for stage, (reductions, _) in enumerate(self.stages):
            self._per_row(known, pointers, stage)
            copies = self.copies(stage)
            sums = self.accumulators(reductions, copies, columns=False)
            count = b.alloca("i64", 0, 0) if self.layout.inner else None
            with columns.nest(self, pointers, self.inner) as (inside, where):
                self._vector_loop(stage, inside, {**known}, where, sums, copies, count)
            for v, accumulator in zip(reductions, sums, strict=True):
                (known[v.number],) = accumulator.finish()
        self._per_row(known, pointers, len(self.stages))
        for k, output in enumerate(self.kernel.outputs):
            if not self.full_output(k):
                x = b.lane(self.value(output.value, known), 0)
                x = vector_instructions.to_memory(b, x, output.dtype)
                p = pointers[len(self.kernel.inputs) + k]
                b.line(f"store {x.type} {x.ref}, ptr {p.ref}, align 1")

    def _per_row(self, known: dict[int, Reg], pointers: list[Reg], stage: int) -> None:
        """Computes the values of the kept axes alone that are known after so many loops."""
        for v in self.live:
            if self.full[v.number] or v.op in ir.REDUCTIONS or v.number in known:
                continue
            if self.depth[v.number] <= stage:
                known[v.number] = self.emit(v, known, pointers, {}, None, None)

    def accumulators(
        self, reductions: Sequence[KernelValue], copies: int, columns: bool, together: int = 1
    ) -> list[Accumulator]:
        made = [
            Accumulator(self.b, v.op, v.dtype, self.lanes, copies, columns, together)
            for v in reductions
        ]
        for accumulator in made:
            accumulator.reset()
        return made

    def _vector_loop(
        self, stage: int, pointers: list[Reg], known: dict[int, Reg], where: dict[str, Reg],
        sums: list[Accumulator], copies: int, count: Reg | None,
    ) -> None:  # fmt: skip
        b, lanes = self.b, self.lanes
        low, high = self.limits("v")
        step = lanes * copies
        for v in self.needed(stage, self.spills):
            if v.number in self.steady:
                known[v.number] = self.emit(v, known, pointers, where, None, None)
        whole = low + ((high - low) & -step)

        def body(i: Reg, number: int, mask: Reg | None, early: Sequence[dict[int, Reg]]) -> None:
            for copy in range(number):
                at = i + copy * lanes if copy else i
                given = known | early[copy] if early else known
                env = self.instance(stage, given, pointers, where, at, mask)
                for v, accumulator in zip(self.stages[stage][0], sums, strict=True):
                    accumulator.step(copy, self.value(v.inputs[0], env), mask)

        if any(accumulator.blocks for accumulator in sums):
            with b.loop(low, whole, step * FOLD) as start:
                stop = b.intrinsic("smin", start + step * FOLD, whole)
                self._main_loop(stage, pointers, start, stop, copies, body)
                if count is None:
                    with b.when(stop < whole):
                        fold(sums)
                else:
                    self.fold_after(count, stop - start, step * FOLD, sums)
        elif not sums and (anchor := self._anchor(stage)) is not None:
            start = low + self._to_alignment(anchor, pointers, low, high - low, step)
            whole = start + ((high - start) & -step)
            none = b.convert("zext", b.compare("eq", whole, low), "i64")
            with b.loop(none, b.const("i64", 2)) as turn:  # up to the alignment, then the rest
                last = b.compare("ne", turn, 0)
                stop = b.select(last, high, start)
                with b.loop(b.select(last, whole, low), stop, lanes) as i:
                    body(i, 1, self.mask(stop - i), ())
                first = b.select(last, whole, start)
                self._main_loop(stage, pointers, first, whole, copies, body)
            return
        else:
            self._main_loop(stage, pointers, low, whole, copies, body)
        with b.loop(whole, high, lanes) as i:
            body(i, 1, self.mask(high - i), ())
        if count is not None:
            self.fold_after(count, b.const("i64", step), step * FOLD, sums)

    def _main_loop(
        self, stage: int, pointers: list[Reg], start: Reg, end: Reg, copies: int,
        body: Callable[..., None],
    ) -> None:  # fmt: skip
        """Whole vectors, `copies` in a turn; start to end is a multiple of that.

        Where a turn stores, the next turn's loads come first: a load may have to wait for an
        earlier store whose address is the same modulo 4096, which is usual for arrays allocated
        in a row.
        """
        b = self.b
        step = self.lanes * copies
        early = [
            v for v in self.needed(stage, self.spills)
            if v.op == "input" and self.layout.classes[v.attr[0]] == "c"
        ]  # fmt: skip
        if not self.stores(stage) or not early:
            with b.loop(start, end, step) as i:
                body(i, copies, None, ())
            return

        def load(i: Reg) -> list[dict[int, Reg]]:
            places = [i + copy * self.lanes if copy else i for copy in range(copies)]
            return [
                {v.number: self._load(v.attr[0], pointers, at, None) for v in early}
                for at in places
            ]

        with b.when(start < end):
            slots = [
                {n: b.alloca(x.elem, x.lanes, x) for n, x in loaded.items()}
                for loaded in load(start)
            ]
            with b.loop(start, end, step) as i:
                now = [{n: b.get(slot) for n, slot in copy.items()} for copy in slots]
                later = load(b.intrinsic("smin", i + step, end - step))
                for copy, loaded in zip(slots, later, strict=True):
                    for n, x in loaded.items():
                        b.put(copy[n], x)
                body(i, copies, None, now)

    def _anchor(self, stage: int) -> int | None:
        """The operand whose stores should be aligned, if the loop has contiguous stores. Random
        numbers come in blocks of 8, which must not be cut.
        """
        if any(v.op == "random" for v in self.needed(stage, self.spills)):
            return None
        for k in self.stages[stage][1]:
            operand = len(self.kernel.inputs) + k
            if self.layout.classes[operand] == "c":
                return operand
        return None

    def _to_alignment(
        self, operand: int, pointers: list[Reg], low: Reg, length: Reg, step: int
    ) -> Reg:
        """Number of elements to do first, so that stores do not cross cache lines; 0 if few."""
        b, memory = self.b, vector_instructions.memory_type(self.dtypes[operand])
        size = ir.ITEMSIZE[self.dtypes[operand]]
        address = self._address(operand, pointers, low, memory)
        at = b.emit("i64", 0, f"ptrtoint ptr {address.ref} to i64")
        missing = b.binary("udiv", -at & (min(64, size * self.lanes) - 1), size)
        return b.select(length > 4 * step, missing, 0)

    def fold_after(self, count: Reg, more: Reg, limit: int, sums: Sequence[Accumulator]) -> None:
        """Ends the blocks of float sums when `count` has got to a limit."""
        b = self.b
        b.put(count, b.get(count) + more)
        with b.when(b.get(count) >= limit):
            fold(sums)
            b.put(count, 0)

    def stores(self, stage: int) -> bool:
        """Whether a loop writes anything in each turn."""
        return bool(self.stages[stage][1]) or any(s == stage for s, _ in self.spills.values())

    def mask(self, rest: Reg) -> Reg:
        """A mask that has the first `rest` lanes set."""
        b = self.b
        few = b.convert("trunc", b.intrinsic("smin", rest, self.lanes), "i32")
        return b.iota("i32", self.lanes) < b.splat(few, self.lanes)

    # One vector ----------------------------------------------------------------------------------

    def instance(
        self, stage: int, known: dict[int, Reg], pointers: list[Reg], where: dict[str, Reg],
        at: Reg, mask: Reg | None,
    ) -> dict[int, Reg]:  # fmt: skip
        """Computes a loop's values for one vector, and stores its outputs."""
        env = dict(known)
        inputs = len(self.kernel.inputs)
        branches = self.rare[stage]
        later = {v.number for values in branches.values() for v in values}
        for v in self.needed(stage, self.spills):
            if v.number in env or v.number in later:
                continue
            spill = self.spills.get(v.number)
            if spill and spill[0] < stage:
                env[v.number] = self._load(inputs + spill[1], pointers, at, mask)
                continue
            env[v.number] = self._computed(v, env, branches, pointers, where, at, mask)
            if spill and spill[0] == stage:
                self.store(inputs + spill[1], pointers, env[v.number], at, mask)
        for k in self.stages[stage][1]:
            x = self.value(self.kernel.outputs[k].value, env)
            self.store(inputs + k, pointers, x, at, mask)
        return env

    def _computed(
        self, v: KernelValue, env: dict[int, Reg],
        branches: dict[tuple[int, int], list[KernelValue]], pointers: list[Reg],
        where: dict[str, Reg], at: Reg, mask: Reg | None,
    ) -> Reg:  # fmt: skip
        """A value; what only one choice needs, if any lane takes it."""
        sides = [branches.get((v.number, side)) for side in (1, 2)]
        if sides == [None, None]:
            return self.emit(v, env, pointers, where, at, mask)
        b, condition = self.b, self.value(v.inputs[0], env)
        choices = []
        for x, values, wanted in zip(v.inputs[1:], sides, (condition, ~condition), strict=True):
            if values is None:
                choices.append(self.value(x, env))
                continue
            slot = b.alloca(LLVM_TYPES[v.dtype], self.lanes, 0)
            with b.when(b.any(wanted)):
                inside = dict(env)
                for y in values:
                    if y.number not in inside:
                        inside[y.number] = self._computed(
                            y, inside, branches, pointers, where, at, mask
                        )
                b.put(slot, inside[x.number])
            choices.append(b.get(slot))
        return b.select(condition, *choices)

    def value(self, v: KernelValue, env: dict[int, Reg]) -> Reg:
        if v.op == "const":
            return self.b.const(LLVM_TYPES[v.dtype], v.attr, self.lanes)
        return env[v.number]

    def emit(
        self, v: KernelValue, env: dict[int, Reg], pointers: list[Reg], where: dict[str, Reg],
        at: Reg | None, mask: Reg | None,
    ) -> Reg:  # fmt: skip
        b, lanes = self.b, self.lanes
        elem = LLVM_TYPES[v.dtype]
        if v.op == "const":
            return b.const(elem, v.attr, lanes)
        if v.op == "input":
            return self._load(v.attr[0], pointers, at, mask)
        if v.op == "scalar":
            word = self.words[f"c{v.attr[0]}"]
            if elem == "double":
                word = b.convert("bitcast", word, "double")
            elif elem == "float":
                word = b.convert("bitcast", b.convert("trunc", word, "i32"), "float")
            else:
                word = b.convert("trunc", word, elem)
            return b.splat(word, lanes)
        if v.op == "size":
            return b.splat(self.words[f"z{v.number}"], lanes)
        if v.op == "index":
            loop = self.layout.index[v.attr[0]]
            if loop == "v":
                assert at is not None
                return b.splat(at, lanes) + b.iota("i64", lanes)
            if not loop:
                return b.const("i64", 0, lanes)
            return b.splat(where[loop] if loop[0] == "i" else self.digits[int(loop[1:])], lanes)
        args = [self.value(x, env) for x in v.inputs]
        if v.op == "random":
            return self._random(args, pointers, at, often=mask is None)
        if v.op == "cast":
            return vector_instructions.cast(b, args[0], v.inputs[0].dtype, v.attr[0])
        if v.op == "where":
            return b.select(*args)
        return vector_instructions.apply(b, v.op, v.inputs[0].dtype, args)

    def _random(self, args: list[Reg], pointers: list[Reg], at: Reg | None, often: bool) -> Reg:
        """Random numbers for one vector. The position in a row-major output says which numbers of
        the stream belong there.
        """
        b, inputs = self.b, len(self.kernel.inputs)
        k = inputs + next(k for k in range(len(self.kernel.outputs)) if self.full_output(k))
        size = ir.ITEMSIZE[self.dtypes[k]]

        def number(address: Reg) -> Reg:
            return b.emit("i64", 0, f"ptrtoint ptr {address.ref} to i64")

        here = number(
            self._address(k, pointers, at, vector_instructions.memory_type(self.dtypes[k]))
        )
        place = b.binary("udiv", here - number(self.words[f"p{k}"]), size)
        step = None
        if self.layout.classes[k] != "c":
            step = b.binary("udiv", self.words[f"s{k}.v"], size)
        seed, draw = (b.lane(x, 0) for x in args)
        return philox.numbers(b, seed, draw, place, step, self.lanes, often)

    def _address(self, k: int, pointers: list[Reg], at: Reg | None, memory: str) -> Reg:
        """The address of lane 0 of an operand."""
        kind = self.layout.classes[k]
        if kind == "b" or at is None:
            return pointers[k]
        if kind == "c":
            return self.b.at(pointers[k], at, memory)
        return self.b.at(pointers[k], at * self.words[f"s{k}.v"])

    def _lanes_of(self, k: int, address: Reg) -> Reg:
        """The address of each lane of a strided operand."""
        b = self.b
        offsets = b.iota("i64", self.lanes) * b.splat(self.words[f"s{k}.v"], self.lanes)
        text = f"getelementptr i8, ptr {address.ref}, {offsets.type} {offsets.ref}"
        return b.emit("ptr", self.lanes, text)

    def _load(self, k: int, pointers: list[Reg], at: Reg | None, mask: Reg | None) -> Reg:
        b, lanes, dtype = self.b, self.lanes, self.dtypes[k]
        memory = vector_instructions.memory_type(dtype)
        kind = self.layout.classes[k]
        address = self._address(k, pointers, at, memory)
        if kind == "b":
            x = b.emit(memory, 0, f"load {memory}, ptr {address.ref}, align 1")
            return b.splat(vector_instructions.from_memory(b, x, dtype), lanes)
        vector = type_name(memory, lanes)
        if kind != "c":
            x = self._gathered(k, address, mask)
        elif mask is None:
            x = b.emit(memory, lanes, f"load {vector}, ptr {address.ref}, align 1")
        else:
            x = b.load_masked(memory, lanes, address, mask)
        return vector_instructions.from_memory(b, x, dtype)

    def store(self, k: int, pointers: list[Reg], x: Reg, at: Reg | None, mask: Reg | None) -> None:
        b, dtype = self.b, self.dtypes[k]
        memory = vector_instructions.memory_type(dtype)
        x = vector_instructions.to_memory(b, x, dtype)
        kind = self.layout.classes[k]
        address = self._address(k, pointers, at, memory)
        if kind == "b":  # the vector loop has one position
            x = b.lane(x, 0)
            b.line(f"store {x.type} {x.ref}, ptr {address.ref}, align 1")
        elif kind != "c":
            self._scatter(k, address, mask, x)
        elif mask is None:
            b.line(f"store {x.type} {x.ref}, ptr {address.ref}, align 1")
        else:
            b.store_masked([(x, address)], mask)

    def _gathered(self, k: int, address: Reg, mask: Reg | None) -> Reg:
        """Gathers elements that lie apart in memory into a vector."""
        b, lanes, memory = self.b, self.lanes, vector_instructions.memory_type(self.dtypes[k])
        place, vector = self._lanes_of(k, address), type_name(memory, lanes)
        masks = f"<{lanes} x i1>"
        name = f"llvm.masked.gather.{suffix(memory, lanes)}.v{lanes}p0"
        self.module.declare(name, vector, [place.type, "i32", masks, vector])
        text = f"{place.type} {place.ref}, i32 1, {masks} {_bits(mask)}, {vector} zeroinitializer"
        return b.emit(memory, lanes, f"call {vector} @{name}({text})")

    def _scatter(self, k: int, address: Reg, mask: Reg | None, x: Reg) -> None:
        """Stores the lanes of a vector to addresses that lie apart: the inverse of `_gathered`."""
        place, masks = self._lanes_of(k, address), f"<{self.lanes} x i1>"
        name = f"llvm.masked.scatter.{suffix(x.elem, self.lanes)}.v{self.lanes}p0"
        self.module.declare(name, "void", [x.type, place.type, "i32", masks])
        text = f"{x.type} {x.ref}, {place.type} {place.ref}, i32 1, {masks} {_bits(mask)}"
        self.b.line(f"call void @{name}({text})")


def _bits(mask: Reg | None) -> str:
    return mask.ref if mask else "splat (i1 true)"
