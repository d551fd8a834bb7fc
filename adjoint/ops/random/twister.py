"""PyTorch's generator of the CPU: the words of a Mersenne Twister, and how draws are made of them.

Words: M. Matsumoto and T. Nishimura, 1998 (NumPy's). Normal numbers are G. Box and M. Muller's,
gamma ones G. Marsaglia and W. Tsang's, Poisson and binomial ones W. Hörmann's (1993, PTRS and
BTRS). Which words make which number is PyTorch's, and tests/test_follow_torch.py compares.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...core import fork_safety
from ...core.errors import InvalidArgument

__all__ = ["Twister"]

# PyTorch's layout of a state: seed; words left, seeded, place of the next; 624 words of 64 bits;
# three numbers of which the second is the normal number that is left over, and whether there is
# one; the same in float32, which nothing here draws.
_LAYOUT = struct.Struct("<QiiQ4992s3di4x8s")
_WORDS = 624
_FILL = 16  # that many normal numbers, and more, are drawn in blocks of 16
_WIDE = 2**28  # from that range on, a whole number takes two words

Order = tuple[int, ...] | None  # of dimensions, the slowest first; None: row-major


class Twister:
    """The state of PyTorch's generator. What is drawn is in the order of memory."""

    __slots__ = (
        "_ahead", "_bits", "_draws", "_lock", "_other", "_size", "_spare", "_taken", "_unused",
    )  # fmt: skip

    _spare: float | None  # the second normal number of the last pair, if it was not drawn
    _ahead: Iterator[float]  # numbers of [0, 1) that a sampler may take
    _taken: int  # how many it took
    _unused: bool  # no word was drawn since it was seeded: PyTorch says so in its state

    def __init__(self, seed: int) -> None:
        self._lock = fork_safety.lock()
        self._bits = np.random.MT19937(0)
        self._draws = np.random.Generator(self._bits)
        seeded: Any = np.random.RandomState(seed & 0xFFFFFFFF).get_state(legacy=False)
        self._bits.state = {"bit_generator": "MT19937", "state": seeded["state"]}
        self._spare, self._unused, self._other = None, True, bytes(8)

    # ---- state ----

    def to_bytes(self, seed: int) -> bytes:
        """The state as PyTorch's `get_state` gives it."""
        inner: Any = self._bits.state["state"]
        place = int(inner["pos"])
        left, after = (1, 0) if self._unused else (_WORDS + 1 - place, place)
        words = inner["key"].astype("<u8").tobytes()
        spare, kept = (0.0, 0) if self._spare is None else (self._spare, 1)
        return _LAYOUT.pack(seed, left, 1, after, words, 0.0, spare, 0.0, kept, self._other)

    @classmethod
    def of_bytes(cls, state: bytes) -> tuple[int, Twister]:
        """The seed that is in such a state, and the generator in that state."""
        seed, left, seeded, after, words, _, spare, _, kept, other = _LAYOUT.unpack(state)
        if not seeded or not 0 <= after <= _WORDS or left != (_WORDS + 1 - after if after else 1):
            raise InvalidArgument(
                f"set_state: these {_LAYOUT.size} bytes are no state of PyTorch's generator of the "
                f"CPU ({left} words left, the next at {after}); use a get_state() result"
            )
        made = cls(0)
        key = np.frombuffer(words, "<u8").astype(np.uint32)
        place = after or _WORDS
        made._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": place}}
        made._spare, made._unused, made._other = spare if kept else None, not after, other
        return seed, made

    # ---- words ----

    def copy(self) -> Twister:
        """A copy in this state."""
        return Twister.of_bytes(self.to_bytes(0))[1]

    def words(self, count: int) -> Any:
        """The next words, of 32 bits."""
        self._unused = self._unused and not count
        raw: Any = self._bits.random_raw(count)
        return raw.astype(np.uint32)

    def double_words(self, count: int) -> Any:
        """Numbers of 64 bits, each of the next two words, the first above the second."""
        self._unused = self._unused and not count
        return self._draws.integers(0, 2**64, count, np.uint64)

    def _single(self, count: int) -> Any:
        """Numbers of [0, 1), by 24 bits of a word each, in float32."""
        return (self.words(count) & np.uint32(2**24 - 1)).astype(np.float32) * np.float32(2.0**-24)

    def _double(self, count: int) -> Any:
        """Numbers of [0, 1), by 53 bits of two words each, in float64."""
        return (self.double_words(count) & np.uint64(2**53 - 1)) * 2.0**-53

    # ---- draws ----

    def draw(
        self, method: str, args: tuple[Any, ...], shape: Sequence[int], dtype: Any, order: Order
    ) -> Any:
        """An array of what `method` draws for these arguments, its dimensions in such an order of
        memory.
        """
        with self._lock, np.errstate(all="ignore"):
            kind = dtype.numpy
            if dtype.is_complex:
                shape, kind = (*shape, 2), dtype.to_real().numpy
                order = None if order is None else (*order, len(order))
                if method == "normal":
                    args = (args[0], args[1] * math.sqrt(0.5))
            flat = getattr(self, method)(math.prod(shape), kind, order is None, *args)
        if order is None:
            found = flat.reshape(shape)
        else:
            found = flat.reshape([shape[i] for i in order]).transpose(np.argsort(order))
        return found.view(dtype.numpy)[..., 0] if dtype.is_complex else found

    def uniform(self, count: int, kind: Any, _: bool, low: float = 0.0, high: float = 1.0) -> Any:
        """Numbers of [low, high)."""
        if kind == np.float64:
            values = self._double(count)
            if (low, high) != (0.0, 1.0):
                values = values * (high - low) + low
        else:
            values = self._single(count)
            if (low, high) != (0.0, 1.0):
                first, width = np.float32(low), np.float32(high) - np.float32(low)
                values = (values * np.float64(width) + np.float64(first)).astype(np.float32)
            values = values.astype(kind, copy=False)
        if kind.itemsize < 4 or (low, high) != (0.0, 1.0):
            values[values == kind.type(high)] = low  # what was rounded up
        return values

    def normal(
        self, count: int, kind: Any, dense: bool, mean: float = 0.0, std: float = 1.0
    ) -> Any:
        """Normal numbers: few, or in an order of their own, one by one; else by blocks."""
        if count < _FILL or not dense:
            return _to(self._pairs(count) * std + mean, kind)
        uniform = self._double if kind == np.float64 else self._single
        behind = count % _FILL
        narrow = kind not in (np.float32, np.float64)
        values = _boxes(uniform(count - behind if narrow else count), count - behind)
        if behind:  # the last 16 are drawn again
            last = _boxes(uniform(_FILL), _FILL)
            values = np.concatenate([values[: count - _FILL], last])
        if std != 1.0:
            values *= values.dtype.type(std)
        if mean != 0.0:
            values += values.dtype.type(mean)
        return values.astype(kind, copy=False)

    def _pairs(self, count: int) -> Any:
        """Normal numbers in float64, one after another; of the last pair the second may stay."""
        held = [] if self._spare is None or not count else [self._spare]
        pairs = (count - len(held) + 1) // 2
        u = self._double(2 * pairs).reshape(-1, 2)
        radius, angle = np.sqrt(-2.0 * _each(math.log1p, -u[:, 1])), 2.0 * np.pi * u[:, 0]
        cosine, sine = _each(math.cos, angle), _each(math.sin, angle)
        both = np.stack([radius * cosine, radius * sine], 1).ravel()
        found = np.concatenate([held, both]) if held else both
        if count:
            self._spare = float(found[count]) if len(found) > count else None
        return found[:count]

    def log_normal(self, count: int, kind: Any, _: bool, mean: float, std: float) -> Any:
        """Numbers whose logarithm is normal."""
        return _to(_each(math.exp, self._pairs(count) * std + mean), kind)

    def exponential(self, count: int, kind: Any, _: bool, rate: float = 1.0) -> Any:
        """Numbers with the exponential distribution."""
        return _to(_each(math.log1p, -self._double(count)) * (-1.0 / rate), kind)

    def geometric(self, count: int, kind: Any, _: bool, p: float) -> Any:
        """Numbers of trials up to the first success."""
        return _to(np.ceil(_each(math.log, self._double(count)) / math.log1p(-p)), kind)

    def cauchy(self, count: int, kind: Any, _: bool, median: float, sigma: float) -> Any:
        """Numbers with the Cauchy distribution."""
        return _to(_each(math.tan, np.pi * (self._double(count) - 0.5)) * sigma + median, kind)

    def integers(self, count: int, kind: Any, _: bool, low: int, high: int) -> Any:
        """Whole numbers of [low, high), by the remainder of one word or two."""
        span = high - low
        if span < _WIDE:
            return ((self.words(count) % np.uint32(span)).astype(np.int64) + low).astype(kind)
        words = self.double_words(count)
        if span < 2**64:
            words %= np.uint64(span)
        return (words + np.uint64(low % 2**64)).view(np.int64).astype(kind)

    def whole(self, count: int, kind: Any, _: bool, most: int) -> Any:
        """Whole numbers of [0, most], of which two words make those of wide dtypes."""
        wide = kind in (np.int64, np.float64)
        words = self.double_words(count) if wide else self.words(count)
        return (words % words.dtype.type(most + 1)).astype(kind)

    def permutation(self, count: int, kind: Any, _: bool) -> Any:
        """0 to count - 1 in random order: each changes places with one from itself on."""
        order = list(range(count))
        sizes = np.arange(count, 1, -1, dtype=np.uint32)
        steps = self.words(max(count - 1, 0)) % sizes
        for i, j in enumerate((steps + np.arange(len(steps))).tolist()):
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64).astype(kind, copy=False)

    def mask(self, count: int, kind: Any, _: bool, keep: float, value: float) -> Any:
        """`value` with probability `keep`, else 0."""
        chosen = self._double(count) < keep
        return chosen.astype(kind) if value == 1.0 else chosen * kind.type(value)

    # ---- draws that reject: each number takes as many words as it takes ----

    def rejecting(self, method: str, *parameters: Any) -> Any:
        """Numbers in float64, one for each element of `parameters`, in their order."""
        with self._lock:
            one: Callable[..., float] = getattr(self, f"_{method}")
            before, unused = self._bits.state, self._unused
            self._ahead, self._taken, self._size = iter(()), 0, 32
            found = [one(*each) for each in zip(*(x.ravel().tolist() for x in parameters))]  # noqa: B905
            self._bits.state, self._unused = before, unused  # and on by the numbers that were taken
            self.double_words(self._taken)
        return np.array(found, np.float64).reshape(parameters[0].shape)

    def _one(self) -> float:
        """The next number of [0, 1), of those that were drawn ahead."""
        self._taken += 1
        for u in self._ahead:
            return u
        self._size = min(2 * self._size, 2**13)
        self._ahead = iter(self._double(self._size).tolist())
        return next(self._ahead)

    def _one_normal(self) -> float:
        if self._spare is not None:
            spare, self._spare = self._spare, None
            return spare
        u, v = self._one(), self._one()
        radius, angle = math.sqrt(-2.0 * math.log1p(-v)), 2.0 * math.pi * u
        self._spare = radius * math.sin(angle)
        return radius * math.cos(angle)

    def _poisson(self, rate: float) -> float:
        if rate < 10.0:
            count, product, least = 0, 1.0, math.exp(-rate)
            while rate:
                product *= self._one()
                if product <= least:
                    break
                count += 1
            return float(count)
        root = math.sqrt(rate)
        b = 0.931 + 2.53 * root
        a = -0.059 + 0.02483 * b
        inverse = 1.1239 + 1.1328 / (b - 3.4)

        def accepts(k: float, v: float, us: float) -> bool:
            if k < 0 or (us < 0.013 and v > us):
                return False
            weight = math.log(v) + math.log(inverse) - math.log(a / us**2 + b)
            return weight <= -rate + k * math.log(rate) - math.lgamma(k + 1)

        return self._hat(a, b, rate + 0.43, 0.9277 - 3.6224 / (b - 2.0), accepts)

    def _hat(
        self, a: float, b: float, c: float, quick: float,
        accepts: Callable[[float, float, float], bool],
    ) -> float:  # fmt: skip
        """Hörmann's transformed rejection under one hat for all parameters."""
        while True:
            u, v = self._one() - 0.5, self._one()
            us = 0.5 - abs(u)
            k = math.floor((2 * a / us + b) * u + c) if us else -1.0
            if (us >= 0.07 and v <= quick) or (us and v and accepts(k, v, us)):
                return float(k)

    def _gamma(self, shape: float) -> float:
        scale = 1.0
        if shape < 1.0:
            if shape == 0.0:
                return 0.0
            scale = (1.0 - self._one()) ** (1.0 / shape)
            shape += 1.0
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            y = 0.0
            while y <= 0.0:
                x = self._one_normal()
                y = 1.0 + c * x
            v, u = y**3, 1.0 - self._one()
            if u < 1.0 - 0.0331 * x**4 or math.log(u) < 0.5 * x * x + d * (1 - v + math.log(v)):
                return scale * d * v

    def _binomial(self, trials: float, p: float) -> float:
        if trials <= 0 or p <= 0:
            return 0.0
        if p >= 1:
            return trials
        if p > 0.5:
            return trials - self._binomial(trials, 1.0 - p)
        if trials * p >= 10.0:
            return self._many_trials(trials, p)
        found, at, log_q = 0.0, 0.0, math.log1p(-p)
        while True:
            u = self._one()
            at += math.ceil(math.log(u) / log_q) if u else math.inf
            if at > trials:
                return found
            found += 1.0

    def _many_trials(self, n: float, p: float) -> float:
        deviation = math.sqrt(n * p * (1 - p))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * p
        odds = p / (1 - p)
        alpha = (2.83 + 5.1 / b) * deviation
        m = math.floor((n + 1) * p)

        def accepts(k: float, v: float, us: float) -> bool:
            if k < 0 or k > n:
                return False
            bound = (m + 0.5) * math.log((m + 1) / (odds * (n - m + 1)))
            bound += (n + 1) * math.log((n - m + 1) / (n - k + 1))
            bound += (k + 0.5) * math.log(odds * (n - k + 1) / (k + 1))
            bound += _tail(m) + _tail(n - m) - _tail(k) - _tail(n - k)
            return math.log(v * alpha / (a / (us * us) + b)) <= bound

        return self._hat(a, b, n * p + 0.5, 0.92 - 4.2 / b, accepts)


