"""PyTorch's generator of the CPU: the words of a Mersenne Twister, and how draws are made of them.

Words: M. Matsumoto and T. Nishimura, 1998 (NumPy's). Normal numbers are G. Box and M. Muller's,
gamma ones G. Marsaglia and W. Tsang's, Poisson and binomial ones W. Hörmann's (1993, PTRS and
BTRS). Which words make which number is PyTorch's, and tests/test_follow_torch.py compares.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import fork_safety
from ...core.cython_shim import cython
from ...core.errors import InvalidArgument

if TYPE_CHECKING:
    import cython  # what the compiler sees

if cython.compiled:  # where the functions are the C library's
    import_array()
else:
    from math import (
        ceil,
        cos,
        exp,
        fabs,
        floor,
        inf,
        lgamma,
        log,
        log1p,
        pi,
        sin,
        sqrt,
        tan,
    )  # fmt: skip

__all__ = ["Twister"]

# PyTorch's layout of a state: seed; words left, seeded, place of the next; 624 words of 64 bits;
# three numbers of which the second is the normal number that is left over, and whether there is
# one; the same in float32, which nothing here draws.
_LAYOUT = struct.Struct("<QiiQ4992s3di4x8s")
_WORDS = 624
_FILL = 16  # that many normal numbers, and more, are drawn in blocks of 16
_BOXES = 2**14  # numbers that are made at a time, whose parts stay in the caches
_FEW = 512  # fewer of them are made one by one: the calls of NumPy take longer than the numbers
_WIDE = 2**28  # from that range on, a whole number takes two words

_NORMAL, _LOG_NORMAL, _EXPONENTIAL, _GEOMETRIC, _CAUCHY, _POISSON, _GAMMA, _BINOMIAL = range(8)
_REJECTING = {"poisson": _POISSON, "gamma": _GAMMA, "binomial": _BINOMIAL}
_LOW, _LEAST = 2**53 - 1, 2.0**-53  # of 53 bits a number of [0, 1) is made
_LEAST_SINGLE = 2.0**-24  # of 24 in float32
_TWO_PI = float(np.float32(2 * math.pi))
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

Order = tuple[int, ...] | None  # of dimensions, the slowest first; None: row-major


class Twister:
    """The state of PyTorch's generator. What is drawn is in the order of memory."""

    __slots__ = (
        "_bits", "_draws", "_kept", "_lock", "_other", "_source", "_spare", "_unused",
    )  # fmt: skip

    _spare: float  # the second normal number of the last pair
    _kept: bool  # whether that was not drawn yet
    _source: Any  # NumPy's functions from the state to its next word, where this is compiled
    _unused: bool  # no word was drawn since it was seeded: PyTorch says so in its state

    def __init__(self, seed: int) -> None:
        self._lock = fork_safety.lock()
        self._bits = np.random.MT19937(0)
        self._draws = np.random.Generator(self._bits)
        seeded: Any = np.random.RandomState(seed & 0xFFFFFFFF).get_state(legacy=False)
        self._bits.state = {"bit_generator": "MT19937", "state": seeded["state"]}
        self._spare, self._kept, self._unused, self._other = 0.0, False, True, bytes(8)
        if cython.compiled:
            self._source = cython.cast(
                p_bitgen, PyCapsule_GetPointer(self._bits.capsule, "BitGenerator")
            )

    # ---- state ----

    def to_bytes(self, seed: int) -> bytes:
        """The state as PyTorch's `get_state` gives it."""
        inner: Any = self._bits.state["state"]
        place = int(inner["pos"])
        left, after = (1, 0) if self._unused else (_WORDS + 1 - place, place)
        words = inner["key"].astype("<u8").tobytes()
        spare = self._spare if self._kept else 0.0
        return _LAYOUT.pack(seed, left, 1, after, words, 0.0, spare, 0.0, self._kept, self._other)

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
        made.restore(key, place, spare if kept else None, not after, other)
        return seed, made

    def restore(
        self, key: Any, place: int, spare: float | None, unused: bool, other: bytes
    ) -> None:
        """Go to a state: its words, the place of the next one, and a normal number that is left."""
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": place}}
        self._spare, self._kept = spare or 0.0, spare is not None
        self._unused, self._other = unused, other

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
        kind = dtype.numpy
        if dtype.is_complex:
            shape, kind = (*shape, 2), dtype.to_real().numpy
            order = None if order is None else (*order, len(order))
            if method == "normal":
                mean, std = args or (0.0, 1.0)
                args = (mean, std * math.sqrt(0.5))
        count = math.prod(shape)
        with self._lock:
            flat = getattr(self, method)(count, kind, order is None, *args)
        if order is None:
            found = flat if len(shape) == 1 else flat.reshape(shape)
        else:
            found = flat.reshape([shape[i] for i in order]).transpose(np.argsort(order))
        return found.view(dtype.numpy)[..., 0] if dtype.is_complex else found

    def uniform(self, count: int, kind: Any, _: bool, low: float = 0.0, high: float = 1.0) -> Any:
        """Numbers of [low, high)."""
        if kind.itemsize >= 4:
            return self._uniforms(count, kind, low, high)
        with np.errstate(all="ignore"):
            values = self._uniforms(count, _SINGLE, low, high).astype(kind)
            values[values == kind.type(high)] = low  # what was rounded up
        return values

    def normal(
        self, count: int, kind: Any, dense: bool, mean: float = 0.0, std: float = 1.0
    ) -> Any:
        """Normal numbers: few, or in an order of their own, one by one; else by blocks."""
        if count < _FILL or not dense:
            return self._each(_NORMAL, count, kind, mean, std)
        behind = count % _FILL
        narrow = kind.itemsize < 4
        working = _SINGLE if narrow else kind
        if count < _FEW and not narrow:
            values = self._uniforms(count, working, 0.0, 1.0)
            self._few_boxes(values, 0, count - behind, mean, std)
            if behind:  # the last 16 are drawn again
                values[count - _FILL :] = self._uniforms(_FILL, working, 0.0, 1.0)
                self._few_boxes(values, count - _FILL, count, mean, std)
            return values
        values = np.empty(count, working)
        with np.errstate(all="ignore"):
            for begin in range(0, count - behind, _BOXES):
                self._boxes(values[begin : min(begin + _BOXES, count - behind)], mean, std)
            if behind and not narrow:
                self._uniforms(behind, working, 0.0, 1.0)  # whose places are drawn again
            if behind:
                self._boxes(values[count - _FILL :], mean, std)
            return values.astype(kind, copy=False)

    def log_normal(self, count: int, kind: Any, _: bool, mean: float, std: float) -> Any:
        """Numbers whose logarithm is normal."""
        return self._each(_LOG_NORMAL, count, kind, mean, std)

    def exponential(self, count: int, kind: Any, _: bool, rate: float = 1.0) -> Any:
        """Numbers with the exponential distribution."""
        return self._each(_EXPONENTIAL, count, kind, -1.0 / rate)

    def geometric(self, count: int, kind: Any, _: bool, p: float) -> Any:
        """Numbers of trials up to the first success."""
        return self._each(_GEOMETRIC, count, kind, math.log1p(-p))

    def cauchy(self, count: int, kind: Any, _: bool, median: float, sigma: float) -> Any:
        """Numbers with the Cauchy distribution."""
        return self._each(_CAUCHY, count, kind, median, sigma)

    def integers(self, count: int, kind: Any, _: bool, low: int, high: int) -> Any:
        """Whole numbers of [low, high), by the remainder of one word or two."""
        span = high - low
        return self._remainders(count, kind, span >= _WIDE, span % 2**64, low)

    def whole(self, count: int, kind: Any, _: bool, most: int) -> Any:
        """Whole numbers of [0, most], of which two words make those of wide dtypes."""
        return self._remainders(count, kind, kind in (np.int64, np.float64), most + 1, 0)

    def permutation(self, count: int, kind: Any, _: bool) -> Any:
        """0 to count - 1 in random order: each changes places with one from itself on."""
        order = np.arange(count)
        if cython.compiled:
            self._unused = self._unused and count < 2
            at = cython.cast(p_int64, PyArray_DATA(order))
            for i in range(count - 1):
                k = i + self._source.next_uint32(self._source.state) % cython.cast(
                    cython.uint, count - i
                )
                at[i], at[k] = at[k], at[i]
        else:
            sizes = np.arange(count, 1, -1, dtype=np.uint32)
            steps = self.words(max(count - 1, 0)) % sizes
            listed = order.tolist()
            for i, j in enumerate((steps + np.arange(len(steps))).tolist()):
                listed[i], listed[j] = listed[j], listed[i]
            order[:] = listed
        return order.astype(kind, copy=False)

    def mask(self, count: int, kind: Any, _: bool, keep: float, value: float) -> Any:
        """`value` with probability `keep`, else 0."""
        chosen = self._uniforms(count, _DOUBLE, 0.0, 1.0) < keep
        return chosen.astype(kind) if value == 1.0 else chosen * kind.type(value)

    def rejecting(self, method: str, *parameters: Any) -> Any:
        """Numbers in float64 of a sampler that takes as many words as it takes, one for each
        element of `parameters`, in their order.
        """
        first, last = (np.ascontiguousarray(x, np.float64) for x in (parameters[0], parameters[-1]))
        with self._lock:
            found = self._rejecting(_REJECTING[method], first, last)
        return found.reshape(parameters[0].shape)

    def _rejecting(self, which: int, first: Any, last: Any) -> Any:
        """Numbers of a sampler for each pair of parameters."""
        found = np.empty(first.shape)
        if cython.compiled:
            count = found.size
            x1 = cython.cast(p_double, PyArray_DATA(first))
            x2 = cython.cast(p_double, PyArray_DATA(last))
            out = cython.cast(p_double, PyArray_DATA(found))
            for i in range(count):
                out[i] = self._sample(which, x1[i], x2[i])
        else:
            for i, (a, b) in enumerate(zip(first.ravel(), last.ravel(), strict=True)):
                found.flat[i] = self._sample(which, float(a), float(b))
        return found

    # ---- arrays of numbers ----

    def _uniforms(self, count: int, kind: Any, low: float, high: float) -> Any:
        """Numbers of [low, high) in float32, by 24 bits of a word each, or in float64, by 53 bits
        of two words.
        """
        wide = kind == np.float64
        values = np.empty(count, kind)
        self._unused = self._unused and not count
        width, first, last = high - low, low, high
        if not wide:
            last = float(np.float32(high)) if high != 1.0 else 1.0
            first = float(np.float32(low)) if low else 0.0
            width = float(np.float32(last - first))
        if cython.compiled:
            doubles = cython.cast(p_double, PyArray_DATA(values))
            singles = cython.cast(p_float, PyArray_DATA(values))
            for i in range(count):
                if wide:
                    doubles[i] = self._one() * width + first
                    if doubles[i] == last:  # was rounded up
                        doubles[i] = first
                else:
                    x = self._source.next_uint32(self._source.state) & 0xFFFFFF
                    singles[i] = cython.cast(cython.float, x * _LEAST_SINGLE * width + first)
                    if singles[i] == last:
                        singles[i] = cython.cast(cython.float, first)
            return values
        u = self._double(count) if wide else self._single(count).astype(np.float64)
        values[:] = u * width + first
        values[values == last] = first
        return values

    def _remainders(self, count: int, kind: Any, wide: bool, span: int, low: int) -> Any:
        """Remainders of numbers of one or two words by `span` (0: 2**64), from `low` on."""
        values = np.empty(count, np.int64)
        self._unused = self._unused and not count
        if cython.compiled:
            divisor = span
            at = cython.cast(p_int64, PyArray_DATA(values))
            start = low
            for i in range(count):
                if wide:
                    word = self._source.next_uint64(self._source.state)
                else:
                    word = self._source.next_uint32(self._source.state)
                if divisor:
                    word %= divisor
                at[i] = cython.cast(cython.longlong, word) + start
        else:
            words = self.double_words(count) if wide else self.words(count).astype(np.uint64)
            if span:
                words %= np.uint64(span)
            values[:] = (words + np.uint64(low % 2**64)).view(np.int64)
        return values.astype(kind, copy=False)

    def _each(self, which: int, count: int, kind: Any, a: float = 0.0, b: float = 0.0) -> Any:
        """Numbers of a sampler; narrow dtypes by way of float32, as PyTorch does."""
        single = kind.itemsize < 4 or kind == np.float32
        values = np.empty(count, _SINGLE if single else _DOUBLE)
        if cython.compiled:
            doubles = cython.cast(p_double, PyArray_DATA(values))
            singles = cython.cast(p_float, PyArray_DATA(values))
            for i in range(count):
                if single:
                    singles[i] = cython.cast(cython.float, self._sample(which, a, b))
                else:
                    doubles[i] = self._sample(which, a, b)
            if values.dtype == kind:
                return values
        with np.errstate(all="ignore"):
            if not cython.compiled:
                values[:] = [self._sample(which, a, b) for _ in range(count)]
            return values.astype(kind, copy=False)

    def _boxes(self, values: Any, mean: float, std: float) -> None:
        """Fill an array with normal numbers, each of a block of 16 made of two uniform ones, with
        the one eight places behind it.
        """
        size, single = len(values), values.dtype == np.float32
        u, v = np.empty(size // 2, values.dtype), np.empty(size // 2, values.dtype)
        self._unused = False
        if not cython.compiled:
            pairs = self._uniforms(size, values.dtype, 0.0, 1.0).reshape(-1, 2, _FILL // 2)
            u[:], v[:] = 1.0 - pairs[:, 0].ravel(), pairs[:, 1].ravel()
        elif single:
            singles = cython.cast(p_float, PyArray_DATA(u))
            others = cython.cast(p_float, PyArray_DATA(v))
            for i in range(size):
                x = self._source.next_uint32(self._source.state) & 0xFFFFFF
                k = i // 16 * 8 + i % 8
                if i & 8:
                    others[k] = cython.cast(cython.float, x * _LEAST_SINGLE)
                else:
                    singles[k] = cython.cast(cython.float, 1.0 - x * _LEAST_SINGLE)
        else:
            doubles = cython.cast(p_double, PyArray_DATA(u))
            rest = cython.cast(p_double, PyArray_DATA(v))
            for i in range(size):
                k = i // 16 * 8 + i % 8
                if i & 8:
                    rest[k] = self._one()
                else:
                    doubles[k] = 1.0 - self._one()
        np.log(u, out=u)
        u *= u.dtype.type(-2.0)
        np.sqrt(u, out=u)
        v *= v.dtype.type(2 * math.pi)
        w = np.sin(v)
        np.cos(v, out=v)
        v *= u
        w *= u
        if std != 1.0:
            v *= v.dtype.type(std)
            w *= w.dtype.type(std)
        if mean != 0.0:
            v += v.dtype.type(mean)
            w += w.dtype.type(mean)
        both = values.reshape(-1, 2, _FILL // 2)
        both[:, 0], both[:, 1] = v.reshape(-1, _FILL // 2), w.reshape(-1, _FILL // 2)

    def _few_boxes(self, values: Any, begin: int, end: int, mean: float, std: float) -> None:
        """Make uniform numbers normal in their place, as `_boxes` does, one after another."""
        single = values.dtype == np.float32
        if cython.compiled:
            doubles = cython.cast(p_double, PyArray_DATA(values))
            singles = cython.cast(p_float, PyArray_DATA(values))
        half = _FILL // 2
        for block in range(begin, end, _FILL):
            for i in range(block, block + half):
                if cython.compiled:
                    u = singles[i] if single else doubles[i]
                    v = singles[i + half] if single else doubles[i + half]
                else:
                    u, v = float(values[i]), float(values[i + half])
                radius = sqrt(-2.0 * log(1.0 - u))
                angle = 2.0 * pi * v
                if single:  # in which PyTorch multiplies
                    angle = _rounded(_TWO_PI * v)
                x, y = radius * cos(angle) * std + mean, radius * sin(angle) * std + mean
                if not cython.compiled:
                    values[i], values[i + half] = x, y
                elif single:
                    singles[i] = cython.cast(cython.float, x)
                    singles[i + half] = cython.cast(cython.float, y)
                else:
                    doubles[i], doubles[i + half] = x, y

    # ---- single numbers, in the C library's functions, as PyTorch calls them ----

    def _one(self) -> float:
        """A number of [0, 1)."""
        self._unused = False
        if cython.compiled:
            word = self._source.next_uint64(self._source.state)
        else:
            word = self._bits.random_raw() << 32 | self._bits.random_raw()
        return (word & _LOW) * _LEAST

    def _one_normal(self) -> float:
        if self._kept:
            self._kept = False
            return self._spare
        u, v = self._one(), self._one()
        radius, angle = sqrt(-2.0 * log1p(-v)), 2.0 * pi * u
        self._spare, self._kept = radius * sin(angle), True
        return radius * cos(angle)

    def _sample(self, which: int, a: float, b: float) -> float:
        """A number of one of the samplers, with its parameters."""
        if which == _NORMAL:
            return self._one_normal() * b + a
        if which == _LOG_NORMAL:
            return _exp(self._one_normal() * b + a)
        if which == _EXPONENTIAL:
            return log1p(-self._one()) * a
        if which == _GEOMETRIC:
            return _steps(self._one(), a)
        if which == _CAUCHY:
            return tan(pi * (self._one() - 0.5)) * b + a
        if which == _POISSON:
            return self._poisson(a)
        if which == _GAMMA:
            return self._gamma(a)
        return self._binomial(a, b)

    def _poisson(self, rate: float) -> float:
        if rate < 10.0:
            count, product, least = 0.0, 1.0, exp(-rate)
            while rate:
                product *= self._one()
                if product <= least:
                    break
                count += 1.0
            return count
        root = sqrt(rate)
        b = 0.931 + 2.53 * root
        a = -0.059 + 0.02483 * b
        inverse = 1.1239 + 1.1328 / (b - 3.4)
        quick = 0.9277 - 3.6224 / (b - 2.0)
        while True:
            u, v = self._one() - 0.5, self._one()
            us = 0.5 - fabs(u)
            if not us:
                continue
            k = _floor((2 * a / us + b) * u + rate + 0.43)
            if us >= 0.07 and v <= quick:
                return k
            if k < 0 or not v or (us < 0.013 and v > us):
                continue
            weight = log(v) + log(inverse) - log(a / (us * us) + b)
            if weight <= -rate + k * log(rate) - lgamma(k + 1):
                return k

    def _gamma(self, shape: float) -> float:
        scale = 1.0
        if shape < 1.0:
            if shape == 0.0:
                return 0.0
            scale = pow(1.0 - self._one(), 1.0 / shape)
            shape += 1.0
        d = shape - 1.0 / 3.0
        c = 1.0 / sqrt(9.0 * d)
        while True:
            y = x = 0.0
            while y <= 0.0:
                x = self._one_normal()
                y = 1.0 + c * x
            v, u = y * y * y, 1.0 - self._one()
            xx = x * x
            if u < 1.0 - 0.0331 * xx * xx or log(u) < 0.5 * xx + d * (1 - v + log(v)):
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
        found, at, log_q = 0.0, 0.0, log1p(-p)
        while True:
            at += _steps(self._one(), log_q)
            if at > trials:
                return found
            found += 1.0

    def _many_trials(self, n: float, p: float) -> float:
        deviation = sqrt(n * p * (1 - p))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * p
        odds = p / (1 - p)
        alpha = (2.83 + 5.1 / b) * deviation
        m = _floor((n + 1) * p)
        quick = 0.92 - 4.2 / b
        while True:
            u, v = self._one() - 0.5, self._one()
            us = 0.5 - fabs(u)
            if not us:
                continue
            k = _floor((2 * a / us + b) * u + n * p + 0.5)
            if us >= 0.07 and v <= quick:
                return k
            if k < 0 or k > n or not v:
                continue
            bound = (m + 0.5) * log((m + 1) / (odds * (n - m + 1)))
            bound += (n + 1) * log((n - m + 1) / (n - k + 1))
            bound += (k + 0.5) * log(odds * (n - k + 1) / (k + 1))
            bound += _tail(m) + _tail(n - m) - _tail(k) - _tail(n - k)
            if log(v * alpha / (a / (us * us) + b)) <= bound:
                return k


def _steps(u: float, log_q: float) -> float:
    """The number of trials up to the first success, for a uniform number and log(1 - p)."""
    steps = log(u) / log_q if u else inf
    return float(ceil(steps)) if steps < 1e300 else steps


def _rounded(x: float) -> float:
    """x in float32."""
    if cython.compiled:
        return cython.cast(cython.float, x)
    return float(np.float32(x))


def _floor(x: float) -> float:
    return float(floor(x))


def _exp(x: float) -> float:
    """exp(x), which is infinite for large numbers."""
    return exp(x) if x < 709.0 else _far_exp(x)


def _far_exp(x: float) -> float:
    return inf if x > 709.782712893384 else exp(x)


def _tail(k: float) -> float:
    """log k! less Stirling's formula for it."""
    x = k + 1.0
    return lgamma(x) - (k + 0.5) * log(x) + x - 0.5 * log(2 * pi)
