"""Machine code for random numbers, as LLVM IR: NumPy's, from the stream of its Philox.

Words of the stream are made many at a time into a buffer. A vector of them is turned into numbers
as if each were accepted; where one is not, as happens to one word in a hundred, those before it are
kept, and a function for one number goes on from there, word by word in NumPy's order: it may take
several. A stream is read from its start, so one thread draws; where every word is accepted,
segments of the result begin at known places of the stream, and threads share them.
"""

from __future__ import annotations

from typing import NamedTuple

from ...codegen import philox
from ...codegen.emit import FunctionBody, Module, Reg, literal, suffix, type_name
from ...codegen.target import Target
from . import ziggurat
from .ziggurat import LAYERS, Tables

BLOCKS = 16  # of 32 bytes, that are made at a time
SEGMENT = BLOCKS * 8 * 64  # numbers of a chunk, where threads share: whole buffers
ELEMENTS = {"float32": "float", "float64": "double"}
_POSITION, _BLOCK, _SEED, _DRAW, _NUMBERS = range(0, 40, 8)  # places in a source
_HEADER = 64


class Kind(NamedTuple):
    """Kind of random numbers: "uniform", "normal" or "exponential" as float32 or float64;
    "integers" or a "permutation", which are i64; "mask": a number of 1, 2, 4 or 8 bytes or zeros,
    as i8 to i64.
    """

    name: str
    element: str

    @property
    def serial(self) -> bool:
        """Whether words may be rejected."""
        return self.name not in ("uniform", "mask")

    @property
    def layered(self) -> bool:
        """Whether a ziggurat gives it."""
        return self.name in ("normal", "exponential")


class _Segment(NamedTuple):
    """The part of the result that is drawn at a time, while its code is written."""

    source: Reg
    out: Reg  # address of the whole result
    stop: Reg  # place behind the last number
    at: Reg  # variable: place of the next number
    position: Reg  # variable: position of the next word


class _Vector(NamedTuple):
    """Numbers that were made of a vector of words."""

    x: Reg
    accepted: Reg | None  # mask; None for all
    at: Reg  # place of the first
    position: Reg  # of the first word
    left: Reg  # how many numbers the segment has from there on


