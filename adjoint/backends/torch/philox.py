"""Random bits on a device: the numbers that NumPy's Philox gives the host, by PyTorch's integers.

Block n of a stream is a function of (seed, draw, n) alone, four words of 64 bits (Salmon et al.,
2011, "Parallel random numbers: as easy as 1, 2, 3"; Philox4x64 with ten rounds), so all blocks are
computed at once. int64 wraps around as uint64 does; only shifts to the right need a mask. Words
that are the same in all blocks stay Python numbers.
"""

from __future__ import annotations

from typing import Any

import torch

LARGE = 1 << 18  # numbers from which the device is faster than the host and the way from there
_WORD, _HALF = (1 << 64) - 1, (1 << 32) - 1
_FACTORS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


def _signed(word: int) -> int:
    """The int64 with the bits of a uint64."""
    return word - (1 << 64) if word >> 63 else word


def _high(word: Any, factor: int) -> Any:
    """The upper 64 bits of the product of a word and a number."""
    if isinstance(word, int):
        return word * factor >> 64
    upper, lower = factor >> 32, factor & _HALF
    a, b = (word >> 32) & _HALF, word & _HALF
    low, left, right = b * lower, b * upper, a * lower
    carried = ((low >> 32) & _HALF) + (left & _HALF) + (right & _HALF)
    return a * upper + ((left >> 32) & _HALF) + ((right >> 32) & _HALF) + (carried >> 32)


def _low(word: Any, factor: int) -> Any:
    return word * factor & _WORD if isinstance(word, int) else word * _signed(factor)


def _xor(a: Any, b: Any, key: int) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a ^ b ^ key
    if isinstance(a, int):
        a, b = b, a
    return a ^ _signed(b ^ key) if isinstance(b, int) else a ^ b ^ _signed(key)


def words(seed: int, draw: int, count: int, device: Any) -> Any:
    """The first `count` words of a draw's stream, as int64."""
    blocks = -(-count // 4)
    c: tuple[Any, ...] = (torch.arange(1, blocks + 1, device=device), 0, draw, 0)
    keys = seed, 0
    for _ in range(10):
        c = (
            _xor(_high(c[2], _FACTORS[1]), c[1], keys[0]),
            _low(c[2], _FACTORS[1]),
            _xor(_high(c[0], _FACTORS[0]), c[3], keys[1]),
            _low(c[0], _FACTORS[0]),
        )
        keys = (keys[0] + _STEPS[0]) & _WORD, (keys[1] + _STEPS[1]) & _WORD
    return torch.stack(c, 1).reshape(-1)[:count]


def halves(seed: int, draw: int, count: int, device: Any) -> Any:
    """The first `count` numbers of 32 bits of a draw's stream, as int64."""
    numbers = words(seed, draw, (count + 1) // 2, device)
    return torch.stack((numbers & _HALF, (numbers >> 32) & _HALF), 1).reshape(-1)[:count]