def _boxes(u: Any, count: int) -> Any:
    """Normal numbers of uniform ones, each of a block of 16 with the one eight places behind it."""
    pairs = u[:count].reshape(-1, 2, _FILL // 2)
    radius = np.sqrt(-2 * np.log(1 - pairs[:, 0]))
    angle = u.dtype.type(2 * np.pi) * pairs[:, 1]
    found = np.empty((len(pairs), 2, _FILL // 2), u.dtype)
    np.multiply(radius, np.cos(angle), out=found[:, 0])
    np.multiply(radius, np.sin(angle), out=found[:, 1])
    return found.ravel()


def _each(function: Callable[[float], float], values: Any) -> Any:
    """A function of the C library's, of each number in float64.

    PyTorch calls them. NumPy has its own where the processor has AVX-512, whose last bit may be
    another one; it would stay, in the spare number of a state.
    """
    found = np.fromiter(map(function, values.ravel().tolist()), np.float64, values.size)
    return found.reshape(values.shape)


def _tail(k: float) -> float:
    """log k! less Stirling's formula for it."""
    x = k + 1.0
    return math.lgamma(x) - (k + 0.5) * math.log(x) + x - 0.5 * math.log(2 * math.pi)


def _to(values: Any, kind: Any) -> Any:
    """float64 in another dtype; narrow ones by way of float32, as PyTorch does."""
    if kind.itemsize < 4:
        values = values.astype(np.float32)
    return values.astype(kind, copy=False)