class _RandomWriter:
    """The functions for one kind.

    They share a source: the position of the next word in its buffer, the number of the block that
    will be made next, seed, draw, where the call's numbers are; then the buffer, and in front of it
    room for a vector, where the last words move when new ones are made: positions down to -lanes.
    """

    def __init__(self, target: Target, symbol: str, kind: Kind) -> None:
        self.kind, self.symbol = kind, symbol
        self.module = Module()
        self.element = ELEMENTS.get(kind.element, kind.element)
        bits = {"float": 32, "double": 64}.get(self.element) or int(self.element[1:])
        self.bits = bits if self.element in ELEMENTS.values() else 32  # of a word
        self.word = f"i{self.bits}"
        self.lanes = target.vector_bytes * 8 // max(self.bits, bits)
        self.wide = target.vector_bytes // 8  # words of 64 bits
        self.room = self.lanes * self.bits // 8
        self.words = BLOCKS * 256 // self.bits
        self.tables: Tables | None = None
        if kind.layered:
            self.tables = ziggurat.tables(kind.name, kind.element)
            self._constant("limits", self.word, self.tables.limits)
            self._constant("widths", self.element, self.tables.widths)
            self._constant("heights", self.element, self.tables.heights)

    def _constant(self, name: str, elem: str, values: list[int] | list[float]) -> None:
        listed = ", ".join(f"{elem} {literal(elem, x)}" for x in values)
        self.module.declarations[name] = (
            f"@.{name} = internal constant [{len(values)} x {elem}] [{listed}], align 64"
        )

    def _begin(self) -> tuple[FunctionBody, Reg]:
        b = FunctionBody(self.module)
        return b, Reg(b, "ptr", 0, "%source")

    def _end(self, name: str, b: FunctionBody, result: Reg | None = None) -> None:
        kind = result.type if result else "void"
        header = f"internal {kind} @.{name}(ptr %source)"
        self.module.functions[name] = b.function(header, result, "noinline")

    @staticmethod
    def _load(b: FunctionBody, pointer: Reg, at: Reg | int, elem: str, lanes: int = 0) -> Reg:
        """Loads elements `at` positions behind a pointer (bytes, of i64 at a known position)."""
        where = b.at(pointer, at, elem if isinstance(at, Reg) else "i8")
        kind = type_name(elem, lanes)
        align = f"{max(int(suffix(elem, 0).lstrip('ifp')) // 8, 1)}"
        return b.emit(elem, lanes, f"load {kind}, ptr {where.ref}, align {align}")

    @staticmethod
    def _store(b: FunctionBody, pointer: Reg, at: Reg | int, value: Reg) -> None:
        where = b.at(pointer, at, value.elem if isinstance(at, Reg) else "i8")
        align = f"{max(int(suffix(value.elem, 0).lstrip('ifp')) // 8, 1)}"
        b.line(f"store {value.type} {value.ref}, ptr {where.ref}, align {align}")

    # ---- words -----------------------------------------------------------------------------------

    def refill(self) -> None:
        """Makes the buffer's words; the last ones of before move in front of them."""
        b, source = self._begin()
        load, store = self._load, self._store
        buffer = b.at(source, _HEADER + self.room)
        last = load(b, buffer, (self.words - self.lanes) * self.bits // 8, self.word, self.lanes)
        store(b, source, _HEADER, last)
        seed, draw, first = (load(b, source, at, "i64") for at in (_SEED, _DRAW, _BLOCK))
        philox.write(b, seed, draw, first, BLOCKS, self.wide, buffer)
        store(b, source, _BLOCK, first + BLOCKS)
        position = load(b, source, _POSITION, "i64")
        store(b, source, _POSITION, position - self.words)
        self._end("refill", b)

    def next(self) -> None:
        """The next word."""
        b, source = self._begin()
        position = self._load(b, source, _POSITION, "i64")
        with b.when(b.compare("eq", position, self.words)):
            b.line("call void @.refill(ptr %source)")
        position = self._load(b, source, _POSITION, "i64")
        self._store(b, source, _POSITION, position + 1)
        buffer = b.at(source, _HEADER + self.room)
        self._end("next", b, self._load(b, buffer, position, self.word))

    def _next(self, b: FunctionBody) -> Reg:
        return b.emit(self.word, 0, f"call {self.word} @.next(ptr %source)")

    # ---- numbers ---------------------------------------------------------------------------------

    def _numbers(self, b: FunctionBody, words: Reg, source: Reg) -> tuple[Reg, Reg | None]:
        """Random numbers made of words, and a mask of the accepted ones (None: all)."""
        if self.kind.name == "uniform":
            return self._uniform(b, words), None
        if self.kind.name == "mask":
            threshold, value = (
                self._number(b, source, k, elem) for k, elem in ((0, "i64"), (1, self.element))
            )
            chosen = b.compare("lt", b.convert("zext", words, "i64"), threshold, unsigned=True)
            return b.select(chosen, b.like(words._replace(elem=self.element), value), 0), None
        if self.kind.name == "integers":
            return self._integer(b, words, source)
        _, _, x, accepted = self._layered(b, words)
        return x, accepted

    def _number(self, b: FunctionBody, source: Reg, k: int, elem: str = "i64") -> Reg:
        """One of the numbers that came with the call."""
        return self._load(b, self._load(b, source, _NUMBERS, "ptr"), 8 * k, elem)

    def _uniform(self, b: FunctionBody, words: Reg) -> Reg:
        """Numbers of [0, 1)."""
        digits = 24 if self.bits == 32 else 53
        whole = b.binary("lshr", words, self.bits - digits)
        return self._float(b, whole) * 2.0**-digits

    def _float(self, b: FunctionBody, whole: Reg) -> Reg:
        """Converts whole numbers whose highest bit is not set to floats."""
        return b.convert("sitofp" if self.bits == 32 else "uitofp", whole, self.element)

    def _integer(self, b: FunctionBody, words: Reg, source: Reg) -> tuple[Reg, Reg]:
        """Lemire, 2019, "Fast random integer generation in an interval": the upper half of a word
        times the count of integers, unless the lower half is below a threshold.
        """
        low, greatest, threshold = (self._number(b, source, k) for k in range(3))
        wide = b.convert("zext", words, "i64")
        product = wide * greatest + wide
        accepted = b.compare("ge", product & 0xFFFFFFFF, threshold)
        return b.binary("lshr", product, 32) + low, accepted

    def _layered(self, b: FunctionBody, words: Reg) -> tuple[Reg, Reg, Reg, Reg]:
        """Layer, magnitude, number, and whether it is accepted at once."""
        assert self.tables is not None
        bits = b.binary("lshr", words, self.tables.below) if self.tables.below else words
        layer = bits & (LAYERS - 1)
        magnitude = b.binary("lshr", bits, 8 + self.tables.sign) & ((1 << self.tables.digits) - 1)
        x = self._float(b, magnitude) * self._entry(b, "widths", self.element, layer)
        if self.tables.sign:
            sign = b.binary("shl", b.binary("lshr", bits, 8), self.bits - 1)
            x = b.convert("bitcast", b.convert("bitcast", x, self.word) ^ sign, self.element)
        limit = self._entry(b, "limits", self.word, layer)
        return layer, magnitude, x, b.compare("lt", magnitude, limit)

    @staticmethod
    def _entry(b: FunctionBody, table: str, elem: str, at: Reg) -> Reg:
        """Loads entries of a table."""
        n = at.lanes
        places = b.emit("ptr", n, f"getelementptr {elem}, ptr @.{table}, {at.type} {at.ref}")
        kind = type_name(elem, n)
        if not n:
            return b.emit(elem, 0, f"load {kind}, ptr {places.ref}")
        name = f"llvm.masked.gather.{suffix(elem, n)}.v{n}p0"
        b.module.declare(name, kind, [places.type, "i32", f"<{n} x i1>", kind])
        mask = f"<{n} x i1> splat (i1 true)"
        size = int(suffix(elem, 0)[1:]) // 8
        text = f"call {kind} @{name}({places.type} {places.ref}, i32 {size}, {mask}, {kind} poison)"
        return b.emit(elem, n, text)

    def one(self) -> None:
        """The next number, by as many words as it takes."""
        b, source = self._begin()
        result = b.alloca(self.element)
        again, end = b.label(), b.label()
        b.start(again)
        words = self._next(b)
        if self.tables is None:
            x, accepted = self._numbers(b, words, source)
            assert accepted is not None
            b.put(result, x)
            b.branch(accepted, end, again)
        else:
            layer, magnitude, x, accepted = self._layered(b, words)
            b.put(result, x)
            beside, base, wedge = b.label(), b.label(), b.label()
            b.branch(accepted, end, beside)
            b.start(beside)
            b.branch(b.compare("eq", layer, 0), base, wedge)
            b.start(base)
            self._tail(b, magnitude, result, end)
            b.start(wedge)
            height = self._entry(b, "heights", self.element, layer)
            above = self._entry(b, "heights", self.element, layer - 1)
            y = (above - height) * self._uniform(b, self._next(b)) + height
            b.branch(self._below_density(b, y, x), end, again)
        b.start(end)
        self._end("one", b, b.get(result))

    def _call(self, b: FunctionBody, name: str, x: Reg) -> Reg:
        """A function of the C library, which NumPy calls too."""
        name += "f" if x.elem == "float" else ""
        self.module.declare(name, x.type, [x.type])
        return b.call(name, x.elem, 0, [x])

    def _below_density(self, b: FunctionBody, y: Reg, x: Reg) -> Reg:
        """Whether a point is below the curve; NumPy computes the normal one in float64."""
        if self.kind.name == "normal":
            x, y = b.convert("fpext", x, "double"), b.convert("fpext", y, "double")
            return y < self._call(b, "exp", x * -0.5 * x)
        return y < self._call(b, "exp", -x)

    def _tail(self, b: FunctionBody, magnitude: Reg, result: Reg, end: str) -> None:
        """A number beyond the layers, where the density is below that of an exponential one."""
        assert self.tables is not None
        edge = b.const(self.element, self.tables.edge)
        if self.kind.name == "exponential":
            b.put(result, edge - self._call(b, "log1p", -self._uniform(b, self._next(b))))
            b.line(f"br label %{end}")
            return
        again, accepted = b.label(), b.label()
        b.start(again)
        x = self._call(b, "log1p", -self._uniform(b, self._next(b))) * (-1 / self.tables.edge)
        y = -self._call(b, "log1p", -self._uniform(b, self._next(b)))
        b.branch(y + y > x * x, accepted, again)
        b.start(accepted)
        far = x + edge
        negative = b.compare("ne", magnitude & 256, 0)
        b.put(result, b.select(negative, -far, far))
        b.line(f"br label %{end}")

    # ---- the routine -----------------------------------------------------------------------------

    def _open(self) -> tuple[FunctionBody, Reg, Reg]:
        """The body of a routine, its source, and its words: how many numbers in all and in a
        segment; the addresses of seed and draw, and of the result; the kind's own numbers.
        """
        b = FunctionBody(self.module)
        words, source = Reg(b, "ptr", 0, "%words"), Reg(b, "ptr", 0, "%source")
        room = _HEADER + self.room + BLOCKS * 32
        b.allocas.append(f"%source = alloca [{room} x i8], align 64")
        state = self._load(b, words, 16, "ptr")
        self._store(b, source, _SEED, self._load(b, state, 0, "i64"))
        self._store(b, source, _DRAW, self._load(b, state, 8, "i64"))
        self._store(b, source, _NUMBERS, b.at(words, 32))
        return b, source, words

    def _close(self, b: FunctionBody) -> None:
        header = f"void @{self.symbol}.draw(i64 %begin, i64 %end, ptr %words)"
        self.module.functions["draw"] = b.function(header)

    def shuffle(self) -> None:
        """0, 1, ... in random order: from the last place on, each changes with one up to itself,
        which as many bits of a word give as the place has, unless they give one behind it.
        """
        b, source, words = self._open()
        load, store = self._load, self._store
        count, out = load(b, words, 0, "i64"), load(b, words, 24, "ptr")
        with b.loop(0, count) as k:
            store(b, out, k, k)
        store(b, source, _BLOCK, b.const("i64", 0))
        store(b, source, _POSITION, b.const("i64", self.words))
        place = b.alloca("i64", 0, count - 1)
        head, body, over = b.label(), b.label(), b.label()
        b.start(head)
        last = b.get(place)
        b.branch(last > 0, body, over)
        b.start(body)
        zeros = b.intrinsic("ctlz", last, b.const("i1", 1))
        given = b.convert("zext", self._next(b), "i64") & b.binary(
            "lshr", b.const("i64", -1), zeros
        )
        accepted = given <= last
        other = b.select(accepted, given, last)  # no jump, which could not be foreseen
        here, there = load(b, out, last, "i64"), load(b, out, other, "i64")
        store(b, out, last, there)
        store(b, out, other, here)
        b.put(place, last - b.convert("zext", accepted, "i64"))
        b.line(f"br label %{head}")
        b.start(over)
        self._close(b)

    def draw(self) -> None:
        """void(begin, end, words): segments of the result."""
        b, source, words = self._open()
        load, store, lanes = self._load, self._store, self.lanes
        begin, finish = (Reg(b, "i64", 0, name) for name in ("%begin", "%end"))
        count, segment_size = (load(b, words, at, "i64") for at in (0, 8))
        out = load(b, words, 24, "ptr")
        buffer = b.at(source, _HEADER + self.room)
        spare = b.alloca(self.element, lanes)
        at, position = b.alloca("i64"), b.alloca("i64")
        with b.loop(begin, finish) as unit:
            start = unit * segment_size
            stop = b.intrinsic("smin", start + segment_size, count)
            segment = _Segment(source, out, stop, at, position)
            store(b, source, _BLOCK, b.binary("udiv", start, 256 // self.bits))
            b.put(at, start)
            b.put(position, self.words)
            head, body, over = b.label(), b.label(), b.label()
            b.start(head)
            b.branch(b.get(at) < stop, body, over)
            b.start(body)
            drawn = self._vector(b, segment, buffer)
            whole, part = b.label(), b.label()
            is_whole = drawn.left >= lanes
            b.branch(is_whole, whole, part)
            b.start(whole)
            store(b, out, drawn.at, drawn.x)
            if drawn.accepted is not None:
                partly, all_ = b.label(), b.label()
                b.branch(b.any(~drawn.accepted), partly, all_)
                b.start(all_)
            b.put(at, drawn.at + lanes)
            b.put(position, drawn.position + lanes)
            b.line(f"br label %{head}")
            b.start(part)
            b.put(spare, drawn.x)
            with b.loop(0, drawn.left) as k:
                to = b.at(out, drawn.at, self.element)
                store(b, to, k, load(b, spare, k, self.element))
            if drawn.accepted is None:
                b.line(f"br label %{over}")
            else:
                b.start(partly)
                self._keep_accepted(b, segment, drawn, drawn.accepted)
                b.line(f"br label %{head}")
            b.start(over)
        self._close(b)

    def _vector(self, b: FunctionBody, segment: _Segment, buffer: Reg) -> _Vector:
        """The next vector of numbers, as if each word were accepted."""
        with b.when(b.get(segment.position) > self.words - self.lanes):
            b.line(self._call_from(b, segment, "refill", "void"))
            b.put(segment.position, self._load(b, segment.source, _POSITION, "i64"))
        at, position = b.get(segment.at), b.get(segment.position)
        words = self._load(b, buffer, position, self.word, self.lanes)
        x, accepted = self._numbers(b, words, segment.source)
        return _Vector(x, accepted, at, position, segment.stop - at)

    def _keep_accepted(
        self, b: FunctionBody, segment: _Segment, drawn: _Vector, accepted: Reg
    ) -> None:
        """Goes on behind those numbers that come before the first rejected one, and draws the one
        that takes its place, by as many words as it takes.
        """
        lanes = self.lanes
        flags = b.emit(f"i{lanes}", 0, f"bitcast {accepted.type} {accepted.ref} to i{lanes}")
        wide = b.convert("zext", flags, "i64")
        kept = b.intrinsic("smin", b.intrinsic("cttz", ~wide, b.const("i1", 0)), drawn.left)
        b.put(segment.at, drawn.at + kept)
        b.put(segment.position, drawn.position + kept)
        with b.when((b.get(segment.at) < segment.stop) & (kept < lanes)):
            text = self._call_from(b, segment, "one", self.element)
            value = b.emit(self.element, 0, text)
            b.put(segment.position, self._load(b, segment.source, _POSITION, "i64"))
            self._store(b, segment.out, b.get(segment.at), value)
            b.put(segment.at, b.get(segment.at) + 1)

    def _call_from(self, b: FunctionBody, segment: _Segment, name: str, kind: str) -> str:
        """The text of a call of one of the source's functions, which is told the position."""
        self._store(b, segment.source, _POSITION, b.get(segment.position))
        return f"call {kind} @.{name}(ptr %source)"


def text(target: Target, symbol: str, kind: Kind) -> str:
    """The module; its function is symbol.draw."""
    code = _RandomWriter(target, symbol, kind)
    code.refill()
    if kind.serial:
        code.next()
    if kind.name == "permutation":
        code.shuffle()
        return str(code.module)
    if kind.serial:
        code.one()
    code.draw()
    return str(code.module)
