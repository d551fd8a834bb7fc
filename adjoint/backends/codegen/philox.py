"""The numbers of NumPy's Philox generator, by their places in its stream.

Block n of a stream is four words of 64 bits, a function of (seed, draw, n) alone (Salmon et al.,
2011, "Parallel random numbers: as easy as 1, 2, 3"; Philox4x64 with ten rounds), and eight numbers
of 32 bits. Where a few blocks are wanted, they are computed one by one, since processors multiply
words of 64 bits to 128 one by one; many are computed in vectors of eight words, from products of
32 bits.
"""

from __future__ import annotations

from .emit import FunctionBody, Reg

_FACTORS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def numbers(
    b: FunctionBody, seed: Reg, draw: Reg, place: Reg, step: Reg | None, lanes: int, often: bool
) -> Reg:
    """The numbers (32 bits) at `lanes` places of a stream: the first at `place`, each `step` behind
    the one before; one behind the other, if None. `often`: for speed, not for short code.
    """
    result = b.alloca("i32", lanes)
    if step is not None:
        _each(b, seed, draw, place, step, result)
        return b.get(result)
    inside = place & (min(lanes, 8) - 1)  # of a block, or of the part that is wanted
    with b.when(b.compare("eq", inside, 0)):
        first = b.binary("lshr", place, 3)
        wanted = [first + k for k in range(max(lanes // 8, 1))]
        words = _blocks(b, seed, draw, wanted, often)
        _put(b, result, words, place & 7)
    with b.when(b.compare("ne", inside, 0)):
        _each(b, seed, draw, place, b.const("i64", 1), result)
    return b.get(result)


def _put(b: FunctionBody, result: Reg, words: list[Reg], start: Reg) -> None:
    """The numbers of whole blocks from `start` on."""
    halves = b.alloca("i64", len(words))
    x = Reg(b, "i64", len(words), "poison")
    for k, word in enumerate(words):
        text = f"insertelement {x.type} {x.ref}, i64 {word.ref}, i32 {k}"
        x = b.emit("i64", len(words), text)
    if result.lanes == 2 * len(words):
        wide = b.emit("i32", result.lanes, f"bitcast {x.type} {x.ref} to {result.type}")
        b.put(result, wide)
        return
    b.put(halves, x)
    part = b.at(halves, start, "i32")
    b.put(result, b.emit("i32", result.lanes, f"load {result.type}, ptr {part.ref}, align 4"))


def _each(b: FunctionBody, seed: Reg, draw: Reg, place: Reg, step: Reg, result: Reg) -> None:
    """The number of each lane from a block of its own."""
    with b.loop(b.const("i64", 0), b.const("i64", result.lanes)) as lane:
        at = place + lane * step
        words = _blocks(b, seed, draw, [b.binary("lshr", at, 3)], False)
        which = b.binary("lshr", at, 1) & 3
        word = words[0]
        for k in (1, 2, 3):
            word = b.select(b.compare("eq", which, k), words[k], word)
        word = b.binary("lshr", word, b.binary("shl", at & 1, 5))
        number = b.convert("trunc", word, "i32")
        slot = b.at(result, lane, "i32")
        b.line(f"store i32 {number.ref}, ptr {slot.ref}")


def _blocks(b: FunctionBody, seed: Reg, draw: Reg, numbers: list[Reg], often: bool) -> list[Reg]:
    """The four words of each block that is numbered; NumPy counts before it draws."""
    zero = b.const("i64", 0)
    keys = b.alloca("i64", 0, seed), b.alloca("i64", 0, 0)
    slots = [b.alloca("i64", 0, x) for n in numbers for x in (n + 1, zero, draw, zero)]
    turns = 10 if often else 1  # rounds without a jump
    with b.loop(b.const("i64", 0), b.const("i64", 10), turns):
        first, second = map(b.get, keys)
        words = list(map(b.get, slots))
        for _ in range(turns):
            for k in range(0, len(words), 4):
                high0, low0 = _product(b, words[k], _FACTORS[0])
                high2, low2 = _product(b, words[k + 2], _FACTORS[1])
                one, two = high2 ^ words[k + 1] ^ first, high0 ^ words[k + 3] ^ second
                words[k : k + 4] = one, low2, two, low0
            first, second = first + _signed(_STEPS[0]), second + _signed(_STEPS[1])
        for slot, word in zip((*keys, *slots), (first, second, *words), strict=True):
            b.put(slot, word)
    return list(map(b.get, slots))


def write(
    b: FunctionBody, seed: Reg, draw: Reg, first: Reg, count: int, lanes: int, to: Reg
) -> None:
    """The words of `count` blocks from number `first` on, to memory; a vector has `lanes` words."""
    wide = lanes >= 8  # with fewer, vectors are slower
    with b.loop(b.const("i64", 0), b.const("i64", count), lanes if wide else 2) as k:
        if wide:
            numbers = b.splat(first + k, lanes) + b.iota("i64", lanes) + 1
            words = _interleaved(b, _vectors(b, seed, draw, numbers))
        else:
            words = _blocks(b, seed, draw, [first + k, first + k + 1], True)
        for place, word in enumerate(words):
            where = b.at(to, k * 4 + place * max(word.lanes, 1), "i64")
            b.line(f"store {word.type} {word.ref}, ptr {where.ref}, align 8")


def _vectors(b: FunctionBody, seed: Reg, draw: Reg, numbers: Reg) -> list[Reg]:
    """Word 0 of each block, word 1, ...; `numbers` as NumPy counts."""
    zero = b.like(numbers, 0)
    words = [numbers, zero, b.like(numbers, draw), zero]
    first, second = seed, b.const("i64", 0)
    for _ in range(10):
        high0, low0 = _wide_product(b, words[0], _FACTORS[0])
        high2, low2 = _wide_product(b, words[2], _FACTORS[1])
        one, two = high2 ^ words[1] ^ first, high0 ^ words[3] ^ second
        words = [one, low2, two, low0]
        first, second = first + _signed(_STEPS[0]), second + _signed(_STEPS[1])
    return words


def _wide_product(b: FunctionBody, x: Reg, factor: int) -> tuple[Reg, Reg]:
    """The upper and the lower 64 bits of products, from those of halves."""
    half = (1 << 32) - 1
    low, high = x & half, b.binary("lshr", x, 32)
    below = low * (factor & half)
    first = low * (factor >> 32) + b.binary("lshr", below, 32)
    second = high * (factor & half) + (first & half)
    upper = high * (factor >> 32) + b.binary("lshr", first, 32) + b.binary("lshr", second, 32)
    return upper, b.binary("shl", second, 32) | (below & half)


def _interleaved(b: FunctionBody, words: list[Reg]) -> list[Reg]:
    """The elements of four vectors in turn."""
    n = words[0].lanes

    def zipped(x: Reg, y: Reg) -> list[Reg]:
        vectors = []
        for start in (0, n // 2):
            picks = ", ".join(f"i32 {k}, i32 {n + k}" for k in range(start, start + n // 2))
            text = f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{n} x i32> <{picks}>"
            vectors.append(b.emit(x.elem, n, text))
        return vectors

    even, odd = zipped(words[0], words[2]), zipped(words[1], words[3])
    return [part for x, y in zip(even, odd, strict=True) for part in zipped(x, y)]


def _product(b: FunctionBody, x: Reg, factor: int) -> tuple[Reg, Reg]:
    """The upper and the lower 64 bits of a product."""
    wide = b.emit("i128", 0, f"zext i64 {x.ref} to i128")
    whole = b.emit("i128", 0, f"mul i128 {wide.ref}, {factor}")
    upper = b.emit("i128", 0, f"lshr i128 {whole.ref}, 64")
    high = b.emit("i64", 0, f"trunc i128 {upper.ref} to i64")
    return high, b.emit("i64", 0, f"trunc i128 {whole.ref} to i64")


def _signed(word: int) -> int:
    """The int64 with the bits of a uint64."""
    return word - (1 << 64) if word >> 63 else word
