"""A loop whose body is one function: what it carries lies in registers from turn to turn.

The function is resumable, as the one that goes through records is (`turn_code.py`): what a run is
at lies in a record. It stops where Python is wanted, with what it carries in the record, and goes
on there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....core.spec import Spec, prod
from ...codegen import cache, target
from ...codegen.emit import LLVM_TYPES, Module, Reg
from ...codegen.ir import FLOATS, ITEMSIZE
from ...codegen.vector_instructions import from_memory, memory_type, to_memory
from ..runtime.loop_record import Place, Stop, Word, write_clock, write_look
from ..runtime.shared_code import Writer, function
from .formulas import name_of
from .registers import Array, Held, Registers, Stored

_SYMBOL = "@LOOP"
_LARGEST_BATCH = 1 << 14  # turns without a look at the clock


class Carry(NamedTuple):
    """A carried value: the place of what it begins with (None: zeros), and of what is left."""

    spec: Spec
    begin: Place | None
    end: Place | None


class Row(NamedTuple):
    """A carried value that is noted at the begin of each turn: at a place, or at an address that
    the record's word of this number holds.
    """

    carry: int
    place: Place | None
    word: int = 0


# calls of an elementary function that are inlined; more take LLVM long (32 of pow a third of a
# second), and the time of a call less than 5% of what the function takes
_INLINED = 16
Turn = "tuple[Sequence[Array], Sequence[tuple[Place, Array]], Array | None]"


class LoopCode:
    """The code of a loop while it is written."""

    def __init__(
        self, specs: Sequence[Spec], given: int, carries: Sequence[Carry], rows: Sequence[Row],
        extra: int,
    ) -> None:  # fmt: skip
        """`specs` are those of all values, `given` the number of a run's arrays, `extra` the number
        of the record's words that the loop has for itself.
        """
        self.host = target.host()
        self.module = Module(
            scalef=self.host.has("avx512f") and self.host.vector_bytes == 64,
            opaque_loops=not self.host.has("neon"),
        )
        self.width = self.host.vector_bytes // _itemsize([name_of(spec) for spec in specs])
        self.given, self.carries, self.rows = given, carries, rows
        self.words = Word.HEAD + extra
        self.room = [
            -(-prod(each.spec.shape) // self.width) * self.width * ITEMSIZE[name_of(each.spec)]
            for each in carries
        ]

    @property
    def record(self) -> int:
        """The number of words of the record."""
        return self.words + (sum(self.room) + 7) // 8 + 8

    def text(self, write: Callable[[LoopCode, Sequence[Array]], None]) -> str:
        """The text of the loop's function. `write` writes a turn, for what it carries: it calls
        `test`, `note_rows` and `end`.
        """
        write_clock(self.module)
        header = f"void {_SYMBOL}(i64 %begin, i64 %end, ptr %words)"
        with function(self.module, header) as (b, _, _, words):
            self._function(b, words, write)
        text = self.module.functions.pop(_SYMBOL[1:])
        for symbol, each in self.module.functions.items():
            if text.count(f"@{symbol}(") > _INLINED:
                self.module.functions[symbol] = each.replace(" alwaysinline ", " noinline ", 1)
        self.module.functions[_SYMBOL[1:]] = text
        return str(self.module)

    # ---- the function ----------------------------------------------------------------------------

    def _function(
        self, b: Writer, words: Reg, write: Callable[[LoopCode, Sequence[Array]], None]
    ) -> None:
        self.b = b
        self.table = b.get(b.place("ptr", words, 0))
        self.pointers = [b.get(b.place("ptr", words, 8 * (1 + k))) for k in range(self.given)]
        self.stopped = b.place("i64", words, 8 * (1 + self.given))
        self.turn = b.alloca("i64")
        self.done = b.alloca("i64")  # turns since the last look at the clock
        self.wanted = b.alloca("i64")
        self.slots = [
            [b.alloca(LLVM_TYPES[name], self.width) for _ in range(-(-count // self.width))]
            for name, count in ((name_of(x.spec), prod(x.spec.shape)) for x in self.carries)
        ]
        b.put(self._word(Word.WHY), 0)
        b.put(self._word(Word.WORDS), b.convert("ptrtoint", words, "i64"))
        goes_on = b.compare("ne", self._get(Word.GOES_ON), 0)
        b.put(self._word(Word.GOES_ON), 0)
        resumed, begun, ready, again, turn = (b.label() for _ in range(5))
        self.over, self.failed = b.label(), b.label()
        b.branch(goes_on, resumed, begun)
        b.start(begun)
        self._begin()
        b.go(ready)
        b.start(resumed)
        self._resume()
        b.go(ready)
        lines = b.lines
        registers = self.registers = Registers(b, self.width)
        registers.turn = b.lines = []
        self._turn(write, turn, again)
        after, b.lines = b.lines, lines
        b.start(ready)
        b.lines += registers.before
        b.go(again)
        b.start(again)
        self._more()
        b.go(turn)
        b.start(turn)
        b.lines += after
        b.start(self.over)
        self._leave()
        b.ret()
        b.start(self.failed)
        self._stop(Stop.ELSE)
        b.lines.pop()  # the function's own end returns

    def _word(self, k: int, elem: str = "i64") -> Reg:
        return self.b.place(elem, self.table, 8 * k)

    def _get(self, k: int, elem: str = "i64") -> Reg:
        return self.b.get(self._word(k, elem))

    def _begin(self) -> None:
        """A run begins."""
        b = self.b
        b.put(self._word(Word.BEGUN), self._get(Word.BEGUN) + 1)
        b.put(self._word(Word.COUNT), self._get(Word.COUNT) + 1)
        b.put(self.turn, 0)
        plain = Registers(b, self.width)
        for each, slots in zip(self.carries, self.slots, strict=True):
            dtype, count = name_of(each.spec), prod(each.spec.shape)
            if each.begin is None:
                for slot in slots:
                    b.put(slot, 0)
                continue
            x = Stored(dtype, count, self._at(each.begin, None), False)
            for n, slot in enumerate(slots):
                b.put(slot, plain.chunk(x, n))

    def _resume(self) -> None:
        """Go on where the run has stopped."""
        b = self.b
        b.put(self.turn, self._get(Word.TURN))
        for elem, slot, place in self._kept():
            kind = f"<{self.width} x {elem}>"
            x = b.emit(elem, self.width, f"load {kind}, ptr {place.ref}, align 8")
            b.put(slot, from_memory(b, x, "bool") if slot.elem == "i1" else x)

    def _keep(self) -> None:
        """Put what is carried into the record."""
        b = self.b
        b.put(self._word(Word.TURN), b.get(self.turn))
        for _, slot, place in self._kept():
            x = to_memory(b, b.get(slot), "bool") if slot.elem == "i1" else b.get(slot)
            b.line(f"store {x.type} {x.ref}, ptr {place.ref}, align 8")

    def _kept(self) -> list[tuple[str, Reg, Reg]]:
        """Each chunk that is carried: its type in memory, its variable, its place in the record."""
        found, offset = [], 8 * self.words
        for each, slots in zip(self.carries, self.slots, strict=True):
            dtype = name_of(each.spec)
            for slot in slots:
                found.append((memory_type(dtype), slot, self.b.at(self.table, offset)))
                offset += self.width * ITEMSIZE[dtype]
            offset = -(-offset // 8) * 8
        return found

    def _at(self, place: Place, turn: Reg | None) -> Reg:
        """The address of a place, in a turn."""
        b = self.b
        pointer, offset, step, _ = place
        at = b.at(self.pointers[pointer], offset) if offset else self.pointers[pointer]
        return b.at(at, turn * step) if step and turn is not None else at

    def _more(self) -> None:
        """See how many turns there may be, and look at the clock now and then."""
        b = self.b
        left = self._get(Word.LENGTH) - b.get(self.turn)
        with b.when(left <= 0):
            with b.when(b.compare("ne", self._get(Word.OPEN), 0)):
                self._stop(Stop.FULL)
                b.start(b.label())
            b.go(self.over)
            b.start(b.label())
        b.put(self.wanted, b.intrinsic("smin", left, self._get(Word.LEFT)))
        b.put(self.done, 0)

    def _turn(
        self, write: Callable[[LoopCode, Sequence[Array]], None], turn: str, again: str
    ) -> None:
        b = self.b
        self.now = b.get(self.turn)
        carried: list[Array] = []
        for each, slots in zip(self.carries, self.slots, strict=True):
            chunks = [b.get(slot) for slot in slots]
            carried.append(Held(name_of(each.spec), prod(each.spec.shape), chunks, False))
        self.carried = carried
        write(self, carried)
        b.put(self.turn, self.now + 1)
        done = b.get(self.done) + 1
        done = b.opaque(done) if self.module.opaque_loops else done
        b.put(self.done, done)
        look = b.label()
        b.branch(done < b.get(self.wanted), turn, look)
        b.start(look)
        left = self._get(Word.LEFT) - done
        b.put(self._word(Word.LEFT), left)
        with b.when(left <= 0):
            self._look()
        b.go(again)

    def _look(self) -> None:
        """Look at the clock: stop after a while, and look more seldom where turns are short."""
        b = self.b
        now = write_look(b, self._word, _LARGEST_BATCH)
        with b.when((now - self._get(Word.SINCE)) > self._get(Word.SLICE)):
            b.put(self._word(Word.SINCE), now)
            self._stop(Stop.TIME)
            b.start(b.label())

    def _stop(self, why: Stop) -> None:
        b = self.b
        self._keep()
        b.put(self._word(Word.WHY), int(why))
        b.put(self.stopped, 1)
        b.ret()

    def _leave(self) -> None:
        """The turns are over."""
        b = self.b
        b.put(self._word(Word.TURN), b.get(self.turn))
        plain = Registers(b, self.width)
        for each, slots in zip(self.carries, self.slots, strict=True):
            if each.end is not None:
                chunks = [b.get(slot) for slot in slots]
                x = Held(name_of(each.spec), prod(each.spec.shape), chunks, False)
                plain.store(x, self._at(each.end, None))
        self.written_last()
        b.put(self.stopped, 0)

    def written_last(self) -> None:
        """Write what else a run gives: its number."""
        if self.number is not None:
            self.b.put(self.b.place("i64", self._at(self.number, None), 0), self._get(Word.COUNT))

    number: Place | None = None  # where the run's number goes

    # ---- what a turn does ------------------------------------------------------------------------

    def read(self, place: Place, spec: Spec) -> Array:
        """The array at a place, in this turn."""
        fixed = not place.moves
        at = self.registers.written(fixed, lambda: self._at(place, self.now))
        return Stored(name_of(spec), prod(spec.shape), at, fixed)

    def test(self, go: Array) -> None:
        """End the loop where a number is 0."""
        b, r = self.b, self.registers
        chunk = r.chunk(r.held(go), 0)
        if chunk.elem != "i1":
            chunk = b.compare("ne", chunk, 0.0 if go.dtype in FLOATS else 0)
        on = b.label()
        b.branch(b.lane(chunk, 0), on, self.over)
        b.start(on)

    def note_rows(self) -> None:
        """Note what is carried."""
        b = self.b
        for carry, place, word in self.rows:
            x = self.carried[carry]
            if place is None:
                size = x.count * ITEMSIZE[x.dtype]
                at = b.at(self._get(word, "ptr"), self.now * size)
            else:
                at = self._at(place, self.now)
            self.registers.store(x, at)

    def end(
        self, following: Sequence[Array], results: Sequence[tuple[Place, Array]],
        singular: Sequence[Array],
    ) -> None:  # fmt: skip
        """End a turn: with what is carried on, and results at places. Where something is singular
        the whole loop is left to another one.
        """
        b, r = self.b, self.registers
        if singular:
            wrong = singular[0]
            for each in singular[1:]:
                wrong = r.op("or", wrong, each)
            on = b.label()
            b.branch(b.lane(r.chunk(r.held(wrong), 0), 0), self.failed, on)
            b.start(on)
        for place, x in results:
            r.store(x, self._at(place, self.now))
        chunks = [
            [r.chunk(r.held(x), n) for n in range(len(slots))]
            for x, slots in zip(following, self.slots, strict=True)
        ]
        for values, slots in zip(chunks, self.slots, strict=True):
            for value, slot in zip(values, slots, strict=True):
                b.put(slot, value)


def _itemsize(dtypes: Sequence[str]) -> int:
    """Bytes of the dtype that fills a register: the narrowest float, or the widest integer."""
    floats = [ITEMSIZE[name] for name in dtypes if name in FLOATS]
    return min(floats) if floats else max((ITEMSIZE[name] for name in dtypes), default=8)


def loaded(text: str) -> target.LoadedCode:
    """The code of a loop's text."""
    name = cache.digest(__name__, text, repr(target.host()))
    symbol = f"loop{name}"
    whole = text.replace(f"{_SYMBOL}(", f"@{symbol}(")
    return target.freed(name, lambda: whole, symbol)
